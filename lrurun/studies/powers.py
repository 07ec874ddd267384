"""`powers`: which coordinates of one eigenvalue suit Adam, when a power of it must be learned."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import IMAGINARY, REAL, Figure, Panel, Picture, floats, line, points
from lrurun.studies.checks import Check, above, at_least_above, identity
from lrurun.studies.study import Array, CellResult, Count, Radius, Rate, Results, Settings, Study, Values

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
    angle: Annotated[float, Meta(ge=-4, le=4)] = 0.0
    """The angle of the target, in units of π/2."""
    radius: Radius = 0.99
    lr: Rate = 1e-3
    updates: Count = 500


@cache
def _trained(form: Form, updates: int) -> Any:
    """(parameters, target, rate) -> the loss, and the parameters (updates, 2), before each update."""
    import jax
    import jax.numpy as jnp
    import optax

    def loss(parameters: Any, target: Any) -> Any:
        first, second = parameters
        if form == "exponential":
            value = jnp.exp(-POWER * first) * jnp.exp(1j * POWER * second)
        else:
            value = (first + 1j * second) ** POWER
        return 0.5 * jnp.abs(value - target**POWER) ** 2

    def run(parameters: Any, target: Any, rate: Any) -> Any:
        adam = optax.adam(rate)

        def update(carry: Any, _: None) -> Any:
            now, state = carry
            value, slope = jax.value_and_grad(loss)(now, target)
            change, state = adam.update(slope, state)
            return (optax.apply_updates(now, change), state), (value, jnp.stack(now))

        return jax.lax.scan(update, (parameters, adam.init(parameters)), length=updates)[1]

    return jax.jit(run)


class PowersStudy(Study[Powers]):
    name = "powers"
    aliases = ("lru-fig8",)
    source = "Orvieto et al. 2023, Fig. 8"
    question = "Does Adam learn the 100th power of an eigenvalue faster in exponential coordinates?"
    published = "The exponential form goes straight to the target; real and imaginary parts turn slowly near π/2."
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
        start = angle - OFFSET
        place, target = _placed(cell, start), cell.radius * np.exp(1j * angle)
        losses, way = map(np.asarray, _trained(cell.form, cell.updates)(place, target, cell.lr))
        below = np.flatnonzero(losses < LEARNED)
        return {
            "loss": losses,
            "final loss": losses[-1],
            "updates": below[0] if len(below) else cell.updates,
            "first": way[:SHOWN, 0],
            "second": way[:SHOWN, 1],
            **_landscape(cell, way[:SHOWN]),
        }

    def checks(self, results: Results[Powers]) -> list[Check]:
        checks = []
        for rate in results.axis("lr"):
            cells = results.where(lr=rate)
            same = [("exponential", angle, "0") for angle in cells.axis("angle") if angle != 0.0] + [
                ("real-imaginary", 1.0, "0, by symmetry")
            ]
            for form, angle, as_at in same:
                first, second = cells.where(form=form, angle=0.0), cells.where(form=form, angle=angle)
                if first and second:
                    name = f"{form}: losses at angle {angle:g} as at {as_at}, lr {rate:g}"
                    checks.append(identity(name, _difference(first[0], second[0]), 0.0, 1e-6))
            slow, fast = (cells.where(form=form, angle=0.5) for form in FORMS)
            if slow and fast:
                ratio = slow[0]["updates"] / max(fast[0]["updates"], 1.0) if _learned(fast[0]) else np.nan
                judge = above if _learned(slow[0]) else at_least_above
                checks.append(judge(f"updates of real-imaginary over exponential at π/4, lr {rate:g}", ratio, 2.0))
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
    goal = _placed(result.cell, result.cell.angle * np.pi / 2)
    curves = (
        line("path of Adam", path["first"], path["second"]),
        points("start", path["first"][:1], path["second"][:1]),
        points("target", goal[:1], goal[1:]),
    )
    names = ("$ν$", "$θ$") if result.cell.form == "exponential" else (REAL, IMAGINARY)
    picture = Picture(x=floats(x), y=floats(y), z=tuple(map(floats, z)), label="loss", scale="log")
    return Panel(title=_title(result.cell.angle), x=names[0], y=names[1], curves=curves, picture=picture)


def _placed(cell: Powers, angle: float) -> tuple[float, float]:
    """The coordinates of the eigenvalue of that angle, in radians, and of the cell's absolute value."""
    if cell.form == "exponential":
        return -float(np.log(cell.radius)), angle
    return cell.radius * float(np.cos(angle)), cell.radius * float(np.sin(angle))


def _landscape(cell: Powers, way: Array) -> Values:
    """The loss over both coordinates, around the target and the whole way (updates, 2)."""
    goal = np.array(_placed(cell, cell.angle * np.pi / 2))
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


def _difference(first: CellResult[Powers], second: CellResult[Powers]) -> float:
    """The largest relative difference of two loss curves, while the loss is above 1e-12."""
    losses, reference = first.curves["loss"], second.curves["loss"]
    large = losses > 1e-12
    return float(np.max(np.abs(losses[large] / reference[large] - 1), initial=0.0))


STUDY = PowersStudy()
