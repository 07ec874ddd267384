"""Users' own programs: the tables `[program]` and `[settings]` of a recipe, and the configuration of a run. No jax."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

import msgspec
from msgspec import Meta, Struct

from lrurun import decoding
from lrurun.config.schema import SETTINGS, Execution, Program, ProgramConfig
from lrurun.config.settings import flatten
from lrurun.console import setting
from lrurun.data.metric import Metric, declared
from lrurun.decoding import Fault
from lrurun.errors import LrurunError, UsageError, hint_for, raise_first
from lrurun.paths import shown

EXECUTION = "execution."
SNAPSHOTS = "programs"
"""The folder in the runs folder with snapshots of programs, each in a folder whose name has 16 hex digits."""
_IN_SNAPSHOT = re.compile(rf"(^|/){SNAPSHOTS}/[0-9a-f]{{16}}/")
_Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]
_Seconds = Annotated[float, Meta(gt=0, le=1e6)]


class ProgramTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[program]`: how a program is started, what it reports, and what it needs."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The executable and its arguments, in which placeholders are filled in; it is started in the folder of the recipe,
    without a shell."""
    files: tuple[str, ...] = ()
    """Paths or patterns of its files, from the folder of the recipe; when their contents change, it is another run."""
    metric: Annotated[str, Meta(pattern=r"^val/[A-Za-z][\w.-]*\Z", description='a name such as "val/accuracy"')]
    """The validation score, as in "val/accuracy": it chooses the step whose "test/accuracy" counts."""
    direction: Literal["max", "min"] = "max"
    """Whether higher or lower scores are better."""
    read: dict[str, str] = {}
    """Metric -> regular expression of Python with one group, for numbers that the program prints: { "val/accuracy" =
    'val_acc=([0-9.]+)' }; "step" is the step."""
    chance: _Finite | None = None
    """The score of a guess, with which runs without a usable score count in comparisons, diverged ones too; without it,
    they count in ranks only."""
    unit: str = ""
    """The unit of scores; with "%", the program reports fractions, which are printed in per cent."""
    share: bool | None = None
    """Whether the score is a share of test items, each of which counts from 0 (wrong) to 1 (right), as in an accuracy;
    without it, scores with the unit "%" are."""
    test_items: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    """The number of test items. Where the program does not log per-item results, it bounds how far a share
    moves with the choice of the test set."""
    decimals: Annotated[int, Meta(ge=0, le=12)] | None = None
    """Decimals of printed scores; without it, 1 for per cent, else 3. Very large and very small scores have a power of
    ten."""
    steps: Annotated[int, Meta(ge=1, le=2**31 - 1)] | str | None = None
    """The number of steps of a run, or the setting that has it, as in "settings.epochs"; progress shows it."""
    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Cores that a run needs; OMP_NUM_THREADS and its like say so to libraries."""
    devices: Annotated[int, Meta(ge=1, le=4096)] = 1
    """Accelerators that a run needs, where there are any; CUDA_VISIBLE_DEVICES names them."""
    stop_seconds: _Seconds = 5.0
    """The time that a program has to save and exit after SIGTERM, before it is killed."""
    silent_seconds: _Seconds = 1800.0
    """The time without output after which a program is killed."""

    @property
    def name(self) -> str:
        """The name of the metric, as in "accuracy"."""
        return self.metric.removeprefix("val/")

    @property
    def is_share(self) -> bool:
        """Whether the score is a share of test items."""
        return self.unit == "%" if self.share is None else self.share


STEP = "step"
"""The name in `read` of what is the step."""
METRIC_NAME = re.compile(r"(?!.{101})[A-Za-z][\w.@-]*(?:/\.*[\w@-][\w.@-]*)*", re.ASCII)
"""What the whole name of a metric matches: as METRIC_NAME of the module `lrurun`, which imports nothing from here."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)\}")


def placeholders(argument: str) -> list[str]:
    """The names in braces in an argument; braces around anything else are text."""
    return _PLACEHOLDER.findall(argument)


def filled(argument: str, values: Mapping[str, str]) -> str:
    """The argument with its placeholders filled in: name -> text."""
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], argument)


def as_argument(value: Any) -> str:
    """A setting as a command line has it: texts as they are, true and false, lists as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def metric_of(program: ProgramTable) -> Metric:
    """How the runs of a program are scored."""
    return declared(
        program.name,
        unit=program.unit,
        decimals=program.decimals,
        higher_is_better=program.direction == "max",
        chance=program.chance,
        is_share=program.is_share,
    )


def paths_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path -> value of the table `[settings]`."""
    return dict(flatten(dict(table), SETTINGS))


