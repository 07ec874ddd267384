"""The settings of optimisers: fingerprints, what is refused, and what a rung that changes the optimiser keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lrurun.config import planning
from lrurun.config.fingerprint import fingerprint
from lrurun.config.optimizers import OPTIMIZERS
from lrurun.config.tuning import tuning_runs
from lrurun.errors import UsageError
from tests.config.test_config import make
from tests.harness import plans
from tests.harness.machine import Machine
from tests.harness.optims import NEEDED
from tests.harness.plans import changed, error, on, rungs

# these must never change, see `test_fingerprints_never_change`
FINGERPRINTS: list[tuple[dict[str, Any], str]] = [
    ({"name": "adamw"}, "sha256:20f1595753ddcd83fad338e8e5297d7ff3ae3b4b1ade9764fe1a4e3e40890a1f"),
    ({"name": "adam"}, "sha256:01a52ef26d292a05a941e0f8a8268209f7f61e7f92a2354745b6e95011e390de"),
    ({"name": "sgd"}, "sha256:6198faa4a8006c998ab8c215e22b20fc40cda66454c971186c182212d8a15b7e"),
    ({"name": "lion"}, "sha256:b6abbf8deac8fa6035e9eae0cb6b107926ee5909690c2936bf69b677ec4b949e"),
    ({"name": "muon"}, "sha256:5d39450ee4a7b76f49a0e6bc6d06db1e71ff23ac874c998f4ac0ec81064dee55"),
    ({"name": "adopt"}, "sha256:b8403a866945865d48a80f2420646871606732fc70f80cb2c007ced1f61e14af"),
    ({"name": "schedule_free_adamw"}, "sha256:4fc0bc956b012a9e594fdaaafab6ba2bcbd2402429e5791151057ebb67eae40f"),
    ({"name": "prodigy"}, "sha256:3782abdd5452bd224d08267a74b135241b0da996a15ef8085c529a187e86ec85"),
    ({"name": "lamb"}, "sha256:9ad786426ba22437a9084bd070a87625cde5ecf6dad744408c046b5967f984cc"),
    (
        {"name": "sgd", "momentum": 0.9, "nesterov": True},
        "sha256:86d877c6b6689e8f8b9db026b084d02e1a0610f3c3eadf08bc372ccbaa57f298",
    ),
    (
        {"name": "muon", "consistent_rms": 0, "decay_recurrent": True},
        "sha256:1dd2a33fa7f6922158b3a2f57df78560a6f2f628d5fb01fb9d6d2748d276ab71",
    ),
    (
        {"warmup_steps": 50, "clip": 1.0, "average": "ema"},
        "sha256:d075559f9c107806ee3aa53c6bcffbc70bbd250c6920add3e6d799d5424edd12",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), FINGERPRINTS)
def test_fingerprints_of_optimisers_never_change(changes: dict[str, Any], expected: str) -> None:
    changes = NEEDED.get(changes.get("name", ""), {}) | changes
    assert fingerprint(make(**{f"optim__{name}": value for name, value in changes.items()})) == expected


FREE = {"name": "schedule_free_adamw", "schedule": "constant"}
PRODIGY = (
    "optim: prodigy estimates one learning rate for all parameters, which lr multiplies: it needs lr = 1 and"
    " recurrent_factor = 1"
)
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "muno"}, f'optim.name: expected one of {", ".join(OPTIMIZERS)}, found "muno"', "did you mean 'muon'?"),
    ({"name": "AdamW"}, f'optim.name: expected one of {", ".join(OPTIMIZERS)}, found "AdamW"', "did you mean 'adamw'?"),
    ({"name": 3}, f"optim.name: expected one of {', '.join(OPTIMIZERS)}, found 3", "change optim.name in"),
    # settings of other optimisers
    ({"momentum": 0.9}, "optim.momentum: unknown name", "known names here: name, lr, recurrent_factor,"),
    ({"name": "sgd", "b1": 0.9}, "optim.b1: unknown name", "known names here: name, lr, recurrent_factor,"),
    ({"name": "lion", "eps": 1e-8}, "optim.eps: unknown name", "known names here: name, lr, recurrent_factor,"),
    ({"name": "sgd", "momentun": 0.9}, "optim.momentun: unknown name", "did you mean 'momentum'?"),
    ({"name": "muon", "ns_step": 3}, "optim.ns_step: unknown name", "did you mean 'ns_steps'?"),
    # values
    ({"name": "sgd", "momentum": 1.0}, "optim.momentum: expected a number < 1, found 1.0", "change optim.momentum in"),
    ({"name": "muon", "ns_steps": 0}, "optim.ns_steps: expected a whole number >= 1, found 0", "change optim.ns_steps"),
    ({"name": "lamb", "eps": 0}, "optim.eps: expected a number > 0, found 0", "change optim.eps in"),
    ({**FREE, "b1": 0}, "optim.b1: expected a number >= 0.01, found 0", "change optim.b1 in"),
    # combinations
    (
        {"name": "sgd", "nesterov": True},
        "optim: nesterov needs momentum, found momentum = 0, nesterov = true",
        "change",
    ),
    (
        {"name": "schedule_free_adamw"},
        "optim: schedule_free_adamw averages in place of a falling learning rate: it needs schedule = "
        '"constant", found schedule = "cosine"',
        "change one of the values named above",
    ),
    (
        {**FREE, "average": "ema"},
        'optim: schedule_free_adamw evaluates parameters of its own: it needs average = "none", found average = "ema"',
        "change one of the values named above",
    ),
    (
        {"name": "prodigy"},
        f"{PRODIGY}, found lr = 0.008, recurrent_factor = 0.5",
        "change one of the values named above",
    ),
    (
        {"name": "prodigy", "lr": 1},
        f"{PRODIGY}, found recurrent_factor = 0.5",
        "change one of the values named above",
    ),
    # what all have is checked too
    ({"name": "sgd", "floor": 0.5}, "optim: floor must not be larger than lr", "change one of the values named above"),
    ({**FREE, "floor": 0.5}, "optim: floor must not be larger than lr", "change one of the values named above"),
    ({"name": "prodigy", "lr": 1, "recurrent_factor": 1, "cooldown": 0.5}, "optim: cooldown needs schedule", "change"),
]


@pytest.mark.parametrize(("changes", "message", "hint"), WRONG)
def test_what_is_refused(changes: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(**{f"optim__{name}": value for name, value in changes.items()})
    assert caught.value.message.startswith(f"recipes/x.toml, {message}")
    assert str(caught.value.hint).startswith(hint)


LADDER = """
name = "optimisers"
title = "optimisers"
source = "ours"
[[rung]]
name = "adamw"
title = "AdamW"
change = { "model.recurrence.kind" = "diagonal" }
[[rung]]
name = "lion"
title = "Lion"
change = { "optim.name" = "lion" }
[[rung]]
name = "free"
title = "schedule-free"
change = { "optim.name" = "schedule_free_adamw", "optim.schedule" = "constant" }
"""


def test_a_rung_with_another_optimiser_has_none_of_the_settings_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even those with the same name: the value was chosen for the old one."""
    monkeypatch.chdir(tmp_path)
    own = "weight_decay = 0.05\nb1 = 0.8\neps = 1e-6\nfloor = 1e-5"
    plan = plans.make(plans.SMALL_RECIPE.replace("weight_decay = 0.05", own), LADDER)
    adamw, lion, free = (rung.config.optim for rung in plan.rungs)
    assert (adamw.name, adamw.b1, adamw.eps, adamw.floor) == ("adamw", 0.8, 1e-6, 1e-5)
    assert (lion.name, lion.b1, lion.floor) == ("lion", 0.9, 1e-5)
    assert (free.name, free.b1, free.eps, free.floor) == ("schedule_free_adamw", 0.9, 1e-8, 1e-5)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


