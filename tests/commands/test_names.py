"""The short names of instances: `plan` and `ladder` agree on them, `--name`, `ledger rename`, and `--instance`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lrurun.config import planning
from lrurun.errors import UsageError
from lrurun.instances import naming
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import RENAMED
from tests.harness.machine import Machine
from tests.harness.programs import LINEAR, write
from tests.harness.results import fill
from tests.harness.shared import once
from tests.harness.stores import raw

pytestmark = pytest.mark.slow  # each run of a program starts a process

WIDER = """\
name = "wider"
title = "Wider blocks"
source = "ours"

[[rung]]
name = "narrow"
title = "A narrow block"

[[rung]]
name = "wide"
title = "A wide block"
change = { "settings.block.wide" = true }
"""
ONE_RUN = ("--rung", "narrow", "--seeds", "1", "--jobs", "1")


def names(machine: Machine) -> list[str]:
    return [ladder["name"] for ladder in machine.json("status")["ladders"]]


def planned(machine: Machine, *words: str) -> list[str]:
    found = machine.json("plan", *words)
    return [plan["name"] for plan in found.get("plans", [found])]


AGREED: Sequence[tuple[tuple[str, ...], list[str]]] = (
    (("toy.toml",), ["toy"]),
    (("toy.toml", "--set", "settings.lr=0.0300"), ["toy-lr0.03"]),
    (("toy.toml", "--set", "settings.lr=0.01"), ["toy"]),  # the recipe's own
    (("toy.toml", "--tune"), ["toy-tune"]),
    (("toy.toml", "--ladder", "wider.toml"), ["toy-wider"]),
    (("toy.toml", "--ladder", "wider.toml", "--set", "settings.name=wider"), ["toy-wider-name-wider"]),
    (("toy.toml", "--set", "settings.epochs=2", "--set", "settings.name=it's"), ["toy-epochs2-name-it-s"]),
    (("toy.toml", "--sweep", "settings.lr=0.02,0.04"), ["toy-lr0.02", "toy-lr0.04"]),
    (
        ("toy.toml", "--sweep", "settings.lr=0.02,0.05", "--sweep", "settings.epochs=2,3"),
        ["toy-lr0.02-epochs2", "toy-lr0.02-epochs3", "toy-lr0.05-epochs2", "toy-lr0.05-epochs3"],
    ),
    (("toy.toml", "--set", "settings.lr=0.06", "--name", "best"), ["best"]),
    (("toy.toml", "--sweep", "settings.lr=0.07,0.08", "--name", "mine"), ["mine-lr0.07", "mine-lr0.08"]),
    (("second/toy.toml",), ["toy-second"]),
    (("second/toy.toml", "--ladder", "second/wider.toml"), ["toy-wider-second"]),
    (("edited.toml",), ["edited"]),
)


def files(folder: Path) -> None:
    write(folder)
    write(folder / "second", ("lr = 0.01", "lr = 0.011"))
    write(folder, ("lr = 0.01", "lr = 0.012"), name="edited.toml")
    (folder / "wider.toml").write_text(WIDER)
    (folder / "second/wider.toml").write_text(WIDER.replace("Wider", "Much wider"))


@pytest.fixture(scope="module")
def named() -> Machine:
    """Instances of all kinds of requests of a program, each planned first; tests only read it."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        files(folder)
        for words, expected in AGREED:
            before = set() if not (folder / "ledger.db").exists() else {*names(machine)}
            assert planned(machine, *words) == expected
            machine.run("ladder", *words, *ONE_RUN)
            assert {*names(machine)} == before | {*expected}, words
        recipe = folder / "edited.toml"
        recipe.write_text(recipe.read_text().replace("lr = 0.012", "lr = 0.013"))
        assert planned(machine, "edited.toml") == ["edited-2"]
        machine.run("ladder", "edited.toml", *ONE_RUN)
        assert names(machine)[-1] == "edited-2"

    return Machine(once("named-instances", make))


@pytest.fixture
def copy(named: Machine, tmp_path: Path) -> Machine:
    """The same, which a test may change, and which no other process reads."""
    return named.copy(tmp_path / "copy")


def test_plan_and_ladder_agree_on_the_name_and_a_name_stays(named: Machine) -> None:
    for words, expected in AGREED:
        if words != ("edited.toml",):
            assert planned(named, *words) == expected
            if "--name" in words:
                unnamed = [word for word in words if word not in ("--name", *words[-1:])]
                assert planned(named, *unnamed) == expected
    assert planned(named, "edited.toml") == ["edited-2"]
    every = names(named)
    assert len({*every}) == len(every)


def test_a_proposed_name_does_not_depend_on_the_ledger(named: Machine, machine: Machine) -> None:
    """But for what another instance has: then the folder of the file, or a number, follows."""
    files(machine.folder)
    for words, expected in AGREED:
        assert planned(machine, *words) == [name.removesuffix("-second") for name in expected]


