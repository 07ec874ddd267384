"""How and where the runs of a command are trained: its options, and the user's configuration file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun import console, paths
from lrurun.errors import Stopped, UsageError, hint_for

if TYPE_CHECKING:
    from lrurun.paths import Places
    from lrurun.runner.executors import Executor
    from lrurun.runner.signals import Signals
    from lrurun.runner.supervisor import Supervisor, SupervisorResult


MOST_NODES = 10_000
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_WRITTEN = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS), re.ASCII)
_LONGEST = 366 * 86400


def seconds_of(text: str) -> float:
    """Seconds of a duration: `90`, `45m`, `1h30m`; or as Slurm writes them: `30:00`, `12:00:00`, `2-12:00:00`, `2-12`.

    Raises:
        UsageError: it is no duration, is zero, or is longer than a year.
    """
    seconds = None
    if text.isascii() and text.isdigit():
        seconds = int(text[:18])
    elif text and (written := _WRITTEN.fullmatch(text)):
        seconds = sum(
            int((digits or "0")[:18]) * unit for digits, unit in zip(written.groups(), _UNITS.values(), strict=True)
        )
    elif clocked := _CLOCK.fullmatch(text):
        days, *rest = ((digits or "0")[:18] for digits in clocked.groups())
        fields = [int(digits) for digits in rest]
        if clocked[1] is None and clocked[4] is None:
            fields = [0, *fields[:2]]  # minutes and seconds; after days the first is hours, however many follow
        hours, minutes, rest_seconds = fields
        seconds = int(days) * 86400 + hours * 3600 + minutes * 60 + rest_seconds
    if seconds is None or not 0 < seconds <= _LONGEST:
        expected = "a duration from one second to a year (366 days), in whole numbers"
        raise UsageError(
            f"--time-limit: expected {expected}, found {text[:100]!r}",
            "in seconds, or as 45m, 1h30m, 2d, 12:00:00 or 2-12:00:00",
        )
    return float(seconds)


class Site(Struct, frozen=True, kw_only=True):
    """Where runs are trained: an executor, with settings."""

    executor: str = "local"
    nodes: int | None = None
    """The largest number of node supervisors at a time, each with --jobs workers."""
    settings: Mapping[str, str] = {}
    """The executor's own."""

    @property
    def is_local(self) -> bool:
        return self.executor == "local"


class TrainingOptions(Struct, frozen=True, kw_only=True):
    """The options of a command that say how and where its runs are trained, independent of which runs they are."""

    jobs: int | None = None
    pack: int = 1
    fresh: bool = False
    time_limit: str | None = None
    arguments: tuple[str, ...] = ()
    """The arguments of the command line, for messages; empty for a call in Python."""
    site: Site = Site()
    detach: bool = False
    dry_run: bool = False
    on_node: bool = False
    """Whether an executor started this command, on a node."""

    @property
    def continuation(self) -> str:
        """What continues a training that was stopped: the same command, or the same call in Python."""
        if not self.arguments:
            return "the same call continues"
        return f"the same command continues: {shlex.join(['lrurun', *self.arguments])}"

    @property
    def work_fields(self) -> dict[str, Any]:
        """The options that are fields of `Work`."""
        names = "jobs", "pack", "fresh", "detach", "on_node"
        return {name: getattr(self, name) for name in names}

    def signals(self) -> Signals:
        """The signals and the time limit that stop the training; the limit begins now."""
        from lrurun.runner.signals import Signals

        further = [signal.SIGUSR1] if self.on_node else []
        return Signals(None if self.time_limit is None else seconds_of(self.time_limit), further)

    def make_executor(
        self,
        places: Places,
        command: Sequence[str],
        *,
        devices: int = 1,
        of_programs: bool = False,
        stop_seconds: float = 0.0,
    ) -> Executor:
        """The executor, which is checked unless it only prints its script. Nothing is written.

        Args:
            command: arguments of the command line that decide which runs are trained; they name the job.
            devices: how many a run needs.
            of_programs: whether a user's program is trained.
            stop_seconds: how long it may take to save and exit.

        Raises:
            LrurunError: there is no such executor, or it cannot work.
        """
        from lrurun import plugins
        from lrurun.runner import executors

        absolute = paths.Places(
            ledger=places.ledger.absolute(), runs=places.runs.absolute(), data=places.data.absolute()
        )
        runs = paths.shown_runs(absolute.runs)
        where = ["--ledger", str(absolute.ledger), "--runs-dir", runs, "--data-dir", str(absolute.data)]
        load = [argument for file in plugins.named_files() for argument in ("--load", file)]
        options = [] if self.jobs is None else ["--jobs", str(self.jobs)]
        options += [] if self.pack == 1 else ["--pack", str(self.pack)]
        digest = hashlib.sha256(json.dumps([*where, *load, *command]).encode()).hexdigest()[:10]
        job = executors.NodeJob(
            name=f"lrurun-{digest}",
            arguments=[sys.executable, "-P", "-m", "lrurun", *where, *load, *command, *options, "--on-node"],
            folder=Path.cwd(),
            places=absolute,
            nodes=self.site.nodes,
            devices=devices,
            of_programs=of_programs,
            stop_seconds=stop_seconds,
            settings=self.site.settings,
        )
        made = executors.make(self.site.executor, job)
        if not self.dry_run:
            made.check(detach=self.detach)
        return made

    def train(self, supervisor: Supervisor) -> SupervisorResult:
        """Trains the runs of a supervisor, or submits them. On a node, checks first that it has the runs folder of the
        command. Raises as `Supervisor.run`."""
        if self.on_node:
            from lrurun.runner import node
            from lrurun.runner.preparation import check_runs_folder

            node.check(supervisor.ledger, supervisor.instance, supervisor.work.runs)
            check_runs_folder(supervisor.work.runs)
        outcome = supervisor.run()
        if self.detach and outcome.worked:
            console.say("lrurun status --watch shows its progress")
        return outcome

    def sentence(self, stopped: Stopped) -> str:
        """What stopped a training, what was left then, and what continues it."""
        return f"stopped by {stopped}{stopped.when and f' {stopped.when}'}; {self.continuation}"

    @contextmanager
    def sentences(self) -> Iterator[None]:
        """Makes the text of `Stopped` the sentence on it, as a call in Python raises it."""
        try:
            yield
        except Stopped as stopped:
            raise Stopped(stopped.number, self.sentence(stopped)) from None

    def stopped(self, stopped: Stopped) -> int:
        """Says what goes on after a signal; the exit code."""
        console.say(self.sentence(stopped))
        if self.on_node:
            from lrurun.runner import node

            node.requeue(stopped.number)
        return stopped.exit_code


