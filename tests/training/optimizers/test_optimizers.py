"""Each optimiser against float64 NumPy and optax's own composition, in all groups; what it does at the edges."""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lrurun.config import optimizers
from lrurun.config.optimizers import OPTIMIZERS, OptimConfig
from lrurun.training import optimizer
from lrurun.training.layout import Layout
from lrurun.training.optimizer import LayoutOptimizer
from tests.training.optimizers import references
from tests.training.optimizers.references import GROUPS, RECURRENCE, REFERENCES, SHAPES, paths, settings, tree

NAMES = list(OPTIMIZERS)
RATES = [0.02, 0.05, 0.01, 0.04]
CASES: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in NAMES} | {
    "decay of recurrent": ("adamw", {"decay_recurrent": True, "b1": 0.8, "b2": 0.95, "eps": 1e-3}),
    "adam, other settings": ("adam", {"decay_recurrent": True, "b1": 0.8, "b2": 0.95, "eps": 1e-3}),
    "momentum": ("sgd", {"momentum": 0.9, "decay_recurrent": True}),
    "nesterov": ("sgd", {"momentum": 0.7, "nesterov": True}),
    "lion, other settings": ("lion", {"b1": 0.5, "b2": 0.7, "decay_recurrent": True}),
    "muon, other settings": (
        "muon", {"beta": 0.8, "ns_steps": 3, "consistent_rms": 0.0, "adam_b1": 0.7, "adam_b2": 0.9, "eps": 1e-3,
                 "decay_recurrent": True},
    ),
    "muon without nesterov": ("muon", {"nesterov": False}),
    "adopt, other settings": ("adopt", {"b1": 0.5, "b2": 0.9, "eps": 0.5, "decay_recurrent": True}),
    "schedule-free, other settings": (
        "schedule_free_adamw", {"b1": 0.7, "b2": 0.9, "eps": 1e-3, "weight_lr_power": 1.0, "decay_recurrent": True},
    ),
    "prodigy, other settings": (
        "prodigy", {"b1": 0.8, "b2": 0.9, "beta3": 0.5, "eps": 1e-3, "estim_lr0": 0.1, "estim_lr_coef": 2.0,
                    "safeguard_warmup": True, "decay_recurrent": True},
    ),
    "lamb, other settings": ("lamb", {"b1": 0.8, "b2": 0.95, "eps": 1e-3, "decay_recurrent": True}),
}  # fmt: skip
"""Name of a case -> optimiser and settings, each setting at another value than its default in one case."""


def draw(seed: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {path: scale * random.normal(size=shape) for path, shape in paths(SHAPES).items()}


def gradients(steps: int) -> list[dict[str, np.ndarray]]:
    """Of sizes that differ from step to step, as gradients of batches do."""
    return [draw(100 + step, 10.0 ** (step % 3 - 1)) for step in range(steps)]


@cache
def functions(config: OptimConfig, names: tuple[str, ...]) -> tuple[Layout, LayoutOptimizer, Any]:
    """Layout, optimiser and its compiled update for the parameters with these paths."""
    shapes = paths(SHAPES)
    nested = tree({path: jnp.zeros(shapes[path]) for path in names})
    layout = Layout(nested, optimizer.groups(config, RECURRENCE, nested))
    trained = LayoutOptimizer(config, layout)
    return layout, trained, jax.jit(lambda g, s, p, r: trained.update(g, s, p, rate=r))


class Trained:
    """An optimiser, its parameters in a vector and its state, a step at a time."""

    def __init__(self, config: OptimConfig, params: dict[str, np.ndarray]) -> None:
        nested = tree({path: jnp.asarray(array, jnp.float32) for path, array in params.items()})
        self.layout, self.optimizer, self._update = functions(config, tuple(params))
        self.vector = self.layout.vector(nested)
        self.state = self.optimizer.init(self.vector)

    def step(self, grads: dict[str, np.ndarray], rate: float) -> dict[str, np.ndarray]:
        gradient = self.layout.vector(tree({path: jnp.asarray(g, jnp.float32) for path, g in grads.items()}))
        changes, self.state = self._update(gradient, self.state, self.vector, jnp.float32(rate))
        self.vector = optax.apply_updates(self.vector, changes)
        return self.params()

    def params(self) -> dict[str, np.ndarray]:
        return {path: np.asarray(array) for path, array in paths(self.layout.tree(self.vector)).items()}

    def evaluated(self) -> dict[str, np.ndarray]:
        params, state = jax.device_get((self.vector, self.state))
        return paths(self.layout.tree(self.optimizer.evaluated(params, state)))


def assert_near(found: dict[str, np.ndarray], wanted: dict[str, Any], rtol: float = 2e-5) -> None:
    assert found.keys() == wanted.keys()
    for path, array in found.items():
        np.testing.assert_allclose(array, wanted[path], rtol=rtol, atol=rtol / 10, err_msg=path)


def test_every_optimiser_that_a_module_declares_is_known() -> None:
    modules = [import_module(f"{optimizers.__name__}.{module.name}") for module in iter_modules(optimizers.__path__)]
    declared = [declaration for module in modules for declaration in getattr(module, "DECLARATIONS", ())]
    assert {declaration.name: declaration for declaration in declared} == dict(OPTIMIZERS.items())
    assert set(REFERENCES) == set(NAMES)


@pytest.mark.parametrize(("name", "changes"), CASES.values(), ids=CASES)
def test_steps_against_numpy(name: str, changes: dict[str, Any]) -> None:
    config, params = settings(name, **changes), draw(0)
    trained = Trained(config, params)
    groups = optimizer.groups(config, RECURRENCE, trained.layout.tree(trained.vector))
    assert paths(groups) == GROUPS
    wanted = REFERENCES[name](config, params, gradients(4), RATES)
    for grads, rate, reference in zip(gradients(4), RATES, wanted, strict=True):
        # an odd polynomial of degree 5, five times, enlarges the rounding of small singular values
        assert_near(trained.step(grads, rate), reference, 2e-4 if name == "muon" else 2e-5)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param(*case, id=name)
        for name, case in CASES.items()
        # optax's Muon turns its Adam into NAdam where the matrices have Nesterov's momentum
        if case[0] != "muon" or case[1].get("nesterov") is False
    ],
)
def test_steps_against_the_composition_of_optax(name: str, changes: dict[str, Any]) -> None:
    if name == "adopt":  # which has no decay in optax
        changes = changes | {"weight_decay": 0.0}
    if name == "prodigy":  # which decays all or none
        changes = changes | {"weight_decay": 0.0}
    config, params = settings(name, **changes), draw(0)
    rates = [0.03] * 4 if name == "schedule_free_adamw" else RATES
    trained = Trained(config, params)
    reference = references.composition(config, lambda step: jnp.asarray(rates)[step])
    wanted = tree({path: jnp.asarray(array, jnp.float32) for path, array in params.items()})
    state, update = reference.init(wanted), jax.jit(reference.update)
    for grads, rate in zip(gradients(4), rates, strict=True):
        changes_, state = update(tree({path: jnp.float32(g) for path, g in grads.items()}), state, wanted)
        wanted = optax.apply_updates(wanted, changes_)
        assert_near(trained.step(grads, rate), paths(wanted), 1e-5)


