"""DSS-exp (Gupta et al. 2022, "Diagonal State Spaces are as Effective as Structured State Spaces")."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array
from lrurun.nn.complex import Complex
from lrurun.nn.recurrences.base import Params, complex_parameter
from lrurun.nn.recurrences.continuous import discretize, hippo, log_steps
from lrurun.nn.recurrences.dlr import SharedModes
from lrurun.nn.sampling import normals


@final
class DSS(SharedModes):
    """x' = Lambda x + u, y = Re(W x) + D u in steps of dt, inputs constant in between: DSS-exp (Gupta et al. 2022).

    Trained: Lambda = -exp(re_log) + i im, (N,), which all channels share; log_dt (H,), log-uniform; W_re, W_im (H, N),
    N(0, 1) each, so not scaled by 1 / N; D (H,) ~ N(0, 1). Initially Lambda is -1/2 + i pi n ("lin", as in the
    published code; appendix A.6 of the DLR paper has 2 pi n) or the upper half of the eigenvalues of the normal part of
    HiPPO-LegS, of size 2N ("hippo"). lambda = exp(dt Lambda), and (lambda - 1) / Lambda is part of W; where Lambda is
    near 0 its series is used, where the published code adds 1e-7 to a denominator.
    """

    cast: Final = "real"

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        return frozenset({"re_log", "im", "log_dt", *(name for name in self.variances if name != "D")})

    @property
    def variances(self) -> Mapping[str, float]:
        return {f"W_{part}{way}": 1.0 for way in self.directions for part in ("re", "im")} | {"D": 1.0}

    def init(self, key: Array) -> Params:
        settings, n, h = self.settings, self.state, self.width
        key_dt, key_normal = jax.random.split(key)
        im = math.pi * np.arange(n) if settings.init == "lin" else hippo(2 * n).frequencies[n:]
        params = {
            "re_log": jnp.full((n,), math.log(0.5), jnp.float32),
            "im": jnp.asarray(im, jnp.float32),
            "log_dt": log_steps(key_dt, h, settings.dt_min, settings.dt_max),
        }
        shapes = {name: (h,) if name == "D" else (h, n) for name in self.variances}
        return params | normals(key_normal, shapes, self.variances)

    def _steps(self, params: Params) -> tuple[Array, Array, Complex]:
        a = Complex(-jnp.exp(params["re_log"])[None], params["im"][None])
        return discretize(a, jnp.exp(params["log_dt"])[:, None], "zoh")

    def modes(self, params: Params) -> tuple[Array, Array]:
        return self._steps(params)[:2]

    def weights(self, params: Params, direction: str) -> Complex:
        return complex_parameter(params, "W", direction) * self._steps(params)[2]
