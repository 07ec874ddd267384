"""`--tune --extend`: what commands and calls show of a grid that follows the optimum, before, during and after."""

from __future__ import annotations

import csv
import io
import random
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import lrurun
from lrurun.errors import NotFoundError, UsageError
from lrurun.instances import requests
from lrurun.instances.requests import LadderRequest
from lrurun.ledger.ledger import Ledger
from tests import conftest
from tests.harness import stores
from tests.harness.machine import Machine, stop, wait_for
from tests.harness.programs import write

ONE_SEED = ("[tune.grid]", "[tune]\nseeds = 1\n[tune.grid]")
TUNED = ("toy.toml", "--tune", "--extend", "2", "--rung", "narrow")
"""The score of the program rises with the rate, so that the best one of 0.01 and 0.02 is at the edge, 0.04 and 0.08
too."""


@pytest.fixture(scope="module")
def finished() -> Machine:
    """An extended rung of a program, which tests only read."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        write(folder, ONE_SEED)
        machine.run("ladder", *TUNED, "--seeds", "1", "--jobs", "1")

    return Machine(conftest.once("extended-program", make))


@pytest.fixture
def copy(finished: Machine, tmp_path: Path) -> Machine:
    """The same, which a test may change."""
    return finished.copy(tmp_path / "copy")


def tried(machine: Machine) -> list[Any]:
    sql = "select trial, settings_lr from trials order by trial"
    return machine.json("query", sql)["rows"]  # type: ignore[no-any-return]


def test_a_plan_has_the_runs_at_least_and_at_most(machine: Machine) -> None:
    write(machine.folder, ONE_SEED)
    plan = machine.json("plan", *TUNED, "--seeds", "3")
    [row] = plan["rungs"]
    assert (plan["tune"], plan["extend"], plan["name"]) == (True, 2, "toy-tune-extend2")
    assert (row["tuning_runs"], row["runs"], row["runs_left"], row["extension_runs"]) == (2, 5, 5, 2)
    assert (plan["extension_runs"], plan["extension_seconds"]) == (2, None)
    out = " ".join(machine.run("plan", *TUNED).stdout.split())
    assert "Instance toy-tune-extend2: toy, tuned with --extend 2." in out
    assert "While the best value of a rung is at the edge, the next one is added, 2 at most." in out
    assert "At most 2 more runs, if the best values are at the edge." in out
    both = " ".join(machine.run("plan", *TUNED[:4]).stdout.split())
    assert (
        "Firm verdicts need 12 seeds a rung, chosen beforehand: lrurun ladder toy.toml --tune --extend 2 --seeds 12"
        in both
    )
    assert "(at least 28 runs)" in both
    swept = " ".join(machine.run("plan", *TUNED, "--sweep", "settings.epochs=2,4").stdout.split())
    assert "10 runs remaining" in swept
    assert "At most 4 more runs, if the best values are at the edge." in swept
    for plain in (("toy.toml", "--tune"), ("toy.toml", "--tune", "--extend", "0")):
        assert "at the edge" not in machine.run("plan", *plain).stdout
        assert machine.json("plan", *plain)["name"] == "toy-tune"


def test_the_time_at_most_follows_from_runs_that_are_finished(copy: Machine) -> None:
    plan = copy.json("plan", *TUNED[:4])
    narrow, wide = plan["rungs"]
    assert (narrow["runs"], narrow["runs_done"], narrow["extension_runs"]) == (7, 5, 0), "4 points and 3 seeds"
    assert (wide["runs"], wide["extension_runs"], plan["extension_runs"]) == (5, 2, 2)


def test_finished_runs_are_all_that_is_needed(finished: Machine) -> None:
    assert tried(finished) == [[1, 0.01], [2, 0.02], [3, 0.04], [4, 0.08]]
    [event] = finished.json("query", "select text from events where kind = 'tuned'")["rows"]
    assert event == ["narrow: chosen on validation with 1 seed: settings.lr = 0.08; 2 values added to the grid"]
    plan = finished.json("plan", *TUNED, "--seeds", "1")
    [row] = plan["rungs"]
    assert (row["runs"], row["runs_done"], row["tuning_runs"], plan["extension_runs"]) == (5, 5, 4, 0)
    assert "All runs are finished." in finished.run("plan", *TUNED, "--seeds", "1").stdout
    [instance] = finished.json("status")["ladders"]
    assert (instance["name"], instance["tune"], instance["extend"]) == ("toy-tune-extend2", True, 2)
    assert (instance["total"], instance["done"]) == (5, 5)


def test_the_source_of_an_added_value_says_so(finished: Machine) -> None:
    runs = finished.json("runs", "--where", "stage=tune")["runs"]
    sources = {
        shown["config"]["settings"]["lr"]: shown["provenance"]["settings.lr"]
        for shown in (finished.json("show", run["id"]) for run in runs)
    }
    grid, extended = "the tuning grid", "the tuning grid, extended beyond its edge"
    assert sources == {0.01: grid, 0.02: grid, 0.04: extended, 0.08: extended}


def test_a_report_says_what_was_added_and_that_the_limit_was_reached(finished: Machine) -> None:
    report = finished.json("report", *TUNED[:4])
    assert (report["tune"], report["extend"], report["label"]) == (True, 2, "toy, tuned with --extend 2")
    wanted = {"at_edge": {"narrow": ["settings.lr"]}, "extend": 2, "points": {"narrow": 4}, "added": {"narrow": 2}}
    assert report["tuning"] == {"seeds": 1, "items": None} | wanted
    answer = finished.run("report", *TUNED[:4]).stdout
    assert "best value at the edge of those tried (narrow): 2 were added, the limit of --extend" in answer
    details = " ".join(finished.run("report", *TUNED[:4], "--details").stdout.split())
    assert (
        "Points tried, with values that were added to the grids: 4 of each rung. More points are more luck" in details
    )
    assert (
        "settings.lr (narrow); a better one may lie beyond. As many values as could be added, 2, were added" in details
    )
    for format in ("md", "html", "latex"):
        text = " ".join(finished.run("report", *TUNED[:4], "--format", format, "--details").stdout.split())
        assert "values that were added to the grids" in text
    rows = list(csv.DictReader(io.StringIO(finished.run("report", *TUNED[:4], "--format", "csv").stdout)))
    assert "toy, tuned with --extend 2" in rows[0].values()
    every = finished.json("report", "--all", *TUNED[1:4], "--ladder", "toy")
    assert [(column["tune"], column["extend"]) for column in every["columns"]] == [(True, 2)]
    finished.run("report", "--instance", "toy-tune-extend2")


def test_the_methods_paragraph_describes_the_extension(finished: Machine) -> None:
    text = finished.run("report", *TUNED[:4], "--methods").stdout
    assert "from four values (0.01, 0.02, 0.04 and 0.08)" in text
    assert (
        "the next value by their ratio was added, up to two for each variant; this added two for each variant" in text
    )
    assert "The best value tried lay at an end of the range for narrow" in text
    sentences = finished.json("report", *TUNED[:4], "--methods")["sentences"]
    [facts] = [sentence["facts"] for sentence in sentences if sentence["about"] == "extension"]
    assert facts == {"extend": 2, "added": {"narrow": 2}, "points": {"narrow": 4}}


def test_reading_commands_name_the_instance_by_the_same_options(finished: Machine, tmp_path: Path) -> None:
    for words in (("toy.toml", "--tune"), ("toy.toml", "--tune", "--extend", "1"), ("toy.toml",)):
        refused = finished.run("report", *words, code=4).stderr
        assert "not in this ledger" in refused
        assert "toy, tuned with --extend 2 (--instance toy-tune-extend2)" in refused
    assert (
        "--extend: belongs to --tune\nhint: add --tune"
        in finished.run("report", *TUNED[:1], *TUNED[2:4], code=2).stderr
    )
    both = finished.run("report", "--instance", "toy-tune-extend2", "--extend", "2", code=2).stderr
    assert "--instance and --extend exclude each other" in both
    finished.run("plot", *TUNED[:4], "--out", str(tmp_path / "ladder.svg"))
    assert "tuned with --extend 2" in (tmp_path / "ladder.svg").read_text()


@pytest.mark.slow
def test_a_publication_says_so(finished: Machine, tmp_path: Path) -> None:
    finished.run("ledger", "export", "--to", "publication", str(tmp_path / "record"), "--license", "CC0-1.0")
    texts = {path.name: path.read_text() for path in (tmp_path / "record").rglob("*.md")}
    assert any("ladder toy on toy, tuned with --extend 2" in text for text in texts.values()), texts.keys()


def test_python_has_the_same(finished: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished.folder)
    places = {"ledger": finished.ledger, "runs_dir": finished.runs}
    ladder = lrurun.ladder("toy.toml", tune=True, extend=2, rungs="narrow", seeds=1, **places)
    assert "lrurun ladder toy.toml --tune --extend 2" in repr(ladder)
    assert ladder.plan().plan.extension_runs == 0
    assert [row.rung for row in ladder.report()] == ["narrow"]
    with lrurun.open(finished.ledger) as ledger:
        assert ledger.report("toy.toml", tune=True, extend=2).report.tuning.added == {"narrow": 2}
        with pytest.raises(NotFoundError):
            ledger.report("toy.toml", tune=True)
    for more, message in (
        ({"extend": 2}, "extend: belongs to tune"),
        ({"tune": True, "extend": 21}, "extend: expected a whole number from 0 to 20, found 21"),
        ({"tune": True, "extend": "2"}, "extend: expected a whole number, found str"),
    ):
        with pytest.raises(UsageError, match=message):
            lrurun.ladder("toy.toml", **more, **places)


def test_a_report_knows_the_values_whose_runs_were_forgotten(copy: Machine) -> None:
    before = copy.json("report", *TUNED[:4])["tuning"]
    copy.run("ledger", "forget", "--where", "stage=tune", "--yes", "--why", "a test")
    assert copy.json("runs", "--where", "stage=tune")["runs"] == []
    assert copy.json("report", *TUNED[:4])["tuning"] == before


def test_there_is_nothing_to_do_again(copy: Machine) -> None:
    for command in (("ladder", *TUNED, "--seeds", "1"), ("resume",)):
        done = copy.run(*command).stderr
        assert "nothing to do" in done
        assert "next:" not in done


def test_a_request_is_repeated_with_it(copy: Machine) -> None:
    with Ledger.open(copy.ledger) as ledger:
        instance = ledger.ladder("toy-tune-extend2")
        [request] = requests.recorded(ledger, instance, LadderRequest)
        assert request.extend == 2
        assert "--tune --extend 2" in request.with_seeds("12")
        file = str(copy.folder / "toy.toml")
        words = msgspec.structs.replace(request, task=file, ladder=file).arguments([0])
        assert words[words.index("--extend") + 1] == "2"
        none = msgspec.structs.replace(request, extend=0)
        assert "--extend 0" in none.command()
    [[spec]] = stores.raw(copy.ledger, "SELECT spec FROM ladders")
    assert msgspec.json.decode(spec)["extend"] == 2
    copy.run("ladder", "toy.toml", "--tune", "--rung", "narrow", "--seeds", "1", "--jobs", "1")
    specs = [msgspec.json.decode(text) for [text] in stores.raw(copy.ledger, "SELECT spec FROM ladders ORDER BY id")]
    assert [spec.get("extend") for spec in specs] == [2, None], "as it was before there was an extension"
    assert tried(copy) == [[1, 0.01], [1, 0.01], [2, 0.02], [2, 0.02], [3, 0.04], [4, 0.08]]


@pytest.mark.slow
def test_an_added_value_is_verified(machine: Machine) -> None:
    write(machine.folder, ONE_SEED)
    machine.run("ladder", *TUNED, "--seeds", "1", "--jobs", "1")
    for where in ("stage=tune and settings.lr=0.08", "stage=train"):
        [run] = machine.json("runs", "--where", where)["runs"]
        assert "verified: all " in machine.run("verify", run["id"]).stdout


@pytest.mark.slow
def test_what_a_recipe_declares_is_the_same_instance(copy: Machine) -> None:
    write(copy.folder, (ONE_SEED[0], "[tune]\nseeds = 1\nextend = 2\n[tune.grid]"))
    assert copy.json("plan", "toy.toml", "--tune", "--seeds", "1", "--rung", "narrow")["name"] == "toy-tune-extend2"
    assert "nothing to do" in copy.run("ladder", *TUNED[:2], *TUNED[4:], "--seeds", "1").stderr
    assert copy.json("plan", "toy.toml", "--tune", "--extend", "0")["name"] == "toy-tune-extend0"
    answer = copy.run("report", "toy.toml", "--tune").stdout
    assert "2 were added, the limit of --extend" in answer


SETS = ("--set", "execution.checkpoint_seconds=0.2")
DIGITS = ("npDigits", "--profile", "smoke", "--rung", "gamma-norm", "--rung", "exponential", "--tune", "--extend", "3")


def outcome(machine: Machine) -> list[Any]:
    """Trials, final runs and the choices, with every bit of the results."""
    kept = []
    for view in ("trials", "results"):
        found = machine.json("query", f"select * from {view} order by id")
        varying = [found["columns"].index(name) for name in ("duration", "finished_at", "machine_steps_per_second")]
        kept.append([[cell for n, cell in enumerate(row) if n not in varying] for row in found["rows"]])
    choices = machine.json("query", "select text from events where kind = 'tuned' order by text")["rows"]
    return [*kept, choices]


@pytest.mark.slow
def test_an_extension_that_is_killed_and_shared_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    calm, killed = (Machine(tmp_path / name) for name in ("calm", "killed"))
    calm.run("ladder", *DIGITS, *SETS, "--jobs", "1", apart=True, timeout=600)
    assert len(outcome(calm)[0]) > 4, "values were added"
    draw = random.Random(0)
    for least in (4, 5):  # runs of the grid are finished: the extension has begun
        process = killed.start("ladder", *DIGITS, *SETS, "--jobs", "2")
        wait_for(lambda least=least: killed.states().get("done", 0) >= least + draw.randint(0, 1), 300)
        stop(process, signal.SIGKILL)
        process.communicate(timeout=30)
        wait_for(lambda: "running" not in killed.states(), 30)
    both = [killed.start("ladder", *DIGITS, *SETS, "--jobs", "1") for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
    assert outcome(killed) == outcome(calm)
    assert "nothing to do" in killed.run("ladder", *DIGITS, *SETS).stderr
    assert killed.json("report", *DIGITS[:3], *DIGITS[7:])["tuning"]["added"].keys() == {"gamma-norm", "exponential"}
