"""The sentences about the settings of a training are true of each optimiser, schedule and average."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lrurun.config import wording
from lrurun.config.optimizers import OPTIMIZERS, OptimConfig
from lrurun.config.schema import TrainConfig
from lrurun.console import setting

NEEDED: dict[str, dict[str, Any]] = {
    "prodigy": {"lr": 1.0, "recurrent_factor": 1.0},
    "schedule_free_adamw": {"schedule": "constant"},
}
"""What the settings of some optimisers must be."""
TRAIN = TrainConfig(steps=1000, batch=32, eval_every=100)


def settings(name: str = "adamw", **changes: Any) -> OptimConfig:
    values = {"name": name, "lr": 0.01, "recurrent_factor": 0.5, "weight_decay": 0.05, **NEEDED.get(name, {})}
    return msgspec.convert(values | changes, OPTIMIZERS[name].settings)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("adamw", "AdamW (Loshchilov and Hutter 2019)"),
        ("adam", "Adam (Kingma and Ba 2015)"),
        ("sgd", "stochastic gradient descent (Robbins and Monro 1951; Sutskever et al. 2013)"),
        ("lion", "Lion (Chen et al. 2023)"),
        ("muon", "Muon for matrices and Adam for other parameters (Jordan et al. 2024; Liu et al. 2025)"),
        ("adopt", "ADOPT (Taniguchi et al. 2024)"),
        ("schedule_free_adamw", "schedule-free AdamW (Defazio et al. 2024)"),
        (
            "prodigy",
            "Prodigy (Mishchenko and Defazio 2023), whose estimate of the learning rate the schedule multiplies",
        ),
        ("lamb", "LAMB (You et al. 2020)"),
    ],
)
def test_an_optimiser_has_its_name_and_its_paper(name: str, text: str) -> None:
    assert wording.optimizer(settings(name), setting, every=False) == text


def test_every_optimiser_has_a_title_and_a_source() -> None:
    """And texts say of its weight decay what its class does."""
    for name, declaration in OPTIMIZERS.items():
        assert declaration.title, name
        assert declaration.source, name
        assert declaration.is_decay_in_gradient == declaration.load().decay_in_gradient, name


def test_settings_of_an_optimiser_are_named_where_they_are_not_the_default() -> None:
    momentum = settings("sgd", momentum=0.9, nesterov=True)
    shown = (
        "stochastic gradient descent (Robbins and Monro 1951; Sutskever et al. 2013) with momentum = 0.9 and nesterov "
        "= true"
    )
    assert wording.optimizer(momentum, setting, every=False) == shown
    assert wording.optimizer(settings("lion"), setting, every=True) == "Lion with b1 = 0.9 and b2 = 0.99"


@pytest.mark.parametrize(
    ("changes", "in_shares", "in_steps"),
    [
        (
            {},
            "a linear warm-up over the first 10\xa0% of the steps and a cosine decay (Loshchilov and Hutter 2017)",
            "a linear warm-up from 1e-07 over the first 100 steps and a cosine decay to 1e-07",
        ),
        ({"schedule": "constant", "warmup": 0.0}, "a constant rate", "a constant rate"),
        (
            {"schedule": "linear", "warmup_steps": 1, "floor": 0.001},
            "a linear warm-up over the first step and a linear decay to 0.001",
            "a linear warm-up from 0.001 over the first step and a linear decay to 0.001",
        ),
        ({"schedule": "linear", "warmup_steps": 0}, "a linear decay", "a linear decay to 1e-07"),
        (
            {"schedule": "wsd", "warmup": 0.25, "cooldown": 0.125},
            "a linear warm-up over the first 25\xa0% of the steps, a constant rate and a linear decay over the last "
            "12.5\xa0% of the steps (Hu et al. 2024; Hägele et al. 2024)",
            "a linear warm-up from 1e-07 over the first 250 steps, a constant rate and a linear decay over the last "
            "125 steps to 1e-07",
        ),
        # a share of less than half a step is none
        (
            {"schedule": "wsd", "warmup": 0.0001, "cooldown": 0.0001},
            "a linear warm-up over the first 0.01\xa0% of the steps, a constant rate and a linear decay over the last "
            "0.01\xa0% of the steps (Hu et al. 2024; Hägele et al. 2024)",
            "a constant rate",
        ),
        (
            {"schedule": "inverse-sqrt", "floor": 0.002, "warmup_steps": 4000, "lr": 0.1},
            "a linear warm-up over the first 4,000 steps and an inverse square-root decay, not "
            "below 0.002 (Vaswani et al. 2017)",
            None,
        ),
    ],
)
def test_a_schedule_in_words(changes: dict[str, Any], in_shares: str, in_steps: str | None) -> None:
    assert wording.schedule(settings(**changes), setting) == in_shares
    if in_steps is not None:
        assert wording.schedule(settings(**changes), setting, steps=1000) == in_steps


@pytest.mark.parametrize(
    ("changes", "decay"),
    [
        ({}, "a weight decay of 0.05 (recurrent parameters do not decay)"),
        ({"weight_decay": 0.0, "decay_norm_bias": False}, "no weight decay"),
        ({"decay_recurrent": True, "recurrent_factor": 1.0}, "a weight decay of 0.05"),
        (
            {"name": "adam", "decay_norm_bias": False},
            "a weight decay of 0.05 as a part of the gradient (recurrent parameters, biases and norms do not decay)",
        ),
        (
            {"decay_norm_bias": False, "decay_recurrent": True},
            "a weight decay of 0.05 (biases and norms do not decay)",
        ),
    ],
)
def test_weight_decay_of_groups_in_words(changes: dict[str, Any], decay: str) -> None:
    assert wording.decay(settings(**changes), setting) == decay


def test_the_rate_of_the_recurrent_group_in_words() -> None:
    assert wording.recurrent_rate(settings(), setting) == "recurrent parameters at 0.5 times the learning rate"
    assert wording.recurrent_rate(settings(recurrent_factor=1.0), setting) == ""


def test_an_optimiser_that_evaluates_something_else_says_so() -> None:
    assert wording.average(settings("schedule_free_adamw"), setting) == "the optimiser's own average of its iterates"
    unknown = msgspec.structs.replace(settings(), name="of_a_plug_in_that_is_not_here")
    assert wording.average(unknown, setting) == (
        "parameters that are not known here, because the code of its optimiser is not"
    )


def test_clipping_accumulation_and_averages_in_words() -> None:
    usual = settings()
    assert wording.clipping(usual, setting) + wording.accumulation(usual) + wording.average(usual, setting) == ""
    by_norm, by_block = settings(clip=1.0), settings(clip=0.5, clip_by="block-rms")
    assert wording.clipping(by_norm, setting) == "gradients clipped to a global norm of 1"
    assert wording.clipping(by_norm, setting, source=True).endswith("a global norm of 1 (Pascanu et al. 2013)")
    assert wording.clipping(by_block, setting, source=True) == (
        "the gradient of each array of parameters clipped to a root mean square of 0.5"
    )
    assert wording.accumulation(settings(accumulate=4)) == "gradients accumulated over 4 parts of each batch"
    assert wording.average(settings(average="ema", average_decay=0.99), setting) == (
        "an exponential moving average of the parameters with a decay of 0.99"
    )


def test_all_of_it_in_clauses() -> None:
    config = settings("sgd", momentum=0.9, clip=1.0, accumulate=2, average="ema", schedule="constant", warmup_steps=0)
    assert wording.training(config, TRAIN, setting) == (
        "stochastic gradient descent with momentum = 0.9 and nesterov = false; 1000 steps on batches of 32; a constant "
        "rate; recurrent parameters at 0.5 times the learning rate; a weight decay of 0.05 as a part of the gradient "
        "(recurrent parameters do not decay); gradients clipped to a global norm of 1; gradients accumulated over 2 "
        "parts of each batch; an exponential moving average of the parameters with a decay of 0.999"
    )
