"""`powers`: which coordinates of one eigenvalue suit Adam, when a power of it must be learned."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import IMAGINARY, REAL, Figure, Panel, Picture, floats, line, points
from lrurun.studies.machinery.checks import Check, identity, nan_last
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold
from lrurun.studies.machinery.study import Array, CellResult, Count, Rate, Results, Settings, Study, Values
from lrurun.studies.mathematics.coordinates import Modulus
from lrurun.studies.mathematics.descent import descent

POWER = 100
OFFSET = 0.028
"""Angle between the initial eigenvalue and the target: below pi / 100, so that no other root is nearer."""
SHOWN = 500
"""Updates in the figure, as in the paper's."""
SIDE, MARGIN, FLOOR, CEILING = 61, 0.06, 1e-3, 10.0
"""Of the landscapes: points of each axis, what they show to each side of the target, and the range of the colours."""
LEARNED = 1e-3
"""The loss below which the target counts as learned."""

Form = Literal["real-imaginary", "exponential"]
FORMS = ["real-imaginary", "exponential"]
ANGLES = [0.0, 0.25, 0.375, 0.5, 0.625, 0.75, 1.0]
GRID = {"form": FORMS, "angle": ANGLES, "lr": [1e-4, 3e-4, 1e-3], "updates": 3000}


class Powers(Settings, frozen=True, kw_only=True):
    """One training by Adam of an eigenvalue towards a target of the same absolute value."""

    form: Form = "real-imaginary"
    """The parametrisation of the rung `diagonal`, or of `exponential`."""
    angle: Annotated[float, Meta(ge=-4, le=4)] = 0.0
    """The angle of the target, in units of π/2."""
    radius: Modulus = 0.99
    lr: Rate = 1e-3
    updates: Count = 500


@cache
def _compiled(form: Form, updates: int) -> tuple[tuple[str, str], Any, Any, Any]:
    """The layers' parametrisation: the names of its parameters; (nu, theta) -> parameters of exp(-nu + i theta);
    (parameters, target) -> loss and gradient; (parameters, target, rate) -> losses before each update, and the
    parameters (updates, 2) there."""
    import jax
    import jax.numpy as jnp
    import optax

    from lrurun.nn.recurrences.parametrizations import Cartesian, Exponential

    parametrization = Exponential() if form == "exponential" else Cartesian()

    def loss(params: Any, target: Any) -> Any:
        eigenvalue = parametrization.eigenvalues(params)
        power = (eigenvalue.real + 1j * eigenvalue.imag)[0] ** POWER
        return 0.5 * jnp.abs(power - target**POWER) ** 2

    def initial(nu: float, theta: float) -> Any:
        return parametrization.initial(jnp.array([nu]), jnp.array([theta]))

    adam = optax.scale_by_adam()

    def run(params: Any, target: Any, rate: Any) -> Any:
        start = params, adam.init(params)
        trained = descent(lambda now: loss(now, target), adam, start, jnp.full(updates, rate))
        return trained.losses, jnp.concatenate([trained.path[name] for name in parametrization.names], axis=1)

    return parametrization.names, initial, jax.jit(jax.value_and_grad(loss)), jax.jit(run)


def beginning(cell: Powers) -> tuple[float, float, float]:
    """The first loss, and its derivatives by both parameters, in closed form."""
    target = cell.radius * np.exp(1j * cell.angle * np.pi / 2)
    start = target * np.exp(-1j * OFFSET)
    error = start**POWER - target**POWER
    slope = np.conj(error) * POWER * start ** (POWER - 1)
    loss = 2 * cell.radius ** (2 * POWER) * np.sin(POWER * OFFSET / 2) ** 2
    by_re_im = (slope.real, (1j * slope).real)
    by_nu_theta = ((-start * slope).real, (1j * start * slope).real)
    return (loss, *(by_nu_theta if cell.form == "exponential" else by_re_im))


