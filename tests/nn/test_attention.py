"""Attention against loops over queries in double precision; its state, parameters, refusals, and a ladder with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.recurrences.attention import AttentionRecurrence
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.decoding import convert
from lrurun.errors import UsageError
from lrurun.nn import recurrences
from lrurun.nn.network import Model
from lrurun.nn.recurrences import attention
from tests.harness.loops import check_values_and_gradients, double

WIDTH, STATE, STEPS = 5, 12, 13
LENGTHS = [STEPS, 7, 1]
MASK = np.arange(STEPS)[:, None] < np.array(LENGTHS)
KINDS = {
    "rotary": AttentionRecurrence(heads=2),
    "one head": AttentionRecurrence(heads=1),
    "no positions": AttentionRecurrence(heads=3, positions="none"),
    "local": AttentionRecurrence(heads=2, chunk=4),
    "local, one step": AttentionRecurrence(heads=2, chunk=1),
    "local, longer than the sequence": AttentionRecurrence(heads=2, chunk=100),
}


def built(settings, bidirectional=False):
    """The layer, and parameters whose biases are not zero, as after training."""
    layer = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
    params = jax.jit(layer.init)(jax.random.key(3))
    rng = np.random.default_rng(4)
    return layer, {
        name: jnp.asarray(rng.normal(size=x.shape), jnp.float32) if name[:2] == "b_" else x
        for name, x in params.items()
    }


def reference(settings, p, u, lengths, bidirectional):
    """Outputs of each sequence by itself, query by query, from float64 parameters; zero in the padding."""
    size = STATE // settings.heads
    y = np.zeros(u.shape)
    for i, length in enumerate(lengths):
        for at in range(length):
            sums = []
            for head in range(settings.heads):
                rows = slice(head * size, (head + 1) * size)

                def number(name, k, rows=rows, i=i):
                    return p[name][rows] @ u[k, i] + p.get(f"b_{name}", np.zeros(STATE))[rows]

                def turned(name, k, number=number):
                    x = number(name, k)
                    z = x[: size // 2] + 1j * x[size // 2 :] if settings.positions == "rotary" else x
                    rates = 10000.0 ** (-2 * np.arange(size // 2) / size) if settings.positions == "rotary" else 0.0
                    return z * np.exp(1j * k * rates)

                chunk = settings.chunk or length
                seen = [k for k in range(length) if (bidirectional or k <= at) and abs(k // chunk - at // chunk) <= 1]
                scores = np.array([(turned("Q", at) * turned("K", k).conj()).real.sum() for k in seen]) / np.sqrt(size)
                share = np.exp(scores - scores.max())
                sums.append(sum(s * number("V", k) for s, k in zip(share / share.sum(), seen, strict=True)))
            y[at, i] = p["O"] @ np.concatenate(sums) + p["b_O"]
    return y


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    """With few scores in memory, blocks of one, two or more queries, not all of them full."""
    if request.param == "many blocks":
        monkeypatch.setattr(attention, "SCORES", 3 * 2 * STEPS * 3)


@pytest.mark.parametrize(
    ("kind", "bidirectional"),
    [(kind, way) for kind in KINDS for way in (False, True) if way or kind in ("rotary", "local")],
)
def test_values(strict, blocks, kind, bidirectional):
    layer, params = built(KINDS[kind], bidirectional)
    u = np.asarray(np.random.default_rng(0).normal(size=(STEPS, 3, WIDTH)), np.float32)
    y = np.asarray(jax.jit(layer.scan)(params, u, MASK))
    wanted = reference(KINDS[kind], double(params), u.astype(np.float64), LENGTHS, bidirectional)
    np.testing.assert_allclose(y[MASK], wanted[MASK], atol=1e-5 * np.max(np.abs(wanted)))
    if bidirectional:
        return
    np.testing.assert_allclose(np.asarray(jax.jit(layer.scan)(params, u))[MASK], y[MASK], atol=1e-6)


@pytest.mark.parametrize(("kind", "bidirectional"), [("rotary", False), ("local", True)])
def test_gradients(strict, blocks, kind, bidirectional):
    layer, params = built(KINDS[kind], bidirectional)
    check_values_and_gradients(
        layer, params, lambda p, u: reference(KINDS[kind], p, u, LENGTHS, bidirectional), LENGTHS
    )


@pytest.mark.parametrize(("chunk", "kept"), [(0, [1, 2, 3]), (2, [1, 2, 3, 4, 3, 4])])
def test_the_state_is_what_later_steps_see(chunk, kept):
    """Keys and values of all past steps, or of the current and the previous chunk; and its norm is that of `norms`."""
    layer, params = built(AttentionRecurrence(heads=2, chunk=chunk))
    u = np.asarray(np.random.default_rng(0).normal(size=(len(kept), 2, WIDTH)), np.float32)
    wanted, step = np.asarray(jax.jit(layer.scan)(params, u)), jax.jit(layer.step)
    state, norms = layer.initial_state(2), []
    for u_k, y_k, count in zip(u, wanted, kept, strict=True):
        state, y = step(params, state, u_k)
        np.testing.assert_allclose(y, y_k, atol=1e-5)
        assert [part.shape for part in state] == [(2, 2, count, 6)] * 2
        norms.append(np.sqrt(sum(np.sum(np.square(part), axis=(1, 2, 3)) for part in state)))
    np.testing.assert_allclose(jax.jit(layer.norms)(params, u), norms, rtol=1e-5)


def test_chunks_longer_than_the_sequence_take_no_memory():
    u = np.ones((3, 2, WIDTH), np.float32)
    layer, params = built(AttentionRecurrence(heads=2, chunk=2**16))
    for function in (layer.scan, layer.norms):
        compiled = jax.jit(function).lower(params, u).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < 2**18


def test_only_differences_of_positions_matter():
    """At any position in a long sequence: angles keep their digits."""
    x, y = (jax.random.normal(jax.random.key(k), (1, 1, 1, 8), jnp.float32) for k in (0, 1))

    def score(at):
        return float(jnp.sum(attention.rotate(x, at + 3) * attention.rotate(y, at)))

    assert score(2**20) == pytest.approx(score(0), abs=1e-4)
    assert abs(score(0) - float(jnp.sum(x * y))) > 0.1


def test_long_sequences_need_no_scores_of_all_steps_by_all_steps():
    """At 4,096 steps those of a batch of 8 in 4 heads are 2 GiB, and training would keep them all."""
    layer = recurrences.build(AttentionRecurrence(), width=8, state=8)
    u = jax.ShapeDtypeStruct((4096, 8, 8), jnp.float32)
    params = jax.eval_shape(layer.init, jax.random.key(0))
    compiled = jax.jit(jax.grad(lambda p, u: jnp.sum(layer.scan(p, u)))).lower(params, u).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2**29


def test_parameters_and_groups():
    layer, params = built(AttentionRecurrence(heads=2))
    n, h = (STATE,), (WIDTH,)
    assert {name: x.shape for name, x in params.items()} == {
        **dict.fromkeys("QKV", n + h),
        "O": h + n,
        **dict.fromkeys(("b_Q", "b_K", "b_V"), n),
        "b_O": h,
    }
    assert layer.recurrent_parameters == set()
    assert layer.spectrum(params) is None
    assert set(params) - set(built(AttentionRecurrence(heads=2, positions="none"))[1]) == {"b_K"}
    assert not np.any(layer.init(jax.random.key(0))["b_O"])


@pytest.mark.parametrize(("blocks", "published"), [(1, 83), (2, 166)])
def test_as_many_parameters_as_published(blocks, published):
    """Thousands, table 1 of Gupta et al. 2023: H = 128, in a block with one dense map, for 3 features and 1 output."""
    config = ModelConfig(recurrence=AttentionRecurrence(), depth=blocks, width=128, state=128, glu="half", norm="layer")
    model = Model(config, Spec(name="any", kind="features", features=3, classes=1, length=16))
    assert model.count(jax.eval_shape(model.init, jax.random.key(0))[0]) // 1000 == published


@pytest.mark.parametrize(
    ("recurrence", "state", "rule"),
    [
        ({"heads": 5}, 12, "heads must divide state, found heads = 5, state = 12"),
        ({}, 12, 'positions = "rotary" needs heads of an even size, state / heads, found heads = 4, state = 12'),
        ({"heads": 0}, 12, "heads"),
        ({"chunk": -1}, 16, "chunk"),
        ({"positions": "learned"}, 16, "positions"),
    ],
)
def test_what_does_not_fit_is_refused(recurrence, state, rule):
    table = {"recurrence": {"kind": "attention", **recurrence}, "depth": 1, "width": 6, "state": state}
    with pytest.raises(UsageError) as raised:
        convert(table, ModelConfig[AttentionRecurrence], "a test")
    assert rule in str(raised.value)
    fits = {**table, "recurrence": {"kind": "attention", "positions": "none"}, "state": 12}
    assert convert(fits, ModelConfig[AttentionRecurrence], "a test").state == 12


LADDER = """
name = "near-and-far"
title = "attention to all steps or to the chunks nearby"
source = "ours"

