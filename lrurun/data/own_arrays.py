"""Users' own arrays: read from their files, checked, and made a prepared task with its splits.

Every error names the option and the file. The splits are made by `numpy.random.RandomState(seed).permutation(n)`: its
first round(test * n) examples are the test split, the next round(validation * n) the validation split. With classes in
proportion, or groups kept together, `lrurun.data.splits` changes which examples these are. Each split keeps the order
of the arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs

from lrurun import decoding
from lrurun.console import no_progress
from lrurun.data import splits, task_data
from lrurun.data.arrays import Writer, count_classes, header
from lrurun.data.copies import reading
from lrurun.data.own_array_task import OwnArrayOptions, OwnArrayTask
from lrurun.data.task import SPLITS, Progress, Source
from lrurun.data.tasks import IMPORTED
from lrurun.errors import LrurunError, hint_for, plural

_Facts = dict[str, Any]
"""Settings of `OwnArrayOptions`."""

BLOCK = 1 << 24
"""Bytes of inputs that are in memory at once."""
MAX_CLASSES = 1_000_000
"""The largest number of classes or token ids: larger numbers are probably measurements."""
LONGER = 4
"""How many times as many features as steps are doubtful: most recordings have more steps than channels."""
MAX_CLASS_VALUES = 100
"""The most different real labels that may be meant as classes."""


class OwnArrays(Struct, frozen=True, kw_only=True):
    """One set of arrays, and how messages name them."""

    inputs: np.ndarray
    """(n, L) or (n, L, F), mapped from the file."""
    labels: np.ndarray
    """(n,) or (n, P) integers; (n, D) or (n, P, D) real values."""
    lengths: np.ndarray | None
    groups: np.ndarray | None
    """(n,) integers or text: the group of each example, such as its speaker."""
    names: tuple[str, str, str, str]
    """Option and file of inputs, labels, lengths and groups."""
    files: str
    """Names of the files, for people."""
    tokens: bool
    """Whether inputs are ids."""

    def __len__(self) -> int:
        return len(self.inputs)


def read(
    inputs: Path,
    labels: Path,
    lengths: Path | None,
    groups: Path | None = None,
    *,
    prefix: str = "--",
    tokens: bool = False,
) -> OwnArrays:
    """The arrays in these files, of equal counts, types and shapes as documented.

    Args:
        prefix: what precedes the names of the options in messages.
        tokens: whether inputs are ids; without `lengths`, zeros at the end are then padding.

    Raises:
        LrurunError: a file that cannot be read or is no array of numbers; other shapes, types or values; other counts.
    """
    files = {"inputs": inputs, "labels": labels, "lengths": lengths, "groups": groups}
    x_name, y_name, ends_name, groups_name = (f"{prefix}{option} {file}" for option, file in files.items())
    x, y = _read(inputs, f"{prefix}inputs"), _read(labels, f"{prefix}labels")
    ends = None if lengths is None else _read(lengths, f"{prefix}lengths")
    names = None if groups is None else _read(groups, f"{prefix}groups")
    if x.ndim and not len(x):
        raise LrurunError(f"{x_name}: there are no examples: the array has the shape {x.shape}", "save at least three")
    if x.ndim not in ((2,) if tokens else (2, 3)) or 0 in x.shape:
        expected = "(examples, steps) ids" if tokens else "(examples, steps) or (examples, steps, features) numbers"
        raise LrurunError(
            f"{x_name}: expected {expected}, found the shape {x.shape}", "reshape the array, and save it again"
        )
    for array, name in ((y, y_name), (ends, ends_name), (names, groups_name)):
        if array is not None and (array.ndim == 0 or len(array) != len(x)):
            count = array.shape[0] if array.ndim else "a single number"
            axis = x.shape.index(count) if count in x.shape else None
            hint = f"; if they are axis {axis} of the inputs, save inputs.swapaxes(0, {axis})" if axis else ""
            raise LrurunError(
                f"{name}: expected {len(x)} examples, as many as inputs, found {count}", f"save all of them{hint}"
            )
    _check_inputs(x, x_name, tokens)
    y = _labels(y, y_name, x.shape)
    if ends is not None:
        ends = _lengths(ends, ends_name, x.shape)
    elif tokens:
        ends = _without_padding(x, x_name)
    if ends is not None:
        _check_within(y, ends, y_name, x.shape[1])
    if names is not None and (names.ndim != 1 or names.dtype.kind not in "iuUS"):
        actual = f"{names.dtype} of shape {names.shape}"
        hint = "(n,) integers, or text such as the names of speakers"
        raise LrurunError(f"{groups_name}: expected one whole number or text for each example, found {actual}", hint)
    return OwnArrays(
        inputs=x,
        labels=y,
        lengths=ends,
        groups=names,
        names=(x_name, y_name, ends_name, groups_name),
        files=", ".join(path.name for path in files.values() if path is not None),
        tokens=tokens,
    )


def _read(path: Path, option: str) -> np.ndarray:
    """The array in a file: in `.npy`, which is mapped, or in `.npz`, which is read. Python objects are never loaded.

    Raises:
        LrurunError: it cannot be read, or is something else.
    """
    hint = "save the array with numpy.save(FILE, array)"
    name = f"{option} {path}"
    file, key = path, ""
    if (split := path.name.rfind(".npz:")) > 0:
        file, key = path.with_name(path.name[: split + 4]), path.name[split + 5 :]
    try:
        with reading.open_regular(file) as content:
            magic = content.read(6)
            if zipped := magic[:2] == b"PK":
                content.seek(0)
                with np.load(content, allow_pickle=False) as archive:
                    array = archive[_key(archive.files, key, option, file)]
        if not zipped and magic == b"\x93NUMPY":
            array = np.lib.format.open_memmap(file, mode="r")
        elif not zipped:
            raise LrurunError(f"{name}: neither a .npy nor a .npz file", hint)
        if array.dtype.names:
            hint = "save one field: numpy.save(FILE, array[FIELD])"
            raise LrurunError(f"{name}: expected numbers, found records of the type {array.dtype}", hint)
        return array
    except LrurunError:
        raise
    except OSError as error:
        raise LrurunError(f"{name}: {error.strerror or error}", "check the path and its permissions") from None
    except Exception as error:  # NumPy raises many types for an invalid header
        if "Python objects" in str(error) or "Object arrays" in str(error):
            kind, dtype = ("text", "str") if option.endswith("groups") else ("numbers", "float")
            hint = (
                f"objects may run code when they are loaded: save {kind}, as in numpy.save(FILE, array.astype({dtype}))"
            )
            raise LrurunError(f"{name}: has Python objects, which are not read", hint) from None
        raise LrurunError(f"{name}: not an array of numbers: {reading.first_line(error)}", hint) from None


def _key(keys: Sequence[str], requested: str, option: str, file: Path) -> str:
    """The key of an array of a `.npz` file; if none is requested, the one named like the option, or the only one.

    Raises:
        LrurunError: there is none, or it could be one of several.
    """
    key = requested or option.removeprefix("--").replace("-", "_")
    if key in keys:
        return key
    if requested or not keys:
        raise LrurunError(f"{option} {file}: has no array {key!r}", hint_for(key, keys, "arrays in it"))
    if len(keys) > 1:
        raise LrurunError(
            f"{option} {file}: has {len(keys)} arrays, none of them named {key!r}: {', '.join(keys)}",
            f"name one of them: {option} {file}:{keys[0]}",
        )
    return keys[0]


def doubts(examples: OwnArrays) -> list[str]:
    """Sentences on arrays that may be meant otherwise: whole numbers as real ones, one-hot rows, ids without --tokens,
    axes in another order, constants."""
    x, y = examples.inputs, examples.labels
    x_name, y_name = examples.names[:2]
    sentences = []
    if _are_one_hot(y):
        size, is_real = y.shape[-1], y.dtype.kind == "f"
        imported = f"{size} real values, and scored by R²" if is_real else f"classes 0 and 1 at {size} positions"
        sentences.append(
            f"{y_name}: labels have a single 1 in every row, as one-hot rows of classes: they are imported as "
            f"{imported}. Classes must be saved as their numbers: labels.argmax(axis=-1)"
        )
    elif y.dtype.kind == "f":
        values = np.unique(y[~np.isnan(y)])
        if len(values) <= MAX_CLASS_VALUES and _are_whole(values):
            sentences.append(
                f"{y_name}: labels are {len(values)} different whole numbers, but saved as real numbers: they "
                "are imported as real values, and scored by R². Classes must be saved as integers: labels.astype(int)"
            )
    if not examples.tokens and x.ndim == 2 and all(_are_whole(rows) and rows.min() >= 0 for _, rows in blocks(x)):
        sentences.append(
            f"{x_name}: inputs are whole numbers, and imported as measurements. Ids, as of letters or words, "
            "need --tokens" + (", and must be saved as integers: inputs.astype(int)" if x.dtype.kind == "f" else "")
        )
    return sentences + _axes(examples) + _constants(examples)


def _axes(examples: OwnArrays) -> list[str]:
    """Sentences on inputs whose last axis may be the steps, unless labels or lengths show that it is not."""
    x, y, name = examples.inputs, examples.labels, examples.names[0]
    at_steps = y.ndim == (3 if y.dtype.kind == "f" else 2) and y.shape[1] == x.shape[1]
    if x.ndim == 2 or x.shape[2] < LONGER * x.shape[1] or at_steps or examples.lengths is not None:
        return []
    return [
        f"{name}: inputs of shape {x.shape} are imported as {plural(x.shape[1], 'step')} of {x.shape[2]} features. "
        f"Should they be {x.shape[2]} steps of {plural(x.shape[1], 'feature')}, they must be saved with the steps "
        "first: inputs.swapaxes(1, 2)"
    ]


def _constants(examples: OwnArrays) -> list[str]:
    """Sentences on inputs that say nothing about the labels."""
    low = high = np.asarray(examples.inputs[0])
    for _, rows in blocks(examples.inputs):
        low, high = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
    if (low == high).all():
        return [f"{examples.names[0]}: all examples have the same inputs: nothing can be learned from them"]
    if low.ndim == 1:
        return []
    constant = np.flatnonzero(low.min(axis=0) == high.max(axis=0)).tolist()
    return [f"{examples.names[0]}: feature {k} is the same number everywhere" for k in constant[:3]]


def _are_one_hot(labels: np.ndarray) -> bool:
    """Whether rows of the last axis have a 1 and otherwise 0; those without a label have NaN."""
    if labels.ndim == 1 or labels.shape[-1] == 1:
        return False
    rows = labels[~np.isnan(labels).any(axis=-1)] if labels.dtype.kind == "f" else labels
    return bool(((rows == 0) | (rows == 1)).all() and (rows.sum(axis=-1) == 1).all())


def _are_whole(numbers: np.ndarray) -> bool:
    return bool((numbers == np.rint(numbers)).all())


def blocks(array: np.ndarray, index: np.ndarray | None = None) -> Iterator[tuple[int, np.ndarray]]:
    """The rows of `index`, or all, in blocks that are in memory: the number of the first row, and the rows."""
    rows = max(1, BLOCK // max(1, array[:1].nbytes))
    count = len(array) if index is None else len(index)
    for start in range(0, count, rows):
        chosen = slice(start, start + rows) if index is None else index[start : start + rows]
        yield start, np.asarray(array[chosen])


def fitting(low: int, high: int) -> np.dtype:
    """The smallest type of integers with these numbers, uint8, int16, int32 or, for tokens and classes, uint16."""
    return next(np.dtype(dtype) for dtype in (np.uint8, np.int16, np.uint16, np.int32) if _fits(low, high, dtype))


def _fits(low: int, high: int, dtype: type) -> bool:
    info = np.iinfo(dtype)
    return bool(info.min <= low and high <= info.max)


def _check_inputs(array: np.ndarray, name: str, tokens: bool) -> None:
    kinds = "iu" if tokens else "biuf"
    if array.dtype.kind not in kinds:
        expected = "whole numbers, the ids of --tokens" if tokens else "numbers"
        raise LrurunError(f"{name}: expected {expected}, found {array.dtype}", "convert the array, and save it again")
    low, high = (0, MAX_CLASSES) if tokens else (-(2**31), 2**31 - 1)
    for start, rows in blocks(array):
        if array.dtype.kind == "f":
            _check_finite(rows, name, start)
        elif int(rows.min()) < low or int(rows.max()) > high:
            actual = f"{rows.min()} to {rows.max()}"
            hint = "number the tokens from 1; 0 is padding" if tokens else "save real numbers: array.astype('float32')"
            raise LrurunError(f"{name}: expected whole numbers from {low} to {high}, found {actual}", hint)


def _first(wrong: np.ndarray) -> int:
    """The number of the first example with a true entry."""
    return int(wrong.reshape(len(wrong), -1).any(axis=1).argmax())


def _check_finite(rows: np.ndarray, name: str, start: int, *, missing: bool = False) -> None:
    """Refuses numbers that are not finite; with `missing`, NaN stands for no label."""
    with np.errstate(over="ignore"):
        rounded = rows.astype(np.float32)
    wrong = np.isinf(rounded) if missing else ~np.isfinite(rounded)
    if wrong.any():
        number = _first(wrong)
        value = rows[number][wrong[number]].ravel()[0] if rows.ndim > 1 else rows[number]
        hint = "replace NaN and infinities, or leave these examples out; float32 ends at 3.4e38"
        raise LrurunError(f"{name}: example {start + number} has {value}, which is not a finite number", hint)


def _labels(array: np.ndarray, name: str, inputs: Sequence[int]) -> np.ndarray:
    """Labels in memory: int64, or float64 with values last; `inputs` is the shape of the inputs."""
    is_whole, shape = array.dtype.kind in "biu", array.shape
    if array.dtype.kind not in "biuf":
        hint = "classes are whole numbers from 0, values are real numbers"
        raise LrurunError(f"{name}: expected numbers, found {array.dtype}", hint)
    forms = "(n,) or (n, positions) classes" if is_whole else "(n, values) or (n, positions, values) real numbers"
    if array.ndim > (2 if is_whole else 3) or 0 in shape:
        raise LrurunError(f"{name}: expected {forms}, found the shape {shape}", "reshape the array, and save it again")
    if is_whole and array.ndim == 2 and shape[1] == 1:
        hint = "one class for each sequence: labels[:, 0]"
        raise LrurunError(f"{name}: expected {forms}, found the shape {shape}", hint)
    if array.ndim == (2 if is_whole else 3) and shape[1] > inputs[1]:
        problem = f"{shape[1]} positions, the inputs have {plural(inputs[1], 'step')}"
        hint = "labels are those of the last positions: at most one a step"
        raise LrurunError(f"{name}: {problem}", _or_swap(hint, inputs, shape[1]))
    if is_whole:
        return _classes(array, name)
    values = np.array(array, np.float64).reshape(len(array), -1) if array.ndim == 1 else np.array(array, np.float64)
    _check_finite(values, name, 0, missing=values.ndim == 3)
    if values.ndim == 3:
        real = ~np.isnan(values)
        any_real, all_real = np.any(real, axis=-1), np.all(real, axis=-1)
        _check_labelled(all_real, name, "NaN")
        if (any_real != all_real).any():
            hint = "a position without a label has NaN in all of its values"
            raise LrurunError(
                f"{name}: example {_first(any_real != all_real)} has a position where only some values are NaN", hint
            )
    return values


def _classes(array: np.ndarray, name: str) -> np.ndarray:
    least = -1 if array.ndim == 2 else 0
    low, high = int(array.min()), int(array.max())
    if low < least or high >= MAX_CLASSES:
        hint = "number the classes from 0: numpy.unique(labels, return_inverse=True)[1]"
        if array.ndim == 2:
            hint = "number the classes from 0; -1 is a position without a label"
        raise LrurunError(f"{name}: expected classes from {least} to {MAX_CLASSES - 1}, found {low} to {high}", hint)
    classes = array.astype(np.int64)
    if array.ndim == 2:
        _check_labelled(classes >= 0, name, "-1")
    return classes


def _check_labelled(labelled: np.ndarray, name: str, none: str) -> None:
    """`labelled` (n, P): where there is a label."""
    without = ~np.any(labelled, axis=1)
    if without.any():
        raise LrurunError(f"{name}: example {_first(without)} has no label, all are {none}", "leave the example out")


def _or_swap(hint: str, inputs: Sequence[int], steps: int) -> str:
    """The hint; where inputs of this shape have so many steps only in their last axis, also how to swap it."""
    if len(inputs) == 3 and inputs[1] < steps <= inputs[2]:
        return f"{hint}; if the last axis of the inputs has the steps, save inputs.swapaxes(1, 2)"
    return hint


def _lengths(array: np.ndarray, name: str, inputs: Sequence[int]) -> np.ndarray:
    """Lengths in memory; `inputs` is the shape of the inputs."""
    length = inputs[1]
    if array.dtype.kind not in "iu" or array.ndim != 1:
        actual = f"{array.dtype} of shape {array.shape}"
        raise LrurunError(f"{name}: expected one whole number for each example, found {actual}", "(n,) integers")
    if int(array.min()) < 1 or int(array.max()) > length:
        actual = f"{array.min()} to {array.max()}"
        raise LrurunError(
            f"{name}: expected lengths from 1 to {length}, the steps of the inputs, found {actual}",
            _or_swap("a length is the number of real steps; padding follows them", inputs, int(array.max())),
        )
    return np.array(array, np.int64)


def _without_padding(ids: np.ndarray, name: str) -> np.ndarray | None:
    """(n,) the steps up to the last id that is not 0; None where all are full."""
    steps = ids.shape[1]
    ends = np.concatenate([steps - np.argmax(rows[:, ::-1] != 0, axis=1) for _, rows in blocks(ids)])
    last = np.concatenate([rows.any(axis=1) for _, rows in blocks(ids)])
    if not last.all():
        raise LrurunError(f"{name}: example {int(last.argmin())} has only 0, which is padding", "leave it out")
    return None if (ends == steps).all() else ends


def _check_within(labels: np.ndarray, lengths: np.ndarray, name: str, steps: int) -> None:
    """Refuses labels of padding."""
    if labels.ndim < (2 if labels.dtype.kind == "i" else 3):
        return
    labelled = labels >= 0 if labels.dtype.kind == "i" else ~np.isnan(labels[..., 0])
    beyond = labelled & (np.arange(steps - labels.shape[1], steps) >= lengths[:, None])
    if beyond.any():
        number = _first(beyond)
        absent = "-1" if labels.dtype.kind == "i" else "NaN"
        raise LrurunError(
            f"{name}: example {number} has a label beyond its length {lengths[number]}",
            f"padding has {absent} as label",
        )


class Division(Struct, frozen=True, kw_only=True):
    """How examples are divided."""

    validation: float
    """Fraction of all examples."""
    test: float | None
    """Fraction of all examples; None where there are arrays for testing."""
    seed: int
    stratify: bool = False
    """Whether every split has the classes in the same proportions."""


class NewTask(Struct, frozen=True, kw_only=True):
    """A task of users' arrays, and what is known about its splits."""

    task: OwnArrayTask
    """The task of imported arrays, with a source that writes them."""
    divided: str
    """How the examples are divided, in words."""
    fewest: dict[str, int] | None
    """Split -> the least number of labels of a class that occurs; None for real values."""
    groups: list[int] | None
    """The number of test items in each group; None where groups are not named."""


