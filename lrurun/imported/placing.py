"""An import before anything is written: its runs, their rungs and seeds, and the plan of the ladder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, structs

from lrurun.config import planning
from lrurun.config.imported import ImportTable
from lrurun.config.ladder import Ladder
from lrurun.config.recipe import Recipe
from lrurun.config.resolve import Difference
from lrurun.config.runs import pack
from lrurun.config.schema import SETTINGS, ImportedConfig, Origin, Reading
from lrurun.errors import UsageError, plural
from lrurun.imported import cautions, choosing, exports, item_results, repeats, rungs, scoring, sources, understanding
from lrurun.imported.recording import CONTENTS, Known, Placed
from lrurun.imported.scoring import LastAndBest, ScoredRun
from lrurun.imported.sources import OpenedSource, ReadRuns
from lrurun.instances.import_record import Caution
from lrurun.ledger.values import Run
from lrurun.trackers import State, TrackedRun

MOST_POSITIONS = 4_999
"""The last position of a stage in a rung; runs beyond it share it."""


class Understood(Struct, frozen=True, kw_only=True):
    """An import of which everything is known that the ledger gets, but the curves."""

    target: Path
    text: str
    """The text of the file."""
    is_new: bool
    """Whether the file is to be written."""
    table: ImportTable
    request: Mapping[str, Any]
    """What the user asked for, where the file is to be written; else empty."""
    plan: planning.Plan
    sources: list[OpenedSource]
    counts: dict[str, int]
    """Source -> how many runs it has."""
    placed: list[Placed]
    kept: list[tuple[Placed, str]]
    """Runs of earlier imports that are no longer in the source, each with its id in the ledger."""
    known: dict[Origin, Known]
    """What the ledger has of runs of earlier imports."""
    outside: tuple[str, ...]
    """The runs that fit no rung, by their names."""
    choices: tuple[str, ...]
    """What was chosen by validation, a sentence for each rung where there was a choice."""
    cautions: tuple[Caution, ...]
    sentences: tuple[str, ...]
    """What was understood, a line each."""


class Earlier(Struct, frozen=True, kw_only=True):
    """A run that an earlier import has recorded."""

    run: Run
    origin: Mapping[str, str]
    """What the ledger has about its origin: the name, the state and the place in its tracker."""
    digest: str
    """The digest of all that was read of it."""


class EarlierImports(Protocol):
    """What a ledger has of earlier imports."""

    def runs(self, task: str, reading: Reading) -> Sequence[Earlier]:
        """The imported runs of a task with this reading."""

    def request(self, task: str) -> Mapping[str, Any]:
        """What the user asked for when the file of the task was written; empty if that is not known."""


class Basis(Struct, frozen=True, kw_only=True):
    """What is known before the runs are sorted into rungs."""

    target: Path
    text: str
    is_new: bool
    request: Mapping[str, Any]
    table: ImportTable
    ladder: Ladder
    recipe: Recipe
    opened: list[OpenedSource]
    read: ReadRuns
    earlier: Sequence[Earlier]
    twin: str | None
    """The validation metric by which the best step may be another one than the last, where the user leaves it
    open."""
    sentences: list[str]


def finished(basis: Basis, by: Sequence[str]) -> Understood:
    table, ladder = basis.table, basis.ladder
    scored: list[ScoredRun] = []
    both: list[LastAndBest | None] = []
    metrics = sources.needed(table, basis.opened, basis.twin)
    for run, source in sources.with_curves(basis.read, basis.opened, metrics):
        scored.append(scoring.scored(run, source.tracker, table))
        both.append(None if basis.twin is None else scoring.last_and_best(run, table, basis.twin))
    if all(run.result is None for run in scored):
        raise UsageError(
            f"{table.metric}: no run has a usable value of it: {scored[0].why}",
            "name another metric or step, or import finished runs",
        )
    current = {sources.origin_of(run.run, run.tracker) for run in scored}
    # without its file, an import begins, with the numbers of seeds that its runs have in the ledger
    gone_runs = [run for run in basis.earlier if not _is_there(run.run, current)]
    vanished = [] if basis.is_new else [_scored_again(run, table) for run in gone_runs]
    everything = scored + vanished
    sorted_runs = rungs.sort([(run.run, run.tracker) for run in everything], ladder)
    members = {name: [everything[index] for index in found] for name, found in sorted_runs.members.items()}
    titles = rungs.titles_of([run.run for run in scored])
    outside = [titles[index] for index in sorted_runs.outside if index < len(scored)]
    if basis.twin is not None:
        by_rung = {
            name: [pair for index in found if index < len(both) and (pair := both[index]) is not None]
            for name, found in sorted_runs.members.items()
        }
        if (error := scoring.step_to_name(by_rung, table, basis.twin)) is not None:
            raise error
    known = {(origin_in(run.run).project, origin_in(run.run).run): run.run.seed for run in basis.earlier}
    seeded = repeats.seeded(members, table, known)
    choices = choosing.chosen(seeded.rungs, table)
    ids = {origin_in(run.run): run.run.id for run in basis.earlier}
    gone = {run.key for run in vanished}
    placed: list[Placed] = []
    kept: list[tuple[Placed, str]] = []
    for number, choice in enumerate(choices):
        stages: dict[Literal["tune", "train"], Sequence[ScoredRun]] = {"tune": choice.tune, "train": choice.train}
        for stage, of_stage in stages.items():
            for order, seed in enumerate(of_stage):
                place = _placed(seed, choice.rung, stage, pack(number, stage, min(order, MOST_POSITIONS)))
                if seed.key in gone:
                    kept.append((place, ids[place.origin]))
                else:
                    placed.append(place)
    placed, of_items = item_results.checked(placed, table)
    counted = {choice.rung: choice.train for choice in choices}
    others = [*seeded.cautions, *choosing.on_choices(choices, table), *of_items]
    chosen = tuple(choice.sentence for choice in choices if choice.sentence)
    plan, found_cautions = _planned(basis, counted, others)
    counts: dict[str, int] = {source.name: 0 for source in basis.opened}
    for _, source in basis.read.runs:
        counts[source.name] += 1
    return Understood(
        target=basis.target,
        text=basis.text,
        is_new=basis.is_new,
        request=basis.request,
        table=table,
        plan=plan,
        sources=basis.opened,
        counts=counts,
        placed=placed,
        kept=kept,
        known={origin_in(run.run): Known(run.origin.get(CONTENTS, run.digest), run.digest) for run in basis.earlier},
        outside=tuple(outside),
        choices=chosen,
        cautions=tuple(found_cautions),
        sentences=(
            *basis.sentences,
            *(fresh_sentences(basis, len(gone_runs)) if basis.is_new and basis.earlier else ()),
            *rung_sentences(ladder, placed, kept, by),
            *chosen,
            *seeded.sentences,
            *outside_sentences(outside),
        ),
    )


def _placed(run: ScoredRun, rung: str, stage: Literal["tune", "train"], position: int) -> Placed:
    assert run.seed is not None
    origin = sources.origin_of(run.run, run.tracker)
    return Placed(scored=run, origin=origin, seed=run.seed, rung=rung, stage=stage, position=position)


def origin_in(run: Run) -> Origin:
    assert isinstance(run.config, ImportedConfig)
    return run.config.origin


def _is_there(run: Run, current: Collection[Origin]) -> bool:
    """Whether the source still has a run of an earlier import; of a mean, all its runs."""
    origin = origin_in(run)
    return origin in current or all(structs.replace(origin, run=part) in current for part in origin.run.split("+"))


def _scored_again(earlier: Earlier, table: ImportTable) -> ScoredRun:
    """A run of an earlier import, as the ledger has it."""
    run, origin = earlier.run, origin_in(earlier.run)
    assert isinstance(run.config, ImportedConfig)
    settings = dict(run.config.settings)
    if table.seed:
        settings[table.seed] = run.seed
    tracked = TrackedRun(
        id=origin.run,
        project=origin.project,
        name=earlier.origin.get("name", ""),
        settings=settings,
        state=_STATES[run.state],
        state_text=earlier.origin.get("state", ""),
        code=earlier.origin.get("code", ""),
        data=earlier.origin.get("data", ""),
        place=earlier.origin.get("place", ""),
    )
    return ScoredRun(
        run=tracked,
        tracker=origin.tracker,
        seed=run.seed if table.seed else None,
        state=run.state,
        result=run.result,
        step=run.step,
        why=run.error or "",
    )


_STATES: dict[str, State] = {
    "done": "finished",
    "diverged": "finished",
    "failed": "crashed",
    "interrupted": "running",
}
"""State of a run in the ledger -> what its tracker called it."""


def _planned(
    basis: Basis, members: Mapping[str, Sequence[ScoredRun]], others: Sequence[Caution]
) -> tuple[planning.Plan, list[Caution]]:
    """The plan with the settings that the runs of each rung share, and all cautions: these, and those on the runs."""
    table, ladder = basis.table, basis.ladder
    plan = planning.of_documents(ladder, basis.recipe, profile=None, sets={}, tune=False)
    tracked = {name: [run.run for run in of_rung] for name, of_rung in members.items()}
    everything = [run for runs in tracked.values() for run in runs]
    left_out = {table.seed, *understanding.metrics(everything)}
    settings = {name: rungs.settings_of(runs, left_out) for name, runs in tracked.items()}
    compared = [each.name for each in understanding.varying(everything, left_out)]
    resolved = []
    differing: dict[str, list[str]] = {}
    for rung in plan.rungs:
        assert isinstance(rung.config, ImportedConfig)
        differences: tuple[Difference, ...] = ()
        if rung.on is not None:
            source = f"imported from {', '.join(table.source)} ({table.from_})"
            differences = rungs.differences(settings[rung.name], settings[rung.on], source=source, compared=compared)
            apart = [difference.path.removeprefix(SETTINGS) for difference in differences]
            differing[rung.name] = exports.settings_apart(apart, [*tracked[rung.name], *tracked[rung.on]])
        config = structs.replace(rung.config, settings=settings[rung.name].shared)
        resolved.append(structs.replace(rung, config=config, differences=differences))
    found = cautions.of_import(
        members, cautions.compared(ladder), table, settings=compared, differences=differing, others=others
    )
    return structs.replace(plan, rungs=tuple(resolved)), found


# What was understood, a line each


def score_sentence(table: ImportTable, known: Mapping[str, int]) -> str:
    step = {"last": "at the last step", "best": f"at the best step by {table.metric_for_choice}"}
    at = step.get(str(table.at), f"at step {table.at}")
    if table.protocol == "best-of-test":
        at = "the best of all steps, which was chosen on the test split"
    better = "higher is better" if table.direction == "max" else "lower is better"
    unit = f", in {'per cent' if table.unit == '%' else table.unit}" if table.unit else ""
    read = ", divided by 100" if table.per_cent else ""
    others = [name for name in known if name != table.metric]
    more = f"; other metrics: {', '.join(others[:8])}" if others else ""
    more += f" and {len(others) - 8} more" if len(others) > 8 else ""
    return f"score: {table.metric}, {at}; {better}{unit}{read}{more}"


def seed_sentences(table: ImportTable, runs: Sequence[TrackedRun]) -> list[str]:
    if not table.seed:
        why = understanding.no_seeds(runs) or "no setting has them"
        return [f"seeds: {why}: the runs of a rung are numbered, and that they are independent is your word"]
    values = {understanding.text_of(run.settings.get(table.seed)) for run in runs} - {"none", ""}  # whatever they are
    return [f"seeds: the setting {table.seed}, with {plural(len(values), 'value')}"]


def fresh_sentences(basis: Basis, gone: int) -> list[str]:
    sentence = f"{basis.recipe.task} was imported before; without {basis.recipe.path}, it begins again"
    if gone:
        verb = "does" if gone == 1 else "do"
        sentence += f", so that {plural(gone, 'run')} that the source no longer has {verb} not count"
    return [sentence]


def rung_sentences(
    ladder: Ladder, placed: Sequence[Placed], kept: Sequence[tuple[Placed, str]], by: Sequence[str]
) -> list[str]:
    every = [*placed, *(place for place, _ in kept)]
    counts = {name: sum(place.rung == name and place.stage == "train" for place in every) for name in ladder.bases}
    of_by = f" by {', '.join(by)}" if by else ""
    listed = ", ".join(f"{name} ({plural(count, 'run')})" for name, count in counts.items())
    sentences = [f"rungs{of_by}: {listed}"]
    bases = {name: base for name, base in ladder.bases.items() if base is not None}
    if len(set(bases.values())) == 1:
        sentences[0] += f"; compared with {next(iter(bases.values()))}"
    elif bases:
        sentences[0] += f"; bases: {', '.join(f'{name} on {base}' for name, base in bases.items())}"
    single = [name for name, count in counts.items() if count == 1]
    if single:
        sentences.append(f"a single run: {', '.join(single)}; a verdict needs several seeds of each rung")
    if kept:
        sentences.append(f"{plural(len(kept), 'run')} of earlier imports, which the source no longer has, still count")
    return sentences


def outside_sentences(outside: Sequence[str]) -> list[str]:
    if not outside:
        return []
    verb = "fits" if len(outside) == 1 else "fit"
    more = f" and {len(outside) - 5} more" if len(outside) > 5 else ""
    return [f"{plural(len(outside), 'run')} {verb} no rung: {', '.join(outside[:5])}{more}"]
