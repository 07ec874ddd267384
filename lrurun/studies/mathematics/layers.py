"""The layers of `lrurun.nn` as studies use them: their initial parameters, eigenvalues and states.

jax is imported in functions, because studies are also declared and reported where nothing is simulated. Cells of
studies with `simulates` compute in float64, also with parameters that a layer has sampled in float32.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np

from lrurun.config.recurrences.base import RecurrenceSettings
from lrurun.studies.machinery.checks import Check, identity, sampling
from lrurun.studies.machinery.study import Array, Values
from lrurun.studies.mathematics.formulas import Ring

MEAN_SQUARE, MEAN_PHASE, GAMMA = "mean |λ|²", "mean phase", "largest |γ² / (1 - |λ|²) - 1|"


def key(seed: int, name: str) -> Any:
    """The jax key of a seed for one purpose, independent of those for other purposes."""
    import jax

    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), crc32(name.encode()))


def build(settings: RecurrenceSettings, *, width: int, state: int) -> Any:
    """The `Recurrence` of these settings, H and N, whose products have all digits on every device."""
    from lrurun.nn import recurrences

    return recurrences.build(settings, width=width, state=state, precision="float32")


def initial(layer: Any, seed: int, name: str = "init") -> dict[str, Array]:
    """The initial parameters of a layer, as float64 arrays."""
    return {parameter: np.asarray(value, np.float64) for parameter, value in layer.init(key(seed, name)).items()}


def states(layer: Any, params: Any, u: Any) -> Any:
    """The state after each of the inputs `u` (T, B, H), from a zero state, by the layer's own `step`.

    A tree of arrays (T, B, ...): `Complex` for diagonal kinds, h and c for an LSTM.
    """
    import jax
    import jax.numpy as jnp

    start = jax.tree.map(lambda part: part.astype(jnp.result_type(u)), layer.initial_state(u.shape[1]))

    def body(state: Any, now: Any) -> tuple[Any, Any]:
        state, _ = layer.step(params, state, now)
        return state, state

    return jax.lax.scan(body, start, u)[1]


def numbers(values: Array) -> Any:
    """Complex numbers as layers have them."""
    import jax.numpy as jnp

    from lrurun.nn.complex import Complex

    return Complex(jnp.asarray(values.real), jnp.asarray(values.imag))


def phases(eigenvalue: Array) -> Array:
    """The angles of complex numbers, from 0 to 2 pi."""
    return np.angle(eigenvalue) % (2 * np.pi)


def sampled(eigenvalue: Array, gamma: Array | None = None) -> Values:
    """What `ring_checks` compares, of the initial eigenvalues of a layer and of its gamma, if it has one."""
    square = np.abs(eigenvalue) ** 2
    values: Values = {MEAN_SQUARE: float(np.mean(square)), MEAN_PHASE: float(np.mean(phases(eigenvalue)))}
    if gamma is not None:
        values[GAMMA] = np.max(np.abs(gamma**2 / (1 - square) - 1))
    return values


def ring_checks(values: Any, ring: Ring, *, count: int, where: str, max_phase: float = 2 * np.pi) -> list[Check]:
    """Checks that a layer's `count` initial eigenvalues are uniform on a ring, with phases from 0 to `max_phase`
    radians (Orvieto et al. 2023, Lemma 2), and that its gamma is sqrt(1 - |lambda|^2) (section 3.4).

    `values` has what `sampled` gave, of float32 parameters. Of |lambda|^2 and of the phase, which are uniform, the
    means are compared.
    """
    inner, outer = (radius**2 for radius in ring)
    checks = []
    for name, low, high in ((MEAN_SQUARE, inner, outer), (MEAN_PHASE, 0.0, max_phase)):
        stderr = (high - low) / np.sqrt(12 * count)
        checks.append(sampling(f"{name}, {where}", values[name], (low + high) / 2, stderr))
    if GAMMA in values:
        checks.append(identity(f"{GAMMA}, {where}", values[GAMMA], 0.0, 1e-3))
    return checks