WEIGHT_DECAY = "weight_decay = 0.05"
FIRST = """
name = "own"
title = "own"
source = "ours"
[[rung]]
name = "first"
title = "first"
change = { "model.recurrence.kind" = "diagonal" }
"""
OF_RUNG = "[ladder.own.rung.first.optim]"
WSD = f'{WEIGHT_DECAY}\nschedule = "wsd"\ncooldown = 0.4'
EMA = f'{WEIGHT_DECAY}\naverage = "ema"\naverage_decay = 0.5'
CLIP = f'{WEIGHT_DECAY}\nclip = 1.0\nclip_by = "block-rms"'
NESTEROV = f'{WEIGHT_DECAY}\nname = "sgd"\nmomentum = 0.5\nnesterov = true'


def recipe(optim: str, more: str = "") -> str:
    return changed(plans.SMALL_RECIPE, WEIGHT_DECAY, optim) + more


@pytest.mark.parametrize(
    ("optim", "change", "setting", "default"),
    [
        (WSD, '"optim.schedule" = "constant"', "cooldown", 0.2),
        (EMA, '"optim.average" = "none"', "average_decay", 0.999),
        (CLIP, '"optim.clip" = 0', "clip_by", "global-norm"),
        (NESTEROV, '"optim.momentum" = 0', "nesterov", False),
        (f"{WEIGHT_DECAY}\nwarmup_steps = 3", '"optim.warmup" = 0.3', "warmup_steps", None),
        (f"{WEIGHT_DECAY}\nwarmup = 0.3", '"optim.warmup_steps" = 3', "warmup", 0.1),
    ],
)
def test_a_setting_that_loses_its_meaning_is_dropped_in_a_rung_and_by_set(
    folder: Path, optim: str, change: str, setting: str, default: Any
) -> None:
    plan = plans.make(recipe(optim), FIRST + on("first", "other", change))
    first, other = (getattr(rung.config.optim, setting) for rung in plan.rungs)
    assert (other, first) == (default, pytest.approx(first))
    assert first != default
    path, _, value = change.replace('"', "").partition(" = ")
    number: Any = value if value.isalpha() else float(value) if "." in value else int(value)
    [same] = plans.make(recipe(optim), FIRST, sets={path: number}).rungs
    assert getattr(same.config.optim, setting) == default


