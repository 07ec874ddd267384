"""What changes the reading of verdicts on imported runs: a function for each rule, which yields cautions.

Where a rule is about *comparisons*, these are pairs of rungs: a rung with its base, and the rungs of a claim. *Counted*
runs are those with a result. Cautions on seeds and repeats are in `repeats`, those on chosen settings in `choosing`.
Reports have their own on missing runs and unequal shares of them, and on verdicts that hold for these test items alone.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from lrurun.config import metric_names
from lrurun.errors import plural
from lrurun.imported import scoring, understanding
from lrurun.imported.understanding import is_number
from lrurun.instances.import_record import Caution
from lrurun.judging import ranks
from lrurun.judging.statistics import ALPHA
from lrurun.ledger.where.grammar import comparable, in_floats

if TYPE_CHECKING:
    from lrurun.config.imported import ImportTable
    from lrurun.config.ladder import Ladder
    from lrurun.imported.scoring import ScoredRun

Members = Mapping[str, Sequence["ScoredRun"]]
"""Rung -> the runs that verdicts are about, and those that are missing there."""
Pairs = Sequence[tuple[str, str]]
"""The rungs that are compared."""

_BUDGET = 0.01
"""Numbers of steps that differ by more than this share are unequal [ours]: the last evaluation of equal runs may differ
by a step."""
_EARLY = 0.9
"""A run that ends before this share of the median of its rung ends early [ours]."""
_SHOWN = 4
"""Rungs, settings, values and runs that a sentence lists."""


def compared(ladder: Ladder) -> list[tuple[str, str]]:
    """The pairs of rungs that a ladder compares: each rung with its base, and those of claims."""
    pairs = [(rung, base) for rung, base in ladder.bases.items() if base is not None]
    pairs += [(claim.rung, claim.than) for claim in ladder.claims if claim.than is not None]
    return list(dict.fromkeys(pairs))


def of_import(
    members: Members,
    pairs: Pairs,
    table: ImportTable,
    *,
    settings: Collection[str] = (),
    differences: Mapping[str, Sequence[str]] | None = None,
    are_by_project: bool = False,
    others: Iterable[Caution] = (),
) -> list[Caution]:
    """All cautions, those with a text for the first screen before the others.

    Args:
        members: the runs of each rung that verdicts are about, and those that are missing there.
        pairs: the rungs that are compared.
        settings: the settings that may matter, without names, paths and other marks of single runs.
        differences: rung -> the settings in which it differs from its base.
        are_by_project: conditions of rungs name the project, so that verdicts are about it.
        others: the cautions on seeds and choices.
    """
    cautions = [
        *best_of_test(table),
        *split_of_score(table),
        *mixed_units(members, table),
        *others,
        *only_values(members, table),
        *unequal_budgets(members, pairs, table),
        *early_ends(members),
        *unequal_data(members, pairs),
        *unequal_code(members, pairs),
        *(() if are_by_project else several_projects(members, pairs)),
        *varying_settings(members, pairs, table, settings),
        *several_differences(differences or {}, table),
        *failures(members, table),
        *states_of_runs(members, table),
        *seeds_of_sacred(table),
        *steps_back(members),
    ]
    return sorted(cautions, key=lambda caution: not caution.short)


def best_of_test(table: ImportTable) -> Iterator[Caution]:
    """A caution wherever the best test score of each run counts."""
    if table.protocol == "best-of-test":
        yield Caution(
            short="best of test",
            full="Each run counts with the best of its test scores, which was selected on what it measures: scores are "
            "too good, and more so where runs have more evaluations or scatter more.",
        )


def split_of_score(table: ImportTable) -> Iterator[Caution]:
    """A caution where the score is one of the validation or the training split, by its name."""
    split = metric_names.split_of(table.metric)
    if split not in ("validation", "training"):
        return
    full = f"The score, {table.metric}, is of the {split} split by its name: "
    full += (
        "scores are too good where steps or settings were chosen by it, and more so where more were tried."
        if split == "validation"
        else "it says how well runs fit what they were trained on."
    )
    if metric_names.is_best_of_steps(table.metric, table.direction):
        full += " It is the best of several steps, which was selected on what it measures."
    yield Caution(short=f"the score is of {split}", full=full)


def mixed_units(members: Members, table: ImportTable) -> Iterator[Caution]:
    """A caution on rungs with scores of at most 1 % where others are above 1.5 %, by the word of the user."""
    above, fractions = scoring.fractions_among([run for runs in members.values() for run in runs], table)
    if table.per_cent and above is not None and fractions:
        small = {run.key for run in fractions}
        yield Caution(
            short="per cent and fractions",
            full=f"All values of {table.metric} are read as per cent, and those of {plural(len(fractions), 'run')} are "
            f"at most 1, as fractions are: {_listed([run.label for run in fractions])}.",
            rungs=tuple(rung for rung, runs in members.items() if any(run.key in small for run in runs)),
        )


def unequal_budgets(members: Members, pairs: Pairs, table: ImportTable) -> Iterator[Caution]:
    """A caution on comparisons of two rungs whose counted runs end, or have their last scores, at unequal steps: the
    medians differ by more than 1 %. Where all are scored at the same step, it is among the details, as a schedule may
    depend on the end."""
    ends = _last_steps(members)
    medians = {rung: statistics.median(steps) for rung, steps in ends.items()}
    unequal = {
        rung
        for pair in pairs
        if all(rung in medians for rung in pair)
        and max(medians[rung] for rung in pair) - min(medians[rung] for rung in pair)
        > _BUDGET * max(medians[rung] for rung in pair)
        for rung in pair
    }
    if unequal:
        rungs = tuple(rung for rung in members if rung in unequal)
        listed = _listed([f"{rung} {medians[rung]:,.0f}" for rung in rungs])
        at_step = isinstance(table.at, int)
        scored = f"; all are scored at step {table.at}" if at_step else ", and more steps alone may make a rung better"
        yield Caution(
            short="" if at_step else "unequal budgets",
            full=f"Runs end, or have their last scores, at unequal steps, by the medians of rungs: {listed}{scored}.",
            rungs=rungs,
        )


def early_ends(members: Members) -> Iterator[Caution]:
    """A caution on rungs with counted runs that end, or have their last score, before nine tenths of the median of
    their rung: trackers may call a run finished that was killed."""
    sentences, rungs = [], []
    for rung, steps in _last_steps(members).items():
        median = statistics.median(steps)
        early = [run.label for run in members[rung] if run.has_result and 0 < run.end < _EARLY * median]
        if early:
            rungs.append(rung)
            sentences.append(f"{rung} {len(early)} of {len(steps)} with a median of {median:,.0f}: {_listed(early)}")
    if sentences:
        yield Caution(
            short="runs that end early",
            full="Runs end, or have their last score, before nine tenths of the steps of their rung, as if they were "
            f"stopped early or killed: {_listed(sentences, '; ')}.",
            rungs=tuple(rungs),
        )


def unequal_data(members: Members, pairs: Pairs) -> Iterator[Caution]:
    """A caution on comparisons whose counted runs have more than one version of the data, of those that are known."""
    yield from _versions(members, pairs, lambda run: run.run.data, "unequal data", "Compared runs used unequal data")


def unequal_code(members: Members, pairs: Pairs) -> Iterator[Caution]:
    """A caution on comparisons whose counted runs have more than one version of the code, of those that are known."""
    yield from _versions(members, pairs, lambda run: run.run.code, "unequal code", "Compared runs used unequal code")


_OF_PLACES = ("lightning", "dvclive")
"""Sources whose projects are names of folders alone, as of one for each rung."""


def several_projects(members: Members, pairs: Pairs) -> Iterator[Caution]:
    """A caution on counted runs of several projects. Where they have equal shares in all rungs that are compared, it
    is among the details."""
    counts = {
        rung: Counter(run.run.project for run in runs if run.has_result and run.tracker not in _OF_PLACES)
        for rung, runs in members.items()
    }
    if len({project for count in counts.values() for project in count}) < 2:
        return
    unequal = {rung for one, other in pairs if _shares(counts[one]) != _shares(counts[other]) for rung in (one, other)}
    rungs = tuple(rung for rung in members if counts[rung] and (rung in unequal or not unequal))
    texts = {
        rung: [f"{project or 'none'} ({plural(count, 'run')})" for project, count in counts[rung].items()]
        for rung in rungs
    }
    how = "and not alike in those that are compared" if unequal else "alike in those that are compared"
    yield Caution(
        short="unequal projects" if unequal else "",
        full=f"Runs are of several projects, {how}: {_by_rung(texts)}. --project reads one of them.",
        rungs=rungs,
    )


def _versions(
    members: Members, pairs: Pairs, version_of: Callable[[ScoredRun], str], short: str, full: str
) -> Iterator[Caution]:
    versions = {
        rung: Counter(version for run in runs if run.has_result and (version := version_of(run)))
        for rung, runs in members.items()
    }
    unequal = {rung for pair in pairs if len({v for rung in pair for v in versions.get(rung, ())}) > 1 for rung in pair}
    rungs = tuple(rung for rung in members if rung in unequal and versions[rung])
    if rungs:
        counts = {
            rung: [f"{version[:12]} ({plural(count, 'run')})" for version, count in versions[rung].items()]
            for rung in rungs
        }
        listed = _listed([f"{rung} {_listed(texts)}" for rung, texts in counts.items()], "; ")
        yield Caution(short=short, full=f"{full}: {listed}.", rungs=rungs)


def varying_settings(
    members: Members, pairs: Pairs, table: ImportTable, settings: Collection[str]
) -> Iterator[Caution]:
    """Cautions on settings with several values among the counted runs of a rung, without the seed, scores and what is
    chosen. One whose values are alike in all rungs that are compared with it is among the details.

    Values are alike if each has the same share in both rungs. Numbers that vary in both, and of which more than half
    are different, as of a random search, are alike unless the ranges do not overlap, or the rank test of verdicts finds
    a difference at 5 %.
    """
    left_out = {table.seed, table.metric, table.metric_for_choice, table.items, *table.choose}
    unbalanced: dict[str, list[str]] = {}
    balanced: dict[str, list[str]] = {}
    for name in settings:
        if name in left_out:
            continue
        values = {
            rung: [run.run.settings.get(name) for run in runs if run.has_result] for rung, runs in members.items()
        }
        for rung, of_rung in values.items():
            if len(set(map(comparable, of_rung))) > 1:
                others = [other for pair in pairs if rung in pair for other in pair if values.get(other)]
                equal = all(_alike(of_rung, values[other]) for other in others)
                (balanced if equal else unbalanced).setdefault(rung, []).append(f"{name} ({_shown_values(of_rung)})")
    if unbalanced:
        yield Caution(
            short="settings vary within rungs",
            full=f"Settings vary among the runs of a rung, and not alike in those compared: {_by_rung(unbalanced)}. "
            "Verdicts are about the mixture.",
            rungs=tuple(unbalanced),
        )
    if balanced:
        yield Caution(
            short="",
            full=f"Settings vary among the runs of a rung, alike in those compared: {_by_rung(balanced)}. Verdicts are "
            "about the mixture.",
            rungs=tuple(balanced),
        )


def several_differences(differences: Mapping[str, Sequence[str]], table: ImportTable) -> Iterator[Caution]:
    """A caution on rungs that differ from their base in more than one setting, without what is chosen."""
    several = {
        rung: names
        for rung, every in differences.items()
        if len(names := [name for name in every if name not in table.choose]) > 1
    }
    if several:
        listed = _listed([f"{rung} in {_listed(names)}" for rung, names in several.items()], "; ")
        yield Caution(
            short="more than one difference from the base",
            full=f"Rungs differ from their base in more than one setting: {listed}. Verdicts are about all of them "
            "together.",
            rungs=tuple(several),
        )


def failures(members: Members, table: ImportTable) -> Iterator[Caution]:
    """A caution that crashed runs count as failures, wherever some do."""
    count = sum(run.state == "diverged" for runs in members.values() for run in runs)
    if table.crashed == "failed" and count:
        yield Caution(
            short="",
            full=f"{plural(count, 'run')} that crashed or were killed count as failures, which rank below all others.",
        )


def states_of_runs(members: Members, table: ImportTable) -> Iterator[Caution]:
    """A caution that the states of runs are not known, where the source has none for any run, or cannot be trusted, as
    MLflow's."""
    runs = [run for of_rung in members.values() for run in of_rung]
    if table.from_ == "mlflow":
        full = (
            "MLflow also calls runs finished that ended by an exception outside of a `with` block, and those that were "
            "killed may be running for ever: states may be wrong in both directions."
        )
        yield Caution(short="", full=full)
    elif runs and all(run.run.state == "finished" and not run.run.state_text for run in runs):
        full = "The source does not say how runs ended: all with a score count as if they had ended well."
        yield Caution(short="", full=full)


