"""The instances of a sweep: one for each combination of values of `--sweep`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from lrurun import console
from lrurun.config.sweeps import sweep_points
from lrurun.errors import UsageError
from lrurun.instances.requests import LadderRequest

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.ledger.ledger import Ledger


class Point(Struct, frozen=True):
    """A combination of values: the request of its instance, and its plan."""

    request: LadderRequest
    plan: planning.Plan
    values: dict[str, Any]
    """Swept path -> its value at this point."""

    @property
    def text(self) -> str:
        """The values of an instance as text, for example "optim.lr=0.001, train.batch=50"."""
        return _text(self.values)


class SweepDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun plan --sweep`."""

    sweep: dict[str, list[Any]]
    """Dotted path -> its values."""
    eta_seconds: float | None
    plans: Sequence[Any]
    """One for each combination of values, as without `--sweep`."""


def points(request: LadderRequest, sweep: Sequence[str]) -> list[Point]:
    """The combinations of a sweep, all of which are planned before anything is trained.

    With a name, each instance has this name with its values, as in "wide-lr0.01".

    Raises:
        UsageError: a wrong path or value; two values that are the same; names that are too long.
    """
    swept = [text.partition("=")[0].strip() for text in sweep]
    points: list[Point] = []
    for sets in sweep_points(sweep, request.sets):
        point_request = structs.replace(request, sets=sets)
        try:
            plan = point_request.plan()
        except UsageError as error:
            raise _sweep_error(error, {path: sets[path] for path in swept}) from None
        point = Point(point_request, plan, {path: plan.value(path) for path in swept})
        if any(plan.spec == earlier.plan.spec for earlier in points):
            raise UsageError(f"--sweep: {point.text} is named twice", "leave one of them out")
        points.append(point)
    if request.name is None:
        return points
    from lrurun.config import names

    given = names.swept(request.name, [point.values for point in points])
    return [
        structs.replace(point, request=structs.replace(point.request, name=name))
        for point, name in zip(points, given, strict=True)
    ]


def check_names(ledger: Ledger, points: Sequence[Point]) -> None:
    """Checks the names that were given to the instances of a sweep, before any of them is trained.

    Raises:
        UsageError: another instance has one of them.
    """
    from lrurun.instances import naming

    for point in points:
        naming.of_plan(ledger, point.plan, point.request.name)


def _sweep_error(error: UsageError, values: Mapping[str, Any]) -> UsageError:
    """An error about a value of `--set`, which is one of `--sweep` for these paths; about another one, with the values
    that it does not go with."""
    option = re.compile(rf"--set (?=(?:{'|'.join(map(re.escape, values))})(?![\w.]))")
    message = option.sub("--sweep ", error.message)
    if message.startswith("--set "):
        message = f"with {_text(values)}: {message}"
    return UsageError(message, error.hint and option.sub("--sweep ", error.hint))


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={console.setting(value)}" for path, value in values.items())