@pytest.mark.parametrize(
    ("optim", "rule"),
    [
        (
            'schedule = "linear"\ncooldown = 0.4',
            'cooldown needs schedule = "wsd", found schedule = "linear"',
        ),
        ('average = "none"\naverage_decay = 0.5', 'average_decay needs average = "ema"'),
        ('name = "sgd"\nnesterov = true', "nesterov needs momentum"),
    ],
)
def test_what_one_source_sets_without_a_meaning_is_refused_everywhere(folder: Path, optim: str, rule: str) -> None:
    """In a recipe, its profile, a change, a rung's table of the recipe, and by --set."""
    lines = optim.splitlines()
    change = ", ".join(f'"optim.{line.partition(" = ")[0]}" = {line.partition(" = ")[2]}' for line in lines)
    two = FIRST + on("first", "other", change)
    places = [
        (recipe(f"{WEIGHT_DECAY}\n{optim}"), FIRST, {}, "r.toml, optim: "),
        (recipe(WEIGHT_DECAY), two, {}, "l.toml, rung other, optim: "),
        (
            recipe(WEIGHT_DECAY, f"{OF_RUNG}\n{optim}"),
            FIRST,
            {},
            "r.toml [ladder.own.rung.first], ",
        ),
        (recipe(WEIGHT_DECAY, f"[profile.p.optim]\n{optim}"), FIRST, {"profile": "p"}, "r.toml [profile.p], optim: "),
    ]
    for text, ladder, options, where in places:
        message, hint = error(text, ladder, **options)
        assert message.startswith(where)
        assert rule in message
        assert hint == "change one of the values named above"
    sets = {f"optim.{name}": value.strip('"') for name, _, value in (line.partition(" = ") for line in lines)}
    sets = {path: {"true": True, "0.4": 0.4, "0.5": 0.5}.get(value, value) for path, value in sets.items()}
    assert error(recipe(WEIGHT_DECAY), FIRST, sets=sets)[0].startswith("--set optim.")


BOTH = "warmup = 0.1\nwarmup_steps = 5"
"""Also with the default, which the rule of the table could not tell from none."""


