"""Users' own arrays: read from `.npy` files and checked. Every error names the option and the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct

from lrurun.data.copies import reading
from lrurun.errors import LrurunError

BLOCK = 1 << 24
"""Bytes of inputs that are in memory at once."""
MOST = 1_000_000
"""Classes, or token ids: larger numbers are probably measurements."""


FEW = 100
"""Different real labels, at most, that may be meant as classes."""


class Given(Struct, frozen=True, kw_only=True):
    """One set of arrays, and how messages name them."""

    inputs: np.ndarray
    """(n, L) or (n, L, F), mapped from the file."""
    labels: np.ndarray
    """(n,) or (n, P) integers; (n, D) or (n, P, D) real values."""
    lengths: np.ndarray | None
    names: tuple[str, str, str]
    """Of inputs, labels and lengths: option and file."""
    files: str
    """Names of the files, for people."""
    tokens: bool
    """Whether inputs are ids."""

    def __len__(self) -> int:
        return len(self.inputs)


def given(inputs: Path, labels: Path, lengths: Path | None, *, prefix: str = "--", tokens: bool = False) -> Given:
    """The arrays in these files, of equal counts, types and shapes as documented.

    Args:
        prefix: of the options, for messages.
        tokens: whether inputs are ids; without `lengths`, zeros at the end are then padding.

    Raises:
        LrurunError: a file that cannot be read or is no array of numbers; other shapes, types or values; other counts.
    """
    files = {"inputs": inputs, "labels": labels, "lengths": lengths}
    of_x, of_y, of_ends = (f"{prefix}{option} {file}" for option, file in files.items())
    x, y = read(inputs, of_x), read(labels, of_y)
    ends = None if lengths is None else read(lengths, of_ends)
    if x.ndim and not len(x):
        raise LrurunError(f"{of_x}: there are no examples: the array has the shape {x.shape}", "save at least three")
    if x.ndim not in ((2,) if tokens else (2, 3)) or 0 in x.shape:
        expected = "(examples, steps) ids" if tokens else "(examples, steps) or (examples, steps, features) numbers"
        raise LrurunError(
            f"{of_x}: expected {expected}, found the shape {x.shape}", "reshape the array, and save it again"
        )
    for array, name in ((y, of_y), (ends, of_ends)):
        if array is not None and (array.ndim == 0 or len(array) != len(x)):
            found = array.shape[0] if array.ndim else "a single number"
            raise LrurunError(
                f"{name}: expected {len(x)} examples, as many as inputs, found {found}", "save all of them"
            )
    _check_inputs(x, of_x, tokens)
    y = _labels(y, of_y, x.shape[1])
    if ends is not None:
        ends = _lengths(ends, of_ends, x.shape[1])
    elif tokens:
        ends = _without_padding(x, of_x)
    if ends is not None:
        _check_within(y, ends, of_y, x.shape[1])
    shown = ", ".join(path.name for path in (inputs, labels, lengths) if path is not None)
    return Given(inputs=x, labels=y, lengths=ends, names=(of_x, of_y, of_ends), files=shown, tokens=tokens)


def read(path: Path, name: str) -> np.ndarray:
    """The array in a `.npy` file, mapped. Python objects are never loaded.

    Raises:
        LrurunError: it cannot be read, or is something else.
    """
    again = "save the array with numpy.save(FILE, array)"
    try:
        with reading.open_regular(path) as file:
            magic = file.read(6)
        if magic[:4] == b"PK\3\4":
            hint = 'save each array in a file of its own: numpy.save("inputs.npy", numpy.load(FILE)["inputs"])'
            raise LrurunError(f"{name}: an archive of several arrays (.npz), expected one array (.npy)", hint)
        if magic != b"\x93NUMPY":
            raise LrurunError(f"{name}: not a .npy file", again)
        array = np.lib.format.open_memmap(path, mode="r")
        if array.dtype.names:
            hint = "save one field: numpy.save(FILE, array[FIELD])"
            raise LrurunError(f"{name}: expected numbers, found records of the type {array.dtype}", hint)
        return array
    except LrurunError:
        raise
    except OSError as error:
        raise LrurunError(f"{name}: {error.strerror or error}", "check the path and its permissions") from None
    except Exception as error:  # NumPy raises many types for an invalid header
        if "Python objects" in str(error):
            hint = (
                "objects may run code when they are loaded: save numbers, as in numpy.save(FILE, array.astype(float))"
            )
            raise LrurunError(f"{name}: has Python objects, which are not read", hint) from None
        raise LrurunError(f"{name}: not an array of numbers: {reading.first_line(error)}", again) from None


def doubts(given: Given) -> list[str]:
    """Sentences on arrays that may be meant otherwise: whole numbers as real ones, ids without --tokens, constants."""
    x, y = given.inputs, given.labels
    found = []
    if y.dtype.kind == "f":
        values = np.unique(y[~np.isnan(y)])
        if len(values) <= FEW and _are_whole(values):
            found.append(
                f"{given.names[1]}: labels are {len(values)} different whole numbers, but saved as real numbers: they "
                "are imported as real values, and scored by R². Classes must be saved as integers: labels.astype(int)"
            )
    if not given.tokens and x.ndim == 2 and all(_are_whole(rows) and rows.min() >= 0 for _, rows in blocks(x)):
        found.append(
            f"{given.names[0]}: inputs are whole numbers, and imported as measurements. Ids, as of letters or words, "
            "need --tokens" + (", and must be saved as integers: inputs.astype(int)" if x.dtype.kind == "f" else "")
        )
    return found + _constants(given)


def _constants(given: Given) -> list[str]:
    """Sentences on inputs that say nothing about the labels."""
    low = high = np.asarray(given.inputs[0])
    for _, rows in blocks(given.inputs):
        low, high = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
    if (low == high).all():
        return [f"{given.names[0]}: all examples have the same inputs: nothing can be learned from them"]
    if low.ndim == 1:
        return []
    same = np.flatnonzero(low.min(axis=0) == high.max(axis=0)).tolist()
    return [f"{given.names[0]}: feature {k} is the same number everywhere" for k in same[:3]]


def _are_whole(numbers: np.ndarray) -> bool:
    return bool((numbers == np.rint(numbers)).all())


def blocks(array: np.ndarray, index: np.ndarray | None = None) -> Iterator[tuple[int, np.ndarray]]:
    """Some rows after others, in memory: the number of the first, and the rows; those of `index`, or all."""
    rows = max(1, BLOCK // max(1, array[:1].nbytes))
    count = len(array) if index is None else len(index)
    for start in range(0, count, rows):
        chosen = slice(start, start + rows) if index is None else index[start : start + rows]
        yield start, np.asarray(array[chosen])


def fitting(low: int, high: int) -> np.dtype:
    """The smallest type of integers with these numbers, uint8, int16, int32 or, for tokens and classes, uint16."""
    return next(np.dtype(one) for one in (np.uint8, np.int16, np.uint16, np.int32) if _fits(low, high, one))


def _fits(low: int, high: int, dtype: type) -> bool:
    info = np.iinfo(dtype)
    return bool(info.min <= low and high <= info.max)


def _check_inputs(array: np.ndarray, name: str, tokens: bool) -> None:
    kinds = "iu" if tokens else "biuf"
    if array.dtype.kind not in kinds:
        expected = "whole numbers, the ids of --tokens" if tokens else "numbers"
        raise LrurunError(f"{name}: expected {expected}, found {array.dtype}", "convert the array, and save it again")
    least, most = (0, MOST) if tokens else (-(2**31), 2**31 - 1)
    for start, rows in blocks(array):
        if array.dtype.kind == "f":
            _check_finite(rows, name, start)
        elif int(rows.min()) < least or int(rows.max()) > most:
            found = f"{rows.min()} to {rows.max()}"
            hint = "number the tokens from 1; 0 is padding" if tokens else "save real numbers: array.astype('float32')"
            raise LrurunError(f"{name}: expected whole numbers from {least} to {most}, found {found}", hint)


def _first(wrong: np.ndarray) -> int:
    """The number of the first example with a true entry."""
    return int(wrong.reshape(len(wrong), -1).any(axis=1).argmax())


def _check_finite(rows: np.ndarray, name: str, start: int, *, missing: bool = False) -> None:
    """`missing`: NaN stands for no label."""
    with np.errstate(over="ignore"):
        single = rows.astype(np.float32)
    wrong = np.isinf(single) if missing else ~np.isfinite(single)
    if wrong.any():
        number = _first(wrong)
        value = rows[number][wrong[number]].ravel()[0] if rows.ndim > 1 else rows[number]
        hint = "replace NaN and infinities, or leave these examples out; float32 ends at 3.4e38"
        raise LrurunError(f"{name}: example {start + number} has {value}, which is not a finite number", hint)


def _labels(array: np.ndarray, name: str, length: int) -> np.ndarray:
    """Labels in memory: int64, or float64 with values last."""
    whole, shape = array.dtype.kind in "biu", array.shape
    if array.dtype.kind not in "biuf":
        hint = "classes are whole numbers from 0, values are real numbers"
        raise LrurunError(f"{name}: expected numbers, found {array.dtype}", hint)
    forms = "(n,) or (n, positions) classes" if whole else "(n, values) or (n, positions, values) real numbers"
    if array.ndim > (2 if whole else 3) or 0 in shape:
        raise LrurunError(f"{name}: expected {forms}, found the shape {shape}", "reshape the array, and save it again")
    if whole and array.ndim == 2 and shape[1] == 1:
        hint = "one class for each sequence: labels[:, 0]"
        raise LrurunError(f"{name}: expected {forms}, found the shape {shape}", hint)
    if array.ndim == (2 if whole else 3) and shape[1] > length:
        found = f"{shape[1]} positions, the inputs have {length} steps"
        raise LrurunError(f"{name}: {found}", "labels are those of the last positions: at most one a step")
    if whole:
        return _classes(array, name)
    values = np.array(array, np.float64).reshape(len(array), -1) if array.ndim == 1 else np.array(array, np.float64)
    _check_finite(values, name, 0, missing=values.ndim == 3)
    if values.ndim == 3:
        real = ~np.isnan(values)
        some, every = np.any(real, axis=-1), np.all(real, axis=-1)
        _check_labelled(every, name, "NaN")
        if (some != every).any():
            hint = "a position without a label has NaN in all of its values"
            raise LrurunError(
                f"{name}: example {_first(some != every)} has a position where only some values are NaN", hint
            )
    return values


def _classes(array: np.ndarray, name: str) -> np.ndarray:
    least = -1 if array.ndim == 2 else 0
    low, high = int(array.min()), int(array.max())
    if low < least or high >= MOST:
        hint = "number the classes from 0: numpy.unique(labels, return_inverse=True)[1]"
        if array.ndim == 2:
            hint = "number the classes from 0; -1 is a position without a label"
        raise LrurunError(f"{name}: expected classes from {least} to {MOST - 1}, found {low} to {high}", hint)
    classes = array.astype(np.int64)
    if array.ndim == 2:
        _check_labelled(classes >= 0, name, "-1")
    return classes


def _check_labelled(labelled: np.ndarray, name: str, none: str) -> None:
    """`labelled` (n, P): where there is a label."""
    without = ~np.any(labelled, axis=1)
    if without.any():
        raise LrurunError(f"{name}: example {_first(without)} has no label, all are {none}", "leave the example out")


def _lengths(array: np.ndarray, name: str, length: int) -> np.ndarray:
    if array.dtype.kind not in "iu" or array.ndim != 1:
        found = f"{array.dtype} of shape {array.shape}"
        raise LrurunError(f"{name}: expected one whole number for each example, found {found}", "(n,) integers")
    if int(array.min()) < 1 or int(array.max()) > length:
        found = f"{array.min()} to {array.max()}"
        raise LrurunError(
            f"{name}: expected lengths from 1 to {length}, the steps of the inputs, found {found}",
            "a length is the number of real steps; padding follows them",
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
        none = "-1" if labels.dtype.kind == "i" else "NaN"
        raise LrurunError(
            f"{name}: example {number} has a label beyond its length {lengths[number]}", f"padding has {none} as label"
        )
