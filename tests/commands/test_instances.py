"""Instances of a ladder: which commands are about the same one, `--sweep`, `report --by`, seeds added later."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from lrurun import paths
from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.config.runs import InstanceSpec
from lrurun.config.sweeps import by_paths, sweep_points
from lrurun.errors import UsageError
from lrurun.instances import continuing, documents, requests
from lrurun.instances.requests import LadderRequest
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import REQUEST
from lrurun.report.figures import drawing, figure_files
from lrurun.report.figures.figures import Figure
from lrurun.report.tables import loaded_instance, swept_table
from lrurun.session import resuming
from tests.harness.browsing import View, closed
from tests.harness.browsing import words as printed
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import once

__all__ = ["closed"]  # a fixture

RECIPE = (paths.packaged("recipes") / "sDigits.toml").read_text()
LADDER = (paths.packaged("ablations") / "nonlinearity.toml").read_text()
GRID = "[0.004, 0.016]"
OPTIONS = ("--profile", "smoke", "--ladder", "nonlinearity")
OF_SMOKE: Any = {"profile": "smoke", "ladder": "nonlinearity"}
CHANGED = RECIPE + "\n[profile.smoke.ladder.nonlinearity.rung.tanh-rnn]\noptim = { lr = 0.5 }\n"


def means(table: dict[str, Any]) -> dict[str, float | None]:
    return {row["rung"]: row["mean"] for row in table["rows"]}


def digest(recipe: str, *, tune: bool = False, ladder: str = LADDER) -> str:
    Path("r.toml").write_text(recipe)
    Path("l.toml").write_text(ladder)
    return planning.make("r.toml", ladder="l.toml", profile="smoke", tune=tune).spec.digest


def test_documents_that_resolve_equally_are_one_instance_whatever_their_paths(here: Machine) -> None:
    plain = planning.make("sDigits", **OF_SMOKE).spec.digest
    assert digest(RECIPE) == plain
    assert digest(RECIPE.replace('expect = "', 'expect = "roughly ')) == plain
    assert digest(RECIPE, ladder=LADDER.replace('title = "', 'title = "My ')) == plain
    other_grid = RECIPE.replace(GRID, "[0.004, 0.008]")
    assert digest(other_grid) == plain  # the grid decides nothing without --tune
    assert digest(other_grid, tune=True) != digest(RECIPE, tune=True)
    extra = '\n[[rung]]\nname = "extra"\ntitle = "t"\nchange = { "model.depth" = 3 }\n'
    assert len({plain, digest(RECIPE, ladder=LADDER + extra), digest(RECIPE, tune=True)}) == 3


def test_a_changed_recipe_names_the_results_of_the_earlier_one(here: Machine) -> None:
    file = Path("mine.toml")
    file.write_text(RECIPE)
    fill(here.ledger, "mine.toml", {"tanh-rnn": [0.3]}, **OF_SMOKE)
    with Ledger.open(here.ledger) as ledger:
        [earlier] = ledger.ladders()
        documents.record(ledger, earlier, planning.make("mine.toml", **OF_SMOKE))
    assert here.json("plan", "mine.toml", *OPTIONS)["notes"] == []
    file.write_text(CHANGED)
    sentence = f"--instance {earlier.short_name} (1 finished run)"
    [note] = here.json("plan", "mine.toml", *OPTIONS)["notes"]
    assert sentence in note
    assert sentence in here.refused("report", "mine.toml", *OPTIONS, code=4)
    fill(here.ledger, "mine.toml", {"relu-rnn": [0.3]}, **OF_SMOKE)
    notes = here.json("report", "mine.toml", *OPTIONS)["notes"]
    assert [sentence in note["text"] for note in notes].count(True) == 1
    file.unlink()
    assert means(here.json("report", "sDigits", "--instance", earlier.key))["tanh-rnn"] == 0.3
    for name in (earlier.short_name, f"{earlier.short_name}-2"):
        text = " ".join(here.run("report", "--instance", name).stdout.split())
        assert text.startswith(f"{name}: sDigits · profile smoke")
        assert f"More: lrurun report --instance {name} --details · lrurun plot --instance {name} --out" in text


def test_resume_leaves_what_was_asked_for_again_with_a_changed_recipe(here: Machine) -> None:
    file = Path("mine.toml")
    wanted = LadderRequest(task="mine.toml", **OF_SMOKE, tune=False, sets={})

    def ask(text: str) -> None:
        """Asks for seed 0 of one rung, which is queued if its settings are new."""
        file.write_text(text)
        plan = wanted.plan()
        with Ledger.open(here.ledger) as ledger:
            instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec, plan.short_name)
            requests.remember(ledger, instance, wanted, plan, [0])
            ledger.enqueue(instance.key, final_runs(plan, plan.rungs[1], [0]))

    def names() -> set[str]:
        """Of the instances that resume would train."""
        unfinished = resuming.find(paths.places("ledger.db"), None, all_users=False)
        return {instance.short_name for instance, _ in unfinished.instances}

    ask(RECIPE)
    ask(CHANGED)
    assert names() == {"mine-nonlinearity-smoke-2"}
    ask(RECIPE)
    assert names() == {"mine-nonlinearity-smoke"}, "the earlier files are back"
    file.unlink()
    assert f"mine-nonlinearity-smoke: its file {here.folder / 'mine.toml'} is gone" in here.refused("resume")
    file.write_text(CHANGED)
    fill(here.ledger, "mine.toml", {"tanh-rnn": [0.3]}, **OF_SMOKE)
    ask(CHANGED)
    assert len(here.json("status")["ladders"]) == 2
    first, second, third = here.run("resume").stderr.splitlines()
    assert first == f"left alone: {SUPERSEDED}"
    assert second == "nothing to do: every other ladder of this ledger is finished"
    assert third.startswith("1 finished run has no model in runs: name the runs folder with --runs-dir")


SUPERSEDED = (
    "mine-nonlinearity-smoke is superseded by mine-nonlinearity-smoke-2: its command was given again after its ladder, "
    "recipe or code had changed"
)


def ask(here: Machine, task: str, text: str, *, train: bool) -> Any:
    """Asks for seed 0 of the rung tanh-rnn, with this text in the recipe; the key of the instance."""
    (here.folder / task).write_text(text)
    wanted = LadderRequest(task=task, **OF_SMOKE, rungs=["tanh-rnn"], tune=False, sets={})
    plan = wanted.plan()
    if train:
        fill(here.ledger, task, {"tanh-rnn": [0.3]}, **OF_SMOKE)
    with Ledger.open(here.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec, plan.short_name)
        requests.remember(ledger, instance, wanted, plan, [0])
        [rung] = [rung for rung in plan.rungs if rung.name == "tanh-rnn"]
        ledger.enqueue(instance.key, final_runs(plan, rung, [0]))
    return instance


def test_status_and_resume_call_the_same_instances_superseded(here: Machine) -> None:
    earlier, now = ask(here, "mine.toml", RECIPE, train=False), ask(here, "mine.toml", CHANGED, train=True)

    def shown(*words: str) -> tuple[list[str], str]:
        done = here.run("status", *words)
        names = re.findall(r"^ {0,2}(mine-[^\s:]+)", done.stdout, re.MULTILINE)
        return list(dict.fromkeys(names)), done.stdout + done.stderr

    names, text = shown()
    assert names == [now.short_name]
    assert text.endswith("not shown: 1 superseded ladder; lrurun status --superseded shows all\n")
    for words, expected in (
        (["--superseded"], [earlier.short_name, now.short_name]),
        (["--instance", earlier.short_name], [earlier.short_name]),
    ):
        names, text = shown(*words)
        assert names == expected
        assert SUPERSEDED in text
    by_name = {ladder["name"]: ladder["superseded_by"] for ladder in here.json("status")["ladders"]}
    assert by_name == {earlier.short_name: now.short_name, now.short_name: None}
    assert here.run("status", "--watch").stderr == "nothing to watch: no run is queued or running\n"
    said = here.run("resume", "--instance", earlier.short_name).stderr
    assert said.splitlines() == [
        f"left alone: {SUPERSEDED}",
        "nothing to do: to finish it as it was, restore the files and give the same command",
    ]
    assert here.run("resume", "--instance", now.short_name).stderr.startswith("nothing to do: instance mine-")
    assert " is finished" in here.run("resume", "--instance", now.short_name).stderr
    page = printed(View(here.ledger, here.runs).page("/"))
    assert page.count(f"{SUPERSEDED}.") == 1
    assert page.index(f"{now.short_name}: ladder") < page.index(f"{earlier.short_name}: ladder")
    ask(here, "mine.toml", RECIPE, train=False)
    assert shown()[0] == [earlier.short_name, now.short_name], "the earlier files are back"
    assert {ladder["superseded_by"] for ladder in here.json("status")["ladders"]} == {None}


def test_the_command_that_supersedes_an_instance_says_so_once(here: Machine) -> None:
    ask(here, "mine.toml", RECIPE, train=False)
    (here.folder / "mine.toml").write_text(CHANGED)
    fill(here.ledger, "mine.toml", {"tanh-rnn": [0.3]}, **OF_SMOKE)
    again = ("ladder", "mine.toml", *OPTIONS, "--rung", "tanh-rnn", "--seeds", "0,", "--data-dir", "none")
    assert [here.run(*again).stderr.count(SUPERSEDED) for _ in range(2)] == [1, 0]


def test_a_ladder_that_is_running_is_not_superseded(here: Machine) -> None:
    earlier, _ = ask(here, "mine.toml", RECIPE, train=False), ask(here, "mine.toml", CHANGED, train=True)
    with Ledger.open(here.ledger) as ledger:
        assert ledger.hold(earlier.key, owner.this_process()) is not None
    assert "superseded" not in here.run("status").stderr
    assert here.run("resume", "--instance", earlier.short_name).stderr == (
        f"nothing to do: instance {earlier.short_name} is running\n"
    )


def test_a_recipe_of_another_task_by_the_same_name_supersedes(here: Machine) -> None:
    ask(here, "mine.toml", RECIPE, train=False)
    ask(here, "mine.toml", (paths.packaged("recipes") / "npDigits.toml").read_text(), train=True)
    assert [ladder["superseded_by"] for ladder in here.json("status")["ladders"]] == ["mine-nonlinearity-smoke-2", None]


def test_status_names_the_file_without_which_resume_fails(here: Machine) -> None:
    instance = ask(here, "mine.toml", RECIPE, train=False)
    assert here.json("status")["ladders"][0]["missing_file"] is None
    file = here.folder / "mine.toml"
    file.unlink()
    assert f"its file {file} is gone: lrurun resume continues it when the file is back" in here.run("status").stdout
    assert here.json("status")["ladders"][0]["missing_file"] == str(file)
    assert f"{instance.short_name}: its file {file} is gone" in here.refused("resume")
    # without runs that remain, nothing is missing
    file.write_text(RECIPE)
    fill(here.ledger, "mine.toml", {"tanh-rnn": [0.3]}, **OF_SMOKE)
    file.unlink()
    assert here.json("status")["ladders"][0]["missing_file"] is None


def test_what_resume_can_continue_is_read_in_as_many_statements_from_any_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger may have hundreds of instances, and another command may add a request meanwhile."""
    reading, statements = Ledger._reading, []

    def counted(ledger: Ledger) -> Any:
        statements.append(ledger)
        return reading(ledger)

    monkeypatch.setattr(Ledger, "_reading", counted)
    counts = []
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for number in range(20):
            instance = ledger.add_ladder("lru", f"task{number}", None, InstanceSpec())
            table = {"task": instance.task, "ladder": "lru", "profile": None, "rungs": [], "tune": False, "sets": []}
            ledger.event(REQUEST, "requested", table, ladder=instance.key)
            if number in (0, 19):
                statements.clear()
                assert continuing.superseded(ledger) == {}
                assert continuing.missing_files(ledger) == {}
                counts.append(len(statements))
    assert counts[0] == counts[1] > 0


