"""Compares this checkout with another commit in what a user waits for first, above all the compiler.

    python benchmarks/first_minute.py [COMMIT] [--rounds 5] [--only ROW ...] [--rung RUNG ...] [--json FILE]
    python benchmarks/first_minute.py [COMMIT] --python OLD NEW

Both are installed in fresh environments, or the environments of --python are used, in which they are installed
already. Packages that both have must have the same versions; those that only one has are printed. In each round both
are measured one after the other, each figure by processes of its own with ledger, data and caches in a temporary
folder. Other work on the machine changes seconds of processors little, so that these are compared; the ratios of a
table are medians over the rounds, with least and most.

Rows:

    compile-lru, compile-depth, compile-mamba, compile-ssm
                One process with an empty cache trains each rung of a ladder for one step, and again with another seed.
                What the first time takes longer is tracing, compiling and filling the cache: for initial values,
                steps, evaluations and copies. Evaluations are of one batch. `depth` is the ladder lru on ListOps,
                profile laptop, with six blocks, the others are on npDigits. --rung leaves out other rungs.
    smoke       `lrurun ladder sDigits --profile smoke`, two workers, with an empty cache, and then again in another
                folder with what the first one has compiled. Data are prepared before.
    ladder      `lrurun ladder npDigits`, two workers, from nothing: without cache or data.
    worker      `lrurun ladder npDigits --rung gamma-norm --seeds 1` with an empty cache.
    step        A step of the rung gamma-norm of npDigits in the loop of a worker without its ledger: the median of five
                differences between 450 and 50 steps, both with one evaluation on one batch at their ends.
    read        Commands that read a ledger of a finished npDigits, 96 runs with 200 metric rows each, which is filled
                as `ledger.py` does it; the median of five.
    start       From the start of a worker's process to its first run, which a hook notes, with a warm cache.

Figures of commands are those of all their processes; memory is the largest resident set of one of them, which is a
worker's if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RELEASE = "4af1826"
"""Release 1.0."""
OLD, NEW = "old", "new"

IN_PROCESS = """
import json, os, statistics, sys, time
from pathlib import Path

from msgspec import structs

from lrurun.runner.processes import worker_environment

try:
    from lrurun.config import planning
    from lrurun.data import task_data, tasks
except ImportError:  # their names in release 1.0
    from lrurun import data as tasks
    from lrurun.config import plan as planning
    from lrurun.data import store as task_data

order = json.loads(sys.argv[1])
plan = planning.make(order["task"], ladder=order["ladder"], profile=order["profile"], sets=order["sets"])
rungs = [rung for rung in plan.rungs if not order["rungs"] or rung.name in order["rungs"]]
if not rungs:
    sys.exit(f"ladder {order['ladder']}: --rung names none of {', '.join(rung.name for rung in plan.rungs)}")
(threads,) = {rung.execution.threads for rung in rungs}
assert "jax" not in sys.modules
os.environ.update(worker_environment(threads))

import jax

from lrurun.training import loop

jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))  # starts the backend


def one_batch(split, batch):
    return structs.replace(
        split,
        inputs=split.inputs[:batch],
        labels=split.labels[:batch],
        lengths=None if split.lengths is None else split.lengths[:batch],
    )


def loaded(config):
    task, folder = tasks.get(config.task, config.data), Path(os.environ["LRURUN_DATA"], plan.data_name)
    data = task_data.load(task, tasks.options_of(task, config.data), folder, config.train.protocol)
    small = {name: one_batch(getattr(data, name), config.train.batch) for name in ("validation", "test")}
    return structs.replace(data, **small, further_tests={})


def trained(rung, data, seed, steps):
    schedule = structs.replace(rung.training.train, steps=steps, eval_every=steps)
    config = structs.replace(rung.training, seed=seed, train=schedule)
    before = time.process_time(), time.perf_counter()
    *_, last = loop.train(config, rung.execution, data)
    after = time.process_time(), time.perf_counter()
    assert last.state == "done", last
    return [end - start for start, end in zip(before, after)]


data = loaded(rungs[0].training)
if order["do"] == "compile":
    pairs = [[trained(rung, data, seed, 1) for seed in (0, 1)] for rung in rungs]
    by_rung = {rung.name: first[0] - again[0] for rung, (first, again) in zip(rungs, pairs)}
    found = [sum(first[k] - again[k] for first, again in pairs) for k in (0, 1)]
else:
    (rung,), by_rung = rungs, {}
    few, many = 50, 450
    trained(rung, data, 0, few)
    rounds = [[trained(rung, data, seed, steps) for steps in (few, many)] for seed in range(5)]
    found = [statistics.median(b[k] - a[k] for a, b in rounds) / (many - few) for k in (0, 1)]
