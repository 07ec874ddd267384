"""`plot --kind rates`: the learning rates of all steps, as training has them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lrurun
from lrurun.config import planning, tuning
from lrurun.config.schedules import learning_rates
from lrurun.ledger.ledger import Ledger
from tests.harness import drawings, programs
from tests.harness.drawings import caption, lines
from tests.harness.machine import Machine
from tests.harness.results import fill

SMOKE = ("npDigits", "--profile", "smoke", "--ladder", "schedules.toml")
PEAK = 0.016
"""Of the recipe npDigits."""
LADDER = """\
name = "schedules"
title = "Schedules"
source = "ours"

[[rung]]
name = "cosine"
title = "a cosine"
change = { "model.recurrence.kind" = "diagonal", "model.recurrence.r_min" = 0.5, "model.recurrence.r_max" = 0.9 }

[[rung]]
name = "small"
title = "a smaller radius"
change = { "model.recurrence.r_max" = 0.8 }

[[rung]]
name = "wsd"
title = "warm-up, stable, decay"
change = { "optim.schedule" = "wsd", "optim.warmup_steps" = 3 }

[[rung]]
name = "linear"
title = "a line, one rate for all parameters"
on = "small"
change = { "optim.schedule" = "linear", "optim.floor" = 0.002, "optim.recurrent_factor" = 1.0 }
"""


def make(folder: Path, scores: dict[str, list[float | None]], **options: Any) -> Machine:
    machine = Machine(folder)
    (folder / "schedules.toml").write_text(LADDER)
    fill(machine.ledger, "npDigits", scores, ladder=str(folder / "schedules.toml"), profile="smoke", **options)
    return machine


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.chdir(tmp_path)
    return make(tmp_path, {"cosine": [0.5, 0.6], "small": [0.5], "wsd": [0.5, None], "linear": [0.7]})


def of_rung(name: str, ladder: str = "schedules.toml") -> tuple[np.ndarray, float]:
    plan = planning.make("npDigits", ladder=ladder, profile="smoke")
    [rung] = planning.choose_rungs(plan, [name])
    return learning_rates(rung.training.optim, rung.training.train.steps), rung.training.optim.recurrent_factor


def test_a_ladder_has_a_panel_a_group_and_a_curve_for_rungs_with_the_same_rates(
    filled: Machine, sketched: list[Any]
) -> None:
    """A run that has diverged is drawn too."""
    filled.run("plot", *SMOKE, "--kind", "rates", "--out", "a.png")
    [figure] = sketched
    others, recurrent = figure.axes
    assert [ax.get_title() for ax in figure.axes] == ["all but the recurrent group", "recurrent group"]
    assert [ax.get_ylabel() for ax in figure.axes] == ["learning rate"] * 2
    assert (others.get_yscale(), recurrent.get_xlabel()) == ("linear", "step")
    for ax, uses_factor in ((others, False), (recurrent, True)):
        drawn = lines(ax)
        assert list(drawn) == [
            "cosine and small", "wsd", "linear", "end of the warm-up", "start of the cooldown",
        ]  # fmt: skip
        for label, rung in (("cosine and small", "cosine"), ("wsd", "wsd"), ("linear", "linear")):
            rates, factor = of_rung(rung)
            assert drawn[label][0] == list(range(60))
            np.testing.assert_allclose(drawn[label][1], rates * (factor if uses_factor else 1), rtol=1e-6)
    assert lines(others)["end of the warm-up"] == ([6, 3], [PEAK, PEAK])
    assert lines(others)["start of the cooldown"] == ([48], [PEAK])
    assert lines(recurrent)["end of the warm-up"] == ([6, 3, 6], [PEAK / 2, PEAK / 2, PEAK])
    assert "The recurrent group trains at optim.recurrent_factor times the rate of the other" in caption(figure)
    assert drawings.misplaced(figure) == []


def test_runs_are_named_by_their_rung_and_where_it_is_not_enough_by_rate_or_seed(
    filled: Machine, sketched: list[Any]
) -> None:
    fill(
        filled.ledger, "npDigits", {"cosine": [0.5]}, ladder=str(filled.folder / "schedules.toml"), profile="smoke",
        sets={"optim.lr": 0.1},
    )  # fmt: skip
    fill(
        filled.ledger, "npDigits", {"cosine": [0.5]}, ladder=str(filled.folder / "schedules.toml"), profile="smoke",
        sets={"optim.recurrent_factor": 1.0},
    )  # fmt: skip
    ids: dict[tuple[str, float, float], str] = {}
    for run in filled.json("runs")["runs"]:
        optim = filled.json("show", run["id"])["config"]["optim"]
        ids.setdefault((run["rung"], optim["lr"], optim["recurrent_factor"]), run["id"])
    usual, fast = ids["cosine", PEAK, 0.5], ids["cosine", 0.1, 0.5]
    filled.run("plot", usual, ids["wsd", PEAK, 0.5], "--kind", "rates", "--out", "a.png")
    assert list(lines(sketched[-1].axes[0]))[:2] == ["cosine", "wsd"]
    equal = ids["cosine", PEAK, 1.0]
    filled.run("plot", equal, "--kind", "rates", "--out", "a.png")
    [ax] = sketched[-1].axes
    assert (ax.get_title(), list(lines(ax))) == ("", ["cosine", "end of the warm-up"])
    assert caption(sketched[-1]) == ""
    filled.run("plot", usual, fast, "--kind", "rates", "--out", "a.png")
    names = [name for name in lines(sketched[-1].axes[0]) if "cosine" in name]
    assert len(names) == 2
    assert all(": cosine" in name for name in names), "they belong to two instances"


def test_rates_of_tuning_are_named_by_their_peak(tmp_path: Path, monkeypatch, sketched: list[Any]) -> None:
    monkeypatch.chdir(tmp_path)
    machine = Machine(tmp_path)
    with Ledger.open(machine.ledger) as ledger:
        plan = planning.make("npDigits", profile="smoke", tune=True)
        instance = ledger.add_ladder("lru", "npDigits", "smoke", plan.spec)
        ledger.enqueue(instance.key, tuning.tuning_runs(plan, planning.choose_rungs(plan, ["gamma-norm"])))
    runs = machine.json("runs")["runs"]
    machine.run("plot", *(run["id"] for run in runs), "--kind", "rates", "--out", "a.png")
    [figure] = sketched
    labels = [name for name in lines(figure.axes[0]) if name.startswith("gamma-norm")]
    rates = sorted({machine.json("show", run["id"])["config"]["optim"]["lr"] for run in runs})
    assert sorted(labels) == sorted(f"gamma-norm (tune), lr = {rate:g}" for rate in rates)


def test_an_estimated_rate_has_factors(filled: Machine, sketched: list[Any]) -> None:
    """Rates that differ much have a logarithmic axis, which leaves out what is far below their peaks."""
    estimated = {"optim.name": "prodigy", "optim.lr": 1.0, "optim.floor": 0.0, "optim.recurrent_factor": 1.0}
    make(filled.folder, {"cosine": [0.5]}, sets=estimated)
    runs = filled.json("runs")["runs"]
    prodigy, usual = (next(run["id"] for run in runs if run["rung"] == "cosine" and run["seed"] == k) for k in (0, 1))
    filled.run("plot", prodigy, "--kind", "rates", "--out", "a.png")
    filled.run("plot", prodigy, usual, "--kind", "rates", "--out", "a.png")
    alone, both = sketched
    [ax] = alone.axes
    assert (ax.get_ylabel(), ax.get_yscale()) == ("factor of the learning rate", "linear")
    assert "Of prodigy: the factor of the learning rate that it estimates." in caption(alone)
    assert both.axes[0].get_ylabel() == "learning rate, or its factor"
    assert both.axes[0].get_yscale() == "log"
    [label] = [name for name in lines(both.axes[0]) if "-2: cosine" in name or "prodigy" in name]
    rates = dict(zip(*lines(both.axes[0])[label], strict=True))
    assert np.isnan(rates[0.0]), "0 has no place on a logarithmic axis"
    assert rates[6.0] == 1
    assert "Rates below 8e-06 are not drawn." in caption(both)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_every_format_is_written(filled: Machine, suffix: str) -> None:
    filled.run("plot", *SMOKE, "--kind", "rates", "--out", f"a.{suffix}")
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF-"}[suffix]
    assert (filled.folder / f"a.{suffix}").read_bytes().startswith(begins)


def test_rates_that_are_not_known_are_refused(filled: Machine, tmp_path: Path) -> None:
    words = ("--kind", "rates", "--out", "a.png")
    assert filled.refused("plot", *SMOKE, *words, "--metric", "train/loss") == (
        "error: --metric: names a curve, found --kind rates\nhint: leave --kind out, or use --kind curves\n"
    )
    (filled.folder / "schedules.toml").write_text(LADDER.replace('"wsd", "optim', '"constant", "optim'))
    error = filled.refused("plot", "npDigits", "--profile", "smoke", "--ladder", "schedules.toml", *words, code=4)
    assert "not in this ledger" in error
    assert not (filled.folder / "a.png").exists()


@pytest.mark.slow
def test_rates_of_programs_are_not_known(machine: Machine) -> None:
    programs.write(machine.folder)
    (machine.folder / "toy.py").write_text(programs.LINEAR)
    machine.run("ladder", "toy.toml", "--seeds", "1", "--jobs", "1")
    run = machine.json("runs")["runs"][0]["id"]
    why = "executed a program, and lrurun does not know the learning rates of its steps\nhint: draw curves instead\n"
    for words in (("toy.toml",), (run,)):
        error = machine.refused("plot", *words, "--kind", "rates", "--out", "a.png")
        assert error.startswith("error: rates: run ")
        assert error.endswith(why)


def test_a_figure_of_many_steps_has_few_points_and_every_corner(tmp_path: Path, sketched: list[Any]) -> None:
    machine = Machine(tmp_path)
    fill(machine.ledger, "sCIFAR", {"gamma-norm": [0.5]}, sets={"optim.schedule": "wsd", "optim.warmup_steps": 12_345})
    [run] = machine.json("runs")["runs"]
    machine.run("plot", run["id"], "--kind", "rates", "--out", "a.png")
    steps, rates = lines(sketched[0].axes[0])["gamma-norm"]
    config = machine.json("show", run["id"])["config"]
    total, peak = config["train"]["steps"], np.float32(config["optim"]["lr"])
    assert len(steps) <= 410
    assert (steps[0], steps[-1]) == (0, total - 1)
    first, last = ([step for step, rate in zip(steps, rates, strict=True) if rate == peak][k] for k in (0, -1))
    assert (first, last) == (12_345, total - round(0.2 * total))


@pytest.mark.slow
def test_drawing_rates_and_writing_methods_load_no_jax(filled: Machine) -> None:
    for words in (("plot", *SMOKE, "--kind", "rates", "--out", "a.pdf"), ("report", *SMOKE, "--methods")):
        script = (
            f"import sys; from lrurun.__main__ import run; assert run({[*words]!r}) == 0\n"
            "print([name for name in ('jax', 'optax', 'flax', 'orbax') if name in sys.modules])"
        )
        code = [sys.executable, "-c", script]
        done = subprocess.run(code, cwd=filled.folder, env=filled.env, capture_output=True, text=True, check=True)
        assert done.stdout.endswith("[]\n")


def test_a_session_draws_them(filled: Machine) -> None:
    ladder = lrurun.ladder("npDigits", profile="smoke", ladder="schedules.toml", ledger=filled.ledger)
    assert len(ladder.plot("rates").axes) == 2
