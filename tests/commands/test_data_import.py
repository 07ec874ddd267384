"""`lrurun data import`: a task of one's own arrays, without Python."""

from __future__ import annotations

import json
import shutil
import signal
import tomllib
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

from lrurun import paths
from lrurun.config import planning
from lrurun.data import task_data
from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine, small_files, stop, wait_for
from tests.harness.shared import once

N, STEPS = 120, 12
OWN = ("--inputs", "X.npy", "--labels", "Y.npy", "--data-dir", "d")
PLAIN = (*OWN, "--no-stratify")
TRAINING = ("--profile", "smoke", "--rung", "gamma-norm", "--data-dir", "d")


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """Walks of three features, and labels of each form about them."""
    random = np.random.RandomState(seed)
    x = random.normal(1.0, 2.0, (N, STEPS, 3)).cumsum(axis=1)
    ends = random.randint(4, STEPS + 1, N)
    ends[0] = STEPS
    ids = np.where(np.arange(STEPS) < ends[:, None], random.randint(1, 6, (N, STEPS)), 0)
    above = (x[..., 0] > x[..., 1]).astype(np.int64)
    return {
        "X": x,
        "Y": above[:, -1] + (x[:, -1, 2] > 12),
        "real": np.stack([x[..., 0].mean(axis=1), 100 * x[:, -1, 1] + 1000], axis=1),
        "above": np.where(np.arange(STEPS) % 3 == 0, above, -1),
        "sums": np.where(np.arange(STEPS)[:, None] < 4, np.nan, x[..., :1].cumsum(axis=1)),
        "ids": ids,
        "ends": ends,
    }


@pytest.fixture
def own(machine: Machine) -> Machine:
    """A folder with these arrays."""
    save(machine, **arrays())
    return machine


def _import(folder: Path) -> None:
    machine = Machine(folder)
    save(machine, **arrays())
    machine.run("data", "import", "wells", *OWN)


@pytest.fixture
def imported(tmp_path: Path) -> Machine:
    """The same, and wells was imported from `OWN`."""
    made = once("imported", _import)
    return Machine(shutil.copytree(made, tmp_path / "here", copy_function=shutil.copy2))


def save(machine: Machine, **named: Any) -> None:
    for name, array in named.items():
        np.save(machine.folder / f"{name}.npy", array)


def recipe(machine: Machine, name: str = "wells") -> dict[str, Any]:
    return tomllib.loads((machine.folder / "recipes" / f"{name}.toml").read_text())


def prepared(machine: Machine, split: str, part: str = "labels", name: str = "wells") -> np.ndarray:
    found: np.ndarray = np.load(machine.folder / "d" / name / f"{split}-{part}.npy")
    return found


def warnings(done: CompletedProcess[str]) -> list[str]:
    """Its warnings but the one of few test items, which all these arrays get."""
    return [line for line in done.stderr.splitlines() if "warning" in line and " test items" not in line]


def left(machine: Machine) -> set[str]:
    """All paths but the arrays."""
    found = {str(path.relative_to(machine.folder)) for path in machine.folder.rglob("*")}
    return {name for name in found if "/" in name or not name.endswith((".npy", ".npz"))}


def order() -> dict[str, np.ndarray]:
    """The documented split of `N` examples with --no-stratify, seed 0 and a tenth for each."""
    permutation = np.random.RandomState(0).permutation(N)
    tenth = N // 10
    parts = {
        "test": permutation[:tenth],
        "validation": permutation[tenth : 2 * tenth],
        "train": permutation[2 * tenth :],
    }
    return {split: np.sort(index) for split, index in parts.items()}


