"""Sentences on what was compared: the data, the rungs and their models, the program, the source of imported runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from lrurun.config.resolve import RATE, Difference, ResolvedRung
from lrurun.config.schema import KIND, OPTIMIZER, choice_for
from lrurun.config.tuning_grid import examples
from lrurun.data.task import SPLITS, Task
from lrurun.report.methods.evidence import Evidence
from lrurun.report.methods.wording import (
    Sentence,
    capital,
    count,
    has_been,
    listed,
    plain,
    short_digest,
    spanned,
    value_text,
    whose,
    word,
)

_MOST_CHANGES = 3
"""The most changed settings of a rung that are named beside its title."""


def sentences(evidence: Evidence) -> Iterator[Sentence]:
    yield from _rungs(evidence)
    kind = evidence.loaded.plan.kind
    if kind == "training":
        yield from _data(evidence)
        yield from _models(evidence)
    elif kind == "program":
        yield from _program(evidence)
    else:
        yield from _import(evidence)
    yield _metric(evidence)


# Rungs


def _rungs(evidence: Evidence) -> Iterator[Sentence]:
    plan, names = evidence.loaded.plan, evidence.rungs
    rungs = {rung.name: rung for rung in plan.rungs}
    title = plain(plan.task.title) if plan.is_of_models else ""
    profile = f"the reduced configuration {plan.profile} of its recipe" if plan.profile and plan.is_of_models else ""
    about = "; ".join(filter(None, [title, profile]))
    of_all = f" of the {word(len(rungs))}" if len(names) < len(rungs) else ""
    text = f"{capital(word(len(names)))}{of_all} {'variant' if len(rungs) == 1 else 'variants'} of a ladder "
    text += f"{has_been(len(names))} compared on {plan.recipe.task}{f' ({about})' if about else ''}."
    facts = {
        "rungs": list(names),
        "planned_rungs": len(rungs),
        "ladder": plan.ladder.name,
        "task": plan.recipe.task,
        "profile": plan.profile,
    }
    yield Sentence(about="ladder", text=text, facts=facts)
    # long lists are what they are: a reader must know each variant
    described = [
        _described(rungs[name], previous=previous, tuned=_tuned(evidence, name))
        for previous, name in zip([None, *names], names, strict=False)
    ]
    title = "" if plan.ladder.title in ("ladder", plan.ladder.name) else plan.ladder.title
    source = "; ".join(filter(None, [plain(title), whose(plain(plan.ladder.source), packaged=plan.ladder.is_packaged)]))
    ladder = f"ladder{f' ({source})' if source else ''}"
    begin = f"Of the {ladder}, these were compared" if len(names) < len(rungs) else f"The {ladder} had"
    text = f"{begin}: {'; '.join(described)}."
    changes = {name: {d.path: [d.before, d.after] for d in _changes(rungs[name], ())} for name in names}
    facts = {"bases": {name: rungs[name].on for name in names}, "changes": changes}
    yield Sentence(about="rungs", text=text, facts=facts)


def _tuned(evidence: Evidence, rung: str) -> tuple[str, ...]:
    """The settings of which several values were tried for a rung."""
    plan = evidence.loaded.plan
    grid = next(resolved.grid for resolved in plan.rungs if resolved.name == rung)
    return tuple(path for path in plan.free(rung) if len(examples(grid[path])) > 1)


def _described(rung: ResolvedRung, *, previous: str | None, tuned: tuple[str, ...]) -> str:
    """A rung with its title and what it changes, for example "wide (more units: width from 32 to 64)"."""
    parts = []
    if title := plain(rung.title):
        parts.append("" if title == rung.name else title)
    if rung.on is not None and rung.on != previous:
        parts.append(f"a change to {rung.on}")
    changes = _changes(rung, tuned)
    if rung.same_as_base:
        parts.append(f"here the same as {rung.on}")
    elif 0 < len(changes) <= _MOST_CHANGES:
        parts.append(", ".join(map(_change, changes)))
    inside = "; ".join(filter(None, parts)).replace("; ", ", ")
    return f"{rung.name} ({inside})" if inside else rung.name


def _changes(rung: ResolvedRung, tuned: tuple[str, ...]) -> list[Difference]:
    """The differences from the base that the rung itself makes: neither its learning rate, nor values that follow."""
    has_kind = any(difference.path == KIND for difference in rung.differences)
    has_optimizer = any(difference.path == OPTIMIZER for difference in rung.differences)
    return [
        difference
        for difference in rung.differences
        if difference.path != RATE
        and difference.path not in tuned
        and not difference.is_default
        and not (has_kind and difference.path != KIND and difference.path.startswith("model.recurrence."))
        and not (has_optimizer and _follows_from_optimizer(difference))
    ]


def _follows_from_optimizer(difference: Difference) -> bool:
    """Whether a setting that only some optimisers have is at the default of the new one, or is none of its own."""
    is_own = choice_for(difference.path) == OPTIMIZER
    return is_own and (difference.source == "default" or difference.after is None)


def _change(difference: Difference) -> str:
    name = "optimiser" if difference.path == OPTIMIZER else difference.path.rpartition(".")[2]
    if difference.before is None:
        return f"{name} = {value_text(difference.after)}"
    if difference.after is None:
        return f"without {name}"
    return f"{name} from {value_text(difference.before)} to {value_text(difference.after)}"


# Data


_KINDS = {
    "embedded": "were packaged with a library",
    "generated": "were generated",
    "imported": "were imported from arrays of the authors",
    "folder": "were read from a local copy",
    "download": "were downloaded",
}
_PUBLISHED = {
    "yes": "the digest of the archive is the published one",
    "no": "the digest of the archive is not the published one",
    "unverified": "no published digest is known to compare with",
}


def _data(evidence: Evidence) -> Iterator[Sentence]:
    plan = evidence.loaded.plan
    task = plan.task
    sizes, data = task.sizes(plan.options), evidence.loaded.data
    if sizes:
        estimated = any(task.tolerance(split) is None for split in SPLITS)
        numbers = listed(f"{sizes[split]:,} {name}" for split, name in _SPLIT_NAMES.items() if split in sizes)
        text = f"The data had {'about ' if estimated else ''}{numbers} sequences"
        if type(task).sampler is not Task.sampler and task.sampler(plan.options) is not None:
            held = f"{sizes['validation']:,} validation and {sizes['test']:,} test sequences"
            text = f"Every training step drew new sequences, and {'about ' if estimated else ''}{held} were fixed"
        further = sorted(task.further_tests(plan.options))
        text += f"; further test sets were {listed(further)}" if further else ""
        facts = {**sizes, "estimated": estimated, "further_tests": further}
        yield Sentence(about="sizes", text=f"{text}.", facts=facts)
    digests = sorted({run.data_sha256 for run in evidence.results if run.data_sha256})
    facts = {"sha256": digests, **{name: data.get(name) for name in ("kind", "source", "published")}}
    digest = f"SHA-256 digest of the arrays: {listed(map(short_digest, digests))}..." if digests else ""
    if not data:
        known = f" ({digest})" if digest else ""
        yield Sentence(about="data", text=f"The origin of the data is not recorded{known}.", facts=facts)
        return
    what = _KINDS.get(str(data.get("kind", "embedded")), "came from elsewhere")
    source = plain(_without_folders(str(data.get("source") or "")))
    details = [source, _PUBLISHED.get(str(data.get("published")), ""), digest]
    inside = "; ".join(filter(None, details))
    yield Sentence(about="data", text=f"The data {what}{f' ({inside})' if inside else ''}.", facts=facts)


_SPLIT_NAMES = {"train": "training", "validation": "validation", "test": "test"}


def _without_folders(text: str) -> str:
    """A text with the last part of each absolute path alone, which says nothing about who wrote it."""
    return " ".join(PurePath(part).name if part.startswith("/") else part for part in text.split(" "))


# Models


def _models(evidence: Evidence) -> Iterator[Sentence]:
    sizes = {name: evidence.settings(f"model.{name}") for name in ("depth", "width", "state")}
    parameters = sorted({run.parameters for run in evidence.results if run.parameters is not None})
    if not all(sizes.values()):
        return
    blocks, width, state = (sizes[name] for name in ("depth", "width", "state"))
    noun = "block" if blocks == [1] else "blocks"
    text = f"The networks had {spanned(blocks)} {noun} of width {spanned(width)} with a recurrent state of "
    text += spanned(state)
    if parameters:
        noun = "parameter" if parameters == [1] else "parameters"
        text += f", {spanned(parameters)} {noun} in all"
    else:
        text += "; their numbers of parameters are not recorded"
    facts = {**sizes, "parameters": [parameters[0], parameters[-1]] if parameters else None}
    yield Sentence(about="models", text=f"{text}.", facts=facts)


# Programs


def _program(evidence: Evidence) -> Iterator[Sentence]:
    plan = evidence.loaded.plan
    table = plan.recipe.program
    files = sorted({path for run in evidence.results for path in _files(run)})
    digests = {name: sorted({_files(run)[name] for run in evidence.results if name in _files(run)}) for name in files}
    known = [f"{name} (SHA-256 {listed(map(short_digest, digests[name]))}...)" for name in files]
    text = "Each run was one execution of a program of the authors"
    if known:
        text += f", whose {'file was' if len(known) == 1 else 'files were'} {listed(known)}"
        text += "" if all(len(each) == 1 for each in digests.values()) else ", which changed between runs"
    else:
        text += ", of whose files no digests are recorded"
    text += "; its data, model and optimiser are not known to the software that made the comparison"
    facts = {
        "files": digests,
        "command": None if table is None else [PurePath(part).name for part in table.command[:1]],
    }
    yield Sentence(about="program", text=f"{text}.", facts=facts)
    plain_values = (str, int, float, bool)
    tuned = {path for rung in evidence.rungs for path in _tuned(evidence, rung)}
    shared = evidence.shared_settings("settings.").items()
    settings = {path: value for path, value in shared if isinstance(value, plain_values) and path not in tuned}
    if settings:
        parts = listed(f"{path.removeprefix('settings.')} = {value_text(value)}" for path, value in settings.items())
        yield Sentence(about="settings", text=f"All variants had {parts}.", facts={"settings": settings})
    if items := plan.recipe.program and plan.recipe.program.test_items:
        text = f"The test set had {items:,} items; the sizes of the other splits are not recorded."
        yield Sentence(about="sizes", text=text, facts={"test": items})
    else:
        yield Sentence(about="sizes", text="The sizes of the data splits are not recorded.", facts={"test": None})


def _files(run: object) -> dict[str, str]:
    program = getattr(getattr(run, "config", None), "program", None)
    return {} if program is None else dict(program.files)


# Imports


def _import(evidence: Evidence) -> Iterator[Sentence]:
    record, table = evidence.report.imported, evidence.loaded.plan.recipe.imported
    assert table is not None
    if record is None:
        yield Sentence(about="import", text="Where the runs are from is not recorded.", facts={"sources": None})
    else:
        parts = [
            f"{count(source.runs, 'run')} from {_place(source.place)} ({source.version or source.tracker})"
            for source in record.sources
        ]
        text = f"The runs were made with other software and read from its records: {listed(parts)}"
        facts = {
            "sources": [
                {
                    "place": _place(source.place),
                    "tracker": source.tracker,
                    "version": source.version,
                    "runs": source.runs,
                }
                for source in record.sources
            ],
            "outside": len(record.outside),
        }
        if record.outside:
            many = len(record.outside)
            text += f"; {count(many, 'run')} fitted no variant and {has_been(many)} left out"
        yield Sentence(about="import", text=f"{text}.", facts=facts)
    items = table.test_items
    text = "Models, training data and software of these runs are known as far as those records go"
    text += f"; the test set had {items:,} items." if items else "; the sizes of the data splits are not recorded."
    yield Sentence(about="sizes", text=text, facts={"test": items})


def _place(place: str) -> str:
    return place if "://" in place else PurePath(place).name or place


# Metric


def _metric(evidence: Evidence) -> Sentence:
    form = evidence.report.score
    unit = {"": "", "%": ", in per cent"}.get(form.symbol, f", in {form.symbol}")
    better = "" if form.higher_is_better is None else f" ({'higher' if form.higher_is_better else 'lower'} is better)"
    plan = evidence.loaded.plan
    further = [metric.name.replace("_", " ") for metric in evidence.loaded.metrics[1:]] if plan.is_of_models else []
    text = f"The score of a run was its {form.on_test(form.title)}{unit}{better}"
    text += f"; {listed(further)} {has_been(len(further))} measured too" if further else ""
    facts = {"metric": evidence.report.metric, "higher_is_better": form.higher_is_better, "unit": form.symbol}
    return Sentence(about="metric", text=f"{text}.", facts={**facts, "further_metrics": further})
