"""The arguments of calls in Python: their types, their values as requests have them, and errors that name them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import TYPE_CHECKING, Any, SupportsIndex

from lrurun import paths
from lrurun.config.schema import TUNING_SEED
from lrurun.errors import LrurunError, UsageError, check_type
from lrurun.instances import requests
from lrurun.session.training_options import TrainingOptions, site_of

if TYPE_CHECKING:
    from lrurun.paths import Places

AnyPath = str | os.PathLike[str]

_ARGUMENTS = {
    **{f"--{name}": name for name in ("set", "seeds", "profile", "ladder", "tune", "extend", "decide", "ledger")},
    **{f"--{name}": name for name in ("jobs", "pack", "on", "detach", "fresh", "instance")},
    **{f"--{name}": name.replace("-", "_") for name in ("max-seeds", "time-limit", "runs-dir", "data-dir")},
    **{"--rung": "rungs", "--cell": "cells", "--load": "files", "--all-users": "all_users"},
    **{f"--{name}": name for name in ("name", "metric", "at", "by", "base", "choose", "crashed", "repeat", "protocol")},
    **{f"--{name}": name for name in ("direction", "items", "unit", "chance", "project")},
    **{f"--{name}": name.replace("-", "_") for name in ("metric-for-choice", "seed-column", "test-items", "per-cent")},
    **{"--metrics-file": "metrics_file", "--scores-only": "scores_only", "--from": "kind"},
}
"""Option of a command -> the argument of a call that it is."""
_OPTION = re.compile(rf"(?<![\w-])({'|'.join(_ARGUMENTS)})(?![\w-])")
_VALUES = {
    **dict.fromkeys(("--jobs", "--pack", "--max-seeds", "--extend"), r"\d+"),
    "--seeds": r"\d[\d,-]*",
    "--set": r"'[^']+=[^']+'|[\w.]+=\[[^\]]*\]|[\w.]+=[^\s,;:]+",
    **dict.fromkeys(("--profile", "--ladder", "--ledger", "--runs-dir", "--data-dir", "--on"), r"[^\s,;]*[^\s,;:.]"),
    **dict.fromkeys(("--time-limit", "--rung", "--load"), r"[^\s,;]*[^\s,;:.]"),
    **dict.fromkeys(("--name", "--metric", "--metric-for-choice", "--seed-column", "--from"), r"[^\s,;]*[^\s,;:.]"),
    **dict.fromkeys(("--at", "--repeat", "--crashed", "--protocol", "--project"), r"[^\s,;]*[^\s,;:.]"),
}
"""Option -> the pattern of its value in a message or hint."""
_WITH_VALUE = re.compile(
    rf"(?<![\w-])(?:{'|'.join(f'({option}) ({value})' for option, value in _VALUES.items())})(?![\w:'-])"
)
_COMMAND = re.compile(r"lrurun [a-z][^;]*")


@contextmanager
def names_of_arguments() -> Iterator[None]:
    """Makes errors name arguments instead of options. Whole commands in a hint stay as they are."""
    try:
        yield
    except LrurunError as error:
        error.message = _in_python(error.message)
        error.hint = None if error.hint is None else _in_python(error.hint)
        error.args = (error.message,)
        raise


def _in_python(text: str) -> str:
    """A message or hint with arguments in place of options, for example `seeds=3` for `--seeds 3`."""
    commands = _COMMAND.findall(text)
    parts = [
        _OPTION.sub(lambda option: _ARGUMENTS[option[0]], _WITH_VALUE.sub(_assignment, part))
        for part in _COMMAND.split(text)
    ]
    return "".join(part + command for part, command in zip(parts, [*commands, ""], strict=True))


def _assignment(words: re.Match[str]) -> str:
    """An option with its value, as the argument of a call."""
    option, value = (word for word in words.groups() if word is not None)
    name = _ARGUMENTS[option]
    if option == "--set":
        path, _, text = value.strip("'").partition("=")
        return f'set={{"{path}": {({"true": "True", "false": "False"}).get(text, text)}}}'
    if option == "--seeds":
        return f"seeds={value}" if value.isdigit() else f"seeds=[{', '.join(value.strip(',').split(','))}]"
    if value.isdigit():
        return f"{name}={value}"
    return f'{name}=["{value}"]' if option in ("--rung", "--load") else f'{name}="{value}"'


def given_places(ledger: AnyPath | None, runs_dir: AnyPath | None, data_dir: AnyPath | None) -> Places:
    """The places that the arguments of a call name; those of the commands for None. Raises UsageError."""
    named = {"ledger": ledger, "runs_dir": runs_dir, "data_dir": data_dir}
    for name, path in named.items():
        check_type(name, path, str | os.PathLike | None, "a path or a URL", f'as in {name}="results"')
    runs, data = (None if path is None else os.fspath(path) for path in (runs_dir, data_dir))
    places = paths.places(runs=runs, data=data)
    if ledger is None:
        return places
    place = paths.given_ledger(ledger)
    beside_ledger = runs is None and not os.environ.get("LRURUN_RUNS")
    return paths.Places(
        ledger=place, runs=paths.default_runs(place) if beside_ledger else places.runs, data=places.data
    )


def training_options(
    *,
    jobs: int | None,
    time_limit: str | float | None,
    on: str,
    detach: bool,
    pack: int = 1,
    fresh: bool = False,
) -> TrainingOptions:
    """The options of a call that trains. Raises UsageError."""
    check_whole("jobs", jobs, 1, 4096)
    check_whole("pack", pack, 1, 64)
    check_type("on", on, str, "text", 'as in on="slurm:partition=gpu"')
    check_type("time_limit", time_limit, str | Real | None, "a text or seconds", 'as in time_limit="45m"')
    limit = time_limit if time_limit is None or isinstance(time_limit, str) else f"{time_limit:.0f}"
    return TrainingOptions(
        jobs=jobs, pack=pack, time_limit=limit, site=site_of(on), detach=bool(detach), fresh=bool(fresh)
    )


def check_width(width: str) -> None:
    """Refuses an unknown width of a figure. Raises UsageError."""
    from lrurun.report.figures import figure_files

    if width not in figure_files.WIDTHS:
        raise UsageError(f"width: expected column or page, found {width!r}", "column is 3.3 inches wide")


def check_whole(name: str, value: object, least: int, most: int = 2**31 - 1) -> None:
    """Refuses an optional argument that is no whole number from `least` to `most`. Raises UsageError."""
    if value is None:
        return
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        raise UsageError(f"{name}: expected a whole number, found {type(value).__name__}", f"as in {name}={least}")
    if not least <= value.__index__() <= most:
        raise UsageError(f"{name}: expected a whole number from {least} to {most}, found {value}", f"as in {name}=4")


def check_finite(name: str, value: object, least: float, most: float) -> None:
    """Refuses an optional argument that is no number from `least` to `most`. Raises UsageError."""
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"{name}: expected a number, found {type(value).__name__}", f"as in {name}=0.1")
    if not least <= value <= most:  # also of NaN
        raise UsageError(f"{name}: expected a number from {least:g} to {most:g}, found {value}", f"as in {name}=0.1")


def texts(name: str, value: Any, hint: str) -> list[str]:
    """An argument that is a text or several, as a list. Raises UsageError."""
    if isinstance(value, str):
        return [value]
    check_type(name, value, Sequence, "a text, or a list of texts", hint)
    return [text_of(name, item, hint) for item in value]


def text_of(name: str, value: Any, hint: str) -> str:
    """An argument that is a text. Raises UsageError."""
    check_type(name, value, str, "text", hint)
    return str(value)


def seeds_of(seeds: int | Sequence[int] | None) -> str | None:
    """Seeds as requests have them. Raises UsageError."""
    if seeds is None or isinstance(seeds, SupportsIndex):
        check_whole("seeds", seeds, 1, TUNING_SEED)
        return None if seeds is None else str(seeds.__index__())
    hint = "as in seeds=[0, 4, 7]"
    if isinstance(seeds, str) or not isinstance(seeds, Sequence) or not seeds:
        actual = "an empty list" if isinstance(seeds, list | tuple) else type(seeds).__name__
        raise UsageError(f"seeds: expected a number or a list of numbers, found {actual}", hint)
    for seed in seeds:
        check_whole("seeds", seed, 0, TUNING_SEED - 1)
    numbers = [seed.__index__() for seed in seeds]
    for number in numbers:
        if numbers.count(number) > 1:
            raise UsageError(f"seeds: {number} is named twice", hint)
    return requests.list_of(numbers)


def plain_value(value: Any) -> Any:
    """A value of `set` as TOML has it: arrays and numbers of NumPy as those of Python."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [plain_value(item) for item in value] if isinstance(value, list | tuple) else value
