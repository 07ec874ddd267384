"""Every recurrence against the equations of its paper in double precision; a new one is tested by a line of `FORMS`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.recurrences import KINDS
from lrurun.nn import recurrences
from lrurun.nn.recurrences import Recurrence, attention
from tests.harness.loops import check_values_and_gradients, double
from tests.nn.equations import FORMS

LENGTHS = [14, 6, 1]
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
def test_outputs_are_those_of_the_equations(
    strict: None, name: str, two_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of padded sequences, each of which is computed alone there."""
    form = FORMS[name]
    if name == "attention, local":  # few scores in memory: blocks of a few queries, not all of them full
        monkeypatch.setattr(attention, "SCORES", 3 * 2 * LENGTHS[0] * 3)
    recurrence, init = built(name, two_way)

    def reference(p: Any, u: Any) -> np.ndarray:
        y = np.zeros(u.shape)
        for i, length in enumerate(LENGTHS):
            y[:length, i] = form.reference(form.settings, p, u[:length, i], two_way)
        return y

    check_values_and_gradients(recurrence, init, reference, LENGTHS, slopes=name in SLOPES)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "attention"])  # whose states grow
def test_steps_norms_and_eigenvalues_are_those_of_one_system(kind: str) -> None:
    """One step after another gives the same outputs; and its states the norms, its derivative the eigenvalues."""
    name = CAUSAL.get(kind, kind)
    form = FORMS[name]
    recurrence, init = built(name, False)
    leaves, shape = jax.tree.flatten(recurrence.initial_state(1))
    size = sum(leaf.size for leaf in leaves)
    u = np.random.default_rng(0).normal(size=(9, 2, form.width)).astype(np.float32)

    def run(u: Any) -> Any:
        params = init(jax.random.key(3))

        def body(x: Any, u_k: Any) -> Any:
            x, y = recurrence.step(params, x, u_k)
            parts = [part.reshape(2, -1) for part in jax.tree.leaves(x) if part.ndim > 1]
            return x, (y, jnp.sqrt(sum(jnp.sum(jnp.square(part), axis=1) for part in parts)))

        def moved(x: Any) -> Any:
            at = np.cumsum([leaf.size for leaf in leaves])[:-1]
            parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(x, at), leaves, strict=True)]
            new, _ = recurrence.step(params, shape.unflatten(parts), jnp.zeros((1, form.width)))
            return jnp.concatenate([part.ravel() for part in jax.tree.leaves(new)])

        slope = None if kind in WITHOUT else jax.jacobian(moved)(jnp.zeros(size))
        return params, *jax.lax.scan(body, recurrence.initial_state(2), u)[1], recurrence.norms(params, u), slope

    params, y, stepped, norms, slope = jax.jit(run)(u)
    for i in range(2):
        wanted = form.reference(form.settings, double(params), u[:, i].astype(np.float64), False)
        np.testing.assert_allclose(y[:, i], wanted, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(norms, np.asarray(stepped) * (2**0.5 if kind in HALVES else 1), rtol=1e-5)
    found = recurrence.spectrum(params)
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
