"""`powers`: which coordinates of one eigenvalue suit Adam, when a power of it must be learned."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Figure, Panel, line
from lrurun.studies.checks import Check, above, at_least_above, identity
from lrurun.studies.study import CellResult, Count, Radius, Rate, Results, Settings, Study, Values

POWER = 100
OFFSET = 0.028
"""Angle between the initial eigenvalue and the target: below pi / 100, so that no other root is nearer."""
SHOWN = 500
"""Updates in the figure, as in the paper's."""
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
    """(parameters, target, rate) -> losses before each update."""
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
            return (optax.apply_updates(now, change), state), value

        return jax.lax.scan(update, (parameters, adam.init(parameters)), length=updates)[1]

    return jax.jit(run)


class PowersStudy(Study[Powers]):
    name = "powers"
    aliases = ("lru-fig8",)
    source = "Orvieto et al. 2023, Fig. 8"
    question = "Does Adam learn the 100th power of an eigenvalue faster in exponential coordinates?"
    published = "The exponential form goes straight to the target; real and imaginary parts turn slowly near π/2."
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
        place = (-np.log(cell.radius), start)
        if cell.form == "real-imaginary":
            place = (cell.radius * np.cos(start), cell.radius * np.sin(start))
        losses = np.asarray(_trained(cell.form, cell.updates)(place, cell.radius * np.exp(1j * angle), cell.lr))
        below = np.flatnonzero(losses < LEARNED)
        return {"loss": losses, "final loss": losses[-1], "updates": below[0] if len(below) else cell.updates}

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
        panels = []
        for form in results.axis("form"):
            curves = []
            for result in results.where(form=form, lr=max(results.axis("lr"))):
                losses = result.curves["loss"][:SHOWN]
                curves.append(line(f"θ* = {result.cell.angle:g} · π/2", range(len(losses)), losses))
            panels.append(Panel(title=form, x="update", y="loss", curves=tuple(curves), y_scale="log"))
        return Figure(panels=tuple(panels))


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
