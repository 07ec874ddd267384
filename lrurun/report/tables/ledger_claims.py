"""The claims of ladders and studies by the runs of a ledger, beside the papers' own numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from lrurun import kinds, paths
from lrurun.config import planning
from lrurun.config.instance import ladder_command
from lrurun.config.ladder import Claim, Ladder
from lrurun.config.recipe import load_recipe
from lrurun.console import clean
from lrurun.data import tasks
from lrurun.errors import LrurunError, UsageError, hint_for
from lrurun.instances import documents, requests
from lrurun.instances.requests import LadderRequest
from lrurun.judging import published
from lrurun.judging.claims import on_these_items
from lrurun.judging.verdicts import CONTRADICTED, NOT_JUDGED, NOT_RUN, SUPPORTED, UNDECIDED, Items
from lrurun.ledger.values import FINISHED
from lrurun.report.tables import content, loaded_instance, published_claims
from lrurun.report.tables.cells import score
from lrurun.report.tables.published_claims import PublishedClaim
from lrurun.table import NOTHING, Column, Table

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.report.tables.ladder_table import LadderReport

PAPERS = {
    "lru": "Orvieto et al. 2023",
    "dlr": "Gupta et al. 2023",
    "rotrnn": "Biegun et al. 2024",
    "zucchet": "Zucchet and Orvieto 2024",
}
"""The name of a paper on the command line -> how sources begin."""

OTHERS = "other sources"
"""Sources of claims that come with lrurun, but are of none of these papers: ours among them."""

OPEN = (NOT_RUN, NOT_JUDGED)
"""Verdicts without a judgement."""
MOST_NAMED = 3
"""Tasks that share a row of claims are named up to this number."""
HEADERS = (*published_claims.HEADERS, "source", "in this ledger")


class LedgerVerdict(Struct, frozen=True, kw_only=True):
    """A claim by the runs of one ladder instance or study of the ledger."""

    verdict: str
    detail: str
    """The numbers, or what would decide it."""
    instance: str | None
    profile: str | None
    stand_in: bool
    """Whether task, data or scale are not those of the paper."""
    provisional: bool = False
    """Whether the verdict is from fewer seeds than hold when seeds fail."""
    verdict_on_these_items: str = ""
    """The verdict for new seeds on these test items, where it is decided and that for other items is not."""
    items_known: Items = ""
    """What is known of the test items, see `Comparison.items_known`."""

    @property
    def cautions(self) -> tuple[str, ...]:
        """What changes the reading of the verdict, in a word or two each."""
        stand_in = self.stand_in and self.verdict not in OPEN
        smoke = self.profile == "smoke" and self.verdict not in OPEN
        these = [text] if (text := on_these_items(self.verdict_on_these_items)) else []
        of_these = self.items_known == "unknown" and self.verdict in (SUPPORTED, CONTRADICTED)
        return (
            *["stand-in"] * stand_in,
            *["profile smoke"] * smoke,
            *["provisional"] * self.provisional,
            *["on these items"] * of_these,
            *these,
        )


class LedgerClaim(PublishedClaim, frozen=True, kw_only=True):
    """A claim with both verdicts: `verdict` is by the paper's own numbers."""

    here: LedgerVerdict

    @property
    def shown(self) -> str:
        return self.here.verdict

    @property
    def mark(self) -> str:
        """What changes the reading of the verdict here."""
        return f" ({', '.join(self.here.cautions)})" if self.here.cautions else ""

    @property
    def detail(self) -> str:
        """What is claimed, where, and the reasoning; by the paper's own numbers too, where those alone judge."""
        place = f"{self.task}, ladder {self.ladder}" if self.rung else self.task
        profile = f", profile {self.here.profile}" if self.here.profile else ""
        parts = [f"{place}{profile}: {self.statement}" if self.rung else f"{place}{profile}", self.here.detail]
        if self.here.verdict == NOT_RUN and self.rung:
            difference, p, verdict = published_claims.cells(self)[3:]
            numbers = [verdict, difference, f"p {p if p[:1] == '<' else f'= {p}'}" if p else ""]
            parts.append(f"by the paper's own numbers: {', '.join(filter(None, numbers))}")
        return "; ".join(parts)


