"""The settings of optimisers: fingerprints, what is refused, and what a rung that changes the optimiser keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lrurun.config.fingerprint import fingerprint
from lrurun.config.optimizers import OPTIMIZERS
from lrurun.errors import UsageError
from tests.config.test_config import make
from tests.harness import plans
from tests.harness.optims import NEEDED

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
    ({**FREE, "b1": 0}, "optim.b1: expected a number > 0, found 0", "change optim.b1 in"),
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
        'optim: schedule_free_adamw evaluates an average of its own: it needs average = "none", found average = "ema"',
        "change one of the values named above",
    ),
    (
        {"name": "prodigy", "recurrent_factor": 1},
        "optim: prodigy estimates its learning rate, which lr multiplies: it needs lr = 1, found lr = 0.008",
        "change one of the values named above",
    ),
    (
        {"name": "prodigy", "lr": 1},
        "optim: prodigy estimates one learning rate for all parameters: it needs recurrent_factor = 1, found "
        "recurrent_factor = 0.5",
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
