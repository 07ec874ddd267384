"""Tags, notes and exclusions of runs, which change no run."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lrurun.__main__ import run as command
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import Run
from tests.commands.test_inspection import fill
from tests.harness.commands import answered, said
from tests.harness.stores import dump

REPORT = ("report", "sDigits", "--profile", "smoke")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Run]]:
    path = tmp_path_factory.mktemp("filled") / "ledger.db"
    return path, fill(path, seeds=3)


@pytest.fixture
def runs(filled: tuple[Path, list[Run]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Six finished runs in the working directory: two rungs of three seeds."""
    monkeypatch.chdir(tmp_path)
    path, found = filled
    shutil.copy(path, tmp_path)
    return found


def rows_of_runs(path: str = "ledger.db") -> list[str]:
    return [line for line in dump(Path(path)) if line.startswith('INSERT INTO "runs"')]


# Tags


def test_tags_are_added_found_and_removed(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = runs[0].id, runs[1].id
    before = rows_of_runs()
    assert said(capsys, "mark", first[:7], "--tag", "paper", "--tag", "best") == (
        0,
        f"run {first}: tags best, paper\n",
        "",
    )
    assert said(capsys, "mark", first, "--tag", "paper") == (0, f"run {first}: tags best, paper\n", "")
    assert said(capsys, "mark", second, "--tag", "paper") == (0, f"run {second}: tags paper\n", "")
    assert [run["id"] for run in answered(capsys, "runs", "--where", "tag=paper")["runs"]] == [second, first]
    assert [run["id"] for run in answered(capsys, "runs", "--where", "tag=paper and tag!=best")["runs"]] == [second]
    assert len(answered(capsys, "runs", "--where", "not tag=paper")["runs"]) == 4
    assert answered(capsys, "show", first)["run"]["tags"] == ["best", "paper"]
    assert "tags: best, paper" in said(capsys, "show", first)[1]
    out = said(capsys, "runs", "--sort", "-seed")[1].splitlines()
    assert out[0].split()[-1] == "tags"
    assert [line for line in out if "best" in line] == [line for line in out if first in line]
    assert said(capsys, "mark", first, "--untag", "best", "--untag", "unknown") == (
        0,
        f"run {first}: tags paper; had no tag unknown\n",
        "",
    )
    assert said(capsys, "mark", first, "--untag", "paper") == (0, f"run {first}: no tags\n", "")
    assert rows_of_runs() == before


@pytest.mark.parametrize("word", ["a b", "", "a=b", "x" * 101, "a,b", "(a)", "\x1b[31ma", "and", "a\nb", "'a'"])
def test_a_tag_is_one_word(runs: list[Run], capsys: pytest.CaptureFixture[str], word: str) -> None:
    code, out, err = said(capsys, "mark", runs[0].id, "--tag", "good", "--tag", word)
    assert (code, out) == (2, "")
    assert err.startswith("error: tag ")
    assert err.endswith(": expected one word of at most 100 characters\nhint: as in: lrurun mark RUN --tag paper\n")
    assert "\x1b" not in err
    assert answered(capsys, "show", runs[0].id)["run"]["tags"] == []


# Notes


def test_notes_are_events_of_the_run(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = runs[0].id
    before = rows_of_runs()
    text = "\x1b[31mthe [red]fan\x07\nwas 'loud' é"
    assert said(capsys, "mark", run[:8], "--note", text) == (0, f"run {run}: noted\n", "")
    event = answered(capsys, "show", run)["events"][-1]
    assert (event["kind"], event["text"]) == ("note", text)
    assert "note     the [red]fan was 'loud' é" in said(capsys, "show", run)[1]
    assert "\x1b" not in said(capsys, "show", run)[1]
    assert said(capsys, "mark", run, "--note", " ") == (
        2,
        "",
        "error: --note: the text is empty\nhint: as in --note 'the fan was loud'\n",
    )
    for words in (("mark", run, "--note", "x" * 2001), ("mark", run, "--exclude", "x" * 2001)):
        code, _, error = said(capsys, *words)
        assert (code, "2,001 characters, at most 2,000" in error) == (2, True)
    assert rows_of_runs() == before


# Exclusions


def numbers(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, int]]:
    return [(row["rung"], row["n"]) for row in answered(capsys, *REPORT, *arguments)["rows"][:2]]


@pytest.mark.slow
def test_an_excluded_run_is_in_no_report_and_is_kept(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    tanh, linear = runs[0], runs[4]
    before = rows_of_runs()
    untouched = said(capsys, *REPORT)[1]
    for arguments in ((), ("--speed",)):
        assert numbers(capsys, *arguments) == [("tanh-rnn", 3), ("linear-rnn", 3)]
    out = f"run {tanh.id}: excluded from all reports; --include includes it again\n"
    assert said(capsys, "mark", tanh.id[:8], "--exclude", "a broken\ndisk\x1b[31m") == (0, out, "")
    assert said(capsys, "mark", linear.id, "--exclude", "first try")[0] == 0
    again = f"run {linear.id}: excluded from all reports (replaces: first try); --include includes it again\n"
    assert said(capsys, "mark", linear.id, "--exclude", "[red]fan") == (0, again, "")
    notes = [f"1 run excluded: a broken disk; runs: {tanh.id}", f"1 run excluded: [red]fan; runs: {linear.id}"]
    for arguments in ((), ("--speed",)):
        assert numbers(capsys, *arguments) == [("tanh-rnn", 2), ("linear-rnn", 2)]
        for form in (("--details",) if not arguments else (), ("--format", "md")):
            text = said(capsys, *REPORT, *arguments, *form)[1]
            assert all(note in " ".join(text.split()) for note in notes)
            assert "\x1b" not in text
        assert tanh.id not in {run for row in answered(capsys, *REPORT, *arguments)["rows"] for run in row["runs"]}
    assert answered(capsys, *REPORT)["rows"][0]["mean"] == pytest.approx(0.515)
    assert answered(capsys, *REPORT)["rows"][0]["other_runs"] == []
    listed = {run["id"]: run["excluded"] for run in answered(capsys, "runs")["runs"]}
    assert listed == dict.fromkeys([run.id for run in runs]) | {
        tanh.id: "a broken\ndisk\x1b[31m",
        linear.id: "[red]fan",
    }
    assert [line.split()[0] for line in said(capsys, "runs")[1].splitlines() if "done, excluded" in line] == [
        linear.id,
        tanh.id,
    ]
    assert "excluded from every report: a broken disk\n" in said(capsys, "show", tanh.id)[1]
    kinds = [(e["kind"], e["text"]) for e in answered(capsys, "show", linear.id)["events"]][-2:]
    assert kinds == [("excluded", "first try"), ("excluded", "[red]fan")]
    assert said(capsys, "mark", tanh.id, "--include") == (0, f"run {tanh.id}: included in reports again\n", "")
    assert said(capsys, "mark", tanh.id, "--include") == (0, f"run {tanh.id}: was not excluded\n", "")
    assert "Note: 1 run excluded: [red]fan\n" in said(capsys, *REPORT)[1], "ids are in the details"
    assert said(capsys, "mark", linear.id, "--include")[0] == 0
    assert said(capsys, *REPORT)[1] == untouched
    assert rows_of_runs() == before


def test_claims_do_not_count_excluded_runs(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    def details() -> list[str]:
        return [claim["detail"] for claim in answered(capsys, *REPORT)["claims"]]

    before = details()
    for run in runs[3:]:
        assert said(capsys, "mark", run.id, "--exclude", "x")[0] == 0
    report = answered(capsys, *REPORT)
    assert [(row["n"], row["mean"] is None) for row in report["rows"][:2]] == [(3, False), (0, True)]
    assert details() != before
    assert {claim["verdict"] for claim in report["claims"]} == {"not run", "not judged"}  # a claim on long sequences


def test_unequal_data_do_not_matter_once_excluded(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    connection = sqlite3.connect("ledger.db")
    with connection:
        connection.execute("drop trigger runs_finished_stay")
        connection.execute("update stored_runs set data_sha256 = 'e' where id = ?", [runs[0].id])
    connection.close()
    assert command([*REPORT]) == 1
    capsys.readouterr()
    assert said(capsys, "mark", runs[0].id, "--exclude", "of other data")[0] == 0
    assert numbers(capsys) == [("tanh-rnn", 2), ("linear-rnn", 3)]


def test_one_call_records_everything_for_all_its_runs_or_nothing(
    runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = runs[0].id, runs[1].id
    options = ("--tag", "slow", "--note", "loud fan", "--exclude", "broken disk")
    before = dump(Path("ledger.db"))
    assert said(capsys, "mark", first, second, "zz", *options)[0] == 4
    assert dump(Path("ledger.db")) == before
    said_of = "tags slow; noted; excluded from all reports; --include includes it again\n"
    assert said(capsys, "mark", first, second, first, *options) == (
        0,
        f"run {first}: {said_of}run {second}: {said_of}",
        "",
    )
    with Ledger.open("ledger.db") as ledger:
        ledger.mark([first], note="loud fan", exclude="broken disk")  # a server that did not say that it has done it
        for run in (first, second):
            assert [event.kind for event in ledger.events(run=run)][-2:] == ["excluded", "note"]
            assert (ledger.run(run).tags, ledger.run(run).excluded) == (("slow",), "broken disk")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["mark"], "missing argument 'RUN ...'"),
        (["mark", "RUN"], "mark: nothing to record"),
        (["mark", "RUN", "--exclude", " "], "--exclude: the text is empty"),
        (["mark", "RUN", "--exclude", "x", "--include"], "--exclude and --include exclude each other"),
    ],
)
def test_missing_arguments(
    runs: list[Run], capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    before = dump(Path("ledger.db"))
    code, out, err = said(capsys, *[runs[0].id if word == "RUN" else word for word in arguments])
    assert (code, out, err.splitlines()[0], len(err.splitlines())) == (2, "", f"error: {error}", 2)
    assert dump(Path("ledger.db")) == before


COMMANDS = [
    ("mark", "zz", "--tag", "good"),
    ("mark", "zz", "--note", "text"),
    ("mark", "zz", "--exclude", "x"),
    ("mark", "zz", "--include"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_unknown_runs_and_missing_ledgers(
    runs: list[Run], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert said(capsys, *arguments) == (4, "", "error: no run 'zz' in this ledger\nhint: see `lrurun runs`\n")
    assert said(capsys, *arguments, "--ledger", "none.db") == (
        4,
        "",
        "error: run 'zz': there is no ledger at none.db\nhint: name one with --ledger PATH\n",
    )
    assert not Path("none.db").exists()


def test_an_older_ledger_is_not_migrated(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lrurun.ledger.database.sqlite.SCHEMA", "9001")
    content = Path("ledger.db").read_bytes()
    code, out, err = said(capsys, "mark", "zz", "--tag", "good")
    assert (code, out) == (5, "")
    assert "migrate it, a backup is made: lrurun ledger migrate" in err
    assert Path("ledger.db").read_bytes() == content
    shutil.copy("ledger.db", "my k.db")
    err = said(capsys, "--ledger", "my k.db", "runs")[2]
    assert "migrate it, a backup is made: lrurun ledger migrate --ledger 'my k.db'\n" in err


def test_tags_and_notes_stay_with_their_generation(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is repeated with --fresh is a new run, without tags and notes."""
    from lrurun.config import plan as planning
    from lrurun.config.plan import final_runs

    assert said(capsys, "mark", runs[0].id, "--exclude", "x")[0] == 0
    assert said(capsys, "mark", runs[0].id, "--tag", "t")[0] == 0
    plan = planning.make("sDigits", ladder="lru", profile="smoke")
    with Ledger.open("ledger.db") as ledger:
        key = ledger.ladders()[0].key
        [new] = ledger.enqueue(key, final_runs(plan, plan.rungs[0], [0]), fresh=True)
    assert (new.tags, new.excluded) == ((), None)
    table: dict[str, Any] = json.loads(said(capsys, "show", runs[0].id, "--json")[1])
    assert (table["run"]["tags"], table["run"]["superseded"]) == (["t"], True)
    assert "done, superseded, excluded" in said(capsys, "runs")[1]
