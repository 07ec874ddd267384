"""Runs of npDigits that nobody trained, with the environments and ends of their attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.instances import documents
from lrurun.ledger.ledger import Ledger
from tests.harness.results import DIGESTS, OWNER

CODE = {"lrurun": "1.0.0", "commit": "a" * 40}
ENVIRONMENT = {
    "threads": 1,
    "numerics": 3,
    "code": CODE,
    "versions": {"python": "3.12.1", "jax": "0.10.2"},
    "machine": {"cpu": "AMD EPYC"},
    "device": "cpu",
    "data": {"kind": "generated", "source": "made by a test"},
}
ON_GPU = {**ENVIRONMENT, "device": "NVIDIA H200", "code": {**CODE, "dirty": "sha256:1"}}


def train(
    ledger: Path,
    rung: str,
    ends: Sequence[str],
    *,
    environments: Sequence[Mapping[str, Any]] = (ENVIRONMENT,),
    attempts: int = 1,
    fresh: bool = False,
) -> None:
    """Adds runs of npDigits with profile smoke, one for each end, which are in their environments in turn.

    Each run that is done was interrupted before, until it has had so many `attempts`.
    """
    plan = planning.make("npDigits", profile="smoke")
    [resolved] = planning.choose_rungs(plan, [rung])
    with Ledger.open(ledger) as open_ledger:
        instance = open_ledger.add_ladder("lru", "npDigits", "smoke", plan.spec, plan.short_name)
        documents.record(open_ledger, instance, plan)
        open_ledger.enqueue(instance.key, final_runs(plan, resolved, range(len(ends))), fresh=fresh)
        for seed, end in enumerate(ends):
            environment = environments[seed % len(environments)]
            if end == "queued":
                continue
            held = open_ledger.hold(instance.key, OWNER, rungs=[rung], seeds=[seed], environment=environment)
            assert held is not None
            for _ in range(attempts - 1 if end == "done" else 0):
                open_ledger.finish(held, "interrupted", step=10)
                open_ledger.requeue([held.run.id])
                held = open_ledger.hold(instance.key, OWNER, rungs=[rung], seeds=[seed], environment=environment)
                assert held is not None
                open_ledger.rewind(held, 10)
            open_ledger.describe(held, parameters=1000 + len(rung), data_sha256=DIGESTS["npDigits"])
            open_ledger.rewind(held, 10)
            open_ledger.record(held, [(30, "val/accuracy", 0.5 + seed / 100)], 30, score="val/accuracy")
            open_ledger.finish(
                held, end, result={"test/accuracy": 0.5 + seed / 100} if end == "done" else None, step=60
            )
