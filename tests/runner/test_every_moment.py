"""Faults at every moment of a ladder, simulated: the same command finishes with what an undisturbed one records."""

from __future__ import annotations

import math
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from lrurun.data.metric import Accuracy
from lrurun.ledger.database.sqlite import SQLite
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Checkpoint, Run
from lrurun.runner import attempt, environment, execute, recorder
from lrurun.version import NUMERICS
from tests.harness import simulation, stores
from tests.harness.simulation import Command, Late, OneThread, Process, Prompt, World, attempts, history, install


class Kind(NamedTuple):
    """A fault, and what the command must do then."""

    fault: Callable[[World, Process], None]
    at: Callable[[str], bool]
    """Whether it may come before a step."""
    codes: set[int]
    """Exit codes of the command."""
    reason: str = ""
    """Why an attempt ended that did not finish its run."""
    said: str = ""
    """A part of what the command says if the fault ended an attempt."""


GONE = "interrupted: owner gone"
FULL = "error: no space left for the ledger"
UNSAVED = "could not be saved: [Errno 28] No space left on device"
KINDS = {
    "worker killed": Kind(simulation.kill_worker, lambda step: "worker" in step, {0}, GONE, "ended with SIGKILL"),
    "command killed": Kind(simulation.kill_command, lambda step: True, {-9}, GONE),
    "SIGTERM": Kind(
        simulation.sigterm, lambda step: True, {0, 143}, "interrupted: SIGTERM", "stopping: runs are saved"
    ),
    "worker hangs": Kind(
        # before its first run, a worker is not watched
        simulation.hang,
        lambda step: "worker" in step and "hold" not in step,
        {0},
        GONE,
        "wrote nothing for 30 s and was killed",
    ),
    "answer lost": Kind(simulation.lose_answer, lambda step: "write" in step, {0}),
    "ledger full": Kind(simulation.fill_disk_of_ledger, lambda step: "write" in step, {1}, GONE, FULL),
    "runs full": Kind(
        simulation.fill_disk_of_runs, lambda step: step.endswith(": checkpoint"), {1}, "saved: ", UNSAVED
    ),
    "machine frozen": Kind(simulation.freeze, lambda step: True, {0}, GONE),
    "clock back": Kind(partial(simulation.set_clock, -7200.0), lambda step: "worker" in step, {0}, GONE),
    "clock ahead": Kind(partial(simulation.set_clock, 7200.0), lambda step: "worker" in step, {0}, GONE),
}


@cache
def undisturbed(is_away: bool, thread: type[OneThread]) -> tuple[dict[int, Any], list[str]]:
    """What a ladder without a fault records, and its steps."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(SQLite, "may_be_away", is_away)
        world = install(World(Path(folder) / "calm"), patch, thread)
        assert Command(world).finish() == 0
        assert {one.reason for one in attempts(world)} == {"done"}
        return history(world), world.steps


def check(name: str, folder: Path, patch: pytest.MonkeyPatch, thread: type[OneThread], chosen: slice) -> None:
    """Compares ladders with a fault of this kind with an undisturbed one, for some of the steps that it has."""
    kind = KINDS[name]
    is_away = name == "answer lost"  # as a server is
    wanted, steps = undisturbed(is_away, thread)
    patch.setattr(SQLite, "may_be_away", is_away)
    numbers = [number for number, step in enumerate(steps) if kind.at(step)]
    assert len(numbers) >= 8
    for number in numbers[chosen]:
        world = install(World(folder / str(number), number, kind.fault), patch, thread)
        where = f"{name} at step {number}, before {steps[number]}"
        command = Command(world)
        code = command.finish()
        assert code in kind.codes | {0}, (where, code, command.said)
        assert code == 0 or Command(world).finish() == 0, where
        assert history(world) == wanted, where
        *broken, last = [one.reason or "" for one in attempts(world)]
        assert last == "done", where
        assert len(broken) <= 1, where
        for reason in broken:
            assert kind.reason in reason, where
            assert not kind.said or any(kind.said in text for text in command.said), (where, command.said)


@pytest.mark.parametrize("name", KINDS)
def test_the_same_command_records_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = 5 * list(KINDS).index(name) % 24
    check(name, tmp_path, monkeypatch, Prompt, slice(first, None, 24))


EVERY, EVEN, ODD = slice(None), slice(0, None, 2), slice(1, None, 2)
MOMENTS = {
    # like kills of the worker, which come before every step
    "clock back": EVEN,
    "clock ahead": ODD,
    "worker hangs": EVEN,
    "machine frozen": ODD,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "thread", "chosen"),
    [
        *(pytest.param(name, Prompt, MOMENTS.get(name, EVERY), id=name) for name in KINDS),
        pytest.param("command killed", Late, EVEN, id="command killed, late"),
        pytest.param("SIGTERM", Late, ODD, id="SIGTERM, late"),
    ],
)
def test_the_same_command_records_the_same_whenever_it_comes(
    name: str, thread: type[OneThread], chosen: slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Late`: what a thread writes it writes as late as possible."""
    check(name, tmp_path, monkeypatch, thread, chosen)


