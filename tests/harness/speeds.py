"""A small ladder with training speeds, its runs, and the report of them."""

from __future__ import annotations

import json
from typing import Any

from lrurun.config.ladder import Ladder, TrainingSpeed
from lrurun.judging.rung_runs import InstanceRuns, Note
from lrurun.ledger import values
from lrurun.report import formats
from lrurun.report.tables import speed
from tests.harness.reports import instance_of, make_run, make_rung

XEON = {"device": "cpu", "machine": {"cpu": "Xeon"}}
H100 = {"device": "NVIDIA H100"}
HERE = {"threads": 1, "steps_per_dispatch": 25}

PAPER = {"source": "Paper, Table 4", "device": "A100"}
MINI = Ladder(
    name="mini",
    title="three rungs",
    source="Paper",
    rungs=(make_rung("tanh-rnn", "dense RNN"), make_rung("diagonal", "diagonal"), make_rung("lru", "the | whole")),
    speeds=(
        TrainingSpeed(system="tanh RNN", rung="tanh-rnn", steps_per_second={"sDigits": 2.0}, **PAPER),
        TrainingSpeed(system="LRU", rung="lru", steps_per_second={"sDigits": 15.0, "Text": 14.7}, **PAPER),
        TrainingSpeed(system="S4D", steps_per_second={"sDigits": 13.0}, **PAPER),
    ),
)

# Means 12 and 40; standard errors 2 / sqrt(3) = 1.1547 and sqrt(200 / 2) = 10; speed-up 40 / 12 = 3.3333.
MADE: list[tuple[str, str, float | None, dict[str, Any]]] = [
    ("t0", "tanh-rnn", 10.0, XEON),
    ("t1", "tanh-rnn", 12.0, XEON),
    ("t2", "tanh-rnn", 14.0, XEON),
    ("l0", "lru", 30.0, XEON),
    ("l1", "lru", 600.0, H100),
    ("l2", "lru", 50.0, XEON),
]


def attempt(run: str, environment: dict[str, Any], host: str = "here") -> values.Attempt:
    fields: dict[str, Any] = dict.fromkeys(values.Attempt.__struct_fields__)
    return values.Attempt(**(fields | {"run": run, "n": 1, "host": host, "environment": environment}))


def runs_of(made: list[tuple[str, str, float | None, dict[str, Any]]]) -> list[values.Run]:
    return [
        make_run(name, rung, seed, 0.5, speed=steps, execution=HERE) for seed, (name, rung, steps, _) in enumerate(made)
    ]


def build(
    made: list[tuple[str, str, float | None, dict[str, Any]]] = MADE,
    runs: list[values.Run] | None = None,
    ladder: Ladder = MINI,
    hosts: dict[str, str] | None = None,
    **more: Any,
) -> speed.SpeedReport:
    attempts = {name: attempt(name, where, (hosts or {}).get(name, "here")) for name, _, _, where in made}
    instance = instance_of(ladder, more)
    fields = {"runs": runs_of(made) if runs is None else runs} | more
    fields["notes"] = list(map(Note, fields.get("notes", ())))
    return speed.build(InstanceRuns(ladder=ladder, instance=instance, **fields), attempts.__getitem__)


def document(report: speed.SpeedReport) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(formats.render(report, "json"))
    return found


def body(report: speed.SpeedReport, width: int = 200) -> str:
    """The table itself: between the head and the foot."""
    return formats.render(report, "table", width=width).split("\n\n")[1]


def laptop() -> speed.SpeedReport:
    return build(profile="laptop", notes=["a note"])
