"""Kills supervisors and workers of a ladder at random moments and at chosen ones, and looks at what comes of it.

    python benchmarks/chaos.py [--kills 100] [--workers 4] [--seed 0] [--json]

A ladder of short runs is climbed once undisturbed. Then, in folders of their own, as many times as it takes for all the
kills: each ladder is hit by SIGKILL, SIGTERM and SIGSTOP, the same command is started again whenever it ended, until it
ends with nothing to do. Afterwards each ladder must be what the undisturbed one is, to the last bit of the final
checkpoints, each run done once. Exit code 1 when anything is not as promised.

How a blow is aimed: processes under attack import a `sitecustomize` that appends a line to a file whenever a migration,
claim, compilation, evaluation or checkpoint begins or ends, and at each boundary of training. A process that is where
it is wanted is stopped (SIGSTOP), its file read again, and only if it still is there it is hit; else it goes on. The
undisturbed ladder has no such thing. What is recomputed after a kill is judged from the ledger (which attempt went on
from which step) and these files (when the killed attempt was at that step, and where it was last): no more than one
checkpoint interval, which begins when training goes on after a snapshot, the writing of the checkpoint that was under
way, and one dispatch. A worker that was asked to stop (SIGTERM) does nothing again.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lrurun.ledger.store import Ledger  # noqa: E402
from tests.machine import Machine, workers_of  # noqa: E402

INTERVAL = 0.3
"""Seconds between checkpoints."""
LADDER = [
    *("ladder", "sDigits", "--profile", "smoke"),
    *("--set", "train.steps=300", "--set", "train.eval_every=50"),
    *("--set", f"execution.checkpoint_seconds={INTERVAL}"),
]
OLD = ROOT / "tests" / "ledgers" / "0001.db"
"""A ledger of the first released revision, with rows."""

PHASES = ("migration", "start", "claim", "compile", "train", "evaluate", "checkpoint", "idle")
DECK = ("any", "any", "start", "claim", "compile", "train", "evaluate", "evaluate", "checkpoint", "checkpoint")
"""Where kills are aimed at, in shuffled order; "any" is wherever some worker is after a random time."""
BLOWS = (*[("worker", "KILL")] * 4, ("worker", "TERM"), *[("supervisor", "KILL")] * 3, ("supervisor", "TERM"))
PATIENCE = 6.0
"""Seconds to wait for a worker to be where it is wanted; then any is hit."""

HOOK = """
import os, sys, time

if "lrurun" in sys.orig_argv or "lrurun.worker" in sys.orig_argv:
    _file = os.open(os.path.join({folder!r}, str(os.getpid())), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(*words):
        os.write(_file, (" ".join(map(str, (time.monotonic(), *words))) + "\\n").encode())

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

    def of_store(module):
        ledger = module.Ledger
        around(ledger, "claim", lambda *_, **__: note("claim"),
               lambda found, *_, **__: note("idle") if found is None else note("claimed", found.run.id, found.attempt))
        around(ledger, "describe",
               lambda self, claim, environment=None, **_: "device" in (environment or {{}}) and note("compile"))
        around(ledger, "rewind", None, lambda _, self, claim, step: note("from", claim.run.id, claim.attempt, step))
        around(ledger, "saving", lambda self, claim, step, path: note("saving", claim.run.id, claim.attempt, step))
        around(ledger, "committed", None, lambda _, self, claim, *__: note("saved", claim.run.id, claim.attempt))
        around(ledger, "finish", None, lambda _, self, claim, state, **__: note("finish", claim.run.id, state))

    def of_train(module):
        real = module.train_together
        def train_together(*args, **kwargs):
            for event in real(*args, **kwargs):
                if type(event).__name__ in ("Began", "Reached"):
                    note("reached", event.step)
                yield event
        module.train_together = train_together
        around(module, "_evaluate", lambda *_: note("evaluate"), lambda *_: note("evaluated"))

    def of_migrate(module):
        around(module, "_upgrade_locked", lambda *_: note("migration"), lambda *_: note("migrated"))

    watched = {{"lrurun.ledger.store": of_store, "lrurun.train": of_train, "lrurun.ledger.migrate": of_migrate}}

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
    **{word: word for word in ("start", "claim", "compile", "evaluate", "migration", "idle")},
    **{"claimed": "claim", "reached": "train", "evaluated": "train", "migrated": "start", "finish": "idle"},
}
"""A line of a process's file -> the phase that begins with it."""