def _names(table: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a table and of those in it."""
    for key, value in table.items():
        yield key
        yield from _names(value) if isinstance(value, dict) else ()


def rules(program: ProgramTable, settings: Mapping[str, Any], where: str) -> Iterator[UsageError]:
    """Faults of the tables of a recipe with a program."""
    known = paths_of(settings)
    for name in _names(settings):
        if not re.fullmatch(r"[A-Za-z_][\w-]*", name, re.ASCII):
            rule = f"expected names of letters, digits, '_' and '-', found {name!r}"
            yield Fault(
                rule, f"{where} [settings]", "", hint="rename the setting; a table in the table is [settings.name]"
            )
    for path, value in known.items():
        if (problem := _problem(value)) is not None:
            yield Fault(f"{_RULE}, found {problem}", where, path)
        if path in (f"{SETTINGS}seed", f"{SETTINGS}run_dir"):
            name = path.removeprefix(SETTINGS)
            yield Fault("lrurun sets it", where, path, hint=f"remove it, and write {{{name}}} in the command")
    yield from _pattern_faults(program.read, f"{where} [program]")
    names = ["config", "seed", "run_dir", *known]
    for index, argument in enumerate(program.command):
        for name in placeholders(argument):
            if name not in names:
                yield Fault(
                    f"unknown placeholder {{{name}}}",
                    f"{where} [program]",
                    f"command[{index}]",
                    hint=hint_for(name, names, "placeholders"),
                )
    if isinstance(program.steps, str) and program.steps not in known:
        hint = hint_for(program.steps, known, "settings")
        yield Fault(f"there is no setting {program.steps!r}", f"{where} [program]", "steps", hint=hint)
    elif isinstance(program.steps, str) and not _is_count(known[program.steps]):
        hint = "name a setting that has the number of steps, or write the number"
        yield Fault(f"{program.steps} is not a whole number from 1 on", f"{where} [program]", "steps", hint=hint)
    if program.unit == "%" and program.chance is not None and not 0 <= program.chance <= 1:
        rule = 'expected a fraction, because unit = "%"'
        yield Fault(rule, f"{where} [program]", "chance", value=program.chance, hint="write 0.1 for 10 %")


def _pattern_faults(read: Mapping[str, str], where: str) -> Iterator[UsageError]:
    """Faults of the patterns of `read`."""
    example = """as in read = { "val/accuracy" = 'val_acc=([0-9.]+)' }"""
    for name, pattern in read.items():
        if not METRIC_NAME.fullmatch(name) or name.startswith("machine/"):
            yield Fault(f"{name!r} is no name of a metric", where, "read", hint=f"{example}; step is the step")
        try:
            groups = re.compile(pattern).groups
        except (re.error, OverflowError, RecursionError) as error:
            yield Fault(f"not a regular expression of Python: {error}", where, f"read.{name}", value=pattern)
            continue
        if groups != 1:
            rule = f"expected one group, around the number, found {groups}"
            yield Fault(rule, where, f"read.{name}", value=pattern, hint=f"{example}; (?:...) is no group")
    if set(read) == {STEP}:
        yield Fault("has the step alone", where, "read", hint=example)


def line_to_add(metric: str) -> str:
    """The line that logs the scores of a program whose validation score is this metric."""
    return f'run.log(step, {{"{metric}": ..., "test/{metric.removeprefix("val/")}": ...}})'


_RULE = "expected a string, a number, true or false, or a list of these"


def _problem(value: Any) -> str | None:
    """What is wrong with the value of a setting; None if it can be given to a program as JSON."""
    if isinstance(value, list):
        return next((problem for item in value if (problem := _problem(item)) is not None), None)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return None if isinstance(value, str | bool | int | float) else type(value).__name__


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31


def steps_of(program: ProgramTable, config: ProgramConfig) -> int:
    """The number of steps of a run; 0 if the recipe does not say it."""
    if isinstance(program.steps, str):
        value = paths_of(config.settings).get(program.steps)
        return value if _is_count(value) else 0
    return program.steps or 0


def digests(program: ProgramTable, folder: Path, where: str) -> dict[str, str]:
    """Path of each of its files from `folder`, with slashes -> `sha256:` and 64 hex digits.

    Raises:
        UsageError: a file does not exist, or a pattern fits none.
        LrurunError: a file cannot be read.
    """
    by_name: dict[str, str] = {}
    for pattern in program.files:
        try:
            matches = sorted(path for path in folder.glob(pattern) if path.is_file() and _is_code(path, folder))
        except (ValueError, IndexError, NotImplementedError):  # an absolute path, an empty one, or '.'
            matches = [Path(pattern)] if Path(pattern).is_file() else []
        if not matches:
            present = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
            known = [path.name for path in present if _is_code(path, folder)]
            is_folder = bool(pattern) and (folder / pattern).is_dir()
            raise MissingFile(
                f"{where} [program], files: there is no file {pattern!r} in {shown(folder)}",
                f"for the files of a folder: {(Path(pattern) / '**/*.py').as_posix()}"
                if is_folder
                else hint_for(pattern, known, "files there"),
            )
        for path in matches:
            name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()
            try:
                by_name[name] = digest_of(path)
            except OSError as error:
                raise LrurunError(f"{path}: {error.strerror}", "check its permissions") from None
    return by_name


class MissingFile(UsageError):
    """A file of a program does not exist."""


def _is_code(path: Path, folder: Path) -> bool:
    """Whether a pattern means this file: not hidden or compiled ones, the ledger, the runs folder and snapshots."""
    relative = path.relative_to(folder)
    parts = relative.parts
    return not (
        parts[0] == "runs"
        or ".db" in parts[-1]
        or any(part.startswith(".") or part == "__pycache__" for part in parts)
        or _IN_SNAPSHOT.search(relative.as_posix())
    )


def digest_of(path: Path) -> str:
    """`sha256:` and 64 hex digits of a file. Raises OSError."""
    from lrurun.data import arrays  # NumPy, which reading a recipe does not need

    return f"sha256:{arrays.sha256(path)}"


def config_of(
    task: str,
    program: ProgramTable,
    settings: Mapping[str, Any],
    folder: Path,
    where: str,
    files: Mapping[str, str] | None = None,
) -> ProgramConfig:
    """The configuration of a program with the settings of its recipe, and with seed 0.

    `files` are the digests of its files where they need not be here, because a ledger records them.

    Raises:
        LrurunError: a file of the program is missing, or cannot be read.
    """
    return ProgramConfig(
        task=task,
        program=Program(
            command=program.command,
            files=digests(program, folder, where) if files is None else dict(files),
            metric=program.metric,
            direction=program.direction,
            read=program.read or None,
        ),
        settings=dict(settings),
        seed=0,
    )


def execution_of(program: ProgramTable) -> dict[str, Any]:
    """Dotted path -> value of what the table says about the execution."""
    return {
        "execution.threads": program.threads,
        "execution.devices": program.devices,
        "execution.hang_after_seconds": program.silent_seconds,
        "execution.stop_seconds": program.stop_seconds,
    }


Values = Mapping[str, tuple[Any, str]]
"""Dotted path -> value and its source."""


def with_values(config: ProgramConfig, values: Values, where: str) -> tuple[ProgramConfig, Execution]:
    """The configuration with changed settings, and the execution.

    Raises:
        Fault: a setting that the recipe lacks or that has another type there; a wrong value of the execution.
    """
    raise_first(value_faults(config, values, where))
    known = paths_of(config.settings)
    changed = {path: _typed(value, known[path]) for path, (value, _) in values.items() if path in known}
    execution = decoding.convert(_execution(values), Execution, where)
    return msgspec.structs.replace(config, settings=_nested(known | changed)), execution


def _execution(values: Values) -> dict[str, Any]:
    return {path.partition(".")[2]: value for path, (value, _) in values.items() if path.startswith(EXECUTION)}


def value_faults(config: ProgramConfig, values: Values, where: str) -> Iterator[Fault]:
    """Every fault of the values of a rung."""
    known = paths_of(config.settings)
    for path, (value, source) in values.items():
        if path in known:
            yield from _type_faults(path, value, known[path], source)
        elif not path.startswith(EXECUTION):
            yield Fault("the recipe has no such setting", source, path, hint=hint_for(path, known, "its settings"))
    sources = {path.partition(".")[2]: source for path, (_, source) in values.items() if path.startswith(EXECUTION)}
    yield from decoding.examine(_execution(values), Execution, where, sources)[1]


def _type_faults(path: str, value: Any, example: Any, source: str) -> Iterator[Fault]:
    """The fault of a value that has another type than the recipe's own."""
    if type(_typed(value, example)) is not type(example):
        rule = f"expected {_TYPES[type(example)]}, like {setting(example)} in the recipe"
        is_fraction = type(example) is int and isinstance(value, float)
        hint = f"write {example}.0 in the recipe's [settings] if it may have fractions" if is_fraction else ""
        if type(example) is str and source.startswith("--set"):
            hint = f"""write it in quotes: --set '{path}="{setting(value)}"'"""
        yield Fault(rule, source, path, value=value, hint=hint)
    elif (problem := _problem(value)) is not None:
        yield Fault(f"{_RULE}, found {problem}", source, path)


def _typed(value: Any, example: Any) -> Any:
    """A value with the type that the recipe's own value has, if it can be written so: 1 is also 1.0."""
    if isinstance(example, float) and isinstance(value, int | float) and not isinstance(value, bool):
        return value + 0.0  # -0.0 and 0.0 are one value
    return value


_TYPES: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list",
}


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The table of these dotted paths."""
    table: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.removeprefix(SETTINGS).split(".")
        inner = table
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return table
