"""The packaged ladders and recipes: they fit together, and have the published settings."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable

import jax
import msgspec
import numpy as np
import pytest

from lrurun import paths
from lrurun.config import planning
from lrurun.config.fingerprint import fingerprint
from lrurun.config.ladder import Claim, Ladder, load_ladder, named_tasks
from lrurun.config.planning import Plan, final_runs
from lrurun.config.recipe import load_recipe
from lrurun.config.schema import OPTIMIZER, choice_for
from lrurun.config.settings import flatten
from lrurun.config.tuning import tuning_runs
from lrurun.data.metric import Metric, named
from lrurun.data.tasks import TASKS
from lrurun.errors import UsageError
from lrurun.judging import claims as judging
from lrurun.judging import questions
from lrurun.judging.claims import Scored, SpeedRatio
from lrurun.judging.rung_runs import RungRuns
from lrurun.judging.samples import Scoring
from lrurun.judging.verdicts import CONTRADICTED, SUPPORTED
from lrurun.nn import recurrences
from tests.harness.machine import Machine
from tests.harness.plans import differences, rungs, write_documents
from tests.harness.reports import rung_runs

RECIPES = {path.stem: path for path in sorted(paths.packaged("recipes").glob("*.toml"))}
LADDERS = {name: load_ladder(name) for name in paths.names("ablations")}


@functools.cache
def made_once(task: str, ladder: str | None, profile: str | None) -> Plan:
    return planning.make(task, ladder=ladder, profile=profile)


def plan(task: str, ladder: str | None = None, profile: str | None = None) -> Plan:
    """One plan for all tests that look at it."""
    return made_once(task, ladder, profile)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    return write_documents(tmp_path, monkeypatch)


def cases() -> dict[str, list[tuple[str | None, str]]]:
    """Recipe -> the profiles and ladders that it has values for; those of a shared file for one recipe alone."""
    found: dict[str, list[tuple[str | None, str]]] = {}
    seen = set()
    for name, path in RECIPES.items():
        texts = [path.read_text()]
        if (shared := tomllib.loads(texts[0]).get("extends")) and shared not in seen:
            seen.add(shared)
            texts.append((path.parent / shared).read_text())
        of = dict[tuple[str | None, str], None]()
        for table in map(tomllib.loads, texts):
            of |= dict.fromkeys((None, ladder) for ladder in table.get("ladder", {}))
            for profile, own in table.get("profile", {}).items():
                of |= dict.fromkeys((profile, ladder) for ladder in own.get("ladder", {}))
        found[name] = [one for one in of if name in (LADDERS[one[1]].recipes or [name])]
        others = [one for one in LADDERS if name in LADDERS[one].recipes and (None, one) not in of]
        found[name] += [(None, one) for one in others]
    return {name: of for name, of in found.items() if of}


CASES = cases()


def declares_what_it_changes(made: Plan) -> None:
    documents = {rung.name: rung for rung in made.ladder.rungs}

    def table(rung: str) -> set[str]:
        tables = made.recipe.tables(made.ladder, documents[rung], made.profile) if rung else []
        return {path for one in tables for path, _ in flatten(one.settings)}

    for rung in made.rungs[1:]:
        document = documents[rung.name]
        declared = {*dict(flatten(document.change)), *document.tunes, *document.resets} | table(rung.name)
        # a rate that the rung before it has for itself alone is not kept
        declared |= {path for path in table(rung.on or "") if path.startswith("optim.")}
        for move in rung.differences:
            other = choice_for(move.path)  # a setting that the new kind, or optimiser, has or lacks
            assert move.path in declared or other in declared, (rung.name, move)


def moves(rung: planning.ResolvedRung) -> dict[str, object]:
    """What a rung changes, without learning rates, of which each rung may have its own."""
    return {path: value for path, value in differences(rung).items() if not path.startswith("optim.")}


def has_the_lru_of_the_paper(made: Plan) -> None:
    """Its runs are shared: nothing is trained twice, and the ladders' numbers agree."""
    # where the paper's LRU is, see its Table 8; PathfinderSegmentation has the length of PathX
    last = "small-phase" if made.recipe.task in ("PathX", "PathfinderSegmentation") else "gamma-norm"
    first = plan(made.recipe.task, "lru", profile=made.profile)
    ours, theirs = (final_runs(one, rungs(one)[rung], (0, 1, 2)) for one, rung in ((made, "lru"), (first, last)))
    assert [want.fingerprint for want in ours] == [want.fingerprint for want in theirs]
    assert [want.execution for want in ours] == [want.execution for want in theirs]