def test_a_name_says_which_setting_differs_from_the_instance_that_has_it(here: Machine) -> None:
    rates: list[dict[str, Any]] = [{"optim.lr": 0.12345678}, {"optim.lr": 0.12345679}]
    many = {"model.width": 24, "model.depth": 3, "train.batch": 20, "train.steps": 30, "optim.lr": 0.02}
    fill(here.ledger, "sDigits", {"tanh-rnn": [0.3]}, sets=rates[0])
    fill(here.ledger, "sDigits", {"tanh-rnn": [0.3]}, sets=many)
    close = ("sDigits", "--sweep", "optim.lr=0.2345678,0.2345679")
    assert planned(here, *close) == ["sDigits-lr0.2346", "sDigits-lr0.2345679"]
    for number, rate in enumerate((0.2345678, 0.2345679), 2):
        plan = planning.make("sDigits", sets={"optim.lr": rate})
        with Ledger.open(here.ledger) as ledger:
            others = naming.others(ledger, plan)
            ledger.add_ladder("lru", "sDigits", None, plan.spec, plan.short_name, others=others)
        assert planned(here, *close)[number - 2] == names(here)[number]
    words = [word for path, value in {**many, "optim.lr": 0.03}.items() for word in ("--set", f"{path}={value}")]
    assert names(here)[:2] == ["sDigits-lr0.1235", "sDigits-width24-depth3-batch20-and2"]
    assert planned(here, "sDigits", "--set", "optim.lr=0.12345679") == ["sDigits-lr0.12345679"]
    assert planned(here, "sDigits", *words) == ["sDigits-lr0.03-width24-depth3-and2"]


def test_a_name_that_another_instance_has_is_refused_before_anything_is_trained(copy: Machine) -> None:
    for command in (("plan",), ("ladder", *ONE_RUN)):
        said = copy.refused(*command, "toy.toml", "--set", "settings.lr=0.09", "--name", "best")
        assert said.splitlines()[-2:] == [
            "error: --name best: is the name of another instance: ladder toy on toy, without --tune, settings.lr=0.06",
            "hint: choose another name; lrurun report --instance best shows that one",
        ]


def test_a_sweep_with_a_name_that_is_taken_trains_nothing(copy: Machine) -> None:
    sweep, before = ("toy.toml", "--sweep", "settings.epochs=2,7", "--name", "toy-lr0.02"), names(copy)
    said = copy.run("ladder", *sweep, *ONE_RUN, code=2).stderr
    assert "--name toy-lr0.02-epochs2: is the name of another instance" in said
    assert names(copy) == before


def test_what_a_sweep_chooses_keeps_the_names_of_its_instances(machine: Machine) -> None:
    write(machine.folder)
    sweep = ("--sweep", "settings.lr=0.02,0.04", "--choose", "--seeds", "2", "--name", "mine", "--jobs", "1")
    machine.run("ladder", "toy.toml", *sweep)
    assert names(machine) == ["mine-lr0.02", "mine-lr0.04"]


# ledger rename


def test_rename_is_recorded_and_the_old_name_says_what_is_its_name_now(copy: Machine) -> None:
    key = next(ladder["instance"] for ladder in copy.json("status")["ladders"] if ladder["name"] == "best")
    before = copy.run("report", "--instance", "best").stdout
    assert copy.run("ledger", "rename", "best", "second-best").stderr == "best: is now second-best\n"
    found = copy.json("ledger", "rename", key[:8], "third")
    assert found == {"schema_version": 1, "instance": key, "before": "second-best", "name": "third"}
    assert copy.run("ledger", "rename", "third", "third").stderr == "third: has this name already\n"
    assert copy.run("report", "--instance", "third").stdout == before.replace("best", "third")
    for old in ("best", "second-best"):
        assert copy.refused("report", "--instance", old, code=4).splitlines()[-2:] == [
            f"error: no ladder instance {old!r} in this ledger",
            "hint: it was renamed, and is now third",
        ]
    with Ledger.read(copy.ledger) as ledger:
        events = [event for event in ledger.events(ladder_key=key, of_runs=False) if event.kind == RENAMED]
    assert [(event.text, event.payload) for event in events] == [
        ("renamed from best to second-best", {"from": "best", "to": "second-best"}),
        ("renamed from second-best to third", {"from": "second-best", "to": "third"}),
    ]
    # the old name is free: another instance may have it
    copy.run("ledger", "rename", "toy-lr0.03", "best")
    assert "settings.lr=0.03" in copy.run("report", "--instance", "best").stdout
    assert planned(copy, "toy.toml", "--set", "settings.lr=0.06") == ["third"], "a request finds it by its settings"