RATES = (0.1, 0.2, 0.3)
BY_RATE = {"command killed": {-9}, "worker killed": {0}, "SIGTERM": {0, 143}, "answer lost": {0}}


def rate_and_seed(run: Run) -> tuple[float, int]:
    return run.config.optim.lr, run.seed


@cache
def instance_after_instance(is_away: bool) -> dict[tuple[float, int], Any]:
    """What the instances of a sweep record that are trained one after another."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(SQLite, "may_be_away", is_away)
        world = install(World(Path(folder) / "calm"), patch)
        for rate in RATES:
            assert Command(world, seeds=(0, 1), rates=(rate,)).finish() == 0
        return history(world, rate_and_seed)


def check_sweep(name: str, folder: Path, patch: pytest.MonkeyPatch, every: int) -> None:
    """Compares sweeps with a fault at some steps with instances that are trained one after another."""
    kind, is_away = KINDS[name], name == "answer lost"
    patch.setattr(SQLite, "may_be_away", is_away)
    calm = install(World(folder / "calm"), patch)
    assert Command(calm, seeds=(0, 1), rates=RATES).finish() == 0
    assert history(calm, rate_and_seed) == instance_after_instance(is_away)
    steps = [number for number, step in enumerate(calm.steps) if kind.at(step)]
    for number in steps[5::every]:
        world = install(World(folder / str(number), number, kind.fault), patch)
        where = f"{name} at step {number}, before {calm.steps[number]}"
        code = Command(world, seeds=(0, 1), rates=RATES).finish()
        assert code in BY_RATE[name], where
        assert code == 0 or Command(world, seeds=(0, 1), rates=RATES).finish() == 0, where
        assert history(world, rate_and_seed) == instance_after_instance(is_away), where


@pytest.mark.parametrize("name", BY_RATE)
def test_a_sweep_records_what_its_instances_record_one_after_another(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_sweep(name, tmp_path, monkeypatch, 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_RATE)
def test_a_sweep_records_the_same_whenever_a_fault_comes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_sweep(name, tmp_path, monkeypatch, 3)


def score_of_rate(config: Any, state: int) -> float:
    """The best rate, 0.25, is four values beyond the grid, which ends at 0.016."""
    return 0.9 - abs(math.log(config.optim.lr / 0.25)) / 10 + state * 1e-6


EXTENDED = [0.004, 0.016, 0.064, 0.256, 1.024]
"""The rates that are tried, in this order: the grid, then each after the one before is the best."""


def extended_world(folder: Path, patch: pytest.MonkeyPatch, *fault: Any) -> World:
    world = install(World(folder, *fault), patch)
    world.score = score_of_rate
    return world


@cache
def undisturbed_extension(is_away: bool) -> tuple[dict[tuple[float, int], Any], list[str]]:
    """What is recorded of a rung whose grid is extended, and its steps."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(SQLite, "may_be_away", is_away)
        world = extended_world(Path(folder) / "calm", patch)
        assert Command(world, extend=4).finish() == 0
        found = history(world, rate_and_seed)
        assert list(reversed(found)) == [*((rate, 1000) for rate in EXTENDED), (0.256, 0)], "newest first"
        return found, world.steps


def check_extension(name: str, folder: Path, patch: pytest.MonkeyPatch, chosen: slice) -> None:
    """Compares rungs with a fault at some steps, while their grid is extended, with an undisturbed one."""
    kind, is_away = KINDS[name], name == "answer lost"
    wanted, steps = undisturbed_extension(is_away)
    patch.setattr(SQLite, "may_be_away", is_away)
    for number in [number for number, step in enumerate(steps) if kind.at(step)][chosen]:
        world = extended_world(folder / str(number), patch, number, kind.fault)
        where = f"{name} at step {number}, before {steps[number]}"
        code = Command(world, extend=4).finish()
        assert code in BY_RATE[name], where
        assert code == 0 or Command(world, extend=4).finish() == 0, where
        assert history(world, rate_and_seed) == wanted, where