def site_of(text: str) -> Site:
    """The site that `--on` names: an executor or a table of the user's configuration file, and settings after a colon.

    A setting of a table is replaced by one of the option. What follows a comma and has no "=" belongs to the value
    before it, as in `slurm:nodelist=n1,n2`.

    Raises:
        UsageError: there is no such executor or table, a setting is no KEY=VALUE, or the file is wrong.
    """
    from lrurun.runner import executors

    name, _, rest = text.partition(":")
    tables = _user_tables()
    if name not in site_names(tables):
        raise UsageError(f"--on: there is no executor {name!r}", hint_for(name, site_names(tables), "executors"))
    values = dict(tables.get(name, {}))
    settings: list[tuple[str, str]] = []
    for word in rest.split(",") if rest else ():
        key, equals, value = word.partition("=")
        if equals and key:
            settings.append((key.strip(), value))
        elif settings and not equals:
            settings[-1] = (settings[-1][0], f"{settings[-1][1]},{word}")
        else:
            example = {"slurm": "partition=gpu", "ray": "num_gpus=1"}.get(name, "KEY=VALUE")
            raise UsageError(f"--on {name}: expected KEY=VALUE, found {word!r}", f"as in --on {name}:{example}")
    values |= settings
    nodes = values.pop("nodes", None)
    executor = values.pop("executor", name)
    if executor not in executors.names():
        hint = hint_for(executor, executors.names(), "executors")
        raise UsageError(f"{user_file()}: on.{name}.executor: there is no executor {executor!r}", hint)
    if nodes is not None and not (nodes.isascii() and nodes.isdigit() and 0 < int(nodes[:9]) <= MOST_NODES):
        raise UsageError(
            f"--on {name}:nodes: expected a whole number from 1 to {MOST_NODES}, found {nodes!r}",
            f"as in --on {name}:nodes=2",
        )
    return Site(executor=executor, nodes=None if nodes is None else int(nodes), settings=values)


def site_names(tables: Mapping[str, Any] | None = None) -> list[str]:
    """What `--on` may name: executors, and the tables of the user's configuration file."""
    from lrurun.runner import executors

    return list(dict.fromkeys([*executors.names(), *(_user_tables() if tables is None else tables)]))


def user_file() -> Path:
    """The user's configuration file, which need not exist."""
    return (
        paths.expanded(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "XDG_CONFIG_HOME") / "lrurun" / "config.toml"
    )


def _user_tables() -> dict[str, dict[str, str]]:
    """The tables [on.NAME] of the user's configuration file, by name; empty without one.

    Raises:
        UsageError: the file is not TOML, has another table, or a value that is no text, number or truth value.
    """
    file = user_file()
    example = 'as in [on.slurm] and partition = "gpu"'
    try:
        document: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "check its permissions") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not valid TOML: {error}", f"correct it, {example}") from None
    tables = document.pop("on", {})
    for name in document:
        raise UsageError(f"{file}: unknown table [{name}]", f"tables begin with on., {example}")
    if not isinstance(tables, dict):
        raise UsageError(f"{file}: expected tables [on.NAME], found on = {tables!r}", example)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(f"{file}: expected a table [on.{name}], found {table!r}", example)
        for key, value in table.items():
            if not isinstance(value, str | int | float):
                problem = f"{file}: on.{name}.{key}: expected a text or a number, found {value!r}"
                raise UsageError(problem, "write a text")
    return {
        name: {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in table.items()}
        for name, table in tables.items()
    }
