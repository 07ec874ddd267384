"""When a command starts node supervisors, with an engine that only counts; what node supervisors take back and when
they leave; executors by name."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from lrurun.commands import status
from lrurun.config import planning
from lrurun.errors import LrurunError, UsageError
from lrurun.ledger import owner
from lrurun.ledger.attempt import Fenced
from lrurun.ledger.ledger import Ledger
from lrurun.paths import Places
from lrurun.runner import executors, node
from lrurun.runner.executors import NodeJob
from lrurun.runner.executors.nodes import EngineError, NodeExecutor, write_token
from lrurun.runner.node import NodeTask
from lrurun.runner.selection import Selection
from lrurun.runner.signals import Signals
from lrurun.runner.supervisor import Supervisor
from tests.harness.machine import Machine
from tests.harness.stores import ELSEWHERE, ME, key, ledger, path, want
from tests.runner.test_supervisor import NoDisplay

__all__ = ["key", "ledger", "path"]  # fixtures


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

    def hold(self) -> None:
        assert self.ledger.hold(self.supervisor.instance.key, owner.this_process(), environment={}) is not None


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
    command.hold()
    command.hold()
    command.engine.now = 1
    command.tick()
    assert command.engine.submitted == [2, 1]
    command.hold()
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
    command.hold()
    for _ in range(3):
        command.tick()
        command.engine.now = 0
    assert command.engine.submitted == [2, 2, 2, 2, 2]


def test_an_engine_that_does_not_answer_is_asked_again(command: Command) -> None:
    command.engine.fault = "squeue: connection refused"
    for _ in range(3):
        command.tick()
        assert command.said == ["squeue: connection refused; trying again"]
    command.engine.fault = ""
    command.tick()
    assert command.engine.submitted == [2]


def test_a_command_that_returns_fails_if_nothing_was_submitted(command: Command) -> None:
    command.supervisor.work = command.supervisor.runs.work = structs.replace(command.supervisor.work, detach=True)
    command.engine.fault = "sbatch: too many jobs"
    with pytest.raises(LrurunError, match=r"^nothing was submitted: sbatch: too many jobs$"):
        command.supervisor.run()
    assert command.said == []
    command.engine.fault = ""
    for _ in range(2):
        assert command.supervisor.run().worked
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
    monkeypatch.setattr("lrurun.session.preparing.prepare_data", lambda *_: None)
    plan = planning.make("sDigits", profile="smoke")
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        selection = Selection(plan=plan, rungs=planning.choose_rungs(plan, ["tanh-rnn"]), seeds=[0])
        ledger.enqueue(instance.key, selection.final())
        assert ledger.hold(instance.key, ELSEWHERE, environment={}) is not None
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
                held = ledger.hold(instance.key, owner.this_process(), environment={})
                assert held is not None
                ledger.finish(held, "interrupted", reason="interrupted: SIGTERM")
            if len(slept) == 4:
                ledger.requeue([run.id for run in ledger.runs()])
                held = ledger.hold(instance.key, owner.this_process(), environment={})
                assert held is not None
                ledger.finish(held, "done", result={"val/accuracy": 0.5})

        monkeypatch.setattr(status, "STALLED_SECONDS", -1.0)
        monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        done = machine.run("status", "--watch")
    assert ("no process works on the queued runs" in done.stderr) == (not submitted)
    assert len(slept) == (4 if submitted else 0)


def test_every_unfinished_ladder_is_watched(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(machine.ledger) as ledger:
        instances = []
        for rung in ("tanh-rnn", "ring-init"):
            plan = planning.make("sDigits", profile="smoke", sets={"train.steps": 20 + len(rung)})
            instances.append(ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec))
            selection = Selection(plan=plan, rungs=planning.choose_rungs(plan, [rung]), seeds=[0])
            ledger.enqueue(instances[-1].key, selection.final())

        def sleep(_: float) -> None:  # a process finishes one run at a time, of the newest ladder first
            held_runs = (ledger.hold(one.key, owner.this_process(), environment={}) for one in reversed(instances))
            held = next(filter(None, held_runs))
            ledger.finish(held, "done", result={"val/accuracy": 0.5})

        monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        done = machine.run("status", "--watch")
        assert {run.state for run in ledger.runs()} == {"done"}
    assert "no process works" not in done.stderr


@pytest.mark.parametrize(
    ("name", "node_name", "expected"),
    [
        ("n01.example.org", "", "n01.example.org"),
        ("n01.example.org", "n01", "n01.example.org"),
        ("n01", "n01", "n01"),
        ("n01", "n1", "n1@n01"),
        ("n01.example.org", "0a1b", "0a1b@n01.example.org"),
    ],
)
def test_a_host_is_the_machine_with_the_node_of_an_engine(
    name: str, node_name: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    monkeypatch.setenv(owner.NODE, node_name)
    assert owner.host() == owner.this_process().host == expected


def test_a_task_takes_back_what_its_earlier_start_holds(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(seed=seed) for seed in range(5)])
    by_label = {}
    for label, task, start in (
        ("a", "slurm:7_0", 0),
        ("b", "slurm:7_0", 1),
        ("c", "slurm:7_0", 2),
        ("d", "slurm:7_1", 0),
    ):
        by_label[label] = ledger.hold(key, ME, environment={"node": {"task": task, "start": start}})
    by_label["e"] = ledger.hold(key, ME, environment={})
    NodeTask("slurm:7_0", 2).take_back(ledger, ledger.runs(states=["running"]))
    states = {label: ledger.run(held.run.id).state for label, held in by_label.items()}
    assert states == {"a": "interrupted", "b": "interrupted", "c": "running", "d": "running", "e": "running"}
    assert ledger.attempts(by_label["a"].run.id)[0].reason == "interrupted: slurm:7_0 was started again"
    with pytest.raises(Fenced):
        ledger.record(by_label["a"], [(1, "train/loss", 1.0)], 1)


def test_a_task_leaves_when_it_was_started_again(ledger: Ledger, key: str) -> None:
    instance = ledger.ladder(key)
    here, later, other = NodeTask("slurm:7_0", 0), NodeTask("slurm:7_0", 10), NodeTask("slurm:7_01", 11)
    for task in (here, other):
        task.begin(ledger, instance, "n1@m")
    for event in ledger.events():
        here.check(event)
        later.check(event)
    later.begin(ledger, instance, "n2@m")
    with pytest.raises(LrurunError, match=r"^slurm:7_0 was started again on n2@m: the engine has lost this process$"):
        here.check(ledger.events(limit=1)[0])


def test_a_task_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (node.TASK, node.START):
        monkeypatch.delenv(name, raising=False)
    assert node.task() is None
    monkeypatch.setenv(node.TASK, "slurm:7_0")
    assert node.task() == NodeTask("slurm:7_0", 0)
    monkeypatch.setenv(node.START, "3")
    assert node.task() == NodeTask("slurm:7_0", 3)


def test_the_ledger_counts_the_starts_of_a_task(ledger: Ledger, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(node.TASK, "ray:a")
    monkeypatch.setenv(node.START, "")  # so that it is restored
    for expected in (0, 1, 2):
        monkeypatch.delenv(node.START, raising=False)
        node.count_starts(ledger)
        assert node.task() == NodeTask("ray:a", expected)
        NodeTask("ray:a", expected).begin(ledger, ledger.ladder(key), "n1@m")
        NodeTask("ray:a", expected).begin(ledger, ledger.ladder(key), "n1@m")  # of its next ladder
        NodeTask("ray:ab", 7).begin(ledger, ledger.ladder(key), "n2@m")
    monkeypatch.setenv(node.START, "5")
    node.count_starts(ledger)
    assert node.task() == NodeTask("ray:a", 5), "Slurm says it"


def test_a_node_must_see_the_runs_folder_of_the_command(
    ledger: Ledger, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = ledger.ladder(key)
    monkeypatch.delenv(node.SHARED, raising=False)
    node.check(ledger, instance, tmp_path)
    write_token(tmp_path / "copied")
    shutil.copytree(tmp_path / "copied", tmp_path, dirs_exist_ok=True)
    for text in (None, "ab", b"\xff", ""):
        token = "" if text == "" else write_token(tmp_path / "copied")  # a new one for each submission
        monkeypatch.setenv(node.SHARED, token)
        if text is not None:
            node.shared_file(tmp_path, token).write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(LrurunError, match="the runs folder is not shared with the node"):
            node.check(ledger, instance, tmp_path)
        [event] = ledger.events(limit=1)
        assert event.kind == node.FAILED
        assert event.text.startswith(f"submission {token}: {tmp_path}: the runs folder is not shared with the node")
    monkeypatch.setenv(node.SHARED, write_token(tmp_path))
    write_token(tmp_path)
    node.check(ledger, instance, tmp_path)


JOB = NodeJob(name="j", arguments=[], folder=Path(), places=None)  # type: ignore[arg-type]


def test_unknown_executors_name_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        executors.make("locl", JOB)
    assert str(caught.value) == "--on: there is no executor 'locl'"
    assert (caught.value.hint or "").startswith("did you mean 'local'?")


def test_an_outside_package_adds_an_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("class Mine:\n    def __init__(self, job):\n        self.job = job\n")
    info = tmp_path / "mine-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[lrurun.executors]\nmine = mine:Mine\nbroken = mine:Absent\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    job: Any = object()
    assert executors.names()[-2:] == ["broken", "mine"]
    made: Any = executors.make("mine", job)
    assert (type(made).__name__, made.job) == ("Mine", job)
    said = r"executor 'broken' of package mine: raised AttributeError: module 'mine' has no attribute 'Absent'"
    with pytest.raises(LrurunError, match=said):
        executors.make("broken", job)
    monkeypatch.delitem(sys.modules, "mine")
