"""The first layer of a report on a ladder: the answer on one screen, at every width, in ASCII too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from lrurun.config.ladder import Ladder
from lrurun.config.resolve import RateSource
from lrurun.config.tuning import is_edge
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


ANSWER = """\
sDigits · ladder lru · 12 seeds a rung

rung                test accuracy  0 %                        100  change     points      p  learn
──────────────────  ─────────────  ──────────────────────────────  ─────────  ──────  ─────  ─────
tanh-rnn             11.5 ± 0.3 %  |   ●○                       |                             0/12
linear-rnn           11.5 ± 0.3 %  |   ●○                       |  undecided    +0.0  1.000   0/12
diagonal             81.5 ± 0.3 %  |                      ●     |  helps       +70.0  0.003
exponential          81.5 ± 0.3 %  |                      ●     |  undecided    +0.0  1.000
stable-exponential   81.5 ± 0.3 %  |                      ●     |  undecided    +0.0  1.000
ring-init            91.5 ± 0.3 %  |                        ○●  |  helps       +10.0  0.003
gamma-norm           91.5 ± 0.3 %  |                        ○●  |  undecided    +0.0  1.000
phase                71.5 ± 0.3 %  |                   ●○       |  hurts       -20.0  0.003

"""


def test_the_answer_of_eight_rungs_is_one_screen() -> None:
    text = answer(ladder())
    assert text.startswith(ANSWER)
    assert len(text.split("\n")) < 30
    assert max(map(len, text.split("\n"))) <= 100
    for sentence in (
        "Helps: diagonal, ring-init. Hurts: phase. Undecided: the other 4 (intervals: --details).",
        "Claims, made about other tasks: 0 supported, 0 contradicted, 1 undecided (lrurun claims sDigits).",
        "More: lrurun report sDigits --details · lrurun plot sDigits --out ladder.pdf · lrurun ui",
    ):
        assert f"\n{sentence}\n" in f"{text}\n"
    assert "Caution" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("made", [ladder(), ladder(2), build(profile="laptop"), grid()], ids=range(4))
def test_no_line_is_wider_than_the_terminal(made: LadderReport, width: int) -> None:
    for ascii in (False, True):
        text = answer(made, width, ascii=ascii)
        assert max(map(len, text.split("\n"))) <= width
        assert text.isascii() == ascii
    rows = answer(made, width).split("\n\n")[1].split("\n")
    if width >= 60:
        assert len(rows) == 2 + len(made.rows)
        assert all(row.verdict in line for row, line in zip(made.rows, rows[2:], strict=True))


@pytest.mark.parametrize("made", [ladder(), build(), grid()], ids=range(3))
def test_the_numbers_are_those_of_json(made: LadderReport) -> None:
    lines = answer(made).split("\n\n")[1].split("\n")[2:]
    for row, line in zip(json.loads(formats.render(made, "json"))["rows"], lines, strict=True):
        if row["mean"] is not None:
            assert f"{100 * row['mean']:.1f} ± {100 * row['stderr']:.1f} %" in line
            assert sum(row["scores"]) / row["n"] == pytest.approx(row["mean"])
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


def test_cautions_are_a_few_words_each() -> None:
    default = dict.fromkeys((rung.name for rung in MINI.rungs), (0.1, RateSource("default", "the recipe's default")))
    text = " ".join(answer(build(rates=default, notes=["a note"]), 200).split())
    assert (
        "Caution: not tuned, see --tune (all rungs); provisional, fewer than 12 seeds (all rungs); the typical run and "
        "the mean disagree (stable-exponential); 1 run diverged (stable-exponential); 1 run failed "
        "(stable-exponential); 1 run unfinished (stable-exponential); runs of 2 code versions. "
        "Next: lrurun ladder sDigits --ladder mini --seeds 12 makes verdicts firm, which takes 12 seeds "
        "whatever these say. Note: a note More:"
    ) in text
    assert "Same runs as before: ring-init. Not run: small-phase." in text
    assert "(intervals: --details)" in answer(ladder(2))
    assert "(intervals: --details)" not in answer(ladder(1)), "one seed has none"
    assert "0 to 3 seeds a rung" in text
    improving = [
        make_run(f"{rung}{k}", rung, k, result={"test/accuracy": 0.5 + k / 9, "best_step": 10.0})
        for rung in "ab"
        for k in range(2)
    ]
    assert "Caution: provisional" in (shown := answer(two_rungs(*improving), 200))
    assert "; still improving at the last step (all rungs): longer with --set train.steps=20" in shown


def test_an_instance_that_no_request_finds_is_named_in_commands() -> None:
    text = formats.render(ladder(5), "table", width=200, answer=True, request="old-name")
    for command in ("report --instance old-name --details", "plot --instance old-name --out ladder.pdf"):
        assert f"lrurun {command} ·" in text
    assert "Claims, made about other tasks: 0 supported, 0 contradicted, 1 undecided.\n" in text
    assert "Next:" not in text


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
    one_seed = ladder(1)
    assert one_seed.claims[0].p_adjusted is None
    assert "Claims, made about other tasks: 0 supported, 0 contradicted, 1 undecided" in answer(one_seed)


def test_learning_rates_that_were_chosen_are_in_the_title() -> None:
    tuned = dict.fromkeys(NAMES, (0.1, RateSource("tuned", "tuned")))
    text = answer(ladder(rates=tuned, tune=True, profile="smoke", changes={"train.batch": 7}))
    title = (
        "sDigits · profile smoke · train.batch=7 · ladder lru · 12 seeds a rung · learning rates tuned on validation"
    )
    assert " ".join(text.split("\n\n")[0].split()) == title
    options = "--profile smoke --set train.batch=7 --tune"
    assert f"lrurun report sDigits {options} --details" in " ".join(text.split())
    assert "lrurun claims sDigits" in text


def test_rungs_that_branch_name_their_base_and_units_are_those_of_the_metric() -> None:
    assert answer(grid()).split("\n\n")[1].split("\n")[0].split()[:2] == ["rung", "base"]
    assert "Change: to its base" in answer(grid())
    runs = [make_run(name, name, 0, result={"test/bits_per_byte": score}) for name, score in (("a", 0.5), ("b", 0.6))]
    made = two_rungs(*runs, metric=METRICS["bits_per_byte"])
    assert "in bits per byte, lower is better." in " ".join(answer(made).split())


def test_a_rung_says_whether_it_or_its_base_was_not_run() -> None:
    """Nor are there columns, or notes on them, that nothing is in."""
    made = two_rungs(make_run("1", "b", 0, 0.6))
    assert [row.verdict for row in made.rows] == ["", "base not run"]
    text = answer(made)
    assert "Base not run: b." in text
    assert "Change:" not in text
    assert "p:" not in text
    diverged = two_rungs(make_run("1", "a", 0, 0.6), make_run("2", "b", 0, None, state="diverged"))
    assert "1 diverged  " in answer(diverged)


def test_the_answer_says_how_rates_were_tuned() -> None:
    tuning = Tuning(seeds=3, items=150, at_edge={NAMES[2]: ["optim.lr"]})
    rates = {name: (0.1, RateSource(kind="tuned", text="t")) for name in NAMES}
    text = " ".join(answer(ladder(tuning=tuning, rates=rates)).split())
    assert "learning rates tuned on validation (3 seeds, 150 items)" in text
    assert f"best rate at the edge of those tried ({NAMES[2]})" in text
    assert [is_edge(rate, [0.1, 0.2, 0.3]) for rate in (0.1, 0.2, 0.3)] == [True, False, True]