def test_matrices_of_muon_with_nesterov_against_optax() -> None:
    config, params = settings("muon"), draw(0)
    trained = Trained(config, params)
    reference = references.composition(config, lambda step: jnp.asarray(RATES)[step])
    wanted = tree({path: jnp.asarray(array, jnp.float32) for path, array in params.items()})
    state, update = reference.init(wanted), jax.jit(reference.update)
    for grads, rate in zip(gradients(4), RATES, strict=True):
        changes, state = update(tree({path: jnp.float32(g) for path, g in grads.items()}), state, wanted)
        wanted, found = optax.apply_updates(wanted, changes), trained.step(grads, rate)
        matrices = {path: array for path, array in paths(wanted).items() if array.ndim == 2}
        assert_near({path: found[path] for path in matrices}, matrices, 1e-5)


def test_the_prodigy_that_decays_all_is_that_of_optax() -> None:
    config = settings("prodigy", decay_norm_bias=True, decay_recurrent=True)
    shapes = {path: array for path, array in draw(0).items() if path not in ("recurrence.D", "recurrence.E")}
    trained = Trained(config, shapes)
    reference = references.composition(config, lambda step: jnp.asarray(RATES)[step])
    wanted = tree({path: jnp.asarray(array, jnp.float32) for path, array in shapes.items()})
    state, update = reference.init(wanted), jax.jit(reference.update)
    for whole, rate in zip(gradients(4), RATES, strict=True):
        grads = {path: whole[path] for path in shapes}
        changes, state = update(tree({path: jnp.float32(g) for path, g in grads.items()}), state, wanted)
        wanted = optax.apply_updates(wanted, changes)
        assert_near(trained.step(grads, rate), paths(wanted), 1e-5)


@pytest.mark.parametrize("changes", [{}, {"b1": 0.7, "weight_lr_power": 1.0}])
def test_schedule_free_evaluates_its_average(changes: dict[str, Any]) -> None:
    config, params = settings("schedule_free_adamw", **changes), draw(0)
    trained = Trained(config, params)
    assert_near(trained.evaluated(), params, 1e-6)
    wanted = references.schedule_free(config, params, gradients(4), RATES, evaluated=True)
    for grads, rate, average in zip(gradients(4), RATES, wanted, strict=True):
        trained.step(grads, rate)
        found = trained.evaluated()
        assert all(isinstance(array, np.ndarray) and array.dtype == np.float32 for array in found.values())
        assert_near(found, average)
    trained.step({path: np.full_like(array, np.inf) for path, array in params.items()}, 0.01)
    assert not any(np.isfinite(array).any() for array in trained.evaluated().values())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "schedule_free_adamw"])
def test_all_others_evaluate_the_parameters_that_train(name: str) -> None:
    trained = Trained(settings(name), draw(0))
    params = trained.step(*gradients(1), 0.02)
    for path, array in trained.evaluated().items():
        np.testing.assert_array_equal(array, params[path])