@pytest.mark.parametrize("name", BY_RATE)
def test_a_grid_is_extended_by_the_same_values(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_extension(name, tmp_path, monkeypatch, slice(40, None, 150))


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_RATE)
def test_a_grid_is_extended_by_the_same_values_whenever_a_fault_comes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_extension(name, tmp_path, monkeypatch, slice(1, None, 4))


def test_two_terminals_share_an_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, _ = undisturbed_extension(is_away=False)
    world = extended_world(tmp_path / "world", monkeypatch)
    both = [Command(world, extend=4) for _ in range(2)]
    assert [command.finish() for command in both] == [0, 0]
    assert history(world, rate_and_seed) == wanted


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """One in which nothing is disturbed; its processes can be added to."""
    return install(World(tmp_path / "world"), monkeypatch)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """What is recorded of three seeds that nothing disturbs."""
    with pytest.MonkeyPatch.context() as patch:
        calm = install(World(tmp_path_factory.mktemp("calm") / "world"), patch)
        assert Command(calm, seeds=(0, 1, 2)).finish() == 0
        return history(calm)


def stopped(world: World, step: int = 1, **fields: Any) -> Command:
    """A command that is stopped when its first run reaches a step; it has saved that one and then a later one."""
    world.on[f"event Reached {step}"] = [simulation.sigterm]
    command = Command(world, **fields)
    assert command.finish() == 143
    return command


def reasons(world: World, seed: int = 0) -> list[str | None]:
    return [one.reason for one in attempts(world, seed)]


def checkpoint_events(world: World) -> list[str]:
    with Ledger.open(world.places.ledger) as ledger:
        return [event.text for event in ledger.events() if event.kind == "checkpoint"]


def checkpoints_of(world: World) -> list[Checkpoint]:
    with Ledger.open(world.places.ledger) as ledger:
        return ledger.checkpoints(ledger.run_ids()[0])


