"""What single recurrences have beyond the contract of all: memory, pieces, controls, steps of cut kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config import planning
from lrurun.config.recurrences.attention import AttentionSettings
from lrurun.config.recurrences.dss import DSSSettings
from lrurun.config.recurrences.hgrn import HGRNSettings
from lrurun.config.recurrences.min_gru import MinGRUSettings
from lrurun.config.recurrences.rg_lru import RGLRUSettings
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.recurrences.s4d import S4DSettings
from lrurun.config.recurrences.s6 import S6Settings
from lrurun.config.recurrences.sgconv import SGConvSettings
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.nn import recurrences
from lrurun.nn.network import Model
from lrurun.nn.recurrences import Recurrence, attention, gated
from lrurun.training.compiled import Compiled
from tests.harness.loops import double
from tests.harness.state_spaces import zoh
from tests.nn.equations import FORMS, convolved, dlr_kernel, dss_kernel


def noise(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# --- attention ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chunk", "kept"), [(0, [1, 2, 3]), (2, [1, 2, 3, 4, 3])])
def test_the_state_of_attention_is_what_later_steps_see(chunk, kept):
    """Keys and values of all past steps, or of the current and the previous chunk; and its norm is that of `norms`."""
    layer = recurrences.build(AttentionSettings(heads=2, chunk=chunk), width=5, state=12)
    u = noise(len(kept), 2, 5)

    @jax.jit
    def run(u):
        params = layer.init(jax.random.key(3))
        state, found = layer.initial_state(2), []
        for u_k in u:
            state, y = layer.step(params, state, u_k)
            found.append((state, y))
        return found, layer.scan(params, u), layer.norms(params, u)

    found, wanted, norms = jax.device_get(run(u))
    for (state, y), y_k, norm, count in zip(found, wanted, norms, kept, strict=True):
        np.testing.assert_allclose(y, y_k, atol=1e-5)
        assert [part.shape for part in state] == [(2, 2, count, 6)] * 2
        np.testing.assert_allclose(norm, np.sqrt(sum(np.square(x).sum((1, 2, 3)) for x in state)), rtol=1e-5)


def test_attention_at_any_position_of_a_long_sequence():
    """Only differences of positions matter, as angles keep their digits."""
    x, y = noise(2, 1, 1, 1, 8)
    score = lambda at: jnp.sum(attention.rotate(x, at + 3) * attention.rotate(y, at))  # noqa: E731
    late, early = map(float, jax.jit(lambda: (score(2**20), score(0)))())
    assert late == pytest.approx(early, abs=1e-4)
    assert abs(early - np.sum(x * y)) > 0.1


def test_attention_takes_little_memory():
    """At 4,096 steps the scores of a batch of 8 in 4 heads are 2 GiB; chunks longer than the sequence are cut."""
    layer = recurrences.build(AttentionSettings(), width=8, state=8)
    u = jax.ShapeDtypeStruct((4096, 8, 8), jnp.float32)
    params = jax.eval_shape(layer.init, jax.random.key(0))
    compiled = jax.jit(jax.grad(lambda p, u: jnp.sum(layer.scan(p, u)))).lower(params, u).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2**29
    layer = recurrences.build(AttentionSettings(heads=2, chunk=2**16), width=8, state=8)
    both = jax.jit(lambda p, u: (layer.scan(p, u), layer.norms(p, u)))
    compiled = both.lower(params, jax.ShapeDtypeStruct((3, 2, 8), jnp.float32)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2**18


# --- gates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(MinGRUSettings(), id="mingru", marks=pytest.mark.slow),
        pytest.param(MinGRUSettings(form="log-space"), id="mingru in log space", marks=pytest.mark.slow),
        pytest.param(HGRNSettings(), id="hgrn", marks=pytest.mark.slow),
        pytest.param(RGLRUSettings(mixing="dense", gate_blocks=4), id="rg-lru"),
    ],
)
def test_large_states_in_pieces_start_as_they_do_whole(monkeypatch, settings):
    """Seven steps in pieces of three: the state before the first step, and what differs there, are those of step 0."""
    layer = recurrences.build(settings, width=4, state=12)

    @jax.jit
    def run(u):
        params, found = layer.init(jax.random.key(0)), []
        for piece in (gated.PIECE, 3 * 2 * 12):
            monkeypatch.setattr(gated, "PIECE", piece)
            loss = lambda u: jnp.sum(jnp.sin(layer.scan(params, u)))  # noqa: E731
            found.append((jax.value_and_grad(loss)(u), layer.norms(params, u)))
        return found

    whole, pieces = jax.device_get(run(noise(7, 2, 4)))
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5), whole, pieces)


def test_no_more_than_a_piece_of_the_states_of_s6_is_in_memory(monkeypatch):
    monkeypatch.setattr(gated, "PIECE", 3 * 2 * 4 * 16)
    layer = recurrences.build(S6Settings(), width=4, state=16)
    params = jax.eval_shape(layer.init, jax.random.key(0))
    program = jax.make_jaxpr(layer.scan)(params, jax.ShapeDtypeStruct((7, 2, 4), jnp.float32))
    assert (7, 2, 4 * 16) not in {v.aval.shape for e in program.eqns for v in e.outvars}


def test_gates_of_the_controls_of_rg_lru():
    """Shuffled ones are those of another sequence; static ones depend on their biases alone."""
    u, layers = noise(7, 3, 4), {}
    for gates in ("input", "shuffled", "static"):
        layers[gates] = recurrences.build(RGLRUSettings(gates=gates, gate_blocks=2), width=4, state=4)

    @jax.jit
    def run(u):
        params = layers["input"].init(jax.random.key(0))
        return {gates: layer.scan(params, u) for gates, layer in layers.items()}

    first, same, twice = (jax.device_get(run(x)) for x in (u, np.repeat(u[:, :1], 3, axis=1), 2 * u))
    assert np.max(np.abs(first["input"] - first["shuffled"])) > 0.01
    np.testing.assert_allclose(same["input"], same["shuffled"], rtol=1e-6)
    assert [layer.mixes_sequences for layer in layers.values()] == [False, True, False]
    np.testing.assert_allclose(twice["static"], 2 * first["static"], rtol=1e-5)


@pytest.mark.slow
def test_bounds_of_hgrn_rise_from_layer_to_layer():
    """g = l / L at first, and a decay below its bound is impossible: large negative inputs cannot erase."""
    config = ModelConfig(recurrence=HGRNSettings(), depth=2, width=3, state=3)
    model = Model(config, Spec(name="any", kind="features", features=1, classes=2, length=5))
    params, stats = jax.jit(model.init)(jax.random.key(0))
    layers = [params["blocks"][str(i)]["recurrence"] for i in range(2)]
    bounds = [more["bound"] for more in model.recurrence.across(layers)]
    np.testing.assert_allclose(bounds, np.repeat([[0], [0.5]], 3, axis=1), atol=1e-6)
    inputs = jnp.ones((2, 5), jnp.int32)

    @jax.jit
    def slopes(params):
        return jax.grad(lambda p: jnp.sum(model.apply(p, stats, inputs, train=True)[0][:, 0]))(params)["blocks"]

    assert all(np.any(slope["recurrence"]["Gamma"] != 0) for slope in slopes(params).values())
    alone = jax.jit(lambda p: model.recurrence.scan(p, jnp.ones((5, 2, 3))))
    assert not np.allclose(alone(layers[1]), alone(layers[1] | {"bound": bounds[1]}))


# --- kernels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dlr, short product", "dss, short"])
def test_steps_end_with_a_cut_kernel(name):
    """In double precision, one step after the other; and the norms of the states are those of its eigenvalues."""
    form = FORMS[name]
    layer = recurrences.build(form.settings, width=3, state=8)
    params, of = jax.jit(layer.init)(jax.random.key(5)), dss_kernel if name[:3] == "dss" else dlr_kernel
    p, u = double(params), np.random.default_rng(0).normal(size=(21, 2, 3))
    with jax.enable_x64(True):
        start = jax.tree.map(lambda x: x.astype(np.float64), layer.initial_state(2))
        y = jax.jit(lambda u: jax.lax.scan(lambda x, u_k: layer.step(p, x, u_k), start, u)[1])(u)
    for i in range(2):
        np.testing.assert_allclose(y[:, i], convolved([of(form.settings, p, 21)], p, u[:, i]), atol=1e-11)
    if name[:3] == "dlr":
        x, wanted = np.zeros((2, 3, 8), complex), []
        for u_k in u:
            x = layer.spectrum(params) * x + u_k[..., None]
            wanted.append(np.sqrt(np.sum(np.abs(x) ** 2, axis=(1, 2))))
        found = jax.jit(layer.norms)(params, jnp.asarray(u, jnp.float32))
        np.testing.assert_allclose(found, np.stack(wanted), rtol=1e-5)


@pytest.mark.parametrize("kernel_length", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_norms_of_sgconv_are_those_of_the_state_that_steps_have(kernel_length):
    layer = recurrences.build(SGConvSettings(kernel_length=kernel_length), width=5, state=8)

    @jax.jit
    def run(u):
        params = layer.init(jax.random.key(0))
        return layer.norms(params, u), Recurrence.norms(layer, params, u), layer.kernels(params, 25)

    found, wanted, k = jax.device_get(run(noise(25, 2, 5)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert np.all(k[0, :kernel_length] != 0)
    assert not np.any(k[0, kernel_length:])


def test_a_kernel_of_sgconv_without_a_length_takes_that_of_the_task():
    for length, kernel_length, scales in ((50, 0, 4), (100, 0, 5), (50, 400, 7)):
        settings = SGConvSettings(kernel_length=kernel_length)
        config = ModelConfig(recurrence=settings, depth=1, width=4, state=8)
        model = Model(config, Spec(name="any", kind="features", features=1, classes=2, length=length))
        params, _ = jax.eval_shape(model.init, jax.random.key(0))
        assert params["blocks"]["0"]["recurrence"]["w"].shape == (scales, 4, 8)
    with pytest.raises(ValueError, match="kernel_length = 0 is the length of the sequences"):
        recurrences.build(SGConvSettings(), width=5, state=8).init(jax.random.key(0))


def test_the_eigenvalue_zero_of_dss_is_harmless():
    layer = recurrences.build(DSSSettings(), width=3, state=8)

    @jax.jit
    def run(key):
        params = layer.init(key) | {"re_log": jnp.full(8, -80.0), "im": jnp.zeros(8)}
        return params, *jax.value_and_grad(lambda p: jnp.sum(layer.kernels(p, 50) ** 2))(params)

    params, value, gradient = run(jax.random.key(0))
    p = double(params)
    wanted = (np.exp(p["log_dt"]) * p["W_re"].sum(1)) * np.ones((50, 1))
    wanted[0] += p["D"]
    assert value == pytest.approx(np.sum(wanted**2), rel=1e-5)
    assert all(np.all(np.isfinite(g)) for g in gradient.values())


@pytest.mark.slow
def test_a_long_kernel_of_s4d_is_its_sum():
    """16,384 steps of N = 64: against complex128 powers of the eigenvalues that the float32 parameters stand for."""
    length = 16_384
    s4d = recurrences.build(S4DSettings(init="inv", dt_min=1e-4, dt_max=1e-2), width=2, state=64)
    params = jax.jit(s4d.init)(jax.random.key(0))
    params["A_re_log"] = params["A_re_log"] - 4.0  # as after training: decays that end later than the sequence
    kernel = np.asarray(jax.jit(s4d.kernels, static_argnums=1)(params, length))[0]
    p, k = double(params), np.arange(length)
    a = -np.exp(p["A_re_log"]) + 1j * p["A_im"]
    lam, factor = zoh(a, np.exp(p["log_dt"])[:, None])
    wanted = np.einsum("hn,hnk->kh", 2 * (p["C_re"] + 1j * p["C_im"]) * factor, lam[:, :, None] ** k).real
    # Rounding dt a to float32 turns its powers: that much the parameters leave open, to the scan as well.
    assert np.max(np.abs(kernel - wanted - p["D"] * (k == 0)[:, None]) / np.max(np.abs(wanted[1:]), axis=0)) < 2e-3
    nu, theta, b = s4d._system(params)
    exact = np.exp((-np.asarray(nu, np.float64) + 1j * np.asarray(theta, np.float64))[:, :, None] * k)
    weights = 2 * (p["C_re"] + 1j * p["C_im"]) * b.numpy()
    wanted = np.einsum("hn,hnk->kh", weights, exact).real
    wanted[0] += p["D"]
    assert np.max(np.abs(kernel - wanted)) < 3e-6 * np.max(np.sum(np.abs(weights), axis=1))


# --- accelerators ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", ["remapped", "normal"])
def test_what_an_accelerator_lacks_is_declared(draw):
    layer = recurrences.build(RNNSettings(draw=draw), width=16, state=16)
    traced = jax.jit(layer.init).trace(jax.random.key(0))
    assert layer.init_on_cpu == (draw == "remapped")
    if layer.init_on_cpu:
        with pytest.raises(NotImplementedError, match="not found for platform tpu"):
            traced.lower(lowering_platforms=("tpu",))
    else:
        traced.lower(lowering_platforms=("tpu",))


def test_parameters_that_need_the_cpu_are_computed_there(monkeypatch):
    """On a machine with an accelerator, which is simulated by its name."""
    plan, used = planning.make("TeacherStudent", ladder="cells", profile="smoke"), []
    for rung in plan.rungs[:2]:
        compiled = Compiled(rung.config, rung.execution, plan.task.spec(plan.options))
        config = rung.config.model
        initial = compiled.initial(config)
        real = initial._compute

        def init(seeds, real=real):
            used.append(jax.config.jax_default_device)
            return real(seeds)

        wanted = compiled.init(config, np.zeros(1, np.uint32))
        with monkeypatch.context() as patch:
            patch.setattr(jax, "default_backend", lambda: "tpu")
            patch.setattr(initial, "_compute", init)
            found = compiled.init(config, np.zeros(1, np.uint32))
        jax.tree.map(np.testing.assert_array_equal, wanted, found)
    assert plan.rungs[0].config.model.recurrence.draw == "remapped"
    assert used == [jax.local_devices(backend="cpu")[0], None]
