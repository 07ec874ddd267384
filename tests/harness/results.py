"""A ledger of finished runs that nobody trained."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.ledger import values
from lrurun.ledger.ledger import Ledger
from lrurun.server import Server
from tests.harness.items import alike, on_items
from tests.harness.machine import Machine
from tests.harness.shared import SHARED, once
from tests.harness.stores import make_empty

DIGESTS = {
    "npDigits": "sha256:634d8f0f63a40a3f37cdc3b42297a8034169fd407d61df9f0aed107b43236f39",
    "sDigits": "sha256:8e35cebbf3f66111f4e583a83301de652cb863bfa62acde0da1e34a333008da1",
}
"""Task -> the digest of its data, where tests train it too: all tests share the folder of data."""
OWNER = values.Owner(host="here", boot="b", namespace="n", pid=1, pid_started=1.0)


def fill(
    path: Path | Server,
    task: str,
    scores: Mapping[str, Iterable[float | None]],
    *,
    ladder: str = "lru",
    profile: str | None = None,
    sets: Mapping[str, Any] = MappingProxyType({}),
    tune: bool = False,
    data: str | None = None,
    eigenvalues: dict[str, Sequence[complex]] | None = None,
    about: dict[str, Any] | None = None,
    first: int = 0,
    more: dict[str, float] | None = None,
    with_items: bool = True,
    right: Mapping[str, NDArray[np.float64]] | None = None,
    validation: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Adds an instance with a finished run a score: rung -> test scores in order of their seeds, from `first` on;
    None is a diverged run.

    `data` is the letter that a made-up digest of its data consists of; `eigenvalues`, moment -> those of the one layer,
    are recorded for every run, and `about` its data; every result has the values of `more` too, and with `validation`,
    rung -> scores in the same order, the best validation score of its run. Unless `with_items` is
    false, test items are recorded that do not change verdicts; or `right`, rung -> (seeds, items) whether each run is
    right on each item.
    """
    plan = planning.make(task, ladder=ladder, profile=profile, sets=sets, tune=tune)
    name = plan.task.metric.name
    test_items = plan.task.sizes(plan.options).get("test") if with_items else None
    digest = (data or "d") * 64 if data or task not in DIGESTS else DIGESTS[task]
    environment = {"device": "cpu", **({"data": about} if about else {})}
    recorded = {rung: hashlib.sha256(one.tobytes()).hexdigest() for rung, one in (right or {}).items()}
    rungs = {}
    for rung, found in scores.items():
        [resolved] = planning.choose_rungs(plan, [rung])
        wanted = dict(enumerate(found, first))
        rungs[rung] = wanted, final_runs(plan, resolved, list(wanted))

    def write(ledger: Ledger) -> None:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, profile, plan.spec, plan.short_name)
        for rung, (wanted, runs) in rungs.items():
            left = dict(wanted)
            ledger.enqueue(instance.key, runs)
            while held := ledger.hold(instance.key, OWNER, environment=environment):
                score = left.pop(held.run.seed)
                ledger.describe(held, parameters=1000, data_sha256=digest)
                if score is None:
                    ledger.finish(held, "diverged", step=10)
                    continue
                curve = [(10, f"val/{name}", score / 2), (20, f"val/{name}", score)]
                ledger.record(held, curve, 20, score=f"val/{name}")
                for moment, found in (eigenvalues or {}).items():
                    ledger.record_eigenvalues(held, moment, [found, None])
                result = {f"test/{name}": score, "machine/steps_per_second": 10.0, **(more or {})}
                if validation is not None:
                    result[f"val/{name}"] = validation[rung][held.run.seed - first]
                items = {}
                if test_items is not None and math.isfinite(score):
                    found = on_items(right[rung][held.run.seed - first]) if right else alike(score, test_items)
                    items = {f"test/{name}": found}
                ledger.finish(held, "done", result=result, items=items, step=20)
            assert not left, "these seeds had runs already"

    content = (plan.ladder.name, plan.recipe.task, profile, plan.spec, plan.short_name, rungs, environment)
    _write_or_copy(path, repr((content, name, digest, eigenvalues, more, test_items, recorded, validation)), write)


def memory() -> Machine:
    """A machine on which the study `memory` was computed, which tests only read."""
    return Machine(once("memory", lambda folder: Machine(folder).run("study", "memory", "--jobs", "1")))


_FILLED: dict[Path, tuple[str, tuple[int, int]]] = {}
"""Ledgers that were filled in this process: what they have, by its hash, and the file's size and time."""


def _write_or_copy(path: Path | Server, content: str, write: Callable[[Ledger], None]) -> None:
    """Most ledgers of tests have what one before had: its file is copied."""
    if isinstance(path, Server):
        with Ledger.open(path) as ledger, _one_transaction(ledger):
            write(ledger)
        return
    path = path.resolve()
    before, known = _FILLED.get(path, ("", None))
    key = hashlib.sha256(f"{before}{content}".encode()).hexdigest()
    kept = SHARED / "filled" / f"{key}.db"
    is_known = (now := _signature(path)) == known and now != (-1, -1)
    if is_known and kept.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, path)
    else:
        if now is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            make_empty(path)
        with Ledger.open(path) as ledger, _one_transaction(ledger):
            write(ledger)
        if is_known:
            kept.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, making := kept.with_suffix(f".{os.getpid()}"))
            making.rename(kept)
    if is_known:
        _FILLED[path] = key, _signature(path)


def _signature(path: Path) -> tuple[int, int] | None:
    """Size and time of a file, which are those of nothing while it is written to; None if it does not exist."""
    if path.with_name(f"{path.name}-wal").exists():
        return -1, -1
    if not path.exists():
        return None
    found = path.stat()
    return found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _one_transaction(ledger: Ledger) -> Iterator[None]:
    """All that is written inside is written at once, which takes much less time."""
    with (
        ledger.database.writing(durable=False) as connection,
        mock.patch.object(ledger.database, "writing", return_value=contextlib.nullcontext(connection)),
        mock.patch.object(ledger.database, "reading", return_value=contextlib.nullcontext(connection)),
        mock.patch.object(ledger.database, "write_back"),
    ):
        yield
