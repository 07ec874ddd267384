"""DLR, diagonal linear RNNs with eigenvalues that all channels share (Gupta et al. 2023), as convolutions."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from typing import Final, final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, Features, Kernels, Mask, StateNorms, StepFeatures
from lrurun.nn.complex import Complex, polar, zeros
from lrurun.nn.convolution import convolve
from lrurun.nn.convolution.powers import kernel, powers
from lrurun.nn.recurrences.base import Params, Recurrence, complex_parameter
from lrurun.nn.recurrences.continuous import log_steps
from lrurun.nn.sampling import normals

LARGEST_PRODUCT: Final = 128
"""The largest N for which a product kernel has a step, with a state of N (N + 1) / 2 complex numbers a channel."""


State = tuple[Complex, Array]
"""x (B, H, N), or with a number for any two eigenvalues, and the last `kernel_length` inputs (B, K, H)."""


class SharedModes(Recurrence):
    """x_k = lambda x_(k-1) + u_k for each channel by itself, y_k = cast(W x_k) + D u_k, as one convolution.

    The kernel is cast(sum_n W_n lambda_n^l), cut off after `kernel_length` lags if that is set. Bidirectional layers
    share all but W, add W_re_back and W_im_back, whose kernel starts at the next input, as in the published code, and
    use D once. Input at padding counts as zero. Kernels are summed in float32, whatever `precision` is.

    `step` is that recurrence. Its state has N complex numbers a channel, N (N + 1) / 2 for the cast "prod", whose
    kernel Re(K) Im(K) = Im(K^2) / 2 has the products of any two eigenvalues as its own; with N above `LARGEST_PRODUCT`
    it raises ValueError. With `kernel_length` the state also has that many past inputs, whose part is subtracted when
    the kernel ends.
    """

    @property
    @abc.abstractmethod
    def cast(self) -> str:
        """How a complex kernel becomes real: "real", "imag", "sum" of both, or "prod", their product."""

    @abc.abstractmethod
    def modes(self, params: Params) -> tuple[Array, Array]:
        """nu = -log |lambda| and theta of lambda, (N,) each, or (H, N) if they differ between channels."""

    @abc.abstractmethod
    def weights(self, params: Params, direction: str) -> Complex:
        """W (H, N) for the `direction` "" or "_back"."""

    def _cast(self, x: Complex) -> Array:
        match self.cast:
            case "imag":
                return x.imag
            case "sum":
                return x.real + x.imag
            case "prod":
                return x.real * x.imag
        return x.real

    def _kernels(self, params: Params, length: int) -> Array:
        """(directions, K, H) for K lags, at most `length`."""
        lags = min(self.settings.kernel_length or length, length)
        nu, theta = self.modes(params)
        casts = [self._cast(kernel(self.weights(params, way), nu, theta, lags)) for way in self.directions]
        return jnp.stack(casts).swapaxes(1, 2).at[0, 0].add(params["D"])

    def kernels(self, params: Params, length: int) -> Kernels:
        kernels = self._kernels(params, length)
        return jnp.pad(kernels, ((0, 0), (0, length - kernels.shape[1]), (0, 0)))

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        seen = u if mask is None else jnp.where(mask[..., None], u, 0.0)
        return convolve(seen, self._kernels(params, len(u)))

    def _paired(self, x: Complex) -> Complex:
        """The products (..., N (N + 1) / 2) of any two of the numbers (..., N)."""
        first, second = np.triu_indices(self.state)
        return x[..., first] * x[..., second]

    def initial_state(self, batch: int) -> State:
        count = self.state * (self.state + 1) // 2 if self.cast == "prod" else self.state
        return zeros(batch, self.width, count), jnp.zeros((batch, self.settings.kernel_length, self.width), jnp.float32)

    def step(self, params: Params, state: State, u: StepFeatures) -> tuple[State, StepFeatures]:
        self.require_causal()
        (x, past), (nu, theta) = state, self.modes(params)
        lam, w, line = polar(nu, theta), self.weights(params, ""), self.settings.kernel_length
        end = powers(nu, theta, jnp.asarray([line], jnp.uint32))[..., 0]
        if self.cast == "prod":
            if self.state > LARGEST_PRODUCT:
                raise ValueError(
                    f"a product kernel has a step only up to state = {LARGEST_PRODUCT}, found state = {self.state}: "
                    "its own state has a number for any two eigenvalues"
                )
            lam, w, end = self._paired(lam), self._paired(w), self._paired(end)
            first, second = np.triu_indices(self.state)
            w = w * jnp.asarray(np.where(first == second, 0.5, 1.0), nu.dtype)
        x = lam * x + u[..., None]
        if line:
            x = x - end * past[:, 0, :, None]
            past = jnp.concatenate([past[:, 1:], u[:, None]], axis=1)
        y = (w * x).sum(-1)
        return (x, past), (y.imag if self.cast == "prod" else self._cast(y)) + params["D"][None] * u

    def norms(self, params: Params, u: Features) -> StateNorms:
        """|x_k| (T, B) of x with N complex numbers in each channel, whatever the cast, for kernels that are not cut."""
        lam = polar(*self.modes(params))

        def body(x: Complex, u_k: Array) -> tuple[Complex, Array]:
            """x (B, H, N) after the input `u_k` (B, H), and its norm (B,)."""
            x = lam * x + u_k[..., None]
            return x, jnp.sqrt(jnp.sum(x.abs2(), axis=(1, 2)))

        return jax.lax.scan(body, zeros(*u.shape[1:], self.state), u)[1]

    def spectrum(self, params: Params) -> np.ndarray:
        """lambda, whatever the cast; if channels differ, of all channels, the first one first."""
        nu, theta = (np.asarray(part, np.float64) for part in self.modes(params))
        eigenvalues: np.ndarray = np.exp(-nu + 1j * theta).ravel()
        return eigenvalues


@final
class DLR(SharedModes):
    """x_k = Lambda x_(k-1) + u_k with log Lambda = -log_re^2 + i log_im (Gupta et al. 2023, eq. 1 and section 2.3).

    Trained: log_re and log_im (N,), W_re and W_im (H, N), D (H,). poles = "unit" has no log_re, so |Lambda| = 1; "real"
    has no log_im; weights = "real" has no W_im: with both "real" it is the paper's DLR over the reals. Initially log_re
    is sqrt(dt / 2) with dt log-uniform; log_im is 2 pi n / N, with which N lags of any kernel can be expressed, or
    N(0, 1); W ~ N(0, 1 / N^2) in each part, D ~ N(0, 1). With the cast "prod" it is DLR-prod (section 2.1). As in the
    published code, and not in the paper's eq. 5, both directions of a bidirectional layer have the same Lambda.
    """

    @property
    def cast(self) -> str:
        cast: str = self.settings.cast
        return cast

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        return frozenset({*self._poles, *self._weights})

    @property
    def variances(self) -> Mapping[str, float]:
        return dict.fromkeys(self._weights, self.state**-2.0) | {"D": 1.0}

    @property
    def _poles(self) -> tuple[str, ...]:
        return {"complex": ("log_re", "log_im"), "unit": ("log_im",), "real": ("log_re",)}[self.settings.poles]

    @property
    def _weights(self) -> tuple[str, ...]:
        parts = ("W_re",) if self.settings.weights == "real" else ("W_re", "W_im")
        return tuple(part + way for way in self.directions for part in parts)

    def init(self, key: Array) -> Params:
        settings, n, h = self.settings, self.state, self.width
        key_dt, key_phase, key_normal = jax.random.split(key, 3)
        initial = {"log_re": jnp.exp(0.5 * (log_steps(key_dt, n, settings.dt_min, settings.dt_max) - math.log(2.0)))}
        if settings.phases == "uniform":
            initial["log_im"] = jnp.asarray(2.0 * math.pi * np.arange(n) / n, jnp.float32)
        else:
            initial["log_im"] = jax.random.normal(key_phase, (n,), jnp.float32)
        shapes = dict.fromkeys(self._weights, (h, n)) | {"D": (h,)}
        return {name: initial[name] for name in self._poles} | normals(key_normal, shapes, self.variances)

    def modes(self, params: Params) -> tuple[Array, Array]:
        poles, zero = self.settings.poles, jnp.zeros_like(params[self._poles[0]])
        return (
            zero if poles == "unit" else jnp.square(params["log_re"]),
            zero if poles == "real" else params["log_im"],
        )

    def weights(self, params: Params, direction: str) -> Complex:
        if self.settings.weights == "real":
            re = params[f"W_re{direction}"]
            return Complex(re, jnp.zeros_like(re))
        return complex_parameter(params, "W", direction)