def test_a_renamed_instance_has_its_name_in_a_ledger_made_again(copy: Machine) -> None:
    copy.run("ledger", "rename", "best", "second-best")
    copy.run("ladder", "toy.toml", "--set", "settings.lr=0.03", "--name", "given", *ONE_RUN)
    expected = sorted(names(copy))
    copy.ledger.rename(copy.folder / "lost.db")
    copy.run("ledger", "rebuild")
    assert sorted(names(copy)) == expected
    assert {"second-best", "given"} <= {*expected}
    assert "is now second-best" in copy.refused("report", "--instance", "best", code=4)
    assert "is now given" in copy.refused("report", "--instance", "toy-lr0.03", code=4)


def test_a_request_with_a_name_renames_its_instance_and_says_so(copy: Machine) -> None:
    words = ("ladder", "toy.toml", "--set", "settings.lr=0.06", *ONE_RUN, "--name")
    said = copy.run(*words, "other").stderr
    assert "renamed: best is now other" in said.splitlines()
    assert "renamed" not in copy.run(*words, "other").stderr
    assert "other" in names(copy)
    assert "best" not in names(copy)


def test_a_name_like_an_id_stays_where_an_instance_has_it(copy: Machine) -> None:
    words = ("toy.toml", "--set", "settings.lr=0.06", "--name", "dead")
    error = "error: --name dead: could be the beginning of an id, which has the digits 0 to 9 and a to f"
    for command in (("plan", *words), ("ladder", *words, *ONE_RUN)):
        assert copy.refused(*command).splitlines()[-2:] == [error, "hint: add a word to it: dead-runs"]
    raw(copy.ledger, "UPDATE ladders SET short_name = 'dead' WHERE short_name = 'best'")  # as lrurun 1.0 named it
    assert planned(copy, *words) == ["dead"]
    copy.run("ladder", *words, *ONE_RUN)
    copy.run("ledger", "rename", "dead", "dead")
    assert "dead" in names(copy)


REFUSED = (
    (("best", "toy"), 2, "error: rename toy: is the name of another instance: ladder toy on toy, without --tune"),
    (
        ("best", "dead"),
        2,
        "error: rename dead: could be the beginning of an id, which has the digits 0 to 9 and a to f",
    ),
    (("best", "a b"), 2, "error: NEW 'a b': expected a letter, then up to 59 letters, digits and any of . + - _"),
    (("bst", "new"), 4, "error: no ladder instance 'bst' in this ledger"),
    (("best",), 2, "error: missing argument 'NEW'"),
)


@pytest.mark.parametrize(("words", "code", "error"), REFUSED, ids=[" ".join(words) for words, _, _ in REFUSED])
def test_renames_that_are_refused(copy: Machine, words: tuple[str, ...], code: int, error: str) -> None:
    assert error in copy.refused("ledger", "rename", *words, code=code).splitlines()


def test_a_ledger_that_cannot_be_written_is_not_renamed_in(named: Machine, machine: Machine) -> None:
    assert "there is no ledger" in machine.refused("ledger", "rename", "best", "new", code=4)
    with Ledger.read(named.ledger) as ledger:
        key = ledger.ladder("best").key
        with pytest.raises(Exception, match="was opened for reading only"):
            ledger.rename(key, "new")


def test_instances_of_others_are_renamed_with_all_users(postgres: Any, machine: Machine, monkeypatch: Any) -> None:
    server = postgres.ledger()
    monkeypatch.setattr(owner, "user", lambda: "ann")
    monkeypatch.setattr("lrurun.ledger.queue.user", lambda: "ann")
    fill(server, "sDigits", {"tanh-rnn": [0.3]})
    machine.use(server)
    monkeypatch.setattr(owner, "user", lambda: "bob")
    assert machine.run("ledger", "rename", "sDigits", "mine", code=1).stderr.splitlines() == [
        "error: instance sDigits: belongs to ann",
        "hint: ask them first; with --all-users, it is done",
    ]
    machine.run("ledger", "rename", "sDigits", "mine", "--all-users")
    assert names(machine) == ["mine"]
    # by rights of the server
    database = str(server).rpartition("/")[2]
    postgres.admin("CREATE ROLE namereader LOGIN")
    for right in ("USAGE ON SCHEMA public", "SELECT ON ALL TABLES IN SCHEMA public"):
        postgres.admin(f"GRANT {right} TO namereader", database)
    machine.use(postgres.server(database, "namereader"))
    said = machine.run("ledger", "rename", "mine", "other", "--all-users", code=None)
    assert said.returncode != 0
    assert "permission denied" in said.stderr or "may not" in said.stderr
    assert names(machine) == ["mine"]


