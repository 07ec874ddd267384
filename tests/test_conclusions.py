"""The sentences that open a report: they agree with the verdicts of its rows and claims."""

from __future__ import annotations

import json
from typing import Any

from lrurun.config.documents import Ladder
from lrurun.report import formats
from lrurun.report.ladder_table import LadderReport
from tests.reports import build, make_run, make_rung

NAMES = ("one", "two", "three", "four", "five")
LADDER = Ladder(name="mini", title="five", source="s", question="?", rungs=tuple(make_rung(name) for name in NAMES))


def report(*scores: tuple[float, ...], **more: Any) -> LadderReport:
    runs = [
        make_run(f"{rung}{seed}", rung, seed, score)
        for rung, values in zip(NAMES, scores, strict=False)
        for seed, score in enumerate(values)
    ]
    return build(LADDER, runs, **more)


def test_each_verdict_has_its_sentence() -> None:
    made = report((0.50, 0.51, 0.52), (0.90, 0.91, 0.92), (0.70, 0.71, 0.72), (0.69, 0.72, 0.71))
    assert [row.verdict for row in made.rows] == ["", "better", "worse", "undecided", "not run"]
    seeds = made.rows[3].seeds_to_decide
    assert seeds is None
    assert made.conclusions == (
        "What helps: two scores 40.00 points more than one (p < 0.001).",
        "What hurts: three scores 20.00 points less than two (p < 0.001).",
        "Undecided: four against three (-0.33 points; 100 seeds would not decide so small a difference).",
        "Not run: five against four.",
    )


def test_the_number_of_seeds_is_that_of_the_verdict_less_those_that_there_are() -> None:
    made = report((0.50, 0.51, 0.52), (0.51, 0.53, 0.54, 0.52))
    row = made.rows[1]
    assert row.verdict == "undecided"
    assert row.seeds_to_decide is not None
    assert made.conclusions[0] == "No difference between rungs is decided yet."
    assert f"(+1.50 points; about {row.seeds_to_decide - 3} more seeds a side would decide" in made.conclusions[1]
    assert "two against one (no test yet)" in report((0.5,), (0.6,)).conclusions[1]


def test_claims_are_counted_by_verdict() -> None:
    made = build()
    assert made.conclusions[-1] == "Of 4 claims: 2 undecided, 1 supported, 1 not run."
    counts = [claim.verdict for claim in made.claims]
    assert (counts.count("undecided"), counts.count("supported"), counts.count("not run")) == (2, 1, 1)
    assert build(limit=2).conclusions == (
        made.conclusions[0],
        "Of 1 claim: 1 supported.",
        f"These sentences are about the first 2 of {len(made.rows)} rungs; p and verdicts take all into account.",
    )
    assert build(limit=len(made.rows)).conclusions == made.conclusions


def test_every_format_begins_with_them() -> None:
    made = build()
    assert json.loads(formats.render(made, "json"))["conclusions"] == list(made.conclusions)
    helps = made.conclusions[0]
    for name in ("table", "md", "latex", "html"):
        text = formats.render(made, name)  # type: ignore[arg-type]
        assert text.index(helps.replace("<", "&lt;")) < text.index("12,345"), name
