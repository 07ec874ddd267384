"""`lrurun.ladder` for programs, on a PostgreSQL server, on a cluster, and with a sequential design."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import lrurun
from lrurun import paths
from lrurun.errors import UsageError
from tests.harness import programs
from tests.harness.machine import Machine
from tests.harness.servers import PrivateServer


def test_a_program_is_trained_from_python(here: Machine) -> None:
    programs.write(here.folder)
    ladder = lrurun.ladder("toy.toml", seeds=2, set={"settings.epochs": 3})
    assert ladder.plan().plan.runs_left == 4
    with pytest.raises(UsageError, match=r"^pack: is for lrurun's own models"):
        ladder.train(pack=2)
    ladder.train(jobs=2)
    report = ladder.report()
    assert [row.n for row in report] == [2, 2]
    assert report[1].comparison is not None
    assert report[1].comparison.difference == pytest.approx(0.2)
    assert [claim.text for claim in report.claims] == ["wide blocks are better"]
    assert ladder.plot().axes
    command = here.run("ladder", "toy.toml", "--seeds", "2", "--set", "settings.epochs=3")
    assert "nothing to do" in command.stderr, "call and command are the same request"
    [asked] = here.json("query", "SELECT count(*) AS n FROM events WHERE kind = 'asked'")["rows"]
    assert list(asked.values() if isinstance(asked, dict) else asked) == [1]


def test_another_thread_trains_too(here: Machine) -> None:
    programs.write(here.folder)
    ladder = lrurun.ladder("toy.toml", seeds=1)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ladder.train, jobs=2).result()
    assert here.states() == {"done": 2}


@pytest.mark.slow
def test_a_sequential_design_is_taken_to_its_end(here: Machine) -> None:
    programs.write(here.folder)
    ladder = lrurun.ladder("toy.toml", decide=True, max_seeds=12)
    ladder.train()
    design = ladder.report().report.design
    assert design is not None
    assert design.next_look is None
    assert ladder.plan().plan.runs_left == 0


@pytest.fixture
def server(postgres: PrivateServer) -> Iterator[str]:
    """The URL of an empty database."""
    place = postgres.empty()
    yield str(place)
    postgres.drop(place)


@pytest.mark.slow
def test_a_ledger_on_a_server(here: Machine, server: str) -> None:
    programs.write(here.folder)
    ladder = lrurun.ladder("toy.toml", seeds=1, ledger=server, runs_dir=here.folder / "there")
    ladder.train(jobs=2)
    assert [row.n for row in ladder.report()] == [1, 1]
    assert ladder.plan().plan.runs_left == 0
    assert not here.ledger.exists()
    assert len(paths.run_folders(here.folder / "there")) == 2


def test_a_job_is_submitted_and_the_call_returns(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    scripts = {"sbatch": "echo 7", "squeue": "", "scancel": "", "sinfo": "echo $HOSTNAME"}
    for name, text in scripts.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    programs.write(here.folder)
    ladder = lrurun.ladder("toy.toml", seeds=1)
    ladder.train(on="slurm", detach=True)
    said = capsys.readouterr().err
    assert "submitted 1 node supervisor: " in said
    assert "same command" not in said
    assert here.states() == {"queued": 2}
    ladder.train(jobs=2)
    assert here.states() == {"done": 2}
