"""Kills supervisors and workers of a ladder at random and at chosen moments, and checks the results.

    python benchmarks/chaos.py [--kills 100] [--workers 4] [--seed 0] [--ledger postgresql] [--json]

A ladder of short runs is trained once undisturbed. Then, in folders of their own, as many ladders as all the kills
need: each gets SIGKILL, SIGTERM and SIGSTOP, and the same command is started again whenever it ended, until nothing
remains to be done. In the end each ladder must equal the undisturbed one, to the last bit of the final checkpoints,
with each run done once. Exit code 1 if anything differs.

How signals are aimed: the processes import a `sitecustomize` that appends a line to a file whenever a migration, claim,
compilation, evaluation or checkpoint begins or ends, and at each boundary of training. A process in the wanted phase is
stopped (SIGSTOP) and its file read again; if it is still in that phase it gets the signal, else it continues. The
undisturbed ladder has no such hook. What is recomputed after a kill is computed from the ledger (which attempt resumed
from which step) and these files (when the killed attempt was at that step, and where it was last): at most one
checkpoint interval, which begins when training continues after a snapshot, the writing of the pending checkpoint, and
one dispatch. A worker that was asked to stop (SIGTERM) recomputes nothing.

With `--ledger postgresql` the ledger is on a private server, which this script starts (Debian: apt-get install
postgresql). After every fourth kill the server restarts, crashes, or is away for some seconds. The undisturbed ladder
is in a file. How much is recomputed is not bounded then, because no checkpoint is recorded while the server is away.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from arena import ATTACKS, DECK, INTERVAL, LADDER, Arena  # noqa: E402
from phases import PHASES  # noqa: E402

from tests.harness.machine import Machine  # noqa: E402
from tests.harness.servers import PrivateServer, running  # noqa: E402


def chaos(
    kills: int,
    workers: int,
    seed: int,
    folder: Path,
    *,
    seeds: int = 3,
    rungs: Sequence[str] = (),
    cache: Path | None = None,
    postgres: PrivateServer | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """The results of ladders of these rungs, or of all; "violations" is empty if there are none."""
    draw = random.Random(seed)
    cache = cache or folder / "cache"
    arguments = [*LADDER, "--seeds", str(seeds), *(word for rung in rungs for word in ("--rung", rung))]
    began = time.monotonic()
    history = _undisturbed(Machine(folder / "undisturbed", cache), *arguments, "--jobs", str(workers))
    quiet = time.monotonic() - began
    say(f"undisturbed: {len(history)} runs in {quiet:.0f} s")
    targets = _shuffled(DECK, draw)
    attacks = _shuffled(ATTACKS, draw)
    stops_due = max(1, kills // 20)
    done = stops = 0
    arenas: list[Arena] = []
    judged: list[dict[str, Any]] = []
    while done < kills:
        arena = Arena(folder / f"attacked-{len(arenas)}", cache, workers, arguments, draw, postgres)
        arenas.append(arena)
        if postgres is None:
            done += any(arena.kill_creation() for _ in range(20))  # it is short, and easily missed
        process = arena.ladder()
        while done < kills:
            if process.poll() is not None:
                if not arena.may_end(process.returncode) or process.returncode == 0:
                    break
                process = arena.ladder()
            if stops < stops_due and done >= (2 * stops + 1) * kills // (2 * stops_due):
                stops += 1
                arena.stand_still(process)
            victim, name = next(attacks)
            done += (killed := arena.kill(process, next(targets), victim, name))
            if killed and postgres is not None and done % 4 == 0:
                arena.server_fault()
        if process.poll() is not None and process.returncode != 0:
            process = arena.ladder()
        arena.finish(process)
        judged.append(arena.judge(history))
        say(f"ladder {len(arenas)}: {done} kills so far, {time.monotonic() - began:.0f} s")
    return {
        "schema_version": 1,
        "kills": done,
        "workers": workers,
        "seed": seed,
        "interval_seconds": INTERVAL,
        "stops": stops,
        "undisturbed_seconds": quiet,
        "seconds": time.monotonic() - began,
        **_summary(arenas, judged),
    }


def _undisturbed(machine: Machine, *arguments: str) -> dict[Any, Any]:
    machine.run(*arguments, timeout=600)
    return machine.history()


def _summary(arenas: list[Arena], judged: list[dict[str, Any]]) -> dict[str, Any]:
    """What happened to all ladders together."""
    lost = [one for of_arena in judged for one in of_arena["lost"]]
    hits: Counter[tuple[str, str]] = sum((arena.hits for arena in arenas), Counter())
    along: Counter[str] = sum((arena.died_along for arena in arenas), Counter())
    faults: Counter[str] = sum((arena.faults for arena in arenas), Counter())
    return {
        "ladders": len(arenas),
        "runs": sum(one["runs"] for one in judged),
        "attempts": sum(one["attempts"] for one in judged),
        "commands": sum(arena.starts for arena in arenas),
        "stopped_and_continued": sum(arena.missed for arena in arenas),
        "hits": {phase: {attack: n for (p, attack), n in sorted(hits.items()) if p == phase} for phase in PHASES},
        "died_with_supervisor": dict(along),
        "server_faults": dict(faults),
        "differ": sum(one["differ"] for one in judged),
        "done_twice": sum(one["twice"] for one in judged),
        "resumed": len(lost),
        "recomputed_steps": max((one["steps"] for one in lost), default=0),
        "recomputed_seconds": max((one["seconds"] for one in lost), default=0.0),
        "recomputed_share": max((one["seconds"] / one["allowed"] for one in lost), default=0.0),
        "violations": [text for arena in arenas for text in arena.violations],
    }


def _shuffled(deck: tuple[Any, ...], draw: random.Random) -> Iterator[Any]:
    while True:
        yield from draw.sample(deck, len(deck))


def table(found: dict[str, Any]) -> str:
    """Which signal came in which phase, in Markdown."""
    columns = ["worker KILL", "worker TERM", "supervisor KILL", "supervisor TERM", "STOP"]
    head = ["phase", *columns, "killed with its supervisor"]
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
    parser.add_argument("--ledger", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--folder", type=Path, help="where the ladders stay; a temporary one by default")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        found = chaos(
            options.kills,
            options.workers,
            options.seed,
            folder,
            postgres=stack.enter_context(running()) if options.ledger == "postgresql" else None,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(table(found))
        for text in found["violations"]:
            print(f"violation: {text}")
    print(
        f"{found['kills']} kills and {found['stops']} stops over {found['ladders']} ladders of"
        f" {found['runs'] // found['ladders']} runs, {found['workers']} workers, seed {found['seed']}:"
        f" {found['done_twice']} runs done twice, {found['differ']} that differ, at most"
        f" {found['recomputed_seconds']:.2f} s and {found['recomputed_steps']} steps repeated"
        f" ({100 * found['recomputed_share']:.0f} % of what is allowed; checkpoints every {INTERVAL} s),"
        f" {found['server_faults'] or 'no'} faults of the server,"
        f" {found['attempts']} attempts, {found['commands']} commands, {found['seconds']:.0f} s;"
        f" {len(found['violations'])} violations",
        file=sys.stderr if options.json else sys.stdout,
    )
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
