"""`lrurun show RUN --requirements`: the versions that a run ran with, as pip reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from lrurun.config import plan as planning
from lrurun.config.plan import final_runs
from lrurun.ledger.store import Ledger
from lrurun.runner import environment
from tests.harness.commands import said
from tests.harness.results import OWNER

VERSIONS = {"python": "3.11.7", "jax": "0.10.2", "jaxlib": "0.10.2", "orbax-checkpoint": "0.12.8", "numpy": "2.4.6"}
COMMIT = "ae69fde06375611501fc844beefa8d58544abb1f"
FIRST = {
    "threads": 2,
    "versions": VERSIONS,
    "code": {"lrurun": "0.1.0"},
    "device": "cpu",
    "machine": {"cpu": "AMD EPYC"},
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a run with an attempt for each of some environments; returns its id."""
    monkeypatch.chdir(tmp_path)

    def make(*environments: dict[str, Any]) -> str:
        plan = planning.make("sDigits", profile="smoke")
        with Ledger.open("ledger.db") as ledger:
            key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec).key
            [one] = ledger.enqueue(key, final_runs(plan, plan.rungs[0], [0]))
            for found in environments:
                claim = ledger.claim(key, OWNER, environment=found)
                assert claim is not None
                ledger.finish(claim, "interrupted")
                ledger.requeue([one.id])
        return one.id

    return make


def requirements(text: str) -> dict[str, str]:
    """What pip would install: name -> version."""
    found = [Requirement(line) for line in text.splitlines() if not line.startswith("#")]
    return {one.name: str(one.specifier) for one in found}


def test_the_whole_output_of_a_release(run, capsys):
    name = run(FIRST)
    assert said(capsys, "show", name[:8], "--requirements") == (
        0,
        f"# Run {name} was trained with these versions.\n"
        "# Python 3.11.7; device: cpu; CPU: AMD EPYC; threads: 2\n"
        "lrurun==0.1.0\n"
        "jax==0.10.2\n"
        "jaxlib==0.10.2\n"
        "orbax-checkpoint==0.12.8\n"
        "numpy==2.4.6\n",
        "",
    )


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (
            {"lrurun": "1.0.0.dev0", "commit": COMMIT},
            f"# lrurun 1.0.0.dev0: install it from a checkout of commit {COMMIT}",
        ),
        (
            {"lrurun": "0.1.0", "commit": COMMIT, "dirty": "sha256:ab"},
            f"# lrurun 0.1.0: install it from a checkout of commit {COMMIT}, with uncommitted changes (sha256:ab)",
        ),
        ({"lrurun": "0.2.0+local"}, "# lrurun 0.2.0+local: not a release; its commit is not recorded"),
        ({}, "# lrurun not recorded: not a release; its commit is not recorded"),
    ],
)
def test_other_code_than_a_release_is_named_in_a_comment(run, capsys, code: dict[str, str], line: str):
    name = run({**FIRST, "code": code})
    text = said(capsys, "show", name, "--requirements")[1]
    assert line in text.splitlines()
    assert "lrurun" not in requirements(text)


def test_earlier_versions_and_accelerators_are_named(run, capsys):
    earlier = {**FIRST, "versions": {**VERSIONS, "jax": "0.9.1", "python": "3.12.1"}}
    name = run(earlier, {**FIRST, "device": "NVIDIA H100 80GB HBM3"})
    text = said(capsys, "show", name, "--requirements")[1]
    assert text.splitlines()[-1] == "# Attempt 1 had: python 3.12.1, jax 0.9.1"
    [jax] = [Requirement(line) for line in text.splitlines() if line.startswith("jax[")]
    assert (jax.extras, str(jax.specifier)) == ({"cuda13"}, "==0.10.2")


def test_what_pip_would_take_for_options_or_lines_of_their_own_is_a_comment(run, capsys):
    evil = {"--index-url": "http://x", "jax": "0.1\nevil==1", "a b": "1", "numpy": "2.4.6", "x": "1 @ http://y"}
    text = said(capsys, "show", run({**FIRST, "versions": evil}), "--requirements")[1]
    assert requirements(text) == {"lrurun": "==0.1.0", "numpy": "==2.4.6"}


def test_what_is_recorded_today_are_requirements(run, capsys):
    found = environment.record(1)
    text = said(capsys, "show", run(found), "--requirements")[1]
    versions = {name: f"=={version}" for name, version in found["versions"].items() if name != "python"}
    assert {name: version for name, version in requirements(text).items() if name != "lrurun"} == versions


def test_a_run_without_attempts_has_none(run, capsys):
    name = run()
    assert said(capsys, "show", name, "--requirements") == (
        1,
        "",
        f"error: run {name}: no versions are recorded\nhint: see what is recorded: lrurun show {name} --json\n",
    )
    for one, other in (("--json", "--toml"), ("--toml", "--requirements"), ("--json", "--requirements")):
        error = f"error: {one} and {other} exclude each other\nhint: leave one of them out\n"
        assert said(capsys, "show", name, other, one) == (2, "", error)