def test_both_forms_of_the_warm_up_in_one_place_are_refused(folder: Path) -> None:
    two = FIRST + on("first", "other", '"optim.warmup" = 0.1, "optim.warmup_steps" = 5')
    plain = recipe(WEIGHT_DECAY)
    grid = '[tune.grid]\n"optim.warmup" = [0.1, 0.2]\n"optim.warmup_steps" = [3, 5]\n'
    rule = "set in another form too, optim.warmup"
    places: list[tuple[str, str, dict[str, Any], str]] = [
        (recipe(f"{WEIGHT_DECAY}\n{BOTH}"), FIRST, {}, "r.toml, "),
        (recipe(WEIGHT_DECAY, f"[profile.p.optim]\n{BOTH}"), FIRST, {}, "r.toml [profile.p.optim], "),
        (recipe(WEIGHT_DECAY, f"{OF_RUNG}\n{BOTH}"), FIRST, {}, "r.toml [ladder.own.rung.first], "),
        (plain, two, {}, "l.toml, rung other, "),
        (recipe(WEIGHT_DECAY, grid), FIRST, {"tune": True}, "r.toml [tune.grid], "),
        (plain, FIRST + 'tune = { "optim.warmup" = [0.1, 0.2], "optim.warmup_steps" = [3] }', {"tune": True},
         "l.toml, rung first, tune, "),
    ]  # fmt: skip
    for text, ladder, options, where in places:
        message, hint = error(text, ladder, **options)
        assert message.startswith(f"{where}optim.warmup_steps: {rule}"), message
        assert hint == "remove one of them"
    message, hint = error(plain, FIRST, sets={"optim.warmup_steps": 10, "optim.warmup": 0.2})
    assert message == "--set optim.warmup_steps: is set in another form too, --set optim.warmup"
    assert hint == "leave one of them out"


def test_the_form_of_the_warm_up_that_tuning_tries_takes_the_place_of_the_other(folder: Path) -> None:
    grid = '[tune.grid]\n"optim.warmup_steps" = [3, 5]\n'
    plan = plans.make(recipe(f"{WEIGHT_DECAY}\nwarmup = 0.3", grid), FIRST, tune=True)
    tried = [run.config.optim for run in tuning_runs(plan, plan.rungs)]
    assert {(optim.warmup, optim.warmup_steps) for optim in tried} == {(0.1, 3), (0.1, 5)}


def test_each_form_of_the_warm_up_takes_the_place_of_the_other_in_a_grid(folder: Path) -> None:
    grid = '[tune.grid]\n"optim.warmup" = [0.2, 0.3]\n"optim.lr" = [0.1, 0.2]\n'
    own = f'{FIRST}tune = {{ "optim.warmup_steps" = [3, 5] }}\n'
    [first] = plans.make(recipe(WEIGHT_DECAY, grid), own, tune=True).rungs
    assert first.grid == {"optim.lr": [0.1, 0.2], "optim.warmup_steps": [3, 5]}
    [first] = plans.make(recipe(WEIGHT_DECAY, grid), FIRST, tune=True, sets={"optim.warmup_steps": 3}).rungs
    assert first.grid == {"optim.lr": [0.1, 0.2]}


def test_values_to_try_of_another_optimiser_are_refused(folder: Path) -> None:
    """Those of a grid for all rungs are for the rungs that have the setting."""
    rule = "optim.momentum: a setting that adamw does not have"
    hint = "its own settings: b1, b2, eps"
    tried = 'tune = { "optim.momentum" = [0.5, 0.9] }\n'
    for tune in (False, True):
        found = error(recipe(WEIGHT_DECAY), f"{FIRST}{tried}", tune=tune)
        assert found == (f"l.toml, rung first, tune, {rule}", hint)
    table = '[ladder.own.rung.first.tune]\n"optim.momentum" = [0.5, 0.9]\n'
    assert error(recipe(WEIGHT_DECAY, table), FIRST) == (f"r.toml [ladder.own.rung.first.tune], {rule}", hint)
    [first] = plans.make(recipe(WEIGHT_DECAY), f"{FIRST}{tried}", tune=True, sets={"optim.name": "sgd"}).rungs
    assert first.grid == {"optim.momentum": [0.5, 0.9]}
    common = '[tune.grid]\n"optim.lr" = [0.1, 0.2]\n"optim.momentum" = [0.5, 0.9]\n'
    [first] = plans.make(recipe(WEIGHT_DECAY, common), FIRST, tune=True).rungs
    assert first.grid == {"optim.lr": [0.1, 0.2]}


