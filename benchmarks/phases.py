"""The phase in which each process of a ladder is: a hook that writes it to files, and their reader. For chaos.py."""

from __future__ import annotations

import contextlib
from pathlib import Path

PHASES = ("migration", "start", "hold", "compile", "train", "evaluate", "checkpoint", "idle")

HOOK = """
import os, sys, time

if "lrurun" in sys.orig_argv or "lrurun.runner.worker" in sys.orig_argv:
    _file = os.open(os.path.join({folder!r}, str(os.getpid())), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(*fields):
        os.write(_file, (" ".join(map(str, (time.monotonic(), *fields))) + "\\n").encode())

    def around(holder, name, before=None, after=None):
        real = getattr(holder, name)
        def wrapped(*args, **kwargs):
            if before is not None:
                before(*args, **kwargs)
            found = real(*args, **kwargs)
            if after is not None:
                after(found, *args, **kwargs)
            return found
        setattr(holder, name, wrapped)

    def of_ledger(module):
        ledger = module.Ledger
        around(ledger, "hold", lambda *_, **__: note("hold"),
               lambda found, *_, **__: note("idle") if found is None else note("held", found.run.id, found.attempt))
        around(ledger, "describe",
               lambda self, held, environment=None, **_: "device" in (environment or {{}}) and note("compile"))
        around(ledger, "rewind", None,
               lambda _, self, held, step, **__: note("from", held.run.id, held.attempt, step))
        around(ledger, "begin_checkpoint",
               lambda self, held, step, path: note("saving", held.run.id, held.attempt, step))
        around(ledger, "commit_checkpoint", None,
               lambda _, self, held, *__: note("saved", held.run.id, held.attempt))
        around(ledger, "finish", None, lambda _, self, held, state, **__: note("finish", held.run.id, state))

    def of_train(module):
        real = module.train_together
        def train_together(*args, **kwargs):
            for event in real(*args, **kwargs):
                if type(event).__name__ in ("Began", "Reached"):
                    note("reached", event.step)
                yield event
        module.train_together = train_together
        around(module, "evaluate", lambda *_, **__: note("evaluate"), lambda *_, **__: note("evaluated"))

    def of_migrate(module):
        around(module, "_upgrade_locked", lambda *_: note("migration"), lambda *_: note("migrated"))

    watched = {{"lrurun.ledger.ledger": of_ledger, "lrurun.training.loop": of_train}}
    watched["lrurun.ledger.database.sqlite"] = of_migrate

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name not in watched:
                return None
            from importlib.machinery import PathFinder
            spec = PathFinder.find_spec(name, path, target)
            execute = spec.loader.exec_module
            def exec_module(module):
                execute(module)
                watched[name](module)
            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder())
    note("start")
"""

_MEANS = {
    **{name: name for name in ("start", "hold", "compile", "evaluate", "migration", "idle")},
    **{"held": "hold", "reached": "train", "evaluated": "train", "migrated": "start", "finish": "idle"},
}
"""A line of a process's file -> the phase that begins with it."""


class Trace:
    """What one process wrote about itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[tuple[float, list[str]]] = []
        self._read = 0

    def refresh(self) -> Trace:
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.decode().splitlines():
                at, *fields = line.split()
                self.lines.append((float(at), fields))
        return self

    @property
    def phase(self) -> str:
        """Where the process is now; "start" before its first line."""
        saving = False
        for _, fields in reversed(self.lines):
            if fields[0] == "saved":
                saving = False
                break
            if fields[0] in ("saving", "held", "finish"):
                saving = fields[0] == "saving"
                break
        for _, fields in reversed(self.lines):
            if fields[0] in _MEANS:
                phase = _MEANS[fields[0]]
                return "checkpoint" if saving and phase == "train" else phase
        return "start"

    def attempt(self, run: str, n: int) -> list[tuple[float, list[str]]]:
        """The lines of one attempt at a run."""
        inside = False
        found = []
        for at, fields in self.lines:
            if fields[0] == "held":
                inside = fields[1:] == [run, str(n)]
            if inside:
                found.append((at, fields))
        return found
