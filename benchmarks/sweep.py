"""Times a sweep, whose runs are in one queue, against the same runs instance after instance.

    python benchmarks/sweep.py [--pairs 5] [--cold] [--against CHECKOUT] [--json]

Both train two rungs with two seeds at five rates, in turn, each in a folder of its own. The other side is `lrurun
ladder` with `--set`, once for each rate; or, with `--against`, the same sweep by the lrurun of another checkout. A
figure is of all processes of a side: its duration, and its processor time, which other work on the machine changes
less. With `--cold`, each side begins with an empty cache of compiled functions; otherwise both have filled theirs
before.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

RATES = "0.001,0.002,0.004,0.008,0.016"
LADDER = "ladder sDigits --profile smoke --rung gamma-norm --rung ring-init --seeds 2".split()
SWEEP = [*LADDER, "--sweep", f"optim.lr={RATES}"]
ROOT = Path(__file__).parents[1]


def train(commands: Sequence[Sequence[str]], checkout: Path, folder: Path, cache: Path) -> tuple[float, float]:
    """Seconds, and seconds of processors, of some commands of a checkout in a folder."""
    env = os.environ | {"PYTHONPATH": str(checkout), "JAX_COMPILATION_CACHE_DIR": str(cache)}
    folder.mkdir()
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        subprocess.run(
            [sys.executable, "-P", "-m", "lrurun", *command], cwd=folder, env=env, check=True, capture_output=True
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    single = [[*LADDER, "--set", f"optim.lr={rate}"] for rate in RATES.split(",")]
    sides = {"one queue": ([SWEEP], ROOT)}
    sides["instance after instance"] = (single, ROOT)
    if arguments.against is not None:
        sides["instance after instance"] = ([SWEEP], arguments.against.absolute())
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(arguments.pairs + (not arguments.cold)):
            for k, (name, (commands, checkout)) in enumerate(sides.items()):
                cache = Path(folder, f"cache-{k}" + (f"-{pair}" if arguments.cold else ""))
                figures[name].append(train(commands, checkout, Path(folder, f"{pair}-{k}"), cache))
    if not arguments.cold:
        figures = {name: pairs[1:] for name, pairs in figures.items()}
    ratios = [[a / b for a, b in zip(one, other, strict=True)] for one, other in zip(*figures.values(), strict=True)]
    result = {
        "load": os.getloadavg()[0],
        "sides": {
            name: {
                what: [round(side[k], 2) for side in of_side] for k, what in enumerate(("seconds", "processor seconds"))
            }
            for name, of_side in figures.items()
        },
        "ratio": {
            what: round(statistics.median(ratio[k] for ratio in ratios), 3)
            for k, what in enumerate(("seconds", "processor seconds"))
        },
    }
    if arguments.json:
        print(json.dumps(result))
        return
    for name, values in result["sides"].items():
        for what, numbers in values.items():
            print(f"{name}: {what}: median {statistics.median(numbers)} of {numbers}")
    print(f"ratios, medians of the pairs: {result['ratio']}; load {result['load']:.1f}")


if __name__ == "__main__":
    main()
