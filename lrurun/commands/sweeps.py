"""`--sweep` of `lrurun ladder` and `lrurun plan`: one instance of the ladder for each combination of values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from lrurun import console
from lrurun.commands import output, swept_report
from lrurun.commands import request as requests
from lrurun.commands.report_output import Shown
from lrurun.commands.request import LadderRequest
from lrurun.config.settings import sweep_points
from lrurun.errors import UsageError

if TYPE_CHECKING:
    from lrurun.commands.plan import PlanDocument
    from lrurun.config import plan as planning
    from lrurun.paths import Places


class Point(Struct, frozen=True):
    """A combination of values: the request of its instance, and its plan."""

    request: LadderRequest
    plan: planning.Plan
    values: dict[str, Any]
    """Dotted path -> the value, of the paths that are swept."""

    @property
    def text(self) -> str:
        """As in "optim.lr=0.001, train.batch=50"."""
        return ", ".join(f"{path}={console.setting(value)}" for path, value in self.values.items())


class SweepDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun plan --sweep`."""

    sweep: dict[str, list[Any]]
    """Dotted path -> its values."""
    eta_seconds: float | None
    plans: Sequence[Any]
    """One for each combination of values, as without `--sweep`."""


def points(request: LadderRequest, sweep: Sequence[str]) -> list[Point]:
    """The combinations of a sweep, all of which are planned before anything is trained.

    Raises:
        UsageError: a wrong path or value; two values that are the same.
    """
    assert isinstance(request.sets, list)
    swept = [text.partition("=")[0].strip() for text in sweep]
    found: list[Point] = []
    for sets in sweep_points(sweep, request.sets):
        one = msgspec.structs.replace(request, sets=sets)
        try:
            plan = one.plan()
        except UsageError as error:
            raise _of_sweep(error, swept) from None
        point = Point(one, plan, {path: plan.changes[path] for path in swept})
        if any(plan.spec == other.plan.spec for other in found):
            raise UsageError(f"--sweep: {point.text} is named twice", "leave one of them out")
        found.append(point)
    return found


def _of_sweep(error: UsageError, swept: Sequence[str]) -> UsageError:
    """An error about a value of `--set`, which is one of `--sweep` for these paths."""
    given = re.compile(rf"--set (?=(?:{'|'.join(map(re.escape, swept))})(?![\w.]))")
    return UsageError(given.sub("--sweep ", error.message), error.hint and given.sub("--sweep ", error.hint))


def train(
    places: Places,
    request: LadderRequest,
    sweep: Sequence[str],
    found: Sequence[Point],
    train_one: Callable[[Point], int],
    *,
    report: bool,
) -> int:
    """Trains what remains of each instance, one after another, and prints one table; the exit code.

    `train_one` trains the instance of a point, and returns its exit code.
    """
    for point in found:
        rungs, _ = point.request.chosen(point.plan)
        requests.warn_of_batches(point.plan, rungs)
    worst = 0
    for number, point in enumerate(found, 1):
        console.say(f"{number} of {len(found)}: {point.text}")
        code = train_one(point)
        if code > 128:
            return code
        worst = max(worst, code)
    if report:
        by = [text.partition("=")[0].strip() for text in sweep]
        swept_report.write_report(places, request, by, Shown(rungs=request.rungs))
    return worst


def show_plan(found: Sequence[Point], documents: Sequence[PlanDocument], *, json: bool) -> int:
    """What each instance would train, and what is done."""
    times = [one.eta_seconds for one in documents]
    eta = None if None in times else sum(filter(None, times))
    if json:
        sweep = {path: list(dict.fromkeys(one.values[path] for one in found)) for path in found[0].values}
        output.write_json(SweepDocument(sweep=sweep, eta_seconds=eta, plans=documents))
        return 0
    first = documents[0]
    rows = []
    for point, document in zip(found, documents, strict=True):
        left = sum(row.runs_left for row in document.rungs)
        seconds = document.eta_seconds
        time = "" if not left else "unknown" if seconds is None else console.duration(seconds)
        done, runs = (sum(getattr(row, field) for row in document.rungs) for field in ("runs_done", "runs"))
        rows.append([*(console.setting(value) for value in point.values.values()), f"{done}/{runs}", time])
    profile = "" if first.profile is None else f", profile {first.profile}"
    console.table(f"ladder {first.ladder} on {first.task}{profile}", [*found[0].values, "done", "time left"], rows)
    left = sum(row.runs_left for document in documents for row in document.rungs)
    if not left:
        console.paragraph("All runs are finished.")
    else:
        time = "time unknown, because no finished run shows how fast these rungs train here"
        if eta is not None:
            time = f"about {console.duration(eta)}, one instance after another"
        console.paragraph(f"{left} runs remaining: {time}.")
    console.paragraph("lrurun plan with --set instead of --sweep shows the rungs of one instance.")
    return 0
