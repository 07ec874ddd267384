"""A later import: sources under other names, runs that have gone, repeats of which some have gone, interruptions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lrurun
from lrurun.errors import UsageError
from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine
from tests.harness.tables import SCORES, write_csv, write_runs

HEAD = ["run", "norm", "seed", "test_acc"]
NO_SEEDS: dict[str, Any] = {"metric": "test_acc", "by": "norm", "seed_column": "none"}
SEEDS: dict[str, Any] = {"metric": "test_acc", "by": "norm", "seed_column": "seed"}


def rename(here: Machine, old: str, new: str) -> None:
    """Renames a source, and names it so in the file of its import."""
    (here.folder / old).rename(here.folder / new)
    file = here.folder / "runs.toml"
    file.write_text(file.read_text().replace(f'"{old}"', f'"{new}"'))


def counts(runs: lrurun.ImportedRuns) -> dict[str, int]:
    """Rung -> the number of its runs in the report."""
    return {row.rung: row.n for row in runs.report()}


def means(runs: lrurun.ImportedRuns) -> dict[str, float]:
    return {row.rung: round(row.mean, 6) for row in runs.report()}


def shorts(runs: lrurun.ImportedRuns) -> list[str]:
    return [caution.short for caution in runs.record.cautions]


# Sources


@pytest.mark.parametrize("seeds", [SEEDS, NO_SEEDS])
def test_a_source_of_another_name_has_the_same_runs(here: Machine, seeds: dict[str, Any]) -> None:
    write_runs(here.folder / "runs.csv")
    before = lrurun.import_runs("runs.csv", **seeds)
    rename(here, "runs.csv", "july.csv")
    again = lrurun.import_runs("runs.toml")
    assert (again.record.new, again.record.changed, again.record.equal, again.record.vanished) == (0, 0, 18, 0)
    assert [row.comparison for row in again.report()] == [row.comparison for row in before.report()]
    # the ledger knows them by the new name: those that vanish now count
    write_runs(here.folder / "july.csv", {**SCORES, "batch": SCORES["batch"][:4]})
    assert counts(lrurun.import_runs("runs.toml")) == dict.fromkeys(SCORES, 6)


def test_runs_of_a_source_that_is_no_longer_named_leave_the_rungs(
    here: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [[f"{norm}-{k}", norm, 0, 0.8 + k / 100] for norm in ("none", "layer") for k in range(3)]
    write_csv(here.folder / "runs.csv", HEAD, rows)
    lrurun.import_runs("runs.csv", **NO_SEEDS)
    write_csv(here.folder / "other.csv", HEAD, [[f"new-{run}", norm, s, x] for run, norm, s, x in rows[1:]])
    (here.folder / "runs.toml").write_text((here.folder / "runs.toml").read_text().replace('"runs.csv"', '"other.csv"'))
    capsys.readouterr()
    after = lrurun.import_runs("runs.toml")
    assert counts(after) == {"none": 2, "layer": 3}
    assert (after.record.new, after.record.vanished) == (5, 0)
    assert "6 runs of earlier imports come from sources that are not named any more" in capsys.readouterr().err
    assert not any("no longer in the source" in short for short in shorts(after))
    with Ledger.read(here.ledger) as ledger:
        assert ledger.count_runs() == 11


def test_runs_that_vanished_are_named_on_the_first_screen(here: Machine) -> None:
    write_runs(here.folder / "runs.csv")
    lrurun.import_runs("runs.csv", **SEEDS)
    write_runs(here.folder / "runs.csv", {**SCORES, "batch": SCORES["batch"][:3]})
    after = lrurun.import_runs("runs.toml")
    assert counts(after) == dict.fromkeys(SCORES, 6)
    assert "3 runs are no longer in the source" in shorts(after)
    assert "3 runs are no longer in the source" in here.run("report", "--instance", "runs").stdout
    write_runs(here.folder / "runs.csv")
    assert not any("no longer" in short for short in shorts(lrurun.import_runs("runs.toml")))


def test_runs_of_projects_that_are_no_longer_read_leave_the_rungs(here: Machine) -> None:
    rows = [[f"{p}{k}", p, norm, k, 0.8] for p in ("a", "b") for norm in ("none", "layer") for k in range(2)]
    rows = [[f"{row[0]}{row[2]}", *row[1:]] for row in rows]
    write_csv(here.folder / "runs.csv", ["run", "project", "norm", "seed", "test_acc"], rows)
    assert counts(lrurun.import_runs("runs.csv", **NO_SEEDS)) == {"none": 4, "layer": 4}
    file = here.folder / "runs.toml"
    file.write_text(file.read_text().replace("\nmetric =", '\nproject = "a"\nmetric =', 1))
    after = lrurun.import_runs("runs.toml")
    assert (counts(after), after.record.vanished) == ({"none": 2, "layer": 2}, 0)


def test_equal_ids_in_two_tables_need_a_project(here: Machine) -> None:
    for name in ("a.csv", "b.csv"):
        write_csv(here.folder / name, HEAD, [["r0", "none", 0, 0.5], ["r1", "layer", 0, 0.6]])
    with pytest.raises(UsageError, match=r"run r0 is there twice: in a\.csv and in b\.csv") as caught:
        lrurun.import_runs(["a.csv", "b.csv"], name="runs", **NO_SEEDS)
    assert "import them under two names" in (caught.value.hint or "")
    assert "a column project distinguishes runs of tables" in (caught.value.hint or "")
    for project in ("a", "b"):
        rows = [[project, "r0", "none", 0, 0.5], [project, "r1", "layer", 0, 0.6]]
        write_csv(here.folder / f"{project}.csv", ["project", *HEAD], rows)
    assert counts(lrurun.import_runs(["a.csv", "b.csv"], name="runs", **NO_SEEDS)) == {"none": 2, "layer": 2}


# Rows without ids


def test_a_row_before_others_moves_no_mark_and_no_number(here: Machine) -> None:
    rows = [[norm, k, 0.8 + k / 100] for k, norm in enumerate(("none", "layer") * 3)]
    write_csv(here.folder / "runs.csv", ["norm", "batch", "test_acc"], rows)
    lrurun.import_runs("runs.csv", **NO_SEEDS)
    with Ledger.open(here.ledger) as ledger:
        [broken] = [run for run in ledger.runs() if run.config.settings["batch"] == 3]  # type: ignore[union-attr]
        ledger.mark([broken.id], exclude="broken")
        numbers = {run.id: run.seed for run in ledger.runs()}
    write_csv(here.folder / "runs.csv", ["norm", "batch", "test_acc"], [["none", 9, 0.1], *rows[1:]])
    record = lrurun.import_runs("runs.toml").record
    assert (record.new, record.changed, record.equal, record.vanished) == (1, 0, 5, 1)
    rows[3][2] = 0.123
    write_csv(here.folder / "runs.csv", ["norm", "batch", "test_acc"], rows)
    assert lrurun.import_runs("runs.toml").record.changed == 1
    with Ledger.read(here.ledger) as ledger:
        [excluded] = [run for run in ledger.runs() if run.excluded]
        assert (excluded.id, excluded.result) == (f"{broken.id}-2", {"test/acc": 0.123})
        assert numbers.items() <= ({run.id: run.seed for run in ledger.runs()} | {broken.id: broken.seed}).items()


# Repeats


def repeats(here: Machine, repeat: str, *runs: Sequence[Any], head: Sequence[str] = HEAD) -> lrurun.ImportedRuns:
    """Imports two runs of another norm, and these of the norm "x"; the file is written once."""
    more = [["y0", "y", 0, 0.5], ["y1", "y", 1, 0.6]]
    rows = [[*row[:4], *([None] * (len(head) - 4)), *row[4:]] for row in more]
    write_csv(here.folder / "runs.csv", head, [*runs, *rows])
    if (here.folder / "runs.toml").exists():
        return lrurun.import_runs("runs.toml")
    return lrurun.import_runs("runs.csv", repeat=repeat, base={"norm": "y"}, **SEEDS)


def test_a_mean_is_made_again_of_the_runs_that_are_there(here: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    a0, a0b, a1 = ["a0", "x", 0, 0.5], ["a0b", "x", 0, 0.6], ["a1", "x", 1, 0.52]
    assert means(repeats(here, "mean", a0, a0b, a1))["x"] == 0.535
    capsys.readouterr()
    for said in (True, False, False):
        after = repeats(here, "mean", a0, a1)
        sentence = "1 mean made again, of the runs that the source still has: a0+a0b"
        assert (sentence in capsys.readouterr().err) == said
        assert (means(after)["x"], after.record.vanished) == (0.51, 0)
    a0c = ["a0c", "x", 0, 0.8]
    assert means(repeats(here, "mean", a0, a0c, a1))["x"] == 0.585
    # all parts have gone: the mean of them counts, and is in no other mean
    for _ in range(2):
        assert means(repeats(here, "mean", a1))["x"] == 0.585
    for _ in range(2):
        assert means(repeats(here, "mean", ["a0d", "x", 0, 0.1], a1))["x"] == 0.31


def test_a_mean_of_two_projects_is_known_again(here: Machine) -> None:
    head = ["run", "norm", "seed", "test_acc", "project"]
    one, two = ["r", "x", 0, 0.5, "p"], ["r", "x", 0, 0.6, "q"]
    assert means(repeats(here, "mean", one, two, head=head))["x"] == 0.55
    for _ in range(2):
        again = repeats(here, "mean", one, two, head=head)
        assert (means(again)["x"], again.record.vanished, again.record.changed) == (0.55, 0, 0)
    assert means(repeats(here, "mean", one, head=head))["x"] == 0.5


def test_of_repeats_the_latest_is_by_time_and_none_that_has_gone(here: Machine) -> None:
    head = [*HEAD, "created"]
    first = ["a0", "x", 0, 0.5, "2026-01-02T00:00:00Z"]
    late = ["a0b", "x", 0, 0.7, "2026-01-03T00:00:00Z"]
    old = ["a0c", "x", 0, 0.9, "2026-01-01T00:00:00Z"]
    a1 = ["a1", "x", 1, 0.5, "2026-01-01T00:00:00Z"]
    assert means(repeats(here, "latest", first, a1, head=head))["x"] == 0.5
    assert means(repeats(here, "latest", first, late, a1, head=head))["x"] == 0.6
    # both have gone: the later one counts, whichever the ledger has first
    assert means(repeats(here, "latest", a1, head=head))["x"] == 0.6
    after = repeats(here, "latest", old, a1, head=head)
    assert (means(after)["x"], after.record.vanished) == (0.7, 0)


# Interruptions


def test_after_an_interruption_numbers_are_those_of_the_import(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    head = ["run", "norm", "test_acc"]
    rows = [[f"{norm}{k}", norm, 0.5 + k / 10] for norm in ("a", "b") for k in range(2)]
    write_csv(here.folder / "runs.csv", head, rows)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "set_members", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lrurun.import_runs("runs.csv", **NO_SEEDS)
    assert not Path("runs.toml").exists()
    write_csv(here.folder / "runs.csv", head, [["a8", "a", 0.8], ["a9", "a", 0.9], *rows])
    after = lrurun.import_runs("runs.csv", **NO_SEEDS)
    assert sorted((run.config.origin.run, run.seed) for run in after.runs) == [  # type: ignore[union-attr]
        *[("a0", 2), ("a1", 3), ("a8", 0), ("a9", 1), ("b0", 0), ("b1", 1)]
    ]
    assert counts(after) == {"a": 4, "b": 2}
    again = lrurun.import_runs("runs.csv", **NO_SEEDS)
    assert (again.record.new, again.record.changed, again.record.equal) == (0, 0, 6)
