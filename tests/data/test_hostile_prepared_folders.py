"""Prepared data that somebody else has made: a manifest holds text, and arrays hold numbers, or they are refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrurun import console
from lrurun.__main__ import run as command
from lrurun.data import TASKS, store
from lrurun.data.task import Spec
from tests.harness.hostile_texts import TEXTS, TOGETHER, check

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
