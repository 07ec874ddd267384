"""The rounds of `lrurun ladder --decide`: the runs of a look, its verdicts, then more seeds for what is undecided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lrurun import console
from lrurun.config import planning
from lrurun.errors import plural
from lrurun.runner.selection import Selection

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
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
