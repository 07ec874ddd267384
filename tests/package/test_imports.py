"""Which modules may import which: the contracts in pyproject.toml, and what fresh interpreters have loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lrurun

PACKAGE = Path(lrurun.__file__).parent
HEAVY = {"jax", "jaxlib", "flax", "optax", "orbax", "tensorflow_datasets", "tensorflow"}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def below(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == f"lrurun.{root}" or name.startswith(f"lrurun.{root}.") for root in roots)


def test_imports_keep_to_the_contracts_in_pyproject():
    script = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", script], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def loaded(code: str, tmp_path: Path) -> set[str]:
    """The top-level names of the modules that a fresh interpreter has loaded after `code`."""
    return {name.partition(".")[0] for name in loaded_modules(code, tmp_path)}


def loaded_modules(code: str, tmp_path: Path) -> list[str]:
    script = f"import json, sys\n{code}\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("roots", [("cli", "config", "report"), ("commands", "ledger", "runner.supervisor")])
def test_importing_loads_no_jax(roots, tmp_path):
    modules = [name for name in MODULES if below(name, roots) and not name.endswith((".env", ".__main__"))]
    modules = [name for name in modules if ".migrations." not in name]
    assert all(any(below(name, (root,)) for name in modules) for root in roots)
    found = loaded(f"import {', '.join(modules)}", tmp_path)
    assert "msgspec" in found
    assert found & HEAVY == set()
    assert "sqlalchemy" not in found or "ledger" in roots
    assert "matplotlib" not in found


@pytest.mark.slow
def test_the_check_on_loaded_modules_would_see_jax(tmp_path):
    assert {"jax", "flax"} <= loaded("import lrurun.training.loop", tmp_path)


def test_help_loads_nothing_heavy(tmp_path):
    found = loaded_by([["--help"], ["ladder", "--help"], ["--version"]], tmp_path)
    assert "typer" in found
    others = {"sqlalchemy", "alembic", "matplotlib", "numpy", "scipy", "sklearn", "psutil", "starlette", "jinja2"}
    assert found & (HEAVY | others) == set()


def test_reports_load_no_scipy(tmp_path):
    """Importing it takes longer than all else that a report does."""
    fill = """
from pathlib import Path
from tests.harness.results import fill
rungs = ("tanh-rnn", "linear-rnn", "diagonal", "exponential")
scores = {rung: [n / 10 + k / 50 for k in range(12)] for n, rung in enumerate(rungs)}
fill(Path("ledger.db"), "sDigits", scores, profile="smoke")
"""
    subprocess.run(
        [sys.executable, "-c", fill], check=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    )
    report = ["report", "sDigits", "--profile", "smoke", "--detect", "2"]
    found = loaded_modules(f"from lrurun.__main__ import run\nassert run({report!r}) == 0", tmp_path)
    assert {name.partition(".")[0] for name in found} & (HEAVY | {"scipy"}) == set()
    others = ("lrurun.data.downloaded.", "lrurun.data.generated.pathfinder")
    assert not [name for name in found if name.startswith(others)], "the ladder has claims and published scores on them"


def test_commands_that_do_not_train_load_no_jax(tmp_path):
    reading = [
        ["plan", "sDigits"],
        ["list"],
        ["check", "recipe", "sDigits"],
        ["status"],
        ["runs", "--json"],
        ["show", "a"],
    ]
    found = loaded_by(reading, tmp_path)
    assert "sqlalchemy" in found or "numpy" in found
    assert found & HEAVY == set()
    assert not list(tmp_path.iterdir())


NOT_SHOWN = (
    *("config.plan", "config.resolve", "config.search", "data.copies", "data.downloaded", "data.generated"),
    *("data.sampled", "data.task", "nn", "report.ladder_table", "report.judging", "runner.supervisor", "studies"),
)


def test_lists_of_runs_import_nothing_that_they_do_not_show(tmp_path):
    fill = """
from pathlib import Path
from tests.harness.results import fill
fill(Path("ledger.db"), "sDigits", {"tanh-rnn": [0.1], "linear-rnn": [0.2]}, profile="smoke")
"""
    subprocess.run(
        [sys.executable, "-c", fill], check=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    )
    run = """
from lrurun.__main__ import run
from lrurun.ledger.store import Ledger
with Ledger.read("ledger.db") as ledger:
    name = ledger.runs()[0].id
for command in (["runs", "--limit", "1"], ["runs", "--where", "optim.lr>0"], ["status"], ["show", name]):
    assert run(command) == 0, command
families = {name.partition(":")[0] for name in sys.modules if name.startswith("lrurun.config.recurrences.")}
assert families <= {"lrurun.config.recurrences.base", "lrurun.config.recurrences.rnn"}, families
"""
    shown = [f"assert 'lrurun.{name}' not in sys.modules, {name!r}" for name in NOT_SHOWN]
    found = loaded("\n".join([run, *shown]), tmp_path)
    assert "sqlalchemy" in found
    assert found & {"numpy", "scipy", "alembic", "psutil"} == set()


def loaded_by(commands: list[list[str]], tmp_path: Path) -> set[str]:
    return loaded(
        f"from lrurun.__main__ import run\nfor command in {commands!r}: assert run(command) in (0, 4), command",
        tmp_path,
    )
