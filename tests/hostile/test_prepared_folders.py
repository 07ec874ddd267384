"""Prepared data that somebody else has made: what a manifest says is text, and arrays hold numbers or are refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrurun import console
from lrurun.__main__ import run as command
from lrurun.tasks import TASKS, folder
from lrurun.tasks.base import Spec
from tests.hostile.texts import TEXTS, TOGETHER, check

pytestmark = pytest.mark.slow

WORDS = (["data", "check", "sDigits"], ["data", "check", "sDigits", "--json"], ["data", "info", "sDigits"])


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LRURUN_DATA", str(tmp_path / "data"))
    console.set_verbosity(0)
    task = TASKS["sDigits"]
    place = tmp_path / "data/sDigits"
    folder.prepare(task, task.options(), place)
    return place


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = command(words)
    out, err = capsys.readouterr()
    check(code, out, err, words)
    return code, out, err


def refused(where: Path, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By every command that reads the folder, in two lines; nothing is changed."""
    before = {path.name: path.read_bytes() for path in where.iterdir()}
    for words in WORDS:
        code, out, err = told(words, capsys)
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
    "deep": (b"[" * 200_000, "nested too deeply"),
    "deep settings": (b'{"task": "sDigits", "options": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, "too deeply"),
    "no number": (b'{"baselines": {"x": NaN}}', "NaN is no number of JSON"),
    "not text": (b'{"task": "\xff"}', "not a manifest"),
    "digits": (b'{"counts": ' + b"9" * 100_000 + b"}", "not a manifest"),
    "cut off": (b'{"task": "sDigits", "cou', "not a manifest"),
    "no counts": (lambda t: t.pop("counts"), "`counts`"),
    "no source": (lambda t: t.pop("source"), "`source`"),
    "counts of words": (lambda t: t["counts"].update(train="many"), "`$.counts.train`"),
    "fewer than none": (lambda t: t["counts"].update(train=-1), "`$.counts.train`"),
    "huge": (lambda t: t["counts"].update(train=2**80), "not a manifest"),
    "another count": (lambda t: t["counts"].update(train=7), "expected 7 examples, found 1"),
    "another file": (lambda t: t["sha256"].update({"../../outside": "0" * 64}), "not a manifest"),
    "no digest": (lambda t: t["sha256"].update({"train-inputs": "../x"}), "not a manifest"),
    "less": (lambda t: t["sha256"].pop("train-labels"), "train-labels: expected"),
    "long": (lambda t: t.update(source="x" * 10_000_000), "`$.source`"),
    "a number": (lambda t: t.update(notes=[1]), "`$.notes[0]`"),
    "infinite": (lambda t: t.update(baselines={"x": 1e300}), "`$.baselines[...]`"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_one_or_is_refused(name: str, where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, message = MANIFESTS[name]
    if isinstance(made, bytes):
        (where / "manifest.json").write_bytes(made)
    else:
        rewrite(where, made)
    refused(where, message, capsys)


@pytest.mark.parametrize("name", [*TEXTS, "together"])
def test_what_a_manifest_says_is_text(name: str, where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (TEXTS | {"together": TOGETHER})[name][:1000]
    rewrite(
        where,
        lambda t: t.update(source=text, notes=[text, text], baselines={text: 0.5}, lrurun=text, later={text: [text]}),
    )
    for words in WORDS:
        assert told(words, capsys)[0] == 0
    for key in ("task", "version", "code"):
        rewrite(where, lambda t, key=key: t.update({key: text}))
        for words in WORDS:
            assert told(words, capsys)[0] == 1


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("unpickled",)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def head(descr: str, shape: str, content: bytes, order: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


COUNT = 1197  # training examples
ARRAYS: dict[str, tuple[str, bytes, str]] = {
    "objects": ("train-labels", npy(np.array([Evil()] * COUNT, object)), "Python objects"),
    "a pickle": ("train-labels", pickle.dumps(Evil()), "not an array of numbers"),
    "empty": ("train-inputs", b"", "not an array of numbers"),
    "zip": ("train-inputs", b"PK\x03\x04" + bytes(100), "not an array of numbers"),
    "texts": ("train-labels", npy(np.full(COUNT, "one")), "expected whole numbers, found <U3"),
    "records": ("train-labels", npy(np.zeros(COUNT, [("a", "i4")])), "expected whole numbers"),
    "fractions": ("train-labels", npy(np.zeros(COUNT)), "expected whole numbers, found float64"),
    "complex": ("train-inputs", npy(np.zeros((COUNT, 64), complex)), "expected numbers, found complex128"),
    "swapped": ("train-inputs", npy(np.zeros((COUNT, 64), ">i2")), "expected numbers, found >i2"),
    "a number": ("train-labels", npy(np.array(3)), "expected"),
    "no axis": ("train-inputs", npy(np.zeros((COUNT, 8, 8), np.uint8)), "expected the shape"),
    "short": ("train-inputs", npy(np.zeros((COUNT, 63), np.uint8)), "expected the shape"),
    "fewer": ("train-inputs", npy(np.zeros((COUNT - 1, 64), np.uint8)), "examples, found"),
    "no class": ("train-labels", npy(np.full(COUNT, 10, np.uint8)), "expected numbers from 0 to 9, found 10 to 10"),
    "negative": ("train-labels", npy(np.full(COUNT, -1, np.int8)), "expected numbers from 0 to 9, found -1 to -1"),
    "cut off": ("train-inputs", npy(np.zeros((COUNT, 64), np.uint8))[:-1], "it names"),
    "longer": ("train-inputs", npy(np.zeros((COUNT, 64), np.uint8)) + b"x", "it names"),
    "petabytes": ("train-inputs", head("'|u1'", "(1197, 1000000000000)", b"x"), "it names"),
    "below zero": ("train-inputs", head("'|u1'", "(-1197, -64)", bytes(COUNT * 64)), "not an array of numbers"),
    "code": ("train-inputs", head("__import__('os').mkdir('unpickled')", "(1197,)", b""), "not an array of numbers"),
    "no size": ("train-inputs", head("'|V0'", "(1197, 64)", b""), "not an array of numbers"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_numbers_of_the_task_whatever_their_digest(
    name: str, where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    array, content, message = ARRAYS[name]
    assert np.load(where / "train-labels.npy").shape == (COUNT,)
    (where / f"{array}.npy").write_bytes(content)
    rewrite(where, lambda t: t["sha256"].update({array: hashlib.sha256(content).hexdigest()}))
    refused(where, message, capsys)
    assert not Path("unpickled").exists()


@pytest.mark.parametrize("kind", ["pipe", "endless", "loop", "folder"])
@pytest.mark.parametrize("name", ["manifest.json", "train-inputs.npy"])
def test_what_is_no_file_is_not_waited_for(
    name: str, kind: str, where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = where / name
    path.unlink()
    make = {"pipe": os.mkfifo, "endless": lambda p: p.symlink_to("/dev/zero"), "folder": os.mkdir}
    make.get(kind, lambda p: p.symlink_to(p))(path)
    for words in WORDS[:2]:
        code, out, err = told(words, capsys)
        assert (code, out) == (1, "")
        assert err.startswith(f"error: {path}: ")


def test_links_and_other_orders_of_axes_are_read(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data may lie elsewhere, and columns first."""
    path = where / "train-inputs.npy"
    clean = told(WORDS[1], capsys)[1]
    content = npy(np.asfortranarray(np.load(path)))
    path.unlink()
    (where.parent / "elsewhere").write_bytes(content)
    path.symlink_to(where.parent / "elsewhere")
    rewrite(where, lambda t: t["sha256"].update({"train-inputs": hashlib.sha256(content).hexdigest()}))
    code, out, _ = told(WORDS[1], capsys)
    assert code == 0
    found, wanted = json.loads(out), json.loads(clean)
    assert found["splits"] == wanted["splits"]


def test_a_task_of_measurements_may_keep_fractions() -> None:
    spec = Spec(name="x", kind="features", features=2, classes=3, length=5)
    folder._check(np.zeros((4, 5, 2), np.float32), "inputs", spec, "x")
    tokens = Spec(name="x", kind="tokens", features=2, classes=3, length=5)
    with pytest.raises(Exception, match="whole numbers"):
        folder._check(np.zeros((4, 5), np.float32), "inputs", tokens, "x")