def test_a_run_that_always_fails_is_tried_three_times_by_each_command(
    world: World, wanted: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the clock is set back: attempts are counted by number."""

    def fail(world: World, process: Process) -> None:
        world.clock -= 7200
        raise MemoryError("Unable to allocate 8.00 GiB")

    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 1e9)  # no row is lost that waits to be written
    world.on["event Reached 1"] = [fail] * 6
    for expected in (3, 6):
        assert Command(world).finish() == 3
        assert reasons(world) == ["failed: MemoryError: Unable to allocate 8.00 GiB"] * expected
    with Ledger.open(world.places.ledger) as ledger:
        [run] = ledger.runs()
        assert run.state == "failed"
        assert "Traceback" in (run.error or "")
        assert [step for step, _ in ledger.metrics(run.id)["train/loss"]] == [1]
    assert Command(world).finish() == 0
    assert history(world) == {0: wanted[0]}


def test_the_runs_folder_is_removed_between_commands(world: World, wanted: dict[int, Any]) -> None:
    stopped(world)
    shutil.rmtree(world.places.runs)
    assert Command(world).finish() == 0
    assert history(world) == {0: wanted[0]}
    assert [one.resumed_from for one in attempts(world)] == [0, 0]
    assert all("is missing" in text for text in checkpoint_events(world))
    assert len(checkpoint_events(world)) == 2


def test_the_runs_folder_is_removed_while_training(world: World, wanted: dict[int, Any]) -> None:
    def remove(world: World, process: Process) -> None:
        world.places.runs.rename(world.places.runs.with_name("elsewhere"))

    world.places.runs.mkdir()
    world.on["event Reached 2"] = [remove]
    command = Command(world)
    assert command.finish() == 0
    assert any("was removed or replaced: its logs and checkpoints are lost" in text for text in command.said)
    assert history(world) == {0: wanted[0]}


@pytest.mark.parametrize("damage", ["flipped", "elsewhere", "saving"])
def test_a_checkpoint_that_cannot_be_used_is_passed_over(world: World, wanted: dict[int, Any], damage: str) -> None:
    stopped(world)
    newest, before = checkpoints_of(world)
    path = world.places.runs / newest.path
    if damage == "flipped":
        (path / "two").write_bytes((path / "two").read_bytes().replace(b"0", b"1"))
    elif damage == "elsewhere":
        shutil.copytree(path, world.places.runs.parent / "elsewhere")
        stores.raw(world.places.ledger, "UPDATE checkpoints SET path = '../elsewhere' WHERE id = ?", newest.id)
    else:
        stores.raw(world.places.ledger, "UPDATE checkpoints SET state = 'saving' WHERE id = ?", newest.id)
    assert Command(world).finish() == 0
    assert history(world) == {0: wanted[0]}
    assert attempts(world)[1].resumed_from == before.step == newest.step - 1
    said = {"flipped": "does not hold the bytes that were saved", "elsewhere": "leads out of the runs folder"}
    texts = checkpoint_events(world)
    assert len(texts) == (damage != "saving")
    assert all(f"checkpoint of step {newest.step} not used: " in text and said[damage] in text for text in texts)
    assert path.exists() == (damage == "elsewhere")
    assert (world.places.runs.parent / "elsewhere").exists() == (damage == "elsewhere")


def test_a_worker_writes_no_folder_elsewhere(world: World) -> None:
    stopped(world)
    stores.raw(world.places.ledger, "UPDATE stored_runs SET id = '../outside'")
    command = Command(world)
    assert command.finish() == 1
    assert any("error: ../outside/2: leads out of the runs folder" in text for text in command.said)
    assert not (world.places.runs.parent / "outside").exists()


def test_a_process_that_is_stopped_keeps_its_run(world: World, wanted: dict[int, Any]) -> None:
    def suspend(world: World, process: Process) -> None:
        """For a minute, in which another terminal gives the same command."""
        for one in process.command.processes:
            one.wakes = world.now + 60
        others.append(Command(world))
        process.sleep(60)

    others: list[Command] = []
    world.on["event Reached 2"] = [suspend]
    assert Command(world).finish() == 0
    assert others[0].process.code == 0
    assert reasons(world) == ["done"]
    assert history(world) == {0: wanted[0]}


def test_two_terminals_share_the_work(world: World, wanted: dict[int, Any]) -> None:
    both = [Command(world, seeds=(0, 1, 2)) for _ in range(2)]
    assert [command.finish() for command in both] == [0, 0]
    assert history(world) == wanted
    assert [reasons(world, seed) for seed in wanted] == [["done"]] * 3
    assert len({attempts(world, seed)[0].pid for seed in wanted}) == 2


def test_two_terminals_share_a_sweep(world: World) -> None:
    both = [Command(world, seeds=(0, 1), rates=RATES) for _ in range(2)]
    assert [command.finish() for command in both] == [0, 0]
    assert history(world, rate_and_seed) == instance_after_instance(is_away=False)
    with Ledger.open(world.places.ledger) as ledger:
        found = [ledger.attempts(run.id) for run in ledger.runs()]
    assert [[one.reason for one in of_run] for of_run in found] == [["done"]] * 6
    assert len({one.pid for of_run in found for one in of_run}) == 2


def test_a_worker_of_a_sweep_goes_on_with_the_next_instance(world: World) -> None:
    """Two workers share six runs of one program: no instance waits for another, and no worker is started again."""
    assert Command(world, seeds=(0, 1), rates=RATES, jobs=2).finish() == 0
    assert sum(process.name == "worker" for process in world.processes) == 2
    with Ledger.open(world.places.ledger) as ledger:
        by_worker: dict[int, list[float]] = {}
        for run in ledger.runs():
            [one] = ledger.attempts(run.id)
            by_worker.setdefault(one.pid, []).append(run.config.optim.lr)
    assert [len(rates) for rates in by_worker.values()] == [3, 3]
    assert all(len(set(rates)) > 1 for rates in by_worker.values())


def test_seeds_of_one_instance_of_a_sweep_are_trained_in_one_program(world: World) -> None:
    """As without a sweep: what is packed rounds as its instance alone does."""
    assert Command(world, seeds=(0, 1), rates=RATES, pack=3).finish() == 0
    assert history(world, rate_and_seed) == instance_after_instance(is_away=False)
    with Ledger.open(world.places.ledger) as ledger:
        assert [ledger.attempts(run.id)[0].environment["packed"] for run in ledger.runs()] == [2] * 6


def test_a_run_of_a_sweep_that_fails_stops_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(configs: Sequence[Any], *arguments: Any, **options: Any) -> Any:
        if configs[0].optim.lr == 0.2:
            raise MemoryError("Unable to allocate 8.00 GiB")
        return simulation.train_together(world, configs, *arguments, **options)

    monkeypatch.setattr(execute.loop, "train_together", train)
    assert Command(world, seeds=(0, 1), rates=RATES).finish() == 3
    with Ledger.open(world.places.ledger) as ledger:
        found = {rate_and_seed(run): (run.state, len(ledger.attempts(run.id))) for run in ledger.runs()}
    expected = {0.1: ("done", 1), 0.2: ("failed", 3), 0.3: ("done", 1)}
    assert found == {(rate, seed): expected[rate] for rate in RATES for seed in (0, 1)}


def test_seeds_that_are_trained_in_one_program(world: World, wanted: dict[int, Any]) -> None:
    """They are saved and continue together; one at another step is left for later."""
    stopped(world, seeds=(0, 1), pack=2)
    assert [reasons(world, seed) for seed in (0, 1)] == [["interrupted: SIGTERM"]] * 2
    assert [attempts(world, seed)[0].environment["packed"] for seed in (0, 1)] == [2, 2]
    assert Command(world, seeds=(0, 1, 2), pack=3).finish() == 0
    assert history(world) == wanted
    first, second = (attempts(world, seed)[1] for seed in (0, 1))
    assert first.resumed_from == second.resumed_from == 2
    assert reasons(world, 2)[0] == f"interrupted: not at the step of run {first.run}, to be trained with it"
    assert reasons(world, 2)[-1] == "done"


def test_a_second_signal_stops_without_saving(world: World) -> None:
    def twice(world: World, process: Process) -> None:
        signals = process.command.signals
        signals._record(signal.SIGINT, None)
        signals._record(signal.SIGINT, None)

    world.on["event Reached 2"] = [twice]
    assert Command(world).finish() == 130
    assert reasons(world) == [GONE]


def test_runs_that_an_earlier_version_began_start_again(
    world: World, wanted: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their checkpoints are not used, also not after the attempt that started again was killed at once."""
    with monkeypatch.context() as earlier:
        earlier.setattr(environment, "NUMERICS", NUMERICS - 1)
        stopped(world)
    old = [world.places.runs / one.path for one in checkpoints_of(world)]
    assert old
    world.on["write describe"] = [simulation.kill_command]
    assert Command(world).finish() == -9
    command = Command(world)
    assert command.finish() == 0
    assert history(world) == {0: wanted[0]}
    text = f"starts again from step 0: it began with numerics version {NUMERICS - 1}, this lrurun has {NUMERICS}"
    assert [said.partition(": ")[2] for said in command.said if "version" in said] == [text]
    found = attempts(world)
    assert [one.numerics for one in found] == [NUMERICS - 1, NUMERICS, NUMERICS]
    assert found[-1].resumed_from == 0
    assert not any(path.exists() for path in old)


@pytest.mark.parametrize(("is_away", "expected"), [(True, 1), (False, 4)])
def test_no_checkpoint_begins_while_a_server_does_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch, wanted: dict[int, Any], is_away: bool, expected: int
) -> None:
    """Of a file, training waits for the answer; of a server, it goes on, and saves at its end."""
    monkeypatch.setattr(SQLite, "may_be_away", is_away)
    install(world, monkeypatch, Late)
    assert Command(world).finish() == 0
    assert len([step for step in world.steps if "begin_checkpoint" in step]) == expected
    assert history(world) == {0: wanted[0]}


def test_the_escape_of_a_run_that_was_resumed_is_that_of_its_whole_curve(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = structs.replace(simulation.DATA, metrics=(Accuracy(escape=0.0),))
    monkeypatch.setattr(attempt, "_loaded", lambda *_: data)
    stopped(world)
    assert Command(world).finish() == 0
    assert [one.resumed_from for one in attempts(world)] == [0, 2]
    with Ledger.open(world.places.ledger) as ledger:
        [run] = ledger.runs()
        assert run.result is not None
        assert run.result["escape_step"] == 2


def test_the_command_writes_the_heartbeats_of_a_worker_that_computes(world: World) -> None:
    """So that no command on another machine takes its run."""
    seen = []

    def compute(world: World, process: Process) -> None:
        began = world.now
        process.sleep(25)
        [attempt] = stores.raw(world.places.ledger, "SELECT heartbeat_at, seen_at FROM attempts")
        seen.extend(time - began for time in attempt)

    world.on["event Reached 2"] = [compute]
    assert Command(world).finish() == 0
    heartbeat, own = seen
    assert own <= 0 < 10 < heartbeat
    assert reasons(world) == ["done"]