class _Rows(Struct, frozen=True):
    """Some rows of an array, in another type."""

    source: np.ndarray
    index: np.ndarray
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.index), *self.source.shape[1:])

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        for start, rows in blocks(self.source, self.index):
            yield start, rows.astype(self.dtype)


def task_of(
    name: str,
    examples: OwnArrays,
    test: OwnArrays | None,
    division: Division,
    *,
    classes: int | None = None,
    progress: Progress = no_progress,
) -> NewTask:
    """The task, with a source that writes its arrays.

    Args:
        test: arrays of the test split; without them it is a part of `examples`.
        classes: the number of classes, where some do not occur in the labels.

    Raises:
        LrurunError: too few examples, arrays of `test` that do not fit the others, classes that do not occur, nothing
            to learn.
    """
    sets = [examples] if test is None else [examples, test]
    _check_alike(sets)
    chosen = _divide(examples, test, division)
    progress("computing the digest of the arrays", 0, None)
    inputs_dtype, input_facts = _stored_inputs(sets, chosen["train"])
    labels, label_facts = _stored_labels(sets, chosen["train"], classes)
    arrays: dict[str, _Rows] = {}
    for split, index in chosen.items():
        set_index = len(sets) - 1 if split == "test" else 0
        array_set, stored = sets[set_index], labels[set_index]
        arrays[f"{split}-inputs"] = _Rows(array_set.inputs, index, inputs_dtype)
        arrays[f"{split}-labels"] = _Rows(stored, index, stored.dtype)
        if any(item.lengths is not None for item in sets):
            steps = array_set.inputs.shape[1]
            ends = np.full(len(array_set), steps) if array_set.lengths is None else array_set.lengths
            arrays[f"{split}-lengths"] = _Rows(ends, index, fitting(1, steps))
    counts = {split: len(index) for split, index in chosen.items()}
    facts = {**counts, **input_facts, **label_facts}
    groups = None
    if (named := sets[-1].groups) is not None:
        _, numbers, groups = np.unique(named[chosen["test"]], return_inverse=True, return_counts=True)
        arrays["test-groups"] = _Rows(numbers, np.arange(len(numbers)), fitting(0, len(groups) - 1))
        facts["groups"] = len(groups)
    facts[IMPORTED] = _digest(arrays)
    options = decoding.convert(facts, OwnArrayOptions, f"the arrays of {name}")
    fewest, notes = None, _shared_groups(sets)
    if options.loss == "cross-entropy":
        occurring, of_class = _occurring(arrays, options.classes)
        notes = [*_absent(occurring, of_class), *notes]
        fewest = {split: int(number.min()) for split, number in of_class.items()}
    divided = _in_words(sets, division)
    return NewTask(
        task=OwnArrayTask(name, options, _source(arrays, sets, division, divided, notes)),
        divided=divided,
        fewest=fewest,
        groups=None if groups is None else groups.tolist(),
    )