print(json.dumps({"processor": found[0], "wall": found[1], "by_rung": by_rung}))
"""

FILL = """
import importlib.util, sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("filling", sys.argv[1])
filling = importlib.util.module_from_spec(spec)
spec.loader.exec_module(filling)
filling.TASKS, filling.REPORTED = ("npDigits", "sDigits"), 96
filling.fill(Path(sys.argv[2]), 2 * filling.REPORTED, 200)
"""

HOOK = """
import sys

if "lrurun.runner.worker" in sys.orig_argv:
    import os, time
    from importlib.machinery import PathFinder

    def watch(ledger):
        name = "hold" if hasattr(ledger, "hold") else "claim"  # its name in release 1.0
        real = getattr(ledger, name)

        def noted(*args, **kwargs):
            found = real(*args, **kwargs)
            if found is not None and not os.path.exists(os.environ["FIRST_RUN"]):
                processor, now = time.process_time(), time.time()
                import psutil

                with open(os.environ["FIRST_RUN"], "w") as file:
                    print(processor, now - psutil.Process().create_time(), file=file)
            return found

        setattr(ledger, name, noted)

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name not in ("lrurun.ledger.ledger", "lrurun.ledger.store"):  # the second one in release 1.0
                return None
            spec = PathFinder.find_spec(name, path, target)
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                watch(module.Ledger)

            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder())
"""

PACKAGES = """
import json
from importlib.metadata import distributions

