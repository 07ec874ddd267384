"""What runs of a tracker are about: which of their numbers may be scores and seeds, and which settings vary."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from lrurun.config.metric_names import direction_of, is_about_time, is_share, split_of, words
from lrurun.console import setting
from lrurun.errors import UsageError, hint_for, nearest, plural
from lrurun.ledger.where.grammar import comparable
from lrurun.trackers import Direction, TrackedRun, Value
from lrurun.trackers.numbers import number

_SEEDS = ("seed", "random_seed", "randomseed", "rng", "rng_seed", "manual_seed", "seed_everything", "random_state")
"""Last parts of the names of seeds, the surest first."""
_NO_SETTINGS = frozenset(
    (
        *("id", "name", "run", "run_id", "run_name", "uuid", "uid", "trial_id", "experiment_id", "hostname", "host"),
        *("user", "username", "pid", "git", "commit", "git_commit", "git_hash", "sha", "url", "path", "dir", "folder"),
        *("output_dir", "log_dir", "logdir", "save_dir", "run_dir", "notes", "description", "tags", "group", "job_id"),
        *("time", "date", "datetime", "timestamp", "created", "created_at", "started", "started_at", "start_time"),
        *("ended", "ended_at", "end_time", "finished_at", "duration", "runtime", "_runtime", "_timestamp", "_step"),
        *("elapsed", "walltime", "wall_time", "wandb_version", "state", "status", "step", "epoch"),
    )
)
"""Last parts of the names of what is no setting: ids, names, places and times."""

_OF_METRICS = ("weight", "coef", "coefficient", "scale", "factor", "lambda", "alpha", "beta", "gamma", "decay")
"""Last words of the names of settings that have the name of a metric before."""


def last_part(path: str) -> str:
    """The last part of a dotted or slashed name, in small letters."""
    return re.split(r"[./]", path)[-1].lower()


def recorded_direction(runs: Iterable[TrackedRun], metric: str) -> Direction | None:
    """Whether higher or lower values of a metric are better, as the tracker has it; None if it has not.

    Raises:
        UsageError: its studies differ.
    """
    found = {run.directions[metric]: run for run in runs if metric in run.directions}
    if len(found) > 1:
        projects = f"lower in {found['min'].project}, higher in {found['max'].project}"
        raise UsageError(
            f"{metric}: which values are better depends on the study: {projects}",
            "import one of them with --project, or name --direction",
        )
    return next(iter(found), None)


def is_number(value: Any) -> bool:
    """Whether the value of a setting is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float | None:
    """The number in a column of scores, where those that are not finite are texts by now, see `sources.kept`."""
    return number(value) if is_number(value) or value in ("nan", "inf", "-inf") else None


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    except OverflowError:
        return True
    return True


def with_metrics(run: TrackedRun, names: Collection[str]) -> TrackedRun:
    """A run with these columns as metrics: of a table, the reader does not know which of its numbers are scores."""
    found = {name: value for name in names if (value := _number(run.settings.get(name))) is not None}
    if not any(name in run.settings for name in names):
        return run
    settings = {name: value for name, value in run.settings.items() if name not in names}
    return structs.replace(run, settings=settings, last=found | run.last)


# Metrics


def metrics(runs: Sequence[TrackedRun]) -> dict[str, int]:
    """Metric -> the number of runs that have it: what trackers call metrics, and numbers of tables that sound like
    one."""
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(run.last.keys())
        counts.update(
            name
            for name, value in run.settings.items()
            if name not in run.last
            and is_number(value)
            and split_of(name) is not None
            and direction_of(name) is not None
        )
    return dict(counts)


