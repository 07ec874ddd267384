"""Runs that are stopped and resumed equal undisturbed ones bit for bit: every optimiser, averages, parts, clipping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lrurun.config.fingerprint import fingerprint
from lrurun.config.optimizers import OPTIMIZERS
from lrurun.config.schema import RunConfig, decode
from lrurun.data.task import Data
from lrurun.errors import LrurunError
from lrurun.training import checkpoints
from lrurun.training.compiled import compiled_for
from lrurun.training.events import Ended, Event, Reached, Snapshot
from lrurun.training.loop import train, train_together
from lrurun.training.optimizer import of_state
from tests.harness.toy import EXECUTION, assert_same, config, data, history

__all__ = ["data"]  # a fixture

NEEDED: dict[str, dict[str, Any]] = {
    "prodigy": {"lr": 1.0, "recurrent_factor": 1.0},
    "schedule_free_adamw": {"schedule": "constant"},
    "sgd": {"momentum": 0.9, "nesterov": True},
}
"""Settings without which an optimiser is refused, or has no state."""

CASES: dict[str, dict[str, Any]] = {
    **{name: {"name": name, **NEEDED.get(name, {})} for name in OPTIMIZERS},
    "average": {"average": "ema", "average_decay": 0.9},
    "accumulate": {"accumulate": 4},
    "clip": {"clip": 0.1},
    "all": {"average": "ema", "accumulate": 2, "clip": 0.01, "clip_by": "block-rms", "schedule": "wsd"},
    "all, free": {"name": "schedule_free_adamw", "schedule": "constant", "accumulate": 2, "clip": 0.5},
}


def run_of(case: str, **changes: object) -> RunConfig:
    table = msgspec.to_builtins(config(**changes))
    optim = {name: table["optim"][name] for name in ("lr", "recurrent_factor", "weight_decay")}
    table["optim"] = {"name": "adamw", **optim, **CASES[case]}
    return decode(table, RunConfig, "a test")


def followed(events: Iterator[Event]) -> tuple[list[Event], list[tuple[int, dict[int, Snapshot], int]]]:
    """All events; and step, snapshots by member, and number of events until then, of every boundary."""
    seen: list[Event] = []
    stops: dict[int, dict[int, Snapshot]] = {}
    counts: dict[int, int] = {}
    for event in events:
        seen.append(event)
        if isinstance(event, Reached):
            stops.setdefault(event.step, {})[event.member] = event.snapshot()
            counts[event.step] = len(seen)
    return seen, [(step, snapshots, counts[step]) for step, snapshots in stops.items()]


def ends(events: list[Event]) -> list[Ended]:
    return [event for event in events if isinstance(event, Ended)]


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_resumed_at_any_boundary_is_the_undisturbed_one(case: str, data: Data, tmp_path: Path) -> None:
    run = run_of(case)
    whole, stops = followed(train(run, EXECUTION, data))
    [ended] = ends(whole)
    assert ended.state == "done"
    assert [step for step, _, _ in stops] == [4, 5, 8, 9, 10, 12, 15, 16, 18, 20]
    compiled, name = compiled_for(run, EXECUTION, data), fingerprint(run)
    for step, snapshots, seen in stops:
        snapshot = snapshots[0]
        if step in (5, 12, 18):  # by way of the disk
            checkpoints.save(tmp_path / str(step), snapshot, name)
            snapshot = checkpoints.restore(tmp_path / str(step), compiled, name)
        second = list(train(run, EXECUTION, data, resume=snapshot))
        before = {key: value for key, value in history(whole[:seen]).items() if key[0] <= step}
        assert before | history(second) == history(whole)
        assert_same(ends(second)[0].snapshot, ended.snapshot)
        others = {key: value for key, value in ends(second)[0].result.items() if not key.startswith("machine/")}
        assert others.items() <= ended.result.items()
    other = fingerprint(run_of("lion" if case != "lion" else "adamw"))
    with pytest.raises(LrurunError, match="checkpoint of another run, found sha256"):
        checkpoints.restore(tmp_path / "5", compiled, other)


def test_names_in_checkpoints_are_those_of_release_1(
    data: Data, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    """Of AdamW without an average: a checkpoint of an earlier version is continued."""
    run = run_of("adamw")
    snapshot = next(event for event in train(run, EXECUTION, data) if isinstance(event, Reached)).snapshot()
    checkpoints.save(tmp_path / "saved", snapshot, fingerprint(run))
    arrays = checkpoints.arrays(tmp_path / "saved", fingerprint(run))
    golden("checkpoint.txt", "".join(f"{name} {arrays[name].dtype} {arrays[name].shape}\n" for name in sorted(arrays)))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["adamw", "muon", "all", "all, free"])
def test_runs_that_are_resumed_together_are_the_undisturbed_ones(case: str, data: Data) -> None:
    runs = [run_of(case, seed=seed) for seed in (3, 4)]
    whole, stops = followed(train_together(runs, EXECUTION, data))
    for step, snapshots, _ in stops:
        second = list(train_together(runs, EXECUTION, data, resume=[snapshots[0], snapshots[1]]))
        for member, (one, other) in enumerate(zip(ends(second), ends(whole), strict=True)):
            assert one.member == other.member == member
            assert_same(one.snapshot, other.snapshot)
            of_member = [[event for event in events if event.member == member] for events in (second, whole)]
            after, undisturbed = (history(events) for events in of_member)
            assert after.items() <= undisturbed.items()
            assert all(key in after for key in undisturbed if key[0] > step)


@pytest.mark.parametrize(
    ("saved", "read", "message"),
    [
        ("adamw", "sgd", r"live\['moments'\]\.count: expected no such array, found int32 of shape \(\)"),
        ("sgd", "adamw", r"live\['moments'\]\.count: expected int32 of shape \(\), found no such array"),
        ("lion", "adopt", r"live\['moments'\]\.nu\[.*: expected float32 of shape .*, found no such array"),
        ("adamw", "muon", r"live\['moments'\].*: expected "),
    ],
)
def test_a_checkpoint_whose_arrays_do_not_fit_is_refused(
    saved: str, read: str, message: str, data: Data, tmp_path: Path
) -> None:
    """By name and form, where the fingerprint does not show it: of code that was changed since."""
    run = run_of(saved)
    snapshot = next(event for event in train(run, EXECUTION, data) if isinstance(event, Reached)).snapshot()
    checkpoints.save(tmp_path / "saved", snapshot, "a fingerprint")
    with pytest.raises(LrurunError, match=message) as refused:
        checkpoints.restore(tmp_path / "saved", compiled_for(run_of(read), EXECUTION, data), "a fingerprint")
    assert "saved by other code" in refused.value.hint


@pytest.mark.parametrize("name", ["prodigy", "schedule_free_adamw"])
def test_a_state_that_starts_as_a_copy_of_the_parameters_has_buffers_of_its_own(name: str, data: Data) -> None:
    """They are donated: a dispatch overwrites the parameters, and what prodigy keeps of them must stay."""
    run = run_of(name, steps=10)
    compiled = compiled_for(run, EXECUTION, data)
    states = compiled.init(run.model, np.asarray([3], np.uint32))
    part = {"prodigy": "params0", "schedule_free_adamw": "z"}[name]
    kept = of_state(states.moments, part)
    np.testing.assert_array_equal(kept, states.params)
    assert kept.unsafe_buffer_pointer() != states.params.unsafe_buffer_pointer()
    first = np.array(states.params[0])
    *_, ended = train(run, EXECUTION, data)  # two dispatches
    assert isinstance(ended, Ended)
    live = compiled.vectors(ended.snapshot.live)
    assert not np.array_equal(live.params, first)
    if name == "prodigy":
        np.testing.assert_array_equal(live.moments.params0, first)
