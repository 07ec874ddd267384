"""What is installed carries recipes and ladders; an editable install sees the checkout's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import lrurun

CHECKOUT = Path(lrurun.__file__).parent.parent
PARTS = ("pyproject.toml", "README.md", "LICENSE", "lrurun", "recipes", "ablations")

pytest.importorskip("hatchling")
if not all((CHECKOUT / part).exists() for part in PARTS):
    pytest.skip("wheels are built from a checkout", allow_module_level=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what a wheel is built from."""
    place = tmp_path_factory.mktemp("checkout")
    for part in PARTS:
        if (CHECKOUT / part).is_dir():
            shutil.copytree(CHECKOUT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(CHECKOUT / part, place / part)
    return place


def build(checkout: Path, kind: str) -> Path:
    code = f"import hatchling.build; print(hatchling.build.build_{kind}('dist-{kind}'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return checkout / f"dist-{kind}" / done.stdout.split()[-1]


def python(code: str, cwd: Path, *words: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LRURUN_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=cwd, capture_output=True, text=True, env=kept | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def listed(text: str) -> dict[str, Any]:
    found = json.loads(text)
    return {kind: {entry["name"]: entry for entry in found[kind]} for kind in ("ladders", "recipes")}


@pytest.mark.slow
def test_a_wheel_without_a_checkout_lists_and_plans_what_it_carries(checkout, tmp_path):
    wheel = build(checkout, "wheel")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for kind in ("recipes", "ablations"):
        shipped = {f"lrurun/_data/{path.relative_to(checkout)}" for path in (checkout / kind).rglob("*.toml")}
        assert shipped
        assert {name for name in names if name.startswith(f"lrurun/_data/{kind}/")} == shipped
    sources = {str(path.relative_to(checkout)) for path in (checkout / "lrurun").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    for pattern in ("*.toml", "*.txt", "*.html", "*.js", "*.css", "LICENSE"):
        tables = {str(path.relative_to(checkout)) for path in (checkout / "lrurun").rglob(pattern)}
        assert tables
        assert tables <= names
    assert "lrurun/py.typed" in names
    assert not any(name.startswith(("tests/", "recipes/", "ablations/", "lrurun/_data/lrurun")) for name in names)

    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    run = "import sys; from lrurun.__main__ import run; sys.exit(run(sys.argv[1:]))"
    found = listed(python(run, elsewhere, "list", "--json", PYTHONPATH=str(site)))
    assert set(found["ladders"]) == {path.stem for path in (checkout / "ablations").glob("*.toml")}
    assert set(found["recipes"]) == {path.stem for path in (checkout / "recipes").glob("*.toml")}
    plan = json.loads(python(run, elsewhere, "plan", "sDigits", "--json", PYTHONPATH=str(site)))
    assert len(plan["rungs"]) == 8
    where = python("import lrurun; print(lrurun.__file__)", elsewhere, PYTHONPATH=str(site))
    assert Path(where.strip()).is_relative_to(site)
    assert not list(elsewhere.iterdir())
    [commands] = site.glob("*.dist-info/entry_points.txt")
    assert "lrurun = lrurun.__main__:main" in commands.read_text()


@pytest.mark.slow
def test_an_editable_install_sees_the_files_of_the_checkout_not_a_frozen_copy(checkout, tmp_path):
    pytest.importorskip("editables")  # what hatchling asks for to build one
    wheel = build(checkout, "editable")
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    run = (
        "import site, sys; before = sys.path[:]; site.addsitedir(sys.argv[1])\n"
        # first, so that another lrurun in this environment is not taken for it
        "sys.path.sort(key=lambda path: path in before)\n"
        "from lrurun.__main__ import run; sys.exit(run(sys.argv[2:]))"
    )
    assert "new" not in listed(python(run, elsewhere, str(site), "list", "--json"))["recipes"]
    recipe = (checkout / "recipes/sDigits.toml").read_text()
    try:
        (checkout / "recipes/new.toml").write_text(recipe)
        found = listed(python(run, elsewhere, str(site), "list", "--json"))["recipes"]
        assert found["new"] | {"name": "sDigits", "file": ""} == found["sDigits"] | {"file": ""}
    finally:
        (checkout / "recipes/new.toml").unlink()
    assert "new" not in listed(python(run, elsewhere, str(site), "list", "--json"))["recipes"]