def test_resume_says_that_a_command_is_not_recorded(here: Machine) -> None:
    plan = planning.make("sDigits", **OF_SMOKE)
    with Ledger.open(here.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec, plan.short_name)
        ledger.enqueue(instance.key, final_runs(plan, plan.rungs[0], [0]))
    assert f"ladder {plan.short_name}: the command that began it is not recorded" in here.refused("resume")


def test_instances_have_short_names_of_file_and_options(here: Machine) -> None:
    Path("search.toml").write_text(RECIPE)
    Path("again").mkdir()
    Path("again/search.toml").write_text(RECIPE.replace(GRID, "[0.0016]"))
    fill(here.ledger, "sDigits", {"tanh-rnn": [0.3]})
    fill(here.ledger, "search.toml", {"tanh-rnn": [0.4]}, **OF_SMOKE, tune=True)
    fill(here.ledger, "sDigits", {"tanh-rnn": [0.5]}, sets={"optim.lr": 0.5, "model.width": 4})
    fill(here.ledger, "again/search.toml", {"tanh-rnn": [0.6]}, **OF_SMOKE, tune=True, first=1)
    tuned, rate = "search-nonlinearity-smoke-tune", "sDigits-lr0.5-width4"
    names = [ladder["name"] for ladder in here.json("status")["ladders"]]
    assert names == ["sDigits", tuned, rate, f"{tuned}-2"]
    assert here.json("plan", "sDigits", "--set", "optim.lr=0.5", "--set", "model.width=4")["name"] == rate
    assert means(here.json("report", "--instance", rate))["tanh-rnn"] == 0.5
    for task, mean in (("search.toml", 0.4), ("again/search.toml", 0.6)):
        assert means(here.json("report", task, *OPTIONS, "--tune"))["tanh-rnn"] == mean
    assert [run["seed"] for run in here.json("runs", "--instance", tuned)["runs"]] == [0]
    assert here.json("runs", "--instance", tuned, "--where", "rung=relu-rnn")["runs"] == []
    [status] = here.json("status", "--instance", tuned)["ladders"]
    assert status["name"] == tuned
    said = here.refused("report", "--instance", "search-nonlinearity-smoke", code=4)
    assert f"did you mean {tuned!r}? see `lrurun status`" in said