def _advantage(results: Results[Powers]) -> Evidence | None:
    """Evidence that the exponential form needs fewer updates, in the mean over angles, each at its best rate.

    A training that ends before the target is learned counts with all of its updates, in both forms. Fewer by a third
    is ours.
    """
    of_forms = [_updates(results, form) for form in FORMS]
    shared = of_forms[0].keys() & of_forms[1].keys()
    if not shared:
        return None
    ratio = np.exp(np.mean([np.log(of_forms[0][angle] / of_forms[1][angle]) for angle in shared]))
    name = "updates of real-imaginary over exponential, geometric mean over the angles"
    return threshold(name, ratio, supported=1.5, contradicted=1 / 1.5)


def _slowest(results: Results[Powers]) -> Evidence | None:
    """Evidence that no target needs more updates of real and imaginary parts than that at π/2."""
    updates = _updates(results, "real-imaginary")
    others = [count for angle, count in updates.items() if 0 <= angle < 1]
    if 1.0 not in updates or not others:
        return None
    name = "updates of real-imaginary at π/2 over the most at a smaller angle"
    return threshold(name, updates[1.0] / max(others), supported=1.1, contradicted=1 / 1.1)


def _updates(results: Results[Powers], form: str) -> dict[float, float]:
    """Angle -> updates until the target is learned, at the best rate of a form for all angles."""
    best = results.where(form=form).best("lr", "updates")
    return {result.cell.angle: max(result["updates"], 1.0) for result in best}


