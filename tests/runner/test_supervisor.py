"""The parts of a supervisor, without its processes: which runs it retries, how many workers it starts and how it ends
them, messages; and what is known of the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import lrurun
from lrurun import machine
from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.config.tuning import tuning_runs
from lrurun.errors import LrurunError
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import LadderInstance
from lrurun.paths import Places
from lrurun.plugins import Loaded
from lrurun.runner import environment, processes, work
from lrurun.runner.executors import local
from lrurun.runner.executors.local import LocalExecutor
from lrurun.runner.processes import LocalWorker
from lrurun.runner.selection import MAX_RETRIES, SelectedRuns, Selection
from lrurun.runner.signals import GRACE_SECONDS, Signals
from lrurun.runner.supervisor import Supervisor
from lrurun.runner.work import Needs, Order, Preparation, PreparationProgress, Work, WorkerError
from lrurun.session.training import sweep_work
from tests.harness.machine import held


class Command:
    """What one command selects in a ledger of its own."""

    def __init__(self, ledger: Ledger, rung: str, *, tune: bool = False) -> None:
        plan = planning.make("sDigits", profile="smoke", tune=tune)
        rungs = planning.choose_rungs(plan, [rung])
        self.ledger, self.said = ledger, list[str]()
        self.instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        selection = Selection(plan=plan, rungs=rungs, seeds=[0])
        places = Places(ledger=Path("ledger.db"), runs=Path("runs"), data=Path("data"))
        self.runs = SelectedRuns(ledger, selection.work(self.instance, places), selection, say=self.said.append)
        self.runs.enqueue()

    def states(self) -> list[str]:
        return [run.state for run in self.runs.load()]

    def attempt(self, state: str, **end: object) -> None:
        held = self.ledger.hold(self.instance.key, owner.this_process(), environment={})
        assert held is not None
        self.ledger.finish(held, state, **end)  # type: ignore[arg-type]


def test_a_run_that_fails_is_tried_three_times_and_again_by_the_next_command(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for expected in (MAX_RETRIES + 1, 2 * (MAX_RETRIES + 1)):
            command = Command(ledger, "tanh-rnn")
            command.runs.load()
            command.runs.advance(first=True)
            while command.states() == ["queued"]:
                command.attempt("failed", error="out of luck", reason="failed: out of luck")
                command.states()
                command.runs.advance()
            [run] = command.runs.load()
            assert run.state == "failed"
            assert command.runs.is_over(run)
            assert command.runs.remaining() == (1, 1)
            assert len(ledger.attempts(run.id)) == expected


def test_a_run_that_is_interrupted_is_tried_as_often_as_it_takes(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        command = Command(ledger, "tanh-rnn")
        for _ in range(MAX_RETRIES + 3):
            command.attempt("interrupted", reason="interrupted: SIGTERM")
            assert command.states() == ["interrupted"]
            command.runs.advance()
            assert command.states() == ["queued"]


@pytest.mark.parametrize("scores", [(0.5, 0.75), (0.75, 0.5)])
def test_final_runs_have_the_point_that_tuning_chose(scores: tuple[float, float], tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        command = Command(ledger, "diagonal", tune=True)
        assert command.states() == ["queued", "queued"]
        assert command.runs.remaining() == (3, 3)
        for score in scores:
            command.runs.advance()
            assert len(command.states()) == 2
            command.attempt("done", result={"val/accuracy": score, "val/loss": 1.0})
        command.states()
        command.runs.advance()
        final, *tuning = ledger.runs()
        [best] = [run for run in tuning if run.result and run.result["val/accuracy"] == 0.75]
        assert [run.id for run in command.runs.in_state("queued")] == [final.id]
        assert final.config.optim.lr == best.config.optim.lr
        assert command.said == [f"diagonal: chosen on validation with 1 seed: optim.lr = {final.config.optim.lr}"]
        assert command.runs.remaining() == (1, 3)


def test_a_command_sees_that_another_one_has_changed_the_threads_of_queued_runs(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        command = Command(ledger, "tanh-rnn")
        plan = planning.make("sDigits", profile="smoke", sets={"execution.threads": 7})
        ledger.enqueue(command.instance.key, final_runs(plan, planning.choose_rungs(plan, ["tanh-rnn"])[0], [0]))
        command.runs.load()
        assert [needs.threads for needs in command.runs.queued()] == [7]


class NoDisplay:
    def update(self, ledger: Ledger, ladder: LadderInstance) -> None: ...

    def say(self, text: str) -> None: ...


def test_tuning_runs_that_another_command_has_started_over_are_an_error(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        command = Command(ledger, "tanh-rnn", tune=True)
        command.attempt("done", result={"val/accuracy": 0.5})
        plan = planning.make("sDigits", profile="smoke", tune=True)
        again = tuning_runs(plan, planning.choose_rungs(plan, ["tanh-rnn"]))
        ledger.enqueue(command.instance.key, again, fresh=True)
        command.runs.load()
        with pytest.raises(LrurunError, match="tanh-rnn: another command has started its tuning runs over"):
            command.runs.advance()


def test_a_tick_reads_the_runs_that_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planning.make("sDigits", profile="smoke")
    selection = Selection(plan=plan, rungs=planning.choose_rungs(plan, ["tanh-rnn"]), seeds=[0, 1])
    places = Places(ledger=tmp_path / "ledger.db", runs=tmp_path / "runs", data=tmp_path / "data")
    with Ledger.open(places.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        command = Supervisor(ledger, selection.work(instance, places), selection, NoDisplay(), Signals())
        monkeypatch.setattr(command._executor, "start", lambda *_: None)
        command.runs.enqueue()
        read: list[str] = []
        runs = ledger.runs
        monkeypatch.setattr(ledger, "runs", lambda **wanted: read.extend(wanted["ids"]) or runs(**wanted))

        def tick() -> tuple[bool, list[str]]:
            read.clear()
            return command._update(), read[:]

        for last in (False, True):
            held = ledger.hold(command.instance.key, owner.this_process(), environment={})
            assert held is not None
            assert tick() == (False, [held.run.id])
            ledger.record(held, [(1, "train/loss", 1.0)], 1)
            assert tick() == (False, [])
            ledger.finish(held, "done", result={})
            over, again = tick()
            assert over == last
            assert again[0] == held.run.id
            assert len(again) == (3 if last else 1), "all are read before the end"
        other = command.runs.load()[0].id
        ledger.enqueue(command.instance.key, final_runs(plan, selection.rungs[0], [0, 1]), fresh=True)
        assert ledger.run(other).superseded
        command.runs.refresh([other])
        assert other not in {run.id for run in command.runs.in_state("done")}, "another command has started it over"
        kept: list[str] = []
        monkeypatch.setattr("lrurun.runner.run_files.keep_ladder", lambda ledger, runs, key: kept.append(key))
        for _ in range(2):
            # a known run, maybe at another place
            command.runs._enqueue(command.instance.key, final_runs(plan, selection.rungs[0], [0]))
            command._keep_ladder()
            command._keep_ladder()
        assert len(kept) == 2


def test_a_sweep_that_starts_over_starts_a_run_of_several_instances_once(tmp_path: Path) -> None:
    """The tanh RNN of both ladders is the same run."""
    places = Places(ledger=tmp_path / "ledger.db", runs=tmp_path / "runs", data=tmp_path / "data")
    plans = [planning.make("sDigits", profile="smoke", ladder=name) for name in ("lru", "nonlinearity")]
    with Ledger.open(places.ledger) as ledger:
        instances = [ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec) for plan in plans]
        selections = [
            Selection(plan=plan, rungs=planning.choose_rungs(plan, ["tanh-rnn"]), seeds=[0]) for plan in plans
        ]
        for fresh in (False, True, True):
            work = sweep_work(selections, instances, places, fresh=fresh)
            runs = SelectedRuns(ledger, work, selections[0], lambda _: None, selections[1:])
            runs.enqueue()
            [run] = runs.load()
            assert (run.state, {member.ladder_key for member in run.memberships}) == ("queued", set(work.ladders))
            held = ledger.hold(work.ladders, owner.this_process(), environment={})
            assert held is not None
            ledger.finish(held, "done", result={"val/accuracy": 0.5})
        assert sorted(run.generation for run in ledger.runs(superseded=True)) == [1, 2, 3]


def test_rungs_that_differ_in_initial_values_alone_are_one_program_of_the_queue(tmp_path: Path) -> None:
    """The worker that has it goes on with it; another leaves it alone while it is running."""
    places = Places(ledger=tmp_path / "ledger.db", runs=tmp_path / "runs", data=tmp_path / "data")
    plan = planning.make("sDigits", profile="smoke")
    selection = Selection(plan=plan, rungs=planning.choose_rungs(plan, ["ring-init", "gamma-norm"]), seeds=[0, 1])
    with Ledger.open(places.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        work = selection.work(instance, places)
        program = work.program(instance.key, "stable-exponential")
        names = Counter(work.programs[instance.key].values())
        assert [rung for rung, name in work.programs[instance.key].items() if names[name] > 1] == [
            "stable-exponential",
            "ring-init",
        ]
        assert work.program(instance.key, "ring-init") == program != work.program(instance.key, "gamma-norm")
        SelectedRuns(ledger, work, selection, lambda _: None).enqueue()

        def next_rung(*compiled: str) -> str:
            run = ledger.hold(instance.key, owner.this_process(), programs=work.programs, compiled=compiled)
            assert run is not None
            return run.run.memberships[0].rung

        assert next_rung(work.program(instance.key, "gamma-norm")) == "gamma-norm"
        assert next_rung(program) == "ring-init"
        assert next_rung("another") == "ring-init", "both programs are running, so that the order counts"
        assert next_rung(program) == "gamma-norm"


WORK = Work(ledger="", runs=Path("runs"), data=Path("data"), ladder="", kind="training", rungs=[], seeds=[])


class FakeWorker:
    """Takes the place of a process."""

    def __init__(self, work: Work, *, needs: Needs, devices: list[str]) -> None:
        self.needs, self.devices = needs, devices
        self.pid = id(self)
        self.dismissed = False

    def dismiss(self) -> None:
        self.dismissed = True


class Holder(LocalWorker):
    """A process that holds the ledger, in place of a worker that does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process  # type: ignore[assignment]


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[tuple[Command, LocalExecutor, subprocess.Popen[str]]]:
    """A command whose runs may be silent for two seconds, its executor, and the worker of it that holds the ledger."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        command, executor = Command(ledger, "tanh-rnn"), LocalExecutor()
        command.runs.hang_after_seconds = 2.0
        with held(tmp_path / "ledger.db") as process:
            executor.workers = [Holder(process)]
            try:
                yield command, executor, process
            finally:
                process.kill()


def test_a_worker_that_is_suspended_while_it_holds_the_ledger_is_killed(holding) -> None:
    command, executor, process = holding
    process.send_signal(signal.SIGSTOP)
    command.ledger.waiting = lambda seconds: executor.end_suspended(command.runs, seconds)
    command.attempt("done", result={"val/accuracy": 0.5, "val/loss": 1.0})
    assert process.wait(5) == -signal.SIGKILL
    assert command.said == [f"worker {process.pid} is suspended, wrote nothing for 3 s and was killed"]
    assert command.states() == ["done"]


def test_a_worker_that_runs_is_not_killed_because_the_ledger_is_busy(holding) -> None:
    command, executor, process = holding
    for seconds in range(1, 10):
        executor.end_suspended(command.runs, seconds)
    assert process.poll() is None
    assert command.said == []


def test_a_supervisor_watches_its_workers_while_it_waits_for_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning.make("sDigits", profile="smoke")
    selection = Selection(plan=plan, rungs=planning.choose_rungs(plan, ["tanh-rnn"]), seeds=[0])
    places = Places(ledger=tmp_path / "ledger.db", runs=tmp_path / "runs", data=tmp_path / "data")
    with Ledger.open(places.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        signals = Signals()
        ledger.waiting = before = lambda seconds: signals.check()
        command = Supervisor(ledger, selection.work(instance, places), selection, NoDisplay(), signals)
        watched: list[float] = []
        monkeypatch.setattr(command._executor, "end_suspended", lambda _runs, seconds: watched.append(seconds))
        monkeypatch.setattr(command, "_loop", lambda: ledger.waiting and ledger.waiting(3.0))
        command.run()
        assert watched == [3.0]
        assert ledger.waiting is before
        assert command.runs.hang_after_seconds == 1800


class Node(LocalExecutor):
    """An executor whose workers are fakes."""

    def fill(self, queued: dict[Needs, int], busy: Collection[int] = (), **how: int) -> None:
        """Starts workers for queued runs, while processes in `busy` train others."""
        self._fill(msgspec.structs.replace(WORK, **how), Counter(queued), set(busy))


@pytest.fixture
def fake_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LocalWorker", FakeWorker)
    monkeypatch.setattr(machine, "cores", lambda: 4)


def test_as_many_workers_as_queued_runs_and_cores(fake_workers: None) -> None:
    node = Node()
    node.fill({Needs(1): 3})
    assert len(node.workers) == 3
    node.fill({Needs(1): 9}, busy={node.workers[0].pid})
    assert len(node.workers) == machine.default_jobs() == 4
    wide = Node()
    wide.fill({Needs(3): 2})
    assert [worker.needs for worker in wide.workers] == [Needs(3)]
    assert machine.default_jobs(threads=3) == 1
    wide.fill({Needs(1): 1})  # the idle worker, which no run needs, makes room
    assert [worker.needs.threads for worker in wide.workers] == [3, 1]
    several = Node()
    several.fill({Needs(1, devices=2): 9})
    assert [worker.needs.devices for worker in several.workers] == [2, 2]
    assert machine.default_jobs(devices=2) == 2


def test_a_worker_gives_room_to_runs_with_another_number_of_threads(fake_workers: None) -> None:
    node = Node()
    node.fill({Needs(1): 1}, jobs=1)
    [first] = node.workers
    node.fill({Needs(2): 1}, busy={first.pid}, jobs=1)
    assert not first.dismissed  # type: ignore[attr-defined]
    node.fill({Needs(2): 1}, jobs=1)
    assert first.dismissed  # type: ignore[attr-defined]


def test_workers_get_a_device_each(fake_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "accelerators", lambda: ["5", "7"])
    node = Node()
    node.fill({Needs(): 5})
    assert [worker.devices for worker in node.workers] == [["5"], ["7"]]
    assert machine.default_jobs() == 2
    packed = Node()
    packed.fill({Needs(): 3}, pack=3)
    assert len(packed.workers) == 1


def test_workers_get_as_many_devices_as_their_runs_need(fake_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["0", "1", "2", "3", "4"]
    monkeypatch.setattr(machine, "accelerators", lambda: names)
    two = Needs(devices=2)
    node = Node()
    node.fill({two: 5})
    assert [worker.devices for worker in node.workers] == [["0", "1"], ["2", "3"]]
    assert machine.default_jobs(devices=2) == 2
    first, second = node.workers
    node.fill({Needs(): 3}, busy={first.pid})
    assert [worker.devices for worker in node.workers[2:]] == [["4"]], "no device has two workers by itself"
    node.fill({Needs(devices=3): 1}, busy={first.pid})
    assert second.dismissed  # type: ignore[attr-defined]
    shared = Node()
    shared.fill({two: 5}, jobs=3)
    assert [worker.devices for worker in shared.workers] == [["0", "1"], ["2", "3"], ["0", "4"]]


def test_messages_arrive_as_they_were_sent() -> None:
    undecodable = Path(os.fsdecode(b"\xff"))
    prepare = Preparation(task="sDigits", options={"a": 1}, data=undecodable, from_path=None)
    for some_work in (prepare, msgspec.structs.replace(WORK, runs=undecodable)):
        order = Order(supervisor=1, plugins=Loaded([("a.py", "sha256:1")]), needs=Needs(2, devices=3), work=some_work)
        assert work.decode(work.encode(order), Order) == order
    with pytest.raises(ValueError, match="Expected `object`"):
        work.decode(b"[]\n", Order)


def test_the_last_message_is_found_among_other_output() -> None:
    one, two = (PreparationProgress(what="reading", done=done, total=None) for done in (1, 2))
    fault = WorkerError(message="m", hint=None, exit_code=5)
    output = "\n".join(["[1]", work.encode(one), "{", work.encode(two), "a warning", work.encode(fault)])
    assert work.last(output, PreparationProgress) == two
    assert work.last(output, WorkerError) == fault
    assert work.last("a warning\n" + "[" * 100_000, WorkerError) is None


class Stubborn:
    """A worker that needs to be killed, and is then gone only when it is waited for."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.code = log, None

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.log.append("kill")

    def wait(self) -> None:
        self.log.append("wait")
        self.code = -9

    def close(self) -> None:
        self.log.append("close")


