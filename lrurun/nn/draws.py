"""Functions of random keys in parts: what NumPy draws, what XLA computes of it, and what is only arranged.

XLA takes about a tenth of a second of processor time for each use of the generator in a program, and a hundredth for
each slice or array of zeros; NumPy has the same bits at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.extend.core import JaxprEqn, Literal

from lrurun.data.on_device import PRNG, fixed_generator

Tree = Any
"""Nested dictionaries of arrays."""

_KEY: Final = "key<fry>"
"""The dtype of the keys of Threefry."""
_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_CALLS: Final = ("jit", "pjit")
"""Names of a call of a jitted function."""
_POOL: Final = "_lrurun_sample"
"""The name of functions that are programs of their own, see `shared`."""
_CHUNK: Final = 1 << 14
"""Blocks that are computed at once: they stay in the processor's cache."""


def threefry(key: np.ndarray, counters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011) of the blocks (0, counter), as two words each.

    `key` (..., 2) and `counters` (..., n) are uint32; they broadcast without the key's last axis.
    """
    keys = key[..., 0], key[..., 1], key[..., 0] ^ key[..., 1] ^ np.uint32(0x1BD11BDA)
    y = counters + keys[1]
    x = np.broadcast_to(keys[0], y.shape).copy()
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x += y
            y = (y << np.uint32(bits)) | (y >> np.uint32(32 - bits))
            y ^= x
        x += keys[(group + 1) % 3]
        y += keys[(group + 2) % 3]
        y += np.uint32(group + 1)
    return x, y


def _bits(key: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """uint32 (..., *shape) of keys (..., 2), as `jax.random.bits` where the generator is partitionable."""
    count, keys = math.prod(shape), key.reshape(-1, 2)
    bits = np.empty((len(keys), count), np.uint32)
    for one, row in zip(keys, bits, strict=True):
        for start in range(0, count, _CHUNK):
            part = row[start : start + _CHUNK]
            part[:] = np.bitwise_xor(*threefry(one, np.arange(start, start + len(part), dtype=np.uint32)))
    return bits.reshape(key.shape[:-1] + shape)


def _split(key: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    counters = np.arange(math.prod(shape), dtype=np.uint32)
    return np.stack(threefry(key[..., None, :], counters), axis=-1).reshape(*key.shape[:-1], *shape, 2)


def _seeded(seed: np.ndarray) -> np.ndarray:
    words = np.asarray(seed).astype(np.uint32)
    return np.stack([np.zeros_like(words), words], axis=-1)


def _folded(key: np.ndarray, data: np.ndarray) -> np.ndarray:
    return np.stack(threefry(key[..., None, :], np.asarray(data, np.uint32)[..., None]), axis=-1)[..., 0, :]


def _broadcast(array: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """`array`, whose axes become `axes`, with all of `shape`."""
    ones = [1] * len(shape)
    for axis, size in zip(axes, np.shape(array), strict=True):
        ones[axis] = size
    return np.broadcast_to(np.reshape(array, ones), shape)


_Rules = Mapping[str, Callable[..., Any]]
"""Operations on arrays of NumPy, by the names of jax's; those of several results return tuples."""

_MOVES: Final[_Rules] = {
    "slice": lambda x, *, start_indices, limit_indices, strides, **_: x[
        tuple(map(slice, start_indices, limit_indices, strides or [None] * len(start_indices)))
    ],
    "squeeze": lambda x, *, dimensions, **_: np.squeeze(x, dimensions),
    "unstack": lambda x, *, axis, **_: tuple(np.moveaxis(x, axis, 0)),
}
"""Of a key, whose last axis of two words they leave."""

_DRAWS: Final[_Rules] = {
    **_MOVES,
    "random_seed": lambda seed, **_: _seeded(seed),
    "random_fold_in": lambda key, data, **_: _folded(key, data),
    "random_split": lambda key, *, shape, **_: _split(key, shape),
    "random_bits": lambda key, *, shape, **_: _bits(key, shape),
    "random_wrap": lambda data, **_: data,
    "random_unwrap": lambda key, **_: key,
}

_ARRANGEMENTS: Final[_Rules] = {
    **_MOVES,
    "mul": lambda x, y, **_: np.multiply(np.asarray(x, np.float32), np.asarray(y, np.float32)),
    "split": lambda x, *, axis, sizes, **_: tuple(np.split(x, np.cumsum(sizes)[:-1], axis)),
    "reshape": lambda x, *, new_sizes, dimensions, **_: np.reshape(
        x if dimensions is None else np.transpose(x, dimensions), new_sizes
    ),
    "broadcast_in_dim": lambda x, *, shape, broadcast_dimensions, **_: _broadcast(x, shape, broadcast_dimensions),
}


