"""The packaged ladders and recipes: they fit together, and have the published settings."""

from __future__ import annotations

import tomllib

import jax
import msgspec
import numpy as np
import pytest

from lrurun import paths
from lrurun.config import plan as planning
from lrurun.config.ladder import load_ladder, named_tasks
from lrurun.config.plan import final_runs, tuning_runs
from lrurun.config.recipe import load_recipe
from lrurun.config.schema import KIND, fingerprint
from lrurun.config.settings import flatten
from lrurun.data import TASKS
from lrurun.nn import recurrences
from tests.harness.plans import differences, rungs, write_documents


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    return write_documents(tmp_path, monkeypatch)


def test_every_packaged_recipe_has_a_smoke_profile():
    """Seconds of training: small data, a small model, few steps."""
    for path in paths.packaged("recipes").glob("*.toml"):
        made = planning.make(path.stem, profile="smoke")
        assert made.seeds == 1
        assert all(rung.config.train.steps <= 100 and rung.config.model.width <= 16 for rung in made.rungs), path


def test_each_rung_of_the_lru_ladder_changes_exactly_what_it_declares():
    made = rungs(planning.make("sDigits", sets=["optim.lr=0.01"]))  # each rung has a rate of its own otherwise
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


def own_profiles(path):
    """The profiles of a recipe; of those that share tables by `extends`, all for one of them only."""
    own = tomllib.loads(path.read_text())
    shared = "extends" in own and path.stem not in ("Shift", "PG19")
    return own.get("profile", {}) if shared else load_recipe(path.stem).profile


SHIPPED = sorted(
    (path.stem, profile) for path in paths.packaged("recipes").glob("*.toml") for profile in ("", *own_profiles(path))
)


LADDERS = sorted(path.stem for path in paths.packaged("ablations").glob("*.toml"))
TASKS_OF = {name: load_ladder(name).recipes for name in LADDERS}
COMBINATIONS = [
    (task, profile, name) for name in LADDERS for task, profile in SHIPPED if task in (TASKS_OF[name] or [task])
]


@pytest.mark.parametrize(("task", "profile", "ladder"), COMBINATIONS)
def test_shipped_ladders_run_on_shipped_recipes_and_declare_what_they_change(task, profile, ladder):
    made = planning.make(task, ladder=ladder, profile=profile or None)
    documents = {rung.name: rung for rung in made.ladder.rungs}

    def table(rung: str) -> set[str]:
        scopes = made.ladder.scopes(documents[rung]) if rung else []
        tables = made.recipe.tables(scopes, profile or None)
        return {path for one in tables for path, _ in flatten(one.settings)}

    for rung in made.rungs[1:]:
        declared = {*documents[rung.name].change, *documents[rung.name].tunes} | table(rung.name)
        # a rate that the rung before it has for itself alone is not kept
        declared |= {path for path in table(rung.on or "") if path.startswith("optim.")}
        for move in rung.differences:
            other_kind = KIND in declared and move.path.startswith("model.recurrence.")
            assert move.path in declared or other_kind, (rung.name, move)


@pytest.mark.parametrize("name", LADDERS)
def test_tasks_that_only_papers_have_are_those_that_lrurun_does_not_have(name):
    ladder = load_ladder(name)
    assert set(ladder.other_tasks) == {task for _, task in named_tasks(ladder)} - set(TASKS)


def test_shipped_recipes_set_values_for_rungs_that_exist():
    known = {name: set(load_ladder(name).bases) for name in LADDERS}
    for path in paths.packaged("recipes").glob("*.toml"):
        recipe = load_recipe(path.stem)
        for document in (recipe, *recipe.profile.values()):
            for name, values in document.ladder.items():
                assert set(values.rung) <= known[name], (path, name)


@pytest.mark.parametrize("ladder", ["rotrnn", "ssm"])
@pytest.mark.parametrize(("task", "profile"), SHIPPED)
def test_the_lru_of_the_other_ladders_is_that_of_the_first(task, profile, ladder):
    """Its runs are shared: nothing is trained twice, and the ladders' numbers agree."""
    # where the paper's LRU is, see its Table 8; PathfinderSegmentation has the length of PathX
    last = "small-phase" if task in ("PathX", "PathfinderSegmentation") else "gamma-norm"
    wanted = []
    for name, rung in (("lru", last), (ladder, "lru")):
        made = planning.make(task, ladder=name, profile=profile or None)
        wanted.append(final_runs(made, rungs(made)[rung], (0, 1, 2)))
    assert [want.fingerprint for want in wanted[0]] == [want.fingerprint for want in wanted[1]]
    assert [want.execution for want in wanted[0]] == [want.execution for want in wanted[1]]


@pytest.mark.parametrize(("task", "profile"), SHIPPED)
def test_each_control_changes_one_thing_and_shares_the_runs_of_the_ladder_that_it_checks(task, profile):
    sets = ["optim.lr=0.01"]  # a learning rate may be that of one rung
    made = rungs(planning.make(task, ladder="controls", profile=profile or None, sets=sets))
    assert {name: rung.on for name, rung in made.items() if rung.on is None} == {"linear-rnn": None, "gamma-norm": None}
    found = {name: differences(rung) for name, rung in made.items() if rung.on is not None}
    radius = made["diagonal-dense-radius"].config.model.recurrence.r_max
    assert found.pop("diagonal-dense-radius")["kind"] == "diagonal"
    assert found == {
        "gamma-of-lambda": {"train_gamma": False},
        "dense-drawn-radius": {"radius": 0.0} if task == "npDigits" else {},
        "diagonal": {} if radius == 1.0 else {"r_max": 1.0},
        "log-phase": {"phase": "log"},
        "small-phase": {"max_phase": made["small-phase"].config.model.recurrence.max_phase},
        "log-phase-no-gamma": {"normalize": False},
        "small-phase-no-gamma": {"normalize": False},
    }
    assert made["diagonal-dense-radius"].on == "dense-drawn-radius"
    checked = rungs(planning.make(task, ladder="lru", profile=profile or None, sets=sets))
    for name in ("linear-rnn", "diagonal", "gamma-norm", "small-phase"):
        assert fingerprint(made[name].config) == fingerprint(checked[name].config)


