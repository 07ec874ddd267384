"""Ladders whose ledger is on a server that restarts or is away: real processes, compared with a ladder in a file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.ledger import heartbeat
from lrurun.ledger.ledger import Ledger
from lrurun.server import Server
from tests.harness.machine import FOUR_RUNS, LONG, TWO_RUNS, Machine, training, wait_for, workers_of
from tests.harness.servers import LOCKED, PASSWORD, PrivateServer, programs
from tests.harness.stores import ELSEWHERE, ME, want

pytestmark = pytest.mark.slow

LADDER = ("ladder", "sDigits", *LONG, *FOUR_RUNS, "--jobs", "2")
SHORT = ("ladder", "sDigits", *LONG, *TWO_RUNS, "--jobs", "2")


@pytest.fixture
def shared(machine: Machine, postgres: PrivateServer) -> Iterator[Machine]:
    """A machine whose ledger is on a server."""
    server = postgres.empty()
    yield machine.use(server)
    if not postgres.is_running:
        postgres.start()
    postgres.drop(server)


def check(machine: Machine, long_history: dict[Any, Any], runs: int) -> None:
    """So many runs are done, each once, and their results are those of the undisturbed ladder in a file."""
    history = machine.history()
    assert len(history) == runs
    assert history == {key: long_history[key] for key in history}
    for attempts in machine.attempts().values():
        assert [attempt.reason for attempt in attempts].count("done") == 1
        assert attempts[-1].reason == "done"


def test_a_ladder_goes_on_through_restarts_an_outage_and_kills(shared, postgres, long_history) -> None:
    """And so does `status --watch`."""
    process = shared.start(*LADDER)
    wait_for(training(shared))
    seen = shared.folder / "seen.txt"
    with seen.open("w") as file:
        watch = shared.start("status", "--watch", stderr=file)
    postgres.restart()
    wait_for(training(shared, step=100))
    postgres.restart(signal.SIGQUIT)
    wait_for(training(shared, step=150))
    wait_for(seen.read_text)
    postgres.stop()
    workers = workers_of(process)
    time.sleep(15)
    wait_for(lambda: f"the ledger {shared.ledger} does not answer" in seen.read_text())
    assert process.poll() is watch.poll() is None
    assert workers
    assert all(worker.is_running() for worker in workers)
    postgres.start()
    wait_for(lambda: "done" in shared.states())
    assert all(len(attempts) <= 1 for attempts in shared.attempts().values()), "a worker lost its run"
    for worker in workers_of(process):
        worker.kill()
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert re.search(
        rf"the ledger {re.escape(str(shared.ledger))} has not answered since \d\d:\d\d:\d\d: training", said
    )
    watch.communicate(timeout=60)
    assert watch.returncode == 0, seen.read_text()
    check(shared, long_history, 4)


def test_owners_elsewhere_may_write_a_heartbeat_after_an_outage(shared, postgres, monkeypatch) -> None:
    with Ledger.open(shared.ledger) as ledger:
        key = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ledger.enqueue(key, [want()])
        held = ledger.hold(key, ELSEWHERE)
        assert held is not None
        postgres.restart()
        with Ledger.open(shared.ledger) as another:
            assert another.reap(ME, timeout=0.0) == [], "a command that has just begun knows of the restart"
        assert ledger.reap(ME, timeout=0.0) == []
        monkeypatch.setattr(heartbeat, "RETURN_SECONDS", 0.0)
        assert [run.id for run in ledger.reap(ME, timeout=0.0)] == [held.run.id]


def test_a_signal_stops_a_command_whose_server_hangs(shared, postgres) -> None:
    process = shared.start(*SHORT)
    wait_for(training(shared, step=50))
    workers = workers_of(process)
    with postgres.suspended():
        time.sleep(8)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 128 + signal.SIGTERM
        assert "has not answered since" in said
        assert f"the ledger {shared.ledger} does not answer: what has been computed since is not recorded" in said
        assert not psutil.wait_procs(workers, timeout=5)[1]


def test_a_signal_stops_a_command_whose_server_is_away(shared, postgres, long_history) -> None:
    """What it had computed since is computed again."""
    process = shared.start(*SHORT)
    wait_for(training(shared, step=50))
    workers = workers_of(process)
    postgres.stop()
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=25)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"the ledger {shared.ledger} does not answer: what has been computed since is not recorded" in said
    assert re.search(r"stopped by (SIGTERM|\^C) with \d of 2 runs? remaining; the same command continues", said)
    assert not psutil.wait_procs(workers, timeout=5)[1]
    logs = "".join(path.read_text() for path in shared.runs.glob("*/*/log.txt"))
    assert re.search(
        r"nothing (after step \d+|of this attempt) is recorded: the server of the ledger does not answer", logs
    )
    postgres.start()
    shared.run(*SHORT)
    check(shared, long_history, 2)


def test_commands_without_a_server_end_with_an_error(shared, postgres) -> None:
    Ledger.open(shared.ledger).close()
    postgres.stop()
    for command in (["runs"], ["ladder", "sDigits"], ["ledger", "check"]):
        done = shared.run(*command, code=5)
        assert re.match(
            rf"error: the ledger {re.escape(str(shared.ledger))} cannot be reached: .*\nhint: check that the server is",
            done.stderr,
        ), done.stderr
    doctor = shared.run("doctor", code=1)
    assert re.search(r"PROBLEM +ledger +the ledger postgresql\+psycopg://.* cannot be reached", doctor.stdout)


def database(server: Server) -> str:
    return server.text.rpartition("/")[2]


def locked(postgres: PrivateServer, server: Server) -> str:
    """The URL of the same database for a role with a password, without it."""
    postgres.admin(f"ALTER DATABASE {database(server)} OWNER TO {LOCKED}")
    return str(postgres.server(database(server), user=LOCKED))


def test_a_wrong_password(shared, postgres) -> None:
    url = locked(postgres, shared.ledger)
    for env in ({}, {"PGPASSWORD": "wrong"}, {"LRURUN_LEDGER": url.replace("@", ":wrong@")}):
        done = shared.run("runs", code=5, env={"LRURUN_LEDGER": url} | env)
        assert re.match(rf"error: the server of the ledger {re.escape(url)} refuses: .*password", done.stderr)
        assert "PGPASSFILE" in done.stderr.splitlines()[1]
        assert "wrong" not in done.stderr
    accepted = {"LRURUN_LEDGER": url, "PGPASSWORD": PASSWORD}
    assert "there is no ledger" in shared.run("runs", env=accepted).stderr


def test_a_password_is_written_nowhere(shared, postgres) -> None:
    """Not in messages, traces, logs, files or the ledger, nor in the arguments of any process."""
    url = locked(postgres, shared.ledger).replace("@", f":{PASSWORD}@")
    shared.env["LRURUN_LEDGER"] = url
    process = shared.start("--debug", "-v", "ladder", "sDigits", "--profile", "smoke", "--rung", "ring-init")
    workers = wait_for(lambda: workers_of(process))
    assert workers
    seen = " ".join(" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))
    out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    texts = [seen, out, said]
    for command in (["runs", "--json"], ["status", "--json"], ["ledger", "path"], ["doctor"]):
        done = shared.run(*command)
        texts += [done.stdout, done.stderr]
    address = ("-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres", database(shared.ledger))
    texts.append(subprocess.run([programs() / "pg_dump", *address], capture_output=True, text=True, check=True).stdout)
    assert "ring-init" in texts[-1]
    run = shared.json("runs")["runs"][0]["id"]
    texts.append(shared.run("show", run, "--json").stdout)
    assert "ring-init" in texts[-1]
    postgres.stop()
    texts.append(shared.run("--debug", "runs", code=5).stderr)
    assert "Traceback" in texts[-1]
    postgres.start()
    texts += [path.read_text(errors="replace") for path in shared.folder.rglob("*") if path.is_file()]
    assert [text for text in texts if PASSWORD in text] == []


def test_an_unreachable_host_ends_a_command(machine) -> None:
    """No answer comes from this address, which is reserved for documentation."""
    url = "postgresql+psycopg://ann@192.0.2.1/lab?connect_timeout=2"
    done = machine.run("ladder", "sDigits", "--ledger", url, code=5)
    assert f"error: the ledger {url} cannot be reached" in done.stderr


def test_the_driver_is_missing(shared, tmp_path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys\nsys.modules['psycopg'] = None\n")
    path = f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}:{Path(__file__).parents[2]}"
    done = shared.run("runs", apart=True, code=1, env={"PYTHONPATH": path})
    assert done.stderr.startswith(f"error: the ledger {shared.ledger} needs the PostgreSQL driver psycopg")
    assert done.stderr.endswith("hint: pip install 'lrurun[postgres]'\n")