found = {item.name.lower().replace("_", "-"): item.version for item in distributions()}
print(json.dumps({name: version for name, version in found.items() if name not in ("lrurun", "pip")}))
"""


class Figure(NamedTuple):
    """What one measurement took."""

    processor: float
    """Seconds of processors."""
    wall: float
    """Seconds."""
    memory: float | None = None
    """The largest resident set of a process, in MB; None where it is not that of what is measured."""


class Row(NamedTuple):
    """A line of the table."""

    what: str
    aim: float | None = None
    """For the ratio of `figure`, new to old."""
    figure: str = "processor"


COMPILED = {
    "compile-lru": ("npDigits", "lru", None, {}, 0.45),
    "compile-depth": ("ListOps", "lru", "laptop", {"model.depth": 6}, 0.5),
    "compile-mamba": ("npDigits", "mamba", None, {}, 0.5),
    "compile-ssm": ("npDigits", "ssm", None, {}, 0.5),
}
"""Row -> task, ladder, profile, settings, aim."""
SMOKE = ["ladder", "sDigits", "--profile", "smoke", "--jobs", "2"]
READING = (["runs", "--limit", "20"], ["status"], ["report", "npDigits"])
READINGS = 5
DATA = {
    "npDigits": ("compile-lru", "compile-mamba", "compile-ssm", "worker", "step"),
    "sDigits --profile smoke": ("smoke", "start"),
    "ListOps --profile laptop": ("compile-depth",),
}
"""Arguments of `lrurun data prepare` -> the rows that need these data prepared."""


class Side:
    """One of the two versions, and its folder."""

    def __init__(self, python: Path, source: Path, folder: Path, rungs: Sequence[str]) -> None:
        """`source` is a checkout, of which only `benchmarks/ledger.py` is read."""
        self.python, self.source, self.folder, self.rungs = python, source, folder, rungs
        self.warm = folder / "warm"
        """A cache that is kept."""
        folder.mkdir()

    def run(self, words: Sequence[str], cache: Path, place: Path, **more: str) -> tuple[Figure, str]:
        """Runs Python with arguments in the folder `place`: what it took, and its output."""
        dropped = ("LRURUN", "JAX", "XLA", "PYTHON", "NPROC", "COLUMNS")
        env = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        env |= {"XDG_CACHE_HOME": str(cache), "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"), "COLUMNS": "120"}
        env |= {"LRURUN_DATA": str(self.folder / "data"), "LRURUN_LEDGER": str(place / "ledger.db")}
        env |= {"LRURUN_RUNS": str(place / "runs"), "XDG_DATA_HOME": str(place), "XDG_CONFIG_HOME": str(place)} | more
        for folder in (cache, place):
            folder.mkdir(exist_ok=True)
        command = [str(self.python), "-P", *words]
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            began = time.perf_counter()
            process = subprocess.Popen(
                command, cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
            )
            _, status, usage = os.wait4(process.pid, 0)  # with the children that it has waited for
            seconds = time.perf_counter() - began
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            errors.seek(0)
            if process.returncode:
                shown = " ".join(word for word in words if "\n" not in word)  # not the scripts above
                sys.exit(f"{self.python} {shown}: exit {process.returncode}\n{errors.read().decode()[-4000:]}")
            megabytes = usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
            return Figure(usage.ru_utime + usage.ru_stime, seconds, megabytes), output.read().decode()

    def lrurun(self, words: Sequence[str], cache: Path, place: Path, **more: str) -> Figure:
        """What an lrurun command took."""
        return self.run(["-m", "lrurun", *words], cache, place, **more)[0]

    def in_process(self, cache: Path, **order: Any) -> tuple[Figure, dict[str, float]]:
        """What is measured inside a process: processor and wall time, and seconds of processors by rung."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            used, output = self.run(["-c", IN_PROCESS, json.dumps(order)], cache, Path(place))
        found = json.loads(output.splitlines()[-1])
        return Figure(found["processor"], found["wall"], used.memory), found["by_rung"]

    def prepare(self, rows: Sequence[str]) -> None:
        """Data, warm caches, bytecode and a filled ledger, as far as rows need them."""
        (self.folder / "hook").mkdir()
        (self.folder / "hook" / "sitecustomize.py").write_text(HOOK)
        for words, needed_by in DATA.items():
            if set(needed_by) & set(rows):
                self.lrurun(["data", "prepare", *words.split()], self.warm, self.folder / "prepared")
        if "read" in rows:
            place = self.folder / "filled"
            place.mkdir()
            script = str(self.source / "benchmarks" / "ledger.py")
            self.run(["-c", FILL, script, str(place / "ledger.db")], self.warm, place)
        for row in ("step", "read", "start"):
            if row in rows:
                dict(self.measure(row))

    def measure(self, row: str) -> Iterator[tuple[Row, Figure]]:
        """Measures the lines of a row once."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            cold, place = folder / "cache", folder / "place"
            if row in COMPILED:
                task, ladder, profile, sets, aim = COMPILED[row]
                order = {"task": task, "ladder": ladder, "profile": profile, "sets": sets, "rungs": self.rungs}
                figure, by_rung = self.in_process(cold, do="compile", **order)
                title = f"compiling {task}, ladder {ladder}{', six blocks' if sets else ''}"
                yield Row(f"{title}: {', '.join(by_rung)}" if self.rungs else title, aim), figure
            elif row == "smoke":
                yield Row("`ladder sDigits --profile smoke`, empty cache", 0.45), self.lrurun(SMOKE, cold, place)
                again = self.lrurun(SMOKE, cold, folder / "again")
                yield Row("`ladder sDigits --profile smoke`, warm cache", 0.65), again
            elif row == "ladder":
                words = ["ladder", "npDigits", "--jobs", "2"]
                figure = self.lrurun(words, cold, place, LRURUN_DATA=str(folder / "data"))
                yield Row("`ladder npDigits` from nothing", 0.72), figure
                yield Row("`ladder npDigits` from nothing: memory of a worker", 0.8, "memory"), figure
            elif row == "worker":
                words = ["ladder", "npDigits", "--rung", "gamma-norm", "--seeds", "1", "--jobs", "1"]
                figure = self.lrurun(words, cold, place)
                yield Row("`ladder npDigits --rung gamma-norm --seeds 1`, empty cache"), figure
                yield Row("`ladder npDigits --rung gamma-norm --seeds 1`: memory", 0.8, "memory"), figure
            elif row == "step":
                order = {"task": "npDigits", "ladder": "lru", "profile": None, "sets": {}, "rungs": ["gamma-norm"]}
                yield Row("step of npDigits, gamma-norm", 0.75), self.in_process(self.warm, do="step", **order)[0]
            elif row == "read":
                for words in READING:
                    times = [self.lrurun(words, self.warm, self.folder / "filled") for _ in range(READINGS)]
                    yield Row(f"`{' '.join(words)}`", 0.8), Figure(*map(statistics.median, zip(*times, strict=True)))
            elif row == "start":
                words = [*SMOKE[:-1], "1", "--rung", "gamma-norm", "--seeds", "1"]
                note = folder / "first-run"
                hook = {"PYTHONPATH": str(self.folder / "hook"), "FIRST_RUN": str(note)}
                self.lrurun(words, self.warm, place, **hook)
                processor, wall = map(float, note.read_text().split())
                yield Row("start of a worker to its first run, warm cache", 0.6), Figure(processor, wall)


ROWS = (*COMPILED, "smoke", "ladder", "worker", "step", "read", "start")


def install(source: Path, environment: Path, constraints: Path | None = None) -> Path:
    """A fresh environment with lrurun from a folder; its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    constrained = [] if constraints is None else ["--constraint", str(constraints)]
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", str(source), *constrained], check=True)
    return python