def test_all_are_killed_before_the_first_is_waited_for() -> None:
    """To wait for each while the others go on computing took half a second for each of 64."""
    log: list[str] = []
    processes.finish([Stubborn(log) for _ in range(3)], Signals(), 0.0)  # type: ignore[misc]
    assert log == ["kill"] * 3 + ["wait", "close"] * 3


def test_workers_whose_runs_are_finished_get_more_time(monkeypatch) -> None:
    """Their last records may still be on the way to an object store."""
    seconds: list[float] = []
    monkeypatch.setattr(local, "finish", lambda workers, signals, limit: seconds.append(limit))
    for finished in (False, True):
        runs = SimpleNamespace(work=SimpleNamespace(stop_seconds=3.0))
        local.LocalExecutor().stop(runs, Signals(), finished=finished)  # type: ignore[arg-type]
    assert seconds[0] == GRACE_SECONDS + 3
    assert seconds[1] > seconds[0]


def test_reading_what_a_worker_wrote_does_not_move_where_it_writes() -> None:
    worker = object.__new__(processes.LocalWorker)
    with tempfile.TemporaryFile() as worker._output:
        output = os.dup(worker._output.fileno())
        os.write(output, b"one\ntwo\n")
        os.lseek(output, 4, os.SEEK_SET)
        assert worker.tail() == "one\ntwo"
        assert os.lseek(output, 0, os.SEEK_CUR) == 4
        os.close(output)


ROOT = Path(lrurun.__file__).parents[1]


@pytest.mark.parametrize(
    ("visible", "devices"),
    [("", []), ("-1", []), ("3", ["3"]), ("2, 0", ["2", "0"]), ("1,-1,2", ["1"]), ("GPU-8932f937", ["GPU-8932f937"])],
)
def test_accelerators_are_those_that_the_user_left_visible(visible, devices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine.accelerators.cache_clear()
    try:
        assert machine.accelerators() == devices
    finally:
        machine.accelerators.cache_clear()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout")
def test_an_attempt_records_the_commit_of_the_checkout() -> None:
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert environment.record(1)["code"]["commit"] == commit.stdout.strip()