def controls_change_one_thing(made: Plan) -> None:
    named = rungs(made)
    assert [name for name, rung in named.items() if rung.on is None] == ["linear-rnn", "gamma-norm"]
    found = {name: moves(rung) for name, rung in named.items() if rung.on is not None}
    radius = named["diagonal-dense-radius"].config.model.recurrence.r_max
    assert found.pop("diagonal-dense-radius")["kind"] == "diagonal"
    assert found == {
        "gamma-of-lambda": {"train_gamma": False},
        "dense-drawn-radius": {"radius": 0.0} if made.recipe.task == "npDigits" else {},
        "diagonal": {} if radius == 1.0 else {"r_max": 1.0},
        "log-phase": {"phase": "log"},
        "small-phase": {"max_phase": named["small-phase"].config.model.recurrence.max_phase},
        "log-phase-no-gamma": {"normalize": False},
        "small-phase-no-gamma": {"normalize": False},
    }
    assert named["diagonal-dense-radius"].on == "dense-drawn-radius"
    checked = rungs(plan(made.recipe.task, "lru", profile=made.profile))
    for name in ("linear-rnn", "gamma-norm"):
        assert fingerprint(named[name].config) == fingerprint(checked[name].config)


def variants_of_s4d_train_as_it_does(made: Plan) -> None:
    named = rungs(made)
    assert differences(named["s4d-inv"]) == {"init": "inv"}
    assert differences(named["s4d-delta-b"]) == {"discretization": "euler"}
    assert differences(named["s4d-two-deltas"]) == {"shared_dt": False}
    assert [named[name].on for name in ("s4d-inv", "s4d-delta-b", "s4d-two-deltas")] == ["s4d", "s4d", "s4d-delta-b"]


def one_thing_changes_from_the_lru_to_the_rotrnn(made: Plan) -> None:
    named = rungs(made)
    assert list(named)[:6] == ["lru", "conjugate-pairs", "head-decay", "rotation", "trace-norm", "rotrnn"]
    assert list(named)[6:] == ["naive-norm", "one-head", "s4d", "s4", "s5"]
    assert [named[name].on for name in ("naive-norm", "one-head")] == ["rotrnn", "rotrnn"]
    assert moves(named["naive-norm"]) == {"normalizer": "naive"}
    assert moves(named["one-head"]) == {"heads": 1}
    assert moves(named["conjugate-pairs"]) == {"conjugate": True}
    assert moves(named["head-decay"]) == {"heads": named["head-decay"].config.model.recurrence.heads}
    assert moves(named["trace-norm"]) == {"normalizer": "trace"}
    assert moves(named["rotrnn"])["draw"] == "log"
    assert set(moves(named["rotrnn"])) <= {"draw", "r_min", "r_max", "max_phase"}
    # the rotations have the heads, the ring and the phases of what they replace, and its gamma
    before, rotation = (named[name].config.model.recurrence for name in ("head-decay", "rotation"))
    assert (rotation.normalizer, rotation.draw, before.normalize) == ("gamma", "ring", True)
    for name in ("heads", "r_min", "r_max", "max_phase") if made.profile is None else ():
        assert getattr(rotation, name) == getattr(before, name), name


def variants_of_dlr_have_its_size(made: Plan) -> None:
    named = rungs(made)
    others = {"attention", "local-attention", "s4d-inv", "s4"}
    kernels = {name: rung.config.model for name, rung in named.items() if name not in others}
    assert set(named) - set(kernels) == others
    assert {model.state for model in kernels.values()} == {named["dlr"].config.model.state}
    assert set(moves(named["dlr-prod"])) == {"cast"}
    assert set(moves(named["dlr-real"])) == {"poles", "weights"}


