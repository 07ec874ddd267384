"""How many faults in the package the tests catch. Needs pytest-cov.

    python -m benchmarks.faults draw faults.json --count 60 --seed 0
    python -m benchmarks.faults trace lines.json       # the default tests, with the lines that each of them executes
    python -m benchmarks.faults judge faults.json lines.json answers.json

A fault is a changed comparison, sign or constant, or a removed statement. Each is put into a copy of the repository,
where the tests that execute its line run, those with the fewest lines first, until one fails or they have used 60 CPU
seconds.
`judge` continues where it was interrupted; `--pytest "-m slow"` and `--only` are for other tests and packages.
"""

from __future__ import annotations

import argparse
import ast
import collections
import concurrent.futures
import json
import os
import random
import resource
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 60
"""CPU seconds for the tests of a fault; after four times as many seconds of wall time they end too."""
TESTS = 400
"""The largest number of tests of a fault."""
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


class Fault(NamedTuple):
    path: str
    line: int
    kind: str
    before: str
    after: str
    start: tuple[int, int]
    """Line and byte of its first character, from 1 and 0; `end`: behind its last one."""
    end: tuple[int, int]

    @property
    def package(self) -> str:
        parts = Path(self.path).parts
        return parts[1] if len(parts) > 2 else "lrurun"

    def apply(self, text: str) -> str:
        lines = text.encode().splitlines(keepends=True)
        (first, left), (last, right) = self.start, self.end
        changed = lines[first - 1][:left] + self.after.encode() + lines[last - 1][right:]
        return b"".join([*lines[: first - 1], changed, *lines[last:]]).decode()


def candidates(path: Path) -> Iterator[Fault]:
    """Every fault that can be made in a module."""
    text = path.read_text()
    lines = text.encode().splitlines(keepends=True)
    tree = ast.parse(text)
    skipped = {id(node) for part in ast.walk(tree) for node in _unexecuted(part)}

    def fault(node: ast.expr | ast.stmt, kind: str, after: str) -> Fault:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        ends = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        before = _between(lines, *ends)
        return Fault(str(path.relative_to(ROOT)), node.lineno, kind, before, after, *ends)

    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
                swapped = ast.Compare(left=left, ops=[COMPARISONS[type(operator)]()], comparators=[right])
                yield fault(node, "comparison", f"({ast.unparse(swapped)})")
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS and not _is_text(node):
                yield fault(node, "sign", f"({ast.unparse(ast.BinOp(left, OPERATORS[type(operator)](), right))})")
            case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
                yield fault(node, "sign", f"({ast.unparse(operand)})")
            case ast.Constant(value=bool(value)):
                yield fault(node, "constant", str(not value))
            case ast.Constant(value=int(value) | float(value)):
                yield fault(node, "constant", repr(value + 1))
            case ast.Expr(value=ast.Call() | ast.Yield() | ast.Await()) | ast.AugAssign() | ast.Raise():
                yield fault(node, "statement", "pass")


def _between(lines: Sequence[bytes], start: tuple[int, int], end: tuple[int, int]) -> str:
    part = list(lines[start[0] - 1 : end[0]])
    part[-1] = part[-1][: end[1]]
    part[0] = part[0][start[1] :]
    return b"".join(part).decode()


