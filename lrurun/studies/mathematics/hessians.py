"""Hessians of linear networks with one input and one output, where the loss is 0: closed forms, autodiff, statistics.

The loss is half the mean squared error. Networks are the layers of `lrurun.nn`, differentiated as they are, and closed
forms stand beside. Zucchet and Orvieto 2024, appendices B.2 and B.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from lrurun.studies.machinery.study import Array, Values
from lrurun.studies.mathematics import layers
from lrurun.studies.mathematics.formulas import derivative

if TYPE_CHECKING:
    from lrurun.nn.recurrences import Recurrence

Coordinates = Literal["re-im", "polar", "exponential"]
"""Coordinates of an eigenvalue ν exp(iθ): its parts; ν and θ; ν = exp(-exp w) and θ = ±exp v."""

TOP = 10
"""Eigenvectors of a spectrum, at most: a kernel with n pairs of eigenvalues has 4 n + 1 of them."""
ROUNDING = 1e-11
"""Eigenvalues below this times the largest count as 0: their vectors are arbitrary."""

Network = Literal["dense", "complex", "complex-single", "lru", "lru-single"]
"""complex: parts of λ, B and C of a complex diagonal. lru: ν and θ in exponential coordinates, and γ. Both have a unit
for each eigenvalue; "single" ones have one for each conjugate pair."""
NETWORKS: list[Network] = list(get_args(Network))

COORDINATES: dict[Network, Coordinates] = {
    "complex": "re-im",
    "complex-single": "re-im",
    "lru": "exponential",
    "lru-single": "exponential",
}

LAGS = 3000
"""Lags of kernels: for |λ| <= 0.993, the square of a kernel has then fallen to 1e-18."""


def directions(coordinates: Coordinates, eigenvalues: Array, theta: Array) -> tuple[Array, Array]:
    """The derivatives of the eigenvalues, whose angles are `theta`, by their first and by their second coordinates."""
    if coordinates == "re-im":
        return np.ones_like(eigenvalues), 1j * np.ones_like(eigenvalues)
    nu = np.abs(eigenvalues)
    by_nu, by_theta = np.exp(1j * theta), 1j * eigenvalues
    return (by_nu, by_theta) if coordinates == "polar" else (nu * np.log(nu) * by_nu, theta * by_theta)


def _products(eigenvalues: Array, b: Array, c: Array, rho: float) -> tuple[Array, Array]:
    """E z_i z_j and E z_i conj(z_j), where z = b c dh/dλ: A and B of eq. 114."""
    z, rows, columns = b * c, eigenvalues[:, None], eigenvalues[None, :]
    plain, conjugate = derivative(rows, columns, rho), derivative(rows, columns.conj(), rho)
    return np.outer(z, z) * plain, np.outer(z, z.conj()) * conjugate


def block(
    eigenvalues: Array, b: Array, c: Array, rho: float, coordinates: Coordinates, theta: Array | None = None
) -> Array:
    """The Hessian (2n, 2n) by the coordinates of n eigenvalues, all first ones before all second ones.

    y = Re sum c h, where b multiplies the input; eqs. 119 and 128 to 131, with eq. 130 as the transpose of eq. 129.
    The size of exponential coordinates depends on which angles are meant: `theta`, else angles from -π to π.
    """
    plain, conjugate = _products(eigenvalues, b, c, rho)
    theta = np.angle(eigenvalues) if theta is None else theta
    turned = np.concatenate(directions(coordinates, eigenvalues, theta))
    outer, inner = np.outer(turned, turned), np.outer(turned, turned.conj())
    return 0.5 * np.real(outer * np.tile(plain, (2, 2)) + inner * np.tile(conjugate, (2, 2)))


def correlated(slopes: Array, rho: float) -> Array:
    """The Hessian (n, n) of a kernel with `slopes` (lags, n), for inputs whose correlation at lags n, m is
    rho^|n - m|: the sum over all pairs of lags."""
    from scipy.signal import lfilter

    # The recursion sums over m <= n; both triangles have the diagonal.
    below = slopes.T @ lfilter([1.0], [1.0, -rho], slopes, axis=0)
    return np.asarray(below + below.T - slopes.T @ slopes)


class Spectrum(NamedTuple):
    """Statistics of a Hessian, on which the effect of a diagonal preconditioner such as Adam's depends."""

    top: float
    """The largest eigenvalue."""
    participation: float
    """1 / sum v^4 of a unit eigenvector, mean over the top ones: 1 is one coordinate."""
    share: float
    """The norm of the part off the diagonal, over the norm of the whole."""
    scaled: float
    """The largest eigenvalue with rows and columns scaled so that the diagonal is 1."""
    eigenvalues: Array
    """All eigenvalues, the largest first, (n,)."""
    vectors: Array
    """Unit eigenvectors of the `TOP` largest, in rows, and of fewer where the matrix has a lower rank."""


