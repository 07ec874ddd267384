"""Sequential designs in the ledger: events of a ladder instance, one for its design and one for each look.

Of equal looks that several terminals record at once, the first counts; what is recorded never changes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from lrurun.config import planning
from lrurun.config.fingerprint import common_settings
from lrurun.config.schema import Config
from lrurun.errors import LedgerError, UsageError
from lrurun.judging import questions, rung_runs
from lrurun.judging.sequential import MAX_SEEDS, Design, DesignProgress, LookRecord, looks
from lrurun.ledger.values import FINISHED

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance

DESIGN, LOOK = "design", "look"
"""Kinds of the events."""


def find(plan: planning.Plan, instance: LadderInstance, ledger: Ledger) -> DesignProgress | None:
    """The first design for the settings of the plan, with its looks; None where there is none."""
    recorded = _recorded(instance, ledger)
    settings = _settings(plan) if recorded else {}
    return next((progress for progress in recorded if progress.design.settings == settings), None)


def verdict_counts(instance: LadderInstance, ledger: Ledger) -> str:
    """The verdicts of the newest design of an instance, for example "3 supported, 1 undecided"; empty if it has
    none."""
    recorded = _recorded(instance, ledger)
    if not recorded:
        return ""
    counts = Counter(comparison.verdict for comparison in recorded[-1].answers.values())
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no look taken"


def is_unfinished(instance: LadderInstance, ledger: Ledger) -> bool:
    """Whether the newest design awaits a look."""
    designs = _recorded(instance, ledger)
    return bool(designs) and designs[-1].next_look is not None


def begin(plan: planning.Plan, instance: LadderInstance, ledger: Ledger, max_seeds: int | None) -> DesignProgress:
    """The design of an instance, which is recorded if there is none yet.

    Raises:
        UsageError: it has another largest number of seeds, or there is nothing to decide.
    """
    progress = find(plan, instance, ledger)
    if progress is None:
        ledger.event(DESIGN, "sequential design", planned(plan, ledger, max_seeds).design, ladder=instance.key)
        progress = find(plan, instance, ledger)  # of another terminal, if it was faster
        assert progress is not None
    check(progress, max_seeds)
    return progress


def check(progress: DesignProgress, max_seeds: int | None) -> None:
    """Refuses to change a design."""
    recorded = progress.design.max_seeds
    if max_seeds not in (None, recorded):
        raise UsageError(
            f"--max-seeds {max_seeds}: the design of this ladder is recorded with --max-seeds {recorded}",
            f"a design never changes, so that its error rate holds; continue with --max-seeds {recorded}",
        )


def record(instance: LadderInstance, ledger: Ledger, look: LookRecord) -> None:
    """Records a look, unless it is recorded already."""
    recorded = {(earlier.design, earlier.seeds) for earlier in _looks(instance, ledger)}
    if (look.design, look.seeds) not in recorded:
        ledger.event(LOOK, f"look at {look.seeds} seeds", look, ladder=instance.key)


def digest(design: Design) -> str:
    return _digest(msgspec.to_builtins(design))


def planned(plan: planning.Plan, ledger: Ledger | None, max_seeds: int | None) -> DesignProgress:
    """The design that `begin` would record.

    Raises:
        UsageError: there is nothing to decide.
    """
    before = 0 if ledger is None else _finished(plan, ledger)
    return DesignProgress(design=_make_design(plan, max_seeds or MAX_SEEDS, finished_before=before))


def _finished(plan: planning.Plan, ledger: Ledger) -> int:
    """How many final runs of the ladder with the settings of the plan are finished, of whatever instance."""
    settings = _settings(plan)
    finished = {
        run.id
        for instance in ledger.ladders(plan.ladder.name, plan.recipe.task)
        for run in ledger.runs(instance.key, states=FINISHED)
        for membership in run.memberships
        if (membership.ladder_key, membership.stage) == (instance.key, "train")
        and settings.get(membership.rung) == _settings_digest(run.config, membership.rung, plan)
    }
    return len(finished)


def _make_design(plan: planning.Plan, max_seeds: int, *, finished_before: int) -> Design:
    first = rung_runs.first_of_same(plan.ladder, plan.same_as_base)
    asked = [
        question
        for question in questions.asked(plan.ladder, plan.task.name, plan.outside_scope)
        if question.other is None or first[question.rung] != first[question.other]
    ]
    if not asked:
        raise UsageError(
            f"--decide: ladder {plan.ladder.name} has no differences or claims to decide on {plan.task.name}",
            "train it without --decide",
        )
    return Design(
        max_seeds=max_seeds,
        looks=looks(max_seeds),
        settings=_settings(plan),
        questions=tuple(asked),
        finished_before=finished_before,
    )


def _settings(plan: planning.Plan) -> dict[str, str]:
    """Rung -> a digest of its settings, without those that tuning chooses."""
    return {rung.name: _settings_digest(rung.config, rung.name, plan) for rung in plan.rungs}


def _settings_digest(config: Config, rung: str, plan: planning.Plan) -> str:
    return _digest(common_settings(config, plan.free(rung)))


def _recorded(instance: LadderInstance, ledger: Ledger) -> list[DesignProgress]:
    """The first design for each group of settings, oldest first, each with the looks at it."""
    designs: dict[str, Design] = {}
    for payload in _payloads(instance, ledger, DESIGN):
        design = _decode(payload, Design, instance)
        # Terminals that begin at once may each record one.
        designs.setdefault(_digest(design.settings), design)
    records = _looks(instance, ledger) if designs else []
    recorded = []
    for design in designs.values():
        first: dict[int, LookRecord] = {}
        for look in records:
            if look.design == digest(design):
                first.setdefault(look.seeds, look)
        recorded.append(DesignProgress(design=design, records=tuple(first[seeds] for seeds in sorted(first))))
    return recorded


def _looks(instance: LadderInstance, ledger: Ledger) -> list[LookRecord]:
    return [_decode(payload, LookRecord, instance) for payload in _payloads(instance, ledger, LOOK)]


def _payloads(instance: LadderInstance, ledger: Ledger, event_kind: str) -> list[Any]:
    events = ledger.events(ladder_key=instance.key, of_runs=False)
    return [event.payload for event in events if event.kind == event_kind]


def _decode(payload: Any, struct: Any, instance: LadderInstance) -> Any:
    try:
        return msgspec.convert(payload, struct)
    except msgspec.ValidationError as error:
        raise LedgerError(
            f"ladder {instance.short_name}: its recorded sequential design cannot be read ({error})",
            "lrurun ledger check says whether the file is damaged",
        ) from None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
