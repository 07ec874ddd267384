"""A run as a ladder of one rung, which trains it again: `lrurun show RUN --toml`."""

from __future__ import annotations

import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

from lrurun import plan as planning
from lrurun import plugins, strict
from lrurun.catalog import flatten
from lrurun.config import KIND, TUNING_SEED, Execution, RunConfig, fingerprint
from lrurun.console import clean
from lrurun.errors import LrurunError, UsageError
from lrurun.ledger.values import Run


def toml(run: Run) -> str:
    """The text of the ladder, with the command that it is for in its first lines.

    Raises:
        LrurunError: no ladder command trains this run again, from the recipes as they are now.
    """
    if run.seed >= TUNING_SEED:
        raise LrurunError(
            f"run {run.id} is a tuning run: a ladder trains it only where it chooses among the grid",
            "name one of its final runs: lrurun runs --where 'stage=train'",
        )
    config = plugins.config_of(run.config, f"run {run.id}")
    execution = strict.convert(run.execution, Execution, f"run {run.id}")
    document = _document(run, config)
    for task, profile in {(m.task, m.profile): None for m in run.memberships} | {(run.task, None): None}:
        found = _resolve(document, task, profile)
        if found is not None and fingerprint(_of_seed(found.config, config.seed)) == fingerprint(config):
            return f"{_command(run, task, profile, found.execution, execution)}\n{document}"
    raise LrurunError(
        f"run {run.id} cannot be trained again: the recipe of {run.task} makes other data now, or is not here",
        "restore the recipe; lrurun show tells the data that the run was trained on",
    )


def _document(run: Run, config: RunConfig) -> str:
    places = [f"ladder {m.ladder}, rung {m.rung}" for m in run.memberships[:1]]
    table = planning.plain(config)
    changes = dict(flatten({name: table[name] for name in ("model", "optim", "train")}))
    changes = dict(sorted(changes.items(), key=lambda item: item[0] != KIND))
    title = f"run {run.id} again"
    lines = [
        f"name = {_value(f'again-{run.id}')}",
        f"title = {_value(title)}",
        f"source = {_value(', '.join([*places, run.fingerprint]))}",
        *([f"load = [{', '.join(map(_value, files))}]"] if (files := plugins.files_of(config)) else []),
        "",
        "[[rung]]",
        # a name that no recipe has values for
        f"name = {_value(f'run-{run.id}')}",
        f"title = {_value(title)}",
        "",
        "[rung.change]",
        *(f"{_value(path)} = {_value(value)}" for path, value in changes.items()),
    ]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A string, number or truth as TOML writes it."""
    if isinstance(value, str):
        return json.dumps(clean(value), ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _resolve(document: str, task: str, profile: str | None) -> planning.ResolvedRung | None:
    """The rung of the ladder on that task, as a ladder command would read it; None where it could not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "again.toml"
        path.write_text(document, encoding="utf-8")
        try:
            return planning.make(task, ladder=str(path), profile=profile).rungs[0]
        except UsageError:
            return None


def _of_seed(config: RunConfig, seed: int) -> RunConfig:
    return strict.convert({**planning.plain(config), "seed": seed}, RunConfig, "the ladder")


def _command(run: Run, task: str, profile: str | None, given: Execution, wanted: Execution) -> str:
    words = ["lrurun", "ladder", task, *(["--profile", profile] if profile else []), "--ladder", "FILE.toml"]
    words += ["--seeds", f"{run.seed},"]
    for name in Execution.__struct_fields__:
        if getattr(given, name) != getattr(wanted, name):
            words += ["--set", f"execution.{name}={_value(getattr(wanted, name)).strip(chr(34))}"]
    return (
        f"# Trains run {run.id} again, where it is not done already (--fresh trains it in any case):\n"
        f"# {clean(shlex.join(words))}"
    )
