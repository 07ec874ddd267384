"""Whether stored arrays have the types, shapes and values that their task declares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lrurun.data import arrays
from lrurun.data.arrays import Writer
from lrurun.data.task import SPLITS, Options, Output, Spec, Task
from lrurun.errors import LrurunError


def check(array: np.ndarray, part: str, spec: Spec, name: str, hint: str) -> None:
    """Refuses an array that does not fit the task.

    Raises:
        LrurunError: its type, its shape, or a value.
    """
    count, pairs = len(array), (2,) if spec.pair else ()
    if part == "labels" and spec.output != Output():
        _check_labels(array, spec, name, hint)
        return
    shapes: dict[str, list[tuple[int, ...]]] = {
        "inputs": [(count, *pairs, spec.length)],
        "labels": [(count,)],
        "lengths": [(count, *pairs)],
    }
    least, most = {"inputs": (0, spec.features - 1), "labels": (0, spec.classes - 1), "lengths": (1, spec.length)}[part]
    measured = part == "inputs" and spec.kind == "features"
    if measured:
        shapes[part] = [(count, spec.length, spec.features)] + shapes[part] * (spec.features == 1)
    if array.dtype.kind not in ("iuf" if measured else "iu") or not array.dtype.isnative:
        raise LrurunError(f"{name}: expected {'' if measured else 'whole '}numbers, found {array.dtype}", hint)
    if array.shape not in shapes[part]:
        raise LrurunError(f"{name}: expected the shape {shapes[part][0]}, found {array.shape}", hint)
    if measured and array.dtype.kind == "f":
        _refuse(array, lambda rows: ~np.isfinite(rows), name, "finite numbers", hint)
    elif not measured:
        rule = f"numbers from {least} to {most}"
        _refuse(array, lambda rows: (rows < least) | (rows > most), name, rule, hint)


def check_made(task: Task, options: Options, writer: Writer, folder: str) -> None:
    """Refuses arrays that the code of a plug-in's task has just written, if they do not fit its declarations.

    Raises:
        LrurunError: an array that `check` refuses, or one with another number of examples than the labels.
    """
    hint = f"the code of task {task.name} wrote it: correct its `fill` or its spec()"
    specs = dict.fromkeys(SPLITS, task.spec(options, writer.vocabulary))
    specs |= {f"test@{name}": task.spec(one) for name, one in task.settings(options).items()}
    for split, spec in specs.items():
        count = writer.arrays[f"{split}-labels"].shape[0]
        for part in ("inputs", "labels", "lengths"):
            if (made := writer.arrays.get(f"{split}-{part}")) is not None:
                name = f"{folder}: {split}-{part}"
                if made.shape[0] != count:
                    raise LrurunError(f"{name}: expected one for each of {count} labels, found {made.shape[0]}", hint)
                check(np.load(made.path, mmap_mode="r", allow_pickle=False), part, spec, name, hint)


def _refuse(array: np.ndarray, wrong: Callable[[np.ndarray], np.ndarray], name: str, expected: str, hint: str) -> None:
    """Refuses an array with a wrong number, and names the first example that has one."""
    begin = 0
    for rows in arrays.blocks(array):
        if (bad := wrong(rows)).any():
            at = np.unravel_index(bad.argmax(), bad.shape)
            index = f"{begin + int(at[0])}" + "".join(f", {int(k)}" for k in at[1:])
            raise LrurunError(f"{name}[{index}]: expected {expected}, found {rows[at]}", hint)
        begin += len(rows)


def _check_labels(array: np.ndarray, spec: Spec, name: str, hint: str) -> None:
    """Refuses labels that do not fit an output at positions or of real values.

    Raises:
        LrurunError: their type, their shape, a class, or an example without a label.
    """
    output, values = spec.output, spec.output.loss == "squared-error"
    places = (min(array.shape[1] if array.ndim > 1 else 0, spec.length),) if output.at == "positions" else ()
    shape = (len(array), *places, *((spec.classes,) if values else ()))
    if array.dtype.kind not in ("f" if values else "iu") or not array.dtype.isnative:
        raise LrurunError(f"{name}: expected {'real' if values else 'whole'} numbers, found {array.dtype}", hint)
    if array.shape != shape or places == (0,):
        raise LrurunError(f"{name}: expected the shape {shape}, found {array.shape}", hint)
    if values:
        _refuse(array, np.isinf, name, "finite numbers, or NaN where there is no label", hint)
    else:
        rule = f"classes from 0 to {spec.classes - 1}, or -1 where there is no label"
        _refuse(array, lambda rows: (rows < -1) | (rows >= spec.classes), name, rule, hint)
    labelled = ((~np.isnan(rows)).all(axis=-1) if values else rows >= 0 for rows in arrays.blocks(array))
    per_example = np.concatenate([rows.reshape(len(rows), -1).sum(axis=1) for rows in labelled] or [np.zeros(0)])
    if array.size and not per_example.all():
        what = "labelled position" if output.at == "positions" else "label"
        raise LrurunError(f"{name}: example {int(per_example.argmin())} has no {what}", hint)
    if output.labelled is not None and array.size and per_example.max() > output.labelled:
        found = f"example {int(per_example.argmax())} has {per_example.max()} labelled positions"
        raise LrurunError(f"{name}: {found}, its task declares at most {output.labelled}", hint)