def test_reports_say_that_a_diagonal_rung_also_reaches_further_than_a_truncated_matrix():
    def said(task: str, ladder: str = "lru", without: str = "", radius: float = 0.0) -> list[str]:
        made = planning.make(task, ladder=ladder, sets=[f"model.recurrence.radius={radius}"] if radius else [])
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
    for task, profile in SHIPPED:
        made = rungs(planning.make(task, ladder="controls", profile=profile or None))
        model = made["dense-drawn-radius"].config.model
        radius = made["diagonal-dense-radius"].config.model.recurrence.r_max
        assert found.setdefault((model.state, model.recurrence), radius) == radius
    for (state, settings), radius in found.items():
        dense = recurrences.build(settings, width=8, state=state)
        init = jax.jit(dense.init)
        radii = [np.max(np.abs(dense.spectrum(init(jax.random.key(seed))))) for seed in range(20)]
        wanted = min(np.mean(radii), 1.0)
        assert radius == pytest.approx(wanted, abs=4 * np.std(radii) / 20**0.5), (state, settings)


@pytest.mark.parametrize("task", sorted({task for task, _ in SHIPPED}))
def test_one_thing_changes_from_the_lru_to_the_rotrnn(task):
    sets = ["optim.lr=0.01", "optim.recurrent_factor=0.5"]
    made = rungs(planning.make(task, ladder="rotrnn", sets=sets))
    assert list(made)[:6] == ["lru", "conjugate-pairs", "head-decay", "rotation", "trace-norm", "rotrnn"]
    assert list(made)[6:] == ["naive-norm", "one-head", "s4d", "s4", "s5"]
    assert [made[name].on for name in ("naive-norm", "one-head")] == ["rotrnn", "rotrnn"]
    assert differences(made["naive-norm"]) == {"normalizer": "naive"}
    assert differences(made["one-head"]) == {"heads": 1}
    assert differences(made["conjugate-pairs"]) == {"conjugate": True}
    assert differences(made["head-decay"]) == {"heads": made["head-decay"].config.model.recurrence.heads}
    assert differences(made["trace-norm"]) == {"normalizer": "trace"}
    assert differences(made["rotrnn"])["draw"] == "log"
    assert set(differences(made["rotrnn"])) <= {"draw", "r_min", "r_max", "max_phase"}
    # the rotations have the heads, the ring and the phases of what they replace, and its gamma
    before, rotation = (made[name].config.model.recurrence for name in ("head-decay", "rotation"))
    assert (rotation.normalizer, rotation.draw, before.normalize) == ("gamma", "ring", True)
    for name in ("heads", "r_min", "r_max", "max_phase"):
        assert getattr(rotation, name) == getattr(before, name), name


@pytest.mark.parametrize("task", sorted({task for task, _ in SHIPPED}))
def test_the_variants_of_dlr_have_its_size_initialisation_and_learning_rates(task):
    made = rungs(planning.make(task, ladder="dlr"))
    others = {"attention", "local-attention", "s4d-inv", "s4"}
    kernels = {name: rung.config.model for name, rung in made.items() if name not in others}
    assert set(made) - set(kernels) == others
    assert {model.state for model in kernels.values()} == {made["dlr"].config.model.state}
    assert {path for path in differences(made["dlr-prod"]) if task != "sDigits" or path != "optim.lr"} == {"cast"}
    assert {path for path in differences(made["dlr-real"]) if task != "sDigits" or path != "optim.lr"} == {
        "poles",
        "weights",
    }


@pytest.mark.parametrize(("task", "profile"), SHIPPED)
def test_the_variants_of_s4d_train_as_it_does(task, profile):
    made = rungs(planning.make(task, ladder="ssm", profile=profile or None))
    assert differences(made["s4d-inv"]) == {"init": "inv"}
    assert differences(made["s4d-delta-b"]) == {"discretization": "euler"}
    assert differences(made["s4d-two-deltas"]) == {"shared_dt": False}
    assert [made[name].on for name in ("s4d-inv", "s4d-delta-b", "s4d-two-deltas")] == ["s4d", "s4d", "s4d-delta-b"]
    for name in ("s4d-inv", "s4d-delta-b", "s4d-two-deltas"):
        assert made[name].config.optim == made["s4d"].config.optim


@pytest.mark.parametrize("profile", ["", *sorted(own_profiles(next(paths.packaged("recipes").glob("Shift.toml"))))])
def test_the_dlr_of_the_ladder_of_states_is_that_of_the_ladder_of_dlr(profile):
    made, other = (rungs(planning.make("Shift", ladder=name, profile=profile or None)) for name in ("states", "dlr"))
    assert fingerprint(made["dlr"].config) == fingerprint(other["dlr"].config)
    assert differences(made["few-states"]) == {"model.state": made["dlr"].config.model.state // 8}
    if profile.startswith("length-"):
        assert made["few-states"].config.model.state == 512


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
    config = rungs(planning.make(task, ladder="ssm" if rung in ("s5", "s4d", "s4") else rung))[rung].config
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
    made = planning.make("npDigits")
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
    made = planning.make("sDigits", ladder="stability")
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
