"""Real 2 x 2 matrices and vectors of two numbers, with the operations that scans need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from lrurun.nn.axes import Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Columns:
    """Vectors of two real numbers, the first and the second numbers (..., M) as arrays."""

    first: Array
    second: Array

    def __add__(self, other: Columns) -> Columns:
        return Columns(self.first + other.first, self.second + other.second)

    def __mul__(self, row: Rows) -> Blocks:
        """The outer products with the transposes of vectors."""
        x, y = self, row.columns
        return Blocks(x.first * y.first, x.first * y.second, x.second * y.first, x.second * y.second)

    def conj(self) -> Rows:
        """The transposes."""
        return Rows(self)


@dataclass(frozen=True, eq=False)
class Rows:
    """The transposes of vectors."""

    columns: Columns


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Blocks:
    """Real matrices [[a, b], [c, d]], their entries (..., M) as arrays."""

    a: Array
    b: Array
    c: Array
    d: Array

    def __add__(self, other: Blocks) -> Blocks:
        return Blocks(self.a + other.a, self.b + other.b, self.c + other.c, self.d + other.d)

    def __mul__(self, other: Any) -> Any:
        """Products with matrices or with vectors of the same shape."""
        if isinstance(other, Blocks):
            left, right = self * Columns(other.a, other.c), self * Columns(other.b, other.d)
            return Blocks(left.first, right.first, left.second, right.second)
        x, y = other.first, other.second
        return Columns(self.a * x + self.b * y, self.c * x + self.d * y)

    def conj(self) -> Blocks:
        """The transposes."""
        return Blocks(self.a, self.c, self.b, self.d)
