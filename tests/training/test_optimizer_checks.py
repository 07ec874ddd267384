"""Every optimiser does what all must do; and what breaks a rule is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lrurun.config.optimizers import OPTIMIZERS, Declaration, OptimConfig
from lrurun.training import conformance
from lrurun.training.optimizers import Optimizer

VARIANTS = {label: settings for name in OPTIMIZERS for label, settings in conformance.variants(name).items()}
SLOW = ("muon", "lamb")
"""Those that take long to compile."""


@pytest.mark.parametrize(
    "label", [pytest.param(label, marks=pytest.mark.slow if label.startswith(SLOW) else ()) for label in VARIANTS]
)
def test_conforms(label: str) -> None:
    assert not [finding for finding in conformance.check(VARIANTS[label]) if not finding.passed]


class MineConfig(OptimConfig, frozen=True, kw_only=True):
    name: Literal["mine"] = "mine"
    fast: bool = False
    form: Literal["a", "b", "c"] = "a"


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[type], dict[str, str]]]:
    """Checks a class; the detail of each failed check."""

    def checked(cls: type) -> dict[str, str]:
        monkeypatch.setitem(OPTIMIZERS, "mine", Declaration(name="mine", settings=MineConfig, implementation=cls))
        settings = conformance.variants("mine")["mine"]
        return {finding.name: finding.detail for finding in conformance.check(settings) if not finding.passed}

    yield checked
    monkeypatch.undo()


def stateless(update: Callable[[Any], Any]) -> optax.GradientTransformation:
    return optax.stateless(lambda gradient, _: update(gradient))


def leaves(function: Callable[[Any], Any]) -> optax.GradientTransformation:
    return stateless(lambda gradient: jax.tree.map(function, gradient))


class Plain(Optimizer):
    on_vector = True

    def transformation(self) -> optax.GradientTransformation:
        return optax.identity()


class Whole(Optimizer):
    def transformation(self) -> optax.GradientTransformation:
        return optax.scale_by_adam()


def of(make: Callable[[Any], optax.GradientTransformation], *, on_vector: bool = False) -> type[Optimizer]:
    """An optimiser with the transformation that `make` returns for it."""
    return type("Mine", (Optimizer,), {"transformation": make, "on_vector": on_vector})


def remembers(optimizer: Any) -> optax.GradientTransformation:
    optimizer.calls = getattr(optimizer, "calls", 0) + 1
    return optax.scale(1.0 + optimizer.calls / 8)


CALLS = count()


def random_start(_: Any) -> optax.GradientTransformation:
    return optax.GradientTransformation(
        lambda params: jnp.float32(next(CALLS)), lambda gradient, state, params: (gradient, state)
    )


def with_state(first: Any, after: Callable[[Any], Any]) -> Callable[[Any], optax.GradientTransformation]:
    return lambda _: optax.GradientTransformation(
        lambda params: {"part": first}, lambda gradient, state, params: (gradient, {"part": after(state["part"])})
    )


class Deaf(Whole):
    """Does not listen to the groups."""

    def update(self, gradient: Any, state: Any, params: Any, rate: Any, groups: Any) -> tuple[Any, Any]:
        direction, state = self.transformation().update(gradient, state, params)
        return jax.tree.map(lambda array: -rate * array, direction), state


class DecaysAll(Whole):
    def update(self, gradient: Any, state: Any, params: Any, rate: Any, groups: Any) -> tuple[Any, Any]:
        weight_decay = self.settings.weight_decay
        direction, state = self.transformation().update(gradient, state, params)
        direction = jax.tree.map(lambda array, values: array + weight_decay * values, direction, params)
        return groups.scale(direction, -rate), state


class Short(Plain):
    def evaluated(self, params: Any, state: Any) -> Any:
        return params[1:]


FAULTS: dict[str, tuple[type[Optimizer], dict[str, str]]] = {
    "none": (Plain, {}),
    "a rate and its sign": (
        of(lambda _: optax.adam(1e-3)),
        {"goes down": "without a learning rate, as optax.scale_by_adam() does; optax.adam(rate) has"},
    ),
    "a rate alone": (
        of(lambda _: optax.chain(optax.scale_by_adam(), optax.scale(1e-3))),
        {"goes down": "it must fall by 10%; is a learning rate applied already"},
    ),
    "half precision": (
        of(lambda _: leaves(lambda array: array.astype(jnp.float16))),
        {"direction": "the direction is not like the gradient: block.experts is float16[2, 3, 4], expected float32[2"},
    ),
    "one vector": (
        of(lambda _: stateless(lambda tree: {"all": jnp.concatenate([x.ravel() for x in jax.tree.leaves(tree)])})),
        {"direction": "block.experts is missing, expected float32[2, 3, 4]", "goes down": "raised ",
         "loop": "raised ", "checkpoint": "raised ", "zero gradient": "", "groups": "raised "},
    ),
    "memory": (of(remembers), {"no memory but the state": "the step is not always", "loop": "", "members": ""}),
    "another start": (of(random_start), {"state": "init gives another state the second time", "loop": ""}),
    "a number of Python": (
        of(with_state(0.5, lambda part: part)),
        {"state": "part is a float, expected an array", "direction": "part is float32[], expected float"},
    ),
    "a state that changes its type": (
        of(with_state(jnp.int32(0), lambda part: part + 0.5)),
        {"direction": "the state changes its form in a step: part is float32[], expected int32[]",
         "goes down": "raised ", "loop": "raised "},
    ),
    "division by zero": (
        of(lambda _: stateless(lambda tree: jax.tree.map(lambda array: array / optax.tree.norm(tree), tree))),
        {"zero gradient": "a gradient of zero makes numbers that are not finite"},
    ),
    "order": (of(lambda _: stateless(lambda g: g + 0.3 * jnp.roll(g, 1)), on_vector=True), {"each number alone": ""}),
    "groups": (Deaf, {"groups": "update ignores weight_decay"}),
    "all decay": (DecaysAll, {"groups": "update applies weight_decay to parameters that have none"}),
    "evaluated": (Short, {"goes down": "", "evaluated parameters": "it is float32["}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checks_catch_what_they_are_for(fault: str, check: Callable[[type], dict[str, str]]) -> None:
    cls, expected = FAULTS[fault]
    failed = check(cls)
    assert set(failed) == set(expected), failed
    for name, words in expected.items():
        assert words in failed[name]


@pytest.mark.parametrize("name", ["lr", "schedule", "warmup"])
def test_the_settings_of_rates_are_not_known_to_a_transformation(
    name: str, check: Callable[[type], dict[str, str]]
) -> None:
    """Compiled functions are shared by runs that differ in them."""
    failed = check(of(lambda own: optax.scale(1.0 if getattr(own.settings, name) else 2.0)))
    assert failed["state"].startswith(f"raised AttributeError: optim.{name} is not known to an optimiser: runs with")
    assert len(failed) == len(conformance._CHECKS)
    assert Plain(MineConfig(name="mine", lr=0.1, recurrent_factor=1.0, weight_decay=0.5)).settings.weight_decay == 0.5


def test_branches_on_values_are_named_once(check: Callable[[type], dict[str, str]]) -> None:
    def branches(array: Any) -> Any:
        return jnp.zeros_like(array) if bool(jnp.isnan(array).any()) else array

    failed = check(of(lambda _: leaves(branches)))
    assert {"direction", "goes down", "loop", "members"} <= set(failed)
    assert "raised TracerBoolConversionError" in failed["direction"]


def test_the_variants_are_the_choices_of_its_own_settings_that_it_permits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky(MineConfig, frozen=True, kw_only=True):
        def __post_init__(self) -> None:
            super().__post_init__()
            if self.schedule != "constant":
                raise ValueError(f'schedule must be "constant", found "{self.schedule}"')
            if self.form == "b":
                raise ValueError("no b")

    monkeypatch.setitem(OPTIMIZERS, "mine", Declaration(name="mine", settings=Picky, implementation=Plain))
    found = conformance.variants("mine")
    assert list(found) == ["mine", "mine, fast = True", "mine, form = c"]
    assert {settings.schedule for settings in found.values()} == {"constant"}
    assert not [finding for finding in conformance.check(found["mine"]) if not finding.passed]


def test_a_state_is_measured_in_sizes_of_the_parameters() -> None:
    [finding] = [found for found in conformance.check(VARIANTS["adamw"]) if found.name == "state"]
    assert finding.detail == "2.0 times the size of the parameters"
    assert np.isclose(conformance.Case(VARIANTS["adamw"], 0).layout.size, 24 + 6 + 6 + 8 + 48 + 24 + 1)
