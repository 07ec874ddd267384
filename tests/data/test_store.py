"""Prepared data: whole, verified, written at once or not at all; what somebody else has made is numbers, or refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lrurun
from lrurun.data import arrays, task_data, tasks
from lrurun.data.synthetic import digits
from lrurun.data.task import SPLITS, Options, Output, Spec
from lrurun.errors import LrurunError
from tests.harness.hostile_texts import TEXTS, TOGETHER, check
from tests.harness.machine import Machine

DIGITS = tasks.get("sDigits")
ALL = Options()
COUNT = 1197  # training examples
HINT = "remove the folder, and run the command again: it prepares the data again"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    where = tmp_path_factory.mktemp("data") / "sDigits"
    task_data.prepare(DIGITS, ALL, where)
    return where


@pytest.fixture
def where(prepared, tmp_path):
    """A copy that a test may harm."""
    return Path(shutil.copytree(prepared, tmp_path / "data/sDigits"))


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_what_is_prepared_is_the_digits_and_a_manifest(prepared):
    """All 1,797 digits of scikit-learn, each once, in three splits that have every digit."""
    from sklearn.datasets import load_digits

    names = {f"{split}-{part}" for split in SPLITS for part in ("inputs", "labels")}
    assert set(files(prepared)) == {f"{name}.npy" for name in names} | {"manifest.json"}
    table = json.loads((prepared / "manifest.json").read_text())
    assert (table["task"], table["version"], table["source"]) == ("sDigits", "1", "scikit-learn load_digits")
    assert table["counts"] == {"train": COUNT, "validation": 300, "test": 300}
    hashed = {name: hashlib.sha256((prepared / f"{name}.npy").read_bytes()).hexdigest() for name in names}
    assert table["sha256"] == hashed
    data = task_data.load(DIGITS, ALL, prepared)
    assert data.spec == DIGITS.spec(ALL)
    joined = "".join(f"{name}={hashed[name]}\n" for name in sorted(hashed))
    assert data.sha256 == f"sha256:{hashlib.sha256(joined.encode()).hexdigest()}"
    splits = [getattr(data, name) for name in SPLITS]
    for split, made in zip(splits, digits.splits().values(), strict=True):
        np.testing.assert_array_equal(split.inputs, made.inputs)
        assert (split.lengths, split.inputs.flags.writeable) == (None, False)
        assert split.inputs.dtype == split.labels.dtype == np.uint8
        counts = np.bincount(split.labels, minlength=10) / len(split.labels)
        assert 0.06 < counts.min() < counts.max() < 0.15
    inputs, labels = (np.concatenate([getattr(split, part) for split in splits]) for part in ("inputs", "labels"))
    assert inputs.max() * data.spec.scale == 1.0
    source = load_digits()
    rows = sorted(zip(inputs.tolist(), labels.tolist(), strict=True))
    assert rows == sorted(zip(source.data.astype(int).tolist(), source.target.tolist(), strict=True))
    # other bytes are another version: change Digits.version, which is in every fingerprint, not this digest
    digest = hashlib.sha256(b"".join(split.inputs.tobytes() + split.labels.tobytes() for split in splits))
    assert digest.hexdigest() == "31c27d4909481fd36bdf96d8eb9dc9865d9c77ab15937f6d8037580ee61a8d50"


def test_preparing_again_changes_nothing_and_what_a_killed_process_left_is_swept_away(where):
    before, stamp = files(where.parent), (where / "manifest.json").stat().st_mtime_ns
    task_data.prepare(DIGITS, ALL, where)
    assert files(where.parent) == before
    assert (where / "manifest.json").stat().st_mtime_ns == stamp
    shutil.rmtree(where)
    partial = where.with_name(".sDigits.partial")
    partial.mkdir()
    (partial / "train-inputs.npy").write_bytes(b"half")
    where.with_name(".sDigits.lock").write_text("")
    task_data.prepare(DIGITS, ALL, where)
    assert files(where.parent) == before


@pytest.mark.slow
def test_processes_that_prepare_at_once_all_find_it_whole(tmp_path):
    code = (
        "import sys; from pathlib import Path; from lrurun.data import tasks, task_data\n"
        "task = tasks.get('sDigits'); options = task.options(); place = Path(sys.argv[1]) / 'sDigits'\n"
        "sys.stdin.readline(); task_data.prepare(task, options, place)\n"
        "print(task_data.load(task, options, place).sha256)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    env = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    workers = [subprocess.Popen(command, env=env, **pipes) for _ in range(3)]
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    found = {worker.communicate()[0].strip() for worker in workers}
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert found == {task_data.load(DIGITS, ALL, tmp_path / "data/sDigits").sha256}
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["sDigits"]


def test_other_settings_and_protocols(prepared, tmp_path):
    with pytest.raises(LrurunError) as caught:
        task_data.load(DIGITS, Options(train=100), prepared)
    assert caught.value.message.endswith("expected data made with train = 100, found the published settings")
    few = Options(train=100, test=7)
    task_data.prepare(DIGITS, few, tmp_path / "few")
    small, large = task_data.load(DIGITS, few, tmp_path / "few"), task_data.load(DIGITS, ALL, prepared)
    assert [len(s.labels) for s in (small.train, small.validation, small.test)] == [100, 300, 7]
    np.testing.assert_array_equal(small.train.inputs, large.train.inputs[:100])
    np.testing.assert_array_equal(small.test.inputs, large.test.inputs[:7])
    paper = task_data.load(DIGITS, ALL, prepared, "paper")  # selects on test
    for part in ("inputs", "labels"):
        both = np.concatenate([getattr(split, part) for split in (large.train, large.validation)])
        np.testing.assert_array_equal(getattr(paper.train, part), both)
        np.testing.assert_array_equal(getattr(paper.validation, part), getattr(large.test, part))


def test_data_that_are_not_there_or_cannot_be_written_are_named(tmp_path, monkeypatch):
    assert task_data.manifest(DIGITS, ALL, tmp_path / "sDigits") is None
    with pytest.raises(LrurunError) as caught:
        task_data.load(DIGITS, ALL, tmp_path / "sDigits")
    assert caught.value.message == f"{tmp_path}/sDigits: there are no prepared data for sDigits"
    assert caught.value.hint == "run: lrurun data prepare sDigits"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    for place, message in (
        ("mine", "mine: this folder exists, but has no manifest"),
        ("mine/file/sDigits", "mine/file/sDigits/manifest.json: Not a directory"),
    ):
        with pytest.raises(LrurunError) as caught:
            task_data.prepare(DIGITS, ALL, tmp_path / place)
        assert caught.value.message == f"{tmp_path}/{message}"
    assert files(tmp_path) == {"mine/file": b"x"}

    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrays.os, "posix_fallocate", full)
    with pytest.raises(LrurunError) as caught:
        task_data.prepare(DIGITS, ALL, tmp_path / "data/sDigits")
    assert caught.value.message == f"{tmp_path}/data/sDigits: No space left on device"
    assert caught.value.hint == "check space and permissions, or choose another folder with --data-dir"
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("shape", [(7,), (300, 64), (12, 5, 3)])
def test_an_array_filled_in_pieces_has_the_bytes_that_numpy_would_save(tmp_path, shape):
    array = np.random.RandomState(0).randint(0, 200, shape).astype(np.uint8)
    file = arrays.ArrayFile(tmp_path / "pieces.npy", shape, np.uint8)
    for first in (4, 0, 2):
        file.put(first, array[first : first + 2] if first < 4 else array[first:])
    assert file.missing() == 0
    file.close()
    np.save(tmp_path / "whole.npy", array)
    assert (tmp_path / "pieces.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_what_does_not_fit_an_array_is_refused_and_never_wrapped(tmp_path):
    file = arrays.ArrayFile(tmp_path / "a.npy", (3, 2), np.uint8)
    file.put(0, np.array([[1, 255]], np.int64))
    for rows in (np.array([[1, 256]]), np.array([[-1, 0]]), np.zeros((1, 3), np.uint8), np.zeros((3, 2), np.uint8)):
        with pytest.raises(LrurunError):
            file.put(1, rows)
    assert file.missing() == 2
    file.close()


# manifests and arrays that somebody else has made, as every command that reads them meets them

ARGUMENTS = (["data", "check", "sDigits"], ["data", "check", "sDigits", "--json"], ["data", "info", "sDigits"])


def said(machine: Machine, where: Path, words: list[str]) -> tuple[int, str, str]:
    done = machine.run(*words, "--data-dir", str(where.parent), code=None)
    check(done.returncode, done.stdout, done.stderr, words)
    return done.returncode, done.stdout, done.stderr


def refused(machine: Machine, where: Path, message: str) -> None:
    """In two lines; nothing is changed. `info` reads the manifest alone."""
    before = files(where)
    for words in ARGUMENTS[1:]:
        code, out, err = said(machine, where, words)
        if words[1] == "check" or code:
            assert (code, out) == (1, "")
            assert err.startswith(f"error: {where}")
            assert message in err
    assert files(where) == before


def rewrite(where: Path, change) -> None:
    table = json.loads((where / "manifest.json").read_text())
    change(table)
    (where / "manifest.json").write_text(json.dumps(table))


MANIFESTS: dict[str, tuple[Any, str]] = {
    "a list": (b"[]", "not a manifest"),
    "empty": (b"", "not a manifest"),
    "nested": (b"[" * 200_000, "not a manifest"),
    "not a number": (b'{"baselines": {"x": NaN}}', "not a manifest"),
    "not text": (b'{"task": "\xff"}', "not a manifest"),
    "truncated": (b'{"task": "sDigits", "cou', "not a manifest"),
    "no counts": (lambda t: t.pop("counts"), "`counts`"),
    "huge": (lambda t: t["counts"].update(train=2**80), "not a manifest"),
    "another count": (lambda t: t["counts"].update(train=7), "expected 7 examples, found 1"),
    "another file": (lambda t: t["sha256"].update({"../../outside": "0" * 64}), "not a manifest"),
    "less": (lambda t: t["sha256"].pop("train-labels"), "train-labels: expected"),
    "long": (lambda t: t.update(source="x" * 10_000_000), "`$.source`"),
    "another version": (lambda t: t.update(version="2"), "expected sDigits version 1, found sDigits version 2"),
    "another task": (lambda t: t.update(task="other"), "expected sDigits version 1, found other version 1"),
}


def test_an_invalid_manifest_is_refused(where, machine):
    whole = (where / "manifest.json").read_bytes()
    for made, message in MANIFESTS.values():
        (where / "manifest.json").write_bytes(made if isinstance(made, bytes) else whole)
        if not isinstance(made, bytes):
            rewrite(where, made)
        refused(machine, where, message)
        if "version 1" in message:
            with pytest.raises(LrurunError, match="expected sDigits version 1") as caught:
                task_data.prepare(DIGITS, ALL, where)
            assert "--force" in (caught.value.hint or "") or "other" in message


def test_texts_of_a_manifest_are_text(where, machine):
    text = (TOGETHER + TEXTS["nul"] + TEXTS["newline"])[:1000]
    more = {"source": text, "notes": [text, text], "baselines": {text: 0.5}, "lrurun": text, "later": {text: [text]}}
    rewrite(where, lambda t: t.update(more))
    assert [said(machine, where, words)[0] for words in ARGUMENTS] == [0, 0, 0]
    for key in ("task", "version", "code"):
        rewrite(where, lambda t, key=key: t.update({key: text}))
        assert said(machine, where, ARGUMENTS[1])[0] == 1


class Evil:
    def __reduce__(self):
        return os.mkdir, ("unpickled",)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def head(descr: str, shape: str, content: bytes) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


LESS = "has fewer bytes than its header says"
ARRAYS: dict[str, tuple[str, bytes, str]] = {
    "objects": ("train-labels", npy(np.array([Evil()] * COUNT, object)), "not an array of numbers"),
    "empty": ("train-inputs", b"", "not an array of numbers"),
    "zip": ("train-inputs", b"PK\x03\x04" + bytes(100), "not an array of numbers"),
    "texts": ("train-labels", npy(np.full(COUNT, "one")), "expected whole numbers, found <U3"),
    "fractions": ("train-labels", npy(np.zeros(COUNT)), "expected whole numbers, found float64"),
    "swapped": ("train-inputs", npy(np.zeros((COUNT, 64), ">i2")), "expected numbers, found >i2"),
    "another shape": ("train-inputs", npy(np.zeros((COUNT, 8, 8), np.uint8)), "expected the shape"),
    "fewer": ("train-inputs", npy(np.zeros((COUNT - 1, 64), np.uint8)), "expected 1197 examples, found 1196"),
    "truncated": ("train-inputs", npy(np.zeros((COUNT, 64), np.uint8))[:-1], LESS),
    "more": ("train-inputs", npy(np.zeros((COUNT, 64), np.uint8)) + b"x", "has more bytes than its header says"),
    "petabytes": ("train-inputs", head("'|u1'", "(1197, 1000000000000)", b"x"), LESS),
    "code": ("train-inputs", head("__import__('os').mkdir('unpickled')", "(1197,)", b""), "not an array of numbers"),
}


def test_arrays_are_numbers_of_the_task_whatever_their_digest(prepared, tmp_path, machine):
    for number, (array, content, message) in enumerate(ARRAYS.values()):
        where = Path(shutil.copytree(prepared, tmp_path / f"{number}/sDigits"))
        (where / f"{array}.npy").write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        rewrite(where, lambda t, sha256=sha256, array=array: t["sha256"].update({array: sha256}))
        refused(machine, where, message)
    assert not (machine.folder / "unpickled").exists()


def test_changed_missing_and_waiting_files_are_named(where, machine):
    path = where / "train-inputs.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(LrurunError) as caught:
        task_data.load(DIGITS, ALL, where)
    assert caught.value.message == f"{path}: its digest is not that in the manifest"
    assert (caught.value.hint, caught.value.exit_code) == (HINT, 1)
    path.unlink()
    refused(machine, where, "train-inputs.npy: No such file or directory")
    for name in ("train-inputs.npy", "manifest.json"):  # a pipe
        (where / name).unlink(missing_ok=True)
        os.mkfifo(where / name)
        code, out, err = said(machine, where, ARGUMENTS[1])
        assert (code, out) == (1, "")
        assert err.startswith(f"error: {where / name}: ")


def test_links_and_other_orders_of_axes_are_read(where, machine):
    """Data may lie elsewhere, and columns first."""
    path = where / "train-inputs.npy"
    clean = said(machine, where, ARGUMENTS[1])[1]
    content = npy(np.asfortranarray(np.load(path)))
    path.unlink()
    (where.parent / "elsewhere").write_bytes(content)
    path.symlink_to(where.parent / "elsewhere")
    rewrite(where, lambda t: t["sha256"].update({"train-inputs": hashlib.sha256(content).hexdigest()}))
    code, out, _ = said(machine, where, ARGUMENTS[1])
    assert code == 0
    assert json.loads(out)["splits"] == json.loads(clean)["splits"]


FEATURES = Spec(name="x", kind="features", features=2, classes=3, length=5)
TOKENS = Spec(name="x", kind="tokens", features=2, classes=3, length=5)
PLACES = Spec(name="x", kind="tokens", features=2, classes=3, length=5, output=Output(at="positions", labelled=2))
REAL = Spec(
    name="x", kind="features", features=1, classes=2, length=5, output=Output(loss="squared-error", at="positions")
)


@pytest.mark.parametrize(
    ("array", "part", "spec", "message"),
    [
        (np.zeros((4, 5, 2), np.float32), "inputs", FEATURES, ""),
        (np.full((4, 5, 2), np.nan), "inputs", FEATURES, "x[0, 0, 0]: expected finite numbers, found nan"),
        (np.ones((4, 5), np.uint8), "inputs", TOKENS, ""),
        (np.zeros((4, 5), np.float32), "inputs", TOKENS, "x: expected whole numbers, found float32"),
        (np.full((4, 5), 2), "inputs", TOKENS, "x[0, 0]: expected numbers from 0 to 1, found 2"),
        (np.array([0, 2, 3]), "labels", TOKENS, "x[2]: expected numbers from 0 to 2, found 3"),
        (np.array([1, 5, 0]), "lengths", TOKENS, "x[2]: expected numbers from 1 to 5, found 0"),
        (np.array([1, 5, 6]), "lengths", TOKENS, "x[2]: expected numbers from 1 to 5, found 6"),
        (np.array([0, 7, 0]), "groups", TOKENS, ""),
        (np.array([0, -1, 0]), "groups", TOKENS, "x[1]: expected numbers from 0 to 2147483647, found -1"),
        (np.array([0.0, 1.0]), "groups", TOKENS, "x: expected whole numbers, found float64"),
        (np.zeros((3, 2), int), "groups", TOKENS, "x: expected the shape (3,), found (3, 2)"),
        (np.array([[-1, 2, 0], [-1, -1, 2]]), "labels", PLACES, ""),
        (np.array([[-1, 2, 0], [-1, -1, 3]]), "labels", PLACES, "x[1, 2]: expected classes from 0 to 2, or -1"),
        (np.array([[-1, 2, 0], [-2, -1, 2]]), "labels", PLACES, "x[1, 0]: expected classes from 0 to 2, or -1"),
        (np.array([[-1, 2, 0], [-1, -1, -1]]), "labels", PLACES, "x: example 1 has no labelled position"),
        (np.array([[1, 2, 0]]), "labels", PLACES, "x: example 0 has 3 labelled positions, its task declares at most 2"),
        (np.zeros((3, 6), int), "labels", PLACES, "x: expected the shape (3, 5), found (3, 6)"),
        (np.zeros((3, 5, 2)), "labels", REAL, ""),
        (np.zeros((3, 5, 2), int), "labels", REAL, "x: expected real numbers, found int64"),
        (np.zeros((3, 5, 1)), "labels", REAL, "x: expected the shape (3, 5, 2), found (3, 5, 1)"),
        (np.full((3, 5, 2), np.inf), "labels", REAL, "x[0, 0, 0]: expected finite numbers, or NaN"),
        (np.full((3, 5, 2), np.nan), "labels", REAL, "x: example 0 has no labelled position"),
    ],
)
def test_arrays_are_compared_with_what_a_task_declares(array, part, spec, message):
    if not message:
        return task_data.check(array, part, spec, "x", "hint")
    with pytest.raises(LrurunError) as caught:
        task_data.check(array, part, spec, "x", "hint")
    assert caught.value.message.startswith(message)
    assert caught.value.hint == "hint"