def test_a_name_is_given_to_one_instance(machine: Machine) -> None:
    with Ledger.open(machine.ledger) as ledger:
        first = ledger.add_ladder("lru", "sDigits", None, InstanceSpec(), "sDigits")
        second = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec(), "sDigits")
        assert (first.short_name, second.short_name) == ("sDigits", "sDigits-2")
        assert ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec(), chosen="mine").key == second.key
        assert [ladder.short_name for ladder in ledger.ladders()] == ["sDigits", "mine"]
        with pytest.raises(UsageError, match="is the name of another instance: ladder lru on sDigits"):
            ledger.add_ladder("lru", "npDigits", None, InstanceSpec(), chosen="mine")
        assert len(ledger.ladders()) == 2
        assert ledger.ladder("mine") == ledger.ladder(second.key[:5])


def test_own_ladders_and_recipes_are_read_from_the_ledger_elsewhere(here: Machine) -> None:
    of_any_task = re.sub(r"^tasks = .*\n", "", LADDER, count=1, flags=re.MULTILINE)
    file = here.folder / "mine.toml"
    file.write_text(of_any_task.replace('"nonlinearity"', '"mine"', 1))
    Path("own.toml").write_text(RECIPE)
    fill(here.ledger, "own.toml", {"tanh-rnn": [0.3, 0.4]}, profile="smoke", ladder="mine.toml")
    options = ("sDigits", "--profile", "smoke", "--ladder", "mine")
    for words in (options, (*options, "--by", "optim.lr")):
        assert "unknown ladder 'mine'" in here.refused("report", *words), "nothing recorded it"
    request = LadderRequest(task="own.toml", ladder="mine.toml", profile="smoke", tune=False, sets={})
    with Ledger.open(here.ledger) as ledger:
        [instance] = ledger.ladders()
        requests.remember(ledger, instance, request, request.plan(), [0, 1])
        for _ in range(2):
            documents.record(ledger, instance, request.plan())
        assert [event.kind for event in ledger.events(ladder_key=instance.key)].count("documents") == 1
    wanted = here.json("report", *options[:-1], "mine.toml")
    elsewhere = Machine(here.folder / "elsewhere")
    elsewhere.env["LRURUN_LEDGER"] = "../ledger.db"
    done = elsewhere.run("report", *options, "--json")
    recorded = f"ladder mine: as the ledger records it, from {file}; "
    assert done.stderr == f"{recorded}name that file to read it as it is now\n"
    assert elsewhere.json("report", *options) == wanted
    file.unlink()
    assert elsewhere.run("report", *options).stderr == f"{recorded}there is no such file here\n"
    elsewhere.run("report", *options, "--by", "optim.lr")
    claims = elsewhere.json("claims", "sDigits")["claims"]
    [own, *_] = [one["here"] for one in claims if one["ladder"] == "mine"]
    assert (own["instance"], own["stand_in"]) == (instance.key, False)