def no_strata(examples: OwnArrays) -> str | None:
    """Why these examples cannot be divided with the classes in proportion; None where they can."""
    if examples.groups is not None:
        return "the examples of a group stay together, whatever their classes are"
    if examples.labels.dtype.kind == "f":
        return f"{examples.names[1]}: real values have no classes"
    if examples.labels.ndim == 2:
        return f"{examples.names[1]}: an example has a class at each of its positions, not one of its own"
    return None


def _check_alike(sets: Sequence[OwnArrays]) -> None:
    """Refuses test arrays of other forms."""
    for examples in sets[1:]:
        for second, first, name in zip(
            (examples.inputs, examples.labels), (sets[0].inputs, sets[0].labels), examples.names[:2], strict=True
        ):
            kinds = [array.dtype.kind == "f" for array in (second, first)]
            if second.shape[1:] != first.shape[1:] or (name == examples.names[1] and kinds[0] != kinds[1]):
                expected, actual = (
                    f"{array.dtype} of shape (n, {str(array.shape[1:])[1:]}" for array in (first, second)
                )
                raise LrurunError(
                    f"{name}: expected {expected}, as for training, found {actual}", "give both sets the same form"
                )
        if examples.groups is None or sets[0].groups is None:
            continue
        kinds = [array.dtype.kind in "US" for array in (examples.groups, sets[0].groups)]
        if kinds[0] != kinds[1]:
            expected, actual = ("text" if kind else "whole numbers" for kind in kinds[::-1])
            raise LrurunError(
                f"{examples.names[3]}: expected {expected}, as for training, found {actual}",
                "a group has the same name in both files",
            )


