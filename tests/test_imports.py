"""Who may import whom: read from the sources, and from what fresh interpreters have loaded."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lrurun

PACKAGE = Path(lrurun.__file__).parent
HEAVY = {"jax", "jaxlib", "flax", "optax", "orbax", "tensorflow_datasets", "tensorflow"}
WITHOUT_JAX = ("cli", "catalog", "plan", "config", "ledger", "report", "supervise")
"""Where DESIGN forbids the heavy ones at import time; the modules below a package too."""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def below(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == f"lrurun.{root}" or name.startswith(f"lrurun.{root}.") for root in roots)


def nodes(source: str) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        yield node
        hidden = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        todo += node.orelse if hidden else list(ast.iter_child_nodes(node))


def imported(name: str, source: str, *, package: bool = False, known: tuple[str, ...] = ()) -> Iterator[str]:
    """Every module that a source names in an import statement, anywhere in it but under TYPE_CHECKING."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".")[: None if package else -1]
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in known)


def imports_of(name: str) -> set[str]:
    path = MODULES[name]
    return set(imported(name, path.read_text(), package=path.name == "__init__.py", known=tuple(MODULES)))


def tops(name: str) -> set[str]:
    return {module.partition(".")[0] for module in imports_of(name)}


def test_the_reader_of_imports_sees_every_form():
    source = """
from typing import TYPE_CHECKING
import jax.numpy as jnp, rich
from lrurun import console
from . import plan
from .ledger import store
if TYPE_CHECKING:
    import flax
else:
    import psutil
def late():
    import sqlalchemy
"""
    known = ("lrurun.console", "lrurun.plan", "lrurun.ledger.store")
    assert set(imported("lrurun.x", source, known=known)) == {
        "typing",
        "jax.numpy",
        "rich",
        "lrurun",
        "lrurun.console",
        "lrurun.plan",
        "lrurun.ledger",
        "lrurun.ledger.store",
        "psutil",
        "sqlalchemy",
    }
    assert "lrurun.a.c" in set(imported("lrurun.a", "from .c import d", package=True))
    assert "lrurun.c" in set(imported("lrurun.a.b", "from ..c import d"))


def test_sqlalchemy_and_alembic_are_the_ledgers_alone():
    users = {name for name in MODULES if tops(name) & {"sqlalchemy", "alembic"}}
    assert "lrurun.ledger.store" in users
    assert {name for name in users if not below(name, ("ledger",))} == set()


def test_rich_is_the_consoles_and_the_reports_alone():
    users = {name for name in MODULES if "rich" in tops(name)}
    assert "lrurun.console" in users
    assert {name for name in users if not below(name, ("console", "report"))} == set()


def test_matplotlib_is_the_figures_alone():
    assert {name for name in MODULES if "matplotlib" in tops(name)} == {"lrurun.report.figures"}


def test_nobody_imports_click_which_typer_carries_inside():
    assert {name for name in MODULES if "click" in tops(name)} == set()


def test_nothing_imports_the_command_line_but_the_entry():
    users = {
        name
        for name in MODULES
        if not below(name, ("cli",)) and any(below(module, ("cli",)) for module in imports_of(name))
    }
    assert users == {"lrurun.__main__"}


def test_the_trainer_knows_neither_ledger_nor_console():
    found = imports_of("lrurun.train")
    assert "lrurun.config" in found
    assert {
        module for module in found if below(module, ("ledger", "console", "report", "supervise", "worker"))
    } == set()


def test_the_ledger_and_the_catalog_know_nothing_of_models_and_commands():
    for name in MODULES:
        if below(name, ("ledger", "catalog", "config", "strict", "paths", "errors")):
            above = ("model", "train", "worker", "supervise", "commands", "reading", "report", "plan", "tasks")
            assert {module for module in imports_of(name) if below(module, above)} == set(), name


def test_the_supervisor_never_names_jax():
    assert tops("lrurun.supervise") & HEAVY == set()


def test_flax_layers_are_in_few_places():
    assert {name for name in MODULES if "flax" in tops(name)} <= {
        "lrurun.model",
        "lrurun.train",
        "lrurun.optim",
        "lrurun.checkpoint",
        "lrurun.conformance",
        *(name for name in MODULES if below(name, ("recurrences",))),
    }


def loaded(code: str, tmp_path: Path) -> set[str]:
    """What a fresh interpreter has loaded after `code`, by top-level name."""
    script = f"import json, sys\n{code}\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize("root", WITHOUT_JAX)
def test_importing_loads_no_jax(root, tmp_path):
    modules = [name for name in MODULES if below(name, (root,)) and not name.endswith((".env", ".__main__"))]
    modules = [name for name in modules if ".migrations." not in name]
    assert modules
    found = loaded(f"import {', '.join(modules)}", tmp_path)
    assert "msgspec" in found
    assert found & HEAVY == set()
    assert "sqlalchemy" not in found or root in ("ledger", "supervise")
    assert "matplotlib" not in found


def test_the_check_on_loaded_modules_would_see_jax(tmp_path):
    assert {"jax", "flax"} <= loaded("import lrurun.train", tmp_path)


@pytest.mark.parametrize("words", [["--help"], ["ladder", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(words, tmp_path):
    found = loaded(f"from lrurun.__main__ import run\nassert run({words!r}) == 0", tmp_path)
    assert "typer" in found
    assert found & (HEAVY | {"sqlalchemy", "alembic", "matplotlib", "numpy", "scipy", "sklearn", "psutil"}) == set()


@pytest.mark.parametrize(
    "words",
    [["plan", "sDigits"], ["list"], ["check", "recipe", "--all"], ["status"], ["runs", "--json"], ["show", "a"]],
)
def test_commands_that_do_not_train_load_no_jax(words, tmp_path):
    found = loaded(f"from lrurun.__main__ import run\nassert run({words!r}) in (0, 4)", tmp_path)
    assert found & HEAVY == set()
    assert not list(tmp_path.iterdir())
