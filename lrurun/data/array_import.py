"""From users' arrays to a prepared task: its facts, its splits and their digest.

The splits are those of `order = numpy.random.RandomState(seed).permutation(n)`: its first round(test * n) examples are
the test split, the next round(validation * n) the validation split. Each split keeps the order of the arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, structs

from lrurun import decoding
from lrurun.data import IMPORTED, own_arrays, store
from lrurun.data.arrays import Writer, count_classes, header
from lrurun.data.imported import Imported, ImportedOptions
from lrurun.data.own_arrays import Given
from lrurun.data.task import SPLITS, Progress, Source
from lrurun.errors import LrurunError

_Facts = dict[str, Any]
"""Settings of `ImportedOptions`."""


class Division(Struct, frozen=True, kw_only=True):
    """How examples are divided."""

    validation: float
    """Fraction of the given examples."""
    test: float | None
    """None: there are arrays for it."""
    seed: int


class _Rows(Struct, frozen=True):
    """Some rows of an array, in another type."""

    source: np.ndarray
    index: np.ndarray
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.index), *self.source.shape[1:])

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        for start, rows in own_arrays.blocks(self.source, self.index):
            yield start, rows.astype(self.dtype)


def prepared(
    name: str,
    given: Given,
    test: Given | None,
    division: Division,
    *,
    classes: int | None = None,
    progress: Progress = store.no_progress,
) -> Imported:
    """The task, with a source that writes its arrays.

    Args:
        test: arrays of the test split; without them it is a part of `given`.
        classes: their number, where some do not occur in the labels.

    Raises:
        LrurunError: too few examples, arrays of `test` that do not fit the others, classes that do not occur, nothing
            to learn.
    """
    sets = [given] if test is None else [given, test]
    _check_alike(sets)
    chosen = _divide(given, test, division)
    progress("computing the digest of the arrays", 0, None)
    type_of_inputs, of_inputs = _inputs(sets, chosen["train"])
    labels, of_labels = _labels(sets, chosen["train"], classes)
    arrays: dict[str, _Rows] = {}
    for split, index in chosen.items():
        number = len(sets) - 1 if split == "test" else 0
        one, stored = sets[number], labels[number]
        arrays[f"{split}-inputs"] = _Rows(one.inputs, index, type_of_inputs)
        arrays[f"{split}-labels"] = _Rows(stored, index, stored.dtype)
        if any(each.lengths is not None for each in sets):
            steps = one.inputs.shape[1]
            ends = np.full(len(one), steps) if one.lengths is None else one.lengths
            arrays[f"{split}-lengths"] = _Rows(ends, index, own_arrays.fitting(1, steps))
    counts = {split: len(index) for split, index in chosen.items()}
    facts = {**counts, **of_inputs, **of_labels, IMPORTED: _digest(arrays)}
    options = decoding.convert(facts, ImportedOptions, f"the arrays of {name}")
    absent = [] if options.loss == "squared-error" else _absent(arrays, options.classes)
    return Imported(name, options, _source(arrays, sets, division, absent))


def _check_alike(sets: Sequence[Given]) -> None:
    """Refuses test arrays of other forms."""
    for one in sets[1:]:
        for mine, first, name in zip(
            (one.inputs, one.labels), (sets[0].inputs, sets[0].labels), one.names[:2], strict=True
        ):
            kinds = [array.dtype.kind == "f" for array in (mine, first)]
            if mine.shape[1:] != first.shape[1:] or (name == one.names[1] and kinds[0] != kinds[1]):
                wanted, found = (f"{array.dtype} of shape (n, {str(array.shape[1:])[1:]}" for array in (first, mine))
                raise LrurunError(
                    f"{name}: expected {wanted}, as for training, found {found}", "give both sets the same form"
                )


def _divide(given: Given, test: Given | None, division: Division) -> dict[str, np.ndarray]:
    """Split -> the numbers of its examples, in ascending order."""
    _check_shares(division)
    order = np.random.RandomState(division.seed).permutation(len(given))
    tested = round((division.test or 0) * len(given))
    ends = [tested, tested + round(division.validation * len(given))]
    parts = dict(zip(("test", "validation", "train"), map(np.sort, np.split(order, ends)), strict=True))
    if test is not None:
        parts["test"] = np.arange(len(test))
    for split in SPLITS:
        if not len(parts[split]):
            raise LrurunError(
                f"{given.names[0]}: {len(given)} examples are too few: {split} would have none",
                "give more examples, or other fractions: --validation, --test",
            )
    return {split: parts[split] for split in SPLITS}


def _check_shares(division: Division) -> None:
    """Refuses shares with which a split has no examples, however many there are."""
    shares = {"--validation": division.validation} | ({} if division.test is None else {"--test": division.test})
    for option, share in shares.items():
        if share == 0:
            split = option.removeprefix("--")
            raise LrurunError(f"{option} 0: the {split} split would have no examples", f"as in {option} 0.1")
    if sum(shares.values()) >= 1:
        named = " and ".join(f"{option} {share:g}" for option, share in shares.items())
        raise LrurunError(f"{named}: no examples remain for training", "the sum of the shares must be below 1")


def _inputs(sets: Sequence[Given], train: np.ndarray) -> tuple[np.dtype, _Facts]:
    """The type in which inputs are stored, and what is known about them."""
    first = sets[0]
    shape = first.inputs.shape
    dtype = np.dtype(np.float32)
    if all(one.inputs.dtype.kind != "f" for one in sets):
        low, high = (int(extreme([extreme(one.inputs) for one in sets])) for extreme in (np.min, np.max))
        dtype = own_arrays.fitting(low, high)
        if first.tokens:
            return dtype, {"kind": "tokens", "features": high + 1, "length": shape[1]}
    features = shape[2] if len(shape) == 3 else 1
    mean, std = _moments(lambda: _real(first, train, features), features)
    return dtype, {"kind": "features", "features": features, "length": shape[1], "mean": mean, "std": std}


def _real(given: Given, index: np.ndarray, features: int) -> Iterator[np.ndarray]:
    """(steps, features) float64: the real positions of these examples."""
    for start, rows in own_arrays.blocks(given.inputs, index):
        values = rows.reshape(len(rows), -1, features).astype(np.float64)
        if given.lengths is not None:
            values = values[np.arange(values.shape[1]) < given.lengths[index[start : start + len(rows)], None]]
        yield values.reshape(-1, features)


def _moments(parts: Any, size: int) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each column of what `parts()` yields, to six digits; a constant column has 1."""
    count, total, squares = 0, np.zeros(size), np.zeros(size)
    for values in parts():
        count, total = count + len(values), total + values.sum(axis=0)
    mean = total / count
    for values in parts():
        squares += np.square(values - mean).sum(axis=0)
    std = np.sqrt(squares / count)
    tiny = 1e-6 * np.abs(mean)  # rounding errors of a constant column
    return _rounded(mean), _rounded(np.where(std > tiny, std, 1.0))