def few_states_are_an_eighth_of_those_of_dlr(made: Plan) -> None:
    named, other = rungs(made), rungs(plan(made.recipe.task, "dlr", profile=made.profile))
    assert fingerprint(named["dlr"].config) == fingerprint(other["dlr"].config)
    assert differences(named["few-states"]) == {"model.state": named["dlr"].config.model.state // 8}


TRAINING = {
    "momentum": ("sgd", {"optim.momentum"}),
    "adam": ("momentum", {OPTIMIZER}),
    "decoupled-decay": ("adam", {OPTIMIZER, "optim.weight_decay"}),
    "no-recurrent-decay": ("decoupled-decay", {"optim.decay_recurrent"}),
    "recurrent-rate": ("no-recurrent-decay", {"optim.recurrent_factor"}),
    "warm-up": ("recurrent-rate", {"optim.warmup"}),
    "cosine": ("warm-up", {"optim.schedule"}),
    "clipping": ("cosine", {"optim.clip"}),
    "ema": ("clipping", {"optim.average"}),
    "lion": ("cosine", {OPTIMIZER}),
    "muon": ("cosine", {OPTIMIZER}),
    "schedule-free": ("cosine", {OPTIMIZER, "optim.schedule"}),
    "adopt": ("cosine", {OPTIMIZER}),
}
"""Rung of the ladder training -> its base, and the settings that it changes beside its learning rate."""


def one_factor_of_training_changes(made: Plan) -> None:
    named = rungs(made)
    assert list(named) == ["sgd", *TRAINING]
    for name, (base, changes) in TRAINING.items():
        # with another optimiser, the settings that it alone has change too
        paths = {move.path for move in named[name].differences if OPTIMIZER not in changes or not choice_for(move.path)}
        if name == "recurrent-rate" and made.recipe.optim["recurrent_factor"] == 1.0:
            changes = set()
        assert (named[name].on, paths - {"optim.lr"}) == (base, changes), name


def the_rung_cosine_is_what_the_recipe_trains(made: Plan) -> None:
    """It shares the runs of the LRU in the ladder ssm, where that trains with this warm-up and schedule."""
    cosine, lru = rungs(made)["cosine"], rungs(plan(made.recipe.task, "ssm", profile=made.profile))["lru"]
    optim = lru.training.optim
    has_rate = "training" in made.recipe.ladder  # chosen from the ladder's rates, as those of its other rungs
    same = (optim.warmup, optim.schedule) == (0.1, "cosine") and not has_rate
    assert (fingerprint(cosine.training) == fingerprint(lru.training)) == same


def each_optimiser_has_seven_rates_around_its_own(made: Plan) -> None:
    tuned = planning.make(made.recipe.task, ladder="training", profile=made.profile, tune=True)
    published = {rung.name: rung.lr for rung in made.ladder.rungs}
    for rung in tuned.rungs:
        rates, middle = rung.grid["optim.lr"], published[rung.name] or 1e-3
        if made.profile == "smoke":
            assert len(rates) == 2
            continue
        if not rung.tried["optim.lr"][1].startswith(made.ladder.path):  # the recipe has more, beyond an end of them
            rates = rates[rates.index(middle) - 3 : rates.index(middle) + 4]
        assert (len(rates), rates[3]) == (7, middle), rung.name
        np.testing.assert_allclose(np.log10(np.array(rates) / middle), np.arange(-3, 4) / 2, atol=0.03)
        assert len(tuning_runs(tuned, [rung])) >= 7 * len(tuned.tuning_seeds)


@pytest.mark.parametrize("task", RECIPES)
def test_the_ladder_training_is_for_every_recipe_and_profile(task: str) -> None:
    for profile in (None, *load_recipe(task).profile):
        made = plan(task, "training", profile=profile)
        for check in (
            declares_what_it_changes,
            one_factor_of_training_changes,
            the_rung_cosine_is_what_the_recipe_trains,
            each_optimiser_has_seven_rates_around_its_own,
        ):
            check(made)


CHECKS: dict[str, list[Callable[[Plan], None]]] = {
    "ssm": [has_the_lru_of_the_paper, variants_of_s4d_train_as_it_does],
    "rotrnn": [has_the_lru_of_the_paper, one_thing_changes_from_the_lru_to_the_rotrnn],
    "controls": [controls_change_one_thing],
    "dlr": [variants_of_dlr_have_its_size],
    "states": [few_states_are_an_eighth_of_those_of_dlr],
}


@pytest.mark.parametrize("task", CASES)
def test_ladders_on_a_recipe_change_what_they_say(task):
    for profile, ladder in CASES[task]:
        made = plan(task, ladder, profile=profile)
        for check in (declares_what_it_changes, *CHECKS.get(ladder, ())):
            check(made)


def test_every_packaged_recipe_has_a_smoke_profile_and_says_where_it_comes_from():
    """Seconds of training: small data, a small model, few steps."""
    known = {name: set(ladder.bases) for name, ladder in LADDERS.items()}
    for name in RECIPES:
        recipe = load_recipe(name)
        assert (recipe.task, bool(recipe.about.source), bool(recipe.about.checked)) == (name, True, True)
        for document in (recipe, *recipe.profile.values()):
            for ladder, values in document.ladder.items():
                assert set(values.rung) <= known[ladder], (name, ladder)
        made = plan(name, "lru", profile="smoke")
        assert made.seeds == 1
        assert all(rung.config.train.steps <= 100 and rung.config.model.width <= 16 for rung in made.rungs), name


@pytest.mark.parametrize("name", LADDERS)
def test_a_packaged_ladder_says_where_it_comes_from_and_which_tasks_lrurun_does_not_have(name):
    ladder = LADDERS[name]
    assert (ladder.name, bool(ladder.source)) == (name, True)
    assert all(row.source for rung in ladder.rungs for rows in rung.published.values() for row in rows)
    assert set(ladder.other_tasks) == {task for _, task in named_tasks(ladder)} - set(TASKS)


def test_each_rung_of_the_lru_ladder_changes_exactly_what_it_declares():
    made = rungs(planning.make("sDigits", sets={"optim.lr": 0.01}))  # each rung has a rate of its own otherwise
    assert differences(made["tanh-rnn"]) == {}
    assert differences(made["linear-rnn"]) == {"activation": "identity"}
    assert differences(made["diagonal"]) == {
        # another kind: its settings go, with the values that the new one starts from
        "kind": "diagonal",
        "activation": None,
        "draw": None,
        "radius": None,
        "parametrization": "cartesian",
        "phase": "plain",
        "r_min": 0.0,
        "r_max": 1.0,
        "max_phase": 6.283185307179586,
        "normalize": False,
        "train_gamma": True,
        "conjugate": False,
        "heads": 0,
    }
    assert differences(made["exponential"]) == {"parametrization": "exponential"}
    assert differences(made["stable-exponential"]) == {"parametrization": "stable-exponential"}
    assert set(differences(made["ring-init"])) == {"r_min", "r_max"}
    assert differences(made["gamma-norm"]) == {"normalize": True}
    assert set(differences(made["small-phase"])) == {"phase", "max_phase"}


def test_reports_say_that_a_diagonal_rung_also_reaches_further_than_a_truncated_matrix():
    def said(task: str, ladder: str = "lru", without: str = "", radius: float = 0.0) -> list[str]:
        made = planning.make(task, ladder=ladder, sets={"model.recurrence.radius": radius} if radius else {})
        return made.cautions([rung.name for rung in made.rungs if rung.name != without])

    assert said("sCIFAR") == [
        "diagonal starts with a larger spectral radius than linear-rnn, whose initial matrix is truncated: about 1 "
        "instead of 0.9. The ladder controls separates this from the change of form"
    ]
    assert said("sCIFAR", without="linear-rnn") == said("sCIFAR", without="diagonal") == said("sDigits") == []
    assert said("npDigits") == said("sCIFAR", "controls") == said("sCIFAR", "ssm") == said("sCIFAR", radius=1.0) == []
    [scaled] = said("sCIFAR", radius=0.8)
    assert "linear-rnn, whose initial matrix is scaled: about 1 instead of 0.8. The ladder controls" in scaled


@pytest.mark.rare
def test_the_radius_of_the_control_is_that_of_the_dense_matrix():
    """For each size and initialisation once, over 20 matrices."""
    found = {}
    for task, profile in [(name, one) for name in RECIPES for one in (None, *load_recipe(name).profile)]:
        made = rungs(plan(task, "controls", profile=profile))
        model = made["dense-drawn-radius"].config.model
        radius = made["diagonal-dense-radius"].config.model.recurrence.r_max
        assert found.setdefault((model.state, model.recurrence), radius) == radius
    for (state, settings), radius in found.items():
        dense = recurrences.build(settings, width=8, state=state)
        init = jax.jit(dense.init)
        radii = [np.max(np.abs(dense.spectrum(init(jax.random.key(seed))))) for seed in range(20)]
        wanted = min(np.mean(radii), 1.0)
        assert radius == pytest.approx(wanted, abs=4 * np.std(radii) / 20**0.5), (state, settings)


MAIN_LINE = {
    "tied-gamma": {"multiplier": "fixed"},
    "elementwise": {"mixing": "elementwise", "model.state": 64},
    "softplus": {"decay": "softplus", "init": "ring"},
    "initial-decay": {"init": "code"},
    "first-step": {"first": "plain"},
    "input-gate": {"input_gate": True},
    "recurrence-gate": {"recurrence_gate": True},
    "rg-lru": {"multiplier": "sqrt"},
    "shuffled-gates": {"gates": "shuffled"},
    "static-gates": {"gates": "static"},
}


def test_each_rung_of_the_main_line_is_one_change() -> None:
    made = rungs(plan("SelectiveCopy", "selective", profile="laptop"))
    found = {name: differences(rung) for name, rung in made.items()}
    assert list(found) == ["lru", "real", *MAIN_LINE]
    for name, wanted in MAIN_LINE.items():
        assert {path: value for path, value in found[name].items() if path != "optim.lr"} == wanted, name
    # as many numbers in the state: real ones where there were complex ones
    lru, real = made["lru"].config.model, made["real"].config.model
    assert (real.state, real.recurrence.r_min, real.recurrence.r_max) == (2 * lru.state, 0.9, 0.999)
    assert (real.recurrence.mixing, real.recurrence.multiplier) == ("dense", "trained")
    assert made["shuffled-gates"].on == made["static-gates"].on == "rg-lru"


@pytest.mark.parametrize(("task", "profile"), [("SelectiveCopy", "length-64"), ("npDigits", None)])
def test_other_ladders_begin_where_the_main_line_ends(task: str, profile: str | None) -> None:
    last = rungs(plan(task, "selective", profile=profile))["rg-lru"].config
    for name in ("rg-lru", "gates", "negative"):
        assert rungs(plan(task, name, profile=profile))["rg-lru"].config == last, name
    s6 = rungs(plan(task, "mamba", profile=profile))["s6"].config
    assert rungs(plan(task, "negative", profile=profile))["s6"].config == s6
    single = rungs(plan(task, "rg-lru", profile=profile))
    assert (last.model.recurrence.gate_blocks, single["dense-gates"].config.model.recurrence.gate_blocks) == (16, 1)
    without = single["no-input-gate"].config
    assert rungs(plan(task, "gates", profile=profile))["no-input-gate"].config == without


@pytest.mark.parametrize("task", ["Copy", "MQAR"])
def test_rungs_of_a_ladder_that_is_not_tuned_share_a_learning_rate(task: str) -> None:
    """A rung that takes its settings from a tuned ladder does not take the rate, which its neighbours do not have."""
    for name in ("rg-lru", "gates", "negative", "shortconv"):
        made = rungs(plan(task, name, profile="laptop"))
        assert {one.config.optim.lr for one in made.values()} == {0.004}, name
        assert {one.rate_source.kind for one in made.values()} == {"default"}, name


def test_a_rate_that_equals_the_default_is_chosen_where_the_rung_that_was_tuned_has_it() -> None:
    taken = rungs(plan("npDigits", "controls"))["gamma-norm"]
    assert (taken.config.optim.lr, taken.rate_source.kind) == (0.016, "chosen")
    noted = rungs(plan("Copy", "selective", profile="laptop"))["lru"]
    assert (noted.rate_source.kind, "all six rates" in noted.rate_source.text) == ("chosen", True)


def test_a_control_that_needs_other_sequences_is_refused_without_any() -> None:
    refused = r'--set train.batch: gates = "shuffled" .*train.batch must be at least 2, found 1'
    with pytest.raises(UsageError, match=refused):
        planning.make("SelectiveCopy", ladder="selective", profile="smoke", sets={"train.batch": 1})
    planning.make("SelectiveCopy", ladder="selective", profile="smoke", sets={"train.batch": 2})


def test_selection_has_delta_alone_b_and_c_alone_both_and_neither() -> None:
    made = rungs(plan("SelectiveCopy", "mamba", profile="laptop"))
    parts = {name: made[name].config.model.recurrence for name in ("time-invariant", "low-rank", "b-and-c", "s6")}
    assert {name: (one.delta, one.b, one.c) for name, one in parts.items()} == {
        "time-invariant": ("constant", "constant", "constant"),
        "low-rank": ("low-rank", "constant", "constant"),
        "b-and-c": ("constant", "selective", "selective"),
        "s6": ("low-rank", "selective", "selective"),
    }
    assert {one.discretization for one in parts.values()} == {"euler"}
    both = {(claim.rung, claim.than) for claim in LADDERS["mamba"].claims}
    assert {("low-rank", "b-and-c"), ("b-and-c", "low-rank")} <= both


def test_the_blocks_of_griffin_and_mamba_are_made_of_single_parts() -> None:
    made = rungs(plan("MQAR", "shortconv", profile="laptop"))
    models = {name: rung.config.model for name, rung in made.items()}
    parts = {name: (one.conv, one.conv_activation, one.branch, one.expand, one.glu) for name, one in models.items()}
    assert parts["lru"] == parts["rg-lru"] == parts["s6"] == parts["attention"] == (0, "none", "none", 1, "full")
    assert parts["lru-conv"] == parts["rg-lru-conv"] == parts["attention-conv"] == (4, "none", "none", 1, "full")
    assert (parts["griffin"], parts["s6-conv"]) == ((4, "none", "gelu", 1, "none"), (4, "silu", "none", 1, "full"))
    assert parts["s6-conv-branch"] == (4, "silu", "silu", 1, "none")
    assert (parts["mamba"], parts["mamba-no-conv"]) == ((4, "silu", "silu", 2, "none"), (0, "none", "silu", 2, "none"))


@pytest.mark.rare
@pytest.mark.parametrize(
    ("ladder", "task"),
    [
        ("rg-lru", "npDigits"),
        ("gates", "Copy"),
        ("mamba", "SelectiveCopy"),
        ("negative", "Parity"),
        ("selective", "InductionHeads"),
        ("shortconv", "MQAR"),
    ],
)
def test_a_ladder_runs_whole_at_the_smallest_size(ladder: str, task: str, machine: Machine) -> None:
    words = (task, "--ladder", ladder, "--profile", "smoke")
    machine.run("ladder", *words, "--jobs", "2")
    report = machine.json("report", *words)
    assert [row["n"] for row in report["rows"]] == [1] * len(report["rows"])
    assert all(row["diverged"] == 0 and row["mean"] is not None for row in report["rows"])
    assert all((row["escaped"] is not None) == (task != "npDigits") for row in report["rows"])
    assert {claim["verdict"] for claim in report["claims"]} <= {"undecided", "not run"}
    of_longest = [claim for claim in report["claims"] if claim["metric"] == "accuracy@longest"]
    assert all("accuracy at longest: " in claim["detail"] for claim in of_longest)
    assert bool(of_longest) == (task in ("Parity", "InductionHeads"))


# Retyped from what the systems' authors published: a rung of each task, its state, its rate and that of its recurrent
# group, and the settings of its recurrence. S5: bin/run_experiments, whose rates are ssm_lr and lr_factor times it.
# S4D, S4: the configurations of lra, cifar and sc, those of words with the earlier size. RotRNN: Table 3. DLR: Table 9.
PUBLISHED = {
    ("s5", "ListOps"): (16, 3e-3, 1e-3, {"blocks": 8, "c_init": "lecun", "dt_min": 1e-3, "slow_b": False}),
    ("s5", "Text"): (192, 4e-3, 1e-3, {"blocks": 12, "c_init": "lecun", "dt_min": 1e-3, "slow_dt": False}),
    ("s5", "Retrieval"): (256, 2e-3, 1e-3, {"blocks": 16, "c_init": "truncated", "dt_min": 1e-3, "slow_dt": False}),
    ("s5", "Image"): (384, 4.5e-3, 1e-3, {"blocks": 3, "c_init": "lecun", "clip_eigs": True, "slow_b": False}),
    ("s5", "Pathfinder"): (256, 4.5e-3, 9e-4, {"blocks": 8, "c_init": "truncated", "dt_min": 1e-3, "slow_b": True}),
    ("s5", "PathX"): (256, 1.8e-3, 6e-4, {"blocks": 16, "c_init": "complex", "dt_min": 1e-4, "dt_max": 0.1}),
    ("s5", "SpeechCommands"): (128, 8e-3, 2e-3, {"blocks": 16, "c_init": "lecun", "dt_min": 1e-3, "slow_b": True}),
    ("s4d", "ListOps"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False, "init": "legs"}),
    ("s4d", "Text"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False, "init": "legs"}),
    ("s4d", "Retrieval"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False, "init": "legs"}),
    ("s4d", "Image"): (64, 1e-2, 1e-3, {"n_ssm": 1, "dt_min": 1e-3, "slow_dt": True, "init": "legs"}),
    ("s4d", "sCIFAR"): (64, 1e-2, 1e-3, {"n_ssm": 2, "dt_min": 1e-3, "slow_dt": True, "init": "legs"}),
    ("s4d", "Pathfinder"): (64, 4e-3, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": True, "init": "legs"}),
    ("s4d", "PathX"): (64, 1e-3, 1e-3, {"n_ssm": 0, "dt_min": 1e-4, "slow_dt": True, "init": "legs"}),
    ("s4d", "SpeechCommands"): (64, 1e-2, 1e-3, {"n_ssm": 2, "dt_min": 1e-3, "slow_dt": True, "init": "legs"}),
    ("s4", "ListOps"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False}),
    ("s4", "Text"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False}),
    ("s4", "Retrieval"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False}),
    ("s4", "Image"): (64, 1e-2, 1e-3, {"n_ssm": 1, "dt_min": 1e-3, "slow_dt": True}),
    ("s4", "sCIFAR"): (64, 1e-2, 1e-3, {"n_ssm": 2, "dt_min": 1e-3, "slow_dt": True}),
    ("s4", "Pathfinder"): (64, 4e-3, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": True}),
    ("s4", "PathX"): (64, 1e-3, 1e-3, {"n_ssm": 0, "dt_min": 1e-4, "slow_dt": True}),
    ("s4", "SpeechCommands"): (64, 1e-2, 1e-3, {"n_ssm": 2, "dt_min": 1e-3, "slow_dt": True}),
    ("rotrnn", "ListOps"): (256, 1e-3, 1e-3, {"heads": 32, "r_min": 0.5, "r_max": 0.999}),
    ("rotrnn", "Text"): (192, 1e-3, 1e-3, {"heads": 32, "r_min": 0.5, "r_max": 0.8}),
    ("rotrnn", "Retrieval"): (256, 1e-4, 1e-5, {"heads": 32, "r_min": 0.5, "r_max": 0.999}),
    ("rotrnn", "Image"): (384, 4.5e-3, 1e-3, {"heads": 32, "r_min": 0.99, "r_max": 0.999}),
    ("rotrnn", "Pathfinder"): (256, 4.5e-3, 1e-3, {"heads": 32, "r_min": 0.1, "r_max": 0.9999}),
    ("rotrnn", "PathX"): (256, 4.5e-3, 1e-3, {"heads": 32, "r_min": 0.999, "r_max": 0.9999}),
    ("rotrnn", "SpeechCommands"): (128, 8e-3, 1e-3, {"heads": 32, "r_min": 0.1, "r_max": 0.9999}),
    ("dlr", "ListOps"): (1024, 4e-4, 4e-4, {"dt_min": 1e-3, "dt_max": 0.5, "kernel_length": 0}),
    ("dlr", "Text"): (256, 1e-4, 1e-4, {"dt_min": 0.2, "dt_max": 0.5, "kernel_length": 0}),
    ("dlr", "Retrieval"): (256, 1e-4, 1e-4, {"dt_min": 0.05, "dt_max": 0.5, "kernel_length": 0}),
    ("dlr", "Pathfinder"): (1024, 4e-4, 4e-4, {"dt_min": 1e-4, "dt_max": 0.1, "kernel_length": 0}),
    ("dlr", "PathX"): (2048, 1e-4, 1e-4, {"dt_min": 1e-4, "dt_max": 0.1, "kernel_length": 0}),
    ("dlr", "SpeechCommands"): (2048, 1e-4, 1e-4, {"dt_min": 1e-3, "dt_max": 0.5, "kernel_length": 2000}),
    ("dlr", "Shift"): (4096, 1e-4, 1e-4, {"dt_min": 1e-5, "dt_max": 1e-5, "kernel_length": 0}),
    ("dlr", "MIPS"): (4096, 1e-4, 1e-4, {"dt_min": 1e-5, "dt_max": 1e-5, "kernel_length": 0}),
}