def _divide(examples: OwnArrays, test: OwnArrays | None, division: Division) -> dict[str, np.ndarray]:
    """Split -> the numbers of its examples, in ascending order."""
    _check_shares(division)
    shares = {"test": division.test, "validation": division.validation}
    sizes = {split: round(share * len(examples)) for split, share in shares.items() if share is not None}
    counts = list(sizes.values())
    if examples.groups is not None:
        divided = splits.grouped(_group_numbers(examples.groups, examples.names[3], len(counts)), counts, division.seed)
    else:
        order = np.random.RandomState(division.seed).permutation(len(examples))
        if division.stratify:
            order = splits.stratified(order, examples.labels, counts)
        divided = np.split(order, np.cumsum(counts))
    parts = dict(zip((*sizes, "train"), map(np.sort, divided), strict=True))
    if test is not None:
        parts["test"] = np.arange(len(test))
    for split in SPLITS:
        if not len(parts[split]):
            raise LrurunError(
                f"{examples.names[0]}: {len(examples)} examples are too few: {split} would have none",
                "give more examples, or other fractions: --validation, --test",
            )
    return {split: parts[split] for split in SPLITS}


def _group_numbers(groups: np.ndarray, name: str, parts: int) -> np.ndarray:
    """(n,) the number of the group of each example.

    Raises:
        LrurunError: there are too few groups for so many parts beside training.
    """
    names, numbers = np.unique(groups, return_inverse=True)
    if len(names) <= parts:
        raise LrurunError(
            f"{name}: {plural(len(names), 'group')}, of which each is in one split: at least {parts + 1} are needed",
            "give more groups, or leave --groups out",
        )
    return numbers


