"""The rounds of `lrurun ladder --decide`: the runs of a look, its verdicts, then more seeds for what is undecided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from lrurun import console
from lrurun.config import planning
from lrurun.errors import plural
from lrurun.runner.selection import Selection

if TYPE_CHECKING:
    from lrurun.instances.requests import LadderRequest
    from lrurun.judging import sequential
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.report.live.views import LadderView


def selections(
    ledger: Ledger, plan: planning.Plan, instance: LadderInstance, max_seeds: int | None, display: LadderView
) -> Iterator[Selection]:
    """Yields what is to be trained for each look of the design, which is recorded when the first one is requested.

    A look is taken when the selection after it is asked for: its runs must be finished then. All state is in the
    ledger, so that a command that is repeated, or another terminal, continues with the same looks and decisions.

    Raises:
        UsageError: the recorded design has another largest number of seeds, or there is nothing to decide.
    """
    from lrurun.judging import design_record

    design = design_record.find(plan, instance, ledger) or design_record.planned(plan, ledger, max_seeds)
    design_record.check(design, max_seeds)
    return _rounds(ledger, plan, instance, max_seeds, display)


def _rounds(
    ledger: Ledger, plan: planning.Plan, instance: LadderInstance, max_seeds: int | None, display: LadderView
) -> Iterator[Selection]:
    from lrurun.judging import design_record, sequential
    from lrurun.report.tables import loaded_instance

    so_far = design_record.begin(plan, instance, ledger, max_seeds)
    if so_far.next_look is not None and (known := sequential.known_before(so_far.design.finished_before)):
        console.warn(known)
    while (look := so_far.next_look) is not None:
        rungs = planning.choose_rungs(plan, sorted(so_far.next_rungs))
        yield Selection(plan=plan, rungs=rungs, seeds=range(look.seeds))
        loaded = loaded_instance.LoadedInstance(plan, instance, ledger)
        design_record.record(instance, ledger, loaded.take_look(so_far))
        so_far = design_record.begin(plan, instance, ledger, max_seeds)
        count, total = len(so_far.undecided), len(so_far.design.questions)
        outlook = f"next {so_far.next_look.seeds} seeds" if so_far.next_look else "the design is complete"
        display.say(f"look at {look.seeds} seeds: {count} of {plural(total, 'question')} undecided; {outlook}")


# For `lrurun plan`


def design_of(made: planning.Plan, ledger: Ledger | None, request: LadderRequest) -> sequential.DesignProgress | None:
    """The recorded sequential design of the plan; without one, with `--decide`, the one that would be recorded."""
    from lrurun.judging import design_record
    from lrurun.report.tables import loaded_instance

    so_far = None
    if ledger is not None and (instance := loaded_instance.find(ledger, made)) is not None:
        so_far = design_record.find(made, instance, ledger)
    if request.decide:
        so_far = so_far or design_record.planned(made, ledger, request.max_seeds)
        design_record.check(so_far, request.max_seeds)
    return so_far


def next_look(
    made: planning.Plan, so_far: sequential.DesignProgress
) -> tuple[Sequence[planning.ResolvedRung], dict[str, Sequence[int]], dict[str, Any]]:
    """The rungs that the next look of the recorded or planned design needs, their seeds, and the design.

    Of a complete design these are all its rungs, with the seeds that they had.
    """
    from lrurun.judging import rung_runs, sequential

    summary = sequential.summary(so_far, rung_runs.first_of_same(made.ladder, made.same_as_base))
    look = so_far.next_look
    seeds = so_far.seeds if look is None else dict.fromkeys(so_far.next_rungs, look.seeds)
    needed: dict[str, Sequence[int]] = {name: range(count) for name, count in seeds.items()}
    return planning.choose_rungs(made, sorted(needed)), needed, msgspec.to_builtins(summary)
