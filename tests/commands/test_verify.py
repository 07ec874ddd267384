"""`lrurun verify`: a run is trained again in a temporary folder, and compared."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from lrurun.commands import verify
from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.ledger.ledger import Ledger
from lrurun.report.verification import Recorded, Verification
from lrurun.runner import environment
from lrurun.version import NUMERICS
from tests.harness.machine import Machine, stop, wait_for, workers_of
from tests.harness.plug_ins import AVERAGES, LADDER, forgotten  # noqa: F401
from tests.harness.reports import make_run
from tests.harness.results import OWNER
from tests.harness.shared import SHARED

SMOKE = ("ladder", "sDigits", "--profile", "smoke")
LOSSES = [(10, 2.0), (20, 1.0), (30, 0.5)]
SCORE = 0.625


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


def verdict(machine: Machine, run: str, code: int = 0, *options: str) -> str:
    """The first line of the output, without what names the run."""
    text = machine.run("verify", run, *options, code=code).stdout
    assert text.startswith(f"run {run} (sDigits, gamma-norm, seed 0): ")
    return text.partition("): ")[2].splitlines()[0]


# Compared, without training


@pytest.fixture(scope="module")
def data() -> tuple[Path, str]:
    """The folder of the prepared data, and their digest."""
    machine = Machine(SHARED / "made" / "verified-data")
    machine.run("data", "prepare", "sDigits", "--profile", "smoke")
    found = machine.json("data", "check", "sDigits", "--profile", "smoke")
    return Path(machine.json("data", "info", "sDigits", "--profile", "smoke")["folder"]), found["sha256"]


@pytest.fixture(scope="module")
def recorded(data: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Machine, str]:
    """A ledger of one finished run on the prepared data."""
    machine = Machine(tmp_path_factory.mktemp("recorded") / "here")
    plan = planning.make("sDigits", profile="smoke")
    [rung] = planning.choose_rungs(plan, ["gamma-norm"])
    with Ledger.open(machine.ledger) as ledger:
        key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec, plan.short_name).key
        [run] = ledger.enqueue(key, final_runs(plan, rung, [0]))
        about = {"threads": 1, "device": "cpu", "platform": "cpu", **environment.record(1)}
        held = ledger.hold(key, OWNER, environment=about)
        assert held is not None
        ledger.record(held, [(step, "train/loss", value) for step, value in LOSSES], 30)
        ledger.record(held, [(30, "val/accuracy", 0.5), (60, "val/accuracy", 0.6)], 60)
        ledger.describe(held, parameters=1000, data_sha256=data[1])
        result = {"test/accuracy": SCORE, "machine/steps_per_second": 30.0}
        ledger.finish(held, "done", result=result, step=60)
    return machine, run.id


Change = Callable[[Recorded], Recorded]


@pytest.fixture
def repeated(recorded, temporary, monkeypatch):
    """Makes the repetition what functions make of the recorded run, without training."""
    machine, run = recorded

    def install(*changes: Change) -> tuple[Machine, str]:
        def train(places: Any, plan: Any, run: Any, signals: Any, *, others: Any) -> Recorded:
            with Ledger.read(machine.ledger) as ledger:
                one = verify._recorded(ledger, run.id)
            for change in changes:
                one = change(one)
            return one

        monkeypatch.setattr(verify, "_train", train)
        return machine, run

    return install


def curve(metric: str, step: int, value: float | None) -> Change:
    """Another value in a curve, or none."""

    def change(one: Recorded) -> Recorded:
        points = {**dict(one.curves.get(metric, ())), step: value}
        kept = sorted((at, found) for at, found in points.items() if found is not None)
        return structs.replace(one, curves={**one.curves, metric: kept})

    return change


def attempt(numerics: int | None = None, **changes: Any) -> Change:
    """Another environment of the last attempt."""

    def change(one: Recorded) -> Recorded:
        last = one.attempts[-1]
        last = structs.replace(last, environment={**last.environment, **changes}, numerics=numerics or last.numerics)
        return structs.replace(one, attempts=[last])

    return change


def ending(**changes: Any) -> Change:
    return lambda one: structs.replace(one, run=structs.replace(one.run, **changes))


OTHER = attempt(machine={"cpu": "Another CPU"})


def test_what_a_verification_prints(repeated, golden):
    texts = []
    for code, *changes in (
        (0,),
        (3, curve("train/loss", 20, 1.25), curve("val/accuracy", 60, 0.25)),
        (0, OTHER, curve("train/loss", 10, 2.001), curve("train/loss", 20, 9.0)),
        (3, OTHER, curve("val/accuracy", 30, 0.0), ending(result={"test/accuracy": 0.7})),
        (3, ending(state="diverged", step=7)),
    ):
        machine, run = repeated(*changes)
        done = machine.run("verify", run, code=code)
        texts.append(f"{done.stderr}{done.stdout}exit code {code}\n")
    cpu = machine.json("show", run)["attempts"][0]["environment"]["machine"]["cpu"]
    golden("verify.txt", "\n".join(texts).replace(run, "0123456789ab").replace(cpu, "This CPU"))


def test_the_first_and_the_largest_differences_are_in_json(repeated):
    machine, run = repeated(curve("train/loss", 20, 1.25), curve("val/accuracy", 60, 0.25))
    found = machine.json("verify", run, code=3)
    assert (found["verdict"], found["exact"], found["values"], found["differing"]) == ("different", True, 6, 2)
    first = {"metric": "train/loss", "step": 20, "recorded": 1.0, "repeated": 1.25}
    assert found["first_difference"] == found["beyond_tolerance"] == first


def test_values_that_are_missing_or_too_many_are_differences(repeated):
    machine, run = repeated(curve("train/loss", 20, None))
    assert "at step 20: 1.0 in the run, no value in the rep" in machine.run("verify", run, code=3).stdout
    repeated(curve("train/loss", 25, 0.5))
    assert "at step 25: no value in the run, 0.5 in the repetition" in machine.run("verify", run, code=3).stdout
    # what an older version did not record, and what belongs to the machine, is no difference
    repeated(curve("new/metric", 1, 1.0), curve("machine/x", 1, 2.0))
    assert "are equal bit for bit" in verdict(machine, run)


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ((), 0, "are equal bit for bit"),
        ((curve("train/loss", 10, 2.0 * 1.0009),), 0, "verified within the tolerance: 1 of 6 values"),
        ((curve("train/loss", 10, 2.0 * 1.0011),), 3, "not verified: 1 of 6 values"),
        ((ending(result={"test/accuracy": SCORE + 0.0499}),), 0, "verified within the tolerance: 1 of 6 values"),
        ((ending(result={"test/accuracy": SCORE + 0.0501}),), 3, "not verified: 1 of 6 values"),
    ],
)
def test_on_another_machine_the_beginning_and_the_scores_are_compared_within_the_tolerance(
    repeated, changes: tuple[Change, ...], code: int, said: str
):
    assert said in verdict(*repeated(OTHER, *changes), code)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"threads": 2}, "threads 1 then, 2 now"),
        ({"device": "NVIDIA H100", "platform": "gpu"}, "device cpu then, NVIDIA H100 now"),
        ({"platform": "gpu"}, "results on a gpu are not exact"),
        ({"versions": {"jax": "9.9"}}, "jax {jax} then, 9.9 now"),
        ({"numerics": 99}, f"numerics version {NUMERICS} then, 99 now"),
    ],
)
def test_each_difference_of_machines_is_a_reason(repeated, changes: dict[str, Any], reason: str):
    machine, run = repeated(attempt(**changes))
    found = machine.json("verify", run)
    assert not found["exact"]
    assert reason.format(jax=environment.record(1)["versions"]["jax"]) in found["reasons"]


@pytest.mark.parametrize(
    ("values", "differing", "expected"),
    [
        (1, 0, "verified: the only value is equal bit for bit"),
        (2, 0, "verified: all 2 values of 1 metric are equal bit for bit"),
        (2, 1, "not verified: 1 of 2 values of 1 metric differs"),
        (3, 2, "not verified: 2 of 3 values of 1 metric differ"),
    ],
)
def test_the_verdict_counts_values_in_plain_english(values: int, differing: int, expected: str, capsys):
    recorded = Recorded(run=make_run("1", "a", 0, 0.5), attempts=(), curves={})
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


# Refused


def test_unknown_and_unfinished_runs_are_refused(recorded, machine, monkeypatch):
    ledger, run = recorded
    assert "no run 'zz' in this ledger" in ledger.refused("verify", "zz", code=4)
    assert "there is no ledger at " in machine.refused("verify", "aa", code=4)
    found = verify._recorded
    for state, hint in (
        ("interrupted", "finish it first: lrurun resume"),
        ("running", "wait for its end: lrurun status --watch"),
        ("failed", f"its error: lrurun show {run}"),
    ):
        monkeypatch.setattr(verify, "_recorded", lambda *words, s=state: ending(state=s, step=30)(found(*words)))
        said = ledger.refused("verify", run, code=1)
        assert f"run {run} is {state}, at step 30 of 60: only finished runs" in said
        assert f"hint: {hint}\n" in said


def test_a_run_whose_data_are_missing_or_others_is_refused(data, tmp_path, repeated):
    machine, run = repeated()
    folder, option = tmp_path / "data", ("--data-dir", str(tmp_path / "data"))
    said = machine.refused("verify", run, *option, code=1)
    assert (
        f"run {run} was trained on data {data[1][:19]}, which are not in {folder}\nhint: run: lrurun data prep" in said
    )
    shutil.copytree(data[0], folder / "sDigits-mine")
    assert "are equal bit for bit" in verdict(machine, run, 0, *option)  # whatever the folder's name
    manifest = folder / "sDigits-mine/manifest.json"
    table = json.loads(manifest.read_text())
    table["sha256"]["test-labels"] = "0" * 64
    manifest.write_text(json.dumps(table))
    said = machine.refused("verify", run, *option, code=1)
    assert f"was trained on data {data[1][:19]}, {folder}/sDigits-mine has sha256:" in said


# Trained again


@pytest.mark.slow
def test_a_run_is_verified_bit_for_bit_and_nothing_is_left_or_changed(finished, temporary):
    before = digests(finished.folder)
    run = run_of(finished, "gamma-norm")
    done = finished.run("verify", run)
    said = f"run {run} (sDigits, gamma-norm, seed 0): verified: all 25 values of 8 metrics are equal bit for bit\n"
    assert done.stdout == said
    first, second, *_ = done.stderr.splitlines()
    assert re.fullmatch(rf"run {run} is trained again: 60 steps, about 0:\d\d at the speed of the run", first)
    assert second[9:] == f"gamma-norm seed 0 ({run}): running"
    assert digests(finished.folder) == before


@pytest.mark.slow
def test_a_diverged_run_is_verified_if_it_diverges_at_the_same_step(machine, temporary):
    values = ("optim.lr=10", "optim.recurrent_factor=10", "model.norm=layer", "train.steps=40", "train.eval_every=40")
    machine.run(*SMOKE, "--rung", "linear-rnn", *[word for value in values for word in ("--set", value)])
    found = machine.json("verify", run_of(machine, "linear-rnn"))
    assert found["verdict"] == "equal"
    assert found["recorded"]["state"] == found["repeated"]["state"] == "diverged"
    assert found["recorded"]["step"] == found["repeated"]["step"] < 40


@pytest.mark.rare
def test_tuning_runs_and_runs_with_more_threads_are_verified_and_packed_ones_within_the_tolerance(machine, temporary):
    machine.run(*SMOKE, "--rung", "diagonal", "--tune", "--set", "execution.threads=2")
    for stage in ("tune", "train"):
        run = machine.json("runs", "--where", f"stage={stage}")["runs"][0]
        assert "are equal bit for bit" in machine.run("verify", run["id"]).stdout
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
    said = machine.refused("verify", run, code=1, apart=True)
    assert f"run {run}: its recurrence 'averages' comes from a file" in said
    assert said.endswith("hint: name the file: --load FILE.py\n")
    assert "are equal bit for bit" in machine.run("verify", run, "--load", "elsewhere.py", apart=True).stdout


@pytest.mark.slow
def test_after_an_interrupt_nothing_is_left(finished, temporary):
    before = digests(finished.folder)
    process = finished.start("verify", run_of(finished, "gamma-norm"), env={"TMPDIR": str(temporary)})
    wait_for(lambda: workers_of(process))
    stop(process, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "stopped by ^C; nothing of the repetition remains"
    assert digests(finished.folder) == before


@pytest.mark.slow
def test_a_repetition_that_does_not_finish_is_an_error_with_its_reason(finished, tmp_path, temporary):
    run = run_of(finished, "gamma-norm")
    lines = finished.run("verify", run, code=1, env={"XLA_FLAGS": "--xla_no_such_flag=1"}).stderr.splitlines()
    assert lines[-2].startswith(f"error: run {run} was done, its repetition did not finish: a worker ended with ")
    assert lines[-1] == "hint: lrurun doctor shows what this machine has"
    shutil.copytree(SHARED / "share/lrurun/sDigits", tmp_path / "data/sDigits")
    array = tmp_path / "data/sDigits/test-labels.npy"
    array.write_bytes(array.read_bytes()[:-1] + b"\x0b")
    error = finished.run("verify", run, "--data-dir", str(tmp_path / "data"), code=1).stderr
    assert error.splitlines()[-2] == f"error: {array}: its digest is not that in the manifest"