def spectrum(hessian: Array) -> Spectrum:
    """The statistics of a symmetric matrix with a positive diagonal."""
    eigenvalues, vectors = np.linalg.eigh(hessian)
    top = vectors[:, ::-1][:, : min(TOP, np.sum(eigenvalues > ROUNDING * eigenvalues[-1]))].T
    diagonal = np.diag(hessian)
    off = hessian - np.diag(diagonal)
    scale = 1 / np.sqrt(diagonal)
    return Spectrum(
        top=float(eigenvalues[-1]),
        participation=float(np.mean(1 / np.sum(top**4, axis=1))),
        share=float(np.linalg.norm(off) / np.linalg.norm(hessian)),
        scaled=float(np.linalg.eigvalsh(hessian * np.outer(scale, scale))[-1]),
        eigenvalues=eigenvalues[::-1],
        vectors=top,
    )


def error(matrix: Array, reference: Array) -> float:
    """The largest difference of two matrices, over the largest entry of the second."""
    return float(np.max(np.abs(matrix - reference)) / np.max(np.abs(reference)))


UNITS, MODULI, SUMMED = 10, (0.99, 0.995), 6000
"""The systems with concentrated angles: number of eigenvalues; their absolute values, uniform between these as in
the paper's text (its published code samples uniformly in the area); lags of the layer's kernel, as 0.995 to the power
12,000 is 1e-26."""


def concentrated(network: Network, numbers: Iterable[int], angle: float, rho: float) -> Values:
    """Hessians of random complex diagonal networks with angles from -angle to angle, one for each number.

    Networks of one number and other angles have the same random numbers. Means of their statistics, and of the first
    number its Hessian, and how far the layer's is from it.
    """
    spectra: list[Spectrum] = []
    values: Values = {}
    for number in numbers:
        rng = np.random.default_rng(number)
        eigenvalues = rng.uniform(*MODULI, UNITS) * np.exp(1j * angle * rng.uniform(-1, 1, UNITS))
        parts = rng.standard_normal((4, UNITS))
        b, c, theta = parts[0] + 1j * parts[1], parts[2] + 1j * parts[3], angles(eigenvalues)
        hessian = block(eigenvalues, b, c, rho, COORDINATES[network], theta)
        spectra.append(spectrum(hessian))
        if not values:
            parameters = diagonal_parameters(network, eigenvalues, b, c, 0.0)
            flat, shapes = flattened(parameters)
            slopes = np.asarray(sensitivities(network, shapes, SUMMED)(flat))[:, : 2 * UNITS]
            values = {"hessian": hessian.ravel(), "sum error": error(correlated(slopes, rho), hessian)}
    for name in ("share", "participation", "scaled"):
        values[name] = float(np.mean([getattr(statistics, name) for statistics in spectra]))
    return {**values, "share of systems": np.array([statistics.share for statistics in spectra])}