def _in_words(sets: Sequence[OwnArrays], division: Division) -> str:
    """How the examples are divided."""
    if sets[0].groups is not None:
        count = len(np.unique(sets[0].groups))
        return f"by a permutation of {count} groups of seed {division.seed}, each in one split"
    classes = ", with the classes in proportion" if division.stratify else ""
    return f"by a permutation of seed {division.seed}{classes}"


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


def _stored_inputs(sets: Sequence[OwnArrays], train: np.ndarray) -> tuple[np.dtype, _Facts]:
    """The type in which inputs are stored, and what is known about them."""
    first = sets[0]
    shape = first.inputs.shape
    dtype = np.dtype(np.float32)
    if all(examples.inputs.dtype.kind != "f" for examples in sets):
        low, high = (int(extreme([extreme(examples.inputs) for examples in sets])) for extreme in (np.min, np.max))
        dtype = fitting(low, high)
        if first.tokens:
            return dtype, {"kind": "tokens", "features": high + 1, "length": shape[1]}
    features = shape[2] if len(shape) == 3 else 1
    mean, std = _moments(lambda: _real(first, train, features), features)
    return dtype, {"kind": "features", "features": features, "length": shape[1], "mean": mean, "std": std}


def _real(examples: OwnArrays, index: np.ndarray, features: int) -> Iterator[np.ndarray]:
    """(steps, features) float64: the real positions of these examples."""
    for start, rows in blocks(examples.inputs, index):
        values = rows.reshape(len(rows), -1, features).astype(np.float64)
        if examples.lengths is not None:
            values = values[np.arange(values.shape[1]) < examples.lengths[index[start : start + len(rows)], None]]
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