class Trace:
    """What one process wrote down of itself."""

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
                at, *words = line.split()
                self.lines.append((float(at), words))
        return self

    @property
    def phase(self) -> str:
        """Where the process is now; "start" before its first line."""
        saving = False
        for _, words in reversed(self.lines):
            if words[0] == "saved":
                saving = False
                break
            if words[0] in ("saving", "claimed", "finish"):
                saving = words[0] == "saving"
                break
        for _, words in reversed(self.lines):
            if words[0] in _MEANS:
                phase = _MEANS[words[0]]
                return "checkpoint" if saving and phase == "train" else phase
        return "start"

    def attempt(self, run: str, n: int) -> list[tuple[float, list[str]]]:
        """The lines of one attempt at a run."""
        inside = False
        found = []
        for at, words in self.lines:
            if words[0] == "claimed":
                inside = words[1:] == [run, str(n)]
            if inside:
                found.append((at, words))
        return found


class Arena:
    """One ladder under attack."""

    def __init__(self, folder: Path, cache: Path, workers: int, words: list[str], draw: random.Random) -> None:
        self.machine = Machine(folder, cache)
        self.words, self.workers, self.draw = words, workers, draw
        self.traces_folder = folder / "traces"
        site = folder / "site"
        site.mkdir()
        self.traces_folder.mkdir()
        (site / "sitecustomize.py").write_text(HOOK.format(folder=str(self.traces_folder)))
        # compiled bytecode would be kept beside modules that others use, too
        self.env = {"PYTHONPATH": f"{site}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        self.traces: dict[int, Trace] = {}
        self.hits: Counter[tuple[str, str]] = Counter()
        """(phase, blow) -> how many."""
        self.died_along: Counter[str] = Counter()
        """Phase -> workers that died because their supervisor was killed."""
        self.paused: dict[int, list[tuple[float, float]]] = {}
        self.missed = 0
        """Times a process was stopped and let go on."""
        self.starts = 0
        self.violations: list[str] = []

    def trace(self, pid: int) -> Trace:
        return self.traces.setdefault(pid, Trace(self.traces_folder / str(pid))).refresh()

    def start(self, *words: str) -> subprocess.Popen[str]:
        self.starts += 1
        with (self.machine.folder / "said.txt").open("a") as log:
            return self.machine.start(*words, env=self.env, stdout=log, stderr=log)

    def ladder(self) -> subprocess.Popen[str]:
        return self.start(*self.words, "--jobs", str(self.workers))

    def aim(self, wanted: str, candidates: Callable[[], list[psutil.Process]], seconds: float) -> psutil.Process | None:
        """A process that is in the phase wanted, stopped; after some seconds whichever there is; None when none is."""
        end = time.monotonic() + seconds
        while True:
            late = time.monotonic() > end
            there = candidates()
            self.draw.shuffle(there)
            for process in there:
                if late or wanted == "any" or self.trace(process.pid).phase == wanted:
                    if not _stop(process):
                        continue
                    if late or wanted == "any" or self.trace(process.pid).phase == wanted:
                        return process
                    self._go_on(process)
                    self.missed += 1
            if late:
                return None
            time.sleep(0.001)

    def _go_on(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    def kill(self, process: subprocess.Popen[str], wanted: str, victim: str, name: str) -> bool:
        """Whether there was one to hit. A supervisor is hit when one of its workers is where it is wanted."""
        time.sleep(self.draw.uniform(0.0, 1.5))
        found = self.aim(wanted, lambda: [] if process.poll() is not None else workers_of(process), PATIENCE)
        if found is None or process.poll() is not None:
            if found is not None:
                self._go_on(found)
            return False
        number = getattr(signal, f"SIG{name}")
        self.hits[self.trace(found.pid).phase, f"{victim} {name}"] += 1
        if victim == "supervisor":
            others = [worker for worker in workers_of(process) if worker.pid != found.pid]
            if name == "KILL":
                self.died_along.update(self.trace(worker.pid).phase for worker in others)
            process.send_signal(number)
        else:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.send_signal(number)
        self._go_on(found)
        if victim == "supervisor":
            self._ends(process, [found, *others])
        return True

    def _ends(self, process: subprocess.Popen[str], workers: list[psutil.Process]) -> None:
        """A supervisor that was hit ends, and its workers with it."""
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.violations.append(f"a supervisor with {len(workers)} workers did not end within 20 s of a signal")
            process.kill()
            process.wait()
        _, alive = psutil.wait_procs(workers, timeout=10)
        for worker in alive:
            self.violations.append(f"worker {worker.pid} outlived its supervisor by 10 s")
            worker.kill()

    def stand_still(self, process: subprocess.Popen[str]) -> None:
        """Stops a supervisor and its workers: a second command must not take their runs."""
        time.sleep(self.draw.uniform(0.0, 1.5))
        until = time.monotonic() + PATIENCE
        while not self._running() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        if process.poll() is not None:
            return
        began = time.monotonic()
        supervisor = psutil.Process(process.pid)
        while True:
            stopped = [p for p in [supervisor, *workers_of(process)] if _stop(p)]
            if self._free() or not stopped:
                break
            for one in stopped:  # one was stopped while it wrote, and no other process could
                self._go_on(one)
            time.sleep(0.01)
        pids = {p.pid for p in stopped}
        held = {run: n for run, n, pid in self._running() if pid in pids}
        for one in stopped[1:]:
            if any(pid == one.pid for *_, pid in self._running()):
                self.hits[self.trace(one.pid).phase, "STOP"] += 1
        second = self.start(*self.words, "--jobs", "1")
        time.sleep(self.draw.uniform(2.5, 3.5))
        if second.poll() is not None:
            self.violations.append(
                f"beside a stopped command another ended with {second.returncode} instead of waiting"
            )
        now = {run: n for run, n, pid in self._running() if pid in pids}
        if now != held:
            self.violations.append(f"a stopped command's runs were taken: {held} before, {now} after")
        second.terminate()
        self._ends(second, workers_of(second))
        for one in stopped:
            self._go_on(one)
            self.paused.setdefault(one.pid, []).append((began, time.monotonic()))

    def _free(self) -> bool:
        """Whether no process is writing to the ledger."""
        with contextlib.closing(sqlite3.connect(self.machine.ledger, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
        return True

    def _running(self) -> list[tuple[str, int, int]]:
        """(run, attempt, pid) of the runs that the ledger says are running; looking changes nothing."""
        with contextlib.closing(sqlite3.connect(self.machine.ledger, timeout=30)) as connection:
            return connection.execute(
                "SELECT r.id, a.n, a.pid FROM runs r JOIN attempts a ON a.run = r.number AND a.n = r.attempt"
                " WHERE r.state = 'running'"
            ).fetchall()

    def kill_migration(self, *words: str) -> bool:
        """Whether a command that creates or upgrades a ledger was killed at it."""
        process = self.start(*words)
        end = time.monotonic() + 30
        while self.trace(process.pid).phase != "migration" and process.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(self.draw.uniform(0.0, 0.08))  # it takes about a tenth of a second
        hit = process.poll() is None and _stop(psutil.Process(process.pid))
        hit = hit and self.trace(process.pid).phase == "migration"
        if hit:
            self.hits["migration", "supervisor KILL"] += 1
        workers = workers_of(process) if process.poll() is None else []
        process.kill()
        self._ends(process, workers)
        return hit

    def kill_creation(self) -> bool:
        """The same for a ledger that is not there yet."""
        for path in self.machine.folder.glob("ledger.db*"):
            path.unlink()
        return self.kill_migration(*self.words, "--jobs", str(self.workers))

    def kill_upgrade(self) -> bool:
        """The same for a ledger of an older version: afterwards it has every row, whatever was killed."""
        old = self.machine.folder / f"old-{self.starts}.db"
        shutil.copy(OLD, old)
        before = _rows(old)
        hit = self.kill_migration("ledger", "migrate", "--ledger", str(old))
        if _rows(old) != before and not _keeps(before, _rows(old)):
            self.violations.append(f"{old.name}: rows differ after a killed migration")
        self.machine.run("ledger", "migrate", "--ledger", str(old))
        if not _keeps(before, _rows(old)):
            self.violations.append(f"{old.name}: rows differ after the second migration")
        with Ledger.open(old) as ledger:
            self.violations += [f"{old.name}: {problem}" for problem in ledger.check()]
        return hit

    def finish(self, process: subprocess.Popen[str]) -> None:
        """Starts the same command until it ends with all done."""
        for _ in range(5):
            code = process.wait(timeout=600)
            if not self.may_end(code):
                break
            if code == 0:
                return
            process = self.ladder()
        self.violations.append(f"left alone, the command ended with {code}")

    def may_end(self, code: int) -> bool:
        """Whether a command may end so: done; runs whose workers were killed thrice; the signal that was sent."""
        ok = code in (0, 3, 143, -signal.SIGTERM, -signal.SIGKILL)  # SIGTERM: before it was heeded
        if not ok:
            said = (self.machine.folder / "said.txt").read_text().splitlines()[-3:]
            self.violations.append(f"a command ended with {code}: {' / '.join(said)}")
        return ok

    def judge(self, undisturbed: dict[Any, Any]) -> dict[str, Any]:
        """Compares with the undisturbed ladder; what was lost by kills, in steps and seconds."""
        found = self.machine.history()
        differ = [key for key in undisturbed if found.get(key) != undisturbed[key]]
        for key in differ:
            parts = ("id", "state", "step", "result", "curves", "parameters")
            which = [n for n, a, b in zip(parts, found.get(key, [None] * 6), undisturbed[key], strict=True) if a != b]
            self.violations.append(f"{key}: {', '.join(which)} differ from the undisturbed ladder")
        if extra := found.keys() - undisturbed.keys():
            self.violations.append(f"runs that nobody asked for: {extra}")
        running = self._running()
        if running:
            self.violations.append(f"left running: {running}")
        lost: list[dict[str, float]] = []
        twice = attempts_made = 0
        for run, attempts in self.machine.attempts().items():
            attempts_made += len(attempts)
            done = [a.n for a in attempts if a.reason == "done"]
            if not done or done != [attempts[-1].n]:
                twice += 1
                self.violations.append(f"run {run}: done by attempts {done} of {len(attempts)}")
            for one, two in itertools.pairwise(attempts):
                if one.ended_at is None or one.ended_at > two.started_at:
                    self.violations.append(f"run {run}: attempts {one.n} and {two.n} overlap")
            lost += self._lost(run, attempts)
        return {"runs": len(found), "attempts": attempts_made, "differ": len(differ), "twice": twice, "lost": lost}

    def _lost(self, run: str, attempts: list[Any]) -> Iterator[dict[str, float]]:
        """Training that a broken attempt had done and a later one did again."""
        for place, one in enumerate(attempts):
            later = next((a for a in attempts[place + 1 :] if a.resumed_from is not None), None)
            lines = self.trace(one.pid).attempt(run, one.n)
            reached = [(at, int(words[1])) for at, words in lines if words[0] == "reached"]
            if later is None or not reached:
                continue
            (first, began), (last, step) = reached[0], reached[-1]
            again = int(later.resumed_from)
            saves = [(at, int(words[3])) for at, words in lines if words[0] == "saving"]
            saved = sum(words[0] == "saved" for _, words in lines)
            committed = [s for _, s in saves[:saved]]
            if again < max([began, *committed]):
                self.violations.append(f"run {run}: attempt {later.n} began at {again}, {committed} were saved")
            if one.reason == "interrupted: SIGTERM" and again < step:
                self.violations.append(f"run {run}: attempt {one.n} saved and stopped at {step}, {again} was used")
            if again >= step:
                yield {"steps": 0, "seconds": 0.0, "allowed": INTERVAL}
                continue
            at = next((t for t, s in reached if s >= again), first)
            pauses = sum(max(0.0, min(b, last) - max(a, at)) for a, b in self.paused.get(one.pid, []))
            writing = last - saves[saved][0] if len(saves) > saved else 0.0
            dispatch = max((b - a for (a, _), (b, _) in itertools.pairwise(reached)), default=0.0)
            goes_on = next((t for t, _ in reached if t > at), at)  # once the snapshot was handed over to be written
            seconds, allowed = last - at - pauses, goes_on - at + INTERVAL + max(0.0, writing) + dispatch
            if seconds > allowed:
                self.violations.append(
                    f"run {run}: {seconds:.2f} s of attempt {one.n} were done again, {allowed:.2f} s are allowed"
                )
            yield {"steps": step - again, "seconds": seconds, "allowed": allowed}


def _stop(process: psutil.Process) -> bool:
    """Stops a process and waits until it stands still; whether it lives."""
    try:
        process.suspend()
        while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            time.sleep(0.0005)
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def _rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table of a ledger, by column."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        versions = ("lrurun_version", "ledger_info", "sqlite_sequence")
        return {
            t: [dict(row) for row in connection.execute(f'SELECT * FROM "{t}"')] for t in tables if t not in versions
        }


def _keeps(before: dict[str, list[dict[str, Any]]], after: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether all rows are there, whatever columns and tables have joined them."""
    return all(
        len(after.get(table, [])) == len(rows)
        and all(all(new[k] == old[k] for k in old) for old, new in zip(rows, after[table], strict=True))
        for table, rows in before.items()
    )


def chaos(
    kills: int,
    workers: int,
    seed: int,
    folder: Path,
    *,
    seeds: int = 3,
    cache: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """What became of it all; "violations" is empty when every promise was kept."""
    draw = random.Random(seed)
    cache = cache or folder / "cache"
    words = [*LADDER, "--seeds", str(seeds)]
    began = time.monotonic()
    calm = Machine(folder / "undisturbed", cache)
    calm.run(*words, "--jobs", str(workers), timeout=600)
    history = calm.history()
    quiet = time.monotonic() - began
    say(f"undisturbed: {len(history)} runs in {quiet:.0f} s")
    targets = _shuffled(DECK, draw)
    blows = _shuffled(BLOWS, draw)
    stops_due = max(1, kills // 20)
    done = stops = 0
    arenas: list[Arena] = []
    judged: list[dict[str, Any]] = []
    while done < kills:
        arena = Arena(folder / f"attacked-{len(arenas)}", cache, workers, words, draw)
        arenas.append(arena)
        done += any(arena.kill_upgrade() for _ in range(5))  # it is over in a tenth of a second, and easily missed
        done += done < kills and any(arena.kill_creation() for _ in range(5))
        process = arena.ladder()
        while done < kills:
            if process.poll() is not None:
                if not arena.may_end(process.returncode) or process.returncode == 0:
                    break
                process = arena.ladder()
            if stops < stops_due and done >= (2 * stops + 1) * kills // (2 * stops_due):
                stops += 1
                arena.stand_still(process)
            victim, name = next(blows)
            done += arena.kill(process, next(targets), victim, name)
        if process.poll() is not None and process.returncode != 0:
            process = arena.ladder()
        arena.finish(process)
        judged.append(arena.judge(history))
        say(f"ladder {len(arenas)}: {done} kills so far, {time.monotonic() - began:.0f} s")
    lost = [one for of_arena in judged for one in of_arena["lost"]]
    hits: Counter[tuple[str, str]] = sum((arena.hits for arena in arenas), Counter())
    along: Counter[str] = sum((arena.died_along for arena in arenas), Counter())
    return {
        "schema_version": 1,
        "kills": done,
        "workers": workers,
        "seed": seed,
        "interval_seconds": INTERVAL,
        "ladders": len(arenas),
        "runs": sum(one["runs"] for one in judged),
        "attempts": sum(one["attempts"] for one in judged),
        "commands": sum(arena.starts for arena in arenas),
        "stops": stops,
        "stopped_and_continued": sum(arena.missed for arena in arenas),
        "hits": {phase: {blow: n for (p, blow), n in sorted(hits.items()) if p == phase} for phase in PHASES},
        "died_with_supervisor": dict(along),
        "differ": sum(one["differ"] for one in judged),
        "done_twice": sum(one["twice"] for one in judged),
        "resumed": len(lost),
        "recomputed_steps": max((one["steps"] for one in lost), default=0),
        "recomputed_seconds": max((one["seconds"] for one in lost), default=0.0),
        "recomputed_share": max((one["seconds"] / one["allowed"] for one in lost), default=0.0),
        "undisturbed_seconds": quiet,
        "seconds": time.monotonic() - began,
        "violations": [text for arena in arenas for text in arena.violations],
    }


def _shuffled(deck: tuple[Any, ...], draw: random.Random) -> Iterator[Any]:
    while True:
        yield from draw.sample(deck, len(deck))


def table(found: dict[str, Any]) -> str:
    """Where which blow fell, in Markdown."""
    columns = ["worker KILL", "worker TERM", "supervisor KILL", "supervisor TERM", "STOP"]
    head = ["hit while in", *columns, "died with its supervisor"]
    lines = [" | ".join(head), "|".join(["---"] * len(head))]
    for phase in PHASES:
        cells = [found["hits"][phase].get(column, 0) for column in columns]
        lines.append(" | ".join(map(str, [phase, *cells, found["died_with_supervisor"].get(phase, 0)])))
    return "\n".join(f"| {line} |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the ladders stay; a temporary one by default")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = asked.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        found = chaos(
            asked.kills, asked.workers, asked.seed, folder, say=lambda text: print(text, file=sys.stderr, flush=True)
        )
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        print(table(found))
        for text in found["violations"]:
            print(f"violation: {text}")
    print(
        f"{found['kills']} kills and {found['stops']} stops over {found['ladders']} ladders of"
        f" {found['runs'] // found['ladders']} runs, {found['workers']} workers, seed {found['seed']}:"
        f" {found['done_twice']} runs done twice, {found['differ']} that differ, at most"
        f" {found['recomputed_seconds']:.2f} s and {found['recomputed_steps']} steps done again"
        f" ({100 * found['recomputed_share']:.0f} % of what is allowed; checkpoints every {INTERVAL} s),"
        f" {found['attempts']} attempts, {found['commands']} commands, {found['seconds']:.0f} s;"
        f" {len(found['violations'])} violations",
        file=sys.stderr if asked.json else sys.stdout,
    )
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
