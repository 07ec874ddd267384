"""Runs, small ladders and their reports, for tests of reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from lrurun.config.instance import Instance
from lrurun.config.ladder import Claim, Ladder, Published, Rung
from lrurun.data.metric import Accuracy, Metric
from lrurun.items import ItemResults
from lrurun.judging.rung_runs import Note, RungRuns
from lrurun.ledger import values
from lrurun.report import formats
from lrurun.report.tables import ladder_table
from tests.harness import configs, items


def _no_items(_runs: Sequence[str], _result: str) -> Mapping[str, Any]:
    return {}


class InstanceRuns(msgspec.Struct, frozen=True, kw_only=True):
    """A ladder instance with runs that no ledger has."""

    ladder: Ladder
    identity: Instance
    runs: Sequence[values.Run]
    notes: Sequence[Note] = ()
    same_as_base: Collection[str] = ()
    metric: Metric = Accuracy()
    metrics: Sequence[Metric] = ()
    items: Callable[[Sequence[str], str], Mapping[str, ItemResults]] = _no_items
    items_removed: Callable[[Sequence[str], str], Mapping[str, int]] = _no_items


def rung_runs(rung: str, scores: Iterable[float | None] | Mapping[int, float | None]) -> RungRuns:
    """Runs of a rung with these scores, by their seeds; one without a score has diverged."""
    by_seed = dict(scores if isinstance(scores, Mapping) else enumerate(scores))
    runs = {
        seed: make_run(f"{rung}.{seed}", rung, seed, score, state="diverged" if score is None else "done")
        for seed, score in by_seed.items()
    }
    return RungRuns(
        rung=rung,
        runs=tuple(runs.values()),
        counted=tuple(run for run in runs.values() if run.state == "done"),
        scores=tuple(score for score in by_seed.values() if score is not None),
        parameters=None,
    )


def make_run(
    name: str,
    rung: str,
    seed: int,
    score: float | None = None,
    *,
    state: str = "done",
    stage: str = "train",
    key: str = "k",
    speed: float | None = None,
    config: dict[str, Any] | None = None,
    execution: dict[str, Any] | None = None,
    **more: Any,
) -> values.Run:
    result = None if score is None else {"test/accuracy": score, "val/accuracy": 0.01}
    if result and speed is not None:
        result["machine/steps_per_second"] = speed
    place = values.Membership(
        ladder="mini",
        ladder_key=key,
        instance="sDigits-mini",
        task="sDigits",
        profile=None,
        rung=rung,
        stage=stage,
        position=0,
    )
    fields: dict[str, Any] = {
        "id": name,
        "fingerprint": f"sha256:{name}",
        "generation": 0,
        "superseded": False,
        "kind": "training",
        "task": "sDigits",
        "seed": seed,
        "state": state,
        "step": 10,
        "steps": 10,
        "parameters": 12345,
        "config_id": hash(repr({**(config or {"data": {"rung": rung}}), "seed": None})),
        "result": result,
        "error": None,
        "data_sha256": "a" * 64,
        "code": ("0.1.0 abc",),
        "numerics": 2,
        "created_at": 1.0,
        "finished_at": 2.0,
        "memberships": (place,),
    }
    settings = values.RunSettings(
        config=configs.config({"data": {"rung": rung}, "seed": seed} if config is None else config),
        execution=configs.execution(execution),
        sources={},
    )
    return values.Run(settings=settings, **(fields | more))


def make_rung(name: str, title: str = "a rung", *, on: str | None = None, **published: tuple[Published, ...]) -> Rung:
    return Rung(name=name, title=title, on=on, change={"x": 1}, published=published)


PAPER = Published(source="Paper, Table 1", value=0.699, stderr=0.003)
AT_CHANCE = Published(source="Paper, Table 2", note="not above chance")

MINI = Ladder(
    name="mini",
    title="four rungs",
    source="Paper",
    question="Which of them matters?",
    rungs=(
        make_rung("tanh-rnn", "dense RNN", sDigits=(PAPER,)),
        make_rung("linear-rnn", "no nonlinearity"),
        make_rung("ring-init", "a ring"),
        make_rung("stable-exponential", "stable | exponential", sDigits=(AT_CHANCE,)),
        make_rung("small-phase", "small phases"),
    ),
    claims=(
        Claim(text="Linear is better", source="Paper, 1", rung="linear-rnn", than="tanh-rnn", tasks=("sCIFAR",)),
        Claim(text="The ring helps", source="Paper, 2", rung="ring-init", than="linear-rnn"),
        Claim(text="Stable is better", source="Paper, 3", rung="stable-exponential", than="ring-init"),
        Claim(text="Phases do not matter", source="Paper, 4", rung="small-phase", than="tanh-rnn"),
    ),
)

TANH = (0.90, 0.91, 0.92)
LINEAR = (0.95, 0.96, 0.955)
RUNS = [
    *[make_run(f"t{seed}", "tanh-rnn", seed, score, speed=100.0 + seed) for seed, score in enumerate(TANH)],
    *[make_run(f"l{seed}", "linear-rnn", seed, score, speed=250.0) for seed, score in enumerate(LINEAR)],
    make_run("s0", "stable-exponential", 0, 0.97, speed=1234.5, code=("0.1.0 abc", "0.2.0 def")),
    make_run("s1", "stable-exponential", 1, 0.98, speed=1234.5),
    make_run("s2", "stable-exponential", 2, state="diverged"),
    make_run("s3", "stable-exponential", 3, state="failed"),
    make_run("s4", "stable-exponential", 4, state="interrupted"),
    # None of these may enter any number.
    make_run("tune", "tanh-rnn", 1000, 0.1, stage="tune"),
    make_run("other", "tanh-rnn", 0, 0.2, key="another instance"),
    make_run("old", "tanh-rnn", 0, 0.3, superseded=True),
]


def build(ladder: Ladder = MINI, runs: list[values.Run] | None = None, **more: Any) -> ladder_table.LadderReport:
    fields: dict[str, Any] = {
        "runs": RUNS if runs is None else runs,
        "same_as_base": {"ring-init"} if ladder is MINI else (),
        "metric": Accuracy(chance=0.1),
    }
    fields |= {name: more.pop(name) for name in InstanceRuns.__struct_fields__ if name in more}
    fields["notes"] = list(map(Note, fields.get("notes", ())))
    more = {"test_items": 300, "steps_path": "train.steps"} | more
    fields = {"items": partial(_alike, fields["runs"], more["test_items"])} | fields
    return ladder_table.build(InstanceRuns(ladder=ladder, identity=instance_of(ladder, more), **fields), **more)


def instance_of(ladder: Ladder, fields: dict[str, Any]) -> Instance:
    """The instance on `sDigits`, with what `fields` have of it, which they then lack, except for the kind."""
    own = {name: fields.pop(name) for name in Instance.__struct_fields__ if name in fields and name != "kind"}
    own["kind"] = fields.get("kind", "training")
    return Instance(**({"ladder": ladder.name, "task": "sDigits", "key": "k", "short_name": "toy"} | own))


def _alike(runs: list[values.Run], count: int | None, ids: Sequence[str], result: str) -> Mapping[str, ItemResults]:
    """Per-item results that do not change verdicts."""
    if count is None:
        return {}
    scores = {run.id: run.result.get(result, math.nan) for run in runs if run.result}
    return {run: items.alike(scores[run], count) for run in ids if math.isfinite(scores[run])}


def two_rungs(*runs: values.Run, **more: Any) -> ladder_table.LadderReport:
    ladder = Ladder(name="two", title="two", source="s", rungs=(make_rung("a"), make_rung("b")))
    return build(ladder, list(runs), **more)


GRID = Ladder(
    name="grid",
    title="two forms on two rings",
    source="s",
    rungs=(
        make_rung("free-1"),
        make_rung("stable-1"),
        make_rung("free-2", on="free-1"),
        make_rung("stable-2"),
        make_rung("free-3", on="free-1"),
        make_rung("stable-3", on="stable-1"),
    ),
)
ON = [None, "free-1", "free-1", "free-2", "free-1", "stable-1"]
GRID_SCORES = {
    "free-1": (0.70, 0.72, 0.71),
    "stable-1": (0.80, 0.83, 0.82),
    "free-2": (0.60, 0.64, 0.61),
    "stable-2": (0.90, 0.91, 0.93),
}
GRID_RUNS = [
    make_run(f"{rung}.{seed}", rung, seed, score)
    for rung, scores in GRID_SCORES.items()
    for seed, score in enumerate(scores)
]


def grid(width: int | None = None, rungs: int = 6) -> Any:
    """The report on the grid, in which free-3 is as free-1; its table where a width is given."""
    ladder = msgspec.structs.replace(GRID, rungs=GRID.rungs[:rungs])
    report = build(ladder, GRID_RUNS, same_as_base={"free-3", "stable-3"})
    return report if width is None else formats.render(report, "table", width=width)


def body(table: str) -> str:
    """The table itself: between the blank lines after the head and before the foot."""
    return table.split("\n\n")[1]


EVIL = "50 % of a_b & c #1 $x$ ~ ^ \\ {y} é – ± × −3 λ 中 --set [a] *b* -0.5 |x| <y> \"q\" `z` </td><script>alert('1')</script>"  # noqa: E501


def evil():
    """A report whose every text means something else to LaTeX, HTML and Markdown."""
    published = Published(source=EVIL, value=0.5, note=EVIL)
    ladder = Ladder(
        name="evil",
        title=EVIL,
        source="s",
        question=EVIL,
        rungs=(make_rung("a", EVIL, sDigits=(published,)), make_rung("b")),
        claims=(Claim(text=EVIL, source=EVIL, rung="b", than="a"),),
    )
    runs = [make_run("1", "a", 0, 0.5, code=(EVIL, "y")), make_run("2", "b", 0, 0.25)]
    return build(ladder, runs, notes=[EVIL, "*", "[x]"])
