"""Prepared data: whole, verified, written at once or not at all; what somebody else has made is numbers or refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lrurun
from lrurun import console
from lrurun import data as tasks
from lrurun.__main__ import run as command
from lrurun.data import TASKS, arrays, store
from lrurun.data.generated import digits
from lrurun.data.task import SPLITS, Options, Spec
from lrurun.errors import LrurunError
from tests.harness.hostile_texts import TEXTS, TOGETHER, check

DIGITS = tasks.get("sDigits")


ALL = Options()


HINT = "remove the folder, and run the command again: it prepares the data again"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    store.prepare(DIGITS, ALL, place / "sDigits")
    return place


@pytest.fixture
def data_dir(prepared, tmp_path):
    """A copy that a test may harm."""
    return Path(shutil.copytree(prepared, tmp_path / "data"))


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_the_digits_are_all_of_them_once_in_three_splits():
    from sklearn.datasets import load_digits

    made = digits.splits()
    spec = DIGITS.spec(ALL)
    assert {name: len(split.labels) for name, split in made.items()} == {"train": 1197, "validation": 300, "test": 300}
    for split in made.values():
        assert split.inputs.shape == (len(split.labels), spec.length)
        assert split.inputs.dtype == split.labels.dtype == np.uint8
        assert split.lengths is None
    inputs = np.concatenate([made[name].inputs for name in SPLITS])
    labels = np.concatenate([made[name].labels for name in SPLITS])
    assert inputs.max() * spec.scale == 1.0
    source = load_digits()
    rows = sorted(zip(inputs.tolist(), labels.tolist(), strict=True))
    assert rows == sorted(zip(source.data.astype(int).tolist(), source.target.tolist(), strict=True))


def test_every_digit_is_in_every_split():
    for split in digits.splits().values():
        counts = np.bincount(split.labels, minlength=10)
        assert counts.min() > 0.06 * len(split.labels)
        assert counts.max() < 0.15 * len(split.labels)


def test_version_1_of_the_digits_is_these_bytes_for_ever():
    # other bytes are another version: change Digits.version, which is in every fingerprint, not this digest
    assert DIGITS.version == "1"
    made = digits.splits()
    digest = hashlib.sha256(b"".join(made[s].inputs.tobytes() + made[s].labels.tobytes() for s in SPLITS))
    assert digest.hexdigest() == "31c27d4909481fd36bdf96d8eb9dc9865d9c77ab15937f6d8037580ee61a8d50"


def test_preparing_writes_the_arrays_and_the_manifest_and_nothing_else(prepared):
    names = {f"sDigits/{split}-{part}.npy" for split in SPLITS for part in ("inputs", "labels")}
    assert set(files(prepared)) == names | {"sDigits/manifest.json"}
    table = json.loads((prepared / "sDigits/manifest.json").read_text())
    assert table["task"] == "sDigits"
    assert table["version"] == "1"
    assert table["source"] == "scikit-learn load_digits"
    assert table["counts"] == {"train": 1197, "validation": 300, "test": 300}
    assert table["sha256"] == {
        name: hashlib.sha256((prepared / f"sDigits/{name}.npy").read_bytes()).hexdigest() for name in table["sha256"]
    }
    assert len(table["sha256"]) == 6


def test_preparing_again_changes_nothing(data_dir):
    before = files(data_dir)
    stamp = (data_dir / "sDigits/manifest.json").stat().st_mtime_ns
    store.prepare(DIGITS, ALL, data_dir / "sDigits")
    assert files(data_dir) == before
    assert (data_dir / "sDigits/manifest.json").stat().st_mtime_ns == stamp


def test_what_is_loaded_is_what_was_made(prepared):
    data = store.load(DIGITS, ALL, prepared / "sDigits")
    for name, split in digits.splits().items():
        loaded = getattr(data, name)
        np.testing.assert_array_equal(loaded.inputs, split.inputs)
        np.testing.assert_array_equal(loaded.labels, split.labels)
        assert loaded.lengths is None
        assert not loaded.inputs.flags.writeable
    assert data.spec == DIGITS.spec(ALL)


def test_the_digest_is_of_all_arrays_wherever_they_lie(prepared, tmp_path):
    store.prepare(DIGITS, ALL, tmp_path / "sDigits")
    digest = store.load(DIGITS, ALL, tmp_path / "sDigits").sha256
    assert digest == store.load(DIGITS, ALL, prepared / "sDigits").sha256
    assert digest.startswith("sha256:")
    table = store.manifest(DIGITS, ALL, prepared / "sDigits")
    for name in table.sha256:
        assert store.digest(table.sha256 | {name: "0" * 64}) != digest


@pytest.mark.slow
def test_processes_that_prepare_at_once_all_find_it_whole(tmp_path):
    code = (
        "import sys; from pathlib import Path; from lrurun import data; from lrurun.data import store\n"
        "task = data.get('sDigits'); options = task.options(); place = Path(sys.argv[1]) / 'sDigits'\n"
        "sys.stdin.readline(); store.prepare(task, options, place); print(store.load(task, options, place).sha256)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "data")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(3)
    ]
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    digests = [worker.communicate()[0].strip() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert set(digests) == {store.load(DIGITS, ALL, tmp_path / "data/sDigits").sha256}
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["sDigits"]


def not_loaded(data_dir: Path) -> tuple[str, str | None]:
    with pytest.raises(LrurunError) as caught:
        store.load(DIGITS, ALL, data_dir / "sDigits")
    assert caught.value.exit_code == 1
    return caught.value.message.replace(str(data_dir), "data"), caught.value.hint


def test_data_that_are_not_there_are_named(tmp_path):
    assert store.manifest(DIGITS, ALL, tmp_path / "sDigits") is None
    assert not_loaded(tmp_path) == (
        "data/sDigits: there are no prepared data for sDigits",
        "run: lrurun data prepare sDigits",
    )
    assert not list(tmp_path.iterdir())


def test_one_changed_byte_is_found(data_dir):
    path = data_dir / "sDigits/train-inputs.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert not_loaded(data_dir) == ("data/sDigits/train-inputs.npy: its digest is not that in the manifest", HINT)


def test_a_missing_array_is_found(data_dir):
    (data_dir / "sDigits/test-labels.npy").unlink()
    assert not_loaded(data_dir) == ("data/sDigits/test-labels.npy: No such file or directory", HINT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "2"}, "data/sDigits: expected sDigits version 1, found sDigits version 2"),
        ({"task": "other"}, "data/sDigits: expected sDigits version 1, found other version 1"),
        ({"sha256": None}, "data/sDigits/manifest.json: not a manifest: Expected `object`, got `null` - at `$.sha256`"),
        ({"sha256": {}}, "data/sDigits: train-inputs: expected 1197 examples, found 0"),
    ],
)
def test_a_manifest_of_something_else_is_not_loaded(data_dir, change, message):
    path = data_dir / "sDigits/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    before = files(data_dir)
    assert not_loaded(data_dir) == (
        message,
        "run: lrurun data prepare sDigits --force" if "version" in change else HINT,
    )
    if "sha256" not in change:
        with pytest.raises(LrurunError, match="expected sDigits version 1"):
            store.prepare(DIGITS, ALL, data_dir / "sDigits")
    assert files(data_dir) == before


@pytest.mark.parametrize("content", ["", '{"task": "sDig', "[]", "3"])
def test_a_manifest_that_is_none_is_not_loaded(data_dir, content):
    (data_dir / "sDigits/manifest.json").write_text(content)
    message, hint = not_loaded(data_dir)
    assert message.startswith("data/sDigits/manifest.json: not a manifest: ")
    assert hint == HINT


def test_arrays_of_other_sizes_are_not_loaded(data_dir):
    path = data_dir / "sDigits/validation-labels.npy"
    np.save(path, np.load(path)[:299])
    manifest = data_dir / "sDigits/manifest.json"
    table = json.loads(manifest.read_text())
    table["sha256"]["validation-labels"] = arrays.sha256(path)
    manifest.write_text(json.dumps(table))
    assert not_loaded(data_dir) == ("data/sDigits: validation-labels: expected 300 examples, found 299", HINT)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "sDigits").mkdir()
    (tmp_path / "sDigits/mine.txt").write_text("x")
    with pytest.raises(LrurunError) as caught:
        store.prepare(DIGITS, ALL, tmp_path / "sDigits")
    assert caught.value.message == f"{tmp_path}/sDigits: this folder exists, but has no manifest"
    assert caught.value.hint == "move it away, or choose another folder with --data-dir"
    assert files(tmp_path) == {"sDigits/mine.txt": b"x"}


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(LrurunError) as caught:
        store.prepare(DIGITS, ALL, tmp_path / "file/sDigits")
    assert caught.value.message == f"{tmp_path}/file/sDigits/manifest.json: Not a directory"

    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrays.os, "posix_fallocate", full)
    with pytest.raises(LrurunError) as caught:
        store.prepare(DIGITS, ALL, tmp_path / "data/sDigits")
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


def test_a_partial_folder_of_a_killed_process_is_swept_away(tmp_path):
    (tmp_path / ".sDigits.partial").mkdir()
    (tmp_path / ".sDigits.partial/train-inputs.npy").write_bytes(b"half")
    (tmp_path / ".sDigits.lock").write_text("")
    store.prepare(DIGITS, ALL, tmp_path / "sDigits")
    assert [path.name for path in tmp_path.iterdir()] == ["sDigits"]


def test_data_of_other_settings_are_not_taken_for_these(prepared):
    with pytest.raises(LrurunError) as caught:
        store.load(DIGITS, Options(train=100), prepared / "sDigits")
    assert caught.value.message.endswith("expected data made with train = 100, found the published settings")


def test_fewer_examples_are_the_first_ones(prepared, tmp_path):
    few = Options(train=100, test=7)
    store.prepare(DIGITS, few, tmp_path / "few")
    small, large = store.load(DIGITS, few, tmp_path / "few"), store.load(DIGITS, ALL, prepared / "sDigits")
    assert [len(s.labels) for s in (small.train, small.validation, small.test)] == [100, 300, 7]
    np.testing.assert_array_equal(small.train.inputs, large.train.inputs[:100])
    np.testing.assert_array_equal(small.test.inputs, large.test.inputs[:7])


def test_the_published_protocol_selects_on_test(prepared):
    held = store.load(DIGITS, ALL, prepared / "sDigits")
    paper = store.load(DIGITS, ALL, prepared / "sDigits", "paper")
    np.testing.assert_array_equal(paper.train.inputs, np.concatenate([held.train.inputs, held.validation.inputs]))
    np.testing.assert_array_equal(paper.train.labels, np.concatenate([held.train.labels, held.validation.labels]))
    np.testing.assert_array_equal(paper.validation.inputs, held.test.inputs)


pytestmark = pytest.mark.slow


ARGUMENTS = (["data", "check", "sDigits"], ["data", "check", "sDigits", "--json"], ["data", "info", "sDigits"])


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LRURUN_DATA", str(tmp_path / "data"))
    console.set_verbosity(0)
    task = TASKS["sDigits"]
    place = tmp_path / "data/sDigits"
    store.prepare(task, task.options(), place)
    return place


def result(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = command(words)
    out, err = capsys.readouterr()
    check(code, out, err, words)
    return code, out, err


def refused(where: Path, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By every command that reads the folder, in two lines; nothing is changed."""
    before = {path.name: path.read_bytes() for path in where.iterdir()}
    for words in ARGUMENTS:
        code, out, err = result(words, capsys)
        if words[1] == "info" and not code:
            continue  # it reads the manifest alone
        assert (code, out) == (1, "")
        assert err.startswith(f"error: {where}")
        assert message in err
    assert {path.name: path.read_bytes() for path in where.iterdir()} == before


