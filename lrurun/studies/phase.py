"""`phase`: whether a small phase lets a long LRU generalise, and whether gamma repairs its initial loss."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Annotated, Any
from zlib import crc32

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Figure, Panel, Scale, dashed, greek, line
from lrurun.studies.checks import Check, above, identity
from lrurun.studies.formulas import generator
from lrurun.studies.study import Array, Count, Radius, Rate, Results, Settings, Study, Values

TRAINING, TEST, BATCH, CHUNK = 512, 1024, 64, 10
"""Sequences, sequences of an update, updates of one call of the compiled program."""
SLOWER = 0.25
"""The rate of the recurrent parameters over that of the others."""

EVERY = 20
"""Updates between two points of the curves."""
CURVES = ("training loss", "training accuracy", "test accuracy")
FIRST_LOSS, LAST_ACCURACY = "first training loss", "last test accuracy"
GRID: dict[str, Any] = {"normalize": [False, True], "phase": [2.0, 0.02]}
STAND_IN = (
    "white noise of 2,048 steps, with the sign of a slow sum as its class, stands in for PathX, which needs a GPU; "
    "unlike there, γ is not necessary"
)


class Phase(Settings, frozen=True, kw_only=True):
    """One training of one LRU layer."""

    normalize: bool = True
    """Whether gamma scales the input."""
    phase: Annotated[float, Meta(gt=0, le=2)] = 2.0
    """The largest initial phase, in units of π."""
    lr: Rate = 0.01
    updates: Annotated[int, Meta(ge=EVERY, le=10**7, multiple_of=EVERY)] = 400
    length: Annotated[int, Meta(ge=2, le=2**20)] = 2048
    state: Count = 64
    r_min: Radius = 0.999
    r_max: Radius = 0.9999

    def __post_init__(self) -> None:
        if self.r_min >= self.r_max:
            raise ValueError(f"r_min must be below r_max, found {self.r_min:g} and {self.r_max:g}")


class PhaseStudy(Study[Phase]):
    name = "phase"
    aliases = ("lru-fig5",)
    source = "Orvieto et al. 2023, Fig. 5"
    question = "Does a small phase let a long LRU generalise, and does γ lower its loss at initialisation?"
    published = "On PathX, chance without γ; with γ training improves; test accuracy does only with a small phase too."
    settings = Phase
    profiles = {
        "ci": GRID | {"updates": EVERY, "length": 512},
        "laptop": GRID,
        "paper": GRID | {"lr": [0.003, 0.01, 0.03]},
    }
    seeds = {"laptop": 3, "paper": 3}
    simulates = True
    stand_in = {
        "ci": f"{STAND_IN}; 20 updates on 512 steps stand in for 400 on 2,048, which only checks the computation.",
        "laptop": f"{STAND_IN}; one learning rate stands in for 3.",
        "paper": f"{STAND_IN}.",
    }

    def label(self, cell: Phase) -> str:
        return f"{'γ' if cell.normalize else 'no γ'}, phase {cell.phase:g}π"

    def steps(self, cell: Phase) -> int:
        return cell.updates

    def simulate(self, cell: Phase, seed: int) -> Generator[int, None, Values]:
        phase = cell.phase * np.pi
        by_powers, by_scan, adam, run = programs(cell.normalize, cell.state, cell.length)
        params = initial(cell.normalize, cell.state, cell.r_min, cell.r_max, phase)(seed)
        (u, labels), random = data(cell.length, seed), generator(seed, "batches")
        scanned, same = np.asarray(by_scan(params, u[:4])), np.asarray(by_powers(params, u[:4]))
        carry, curves = (params, adam(params)), [scores(np.asarray(by_powers(params, u)), labels)]
        rates = cell.lr * (1 + np.cos(np.pi * np.arange(cell.updates) / cell.updates)) / 2
        for done in range(CHUNK, cell.updates + 1, CHUNK):
            chosen = random.integers(TRAINING, size=(CHUNK, BATCH))
            carry = run(carry, (u[chosen], labels[chosen]), rates[done - CHUNK : done])
            if done % EVERY == 0:
                curves.append(scores(np.asarray(by_powers(carry[0], u)), labels))
            yield done
        columns = dict(zip(CURVES, np.array(curves).T, strict=True))
        return {
            "update": EVERY * np.arange(len(curves)),
            **columns,
            **{f"last {name}": column[-1] for name, column in columns.items()},
            FIRST_LOSS: columns["training loss"][0],
            "outputs apart": np.max(np.abs(scanned - same)) / np.max(np.abs(scanned)),
            "gain of constant input": constant_gain(cell.r_min, cell.r_max, phase),
            "gain as a sum": gain_by_sums(cell.r_min, cell.r_max, phase),
        }

    def checks(self, results: Results[Phase]) -> list[Check]:
        checks = []
        for result in results:
            name = f"{self.label(result.cell)}, lr {result.cell.lr:g}, seed {result.seed}"
            checks.append(identity(f"last outputs by powers and by a scan, {name}", result["outputs apart"], 0.0, 1e-9))
            if result.cell.normalize and result.seed == results[0].seed:
                gain = "gain of constant input"
                checks.append(identity(f"{gain}, {name}", result[gain], result["gain as a sum"]))
        for cells in (results.where(lr=rate) for rate in results.axis("lr")):
            for phase in cells.axis("phase"):
                plain, normal = (
                    _means(cells.where(phase=phase, normalize=normalize), FIRST_LOSS) for normalize in (False, True)
                )
                name = f"initial loss without γ over with it, phase {phase:g}π, lr {cells[0].cell.lr:g}"
                checks += [
                    above(name, without / with_gamma, 5) for without, with_gamma in zip(plain, normal, strict=False)
                ]
            small, full = (cells.where(normalize=True, phase=phase).by_seed(LAST_ACCURACY) for phase in (0.02, 2.0))
            for seed in small.keys() & full.keys() if results.profile != "ci" else ():
                name = f"test accuracy of phase 0.02π above 2π, γ, lr {cells[0].cell.lr:g}, seed {seed}"
                checks.append(above(name, small[seed] - full[seed], 0.3))
        return checks

    def answer(self, results: Results[Phase]) -> str:
        of_groups = [(self.label(cells[0].cell), cells) for cells in _groups(results)]
        firsts = ", ".join(f"{_means(cells, FIRST_LOSS)[0]:.2f} ({label})" for label, cells in of_groups)
        if results.profile == "ci":
            return f"The loss at initialisation is {firsts}."
        tests = ", ".join(f"{_means(cells, LAST_ACCURACY)[0]:.2f} ({label})" for label, cells in of_groups)
        return f"The loss at initialisation is {firsts}; the test accuracy is {tests}."

    def draw(self, results: Results[Phase]) -> Figure:
        panels = []
        for name in CURVES:
            curves = []
            for cells in _groups(results):
                cell, mean = cells[0].cell, np.mean([result.curves[name] for result in cells], 0)
                style = line if cell.normalize else dashed
                curves.append(style(greek(self.label(cell)), cells[0].curves["update"], mean, family=f"{cell.phase:g}"))
            scale: Scale = "log" if "loss" in name else "linear"
            panels.append(Panel(x="update", y=name, curves=tuple(curves), y_scale=scale))
        return Figure(panels=tuple(panels), columns=3)


def _groups(results: Results[Phase]) -> list[Results[Phase]]:
    """The cells of each setting at the largest rate."""
    cells = results.where(lr=max(results.axis("lr")))
    groups = [
        cells.where(phase=phase, normalize=normalize)
        for phase in cells.axis("phase")
        for normalize in cells.axis("normalize")
    ]
    return [cells for cells in groups if len(cells)]


def _means(cells: Results[Phase], name: str) -> list[float]:
    """The mean over seeds, or nothing if there are none."""
    return [float(np.mean([cell[name] for cell in cells]))] if len(cells) else []


def data(length: int, seed: int) -> tuple[Array, Array]:
    """White sequences (TRAINING + TEST, length), and whether their sum with one period of a cosine is positive."""
    u = generator(seed, "data").normal(size=(TRAINING + TEST, length))
    return u, u @ np.cos(2 * np.pi * np.arange(length) / length) > 0


def constant_gain(r_min: float, r_max: float, phase: float) -> float:
    """E of gamma^2 / |1 - lambda|^2, of a ring with phases in (0, `phase`]: |h|^2 of the normalised LRU and input 1.

    In the mean over phases it is Poisson's kernel, whose integral is an arctangent; the other integral is numerical.
    """
    from scipy.integrate import quad

    def over_phases(squared: float) -> float:
        r = np.sqrt(squared)
        return float(2 * np.arctan2((1 + r) * np.sin(phase / 2), (1 - r) * np.cos(phase / 2)) / phase)

    total, _ = quad(over_phases, r_min**2, r_max**2, epsabs=0, epsrel=1e-12)
    return float(total / (r_max**2 - r_min**2))


def gain_by_sums(r_min: float, r_max: float, phase: float) -> float:
    """`constant_gain` without the arctangent, as a sum over a grid of phases and radii."""
    if phase > np.pi:  # where the kernel is that of 2 pi - theta
        half, rest = (part * gain_by_sums(r_min, r_max, part) if part else 0.0 for part in (np.pi, 2 * np.pi - phase))
        return (2 * half - rest) / phase
    (nodes, weights), (s, of_s) = (np.polynomial.legendre.leggauss(count) for count in (60, 400))
    r = np.sqrt(r_min**2 + (r_max**2 - r_min**2) * (nodes[:, None] + 1) / 2)
    # phases (1 - r) sinh s: dense where the integrand is large
    end = np.arcsinh(phase / (1 - r)) / 2
    theta, slope = (1 - r) * np.sinh((s + 1) * end), (1 - r) * np.cosh((s + 1) * end) * end
    kernel = (1 - r**2) / ((1 - r) ** 2 + 4 * r * np.sin(theta / 2) ** 2)
    return float(weights @ (slope * kernel) @ of_s / 2 / phase)


def layer(normalize: bool, state: int, r_min: float = 0.0, r_max: float = 1.0, phase: float = np.pi) -> Any:
    """An LRU with one input; the ring and the largest phase, in radians, are those of its initial parameters."""
    from lrurun.config.recurrences.lru import LRURecurrence
    from lrurun.nn import recurrences

    settings = LRURecurrence(normalize=normalize, phase="log", r_min=r_min, r_max=r_max, max_phase=phase)
    return recurrences.build(settings, width=1, state=state)


def scores(outputs: Array, labels: Array) -> tuple[float, float, float]:
    """Logistic loss and accuracy on the training set, accuracy on the test set."""
    right = (outputs > 0) == labels
    loss = np.logaddexp(0, np.where(labels, -outputs, outputs))[:TRAINING]
    return float(np.mean(loss)), float(np.mean(right[:TRAINING])), float(np.mean(right[TRAINING:]))


@cache
def initial(normalize: bool, state: int, r_min: float, r_max: float, phase: float) -> Any:
    """seed -> parameters."""
    import jax
    import jax.numpy as jnp

    lru = layer(normalize, state, r_min, r_max, phase)

    def init(seed: int) -> Any:
        key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), crc32(b"init"))
        parameters = {name: value.astype(jnp.float64) for name, value in lru.init(key).items() if name != "D"}
        return parameters | {"bias": jnp.zeros((), jnp.float64)}

    return jax.jit(init)


@cache
def programs(normalize: bool, state: int, length: int) -> Any:
    """Outputs by powers of lambda, outputs by a scan, Adam's initial state, and CHUNK updates."""
    import jax
    import jax.numpy as jnp
    import optax

    from lrurun.nn.complex import Complex
    from lrurun.nn.scan import linear_scan

    lru = layer(normalize, state)

    def read(params: Any, re: Any, im: Any) -> Any:
        """Outputs (B,) of the last states, (N, B) each, before B."""
        _, B, (C,), _ = lru.system(params | {"D": jnp.zeros(1)})
        weights = C[0] * B[:, 0]
        return weights.real @ re - weights.imag @ im + params["bias"]

    def by_powers(params: Any, u: Any) -> Any:
        nu, theta = lru.parametrization.decay_and_phase(params)
        back = jnp.arange(length - 1, -1, -1.0)
        radius, angle = jnp.exp(-jnp.outer(nu, back)), jnp.outer(theta, back)
        return read(params, radius * jnp.cos(angle) @ u.T, radius * jnp.sin(angle) @ u.T)

    def by_scan(params: Any, u: Any) -> Any:
        v = jnp.broadcast_to(u.T[..., None], (*u.T.shape, state))
        x = linear_scan(lru.parametrization.eigenvalues(params), Complex(v, jnp.zeros_like(v)))[-1]
        return read(params, x.real.T, x.imag.T)

    def loss(params: Any, u: Any, labels: Any) -> Any:
        return jnp.mean(optax.sigmoid_binary_cross_entropy(by_powers(params, u), labels.astype(jnp.float64)))

    adam = optax.scale_by_adam()

    def run(carry: Any, batches: Any, rates: Any) -> Any:
        def update(carry: Any, batch: Any) -> Any:
            (params, state), (u, labels, rate) = carry, batch
            slope = jax.grad(loss)(params, u, labels)
            change, state = adam.update(slope, state)
            factors = {name: SLOWER if name in lru.recurrent_parameters else 1.0 for name in params}
            return ({name: params[name] - rate * factors[name] * change[name] for name in params}, state), None

        return jax.lax.scan(update, carry, (*batches, rates))[0]

    return jax.jit(by_powers), jax.jit(by_scan), adam.init, jax.jit(run)


STUDY = PhaseStudy()
