"""The claims of ladders and studies by the runs of a ledger, beside the papers' own numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import Struct, structs

from lrurun import paths
from lrurun.config import planning
from lrurun.config.instance import ladder_command
from lrurun.config.ladder import Claim, Ladder
from lrurun.config.recipe import load_recipe
from lrurun.data import tasks
from lrurun.errors import LrurunError
from lrurun.instances import documents, requests
from lrurun.instances.requests import LadderRequest
from lrurun.judging import published
from lrurun.judging.claims import by_papers
from lrurun.judging.judged_claim import JudgedClaim, without_numbers
from lrurun.judging.verdicts import NOT_JUDGED, NOT_RUN, OPEN, Comparison
from lrurun.ledger.values import FINISHED
from lrurun.report.tables import claims_table, ladder_remarks, loaded_instance
from lrurun.report.tables.cells import score
from lrurun.report.tables.claims_table import PAPERS, paper_of

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.part import Part
    from lrurun.ledger.values import LadderInstance, RemovedRun
    from lrurun.report.tables.ladder_table import LadderReport
    from lrurun.report.tables.loaded_instance import LoadedInstance


class PaperEntry(Struct, frozen=True, kw_only=True):
    """What became of a table, figure or sentence of a paper here."""

    place: str
    what: str
    commands: tuple[str, ...]
    """The commands that make or check it, with TASK for each of its tasks."""
    status: str
    note: str
    """Why it is not possible, or what differs."""


class RemovedEvidence(Struct, frozen=True, kw_only=True):
    """Runs that were removed from an instance which judges claims."""

    task: str
    name: str
    """The short name of the instance."""
    instance: str
    """Its key."""
    kind: Literal["forgotten", "left out", "again"]
    """"again": forgotten, and trained again."""
    stage: str
    runs: int
    why: str | None
    text: str
    """How many runs, of which rungs, and why."""


class LedgerClaims(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun claims`."""

    claim_fields: ClassVar[Sequence[str]] = (
        *Comparison.__struct_fields__,
        *("ladder", "task", "text", "source", "difference_p", "paper_ratio"),
        *("here.verdict", "here.detail", "here.instance", "here.profile", "here.stand_in", "here.provisional"),
        *("here.verdict_on_these_items", "here.items_known"),
    )
    json_fields: ClassVar[Sequence[str]] = (*(f"claims.{path}" for path in claim_fields), "counts", "places", "removed")
    claims: list[JudgedClaim]
    counts: dict[str, dict[str, int]]
    """Paper -> verdict in this ledger -> how many claims, each on each task."""
    places: list[PaperEntry] = []
    """The tables, figures and sentences of the one paper that was asked for, with all tasks and ladders."""
    removed: list[RemovedEvidence] = []
    """The runs that were forgotten, or left out of a copy, of the instances that judge."""


class Runs(Struct, frozen=True):
    """The final runs of an instance."""

    command: str
    """The command that makes them."""
    scores: str
    """The score of each rung that has one."""


class JudgingInstance(Struct, frozen=True, kw_only=True):
    """The instance by whose runs the claims of a ladder on a task are judged."""

    profile: str | None
    metric: str
    """The metric that selects the models; empty if it is not known."""
    verdicts: dict[str, JudgedClaim]
    """The text of each claim on the task -> its verdict."""
    runs: tuple[Runs, ...] = ()
    """The runs of all instances that can be judged."""
    removed: tuple[RemovedEvidence, ...] = ()
    """What was removed from the instances whose claims these are."""


class TaskEvidence(Struct, frozen=True, kw_only=True):
    """The evidence of a ledger on a task without ladders, as a study."""

    name: str
    """The name of the study."""
    command: str
    """The command that makes its runs."""
    result: str
    """The result in a sentence, with the command that made it; or that it was not run."""
    stand_in: str
    """The differences from the paper on a laptop."""
    claims: Sequence[JudgedClaim]


class Evidence(Struct, frozen=True, kw_only=True):
    """The evidence of a ledger on claims."""

    ladders: dict[str, dict[str, JudgingInstance]]
    """Ladder -> task -> the instance that judges; tasks without final runs are left out."""
    by_task: Mapping[str, TaskEvidence]
    """Task -> the evidence on it, for tasks without ladders."""


