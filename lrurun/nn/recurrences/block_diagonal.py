"""The linear recurrence with a real block-diagonal matrix, between a dense one and a complex diagonal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, Features, Mask, StepFeatures
from lrurun.nn.blocks import Blocks, Columns
from lrurun.nn.complex import polar
from lrurun.nn.recurrences.base import Params, Recurrence
from lrurun.nn.recurrences.lru import ring
from lrurun.nn.sampling import normals
from lrurun.nn.scan import linear_scan
from lrurun.nn.scan.affine import Affine


def remapped(a: Array, r_min: float, max_phase: float) -> Array:
    """Blocks (M, 2, 2) like `a`, with |lambda| as r_min + (1 - r_min) tanh |lambda| and phases times max_phase / pi.

    Zucchet and Orvieto (2024), eq. 133: the real part of V f(Lambda) V^-1, here without eigenvectors.
    """
    mean = 0.5 * (a[:, 0, 0] + a[:, 1, 1])
    squared = jnp.square(0.5 * (a[:, 0, 0] - a[:, 1, 1])) + a[:, 0, 1] * a[:, 1, 0]
    apart = jnp.maximum(jnp.sqrt(jnp.abs(squared)), 1e-6)  # lambda = mean +- apart, or mean +- i apart
    share = max_phase / math.pi

    def radius(size: Array) -> Array:
        """|lambda| (M,) in [r_min, 1) for `size` (M,)."""
        return r_min + (1.0 - r_min) * jnp.tanh(size)

    def real(value: Array) -> Array:
        """Real eigenvalues (M,) for `value` (M,)."""
        return radius(jnp.abs(value)) * jnp.where(value < 0, math.cos(max_phase), 1.0)

    size, phase = radius(jnp.hypot(mean, apart)), share * jnp.arctan2(apart, mean)
    high, low = real(mean + apart), real(mean - apart)
    middle = jnp.where(squared < 0, size * jnp.cos(phase), 0.5 * (high + low))
    slope = jnp.where(squared < 0, size * jnp.sin(phase), 0.5 * (high - low)) / apart
    return slope[:, None, None] * a + (middle - slope * mean)[:, None, None] * jnp.eye(2, dtype=a.dtype)[None]


@final
class BlockDiagonal(Recurrence):
    """x_k = A x_(k-1) + B u_k, y_k = C x_k + D u_k, real, A of M blocks (Zucchet and Orvieto 2024, Fig. 3B).

    M is N / 2, or N with `doubled`; below, N is 2 M.

    Trained: A (M, 2, 2), or with `tied` lam_re and lam_im (M,) of the blocks [[lam_re, -lam_im], [lam_im, lam_re]];
    B (N, H), C (H, N), D (H,). Numbers m and M + m of the state belong to block m. Initially A is `remapped` from
    entries N(0, 1/2), and the eigenvalues of tied blocks are sampled as the LRU's, see `ring`. B, C and D are those of
    the dense recurrence: N(0, 1/H), N(0, 1/N), N(0, 1). Bidirectional layers share A and B, add C_back (H, N) for the
    other direction, and use D once.

    The paper's complex diagonal is `diagonal` with parametrization = "cartesian", whose B and C are complex too.
    """

    @property
    def modes(self) -> int:
        """M, the number of blocks."""
        return self.state if self.settings.doubled else self.state // 2

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        return frozenset({"B", *(("lam_re", "lam_im") if self.settings.tied else ("A",))})

    @property
    def variances(self) -> Mapping[str, float]:
        return {"B": 1.0 / self.width, **{f"C{way}": 0.5 / self.modes for way in self.directions}, "D": 1.0}

    def init(self, key: Array) -> Params:
        n, h, settings = 2 * self.modes, self.width, self.settings
        key_a, key_normal = jax.random.split(key)
        shapes = {"B": (n, h), **{f"C{way}": (h, n) for way in self.directions}, "D": (h,)}
        params = normals(key_normal, shapes, self.variances)
        if settings.tied:
            lam = polar(*ring(key_a, n // 2, settings.r_min, settings.r_max, settings.max_phase))
            return params | {"lam_re": lam.real, "lam_im": lam.imag}
        a = math.sqrt(0.5) * jax.random.normal(key_a, (n // 2, 2, 2), jnp.float32)
        return params | {"A": remapped(a, settings.r_min, settings.max_phase)}

    def _blocks(self, params: Params) -> Blocks:
        if self.settings.tied:
            re, im = params["lam_re"], params["lam_im"]
            return Blocks(re, -im, im, re)
        A = params["A"]
        return Blocks(A[:, 0, 0], A[:, 0, 1], A[:, 1, 0], A[:, 1, 1])

    def _driven(self, params: Params, u: Array) -> Columns:
        v = self.product(u, params["B"])
        return Columns(v[..., : self.modes], v[..., self.modes :])

    def _read(self, C: Array, x: Columns) -> Array:
        return self.product(x.first, C[:, : self.modes]) + self.product(x.second, C[:, self.modes :])

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        seen = u if mask is None or not self.bidirectional else jnp.where(mask[..., None], u, 0.0)
        A, v, y = self._blocks(params), self._driven(params, seen), params["D"][None, None] * u
        for way, reverse in zip(self.directions, (False, True), strict=False):
            # zero input keeps a zero state at zero, so the backward direction starts at the last real position
            y = y + self._read(params[f"C{way}"], linear_scan(A, v, reverse=reverse, backend=self.backend))
        return y

    def initial_state(self, batch: int) -> Columns:
        zero = jnp.zeros((batch, self.modes), jnp.float32)
        return Columns(zero, zero)

    def step(self, params: Params, state: Columns, u: StepFeatures) -> tuple[Columns, StepFeatures]:
        self.require_causal()
        x = Affine(self._blocks(params), self._driven(params, u))(state)
        return x, self._read(params["C"], x) + params["D"][None] * u

    def spectrum(self, params: Params) -> np.ndarray:
        A = self._blocks(params)
        blocks = np.stack([np.asarray(entry, np.float64) for entry in (A.a, A.b, A.c, A.d)], -1).reshape(-1, 2, 2)
        good = np.all(np.isfinite(blocks), axis=(1, 2))
        eigenvalues = np.linalg.eigvals(np.where(good[:, None, None], blocks, 0.0)).astype(complex)
        return np.where(good[:, None], eigenvalues, np.nan).ravel()
