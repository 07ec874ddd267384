"""The rungs of imported runs: made of the values of settings, or declared; which runs each has; what its runs share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from lrurun.config.ladder import Ladder
from lrurun.config.resolve import Difference
from lrurun.errors import UsageError, hint_for, nearest_hint
from lrurun.imported import conditions, understanding
from lrurun.ledger.where.grammar import comparable, comparisons
from lrurun.trackers import TrackedRun, Value

Key = tuple[str, ...]
"""The values of the settings of `--by`, as equal ones have them in common."""


class NewRung(Struct, frozen=True, kw_only=True):
    """A rung that is made of the values of settings."""

    name: str
    where: str
    on: str | None
    """Its base; None for the first rung."""
    values: dict[str, str]
    """Setting -> its value as a text."""
    apart: tuple[str, ...] = ()
    """The settings of `--by` in which it differs from its base."""
    runs: int = 0
    """The number of runs with these values."""


def by_values(runs: Sequence[TrackedRun], by: Sequence[str], base: Mapping[str, str] | None = None) -> list[NewRung]:
    """A rung for each combination of values of these settings, in the order in which they are found.

    The base comes first: the one with the values of `base`, else the first that is found. Another rung has as its base
    the rung before it that is one setting apart, where there is just one such, else the first.

    Raises:
        UsageError: no combination has the values of `base`, or no condition can name a value.
    """
    found: dict[Key, tuple[Value, ...]] = {}
    counts: Counter[Key] = Counter()
    fields = [name for name in by if name in conditions.FIELDS and not any(name in run.settings for run in runs)]
    for run in runs:
        values = tuple(conditions.value_of(name, run) for name in by)
        key = tuple(map(comparable, values))
        counts[key] += 1
        found.setdefault(key, values)
    keys = list(found)
    of_setting = {name: [values[k] for values in found.values()] for k, name in enumerate(by)}
    if base:
        keys = _with_first(found, by, base)
    names = _names([found[key] for key in keys], by, {name: _are_numbers(of_setting[name]) for name in by})
    rungs: list[NewRung] = []
    for position, key in enumerate(keys):
        near = [k for k in range(position) if _apart(keys[k], key) == 1]
        on = None if position == 0 else near[0] if len(near) == 1 else 0
        apart = () if on is None else tuple(name for k, name in enumerate(by) if keys[on][k] != key[k])
        values = found[key]
        where = " and ".join(
            conditions.equals(name, value, of_setting[name], is_setting=name not in fields)
            for name, value in zip(by, values, strict=True)
        )
        rungs.append(
            NewRung(
                name=names[position],
                where=where,
                on=None if on is None else names[on],
                values={name: understanding.text_of(value) for name, value in zip(by, values, strict=True)},
                apart=apart,
                runs=counts[key],
            )
        )
    return rungs


def _apart(one: Key, other: Key) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def _with_first(found: Mapping[Key, Sequence[Value]], by: Sequence[str], base: Mapping[str, str]) -> list[Key]:
    """The combinations with the first one first that has the values of `base`."""
    texts = {key: list(map(understanding.text_of, values)) for key, values in found.items()}
    wanted = {list(by).index(name): value for name, value in base.items()}
    for k, value in wanted.items():
        known = list(dict.fromkeys(of_key[k] for of_key in texts.values()))
        if value not in known:
            raise UsageError(
                f"--base {by[k]}={value}: no run has this value", hint_for(value, known, f"values of {by[k]}")
            )
    matching = [key for key in found if all(texts[key][k] == value for k, value in wanted.items())]
    matching.sort(key=lambda key: None in found[key])  # a text "none" comes before no value
    if not matching:
        shown = ",".join(f"{name}={value}" for name, value in base.items())
        raise UsageError(f"--base {shown}: no run has these values together", "name the values of a rung")
    return [matching[0], *(key for key in found if key != matching[0])]


def _are_numbers(values: Iterable[Value]) -> bool:
    """Whether values say little without the name of their setting: numbers, and what is true or false."""
    return all(isinstance(value, int | float) for value in values if value is not None)


def _names(combinations: Sequence[Sequence[Value]], by: Sequence[str], with_setting: Mapping[str, bool]) -> list[str]:
    """The names of rungs: their values, as in "layer-adam"; a number has its setting before it, as in "depth-4"."""
    names: list[str] = []
    for values in combinations:
        parts = []
        for name, value in zip(by, values, strict=True):
            last, text = re.split(r"[./]", name)[-1], understanding.text_of(value)
            if value is None:
                parts.append(_plain(f"no-{last}"))
            else:
                parts.append(_plain(f"{last}-{text}" if with_setting[name] else text or "empty"))
        plain = re.sub(r"^[^A-Za-z0-9]+", "", "-".join(parts))[:80] or "rung"
        name = plain.removesuffix(".toml")
        number = 1
        while name.lower() in {other.lower() for other in names}:
            number += 1
            name = f"{plain}-{number}"
        names.append(name)
    return names


def _plain(text: str) -> str:
    """A text with the signs that the name of a rung may have."""
    text = text.replace("-.", "-0.") if re.match(r"-\.", text) else text
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-") or "x"


# Which runs a rung has


def declared(ladder: Ladder) -> list[list[str | None]]:
    """The name, the condition and the base of each rung."""
    return [[rung.name, rung.where, ladder.bases[rung.name]] for rung in ladder.rungs]


class Sorted(Struct, frozen=True, kw_only=True):
    """Runs by the rungs whose conditions they meet."""

    members: dict[str, list[int]]
    """Rung -> the indices of its runs."""
    outside: list[int]
    """The indices of the runs that fit no rung."""


def sort(runs: Sequence[tuple[TrackedRun, str]], ladder: Ladder) -> Sorted:
    """The runs, each with the name of its tracker, by rung.

    Raises:
        UsageError: a condition cannot be read, a run fits two rungs, or a rung has no run.
    """
    names = conditions.names_of(understanding.paths_of([run for run, _ in runs]))
    parsed = {
        rung.name: conditions.parse(rung.where, names, f"{ladder.path}, rung {rung.name}, where")
        for rung in ladder.rungs
    }
    compared = {each.name for condition in parsed.values() for each in comparisons(condition)}
    members: dict[str, list[int]] = {name: [] for name in parsed}
    outside: list[int] = []
    known: dict[str, list[str]] = {}  # what many runs have in common is compared once
    for index, (run, tracker) in enumerate(runs):
        values = repr([conditions.value_of(name, run, tracker) for name in compared])
        if (fitting := known.get(values)) is None:
            fitting = [name for name, condition in parsed.items() if conditions.holds(condition, run, tracker)]
            known[values] = fitting
        if len(fitting) > 1:
            title = titles_of([run for run, _ in runs])[index]
            raise UsageError(
                f"{ladder.path}: run {title} fits rung {fitting[0]} and rung {fitting[1]}",
                f"a run is a seed of one rung: narrow the condition of one, found {_where(ladder, fitting[0])} and "
                f"{_where(ladder, fitting[1])}",
            )
        (members[fitting[0]] if fitting else outside).append(index)
    for name, found in members.items():
        if not found:
            raise _empty(ladder, name, runs)
    return Sorted(members=members, outside=outside)


def named(ladder: Ladder, runs: Sequence[TrackedRun]) -> set[str]:
    """The names that the conditions of rungs compare, without what may stand before settings."""
    names = conditions.names_of(understanding.paths_of(runs))
    parsed = [conditions.parse(rung.where, names, f"{ladder.path}, rung {rung.name}, where") for rung in ladder.rungs]
    found = {comparison.name for condition in parsed for comparison in comparisons(condition)}
    return {name.removeprefix(conditions.PREFIX) for name in found}


def check_choice(choose: Sequence[str], ladder: Ladder, runs: Sequence[TrackedRun]) -> None:
    """Refuses a choice of what the rungs are made of: it would be compared with what was chosen.

    Raises:
        UsageError: a condition names a setting that is to be chosen.
    """
    names = conditions.names_of(understanding.paths_of(runs))
    for rung in ladder.rungs if choose else ():
        condition = conditions.parse(rung.where, names, f"{ladder.path}, rung {rung.name}, where")
        named = {comparison.name for comparison in comparisons(condition)}
        for name in choose:
            if name in named or f"{conditions.PREFIX}{name}" in named:
                raise UsageError(
                    f"choose: {name} is in the condition of rung {rung.name}, where = {rung.where!r}: what is compared "
                    "cannot be chosen too",
                    f"leave {name} out of choose, or out of the conditions of the rungs",
                )


def _where(ladder: Ladder, name: str) -> str:
    return next(rung.where for rung in ladder.rungs if rung.name == name)


def _empty(ladder: Ladder, name: str, runs: Sequence[tuple[TrackedRun, str]]) -> UsageError:
    """The error of a rung without runs, with what the settings of its condition are in the source."""
    text = _where(ladder, name)
    names = conditions.names_of(understanding.paths_of([run for run, _ in runs]))
    hints = []
    for comparison in comparisons(conditions.parse(text, names, ladder.path)):
        path = comparison.name
        if comparison.operator == "=" and not any(conditions.holds(comparison, run, tracker) for run, tracker in runs):
            known = list(understanding.texts_of(conditions.value_of(path, run, tracker) for run, tracker in runs))
            near = nearest_hint(comparison.text, known)
            if comparison.text in known:
                near = f"without quotes, {comparison.text} is the number;"
            listed = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
            hints.append(f"{near or ''} values of {path}: {listed}".strip())
    hint = hints[0] if hints else "change the condition, or remove the rung"
    return UsageError(f"{ladder.path}, rung {name}: no run fits it, where = {text!r}", hint)


def titles_of(runs: Sequence[TrackedRun]) -> list[str]:
    """Runs as messages name them: by their names where they have some, and by their ids; where there are several
    projects, with these."""
    with_project = len({run.project for run in runs}) > 1
    titles = [f"{name} ({run.id})" if (name := run.name or run.row) and name != run.id else run.id for run in runs]
    return [f"{run.project}/{title}" if with_project else title for run, title in zip(runs, titles, strict=True)]


# What the runs of a rung share


class RungSettings(Struct, frozen=True, kw_only=True):
    """The settings of the runs of a rung."""

    shared: dict[str, Any]
    """Path -> value, of settings that all its runs have with one value."""
    varying: dict[str, list[str]] = field(default_factory=dict)
    """Path -> values as texts, of settings that differ between its runs."""


def settings_of(runs: Sequence[TrackedRun], without: Collection[str]) -> RungSettings:
    """The settings that the runs of a rung share, and those that vary between them; `without` the seed."""
    shared: dict[str, Any] = {}
    for path in understanding.paths_of(runs):
        values = [run.settings.get(path) for run in runs]
        if path not in without and len(set(map(comparable, values))) == 1:
            shared[path] = values[0]
    varying = {each.name: list(each.values) for each in understanding.varying(runs, without, with_drawn=True)}
    return RungSettings(shared=shared, varying=varying)


def differences(
    rung: RungSettings, base: RungSettings, *, source: str, compared: Collection[str]
) -> tuple[Difference, ...]:
    """The settings in which a rung differs from its base: those that are the same in all runs of each."""
    paths = dict.fromkeys([*base.shared, *rung.shared])
    return tuple(
        Difference(f"{conditions.PREFIX}{path}", base.shared.get(path), rung.shared.get(path), source)
        for path in paths
        if path in compared
        and path not in rung.varying
        and path not in base.varying
        and comparable(base.shared.get(path)) != comparable(rung.shared.get(path))
    )


def shown(settings: Sequence[Difference]) -> str:
    """Settings by their names, as in "norm and depth"."""
    names = [difference.path.removeprefix(conditions.PREFIX) for difference in settings]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
