"""Every recurrence against the equations of its paper in double precision; a new one is tested by a line of `FORMS`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.recurrences import KINDS
from lrurun.nn import recurrences
from lrurun.nn.recurrences import Recurrence, attention
from tests.harness.loops import check_values_and_gradients, double, values_and_gradients
from tests.nn.equations import FORMS

LENGTHS = [14, 6, 1]
BLOCKWISE = "attention, local"
SLOPES = (
    *("dense, tanh", "dense, relu", "dense, identity", "block-diagonal", "block-diagonal, tied"),
    *("diagonal, lru", "gru", "lstm", "rg-lru", "s6", "mingru, in log space"),
)
"""Those of which gradients are tested too: the others have the same rules, or those of jax."""


SLOW = (
    *("rotrnn, gamma", "rotrnn, none", "rg-lru, negative", "rg-lru, fixed", "rg-lru, sigmoid", "s6, heads, negative"),
    *("s6, selective Delta", "mingru", "mingru, linear", "mingru, input", "minlstm, normalised"),
)


def built(name: str, two_way: bool) -> tuple[Recurrence, Any]:
    """And the function that draws parameters."""
    form = FORMS[name]
    recurrence = recurrences.build(form.settings, width=form.width, state=form.state, bidirectional=two_way)
    return recurrence, lambda key: form.after(recurrence.init(key))


CAUSAL = {
    **{"dense": "dense, identity", "diagonal": "diagonal, conjugate heads", "rotrnn": "rotrnn, naive"},
    **{"dlr": "dlr, sum", "s4d": "s4d, shared", "s5": "s5, clipped"},
    **{"sgconv": "sgconv, cut", "rg-lru": "rg-lru, real LRU", "s6": "s6, constant"},
}
"""The form of a kind whose steps are tested, where it is not the plain one."""
WITHOUT = ("gru", "lstm", "mingru", "minlstm", "hgrn", "sgconv")
"""Kinds that have no eigenvalues."""
HALVES = ("diagonal", "s4", "s4d")
"""Kinds of which a state has half the numbers, in the forms that are tested: the others are their conjugates."""
CASES = [(name, form.two_way) for name, form in FORMS.items()] + [("dense, tanh", False), ("attention, local", False)]


@functools.cache
def computed(kind: str, slow: bool) -> tuple[dict[Any, Any], Any]:
    """Of all forms of a kind, compiled together: by form and direction, and of the one whose steps are tested."""
    cases = [case for case in CASES if case[0].split(",")[0] == kind and (case[0] in SLOW) == slow]
    cases = [case for case in cases if case[0] != BLOCKWISE]

    def run() -> tuple[dict[Any, Any], Any]:
        found = {case: scanned(*case) for case in cases}
        return found, None if slow or kind == "attention" else in_steps(kind)

    return jax.device_get(jax.jit(run)())


def scanned(name: str, two_way: bool) -> Any:
    with jax.numpy_dtype_promotion("strict"):
        return values_and_gradients(*built(name, two_way), LENGTHS, slopes=name in SLOPES)


@pytest.mark.parametrize(
    ("name", "two_way"),
    [
        pytest.param(
            *(name, way),
            id=name + ", forward" * (not way and FORMS[name].two_way),
            marks=pytest.mark.slow if name in SLOW else (),
        )
        for name, way in CASES
    ],
)
def test_outputs_are_those_of_the_equations(name: str, two_way: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of padded sequences, each of which is computed alone there."""
    form = FORMS[name]
    if name == BLOCKWISE:  # few scores in memory: blocks of a few queries, not all of them full
        monkeypatch.setattr(attention, "SCORES", 3 * 2 * LENGTHS[0] * 3)
        found = jax.jit(lambda: scanned(name, two_way))()
    else:
        found = computed(name.split(",")[0], name in SLOW)[0][name, two_way]

    def reference(p: Any, u: Any) -> np.ndarray:
        y = np.zeros(u.shape)
        for i, length in enumerate(LENGTHS):
            y[:length, i] = form.reference(form.settings, p, u[:length, i], two_way)
        return y

    check_values_and_gradients(found, reference, form.width, LENGTHS)


