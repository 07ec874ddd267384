"""The eleven atomic tasks of Gupta et al. 2023 (section 3.1): sequences of real numbers to sequences of real numbers.

Every input x of L numbers is standard normal divided by max |x|, except where a task says otherwise. Two channels are
appended, cos(2 pi i / T) and sin(2 pi i / T) at position i of T, where T includes padding. Labels belong to the last
positions of the input. The defaults are the paper's; details that only its code has are marked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import isqrt, pi
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from lrurun.data.metric import R2, BatchR2, Metric
from lrurun.data.on_device import Sampled, SampledOptions, stream
from lrurun.data.task import Options, Output, Spec

if TYPE_CHECKING:
    import jax

FIXED = 0
"""The seed of what is the same in all examples, SelectFixed's positions and SolveFixed's matrix: stream `FIXED`, name
of the task. The published code draws them from a generator of PyTorch, seed 0: the same law, other numbers."""
Length = Annotated[int, Meta(ge=4, le=2**22)]


class AtomicOptions(SampledOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The length of the sequence and the sizes of the fixed splits."""

    length: Length = 4096
    """L."""


class ShiftOptions(AtomicOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    shifts: Annotated[int, Meta(ge=1, le=4096)] = 8
    """C: how many shifted copies."""

    def __post_init__(self) -> None:
        if self.shifts > self.length:
            raise ValueError(f"shifts must not be larger than length, found {self.shifts} and {self.length}")


class SelectOptions(AtomicOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    selected: Annotated[int, Meta(ge=1, le=4096)] = 32
    """M: how many numbers are selected, among length + selected."""


class MipsOptions(AtomicOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    size: Annotated[int, Meta(ge=2, le=256)] = 4
    """D: of queries, keys and values."""


class Atomic(Sampled):
    """A subclass defines `pairs`, and `shape` where a step has more than one number."""

    version = "1"
    classes = 1
    options: ClassVar[type[Options]] = AtomicOptions

    @property
    def metric(self) -> Metric:
        """R^2 over all labels of a split."""
        return R2()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """R^2 over all labels, which selects the model; beside it R^2 as in the paper, a mean over batches."""
        return (R2(), BatchR2())

    def shape(self, options: Any) -> tuple[int, int, int]:
        """T, channels without the two of the position, numbers of the output at each labelled position."""
        return options.length, 1, 1

    @abstractmethod
    def pairs(self, key: jax.Array, count: int, options: Any) -> tuple[Any, Any]:
        """(count, T, channels) inputs without positions, and (count, P, size) labels of the last P positions."""

    def spec(self, options: Any, vocabulary: Sequence[str] = ()) -> Spec:
        steps, channels, size = self.shape(options)
        output = Output(loss="squared-error", at="positions")
        return Spec(name=self.name, kind="features", features=channels + 2, classes=size, length=steps, output=output)

    def sample(self, key: jax.Array, count: int, options: Any) -> tuple[Any, Any, None]:
        import jax.numpy as jnp

        inputs, labels = self.pairs(key, count, options)
        angle = 2 * pi * jnp.arange(inputs.shape[1]) / inputs.shape[1]
        positions = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
        positions = jnp.broadcast_to(positions, (count, *positions.shape))
        return jnp.concatenate([inputs, positions], axis=-1), labels, None


def normal(key: jax.Array, *shape: int) -> jax.Array:
    """Standard normal numbers, divided by the largest absolute value along the last axis."""
    import jax
    import jax.numpy as jnp

    x = jax.random.normal(key, shape)
    return x / jnp.max(jnp.abs(x), axis=-1, keepdims=True)


def unit(key: jax.Array, *shape: int) -> jax.Array:
    """Uniform on the unit sphere of the last axis: normal numbers, divided by their Euclidean norm."""
    import jax
    import jax.numpy as jnp

    x = jax.random.normal(key, shape)
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def padded(x: jax.Array, steps: int) -> jax.Array:
    """(n, L) followed by zeros, (n, steps)."""
    import jax.numpy as jnp

    return jnp.pad(x, ((0, 0), (0, steps - x.shape[1])))


class Shift(Atomic):
    """C copies of x, shifted to the right by j L / C steps, with zeros before them."""

    name = "Shift"
    title = "copies of a sequence, shifted by eighths of its length"
    options = ShiftOptions
    classes = 8

    def shape(self, options: ShiftOptions) -> tuple[int, int, int]:
        return options.length, 1, options.shifts

    def pairs(self, key: jax.Array, count: int, options: ShiftOptions) -> tuple[Any, Any]:
        import jax.numpy as jnp

        length = options.length
        x = normal(key, count, length)
        # rounded down where C does not divide L, as in the published code
        shifts = [j * length // options.shifts for j in range(options.shifts)]
        copies = [jnp.pad(x[:, : length - s], ((0, 0), (s, 0))) for s in shifts]
        return x[..., None], jnp.stack(copies, axis=-1)


class CumSum(Atomic):
    """At step i, the sum of x up to it, divided by sqrt(i + 1)."""

    name = "CumSum"
    title = "the scaled sum of a sequence up to each step"

    def pairs(self, key: jax.Array, count: int, options: AtomicOptions) -> tuple[Any, Any]:
        import jax.numpy as jnp

        x = normal(key, count, options.length)
        y = jnp.cumsum(x, axis=1) / jnp.sqrt(jnp.arange(1.0, options.length + 1))[None]
        return x[..., None], y[..., None]


class CumMax(Atomic):
    """At each step, the largest number up to it."""

    name = "CumMax"
    title = "the largest number of a sequence up to each step"

    def pairs(self, key: jax.Array, count: int, options: AtomicOptions) -> tuple[Any, Any]:
        import jax

        x = normal(key, count, options.length)
        return x[..., None], jax.lax.cummax(x, axis=1)[..., None]


class Reverse(Atomic):
    """x, then L zeros, at which x is expected in reverse."""

    name = "Reverse"
    title = "a sequence in reverse"

    def shape(self, options: AtomicOptions) -> tuple[int, int, int]:
        return 2 * options.length, 1, 1

    def pairs(self, key: jax.Array, count: int, options: AtomicOptions) -> tuple[Any, Any]:
        x = normal(key, count, options.length)
        return padded(x, 2 * options.length)[..., None], x[:, ::-1, None]


class Sort(Reverse):
    """x, then L zeros, at which x is expected by the distance of its numbers from the first one, nearest first."""

    name = "Sort"
    title = "the numbers of a sequence by their distance from the first one"

    def pairs(self, key: jax.Array, count: int, options: AtomicOptions) -> tuple[Any, Any]:
        import jax.numpy as jnp

        x = normal(key, count, options.length)
        order = jnp.argsort(jnp.abs(x - x[:, :1]), axis=1, stable=True)
        return padded(x, 2 * options.length)[..., None], jnp.take_along_axis(x, order, axis=1)[..., None]


class Select(Atomic):
    """L + M numbers, of which M are marked in a second channel, then M zeros, during which these are asked for."""

    name = "Select"
    title = "the marked numbers of a sequence, in their order"
    options = SelectOptions

    def shape(self, options: SelectOptions) -> tuple[int, int, int]:
        return options.length + 2 * options.selected, 2, 1

    def positions(self, key: jax.Array, count: int, options: SelectOptions) -> jax.Array:
        """(count, M) different positions among the first L + M, in ascending order."""
        import jax
        import jax.numpy as jnp

        draws = jax.random.uniform(key, (count, options.length + options.selected))
        return jnp.sort(jax.lax.top_k(draws, options.selected)[1], axis=1)

    def pairs(self, key: jax.Array, count: int, options: SelectOptions) -> tuple[Any, Any]:
        import jax
        import jax.numpy as jnp

        key_x, key_positions = jax.random.split(key)
        x = normal(key_x, count, options.length + options.selected)
        positions = self.positions(key_positions, count, options)
        marks = jnp.zeros_like(x).at[jnp.arange(count)[:, None], positions].set(1.0)
        steps = options.length + 2 * options.selected
        inputs = jnp.stack([padded(x, steps), padded(marks, steps)], axis=-1)
        return inputs, jnp.take_along_axis(x, positions, axis=1)[..., None]


class SelectFixed(Select):
    """Select with the same positions in all examples; they are marked nevertheless, as in the published code."""

    name = "SelectFixed"
    title = "the numbers of a sequence at fixed positions, in their order"

    def positions(self, key: jax.Array, count: int, options: SelectOptions) -> jax.Array:
        import jax.numpy as jnp

        positions = super().positions(stream(FIXED, self.name), 1, options)
        return jnp.broadcast_to(positions, (count, options.selected))


class Mips(Atomic):
    """Maximum inner product search: at each step, the value of the key so far that is nearest to the step's query.

    An input has a query, a key and a value, unit vectors of D numbers.
    """

    name = "MIPS"
    title = "the value whose key has the largest product with each query, so far"
    options = MipsOptions
    classes = 4

    def shape(self, options: MipsOptions) -> tuple[int, int, int]:
        return options.length, 3 * options.size, options.size

    def pairs(self, key: jax.Array, count: int, options: MipsOptions) -> tuple[Any, Any]:
        import jax
        import jax.numpy as jnp

        steps, size = jnp.arange(options.length), options.size
        q, k, v = unit(key, 3, count, options.length, size)

        def see(best: tuple[Any, Any], item: tuple[Any, Any]) -> tuple[tuple[Any, Any], None]:
            """The largest product of each query so far, and its step, after one more key; in float32 on any device."""
            new_key, step = item
            product = sum(q[..., d] * new_key[:, None, d] for d in range(size))
            better = (steps >= step)[None] & (product > best[0])
            return (jnp.where(better, product, best[0]), jnp.where(better, step, best[1])), None

        start = (jnp.full((count, options.length), -jnp.inf), jnp.zeros((count, options.length), int))
        (_, nearest), _ = jax.lax.scan(see, start, (k.swapaxes(0, 1), steps), unroll=8)
        return jnp.concatenate([q, k, v], axis=-1), jnp.take_along_axis(v, nearest[..., None], axis=1)


class ContextShift(Atomic):
    """cos(2 pi s / L), sin(2 pi s / L), then L - 2 numbers, all of it shifted to the right by s steps.

    s is uniform from 0 to L - 3, as in the published code; the paper's text has 0 to L - 2.
    """

    name = "ContextShift"
    title = "a sequence shifted by as many steps as it begins with"

    def pairs(self, key: jax.Array, count: int, options: AtomicOptions) -> tuple[Any, Any]:
        import jax
        import jax.numpy as jnp

        length = options.length
        key_x, key_s = jax.random.split(key)
        s = jax.random.randint(key_s, (count, 1), 0, length - 2)  # the bound is excluded
        angle = 2 * pi * s / length
        x = jnp.concatenate([jnp.cos(angle), jnp.sin(angle), normal(key_x, count, length - 2)], axis=1)
        source = jnp.arange(length)[None] - s
        shifted = jnp.take_along_axis(x, jnp.maximum(source, 0), axis=1)
        return x[..., None], jnp.where(source >= 0, shifted, 0.0)[..., None]


def unknowns(length: int) -> int:
    """N of Solve: the largest one with N^2 + 2 N <= L, so that N^2 + N numbers leave N positions for the answer."""
    return isqrt(length + 1) - 1


class Solve(Atomic):
    """An orthogonal N x N matrix A and b = A X, row by row with b_i after a_i, then zeros; X is expected at the end.

    A is uniform (Haar): the published code takes U V^T of the singular value decomposition of a normal matrix, which
    has the same distribution. X is uniform on the unit sphere.
    """

    name = "Solve"
    title = "the solution of a system of linear equations"

    def matrices(self, key: jax.Array, count: int, n: int) -> jax.Array:
        import jax

        return jax.random.orthogonal(key, n, (count,))

    def pairs(self, key: jax.Array, count: int, options: AtomicOptions) -> tuple[Any, Any]:
        import jax
        import jax.numpy as jnp

        n = unknowns(options.length)
        key_a, key_x = jax.random.split(key)
        a, x = self.matrices(key_a, count, n), unit(key_x, count, n)
        b = jnp.einsum("kij,kj->ki", a, x, precision="highest")
        rows = jnp.concatenate([a, b[..., None]], axis=-1).reshape(count, -1)
        return padded(rows, options.length)[..., None], x[..., None]


class SolveFixed(Solve):
    """Solve with the same matrix in all examples."""

    name = "SolveFixed"
    title = "the solution of a system of linear equations with a fixed matrix"

    def matrices(self, key: jax.Array, count: int, n: int) -> jax.Array:
        import jax.numpy as jnp

        return jnp.broadcast_to(super().matrices(stream(FIXED, self.name), 1, n), (count, n, n))