def chosen_metric(runs: Sequence[TrackedRun], given: str | None) -> str:
    """The metric that is the score: the one that is given, else the only one of the test split.

    Raises:
        UsageError: no run has it, or there are several or none of the test split.
    """
    known = metrics(runs)
    if given is not None:
        check_metric(runs, given, "--metric", known)
        return given
    of_test = [name for name in known if split_of(name) == "test" and not is_about_time(name)]
    if len(of_test) == 1:
        return of_test[0]
    if not of_test and (objective := _objective(runs)) is not None:
        return objective
    meant = None if of_test else _meant(runs)
    if meant is not None and (error := _no_number(runs, meant, meant)) is not None:
        raise error
    if not known:
        numbers = [
            name for name in dict.fromkeys(name for run in runs for name in run.settings) if _is_column(runs, name)
        ]
        hint = f"name the column with the score: --metric NAME; columns with numbers: {listed(numbers)}"
        raise UsageError("no metric was found", hint if numbers else "the runs have no numbers at all")
    found = f"{plural(len(of_test), 'metric')} of a test split" if of_test else "no metric of a test split"
    raise UsageError(f"{found}: which is the score?", f"name it with --metric: {listed(of_test or _likely(known))}")


def _objective(runs: Sequence[TrackedRun]) -> str | None:
    """The objective of all runs that a search has made; None where there are several, or none."""
    known = {run.objective for run in runs}
    [objective, *others] = known
    return objective if objective and not others else None


def _likely(known: Collection[str]) -> list[str]:
    """Metrics, those that may be scores first."""
    return sorted(known, key=lambda name: (is_about_time(name), split_of(name) == "training"))


def check_metric(runs: Sequence[TrackedRun], name: str, option: str, known: Mapping[str, int] | None = None) -> None:
    """Refuses a metric that no run has, or that is no number.

    Raises:
        UsageError: with the nearest name.
    """
    if any(name in run.last for run in runs):
        return
    if any(is_number(run.settings.get(name)) for run in runs):
        return
    if (error := _no_number(runs, name, f"{option} {name}")) is not None:
        raise error
    if any(name in run.settings for run in runs):
        raise UsageError(f"{option} {name}: no run has a value of it", "name another metric, or import finished runs")
    numbers = [path for path in dict.fromkeys(path for run in runs for path in run.settings) if _is_column(runs, path)]
    names = list(known if known is not None else metrics(runs))
    all_names = list(dict.fromkeys([*names, *numbers]))
    near = nearest(name, all_names)
    shown = names if near in names or near is None else all_names
    raise UsageError(f"{option} {name}: no run has this metric", hint_for(name, shown or all_names, "metrics"))


def _no_number(runs: Sequence[TrackedRun], name: str, where: str) -> UsageError | None:
    """The error of a column without numbers, with the first cell that is none; None if it has no cells at all."""
    found = [run for run in runs if run.settings.get(name) is not None]
    if not found:
        return None
    texts = [run for run in found if not _reads_as_number(run.settings[name])]
    first, others = (texts or found)[0], len(found) - len(texts)
    value = setting(first.settings[name])
    name = f"{first.id} ({first.name})" if first.name and first.name != first.id else first.id
    # the id of a row without one is made from its settings, and is nowhere in the table
    label = f"{first.place}, {first.row}" if first.row and not first.name else f"run {name}"
    hint = f"correct it in the source, which has {plural(others, 'number')} there" if others else ""
    if not hint and value.endswith("%") and _reads_as_number(value[:-1]):
        hint = f"write {value[:-1].strip()} in place of {value!r}: such values are read as per cent"
    return UsageError(f"{where}: is no number in {label}, found {value!r}", hint or "name a column with numbers")


def _meant(runs: Sequence[TrackedRun]) -> str | None:
    """The column with the name of a test score that has numbers among texts, so that all are texts; None without."""
    for name in paths_of(runs):
        if split_of(name) == "test" and direction_of(name) is not None and not _is_column(runs, name):
            values = [value for run in runs if (value := run.settings.get(name)) is not None]
            if any(_reads_as_number(str(value).rstrip("% ")) for value in values):
                return name
    return None


def _is_column(runs: Sequence[TrackedRun], name: str) -> bool:
    return any(is_number(run.settings.get(name)) for run in runs)


