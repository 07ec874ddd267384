"""Which commands are about the same instance of a ladder: those whose runs are decided by the same settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lrurun import paths
from lrurun.commands import request as requests
from lrurun.commands.request import LadderRequest
from lrurun.config import plan as planning
from lrurun.config.plan import final_runs
from lrurun.ledger.store import Ledger
from lrurun.report import instance_documents
from tests.commands import answered, folder, said
from tests.results import fill

__all__ = ["folder"]  # a fixture

RECIPE = (paths.packaged("recipes") / "sDigits.toml").read_text()
LADDER = (paths.packaged("ablations") / "nonlinearity.toml").read_text()
GRID = "[0.004, 0.016]"
OPTIONS = ("--profile", "smoke", "--ladder", "nonlinearity")


def digest(recipe: str, *, tune: bool = False, ladder: str = LADDER, profile: str | None = "smoke") -> str:
    Path("r.toml").write_text(recipe)
    Path("l.toml").write_text(ladder)
    spec: dict[str, Any] = planning.make("r.toml", ladder="l.toml", profile=profile, tune=tune).spec
    return str(spec["digest"])


def test_equal_documents_are_one_instance_whatever_their_paths(folder: Path) -> None:
    packaged = planning.make("sDigits", ladder="nonlinearity", profile="smoke").spec
    assert digest(RECIPE) == packaged["digest"]
    assert digest(RECIPE.replace('expect = "', 'expect = "roughly ')) == packaged["digest"]
    assert digest(RECIPE, ladder=LADDER.replace('title = "', 'title = "My ')) == packaged["digest"]


def test_documents_that_resolve_differently_are_other_instances(folder: Path) -> None:
    assert GRID in RECIPE
    other_grid = RECIPE.replace(GRID, "[0.004, 0.008]")
    extra = '\n[[rung]]\nname = "extra"\ntitle = "t"\nchange = { "model.depth" = 3 }\n'
    assert digest(other_grid, tune=True) != digest(RECIPE, tune=True)
    assert digest(other_grid) == digest(RECIPE)  # the grid decides nothing without --tune
    found = {digest(RECIPE), digest(RECIPE, ladder=LADDER + extra), digest(RECIPE, tune=True)}
    assert len(found) == 3


def test_recipes_of_a_task_have_reports_of_their_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.toml").write_text(RECIPE.replace(GRID, "[0.0016]"))
    ledger = folder / "ledger.db"
    fill(ledger, "sDigits", {"tanh-rnn": [0.3]}, profile="smoke", ladder="nonlinearity", tune=True)
    fill(ledger, "mine.toml", {"tanh-rnn": [0.9]}, profile="smoke", ladder="nonlinearity", tune=True, first=1)
    means = {}
    for task in ("sDigits", "mine.toml"):
        made = answered(capsys, "report", task, *OPTIONS, "--tune")
        means[task] = {row["rung"]: row["mean"] for row in made["rows"]}["tanh-rnn"]
    assert means == {"sDigits": 0.3, "mine.toml": 0.9}
    assert len(answered(capsys, "status")["ladders"]) == 2


def test_a_changed_recipe_names_the_results_of_the_earlier_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("mine.toml")
    path.write_text(RECIPE)
    fill(folder / "ledger.db", "mine.toml", {"tanh-rnn": [0.3]}, profile="smoke", ladder="nonlinearity")
    with Ledger.open(folder / "ledger.db") as ledger:
        [earlier] = ledger.ladders()
        plan = planning.make("mine.toml", ladder="nonlinearity", profile="smoke")
        instance_documents.record(ledger, earlier, plan)
    assert answered(capsys, "plan", "mine.toml", *OPTIONS)["notes"] == []
    path.write_text(RECIPE + "\n[profile.smoke.ladder.nonlinearity.rung.tanh-rnn]\noptim = { lr = 0.5 }\n")
    sentence = f"--instance {earlier.key} (1 finished run)"
    [note] = answered(capsys, "plan", "mine.toml", *OPTIONS)["notes"]
    assert sentence in note
    code, _, error = said(capsys, "report", "mine.toml", *OPTIONS)
    assert code == 4
    assert sentence in error
    fill(folder / "ledger.db", "mine.toml", {"relu-rnn": [0.3]}, profile="smoke", ladder="nonlinearity")
    assert [sentence in note for note in answered(capsys, "report", "mine.toml", *OPTIONS)["notes"]].count(True) == 1
    path.unlink()
    kept = answered(capsys, "report", "sDigits", "--instance", earlier.key)
    assert {row["rung"]: row["mean"] for row in kept["rows"]}["tanh-rnn"] == 0.3
    assert said(capsys, "plot", "sDigits", "--instance", earlier.key, "--out", "a.svg")[0] == 0


def test_resume_leaves_what_was_asked_for_again_with_a_changed_recipe(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("mine.toml")
    wanted = LadderRequest(task="mine.toml", ladder="nonlinearity", profile="smoke", tune=False, sets=[])

    def ask() -> None:
        """Asks for seed 0 of one rung, which is queued if its settings are new."""
        plan = wanted.plan()
        with Ledger.open(folder / "ledger.db") as ledger:
            instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
            requests.remember(ledger, instance, wanted, plan, [0])
            ledger.enqueue(instance.key, final_runs(plan, plan.rungs[1], [0]))

    path.write_text(RECIPE)
    ask()
    path.write_text(RECIPE + "\n[profile.smoke.ladder.nonlinearity.rung.tanh-rnn]\noptim = { lr = 0.5 }\n")
    fill(folder / "ledger.db", "mine.toml", {"tanh-rnn": [0.3]}, profile="smoke", ladder="nonlinearity")
    ask()
    assert len(answered(capsys, "status")["ladders"]) == 2
    assert said(capsys, "resume")[2] == "nothing to do: every ladder of this ledger is finished\n"
