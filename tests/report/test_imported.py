"""Reports on imported runs: what they say of the source, of missing runs and of the import, in every form."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from lrurun.instances.import_record import Caution
from lrurun.report.tables.ladder_remarks import are_unequal_shares
from tests.harness.imported import SCORES, TABLE, fill, write
from tests.harness.items import on_items
from tests.harness.machine import Machine
from tests.harness.shared import once
from tests.harness.stores import drop_trigger, raw

CAUTIONS = (
    Caution(
        short="unequal budgets (batch)",
        full="Unequal budgets: runs of batch have 30 steps, others 20.",
        rungs=("batch",),
    ),
    Caution(short="", full="The seeds are numbers of runs: that they are independent is your word."),
)
TWELVE = {
    "none": [0.70 + 0.001 * seed for seed in range(12)],
    "layer": [0.70 + 0.0011 * ((7 * seed) % 12) for seed in range(12)],
}


def _fill(folder: Path) -> None:
    fill(folder / "ledger.db", write(folder), cautions=CAUTIONS, tried={"layer": [0.9, 0.91]})


@pytest.fixture(scope="module")
def imported() -> Machine:
    """Three rungs of six runs, of which two are missing and one diverged; two runs that only chose settings."""
    return Machine(once("imported-reports", _fill))


def test_whole_reports(imported: Machine, golden) -> None:
    shown = []
    for words in (
        ("report", "runs.toml"),
        ("report", "runs", "--details"),
        ("report", "--instance", "runs", "--format", "md"),
        ("report", "runs.toml", "--format", "latex"),
        ("report", "runs.toml", "--format", "csv"),
        ("report", "runs.toml", "--detect", "2"),
        ("report", "--all", "--ladder", "runs.toml", "--details"),
        ("claims", "runs", "--details"),
        ("status", "--details"),
        ("runs",),
        ("runs", "--by", "settings.norm"),
    ):
        shown.append(f"$ lrurun {' '.join(words)}\n{imported.run(*words).stdout}")
    # the last digits of a float64 depend on the processor
    text = re.sub(r"\d+\.\d{12,}(e-\d+)?", lambda found: f"{float(found[0]):.11g}", "\n".join(shown))
    golden("imported/reports.txt", text)


def test_the_fields_of_imports_in_json(imported: Machine) -> None:
    report = imported.json("report", "runs.toml")
    assert report["kind"] == "imported"
    assert report["imported"] == {
        "sources": [{"place": "runs.csv", "tracker": "csv", "version": "", "runs": 20, "notes": []}],
        **{"new": 20, "changed": 0, "equal": 0, "vanished": 0, "outside": [], "choices": []},
        "cautions": [{"short": one.short, "full": one.full, "rungs": list(one.rungs)} for one in CAUTIONS],
    }
    none, batch, layer = report["rows"]
    assert [row["missing"] for row in report["rows"]] == [0, 2, 0]
    assert [run["reason"] for run in batch["other_runs"]] == ["killed", "exit code 1"]
    assert (batch["failed"], batch["unfinished"], layer["diverged"]) == (1, 1, 1)
    assert [run["reason"] for run in layer["other_runs"]] == [""]
    assert none["scores"] == list(SCORES["none"])
    assert {row["rate_source"]["kind"] for row in report["rows"]} == {"elsewhere"}
    assert [row["untuned"] for row in report["rows"]] == [[], [], []]
    assert report["tune"] is False
    assert report["label"] == "runs"


def test_the_page_has_the_cautions_and_what_rungs_change(imported: Machine) -> None:
    page = imported.run("report", "runs.toml", "--format", "html").stdout
    for text in (
        "Unequal budgets: runs of batch have 30 steps",
        "2 of 6 of batch: c5ca9d363c94 (killed)",
        "that they are independent",
    ):
        assert text in page
    changes = re.findall(r": (settings\.norm = [^<]*)</span>", page)
    assert changes == [f"settings.norm = {rung} (instead of none)" for rung in ("batch", "layer")]
    assert "eigenvalues" not in page.lower()


def _report(folder: Path, table: str = TABLE, **more) -> tuple[str, str]:
    """The first screen and the details of another import."""
    scores = more.pop("scores", SCORES)
    machine = Machine(folder)
    fill(machine.ledger, write(folder, table, list(scores)), scores, **more)
    return tuple(machine.run("report", "runs.toml", *words).stdout for words in ((), ("--details",)))


def test_best_of_test_is_in_every_report(tmp_path: Path) -> None:
    answer, details = _report(tmp_path, TABLE + 'protocol = "best-of-test"\n')
    caution = "each run counts with its best test score, which is too high (all rungs)"
    note = 'protocol = "best-of-test": each run counts with the best of all its scores'
    assert caution in answer
    assert note in details
    machine = Machine(tmp_path)
    for form in ("md", "html", "latex", "json"):
        found = machine.run("report", "runs.toml", "--format", form).stdout
        assert "best of all its scores" in found, form
    assert "Selected on test" in machine.run("report", "--all", "--ladder", "runs.toml", "--details").stdout
    assert {row["test_selected"] for row in machine.json("report", "runs.toml")["rows"]} == {True}


def test_settings_that_were_chosen_are_said_to_be(tmp_path: Path) -> None:
    answer, details = _report(tmp_path, TABLE + 'choose = ["lr"]\nmetric_for_choice = "val_acc"\n')
    assert answer.startswith(
        "runs · ladder runs · 4 to 6 seeds a rung · settings chosen for each rung · imported from runs.csv (csv)\n"
    )
    assert "Settings: lr chosen for each rung by val_acc." in details
    assert "tuned" not in answer + details


def test_nobody_knows_whether_others_were_tuned(imported: Machine) -> None:
    shown = imported.run("report", "runs.toml").stdout + imported.run("report", "runs.toml", "--details").stdout
    assert "untuned" not in shown.lower()
    assert "not tuned" not in shown
    assert "whether they were tuned is not known" in shown


def test_unknown_test_items_are_a_caution(tmp_path: Path) -> None:
    table = TABLE.replace("test_items = 1000\n", "")
    answer, _ = _report(tmp_path, table)
    advice = "set test_items in [import]"
    assert f"verdicts hold for these test items alone (all rungs): {advice}" in " ".join(answer.split())
    again, _ = _report(tmp_path / "loss", table.replace('unit = "%"\n', "").replace('"max"', '"min"'))
    assert "name per-item results as items in [import]" in again
    assert "test_items" not in again


def test_items_of_an_import_are_used(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    right = {rung: (generator.random((6, 1000)) < 0.7).astype(float) for rung in ("none", "layer")}
    scores = {rung: [float(one.mean()) for one in each] for rung, each in right.items()}
    items = {rung: [on_items(one) for one in each] for rung, each in right.items()}
    _, details = _report(tmp_path, scores=scores, items=items)
    assert "they use per-item results of 1,000 test items" in details


def test_more_seeds_are_proposed_and_never_because_of_a_result(tmp_path: Path) -> None:
    few, _ = _report(tmp_path / "few")
    assert "with 12 seeds in each rung: make them with your tracker, and run lrurun import runs.toml again" in few
    assert "Make them for all rungs, whatever these verdicts say: adding seeds because of a result misleads." in few
    many, _ = _report(tmp_path / "many", TABLE.replace("test_items = 1000\n", ""), scores=TWELVE)
    assert "Undecided: layer" in many
    proposal = (
        "Next: lrurun report --instance runs --detect D says how many seeds decide a difference of D. Make runs with "
        "so many fresh seeds, and import them under another name: adding seeds here because of the result would "
        "mislead."
    )
    assert proposal in many
    for text in (few, many):
        assert not re.search("lrurun (ladder|resume|plan)|--set|--seeds|--fresh", text)


def test_runs_that_end_at_their_best_step_are_improving_only_where_the_best_counts(tmp_path: Path) -> None:
    at_best = TABLE + 'at = "best"\nmetric_for_choice = "val_acc"\n'
    for name, table, improving in (("last", TABLE, False), ("best", at_best, True)):
        answer, _ = _report(tmp_path / name, table, best_step=20)
        assert ("still improving at the last step" in answer) is improving
        assert "longer with" not in answer


def test_a_rung_whose_runs_are_all_missing(tmp_path: Path) -> None:
    answer, details = _report(tmp_path, scores={"none": [0.7, 0.8], "layer": ["killed", "killed"]})
    assert "Not run: layer." in answer
    assert "2 runs missing (layer)" in answer
    assert "(killed)" in details


def test_runs_on_data_of_several_digests_are_compared(tmp_path: Path) -> None:
    """The import has a caution of it: what trackers call data need not be what the model has seen."""
    fill(tmp_path / "ledger.db", write(tmp_path))
    drop_trigger(tmp_path / "ledger.db", "runs_finished_stay", "stored_runs")
    raw(tmp_path / "ledger.db", "UPDATE stored_runs SET data_sha256 = 'sha256:' || id")
    assert "Helps: batch" in Machine(tmp_path).run("report", "runs.toml").stdout


def test_excluded_runs_leave_reports(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    fill(machine.ledger, write(tmp_path))
    [worst] = machine.json("runs", "--where", "rung=layer and state=diverged")["runs"]
    machine.run("mark", worst["id"], "--exclude", "no GPU")
    rows = machine.json("report", "runs.toml")["rows"]
    assert [row["diverged"] for row in rows] == [0, 0, 0]
    assert "Note: 1 run excluded: no GPU" in machine.run("report", "runs.toml").stdout


def test_figures(imported: Machine, tmp_path: Path) -> None:
    for kind, words in (("ladder", "norm"), ("curves", "validation acc")):
        imported.run("plot", "runs.toml", "--kind", kind, "--out", str(out := tmp_path / f"{kind}.svg"))
        assert words in out.read_text()
    assert "test acc [%]" in (tmp_path / "curves.svg").read_text()
    imported.run("plot", "runs.toml", "--metric", "test/acc", "--out", str(out := tmp_path / "test.svg"))
    assert "test/acc" in out.read_text()


def test_frames(imported: Machine) -> None:
    import lrurun

    with lrurun.open(imported.ledger) as ledger:
        runs = ledger.runs("state = 'done' and settings.norm = 'batch'").to_pandas()
        assert sorted(runs["test/acc"]) == sorted(end for end in SCORES["batch"] if isinstance(end, float))
        assert set(runs["origin.tracker"]) == {"csv"}
        report = ledger.report("runs")
        assert [row.missing for row in report] == [0, 2, 0]
        assert "2 runs missing (batch): unequal shares may favour a rung" in report.cautions
        assert json.loads(json.dumps([row.verdict for row in report])) == ["", "helps", "undecided"]


@pytest.mark.parametrize(
    ("first", "second", "unequal"),
    [
        ((0, 10), (2, 10), True),  # 20 points
        ((0, 10), (1, 10), False),  # 10 points, no more
        ((0, 9), (1, 9), True),  # 11 points, by a single run
        ((0, 3), (1, 3), True),
        ((0, 3), (2, 3), True),
        ((0, 20), (2, 20), False),  # 10 points, no more
        ((0, 20), (3, 20), True),
        ((5, 10), (10, 20), False),  # equal shares
        ((4, 20), (2, 5), True),  # 20 % of twenty and 40 % of five
        ((5, 20), (1, 5), False),  # 25 and 20 %
        ((2, 20), (1, 2), True),  # 10 and 50 %
        ((6, 20), (2, 5), False),  # 30 and 40 %
        ((0, 0), (5, 5), False),  # a rung without runs is not compared
    ],
)
def test_unequal_shares_of_missing_runs(first: tuple[int, int], second: tuple[int, int], unequal: bool) -> None:
    assert are_unequal_shares(first, second) == are_unequal_shares(second, first) == unequal