def test_a_plan_names_the_seeds_that_remain_and_a_grid_that_is_not_used(here: Machine) -> None:
    fill(here.ledger, "sDigits", {rung: [0.5, 0.5] for rung in ("relu-rnn", "tanh-rnn")}, **OF_SMOKE)
    plan = ("plan", "sDigits", *OPTIONS, "--rung", "relu-rnn", "--rung", "tanh-rnn", "--seeds", "4")
    assert [row["seeds_left"] for row in here.json(*plan)["rungs"]] == [[2, 3], [2, 3]]
    assert "4 runs remaining, seeds 2, 3: about" in here.run(*plan).stdout
    Path("base.toml").write_text(RECIPE.replace('task = "sDigits"\n', "", 1))
    own = 'extends = "base.toml"\ntask = "sDigits"\n'
    search = '[tune]\nsearch = "random"\ntrials = 2\n[tune.space]\n"optim.lr" = {low = 0.01, high = 0.1}\n'
    unused = "profile smoke has values of its own to try, so own.toml [tune.grid] is not used"
    grid = '[tune.grid]\n"optim.lr" = [0.1]\n'
    for text, more, notes in ((grid, ("--tune",), [unused]), (grid, (), []), (search, ("--tune",), [])):
        Path("own.toml").write_text(own + text)
        assert here.json("plan", "own.toml", *OPTIONS, *more)["notes"] == notes


def test_packaged_documents_are_recorded_once_from_whichever_folder(machine: Machine, monkeypatch) -> None:
    with Ledger.open(machine.ledger) as ledger:
        for name in ("one", "two"):
            (machine.folder / name).mkdir()
            monkeypatch.chdir(machine.folder / name)
            plan = planning.make("sDigits", profile="smoke")
            instance = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec, plan.short_name)
            documents.record(ledger, instance, plan)
        recorded = documents.find(ledger, instance)
        assert recorded is not None
        assert (recorded.ladder.is_packaged, recorded.recipe.is_packaged) == (True, True)
        assert [event.kind for event in ledger.events(ladder_key=instance.key)] == ["documents"]


# Seeds of a later command


FAST = ("sDigits", "--profile", "smoke")


def test_seeds_of_a_later_command_are_named(machine: Machine) -> None:
    """All of these runs are there already, so that the commands only record what was asked for."""
    scores = {"ring-init": [0.5] * 4, "gamma-norm": [0.5] * 4, "diagonal": [0.5] * 2}
    fill(machine.ledger, "sDigits", scores, profile="smoke")
    pair, why = ("--rung", "ring-init", "--rung", "gamma-norm"), ": the error rate of verdicts holds only if earlier"

    def added() -> list[str]:
        notes = machine.json("report", *FAST)["notes"]
        return [note["text"] for note in notes if "later command" in note["text"]]

    for words in ((*pair, "--seeds", "1"), ("--rung", "diagonal", "--seeds", "1,")):
        machine.run("ladder", *FAST, *words)
    assert added() == []
    machine.run("ladder", *FAST, *pair, "--seeds", "0,2-3")
    [both] = added()
    assert both.startswith(f"seeds 2 to 3 of ring-init, gamma-norm were added in a later command{why}")
    machine.run("ladder", *FAST, "--rung", "gamma-norm", "--seeds", "1,")
    [one, other] = added()
    assert one == "seeds 2 to 3 of ring-init were added in a later command"
    assert other.startswith(f"seeds 1 to 3 of gamma-norm were added in a later command{why}")
    runs = machine.json("runs", "--where", "rung=gamma-norm and seed=1")["runs"]
    machine.run("mark", runs[0]["id"], "--exclude", "a test")
    assert added() == [both]


