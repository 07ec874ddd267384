"""When a command starts node supervisors, with an engine that only counts; and node supervisors themselves."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from lrurun.commands import status
from lrurun.config import plan as planning
from lrurun.errors import LrurunError
from lrurun.ledger import owner
from lrurun.ledger.store import Ledger
from lrurun.paths import Places
from lrurun.runner import node
from lrurun.runner.executors import NodeJob
from lrurun.runner.executors.nodes import EngineError, NodeExecutor
from lrurun.runner.selection import Selection
from lrurun.runner.signals import Signals
from lrurun.runner.supervisor import Supervisor
from tests.harness.machine import Machine
from tests.harness.stores import ELSEWHERE
from tests.runner.test_supervisor import NoDisplay


class Engine(NodeExecutor):
    """Node supervisors that are numbers."""

    poll_seconds = 0.0

    def __init__(self, job: NodeJob) -> None:
        super().__init__(job)
        self.submitted: list[int] = []
        self.now = 0
        self.fault = self.token = ""
        self.cancelled: list[bool] = []

    def script(self) -> str:
        return ""

    def submit(self, count: int, variables: dict[str, str]) -> str:
        assert node.sees(self.job.places.runs, variables[node.SHARED])
        self.submitted.append(count)
        self.token = variables[node.SHARED]
        self.now += count
        return f"job {len(self.submitted)}"

    def alive(self) -> int:
        if self.fault:
            raise EngineError(self.fault)
        return self.now

    def cancel(self, *, waiting_only: bool) -> None:
        self.cancelled.append(waiting_only)
        self.now = 0

    def last_line(self) -> tuple[str, str]:
        return "no module named lrurun", "runs/nodes/1.log"


class Command:
    """A command on three runs, with two nodes at most."""

    def __init__(self, ledger: Ledger, places: Places) -> None:
        plan = planning.make("sDigits", profile="smoke")
        selection = Selection(plan=plan, rungs=planning.choose_rungs(plan, ["tanh-rnn"]), seeds=[0, 1, 2])
        self.engine = Engine(NodeJob(name="j", arguments=[], folder=Path(), places=places, nodes=2))
        self.said: list[str] = []
        display = NoDisplay()
        display.say = self.said.append  # type: ignore[method-assign]
        self.ledger = ledger
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        work = selection.work(instance, places)
        self.supervisor = Supervisor(ledger, work, selection, display, Signals(), self.engine)
        assert self.supervisor.queue()

    def tick(self) -> bool:
        for text in self.engine.ended(self.supervisor.runs):
            self.said.append(text)
        return self.supervisor._update()

    def claim(self) -> None:
        assert self.ledger.claim(self.supervisor.instance.key, owner.this_process(), environment={}) is not None


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    places = Places(ledger=tmp_path / "ledger.db", runs=tmp_path / "runs", data=tmp_path / "data")
    with Ledger.open(places.ledger) as ledger:
        yield Command(ledger, places)


def test_nodes_are_started_while_runs_are_queued(command: Command) -> None:
    assert not command.tick()
    assert not command.tick()
    assert command.engine.submitted == [2], "no more than two at a time"
    assert command.engine.count() == 2
    assert command.said == ["submitted 2 node supervisors: job 1"]
    command.claim()
    command.claim()
    command.engine.now = 1
    command.tick()
    assert command.engine.submitted == [2, 1]
    command.claim()
    command.engine.now = 0
    command.tick()
    assert command.engine.submitted == [2, 1], "nothing is queued"
    events = command.ledger.events(ladder_key=command.supervisor.instance.key, of_runs=False)
    assert [event.text for event in events if event.kind == node.SUBMITTED] == [
        "submitted 2 node supervisors: job 1",
        "submitted 1 node supervisor: job 2",
    ]


def test_nodes_that_claim_nothing_are_started_three_times(command: Command) -> None:
    for submissions in (1, 2, 3):
        command.tick()
        assert len(command.engine.submitted) == submissions
        command.engine.now = 0
    with pytest.raises(LrurunError) as caught:
        command.tick()
    assert caught.value.message == "node supervisors end before they claim a run: no module named lrurun"
    assert caught.value.hint == "see runs/nodes/1.log"


def test_a_claim_shows_that_nodes_work(command: Command) -> None:
    for _ in range(2):
        command.tick()
        command.engine.now = 0
    command.claim()
    for _ in range(3):
        command.tick()
        command.engine.now = 0
    assert command.engine.submitted == [2, 2, 2, 2, 2]


def test_an_engine_that_does_not_answer_is_asked_again(command: Command) -> None:
    command.engine.fault = "squeue: connection refused"
    command.tick()
    command.tick()
    assert command.said == ["squeue: connection refused; trying again"]
    command.engine.fault = ""
    command.tick()
    assert command.engine.submitted == [2]


def test_a_command_that_returns_fails_if_nothing_was_submitted(command: Command) -> None:
    command.supervisor.work = command.supervisor.runs.work = structs.replace(command.supervisor.work, detach=True)
    command.engine.fault = "sbatch: too many jobs"
    with pytest.raises(LrurunError, match=r"^nothing was submitted: sbatch: too many jobs$"):
        command.supervisor.run(lambda: None)
    assert command.said == []
    command.engine.fault = ""
    for _ in range(2):
        assert command.supervisor.run(lambda: None).worked
    assert command.said == [
        "submitted 2 node supervisors: job 1",
        "submitted nothing: 2 node supervisors of an earlier command wait or run",
    ]


@pytest.mark.parametrize(
    ("received", "finished", "cancelled"),
    [
        (signal.SIGINT, False, [False]),
        (signal.SIGTERM, False, [False]),
        (signal.SIGHUP, False, []),
        (None, False, []),
        (None, True, [True]),
    ],
)
def test_only_who_stops_the_command_stops_the_nodes(
    command: Command, received: int | None, finished: bool, cancelled: list[bool]
) -> None:
    command.tick()
    command.supervisor.signals.received = received
    command.engine.stop(command.supervisor.runs, command.supervisor.signals, finished=finished)
    assert command.engine.cancelled == cancelled
    assert ("the node supervisors go on without this command" in command.said) == (not cancelled)


def test_a_node_that_cannot_work_ends_the_command(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command.tick()
    runs, elsewhere = command.supervisor.runs, Path("elsewhere").absolute()

    def report(token: str) -> None:
        monkeypatch.setenv(node.SHARED, token)
        with pytest.raises(LrurunError):
            node.check(command.ledger, command.supervisor.instance, elsewhere)

    report("0123456789abcdef")  # of another command on this ladder
    command.tick()
    assert command.engine.cancelled == []
    report(command.engine.token)
    command.engine.poll_seconds = 3600.0
    assert list(command.engine.ended(runs)) == [], "the events are read as often as the engine is asked"
    command.engine.poll_seconds = 0.0
    with pytest.raises(LrurunError, match=rf"^{elsewhere}: the runs folder is not shared with the node ") as caught:
        list(command.engine.ended(runs))
    assert caught.value.hint == "choose a folder on shared storage with --runs-dir"
    assert command.engine.cancelled == [False]


SMOKE = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--seeds", "1", "--on-node")


def test_a_node_leaves_when_others_have_all_runs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lrurun.commands.ladder._prepare_data", lambda *_: None)
    plan = planning.make("sDigits", profile="smoke")
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        selection = Selection(plan=plan, rungs=planning.choose_rungs(plan, ["tanh-rnn"]), seeds=[0])
        ledger.enqueue(instance.key, selection.final())
        assert ledger.claim(instance.key, ELSEWHERE, environment={}) is not None
        done = machine.run(*SMOKE, env={node.TASK: "slurm:7_0", owner.NODE: "n1"})
        assert done.stdout == ""
        [run] = ledger.runs()
        assert run.state == "running"
        assert [event.text for event in ledger.events() if event.kind == node.STARTED] == [
            f"slurm:7_0, start 0, on n1@{socket.gethostname()}"
        ]


def test_a_node_needs_the_ledger_and_the_folder_of_the_command(machine: Machine) -> None:
    done = machine.run(*SMOKE, code=4)
    assert "there is no ledger" in done.stderr
    assert list(machine.folder.iterdir()) == []
    Ledger.open(machine.ledger).close()
    done = machine.run(*SMOKE, code=1, env={node.SHARED: "0123"})
    assert "the runs folder is not shared with the node" in done.stderr
    assert not machine.runs.exists()


@pytest.mark.parametrize("submitted", [False, True])
def test_submitted_runs_are_watched_while_they_wait(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, submitted: bool
) -> None:
    plan = planning.make("sDigits", profile="smoke")
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        selection = Selection(plan=plan, rungs=planning.choose_rungs(plan, ["tanh-rnn"]), seeds=[0])
        ledger.enqueue(instance.key, selection.final())
        if submitted:
            ledger.event(node.SUBMITTED, "submitted 1 node supervisor: job 1", ladder=instance.key)
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 2:  # a node begins and saves, then another one goes on
                claim = ledger.claim(instance.key, owner.this_process(), environment={})
                assert claim is not None
                ledger.finish(claim, "interrupted", reason="interrupted: SIGTERM")
            if len(slept) == 4:
                ledger.requeue([run.id for run in ledger.runs()])
                claim = ledger.claim(instance.key, owner.this_process(), environment={})
                assert claim is not None
                ledger.finish(claim, "done", result={"val/accuracy": 0.5})

        monkeypatch.setattr(status, "STALLED_SECONDS", -1.0)
        monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        done = machine.run("status", "--watch")
    assert ("no process works on the queued runs" in done.stderr) == (not submitted)
    assert len(slept) == (4 if submitted else 0)


def test_every_unfinished_ladder_is_watched(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(machine.ledger) as ledger:
        instances = []
        for rung in ("tanh-rnn", "ring-init"):
            plan = planning.make("sDigits", profile="smoke", sets=[f"train.steps={20 + len(rung)}"])
            instances.append(ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec))
            selection = Selection(plan=plan, rungs=planning.choose_rungs(plan, [rung]), seeds=[0])
            ledger.enqueue(instances[-1].key, selection.final())

        def sleep(_: float) -> None:  # a process finishes one run at a time, of the newest ladder first
            claims = (ledger.claim(one.key, owner.this_process(), environment={}) for one in reversed(instances))
            claim = next(filter(None, claims))
            ledger.finish(claim, "done", result={"val/accuracy": 0.5})

        monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        done = machine.run("status", "--watch")
        assert {run.state for run in ledger.runs()} == {"done"}
    assert "no process works" not in done.stderr