def listed(names: Collection[str], most: int = 12, separator: str = ", ") -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{separator.join(list(names)[:most])}{more}"


class Scale(Struct, frozen=True):
    """How the values of a score are printed."""

    unit: str
    per_cent: bool


def scale_of(metric: str, values: Iterable[float]) -> Scale:
    """The unit of a score: shares of test items, such as accuracies, are printed in per cent, and some trackers have
    them in per cent."""
    finite = [value for value in values if math.isfinite(value)]
    if not is_share(metric) or not finite or min(finite) < 0 or max(finite) > 100:
        return Scale("", False)
    return Scale("%", max(finite) > 1)


# Settings


class Varying(Struct, frozen=True, kw_only=True):
    """A setting with different values in different runs."""

    name: str
    values: dict[str, int]
    """Value as a text -> the number of runs that have it, in the order in which they are found."""
    is_number: bool
    """Whether all its values are numbers."""

    @property
    def shown(self) -> str:
        """The name and its values, as in "norm (none, batch, layer)"."""
        if len(self.values) > 6:
            return f"{self.name} ({len(self.values)} values)"
        return f"{self.name} ({', '.join(self.values)})"


def text_of(value: Value) -> str:
    """The value of a setting as people read it. Unequal values may have the same text, and never the same
    `comparable`."""
    if isinstance(value, list):
        return json.dumps([int(part) if isinstance(part, float) and part.is_integer() else part for part in value])
    return setting(0 if value == 0 and not isinstance(value, bool) else value)  # -0.0 is 0


def texts_of(values: Iterable[Value]) -> dict[str, int]:
    """The different values as people read them -> the number of times that each is there, in the order in which they
    are found. A text that reads as another value does has quotes."""
    counts: Counter[str] = Counter()
    first: dict[str, Value] = {}
    for value in values:
        key = comparable(value)
        first.setdefault(key, value)
        counts[key] += 1
    plain = Counter(map(text_of, first.values()))
    return {
        repr(value) if isinstance(value, str) and plain[value] > 1 else text_of(value): counts[key]
        for key, value in first.items()
    }


def paths_of(runs: Sequence[TrackedRun]) -> list[str]:
    """The paths of all settings, in the order in which they are found."""
    return list(dict.fromkeys(path for run in runs for path in run.settings))


def varying(runs: Sequence[TrackedRun], without: Collection[str] = (), *, with_drawn: bool = False) -> list[Varying]:
    """The settings that vary between runs, without what identifies runs: ids, names, times, seeds, and texts or
    fractions that no two runs share.

    `with_drawn`: with such fractions, unless their names say a time, a count or a metric. A random search draws them.
    """
    found = []
    for path in paths_of(runs):
        if path in without or last_part(path) in (*_NO_SETTINGS, *_SEEDS):
            continue
        values = texts_of(run.settings.get(path) for run in runs)
        present = [value for run in runs if (value := run.settings.get(path)) is not None]
        is_all_numbers = all(is_number(value) for value in present)
        is_unique = len(values) == len(runs) > 3
        if len(values) < 2 or (is_unique and not is_all_numbers):
            continue
        is_drawn = is_unique and any(isinstance(value, float) for value in present)
        if is_drawn and not (with_drawn and may_be_drawn(path)):
            continue
        found.append(Varying(name=path, values=values, is_number=is_all_numbers))
    return found


def may_be_drawn(name: str) -> bool:
    """Whether a number that differs in every run may be a setting: its name says neither a time, a count nor a
    metric. "loss_weight" is a setting."""
    is_metric = split_of(name) is not None or direction_of(name) is not None
    return not is_about_time(name) and (not is_metric or words(name)[-1] in _OF_METRICS)


