"""`parametrise`: what coordinates of one eigenvalue do to the curvature at the optimum, and to its basin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Curve, Figure, Panel, dashed, line, points
from lrurun.studies.machinery.checks import Check, identity, nan_last
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold, together
from lrurun.studies.machinery.study import Count, Results, Settings, Study, Values
from lrurun.studies.mathematics.coordinates import (
    FORMS,
    Angle,
    Form,
    basin,
    coordinates,
    curvature,
    differentiated,
    distance,
    magnitude,
    magnitude_basin,
)

RADII = [0.36, 0.68, 0.84, 0.92, 0.96, 0.98, 0.99, 0.999]
RANGES = {
    "polar": ((0.0, 0.999), (-np.pi, np.pi)),
    "exponential": ((-9.0, 2.0), (-9.0, 4.0)),
    "optimal": ((0.01, 5.0), (-5.0, 5.0)),
}
"""The ranges of the first coordinate, and of the second minus its value at the optimum; "optimal-stop" has the ranges
of "optimal"."""
PARTS = {"magnitude": (0, 0), "angle": (1, 1), "cross": (0, 1)}


class Parametrise(Settings, frozen=True, kw_only=True):
    """The loss around one teacher, in one pair of coordinates."""

    form: Form = "polar"
    radius: Annotated[float, Meta(ge=1e-3, le=0.9999)] = 0.99
    """|λ*|. Closer to 0 or 1, second derivatives have too few correct digits in float64."""
    angle: Angle = 0.01
    """The angle of λ*, in units of π."""
    points: Count = 151
    """The number of points of each coordinate in the figure."""


def _power(results: Results[Parametrise], form: Form, name: str) -> float | None:
    """The power of 1 / (1 - |λ*|) with which a number grows between the two teachers of the longest memory."""
    cells = sorted(results.where(form=form), key=lambda result: result.cell.radius)[-2:]
    if len(cells) < 2 or cells[0].cell.radius == cells[1].cell.radius:
        return None
    (short, long), gaps = cells, [1 - result.cell.radius for result in cells]
    return float(np.log(long[name] / short[name]) / np.log(gaps[0] / gaps[1]))


def _bounded(*parts: tuple[Form, str]) -> Callable[[Results[Parametrise]], Evidence | None]:
    """Evidence that curvatures do not grow with the memory of the teacher; in proportion to it is too much, by our
    bounds."""

    def evidence(results: Results[Parametrise]) -> Evidence | None:
        powers = [(form, name, _power(results, form, name)) for form, name in parts]
        if any(power is None for *_, power in powers):
            return None
        return together(
            *(
                threshold(f"{form}: power of the curvature of the {name}", power, supported=0.1, contradicted=1.0)
                for form, name, power in powers
                if power is not None
            )
        )

    return evidence


def _basins(results: Results[Parametrise]) -> Evidence | None:
    """Evidence that the basin of the angle shrinks, in radians, and the basin of the absolute value does not, in its
    coordinate."""
    parts = []
    for form in ("exponential", "optimal-stop"):
        angles, magnitudes = (_power(results, form, name) for name in ("basin", "basin of the magnitude"))
        if angles is None or magnitudes is None:
            return None
        name = f"{form}: power of the width of the basin of the"
        parts.append(threshold(f"{name} angle", angles, supported=-0.5, contradicted=-0.1))
        parts.append(threshold(f"{name} magnitude", magnitudes, supported=-0.1, contradicted=-0.5))
    return together(*parts)


class ParametriseStudy(Study[Parametrise]):
    name = "parametrise"
    aliases = ("zucchet-fig6",)
    source = "Zucchet and Orvieto 2024, Fig. 6"
    question = "Which coordinates of λ keep the curvature at the optimum bounded, and what happens to the basin?"
    published = (
        "In polar coordinates the Hessian grows to 10⁷; both other forms bound it; the basin of the angle shrinks as "
        "|λ*| approaches 1, that of the magnitude does not."
    )
    claims = (
        StudyClaim(
            text="The exponential form controls the explosion of the Hessian in the absolute value",
            source="Zucchet and Orvieto 2024, caption of Fig. 6",
            evidence=_bounded(("exponential", "magnitude")),
        ),
        StudyClaim(
            text="The exponential form controls the explosion of the Hessian in the angle",
            source="Zucchet and Orvieto 2024, caption of Fig. 6",
            evidence=_bounded(("exponential", "angle")),
        ),
        StudyClaim(
            text="The optimal form controls the explosion of the Hessian, where θ is differentiated as if it did not "
            "depend on ν",
            source="Zucchet and Orvieto 2024, caption of Fig. 6",
            evidence=_bounded(("optimal-stop", "magnitude"), ("optimal-stop", "angle")),
        ),
        StudyClaim(
            text="The basin of attraction shrinks for the angle as |λ*| goes to 1, but not for the absolute value",
            source="Zucchet and Orvieto 2024, caption of Fig. 6",
            evidence=_basins,
        ),
    )
    version = 2
    settings = Parametrise
    seeded = False
    profiles = {profile: {"form": FORMS, "radius": RADII} for profile in ("ci", "laptop", "paper")}
    simulates = True

    def label(self, cell: Parametrise) -> str:
        return cell.form

    def simulate(self, cell: Parametrise, seed: int) -> Values:
        from scipy.optimize import brentq

        target = (cell.radius, cell.angle * np.pi)
        optimum = np.array(coordinates(cell.form, *target))
        spans = RANGES[cell.form.removesuffix("-stop")]
        first = np.linspace(*spans[0], cell.points)
        second = np.linspace(*spans[1], cell.points)
        hessians, slices = differentiated(cell.form)(optimum, target, first, second + optimum[1])
        values: Values = {"magnitude axis": first, "angle axis": second}
        for name, (loss, bent) in zip(("magnitude", "angle"), slices, strict=True):
            values |= {f"loss over {name}": np.asarray(loss), f"curvature over {name}": np.asarray(bent)}
        for prefix, hessian in zip(("", "raw "), np.asarray(hessians), strict=True):
            values |= {f"{prefix}{name}": hessian[index] for name, index in PARTS.items()}
        values["start of w"], values["start of v"] = optimum

        def excess(error: float) -> float:
            return float(distance(cell.radius, target[1] + error, target, True)) - 0.5

        values["basin"] = brentq(excess, 0.0, np.pi, xtol=1e-14) if excess(np.pi) > 0 else np.pi

        def beyond(w: float) -> float:
            return float(distance(magnitude(cell.form, w), target[1], target, True)) - 0.5

        # where the distance to the unit circle is a twentieth of the target's: 1/14 is the edge at the most
        most = coordinates(cell.form, 1 - (1 - cell.radius) / 20, target[1])[0]
        values["basin of the magnitude"] = abs(brentq(beyond, optimum[0], most, xtol=1e-14) - optimum[0])
        return values

    def checks(self, results: Results[Parametrise]) -> list[Check]:
        checks = []
        for form in results.axis("form"):
            cells = results.where(form=form)
            for normalised in (True, False):
                prefix = "" if normalised else "raw "
                for name, index in PARTS.items():
                    pairs = []
                    for result in cells:
                        theory = curvature(result.cell.radius, result.cell.angle * np.pi, form, normalised)
                        unit = np.sqrt(theory[0, 0] * theory[1, 1]) if name == "cross" else theory[index]
                        pairs.append((result[prefix + name] / unit, theory[index] / unit, result))
                    measured, expected, result = max(pairs, key=lambda pair: nan_last(pair[0] - pair[1]))
                    checks.append(
                        identity(
                            f"{form}: {prefix}curvature, {name}, autodiff over closed form, worst at "
                            f"|λ*| = {result.cell.radius:g}",
                            measured,
                            expected,
                            1e-6,
                        )
                    )
            widths: list[tuple[str, str, Callable[[float], float]]] = [
                ("angle", "basin", basin),
                ("magnitude", "basin of the magnitude", partial(magnitude_basin, form)),
            ]
            for name, value, exact in widths:
                worst = max(cells, key=lambda result: nan_last(result[value] / exact(result.cell.radius) - 1))
                checks.append(
                    identity(
                        f"{form}: width of the basin of the {name}, root over closed form, worst at "
                        f"|λ*| = {worst.cell.radius:g}",
                        worst[value],
                        exact(worst.cell.radius),
                    )
                )
        return checks

    def answer(self, results: Results[Parametrise]) -> str:
        last = max(results.axis("radius"))
        texts = [
            f"{result.cell.form} {result['magnitude']:.3g} and {result['angle']:.3g}"
            for result in results.where(radius=last)
        ]
        return (
            f"Curvatures of magnitude and angle at |λ*| = {last:g}: {', '.join(texts)}; the angle's basin has a "
            f"half-width of {results.where(radius=last)[0]['basin']:.2g}. In optimal-stop, θ is "
            "differentiated as if it did not depend on ν."
        )

    def draw(self, results: Results[Parametrise]) -> Figure:
        panels = []
        forms = [form for form in results.axis("form") if form != "optimal"]
        kinds = [(quantity, name) for quantity in ("loss", "curvature") for name in ("magnitude", "angle")]
        for (quantity, name), form in product(kinds, forms):
            curves: list[Curve] = []
            for result in results.where(form=form):
                label = f"$|λ^*| = {result.cell.radius:g}$"
                y = np.abs(result.curves[f"{quantity} over {name}"])
                curves.append(line(label, result.curves[f"{name} axis"], np.maximum(y, 1e-8)))
                if quantity == "curvature":
                    optimum = result["start of w"] if name == "magnitude" else 0.0
                    curves.append(points(label, [optimum], [result[name]]))
            if (form, quantity, name) == ("optimal-stop", "curvature", "magnitude"):
                curves.append(_complete(results.where(form="optimal")))
            symbol = "$ω_ν$" if name == "magnitude" else "$ω_θ - ω_θ^*$"
            panels.append(Panel(title=form, x=symbol, y=quantity, curves=tuple(curves), y_scale="log"))
        return Figure(panels=tuple(panels), columns=len(forms), same_y="row")


def _complete(cells: Results[Parametrise]) -> Curve:
    """The closed form of the curvature in the optimal form, with the derivative of θ by ω_ν."""
    forms = [curvature(cell.cell.radius, cell.cell.angle * np.pi, "optimal", normalised=True)[0, 0] for cell in cells]
    return dashed("optimal, $dθ/dω_ν$ included", [cell["start of w"] for cell in cells], forms)


STUDY = ParametriseStudy()
