"""Which commands are about the same instance of a ladder: those whose runs are decided by the same settings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lrurun import paths
from lrurun.commands import resume
from lrurun.config import plan as planning
from lrurun.config.plan import final_runs
from lrurun.config.runs import InstanceSpec
from lrurun.errors import UsageError
from lrurun.ledger.store import Ledger
from lrurun.report import instance_documents
from lrurun.report import request as requests
from lrurun.report.request import LadderRequest
from tests.harness.commands import answered, folder, said
from tests.harness.results import fill

__all__ = ["folder"]  # a fixture

RECIPE = (paths.packaged("recipes") / "sDigits.toml").read_text()
LADDER = (paths.packaged("ablations") / "nonlinearity.toml").read_text()
GRID = "[0.004, 0.016]"
OPTIONS = ("--profile", "smoke", "--ladder", "nonlinearity")
OF_SMOKE: Any = {"profile": "smoke", "ladder": "nonlinearity"}


def digest(recipe: str, *, tune: bool = False, ladder: str = LADDER, profile: str | None = "smoke") -> str:
    Path("r.toml").write_text(recipe)
    Path("l.toml").write_text(ladder)
    return planning.make("r.toml", ladder="l.toml", profile=profile, tune=tune).spec.digest


def test_equal_documents_are_one_instance_whatever_their_paths(folder: Path) -> None:
    packaged = planning.make("sDigits", ladder="nonlinearity", profile="smoke").spec
    assert digest(RECIPE) == packaged.digest
    assert digest(RECIPE.replace('expect = "', 'expect = "roughly ')) == packaged.digest
    assert digest(RECIPE, ladder=LADDER.replace('title = "', 'title = "My ')) == packaged.digest


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
    sentence = f"--instance {earlier.short_name} (1 finished run)"
    [note] = answered(capsys, "plan", "mine.toml", *OPTIONS)["notes"]
    assert sentence in note
    code, _, error = said(capsys, "report", "mine.toml", *OPTIONS)
    assert code == 4
    assert sentence in error
    fill(folder / "ledger.db", "mine.toml", {"relu-rnn": [0.3]}, profile="smoke", ladder="nonlinearity")
    notes = answered(capsys, "report", "mine.toml", *OPTIONS)["notes"]
    assert [sentence in note["text"] for note in notes].count(True) == 1
    path.unlink()
    kept = answered(capsys, "report", "sDigits", "--instance", earlier.key)
    assert {row["rung"]: row["mean"] for row in kept["rows"]}["tanh-rnn"] == 0.3
    for name, words in (
        (earlier.short_name, "sDigits --ladder nonlinearity --profile smoke"),  # its settings are those of sDigits
        (f"{earlier.short_name}-2", f"--instance {earlier.short_name}-2"),
    ):
        text = " ".join(said(capsys, "report", "--instance", name)[1].split())
        assert f"More: lrurun report {words} --details · lrurun plot {words} --out" in text
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
            instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec, plan.short_name)
            requests.remember(ledger, instance, wanted, plan, [0])
            ledger.enqueue(instance.key, final_runs(plan, plan.rungs[1], [0]))

    def names() -> set[str]:
        """Of the instances that resume would train."""
        unfinished, _, _ = resume._unfinished(paths.places("ledger.db"), None, all_users=False)
        return {instance.short_name for instance, _ in unfinished}

    path.write_text(RECIPE)
    ask()
    changed = RECIPE + "\n[profile.smoke.ladder.nonlinearity.rung.tanh-rnn]\noptim = { lr = 0.5 }\n"
    path.write_text(changed)
    ask()
    assert names() == {"mine-nonlinearity-smoke-2"}
    path.write_text(RECIPE)
    ask()
    assert names() == {"mine-nonlinearity-smoke"}, "the earlier files are back"
    path.unlink()
    code, _, error = said(capsys, "resume")
    assert (code, f"mine-nonlinearity-smoke: its file {folder / 'mine.toml'} is gone" in error) == (2, True)
    path.write_text(changed)
    fill(folder / "ledger.db", "mine.toml", {"tanh-rnn": [0.3]}, profile="smoke", ladder="nonlinearity")
    ask()
    assert len(answered(capsys, "status")["ladders"]) == 2
    assert said(capsys, "resume")[2].splitlines() == [
        "nothing to do: every ladder of this ledger is finished",
        "1 finished run has no model in runs: name the runs folder with --runs-dir, or train again with "
        "lrurun ladder ... --fresh",
    ]


def test_instances_have_short_names_of_file_and_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("search.toml").write_text(RECIPE)
    Path("again").mkdir()
    Path("again/search.toml").write_text(RECIPE.replace(GRID, "[0.0016]"))
    file = folder / "ledger.db"
    fill(file, "sDigits", {"tanh-rnn": [0.3]})
    fill(file, "search.toml", {"tanh-rnn": [0.4]}, profile="smoke", ladder="nonlinearity", tune=True)
    fill(file, "sDigits", {"tanh-rnn": [0.5]}, sets=["optim.lr=0.5", "model.width=4"])
    fill(file, "again/search.toml", {"tanh-rnn": [0.4]}, profile="smoke", ladder="nonlinearity", tune=True, first=1)
    names = [ladder["name"] for ladder in answered(capsys, "status")["ladders"]]
    tuned = "search-nonlinearity-smoke-tune"
    assert names == ["sDigits", tuned, "sDigits-lr-0.5-width-4", f"{tuned}-2"]
    assert answered(capsys, "plan", "sDigits", "--profile", "smoke")["name"] == "sDigits-smoke"
    assert answered(capsys, "plan", "sDigits", "--set", "optim.lr=0.5", "--set", "model.width=4")["name"] == names[2]
    assert answered(capsys, "report", "--instance", names[2])["rows"][0]["mean"] == 0.5
    assert [run["seed"] for run in answered(capsys, "runs", "--instance", tuned)["runs"]] == [0]
    assert answered(capsys, "runs", "--instance", tuned, "--where", "rung=relu-rnn")["runs"] == []
    [status] = answered(capsys, "status", "--instance", tuned)["ladders"]
    assert status["name"] == tuned
    assert said(capsys, "plot", "--instance", tuned, "--out", "a.svg")[0] == 0
    code, _, error = said(capsys, "report", "--instance", "search-nonlinearity-smoke")
    assert (code, error.splitlines()[1]) == (4, f"hint: did you mean {tuned!r}? see `lrurun status`")


def test_a_name_is_given_to_one_instance(folder: Path) -> None:
    with Ledger.open(folder / "ledger.db") as ledger:
        first = ledger.add_ladder("lru", "sDigits", None, InstanceSpec(), "sDigits")
        second = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec(), "sDigits")
        assert (first.short_name, second.short_name) == ("sDigits", "sDigits-2")
        assert ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec(), chosen="mine").key == second.key
        assert [ladder.short_name for ladder in ledger.ladders()] == ["sDigits", "mine"]
        with pytest.raises(UsageError, match="is the name of another instance: ladder lru on sDigits"):
            ledger.add_ladder("lru", "npDigits", None, InstanceSpec(), chosen="mine")
        assert len(ledger.ladders()) == 2
        assert ledger.ladder("mine") == ledger.ladder(second.key[:5])


def test_own_ladders_and_recipes_are_read_from_the_ledger_elsewhere(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_any_task = re.sub(r"^tasks = .*\n", "", LADDER, count=1, flags=re.MULTILINE)
    Path("mine.toml").write_text(of_any_task.replace('"nonlinearity"', '"mine"', 1))
    Path("own.toml").write_text(RECIPE)
    request = LadderRequest(task="own.toml", ladder="mine.toml", profile="smoke", tune=False, sets=[])
    fill(folder / "ledger.db", "own.toml", {"tanh-rnn": [0.3, 0.4]}, profile="smoke", ladder="mine.toml")
    with Ledger.open(folder / "ledger.db") as ledger:
        [instance] = ledger.ladders()
        requests.remember(ledger, instance, request, request.plan(), [0, 1])
        instance_documents.record(ledger, instance, request.plan())
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("LRURUN_LEDGER", "../ledger.db")
    options = ("sDigits", "--profile", "smoke", "--ladder", "mine")
    _, out, error = said(capsys, "report", *options, "--json")
    assert json.loads(out)["instance"] == instance.key
    recorded = f"ladder mine: as the ledger records it, from {folder / 'mine.toml'}; "
    assert error == f"{recorded}name that file to read it as it is now\n"
    Path(folder / "mine.toml").unlink()
    assert said(capsys, "report", *options)[2] == f"{recorded}there is no such file here\n"
    assert said(capsys, "plot", *options, "--out", "a.svg")[0] == 0
    assert said(capsys, "report", "--all", "--ladder", "mine")[0] == 0
    claims = answered(capsys, "claims")["claims"]
    own, *_ = [one for one in claims if (one["ladder"], one["task"]) == ("mine", "sDigits")]
    assert (own["here"]["instance"], own["here"]["stand_in"]) == (instance.key, False)
    others = [one["here"]["detail"] for one in claims if one["ladder"] == "mine"]
    assert f"lrurun ladder PathX --ladder {folder / 'mine.toml'} would decide it" in others


def test_a_plan_names_the_seeds_that_remain_and_a_grid_that_is_not_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(folder / "ledger.db", "sDigits", {rung: [0.5, 0.5] for rung in ("relu-rnn", "tanh-rnn")}, **OF_SMOKE)
    plan = ("plan", "sDigits", *OPTIONS, "--rung", "relu-rnn", "--rung", "tanh-rnn", "--seeds", "4")
    assert [row["seeds_left"] for row in answered(capsys, *plan)["rungs"]] == [[2, 3], [2, 3]]
    assert "4 runs remaining, seeds 2, 3: about" in said(capsys, *plan)[1]
    base = RECIPE.replace('task = "sDigits"\n', "", 1)
    Path("base.toml").write_text(base)
    Path("own.toml").write_text('extends = "base.toml"\ntask = "sDigits"\n[tune.grid]\n"optim.lr" = [0.1]\n')
    notes = answered(capsys, "plan", "own.toml", *OPTIONS, "--tune")["notes"]
    assert notes == ["profile smoke has values of its own to try, so own.toml [tune.grid] is not used"]
    assert answered(capsys, "plan", "own.toml", *OPTIONS)["notes"] == []
    search = '[tune]\nsearch = "random"\ntrials = 2\n[tune.space]\n"optim.lr" = {low = 0.01, high = 0.1}\n'
    Path("own.toml").write_text(f'extends = "base.toml"\ntask = "sDigits"\n{search}')
    assert answered(capsys, "plan", "own.toml", *OPTIONS, "--tune")["notes"] == []


def test_documents_are_recorded_once_from_whichever_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)
            plan = planning.make("sDigits", profile="smoke")
            instance = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec, plan.short_name)
            instance_documents.record(ledger, instance, plan)
        recorded = instance_documents.find(ledger, instance)
        assert recorded is not None
        assert recorded.ladder.is_packaged
        assert recorded.recipe.is_packaged
        assert [event.kind for event in ledger.events(ladder_key=instance.key)] == ["documents"]