def packages(python: Path) -> dict[str, str]:
    """Name -> version of all packages beside lrurun."""
    found: dict[str, str] = json.loads(subprocess.check_output([str(python), "-P", "-c", PACKAGES], text=True))
    return found


def checked(pythons: Sequence[Path]) -> dict[str, str]:
    """The packages of the new environment; none that the old one has, too, may have another version there."""
    old, new = (packages(python) for python in pythons)
    if different := [f"{name} {old[name]}, {new[name]}" for name in sorted(old.keys() & new) if old[name] != new[name]]:
        sys.exit(f"the environments have different versions of {'; '.join(different)}")
    for side, names in ((OLD, old.keys() - new), (NEW, new.keys() - old)):
        if names:
            print(f"only in the {side} environment: {', '.join(sorted(names))}", file=sys.stderr)
    return new


def median_and_range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def ratios(old: Sequence[Figure], new: Sequence[Figure], figure: str) -> list[float]:
    """New to old, round by round; none where a figure was not measured."""
    pairs = [(getattr(a, figure), getattr(b, figure)) for a, b in zip(old, new, strict=True)]
    return [b / a for a, b in pairs if a is not None]


def amount(figures: Sequence[Figure], figure: str) -> str:
    """The median with its unit."""
    value = statistics.median(getattr(one, figure) for one in figures)
    if figure == "memory":
        return f"{value:.0f} MB"
    return f"{value:.3g} s" if value >= 0.1 else f"{1000 * value:.3g} ms"


def table(found: dict[Row, dict[str, list[Figure]]]) -> str:
    """The lines of a Markdown table."""
    lines = ["| what | old | new | ratio | aim | wall time | memory |", "|---|---|---|---|---|---|---|"]
    for row, sides in found.items():
        old, new = sides[OLD], sides[NEW]
        shown = {name: ratios(old, new, name) for name in Figure._fields}
        cells = [row.what, amount(old, row.figure), amount(new, row.figure), median_and_range(shown[row.figure])]
        cells.append("" if row.aim is None else f"{row.aim:g}")
        for name in ("wall", "memory"):
            is_shown = shown[name] and row.figure == "processor"
            cells.append(median_and_range(shown[name]) if is_shown else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def document(found: dict[Row, dict[str, list[Figure]]], commit: str, versions: dict[str, str]) -> dict[str, Any]:
    """All figures as JSON has them."""
    rows = [
        row._asdict()
        | {side: [figure._asdict() for figure in figures] for side, figures in sides.items()}
        | {"ratio": ratios(sides[OLD], sides[NEW], row.figure)}
        for row, sides in found.items()
    ]
    return {"commit": commit, "load": os.getloadavg()[0], "packages": versions, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default=RELEASE, help=f"the old version [{RELEASE}, release 1.0]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS, metavar="ROW", help="leaves out other rows")
    parser.add_argument("--rung", nargs="+", default=[], help="leaves out other rungs of the rows compile-*")
    parser.add_argument("--python", nargs=2, type=Path, metavar=("OLD", "NEW"), help="environments to use")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all figures are written")
    options = parser.parse_args()
    found: dict[Row, dict[str, list[Figure]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive, source = folder / "old.tar", folder / "source"
        subprocess.run(["git", "-C", str(ROOT), "archive", f"--output={archive}", options.commit], check=True)
        shutil.unpack_archive(archive, source, filter="data")
        if options.python:
            pythons = [path.absolute() for path in options.python]
        else:
            newer, constraints = install(ROOT, folder / "environment-new"), folder / "constraints.txt"
            constraints.write_text("".join(f"{name}=={version}\n" for name, version in packages(newer).items()))
            pythons = [install(source, folder / "environment-old", constraints), newer]
        versions = checked(pythons)
        sides = {
            name: Side(python, checkout, folder / name, options.rung)
            for name, python, checkout in zip((OLD, NEW), pythons, (source, ROOT), strict=True)
        }
        for side in sides.values():
            side.prepare(options.only)
        for count in range(options.rounds):
            for row in options.only:
                for name, side in sides.items():
                    for line, figure in side.measure(row):
                        found.setdefault(line, {OLD: [], NEW: []})[name].append(figure)
                print(f"round {count + 1} of {options.rounds}: {row}", file=sys.stderr)
                if options.json:  # what was measured is kept if a later row fails
                    options.json.write_text(json.dumps(document(found, options.commit, versions), indent=1))
    print(table(found))


if __name__ == "__main__":
    main()