class PowersStudy(Study[Powers]):
    name = "powers"
    aliases = ("lru-fig8",)
    source = "Orvieto et al. 2023, Fig. 8"
    question = "Does Adam learn the 100th power of an eigenvalue faster in exponential coordinates?"
    published = "The exponential form goes straight to the target; real and imaginary parts turn slowly near π/2."
    claims = (
        StudyClaim(
            text="Exponential parametrisation helps Adam to learn an eigenvalue of which a power is given",
            source="Orvieto et al. 2023, appendix E.2, Fig. 8",
            evidence=_advantage,
        ),
        StudyClaim(
            text="Real and imaginary parts are slowest for a target phase of π/2",
            source="Orvieto et al. 2023, appendix E.2, Fig. 8",
            evidence=_slowest,
        ),
    )
    version = 2
    settings = Powers
    seeded = False
    profiles = {"ci": {"form": FORMS, "angle": [0.0, 0.5, 1.0]}, "laptop": GRID, "paper": GRID}
    simulates = True
    stand_in = {"ci": "500 updates at one rate towards 3 angles stand in for 3,000 at 3 rates towards 7."}

    def label(self, cell: Powers) -> str:
        return cell.form

    def simulate(self, cell: Powers, seed: int) -> Values:
        angle = cell.angle * np.pi / 2
        (first, second), initial, differentiated, run = _compiled(cell.form, cell.updates)
        params, target = initial(-np.log(cell.radius), angle - OFFSET), cell.radius * np.exp(1j * angle)
        value, slopes = differentiated(params, target)
        losses, way = map(np.asarray, run(params, target, cell.lr))
        below = np.flatnonzero(losses < LEARNED)
        return {
            "loss": losses,
            "first loss": value,
            "first slope 1": slopes[first][0],
            "first slope 2": slopes[second][0],
            "final loss": losses[-1],
            "updates": below[0] if len(below) else cell.updates,
            "first": way[:SHOWN, 0],
            "second": way[:SHOWN, 1],
            **_landscape(cell, way[:SHOWN]),
        }

    def checks(self, results: Results[Powers]) -> list[Check]:
        checks = []
        for form in results.axis("form"):
            pairs = [(result, beginning(result.cell)) for result in results.where(form=form)]
            for index, name in enumerate(("first loss", "first slope 1", "first slope 2")):
                unit = "of the layers' parametrisation over its closed form, worst of the cells"
                result, exact = max(pairs, key=lambda pair: nan_last(pair[0][name] - pair[1][index]))
                checks.append(identity(f"{form}: {name} {unit}", result[name], exact[index]))
        return checks

    def answer(self, results: Results[Powers]) -> str:
        rate = max(results.axis("lr"))
        cells = results.where(lr=rate)
        reached = [f"{form} {', '.join(map(_reached, cells.where(form=form)))}" for form in cells.axis("form")]
        return (
            f"Updates until the loss is below {LEARNED:g}, by the angle of the target in units of π/2, "
            f"lr {rate:g}: {'; '.join(reached)}. The paper expects real and imaginary parts to be slowest at 1."
        )

    def draw(self, results: Results[Powers]) -> Figure:
        cells = results.where(lr=max(results.axis("lr")))
        angles = sorted(cells.axis("angle"))
        angles = sorted({angles[0], angles[len(angles) // 2], angles[-1]})
        panels = [_picture(result) for angle in angles for result in cells.where(angle=angle)]
        for form in cells.axis("form"):
            curves = []
            for result in cells.where(lambda result: result.cell.angle in angles, form=form):
                losses = result.curves["loss"][:SHOWN]
                curves.append(line(_title(result.cell.angle), range(len(losses)), losses))
            panels.append(Panel(title=form, x="update", y="loss", curves=tuple(curves), y_scale="log"))
        return Figure(panels=tuple(panels), columns=2)


def _title(angle: float) -> str:
    return f"$θ^* = {angle:g} · π/2$"


def _picture(result: CellResult[Powers]) -> Panel:
    """The loss in the coordinates of a form, with the path of Adam from the start towards the target."""
    x, y, path = result.curves["landscape x"], result.curves["landscape y"], result.curves
    z = np.clip(path["landscape loss"], FLOOR, CEILING).reshape(len(y), len(x))
    goal = _coordinates(result.cell, result.cell.angle * np.pi / 2)
    curves = (
        line("path of Adam", path["first"], path["second"]),
        points("start", path["first"][:1], path["second"][:1]),
        points("target", goal[:1], goal[1:]),
    )
    names = ("$ν$", "$θ$") if result.cell.form == "exponential" else (REAL, IMAGINARY)
    picture = Picture(x=floats(x), y=floats(y), z=tuple(map(floats, z)), label="loss", scale="log")
    return Panel(title=_title(result.cell.angle), x=names[0], y=names[1], curves=curves, picture=picture)


def _coordinates(cell: Powers, angle: float) -> tuple[float, float]:
    """The coordinates of the eigenvalue of that angle, in radians, and of the cell's absolute value."""
    if cell.form == "exponential":
        return -float(np.log(cell.radius)), angle
    return cell.radius * float(np.cos(angle)), cell.radius * float(np.sin(angle))


def _landscape(cell: Powers, way: Array) -> Values:
    """The loss over both coordinates, around the target and the whole way (updates, 2)."""
    goal = np.array(_coordinates(cell, cell.angle * np.pi / 2))
    low, high = np.minimum(goal - MARGIN, np.min(way, 0)), np.maximum(goal + MARGIN, np.max(way, 0))
    if cell.form == "exponential":
        low[0] = max(low[0], 0.0)
    x, y = (np.linspace(*ends, SIDE) for ends in zip(low, high, strict=True))
    first, second = x[None, :], y[:, None]
    value = np.exp(-first + 1j * second) if cell.form == "exponential" else first + 1j * second
    target = cell.radius * np.exp(0.5j * np.pi * cell.angle)
    loss = 0.5 * np.abs(value**POWER - target**POWER) ** 2
    return {"landscape x": x, "landscape y": y, "landscape loss": loss.ravel()}


def _learned(result: CellResult[Powers]) -> bool:
    """Whether the loss fell below the threshold; `updates` is the limit where it did not."""
    return result["updates"] < result.cell.updates


def _reached(result: CellResult[Powers]) -> str:
    updates = f"{result['updates']:g}" if _learned(result) else f"never: loss {result['final loss']:.2g}"
    return f"{updates} ({result.cell.angle:g})"


STUDY = PowersStudy()
