"""One diagonal state space model for all channels together, scanned (Smith et al. 2023, "S5")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array
from lrurun.nn.complex import Complex, polar
from lrurun.nn.recurrences.base import Params, complex_parameter
from lrurun.nn.recurrences.continuous import discretize, hippo, log_steps
from lrurun.nn.recurrences.lru import Diagonal, System
from lrurun.nn.sampling import normals, truncated_normals

CLIP = -1e-4
"""Largest Re(Lambda) with `clip_eigs`, as in the published code."""


@final
class S5(Diagonal):
    """x' = Lambda x + B u, y = 2 Re(C x) + D u with P = N / 2 complex numbers, or Re(C x) with P = N.

    In steps of dt: x_k = lambda x_(k-1) + (lambda - 1) / Lambda B u_k with lambda = exp(dt Lambda) (zero-order hold),
    or by the bilinear rule, see `discretize`.

    Trained: lam_re, lam_im, log_dt (P,), B_re, B_im (P, H), C_re, C_im (H, P), D (H,). Initially Lambda is the lower
    half of the eigenvalues of the normal part of HiPPO, one matrix for each of `blocks` (without `conj_sym`, all of
    them); with their eigenvectors V, B = V^-1 B0 and C = C0 V. B0 (N, H) is real with N(0, 1/N) truncated at two
    deviations: N is the fan-in that the published code computes, not H. C0 (H, N) is complex, each part truncated
    likewise with variance 1/N ("truncated") or 1/(N H) ("lecun"); or each part of C itself is N(0, 1/2) ("complex").
    log_dt is uniform, D ~ N(0, 1). With a real C0 the layer would initially be a real system of size N, for which
    dropping the conjugates changes nothing.

    Each state has its own step size. Bidirectional layers share all but C and add C_re_back and C_im_back; D is used
    once. Both directions include the current input, as in the published code.
    """

    @property
    def modes(self) -> int:
        return self.state // 2 if self.settings.conj_sym else self.state

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        b = ("B_re", "B_im") if self.settings.slow_b else ()
        return frozenset({"lam_re", "lam_im", *b, *(("log_dt",) if self.settings.slow_dt else ())})

    @property
    def variances(self) -> Mapping[str, float]:
        n = self.state
        of_c = {"truncated": 1.0 / n, "lecun": 1.0 / (n * self.width), "complex": 0.5}[self.settings.c_init]
        declared = {f"C_{part}{way}": of_c for way in self.directions for part in ("re", "im")} | {"D": 1.0}
        # with conj_sym alone: without it both of each pair are there, and entries are not independent
        return declared | ({"B_re": 0.5 / n, "B_im": 0.5 / n} if self.settings.conj_sym else {})

    def init(self, key: Array) -> Params:
        settings, n, h, blocks = self.settings, self.state, self.width, self.settings.blocks
        key_dt, key_cut, key_normal = jax.random.split(key, 3)
        system = hippo(n // blocks)
        kept = self.modes // blocks
        frequencies = np.tile(system.frequencies[:kept], blocks)
        params = {
            "lam_re": jnp.full((self.modes,), -0.5, jnp.float32),
            "lam_im": jnp.asarray(frequencies, jnp.float32),
            "log_dt": log_steps(key_dt, self.modes, settings.dt_min, settings.dt_max),
        }

        # in the coordinates of the real system: B0, and C0 if C comes from one
        shapes = {"B": (blocks, n // blocks, h)}
        normal: dict[str, tuple[int, ...]] = {"D": (h,)}
        readouts = {f"C_{part}{way}": (h, self.modes) for way in self.directions for part in ("re", "im")}
        if settings.c_init == "complex":
            normal |= readouts
        else:
            shapes |= dict.fromkeys(readouts, (h, blocks, n // blocks))
        sampled = truncated_normals(key_cut, shapes)

        v = system.vectors[:, :kept]
        v_re, v_im = jnp.asarray(v.real, jnp.float32), jnp.asarray(v.imag, jnp.float32)

        def inward(part: Array) -> Array:
            """One part (M, H) of B, for the same part (size, kept) of the eigenvectors of a block."""
            projected = jnp.einsum("mk,bmh->bkh", part, sampled["B"], precision="highest")
            return projected.reshape(self.modes, h) * n**-0.5

        def outward(c: Array, part: Array) -> Array:
            """`c` (H, blocks, size) times one part (size, kept) of the eigenvectors of a block, (H, M)."""
            return jnp.einsum("hbm,mk->hbk", c, part, precision="highest").reshape(h, self.modes)

        params |= {"B_re": inward(v_re), "B_im": inward(-v_im)}
        if settings.c_init != "complex":
            for re, im in ((f"C_re{way}", f"C_im{way}") for way in self.directions):
                c_re, c_im = (sampled[name] * self.variances[name] ** 0.5 for name in (re, im))
                params[re] = outward(c_re, v_re) - outward(c_im, v_im)
                params[im] = outward(c_re, v_im) + outward(c_im, v_re)
        return params | normals(key_normal, normal, self.variances)

    def system(self, params: Params) -> System:
        re = params["lam_re"]
        Lambda = Complex(jnp.minimum(re, CLIP) if self.settings.clip_eigs else re, params["lam_im"])
        nu, theta, factor = discretize(Lambda, jnp.exp(params["log_dt"]), self.settings.discretization)
        B = factor[:, None] * complex_parameter(params, "B")
        scale = 2.0 if self.settings.conj_sym else 1.0
        C = tuple(scale * complex_parameter(params, "C", way) for way in self.directions)
        return System(polar(nu, theta), B, C, params["D"])

    @property
    def pairs(self) -> bool:
        return bool(self.settings.conj_sym)

    def spectrum(self, params: Params) -> np.ndarray:
        """lambda, the discretised Lambda; both of each pair of conjugates."""
        lam = self.system(params).lam.numpy()
        return np.concatenate([lam, lam.conj()]) if self.settings.conj_sym else lam
