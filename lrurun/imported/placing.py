"""An import before anything is written: its runs, their rungs and seeds, and the plan of the ladder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from lrurun.config import planning
from lrurun.config.imported import ImportTable
from lrurun.config.ladder import Ladder
from lrurun.config.recipe import Recipe
from lrurun.config.resolve import Difference
from lrurun.config.runs import pack
from lrurun.config.schema import SETTINGS, ImportedConfig, Origin
from lrurun.errors import UsageError, plural
from lrurun.imported import (
    cautions,
    choosing,
    conditions,
    earlier,
    exports,
    item_results,
    repeats,
    rungs,
    scoring,
    sources,
    steps,
    understanding,
)
from lrurun.imported.earlier import Earlier
from lrurun.imported.recording import Known, Placed
from lrurun.imported.repeats import RunKey
from lrurun.imported.scoring import LastAndBest, ScoredRun
from lrurun.imported.sources import OpenedSource, ReadRuns
from lrurun.instances.import_record import Caution
from lrurun.paths import shown
from lrurun.trackers import TrackedRun

_SHOWN = 12
"""Rungs that a line lists."""
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
    for_steps: tuple[str, ...]
    """The validation metrics by each of which the best step may be another one than the last, where the user leaves it
    open."""
    sentences: list[str]


def finished(basis: Basis, by: Sequence[str]) -> Understood:
    table, ladder = basis.table, basis.ladder
    scored: list[ScoredRun] = []
    both: dict[str, list[LastAndBest | None]] = {metric: [] for metric in basis.for_steps}
    metrics = sources.needed(table, basis.opened, basis.for_steps)
    for run, source in sources.with_curves(basis.read, basis.opened, metrics):
        scored.append(scoring.scored(run, source.tracker, table))
        for metric, of_metric in both.items():
            of_metric.append(scoring.last_and_best(run, table, metric))
    if all(run.result is None for run in scored):
        raise UsageError(
            f"{table.metric}: no run has a usable value of it: {scored[0].why}",
            "name another metric or step, or import finished runs",
        )
    scoring.check_best(scored, table, "--at best" if basis.is_new else f"{shown(basis.target)} [import], at")
    per_cent = basis.request.get("per_cent")
    option = "--no-per-cent" if per_cent is False else "--per-cent" if per_cent else "--unit %"
    word = option if basis.is_new else f"{basis.recipe.path} [import], per_cent"
    scoring.check_unit(scored, table, word=word, is_asked=not basis.is_new or per_cent is True)
    vanished_runs = earlier.vanished(basis.earlier, scored, table, basis.target.parent)
    # without its file, an import begins, with the numbers of seeds that its runs have in the ledger
    counted_again = [] if basis.is_new else vanished_runs.counted
    vanished = [earlier.scored_again(run, table) for run in counted_again]
    everything = scored + vanished
    sorted_runs = rungs.sort([(run.run, run.tracker) for run in everything], ladder)
    rungs.check_choice(table.choose, ladder, [run.run for run in everything])
    members = {name: [everything[index] for index in found] for name, found in sorted_runs.members.items()}
    titles = rungs.titles_of([run.run for run in scored])
    outside = [titles[index] for index in sorted_runs.outside if index < len(scored)]
    for metric, of_metric in both.items():
        by_rung = {
            name: [pair for index in found if index < len(scored) and (pair := of_metric[index]) is not None]
            for name, found in sorted_runs.members.items()
        }
        if (error := steps.step_to_name(by_rung, cautions.compared(ladder), table, metric)) is not None:
            raise error
    known = {run.key: run.run.seed for run in basis.earlier}
    gone = {run.key: run for run in counted_again}
    seeded = repeats.seeded(members, table, known, {key: run.parts for key, run in gone.items()})
    choices = choosing.chosen(seeded.rungs, table)
    names = dict(zip((source.name for source in basis.opened), table.source, strict=True))
    named: dict[RunKey, tuple[str, ...]] = {(r.project, r.id): (names[s.name],) for r, s in basis.read.runs}
    named |= {key: run.sources for key, run in gone.items()}
    placed: list[Placed] = []
    kept: list[tuple[Placed, str]] = []
    for number, choice in enumerate(choices):
        stages: dict[Literal["tune", "train"], Sequence[ScoredRun]] = {"tune": choice.tune, "train": choice.train}
        for stage, of_stage in stages.items():
            for order, seed in enumerate(of_stage):
                position = pack(number, stage, min(order, MOST_POSITIONS))
                parts = seeded.parts.get(seed.key, ())
                of_parts = [name for key in parts or (seed.key,) for name in named[key]]
                place = _placed(seed, choice.rung, stage, position, parts, of_parts)
                if seed.key in gone:
                    kept.append((place, gone[seed.key].run.id))
                else:
                    placed.append(place)
    placed, of_items = item_results.checked(placed, table)
    counted = {choice.rung: choice.train for choice in choices}
    on_vanished = earlier.on_vanished([place.scored for place, _ in kept])
    others = [*on_vanished, *seeded.cautions, *choosing.on_choices(choices, table), *of_items]
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
        known={run.origin: run.known for run in basis.earlier},
        outside=tuple(outside),
        choices=chosen,
        cautions=tuple(found_cautions),
        sentences=(
            *basis.sentences,
            *(fresh_sentences(basis, len(vanished_runs.counted)) if basis.is_new and basis.earlier else ()),
            *(() if basis.is_new else vanished_runs.sentences),
            *rung_sentences(ladder, placed, kept, by),
            *chosen,
            *seeded.sentences,
            *outside_sentences(outside),
        ),
    )


def _placed(
    run: ScoredRun,
    rung: str,
    stage: Literal["tune", "train"],
    position: int,
    parts: tuple[RunKey, ...],
    named: Sequence[str],
) -> Placed:
    assert run.seed is not None
    return Placed(
        scored=run,
        origin=sources.origin_of(run.run, run.tracker),
        seed=run.seed,
        rung=rung,
        stage=stage,
        position=position,
        parts=parts,
        sources=tuple(dict.fromkeys(named)),
    )


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
    compared = [each.name for each in understanding.varying(everything, left_out, with_drawn=True)]
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
        members,
        cautions.compared(ladder),
        table,
        settings=compared,
        differences=differing,
        are_by_project=conditions.PROJECT in rungs.named(ladder, everything),
        others=others,
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
    listed = _listed([f"{name} ({plural(count, 'run')})" for name, count in counts.items()])
    sentences = [f"rungs{of_by}: {listed}"]
    bases = {name: base for name, base in ladder.bases.items() if base is not None}
    if len(set(bases.values())) == 1:
        sentences[0] += f"; compared with {next(iter(bases.values()))}"
    elif bases:
        sentences[0] += f"; bases: {_listed([f'{name} on {base}' for name, base in bases.items()])}"
    single = [name for name, count in counts.items() if count == 1]
    if single:
        sentences.append(f"a single run: {_listed(single)}; a verdict needs several seeds of each rung")
    return sentences


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{', '.join(texts[:_SHOWN])}{more}"


def outside_sentences(outside: Sequence[str]) -> list[str]:
    if not outside:
        return []
    verb = "fits" if len(outside) == 1 else "fit"
    more = f" and {len(outside) - 5} more" if len(outside) > 5 else ""
    return [f"{plural(len(outside), 'run')} {verb} no rung: {', '.join(outside[:5])}{more}"]