def test_an_unknown_optimiser_of_set_is_an_unknown_name(folder: Path) -> None:
    """Though the rungs set what only the optimiser of the ladder has."""
    sgd = FIRST + on("first", "momentum", '"optim.name" = "sgd", "optim.momentum" = 0.5')
    message, hint = error(recipe(WEIGHT_DECAY), sgd, sets={"optim.name": "lyon"})
    assert message == f'--set optim.name: expected one of {", ".join(OPTIMIZERS)}, found "lyon"'
    assert hint == "did you mean 'lion'?"
    message, _ = error(recipe(WEIGHT_DECAY), sgd, sets={"optim.name": "lion"})
    assert message.startswith("--set optim.name=lion: rung momentum sets optim.momentum, which this optimiser does not")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("learning_rate", "lr"), ("betas", "b1"), ("beta2", "b2"), ("optimizer", "name"), ("grad_clip", "clip"),
        ("ema_decay", "average_decay"), ("min_lr", "floor"), ("decay", "weight_decay"),
    ],
)  # fmt: skip
def test_names_of_other_libraries_lead_to_those_of_lrurun(folder: Path, name: str, known: str) -> None:
    hint = f"did you mean 'optim.{known}'?"
    assert error(recipe(WEIGHT_DECAY), FIRST, sets={f"optim.{name}": 0.1})[1] == hint
    assert error(recipe(f"{WEIGHT_DECAY}\n{name} = 0.1"), FIRST)[1] == hint


def test_a_setting_of_another_optimiser_is_refused_with_what_has_it(folder: Path) -> None:
    plain = recipe(WEIGHT_DECAY)
    message, hint = error(plain, FIRST, sets={"optim.name": "muon", "optim.b1": 0.8})
    assert message.startswith("--set optim.b1: no rung of this ladder has it: muon has beta, nesterov, ns_steps,")
    assert str(hint).startswith("b1 is a setting of adamw, adam, lion,")
    message, hint = error(plain, FIRST, sets={"optim.nesterov": True})
    assert message == "--set optim.nesterov: no rung of this ladder has it: adamw has b1, b2, eps"
    assert hint == "nesterov is a setting of sgd, muon: --set optim.name=sgd"


def test_a_broken_rule_names_the_source_that_breaks_it_and_the_others(folder: Path) -> None:
    """A part of the hint where the values are from several sources."""
    start = "change one of the values named above: "
    message, hint = error(recipe(WEIGHT_DECAY), FIRST, sets={"optim.accumulate": 3})
    assert message.startswith("--set optim.accumulate: optim.accumulate divides a batch into equal parts, found train.")
    assert hint == f"{start}train.batch in r.toml, --set optim.accumulate"
    message, hint = error(recipe(WEIGHT_DECAY), FIRST + on("first", "parts", '"optim.accumulate" = 3'))
    assert message.startswith("l.toml, rung parts: optim.accumulate divides a batch")
    assert hint == f"{start}train.batch in r.toml, optim.accumulate in l.toml, rung parts"
    message, hint = error(recipe(WEIGHT_DECAY), FIRST, sets={"optim.name": "prodigy"})
    assert message.startswith("r.toml, optim: prodigy estimates one learning rate for all parameters")
    assert message.endswith("found lr = 0.01, recurrent_factor = 0.5")
    floor = FIRST + 'tune = { "optim.lr" = [0.001, 0.003] }'
    message, hint = error(recipe(f"{WEIGHT_DECAY}\nfloor = 0.002"), floor, tune=True)
    assert (
        message == "l.toml, rung first, tune, optim: floor must not be larger than lr, found floor = 0.002, lr = 0.001"
    )
    assert hint == f"{start}optim.floor in r.toml, optim.lr in l.toml, rung first, tune"


NOTED = """
[ladder.own.rung.first]
lr_chosen = "the best of those tried"
optim.lr = 0.02
"""


