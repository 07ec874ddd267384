"""`phase`: whether a small phase lets a long LRU generalise, and whether gamma repairs its initial loss."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from lrurun.config.recurrences.lru import LRUSettings
from lrurun.report.figures.figures import Figure, Panel, Scale, dashed, greek, line
from lrurun.studies.machinery.checks import Check, identity
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, positive, threshold, together
from lrurun.studies.machinery.study import Array, Count, Radius, Rate, Results, Settings, Study, Values
from lrurun.studies.mathematics import layers
from lrurun.studies.mathematics.descent import Carry, descent
from lrurun.studies.mathematics.formulas import check_ring, generator

TRAINING, TEST, BATCH, CHUNK = 512, 1024, 64, 10
"""Sequences, sequences of an update, updates of one call of the compiled function."""
SLOWER = 0.25
"""The rate of the recurrent parameters over the rate of the others."""

EVERY = 20
"""Updates between two points of the curves."""
CURVES = ("training loss", "training accuracy", "test accuracy")
FIRST_LOSS, LAST_ACCURACY = "first training loss", "last test accuracy"
SMALL, FULL = 0.02, 2.0
"""The largest phases of the figure, in units of π."""
GRID: dict[str, Any] = {"normalize": [False, True], "phase": [FULL, SMALL]}
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
        check_ring((self.r_min, self.r_max))


LEARNED, CHANCE = 0.75, 0.6
"""The accuracies from which and up to which a model has learned something, and has not [ours]: chance is 0.5."""


def _accuracies(results: Results[Phase], *, normalize: bool, phase: float) -> dict[int, float]:
    """Seed -> test accuracy at the learning rate with the lowest training loss."""
    return results.where(normalize=normalize, phase=phase).best("lr", "last training loss").by_seed(LAST_ACCURACY)


def _generalises(results: Results[Phase]) -> Evidence | None:
    small, full = (_accuracies(results, normalize=True, phase=phase) for phase in (SMALL, FULL))
    if results.profile == "ci" or not small or not full:
        return None
    return together(
        threshold("test accuracy, phases up to π/50", _mean(small), supported=LEARNED, contradicted=CHANCE),
        threshold("test accuracy, phases up to 2π", _mean(full), supported=CHANCE, contradicted=LEARNED),
        positive("small minus full phase", [small[seed] - full[seed] for seed in sorted(small.keys() & full.keys())]),
    )


def _blows_up(results: Results[Phase]) -> Evidence | None:
    parts = []
    for phase in results.axis("phase"):
        plain, normal = (
            results.where(phase=phase, normalize=normalize).by_seed(FIRST_LOSS) for normalize in (False, True)
        )
        if plain and normal:
            name = f"initial loss without γ over with it, phases up to {phase:g}π"
            # ours: a loss of twice the size blows up
            parts.append(threshold(name, _mean(plain) / _mean(normal), supported=2, contradicted=1))
    return together(*parts)


def _needs_gamma(results: Results[Phase]) -> Evidence | None:
    plain = _accuracies(results, normalize=False, phase=SMALL)
    if results.profile == "ci" or not plain:
        return None
    name = "test accuracy without γ, phases up to π/50"
    return threshold(name, _mean(plain), supported=CHANCE, contradicted=LEARNED)


def _mean(of_seeds: dict[int, float]) -> float:
    return float(np.mean(list(of_seeds.values())))


class PhaseStudy(Study[Phase]):
    name = "phase"
    aliases = ("lru-fig5",)
    source = "Orvieto et al. 2023, Fig. 5"
    question = "Does a small phase let a long LRU generalise, and does γ lower its loss at initialisation?"
    published = "On PathX, chance without γ; with γ training improves; test accuracy does only with a small phase too."
    claims = (
        StudyClaim(
            text="With small phases a long model generalises, with phases on the whole circle it does not",
            source="Orvieto et al. 2023, section 3.4, Fig. 5",
            evidence=_generalises,
        ),
        StudyClaim(
            text="Without normalisation the loss at initialisation blows up",
            source="Orvieto et al. 2023, section 3.4, Fig. 5",
            evidence=_blows_up,
        ),
        StudyClaim(
            text="Without normalisation a long model stays at chance, with small phases too",
            source="Orvieto et al. 2023, section 3.4",
            evidence=_needs_gamma,
        ),
    )
    version = 2
    settings = Phase
    profiles = {
        "ci": GRID | {"updates": EVERY, "length": 512},
        "laptop": GRID,
        "paper": GRID | {"lr": [0.003, 0.01, 0.03]},
    }
    seeds = {"laptop": 5, "paper": 5}
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
        by_powers, by_scan, init, run = compiled(cell.normalize, cell.state, cell.length)
        lru = layer(cell.normalize, cell.state, cell.r_min, cell.r_max, cell.phase * np.pi)
        params = initial(lru, seed)
        eigenvalue, gamma = lru.spectrum(params), np.exp(params["gamma_log"]) if cell.normalize else None
        (u, labels), random = data(cell.length, seed), generator(seed, "batches")
        scanned, same = np.asarray(by_scan(params, u[:4])), np.asarray(by_powers(params, u[:4]))
        carry, curves = (params, init(params)), [scores(np.asarray(by_powers(params, u)), labels)]
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
            **layers.sampled(eigenvalue, gamma),
        }

    def checks(self, results: Results[Phase]) -> list[Check]:
        checks = []
        for result in results:
            name = f"{self.label(result.cell)}, lr {result.cell.lr:g}, seed {result.seed}"
            apart = f"last outputs by powers of λ and by the layer's scan, {name}"
            checks.append(identity(apart, result["outputs apart"], 0.0, 1e-9))
            ring, end = (result.cell.r_min, result.cell.r_max), result.cell.phase * np.pi
            checks += layers.ring_checks(result.values, ring, count=result.cell.state, where=name, max_phase=end)
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


def layer(normalize: bool, state: int, r_min: float = 0.0, r_max: float = 1.0, phase: float = np.pi) -> Any:
    """An LRU with one input; the ring and the largest phase, in radians, are those of its initial parameters."""
    settings = LRUSettings(normalize=normalize, phase="log", r_min=r_min, r_max=r_max, max_phase=phase)
    return layers.build(settings, width=1, state=state)


def scores(outputs: Array, labels: Array) -> tuple[float, float, float]:
    """Logistic loss and accuracy on the training set, accuracy on the test set."""
    right = (outputs > 0) == labels
    loss = np.logaddexp(0, np.where(labels, -outputs, outputs))[:TRAINING]
    return float(np.mean(loss)), float(np.mean(right[:TRAINING])), float(np.mean(right[TRAINING:]))


def initial(lru: Any, seed: int) -> dict[str, Array]:
    """The initial parameters of the layer, without D, and of the bias."""
    return {name: value for name, value in layers.initial(lru, seed).items() if name != "D"} | {"bias": np.zeros(())}


@cache
def compiled(normalize: bool, state: int, length: int) -> Any:
    """Outputs by powers of lambda, outputs by the layer's scan, the optimiser's initial state, and CHUNK updates."""
    import jax
    import jax.numpy as jnp
    import optax

    lru = layer(normalize, state)

    def by_powers(params: Any, u: Any) -> Any:
        nu, theta = lru.parametrization.decay_and_phase(params)
        back = jnp.arange(length - 1, -1, -1.0)
        radius, angle = jnp.exp(-jnp.outer(nu, back)), jnp.outer(theta, back)
        _, B, (C,), _ = lru.system(params | {"D": jnp.zeros(1)})
        weights = C[0] * B[:, 0]
        states = radius * jnp.cos(angle) @ u.T, radius * jnp.sin(angle) @ u.T
        return weights.real @ states[0] - weights.imag @ states[1] + params["bias"]

    def by_scan(params: Any, u: Any) -> Any:
        return lru.scan(params | {"D": jnp.zeros(1)}, u.T[..., None])[-1, :, 0] + params["bias"]

    def loss(params: Any, u: Any, labels: Any) -> Any:
        return jnp.mean(optax.sigmoid_binary_cross_entropy(by_powers(params, u), labels.astype(jnp.float64)))

    slower = optax.masked(
        optax.scale(SLOWER), lambda params: {name: name in lru.recurrent_parameters for name in params}
    )
    optimizer = optax.chain(optax.scale_by_adam(), slower)

    def run(carry: Carry, batches: Any, rates: Any) -> Carry:
        return descent(loss, optimizer, carry, rates, batches).carry

    return jax.jit(by_powers), jax.jit(by_scan), optimizer.init, jax.jit(run)


STUDY = PhaseStudy()