[[rung]]
name = "lru"
title = "LRU"
change = { "model.recurrence.kind" = "diagonal", "model.recurrence.normalize" = true }

[[rung]]
name = "attention"
title = "attention"
change = { "model.recurrence.kind" = "attention" }

[[rung]]
name = "local-attention"
title = "local attention"
change = { "model.recurrence.chunk" = 16 }
"""


@pytest.mark.rare
def test_a_ladder_with_attention_from_file_to_report(machine):
    (machine.folder / "near.toml").write_text(LADDER)
    arguments = ("sDigits", "--profile", "smoke", "--ladder", "near.toml")
    machine.run("check", "ladder", "near.toml")
    machine.run("ladder", *arguments)
    rows = {row["rung"]: row for row in machine.json("report", *arguments)["rows"]}
    assert {name: row["n"] for name, row in rows.items()} == {"lru": 1, "attention": 1, "local-attention": 1}
    assert rows["attention"]["parameters"] == rows["local-attention"]["parameters"]
    assert rows["attention"]["mean"] != rows["local-attention"]["mean"]
    runs = {run["rung"]: run["id"] for run in machine.json("runs")["runs"]}
    shown = machine.json("show", runs["local-attention"])["config"]["model"]["recurrence"]
    assert shown == {"kind": "attention", "heads": 4, "chunk": 16, "positions": "rotary"}
    page = machine.folder / "page.html"
    machine.run("report", *arguments, "--format", "html", "--out", "page.html")
    assert "local attention" in page.read_text()
    failed = machine.run("ladder", *arguments, "--set", "model.state=10", code=2)
    assert "heads must divide state, found heads = 4, state = 10" in failed.stderr