def _unexecuted(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of annotations, docstrings and f-strings, which are no faults of behaviour or cannot be cut out."""
    parts: list[ast.AST | None] = []
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            arguments = [*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs]
            parts = [node.returns, *(one.annotation for one in arguments)]
        case ast.AnnAssign():
            parts = [node.annotation]
        case ast.JoinedStr():
            parts = [node]
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            parts = [node]
    for part in parts:
        if part is not None:
            yield from ast.walk(part)


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", None), str) for side in sides)


def draw(count: int, seed: int, only: Sequence[str]) -> list[Fault]:
    """Faults of all packages, or of some: of each in proportion to its size, and one at least."""
    by_package: dict[str, list[Fault]] = collections.defaultdict(list)
    for path in sorted((ROOT / "lrurun").rglob("*.py")):
        for fault in candidates(path):
            if not only or fault.package in only:
                by_package[fault.package].append(fault)
    if unknown := set(only).difference(by_package):
        raise SystemExit(f"--only {' '.join(sorted(unknown))}: no package of lrurun, as report and ledger are")
    chance = random.Random(seed)
    total = sum(map(len, by_package.values()))
    drawn = []
    for package in sorted(by_package):
        share = max(1, round(count * len(by_package[package]) / total))
        drawn += chance.sample(by_package[package], share)
    return drawn


def trace(out: Path, options: Sequence[str]) -> None:
    """Runs the tests, and writes for each file and line which tests execute it."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "coverage"
        settings = Path(folder) / "coveragerc"
        settings.write_text(f"[run]\nsource = lrurun\ndata_file = {data}\n")
        coverage = ["--cov=lrurun", "--cov-context=test", f"--cov-config={settings}", "--cov-report="]
        subprocess.run([sys.executable, "-m", "pytest", "-q", *coverage, *options], cwd=ROOT, check=False)
        from coverage import CoverageData
        from coverage.numbits import numbits_to_nums

        read = CoverageData(str(data))
        read.read()
        lines: dict[str, dict[int, list[int]]] = collections.defaultdict(lambda: collections.defaultdict(list))
        with sqlite3.connect(data) as database:
            files = dict(database.execute("select id, path from file"))
            contexts = dict(database.execute("select id, context from context"))
            for file, context, bits in database.execute("select file_id, context_id, numbits from line_bits"):
                for line in numbits_to_nums(bits):
                    lines[os.path.relpath(files[file], ROOT)][line].append(context)
    names = {number: context.partition("|")[0] for number, context in contexts.items()}
    out.write_text(json.dumps({"tests": names, "lines": lines}))


class Traced:
    """Which tests execute a line."""

    def __init__(self, path: Path) -> None:
        document = json.loads(path.read_text())
        self.tests: dict[str, str] = document["tests"]
        self.lines: dict[str, dict[str, list[int]]] = document["lines"]
        self.size = collections.Counter(
            test for lines in self.lines.values() for tests in lines.values() for test in tests
        )

    def of(self, fault: Fault) -> list[str]:
        """The tests that execute its line, those with the fewest lines first; of a line that imports execute, the tests
        that execute any line of its file."""
        lines = self.lines.get(fault.path, {})
        found = self._named(lines.get(str(fault.line), []))
        if not found:
            found = self._named([test for tests in lines.values() for test in tests])
        return found[:TESTS]

    def _named(self, tests: Sequence[int]) -> list[str]:
        ordered = sorted(set(tests), key=lambda test: (self.size[test], test))
        return [self.tests[str(test)] for test in ordered if self.tests[str(test)]]


def judge(fault: Fault, tests: Sequence[str], options: Sequence[str]) -> tuple[str, str]:
    """The answer, and the test that fails: "caught", "not caught", "not in time" where the limit was too short for all
    tests, "no test", or "not judged" where pytest could not run them."""
    if not tests:
        return "no test", ""
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "runs", "*.db"))
        target = copy / fault.path
        target.write_text(fault.apply(target.read_text()))
        names = Path(folder) / "names"
        names.write_text("\n".join(tests))
        command = ["pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no", *options, f"@{names}"]
        environment = os.environ | {"PYTHONPATH": str(copy)}
        with (Path(folder) / "said").open("w+") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=copy,
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT)),
            )
            try:
                code = process.wait(4 * LIMIT)
            except subprocess.TimeoutExpired:
                code = -signal.SIGKILL
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
            said.seek(0)
            failed = [line for line in said.read().splitlines() if line.startswith(("FAILED", "ERROR"))]
    if code == 0:
        return "not caught", ""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "not in time", ""
    if code < 0:
        return "caught", f"killed by {signal.Signals(-code).name}"
    if code <= 3:  # a test fails, the tests cannot be imported, pytest itself fails
        return "caught", failed[0] if failed else f"exit code {code}"
    return "not judged", f"exit code {code}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("faults", type=Path)
    drawing.add_argument("--count", type=int, default=60, help="at least one for each package")
    drawing.add_argument("--seed", type=int, default=0)
    drawing.add_argument("--only", nargs="*", default=[], help="packages, for example: report ledger")
    tracing = commands.add_parser("trace")
    judging = commands.add_parser("judge")
    judging.add_argument("faults", type=Path)
    for part in (tracing, judging):
        part.add_argument("lines", type=Path)
        part.add_argument("--pytest", default="", help="options of pytest")
    judging.add_argument("answers", type=Path)
    judging.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.command == "draw":
        arguments.faults.write_text(
            json.dumps([fault._asdict() for fault in draw(arguments.count, arguments.seed, arguments.only)], indent=1)
        )
        return
    options = shlex.split(arguments.pytest)
    if arguments.command == "trace":
        trace(arguments.lines, options)
        return
    faults = [
        Fault(**{**one, "start": tuple(one["start"]), "end": tuple(one["end"])})
        for one in json.loads(arguments.faults.read_text())
    ]
    traced = Traced(arguments.lines)
    answers = json.loads(arguments.answers.read_text()) if arguments.answers.exists() else {}
    writing = threading.Lock()

    def answer(number: int) -> None:
        fault, began = faults[number], time.monotonic()
        found, test = judge(fault, traced.of(fault), options)
        with writing:
            answers[str(number)] = [found, test]
            arguments.answers.write_text(json.dumps(answers, indent=1))
        place = f"{fault.path}:{fault.line}"
        print(f"{found:12} {time.monotonic() - began:4.0f} s  {place}  {fault.before!r} -> {fault.after!r}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(answer, [number for number in range(len(faults)) if str(number) not in answers]))
    print(dict(collections.Counter(found for found, _ in answers.values())))


if __name__ == "__main__":
    main()