def test_two_processes_cannot_give_one_name_to_two_instances(copy: Machine) -> None:
    started = [
        copy.start("ledger", "rename", name, "one") for name in ("best", "toy-lr0.03", "toy-tune", "mine-lr0.07")
    ]
    codes = sorted(process.wait(60) for process in started)
    assert codes == [0, 2, 2, 2]
    assert names(copy).count("one") == 1


# Commands that read an instance


def test_commands_take_the_name_of_an_instance(named: Machine) -> None:
    [run] = named.json("runs", "--instance", "best")["runs"]
    assert named.json("show", "--instance", "best")["run"]["id"] == run["id"]
    found = named.json("compare", "--instance", "best", "--instance", "toy-lr0.03")
    assert found["runs"][0] == run["id"]
    assert {"path": "settings.lr", "values": [0.06, 0.03]} in found["differs"]
    plan = named.json("plan", "--instance", "toy-wider")
    assert (plan["name"], plan["ladder"], [row["rung"] for row in plan["rungs"]]) == ("toy-wider", "wider", ["narrow"])
    assert [row["runs_left"] for row in plan["rungs"]] == [0]
    more = named.json("plan", "--instance", "toy-wider", "--seeds", "3", "--rung", "wide")
    assert [(row["rung"], row["runs_left"]) for row in more["rungs"]] == [("wide", 3)]
    edited = named.json("plan", "--instance", "edited")  # as it was run: the file has changed since
    assert (edited["name"], edited["rungs"][0]["runs_left"]) == ("edited", 0)
    claims = named.json("claims", "--instance", "best")["claims"]
    assert [claim["here"]["instance"] for claim in claims] == [
        ladder["instance"] for ladder in named.json("status", "--instance", "best")["ladders"]
    ]


WRONG = (
    (("plan",), 2, "plan: expected a TASK or --instance"),
    (("plan", "toy.toml", "--instance", "best"), 2, "--instance and TASK exclude each other"),
    (("plan", "--instance", "best", "--tune"), 2, "--instance and --tune exclude each other"),
    (("plan", "--instance", "bset"), 4, "did you mean 'best'?"),
    (("claims", "toy", "--instance", "best"), 2, "--instance and TASK exclude each other"),
    (("compare",), 2, "compare: expected RUNs or --instance"),
    (("compare", "--instance", "best"), 2, "compare: expected two runs, found 1 of --instance best"),
    (("show", "abc", "--instance", "best"), 2, "RUN and --instance exclude each other"),
    (("mark", "--tag", "x"), 2, "mark: expected RUNs or --instance"),
    (("report", "best"), 2, "it is the name of an instance: --instance best"),
    (("ladder", "best"), 2, "it is the name of an instance: lrurun resume --instance best finishes it"),
    (("plan", "best"), 2, "lrurun plan --instance best shows what remains"),
    (("show", "best"), 4, "it is the name of an instance: lrurun runs --instance best lists its runs"),
    (("compare", "best", "toy"), 4, "it is the name of an instance: lrurun runs --instance best lists its runs"),
    (("ladder", "--instance", "best"), 2, "lrurun resume --instance NAME finishes one"),
    (("study", "ring", "--instance", "best"), 2, "lrurun resume --instance NAME finishes one"),
)


@pytest.mark.parametrize(("words", "code", "text"), WRONG, ids=[" ".join(words) for words, _, _ in WRONG])
def test_wrong_uses_of_names_are_refused(copy: Machine, words: tuple[str, ...], code: int, text: str) -> None:
    assert text in copy.refused(*words, code=code)


def test_the_runs_of_an_instance_are_marked(copy: Machine) -> None:
    copy.run("mark", "--instance", "best", "--instance", "toy-lr0.03", "--tag", "paper")
    tagged = copy.json("runs", "--where", "tag=paper")["runs"]
    assert {run["ladders"][0]["instance"] for run in tagged} == {"best", "toy-lr0.03"}


def test_studies_have_names_and_are_reported_by_them(machine: Machine) -> None:
    machine.run("study", "ring", "--profile", "ci", "--name", "first-ring", "--jobs", "1")
    assert names(machine) == ["first-ring"]
    assert machine.json("report", "--instance", "first-ring") == machine.json("report", "study:ring")
    said = machine.refused("plot", "--instance", "first-ring", "--out", "x.pdf")
    assert "instance first-ring: is of a study, which has no rungs" in said
    assert "--name belongs to one study" in machine.refused("study", "ci", "--name", "x")


def test_the_library_refuses_a_name_too(copy: Machine) -> None:
    with Ledger.open(copy.ledger) as ledger, pytest.raises(UsageError, match="rename toy: is the name of another"):
        ledger.rename(ledger.ladder("best").key, "toy")
    assert LINEAR in (copy.folder / "toy.py").read_text()
