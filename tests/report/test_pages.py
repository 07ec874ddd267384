"""Reports as HTML pages: links to runs, and figures. The tables are in tests/golden/report."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
import pytest

from lrurun.config import planning
from lrurun.ledger.ledger import Ledger
from lrurun.report import formats, run_details
from lrurun.report.tables import loaded_instance
from tests.harness.machine import Machine
from tests.harness.printed import read
from tests.harness.reports import build
from tests.harness.results import fill


def details_of(
    report: Any, curves: dict[str, list[tuple[int, float]]] | None = None
) -> dict[str, run_details.RunDetail]:
    found = {}
    for group in formats.content_of(report).groups:
        for seed, run in enumerate((*group.runs, *group.other_runs)):
            settings = {"kind": group.title, "flag": group.title == "tanh-rnn", "rate": 0.1 + 0.2}
            one = run_details.RunDetail(
                seed=seed,
                state="done",
                step=1000,
                steps=2000,
                score=0.5,
                attempts=2,
                settings=settings | ({"old": 1} if run == "t0" else {}),
                curves=(curves or {}).get(run, {}),
            )
            found.setdefault(run, one)
    return found


def test_every_number_of_ours_leads_to_its_runs() -> None:
    text = formats.render(build(), "html", details=details_of(build()))
    page = read(text)
    linked = re.findall(r'<td(?: class="right")?><a href="#runs/([^"]+)">([^<]+)</a></td>', text)
    assert [rung for rung, _ in linked[:4]] == ["tanh-rnn"] * 4
    numbers = [cell for row in page.tables[0][1:-1] for cell in row[1:-1] if cell != "–"]
    assert [cell for _, cell in linked] == numbers
    runs = page.tables[1]
    assert runs[:5] == [
        ["run", "seed", "state", "test accuracy %", "step", "attempts"],
        ["tanh-rnn"],
        ["t0", "0", "done", "50.00", "1,000 of 2,000", "2"],
        ["t1", "1", "done", "50.00", "1,000 of 2,000", "2"],
        ["t2", "2", "done", "50.00", "1,000 of 2,000", "2"],
    ]
    # what moves against the rung that it changes; shared runs once; and those that no mean counts
    moved = "kind = linear-rnn (instead of tanh-rnn); flag = false (instead of true); without old"
    assert [f"linear-rnn compared with tanh-rnn: {moved}"] in runs
    assert ["ring-init has the settings and runs of linear-rnn"] in runs
    assert ["stable-exponential compared with ring-init: kind = stable-exponential (instead of linear-rnn)"] in runs
    assert [row[0] for row in runs if len(row) == 6] == "run t0 t1 t2 l0 l1 l2 s0 s1 s2 s3 s4".split()
    assert "small-phase" not in str(runs)


CURVES = {
    "t0": {"val/accuracy": [(10, 0.5), (20, 0.6), (30, 0.7)], "train/loss": [(10, 2.0), (20, 1.0)]},
    "t1": {"val/accuracy": [(10, 0.3), (20, 0.6), (40, 0.9)], "train/loss": [(10, 4.0), (20, 2.0)]},
    "t2": {"val/accuracy": [(10, 0.4), (20, 0.6)]},
    **{f"l{seed}": {"val/accuracy": [(20, 0.7 + seed / 10)]} for seed in range(3)},
}


def test_the_page_draws_learning_curves_as_plot_does(drawing: list[Any]) -> None:
    text = formats.render(build(), "html", details=details_of(build(), CURVES))
    page = read(text)
    assert text.count('aria-label="learning curves') == len(drawing) == 1
    # of the training loss there is no panel: not every seed has one
    [accuracy] = drawing[0].axes
    points = {line.get_label(): [list(line.get_xdata()), list(line.get_ydata())] for line in accuracy.lines}
    # over the steps that all seeds have
    assert points == {
        "tanh-rnn (n=3)": [[10, 20], [pytest.approx(40), pytest.approx(60)]],
        "linear-rnn (n=3)": [[20], [pytest.approx(80)]],
    }
    assert page.texts["figcaption"][1] == (
        "Line: mean over n finished seeds; band: ± standard error. Runs: tanh-rnn, linear-rnn."
    )
    assert "Learning curves" not in formats.render(build(), "html")


def test_the_page_draws_the_eigenvalues_that_are_recorded() -> None:
    details = details_of(build())
    found = {
        "t0": {"start": (0.5 + 0j, 0.6j), "end": (0.9 + 0j, 1j)},
        "l0": {"start": (0j,) * 1001, "end": (1.5j, 3 + 0j, complex(math.nan))},
    }
    for run, eigenvalues in found.items():
        details[run] = msgspec.structs.replace(details[run], eigenvalues=eigenvalues)
    page = read(formats.render(build(), "html", details=details))
    planes = [about["aria-label"] for tag, about in page.tags if tag == "svg" and "eigenvalues" in str(about)]
    assert planes == [
        "tanh-rnn: eigenvalues in the plane, 2 at initialisation, 2 after training",
        "linear-rnn: eigenvalues in the plane, 334 at initialisation, 3 after training",
    ]
    marks = {
        about.get("class"): str(about["d"]).count("M") for tag, about in page.tags if tag == "path" and "class" in about
    }
    assert marks == {"rings": 334, "crosses": 2}  # those of linear-rnn, of which one is not a number
    # all on one scale: the unit circle is a third of the largest eigenvalue, with a margin
    assert [about["r"] for tag, about in page.tags if tag == "circle" and about.get("class") == "unit"] == ["30.86"] * 2
    assert (
        "after training. Eigenvalues of the recurrence, all layers, seed 0; the unit circle. Of more than 400, an even "
        "sample is shown. Not drawn, because not finite: some eigenvalues of linear-rnn. Not recorded: "
        "stable-exponential."
    ) in page.texts["p"][-1]
    # of runs by an older version there are none
    page = read(formats.render(build(), "html", details=details_of(build())))
    assert page.texts["p"][-1] == "Not recorded: tanh-rnn, linear-rnn, stable-exponential."


def test_the_page_opens_with_the_scores_of_all_seeds() -> None:
    page = read(formats.render(build(), "html", details=details_of(build())))
    first = next(tag for tag, _ in page.tags if tag in ("svg", "table"))
    assert first == "table"
    rows = {name: (score, change) for name, _, score, change in page.picture[1:]}
    assert rows["tanh-rnn"] == ("91.0 ± 0.6 %", "")
    assert rows["linear-rnn"] == ("95.5 ± 0.3 %", "helps +4.5")
    assert rows["ring-init"] == ("95.5 ± 0.3 %", "same runs")
    assert rows["small-phase"] == ("–", "not run")
    # the axis is from 90 to 98: means at (91 - 90) / 8 and (95.5 - 90) / 8 of it, and a circle for each seed
    drawn = [about for tag, about in page.tags if tag == "circle"]
    assert [about["cx"] for about in drawn if about.get("class") == "mean"][:2] == ["12.5%", "68.75%"]
    assert len([about for about in drawn if about.get("class") == "seed"]) == sum(
        len(row.scores) for row in build().rows
    )
    assert not read(formats.render(build(runs=[]), "html")).picture


def test_the_page_of_a_ledger_tells_of_its_runs(
    machine: Machine,
) -> None:
    eigenvalues = {"start": [0.5 + 0.5j], "end": [0.6j]}
    fill(machine.ledger, "sDigits", {"tanh-rnn": (0.5, 0.7), "linear-rnn": (0.8,)}, eigenvalues=eigenvalues)
    machine.run("report", "sDigits", "--format", "html", "--out", "page.html")
    page = read((machine.folder / "page.html").read_text(encoding="utf-8"))
    steps = f"20 of {planning.make('sDigits').rungs[0].config.train.steps:,}"
    assert [row[1:] for row in page.tables[1] if len(row) == 6][1:] == [
        ["0", "done", "50.00", steps, "1"],
        ["1", "done", "70.00", steps, "1"],
        ["0", "done", "80.00", steps, "1"],
    ]
    with Ledger.open(machine.ledger) as ledger:
        plan = planning.make("sDigits")
        instance = ledger.ladders("lru", "sDigits")[0]
        details = run_details.collect(
            formats.content_of(loaded_instance.LoadedInstance(plan, instance, ledger).report()), ledger
        )
    assert sorted((one.seed, one.score) for one in details.values()) == [(0, 0.5), (0, 0.8), (1, 0.7)]
    assert not [path for one in details.values() for path in one.settings if path == "seed"]
    recorded = sorted((one.seed, one.eigenvalues) for one in details.values() if one.eigenvalues)
    assert recorded == [(0, {"start": (0.5 + 0.5j,), "end": (0.6j,)})] * 2
    assert (
        "linear-rnn compared with tanh-rnn: model.recurrence.activation = identity (instead of tanh)"
        in page.tables[1][4][0]
    )
    labels = [str(found.get("aria-label")) for tag, found in page.tags if tag == "svg"]
    assert "learning curves of the rungs" in labels
    assert "tanh-rnn: eigenvalues in the plane, 1 at initialisation, 1 after training" in labels
    assert "<svg" not in machine.run("report", "sDigits", "--format", "html", "--speed").stdout