@pytest.mark.parametrize(("rung", "task"), PUBLISHED)
def test_a_model_has_the_size_initialisation_and_learning_rates_of_its_publication(rung, task):
    state, lr, slow, settings = PUBLISHED[rung, task]
    config = rungs(plan(task, "ssm" if rung in ("s5", "s4d", "s4") else rung))[rung].config
    assert config.model.state == state
    assert config.optim.lr == pytest.approx(lr)
    assert config.optim.lr * config.optim.recurrent_factor == pytest.approx(slow)
    found = msgspec.to_builtins(config.model.recurrence)
    assert {name: found[name] for name in settings} == settings
    # everything else is the recipe's: the network and the training are the same for all rungs
    recipe = load_recipe(task)
    table = msgspec.to_builtins(config.model)
    assert {name: table[name] for name in recipe.model if name != "state"} == {
        name: value for name, value in recipe.model.items() if name != "state"
    }
    assert config.optim.weight_decay == recipe.optim["weight_decay"]


def test_the_setting_of_noise_padded_digits_is_the_one_that_was_searched():
    """Each learning rate of the ladder lru is the best one in the recipe's table of the search; that of small-phase,
    with its range of phases, is within one standard error of the best."""
    made = plan("npDigits")
    assert (made.seeds, made.recipe.data) == (12, {"length": 80, "noise": 3})
    assert made.recipe.tune is not None
    for rung in made.rungs:
        scores = made.recipe.tune.results[rung.name]
        if rung.name == "small-phase":
            key = f"{rung.config.model.recurrence.max_phase:g}, {rung.config.optim.lr:g}"
            assert max(scores.values()) - 0.0113 <= scores[key] < max(scores.values())
        else:
            assert f"{rung.config.optim.lr:g}" == max(scores, key=lambda rate: scores[rate])
        assert (rung.rate_source.kind, rung.config.model.pooling) == ("chosen", "last")


