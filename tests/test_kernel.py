"""Backend "pallas", interpreted on a CPU, and what is handed to a GPU's compiler. No test runs it on a GPU."""

import re
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.pallas.mosaic_gpu.interpret.interpret_pallas_call import get_races  # jax has no public name for either
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

from lrurun.config import Execution
from lrurun.scan import kernel, linear_scan
from lrurun.strict import convert
from tests.test_scan import close, pair, problem, reference, whole


@pytest.fixture
def interpreted(monkeypatch):
    """Without a GPU. What nothing was written to is NaN, and reads and writes that race fail the test."""
    monkeypatch.setattr(kernel, "INTERPRET", InterpretGPUParams(detect_races=True))
    yield
    assert not get_races().races_found


def scan(lam, v, initial=None, reverse=False):
    return linear_scan(lam, v, reverse=reverse, initial=initial, backend="pallas")


def check(steps, batch, states, reverse, with_initial):
    lam, v, initial, g = problem(steps, batch, states)
    initial = initial if with_initial else np.zeros_like(initial)
    x, dlam, dv, dinitial = reference(lam, v, initial, g, reverse)

    @jax.jit
    def run(lam, v, initial, g):
        found, back = jax.vjp(lambda *a: scan(*a, reverse), lam, v, initial)
        return found, back(g)

    found, gradients = run(pair(lam), pair(v), pair(initial) if with_initial else None, pair(g))
    close(whole(found), x)
    close(whole(gradients[1]), dv)
    if steps > 1 or with_initial:
        close(whole(gradients[0]), dlam, 1e-5)
    if with_initial:
        close(whole(gradients[2]), dinitial)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("steps", "batch", "states", "with_initial"), [(1, 1, 1, True), (16, 2, 64, True), (21, 3, 50, False)]
)
def test_values_and_gradients(strict, interpreted, reverse, steps, batch, states, with_initial):
    check(steps, batch, states, reverse, with_initial)


@pytest.mark.parametrize("reverse", [False, True])
def test_chunks_are_one_sequence(strict, interpreted, monkeypatch, reverse):
    monkeypatch.setattr(kernel, "STEPS", 16)
    assert kernel.chunk_steps(56, 256) == 16
    check(53, 3, 50, reverse, True)  # two blocks of lanes; three chunks of 16 steps and one of 5 and padding


def test_maps_over_models(interpreted, monkeypatch):
    monkeypatch.setattr(kernel, "STEPS", 8)
    problems = [problem(11, seed=seed)[:2] for seed in range(2)]
    lam, v = (tuple(map(jnp.stack, zip(*(pair(p[i]) for p in problems), strict=True))) for i in range(2))
    gradient = jax.grad(lambda lam, v: jnp.sum(scan(lam, v)[0]))
    together = jax.jit(jax.vmap(gradient))(lam, v)
    for i, (lam, v) in enumerate(problems):
        _, dlam, _, _ = reference(lam, v, np.zeros(v.shape[1:]), np.ones(v.shape), False)
        close(np.asarray(together[0][i]) + 1j * np.asarray(together[1][i]), dlam, 1e-5)


def lowered(steps, batch, states):
    """The text of value and gradients for CUDA; it can be made on any machine."""

    def run(lam, v):
        x, back = jax.vjp(scan, lam, v)
        return x, back(x)

    lam, v = ((jax.ShapeDtypeStruct(shape, jnp.float32),) * 2 for shape in ((states,), (steps, batch, states)))
    return jax.jit(run).trace(lam, v).lower(lowering_platforms=("cuda",)).as_text()


def test_lowers_to_one_mosaic_kernel_each_way(monkeypatch):
    monkeypatch.setattr(kernel, "supported", lambda: True)
    text = lowered(1024, 50, 384)
    assert text.count("custom_call @mosaic_gpu_v2") == 2
    over_time = re.findall(r"= (stablehlo\.\w+|call) .*tensor<1024x", text)
    assert set(over_time) == {"stablehlo.custom_call", "stablehlo.reshape"}  # v is read once: no pad, no copy
    assert text.count("bar.sync") == 2  # in each, before buffers that were read are filled again


def test_few_lanes_are_cut_into_chunks(monkeypatch):
    monkeypatch.setattr(kernel, "supported", lambda: True)
    assert lowered(784, 50, 64).count("custom_call @mosaic_gpu_v2") == 6  # each way: ends, from chunk to chunk, states
    steps = kernel.chunk_steps
    assert steps(1024, 8192) == 1024
    assert steps(16_384, 4096) == 4096
    assert steps(16_384, 128) == 128
    assert steps(784, 3200) == 128
    assert steps(1024, 128) == 64
    assert steps(48, 128) == 48


def test_asks_for_a_gpu(monkeypatch):
    lam, v, _, _ = problem(4)
    with pytest.raises(ValueError, match=r"'pallas' needs an NVIDIA GPU.*Hopper.*found cpu.*scan_backend to auto"):
        scan(pair(lam), pair(v))
    for capability, enough in (("8.0", False), ("gfx942", False), ("9.0", True), ("12.1", True)):
        monkeypatch.setattr(
            jax, "devices", lambda capability=capability: [SimpleNamespace(compute_capability=capability)]
        )
        assert kernel.supported() == enough


def test_is_a_setting_that_costs_no_import():
    assert convert({"scan_backend": "pallas"}, Execution, "x").scan_backend == "pallas"
    code = "import sys, lrurun.scan; sys.exit('jax.experimental.pallas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
