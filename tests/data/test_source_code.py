"""sSource: what is predicted, and its n-gram baselines against a slow model of the same definition."""

from __future__ import annotations

import math
import shutil
from collections import Counter, defaultdict

import numpy as np
import pytest

from lrurun.config.plan import data_of
from lrurun.data import store
from lrurun.data.generated import source_code
from lrurun.data.generated.source_code import SourceCode, SourceOptions
from lrurun.data.next_token import bits_per_byte
from lrurun.errors import LrurunError


def reference(train: np.ndarray, test: np.ndarray, n: int) -> float:
    followers: dict[bytes, Counter[int]] = defaultdict(Counter)
    for row in train:
        for place in range(1, len(row)):
            for context in range(min(n - 1, place) + 1):
                followers[row[place - context : place].tobytes()][int(row[place])] += 1

    def probability(context: bytes, byte: int) -> float:
        below = probability(context[1:], byte) if context else 1 / 256
        seen = followers.get(context)
        return below if seen is None else (seen[byte] + len(seen) * below) / (seen.total() + len(seen))

    bits = [
        -math.log2(probability(row[max(0, place - n + 1) : place].tobytes(), int(row[place])))
        for row in test
        for place in range(1, len(row))
    ]
    return float(np.mean(bits))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_baselines_are_interpolated_counts(n: int) -> None:
    random = np.random.default_rng(0)
    text = np.frombuffer(b"the cat sat on the mat; a cat and a dog sat. " * 40, np.uint8).copy()
    text[random.integers(0, len(text), 150)] = random.integers(1, 255, 150)
    rows = text.reshape(-1, 20)
    train, test = rows[:60], rows[60:]
    assert bits_per_byte(train, test, n) == pytest.approx(reference(train, test, n), rel=1e-12)


def test_each_byte_is_predicted_from_those_before_it(tmp_path) -> None:
    task, options = SourceCode(), SourceOptions(length=64, train=400, validation=30, test=50)
    data = store.load(task, options, _prepared(task, options, tmp_path / "sSource"))
    np.testing.assert_array_equal(data.train.inputs[:, 1:], data.train.labels[:, :-1])
    assert data.train.inputs.min() > 0
    # The first module of each split, in the order of the list: numbers 1, 5 and 10.
    for split, number in (("train", 1), ("validation", 5), ("test", 10)):
        text = (source_code.stdlib() / f"{source_code.MODULES[number - 1]}.py").read_bytes()
        assert getattr(data, split).inputs[0].tobytes() == text[:64]
    assert 1 < data.baselines["5-gram model"] < data.baselines["unigram model"] < 6


def _prepared(task, options, where):
    store.prepare(task, options, where)
    return where


@pytest.mark.slow
def test_no_runs_are_added_to_those_on_the_text_of_another_python(machine, monkeypatch) -> None:
    ladder = ("ladder", "sSource", "--profile", "smoke", "--rung", "gamma-norm", "--jobs", "1", "--data-dir", "d")
    machine.run(*ladder)
    [first] = machine.json("runs")["runs"]
    shutil.rmtree(machine.folder / "d")
    text = source_code._text
    monkeypatch.setattr(source_code, "_text", lambda split: b"#" + text(split))
    task, options, name = data_of("sSource", "smoke")
    store.prepare(task, options, machine.folder / "d" / name)
    present = store.digest(store.manifest(task, options, machine.folder / "d" / name).sha256)
    done = machine.run(*ladder, "--seeds", "2", code=1)
    assert [run["id"] for run in machine.json("runs")["runs"]] == [first["id"]]
    before = first["data_sha256"][:19]
    assert f"1 finished run ({first['id']}) had other data: {before}, those in" in done.stderr
    assert f"are {present[:19]}\n" in done.stderr


def test_a_python_with_less_text_is_an_error(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(source_code, "_text", lambda split: b"x" * 1000)
    with pytest.raises(LrurunError, match="train needs 26,000 bytes, the modules of this Python have 1,000") as raised:
        store.prepare(SourceCode(), SourceOptions(length=64, train=400), tmp_path / "sSource")
    assert raised.value.hint == "use fewer examples: train = 15 in [data] of a recipe of your own"
    assert not (tmp_path / "sSource").exists()


def test_a_python_without_sources_is_an_error(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(source_code, "stdlib", lambda: tmp_path)
    with pytest.raises(LrurunError, match="the source of module _pydecimal cannot be read"):
        store.prepare(SourceCode(), SourceOptions(), tmp_path / "data" / "sSource")
    assert not (tmp_path / "data").exists()
