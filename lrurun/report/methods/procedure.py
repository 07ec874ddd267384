"""Sentences on how runs were made: seeds, learning rates and other chosen settings, the budget, the selection."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lrurun.config import wording
from lrurun.config.recipe import Range
from lrurun.config.resolve import RATE, RateSource
from lrurun.config.schema import RunConfig
from lrurun.report.methods.evidence import Evidence
from lrurun.report.methods.wording import (
    Sentence,
    by_value,
    capital,
    count,
    decimal,
    grouped,
    has_been,
    listed,
    plain,
    seeds,
    spanned,
    times,
    value_text,
    word,
)

if TYPE_CHECKING:
    from lrurun.report.tables.ladder_table import Tuning


def sentences(evidence: Evidence) -> Iterator[Sentence]:
    yield _seeds(evidence)
    kind = evidence.loaded.plan.kind
    if kind != "imported":
        yield from _rates(evidence)
        yield from _recipe(evidence)
    if kind == "training":
        yield from _budget(evidence)
    yield from _selection(evidence)


# Seeds


def _seeds(evidence: Evidence) -> Sentence:
    by_rung = {rung: tuple(run.seed for run in runs) for rung, runs in _own(evidence).items()}
    facts = {"seeds": {rung: list(numbers) for rung, numbers in by_rung.items()}}
    table = evidence.loaded.plan.recipe.imported
    if table is not None and not table.seed:
        text = "Seeds are not recorded: the runs of a variant were taken as repetitions, "
        text += by_value({rung: f"{len(numbers)}" for rung, numbers in by_rung.items()}, every="each variant") + "."
        return Sentence(about="seeds", text=text, facts=facts)
    if len(set(by_rung.values())) == 1:
        numbers = next(iter(by_rung.values()))
        which = "seed" if len(numbers) == 1 else "seeds"
        text = f"Each variant has results of {count(len(numbers), 'random seed')} ({which} {seeds(numbers)})."
        return Sentence(about="seeds", text=text, facts=facts)
    parts = {rung: f"{len(numbers)} ({seeds(numbers)})" for rung, numbers in by_rung.items()}
    text = f"The numbers of random seeds with results (and the seeds) were {by_value(parts)}."
    return Sentence(about="seeds", text=text, facts=facts)


def _own(evidence: Evidence) -> dict[str, list[Any]]:
    """Rung -> its results, without rungs that share all runs with their base."""
    return evidence.by_rung(evidence.results)


# Learning rates


def _rates(evidence: Evidence) -> Iterator[Sentence]:
    if evidence.loaded.plan.is_of_models:
        yield from _given_rates(evidence)
    yield from _tuning(evidence)


def _given_rates(evidence: Evidence) -> Iterator[Sentence]:
    """Sentences on learning rates that were not chosen in these runs, one for each source."""
    rows = {row.rung: row for row in evidence.report.rows if row.rung in evidence.rungs}
    estimated = {
        rung
        for rung, (run, *_) in evidence.by_rung(evidence.results).items()
        if isinstance(run.config, RunConfig) and wording.estimates_rate(run.config.optim)
    }
    tuned = {rung for rung, row in rows.items() if row.rate_source is not None and row.rate_source.kind == "tuned"}
    sources: dict[tuple[str, str], dict[str, float]] = {}
    for rung, row in rows.items():
        if rung in tuned | estimated or row.rate_source is None or row.learning_rate is None:
            continue
        sources.setdefault((row.rate_source.kind, _reason(row.rate_source)), {})[rung] = row.learning_rate
    for (kind, reason), rates in sources.items():
        every = "all variants" if len(rates) == len(rows) else listed(rates)
        values = by_value({rung: decimal(rate) for rung, rate in rates.items()}, every=every)
        verb = "was" if len(set(rates.values())) == 1 else "were"
        noun = "learning rate" if verb == "was" else "learning rates"
        text = f"The peak {noun} {verb} {values}, {_SOURCES[kind]}{f' ({reason})' if reason else ''}."
        yield Sentence(about="learning rates", text=text, facts={"source": kind, "reason": reason, "rates": rates})


_SOURCES = {
    "published": "as published",
    "chosen": "fixed before these runs",
    "set": "set by hand, not tuned",
    "default": "not tuned for these variants",
    "elsewhere": "as the runs were made elsewhere",
}


def _reason(source: RateSource) -> str:
    """What the documents say of a learning rate beyond its kind."""
    if source.kind == "set":
        return ""
    if source.kind == "default":
        return plain(source.text.partition(", untuned")[0])
    return plain(source.text.partition(": ")[2] or source.text.removeprefix("published").strip(" ,:"))


def _tuning(evidence: Evidence) -> Iterator[Sentence]:
    """Sentences on the settings that were chosen on validation: what was tried, and what was chosen."""
    plan = evidence.loaded.plan
    runs = evidence.by_rung(evidence.tuning, "tune")
    if not plan.tune or not runs:
        return
    tried: dict[str, str] = {}
    facts: dict[str, Any] = {"points": {}, "seeds": {}, "values": {}, "chosen": {}, "at_edge": {}, "runs": 0}
    for rung, members in runs.items():
        paths = plan.free(rung)
        points: dict[str, set[int]] = {}
        values: dict[str, list[Any]] = {path: [] for path in paths}
        for run in members:
            point = [evidence.setting(run, path) for path in paths]
            points.setdefault(json.dumps(point, default=str), set()).add(run.seed)
            for path, value in zip(paths, point, strict=True):
                if value not in values[path]:
                    values[path].append(value)
        numbers = {len(own) for own in points.values()}
        tried[rung] = _tried_text(evidence, rung, values, len(points), numbers)
        facts["points"][rung] = len(points)
        facts["seeds"][rung] = sorted({run.seed for run in members})
        facts["values"][rung] = {path: sorted(each, key=str) for path, each in values.items()}
    distinct = {run.id for members in runs.values() for run in members}
    facts["runs"] = len(distinct)
    score = evidence.report.score.title
    everywhere = len(runs) == len(evidence.rungs) and len(set(tried.values())) == 1
    for text, rungs in grouped(tried).items():
        of_rungs = "each variant" if everywhere else listed(rungs)
        yield Sentence(
            about="tuning",
            text=f"For {of_rungs}, {text}; the choice fell on the best mean validation {score}.",
            facts={**facts, "rungs": list(rungs)},
        )
    yield from _chosen(evidence, runs, facts)
    if (tuning := evidence.report.tuning) is None:
        return
    if tuning.added:
        yield _extension(tuning)
    if tuning.at_edge:
        names = listed(tuning.at_edge)
        text = f"The best value tried lay at an end of the range for {names}, so that a better one may lie beyond."
        yield Sentence(about="edges", text=text, facts={"at_edge": tuning.at_edge})


def _extension(tuning: Tuning) -> Sentence:
    """A sentence on the values that were added beyond the ends of the ranges."""
    text = (
        "While the best value of a variant lay at an end of those tried, the next value by their ratio was added, up "
        f"to {word(tuning.extend)} for each variant; "
    )
    by_variant = {rung: word(number) if number else "none" for rung, number in tuning.added.items()}
    numbers = listed(f"{number} for {listed(rungs)}" for number, rungs in grouped(by_variant).items())
    if len(set(tuning.added.values())) == 1:
        numbers = f"{next(iter(by_variant.values()))} for each variant that was tuned"
    text += f"this added {numbers}."
    if len(set(tuning.points.values())) > 1:
        text += " A variant with more values had more chances of a high validation score."
    facts = {"extend": tuning.extend, "added": tuning.added, "points": tuning.points}
    return Sentence(about="extension", text=text, facts=facts)


def _tried_text(
    evidence: Evidence, rung: str, values: Mapping[str, list[Any]], points: int, seed_counts: set[int]
) -> str:
    """What was tried for a rung, for example "the learning rate was chosen from three values (...), ..."."""
    plan = evidence.loaded.plan
    grid = next(resolved.grid for resolved in plan.rungs if resolved.name == rung)
    free = {path: tried for path, tried in values.items() if len(tried) > 1 or isinstance(grid.get(path), Range)}
    free = free or dict(values)
    names = [_name(path) for path in free]
    number = count(max(seed_counts), "seed") if len(seed_counts) == 1 else f"{spanned(sorted(seed_counts))} seeds"
    trained = f"each trained with {number}"
    trained += " that entered no comparison"
    verb = "was" if len(names) == 1 else "were"
    what = f"{'the ' if names[0] == 'learning rate' else ''}{listed(names)} {verb} chosen"
    if plan.search is not None:
        method = "random search" if plan.search.method == "random" else "a tree-structured Parzen estimator"
        ranges = listed(f"{_name(path)} {grid[path]}" for path in free)
        return f"{what} by {method} with {count(points, 'trial')} ({ranges}), {trained}"
    lists = {path: listed(map(value_text, _sorted(tried))) for path, tried in free.items()}
    if len(free) == 1:
        path, tried = next(iter(free.items()))
        if len(tried) == 1:
            return f"only one {_name(path)} was tried ({lists[path]}), {trained}"
        return f"{what} from {word(len(tried))} values ({lists[path]}), {trained}"
    each = listed(f"{_name(path)} of {lists[path]}" for path in free)
    return f"{what} from {count(points, 'combination')} ({each}), {trained}"


def _chosen(evidence: Evidence, runs: Mapping[str, Any], facts: dict[str, Any]) -> Iterator[Sentence]:
    """A sentence on the chosen values, as the final runs have them."""
    plan = evidence.loaded.plan
    by_path: dict[str, dict[str, str]] = {}
    values: dict[str, dict[str, Any]] = {}
    for rung, members in evidence.by_rung(evidence.results).items():
        for path in plan.free(rung) if rung in runs else ():
            tried = facts["values"][rung].get(path, ())
            if len(tried) > 1:
                value = evidence.setting(members[0], path)
                by_path.setdefault(path, {})[rung] = value_text(value)
                values.setdefault(rung, {})[path] = value
    if not by_path:
        return
    parts = []
    for path, found in by_path.items():
        several = len(set(found.values())) > 1
        verb = "values of" if several else "value of"
        what = ("learning rates" if several else "learning rate") if path == RATE else f"{verb} {_name(path)}"
        parts.append(f"the chosen {what} {'were' if several else 'was'} {by_value(found, every='all variants')}")
    yield Sentence(about="chosen", text=f"{capital('; '.join(parts))}.", facts={"chosen": values})


def _sorted(values: list[Any]) -> list[Any]:
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return sorted(values) if is_number else values


def _name(path: str) -> str:
    return "learning rate" if path == RATE else path.rpartition(".")[2]


# Recipe and budget


def _recipe(evidence: Evidence) -> Iterator[Sentence]:
    recipe = evidence.loaded.plan.recipe
    source = plain(recipe.about.source)
    if not source:
        return
    who = "the developers of the software" if recipe.is_packaged else "the authors"
    own = re.match(r"ours\b[:,]?\s*", source)
    if own is None:
        text = f"The settings have this source: {source}"
    else:
        rest = source[own.end() :]
        text = f"The settings were chosen by {who}{f' ({rest})' if rest else ''}"
    yield Sentence(
        about="recipe", text=f"{text.rstrip('.')}.", facts={"source": source, "packaged": recipe.is_packaged}
    )


def _budget(evidence: Evidence) -> Iterator[Sentence]:
    steps, batch, every = (evidence.settings(f"train.{name}") for name in ("steps", "batch", "eval_every"))
    if not (steps and batch and every):
        return
    runs = {run.config_id: run for run in evidence.results}.values()
    evaluations = sorted(
        {math.ceil(evidence.setting(r, "train.steps") / evidence.setting(r, "train.eval_every")) for r in runs}
    )
    by_rung = _trainings(evidence)
    common = {about: by_rung[0] for about, by_rung in _by_aspect(by_rung).items() if len(set(by_rung)) == 1}
    text = f"Each run was trained for {spanned(steps)} {'step' if steps == [1] else 'steps'}"
    if "optimizer" in common:
        text += f" with {common['optimizer']}" + ("," if ", " in common["optimizer"] else "")
    text += f" on batches of {spanned(batch)} {'sequence' if batch == [1] else 'sequences'}"
    text += f", with {common['schedule']}" if "schedule" in common else ""
    text += "".join(
        f", {common[about]}" for about in ("recurrent rate", "decay", "clipping", "accumulation") if common.get(about)
    )
    facts = {"steps": steps, "batch": batch, "eval_every": every, "evaluations": evaluations}
    facts |= {name: evidence.settings(f"optim.{name}") for name in _FACTS}
    often = times(evaluations[0]) if len(evaluations) == 1 else f"{spanned(evaluations)} times"
    text += f", and evaluated on the validation split {often}"
    yield Sentence(about="budget", text=f"{text}.", facts=facts)
    if common.get("average"):
        text = f"Evaluations and kept models had {common['average']} in place of the parameters that were trained."
        yield Sentence(about="average", text=text, facts={"average": evidence.settings("optim.average")})
    for about, noun in _ASPECTS.items():
        if about not in common:
            texts = {rung: phrases[about] for rung, phrases in by_rung.items()}
            yield Sentence(
                about=about, text=f"{noun}: {_for_rungs(texts, _OTHERS.get(about, 'none'))}.", facts={"by_rung": texts}
            )


_FACTS = (
    *("name", "warmup", "warmup_steps", "schedule", "cooldown", "floor", "weight_decay", "recurrent_factor"),
    *("decay_recurrent", "decay_norm_bias", "clip", "clip_by", "accumulate", "average", "average_decay"),
)
"""The settings of `optim` that sentences state, beside the learning rate."""
_ASPECTS = {
    "optimizer": "Optimisers",
    "schedule": "Schedules of the learning rate",
    "recurrent rate": "Learning rates of groups",
    "decay": "Weight decay",
    "clipping": "Clipping of gradients",
    "accumulation": "Accumulation of gradients",
    "average": "Averages, which were evaluated and kept in place of the parameters that were trained",
}
"""What rungs may differ in -> what a sentence on it is about."""
_OTHERS = {"recurrent rate": "one rate for all parameters"}
"""What rungs have that have nothing of the kind, if it is not none."""


def _trainings(evidence: Evidence) -> dict[str, dict[str, str]]:
    """Rung -> how its runs were trained, in phrases, which are empty where there is nothing to say."""
    trainings: dict[str, dict[str, str]] = {}
    for rung, (run, *_) in evidence.by_rung(evidence.results).items():
        if isinstance(run.config, RunConfig):
            optim = run.config.optim
            trainings[rung] = {
                "optimizer": wording.optimizer(optim, value_text, every=False),
                "schedule": wording.schedule(optim, value_text),
                "decay": wording.decay(optim, value_text),
                "recurrent rate": wording.recurrent_rate(optim, value_text),
                "clipping": wording.clipping(optim, value_text, source=True),
                "accumulation": wording.accumulation(optim),
                "average": wording.average(optim, value_text),
            }
    return trainings


def _by_aspect(trainings: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """What rungs may differ in -> the phrases of all rungs."""
    return {about: [phrases[about] for phrases in trainings.values()] for about in _ASPECTS}


def _for_rungs(texts: Mapping[str, str], nothing: str) -> str:
    """Texts that may have commas, each once with its rungs, for example "for a and b, x; for others, none"."""
    groups = grouped(texts)
    none = groups.pop("", None)
    parts = [f"for {listed(names)}, {text}" for text, names in groups.items()]
    return "; ".join([*parts, *([f"for others, {nothing}"] if none else [])])


# Selection


def _selection(evidence: Evidence) -> Iterator[Sentence]:
    plan, score = evidence.loaded.plan, evidence.report.score.title
    if plan.kind == "imported":
        yield from _imported_selection(evidence)
        return
    protocols = evidence.settings("train.protocol") if plan.is_of_models else []
    if plan.is_of_models and (protocols or ["holdout"]) != ["holdout"]:
        text = (
            "Models were selected as published, where that used the test split, so that these scores are too high as "
            "estimates for new data."
        )
        yield Sentence(about="selection", text=text, facts={"protocol": protocols})
        return
    text = f"Each run was evaluated on the test split once, at the step with the best validation {score}."
    if plan.kind == "program":
        text = (
            f"Each run counts with the test {score} that its program reported at the step with the best validation "
            f"{score}; whether the program itself selected on test data is not recorded."
        )
    yield Sentence(about="selection", text=text, facts={"protocol": protocols or None})


def _imported_selection(evidence: Evidence) -> Iterator[Sentence]:
    table = evidence.loaded.plan.recipe.imported
    assert table is not None
    facts: dict[str, Any] = {
        "at": table.at,
        "metric": table.metric,
        "metric_for_choice": table.metric_for_choice or None,
    }
    facts |= {"protocol": table.protocol, "choose": list(table.choose)}
    if table.protocol == "best-of-test":
        text = f"Each run counts with the best of all its values of {table.metric}, which were selected on what they "
        text += "measure and are too high"
    elif table.at == "best":
        text = f"Each run counts with its {table.metric} at the step with the best {table.metric_for_choice}"
    elif table.at == "last":
        text = f"Each run counts with its last recorded {table.metric}"
    else:
        text = f"Each run counts with its {table.metric} at step {table.at:,}"
    text += "; whether it was measured on data that nothing was selected on is not recorded."
    yield Sentence(about="selection", text=text, facts=facts)
    if table.choose:
        chosen = listed(table.choose)
        text = f"Of several values of {chosen}, those with the best {table.metric_for_choice} were chosen for each "
        text += "variant."
        runs = len(evidence.tuning)
        if runs:
            text += f" {capital(count(runs, 'run'))} served this choice alone and {has_been(runs)} not compared."
        yield Sentence(about="choice", text=text, facts={"choose": list(table.choose), "runs": runs})
    else:
        text = "How and among how many values their settings were tuned is not recorded."
        yield Sentence(about="tuning", text=text, facts={"tuned": None})
