"""Complex numbers as two real arrays.

Separate real arrays were faster than complex64 on every backend that was measured, and optimisers and checkpoints see
only real arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, expand


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Complex:
    """Complex numbers: real and imaginary parts of one shape, float32 (float64 where both are).

    Of two operands the one with fewer axes is broadcast over the leading axes of the other; an operand may be real.
    """

    real: Array
    imag: Array

    __array_ufunc__ = None  # so that a NumPy array on the left leaves the operation to this class

    def __add__(self, other: Any) -> Complex:
        a, b = _aligned(self, other)
        return Complex(a.real + b.real, a.imag + b.imag) if isinstance(b, Complex) else Complex(a.real + b, a.imag)

    def __sub__(self, other: Any) -> Complex:
        a, b = _aligned(self, other)
        return Complex(a.real - b.real, a.imag - b.imag) if isinstance(b, Complex) else Complex(a.real - b, a.imag)

    def __mul__(self, other: Any) -> Complex:
        a, b = _aligned(self, other)
        if not isinstance(b, Complex):
            return Complex(a.real * b, a.imag * b)
        return Complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)

    __rmul__ = __mul__

    def __truediv__(self, real: Array) -> Complex:
        return Complex(self.real / real, self.imag / real)

    def conj(self) -> Complex:
        """The complex conjugates."""
        return Complex(self.real, -self.imag)

    def abs2(self) -> Array:
        """The squared absolute values."""
        return self.real * self.real + self.imag * self.imag

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of both parts."""
        return self.real.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.real.ndim

    def __getitem__(self, index: Any) -> Complex:
        return Complex(self.real[index], self.imag[index])

    def expand(self, rank: int) -> Complex:
        """The numbers with as many leading axes of size 1 as it takes to have this rank."""
        return Complex(expand(self.real, rank), expand(self.imag, rank))

    def sum(self, axis: int | tuple[int, ...]) -> Complex:
        """The sums along an axis or several."""
        return Complex(jnp.sum(self.real, axis), jnp.sum(self.imag, axis))

    def numpy(self) -> np.ndarray:
        """The numbers as a complex128 array on the host."""
        numbers: np.ndarray = np.asarray(self.real, np.float64) + 1j * np.asarray(self.imag, np.float64)
        return numbers


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Packed:
    """Complex numbers in one array (..., 2N): N real parts, then N imaginary parts.

    Dense products with complex matrices are then one product each, which is faster than two of half the size.
    """

    parts: Array

    @classmethod
    def of(cls, z: Complex, axis: int = -1) -> Packed:
        """Pack the numbers of `z`, real and imaginary parts one after the other along an axis."""
        return cls(jnp.concatenate([z.real, z.imag], axis))

    @property
    def numbers(self) -> Complex:
        """The numbers as `Complex`, (..., N)."""
        count = self.parts.shape[-1] // 2
        return Complex(self.parts[..., :count], self.parts[..., count:])

    def __add__(self, other: Packed) -> Packed:
        return Packed(self.parts + other.parts)

    def __mul__(self, other: Packed) -> Packed:
        return Packed.of(self.numbers * other.numbers)

    def conj(self) -> Packed:
        """The complex conjugates."""
        return Packed.of(self.numbers.conj())


def _aligned(a: Complex, b: Any) -> tuple[Complex, Any]:
    """Two arrays with the rank of the one with more axes; a Python number stays as it is."""
    if isinstance(b, float | int):
        return a, b
    rank = max(a.ndim, b.ndim)
    return a.expand(rank), b.expand(rank) if isinstance(b, Complex) else expand(b, rank)


def polar(nu: Array, theta: Array) -> Complex:
    """exp(-nu + i theta)."""
    radius = jnp.exp(-nu)
    return Complex(radius * jnp.cos(theta), radius * jnp.sin(theta))


def stack(numbers: Sequence[Complex]) -> Complex:
    """Arrays of one shape along a new first axis."""
    return Complex(jnp.stack([z.real for z in numbers]), jnp.stack([z.imag for z in numbers]))


def zeros(*shape: int) -> Complex:
    """Complex zeros, float32."""
    return Complex(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32))