def rewrite(where: Path, change: Callable[[dict[str, Any]], object]) -> None:
    table = json.loads((where / "manifest.json").read_text())
    change(table)
    (where / "manifest.json").write_text(json.dumps(table))


MANIFESTS: dict[str, tuple[bytes | Callable[[dict[str, Any]], object], str]] = {
    "a list": (b"[]", "not a manifest"),
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
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_invalid_manifest_is_refused(name: str, where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, message = MANIFESTS[name]
    if isinstance(made, bytes):
        (where / "manifest.json").write_bytes(made)
    else:
        rewrite(where, made)
    refused(where, message, capsys)


@pytest.mark.parametrize("name", ["together", "nul", "long", "newline"])
def test_texts_of_a_manifest_are_text(name: str, where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (TEXTS | {"together": TOGETHER})[name][:1000]
    rewrite(
        where,
        lambda t: t.update(source=text, notes=[text, text], baselines={text: 0.5}, lrurun=text, later={text: [text]}),
    )
    for words in ARGUMENTS:
        assert result(words, capsys)[0] == 0
    for key in ("task", "version", "code"):
        rewrite(where, lambda t, key=key: t.update({key: text}))
        for words in ARGUMENTS:
            assert result(words, capsys)[0] == 1


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("unpickled",)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def head(descr: str, shape: str, content: bytes) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


COUNT = 1197  # training examples


ARRAYS: dict[str, tuple[str, bytes, str]] = {
    "objects": ("train-labels", npy(np.array([Evil()] * COUNT, object)), "not an array of numbers"),
    "empty": ("train-inputs", b"", "not an array of numbers"),
    "zip": ("train-inputs", b"PK\x03\x04" + bytes(100), "not an array of numbers"),
    "texts": ("train-labels", npy(np.full(COUNT, "one")), "expected whole numbers, found <U3"),
    "fractions": ("train-labels", npy(np.zeros(COUNT)), "expected whole numbers, found float64"),
    "swapped": ("train-inputs", npy(np.zeros((COUNT, 64), ">i2")), "expected numbers, found >i2"),
    "another shape": ("train-inputs", npy(np.zeros((COUNT, 8, 8), np.uint8)), "expected the shape"),
    "fewer": ("train-inputs", npy(np.zeros((COUNT - 1, 64), np.uint8)), "examples, found"),
    "truncated": ("train-inputs", npy(np.zeros((COUNT, 64), np.uint8))[:-1], "has fewer bytes than its header says"),
    "petabytes": ("train-inputs", head("'|u1'", "(1197, 1000000000000)", b"x"), "has fewer bytes than its header says"),
    "code": ("train-inputs", head("__import__('os').mkdir('unpickled')", "(1197,)", b""), "not an array of numbers"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_numbers_of_the_task_whatever_their_digest(
    name: str, where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    array, content, message = ARRAYS[name]
    (where / f"{array}.npy").write_bytes(content)
    rewrite(where, lambda t: t["sha256"].update({array: hashlib.sha256(content).hexdigest()}))
    refused(where, message, capsys)
    assert not Path("unpickled").exists()


@pytest.mark.parametrize("name", ["manifest.json", "train-inputs.npy"])
def test_a_pipe_is_not_waited_for(name: str, where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (where / name).unlink()
    os.mkfifo(where / name)
    for words in ARGUMENTS[:2]:
        code, out, err = result(words, capsys)
        assert (code, out) == (1, "")
        assert err.startswith(f"error: {where / name}: ")


def test_links_and_other_orders_of_axes_are_read(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data may lie elsewhere, and columns first."""
    path = where / "train-inputs.npy"
    clean = result(ARGUMENTS[1], capsys)[1]
    content = npy(np.asfortranarray(np.load(path)))
    path.unlink()
    (where.parent / "elsewhere").write_bytes(content)
    path.symlink_to(where.parent / "elsewhere")
    rewrite(where, lambda t: t["sha256"].update({"train-inputs": hashlib.sha256(content).hexdigest()}))
    code, out, _ = result(ARGUMENTS[1], capsys)
    assert code == 0
    assert json.loads(out)["splits"] == json.loads(clean)["splits"]


def test_inputs_that_are_measured_may_be_fractions() -> None:
    spec = Spec(name="x", kind="features", features=2, classes=3, length=5)
    store.check(np.zeros((4, 5, 2), np.float32), "inputs", spec, "x", "hint")
    tokens = Spec(name="x", kind="tokens", features=2, classes=3, length=5)
    with pytest.raises(Exception, match="whole numbers"):
        store.check(np.zeros((4, 5), np.float32), "inputs", tokens, "x", "hint")
