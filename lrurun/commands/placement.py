"""Where the runs of a command are trained: the options of the executors, and the user's configuration file."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun import paths
from lrurun.errors import UsageError, hint_for

if TYPE_CHECKING:
    from lrurun.paths import Places
    from lrurun.runner.executors import Executor
    from lrurun.runner.supervisor import Supervisor


_EXAMPLES = {"slurm": "partition=gpu", "ray": "num_gpus=1"}


class Placement(Struct, frozen=True, kw_only=True):
    """The options of a command that say where its runs are trained."""

    executor: str = "local"
    nodes: int | None = None
    settings: Mapping[str, Sequence[str]] = {}
    """Executor -> the KEY=VALUE of the option that is named as it."""
    detach: bool = False
    dry_run: bool = False
    on_node: bool = False
    """Whether an executor started this command, on a node."""

    def make(self, places: Places, command: Sequence[str], more: Sequence[str] = (), *, devices: int = 1) -> Executor:
        """The executor, which is checked unless it only prints its script. Nothing is written.

        Args:
            command: arguments of the command line that decide which runs are trained; they name the job.
            more: further arguments for nodes.
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
        digest = hashlib.sha256(json.dumps([*where, *load, *command]).encode()).hexdigest()[:10]
        job = executors.NodeJob(
            name=f"lrurun-{digest}",
            arguments=[sys.executable, "-P", "-m", "lrurun", *where, *load, *command, *more, "--on-node"],
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

    def check_node(self, supervisor: Supervisor) -> None:
        """On a node, checks that it has the folders of the command. Raises LrurunError."""
        if self.on_node:
            from lrurun.runner import node
            from lrurun.runner.preparation import check_runs_folder

            node.check(supervisor.ledger, supervisor.instance, supervisor.places.runs)
            check_runs_folder(supervisor.places)


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