def test_seeds_after_a_sequential_design_are_named(tmp_path: Path) -> None:
    fill(tmp_path / "ledger.db", "sDigits", {"gamma-norm": [0.5] * 22})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        plan, [instance] = planning.make("sDigits"), ledger.ladders()
        for more in ({"seeds": None, "max_seeds": 20}, {"seeds": "20-21"}):
            asked = {"task": "sDigits", "ladder": "lru", "profile": None, "tune": False, "sets": [], **more}
            ledger.event("asked", "requested", asked, ladder=instance.key)
        found = loaded_instance.LoadedInstance(plan, instance, ledger).added_seeds()
    assert found == ["seeds 20 to 21 of gamma-norm were added in a later command"]


@pytest.mark.parametrize(
    "recorded", [["optim.lr=2e-3", " model.norm = 'layer'"], {"optim.lr": 0.002, "model.norm": "layer"}]
)
def test_a_recorded_set_has_its_values_whatever_its_spelling(machine: Machine, recorded: Any) -> None:
    table = {"task": "sDigits", "ladder": "lru", "profile": "smoke", "rungs": [], "seeds": "0,", "tune": False}
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec())
        ledger.event(REQUEST, "requested", {**table, "sets": recorded}, ladder=instance.key)
        [request] = requests.recorded(ledger, instance, LadderRequest)
        assert request.sets == {"optim.lr": 0.002, "model.norm": "layer"}
        requests.remember(ledger, instance, request, request.plan(), [0])
        assert len(requests.events(ledger, instance)) == 1
        requests.remember(ledger, instance, request, request.plan(), [0, 1])
        newest = requests.events(ledger, instance)[-1].payload
    assert newest["sets"] == ["optim.lr=0.002", "model.norm=layer"]  # as earlier versions read them


# --sweep


