"""Times plan, report, HTML, figures and listings on a ladder of 200 rungs with 400 finished runs that nobody trained.

    python benchmarks/rungs.py FOLDER [--rungs 200] [--seeds 2] [--rounds 3] [--json]

Every run has 100 evaluations, and the eigenvalues of two layers at the start and at the end. Commands are whole
processes, with compiled bytecode.
"""

from __future__ import annotations

import argparse
import cmath
import compileall
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import lrurun
from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.ledger import values
from lrurun.ledger.ledger import Ledger

EVALUATIONS = 100
STATES = 64
TASK = ("sDigits", "--ladder", "wide.toml")
COMMANDS = (
    ["plan", *TASK],
    ["report", *TASK],
    ["report", *TASK, "--format", "html", "--out", "page.html"],
    ["plot", *TASK, "--out", "ladder.png"],
    ["plot", *TASK, "--kind", "curves", "--out", "curves.png"],
    ["plot", *TASK, "--kind", "eigenvalues", "--out", "eigenvalues.png"],
    ["plot", *TASK, "--kind", "speed", "--out", "speed.png"],
    ["status"],
    ["runs"],
)


def write_ladder(path: Path, rungs: int) -> None:
    """A ladder whose rungs start the eigenvalues on ever smaller rings."""
    lines = ['name = "wide"', 'title = "many rings"', 'source = "synthetic"', 'question = "Which ring is best?"']
    for number in range(rungs):
        radius = f'"model.recurrence.r_min" = {0.9 * number / rungs:.6f}, "model.recurrence.r_max" = 0.95'
        kind = '"model.recurrence.kind" = "diagonal", ' if number == 0 else ""
        radius = radius if number == 0 else radius.partition(",")[0]
        lines += [
            "[[rung]]",
            f'name = "ring-{number}"',
            f'title = "from radius {0.9 * number / rungs:.3f}"',
            'why = "Longer memory."',
            f"change = {{ {kind}{radius} }}",
        ]
    path.write_text("\n".join(lines) + "\n")


def fill(path: Path, ladder: Path, seeds: int) -> None:
    """A ledger with a finished run for each rung and seed."""
    plan = planning.make("sDigits", ladder=str(ladder))
    owner = values.Owner(host="here", boot="b", namespace="n", pid=1, pid_started=1.0)
    draw = random.Random(0)

    def spectrum() -> list[list[complex]]:
        return [[cmath.rect(draw.random(), draw.uniform(0, 3.14)) for _ in range(STATES)] for _ in range(2)]

    with Ledger.open(path) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        ledger.enqueue(instance.key, [one for rung in plan.rungs for one in final_runs(plan, rung, range(seeds))])
        while held := ledger.hold(instance.key, owner, environment={"device": "cpu"}):
            score = draw.uniform(0.5, 0.9)
            curves = ("train/loss", "val/loss", "val/accuracy", "norm/layer0", "norm/layer1")
            rows = [(10 * k, key, score + draw.gauss(0, 0.01)) for k in range(1, EVALUATIONS + 1) for key in curves]
            ledger.record(held, rows, 10 * EVALUATIONS, score="val/accuracy")
            for moment in ("start", "end"):
                ledger.record_eigenvalues(held, moment, spectrum())
            ledger.describe(held, parameters=1000, data_sha256="d" * 64)
            result = {"test/accuracy": score, "val/accuracy": score, "machine/steps_per_second": 100.0}
            ledger.finish(held, "done", result=result, step=held.run.steps)


def main() -> None:
    """Fills the folder where it is empty, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rungs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "ledger.db").exists():
        write_ladder(folder / "wide.toml", options.rungs)
        fill(folder / "ledger.db", folder / "wide.toml", options.seeds)
    compileall.compile_dir(Path(lrurun.__file__).parent, quiet=1)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LRURUN_")}
    times: dict[str, list[tuple[float, float]]] = {" ".join(command): [] for command in COMMANDS}
    for _ in range(options.rounds):
        for command in COMMANDS:
            began, used = time.monotonic(), _processor_seconds()
            done = subprocess.run(
                [sys.executable, "-m", "lrurun", *command], cwd=folder, env=environment, capture_output=True, text=True
            )
            if done.returncode:
                sys.exit(f"{command}: {done.stderr}")
            times[" ".join(command)].append((time.monotonic() - began, _processor_seconds() - used))
    medians = {
        name: {
            "seconds": round(statistics.median(whole for whole, _ in found), 2),
            "processor_seconds": round(statistics.median(used for _, used in found), 2),
        }
        for name, found in times.items()
    }
    if options.json:
        print(json.dumps(medians))
        return
    for name, one in medians.items():
        print(f"{one['seconds']:8.2f} s {one['processor_seconds']:8.2f} s of a processor  {name}")


def _processor_seconds() -> float:
    """Of the commands that have ended: other work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
