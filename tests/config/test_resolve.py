"""What a rung takes from recipes, and where its learning rate comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrurun import machine as computer
from lrurun.config import planning
from lrurun.config.resolve import RateSource
from lrurun.config.settings import flatten
from lrurun.config.tuning import tuning_runs
from lrurun.ledger.ledger import Ledger
from lrurun.runner import supervisor
from lrurun.session import cautions
from tests.harness.plans import LADDER, RECIPE, SMALL_RECIPE, changed, error, make, rungs, write_documents
from tests.harness.results import OWNER, fill


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    return write_documents(tmp_path, monkeypatch)


TAKING = """
name = "other"
title = "other"
source = "ours"

[[rung]]
name = "lru"
title = "LRU"
change = { "model.recurrence.kind" = "diagonal", "model.recurrence.normalize" = true }
"""


TAKES = changed(TAKING, 'title = "LRU"', 'title = "LRU"\ntakes = "ssm/lru"')


DIGITS = "sDigits"


def rates(ladder: str, task: str = DIGITS, **options: Any) -> dict[str, tuple[float, str, str]]:
    """Rung -> its learning rate, and the source of it."""
    Path("l.toml").write_text(ladder)
    made = planning.make(task, ladder="./l.toml", **options)
    return {r.name: (r.config.optim.lr, r.rate_source.kind, r.rate_source.text) for r in made.rungs}


VALUES = {
    "model.width": st.integers(1, 64),
    "model.dropout": st.floats(0, 0.9),
    "optim.lr": st.floats(1e-3, 1),
    "optim.weight_decay": st.floats(0, 1),
    "train.batch": st.integers(1, 64),
}
OF_RUNGS = {path: values for path, values in VALUES.items() if not path.startswith("train.")}
CHAIN = ("dense", "plane", "ring")
by_rung = st.fixed_dictionaries({rung: st.fixed_dictionaries({}, optional=OF_RUNGS) for rung in CHAIN})


def lines(values: dict[str, object], place: str) -> str:
    """A table with these values, which may be empty."""
    return f"[{place}]\n" + "".join(f"{path} = {value!r}\n" for path, value in values.items())


@settings(max_examples=25, derandomize=True, deadline=None)
@given(
    recipe=st.fixed_dictionaries(VALUES),
    profile=st.none() | st.fixed_dictionaries({}, optional=VALUES),
    changes=by_rung,
    tables=by_rung,
    of_profile=by_rung,
    sets=st.fixed_dictionaries({}, optional=VALUES),
)
def test_later_values_win(recipe, profile, changes, tables, of_profile, sets):
    """Recipe, profile, then along the rungs the ladder's change and the tables for the rung, then --set: against
    dictionaries. What tables have for the optimiser is for their rung alone."""
    text = changed(SMALL_RECIPE, "width = 8\n", "").replace("lr = 0.01\n", "").replace("batch = 8\n", "")
    text = text.replace("weight_decay = 0.05\n", "")
    for table in ("model", "optim", "train"):
        own = [f"{path.partition('.')[2]} = {value!r}\n" for path, value in recipe.items() if path.startswith(table)]
        text = changed(text, f"[{table}]\n", f"[{table}]\n" + "".join(own))
    text += lines(profile or {}, "profile.p")
    for rung in CHAIN:
        text += lines(tables[rung], f"ladder.mine.rung.{rung}")
        text += lines(of_profile[rung], f"profile.p.ladder.mine.rung.{rung}")
    ladder = 'name = "mine"\ntitle = "t"\nsource = "s"\n'
    for number, rung in enumerate(CHAIN):
        change = {"model.state": 8 + number, **changes[rung]}
        inner = ", ".join(f'"{path}" = {value!r}' for path, value in change.items())
        ladder += f'[[rung]]\nname = "{rung}"\ntitle = "t"\nchange = {{ {inner}, "model.recurrence.kind" = "dense" }}\n'
    made = rungs(make(text, ladder, profile=None if profile is None else "p", sets=sets))
    values = recipe | (profile or {})
    for rung in CHAIN:
        own = tables[rung] | (of_profile[rung] if profile is not None else {})
        values |= changes[rung] | {path: value for path, value in own.items() if path.startswith("model.")}
        wanted = values | own | sets
        assert {path: value for path, value in flatten(made[rung].config) if path in VALUES} == wanted, rung


def test_a_users_rung_takes_values_only_when_it_says_so():
    assert rates(TAKING) == {"lru": (0.008, "default", "the recipe's default, untuned")}
    reason = "chosen for ssm/lru: the best on validation of the rates in [tune.grid]"
    assert rates(TAKES) == {"lru": (0.064, "chosen", reason)}
    assert planning.make(DIGITS, ladder="./l.toml").rungs[0].config.model.recurrence.r_min == 0.5
    # the rung lru of rotrnn takes that of ssm itself
    assert rates(changed(TAKES, "ssm/lru", "rotrnn/lru"))["lru"][0] == 0.064


def test_values_for_the_rung_itself_come_after_those_that_it_takes():
    own = changed(RECIPE, "[ladder.mine.rung.ring.optim]\nlr = 0.02", "[ladder.mine.rung.plane.optim]\nlr = 0.03")
    own += "[ladder.mine.rung.ring.optim]\nweight_decay = 0.0\n"
    ladder = changed(LADDER, 'title = "ring"', 'title = "ring"\ntakes = "mine/plane"')
    ring = rungs(make(own, ladder))["ring"]
    assert (ring.config.optim.lr, ring.config.optim.weight_decay) == (0.03, 0.0)
    assert ring.sources["optim.lr"] == "r.toml [ladder.mine.rung.plane]"
    assert ring.sources["model.recurrence.r_min"] == "r.toml [ladder.mine.rung.ring]"


def test_values_for_a_rung_that_the_ladder_lacks_are_refused():
    wrong = changed(RECIPE, "[profile.small.ladder.mine.rung.ring.", "[profile.small.ladder.mine.rung.rin.")
    assert error(wrong) == (
        "r.toml [profile.small.ladder.mine.rung.rin]: ladder mine has no rung 'rin'",
        "did you mean 'ring'? rungs: dense, plane, ring, norm",
    )
    # a packaged recipe goes with any ladder
    assert list(rates(changed(TAKING, 'name = "other"', 'name = "ssm"').replace('"lru"', '"one"'))) == ["one"]


@pytest.mark.parametrize(
    ("task", "options", "rung", "kind", "text"),
    [
        ("sDigits", {"tune": True}, "lru", "tuned", "tuned on validation here with 3 seeds"),
        ("sDigits", {"sets": {"optim.lr": 0.5}}, "lru", "set", "given by --set optim.lr"),
        ("sDigits", {"sets": {"optim.lr": 0.5}, "profile": "smoke"}, "s4", "set", "given by --set optim.lr"),
        ("ListOps", {}, "lru", "default", "the recipe's default, untuned"),
        ("ListOps", {}, "s5", "published", "published: Smith et al. 2023, the published script"),
        ("sCIFAR", {}, "s5", "chosen", "chosen for this rung: as in the script of Smith et al. 2023 for gray images"),
        ("PathX", {"profile": "laptop"}, "lru", "default", "the default of profile laptop, untuned"),
    ],
)
def test_every_rung_says_where_its_learning_rate_comes_from(task, options, rung, kind, text):
    made = rungs(planning.make(task, ladder="ssm", **options))
    assert made[rung].rate_source == RateSource(kind, text)


def test_notes_on_the_recipes_own_learning_rate():
    sources = {r.name: r.rate_source for r in planning.make("sCIFAR", ladder="lru").rungs}
    published = RateSource("published", "published: Orvieto et al. 2023, appendix C.2")
    assert sources["stable-exponential"] == published
    assert sources["tanh-rnn"].kind == "default"
    assert {r.rate_source for r in planning.make("sCIFAR", ladder="stability").rungs} == {published}
    ladder = changed(
        LADDER, '"model.recurrence.kind" = "diagonal"', '"model.recurrence.kind" = "diagonal", "optim.lr" = 1.0'
    )
    assert rates(ladder, "./r.toml")["plane"] == (1.0, "chosen", "set by the ladder: l.toml, rung plane")


def test_notes_on_the_learning_rate_of_a_profile():
    """The recipe's notes are about the recipe's rate, those of the profile about its own."""
    notes = '[ladder.mine]\nlr_published = "Table 1"\n'
    recipe = changed(RECIPE, "[profile.small.model]", "[profile.small.optim]\nlr = 0.5\n[profile.small.model]")
    recipe = changed(recipe, "[ladder.mine.rung.ring.optim]\nlr = 0.02", notes)
    Path("r.toml").write_text(recipe)
    assert rates(LADDER, "./r.toml")["plane"][1:] == ("published", "published: Table 1")
    own = (0.5, "default", "the default of profile small, untuned")
    assert rates(LADDER, "./r.toml", profile="small")["plane"] == own
    Path("r.toml").write_text(recipe + '[profile.small.ladder.mine]\nlr_published = "Table 2"\n')
    assert rates(LADDER, "./r.toml", profile="small")["plane"] == (0.5, "published", "published: Table 2")
    Path("r.toml").write_text(recipe + '[profile.small.ladder.mine.rung.plane]\nlr_published = "Table 3"\n')
    assert rates(LADDER, "./r.toml", profile="small")["plane"] == (0.5, "published", "published: Table 3")
    Path("r.toml").write_text(recipe + '[ladder.mine.rung.plane]\nlr_published = "Table 4"\n')
    assert rates(LADDER, "./r.toml")["plane"][1:] == ("published", "published: Table 4")
    assert rates(LADDER, "./r.toml", profile="small")["plane"] == own


def test_a_batch_larger_than_the_training_split_gets_a_warning(machine):
    sized = changed(RECIPE, "[train]\n", "[data]\ntrain = 20\n[train]\n")
    for batch, warned in ((21, True), (20, False)):
        (machine.folder / "r.toml").write_text(changed(sized, "batch = 8", f"batch = {batch}"))
        (machine.folder / "l.toml").write_text(LADDER)
        # a folder of its own: other tests make the published sDigits in the usual one
        err = machine.run("plan", "r.toml", "--ladder", "l.toml", "--data-dir", "data", "-q").stderr
        assert ("train.batch = 21: larger than the training split of 20 examples" in err) == warned
        assert bool(err) == warned
    # new examples at every step
    assert "training split" not in machine.run("plan", "Parity", "--ladder", "lru", "--set", "train.batch=5000").stderr


def test_where_steps_depend_on_the_parts_of_a_batch_plan_and_training_say_so(machine, capsys):
    """Batch norm has the statistics of a part, and shuffled gates its sequences; layer norm has neither."""
    text = "one part of a batch at a time, so that a step is not that of the whole batch"
    words = ("plan", "sDigits", "--profile", "smoke", "--set")
    assert f"with optim.accumulate, batch norm sees {text}" in machine.json(*words, "optim.accumulate=4")["notes"]
    assert not any("accumulate" in note for note in machine.json(*words, "model.norm=layer")["notes"])
    layered = machine.json(*words, "optim.accumulate=4", "--set", "model.norm=layer")
    assert not any("accumulate" in note for note in layered["notes"])
    parts = {"optim.accumulate": 4, "model.norm": "layer"}
    with_layer, with_batch = (
        planning.make("sDigits", profile="smoke", sets=sets).rungs[:2] for sets in (parts, {"optim.accumulate": 4})
    )
    cautions.say_of_parts([with_layer[0], with_batch[1]])
    assert f"with optim.accumulate, batch norm of {with_batch[1].name} sees {text}" in " ".join(
        capsys.readouterr().err.split()
    )
    cautions.say_of_parts(with_layer)
    assert not capsys.readouterr().err
    [shuffled] = (
        rung
        for rung in planning.make("npDigits", ladder="gates", profile="smoke", sets=parts).rungs
        if getattr(rung.training.model.recurrence, "gates", None) == "shuffled"
    )
    shuffled_too = msgspec.structs.replace(
        with_batch[0],
        config=msgspec.structs.replace(
            with_batch[0].training, model=msgspec.structs.replace(shuffled.training.model, norm="batch")
        ),
    )
    for members, what in (
        ([shuffled], "shuffled gates see"),
        ([shuffled_too], "batch norm and shuffled gates see"),
        ([shuffled, with_batch[0]], "shuffled gates and batch norm see"),
    ):
        cautions.say_of_parts(members)
        assert f"with optim.accumulate, {what} {text}" in " ".join(capsys.readouterr().err.split())


def test_the_plan_shows_the_source_of_each_learning_rate(machine):
    out = machine.run("plan", "ListOps", "--ladder", "ssm").stdout
    assert "Learning rates (the recipe's default, untuned): lru 0.002." in out.replace("\n", " ")
    row = machine.json("plan", "sDigits", "--ladder", "ssm", "--tune")["rungs"][0]
    assert row["learning_rate"] == 0.064
    assert row["rate_source"] == {"kind": "tuned", "text": "will be chosen on validation"}


def test_the_plan_of_a_tuned_ladder_has_no_rate_before_the_chosen_one(machine):
    arguments = ["plan", "sDigits", "--ladder", "ssm", "--tune", "--rung", "s4d"]
    out = machine.run(*arguments).stdout
    assert "Learning rates" not in out
    assert "Chosen on validation with 3 seeds, for each rung: optim.lr from 0.001, 0.002, " in out
    assert "lr = " not in out
    plan = planning.make("sDigits", ladder="ssm", tune=True)
    [rung] = planning.choose_rungs(plan, ["s4d"])
    with Ledger.open(machine.ledger) as ledger:
        key = ledger.add_ladder("ssm", "sDigits", None, plan.spec).key
        for k, wanted in enumerate(tuning_runs(plan, [rung])):
            ledger.enqueue(key, [wanted])
            held = ledger.hold(key, OWNER, environment={})
            ledger.finish(held, "done", result={"val/accuracy": 0.9 if k // 3 == 1 else 0.5, "val/loss": 1.0})
    out = machine.run(*arguments).stdout
    assert "will be chosen" not in out
    assert "Learning rates (tuned on validation here with 3 seeds): s4d 0.002." in out


def test_a_finished_plan_has_no_time_left(machine):
    fill(machine.ledger, "sDigits", {"tanh-rnn": (0.5,)})
    for seeds, last in (("0,", "All runs are finished."), ("0,1", "1 run remaining, seed 1: about ")):
        lines = machine.run("plan", "sDigits", "--rung", "tanh-rnn", "--seeds", seeds).stdout.splitlines()
        assert any(line.startswith(last) for line in lines)


def test_more_threads_or_many_more_workers_than_cores_get_a_warning(capsys, monkeypatch):
    monkeypatch.setattr(computer, "cores", lambda: 2)
    Path("l.toml").write_text(LADDER)
    rungs = {n: planning.make("r.toml", ladder="l.toml", sets={"execution.threads": n}).rungs for n in (1, 2, 3)}

    def warned(threads, jobs):
        cautions.warn_of_cores(rungs[threads], jobs)
        return capsys.readouterr().err.splitlines()

    for threads, jobs in ((1, None), (2, None), (1, 4), (2, 2)):
        assert warned(threads, jobs) == []
    useless = "and more threads make no run faster; results depend on the number of threads"
    assert warned(3, None) == [f"warning: execution.threads = 3: this machine has 2 cores, {useless}"]
    more = "more of them are not faster together, and need memory; at most 2 compile at once; without --jobs there are"
    assert warned(1, 64) == [f"warning: --jobs 64: this machine has 2 cores, for 2 workers: {more} 2"]
    assert warned(2, 3) == [f"warning: --jobs 3: this machine has 2 cores, for 1 worker: {more} 1"]
    assert len(warned(3, 64)) == 2
    monkeypatch.setattr(computer, "accelerators", lambda: ["0"])
    assert warned(1, 64) == []


@pytest.mark.parametrize(
    "command",
    [("ladder", "r.toml", "--ladder", "l.toml", "--data-dir", "/dev/null/d"), ("resume",), ("study", "ring")],
    ids=lambda command: command[0],
)
def test_commands_that_train_warn_of_too_many_workers(command, machine, monkeypatch):
    monkeypatch.setattr(computer, "cores", lambda: 2)
    monkeypatch.setattr(supervisor, "Supervisor", None)  # nothing is to be trained
    for name, text in (("r.toml", RECIPE), ("l.toml", LADDER)):
        (machine.folder / name).write_text(text)
    done = machine.run(*command, "--jobs", "64", code=None)
    assert "warning: --jobs 64: this machine has 2 cores" in done.stderr


def test_the_scale_of_a_paper_is_warned_of_where_there_is_no_accelerator(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = {}
    for task, profile, accelerators in (
        ("ListOps", None, []),
        ("ListOps", None, ["0"]),
        ("ListOps", "laptop", []),
        ("npDigits", None, []),
    ):
        monkeypatch.setattr(computer, "accelerators", lambda found=accelerators: found)
        cautions.warn_of_scale(planning.make(task, profile=profile))
        warned[task, profile, len(accelerators)] = capsys.readouterr().err
    said = "the plain recipe of ListOps is of the paper's scale, about 312 hours on one NVIDIA A100"
    assert warned == {
        ("ListOps", None, 0): f"warning: {said}, and this machine has no accelerator; --profile laptop is reduced\n",
        ("ListOps", None, 1): f"{said}\n",
        ("ListOps", "laptop", 0): "",
        ("npDigits", None, 0): "",
    }
