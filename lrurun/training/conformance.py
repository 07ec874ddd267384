"""Checks that every optimiser must pass, plug-ins too: for the tests and `lrurun check optimizer`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from msgspec import structs

from lrurun.config.optimizers import OPTIMIZERS, OptimConfig
from lrurun.config.plugin_checks import Finding, guarded, other_choices, without_repeats
from lrurun.training import checkpoints
from lrurun.training.compiled import Evaluated, TrainState
from lrurun.training.events import Snapshot
from lrurun.training.layout import Layout
from lrurun.training.optimizer import LayoutOptimizer
from lrurun.training.optimizers import Optimizer
from lrurun.training.optimizers.base import Groups, WithoutRates

Tree = Any
"""Nested dictionaries of arrays, or a vector of all parameters."""

STEPS = 300
"""Steps on a quadratic, which must become smaller by at least `FALL`."""
FALL = 0.1

_SHAPES = {
    "encoder": {"kernel": (4, 6), "bias": (6,)},
    "block": {"norm": {"scale": (6,)}, "recurrence": {"nu": (8,), "B": (8, 6)}, "experts": (2, 3, 4), "gain": ()},
}
"""Parameters of every number of axes, and matrices that are higher and that are wider."""
_GROUPS = {
    "encoder": {"kernel": "regular", "bias": "undecayed"},
    "block": {
        "norm": {"scale": "undecayed"},
        "recurrence": {"nu": "recurrent", "B": "recurrent"},
        "experts": "regular",
        "gain": "undecayed",
    },
}
_COMMON: Final = (
    {"lr": 0.02},
    {"lr": 0.02, "schedule": "constant"},
    {"lr": 1.0},
    {"lr": 1.0, "schedule": "constant"},
)
"""Settings of every optimiser with which one is checked: the first that it takes."""
_NEUTRAL = Groups(decay=lambda tree, params: tree, scale=lambda tree, rate: jax.tree.map(lambda x: rate * x, tree))
"""No weight decay, and one learning rate."""


def variants(name: str) -> dict[str, OptimConfig]:
    """Name -> settings of an optimiser: the defaults, and its declared variants; without these, each other value of a
    boolean or a choice of its own that its rules permit.

    Raises:
        ValueError: it takes none of the common settings that are tried.
    """
    declaration = OPTIMIZERS[name]
    plain = _accepted(name)
    settings = {name: plain}
    for label, table in declaration.variants.items():
        settings[f"{name}, {label}"] = type(plain)(**(structs.asdict(plain) | table))
    for field, choice in other_choices(plain) if not declaration.variants else ():
        if field not in OptimConfig.__struct_fields__ and (other := _changed(plain, **{field: choice})) is not None:
            settings[f"{name}, {field} = {choice}"] = other
    return settings


def _accepted(name: str) -> OptimConfig:
    for common in _COMMON:
        try:
            return OPTIMIZERS[name].settings(name=name, recurrent_factor=1.0, weight_decay=0.0, **common)
        except ValueError as error:
            refused = error
    raise refused


def _changed(settings: OptimConfig, **changes: Any) -> OptimConfig | None:
    """The settings with these values; None if they are refused."""
    try:
        return type(settings)(**(structs.asdict(settings) | changes))
    except ValueError:
        return None


def check(settings: OptimConfig, *, seed: int = 0) -> list[Finding]:
    """Checks the optimiser that `settings` describe. An exception in a check is a finding that failed."""
    case = Case(settings, seed)
    findings = [guarded(name, test, case) for name, test in _CHECKS.items()]
    if case.optimizer.on_vector:
        findings.append(guarded("each number alone", _alone, case))
    if type(case.optimizer).evaluated is not Optimizer.evaluated:
        findings.append(guarded("evaluated parameters", _evaluated, case))
    return without_repeats(findings)


class Case:
    """An optimiser, the parameters of a small network, and gradients for some steps."""

    def __init__(self, settings: OptimConfig, seed: int) -> None:
        self.settings = settings
        self._random = np.random.default_rng(seed)
        tree = jax.tree.map(self._normal, _SHAPES, is_leaf=lambda shape: isinstance(shape, tuple))
        self.layout = Layout(tree, _GROUPS)
        self.optimizer = self.new()
        self.params = self.form(self.layout.vector(tree))
        self.gradients = [self.form(self._normal((self.layout.size,))) for _ in range(4)]

    def _normal(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(self._random.normal(size=shape), np.float32)

    def new(self) -> Optimizer:
        """Another object of the optimiser."""
        optimizer: Optimizer = OPTIMIZERS[self.settings.name].load()(WithoutRates(self.settings))
        return optimizer

    def form(self, vector: Any) -> Tree:
        """Parameters (size,) as the optimiser takes them: the vector, or a tree of arrays."""
        return jax.tree.map(jnp.asarray, vector if self.optimizer.on_vector else self.layout.tree(vector))

    def update(
        self, params: Tree, state: Tree, gradient: Tree, optimizer: Optimizer | None = None
    ) -> tuple[Tree, Tree]:
        """The change of the parameters and the new state, without weight decay."""
        rate = jnp.float32(self.settings.lr)
        return (optimizer or self.optimizer).update(gradient, state, params, rate, _NEUTRAL)

    @cached_property
    def compiled(self) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]:
        return jax.jit(lambda params, state, gradient: self.update(params, state, gradient))

    def program(self, optimizer: Optimizer) -> str:
        """The first step of an object of the optimiser, as a program with all of its constants."""
        step = jax.jit(lambda params, state, gradient: self.update(params, state, gradient, optimizer))
        return step.lower(self.params, self.optimizer.init(self.params), self.gradients[0]).as_text()

    def after(self, count: int) -> tuple[Tree, Tree]:
        """Parameters and state after some steps."""
        params, state = self.params, self.optimizer.init(self.params)
        for gradient in self.gradients[:count]:
            changes, state = self.compiled(params, state, gradient)
            params = _sum(params, changes)
        return params, state


def _sum(params: Tree, changes: Tree) -> Tree:
    return jax.tree.map(lambda array, change: array + change, params, changes)


def _alike(one: Tree, other: Tree) -> bool:
    """Whether two trees have the same structure."""
    structures: list[Any] = [jax.tree.structure(tree) for tree in (one, other)]
    return bool(structures[0] == structures[1])


def _equal(one: Tree, other: Tree) -> bool:
    """Whether two trees have the same arrays, bit for bit."""
    if not _alike(one, other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def _deviation(actual: Tree, wanted: Tree) -> float:
    """The largest difference, relative to the largest number of the array; infinite if one is not finite."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(wanted), strict=True):
        x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            return float("inf")
        if x.size:
            worst = max(worst, float(np.max(np.abs(x - y)) / max(float(np.max(np.abs(y))), 1e-30)))
    return worst