class PlaceStatus(Struct, frozen=True, kw_only=True):
    """What became of a table, figure or sentence of a paper here."""

    place: str
    what: str
    commands: tuple[str, ...]
    """The commands that make or check it, with TASK for each of its tasks."""
    status: str
    note: str
    """Why it is not possible, or what differs."""


class LedgerClaims(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun claims`."""

    claims: list[LedgerClaim]
    counts: dict[str, dict[str, int]]
    """Paper -> verdict in this ledger -> how many claims, each on each task."""
    places: list[PlaceStatus] = []
    """The tables, figures and sentences of the one paper that was asked for, with all tasks and ladders."""


class Runs(Struct, frozen=True):
    """The final runs of an instance."""

    command: str
    """The command that trains them."""
    scores: str
    """The score of each rung that has one."""


class JudgingInstance(Struct, frozen=True, kw_only=True):
    """The instance by whose runs the claims of a ladder on a task are judged."""

    profile: str | None
    metric: str
    """The metric that selects the models; empty if it is not known."""
    verdicts: dict[str, LedgerVerdict]
    """The text of each claim on the task -> its verdict."""
    runs: tuple[Runs, ...] = ()
    """The runs of all instances that can be judged."""


class Evidence(Struct, frozen=True, kw_only=True):
    """The evidence of a ledger on claims."""

    ladders: dict[str, dict[str, JudgingInstance]]
    """Ladder -> task -> the instance that judges; tasks without final runs are left out."""
    by_task: dict[str, kinds.TaskEvidence]
    """Task -> what its runs, which are no trainings, decide."""


def ladders_of(ledger: Ledger | None, only: str | None = None) -> tuple[dict[str, Ladder], list[LrurunError]]:
    """The ladders that have files here and those of which the ledger has instances, or one of them, by the names or
    paths that commands take; and the errors of files that cannot be read."""
    ladders: dict[str, Ladder] = {}
    errors = []
    for name in paths.names("ablations") if only is None else [only]:
        try:
            ladders[name] = documents.load_ladder(name, ledger)
        except LrurunError as error:
            errors.append(error)
    names = {ladder.name for ladder in ladders.values()}
    if ledger is None or only is not None:
        return ladders, errors
    for instance in reversed(ledger.ladders()):
        if instance.name not in names and (recorded := documents.find(ledger, instance)) is not None:
            recorded_requests = requests.recorded(ledger, instance, LadderRequest)
            ladders[recorded_requests[-1].ladder if recorded_requests else recorded.ladder.path] = recorded.ladder
            names.add(instance.name)
    return ladders, errors


def gather(ledger: Ledger | None, ladders: Mapping[str, Ladder], task: str | None, *, with_studies: bool) -> Evidence:
    """The evidence of a ledger on ladders, by the names that find them, and on studies, on one task or all."""
    other_kinds = kinds.every() if with_studies else []
    return Evidence(
        ladders={
            name: {} if ledger is None else _judging_instances(ledger, name, ladder, task)
            for name, ladder in ladders.items()
        },
        by_task={name: evidence for kind in other_kinds for name, evidence in kind.evidence(ledger, task).items()},
    )


def collect(evidence: Evidence, ladders: Mapping[str, Ladder], task: str | None, paper: str | None) -> LedgerClaims:
    """The claims of ladders, by the names that find them, and of studies, on one task or all, of one paper or all.

    Beside those that papers state on a task, these are the claims that its runs are judged by; where a built-in task is
    named, those of the default ladder or of the one that is named also without runs.
    """
    claims: list[LedgerClaim] = []
    for name, ladder in ladders.items():
        judging = evidence.ladders[name]
        stated = published_claims.collect(
            [ladder], task, {on_task: instance.profile for on_task, instance in judging.items()}
        )
        not_run = {
            on_task: _not_run(name, on_task, ladder, [claim for claim in ladder.claims if on_task in claim.tasks])
            for on_task in dict.fromkeys(claim.task for claim in stated if claim.task not in judging)
        }
        judged = judging | not_run
        for claim in stated:
            verdict = judged[claim.task].verdicts[claim.text]
            claims.append(LedgerClaim(**structs.asdict(claim), here=verdict))
        by_papers = {(claim.task, claim.text) for claim in stated}
        is_default = name == "lru" or len(ladders) == 1
        if task is not None and tasks.is_built_in(task) and is_default and _fits(ladder, task):
            about = [claim for claim in ladder.claims if claim.is_about(task)]
            judging = {task: _not_run(name, task, ladder, about), **judging}
        claims += [
            _stand_in(ladder, on_task, claim, instance)
            for on_task, instance in judging.items()
            for claim in ladder.claims
            if claim.text in instance.verdicts and (on_task, claim.text) not in by_papers
        ]
    claims += [claim for studied in evidence.by_task.values() for claim in studied.claims]
    if paper is not None:
        claims = [claim for claim in claims if claim.source.startswith(PAPERS[paper])]
    return LedgerClaims(claims=claims, counts=_counts(claims))


_JUDGED = (SUPPORTED, CONTRADICTED, UNDECIDED)


def contents(
    claims: LedgerClaims, task: str | None, *, by_runs: bool, details: bool, command: str
) -> list[content.ReportContent]:
    """The output of `lrurun claims`: how many claims of each paper have which verdict, then a line for each that is
    judged or has runs.

    Args:
        task: the one that the claims are on, of which all have a line; None for any.
        by_runs: whether there is a ledger, whose runs and studies judge; else the papers' own numbers do.
        details: show the reasoning on every claim instead of the lines.
        command: the one that prints these claims.
    """
    judges = "the runs and studies of this ledger" if by_runs else "the papers' own numbers (there is no ledger here)"
    summary = content.ReportContent(
        title=f"claims of the papers, judged by {judges}",
        table=count_table(claims, by_runs=by_runs),
        claims=tuple(claims.claims) if details else (),
    )

    def is_listed(claim: LedgerClaim) -> bool:
        if not by_runs:
            return claim.verdict in _JUDGED
        has_runs = claim.here.verdict == NOT_JUDGED and claim.here.instance is not None
        return claim.here.verdict in _JUDGED or has_runs

    more = f"More: {command} --details has the reasoning, and what would decide the others."
    if details:
        return [summary]
    if task is not None:
        papers = [paper for paper, _ in summary.table.rows]
        listed = sorted(claims.claims, key=lambda claim: papers.index(paper_of(claim)))
    elif not (listed := [claim for claim in claims.claims if is_listed(claim)]):
        return [structs.replace(summary, foot=(more,))]
    return [summary, _lines(listed, more, by_runs=by_runs, one_task=task is not None)]


def count_table(claims: LedgerClaims, *, by_runs: bool = True) -> Table:
    """How many claims of each paper have which verdict."""
    counts: dict[str, Counter[str]] = {paper: Counter() for paper in (*PAPERS.values(), OTHERS)}
    for claim in claims.claims:
        verdict = claim.here.verdict if by_runs else claim.verdict
        count = counts.setdefault(paper_of(claim), Counter())
        count[verdict if verdict in (*_JUDGED, NOT_RUN) else NOT_JUDGED] += 1
    return Table(
        columns=(
            Column(name="paper", cell=lambda row: row[0], right=False),
            *(_count_column(verdict) for verdict in (*_JUDGED, NOT_JUDGED, *([NOT_RUN] if by_runs else []))),
        ),
        rows=tuple((paper, count) for paper, count in counts.items() if count),
    )


def _count_column(verdict: str) -> Column:
    return Column(name=verdict, cell=lambda row: str(row[1][verdict] or NOTHING))


def _lines(claims: Sequence[LedgerClaim], more: str, *, by_runs: bool, one_task: bool) -> content.ReportContent:
    """A table with a row for each claim and verdict, with its tasks. Cautions that hold for all that are judged stand
    in its title, what keeps runs from judging others below it."""

    def verdict(claim: LedgerClaim) -> str:
        return claim.here.verdict if by_runs else claim.verdict

    judged = [claim for claim in claims if verdict(claim) in _JUDGED]
    unjudged = [claim for claim in claims if by_runs and verdict(claim) == NOT_JUDGED]
    reasons = dict.fromkeys(claim.here.detail.split(";")[0] for claim in unjudged)
    all_cautions = dict.fromkeys(caution for claim in judged for caution in claim.here.cautions if by_runs)
    shared = [caution for caution in all_cautions if all(caution in claim.here.cautions for claim in judged)]
    differing = [caution for caution in all_cautions if caution not in shared]

    def cautions(claim: LedgerClaim) -> str:
        return ", ".join(caution for caution in claim.here.cautions if caution in differing)

    rows: dict[tuple[str, str], dict[tuple[str, ...], list[LedgerClaim]]] = {}
    for claim in claims:
        of_claim = rows.setdefault((claim.ladder, claim.text), {})
        of_claim.setdefault((verdict(claim), claim.verdict, cautions(claim)), []).append(claim)

    def column(name: str, cell: Callable[[LedgerClaim], str], **more: Any) -> Column:
        return Column(name=name, cell=lambda row: clean(cell(row[0])), right=False, **more)

    def on(row: list[LedgerClaim]) -> str:
        names = [claim.task for claim in row]
        return clean(", ".join(names)) if len(names) <= MOST_NAMED else f"{len(names)} tasks"

    own = any(claim.verdict in _JUDGED for claim in judged) and by_runs
    title = "judged claims" if judged and not one_task else "claims"
    return content.ReportContent(
        title=title + (f", all {' and '.join(shared)}" if shared else ""),
        table=Table(
            columns=(
                column("verdict", verdict),
                column("paper", paper_of, priority=1) if one_task else Column(name="task", cell=on, right=False),
                *([column("caution", cautions, priority=9)] if differing else []),
                *([column("by the paper", lambda claim: claim.verdict, priority=2)] if own else []),
                column("claim", lambda claim: claim.text, cut=36),
            ),
            rows=tuple(row for of_claim in rows.values() for row in of_claim.values()),
        ),
        foot=(*([f"Not judged: {'; '.join(reasons)}."] if reasons else []), more),
    )


def paper_of(claim: LedgerClaim) -> str:
    """The paper that states it, of those that have a name here; of others, the ladder if it is the user's own."""
    of_user = claim.rung and not (paths.packaged("ablations") / f"{claim.ladder}.toml").is_file()
    other = f"ladder {claim.ladder}" if of_user else OTHERS
    return next((source for source in PAPERS.values() if claim.source.startswith(source)), other)


def check_paper(paper: str | None, where: str = "--paper") -> None:
    """Checks the paper that `where` names.

    Raises:
        UsageError: it is not one of `PAPERS`.
    """
    if paper is not None and paper not in PAPERS:
        raise UsageError(f"{where}: unknown paper {paper!r}", hint_for(paper, PAPERS, "papers"))


def task_of(task: str | None, ladder: str | None) -> str | None:
    """The task, with the name of a study in place of its alias.

    Raises:
        UsageError: it is a study, and a ladder is given.
    """
    if (kind := kinds.of_task(task)) is None or task is None:
        return task
    if ladder is not None:
        raise UsageError(f"--ladder {ladder}: {task} is a study, which no ladder has", "omit --ladder or --task")
    return kind.task(task)


def check_task(task: str | None, ledger: Ledger | None) -> None:
    """Refuses an unknown task; those of a ledger may be of imported arrays, or of a plug-in that is not loaded.

    Raises:
        UsageError: it is unknown.
    """
    if task is not None and kinds.of_task(task) is None and not (ledger and ledger.ladders(None, task)):
        tasks.get(task)


def cells(claim: LedgerClaim) -> list[str]:
    """A line of the table, under `HEADERS`."""
    profile = f", profile {claim.here.profile}" if claim.here.profile else ""
    here = f"{claim.here.verdict}{claim.mark}{profile}: {claim.here.detail}"
    if not claim.rung:  # its text is all that is claimed
        return [claim.ladder, claim.task, claim.text, "", "", f"{claim.verdict}: {claim.reason}", claim.source, here]
    return [*published_claims.cells(claim), claim.source, here]


def _fits(ladder: Ladder, task: str) -> bool:
    """Whether the recipe of a task has what the rungs of a ladder need."""
    try:
        planning.of_documents(ladder, load_recipe(task, imports=False), profile=None, sets=(), tune=False)
    except LrurunError:
        return False
    return True


def _not_run(name: str, task: str, ladder: Ladder, about: Sequence[Claim]) -> JudgingInstance:
    """The claims `about` a task of a ladder that has no runs on it."""
    outside = {}
    if any((claim.min_length, claim.depth) != (None, None) for claim in about):
        recipe = load_recipe(task, imports=False)
        outside = planning.of_documents(ladder, recipe, profile=None, sets=(), tune=False).outside_scope
    command = ladder_command(task, {} if name == "lru" else {"--ladder": name}, *paths.place_options())
    verdicts = {}
    for claim in about:
        reason = outside.get(claim.text)
        would = f"would not decide it: the claim is {reason}" if reason else "would decide it"
        verdicts[claim.text] = LedgerVerdict(
            verdict=NOT_RUN, detail=f"{command} {would}", instance=None, profile=None, stand_in=False
        )
    return JudgingInstance(profile=None, metric="", verdicts=verdicts)


def _stand_in(ladder: Ladder, task: str, claim: Claim, instance: JudgingInstance) -> LedgerClaim:
    """A claim on a task for which the paper does not state it."""
    return LedgerClaim(
        ladder=ladder.name,
        task=task,
        text=claim.text,
        source=claim.source,
        kind=claim.kind,
        rung=claim.rung,
        other=claim.than,
        margin=claim.margin_on(task) or None,
        verdict=NOT_JUDGED,
        reason="the paper states it on other tasks",
        metric=claim.metric or (instance.metric if task not in tasks.TASKS else ""),
        here=instance.verdicts[claim.text],
    )


def _judging_instances(ledger: Ledger, name: str, ladder: Ladder, task: str | None) -> dict[str, JudgingInstance]:
    """Task -> what judges the claims of the ladder on it; tasks without final runs are left out."""
    on_tasks = dict.fromkeys(instance.task for instance in ledger.ladders(ladder.name, task))
    judging = {on_task: _judging_instance(ledger, name, ladder, on_task) for on_task in on_tasks}
    return {on_task: instance for on_task, instance in judging.items() if instance is not None}


def _judging_instance(ledger: Ledger, name: str, ladder: Ladder, task: str) -> JudgingInstance | None:
    """The instance of the ladder on a task whose runs decide: the plain recipe, else a profile at the paper's sizes,
    else any, as with other settings; of several, that with the most current final runs. Without any that can be judged,
    the reasons."""
    usable: list[tuple[tuple[int, int], JudgingInstance]] = []
    unusable: list[tuple[LadderInstance, str]] = []
    for instance in ledger.ladders(ladder.name, task):
        if not _has_final_runs(ledger, instance):
            continue
        sets, tune = instance.spec.set, instance.spec.tune
        try:
            recorded = documents.find(ledger, instance)
            documents.load_code(ledger, instance, recorded, "recurrence", "task")
            plan = documents.present_plan(ledger, instance, ladder, sets=sets, tune=tune)
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
            command = _command_of(name, plan, report, {run.id: run.seed for run in loaded.runs})
            usable.append((order, _judged(report, instance, command, reduced=reduced)))
        else:
            unusable.append((instance, "; ".join(map(str, report.notes)) or "no run has a score"))
    if usable:
        return _together([instance for _, instance in sorted(usable, key=itemgetter(0))])
    return _unusable(ladder, task, unusable) if unusable else None


def _together(instances: Sequence[JudgingInstance]) -> JudgingInstance:
    """The first instance, with the verdicts of the others on claims that have none on it."""
    verdicts = dict(instances[0].verdicts)
    for later in instances[1:]:
        open_ = [text for text, verdict in verdicts.items() if verdict.verdict in OPEN]
        judged = {text: verdict for text, verdict in later.verdicts.items() if verdict.verdict not in OPEN}
        verdicts |= {text: judged[text] for text in open_ if text in judged}
    runs = tuple(runs for instance in instances for runs in instance.runs)
    return structs.replace(instances[0], verdicts=verdicts, runs=runs)


def _has_final_runs(ledger: Ledger, instance: LadderInstance) -> bool:
    places = (place for run in ledger.runs(instance.key) if run.state in FINISHED for place in run.memberships)
    return any(place.ladder_key == instance.key and place.stage == "train" for place in places)


def _is_reduced(ladder: Ladder, instance: LadderInstance) -> bool:
    """Whether its scale is not one of the paper's: changed settings, or a profile for which the paper has no scores.
    A ladder of the user has no paper."""
    if not ladder.is_packaged:
        return False
    profile = instance.profile
    unpublished = profile is not None and not published.names_profile(ladder, instance.task, profile)
    return unpublished or bool(instance.spec.set)


def _judged(report: LadderReport, instance: LadderInstance, command: str, *, reduced: bool) -> JudgingInstance:
    changed = f"with {', '.join(instance.spec.set)}; " if instance.spec.set else ""
    verdicts = {
        claim.text: LedgerVerdict(
            verdict=claim.shown,
            detail=f"{changed}{claim.detail}",
            instance=instance.key,
            profile=instance.profile,
            stand_in=claim.stand_in or reduced,
            provisional=claim.provisional,
            verdict_on_these_items=claim.verdict_on_these_items,
            items_known=claim.items_known,
        )
        for claim in report.claims
    }
    scored = [f"{row.rung} {score(row, report.score)}" for row in report.rows if row.n]
    return JudgingInstance(
        profile=instance.profile,
        metric=report.score.name,
        verdicts=verdicts,
        runs=(Runs(command, f"{report.score.sentence}: {', '.join(scored)}"),),
    )


def _command_of(name: str, plan: planning.Plan, report: LadderReport, seed_of: Mapping[str, int]) -> str:
    """The command that trains the runs of a report: those rungs and seeds that it has; `seed_of` is by id."""
    trained = [row for row in report.rows if row.ranked]
    ladder = None if name == "lru" else name
    options = {"--ladder": ladder, "--profile": plan.profile, "--set": plan.changes, "--tune": plan.tune}
    more = [word for row in trained if len(trained) < len(report.rows) for word in ("--rung", row.rung)]
    seeds = sorted({seed_of[run] for row in trained for run in (*row.runs, *row.finished_otherwise)})
    if seeds and seeds != list(range(plan.seeds)):
        first = seeds == list(range(len(seeds)))
        more += ["--seeds", str(len(seeds)) if first else ",".join(map(str, seeds)) + "," * (len(seeds) == 1)]
    return ladder_command(report.instance.task, options, *more)


def _unusable(ladder: Ladder, task: str, unusable: Sequence[tuple[LadderInstance, str]]) -> JudgingInstance:
    newest = unusable[-1][0]
    verdict = LedgerVerdict(
        verdict=NOT_JUDGED,
        detail="; ".join(f"instance {instance.short_name}: {why}" for instance, why in unusable),
        instance=newest.key,
        profile=newest.profile,
        stand_in=False,
    )
    about = [claim.text for claim in ladder.claims if claim.is_about(task)]
    return JudgingInstance(profile=newest.profile, metric="", verdicts=dict.fromkeys(about, verdict))


def _counts(claims: Sequence[LedgerClaim]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for claim in claims:
        of_paper = counts.setdefault(paper_of(claim), {})
        of_paper[claim.here.verdict] = of_paper.get(claim.here.verdict, 0) + 1
    return counts