def _rounded(numbers: np.ndarray) -> list[float]:
    return [float(f"{number:.6g}") for number in numbers]


def _labels(sets: Sequence[Given], train: np.ndarray, classes: int | None) -> tuple[list[np.ndarray], _Facts]:
    """The labels as they are stored, and the output."""
    arrays, name = [one.labels for one in sets], sets[0].names[1]
    values = arrays[0].dtype.kind == "f"
    positions = arrays[0].ndim == (3 if values else 2)
    facts: _Facts = {"at": "positions" if positions else "sequence"}
    if positions:
        labelled = [~np.isnan(one[..., 0]) if values else one >= 0 for one in arrays]
        most = int(max(one.sum(axis=1).max() for one in labelled))
        facts["labelled"] = most if most < arrays[0].shape[1] else None
    if not values:
        number = _count(arrays, [one.names[1] for one in sets], classes)
        dtype = own_arrays.fitting(-1 if positions else 0, number - 1)
        return [one.astype(dtype) for one in arrays], {**facts, "classes": number}
    if classes is not None:
        raise LrurunError(
            f"{name}: real values have no classes", "leave --classes out, or save labels as whole numbers"
        )
    size = arrays[0].shape[-1]
    real = arrays[0][train].reshape(-1, size)
    real = real[~np.isnan(real[:, 0])]
    if (np.ptp(real, axis=0) == 0).any():
        constant = int(np.flatnonzero(np.ptp(real, axis=0) == 0)[0])
        raise LrurunError(f"{name}: value {constant} is the same in all of the training split", "leave it out")
    mean, std = _moments(lambda: [real], size)
    stored = [((one - mean) / std).astype(np.float32) for one in arrays]
    return stored, {**facts, "loss": "squared-error", "classes": size, "label_mean": mean, "label_std": std}


