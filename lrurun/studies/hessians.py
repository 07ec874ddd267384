"""Hessians of linear networks with one input and one output, where the loss is 0: closed forms, autodiff, statistics.

The loss is half the mean squared error. Zucchet and Orvieto 2024, appendices B.2 and B.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from lrurun.studies.formulas import derivative, printed_derivative
from lrurun.studies.study import Array, Values

Coordinates = Literal["re-im", "polar", "exponential"]
"""Coordinates of an eigenvalue ν exp(iθ): its parts; ν and θ; ν = exp(-exp w) and θ = ±exp v."""

TOP = 10
"""Eigenvectors of a spectrum, at most: those of a kernel with n pairs of eigenvalues number 4 n + 1."""
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
"""Lags of kernels: the squares of those of |λ| <= 0.993 have then fallen to 1e-18."""


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
    The size of exponential coordinates depends on which angles are meant: those of `theta`, else from -π to π.
    """
    plain, conjugate = _products(eigenvalues, b, c, rho)
    theta = np.angle(eigenvalues) if theta is None else theta
    turned = np.concatenate(directions(coordinates, eigenvalues, theta))
    outer, inner = np.outer(turned, turned), np.outer(turned, turned.conj())
    return 0.5 * np.real(outer * np.tile(plain, (2, 2)) + inner * np.tile(conjugate, (2, 2)))


def series(
    eigenvalues: Array, b: Array, c: Array, rho: float, coordinates: Coordinates, theta: Array, lags: int
) -> Array:
    """`block` as a sum over `lags` pairs of lags n, m with the correlation rho^|n - m| of their inputs."""
    from scipy.signal import lfilter

    n = np.arange(lags)[:, None]
    slopes = b * c * n * np.exp(np.maximum(n - 1, 0) * np.log(eigenvalues))
    slopes = np.real(np.concatenate([slopes * turn for turn in directions(coordinates, eigenvalues, theta)], axis=1))
    # The recursion sums over m <= n; both triangles have the diagonal.
    below = slopes.T @ lfilter([1.0], [1.0, -rho], slopes, axis=0)
    return np.asarray(below + below.T - slopes.T @ slopes)


def printed_cross(eigenvalues: Array, b: Array, c: Array, rho: float) -> Array:
    """The block (n, n) by θ_i and ν_j as equation (130) prints it, which is not that of `block`."""
    plain, conjugate = _products(eigenvalues, b, c, rho)
    nu, theta = np.abs(eigenvalues), np.angle(eigenvalues)
    turned = np.exp(1j * np.subtract.outer(theta, theta))
    return np.asarray(0.5 * nu[:, None] * np.imag(turned * (conjugate - plain)))


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
the paper's text (its published code samples uniformly in the area); lags of `series`, as 0.995 to the power 12,000
is 1e-26."""


def concentrated(network: Network, numbers: Iterable[int], angle: float, rho: float) -> Values:
    """Hessians of random complex diagonal networks with angles from -angle to angle, one for each number.

    Networks of one number and other angles have the same random numbers. Means of their statistics, and of the first
    number its Hessian, and what is compared with `series`.
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
            summed = series(eigenvalues, b, c, rho, COORDINATES[network], theta, SUMMED)
            printed = np.real(printed_derivative(eigenvalues, eigenvalues.conj(), rho))
            values = {
                "hessian": hessian.ravel(),
                "sum error": error(hessian, summed),
                "summed trace": np.trace(summed),
                "printed trace": np.abs(b * c) ** 2 @ printed,
            }
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


def parameters(network: Network, source: System) -> dict[str, Array]:
    """The parameters of the network that is the system: name of a group -> its numbers."""
    skip = np.array([source.skip])
    if network == "dense":
        a = np.real(np.linalg.solve(source.vectors, source.eigenvalues[:, None] * source.vectors))
        return {"A": a.ravel(), "B": source.state, "C": source.output, "D": skip}
    eigenvalues, b, c = diagonal(network, source)
    first = {"re": eigenvalues.real, "im": eigenvalues.imag}
    if network.startswith("lru"):
        nu = np.abs(eigenvalues)
        first = {"ν": np.log(-np.log(nu)), "θ": np.log(angles(eigenvalues)), "γ": np.log(1 - nu**2) / 2}
        b = b / np.sqrt(1 - nu**2)
    return {**first, "B re": b.real, "B im": b.imag, "C re": c.real, "C im": c.imag, "D": skip}


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


@cache
def differentiated(groups: tuple[str, ...]) -> Any:
    """(numbers of each group, weights of lags) -> the Hessian, and that of the linearised kernel.

    The loss is half the sum of weights times the squared difference to the kernel of these parameters. `groups` are
    the names that `parameters` gives, in its order, which is that of the Hessian.
    """
    import jax
    import jax.numpy as jnp

    def kernel(p: dict[str, Any], lags: int) -> Any:
        if "A" in p:
            matrix = p["A"].reshape(len(p["B"]), -1)
            states = jax.lax.scan(lambda h, _: (matrix @ h, h), p["B"], length=lags)[1]
            return (states @ p["C"]).at[0].add(p["D"][0])
        b, c = p["B re"] + 1j * p["B im"], p["C re"] + 1j * p["C im"]
        if "ν" in p:
            logarithm, b = -jnp.exp(p["ν"]) + 1j * jnp.exp(p["θ"]), jnp.exp(p["γ"]) * b
        else:
            logarithm = jnp.log(p["re"] + 1j * p["im"])
        powers = jnp.exp(jnp.arange(lags)[:, None] * logarithm[None])
        return jnp.real(powers @ (b * c)).at[0].add(p["D"][0])

    def run(numbers: tuple[Any, ...], weights: Any) -> Any:
        ends = np.cumsum([len(group) for group in numbers])[:-1]

        def kernel_at(flat: Any) -> Any:
            return kernel(dict(zip(groups, jnp.split(flat, ends), strict=True)), len(weights))

        flat = jnp.concatenate(numbers)
        target, slopes = kernel_at(flat), jax.jacfwd(kernel_at)(flat)
        hessian = jax.hessian(lambda moved: 0.5 * jnp.sum(weights * (kernel_at(moved) - target) ** 2))(flat)
        return hessian, slopes.T @ (weights[:, None] * slopes)

    return jax.jit(run)