def seeds_of_sacred(table: ImportTable) -> Iterator[Caution]:
    """A caution on the setting `seed` of Sacred, which it sets itself."""
    if table.from_ == "sacred" and table.seed == "seed":
        full = "Sacred gives every run a seed, at random where none was set, whether or not the program uses it."
        yield Caution(short="", full=full)


def steps_back(members: Members) -> Iterator[Caution]:
    """Cautions on runs whose steps go back: after an attempt that was abandoned, or from two writers."""
    rules = {
        "attempts": "as after an attempt that was abandoned: its points from there on do not count",
        "writers": "as of two writers: at each step the value that was recorded last counts",
    }
    for why, rule in rules.items():
        runs = [run.label for of_rung in members.values() for run in of_rung if run.went_back == why]
        if runs:
            yield Caution(
                short="",
                full=f"The steps of {plural(len(runs), 'run')} go back, {rule} ({_listed(runs)}).",
                rungs=tuple(rung for rung, of_rung in members.items() if any(run.went_back == why for run in of_rung)),
            )


def only_values(members: Members, table: ImportTable) -> Iterator[Caution]:
    """A caution on runs that are scored at their only value, although the best step of runs counts."""
    counts = {rung: sum(run.at_only_value for run in runs if run.has_result) for rung, runs in members.items()}
    rungs = tuple(rung for rung, count in counts.items() if count)
    if table.at == "best" and rungs:
        listed = _listed([f"{rung} {counts[rung]} of {sum(run.has_result for run in members[rung])}" for rung in rungs])
        yield Caution(
            short="runs without a best step",
            full=f"Runs without curves of both {table.metric} and {table.metric_for_choice} are scored at their only "
            f"value: {listed}. Rungs with more of them are scored by another rule.",
            rungs=rungs,
        )