def test_tuning_noise_padded_digits_repeats_the_search_of_its_recipe():
    made = planning.make("npDigits", ladder="controls", tune=True)
    named = rungs(made)
    assert list(made.tuning_seeds) == [1000, 1001, 1002, 1003, 1004]
    assert list(named["small-phase"].grid) == ["optim.lr", "model.recurrence.max_phase"]
    # gamma alone changes
    assert list(named["small-phase-no-gamma"].grid) == ["optim.lr"]
    smoke = planning.make("npDigits", ladder="controls", profile="smoke", tune=True)
    assert len(tuning_runs(smoke, [rungs(smoke)["small-phase"]])) == 4, "one seed, few points"


def test_the_ladder_of_table_5_is_a_grid_on_its_first_rung():
    made = plan("sDigits", "stability")
    assert len(made.rungs) == 27
    assert made.same_as_base == frozenset()
    forms = {"free": ("exponential", False), "stable": ("stable-exponential", False)}
    forms["gamma"] = ("stable-exponential", True)
    for rung in made.rungs:
        form, r_min, r_max = rung.name.split("-")
        found = rung.config.model.recurrence
        assert (found.parametrization, found.normalize) == forms[form]
        assert (found.r_min, found.r_max) == (float(r_min), float(r_max))
        base = {"free": "free-0-0.9", "stable": f"free-{r_min}-{r_max}", "gamma": f"stable-{r_min}-{r_max}"}[form]
        assert rung.on == (None if rung.name == "free-0-0.9" else base)
        assert not any(path.startswith(("optim.", "train.")) for path in differences(rung))


