"""`angle`: whether Adam learns the angle of one eigenvalue, in coordinates that suit its curvature at the optimum."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from typing import Any, Literal

import numpy as np

from lrurun.report.figures.figures import Figure, Panel, Picture, floats, line, points, thin
from lrurun.studies.machinery.checks import Check, identity
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold, together
from lrurun.studies.machinery.study import Array, Count, Rate, Results, Settings, Study, Values
from lrurun.studies.mathematics import formulas
from lrurun.studies.mathematics.coordinates import (
    FORMS,
    Angle,
    Form,
    Modulus,
    angle,
    coordinates,
    distance,
    eigenvalue,
)
from lrurun.studies.mathematics.descent import Carry, Descent, descent

GRID = {"form": FORMS, "optimizer": ["adam", "sign"], "normalised": [False, True]}
Optimizer = Literal["adam", "sign"]
"""sign: every update is lr times the sign of the gradient, as Adam's is when its state is not passed on."""
CHUNK = 2_000
"""Updates between two points where a cell may be stopped."""
LEARNED = 1e-2
"""The loss below which the target counts as learned."""
FLOOR = 1e-12
"""The smallest loss in the figure: smaller ones are rounding errors."""
SIDE = 40
"""Points of each axis of the landscape."""
RANGES = {"polar": (0.0, 1.0), "exponential": (-4.5, 0.5), "optimal": (0.0, 80.0)}
"""The range of the second coordinate in the figure, which is wider where the way is longer; "optimal-stop" has that
of "optimal"."""


class AngleCell(Settings, frozen=True, kw_only=True):
    """One training of an eigenvalue towards a target of the same absolute value."""

    form: Form = "polar"
    """The coordinates of the angle; the magnitude is tanh of its coordinate in all of them."""
    optimizer: Optimizer = "adam"
    normalised: bool = False
    radius: Modulus = 0.99
    start: Angle = 0.25
    target: Angle = 0.01
    lr: Rate = 1e-3
    updates: Count = 50_000


def _loss_at_the_end(trapped: bool, *forms: Form) -> Callable[[Results[AngleCell]], Evidence | None]:
    """Evidence on the loss at the end over the first one, of Adam in the paper's setting, without normalisation.

    Ours: a training is trapped if a tenth is left, and has arrived if it is a millionth. Each must hold for all forms.
    """

    def evidence(results: Results[AngleCell]) -> Evidence | None:
        supported, contradicted = (0.1, 1e-6) if trapped else (1e-6, 0.1)
        parts = []
        for result in results:
            if result.cell in [AngleCell(form=form) for form in forms]:
                share = result["final loss"] / result["first loss"]
                name = f"{result.cell.form}: loss at the end over the first one"
                parts.append(threshold(name, share, supported=supported, contradicted=contradicted))
        return together(*parts)

    return evidence


