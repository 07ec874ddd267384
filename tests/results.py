"""A ledger of finished runs that nobody trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from lrurun import plan as planning
from lrurun.ledger import values
from lrurun.ledger.store import Ledger

OWNER = values.Owner(host="here", boot="b", namespace="n", pid=1, pid_started=1.0)


def fill(
    path: Path,
    task: str,
    scores: dict[str, Iterable[float]],
    *,
    ladder: str = "lru",
    profile: str | None = None,
    sets: Sequence[str] = (),
    tune: bool = False,
    data: str = "d",
) -> None:
    """Adds an instance with a finished run a score: rung -> test accuracies in order of their seeds."""
    plan = planning.make(task, ladder=ladder, profile=profile, sets=sets, tune=tune)
    with Ledger.open(path) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, profile, plan.spec)
        for rung, found in scores.items():
            [resolved] = planning.choose_rungs(plan, [rung])
            for seed, score in enumerate(found):
                ledger.enqueue(instance.key, planning.wanted_final(plan, resolved, [seed]))
                claim = ledger.claim(instance.key, OWNER, environment={"device": "cpu"})
                assert claim is not None
                ledger.record(claim, [(10, "val/accuracy", score / 2), (20, "val/accuracy", score)], 20)
                ledger.describe(claim, parameters=1000, data_sha256=data * 64)
                ledger.finish(claim, "done", result={"test/accuracy": score, "machine/steps_per_second": 10.0}, step=20)
