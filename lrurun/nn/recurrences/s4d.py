"""Diagonal state space models, one for each channel, as convolutions (Gu et al. 2022, "On the Parameterization and
Initialization of Diagonal State Space Models")."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, Features, Kernels, Mask, StateNorms, StepFeatures
from lrurun.nn.complex import Complex, polar, stack, zeros
from lrurun.nn.convolution import convolve
from lrurun.nn.convolution.powers import real_sums
from lrurun.nn.recurrences.base import Params, Recurrence, complex_parameter
from lrurun.nn.recurrences.continuous import discretize, hippo, log_steps
from lrurun.nn.sampling import normals

B_CLIP = 2.0
"""HiPPO's B in its eigenvectors is clipped to this absolute value: its entries grow like the frequencies.

The published code clips the imaginary part, and leaves absolute values that are larger by up to 1.0 % at N = 4, 0.08 %
at N = 16 and 0.005 % at N = 64.
"""


def initial_a(init: str, size: int) -> np.ndarray:
    """The initial A of S4D, (size / 2,) complex128, for a real system of `size` N; n counts from 0.

    "lin": -1/2 + i pi n. "inv": -1/2 + i (N / pi) (N / (2n + 1) - 1), with all of N, as in the paper and its code (the
    LRU paper's appendix has N / (n + 1) for it: that is "inv2"). "quad": -1/2 + i (2n + 1)^2 / pi. "legs": -1/2 + i w
    for HiPPO-LegS's frequencies w. "real": -(n + 1).
    """
    n = np.arange(size // 2)
    if init == "real":
        return -(n + 1.0).astype(complex)
    frequencies = {
        "lin": lambda: math.pi * n,
        "inv": lambda: size / math.pi * (size / (2 * n + 1) - 1),
        "inv2": lambda: size / math.pi * (size / (n + 1) - 1),
        "quad": lambda: (2 * n + 1) ** 2 / math.pi,
        "legs": lambda: -hippo(size).frequencies[: size // 2],
    }
    a: np.ndarray = -0.5 + 1j * frequencies[init]()
    return a


class EachChannel(Recurrence):
    """A system for each channel, with a state of N/2 complex numbers and their conjugates, as one convolution.

    Read out by C_re, C_im (H, N/2), each N(0, 1/2), so not scaled by 1 / sqrt(N), and by C_re_back and C_im_back in
    both directions; D (H,), N(0, 1). Input at padding counts as zero.
    """

    @property
    def variances(self) -> Mapping[str, float]:
        return {f"C_{part}{way}": 0.5 for way in self.directions for part in ("re", "im")} | {"D": 1.0}

    @abstractmethod
    def kernels(self, params: Params, length: int) -> Kernels:
        """The convolution kernels, (1 or 2, length, H), see `Recurrence.kernels`."""

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        seen = u if mask is None else jnp.where(mask[..., None], u, 0.0)
        return convolve(seen, self.kernels(params, len(u)))

    def initial_state(self, batch: int) -> Complex:
        return zeros(batch, self.width, self.state // 2)

    def norms(self, params: Params, u: Features) -> StateNorms:
        return math.sqrt(2.0) * super().norms(params, u)  # of the conjugates too


@final
class S4D(EachChannel):
    """x' = A x + B u, y = 2 Re(C x) + D u for each of the H channels, with x of N/2 complex numbers.

    Trained: A_re_log, A_im (S, N/2) with A = -exp(A_re_log) + i A_im, see `initial_a`; B_re, B_im (S, N/2) where they
    are trained; log_dt (H,), log-uniform; C_re, C_im (H, N/2), each N(0, 1/2), so not scaled by 1 / sqrt(N); D (H,),
    N(0, 1). S is `n_ssm`, or H: channel h has the A and B of number h mod S. Bidirectional layers share all but C, add
    C_re_back and C_im_back, and use D once; their backward direction starts at the next input, as in the published
    code, so that the current one is counted once.

    Without `shared_dt`, log_dt is the step of A and log_dt_b (H,), with the same initial values, that of B: with the
    discretisation "euler" x_k = exp(Delta_A A) x_(k-1) + Delta_B B u_k (Orvieto et al. 2023, section 4).

    `scan` is one convolution with the kernels K_k = 2 Re sum_n C_n b_n lambda_n^k, where b and lambda are the
    discretised B and A, and D; input at padding counts as zero.
    """

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        b = ("B_re", "B_im") if self.settings.train_b else ()
        return frozenset({"A_re_log", "A_im", *b, *(self._steps if self.settings.slow_dt else ())})

    @property
    def _steps(self) -> tuple[str, ...]:
        """The names of the logarithms of Delta: one for A and B, or one for each."""
        return ("log_dt",) if self.settings.shared_dt else ("log_dt", "log_dt_b")

    @property
    def _initial_b(self) -> np.ndarray:
        n = self.state // 2
        return np.minimum(hippo(self.state).inputs[:n], B_CLIP) if self.settings.init == "legs" else np.ones(n)

    def init(self, key: Array) -> Params:
        settings, h, n = self.settings, self.width, self.state // 2
        key_dt, key_normal = jax.random.split(key)
        a = initial_a(settings.init, self.state)
        initial = {"A_re_log": np.log(-a.real), "A_im": a.imag}
        if settings.train_b:
            initial |= {"B_re": self._initial_b, "B_im": np.zeros(n)}
        sets = settings.n_ssm or h
        params = {name: jnp.broadcast_to(jnp.asarray(x, jnp.float32)[None], (sets, n)) for name, x in initial.items()}
        params |= dict.fromkeys(self._steps, log_steps(key_dt, h, settings.dt_min, settings.dt_max))
        shapes = {name: (h,) if name == "D" else (h, n) for name in self.variances}
        return params | normals(key_normal, shapes, self.variances)

    def _system(self, params: Params) -> tuple[Array, Array, Complex]:
        """nu and theta of lambda, and the discretised B, (H, N/2) each."""
        copies = (self.width // params["A_im"].shape[0], 1)
        A = Complex(jnp.tile(-jnp.exp(params["A_re_log"]), copies), jnp.tile(params["A_im"], copies))
        of_a, *of_b = (discretize(A, jnp.exp(params[dt])[:, None], self.settings.discretization) for dt in self._steps)
        (nu, theta, _), (_, _, factor) = of_a, (of_b or [of_a])[0]
        if self.settings.train_b:
            return nu, theta, factor * Complex(jnp.tile(params["B_re"], copies), jnp.tile(params["B_im"], copies))
        return nu, theta, factor * jnp.asarray(self._initial_b, nu.dtype)

    def kernels(self, params: Params, length: int) -> Kernels:
        nu, theta, B = self._system(params)
        weights = stack([2.0 * complex_parameter(params, "C", way) * B for way in self.directions])
        return jnp.moveaxis(real_sums(weights, nu, theta, length), -1, 1).at[0, 0].add(params["D"])

    def step(self, params: Params, state: Complex, u: StepFeatures) -> tuple[Complex, StepFeatures]:
        self.require_causal()
        nu, theta, B = self._system(params)
        x = polar(nu, theta) * state + B * u[..., None]
        y = 2.0 * (complex_parameter(params, "C") * x).real.sum(-1)
        return x, y + params["D"][None] * u

    def spectrum(self, params: Params) -> np.ndarray:
        """The eigenvalues of all channels, the first channel first; both of each pair of conjugates."""
        nu, theta, _ = self._system(params)
        half = np.exp(-np.asarray(nu, np.float64) + 1j * np.asarray(theta, np.float64)).ravel()
        return np.concatenate([half, half.conj()])