class AngleStudy(Study[AngleCell]):
    name = "angle"
    aliases = ("zucchet-fig7",)
    source = "Zucchet and Orvieto 2024, Fig. 7"
    question = "Can Adam learn the angle of λ, in coordinates that bound the curvature at the optimum?"
    published = (
        "The polar and the exponential angle arrive; the optimal one is trapped in a valley of too small |λ|, far from "
        "the target."
    )
    claims = (
        StudyClaim(
            text="Without a reparametrisation of the angle, the loss is extremely sharp, but Adam compensates for it",
            source="Zucchet and Orvieto 2024, caption of Fig. 7A",
            evidence=_loss_at_the_end(False, "polar"),
        ),
        StudyClaim(
            text="An angle that is reparametrised for the curvature at the optimum traps learning far away from it",
            source="Zucchet and Orvieto 2024, appendix B.1.4, caption of Fig. 7C",
            evidence=_loss_at_the_end(True, "optimal", "optimal-stop"),
        ),
    )
    version = 2
    settings = AngleCell
    seeded = False
    profiles = {
        "ci": {"form": FORMS},
        "laptop": GRID,
        "paper": GRID,
    }
    simulates = True
    stand_in = {"ci": "Adam on states without normalisation stands in for both optimisers, with and without it."}

    def label(self, cell: AngleCell) -> str:
        return cell.form

    def steps(self, cell: AngleCell) -> int:
        return cell.updates

    def simulate(self, cell: AngleCell, seed: int) -> Generator[int, None, Values]:
        start, turn = cell.start * np.pi, cell.target * np.pi
        current = np.array(_coordinates(cell.form, cell.radius, start))
        values: Values = {"start of w": current[0], "start of v": current[1]}
        losses, paths = [], []
        init, run = _compiled(cell.form, cell.optimizer)
        carry = current, init(current)
        for done in range(0, cell.updates, CHUNK):
            carry, loss, path = run(carry, (cell.radius, turn), cell.normalised, cell.lr)
            losses.append(np.asarray(loss))
            paths.append(np.asarray(path))
            yield min(done + CHUNK, cell.updates)
        loss, way = np.concatenate(losses)[: cell.updates], np.concatenate(paths)[: cell.updates]
        reached = np.flatnonzero(loss < LEARNED)
        kept = np.unique(np.append(np.arange(0, cell.updates, -(-cell.updates // 500)), cell.updates - 1))
        return values | {
            "first loss": loss[0],
            "final loss": np.median(loss[-1000:]),
            "updates": reached[0] if len(reached) else cell.updates,
            "update": kept.astype(float),
            "loss": loss[kept],
            "w": way[kept, 0],
            "v": way[kept, 1],
            **_landscape(cell, way),
        }

    def checks(self, results: Results[AngleCell]) -> list[Check]:
        checks = []
        for result in results:
            cell = result.cell
            name = f"{cell.form}, {cell.optimizer}{', normalised' if cell.normalised else ''}"
            # Of equal absolute values, so that both states are multiplied by the same γ.
            student, teacher = (cell.radius * np.exp(1j * phase * np.pi) for phase in (cell.start, cell.target))
            first = formulas.loss(student, teacher, 0.0) * (1 - cell.radius**2 if cell.normalised else 1)
            checks.append(identity(f"{name}: first loss", result["first loss"], float(first), 1e-10))
        return checks

    def answer(self, results: Results[AngleCell]) -> str:
        cells = results.where(optimizer="adam", normalised=False)
        texts = [
            f"{cell.cell.form} "
            + (
                f"after {cell['updates']:g}"
                if cell["updates"] < cell.cell.updates
                else f"never ({cell['final loss']:.3g})"
            )
            for cell in cells
        ]
        return f"Updates until the loss is below {LEARNED:g}, and the loss at the end if never: {', '.join(texts)}."

    def draw(self, results: Results[AngleCell]) -> Figure:
        cells = results.where(lambda result: result.cell.form != "optimal-stop", optimizer="adam", normalised=False)
        panels = []
        for result in cells:
            x, y = result.curves["landscape w"], result.curves["landscape v"]
            z = result.curves["landscape loss"].reshape(len(y), len(x))
            picture = Picture(x=floats(x), y=floats(y), z=tuple(map(floats, z)), label="loss", scale="log")
            goal = _coordinates(result.cell.form, result.cell.radius, result.cell.target * np.pi)
            path = line("path of Adam", result.curves["w"], result.curves["v"])
            curves = (path, points("start", path.x[:1], path.y[:1]), points("target", [goal[0]], [goal[1]]))
            panels.append(Panel(title=result.cell.form, x="$ω_ν$", y="$ω_θ$", curves=curves, picture=picture))
        losses = [thin(cell.cell.form, cell.curves["update"], np.maximum(cell.curves["loss"], FLOOR)) for cell in cells]
        panels.append(Panel(title="along the paths", x="update", y="loss", curves=tuple(losses), y_scale="log"))
        return Figure(panels=tuple(panels), columns=2)


@cache
def _compiled(form: Form, optimizer: Optimizer) -> tuple[Any, Any]:
    """The optimiser's initial state, and CHUNK updates: (carry, target, normalised, rate) -> carry, with the losses
    (CHUNK,) and the coordinates (CHUNK, 2) before each of them. ν is tanh of its coordinate."""
    import jax
    import jax.numpy as jnp
    import optax

    from lrurun.nn.recurrences.lru import log_gamma

    def loss(coordinates: Any, target: Any, normalised: Any) -> Any:
        nu = jnp.tanh(coordinates[0])
        if form == "exponential":
            theta = eigenvalue(form, *coordinates)[1]  # of the layers, whose θ does not depend on ν
        else:
            theta = angle(form, coordinates[1], nu, jnp, jax.lax.stop_gradient)
        # γ of |λ|, which tanh may give the other sign
        return distance(nu, theta, target, normalised, jnp, jnp.exp(log_gamma(-0.5 * jnp.log(nu**2))))

    chosen = optax.scale_by_adam() if optimizer == "adam" else optax.scale_by_sign()

    def run(carry: Carry, target: Any, normalised: Any, rate: Any) -> Descent:
        return descent(lambda now: loss(now, target, normalised), chosen, carry, jnp.full(CHUNK, rate))

    return chosen.init, jax.jit(run)


def _coordinates(form: Form, nu: float, theta: float) -> tuple[float, float]:
    """The coordinates of ν and θ; ν is always tanh of its coordinate."""
    return float(np.arctanh(nu)), coordinates(form, nu, theta)[1]


def _landscape(cell: AngleCell, way: Array) -> Values:
    """The loss over both coordinates, around the target, the start and the whole way (updates, 2)."""
    ranges = (1.0, 3.2), RANGES[cell.form.removesuffix("-stop")]
    w, v = (
        np.linspace(min(low, 1.1 * np.min(path) - 0.1 * high), max(high, 1.1 * np.max(path) - 0.1 * low), SIDE)
        for (low, high), path in zip(ranges, way.T, strict=True)
    )
    nu = np.tanh(w)[None, :]
    goal = (cell.radius, cell.target * np.pi)
    loss = distance(nu, angle(cell.form, v[:, None], nu), goal, cell.normalised)
    return {"landscape w": w, "landscape v": v, "landscape loss": np.maximum(loss, 1e-2).ravel()}


STUDY = AngleStudy()