def _stored_labels(
    sets: Sequence[OwnArrays], train: np.ndarray, classes: int | None
) -> tuple[list[np.ndarray], _Facts]:
    """The labels as they are stored, and the output."""
    arrays, name = [examples.labels for examples in sets], sets[0].names[1]
    values = arrays[0].dtype.kind == "f"
    positions = arrays[0].ndim == (3 if values else 2)
    facts: _Facts = {"at": "positions" if positions else "sequence"}
    if positions:
        labelled = [~np.isnan(labels[..., 0]) if values else labels >= 0 for labels in arrays]
        largest = int(max(mask.sum(axis=1).max() for mask in labelled))
        facts["labelled"] = largest if largest < arrays[0].shape[1] else None
    if not values:
        class_count = _count(arrays, [examples.names[1] for examples in sets], classes)
        dtype = fitting(-1 if positions else 0, class_count - 1)
        return [labels.astype(dtype) for labels in arrays], {**facts, "classes": class_count}
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
    stored = [((labels - mean) / std).astype(np.float32) for labels in arrays]
    return stored, {**facts, "loss": "squared-error", "classes": size, "label_mean": mean, "label_std": std}


def _count(arrays: Sequence[np.ndarray], names: Sequence[str], classes: int | None) -> int:
    """The number of classes, of which each must occur unless it was declared. Errors name the array of the last one."""
    name = names[int(np.argmax([labels.max() for labels in arrays]))]
    occurring = np.unique(np.concatenate([np.unique(labels) for labels in arrays]))
    occurring = occurring[occurring >= 0]
    highest = int(occurring[-1])
    if classes is not None:
        if highest >= classes:
            raise LrurunError(f"{name}: has class {highest}, --classes {classes} ends at {classes - 1}", "count from 0")
        return classes
    if len(occurring) == 1:
        raise LrurunError(f"{name}: all labels are class {highest}: there is nothing to learn", "check the array")
    if len(occurring) <= highest:
        missing = int(np.setdiff1d(np.arange(highest), occurring)[0])
        raise LrurunError(
            f"{name}: expected every class from 0 to {highest}, class {missing} does not occur",
            "number the classes from 0: numpy.unique(labels, return_inverse=True)[1]; "
            f"or declare that some do not occur: --classes {highest + 1}",
        )
    return highest + 1


