"""How and where the runs of a command are trained: its options, and the user's configuration file."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun import console, paths
from lrurun.commands._shared.durations import seconds_of
from lrurun.errors import UsageError, hint_for

if TYPE_CHECKING:
    from lrurun.paths import Places
    from lrurun.runner.executors import Executor
    from lrurun.runner.signals import Signals, Stopped
    from lrurun.runner.supervisor import Outcome, Supervisor


_EXAMPLES = {"slurm": "partition=gpu", "ray": "num_gpus=1"}


class TrainingOptions(Struct, frozen=True, kw_only=True):
    """The options of a command that say how and where its runs are trained, independent of which runs they are."""

    jobs: int | None = None
    pack: int = 1
    fresh: bool = False
    time_limit: str | None = None
    arguments: tuple[str, ...] = ()
    """Of the command line, to be shown in messages."""
    executor: str = "local"
    nodes: int | None = None
    settings: Mapping[str, Sequence[str]] = {}
    """Executor -> the KEY=VALUE of the option that is named as it."""
    detach: bool = False
    dry_run: bool = False
    on_node: bool = False
    """Whether an executor started this command, on a node."""

    @property
    def command(self) -> str:
        return shlex.join(["lrurun", *self.arguments])

    @property
    def work_fields(self) -> dict[str, Any]:
        """Those that are fields of the work."""
        names = "jobs", "pack", "fresh", "detach", "on_node"
        return {name: getattr(self, name) for name in names}

    def signals(self) -> Signals:
        """What stops the training; the time limit begins now."""
        from lrurun.runner.signals import Signals

        also = [signal.SIGUSR1] if self.on_node else []
        return Signals(None if self.time_limit is None else seconds_of(self.time_limit), also)

    def make_executor(self, places: Places, command: Sequence[str], *, devices: int = 1) -> Executor:
        """The executor, which is checked unless it only prints its script. Nothing is written.

        Args:
            command: arguments of the command line that decide which runs are trained; they name the job.
            devices: how many a run needs.

        Raises:
            LrurunError: there is no such executor, or it cannot work.
        """
        from lrurun import plugins
        from lrurun.runner import executors

        own = self.settings.get(self.executor, ())
        for name in (name for name, texts in self.settings.items() if texts and name != self.executor):
            option = "address" if all(text.startswith("address=") for text in self.settings[name]) else name
            raise UsageError(
                f"--{option}: belongs to --executor {name}, found --executor {self.executor}", "choose one"
            )
        absolute = paths.Places(
            ledger=places.ledger.absolute(), runs=places.runs.absolute(), data=places.data.absolute()
        )
        runs = paths.shown_runs(absolute.runs)
        where = ["--ledger", str(absolute.ledger), "--runs-dir", runs, "--data-dir", str(absolute.data)]
        load = [argument for file in plugins.named_files() for argument in ("--load", file)]
        how = [] if self.jobs is None else ["--jobs", str(self.jobs)]
        how += [] if self.pack == 1 else ["--pack", str(self.pack)]
        digest = hashlib.sha256(json.dumps([*where, *load, *command]).encode()).hexdigest()[:10]
        job = executors.NodeJob(
            name=f"lrurun-{digest}",
            arguments=[sys.executable, "-P", "-m", "lrurun", *where, *load, *command, *how, "--on-node"],
            folder=Path.cwd(),
            places=absolute,
            nodes=self.nodes,
            devices=devices,
            settings=user_settings(self.executor) | dict(_pair(self.executor, text) for text in own),
        )
        made = executors.make(self.executor, job)
        if not self.dry_run:
            made.check(detach=self.detach)
        return made

    def train(self, supervisor: Supervisor, prepare: Callable[[], object]) -> Outcome:
        """Trains the runs of a supervisor, or submits them. On a node, checks first that it has the runs folder of the
        command. Raises as `Supervisor.run`."""
        if self.on_node:
            from lrurun.runner import node
            from lrurun.runner.preparation import check_runs_folder

            node.check(supervisor.ledger, supervisor.instance, supervisor.work.runs)
            check_runs_folder(supervisor.work.runs)
        outcome = supervisor.run(prepare)
        if self.detach and outcome.worked:
            console.say("lrurun status --watch shows its progress")
        return outcome

    def stopped(self, stopped: Stopped, when: str) -> int:
        """Says what goes on after a signal; the exit code."""
        console.say(f"stopped by {stopped}{when and f' {when}'}; the same command continues: {self.command}")
        if self.on_node:
            from lrurun.runner import node

            node.requeue(stopped.number)
        return stopped.exit_code


def settings_of(
    *, slurm: Sequence[str] | None, ray: Sequence[str] | None, address: str | None
) -> dict[str, Sequence[str]]:
    """The settings that the options of a command give: executor -> KEY=VALUE."""
    return {"slurm": slurm or (), "ray": [*(ray or ()), *([] if address is None else [f"address={address}"])]}


def _pair(name: str, text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise UsageError(
            f"--{name}: expected KEY=VALUE, found {text!r}", f"as in --{name} {_EXAMPLES.get(name, 'KEY=VALUE')}"
        )
    return key, value


def user_file() -> Path:
    """The user's configuration file, which need not exist."""
    return (
        paths.expanded(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "XDG_CONFIG_HOME") / "lrurun" / "config.toml"
    )


def user_settings(executor: str) -> dict[str, str]:
    """The table of an executor in the user's configuration file; empty without one.

    Raises:
        UsageError: the file is not TOML, has a table of no executor, or a value that is no text, number or truth value.
    """
    from lrurun.runner import executors

    file = user_file()
    try:
        tables: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "check its permissions") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{file}: not valid TOML: {error}", 'correct it, as in [slurm] and partition = "gpu"'
        ) from None
    for name in tables:
        if name not in executors.names():
            raise UsageError(f"{file}: unknown table [{name}]", hint_for(name, executors.names(), "tables"))
    table = tables.get(executor, {})
    if not isinstance(table, dict):
        raise UsageError(f"{file}: expected a table [{executor}], found {table!r}", f"as in [{executor}]")
    for key, value in table.items():
        if not isinstance(value, str | int | float):
            raise UsageError(f"{file}: {executor}.{key}: expected a text or a number, found {value!r}", "write a text")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in table.items()}
