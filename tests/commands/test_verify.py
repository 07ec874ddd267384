"""`lrurun verify`: a run is trained again in a temporary folder, and compared."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from lrurun.commands import verify
from lrurun.ledger.store import Ledger
from lrurun.report.verification import Recorded, Verification
from lrurun.training import NUMERICS
from tests.conftest import SHARED
from tests.harness.machine import Machine, stop, wait_for, workers_of
from tests.harness.plug_ins import AVERAGES, LADDER, forgotten  # noqa: F401
from tests.harness.reports import make_run

SMOKE = ("ladder", "sDigits", "--profile", "smoke")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder in which temporary folders are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert not list(folder.iterdir())


def digests(folder: Path) -> dict[str, str]:
    """The content of every file, without the -shm and the empty -wal of a reader beside this test."""
    digests = {}
    for path in filter(Path.is_file, folder.rglob("*")):
        text = path.read_bytes()
        if not path.name.endswith("-shm") and (text or not path.name.endswith("-wal")):
            digests[str(path)] = hashlib.sha256(text).hexdigest()
    return digests


def run_of(machine: Machine, rung: str) -> str:
    [run] = machine.json("runs", "--where", f"rung={rung}")["runs"]
    name: str = run["id"]
    return name


def verified(machine: Machine, run: str, code: int = 0, *options: str) -> str:
    """The first line of the output, without what names the run."""
    done = machine.run("verify", run, *options, code=code)
    assert done.stdout.startswith(f"run {run} (")
    return done.stdout.partition("): ")[2].splitlines()[0]


# Trained again


@pytest.mark.slow
def test_a_run_is_verified_bit_for_bit_and_nothing_is_left_or_changed(finished, temporary):
    before = digests(finished.folder)
    run = run_of(finished, "gamma-norm")
    done = finished.run("verify", run)
    assert (
        done.stdout
        == f"run {run} (sDigits, gamma-norm, seed 0): verified: all 25 values of 8 metrics are equal bit for bit\n"
    )
    first, second, *_ = done.stderr.splitlines()
    assert re.fullmatch(rf"run {run} is trained again: 60 steps, about 0:\d\d at the speed of the run", first)
    assert second[9:] == f"gamma-norm seed 0 ({run}): running"
    assert digests(finished.folder) == before


@pytest.mark.slow
def test_a_diverged_run_is_verified_if_it_diverges_at_the_same_step(machine, temporary):
    values = ("optim.lr=10", "optim.recurrent_factor=10", "model.norm=layer", "train.steps=40", "train.eval_every=40")
    machine.run(*SMOKE, "--rung", "linear-rnn", *[word for value in values for word in ("--set", value)])
    run = run_of(machine, "linear-rnn")
    assert "equal bit for bit" in verified(machine, run)
    found = machine.json("verify", run)
    assert found["recorded"]["state"] == found["repeated"]["state"] == "diverged"
    assert found["recorded"]["step"] == found["repeated"]["step"] < 40


@pytest.mark.rare
def test_tuning_runs_and_runs_with_more_threads_are_verified_and_packed_ones_within_the_tolerance(machine, temporary):
    machine.run(*SMOKE, "--rung", "diagonal", "--tune", "--set", "execution.threads=2")
    for stage in ("tune", "train"):
        run = machine.json("runs", "--where", f"stage={stage}")["runs"][0]
        assert "are equal bit for bit" in verified(machine, run["id"])
    machine.run(*SMOKE, "--rung", "ring-init", "--seeds", "2", "--pack", "2")
    run = machine.json("runs", "--where", "rung=ring-init")["runs"][0]["id"]
    found = machine.json("verify", run)
    assert found["verdict"] in ("equal", "within tolerance")
    assert found["reasons"] == ["one of 2 runs in one program then, trained alone now"]


@pytest.mark.rare
def test_a_run_with_a_plug_in_needs_its_file(machine, temporary):
    file = machine.folder / "averages.py"
    file.write_text(AVERAGES)
    (machine.folder / "averages.toml").write_text(LADDER)
    machine.run(*SMOKE, "--ladder", "averages.toml", apart=True)
    run = machine.json("runs")["runs"][0]["id"]
    assert "are equal bit for bit" in machine.run("verify", run, apart=True).stdout
    file.rename(machine.folder / "elsewhere.py")
    done = machine.run("verify", run, code=1, apart=True)
    assert done.stderr.startswith(f"error: run {run}: its recurrence 'averages' comes from a file")
    assert done.stderr.endswith("hint: name the file: --load FILE.py\n")
    done = machine.run("verify", run, "--load", "elsewhere.py", apart=True)
    assert "are equal bit for bit" in done.stdout


@pytest.mark.slow
def test_after_an_interrupt_nothing_is_left(machine, temporary):
    long = ("--set", "train.steps=3000", "--set", "train.eval_every=1000")
    machine.run(*SMOKE, "--rung", "linear-rnn", *long)
    before = digests(machine.folder)
    process = machine.start("verify", run_of(machine, "linear-rnn"), env={"TMPDIR": str(temporary)})
    wait_for(lambda: workers_of(process) and list(temporary.rglob("log.txt")))
    stop(process, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "stopped by ^C; nothing of the repetition remains"
    assert digests(machine.folder) == before


@pytest.mark.slow
def test_a_repetition_that_does_not_finish_is_an_error_with_its_reason(finished, temporary):
    broken = {"XLA_FLAGS": "--xla_no_such_flag=1", "TMPDIR": str(temporary)}
    run = run_of(finished, "gamma-norm")
    lines = finished.run("verify", run, code=1, apart=True, env=broken).stderr.splitlines()
    assert lines[-2].startswith(f"error: run {run} was done, its repetition did not finish: a worker ended with ")
    assert lines[-1] == "hint: lrurun doctor shows what this machine has"


# Compared


Change = Callable[[Recorded], Recorded]


@pytest.fixture
def repeated(finished, temporary, monkeypatch):
    """Makes the repetition what a function makes of the recorded run, without training."""

    def install(change: Change) -> str:
        def train(places: Any, plan: Any, run: Any, signals: Any) -> Recorded:
            ledger = Ledger.read(finished.ledger)
            assert ledger is not None
            with ledger:
                return change(verify._recorded(ledger, run.id))

        monkeypatch.setattr(verify, "_train", train)
        return run_of(finished, "gamma-norm")

    return install


def with_curve(metric: str, step: int, value: float | None) -> Change:
    """Another value in a curve, or none."""

    def change(one: Recorded) -> Recorded:
        points = [(at, old) for at, old in one.curves[metric] if at != step]
        return structs.replace(
            one, curves={**one.curves, metric: sorted([*points, *([] if value is None else [(step, value)])])}
        )

    return change


def with_environment(**changes: Any) -> Change:
    def change(one: Recorded) -> Recorded:
        last = one.attempts[-1]
        environment = {**last.environment, **changes}
        return structs.replace(one, attempts=[structs.replace(last, environment=environment)])

    return change


def both(*changes: Change) -> Change:
    def change(one: Recorded) -> Recorded:
        for each in changes:
            one = each(one)
        return one

    return change


def with_result(**values: float) -> Change:
    def change(one: Recorded) -> Recorded:
        named = {name.replace("_accuracy", "/accuracy"): value for name, value in values.items()}
        return structs.replace(one, run=structs.replace(one.run, result={**(one.run.result or {}), **named}))

    return change


def test_a_run_whose_curves_differ_is_not_verified(finished, repeated):
    run = repeated(both(with_curve("train/loss", 20, 0.5), with_curve("val/accuracy", 60, 0.25)))
    curves = finished.json("show", run)["metrics"]
    [recorded] = [value for step, value in curves["train/loss"] if step == 20]
    [validated] = [value for step, value in curves["val/accuracy"] if step == 60]
    done = finished.run("verify", run, code=3)
    assert done.stdout == (
        f"run {run} (sDigits, gamma-norm, seed 0): not verified: 2 of 25 values of 8 metrics differ\n"
        f"First difference: train/loss at step 20: {recorded!r} in the run, 0.5 in the repetition.\n"
        f"Largest differences: train/loss at step 20: {recorded!r} in the run, 0.5 in the repetition; "
        f"val/accuracy at step 60: {validated!r} in the run, 0.25 in the repetition.\n"
    )
    found = finished.json("verify", run, code=3)
    assert (found["verdict"], found["exact"], found["differing"]) == ("different", True, 2)
    difference = {"metric": "train/loss", "step": 20, "recorded": recorded, "repeated": 0.5}
    assert found["first_difference"] == found["beyond_tolerance"] == difference


def test_values_that_are_missing_or_too_many_are_differences(finished, repeated):
    run = repeated(with_curve("train/loss", 20, None))
    assert " in the run, no value in the repetition." in finished.run("verify", run, code=3).stdout
    repeated(with_curve("train/loss", 25, 0.5))
    assert (
        "train/loss at step 25: no value in the run, 0.5 in the repetition."
        in finished.run("verify", run, code=3).stdout
    )
    # what an older version did not record, and what belongs to the machine, is no difference
    repeated(lambda one: structs.replace(one, curves={**one.curves, "new/metric": [(1, 1.0)], "machine/x": [(1, 2.0)]}))
    assert "are equal bit for bit" in verified(finished, run)


OTHER = {"machine": {"cpu": "Another CPU"}}


def test_on_another_machine_the_beginning_and_the_scores_are_compared_within_the_tolerance(finished, repeated):
    run = repeated(with_environment(**OTHER))
    assert "are equal bit for bit" in verified(finished, run)
    show = finished.json("show", run)
    [(_, first), (_, second), *_] = show["metrics"]["train/loss"]
    cpu = show["attempts"][0]["environment"]["machine"]["cpu"]
    repeated(
        both(with_environment(**OTHER), with_curve("train/loss", 10, first * 1.0009), with_curve("train/loss", 20, 9.0))
    )
    done = finished.run("verify", run)
    assert done.stdout == (
        f"run {run} (sDigits, gamma-norm, seed 0): verified within the tolerance: 2 of 25 values of 8 metrics differ\n"
        f"First difference: train/loss at step 10: {first!r} in the run, {first * 1.0009!r} in the repetition.\n"
        f"Equality bit for bit is not required: CPU {cpu} then, Another CPU now.\n"
        f"Largest differences: train/loss at step 20: {second!r} in the run, 9.0 in the repetition.\n"
    )
    repeated(both(with_environment(**OTHER), with_curve("train/loss", 10, first * 1.0011)))
    assert "not verified: 1 of 25 values" in verified(finished, run, 3)


def test_scores_of_the_result_may_differ_by_five_points_on_another_machine(finished, repeated):
    run = repeated(with_environment())
    score = finished.json("show", run)["run"]["metrics"]["test/accuracy"]
    near, far = score + 0.0499, score + 0.0501
    repeated(both(with_environment(**OTHER), with_result(test_accuracy=near)))
    assert "verified within the tolerance: 1 of 25" in verified(finished, run)
    repeated(both(with_environment(**OTHER), with_curve("val/accuracy", 30, 0.0), with_result(test_accuracy=far)))
    lines = finished.run("verify", run, code=3).stdout.splitlines()
    assert lines[2] == (
        "First difference beyond the tolerance: test/accuracy in the result: "
        f"{score!r} in the run, {far!r} in the repetition."
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"threads": 2}, "threads 1 then, 2 now"),
        ({"device": "NVIDIA H100", "platform": "gpu"}, "device cpu then, NVIDIA H100 now"),
        ({"platform": "gpu"}, "results on a gpu are not exact"),
        ({"versions": {"jax": "9.9"}}, "jax {jax} then, 9.9 now"),
    ],
)
def test_each_difference_of_machines_is_a_reason(finished, repeated, changes: Mapping[str, Any], reason: str):
    run = repeated(with_environment(**changes))
    jax = finished.json("show", run)["attempts"][0]["environment"]["versions"]["jax"]
    found = finished.json("verify", run)
    assert not found["exact"]
    assert reason.format(jax=jax) in found["reasons"]


def test_another_numerics_version_is_a_reason(finished, repeated):
    run = repeated(lambda one: structs.replace(one, attempts=[structs.replace(one.attempts[-1], numerics=99)]))
    assert finished.json("verify", run)["reasons"] == [f"numerics version {NUMERICS} then, 99 now"]


@pytest.mark.parametrize(
    ("values", "differing", "expected"),
    [
        (1, 0, "verified: the only value is equal bit for bit"),
        (2, 0, "verified: all 2 values of 1 metric are equal bit for bit"),
        (2, 1, "not verified: 1 of 2 values of 1 metric differs"),
        (3, 2, "not verified: 2 of 3 values of 1 metric differ"),
    ],
)
def test_the_verdict_counts_values_in_plain_english(
    values: int, differing: int, expected: str, capsys: pytest.CaptureFixture[str]
):
    run = make_run("1", "a", 0, 0.5)
    recorded = Recorded(run=run, attempts=(), curves={})
    found = Verification(
        verdict="different" if differing else "equal",
        reasons=(),
        metrics=1,
        values=values,
        differing=differing,
        first=None,
        beyond=None,
        largest=(),
    )
    verify._print(found, recorded, recorded)
    assert capsys.readouterr().out == f"run 1 (sDigits, a, seed 0): {expected}\n"


def test_a_run_and_a_repetition_that_end_otherwise_differ(finished, repeated):
    run = repeated(lambda one: structs.replace(one, run=structs.replace(one.run, state="diverged", step=7)))
    lines = finished.run("verify", run, code=3).stdout.splitlines()
    assert lines == [
        f"run {run} (sDigits, gamma-norm, seed 0): not verified: it ended differently",
        "The run is done at step 60, the repetition diverged at step 7.",
    ]


# Refused


def test_unknown_runs_and_ledgers_are_not_found(finished, machine):
    assert finished.run("verify", "zz", code=4).stderr.startswith("error: no run 'zz' in this ledger\n")
    assert machine.run("verify", "aa", code=4).stderr.startswith("error: run 'aa': there is no ledger at ")
    assert not list(machine.folder.iterdir())


def test_a_run_whose_data_are_missing_or_others_is_refused(finished, tmp_path, repeated):
    run = repeated(with_environment())
    sha256 = finished.json("show", run)["run"]["data_sha256"][:19]
    data = tmp_path / "data"
    option = ("--data-dir", str(data))
    assert finished.run("verify", run, *option, code=1).stderr == (
        f"error: run {run} was trained on data {sha256}, which are not in {data}\n"
        "hint: run: lrurun data prepare sDigits --profile smoke; or name the folder that has them with --data-dir\n"
    )
    shutil.copytree(SHARED / "share/lrurun/sDigits", data / "sDigits-mine")
    assert "are equal bit for bit" in verified(finished, run, 0, *option)  # whatever the folder's name
    manifest = data / "sDigits-mine/manifest.json"
    table = json.loads(manifest.read_text())
    table["sha256"]["test-labels"] = "0" * 64
    manifest.write_text(json.dumps(table))
    error = finished.run("verify", run, *option, code=1).stderr
    assert error.startswith(f"error: run {run} was trained on data {sha256}, {data}/sDigits-mine has sha256:")


@pytest.mark.slow
def test_data_that_were_changed_without_their_manifest_are_refused(finished, tmp_path, temporary):
    shutil.copytree(SHARED / "share/lrurun/sDigits", tmp_path / "data/sDigits")
    array = tmp_path / "data/sDigits/test-labels.npy"
    array.write_bytes(array.read_bytes()[:-1] + b"\x0b")
    run = run_of(finished, "gamma-norm")
    error = finished.run("verify", run, "--data-dir", str(tmp_path / "data"), code=1).stderr
    assert error.splitlines()[-2] == f"error: {array}: its digest is not that in the manifest"


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ("interrupted", "finish it first: lrurun resume"),
        ("running", "wait for its end: lrurun status --watch"),
        ("failed", "its error: lrurun show {run}"),
    ],
)
def test_unfinished_runs_are_refused(finished, monkeypatch, state: str, hint: str):
    run, recorded = run_of(finished, "gamma-norm"), verify._recorded

    def unfinished(ledger: Ledger, name: str) -> Recorded:
        one = recorded(ledger, name)
        return structs.replace(one, run=structs.replace(one.run, state=state, step=30))

    monkeypatch.setattr(verify, "_recorded", unfinished)
    assert finished.run("verify", run, code=1).stderr == (
        f"error: run {run} is {state}, at step 30 of 60: only finished runs can be verified\n"
        f"hint: {hint.format(run=run)}\n"
    )
