"""Convolutions whose kernels have several scales: SGConv (Li et al. 2022, "What Makes Convolutional Models Great on
Long Sequence Modeling?")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, Features, Kernels, Mask, StateNorms, StepFeatures
from lrurun.nn.convolution import convolve
from lrurun.nn.recurrences.base import Params, Recurrence
from lrurun.nn.sampling import inner_normals


def _positions(factor: int) -> np.ndarray:
    """The positions of `factor` points in an interval from -1/2 to 1/2."""
    return (np.arange(factor) + 0.5) / factor - 0.5


def enlarge(w: Array, factor: int) -> Array:
    """(..., N factor) from `w` (..., N): linear interpolation between the middles of N intervals, constant beyond."""
    if factor == 1:
        return w
    ends = jnp.pad(w, [(0, 0)] * (w.ndim - 1) + [(1, 1)], mode="edge")
    at = jnp.asarray(_positions(factor), w.dtype).reshape((1,) * w.ndim + (-1,))
    before, here, after = ends[..., :-2, None], w[..., None], ends[..., 2:, None]
    between = here * (1.0 - jnp.abs(at)) + before * jnp.maximum(-at, 0.0) + after * jnp.maximum(at, 0.0)
    return between.reshape(*w.shape[:-1], -1)


def enlarged_energy(size: int, factor: int) -> float:
    """E|enlarge(w, factor)|^2 for `size` independent numbers w of variance 1."""
    at = _positions(factor)
    inside = (1.0 - np.abs(at)) ** 2 + at**2
    # Before the first middle and after the last one there is one number instead of two.
    return float(size * np.sum(inside) + np.sum(1.0 - inside))


@final
class SGConv(Recurrence):
    """y = k * u + D u for each channel, k = [w_0, alpha up(w_1), alpha^2 up^2(w_2), ...] / Z (Li et al. 2022, eq. 1).

    Trained: w (S, H, N), D (H,), N(0, 1), and alpha (H,) with `train_alpha`. Scales 0 and 1 have N lags each and every
    further one twice as many as the one before, by linear interpolation. So S scales have 2^(S-1) N lags, of which the
    first `kernel_length` are used; S is the smallest number for which that many exist. Bidirectional layers add w_back
    and alpha_back, whose kernel starts at the next input, as in the published code, and use D once.

    Fixed 1 / alpha, as in the published code, and trained initial alpha are evenly spaced over the channels. Z is
    the expected norm of the initial kernel, a number a channel, and the sampled w of a channel are multiplied by what
    makes the norm of its initial k exactly 1. The published code divides by the norm that was sampled, and keeps it.

    No recurrence with a state of N numbers has this kernel. `step` keeps the last `kernel_length` inputs.
    """

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        names = ("w", "alpha") if self.settings.train_alpha else ("w",)
        return frozenset(name + way for way in self.directions for name in names)

    @property
    def variances(self) -> Mapping[str, float]:
        return {"D": 1.0}

    @property
    def _lags(self) -> int:
        if not self.settings.kernel_length:
            raise ValueError("kernel_length = 0 is the length of the sequences, which is not known here")
        return int(self.settings.kernel_length)

    @property
    def _scales(self) -> int:
        return 1 + (-(-self._lags // self.state) - 1).bit_length()

    @property
    def _alpha(self) -> np.ndarray:
        """(H,): the initial alpha, or the fixed one."""
        ends = self.settings.alpha_min, self.settings.alpha_max
        if self.settings.train_alpha:
            return np.linspace(*ends, self.width)
        return 1.0 / np.linspace(1.0 / ends[0], 1.0 / ends[1], self.width)

    @property
    def _norm(self) -> np.ndarray:
        """Z, (H,)."""
        energies = [enlarged_energy(self.state, self._factor(i)) for i in range(self._scales)]
        alpha = self._alpha[:, None] ** np.arange(self._scales)[None]
        deviation = 1.0 / self.state if self.settings.init == "state" else 1.0
        norm: np.ndarray = deviation * np.sqrt(np.square(alpha) @ np.array(energies))
        return norm

    @staticmethod
    def _factor(scale: int) -> int:
        return 1 << max(scale - 1, 0)

    def _whole(self, w: Array, alpha: Array) -> Array:
        """Z k, (H, 2^(S-1) N), from `w` (S, H, N) and `alpha` (H,)."""
        parts, decay = [], jnp.ones_like(alpha)
        for i in range(self._scales):
            parts.append(decay[:, None] * enlarge(w[i], self._factor(i)))
            decay = decay * alpha
        return jnp.concatenate(parts, axis=1)

    def init(self, key: Array) -> Params:
        shapes = {f"w{way}": (self._scales, self.width, self.state) for way in self.directions} | {"D": (self.width,)}
        params = inner_normals(key, shapes)
        alpha, norm = jnp.asarray(self._alpha, jnp.float32), jnp.asarray(self._norm, jnp.float32)
        for way in self.directions:
            w = params[f"w{way}"]
            actual = jnp.linalg.norm(self._whole(w, alpha), axis=1)
            params[f"w{way}"] = w * (norm / actual)[None, :, None]
            if self.settings.train_alpha:
                params[f"alpha{way}"] = alpha
        return params

    def kernels(self, params: Params, length: int) -> Kernels:
        lags, kernels = min(self._lags, length), []
        for way in self.directions:
            w = params[f"w{way}"]
            alpha = params[f"alpha{way}"] if self.settings.train_alpha else jnp.asarray(self._alpha, w.dtype)
            k = self._whole(w, alpha)[:, :lags] / jnp.asarray(self._norm, w.dtype)[:, None]
            kernels.append(jnp.pad(k.T, ((0, length - lags), (0, 0))))
        return jnp.stack(kernels).at[0, 0].add(params["D"])

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        seen = u if mask is None else jnp.where(mask[..., None], u, 0.0)
        return convolve(seen, self.kernels(params, len(u)))

    def initial_state(self, batch: int) -> Array:
        return jnp.zeros((batch, self._lags, self.width), jnp.float32)

    def step(self, params: Params, state: Array, u: StepFeatures) -> tuple[Array, StepFeatures]:
        self.require_causal()
        state = jnp.concatenate([state[:, 1:], u[:, None]], axis=1)
        k = self.kernels(params, self._lags)[0, ::-1]
        return state, jnp.einsum("bkh,kh->bh", state, k, precision="highest")

    def norms(self, params: Params, u: Features) -> StateNorms:
        """The norm of the last `kernel_length` inputs."""
        total = jnp.cumsum(jnp.sum(jnp.square(u), axis=-1), axis=0)
        left = jnp.pad(total, ((min(self._lags, len(u)), 0), (0, 0)))[: len(u)]
        return jnp.sqrt(jnp.maximum(total - left, 0.0))
