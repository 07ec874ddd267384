"""The outputs of a linear recurrent network with random weights, to be learned by another one."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from lrurun.data.metric import R2, Metric, Nmse
from lrurun.data.on_device import Sampled, SampledOptions
from lrurun.data.task import Output, Seed, Spec

if TYPE_CHECKING:
    import jax


class TeacherOptions(SampledOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The teacher, and the number of steps."""

    length: Annotated[int, Meta(ge=1, le=8192)] = 300
    nu: Annotated[float, Meta(ge=0, lt=1)] = 0.99
    """Lower bound of the teacher's |lambda|."""
    max_phase: Annotated[float, Meta(gt=0, le=math.pi)] = math.pi
    """Upper bound of the phases of the teacher's lambda, in radians."""
    states: Annotated[int, Meta(ge=1, le=1024)] = 10
    """n: real numbers in the state of the teacher."""
    teacher: Seed = 0
    """Seed of the teacher."""


class Teacher(NamedTuple):
    """h_t = A h_(t-1) + B x_t, y_t = C h_t + D x_t, real, float64."""

    a: np.ndarray
    """(n, n)"""
    b: np.ndarray
    """(n,)"""
    c: np.ndarray
    """(n,)"""
    d: float

    def kernel(self, length: int) -> np.ndarray:
        """The response to a unit impulse, (length,): D + C B, then C A^k B."""
        response, h = np.zeros(length), self.b
        for k in range(length):
            response[k] = self.c @ h
            h = self.a @ h
        response[0] += self.d
        return response


def moved(a: np.ndarray, nu: float, max_phase: float = math.pi) -> np.ndarray:
    """Real matrices, (..., n, n), with |lambda| moved to nu + (1 - nu) tanh |lambda| and phases times max_phase / pi.

    Zucchet and Orvieto 2024, eq. 133. It is the real part of the new matrix, which is real already where max_phase is
    pi.
    """
    values, vectors = np.linalg.eig(a)
    radius = nu + (1 - nu) * np.tanh(np.abs(values))
    values = radius * np.exp(1j * np.angle(values) * max_phase / math.pi)
    return ((vectors * values[..., None, :]) @ np.linalg.inv(vectors)).real


@cache
def teacher(options: TeacherOptions) -> Teacher:
    """A ~ N(0, 1/n) with its eigenvalues moved, see `moved`; B ~ N(0, 1), C ~ N(0, 1/n), D ~ N(0, 1)."""
    random, n = np.random.RandomState(options.teacher), options.states
    a = moved(random.standard_normal((n, n)) / math.sqrt(n), options.nu, options.max_phase)
    b, c, d = random.standard_normal(n), random.standard_normal(n) / math.sqrt(n), random.standard_normal()
    return Teacher(a, b, c, float(d))


class TeacherStudent(Sampled):
    """White noise, and what a random linear recurrent network makes of it (Zucchet and Orvieto 2024, section 4.2)."""

    name = "TeacherStudent"
    title = "the outputs of a random linear recurrent network"
    version = "1"
    classes = 1
    metric = Nmse()
    options = TeacherOptions

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.metric, R2()

    def spec(self, options: TeacherOptions, vocabulary: Any = ()) -> Spec:
        output = Output(loss="squared-error", at="positions")
        return Spec(name=self.name, kind="features", features=1, classes=1, length=options.length, output=output)

    def sample(self, key: jax.Array, count: int, options: TeacherOptions) -> tuple[Any, Any, Any]:
        import jax
        import jax.numpy as jnp

        kernel = jnp.asarray(teacher(options).kernel(options.length), jnp.float32)
        steps = jnp.arange(options.length)
        lag = steps[None, :] - steps[:, None]
        responses = jnp.where(lag >= 0, kernel[jnp.maximum(lag, 0)], 0.0)  # (step of the input, step of the output)
        x = jax.random.normal(key, (count, options.length), jnp.float32)
        return x[..., None], jnp.matmul(x, responses, precision="highest")[..., None], None