def _finite(tree: Tree) -> bool:
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in jax.tree.leaves(tree))


def _forms(tree: Tree) -> dict[str, str]:
    """Path -> shape and dtype of each array, or the type of what is none."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): (
            f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else type(leaf).__name__
        )
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _difference(actual: Tree, wanted: Tree) -> str:
    """The first array that differs in name, shape or dtype; nothing where the structures are the same."""
    found, expected = _forms(actual), _forms(wanted)
    for path in {**expected, **found}:
        if found.get(path) != expected.get(path):
            return f"{path or 'it'} is {found.get(path, 'missing')}, expected {expected.get(path, 'nothing')}"
    return "" if _alike(actual, wanted) else f"its structure is {jax.tree.structure(actual)}"


def _state(case: Case) -> tuple[bool, str]:
    state = case.optimizer.init(case.params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if not isinstance(leaf, jax.Array | np.ndarray) or leaf.dtype.hasobject:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            return False, f"{name} is a {type(leaf).__name__}, expected an array, as jnp.asarray makes"
    if not _equal(state, case.new().init(case.params)):
        return False, "init gives another state the second time: it must be a function of the parameters alone"
    if not _finite(state):
        return False, "the initial state is not finite"
    numbers = sum(np.asarray(leaf).size for leaf in jax.tree.leaves(state))
    return True, f"{numbers / case.layout.size:.1f} times the size of the parameters"


def _direction(case: Case) -> tuple[bool, str]:
    params, state, gradient = case.params, case.optimizer.init(case.params), case.gradients[0]
    if type(case.optimizer).update is Optimizer.update:
        changes, after = jax.eval_shape(case.optimizer.transformation().update, gradient, state, params)
    else:
        changes, after = jax.eval_shape(case.update, params, state, gradient)
    if problem := _difference(changes, gradient):
        return False, f"the direction is not like the gradient: {problem}"
    if problem := _difference(after, state):
        return False, f"the state changes its form in a step: {problem}"
    return True, "the structure, shapes and types of the gradient"


def _down(case: Case) -> tuple[bool, str]:
    """Two steps with one gradient, as the first may only begin a state, and `STEPS` on a quadratic with curvatures from
    0.5 to 2."""
    gradient = case.gradients[0]
    first, state = case.compiled(case.params, case.optimizer.init(case.params), gradient)
    second, _ = case.compiled(_sum(case.params, first), state, gradient)
    pairs = zip(jax.tree.leaves(_sum(first, second)), jax.tree.leaves(gradient), strict=True)
    slope = float(sum(np.vdot(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs))
    if not slope < 0:
        return False, (
            f"the first steps go up: their product with the gradient is {slope:.1e}. Return what is subtracted, "
            "without a learning rate, as optax.scale_by_adam() does; optax.adam(rate) has a rate and the opposite sign"
        )
    curvature = case.form(jnp.linspace(0.5, 2.0, case.layout.size))

    def loss(params: Tree) -> Array:
        """() of the distance to zero."""
        squares = jax.tree.map(lambda c, x: jnp.sum(c * x * x) / 2, curvature, params)
        return jnp.sum(jnp.stack(jax.tree.leaves(squares)))

    def step(carry: tuple[Tree, Tree], _: None) -> tuple[tuple[Tree, Tree], None]:
        params, state = carry
        changes, state = case.update(params, state, jax.grad(loss)(params))
        return (_sum(params, changes), state), None

    start = (case.params, case.optimizer.init(case.params))
    (params, state), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, None, length=STEPS))(start)
    before = float(loss(case.params))
    after = float(loss(case.form(_evaluated_vector(case, params, state))))
    text = f"a quadratic goes from {before:.3g} to {after:.3g} in {STEPS} steps with rate {case.settings.lr:g}"
    if after <= (1 - FALL) * before:
        return True, text
    return False, f"{text}: it must fall by {FALL:.0%}; is a learning rate applied already, or too large a direction?"


def _evaluated_vector(case: Case, params: Tree, state: Tree) -> Any:
    """The parameters that are evaluated, as a vector (size,)."""
    evaluated = case.optimizer.evaluated(jax.device_get(params), jax.device_get(state))
    return evaluated if case.optimizer.on_vector else case.layout.vector(evaluated)


def _no_memory(case: Case) -> tuple[bool, str]:
    """Whether a step is the same after other steps, and in another object."""
    if len({case.program(optimizer) for optimizer in (case.optimizer, case.optimizer, case.new())}) > 1:
        return False, "the step is not always the same: everything that changes belongs in the state"
    return True, "each step is the same program"


def _loops(case: Case) -> tuple[bool, str]:
    """Steps within a compiled loop, as training takes them."""

    def step(carry: tuple[Tree, Tree], gradient: Tree) -> tuple[tuple[Tree, Tree], None]:
        params, state = carry
        changes, state = case.update(params, state, gradient)
        return (_sum(params, changes), state), None

    start = (case.params, case.optimizer.init(case.params))
    gradients = jax.tree.map(lambda *steps: jnp.stack(steps), *case.gradients)
    looped, _ = jax.jit(lambda carry, gradients: jax.lax.scan(step, carry, gradients))(start, gradients)
    worst = _deviation(looped, case.after(len(case.gradients)))
    return worst < 1e-4, f"relative difference of steps in a loop {worst:.1e}, at most 1e-04"


def _members(case: Case) -> tuple[bool, str]:
    """Three runs side by side, as `--pack` trains them, against each alone."""
    firsts = [jax.tree.map(lambda array, c=c: array * c, case.params) for c in (1.0, 0.5, -1.0)]
    states = [case.optimizer.init(params) for params in firsts]
    alone = [case.compiled(*triple) for triple in zip(firsts, states, case.gradients, strict=False)]
    stacked = [jax.tree.map(lambda *each: jnp.stack(each), *trees) for trees in (firsts, states, case.gradients[:3])]
    together = jax.jit(jax.vmap(lambda params, state, gradient: case.update(params, state, gradient)))(*stacked)
    worst = _deviation(together, jax.tree.map(lambda *each: jnp.stack(each), *alone))
    return worst < 1e-4, f"relative difference of runs side by side {worst:.1e}, at most 1e-04"


def _saved(case: Case) -> tuple[bool, str]:
    """A state on disk and back, and the step after it."""
    params, state = jax.device_get(case.after(2))
    number = np.int32(2)
    live = TrainState(step=number, params=params, stats=number, moments=state, window=number, bad_step=number)
    snapshot = Snapshot(step=2, score=0.0, best_step=2, live=live, best=Evaluated(params, number))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "checkpoint"
        checkpoints.save(folder, snapshot, "check")
        arrays = checkpoints.arrays(folder, "check")
        restored = TrainState(**checkpoints.fitted(arrays, live._asdict(), "the checkpoint"))
    if not _equal(restored.moments, state):
        return False, "the state that is read is not the one that was saved"
    wanted = case.compiled(params, state, case.gradients[2])
    if not _equal(case.compiled(restored.params, restored.moments, case.gradients[2]), wanted):
        return False, "the step after a restart is another one"
    return True, "read as it was saved, and the next step is the same, bit for bit"


def _zero(case: Case) -> tuple[bool, str]:
    params, state = case.params, case.optimizer.init(case.params)
    zero = jax.tree.map(jnp.zeros_like, params)
    for _ in range(3):
        changes, state = case.compiled(params, state, zero)
        if not _finite((changes, state)):
            return False, "a gradient of zero makes numbers that are not finite: divide by a norm plus a small number"
        params = _sum(params, changes)
    return True, "a gradient of zero keeps everything finite"


def _not_finite(case: Case) -> tuple[bool, str]:
    """Whether a gradient that is not finite is no exception: training finds it by the loss."""
    nan = jax.tree.map(lambda array: jnp.full_like(array, jnp.nan), case.params)
    changes, _ = case.compiled(case.params, case.optimizer.init(case.params), nan)
    return True, f"the change is {'finite' if _finite(changes) else 'not finite'}, without an exception"


def _groups(case: Case) -> tuple[bool, str]:
    """Weight decay of regular parameters alone, and the learning rate of the recurrent ones.

    In the first step parameters do not depend on each other; in the second one a decay that is a part of the gradient
    is seen by those that take its sign or norm, too.
    """

    def steps(**changes: Any) -> list[list[np.ndarray]] | None:
        settings = _changed(case.settings, **changes)
        if settings is None:
            return None
        optimizer = LayoutOptimizer(settings, case.layout)

        @jax.jit
        def step(params: Array, state: Tree, gradient: Array) -> tuple[Array, Tree]:
            return optimizer.update(gradient, state, params, rate=jnp.float32(settings.lr))

        params, state, taken = vectors[0], optimizer.init(vectors[0]), []
        for gradient in vectors[1:3]:
            change, state = step(params, state, gradient)
            params = params + change
            taken.append([np.asarray(array, np.float64) for array in jax.tree.leaves(case.layout.tree(change))])
        return taken

    vectors = [
        jnp.asarray(tree if case.optimizer.on_vector else case.layout.vector(tree))
        for tree in (case.params, *case.gradients)
    ]
    plain, decayed, slower = steps(), steps(weight_decay=0.1), steps(recurrent_factor=0.5)
    assert plain is not None
    for number, group in enumerate(jax.tree.leaves(_GROUPS)):
        first, second = (step[number] for step in plain)
        if decayed is not None and group == "regular" and _close(decayed[1][number], second):
            return False, "update ignores weight_decay: groups.decay adds it"
        if decayed is not None and group != "regular" and not _close(decayed[0][number], first):
            return False, "update applies weight_decay to parameters that have none: groups.decay adds it to the others"
        if slower is not None and not _close(slower[0][number], first * (0.5 if group == "recurrent" else 1)):
            return (
                False,
                "update ignores recurrent_factor, or applies it elsewhere: groups.scale has the learning rates",
            )
    refused = [name for name, taken in (("weight_decay", decayed), ("recurrent_factor", slower)) if taken is None]
    return True, f"refuses {' and '.join(refused)}" if refused else "weight_decay and recurrent_factor are applied"


def _close(array: np.ndarray, other: np.ndarray) -> bool:
    return np.allclose(array, other, rtol=1e-3, atol=1e-4 * float(np.max(np.abs(other), initial=0.0)))


def _alone(case: Case) -> tuple[bool, str]:
    """Whether parameters in another order change in the same way, as they must where no array is known."""
    order = np.random.default_rng(1).permutation(case.layout.size)
    moved, state = case.params[order], case.optimizer.init(case.params[order])
    for gradient in case.gradients[:3]:
        changes, state = case.compiled(moved, state, gradient[order])
        moved = moved + changes
    worst = _deviation(moved, case.after(3)[0][order])
    return worst < 1e-4, f"relative difference of parameters in another order {worst:.1e}, at most 1e-04"


def _evaluated(case: Case) -> tuple[bool, str]:
    params, state = jax.device_get(case.after(3))
    evaluated = case.optimizer.evaluated(params, state)
    if problem := _difference(evaluated, params):
        return False, f"evaluated parameters are not like those that train: {problem}"
    return _finite(evaluated), "like the parameters that train, and finite"


_CHECKS: Final[dict[str, Callable[[Case], tuple[bool, str]]]] = {
    "state": _state,
    "direction": _direction,
    "goes down": _down,
    "no memory but the state": _no_memory,
    "loop": _loops,
    "members": _members,
    "checkpoint": _saved,
    "zero gradient": _zero,
    "gradient that is not finite": _not_finite,
    "groups": _groups,
}