class System(NamedTuple):
    """A real system with two conjugate pairs of eigenvalues, in its own coordinates: y = Re sum c h + d x."""

    eigenvalues: Array
    """(4,): each before its conjugate."""
    vectors: Array
    """(4, 4): h = vectors @ state, with the real state of the dense network."""
    state: Array
    """(4,): what the input adds to that state."""
    output: Array
    """(4,): its real output weights."""
    skip: float


def system(rng: np.random.Generator, low: float, high: float) -> System:
    """A random one, with |λ| between `low` and `high`, uniform, and uniform phases."""
    radius, phase = rng.uniform(low, high, 2), rng.uniform(0, np.pi, 2)
    rows = (rng.standard_normal((2, 4)) + 1j * rng.standard_normal((2, 4))) / np.sqrt(8)
    vectors = np.stack([rows, rows.conj()], axis=1).reshape(4, 4)
    eigenvalues = np.stack([radius * np.exp(1j * phase), radius * np.exp(-1j * phase)], axis=1).ravel()
    state, output, skip = rng.standard_normal(4), rng.standard_normal(4) / 2, float(rng.standard_normal())
    return System(eigenvalues, vectors, state, output, skip)


def angles(eigenvalues: Array) -> Array:
    """The angles of the LRU, from 0 to 2π: the angle is an exponential there. A conjugate has 2π less the other."""
    return np.asarray(np.angle(eigenvalues) % (2 * np.pi))


def diagonal(network: Network, source: System) -> tuple[Array, Array, Array]:
    """Eigenvalues, input and output weights of the units of a complex network that is the system."""
    b, c = source.vectors @ source.state, np.linalg.solve(source.vectors.T, source.output)
    return (source.eigenvalues[::2], b[::2], 2 * c[::2]) if network.endswith("single") else (source.eigenvalues, b, c)


def layer(network: Network, state: int) -> Recurrence:
    """The layer that is the network, with so many units."""
    from lrurun.config.recurrences.lru import LRUSettings
    from lrurun.config.recurrences.rnn import RNNSettings

    settings: Any
    if network == "dense":
        settings = RNNSettings(activation="identity")
    elif COORDINATES[network] == "exponential":
        settings = LRUSettings(phase="log", normalize=True)
    else:
        settings = LRUSettings(parametrization="cartesian")
    built: Recurrence = layers.build(settings, width=1, state=state)
    return built


def parameters(network: Network, source: System) -> dict[str, Array]:
    """The parameters of the layer that is the system, in the order of its Hessian."""
    if network != "dense":
        return diagonal_parameters(network, *diagonal(network, source), source.skip)
    a = np.real(np.linalg.solve(source.vectors, source.eigenvalues[:, None] * source.vectors))
    return {"A": a, "B": source.state[:, None], "C": source.output[None], "D": np.array([source.skip])}


def diagonal_parameters(network: Network, eigenvalues: Array, b: Array, c: Array, skip: float) -> dict[str, Array]:
    """The parameters of the complex diagonal layer y = Re sum c h + skip x, where b multiplies the input, in the order
    of its Hessian. The layer computes the parameters of its eigenvalues, and γ."""
    import jax.numpy as jnp

    from lrurun.nn.recurrences import lru

    nu, theta = jnp.asarray(-np.log(np.abs(eigenvalues))), jnp.asarray(angles(eigenvalues))
    form = lru.parametrization("stable-exponential", log_phase=True)
    if COORDINATES[network] == "re-im":
        form = lru.parametrization("cartesian")
    first = {name: np.asarray(value) for name, value in form.initial(nu, theta).items()}
    if COORDINATES[network] == "exponential":
        first["gamma_log"] = np.asarray(lru.log_gamma(nu))
        b = b / np.sqrt(1 - np.abs(eigenvalues) ** 2)
    weights = {"B_re": b.real[:, None], "B_im": b.imag[:, None], "C_re": c.real[None], "C_im": c.imag[None]}
    return {**first, **weights, "D": np.array([skip])}


