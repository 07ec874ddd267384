"""The parts of a supervisor, without its processes: which runs it retries, how many workers it starts, messages."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from lrurun import machine
from lrurun.config import plan as planning
from lrurun.config.plan import final_runs, tuning_runs
from lrurun.errors import LrurunError
from lrurun.ledger import owner
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import LadderInstance
from lrurun.paths import Places
from lrurun.runner import messages, pool, reasons, supervisor
from lrurun.runner.messages import Fault, PreparationProgress, PrepareOrder, TrainOrder
from lrurun.runner.processes import Needs
from lrurun.runner.selection import RETRIES, SelectedRuns, Selection
from lrurun.runner.signals import Signals


class Command:
    """What one command selects in a ledger of its own."""

    def __init__(self, ledger: Ledger, rung: str, *, tune: bool = False) -> None:
        plan = planning.make("sDigits", profile="smoke", tune=tune)
        rungs = planning.choose_rungs(plan, [rung])
        self.ledger, self.said = ledger, list[str]()
        self.instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        self.runs = SelectedRuns(
            ledger, self.instance, Selection(plan=plan, rungs=rungs, seeds=[0]), say=self.said.append
        )
        self.runs.enqueue()

    def states(self) -> list[str]:
        return [run.state for run in self.runs.load()]

    def attempt(self, state: str, **end: object) -> None:
        claim = self.ledger.claim(self.instance.key, owner.here(), environment={})
        assert claim is not None
        self.ledger.finish(claim, state, **end)  # type: ignore[arg-type]


def test_a_run_that_fails_is_tried_three_times_and_again_by_the_next_command(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for expected in (RETRIES + 1, 2 * (RETRIES + 1)):
            command = Command(ledger, "tanh-rnn")
            command.runs.load()
            command.runs.advance(first=True)
            while command.states() == ["queued"]:
                command.attempt("failed", error="out of luck", reason=reasons.failed("out of luck"))
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
        for _ in range(RETRIES + 3):
            command.attempt("interrupted", reason=reasons.SIGTERM)
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
        command = supervisor.Supervisor(ledger, places, selection, NoDisplay(), Signals())
        monkeypatch.setattr(command._executor, "start", lambda *_: None)
        command.runs.enqueue()
        read: list[str] = []
        runs = ledger.runs
        monkeypatch.setattr(ledger, "runs", lambda **wanted: read.extend(wanted["ids"]) or runs(**wanted))

        def tick() -> tuple[bool, list[str]]:
            read.clear()
            return command._update(), read[:]

        for last in (False, True):
            claim = ledger.claim(command.instance.key, owner.here(), environment={})
            assert claim is not None
            assert tick() == (False, [claim.run.id])
            ledger.record(claim, [(1, "train/loss", 1.0)], 1)
            assert tick() == (False, [])
            ledger.finish(claim, "done", result={})
            over, again = tick()
            assert over == last
            assert again[0] == claim.run.id
            assert len(again) == (3 if last else 1), "all are read before the end"
        other = command.runs.load()[0].id
        ledger.enqueue(command.instance.key, final_runs(plan, selection.rungs[0], [0, 1]), fresh=True)
        assert ledger.run(other).superseded
        command.runs.refresh([other])
        assert other not in {run.id for run in command.runs.in_state("done")}, "another command has started it over"


ORDER = TrainOrder(
    supervisor=1, plugins={}, ledger="", runs="", data="", ladder="", rungs=[], seeds=[], threads=1, pack=1
)


class FakeWorker:
    """Takes the place of a process."""

    def __init__(self, order: TrainOrder, *, needs: Needs, devices: list[str], variables: object) -> None:
        self.order, self.needs, self.devices = order, needs, devices
        self.pid = id(self)
        self.dismissed = False

    def dismiss(self) -> None:
        self.dismissed = True


@pytest.fixture
def fake_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LocalWorker", FakeWorker)
    monkeypatch.setattr(machine, "cores", lambda: 4)


def test_as_many_workers_as_queued_runs_and_cores(fake_workers: None) -> None:
    workers = pool.WorkerPool(ORDER, jobs=None)
    workers.fill(Counter({Needs(1): 3}), busy=set())
    assert len(workers.workers) == 3
    workers.fill(Counter({Needs(1): 9}), busy={workers.workers[0].pid})
    assert len(workers.workers) == 4
    wide = pool.WorkerPool(ORDER, jobs=None)
    wide.fill(Counter({Needs(3): 2}), busy=set())
    assert [(w.needs, w.order.threads) for w in wide.workers] == [(Needs(3), 3)]  # type: ignore[attr-defined]
    wide.fill(Counter({Needs(1): 1}), busy=set())  # the idle worker, which no run needs, makes room
    assert [w.needs.threads for w in wide.workers] == [3, 1]
    several = pool.WorkerPool(ORDER, jobs=None)
    several.fill(Counter({Needs(1, devices=2): 9}), busy=set())
    assert [w.order.devices for w in several.workers] == [2, 2]  # type: ignore[attr-defined]


def test_a_worker_gives_room_to_runs_with_another_number_of_threads(fake_workers: None) -> None:
    workers = pool.WorkerPool(ORDER, jobs=1)
    workers.fill(Counter({Needs(1): 1}), busy=set())
    [first] = workers.workers
    workers.fill(Counter({Needs(2): 1}), busy={first.pid})
    assert not first.dismissed  # type: ignore[attr-defined]
    workers.fill(Counter({Needs(2): 1}), busy=set())
    assert first.dismissed  # type: ignore[attr-defined]


def test_workers_get_a_device_each(fake_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "accelerators", lambda: ["5", "7"])
    workers = pool.WorkerPool(ORDER, jobs=None)
    workers.fill(Counter({Needs(): 5}), busy=set())
    assert [worker.devices for worker in workers.workers] == [["5"], ["7"]]
    packed = pool.WorkerPool(msgspec.structs.replace(ORDER, pack=3), jobs=None)
    packed.fill(Counter({Needs(): 3}), busy=set())
    assert len(packed.workers) == 1


def test_workers_get_as_many_devices_as_their_runs_need(fake_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["0", "1", "2", "3", "4"]
    monkeypatch.setattr(machine, "accelerators", lambda: names)
    two = Needs(devices=2)
    workers = pool.WorkerPool(ORDER, jobs=None)
    workers.fill(Counter({two: 5}), busy=set())
    assert [worker.devices for worker in workers.workers] == [["0", "1"], ["2", "3"]]
    assert [worker.order.devices for worker in workers.workers] == [2, 2]  # type: ignore[attr-defined]
    first, second = workers.workers
    workers.fill(Counter({Needs(): 3}), busy={first.pid})
    assert [worker.devices for worker in workers.workers[2:]] == [["4"]], "no device has two workers by itself"
    workers.fill(Counter({Needs(devices=3): 1}), busy={first.pid})
    assert second.dismissed  # type: ignore[attr-defined]
    shared = pool.WorkerPool(ORDER, jobs=3)
    shared.fill(Counter({two: 5}), busy=set())
    assert [worker.devices for worker in shared.workers] == [["0", "1"], ["2", "3"], ["0", "4"]]


def test_messages_arrive_as_they_were_sent() -> None:
    undecodable = os.fsdecode(b"\xff")
    prepare = PrepareOrder(supervisor=1, plugins={}, task="sDigits", options={"a": 1}, data=undecodable, from_path=None)
    for order in (prepare, msgspec.structs.replace(ORDER, runs=undecodable)):
        assert messages.decode_order(messages.encode(order)) == order
    with pytest.raises(ValueError, match="Expected `object`"):
        messages.decode_order(b"[]\n")


def test_the_last_message_is_found_among_other_output() -> None:
    one, two = (PreparationProgress(what="reading", done=done, total=None) for done in (1, 2))
    fault = Fault(message="m", hint=None, exit_code=5)
    output = "\n".join(["[1]", messages.encode(one), "{", messages.encode(two), "a warning", messages.encode(fault)])
    assert messages.last(output, PreparationProgress) == two
    assert messages.last(output, Fault) == fault
    assert messages.last("a warning\n" + "[" * 100_000, Fault) is None