def inputs(width: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(9, 2, width)).astype(np.float32)


def in_steps(kind: str) -> Any:
    """Parameters, outputs and norms of states step by step, the norms as declared, and the derivative of a step."""
    name = CAUSAL.get(kind, kind)
    width = FORMS[name].width
    recurrence, init = built(name, False)
    leaves, shape = jax.tree.flatten(recurrence.initial_state(1))
    params, u = init(jax.random.key(3, impl="unsafe_rbg")), jnp.asarray(inputs(width))

    def body(x: Any, u_k: Any) -> Any:
        x, y = recurrence.step(params, x, u_k)
        parts = [part.reshape(2, -1) for part in jax.tree.leaves(x) if part.ndim > 1]
        return x, (y, jnp.sqrt(sum(jnp.sum(jnp.square(part), axis=1) for part in parts)))

    def moved(x: Any) -> Any:
        at = np.cumsum([leaf.size for leaf in leaves])[:-1]
        parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(x, at), leaves, strict=True)]
        new, _ = recurrence.step(params, shape.unflatten(parts), jnp.zeros((1, width)))
        return jnp.concatenate([part.ravel() for part in jax.tree.leaves(new)])

    slope = None if kind in WITHOUT else jax.jacobian(moved)(jnp.zeros(sum(leaf.size for leaf in leaves)))
    return params, *jax.lax.scan(body, recurrence.initial_state(2), u)[1], recurrence.norms(params, u), slope


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "attention"])  # whose states grow
def test_steps_norms_and_eigenvalues_are_those_of_one_system(kind: str) -> None:
    """One step after another gives the same outputs; and its states the norms, its derivative the eigenvalues."""
    form = FORMS[CAUSAL.get(kind, kind)]
    params, y, stepped, norms, slope = computed(kind, False)[1]
    for i in range(2):
        wanted = form.reference(form.settings, double(params), inputs(form.width)[:, i].astype(np.float64), False)
        np.testing.assert_allclose(y[:, i], wanted, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(norms, np.asarray(stepped) * (2**0.5 if kind in HALVES else 1), rtol=1e-5)
    found = built(CAUSAL.get(kind, kind), False)[0].spectrum({name: jnp.asarray(x) for name, x in params.items()})
    assert (found is None) == (kind in WITHOUT)
    if found is not None:
        eigenvalues = np.linalg.eigvals(np.asarray(slope, np.float64))
        assert max(np.min(np.abs(eigenvalues - one)) for one in found) < 1e-5


def test_parameters_their_groups_and_variances(golden: Any) -> None:
    """With the variance that is declared behind ~; and no kind is without equations."""
    assert {name.split(",")[0] for name in FORMS} == set(KINDS)
    lines = []
    for name, form in FORMS.items():
        recurrence = recurrences.build(
            form.settings, width=form.width, state=form.state, bidirectional=form.two_way, precision="float32"
        )
        facts = ("causal_only", "init_on_cpu", "bounded", "mixes_sequences")
        flags = [fact for fact in facts if getattr(recurrence, fact)] or ["unbounded"]
        lines.append(f"{name}: H = {form.width}, N = {form.state}, {', '.join(flags)}")
        groups: dict[str, list[str]] = {"recurrent": [], "undecayed": [], "regular": []}
        for path, leaf in sorted(jax.eval_shape(recurrence.init, jax.random.key(0)).items()):
            group = "undecayed" if path in recurrence.undecayed_parameters else "regular"
            group = "recurrent" if path in recurrence.recurrent_parameters else group
            drawn = f" ~ {recurrence.variances[path]:.6g}" if path in recurrence.variances else ""
            groups[group].append(f"{path} {leaf.shape}{drawn}")
        lines += [f"    {group}: {', '.join(found)}" for group, found in groups.items() if found]
    golden("parameters.txt", "\n".join(lines) + "\n")