def impulse_response(source: System, lags: int) -> Array:
    """The kernel of a system, (lags,), by the powers of its eigenvalues."""
    b, c = source.vectors @ source.state, np.linalg.solve(source.vectors.T, source.output)
    kernel = np.real(np.exp(np.arange(lags)[:, None] * np.log(source.eigenvalues)) @ (b * c))
    kernel[0] += source.skip
    return np.asarray(kernel)


GROUPS: dict[Network, dict[str, int]] = {
    "dense": {"A": 16, "B": 4, "C": 4},
    "complex": {"λ": 8, "B": 8, "C": 8},
    "lru": {"ν": 4, "θ": 4, "γ": 4, "B": 8, "C": 8},
}
"""The sizes of the groups of `parameters` of a `system`, in the order of the Hessian; then comes one, D."""


def centres(network: Network) -> tuple[tuple[float, str], ...]:
    """The index at the middle of each group in the Hessian, and its name."""
    ends = np.cumsum(list(GROUPS[network].values()))
    return tuple(
        (float(end - (size + 1) / 2), name) for end, (name, size) in zip(ends, GROUPS[network].items(), strict=True)
    )


Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each parameter, in the order of a Hessian."""


def flattened(parameters: dict[str, Array]) -> tuple[Array, Shapes]:
    """The parameters one after the other, (n,), and their shapes."""
    flat = np.concatenate([array.ravel() for array in parameters.values()])
    return flat, tuple((name, array.shape) for name, array in parameters.items())


def _kernel(network: Network, shapes: Shapes, flat: Any, lags: int) -> Any:
    """The kernel (lags,) of a layer with these parameters: by its steps, or by the powers of its eigenvalues.

    Both have derivatives of any order; `scan` has one gradient of its own.
    """
    import jax
    import jax.numpy as jnp

    parts = jnp.split(flat, np.cumsum([math.prod(shape) for _, shape in shapes])[:-1])
    parameters = {name: part.reshape(shape) for (name, shape), part in zip(shapes, parts, strict=True)}
    network_layer: Any = layer(network, parameters["C" if network == "dense" else "C_re"].shape[1])
    if network == "dense":
        state = network_layer.initial_state(1).astype(flat.dtype)
        impulse = jnp.zeros((lags, 1, 1), flat.dtype).at[0].set(1.0)
        return jax.lax.scan(lambda h, x: network_layer.step(parameters, h, x), state, impulse)[1][:, 0, 0]
    lam, b, (c,), d = network_layer.system(parameters)
    powers = jnp.exp(jnp.arange(lags)[:, None] * jnp.log(lam.real + 1j * lam.imag)[None])
    weights = (c.real + 1j * c.imag)[0] * (b.real + 1j * b.imag)[:, 0]
    return jnp.real(powers @ weights).at[0].add(d[0])


@cache
def sensitivities(network: Network, shapes: Shapes, lags: int) -> Any:
    """Parameters (n,) -> the derivatives of the kernel by them, (lags, n)."""
    import jax

    return jax.jit(jax.jacfwd(lambda flat: _kernel(network, shapes, flat, lags)))


@cache
def differentiated(network: Network, shapes: Shapes) -> Any:
    """(parameters (n,), weights of lags) -> kernel, the Hessian (n, n), and the Hessian (n, n) of
    the linearised kernel.

    The loss is half the sum of weights times the squared difference to the kernel of these parameters.
    """
    import jax
    import jax.numpy as jnp

    def run(flat: Any, weights: Any) -> Any:
        def kernel(moved: Any) -> Any:
            return _kernel(network, shapes, moved, len(weights))

        target, slopes = kernel(flat), jax.jacfwd(kernel)(flat)
        hessian = jax.hessian(lambda moved: 0.5 * jnp.sum(weights * (kernel(moved) - target) ** 2))(flat)
        return target, hessian, slopes.T @ (weights[:, None] * slopes)

    return jax.jit(run)