class _Slot:
    """A value of a function, whose shape and dtype are known."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    @property
    def is_key(self) -> bool:
        return jax.dtypes.issubdtype(self.aval.dtype, jax.dtypes.prng_key)


class _Step(NamedTuple):
    """An operation on values, which are slots or constants."""

    operation: JaxprEqn
    inputs: list[Any]
    outputs: list[_Slot]

    @property
    def name(self) -> str:
        return str(self.operation.primitive.name)


class Parts:
    """A function of random keys and seeds in three parts: `draw`, `compute`, `arrange`, each of the results before it.

    The first and the last can be computed by NumPy, on the host, with the bits of jax. Draws inside loops and
    conditions, and those of another width than 32 bits, stay in the second, which then has their keys.

    Attributes:
        shapes: shapes and dtypes of what the function returns.
    """

    def __init__(self, function: Callable[..., Tree], *arguments: Any) -> None:
        """`arguments` are arrays, or their shapes."""
        with fixed_generator():
            closed, self.shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        self._inputs = [_Slot(of.aval) for of in closed.jaxpr.invars]
        self._known, self._pieces = set(self._inputs), set[_Slot]()
        self._draws, steps = list[_Step](), list[_Step]()
        self._outputs = self._read(closed.jaxpr, closed.consts, self._inputs, steps)
        self._arrangements = _needed(steps, self._outputs, self._is_arrangement)
        taken = _taken(self._arrangements, self._outputs)
        self._computed = [slot for slot in taken if slot not in self._known]
        self._computations = _needed(steps, self._computed, lambda _: True)
        used = dict.fromkeys([*taken, *_taken(self._computations, [])])
        self._drawn = [slot for slot in used if slot in self._known]
        self._draws = _needed(self._draws, self._drawn, lambda _: True)

    def _read(self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any], rest: list[_Step]) -> list[Any]:
        """Divides the operations of `jaxpr`, with those of functions that it calls, into draws and `rest`.

        Returns its results.
        """
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True))

        def value(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for operation in jaxpr.eqns:
            inputs = [value(atom) for atom in operation.invars]
            known = not self._known.isdisjoint(_slots(inputs))
            if known and operation.primitive.name in _CALLS and operation.params["name"] != _POOL:
                inner = operation.params["jaxpr"]
                outputs = self._read(inner.jaxpr, inner.consts, inputs, rest)
            else:
                outputs = [_Slot(of.aval) for of in operation.outvars]
                step = _Step(operation, inputs, outputs)
                if known and self._is_draw(step):
                    self._draws.append(step)
                    self._known.update(outputs)
                else:
                    rest.append(step)
                moved = (
                    step.name in _ARRANGEMENTS and step.name != "mul" and not self._pieces.isdisjoint(_slots(inputs))
                )
                if moved or (step.name in _CALLS and step.operation.params["name"] == _POOL):
                    self._pieces.update(outputs)
            values.update(zip(operation.outvars, outputs, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def _is_draw(self, step: _Step) -> bool:
        slots, params = _slots(step.inputs), step.operation.params
        if step.name in _CALLS:
            return self._known.issuperset(slots) and not any(slot.is_key for slot in slots)
        keys = [slot for slot in (*slots, *step.outputs) if slot.is_key]
        return (
            step.name in _DRAWS
            and self._known.issuperset(slots)
            and bool(keys)
            and all(str(key.aval.dtype) == _KEY for key in keys)
            and params.get("bit_width", 32) == 32
            and math.prod(params.get("shape", ())) < 1 << 32
        )

    def _is_arrangement(self, step: _Step) -> bool:
        if step.name != "mul":
            return step.name in _ARRANGEMENTS
        slots = _slots(step.inputs)
        return (
            len(slots) == 1
            and self._pieces.issuperset(slots)
            and slots[0].aval.dtype == np.float32
            and all(np.ndim(value) == 0 for value in step.inputs if not isinstance(value, _Slot))
        )

    def draw(self, arguments: Sequence[Any], *, traced: bool = False) -> list[Any]:
        """Random bits, and keys that the second part draws with: (..., 2) uint32 unless `traced`."""
        values = dict(zip(self._inputs, arguments, strict=True))
        _run(self._draws, values, None if traced else _DRAWS)
        return [values[slot] for slot in self._drawn]

    def compute(self, drawn: Sequence[Any]) -> list[Any]:
        """Everything that is neither drawn nor only arranged, to be traced."""
        values: dict[Any, Any] = {}
        for slot, array in zip(self._drawn, drawn, strict=True):
            has_words = slot.is_key and array.dtype == np.uint32
            values[slot] = jax.random.wrap_key_data(array, impl=PRNG) if has_words else array
        _run(self._computations, values, None)
        return [values[slot] for slot in self._computed]

    def arrange(self, drawn: Sequence[Any], computed: Sequence[Any], *, traced: bool = False) -> Tree:
        """What the function returns: pieces of both, and constants; arrays of NumPy unless `traced`."""
        values = dict(zip([*self._drawn, *self._computed], [*drawn, *computed], strict=True))
        _run(self._arrangements, values, None if traced else _ARRANGEMENTS)
        leaves = [values[value] if isinstance(value, _Slot) else value for value in self._outputs]
        shapes, structure = jax.tree.flatten(self.shapes)
        if not traced:
            leaves = [np.asarray(leaf, shape.dtype) for leaf, shape in zip(leaves, shapes, strict=True)]
        return jax.tree.unflatten(structure, leaves)


def _slots(values: Iterable[Any]) -> list[_Slot]:
    return [value for value in values if isinstance(value, _Slot)]


def _needed(steps: Sequence[_Step], results: Iterable[Any], allowed: Callable[[_Step], bool]) -> list[_Step]:
    """The steps that `results` need, from the last one back to the first that is not `allowed`."""
    wanted, needed = set(_slots(results)), []
    for step in reversed(steps):
        if not wanted.isdisjoint(step.outputs) and allowed(step):
            needed.append(step)
            wanted.update(_slots(step.inputs))
    return needed[::-1]


def _taken(steps: Sequence[_Step], results: Iterable[Any]) -> list[_Slot]:
    """The values that `steps` and `results` take from elsewhere, each once."""
    made = {slot for step in steps for slot in step.outputs}
    used = [slot for step in steps for slot in _slots(step.inputs)] + _slots(results)
    return [slot for slot in dict.fromkeys(used) if slot not in made]


def _run(steps: Sequence[_Step], values: dict[Any, Any], rules: _Rules | None) -> None:
    """Adds the results of `steps` to `values`: by the rules, or as jax computes or traces them."""
    for step in steps:
        inputs = [values[value] if isinstance(value, _Slot) else value for value in step.inputs]
        primitive, params = step.operation.primitive, step.operation.params
        if rules and step.name in rules:
            results = rules[step.name](*map(np.asarray, inputs), **params)
            several = isinstance(results, tuple)
        else:
            with step.operation.ctx.manager:
                results = primitive.bind(*inputs, **primitive.get_bind_params(params))
            several = primitive.multiple_results
        values.update(zip(step.outputs, results if several else [results], strict=True))


def over_keys(function: Callable[[jax.Array], Tree], keys: jax.Array) -> Tree:
    """`function` of each of `keys` (n,), with a leading axis of n.

    Its computations are a loop, so that they are compiled once; they alone, so that the rest needs no compiling.
    """
    parts = Parts(function, jax.ShapeDtypeStruct((), keys.dtype))
    drawn = jax.vmap(lambda key: parts.draw([key], traced=True))(keys)
    # a scan, not a map, which needs arrays: an initialisation may be of constants alone
    _, computed = jax.lax.scan(lambda _, of_key: (None, parts.compute(of_key)), None, drawn, length=len(keys))
    return jax.vmap(partial(parts.arrange, traced=True), axis_size=len(keys))(drawn, computed)


def shared(sample: Callable[[jax.Array], Tree], key: jax.Array) -> Tree:
    """`sample(key)` by a program of its own, which all models share.

    `sample` can be hashed, and equals all functions that give the same: the program is found by it.
    """
    parts, pool = _pool(sample, key.dtype)
    return pool(parts.draw([key], traced=True))


@lru_cache(maxsize=256)
def _pool(sample: Callable[[jax.Array], Tree], dtype: Any) -> tuple[Parts, Any]:
    parts = Parts(sample, jax.ShapeDtypeStruct((), dtype))

    def _lrurun_sample(drawn: list[jax.Array]) -> Any:
        return parts.arrange(drawn, parts.compute(drawn), traced=True)

    return parts, jax.jit(_lrurun_sample)