def test_rates_for_another_optimiser_are_called_so(folder: Path) -> None:
    """Also a rate that a table has chosen for the rung; but not one that is for the optimiser of the rung."""
    other = "a rate for adamw, untuned for muon"
    for text in (recipe(WEIGHT_DECAY), recipe(WEIGHT_DECAY, NOTED)):
        [first] = plans.make(text, FIRST, sets={"optim.name": "muon"}).rungs
        assert (first.rate_source.kind, first.rate_source.text) == ("default", other)
    [first] = plans.make(recipe(WEIGHT_DECAY, NOTED), FIRST).rungs
    assert first.rate_source.text == "chosen for this rung: the best of those tried"
    [first] = plans.make(recipe(WEIGHT_DECAY, NOTED), FIRST, sets={"optim.name": "muon", "optim.lr": 0.1}).rungs
    assert first.rate_source.text == "given by --set optim.lr"
    two = FIRST + on("first", "muon", '"optim.name" = "muon"')

    def of_muon(recipe: str, ladder: str = two) -> str:
        return rungs(plans.make(recipe, ladder))["muon"].rate_source.text

    assert of_muon(recipe(WEIGHT_DECAY, NOTED)) == other
    of_table = of_muon(recipe(WEIGHT_DECAY, NOTED.replace("first", "muon")))
    assert of_table == "chosen for this rung: the best of those tried"
    of_ladder = f'{two}lr = 0.05\nlr_chosen = "a guess"\n'
    assert of_muon(recipe(WEIGHT_DECAY), of_ladder) == "chosen for this rung: a guess"


def extending(folder: Path, base: str, own: str, ladder: str = FIRST, **options: Any) -> list[planning.ResolvedRung]:
    """The rungs on a recipe that extends another one."""
    (folder / "base.toml").write_text(base)
    Path("own.toml").write_text(f'task = "sDigits"\nextends = "base.toml"\n{own}\n')
    Path("l.toml").write_text(ladder)
    return list(planning.make("./own.toml", ladder="./l.toml", **options).rungs)


@pytest.mark.parametrize(
    ("base", "own", "expected"),
    [
        ("warmup = 0.3", "warmup_steps = 3", {"warmup_steps": 3}),
        ('schedule = "wsd"\ncooldown = 0.4', 'schedule = "linear"', {"schedule": "linear"}),
        ("b1 = 0.8", 'name = "sgd"\nmomentum = 0.5', {"name": "sgd", "momentum": 0.5}),
        ('name = "lion"\nb1 = 0.8', 'name = "lion"\nb2 = 0.5', {"name": "lion", "b1": 0.8, "b2": 0.5}),
    ],
)
def test_values_of_an_extended_recipe_that_lose_their_meaning_are_dropped(
    folder: Path, base: str, own: str, expected: dict[str, Any]
) -> None:
    """In the table of all rungs, of a profile and of a rung."""
    table = {"name": "adamw", "lr": 0.01, **expected}
    wanted = make(**{f"optim__{name}": value for name, value in table.items()}).optim
    places = ("[optim]", "[profile.p.optim]", OF_RUNG, "[profile.p.ladder.own.rung.first.optim]")
    for place in places:
        text = recipe(f"{WEIGHT_DECAY}\n{base}") if place == "[optim]" else recipe(WEIGHT_DECAY, f"{place}\n{base}\n")
        text += "[profile.p]\nseeds = 1\n" if "profile" not in place else ""
        [first] = extending(folder, text, f"{place}\n{own}", profile="p")
        assert first.config.optim == wanted, place


def test_rates_of_an_extended_recipe_are_for_its_optimiser(folder: Path) -> None:
    other = "a rate for adamw, untuned for muon"
    muon = '[optim]\nname = "muon"\n'
    for base in (recipe(WEIGHT_DECAY), recipe(WEIGHT_DECAY, NOTED)):
        [first] = extending(folder, base, muon)
        assert first.rate_source.text == other
        [first] = extending(folder, base, "", sets={"optim.name": "muon"})
        assert first.rate_source.text == other
        [first] = extending(folder, base, muon, sets={"optim.name": "adamw"})
        assert "a rate for" not in first.rate_source.text
    [first] = extending(folder, recipe(WEIGHT_DECAY), f"{muon}lr = 0.05")
    assert first.rate_source.text == "the recipe's default, untuned"
    [first] = extending(folder, recipe(WEIGHT_DECAY), f"{muon}{NOTED}")
    assert first.rate_source.text == "chosen for this rung: the best of those tried"
    two = FIRST + on("first", "muon", '"optim.name" = "muon"')
    [first] = extending(folder, recipe(WEIGHT_DECAY, NOTED), f'{OF_RUNG}\nname = "muon"')
    assert first.rate_source.text == other
    *_, second = extending(folder, recipe(WEIGHT_DECAY, NOTED.replace("first", "muon")), muon, two)
    assert second.rate_source.text == "chosen for this rung: the best of those tried"