def _occurring(arrays: Mapping[str, _Rows], classes: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The classes that occur, and how many labels each of them has: split -> numbers."""
    counts = {}
    for split in SPLITS:
        of_blocks = (count_classes(rows, classes) for _, rows in arrays[f"{split}-labels"].blocks())
        counts[split] = sum(of_blocks, np.zeros(classes, np.int64))
    occurring = np.flatnonzero(np.any(list(counts.values()), axis=0))
    return occurring, {split: count[occurring] for split, count in counts.items()}


def _absent(occurring: np.ndarray, counts: Mapping[str, np.ndarray]) -> list[str]:
    """Sentences on classes that occur in one split, but not in another."""
    sentences = []
    for split, count in counts.items():
        missing = occurring[count == 0]
        if len(missing):
            named = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
            sentences.append(f"{split} has no label of class {named}")
    return sentences


def _shared_groups(sets: Sequence[OwnArrays]) -> list[str]:
    """A sentence on groups of a separate test split that the other examples have too."""
    if len(sets) == 1 or sets[0].groups is None or sets[1].groups is None:
        return []
    groups = np.unique(sets[1].groups)
    shared = len(np.intersect1d(groups, sets[0].groups))
    if not shared:
        return []
    return [f"{shared} of the {plural(len(groups), 'group')} of the test items are groups of the other examples too"]


def _digest(arrays: Mapping[str, _Rows]) -> str:
    """The digest of the prepared data, see `lrurun.data.task_data.digest`."""
    digests = {}
    for name, rows in arrays.items():
        digest = hashlib.sha256(header(rows.shape, rows.dtype))
        for _, block in rows.blocks():
            digest.update(block.tobytes())
        digests[name] = digest.hexdigest()
    return task_data.digest(digests)


def _source(
    arrays: Mapping[str, _Rows], sets: Sequence[OwnArrays], division: Division, divided: str, notes: Sequence[str]
) -> Source:
    def fill(writer: Writer, progress: Progress) -> None:
        writer.notes.extend(notes)
        for name, rows in arrays.items():
            split, _, part = name.partition("-")
            file = writer.create(split, part, rows.shape, rows.dtype)
            for start, block in rows.blocks():
                progress(f"writing {name}", start, rows.shape[0])
                file.put(start, block)

    named = " and ".join(dict.fromkeys(examples.files for examples in sets))
    share = "" if division.test is None else f"{division.test:g} of them for test, "
    share += f"{division.validation:g} for validation, {divided}"
    declared = {"permutation": "numpy.random.RandomState", **structs.asdict(division)}
    if sets[0].groups is not None:
        declared["groups"] = len(np.unique(sets[0].groups))
    return Source(
        kind="imported",
        text=f"the imported arrays {named}; {share}",
        fill=fill,
        generator={k: v for k, v in declared.items() if v is not None},
    )