SEEDS = 12
STAND_IN = "npDigits"
"""The task of claims whose own tasks only their papers have."""


def results(rung: str, score: float) -> RungRuns:
    """Runs with a little spread around a score."""
    spread = [1e-4 * (seed - (SEEDS - 1) / 2) for seed in range(SEEDS)]
    return rung_runs(rung, [score + spread[seed] for seed in range(SEEDS)])


def scores(claim: Claim, margin: float, metric: Metric) -> tuple[tuple[float, float], ...]:
    """Scores of the claim's rung and of the other one: for the claim, then against it in each direction.

    Scores of the other one are not used by claims on chance; a model that learns nothing scores about chance, not less.
    """
    sign = 1 if metric.higher_is_better else -1
    gap = sign * max(0.1, 3 * margin)
    other, chance = 0.7, metric.chance or 0.0
    match claim.kind:
        case "better":
            return (other + gap, other), (other - gap, other)
        case "no-worse":
            return (other, other), (other - gap, other)
        case "equal":
            return (other, other), (other - gap, other), (other + gap, other)
        case "above-chance":
            return (chance + sign * (margin + 0.02), other), (chance, other)
        case _:
            return (chance, other), (chance + sign * (margin + 0.1), other)


def judge(ladder: Ladder, claim: Claim, task: str, mine: float, other: float) -> str:
    """The verdict on a claim of runs with these scores; other rungs have none."""
    known = TASKS[task]
    runs = {rung.name: rung_runs(rung.name, ()) for rung in ladder.rungs}
    runs |= {claim.rung: results(claim.rung, mine)}
    runs |= {claim.than: results(claim.than, other)} if claim.than else {}
    other_metric = named(questions.metric_of(claim, task), known.metrics)
    judged = judging.judge(
        Ladder(name=ladder.name, title="", source="", rungs=ladder.rungs, claims=(claim,)),
        runs,
        task=task,
        scoring=Scoring(metric=known.metric, chance=known.metric.chance),
        by_metric={
            metric.name: Scored(rungs=runs, scoring=Scoring(metric=metric, chance=metric.chance))
            for metric in (other_metric,)
            if metric is not None
        },
    )
    [only] = judged.claims
    return only.verdict


