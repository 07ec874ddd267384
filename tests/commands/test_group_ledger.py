"""A new user's hour in one ledger, up to the paper: what is made by mistake is hidden and forgotten, a clean ledger is
handed over, and what docs/publishing.md makes compiles as it is printed there."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import sqlite3
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness import typeset
from tests.harness.machine import Machine

PAGE = Path(__file__).parents[2] / "docs/publishing.md"
TWO = ("--profile", "smoke", "--rung", "ring-init", "--rung", "gamma-norm", "--seeds", "2")
CLEAN = {"npDigits-smoke": 4, "sDigits-smoke": 4, "mine-2": 4, "norms": 18}
"""Short name -> runs, of what is handed over."""
SWEPT = {f"npDigits-smoke-lr{rate}": 4 for rate in ("0.004", "0.008")}
MISTAKES = {"mine": 1, "wrong": 18}


def rows(ledger: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        return connection.execute(query, values).fetchall()


def instances(ledger: Path) -> dict[str, int]:
    """Short name -> number of runs."""
    query = "SELECT short_name, count(run) FROM ladders l LEFT JOIN ladder_runs m ON m.ladder = l.id GROUP BY l.id"
    return dict(rows(ledger, query))


def results(ledger: Path, name: str) -> list[tuple[Any, ...]]:
    return rows(
        ledger,
        """
        SELECT r.id, m.rung, r.seed, r.state, r.result FROM stored_runs r JOIN ladder_runs m ON m.run = r.number
        JOIN ladders l ON l.id = m.ladder WHERE l.short_name = ? ORDER BY r.id, m.rung
        """,
        name,
    )


def listed(machine: Machine) -> set[str]:
    return {ladder["name"] for ladder in machine.json("status")["ladders"]}


def reports(machine: Machine) -> dict[str, str]:
    return {name: machine.run("report", "--instance", name, "--details").stdout for name in CLEAN}


def make(machine: Machine) -> None:
    """Two ladders, a sweep, and a program and an import that are wrong at first."""
    machine.run("ladder", "npDigits", *TWO)
    machine.run("ladder", "sDigits", *TWO)
    machine.run("ladder", "npDigits", *TWO, "--sweep", "optim.lr=0.004,0.008")
    machine.run("new", "program", "mine")
    script, recipe = machine.folder / "mine.py", machine.folder / "mine.toml"
    recipe.write_text(recipe.read_text().replace('["python", ', f'["{sys.executable}", '))
    right = script.read_text()
    script.write_text(right.replace("run.log(epoch", "run.lgo(epoch"))
    failed = machine.run("ladder", "mine.toml", "--rung", "linear", "--seeds", "1", "--jobs", "1", code=3)
    assert "AttributeError: 'Run' object has no attribute 'lgo'" in failed.stderr
    script.write_text(right)
    machine.run("ladder", "mine.toml", "--rung", "linear", "--rung", "standardised", "--seeds", "2")
    machine.run("new", "import", "example")
    table = ("import", "example/table/runs.csv", "--by", "norm")
    machine.run(*table, "--metric", "val_acc", "--name", "wrong")
    machine.run(*table, "--metric", "test_acc", "--test-items", "10000", "--name", "norms")


@pytest.mark.slow
def test_an_hour_of_a_new_user_ends_with_a_clean_ledger_and_a_paper(machine: Machine, tmp_path: Path) -> None:
    typeset.need("pdflatex", "pdffonts", "pdftotext")
    make(machine)
    assert instances(machine.ledger) == CLEAN | SWEPT | MISTAKES
    assert listed(machine) == {*CLEAN, *SWEPT, *MISTAKES}
    before = reports(machine)

    # what is not for the paper is hidden, what is wrong is forgotten
    folders = [machine.runs / run[:12] for run, *_ in results(machine.ledger, "mine")]
    assert all(folder.is_dir() for folder in folders)
    machine.run("ledger", "hide", *SWEPT)
    machine.run("ledger", "forget", "mine", "--yes")
    assert "--why" in machine.refused("ledger", "forget", "wrong", "--yes")
    machine.run("ledger", "forget", "wrong", "--yes", "--why", "the score is of the validation split")
    assert instances(machine.ledger) == CLEAN | SWEPT
    assert listed(machine) == {*CLEAN}
    assert not any(folder.exists() for folder in folders)
    assert reports(machine) == before
    removals = rows(machine.ledger, "SELECT why FROM removals ORDER BY id")
    assert removals == [(None,), ("the score is of the validation split",)]

    # one command hands the rest over
    chosen = [word for name in CLEAN for word in ("--instance", name)]
    machine.run("ledger", "backup", "--out", "paper.db", *chosen)
    other = Machine(tmp_path / "other")
    shutil.move(machine.folder / "paper.db", other.ledger)
    assert instances(other.ledger) == CLEAN
    for name in CLEAN:
        assert results(other.ledger, name) == results(machine.ledger, name) != []
    assert listed(other) == {*CLEAN}
    assert reports(other) == before
    assert rows(other.ledger, "PRAGMA integrity_check") == [("ok",)]
    assert rows(other.ledger, "PRAGMA foreign_key_check") == []

    publish(other, before["npDigits-smoke"], tmp_path)


def publish(machine: Machine, report: str, folder: Path) -> None:
    """Gives the commands of the page, compiles its document, and reads the record that they make."""
    text = PAGE.read_text()
    [article] = re.findall(r"`article.tex`:\n\n```latex\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    commands = re.search(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert commands is not None
    named = re.sub(r"(report|claims|plot) npDigits", r"\1 --instance npDigits", commands[1])
    for command in named.replace("--instance npDigits", "--instance npDigits-smoke").splitlines():
        machine.run(*shlex.split(command)[1:])

    (machine.folder / "article.tex").write_text(article)
    assert typeset.faults_of_document(machine.folder / "article.tex") == []
    to_text = ["pdftotext", "-layout", "article.pdf", "-"]
    printed = subprocess.run(to_text, cwd=machine.folder, capture_output=True, text=True, check=True).stdout
    for mark in (r"\?\?", r"(?<!\w)--\w", r"npDigits-smoke", r"\blrurun (?!1\.|noise)\w", r"optim\."):
        found = re.search(mark, printed)
        assert found is None, printed[max(0, found.start() - 60) : found.end() + 40]
    for words in ("Table 1: Which changes matter.", "Two of the eight variants of a ladder were compared on"):
        assert words in printed
    scores: dict[str, list[float]] = {}
    query = """
        SELECT m.rung, 100 * json_extract(r.result, '$."test/accuracy"') FROM stored_runs r
        JOIN ladder_runs m ON m.run = r.number JOIN ladders l ON l.id = m.ladder WHERE l.short_name = 'npDigits-smoke'
    """
    for rung, score in rows(machine.ledger, query):
        scores.setdefault(rung, []).append(score)
    table = (machine.folder / "ladder.tex").read_text()
    found = re.findall(r"^(\S+) & (?:\\textbf\{)?([\d.]+) \$\\pm\$ ([\d.]+)", table, re.MULTILINE)
    assert [rung for rung, *_ in found] == ["ring-init", "gamma-norm"]
    for rung, mean, error in found:
        assert float(mean) == pytest.approx(statistics.mean(scores[rung]), abs=0.051)
        assert float(error) == pytest.approx(statistics.stdev(scores[rung]) / 2**0.5, abs=0.051)

    record = machine.folder / "record"
    subprocess.run(["sha256sum", "-c", "--strict", "--quiet", "SHA256SUMS"], cwd=record, check=True)
    reader = Machine(folder / "reader")
    reader.run("ledger", "merge", str(record))
    assert instances(reader.ledger) == {"npDigits-smoke": 4}
    assert reader.run("report", "--instance", "npDigits-smoke", "--details").stdout == report
    assert (record / "instances/npDigits-smoke/report.txt").read_text() == report
