"""The versions that a run was trained with, in the format of pip's requirements files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lrurun.console import clean
from lrurun.errors import LrurunError
from lrurun.report.devices import several

if TYPE_CHECKING:
    from lrurun.ledger.values import Attempt, Run

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9](?:[A-Za-z0-9._!+-]*[A-Za-z0-9])?")
_RELEASE = re.compile(r"[0-9]+(?:\.[0-9]+)*")


def text(run: Run, attempts: Sequence[Attempt]) -> str:
    """The packages of the last attempt at the run; comments name Python, device, code and earlier versions.

    Raises:
        LrurunError: no versions are recorded, as of users' programs.
    """
    if run.kind == "imported":
        raise LrurunError(
            f"run {run.id}: was imported, and its packages are not known",
            f"lrurun show {run.id} names its place in the tracker",
        )
    if not attempts or not _table(attempts[-1], "versions"):
        raise LrurunError(
            f"run {run.id}: no versions are recorded", f"see what is recorded: lrurun show {run.id} --json"
        )
    if run.kind == "program":
        raise LrurunError(
            f"run {run.id}: the packages of a program are not recorded",
            "list them where it is executed, as with pip freeze",
        )
    lines = [*_comments(run, attempts[-1]), *_lrurun(attempts[-1]), *_packages(attempts[-1]), *_earlier(attempts)]
    return "\n".join(map(clean, lines))


def _table(attempt: Attempt, name: str) -> Mapping[str, Any]:
    table = attempt.environment.get(name)
    return table if isinstance(table, Mapping) else {}


def _comments(run: Run, attempt: Attempt) -> Iterator[str]:
    device = attempt.environment.get("device", "an unknown device")
    cpu = _table(attempt, "machine").get("cpu", "unknown CPU")
    python = _table(attempt, "versions").get("python", "not recorded")
    threads = attempt.environment.get("threads", "not recorded")
    yield f"# Run {run.id} was trained with these versions."
    yield f"# Python {python}; device: {device}{several(attempt)}; CPU: {cpu}; threads: {threads}"


def _lrurun(attempt: Attempt) -> Iterator[str]:
    """A released lrurun as a requirement; any other as a comment that names the commit."""
    code = _table(attempt, "code")
    version, commit = str(code.get("lrurun", "not recorded")), code.get("commit")
    if commit is None and _RELEASE.fullmatch(version):
        yield f"lrurun=={version}"
    elif commit is None:
        yield f"# lrurun {version}: not a release; its commit is not recorded"
    else:
        changes = f", with uncommitted changes ({code['dirty']})" if code.get("dirty") else ""
        yield f"# lrurun {version}: install it from a checkout of commit {commit}{changes}"


def _packages(attempt: Attempt) -> Iterator[str]:
    on_nvidia = str(attempt.environment.get("device", "")).startswith("NVIDIA")
    for name, version in _table(attempt, "versions").items():
        if name == "python":
            continue
        extra = "[cuda13]" if on_nvidia and name == "jax" else ""
        if _NAME.fullmatch(name) and _VERSION.fullmatch(str(version)):
            yield f"{name}{extra}=={version}"
        else:
            yield f"# {name}: {version}"


def _earlier(attempts: Sequence[Attempt]) -> Iterator[str]:
    """A comment for each attempt with other versions than the last."""
    last = _table(attempts[-1], "versions")
    for attempt in attempts[:-1]:
        versions = _table(attempt, "versions")
        changed = [f"{name} {version}" for name, version in versions.items() if last.get(name) != version]
        if changed:
            yield f"# Attempt {attempt.n} had: {', '.join(changed)}"