def test_a_table_that_names_the_optimiser_of_the_rung_again_drops_nothing(folder: Path) -> None:
    sgd = FIRST.replace("change = {", 'change = { "optim.name" = "sgd",')
    of_profile = '[profile.p.ladder.own.rung.first.optim]\nname = "sgd"\nlr = 0.1\n'
    tables = f"{OF_RUNG}\nmomentum = 0.5\n{of_profile}"
    [first] = plans.make(recipe(WEIGHT_DECAY, tables), sgd, profile="p").rungs
    assert (first.config.optim.name, first.config.optim.momentum, first.config.optim.lr) == ("sgd", 0.5, 0.1)
    other = tables.replace('name = "sgd"', 'name = "lion"')
    [first] = plans.make(recipe(WEIGHT_DECAY, other), sgd, profile="p").rungs
    assert first.config.optim == OPTIMIZERS["lion"].settings(
        name="lion", lr=0.1, recurrent_factor=0.5, weight_decay=0.05
    )


def test_a_rung_resets_its_optimiser_with_all_settings_of_its_own(folder: Path) -> None:
    sgd = FIRST + on("first", "sgd", '"optim.name" = "sgd", "optim.momentum" = 0.5')
    text = sgd + on("sgd", "back", '"model.recurrence.normalize" = true') + 'resets = ["optim.name"]\n'
    for own in ("b1 = 0.8", 'name = "lion"\nb1 = 0.8'):
        plan = plans.make(recipe(f"{WEIGHT_DECAY}\n{own}"), text)
        assert rungs(plan)["sgd"].config.optim.name == "sgd"
        assert rungs(plan)["back"].config.optim == rungs(plan)["first"].config.optim
        assert rungs(plan)["back"].config.optim.b1 == 0.8


def test_a_rung_that_resets_a_setting_drops_what_has_no_meaning_at_its_default(folder: Path) -> None:
    wsd = FIRST + on("first", "wsd", '"optim.schedule" = "wsd", "optim.cooldown" = 0.4')
    text = wsd + on("wsd", "back", '"model.recurrence.normalize" = true') + 'resets = ["optim.schedule"]\n'
    for own in ("", 'schedule = "linear"'):
        plan = plans.make(recipe(f"{WEIGHT_DECAY}\n{own}"), text)
        assert rungs(plan)["wsd"].config.optim.cooldown == 0.4
        assert rungs(plan)["back"].config.optim == rungs(plan)["first"].config.optim


def test_the_check_of_a_recipe_finds_wrong_values_that_no_rung_uses(folder: Path) -> None:
    """Every rung has a rate of its own."""
    Path("l.toml").write_text(f"{FIRST}lr = 0.1\n")
    machine = Machine(folder)
    for rate, rule in (('"0.1"', 'a number, found "0.1"'), ("-0.1", "a number > 0, found -0.1")):
        Path("r.toml").write_text(changed(plans.SMALL_RECIPE, "lr = 0.01", f"lr = {rate}"))
        checked = machine.run("check", "recipe", "r.toml", "--ladder", "l.toml", code=2).stdout
        assert f"r.toml, optim.lr: expected {rule}" in checked
    Path("r.toml").write_text(changed(plans.SMALL_RECIPE, "lr = 0.01", ""))  # the rung has it
    machine.run("check", "recipe", "r.toml", "--ladder", "l.toml")
    Path("r.toml").write_text(plans.SMALL_RECIPE + '[profile.p.optim]\nlr = "x"\n')
    assert (
        "r.toml [profile.p], optim.lr: expected a number"
        in machine.run("check", "recipe", "r.toml", "--ladder", "l.toml", code=2).stdout
    )