def _count(arrays: Sequence[np.ndarray], names: Sequence[str], classes: int | None) -> int:
    """The number of classes, of which each must occur unless it was declared. Errors name the array of the last one."""
    name = names[int(np.argmax([one.max() for one in arrays]))]
    found = np.unique(np.concatenate([np.unique(one) for one in arrays]))
    found = found[found >= 0]
    highest = int(found[-1])
    if classes is not None:
        if highest >= classes:
            raise LrurunError(f"{name}: has class {highest}, --classes {classes} ends at {classes - 1}", "count from 0")
        return classes
    if len(found) == 1:
        raise LrurunError(f"{name}: all labels are class {highest}: there is nothing to learn", "check the array")
    if len(found) <= highest:
        missing = int(np.setdiff1d(np.arange(highest), found)[0])
        raise LrurunError(
            f"{name}: expected every class from 0 to {highest}, class {missing} does not occur",
            "number the classes from 0: numpy.unique(labels, return_inverse=True)[1]; "
            f"or declare that some do not occur: --classes {highest + 1}",
        )
    return highest + 1


def _absent(arrays: Mapping[str, _Rows], classes: int) -> list[str]:
    """Sentences on classes that occur in one split, but not in another."""
    occurs = {}
    for split in SPLITS:
        total = sum(count_classes(rows, classes) for _, rows in arrays[f"{split}-labels"].blocks())
        occurs[split] = np.asarray(total) > 0
    anywhere, found = np.any(list(occurs.values()), axis=0), []
    for split, here in occurs.items():
        missing = np.flatnonzero(anywhere & ~here)
        if len(missing):
            named = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
            found.append(f"{split} has no label of class {named}")
    return found


def _digest(arrays: Mapping[str, _Rows]) -> str:
    """That of the prepared data, see `lrurun.data.store.digest`."""
    digests = {}
    for name, rows in arrays.items():
        found = hashlib.sha256(header(rows.shape, rows.dtype))
        for _, block in rows.blocks():
            found.update(block.tobytes())
        digests[name] = found.hexdigest()
    return store.digest({"sha256": digests})


def _source(arrays: Mapping[str, _Rows], sets: Sequence[Given], division: Division, notes: Sequence[str]) -> Source:
    def fill(writer: Writer, progress: Progress) -> None:
        writer.notes.extend(notes)
        for name, rows in arrays.items():
            split, _, part = name.partition("-")
            file = writer.create(split, part, rows.shape, rows.dtype)
            for start, block in rows.blocks():
                progress(f"writing {name}", start, rows.shape[0])
                file.put(start, block)

    named = " and ".join(one.files for one in sets)
    share = "" if division.test is None else f"{division.test:g} of them for test, "
    share += f"{division.validation:g} for validation, by a permutation of seed {division.seed}"
    declared = {"permutation": "numpy.random.RandomState", **structs.asdict(division)}
    return Source(
        kind="imported",
        text=f"the imported arrays {named}; {share}",
        fill=fill,
        generator={k: v for k, v in declared.items() if v is not None},
    )