def ladders_of(ledger: Ledger, only: str | None = None) -> tuple[dict[str, Ladder], list[LrurunError]]:
    """The ladders that have files here or instances in the ledger, or one of them, by the names or paths that commands
    take; and the errors of files that cannot be read."""
    ladders: dict[str, Ladder] = {}
    errors = []
    for name in paths.names("ablations") if only is None else [only]:
        try:
            ladders[name] = documents.ladder_of_name(name, ledger)
        except LrurunError as error:
            errors.append(error)
    names = {ladder.name for ladder in ladders.values()}
    if only is not None:
        return ladders, errors
    for instance in reversed(ledger.ladders()):
        if instance.name not in names and (recorded := documents.find(ledger, instance)) is not None:
            recorded_requests = requests.recorded(ledger, instance, LadderRequest)
            ladders[recorded_requests[-1].ladder if recorded_requests else recorded.ladder.path] = recorded.ladder
            names.add(instance.name)
    return ladders, errors


def gather(
    ledger: Ledger,
    ladders: Mapping[str, Ladder],
    task: str | None,
    by_task: Mapping[str, TaskEvidence],
    only: LoadedInstance | None = None,
    part: Part | None = None,
) -> Evidence:
    """The evidence of a ledger on ladders, by the names that find them, on one task or all, and on tasks without
    ladders; with `only`, that of one instance, as it was run, with `part`, that of the instances of a part."""
    keys = None if part is None or part.is_all else {instance.key for instance in ledger.ladders_of(part)}
    return Evidence(
        ladders={name: _judging_instances(ledger, name, ladder, task, only, keys) for name, ladder in ladders.items()},
        by_task=by_task,
    )


def collect(evidence: Evidence, ladders: Mapping[str, Ladder], task: str | None, paper: str | None) -> LedgerClaims:
    """The claims of ladders, by the names that find them, and of studies, on one task or all, of one paper or all.

    Beside those that papers state on a task, these are the claims that its runs are judged by; where a built-in task is
    named, claims of the default ladder, or of the one that is named, are among them also without runs.
    """
    claims: list[JudgedClaim] = []
    for name, ladder in ladders.items():
        judging = evidence.ladders[name]
        stated = by_papers([ladder], task, {on_task: instance.profile for on_task, instance in judging.items()})
        not_run = {
            on_task: _not_run(name, on_task, ladder, [claim for claim in ladder.claims if on_task in claim.tasks])
            for on_task in dict.fromkeys(claim.task for claim in stated if claim.task not in judging)
        }
        judged = judging | not_run
        claims += [structs.replace(claim, here=judged[claim.task].verdicts[claim.text]) for claim in stated]
        is_stated = {(claim.task, claim.text) for claim in stated}
        is_default = name == "lru" or len(ladders) == 1
        if task is not None and tasks.is_built_in(task) and is_default and _fits(ladder, task):
            about = [claim for claim in ladder.claims if claim.is_about(task)]
            judging = {task: _not_run(name, task, ladder, about), **judging}
        claims += [
            _stand_in(ladder, on_task, claim, instance)
            for on_task, instance in judging.items()
            for claim in ladder.claims
            if claim.text in instance.verdicts and (on_task, claim.text) not in is_stated
        ]
    claims += [claim for studied in evidence.by_task.values() for claim in studied.claims]
    if paper is not None:
        claims = [claim for claim in claims if claim.source.startswith(PAPERS[paper])]
    claims = [structs.replace(claim, detail=claims_table.reasoning(claim)) for claim in claims]
    return LedgerClaims(claims=claims, counts=_counts(claims), removed=_removed_of(evidence, claims))


def _removed_of(evidence: Evidence, claims: Sequence[JudgedClaim]) -> list[RemovedEvidence]:
    """What was removed from the instances that these claims are judged by."""
    judging = {claim.ours.instance for claim in claims}
    every = (removed for by_task in evidence.ladders.values() for one in by_task.values() for removed in one.removed)
    return [removed for removed in dict.fromkeys(every) if removed.instance in judging]


def check_task(task: str | None, ledger: Ledger) -> None:
    """Checks the task of a ladder; it may be one of imported arrays or of a plug-in that is not loaded, if the ledger
    has it.

    Raises:
        UsageError: it is unknown.
    """
    if task is not None and not ledger.ladders(None, task):
        tasks.get(task)


def _fits(ladder: Ladder, task: str) -> bool:
    """Whether the recipe of a task has what the rungs of a ladder need."""
    try:
        planning.of_documents(ladder, load_recipe(task, imports=False), profile=None, sets={}, tune=False)
    except LrurunError:
        return False
    return True


def _not_run(name: str, task: str, ladder: Ladder, about: Sequence[Claim]) -> JudgingInstance:
    """The claims `about` a task of a ladder that has no runs on it."""
    outside = {}
    if any(claim.has_scope for claim in about):
        recipe = load_recipe(task, imports=False)
        outside = planning.of_documents(ladder, recipe, profile=None, sets={}, tune=False).outside_scope
    command = ladder_command(task, {} if name == "lru" else {"--ladder": name}, *paths.place_options())
    verdicts = {}
    for claim in about:
        reason = outside.get(claim.text)
        would = f"would not decide it: the claim is {reason}" if reason else "would decide it"
        verdicts[claim.text] = without_numbers(
            claim, ladder.name, task, by="runs", verdict=NOT_RUN, detail=f"{command} {would}"
        )
    return JudgingInstance(profile=None, metric="", verdicts=verdicts)