def test_arrays_become_a_recipe_and_prepared_data_in_the_documented_split(own):
    done = own.run("data", "import", "wells", *PLAIN)
    assert "lrurun ladder wells" in done.stdout
    facts, given = recipe(own)["data"], arrays()
    for split, index in order().items():
        assert np.array_equal(prepared(own, split), given["Y"][index])
        assert np.array_equal(prepared(own, split, "inputs"), given["X"][index].astype(np.float32))
        assert facts[split] == len(index)
    train = given["X"][order()["train"]].reshape(-1, 3)
    np.testing.assert_allclose(facts["mean"], train.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(facts["std"], train.std(axis=0), rtol=1e-5)
    checked = own.json("data", "check", "wells", "--data-dir", "d")
    assert (checked["kind"], checked["sha256"]) == ("imported", facts["imported"])
    manifest = json.loads((own.folder / "d/wells/manifest.json").read_text())
    assert manifest["generator"] == {
        "permutation": "numpy.random.RandomState",
        "validation": 0.1,
        "test": 0.1,
        "seed": 0,
        "stratify": False,
    }
    assert "mean = [" in own.run("data", "info", "wells", "--data-dir", "d").stdout


OLD = {
    ("X", "Y", "--seed", "0", "--test", "0.15"): "be0921462f79d5cadd4bb37a3fd9ee9c65a1da1bdcfbd8b7b57f060a0b22bb4c",
    ("X", "Y", "--seed", "7", "--test", "0.15"): "6f72faeebc695355aeb0abe22930b2d6deecd57e8b226e28808bd4947832cea6",
    ("X", "above"): "55b22c2365d03bcc846ab35d30e3f539690a85baee9cbabed701265bd049ba78",
    ("X", "real"): "668d7d28a909bc195f4292407852d1eda07227ce8568c96ea46c83400a36369c",
    ("ids", "Y", "--tokens", "--test-inputs", "ids.npy", "--test-labels", "Y.npy"): (
        "29f5fc475385864bc12fca70a29947a8b35da071b89bd4ce60333c50c314af04"
    ),
    ("X", "Y"): "50b03f05e4b81764de8e1d609dd198e4197da3e9082d20ce88c7b3da1adb89e5",
}
"""Inputs, labels and options -> the digest that lrurun 1.0.0 gave their import."""


def test_without_strata_the_data_are_those_of_1_0(own):
    for number, ((inputs, labels, *more), digest) in enumerate(OLD.items()):
        files = ("--inputs", f"{inputs}.npy", "--labels", f"{labels}.npy", "--data-dir", "d")
        own.run("data", "import", f"wells{number}", *files, *more, "--no-stratify")
        assert recipe(own, f"wells{number}")["data"]["imported"] == f"sha256:{digest}"


def test_the_split_has_the_classes_in_proportion_and_is_printed(own):
    rare = np.repeat([0, 1, 2, 3, 4], [70, 30, 12, 6, 2])
    save(own, Y=np.random.RandomState(1).permutation(rare))
    done = own.run("data", "import", "wells", *OWN, "--test", "0.2")
    shares = {split: np.bincount(prepared(own, split), minlength=5).tolist() for split in order()}
    assert shares == {"test": [15, 6, 2, 1, 0], "validation": [7, 3, 1, 1, 0], "train": [48, 21, 9, 4, 2]}
    inputs = np.concatenate([prepared(own, split, "inputs") for split in order()])
    assert np.array_equal(np.unique(inputs, axis=0), np.unique(arrays()["X"].astype(np.float32), axis=0))
    assert (
        "split: by a permutation of seed 0, with the classes in proportion; "
        "examples of each class, at least: train 2, validation 0, test 0\n"
    ) in done.stdout
    assert (
        "wells: imported arrays, 5 classes; 12 steps of 3 features; train 84, validation 12, test 24\n" in done.stdout
    )
    assert "validation has no label of class 4" in done.stderr
    assert json.loads((own.folder / "d/wells/manifest.json").read_text())["generator"]["stratify"] is True
    assert "with the classes in proportion" in own.run("data", "info", "wells", "--data-dir", "d").stdout


def test_of_a_separate_test_split_only_validation_is_divided(own):
    tests = ("--test-inputs", "X.npy", "--test-labels", "Y.npy")
    done = own.run("data", "import", "wells", *OWN, *tests, "--validation", "0.2")
    assert np.array_equal(prepared(own, "test"), arrays()["Y"])
    classes = np.bincount(arrays()["Y"])
    assert np.bincount(prepared(own, "validation")).tolist() == np.round(classes * 0.2).tolist()
    assert (
        "warning: 120 test items: the choice of items alone moves an accuracy near 50 % by ± 4.6 points" in done.stderr
    )
    assert "--test SHARE" not in done.stderr


@pytest.mark.parametrize("remains", ["data and recipe", "data", "recipe"])
def test_what_was_imported_without_strata_keeps_its_split(own, remains):
    """The same command as before, on the same machine, with another file for the recipe, and where data are missing."""
    own.run("data", "import", "wells", *PLAIN)
    before = recipe(own)["data"]
    manifest = own.folder / "d/wells/manifest.json"
    document = json.loads(manifest.read_text())
    del document["generator"]["stratify"]  # as by 1.0.0
    manifest.write_text(json.dumps(document))
    if remains == "data":
        (own.folder / "recipes/wells.toml").unlink()
    if remains == "recipe":
        shutil.rmtree(own.folder / "d")
    done = own.run("data", "import", "wells", *OWN)
    assert recipe(own)["data"] == before
    assert np.array_equal(prepared(own, "test"), arrays()["Y"][order()["test"]])
    assert "split: by a permutation of seed 0; " in done.stdout
    assert "the split is the one that was there already, without classes in proportion" in done.stderr
    assert "was not changed" in own.run("data", "import", "wells", *OWN, "--stratify", code=1).stderr
    own.run("data", "import", "others", *OWN)
    assert recipe(own, "others")["data"] != before


def test_groups_are_in_one_split_and_those_of_test_items_are_kept(own):
    speakers = np.array([f"speaker {k}" for k in np.random.RandomState(2).randint(0, 30, N)])
    x = arrays()["X"]
    x[:, 0, 0] = np.unique(speakers, return_inverse=True)[1]
    save(own, X=x, G=speakers)
    done = own.run("data", "import", "wells", *OWN, "--groups", "G.npy", "--validation", "0.2", "--test", "0.3")
    found = {split: prepared(own, split, "inputs")[:, 0, 0].astype(int) for split in order()}
    assert sum(len(set(groups.tolist())) for groups in found.values()) == len(np.unique(speakers))
    assert abs(len(found["test"]) - 36) <= 4
    assert np.array_equal(prepared(own, "test", "groups"), np.unique(found["test"], return_inverse=True)[1])
    count = len(np.unique(found["test"]))
    assert recipe(own)["data"]["groups"] == count
    plan = planning.make(str(own.folder / "recipes/wells.toml"))
    data = task_data.load(plan.task, plan.options, own.folder / "d/wells")
    assert np.array_equal(data.test.groups, prepared(own, "test", "groups"))
    assert (data.train.groups, data.validation.groups) == (None, None)
    groups = f"{len(np.unique(speakers))} groups of seed 0, each in one split; the test items are of {count} groups; "
    assert groups in done.stdout
    few = f"warning: {len(found['test'])} test items in {count} groups: the choice of items alone moves an accuracy"
    checked = own.run("data", "check", "wells", "--data-dir", "d")
    assert few in done.stderr
    assert few in checked.stderr
    assert own.json("data", "check", "wells", "--data-dir", "d")["splits"]["test"]["groups"] == count
    [row] = [line.split() for line in checked.stdout.splitlines() if line.startswith("test ")]
    assert row[1:3] == [str(len(found["test"])), str(count)]
    assert json.loads((own.folder / "d/wells/manifest.json").read_text())["generator"]["groups"] == 30


def test_groups_of_a_separate_test_split(own):
    save(own, G=np.arange(N) // 4, T=np.arange(N) // 4 + 28)
    tests = ("--test-inputs", "X.npy", "--test-labels", "Y.npy", "--test-groups", "T.npy")
    done = own.run("data", "import", "wells", *OWN, *tests, "--groups", "G.npy")
    assert prepared(own, "test", "groups").tolist() == (np.arange(N) // 4).tolist()
    assert "warning: 2 of the 30 groups of the test items are groups of the other examples too" in done.stderr
    assert len(prepared(own, "validation")) == 12
    own.run("data", "import", "others", *OWN, *tests)  # where only the test set has known groups
    assert recipe(own, "others")["data"]["groups"] == 30


def test_few_test_items_get_a_warning_here_and_in_plans(own):
    few = "12 test items: the choice of items alone moves an accuracy near 50 % by ± 14.4 points, near 90 % by ± 8.7"
    few += " points"
    said = own.run("data", "import", "wells", *OWN).stderr
    assert f"warning: {few}; --test SHARE changes how many there are\n" in said
    assert f"\n{few}.\n" in own.run("plan", "wells", "--data-dir", "d").stdout
    assert few in own.json("plan", "wells", "--data-dir", "d")["notes"]
    assert "test items" not in own.run("plan", "wells", "--profile", "smoke", "--data-dir", "d").stdout
    save(own, X=np.zeros((5000, 3)) + np.arange(5000)[:, None], Y=np.arange(5000) % 2)
    assert "test items" not in own.run("data", "import", "many", *OWN).stderr
    assert "test items" not in own.run("plan", "many", "--data-dir", "d").stdout
    assert "499 test items: " in own.run("data", "import", "fewer", *OWN, "--test", "0.0998").stderr


PACKAGED = paths.names("ablations")
KINDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a class": ("X", "Y", ()),
    "a class of one feature": ("flat", "Y", ()),
    "a class of pixels": ("pixels", "Y", ()),
    "a class of ids": ("ids", "Y", ("--tokens",)),
    "a class of parts": ("X", "Y", ("--lengths", "ends.npy")),
    "a class of one step": ("step", "Y", ()),
    "a class of a long sequence": ("long", "Y", ()),
    "one of many classes": ("X", "Y", ("--classes", "5000")),
    "classes at positions": ("X", "above", ()),
    "ids at positions": ("full", "next", ("--tokens",)),
    "classes at the last positions": ("X", "last", ()),
    "a value": ("X", "value", ()),
    "values": ("X", "real", ()),
    "values at positions": ("X", "sums", ()),
    "a test split of its own": ("X", "Y", ("--test-inputs", "X.npy", "--test-labels", "Y.npy")),
    "one example": ("few", "classes", ("--validation", "0.34", "--test", "0.34", "--classes", "2")),
}
"""What is predicted: inputs, labels and options."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_recipe_of_each_kind_of_arrays_has_what_all_packaged_ladders_expect(own, kind):
    given, (inputs, labels, options) = arrays(), KINDS[kind]
    save(own, flat=given["X"][..., 0], pixels=given["ids"].astype(np.uint8), step=given["X"][:, :1])
    save(own, long=given["X"].reshape(N, -1).repeat(200, axis=1), value=given["real"][:, 0], last=given["above"][:, 6:])
    save(own, full=given["ids"] + 1, next=np.roll(given["ids"], -1, 1), few=given["X"][:3], classes=given["Y"][:3] % 2)
    files = ("--inputs", f"{inputs}.npy", "--labels", f"{labels}.npy", "--data-dir", "d")
    own.run("data", "import", "wells", *files, *options)
    ladders = [word for ladder in PACKAGED for word in ("--ladder", ladder)]
    shown = own.run("check", "recipe", "wells", *ladders).stdout
    assert "FAILED" not in shown
    assert own.run("check", "recipe", "wells").stdout.count("ok ") == 3


@pytest.mark.parametrize("ladder", PACKAGED)
def test_every_packaged_ladder_can_be_planned_and_tuned(imported, ladder):
    for profile in ((), ("--profile", "smoke")):
        imported.run("plan", "wells", "--ladder", ladder, *profile, "--tune")


def test_the_recipe_has_states_for_ladders_that_compare_their_number(own):
    save(own, long=arrays()["X"].reshape(N, -1).repeat(3, axis=1), longer=np.zeros((N, 2000), np.uint8))
    for inputs, many in (("X", 64), ("long", 108), ("longer", 256)):
        own.run("data", "import", inputs, "--inputs", f"{inputs}.npy", *OWN[2:])
        rungs = recipe(own, inputs)["ladder"]["states"]["rung"]
        found = [rungs[rung]["model"]["state"] for rung in ("dlr", "few-states")]
        assert found == [many, many // 8]


def test_what_may_be_meant_otherwise_gets_a_warning(own):
    given = arrays()
    save(own, Y=given["Y"].astype(float), ids=given["ids"], whole=given["ids"].astype(float))
    said = own.run("data", "import", "wells", *OWN).stderr
    assert "the labels are real numbers: a regression, scored by R²; classes are whole numbers" in said
    assert "warning: --labels Y.npy: labels are 3 different whole numbers, but saved as real numbers" in said
    assert "Classes must be saved as integers: labels.astype(int)" in said
    assert "--inputs" not in said
    assert recipe(own)["data"]["loss"] == "squared-error"
    save(own, Y=given["Y"], real=given["real"])
    for name, inputs, end in (
        ("a", "ids", "need --tokens"),
        ("b", "whole", "saved as integers: inputs.astype(int)"),
    ):
        files = ("--inputs", f"{inputs}.npy", "--labels", "Y.npy", "--data-dir", "d")
        [said] = warnings(own.run("data", "import", name, *files))
        assert f"warning: --inputs {inputs}.npy: inputs are whole numbers, and imported as measurements" in said
        assert said.endswith(end)
    for name, more in (("c", ("--inputs", "ids.npy", "--tokens")), ("d", ("--inputs", "X.npy"))):
        labels = "Y.npy" if name == "c" else "real.npy"
        assert not warnings(own.run("data", "import", name, *more, "--labels", labels, "--data-dir", "d"))


@pytest.mark.parametrize(
    ("shape", "labels", "more", "warned"),
    [
        ((9, 128), (), (), True),
        ((1, 300), (), (), True),
        ((4, 16), (), (), True),
        ((4, 15), (), (), False),
        ((40, 2), (), (), False),
        ((9, 128), (8,), (), True),  # labels of the last positions may be of either
        ((9, 128), (9,), (), False),  # the labels have as many positions
        ((9, 128), (), ("--lengths", "L.npy"), False),  # the lengths are at most as many
    ],
)
def test_few_steps_of_many_features_get_a_warning(own, shape, labels, more, warned):
    save(own, X=np.random.RandomState(0).normal(size=(N, *shape)), L=np.full(N, 9))
    save(own, Y=np.arange(N * (labels or (1,))[0]).reshape(N, *labels) % 2)
    steps, features = shape
    assert warnings(own.run("data", "import", "wells", *OWN, *more)) == warned * [
        f"warning: --inputs X.npy: inputs of shape ({N}, {steps}, {features}) are imported as {steps} "
        f"step{'s' * (steps > 1)} of {features} features. Should they be {features} steps of {steps} "
        f"feature{'s' * (steps > 1)}, they must be saved with the steps first: inputs.swapaxes(1, 2)"
    ]
    facts = recipe(own)["data"]
    assert (facts["length"], facts["features"]) == shape


@pytest.mark.parametrize(
    ("shape", "dtype", "imported"),
    [
        ((), int, "classes 0 and 1 at 3 positions"),
        ((), bool, "classes 0 and 1 at 3 positions"),
        ((), float, "3 real values, and scored by R²"),
        ((4,), float, "3 real values, and scored by R²"),
    ],
)
def test_one_hot_labels_get_a_warning(own, shape, dtype, imported):
    """Once, and with the way to save their classes; rows with two ones are labels of their own."""
    classes = np.random.default_rng(0).integers(0, 3, (N, *shape))
    rows = np.eye(3)[classes]
    if shape:
        rows[0, 0] = np.nan
    save(own, Y=rows.astype(dtype))
    assert warnings(own.run("data", "import", "wells", *OWN)) == [
        "warning: --labels Y.npy: labels have a single 1 in every row, as one-hot rows of classes: they are imported "
        f"as {imported}. Classes must be saved as their numbers: labels.argmax(axis=-1)"
    ]
    rows[-1] = 1
    save(own, Y=rows.astype(dtype))
    assert "one-hot" not in own.run("data", "import", "others", *OWN).stderr


def test_inputs_that_say_nothing_and_classes_that_a_split_lacks_get_a_warning(own):
    x, rare = arrays()["X"], np.arange(N) % 2
    rare[5] = 2
    x[..., 1] = 4.0
    save(own, X=x, Y=rare, same=np.ones((N, STEPS)))
    done = own.run("data", "import", "wells", *OWN)
    assert len(warnings(done)) == 3
    said = done.stderr
    assert "validation has no label of class 2" in said
    assert "warning: --inputs X.npy: feature 1 is the same number everywhere" in said
    assert "warning: test has no label of class 2" in own.run("data", "check", "wells", "--data-dir", "d").stderr
    done = own.run("data", "import", "same", "--inputs", "same.npy", *OWN[2:])
    assert "warning: --inputs same.npy: all examples have the same inputs: nothing can be learned" in done.stderr
    assert "12 steps of 1 feature;" in done.stdout


def test_the_same_arrays_again_change_nothing_and_others_are_refused(imported):
    written = imported.folder / "recipes/wells.toml"
    written.write_text(written.read_text().replace("depth = 2", "depth = 3", 1))
    before = {path: path.stat().st_mtime_ns for path in imported.folder.rglob("*")}
    again = imported.run("data", "import", "wells", *OWN)
    assert "d/wells and recipes/wells.toml were there already, and not changed\n" in again.stderr
    save(imported, other=arrays(1)["X"])
    for other in (
        (*OWN, "--seed", "1"),
        (*OWN, "--test", "0.2"),
        ("--inputs", "other.npy", "--labels", "Y.npy", "--data-dir", "d"),
    ):
        assert "was not changed" in imported.run("data", "import", "wells", *other, code=1).stderr
        elsewhere = imported.run("data", "import", "wells", *other, "--recipe", "other.toml", code=1)
        assert "d/wells: exists, but does not have these arrays" in elsewhere.stderr
        refused = imported.run("data", "import", "wells", *other, "--data-dir", "e", code=1)
        assert "wells.toml: exists, and is a recipe of other arrays" in refused.stderr
    (imported.folder / "other.npy").unlink()
    assert {path: path.stat().st_mtime_ns for path in imported.folder.rglob("*")} == {
        path: at if path != imported.folder else imported.folder.stat().st_mtime_ns for path, at in before.items()
    }


def test_other_arrays_give_other_runs(own, monkeypatch):
    save(own, Z=1 - np.minimum(arrays()["Y"], 1))
    own.run("data", "import", "wells", *PLAIN)
    others = ("--labels", "Z.npy", "--classes", "3", "--data-dir", "e", "--recipe", "z.toml")
    own.run("data", "import", "wells", "--inputs", "X.npy", "--no-stratify", *others)
    monkeypatch.chdir(own.folder)
    plans = [planning.make(name) for name in ("wells", "z.toml")]
    fingerprints = {planning.final_runs(plan, plan.rungs[0], [0])[0].fingerprint for plan in plans}
    assert len(fingerprints) == 2
    tables = [dict(plan.rungs[0].config.data) for plan in plans]
    assert [tables[0].pop(key) != tables[1].pop(key) for key in ("imported", "version")] == [True, True]
    assert tables[0] == tables[1]  # only the digest differs


def test_real_values_are_standardised_by_what_the_recipe_records(own):
    own.run("data", "import", "wells", "--inputs", "X.npy", "--labels", "real.npy", "--data-dir", "d")
    facts = recipe(own)["data"]
    assert (facts["loss"], facts["classes"]) == ("squared-error", 2)
    stored = prepared(own, "test")
    np.testing.assert_allclose(prepared(own, "train").mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(prepared(own, "train").std(axis=0), 1, atol=1e-4)
    back = stored * np.array(facts["label_std"]) + np.array(facts["label_mean"])
    np.testing.assert_allclose(back, arrays()["real"][order()["test"]], rtol=1e-4, atol=1e-3)


def test_labels_at_positions_and_a_test_split_of_its_own(own):
    save(own, **{f"T{name}": array[:15] for name, array in arrays(1).items()})
    tests = ("--test-inputs", "TX.npy", "--test-labels", "Tabove.npy")
    own.run("data", "import", "wells", "--inputs", "X.npy", "--labels", "above.npy", *tests, "--data-dir", "d")
    facts = recipe(own)["data"]
    assert (facts["at"], facts["labelled"], facts["classes"]) == ("positions", 4, 2)
    assert [facts[split] for split in ("train", "validation", "test")] == [N - N // 10, N // 10, 15]
    assert np.array_equal(prepared(own, "test"), arrays(1)["above"][:15])


def test_ids_end_where_only_padding_follows(own):
    own.run("data", "import", "wells", "--tokens", "--inputs", "ids.npy", *PLAIN[2:])
    facts = recipe(own)["data"]
    assert (facts["kind"], facts["features"], "mean" in facts) == ("tokens", 6, False)
    for split, index in order().items():
        assert np.array_equal(prepared(own, split, "lengths"), arrays()["ends"][index])
    first = (own.folder / "recipes/wells.toml").read_bytes()
    shutil.rmtree(own.folder / "d")
    own.run("data", "import", "wells", "--tokens", "--inputs", "ids.npy", *OWN[2:], "--lengths", "ends.npy")
    assert (own.folder / "recipes/wells.toml").read_bytes() == first


def test_statistics_leave_padding_out(own):
    x = arrays()["X"]
    x[np.arange(STEPS) >= arrays()["ends"][:, None]] = 1e6
    save(own, X=x)
    own.run("data", "import", "wells", *OWN, "--lengths", "ends.npy")
    assert max(recipe(own)["data"]["mean"]) < 100


def test_without_the_data_commands_say_how_to_get_them(imported):
    imported.run("data", "import", "others", *OWN, "--seed", "3")
    shutil.move(imported.folder / "d/wells", imported.folder / "wells")
    before = left(imported)
    for words in (("ladder", "wells", *TRAINING), ("data", "check", "wells"), ("data", "prepare", "wells")):
        error = imported.run(*words, *(() if "--data-dir" in words else ("--data-dir", "d")), code=1).stderr
        assert "d/wells: there are no prepared data for wells" in error
        assert "hint: import the same arrays again: lrurun data import wells" in error
    assert left(imported) == before
    planned = imported.run("plan", "wells", "--data-dir", "d").stdout
    assert "The data of wells are not in d/wells, and must come from you: import the same arrays" in planned
    imported.run("data", "import", "wells", *OWN)
    error = imported.run("data", "prepare", "wells", "--force", "--data-dir", "d", code=1).stderr
    assert "error: --force: wells has imported arrays, which nothing makes\nhint: import the same" in error
    shutil.rmtree(imported.folder / "d/wells")
    shutil.copytree(imported.folder / "d/others", imported.folder / "d/wells")
    error = imported.run("ladder", "wells", *TRAINING, code=1).stderr
    assert "d/wells: expected wells version sha256:" in error
    assert "import the same arrays again" in error


def test_a_changed_array_is_found(imported):
    labels = imported.folder / "d/wells/train-labels.npy"
    content = bytearray(labels.read_bytes())
    content[-1] ^= 1
    labels.write_bytes(content)
    error = imported.run("data", "check", "wells", "--data-dir", "d", code=1).stderr
    assert "import the same arrays again" in error


def with_nan(array: np.ndarray, value: float = np.nan) -> np.ndarray:
    array[7, 3] = value
    return array


A = arrays()
WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...], int, str]] = {
    "too few labels": ({"Y": A["Y"][:-1]}, (), 1, "expected 120 examples, as many as inputs, found 119"),
    "text": ({"Y": A["Y"].astype(str)}, (), 1, "--labels Y.npy: expected numbers, found <U"),
    "complex": ({"X": A["X"] * 1j}, (), 1, "--inputs X.npy: expected numbers, found complex128"),
    "objects": ({"Y": A["Y"].astype(object)}, (), 1, "--labels Y.npy: has Python objects, which are not read"),
    "records": (
        {"X": np.zeros(N, [("a", "f4")])},
        (),
        1,
        "X.npy: expected numbers, found records of the type [('a'",
    ),
    "NaN": ({"X": with_nan(arrays()["X"])}, (), 1, "--inputs X.npy: example 7 has nan, which is not a finite number"),
    "infinity": ({"X": with_nan(arrays()["X"], -np.inf)}, (), 1, "example 7 has -inf"),
    "beyond float32": ({"X": with_nan(arrays()["X"], 1e300)}, (), 1, "example 7 has 1e+300"),
    "NaN as a value": ({"Y": A["sums"][:, 0]}, (), 1, "--labels Y.npy: example 0 has nan"),
    "half a label": ({"Y": np.where([True, False], A["sums"], 1.0)}, (), 1, "where only some values are NaN"),
    "no label": ({"Y": np.full((N, 5), -1)}, (), 1, "--labels Y.npy: example 0 has no label, all are -1"),
    "gaps": ({"Y": A["Y"] * 2}, (), 1, "every class from 0 to 4, class 1 does not occur"),
    "from 1": ({"Y": A["Y"] + 1}, (), 1, "every class from 0 to 3, class 0 does not occur"),
    "negative": ({"Y": A["Y"] - 1}, (), 1, "expected classes from 0 to 999999, found -1 to 1"),
    "one class": ({"Y": A["Y"] * 0}, (), 1, "all labels are class 0: there is nothing to learn"),
    "one value": ({"Y": A["real"] * [0, 1]}, (), 1, "value 0 is the same in all of the training split"),
    "classes of values": ({"Y": A["real"]}, ("--classes", "3"), 1, "real values have no classes"),
    "more classes": ({}, ("--classes", "2"), 1, "--labels Y.npy: has class 2, --classes 2 ends at 1"),
    "a column": ({"Y": A["Y"][:, None]}, (), 1, "hint: one class for each sequence: labels[:, 0]"),
    "examples second": (
        {"X": A["X"].swapaxes(0, 1)},
        (),
        1,
        "if they are axis 1 of the inputs, save inputs.swapaxes(0, 1)",
    ),
    "examples third": ({"X": A["X"].T}, (), 1, "if they are axis 2 of the inputs, save inputs.swapaxes(0, 2)"),
    "steps third": (
        {"X": A["X"].swapaxes(1, 2), "Y": A["above"]},
        (),
        1,
        "12 positions, the inputs have 3 steps\nhint: labels are those of the last positions: at most one a step; "
        "if the last axis of the inputs has the steps, save inputs.swapaxes(1, 2)",
    ),
    "lengths of steps that are third": (
        {"X": A["X"].swapaxes(1, 2)},
        ("--lengths", "ends.npy"),
        1,
        "padding follows them; if the last axis of the inputs has the steps, save inputs.swapaxes(1, 2)",
    ),
    "more positions": ({"Y": np.hstack([A["above"]] * 2)}, (), 1, "24 positions, the inputs have 12 steps"),
    "lengths of 0": ({"L": A["ends"] * 0}, ("--lengths", "L.npy"), 1, "expected lengths from 1 to 12, the steps"),
    "longer": ({"L": A["ends"] + 1}, ("--lengths", "L.npy"), 1, "of the inputs, found 5 to 13"),
    "real lengths": ({"L": A["ends"] / 2}, ("--lengths", "L.npy"), 1, "expected one whole number for each example"),
    "padding": ({"Y": A["above"] * 0}, ("--lengths", "ends.npy"), 1, "has a label beyond its length"),
    "tokens": ({}, ("--tokens",), 1, "--inputs X.npy: expected (examples, steps) ids, found the shape (120, 12, 3)"),
    "real tokens": (
        {"X": A["X"][..., 0]},
        ("--tokens",),
        1,
        "expected whole numbers, the ids of --tokens, found float64",
    ),
    "negative tokens": (
        {"X": A["ids"] - 1},
        ("--tokens",),
        1,
        "expected whole numbers from 0 to 1000000, found -1 to 4",
    ),
    "only padding": ({"X": A["ids"] * (A["Y"] != 1)[:, None]}, ("--tokens",), 1, "has only 0, which is padding"),
    "large": ({"X": A["ids"] + 2**40}, (), 1, "hint: save real numbers: array.astype('float32')"),
    "empty": ({"X": A["X"][:0], "Y": A["Y"][:0]}, (), 1, "--inputs X.npy: there are no examples: the array has the"),
    "a number": ({"Y": np.int64(3)}, (), 1, "expected 120 examples, as many as inputs, found a single number"),
    "few": ({"X": A["X"][:4], "Y": np.arange(4) % 2}, (), 1, "4 examples are too few: validation would have none"),
    "shares": ({}, ("--test", "0.6", "--validation", "0.4"), 1, "--validation 0.4 and --test 0.6: no examples remain"),
    "no share": ({}, ("--test", "0"), 1, "--test 0: the test split would have no examples"),
    "gap": ({"Z": A["Y"] + 7}, ("--test-inputs", "X.npy", "--test-labels", "Z.npy"), 1, "--test-labels Z.npy: "),
    "a share": ({}, ("--test", "1.5"), 2, "--test: expected a number of at most 1, found '1.5'"),
    "other test arrays": (
        {"Z": A["X"][:, :5]},
        ("--test-inputs", "Z.npy", "--test-labels", "Y.npy"),
        1,
        "--test-inputs Z.npy: expected float64 of shape (n, 12, 3), as for training, found float64 of shape (n, 5, 3)",
    ),
    "half a test": ({}, ("--test-inputs", "X.npy"), 2, "--test-inputs: belongs to --test-labels"),
    "two tests": (
        {},
        ("--test-inputs", "X.npy", "--test-labels", "Y.npy", "--test", "0.1"),
        2,
        "--test and --test-inputs exclude each other\nhint: the arrays of --test-inputs are the test split",
    ),
    "strata of values": (
        {"Y": A["real"]},
        ("--stratify",),
        1,
        "--stratify: --labels Y.npy: real values have no classes",
    ),
    "strata at positions": ({"Y": A["above"]}, ("--stratify",), 1, "has a class at each of its positions, not one"),
    "strata of groups": ({}, ("--stratify", "--groups", "ends.npy"), 1, "--stratify: the examples of a group stay"),
    "two groups": (
        {"G": A["Y"] // 2},
        ("--groups", "G.npy"),
        1,
        "--groups G.npy: 2 groups, of which each is in one split",
    ),
    "fewer groups": ({"G": A["Y"][1:]}, ("--groups", "G.npy"), 1, "G.npy: expected 120 examples, as many as inputs"),
    "real groups": (
        {"G": A["real"][:, 0]},
        ("--groups", "G.npy"),
        1,
        "whole number or text for each example, found float64",
    ),
    "groups at positions": ({}, ("--groups", "ids.npy"), 1, "text for each example, found int64 of shape (120, 12)"),
    "group objects": ({"G": A["Y"].astype(object)}, ("--groups", "G.npy"), 1, "FILE, array.astype(str))"),
    "no group file": ({}, ("--groups", "none.npy"), 1, "--groups none.npy: No such file or directory"),
    "groups without a test": ({}, ("--test-groups", "ends.npy"), 2, "--test-groups: belongs to --test-inputs"),
    "a test without groups": (
        {},
        ("--test-inputs", "X.npy", "--test-labels", "Y.npy", "--groups", "ends.npy"),
        2,
        "--groups: the test split has arrays of its own, and no groups\nhint: name them: --test-groups FILE",
    ),
    "groups of another type": (
        {"T": A["ends"].astype(str)},
        ("--test-inputs", "X.npy", "--test-labels", "Y.npy", "--groups", "ends.npy", "--test-groups", "T.npy"),
        1,
        "--test-groups T.npy: expected whole numbers, as for training, found text",
    ),
    "no recipe": ({}, ("--recipe", "mine.txt"), 2, "--recipe mine.txt: expected a .toml file"),
    "no folder": ({}, ("--recipe", "no/mine.toml"), 1, "there is no folder no"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arrays_leave_nothing_behind(own, case):
    changed, options, code, said = WRONG[case]
    save(own, **changed)
    errors = own.refused("-q", "data", "import", "wells", *OWN, *options, code=code)
    assert said in errors
    assert [line.partition(": ")[0] for line in errors.splitlines()] == ["error", "hint"]
    assert left(own) == set()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sCIFAR", "is taken by the data of task sCIFAR"),
        ("ListOps-smoke", "is taken by the data of task ListOps"),
        ("downloads", "is a folder of the data folder"),
        ("..", "cannot be the name of a task and its files"),
        ("mine.toml", "cannot be the name"),
        ("x" * 101, "at most 100 letters"),
    ],
)
def test_names_that_are_taken_or_no_file_names(own, name, said):
    assert said in own.refused("data", "import", name, *OWN)


def test_arrays_of_an_npz_file_are_named_by_their_option_or_a_key(imported):
    expected = recipe(imported)["data"]
    np.savez(imported.folder / "all.npz", inputs=A["X"], labels=A["Y"], other=A["ends"])
    np.savez_compressed(imported.folder / "X.npz", X=A["X"])
    forms = {"a": ("all.npz", "all.npz"), "b": ("X.npz", "Y.npy"), "c": ("all.npz:inputs", "all.npz:labels")}
    for name, (inputs, labels) in forms.items():
        imported.run("data", "import", name, "--inputs", inputs, "--labels", labels, "--data-dir", "d")
        assert recipe(imported, name)["data"] == expected


@pytest.mark.parametrize(
    ("option", "file", "said", "hint"),
    [
        ("--inputs", "two.npz", "has 2 arrays, none of them named 'inputs': x, y", "--inputs two.npz:x"),
        ("--labels", "two.npz:z", "two.npz: has no array 'z'", "arrays in it: x, y"),
        ("--inputs", "two.npz:xx", "two.npz: has no array 'xx'", "did you mean 'x'?"),
        ("--inputs", "none.npz", "none.npz: has no array 'inputs'", "there are no arrays in it"),
        ("--inputs", "objects.npz", "objects.npz: has Python objects, which are not read", "objects may run code"),
        ("--inputs", "cut.npz", "cut.npz: not an array of numbers", "numpy.save"),
    ],
)
def test_an_npz_file_without_the_array_lists_those_that_it_has(own, option, file, said, hint):
    np.savez(own.folder / "two.npz", x=A["X"], y=A["Y"])
    np.savez(own.folder / "none.npz")
    np.savez(own.folder / "objects.npz", np.array([{}], object))
    (own.folder / "cut.npz").write_bytes((own.folder / "two.npz").read_bytes()[:500])
    words = [file if before == option else word for before, word in zip(("", *OWN), OWN, strict=False)]
    error, after = own.refused("-q", "data", "import", "wells", *words, code=1).splitlines()
    assert error.startswith(f"error: {option} {file.partition(':')[0]}")
    assert said in error
    assert hint in after


def test_files_that_are_no_arrays(own):
    (own.folder / "text.npy").write_text("1 2 3")
    (own.folder / "short.npy").write_bytes((own.folder / "X.npy").read_bytes()[:-100])
    (own.folder / "header.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': oops  \n")
    for file, said in {
        "text.npy": "text.npy: neither a .npy nor a .npz file",
        "short.npy": "short.npy: not an array of numbers",
        "header.npy": "header.npy: not an array of numbers",
        "none.npy": "none.npy: No such file or directory",
        "/dev/zero": "/dev/zero: not a regular file",
    }.items():
        done = own.run("data", "import", "wells", "--inputs", file, *OWN[2:], code=1)
        assert said in done.stderr
    assert left(own) == set()


def test_a_full_disk_leaves_nothing(own):
    with small_files(10_000):
        done = own.run("data", "import", "wells", *OWN, code=1)
    assert "File too large" in done.stderr
    assert left(own) == set()
    own.run("data", "import", "wells", *OWN)


def test_a_recipe_cannot_change_what_the_arrays_are(imported):
    path = imported.folder / "recipes/wells.toml"
    text = path.read_text()
    for old, new, said in (
        ("classes = 3", "classes = 4", "d/wells: expected data made with"),
        ("[data]\n", "[data]\nextra = 1\n", "recipes/wells.toml [data], extra: unknown name"),
        ("length = 12\n", "", "recipes/wells.toml [data]"),
        ('task = "wells"', 'task = "sDigits"', "task 'sDigits': already part of lrurun"),
        ("[profile.smoke.model]", "[profile.smoke.data]\ntrain = 3\n\n[profile.smoke.model]", "cannot be changed"),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        assert said in imported.run("ladder", "wells", *TRAINING, code=None).stderr
    assert not imported.ledger.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_import_that_is_stopped_does_not_hinder_the_next(own, number):
    large = np.lib.format.open_memmap(own.folder / "big.npy", "w+", np.uint8, (60_000, 2000))
    large[:, 0] = np.arange(60_000) % 7  # elsewhere the file has holes
    save(own, small=np.arange(60_000) % 2)
    process = own.start("data", "import", "wells", "--inputs", "big.npy", "--labels", "small.npy", "--data-dir", "d")
    wait_for(lambda: (own.folder / "d/.wells.partial/train-inputs.npy").exists())
    stop(process, number)
    process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 143)
    assert not (own.folder / "d/wells").exists()
    assert not (own.folder / "recipes/wells.toml").exists()
    if number == signal.SIGTERM:
        assert left(own) == set()
    own.run("data", "import", "wells", *OWN)
    assert sorted(path.name for path in (own.folder / "d").iterdir()) == ["wells"]
    assert [path.name for path in (own.folder / "recipes").iterdir()] == ["wells.toml"]


@pytest.mark.slow
@pytest.mark.parametrize(("labels", "metric", "least"), [("Y", "accuracy", 0.4), ("sums", "r2", 0.5)])
def test_every_form_of_labels_is_trained_and_reported(own, labels, metric, least):
    own.run("data", "import", "wells", "--inputs", "X.npy", "--labels", f"{labels}.npy", "--data-dir", "d")
    own.run("ladder", "wells", *TRAINING)
    [run] = own.json("runs")["runs"]
    assert run["metrics"][f"test/{metric}"] > least
    assert run["data_sha256"] == recipe(own)["data"]["imported"]
    shutil.rmtree(own.folder / "d")  # what reads needs no arrays
    report = own.json("report", "wells", "--profile", "smoke")
    assert (report["metric"], report["data"]["kind"]) == (f"test/{metric}", "imported")
    assert "nothing to do" in own.run("resume").stderr
    for words in (("status",), ("show", run["id"]), ("plan", "wells", "--profile", "smoke")):
        own.run(*words)
    assert "import the same arrays again" in own.run("verify", run["id"], "--data-dir", "d", code=1).stderr


@pytest.mark.slow
def test_runs_on_an_import_with_groups_record_the_group_of_each_test_item(own):
    save(own, G=np.arange(N) // 4)
    own.run("data", "import", "wells", *OWN, "--groups", "G.npy", "--validation", "0.2", "--test", "0.3")
    own.run("ladder", "wells", *TRAINING)
    with Ledger.read(own.ledger) as ledger:
        [items] = ledger.items(ledger.run_ids(), "test/accuracy").values()
    assert np.array_equal(items.test_set.groups, prepared(own, "test", "groups"))
    assert len(np.unique(items.test_set.groups)) < items.test_set.count
