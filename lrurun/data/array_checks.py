"""Whether stored arrays have the types, shapes and values that their task declares."""

from __future__ import annotations

import numpy as np

from lrurun.data import counts
from lrurun.data.output import Output
from lrurun.data.task import Spec
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
    if measured or not array.size:
        return
    found = (int(array.min()), int(array.max()))
    if found[0] < least or found[1] > most:
        raise LrurunError(f"{name}: expected numbers from {least} to {most}, found {found[0]} to {found[1]}", hint)


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
    if not values and array.size and not -1 <= array.min() <= array.max() < spec.classes:
        found = f"{array.min()} to {array.max()}"
        raise LrurunError(f"{name}: expected classes from 0 to {spec.classes - 1}, or -1, found {found}", hint)
    labelled = ((~np.isnan(rows)).all(axis=-1) if values else rows >= 0 for rows in counts.blocks(array))
    per_example = np.concatenate([rows.reshape(len(rows), -1).sum(axis=1) for rows in labelled] or [np.zeros(0)])
    if array.size and not per_example.all():
        raise LrurunError(f"{name}: example {int(per_example.argmin())} has no labelled position", hint)
    if output.labelled is not None and array.size and per_example.max() > output.labelled:
        found = f"example {int(per_example.argmax())} has {per_example.max()} labelled positions"
        raise LrurunError(f"{name}: {found}, its task declares at most {output.labelled}", hint)