def task_of(claim: Claim) -> str:
    return next((task for task in claim.tasks if task in TASKS), STAND_IN)


@pytest.mark.parametrize("name", [name for name, ladder in LADDERS.items() if ladder.claims])
def test_results_can_support_and_contradict_every_claim(name: str) -> None:
    ladder = LADDERS[name]
    for claim in ladder.claims:
        task = task_of(claim)
        if claim.is_about_speed:
            device = "NVIDIA A100 and RTX 3090"
            ratios = [SpeedRatio(ratio=x, low=x - 0.05, high=x + 0.05, device=device) for x in (1.2, 0.7)]
            verdicts = [judging.judge_speed(ladder, claim, claim.tasks[0], ratio).verdict for ratio in ratios]
            assert verdicts == [SUPPORTED, CONTRADICTED], claim.text
            continue
        metric = named(claim.metric, TASKS[task].metrics) if claim.metric else None
        supporting, *opposing = scores(claim, claim.margin_on(task), metric or TASKS[task].metric)
        assert judge(ladder, claim, task, *supporting) == SUPPORTED, claim.text
        assert {judge(ladder, claim, task, *against) for against in opposing} == {CONTRADICTED}, claim.text


def test_no_two_claims_compare_the_same_models_on_the_same_task() -> None:
    """In one ladder or in two, whatever the rungs are called there."""
    seen: dict[tuple[object, ...], str] = {}
    for name, claim in [(name, claim) for name, ladder in LADDERS.items() for claim in ladder.claims]:
        for task in claim.tasks or LADDERS[name].recipes:
            if task in TASKS:
                configs = {rung.name: rung for rung in plan(task, name).rungs}
                models = [fingerprint(configs[one].training) for one in (claim.rung, claim.than) if one]
                key = (task, claim.kind, claim.metric, *models)
                assert key not in seen, (task, seen[key], f"{name}: {claim.text}")
                seen[key] = f"{name}: {claim.text}"
    assert len(seen) > 150