def test_what_starts_at_the_parameters() -> None:
    for name, part in (("schedule_free_adamw", "z"), ("prodigy", "params0")):
        trained = Trained(settings(name), draw(0))
        np.testing.assert_array_equal(getattr(trained.state, part), trained.vector)
    assert Trained(settings("prodigy"), draw(0)).state.estim_lr == np.float32(1e-2)


@pytest.mark.parametrize("name", NAMES)
def test_no_gradient_moves_only_what_decays(name: str) -> None:
    zero = {path: np.zeros_like(array) for path, array in draw(0).items()}
    still, trained = (Trained(settings(name, weight_decay=decay), draw(0)) for decay in (0.0, 0.3))
    start = still.params()
    for rate in RATES:
        assert_near(still.step(zero, rate), start, 1e-6)  # schedule-free's y is z and x again, but for rounding
        found = trained.step(zero, rate)
        kept = {path: found[path] for path, group in GROUPS.items() if group != "regular"}
        assert_near(kept, {path: start[path] for path in kept}, 1e-6)
    # prodigy has no estimate until there is a gradient, and nothing decays until then
    moved = {path for path, array in found.items() if not np.allclose(array, start[path], rtol=1e-4)}
    assert moved == (set() if name == "prodigy" else {path for path, group in GROUPS.items() if group == "regular"})
    assert all(np.isfinite(array).all() for array in found.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_rate_of_zero_and_no_gradient_at_first_do_no_harm(name: str) -> None:
    """A warm-up from floor = 0, and an example without a gradient; steps after it are those of the paper."""
    trained, params = Trained(settings(name), draw(0)), draw(0)
    zero = {path: np.zeros_like(array) for path, array in params.items()}
    assert_near(trained.step(zero, 0.0), params, 1e-6)
    assert_near(trained.step(gradients(1)[0], 0.0), params, 1e-6)
    for grads in gradients(3):
        found = trained.step(grads, 0.02)
    assert all(np.isfinite(array).all() for array in found.values())
    assert all(np.abs(array - params[path]).max() > 1e-6 for path, array in found.items())


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_that_is_not_a_number_is_not_hidden(name: str) -> None:
    trained = Trained(settings(name), draw(0))
    trained.step(gradients(1)[0], 0.02)
    bad = gradients(1)[0]
    for path in ("recurrence.B", "dense.bias"):
        bad[path].flat[1] = np.nan
    found = trained.step(bad, 0.02)
    for path in ("recurrence.B", "dense.bias"):
        assert np.isnan(found[path].flat[1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kept", ["regular", "recurrent", "undecayed"])
def test_groups_without_members(name: str, kept: str) -> None:
    config = settings(name, decay_recurrent=True)
    params = {path: array for path, array in draw(0).items() if GROUPS[path] == kept}
    trained = Trained(config, params)
    grads = [{path: whole[path] for path in params} for whole in gradients(3)]
    wanted = REFERENCES[name](config, params, grads, RATES[:3])
    for of_step, rate, reference in zip(grads, RATES, wanted, strict=False):
        assert_near(trained.step(of_step, rate), reference, 2e-4 if name == "muon" else 2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_members_that_train_together_train_as_alone(name: str) -> None:
    """With other parameters, gradients and rates each, by `jax.vmap` as in `over_members`."""
    config = settings(name)
    members = [Trained(config, draw(seed)) for seed in (0, 1)]
    vector, state = jnp.stack([member.vector for member in members]), None
    together = members[0].optimizer
    state = jax.vmap(together.init)(vector)
    update = jax.jit(jax.vmap(lambda g, s, p, r: together.update(g, s, p, rate=r)))
    for step in range(3):
        grads, rates = [draw(10 + step), draw(20 + step)], [RATES[step], RATES[step + 1]]
        stacked = jnp.stack([
            member.layout.vector(tree({path: jnp.float32(g) for path, g in of.items()}))
            for member, of in zip(members, grads, strict=True)
        ])  # fmt: skip
        changes, state = update(stacked, state, vector, jnp.asarray(rates, jnp.float32))
        vector = vector + changes
        for member, of, rate in zip(members, grads, rates, strict=True):
            member.step(of, rate)
    for number, member in enumerate(members):
        np.testing.assert_allclose(vector[number], member.vector, rtol=1e-5, atol=1e-6)
        of_member = jax.tree.map(lambda leaf, number=number: leaf[number], state)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), of_member, member.state)


@pytest.mark.parametrize("shape", [(6, 6), (40, 8), (8, 40)])
def test_directions_of_muon_are_nearly_orthogonal_and_as_large_as_those_of_adamw(shape: tuple[int, int]) -> None:
    params, gradient = jnp.zeros(shape), jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    transformation = OPTIMIZERS["muon"].load()(settings("muon")).transformation()
    direction, _ = transformation.update(gradient, transformation.init(params), params)
    singular = np.linalg.svd(direction)[1] / (0.2 * np.sqrt(max(shape)))
    assert 0.6 < singular.min() < singular.max() < 1.3
    root_mean_square = np.sqrt(np.mean(direction**2))
    assert root_mean_square == pytest.approx(0.2, rel=0.3)