def _stand_in(ladder: Ladder, task: str, claim: Claim, instance: JudgingInstance) -> JudgedClaim:
    """A claim on a task for which the paper does not state it."""
    reason = "the paper states it on other tasks"
    return structs.replace(
        without_numbers(claim, ladder.name, task, by="paper", verdict=NOT_JUDGED, reason=reason),
        metric=claim.metric or (instance.metric if task not in tasks.TASKS else ""),
        here=instance.verdicts[claim.text],
    )


def _judging_instances(
    ledger: Ledger,
    name: str,
    ladder: Ladder,
    task: str | None,
    only: LoadedInstance | None,
    keys: Collection[str] | None,
) -> dict[str, JudgingInstance]:
    """Task -> what judges the claims of the ladder on it; tasks without final runs are left out. `keys` are those of
    the instances that may judge, None: all."""
    by_task: dict[str, list[LadderInstance]] = {}
    for instance in ledger.ladders(ladder.name, task):
        if keys is None or instance.key in keys:
            by_task.setdefault(instance.task, []).append(instance)
    judging = {on_task: _judging_instance(ledger, name, ladder, among, only) for on_task, among in by_task.items()}
    return {on_task: instance for on_task, instance in judging.items() if instance is not None}


def _judging_instance(
    ledger: Ledger, name: str, ladder: Ladder, instances: Sequence[LadderInstance], only: LoadedInstance | None
) -> JudgingInstance | None:
    """The instance of these, of the ladder on a task, whose runs decide: `only` that one, else the plain recipe, else a
    profile at the paper's sizes, else any, as with other settings; of several, that with the most current final runs.
    Without any that can be judged, the reasons."""
    usable: list[tuple[tuple[int, int], JudgingInstance]] = []
    unusable: list[tuple[LadderInstance, str]] = []
    hidden = ledger.hidden()  # which changes no verdict
    for instance in instances if only is None else [only.instance]:
        if not _has_final_runs(ledger, instance):
            continue
        sets, tune = instance.spec.set, instance.spec.tune
        extend = instance.spec.extend if tune else None
        try:
            if (loaded := only) is None:
                recorded = documents.find(ledger, instance)
                documents.load_code(ledger, instance, recorded, "recurrence", "task", "optimizer")
                plan = documents.present_plan(ledger, instance, ladder, sets=sets, tune=tune, extend=extend)
                if plan.spec != instance.spec:
                    unusable.append((instance, "the ladder or the recipe has changed since"))
                    continue
                loaded = loaded_instance.LoadedInstance(plan, instance, ledger)
            report = loaded.report(with_claims=True)
        except LrurunError as error:  # its files have changed or are gone, or its runs have unequal data
            unusable.append((instance, str(error)))
            continue
        if count := sum(row.ranked for row in report.rows):
            reduced = _is_reduced(ladder, instance)
            order = (2 if reduced else int(instance.profile is not None or bool(instance.spec.set)), -count)
            command = _command_of(name, loaded.plan, report, {run.id: run.seed for run in loaded.runs})
            judged = _judged(report, instance, command, reduced=reduced, hidden=instance.key in hidden)
            usable.append((order, judged))
        else:
            unusable.append((instance, "; ".join(map(str, report.notes)) or "no run has a score"))
    if usable:
        return _together([instance for _, instance in sorted(usable, key=itemgetter(0))])
    if not unusable:
        return None
    removed = [
        of_one
        for instance, _ in unusable
        for of_one in _removed(instance, ledger.removed_from(instance.key), ledger.trained_again(instance.key))
    ]
    return structs.replace(_unusable(ladder, instances[0].task, unusable), removed=tuple(removed))


def _together(instances: Sequence[JudgingInstance]) -> JudgingInstance:
    """The first instance, with the verdicts of the others on claims that have none on it."""
    verdicts = dict(instances[0].verdicts)
    for later in instances[1:]:
        open_ = [text for text, verdict in verdicts.items() if verdict.verdict in OPEN]
        judged = {text: verdict for text, verdict in later.verdicts.items() if verdict.verdict not in OPEN}
        verdicts |= {text: judged[text] for text in open_ if text in judged}
    runs = tuple(runs for instance in instances for runs in instance.runs)
    removed = tuple(removed for instance in instances for removed in instance.removed)
    return structs.replace(instances[0], verdicts=verdicts, runs=runs, removed=removed)