def _last_steps(members: Members) -> dict[str, list[int]]:
    """Rung -> the last steps of the scores of its counted runs, where they are known, else of the runs."""
    ends = {rung: [run.end for run in runs if run.has_result and run.end > 0] for rung, runs in members.items()}
    return {rung: steps for rung, steps in ends.items() if steps}


def _alike(mine: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether a setting has alike values in two rungs, see `varying_settings`."""
    counts = [Counter(map(comparable, values)) for values in (mine, other)]
    are_numbers = all(is_number(value) and math.isfinite(in_floats(value)) for value in (*mine, *other))
    are_drawn = are_numbers and 2 * len(counts[0] | counts[1]) > len(mine) + len(other)
    if not are_drawn or min(map(len, counts)) < 2:
        return _shares(counts[0]) == _shares(counts[1])
    if max(mine) < min(other) or max(other) < min(mine):
        return False
    p = ranks.p_values(tuple(map(in_floats, mine)), tuple(map(in_floats, other))).two_sided
    return p > ALPHA


def _shares(counts: Counter[str]) -> dict[str, Fraction]:
    """Value -> its share."""
    return {value: Fraction(count, counts.total()) for value, count in counts.items()}


def _shown_values(values: Sequence[Any]) -> str:
    """The values of a setting; of many numbers, their range."""
    texts = {comparable(value): understanding.text_of(value) for value in values}
    if len(texts) > _SHOWN and all(map(is_number, values)):
        numbers = list(map(in_floats, values))
        return f"{min(numbers):.4g} to {max(numbers):.4g}, median {statistics.median(numbers):.4g}"
    return _listed(texts.values())


def _listed(names: Collection[str], separator: str = ", ") -> str:
    return understanding.listed(names, _SHOWN, separator)


def _by_rung(texts: Mapping[str, Sequence[str]]) -> str:
    return _listed([f"{rung}: {_listed(of_rung)}" for rung, of_rung in texts.items()], "; ")
