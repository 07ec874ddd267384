"""Which modules may import which: the contracts in pyproject.toml, and what a fresh interpreter has loaded."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lrurun
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import SHARED
from tests.harness.tables import write_runs

PACKAGE = Path(lrurun.__file__).parent
NOT_SHOWN = (
    *(
        "config.planning",
        "config.precedence",
        "config.resolve",
        "config.tuning",
        "data.copies",
        "data.downloaded",
        "data.synthetic",
    ),
    *("data.sampled", "data.task", "nn", "judging.verdicts", "report.tables.ladder_table", "runner.supervisor"),
    "studies",
)
"""What lists of runs do not show."""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


LIGHT_ROOTS = (
    *("cli", "config", "imported", "instances", "judging", "report", "session", "commands", "ledger"),
    "runner.supervisor",
)
ROOTS = tuple(f"lrurun.{root}." for root in LIGHT_ROOTS)
MODULES = [name for name in map(module_name, sorted(PACKAGE.rglob("*.py"))) if f"{name}.".startswith(ROOTS)]
LIGHT = [name for name in MODULES if not name.endswith((".env", ".__main__")) and ".migrations." not in name]


def fresh(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    bytecode = os.environ.get("PYTHONPYCACHEPREFIX", str(SHARED / "bytecode"))
    env = {"PATH": "", "HOME": str(folder), "PYTHONPATH": str(PACKAGE.parent), "PYTHONPYCACHEPREFIX": bytecode}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, env=env)


def test_imports_keep_to_the_contracts_in_pyproject() -> None:
    script = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", script], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


STAGES = """
import sys
import lrurun

HEAVY = {"jax", "jaxlib", "flax", "optax", "orbax", "tensorflow_datasets", "tensorflow", "matplotlib", "scipy"}

def check(stage, *others):
    found = {name.partition(".")[0] for name in sys.modules} & (HEAVY | set(others))
    assert not found, (stage, found)

check("lrurun", "numpy", "msgspec")
import lrurun.ledger
import lrurun.ledger.values
from lrurun.__main__ import run

def commands(*all_of_them):
    for words in all_of_them:
        assert run(words.split()) == 0, words

commands("--help", "ladder --help", "--version")
assert "typer" in sys.modules
check("help", "sqlalchemy", "alembic", "numpy", "sklearn", "psutil", "starlette", "jinja2")

before = set(sys.modules)
commands("runs --limit 1", "runs --where optim.lr>0", "runs --json", "status", "show RUN")
assert "sqlalchemy" in sys.modules
check("lists of runs", "numpy", "alembic", "psutil")
servers = {"psycopg", "sqlalchemy.dialects.postgresql", "lrurun.ledger.database.servers"}
assert not {*servers, "sqlalchemy.orm"} & sys.modules.keys(), "the ledger is a file"
shown = [name for name in NOT_SHOWN if f"lrurun.{name}" in sys.modules.keys() - before]
assert not shown, shown
families = {name.rpartition(".")[2] for name in sys.modules if name.startswith("lrurun.config.recurrences.")}
assert families <= {"base", "rnn", "lru"}, families

commands("report sDigits --profile smoke --detect 2")
others = ("lrurun.data.downloaded.", "lrurun.data.synthetic.pathfinder")
assert not [name for name in sys.modules if name.startswith(others)], "the ladder has claims and scores on them"
check("a report")

commands("plan sDigits", "list", "check recipe sDigits")
check("commands that do not train")

commands("import runs.csv", "import runs.csv", "report runs", "import runs.toml --scores-only")
check("an import", "pandas", "polars", "pyarrow", "mlflow", "wandb", "tensorboard", "optuna")

import importlib
for name in MODULES:
    importlib.import_module(name)
HEAVY -= {"scipy"}
check("all modules")
assert lrurun.Task.__module__ == "lrurun.data.task"
check("the public names")
"""


def test_what_commands_load(tmp_path: Path, machine: Machine) -> None:
    """In one process, from light to heavy: help, lists of runs, reports, plans; then modules that load no jax."""
    assert [name for name in NOT_SHOWN if importlib.util.find_spec(f"lrurun.{name}") is None] == []
    # of a task whose module needs numpy: whether its best score is near chance is known without it
    for rung, score in (("tanh-rnn", 0.8), ("linear-rnn", 0.9)):
        fill(machine.ledger, "Pathfinder", {rung: [score]}, profile="smoke", more={"val/accuracy": score})
    assert "linear-rnn, 90.0 %" in machine.run("status").stdout
    rungs = ("tanh-rnn", "linear-rnn", "diagonal", "exponential")
    fill(machine.ledger, "sDigits", {rung: [n / 10, n / 10 + 0.02] for n, rung in enumerate(rungs, 1)}, profile="smoke")
    run = machine.json("runs", "--limit", "1")["runs"][0]["id"]
    write_runs(machine.folder / "runs.csv")
    names = f"NOT_SHOWN = {NOT_SHOWN!r}\nMODULES = {LIGHT!r}\n"
    done = fresh(names + STAGES.replace("RUN", run), machine.folder)
    assert done.returncode == 0, done.stderr
    files = {path.name for path in machine.folder.iterdir() if not path.name.startswith("ledger.db")}
    assert files == {"runs.csv", "runs.toml"}


@pytest.mark.slow
def test_the_check_on_loaded_modules_would_see_jax(tmp_path: Path) -> None:
    done = fresh(STAGES.partition("from lrurun.__main__")[0] + "import lrurun.training.loop\ncheck('x')", tmp_path)
    assert "AssertionError: ('x'," in done.stderr
    assert "'jax'" in done.stderr