def _has_final_runs(ledger: Ledger, instance: LadderInstance) -> bool:
    memberships = (
        membership for run in ledger.runs(instance.key) if run.state in FINISHED for membership in run.memberships
    )
    return any(membership.ladder_key == instance.key and membership.stage == "train" for membership in memberships)


def _is_reduced(ladder: Ladder, instance: LadderInstance) -> bool:
    """Whether its scale is not one of the paper's: changed settings, or a profile for which the paper has no scores.
    A ladder of the user has no paper."""
    if not ladder.is_packaged:
        return False
    profile = instance.profile
    unpublished = profile is not None and not published.names_profile(ladder, instance.task, profile)
    return unpublished or bool(instance.spec.set)


def _judged(
    report: LadderReport, instance: LadderInstance, command: str, *, reduced: bool, hidden: bool
) -> JudgingInstance:
    changed = f"with {', '.join(instance.spec.set)}; " if instance.spec.set else ""
    by_hidden = f"; by the hidden instance {instance.short_name}" if hidden else ""
    verdicts = {
        claim.text: structs.replace(
            claim,
            verdict=claim.shown,
            detail=f"{changed}{claim.detail}{by_hidden}",
            instance=instance.key,
            profile=instance.profile,
            stand_in=claim.stand_in or reduced,
            removed=sum(row.removed for row in report.rows if row.rung in (claim.rung, claim.other)),
        )
        for claim in report.claims
    }
    scored = [f"{row.rung} {score(row, report.score)}" for row in report.rows if row.n]
    return JudgingInstance(
        profile=instance.profile,
        metric=report.score.name,
        verdicts=verdicts,
        runs=(Runs(command, f"{report.score.sentence}: {', '.join(scored)}"),),
        removed=_removed(instance, report.removed_runs, report.trained_again),
    )


def _removed(
    instance: LadderInstance, runs: Sequence[RemovedRun], again: Sequence[RemovedRun]
) -> tuple[RemovedEvidence, ...]:
    """What was removed from an instance, by kind, reason and stage."""
    groups = {
        caution.text: group
        for caution, group in zip(
            ladder_remarks.removed_cautions(runs, again), ladder_remarks.removed_groups(runs, again), strict=True
        )
    }
    return tuple(
        RemovedEvidence(
            task=instance.task,
            name=instance.short_name,
            instance=instance.key,
            kind=kind,  # type: ignore[arg-type]
            stage=stage,
            runs=len({run.run for run in group}),
            why=why or None,
            text=text,
        )
        for text, (kind, why, stage, group) in groups.items()
    )


def _command_of(name: str, plan: planning.Plan, report: LadderReport, seed_of: Mapping[str, int]) -> str:
    """The command that makes the runs of a report: those rungs and seeds that it has; `seed_of` is by id."""
    if report.read_again:
        return report.read_again
    trained = [row for row in report.rows if row.ranked]
    ladder = None if name == "lru" else name
    options = {"--ladder": ladder, "--profile": plan.profile, "--set": plan.changes, "--tune": plan.tune}
    options |= {"--extend": None if plan.extend_option is None else str(plan.extend_option)}
    more = [word for row in trained if len(trained) < len(report.rows) for word in ("--rung", row.rung)]
    seeds = sorted({seed_of[run] for row in trained for run in (*row.runs, *row.finished_otherwise)})
    if seeds and seeds != list(range(plan.seeds)):
        first = seeds == list(range(len(seeds)))
        more += ["--seeds", str(len(seeds)) if first else ",".join(map(str, seeds)) + "," * (len(seeds) == 1)]
    return ladder_command(report.instance.task, options, *more)


def _unusable(ladder: Ladder, task: str, unusable: Sequence[tuple[LadderInstance, str]]) -> JudgingInstance:
    newest = unusable[-1][0]
    detail = "; ".join(f"instance {instance.short_name}: {why}" for instance, why in unusable)
    verdicts = {
        claim.text: structs.replace(
            without_numbers(claim, ladder.name, task, by="runs", verdict=NOT_JUDGED, detail=detail),
            instance=newest.key,
            profile=newest.profile,
        )
        for claim in ladder.claims
        if claim.is_about(task)
    }
    return JudgingInstance(profile=newest.profile, metric="", verdicts=verdicts)


def _counts(claims: Sequence[JudgedClaim]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for claim in claims:
        of_paper = counts.setdefault(paper_of(claim), {})
        of_paper[claim.ours.verdict] = of_paper.get(claim.ours.verdict, 0) + 1
    return counts
