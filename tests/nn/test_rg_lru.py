"""The RG-LRU against plain NumPy in double precision, its initialisations, its controls, and what it refuses."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lrurun.__main__ import run
from lrurun.config.recurrences.rg_lru import RGLRURecurrence
from lrurun.nn import recurrences
from lrurun.nn.recurrences import Recurrence
from tests.harness.loops import check_values_and_gradients, double

SIZE = 4


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gate(p, name, u):
    """sigma(u W + b) with W block-diagonal, (blocks, in, out)."""
    parts = np.split(u, len(p[f"W_{name}"]))
    return sigmoid(np.concatenate([x @ w for x, w in zip(parts, p[f"W_{name}"], strict=True)]) + p[f"b_{name}"])


def reference(settings):
    """Griffin, equations 1 to 4 and appendix B, one sequence and one step after another."""

    def of(p, u):
        y = np.zeros(u.shape)
        for i in range(u.shape[1]):
            x = 0.0
            for k, u_k in enumerate(u[:, i]):
                r = gate(p, "a", u_k) if settings.recurrence_gate else 0.5
                if settings.decay == "sigmoid":
                    a = 1 - r
                elif settings.decay == "exponential":
                    a, middle = (np.exp(-2 * s * np.exp(p["nu_log"])) for s in (r, 0.5))
                else:
                    a, middle = (np.exp(-8 * s * np.log1p(np.exp(p["Lambda"]))) for s in (r, 0.5))
                used = 2 * a - 1 if settings.negative else a
                m = {
                    "sqrt": lambda: np.sqrt(1 - used**2),  # noqa: B023
                    "fixed": lambda: np.sqrt(1 - middle**2),  # noqa: B023
                    "trained": lambda: np.exp(p["gamma_log"]),
                    "complement": lambda: 1 - a,  # noqa: B023
                }[settings.multiplier]()
                if k == 0 and settings.first == "plain":
                    m = 1.0
                i_k = gate(p, "x", u_k) if settings.input_gate else 1.0
                if settings.complex:
                    re, im = np.split(u_k, 2)
                    x = used * np.exp(1j * p["theta"] * r) * x + m * i_k * (re + 1j * im)
                    y[k, i] = np.concatenate([x.real, x.imag])
                    continue
                x = used * x + m * i_k * (p["B"] @ u_k if "B" in p else u_k)
                y[k, i] = p["C"] @ x + p["D"] * u_k if "C" in p else x
        return y

    return of


FORMS = {
    "rg-lru": {"gate_blocks": 2},
    "complex": {"complex": True, "gate_blocks": 2, "first": "normalised"},
    "negative": {"negative": True, "gate_blocks": 4, "first": "normalised"},
    "real LRU": {
        "mixing": "dense",
        "decay": "exponential",
        "recurrence_gate": False,
        "input_gate": False,
        "multiplier": "trained",
    },
    "fixed multiplier": {"multiplier": "fixed", "init": "paper", "gate_blocks": 1},
    "sigmoid": {
        "decay": "sigmoid",
        "multiplier": "complement",
        "input_gate": False,
        "gate_blocks": 1,
        "first": "normalised",
    },
}


QUICK = ("rg-lru", "complex")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FORMS])
def test_values_and_gradients_are_those_of_the_equations(strict, name):
    settings = RGLRURecurrence(**FORMS[name])
    built = recurrences.build(settings, width=SIZE, state=SIZE)
    params = jax.jit(built.init)(jax.random.key(1))
    shift = np.linspace(-0.5, 0.5, SIZE, dtype=np.float32)
    params |= {name: shift[: value.size] for name, value in params.items() if name.startswith("b_")}
    check_values_and_gradients(built, params, reference(settings), [9, 4, 1])


def initial_decay(init):
    """a of a recurrence gate r, from 4,000 features."""
    built = recurrences.build(RGLRURecurrence(init=init), width=4000, state=4000)
    rate = np.log1p(np.exp(double(jax.jit(built.init)(jax.random.key(0)))["Lambda"]))
    return lambda r: np.exp(-8 * r * rate)


def test_the_two_published_initialisations():
    """Medians and shares of long time constants, from the two laws by hand."""
    code, paper = initial_decay("code"), initial_decay("paper")
    assert np.median(code(1)) == pytest.approx(0.668, abs=0.02)
    assert np.median(code(0.5)) == pytest.approx(0.817, abs=0.01)
    assert code(1).min() == pytest.approx(0.430, abs=0.01)
    shares = [np.mean(-1 / np.log(a(0.5)) > steps) for a in (code, paper) for steps in (64, 250)]
    np.testing.assert_allclose(shares, [0.03, 0, 0.30, 0.07], atol=0.02)
    assert 0.9 <= paper(1).min() < paper(1).max() <= 0.999 + 1e-6


def test_the_initial_decays_can_be_those_of_the_other_parametrisation():
    made = {}
    for name, settings in {"exponential": {"decay": "exponential"}, "softplus": {"init": "ring"}}.items():
        fixed = RGLRURecurrence(recurrence_gate=False, input_gate=False, r_min=0.5, r_max=0.99, **settings)
        built = recurrences.build(fixed, width=64, state=64)
        made[name] = built.spectrum(jax.jit(built.init)(jax.random.key(0))).real
    np.testing.assert_allclose(made["softplus"], made["exponential"], rtol=1e-5)
    assert 0.5 <= made["softplus"].min() < 0.7 < 0.95 < made["softplus"].max() <= 0.99


def block_diagonal(blocks):
    """(1, in, out) of blocks (count, in / count, out / count)."""
    rows = [np.hstack([block if i == j else 0 * block for j in range(len(blocks))]) for i, block in enumerate(blocks)]
    return np.vstack(rows)[None]


def test_block_diagonal_gates_are_dense_ones_with_a_block_diagonal_matrix():
    blocked, dense = (recurrences.build(RGLRURecurrence(gate_blocks=n), width=32, state=32) for n in (4, 1))
    params = jax.jit(blocked.init)(jax.random.key(0))
    maps = {name: np.asarray(params[name]) for name in ("W_a", "W_x")}
    assert {name: value.shape for name, value in maps.items()} == {"W_a": (4, 8, 8), "W_x": (4, 8, 8)}
    u = np.random.default_rng(0).normal(size=(9, 2, 32)).astype(np.float32)
    same = dense.scan(params | {name: block_diagonal(value) for name, value in maps.items()}, u)
    np.testing.assert_allclose(blocked.scan(params, u), same, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("settings", "blocks", "variance"), [({}, 16, 1 / 4), ({"gate_fan": "width"}, 16, 1 / 64)])
def test_gates_have_sixteen_blocks_and_the_variance_of_their_fan_in(settings, blocks, variance):
    built = recurrences.build(RGLRURecurrence(**settings), width=64, state=64)
    params = jax.jit(built.init)(jax.random.key(0))
    weights = [np.asarray(params[name]) for name in ("W_a", "W_x")]
    assert [value.size for value in weights] == [64 * 64 // blocks] * 2
    assert np.var(weights) == pytest.approx(variance, rel=0.2)


def test_the_control_with_shuffled_gates_sees_the_gates_of_another_sequence():
    both = [
        recurrences.build(RGLRURecurrence(gates=gates, gate_blocks=2), width=SIZE, state=SIZE)
        for gates in ("input", "shuffled")
    ]
    params, u = both[0].init(jax.random.key(0)), np.random.default_rng(0).normal(size=(7, 3, SIZE)).astype(np.float32)
    same = np.repeat(u[:, :1], 3, axis=1)
    one, two = (np.asarray(built.scan(params, u)) for built in both)
    assert np.max(np.abs(one - two)) > 0.01
    np.testing.assert_array_equal(*(built.scan(params, same) for built in both))
    assert isinstance(both[1], Recurrence)
    assert both[1].mixes_sequences


def test_static_gates_depend_on_their_biases_alone():
    built = recurrences.build(RGLRURecurrence(gates="static", gate_blocks=2), width=SIZE, state=SIZE)
    params, u = built.init(jax.random.key(0)), np.random.default_rng(0).normal(size=(7, 1, SIZE)).astype(np.float32)
    doubled = built.scan(params, 2 * u)
    np.testing.assert_allclose(doubled, 2 * np.asarray(built.scan(params, u)), rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.state=48"], "needs state = width (times expand with a branch), found state = 48, width = 64"),
        (["model.recurrence.gate_blocks=5"], "found gate_blocks = 5, width = 64, gates = 64"),
        (
            ["model.state=24", "model.width=24"],
            "gate_blocks must divide the width and the number of gates, found gate_blocks = 16",
        ),
        (["model.recurrence.decay=sigmoid"], 'found "fixed"'),
        (["model.recurrence.complex=true", "model.recurrence.negative=true"], "negative = true"),
        (["model.bidirectional=true"], "causal only"),
    ],
)
def test_refuses_settings_that_do_not_fit(capsys, tmp_path, settings, said):
    file = tmp_path / "one.toml"
    file.write_text(
        'name = "one"\ntitle = "one"\nsource = "ours"\n[[rung]]\nname = "a"\ntitle = "a"\n'
        'change = { "model.recurrence.kind" = "rg-lru", "model.recurrence.multiplier" = "fixed" }\n'
    )
    sets = [part for one in ["model.width=64", "model.state=64", *settings] for part in ("--set", one)]
    assert run(["plan", "sDigits", "--ladder", str(file), *sets]) == 2
    found = " ".join(capsys.readouterr().err.split())
    assert said in found
    assert "error:" in found
    assert "hint:" in found