def resolved_name(name: str, known: Sequence[str], option: str) -> str:
    """The full path of a setting that is named by it, or by its last parts where just one setting ends in them.

    Raises:
        UsageError: there is none, or there are several.
    """
    plain = name.removeprefix("settings.")
    for candidate in (name, plain):
        if candidate in known:
            return candidate
    ending = [
        path for path in known if re.split(r"[./]", path)[-1] == plain or path.endswith((f".{plain}", f"/{plain}"))
    ]
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise UsageError(f"{option} {name}: several settings end in it", f"name one of them: {', '.join(ending)}")
    by_last = {re.split(r"[./]", path)[-1]: path for path in known}
    near = nearest(name, known) or by_last.get(nearest(plain, by_last) or "")
    hint = hint_for(near or name, known, "settings")
    raise UsageError(f"{option} {name}: no run has this setting", hint)


# Seeds


def seed_column(runs: Sequence[TrackedRun]) -> str | None:
    """The setting that has the seed, by its name: whole numbers that vary; None if there is none.

    Raises:
        UsageError: several could be it.
    """
    candidates = [path for path in paths_of(runs) if last_part(path) in _SEEDS and _has_seeds(runs, path)]
    if not candidates:
        return None
    best = min(map(_rank, candidates))
    of_best = [path for path in candidates if _rank(path) == best]
    if len(of_best) > 1:
        raise UsageError(
            f"{plural(len(of_best), 'setting')} may be the seed: {', '.join(of_best)}", "name it: --seed-column NAME"
        )
    return of_best[0]


def no_seeds(runs: Sequence[TrackedRun]) -> str:
    """Why a setting that sounds like the seed is none, as a phrase; empty if there is no such setting."""
    for path in paths_of(runs):
        if last_part(path) in _SEEDS:
            values = [value for run in runs if (value := run.settings.get(path)) is not None]
            other = next((value for value in values if not _is_whole(value)), None)
            if other is not None:
                return f"{path} has values that are no whole numbers, as {setting(other)}"
            if len(set(map(text_of, values))) > 1:
                return f"the setting {path} is left aside, as asked for"
            if values:
                return f"{path} is {setting(values[0])} in all runs"
    return ""


def _rank(path: str) -> tuple[int, int]:
    return len(re.split(r"[./]", path)), _SEEDS.index(last_part(path))


def _has_seeds(runs: Sequence[TrackedRun], path: str) -> bool:
    values = [value for run in runs if (value := run.settings.get(path)) is not None]
    return len(set(map(text_of, values))) > 1 and all(_is_whole(value) for value in values)


def _is_whole(value: Value) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"[+-]?\d{1,18}", value) is not None
    return is_number(value) and (isinstance(value, int) or float(value).is_integer())  # type: ignore[arg-type]


def chosen_by(runs: Sequence[TrackedRun], without: Collection[str]) -> list[str]:
    """The only setting that can make rungs, where none was named.

    Raises:
        UsageError: there are several, or none.
    """
    found = varying(runs, without)
    categorical = [each for each in found if not each.is_number]
    chosen = categorical if categorical else found
    if len(chosen) == 1:
        return [chosen[0].name]
    if not found:
        of_single = [
            f"{path} ({len(values)} values)"
            for path in paths_of(runs)
            if path not in without
            and last_part(path) not in (*_NO_SETTINGS, *_SEEDS)
            and len(values := texts_of(run.settings.get(path) for run in runs)) > 1
        ]
        if of_single:
            raise UsageError(
                f"no setting has a value that two runs share, so that none can make rungs: {listed(of_single)}",
                "name one all the same, as in --by " + of_single[0].rpartition(" (")[0] + ", or give rungs in a file, "
                "--ladder FILE, with conditions on it",
            )
        raise UsageError(
            "no setting varies between the runs, so that there is nothing to compare",
            "record settings, or name folders by them, as in norm=none/seed=1; or give rungs in a file, --ladder FILE, "
            "with conditions on ids of runs, as in where = \"id = 'a1' or id = 'a2'\"",
        )
    raise UsageError(
        f"{plural(len(found), 'setting')} vary: which make the rungs?",
        f"name them with --by, as in --by {chosen[0].name}: {'; '.join(each.shown for each in found[:12])}",
    )
