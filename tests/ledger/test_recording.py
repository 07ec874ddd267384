"""What a worker records is read back as written, and a worker that lost its run writes nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

from lrurun.errors import LedgerError, NotFoundError
from lrurun.ledger.attempt import Fenced
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import HeldRun
from tests.harness.stores import ME, dump, key, ledger, path, raw, refused_by_database, take, want

__all__ = ["key", "ledger", "path"]  # fixtures


def test_metrics_round_trip(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(seed=0), want(seed=1, position=1), want(seed=2, position=2)])
    held, other = take(ledger, key), take(ledger, key)
    values = [1e-300, 5e-324, math.inf, -math.inf, math.nan, 0.1 + 0.2, 1.7976931348623157e308]
    ledger.record(held, [(step, "train/loss", value) for step, value in enumerate(values)], 6)
    ledger.record(held, [(6, "val/accuracy", 0.25), (0, "train/loss", 7.0)], 6)
    ledger.record(other, [(3, "val/accuracy", math.nan)], 3)
    curves = ledger.metrics(held.run.id)
    assert list(curves) == ["train/loss", "val/accuracy"]
    assert [step for step, _ in curves["train/loss"]] == list(range(7))
    found = [value for _, value in curves["train/loss"]]
    assert [repr(value) for value in found] == [repr(value) for value in [7.0, *values[1:]]]
    assert ledger.metrics(held.run.id, ["val/accuracy", "none"]) == {"val/accuracy": [(6, 0.25)]}
    assert ledger.run(held.run.id).step == 6


def test_a_result_round_trips(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want()])
    held = take(ledger, key)
    result = {"val/accuracy": 0.1 + 0.2, "best_step": 40, "nan": math.nan, "up": math.inf, "down": -math.inf}
    ledger.finish(held, "diverged", result=result, step=99)
    run = ledger.run(held.run.id)
    assert run.result is not None
    assert repr(run.result) == repr(result)
    assert (run.state, run.step) == ("diverged", 99)
    assert run.finished_at is not None
    assert ledger.attempts(run.id)[0].reason == "diverged"
    assert json.loads(raw(ledger.path, "SELECT result FROM runs")[0][0])["up"] == "inf", "valid JSON for SQL"


def test_eigenvalues_round_trip(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want()])
    held = take(ledger, key)
    assert ledger.eigenvalues(held.run.id) == {}
    ledger.record_eigenvalues(held, "start", [[0.1 + 0.2j], [1j], [1.0]])
    ledger.finish(held, "interrupted")
    ledger.requeue([held.run.id])
    held = take(ledger, key)
    ledger.record_eigenvalues(held, "end", [[complex(math.nan, -math.inf)], None])
    start = [numpy.array([0.9 + 0.1j, -0.3], numpy.complex64), None]
    ledger.record_eigenvalues(held, "start", start)  # over what the first attempt wrote
    found = ledger.eigenvalues(held.run.id)
    assert list(found) == ["start", "end"]
    assert found["start"] == [[complex(value) for value in start[0]], None]
    (odd,), none = found["end"]
    assert math.isnan(odd.real)
    assert odd.imag == -math.inf
    assert none is None
    assert ledger.check() == []
    with pytest.raises(NotFoundError):
        ledger.eigenvalues("zz")
    raw(path, "UPDATE eigenvalues SET pairs = '[1' WHERE layer = 0 AND moment = 'end'")
    assert ledger.check() == ["1 row of eigenvalues hold no JSON in pairs"]
    with pytest.raises(LedgerError, match="is damaged"):
        ledger.eigenvalues(held.run.id)


def test_a_metric_name_that_was_rolled_back_is_inserted_again(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want()])
    held = take(ledger, key)
    with pytest.raises((TypeError, ValueError)):
        ledger.record(held, [(1, "new", "no number")], 1)  # type: ignore[list-item]
    assert ledger.run(held.run.id).step == 0
    ledger.record(held, [(1, "new", 2.0)], 1)
    assert ledger.metrics(held.run.id) == {"new": [(1, 2.0)]}


def test_rewind_deletes_rows_past_the_step(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(seed=0), want(seed=1, position=1)])
    held, other = take(ledger, key), take(ledger, key)
    for one in (held, other):
        ledger.record(one, [(step, name, 1.0) for step in (0, 10, 20, 30) for name in ("a", "b")], 30)
    ledger.rewind(held, 20)
    assert [step for step, _ in ledger.metrics(held.run.id)["b"]] == [0, 10, 20]
    assert ledger.run(held.run.id).step == 20
    assert ledger.attempts(held.run.id)[0].resumed_from == 20
    ledger.rewind(held, 0)
    assert [step for step, _ in ledger.metrics(held.run.id)["a"]] == [0]
    ledger.rewind(held, None)
    assert ledger.metrics(held.run.id) == {}
    assert len(ledger.metrics(other.run.id)["a"]) == 4


def test_checkpoints(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(seed=0), want(seed=1, position=1)])
    held, other = take(ledger, key), take(ledger, key)
    first, second = (ledger.begin_checkpoint(held, step, f"{held.run.id}/1/{step}") for step in (10, 20))
    ledger.commit_checkpoint(held, first, 123, "f" * 64)
    with pytest.raises(ValueError, match="saving"):
        ledger.commit_checkpoint(other, second, 1, "0" * 64)
    found = ledger.checkpoints(held.run.id)
    assert [(c.step, c.state, c.bytes, c.sha256) for c in found] == [
        (20, "saving", None, None),
        (10, "committed", 123, "f" * 64),
    ]
    assert [c.id for c in ledger.checkpoints(held.run.id, "committed")] == [first]
    ledger.delete_checkpoints(other, [first])
    assert len(ledger.checkpoints(held.run.id)) == 2, "another run's checkpoints are not one's own"
    ledger.delete_checkpoints(held, [first, 999])
    assert [c.id for c in ledger.checkpoints(held.run.id)] == [second]


def writes(ledger: Ledger, held: HeldRun, checkpoint: int) -> list[Any]:
    return [
        lambda: ledger.rewind(held, 0),
        lambda: ledger.record(held, [(5, "loss", 9.0), (6, "brand-new", 9.0)], 6),
        lambda: ledger.record(held, [], 6),
        lambda: ledger.begin_checkpoint(held, 7, "x"),
        lambda: ledger.commit_checkpoint(held, checkpoint, 1, "0" * 64),
        lambda: ledger.record_eigenvalues(held, "start", [[1j]]),
        lambda: ledger.delete_checkpoints(held, [checkpoint]),
        lambda: ledger.describe(held, parameters=1, environment={"a": 1}),
        *[lambda state=state: ledger.finish(held, state) for state in ("done", "diverged", "failed", "interrupted")],
    ]


def test_a_zombie_writes_nothing(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want()])
    zombie = take(ledger, key, msgspec.structs.replace(ME, pid_started=ME.pid_started - 5))
    ledger.record(zombie, [(5, "loss", 1.0)], 5)
    checkpoint = ledger.begin_checkpoint(zombie, 5, "x")
    assert [run.id for run in ledger.reap(ME)] == [zombie.run.id]
    for stage in ("interrupted", "queued", "running"):
        if stage == "queued":
            ledger.requeue([zombie.run.id])
        if stage == "running":
            holder = take(ledger, key)
        before = dump(path)
        for write in writes(ledger, zombie, checkpoint):
            with pytest.raises(Fenced):
                write()
        assert ledger.record_heartbeats([(zombie.run.id, 1)]) == [(zombie.run.id, 1)]
        assert dump(path) == before, stage
    ledger.record(holder, [(6, "loss", 2.0)], 6)
    assert ledger.record_heartbeats([(zombie.run.id, 1), (holder.run.id, 2)]) == [(zombie.run.id, 1)]


@pytest.mark.parametrize("state", ["done", "diverged"])
def test_a_finished_run_never_changes(ledger: Ledger, key: str, path: Path, state: str) -> None:
    ledger.enqueue(key, [want()])
    held = take(ledger, key)
    checkpoint = ledger.begin_checkpoint(held, 5, "x")
    ledger.finish(held, state, result={"val/accuracy": 0.5})
    before = dump(path)
    for write in writes(ledger, held, checkpoint):
        with pytest.raises(Fenced):
            write()
    for change in ("state = 'queued'", "result = '{}'", "step = 1", "config_id = 2", "error = 'x'", "attempt = 9"):
        with pytest.raises(refused_by_database(), match="never changes"):
            raw(path, f"UPDATE stored_runs SET {change}")
    with pytest.raises(refused_by_database(), match="only deleted by ledger forget"):
        raw(path, "DELETE FROM stored_runs")
    assert ledger.reap(ME) == []
    assert dump(path) == before


def newest(ledger: Ledger, run_id: str) -> tuple[float | None, ...]:
    run = ledger.run(run_id)
    return run.last_loss, run.last_score, run.last_speed


def test_a_run_holds_the_newest_value_of_what_lists_show(ledger: Ledger, key: str, path: Path) -> None:
    [run] = ledger.enqueue(key, [want()])
    held = take(ledger, key)
    assert newest(ledger, run.id) == (None, None, None)
    ledger.record(held, [(20, "train/loss", 2.0), (10, "train/loss", 3.0), (20, "other", 7.0)], 20)
    assert newest(ledger, run.id) == (2.0, None, None)
    ledger.record(held, [(40, "val/accuracy", 0.5), (40, "machine/steps_per_second", 80.0)], 40)
    ledger.record(held, [(30, "val/accuracy", 0.25), (40, "train/loss", math.inf)], 40)
    assert newest(ledger, run.id) == (math.inf, 0.5, 80.0)
    ledger.record(held, [(50, "train/loss", math.nan)], 50)
    assert newest(ledger, run.id) == (None, 0.5, 80.0)
    ledger.rewind(held, 30)
    assert newest(ledger, run.id) == (2.0, 0.25, None)
    ledger.finish(held, "done", result={"val/accuracy": 0.75, "test/accuracy": math.nan, "test/loss": 1.0})
    assert newest(ledger, run.id) == (2.0, 0.25, None)
    columns = "val_accuracy, test_accuracy, steps_per_second"
    assert raw(path, f"SELECT {columns} FROM runs") == [(0.75, None, None)]


def test_the_newest_score_is_of_the_metric_that_selects_the_model(ledger: Ledger, key: str) -> None:
    [run] = ledger.enqueue(key, [want()])
    held = take(ledger, key)
    rows = [
        (step, name, value)
        for name, value in (("val/loss", 3.0), ("val/r2", 0.5), ("val/other", 7.0))
        for step in (20, 40)
    ]
    ledger.record(held, [*rows, (40, "val/r2", -0.25)], 40, score="val/r2")
    assert newest(ledger, run.id) == (None, -0.25, None)
    ledger.record(held, [(60, "val/accuracy", 0.75)], 60, score="val/r2")
    assert newest(ledger, run.id) == (None, -0.25, None)
    ledger.rewind(held, 30, score="val/r2")
    assert newest(ledger, run.id) == (None, 0.5, None)


def test_runs_that_differ_in_the_seed_share_their_settings(ledger: Ledger, key: str, path: Path) -> None:
    odd = {"seed": 1, "data": {"note": 'a "seed":1, in a text', "seed": None, "π": "é"}}
    wanted = [want(seed=seed, position=seed) for seed in (0, 1, 5, 2**31 - 1)]
    wanted += [want("odd", 1, config=odd), want("other", 4, config={"seed": 4, "data": {"of": 1}})]
    found = ledger.enqueue(key, wanted)
    assert [run.config for run in found] == [planned.config for planned in wanted]
    assert [ledger.run(run.id).config for run in found] == [planned.config for planned in wanted]
    stored = dict(raw(path, "SELECT fingerprint, config FROM runs"))
    assert stored == {w.fingerprint: json.dumps(msgspec.to_builtins(w.config), separators=(",", ":")) for w in wanted}
    assert raw(path, "SELECT count(DISTINCT config_id), count(DISTINCT provenance_id) FROM stored_runs") == [(3, 1)]
    shared = raw(path, "SELECT text FROM documents WHERE seed_at IS NOT NULL")
    assert [json.loads(text)["seed"] for (text,) in shared] == [None] * 3
    assert ledger.check() == []
    with pytest.raises(refused_by_database(), match="never changes"):
        raw(path, "UPDATE documents SET text = '{}'")


def test_code_versions_before_a_run_started_again_are_not_counted(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want()])
    for numerics, version in ((1, "0.1.0"), (2, "0.2.0"), (2, "0.3.0")):
        held = take(ledger, key, environment={"code": version, "numerics": numerics})
        ledger.finish(held, "interrupted", reason="interrupted: SIGTERM")
        ledger.requeue([held.run.id])
    run = ledger.run(held.run.id)
    assert (run.code, run.numerics) == (("0.2.0", "0.3.0"), 2)


def test_attempts_share_their_environment_and_say_which_arithmetic(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(3)])
    for numerics in (1, 2, 2):
        held = take(ledger, key, environment={"threads": 1, "numerics": numerics})
        ledger.describe(held, environment={"device": "cpu"})
        [attempt] = ledger.attempts(held.run.id)
        assert (attempt.environment, attempt.numerics) == (
            {"threads": 1, "numerics": numerics, "device": "cpu"},
            numerics,
        )
        assert ledger.newest_attempts([held.run.id]) == {held.run.id: attempt}
    assert raw(path, "SELECT count(DISTINCT environment_id), count(*) FROM stored_attempts") == [(2, 3)]
    environments = [('{"threads":1,"numerics":1,"device":"cpu"}',), ('{"threads":1,"numerics":2,"device":"cpu"}',)]
    assert raw(path, "SELECT DISTINCT environment FROM attempts ORDER BY environment") == environments