def test_a_sweep_is_every_combination() -> None:
    assert sweep_points([], {"a": 1}) == [{"a": 1}]
    assert sweep_points(["optim.lr=0.001, 0.004", "model.pooling=mean,last"], {"train.steps": 7}) == [
        {"train.steps": 7, "optim.lr": rate, "model.pooling": pooling}
        for rate in (0.001, 0.004)
        for pooling in ("mean", "last")
    ]
    # the kind comes first, because the other settings depend on it
    [first, _] = sweep_points(["model.recurrence.r_min=0.1,0.2", "model.recurrence.kind=diagonal"], {})
    assert list(first.items()) == [("model.recurrence.kind", "diagonal"), ("model.recurrence.r_min", 0.1)]
    assert sweep_points(['model.glu="full","none"'], {}) == [{"model.glu": "full"}, {"model.glu": "none"}]
    assert by_paths(["optim.lr, train.batch", "model.depth"]) == ("optim.lr", "train.batch", "model.depth")


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        (["optim.lr"], "--sweep optim.lr: expected path=value,value", "as in"),
        (["=1"], "--sweep =1: expected path=value,value", "as in"),
        (["optim.lr="], "--sweep optim.lr=: expected values, separated by commas", "as in"),
        (["model.glu=full,"], "--sweep model.glu=full,: expected values", "as in"),
        (["optim.rl=1"], "--sweep optim.rl: unknown name", "did you mean 'optim.lr'?"),
        (["optim.lr=0.001,1e-3"], "--sweep optim.lr: 0.001 is named twice", "leave one of them out"),
        (["seed=0,1"], "--sweep seed: seeds are not set this way", "use --seeds 0-4"),
        (["data.length=1,2"], "--sweep data.length: settings of the data", "write a recipe with a profile for each"),
        (["execution.threads=1,2"], "--sweep execution.threads: says how runs", "set it for all of them: --set exec"),
        (
            ["optim.lr=1", "optim.lr=2"],
            "--sweep optim.lr: named twice",
            "give all values at once: --sweep optim.lr=V,V",
        ),
        (["train.steps=1,2"], "--set train.steps and --sweep train.steps exclude", "leave one of them out"),
    ],
    ids=range(11),
)
def test_wrong_sweeps_are_refused(texts: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        sweep_points(texts, {"train.steps": 3})
    assert caught.value.message.startswith(message)
    assert str(caught.value.hint).startswith(hint)


def _sweep(folder: Path) -> None:
    ledger, small = Machine(folder).ledger, {"profile": "smoke", "more": {"val/accuracy": 0.2}}
    fill(ledger, "sDigits", {"diagonal": [0.5, 0.6], "gamma-norm": [0.7]}, sets={"optim.lr": 0.02}, **small)
    small["more"] = {"val/accuracy": 0.3}
    fill(ledger, "sDigits", {"diagonal": [0.4, 0.5]}, sets={"optim.lr": 0.001}, **small)
    fill(ledger, "sDigits", {"diagonal": [0.25]}, sets={"model.glu": "full"}, **small)  # the recipe's own value
    fill(ledger, "sDigits", {"diagonal": [0.1]}, sets={"train.batch": 20, "optim.lr": 0.001}, **small)
    fill(ledger, "sDigits", {"diagonal": [0.1]}, tune=True, first=5, **small)
    fill(ledger, "sDigits", {"diagonal": [0.9]}, sets={"optim.lr": 0.001})


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Instances of the ladder lru: two rates and a batch made by `--set`, the plain recipe, one tuned. Not changed."""
    return Machine(once("swept", _sweep)).copy(tmp_path_factory.mktemp("swept") / "here")


BY = ("report", *FAST, "--by", "optim.lr")
PAIR = ("--rung", "diagonal", "--rung", "gamma-norm")


def test_instances_are_shown_by_a_setting(swept: Machine, golden) -> None:
    texts = [swept.shown(*BY, *PAIR, "--format", name) for name in ("table", "md", "csv", "latex")]
    golden("by-setting.txt", re.sub(r"\b[0-9a-f]{12}\b", "0123456789ab", "\n".join(texts)))
    found = swept.json(*BY, *PAIR)
    assert (found["by"], found["set"], found["tune"], len(found["instances"])) == (["optim.lr"], {}, False, 3)
    assert [(row["rung"], row["by"]["optim.lr"], row["n"], row["validation"]) for row in found["rows"]] == [
        *(("diagonal", 0.001, 2, 0.3), ("diagonal", 0.016, 1, 0.3), ("diagonal", 0.02, 2, 0.2)),
        *(("gamma-norm", 0.001, 0, None), ("gamma-norm", 0.02, 1, 0.2), ("gamma-norm", 0.064, 0, None)),
    ]
    assert [row["set"] for row in found["rows"][:3]] == [{"optim.lr": 0.001}, {}, {"optim.lr": 0.02}]


def test_rungs_that_no_instance_has_run_are_named_below_the_table(swept: Machine) -> None:
    text = " ".join(swept.run(*BY).stdout.split())
    assert "(n=0)" in text, "gamma-norm was run at one value"
    assert "tanh-rnn 0" not in text
    [line] = re.findall(r"Not run in any of these instances, and not shown: ([^.]*)\.", text)
    assert line.split(", ")[0] == "tanh-rnn"
    assert not {"diagonal", "gamma-norm"} & set(line.split(", "))
    named = swept.run(*BY, "--rung", "tanh-rnn", "--rung", "diagonal").stdout
    assert "not shown" not in named
    assert "tanh-rnn" in named
    assert {row["rung"] for row in swept.json(*BY)["rows"]} > {"tanh-rnn", "diagonal"}, "JSON is as it was"


def test_several_settings_and_values_that_all_instances_share(swept: Machine) -> None:
    def rows(*words: str) -> list[tuple[Any, ...]]:
        return [tuple(row["by"].values()) for row in swept.json("report", *FAST, *words)["rows"]]

    both = [(0.001, 20), (0.001, 32), (0.016, 32), (0.02, 32)]
    assert rows("--by", "optim.lr", "--by", "train.batch", "--rung", "diagonal") == both
    assert rows("--by", "train.batch,optim.lr", "--limit", "3")[-1] == (32, 0.02)
    shared = swept.json(*BY, "--set", "train.batch=20", "--rung", "diagonal")
    assert (shared["set"], [row["by"] for row in shared["rows"]]) == ({"train.batch": 20}, [{"optim.lr": 0.001}])
    assert shared["label"] == "sDigits, profile smoke, without --tune, train.batch=20"
    # tuning chooses the rate of each rung
    assert rows("--by", "optim.lr", "--tune", "--rung", "diagonal") == [(None,)]
    # a setting that the model of a rung does not have: one row, as the runs are the same
    assert rows("--by", "model.recurrence.r_min", "--limit", "1") == [(None,)]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("--set", "optim.lr=0.01"), 2, "--set optim.lr and --by optim.lr exclude each other"),
        (("--by", "optim.lr"), 2, "--by optim.lr: named twice"),
        (("--by", "optim.rl"), 2, "--by optim.rl: unknown name\nhint: did you mean 'optim.lr'?"),
        (("--speed",), 2, "--by and --speed exclude each other"),
        (("--instance", "abc"), 2, "--instance and --profile exclude each other"),
        (("--set", "model.depth=3"), 4, "model.depth=3: not in this ledger, with any value of optim.lr"),
        (("--rung", "diagnal"), 2, "did you mean 'diagonal'?"),
        (("--ledger", "none.db"), 4, "hint: run: lrurun ladder sDigits --profile smoke --sweep optim.lr=V,V"),
    ],
)
def test_wrong_reports_by_settings_are_refused(swept: Machine, words: tuple[str, ...], code: int, error: str) -> None:
    assert error in swept.refused(*BY, *words, code=code)


PLOT = ("plot", *FAST, "--out", "by.svg")


def test_scores_are_drawn_over_a_setting(swept: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    render = figure_files.render

    def kept(figure: Figure, *words: Any) -> bytes:
        drawn.append(figure)
        return render(figure, *words)

    monkeypatch.setattr(figure_files, "render", kept)
    for more in ((), ("--metric", "val/accuracy"), ("--metric", "machine/steps_per_second")):
        swept.run(*PLOT, "--by", "optim.lr", *more)
        assert (swept.folder / "by.svg").stat().st_size
    test, validation, speed = (figure.panels[0] for figure in drawn)
    assert [panel.x for panel in (test, validation, speed)] == ["optim.lr"] * 3
    labels = ["test accuracy [%]", "validation accuracy [%]", "machine/steps_per_second"]
    assert [panel.y for panel in (test, validation, speed)] == labels
    diagonal, gamma_norm = test.curves
    assert (diagonal.label, gamma_norm.label) == ("diagonal (n=1 to 2)", "gamma-norm (n=1)")
    assert (diagonal.x, gamma_norm.x, gamma_norm.y) == ((0.001, 0.016, 0.02), (0.02,), (70.0,))
    assert diagonal.y == pytest.approx((45.0, 25.0, 55.0))
    assert diagonal.low == pytest.approx((40.0, 25.0, 50.0))
    assert validation.curves[0].y == pytest.approx((30.0, 30.0, 20.0))
    assert speed.curves[0].y == pytest.approx((10.0, 10.0, 10.0))
    title = "from a tanh RNN to the Linear Recurrent Unit, by optim.lr on sDigits, profile smoke, without --tune"
    assert drawn[0].title == title
    assert test.x_ticks == ()  # 0.016 and 0.02 would overlap
    assert test.x == "optim.lr"
    swept.run("plot", *FAST, "--by", "optim.lr", "--plain", "--out", "rates.svg")
    assert drawn[-1].panels[0].x == "learning rate"  # as a paper names it
    assert "Left out" not in drawn[0].caption


def _over_rates(swept: Machine) -> swept_table.SweptReport:
    plan = LadderRequest(task="sDigits", ladder="lru", profile="smoke", tune=False, sets={}).plan()
    with Ledger.open(swept.ledger) as ledger:
        return swept_table.build(
            ledger, plan, swept_table.find(ledger, plan, ["optim.lr"], ""), ["optim.lr"], ["diagonal"]
        )


def test_ticks_of_a_figure_over_a_setting_are_the_values_tried_where_there_is_room(swept: Machine) -> None:
    report = _over_rates(swept)
    rows = [structs.replace(row, by={"optim.lr": 0.001 * 2.5**k}) for k, row in enumerate(report.rows)]
    figure = drawing.swept(structs.replace(report, rows=tuple(rows)), {row.runs[0]: 0.5 for row in rows}, "y", 1.0)
    [panel] = figure.panels
    assert panel.x_ticks == tuple((0.001 * 2.5**k, text) for k, text in enumerate(("0.001", "0.0025", "0.00625")))
    texts = re.findall("<!-- (.*?) -->", figure_files.render(figure, ".svg").decode())
    assert {"0.001", "0.0025", "0.00625"} <= set(texts)
    assert not any("times" in text for text in texts)  # no numbers between them


def test_what_a_figure_over_a_setting_leaves_out_is_named(swept: Machine) -> None:
    report = _over_rates(swept)
    rows = [structs.replace(row, diverged=3) for row in report.rows]
    numbers = {run: math.inf if k == 0 else 0.5 for k, run in enumerate(rows[0].runs)}
    free = structs.replace(rows[1], rung="free", by={"optim.lr": None})
    figure = drawing.swept(structs.replace(report, rows=(rows[0], rows[1], free)), numbers, "y", 1.0)
    assert [(curve.label, curve.x, curve.y) for curve in figure.panels[0].curves] == [
        ("diagonal (n=1)", (0.001,), (0.5,))
    ]
    assert "without the result: diagonal at 0.001 (4 of 5), diagonal at 0.016 (4 of 4)." in figure.caption
    assert figure.caption.endswith("Not drawn, because they have no optim.lr, or tuning chose it: free.")
    lists = structs.replace(report, rows=(structs.replace(rows[0], by={"optim.lr": [1, 2]}),))
    with pytest.raises(UsageError, match=r"--by optim\.lr: a figure is over numbers, found \[1, 2\]"):
        drawing.swept(lists, numbers, "y", 1.0)


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (
            ("optim.lr", "--metric", "test/acuracy"),
            4,
            "--metric test/acuracy: no finished run has this result\nhint: did",
        ),
        (("optim.lr", "--metric", "a", "--metric", "b"), 2, "--metric: a figure shows one, found a, b"),
        (("model.glu",), 2, "--by model.glu: a figure is over numbers, found full"),
        (("optim.lr,train.batch",), 2, "--by: a figure shows one, found optim.lr, train.batch"),
        (("optim.lr", "--by", "train.batch"), 2, "--by: a figure shows one, found optim.lr, train.batch"),
        (("optim.lr", "--kind", "map"), 2, "--by and --kind exclude each other"),
        (("optim.lr", "--examples", "3"), 2, "--by and --examples exclude each other"),
        (("optim.lr", "--set", "model.depth=3"), 4, "model.depth=3: not in this ledger, with any value of optim.lr"),
        (("optim.lr", "--tune"), 4, "no finished run has a value of optim.lr: its rung has none, or tuning chose it"),
    ],
)
def test_what_cannot_be_drawn_over_a_setting(swept: Machine, words: tuple[str, ...], code: int, error: str) -> None:
    assert error in swept.refused(*PLOT, "--by", *words, code=code)


@pytest.mark.parametrize("names", [(), ("0123456789ab",)])
def test_a_figure_over_a_setting_is_of_a_task(swept: Machine, names: tuple[str, ...]) -> None:
    assert "--by: is about instances of a TASK" in swept.refused("plot", *names, "--by", "optim.lr", "--out", "a.svg")


def test_instances_on_unequal_data_are_not_compared(machine: Machine) -> None:
    for rate, data in ((0.1, "e"), (0.2, "d")):
        sets, about = {"optim.lr": rate}, {"source": "s"}
        fill(machine.ledger, "sDigits", {"diagonal": [0.5]}, sets=sets, profile="smoke", data=data, about=about)
    said = machine.refused(*BY, code=1)
    assert "these instances were trained on unequal data and are never compared" in said


def test_a_sweep_is_planned(swept: Machine) -> None:
    plan = ("plan", *FAST, "--rung", "diagonal", "--seeds", "0-1")
    rates = ("--sweep", "optim.lr=0.001,0.002")
    out = swept.run(*plan, *rates).stdout
    assert [line.split()[:3] for line in out.splitlines()[2:4]] == [
        ["0.001", "sDigits-smoke-lr0.001", "2/2"],
        ["0.002", "sDigits-smoke-lr0.002", "0/2"],
    ]
    assert re.search(r"^2 runs remaining: about 0:\d\d with \d+ workers?, all in one queue\.$", out, re.MULTILINE)
    found = swept.json(*plan, *rates, "--sweep", "train.batch=50,20")
    assert found["sweep"] == {"optim.lr": [0.001, 0.002], "train.batch": [50, 20]}
    assert [one["set"] for one in found["plans"]] == [
        {"optim.lr": lr, "train.batch": batch} for lr in (0.001, 0.002) for batch in (50, 20)
    ]
    single = swept.json(*plan, "--set", "optim.lr=0.001", "--set", "train.batch=50")
    assert {"schema_version": 1, **found["plans"][0]} == single
    assert "All runs are finished." in swept.run(*plan, "--sweep", "optim.lr=0.001").stdout
    own, other = swept.json(*plan, "--sweep", "model.glu=full,none")["plans"]
    assert (own["set"], other["set"]) == ({}, {"model.glu": "none"}), "full is the recipe's own value"
    assert own["name"] in {ladder["name"] for ladder in swept.json("status")["ladders"]}
    # as converted, both are the same number
    assert "--sweep optim.lr: 1 is named twice" in swept.refused(*plan, "--sweep", "optim.lr=1,1.0")
    other = swept.refused(*plan, "--sweep", "optim.name=muon,lion", "--set", "optim.ns_steps=4")
    assert other.startswith(
        "error: with optim.name=lion: --set optim.ns_steps: no rung of this ladder has it: lion has"
    )
    # nothing is trained if any combination is wrong
    said = swept.refused("ladder", *FAST, "--sweep", "optim.lr=0.1,-1")
    assert "--sweep optim.lr: expected a number > 0, found -1\nhint: give it another value: --sweep optim.lr=" in said


def test_a_sweep_is_one_queue_and_ends_with_a_table_of_its_instances(swept: Machine, tmp_path: Path) -> None:
    machine = swept.copy(tmp_path / "copy")  # of finished runs, so that nothing is to be trained
    sweep = ("--rung", "diagonal", "--seeds", "2", "--sweep", "optim.lr=0.001,0.02")
    done = machine.run("ladder", *FAST, *sweep)
    assert "sweep of 2 instances in one queue: optim.lr=0.001; optim.lr=0.02\n" in done.stderr
    assert done.stderr.count("nothing to do: every run of these 2 instances is finished\n") == 1
    shown = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("diagonal")]
    assert [["diagonal", "0.001"], ["diagonal", "0.02"]] == [row for row in shown if row[1] != "0.016"]


# report --rung


def test_reports_of_some_rungs(swept: Machine) -> None:
    report = ("report", *FAST, "--set", "optim.lr=0.02")
    whole, found = swept.json(*report), swept.json(*report, *PAIR[2:], *PAIR[:2])
    assert [row["rung"] for row in found["rows"]] == ["diagonal", "gamma-norm"]
    by_rung = {row["rung"]: row for row in whole["rows"]}
    for row in found["rows"]:
        assert row | {"branches": False} == by_rung[row["rung"]] | {"branches": False}
    # their bases are not among them
    assert [(row["on"], row["branches"]) for row in found["rows"]] == [("linear-rnn", True), ("ring-init", True)]
    assert {claim["rung"] for claim in found["claims"]} <= {"diagonal", "gamma-norm"}
    about = "These sentences are about diagonal, gamma-norm of 8 rungs, without 7 claims about others;"
    assert found["conclusions"][-1].startswith(about)
    speeds = swept.json(*report, "--rung", "gamma-norm", "--speed")
    assert [(row["rung"], row["n"], row["speedup"]) for row in speeds["rows"]] == [("gamma-norm", 1, 1.0)]
    every = swept.json("report", "--all", "--set", "optim.lr=0.02", "--rung", "diagonal")
    assert [(row["rung"], [cell["n"] for cell in row["cells"]]) for row in every["rows"]] == [("diagonal", [2])]
