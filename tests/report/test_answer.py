"""The first layer of a report on a ladder: the answer on one screen, at every width, in ASCII too."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import structs

from lrurun.config.ladder import Ladder
from lrurun.config.resolve import RateSource
from lrurun.config.tuning_grid import is_edge
from lrurun.data.metric import METRICS
from lrurun.report import formats
from lrurun.report.tables.ladder_table import LadderReport, Tuning
from tests.harness.reports import MINI, build, grid, make_run, make_rung, two_rungs

NAMES = ("tanh-rnn", "linear-rnn", "diagonal", "exponential", "stable-exponential", "ring-init", "gamma-norm", "phase")
LADDER = Ladder(
    name="lru",
    title="eight",
    source="s",
    rungs=tuple(make_rung(name) for name in NAMES),
    claims=MINI.claims[:1],
)
CENTRES = (0.1, 0.1, 0.8, 0.8, 0.8, 0.9, 0.9, 0.7)


def ladder(seeds: int = 12, centres: Sequence[float] = CENTRES, **more: Any) -> LadderReport:
    runs = [
        make_run(f"{rung}{seed}", rung, seed, centre + 0.01 * (seed % 4))
        for rung, centre in zip(NAMES, centres, strict=False)
        for seed in range(seeds)
    ]
    return build(LADDER, runs, **more)


def answer(report: LadderReport, width: int = 100, *, ascii: bool = False) -> str:
    return formats.render(report, "table", width=width, answer=True, ascii=ascii)


def improving() -> LadderReport:
    result = {"best_step": 10.0}
    runs = [
        make_run(f"{rung}{k}", rung, k, result=result | {"test/accuracy": 0.5 + k / 9}) for rung in "ab" for k in (0, 1)
    ]
    return two_rungs(*runs)


def of_bits() -> LadderReport:
    runs = [make_run(name, name, 0, result={"test/bits_per_byte": score}) for name, score in (("a", 0.5), ("b", 0.6))]
    return two_rungs(*runs, metric=METRICS["bits_per_byte"])


DEFAULT = dict.fromkeys((rung.name for rung in MINI.rungs), (0.1, RateSource("default", "the recipe's default")))
TUNED = dict.fromkeys(NAMES, (0.1, RateSource("tuned", "tuned")))
TUNING = Tuning(seeds=3, items=150, at_edge={NAMES[2]: ["optim.lr"]})
ANSWERS: dict[str, Callable[[], LadderReport]] = {
    "twelve seeds": lambda: ladder(),
    "two seeds": lambda: ladder(2),
    "one seed": lambda: ladder(1),
    "cautions": lambda: build(rates=DEFAULT, notes=["a note"]),
    "branches": lambda: grid(),
    "tuned": lambda: ladder(rates=TUNED, tune=True, profile="smoke", set={"train.batch": 7}, tuning=TUNING),
    "still improving": lambda: improving(),
    "lower is better": lambda: of_bits(),
    "base not run": lambda: two_rungs(make_run("1", "b", 0, 0.6)),
    "nothing": lambda: build(runs=[]),
    "diverged": lambda: two_rungs(make_run("1", "a", 0, 0.6), make_run("2", "b", 0, None, state="diverged")),
}


def test_what_people_see(golden: Any) -> None:
    texts = {name: answer(make()) for name, make in ANSWERS.items()}
    texts |= {f"twelve seeds at {width}": answer(ladder(), width) for width in (40, 60)}
    texts["in ASCII"] = answer(ladder(), ascii=True)
    golden("report/answers.txt", "".join(f"==== {name}\n{text}\n\n" for name, text in texts.items()))


@pytest.mark.parametrize("name", ["twelve seeds", "two seeds", "cautions", "branches"])
def test_no_line_is_wider_than_the_terminal_and_numbers_are_those_of_json(name: str) -> None:
    made = ANSWERS[name]()
    for width in (40, 60, 80, 100, 120):
        for ascii in (False, True):
            text = answer(made, width, ascii=ascii)
            assert max(map(len, text.split("\n"))) <= width
            assert text.isascii() == ascii
        rows = answer(made, width).split("\n\n")[1].split("\n")
        if width >= 60:
            assert len(rows) == 2 + len(made.rows)
            assert all(row.verdict in line for row, line in zip(made.rows, rows[2:], strict=True))
    for row, line in zip(json.loads(formats.render(made, "json"))["rows"], rows[2:], strict=True):
        if row["mean"] is not None:
            assert f"{100 * row['mean']:.1f} ± {100 * row['stderr']:.1f} %" in line
        found = row["comparison"]
        if found and found["difference"] is not None and not row["same_as_before"]:
            assert f" {100 * found['difference']:+.1f} " in line
        if found and found["p_adjusted"] is not None:
            assert (f"{found['p_adjusted']:.3f}" if found["p_adjusted"] >= 0.001 else "<0.001") in line


def test_the_plot_has_all_seeds_on_one_axis() -> None:
    runs = [make_run(f"{rung}{k}", rung, k, score) for rung, k, score in (("a", 0, 0.5), ("a", 1, 0.6), ("b", 0, 1.0))]
    head, _, *rows = answer(two_rungs(*runs)).split("\n\n")[1].split("\n")
    start, end = head.index("40 %"), head.index("100") + len("100")
    # from 40 to 100 in 32 places: 50, 55 and 60 are 10, 15 and 20 of 60
    places = [
        {mark: [k for k, sign in enumerate(row[start + 1 : end - 1]) if sign == mark] for mark in "○●"} for row in rows
    ]
    assert places == [{"○": [5, 10], "●": [8]}, {"○": [], "●": [31]}]


@pytest.mark.parametrize("scores", [(0.5, 0.5), (0.0, 0.0), (1.0, 1.0), (-1e6, 0.9), (1e-9, 2e-9)])
def test_the_axis_has_room_for_every_score(scores: tuple[float, float]) -> None:
    runs = [make_run(name, name, 0, result={"test/r2": score}) for name, score in zip("ab", scores, strict=True)]
    rows = answer(two_rungs(*runs, metric=METRICS["r2"])).split("\n\n")[1].split("\n")[2:]
    assert all(row.count("●") == 1 for row in rows)


def test_an_error_is_not_printed_as_zero() -> None:
    made = ladder(centres=(0.5, 0.5), shown=NAMES[:2])
    assert " 51.5 ± 0.3 % " in answer(made)
    rows = tuple(structs.replace(row, stderr=0.0002) for row in made.rows)
    assert " 51.50 ± 0.02 % " in answer(structs.replace(made, rows=rows))
    rows = tuple(structs.replace(row, stderr=1e-17) for row in made.rows)
    assert " 51.5 ± 0.0 % " in answer(structs.replace(made, rows=rows)), "a rounding error"


def test_an_instance_that_no_request_finds_is_named_in_commands() -> None:
    text = formats.render(ladder(5), "table", width=200, answer=True, request="old-name")
    for command in ("report --instance old-name --details", "plot --instance old-name --out ladder.pdf"):
        assert f"lrurun {command} ·" in text
    assert "Next:" not in text
    assert "(lrurun claims --instance old-name)" in text


def test_what_is_next_is_the_command_that_may_decide_a_change() -> None:
    centres = (*CENTRES[:-1], 0.91)
    made = ladder(centres=centres)
    again = "--seeds 12-31 --ledger fresh.db (160 runs)"
    next_ = f"Next: lrurun ladder sDigits {again} asks again with fresh seeds, in a ledger of its own:"
    assert next_ in answer(made, 200), "undecided by firm verdicts"
    rows = tuple(structs.replace(row, improving=row.n, steps=150) for row in made.rows)
    longer = answer(structs.replace(made, rows=rows), 200)
    assert f"Next: lrurun ladder sDigits --set train.steps=300 {again} trains twice as long, with fresh seeds" in longer
    assert "longer with --set train.steps=300" in longer
    few = ladder(5)
    decided = structs.replace(few, rows=tuple(row for row in few.rows if row.verdict in ("", "helps", "hurts")))
    for one in (few, decided):
        assert "Next: lrurun ladder sDigits --seeds 12 makes verdicts firm, " in answer(one)
    cost = "lrurun ladder sDigits --rung phase --seeds 12 (7 runs)"
    assert f"Next: {cost} makes verdicts firm, " in formats.render(few, "table", answer=True, firm=cost)
    assert "Next:" not in answer(structs.replace(few, rows=few.rows[:1])), "nothing to judge"
    assert "Next: lrurun ladder sDigits --seeds 20-39 --ledger fresh.db" in answer(ladder(20), 200)
    assert "Next:" not in answer(structs.replace(made, fresh_seeds=None)), "a repetition is not repeated"
    smoke = " ".join(answer(ladder(5, profile="smoke")).split())
    assert "Next:" not in smoke
    assert "Caution: profile smoke shows that everything runs, its scores mean nothing;" in smoke


def test_the_sentence_on_claims_names_the_rungs_of_those_that_are_decided() -> None:
    claims = tuple(
        structs.replace(MINI.claims[0], text=rung, rung=rung, than=than, tasks=())
        for rung, than in (("diagonal", "linear-rnn"), ("ring-init", "exponential"), ("exponential", "diagonal"))
    )
    runs = [
        make_run(f"{rung}{seed}", rung, seed, centre + 0.01 * (seed % 4))
        for rung, centre in zip(NAMES, CENTRES, strict=True)
        for seed in range(12)
    ]
    assert "Claims: 2 supported (diagonal, ring-init), 0 contradicted, 1 undecided (" in answer(
        build(structs.replace(LADDER, claims=claims), runs), 200
    )


def test_a_rate_is_at_the_edge_of_those_that_were_tried() -> None:
    assert [is_edge(rate, [0.1, 0.2, 0.3]) for rate in (0.1, 0.2, 0.3)] == [True, False, True]
