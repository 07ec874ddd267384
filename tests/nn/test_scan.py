"""linear_scan and what it is made of: every form against the sum it stands for, in double precision."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.nn.blocks import Blocks, Columns
from lrurun.nn.complex import Complex, Packed
from lrurun.nn.products import product
from lrurun.nn.scan import chunk_count, linear_scan, resolve, split
from lrurun.nn.scan.in_place import scan_in_place

BACKENDS = ["sequential", "chunked", "associative"]


def single(z, real=False):
    pair = Complex(jnp.asarray(z.real, jnp.float32), jnp.asarray(z.imag, jnp.float32))
    return pair.real if real else pair


def whole(z):
    z = z.numbers if isinstance(z, Packed) else z
    return z.numpy() if isinstance(z, Complex) else np.asarray(z)


def problem(steps, batch=3, states=5, seed=0):
    """lambda, v, initial state and a cotangent, complex128 with float32 values."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64).astype(np.complex128)

    lam = rng.uniform(0.3, 0.999, states) * np.exp(2j * np.pi * rng.uniform(size=states))
    lam = lam.astype(np.complex64).astype(np.complex128)
    return lam, normal(steps, batch, states), normal(batch, states), normal(steps, batch, states)


def reference(lam, v, initial, g, reverse):
    """Values and gradients of sum Re(conj(g) x) from x_k = lam^(k+1) x_0 + sum_j lam^(k-j) v_j, without recursion."""
    if reverse:
        v, g = v[::-1], g[::-1]
    steps = len(v)
    lag = np.arange(steps)[:, None] - np.arange(steps)[None, :]
    power = np.where(lag[..., None] >= 0, lam ** np.maximum(lag, 0)[..., None], 0)
    slope = np.where(lag[..., None] >= 1, lag[..., None] * lam ** np.maximum(lag - 1, 0)[..., None], 0)
    k = np.arange(1, steps + 1)[:, None]
    x = np.einsum("kjn,jbn->kbn", power, v) + (lam**k)[:, None] * initial
    moved = np.einsum("kjn,jbn->kbn", slope, v) + (k * lam ** (k - 1))[:, None] * initial
    dlam = np.sum(np.conj(moved) * g, axis=(0, 1))
    dv = np.einsum("kjn,kbn->jbn", np.conj(power), g)
    dinitial = np.sum(np.conj(lam**k)[:, None] * g, axis=0)
    return (x[::-1], dlam, dv[::-1], dinitial) if reverse else (x, dlam, dv, dinitial)


def close(found, wanted, tolerance=2e-6):
    error = np.max(np.abs(whole(found) - wanted)) / np.max(np.abs(wanted))
    assert error < tolerance, error


def with_gradients(scan):
    """States, and gradients for a cotangent."""

    def run(g, *arguments):
        states, back = jax.vjp(scan, *arguments)
        return states, *back(g)

    return jax.jit(run)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(37, 3, 5), pytest.param((48, 1, 2), marks=pytest.mark.slow), (1, 3, 1)], ids=str)
def test_values_and_gradients(strict, shape, packed):
    """With an initial state; lengths that nothing divides, and one that chunks do; and one step."""
    lam, v, initial, g = problem(shape[0], batch=shape[1], states=shape[2])

    @jax.jit
    def run(g, lam, v, initial):
        found = {}
        for backend in BACKENDS:
            for reverse in (False, True):
                scan = partial(linear_scan, reverse=reverse, backend=backend)
                found[backend, reverse] = with_gradients(lambda a, b, x, s=scan: s(a, b, initial=x))(g, lam, v, initial)
        return found, {backend: linear_scan(lam, v, backend=backend) for backend in BACKENDS}

    numbers = [Packed.of(single(z)) if packed else single(z) for z in (g, lam, v, initial)]
    scanned, from_zero = run(*numbers)
    for (_, reverse), found in scanned.items():
        wanted = reference(lam, v, initial, g, reverse)
        for one, two, error in zip(found, wanted, (2e-6, 1e-5, 2e-6, 2e-6), strict=True):
            close(one, two, error)
    wanted = reference(lam, v, 0 * initial, g, False)[0]
    for found in from_zero.values():
        close(found, wanted)


@pytest.mark.parametrize(
    ("backend", "forward", "backward"),
    [
        ("sequential", 5e-5, 1.5e-4),
        ("chunked", 1e-3, 3e-3),
        pytest.param("associative", 1e-3, 3e-3, marks=pytest.mark.slow),  # its many levels compile slowly
    ],
)
def test_long_slow_memory(backend, forward, backward):
    """16,384 steps at |lambda| = 0.9999: errors of states in their own rms, of dlambda in its size, worst of states."""
    lam, v, _, g = problem(16_384, batch=1, states=8)
    lam = (0.9999 * lam / np.abs(lam)).astype(np.complex64).astype(np.complex128)
    x, w, dlam = np.zeros_like(v), np.zeros_like(v), 0
    for k in range(len(v)):
        x[k] = lam * x[k - 1] + v[k] if k else v[k]
    for k in reversed(range(len(v))):
        w[k] = g[k] + np.conj(lam) * w[k + 1] if k + 1 < len(v) else g[k]
        dlam = dlam + (w[k] * np.conj(x[k - 1])).sum(0) if k else dlam
    found, gradient, _ = with_gradients(partial(linear_scan, backend=backend))(*map(single, (g, lam, v)))
    rms = np.sqrt(np.mean(np.abs(x) ** 2, axis=(0, 1)))
    errors = np.max(np.abs(whole(found) - x) / rms), np.max(np.abs(whole(gradient) - dlam) / np.abs(dlam))
    assert errors[0] < forward, errors
    assert errors[1] < backward, errors


def test_outside_the_unit_disk_states_grow_as_they_should(strict):
    """|lambda| = 1.1: exact while float32 can hold it, then infinite or not a number, and never anything else.

    Neither the other state nor one in another sequence notices, nor do they notice an input that is no number.
    """
    lam = np.array([1.1 + 0j, 0.5 + 0j])
    v = np.ones((2048, 2, 2), np.complex128)
    v[1000, 1, 1] = np.nan
    wanted = np.array([1.1 ** np.arange(1, 301) - 1, 0.5 ** np.arange(1, 301) - 1]).T / np.array([0.1, -0.5])
    for x in jax.jit(lambda a, b: [linear_scan(a, b, backend=backend) for backend in BACKENDS])(single(lam), single(v)):
        re, im = np.asarray(x.real), np.asarray(x.imag)
        np.testing.assert_allclose(re[:300, 0], wanted, rtol=2e-4)
        assert not np.isfinite(re[1500:, 0, 0]).any()
        np.testing.assert_allclose(re[1500:, 0, 1], 2, rtol=1e-5)
        np.testing.assert_array_equal(im[:, 0, 1], 0)
        assert np.isnan(re[1000:, 1, 1]).all()
        np.testing.assert_allclose(re[300:1000, 1, 1], 2, rtol=1e-5)
        np.testing.assert_array_equal(re[:, 1, 0], re[:, 0, 0])


def test_models_are_mapped_and_nothing_is_kept_but_a_and_the_states():
    problems = [problem(9, seed=seed)[:2] for seed in range(2)]
    lam, v = (single(np.stack([p[i] for p in problems])) for i in range(2))

    @jax.jit
    def run(lam, v):
        gradients = [jax.grad(lambda lam, v, b=b: jnp.sum(linear_scan(lam, v, backend=b).real)) for b in BACKENDS]
        return [jax.vmap(gradient)(lam, v) for gradient in gradients]

    for backend, together in zip(BACKENDS, run(lam, v), strict=True):
        for i, (one, other) in enumerate(problems):
            alone = reference(one, other, np.zeros((3, 5)), np.ones((9, 3, 5)), False)[1]
            np.testing.assert_allclose(together.numpy()[i], alone, rtol=1e-4, atol=1e-4)
        for a, real in ((problems[0][0], False), (problems[0][1], False), (problems[0][1], True)):
            b = problems[0][1]
            scan = partial(linear_scan, backend=backend)
            kept = sum(x.size for x in jax.tree.leaves(jax.eval_shape(
                lambda a, b, scan=scan: jax.vjp(scan, a, b)[1], single(a, real), single(b, real))))  # fmt: skip
            assert kept == (1 if real else 2) * (a.size + b.size)


# --- transitions that vary ---------------------------------------------------------------------------------------


def varying(steps, real, batch=3, states=5, radius=(0.3, 0.999)):
    """a, b, initial state and a cotangent, complex128 with float32 values; and where the state is reset."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        z = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64).astype(np.complex128)
        return z.real.astype(np.complex128) if real else z

    a = rng.uniform(*radius, (steps, batch, states)) * (1 if real else np.exp(2j * np.pi * rng.uniform(size=states)))
    a = a.astype(np.complex64).astype(np.complex128)
    drive, start, g = normal(steps, batch, states), normal(batch, states), normal(steps, batch, states)
    return a, drive, start, g, rng.uniform(size=(steps, batch)) < 0.1


def in_steps(a, b, initial, g, reset):
    """States, and gradients of sum Re(conj(g) x) with respect to a, b and the initial state, one step after another."""
    kept = np.where(reset[..., None], 0, a)
    x, d, da = np.zeros_like(b), np.zeros_like(b), np.zeros_like(a)
    for k in range(len(b)):
        x[k] = kept[k] * (x[k - 1] if k else initial) + b[k]
    for k in reversed(range(len(b))):
        d[k] = g[k] + (np.conj(kept[k + 1]) * d[k + 1] if k + 1 < len(b) else 0)
        da[k] = np.where(reset[k][..., None], 0, d[k] * np.conj(x[k - 1] if k else initial))
    return x, da, d, np.conj(kept[0]) * d[0]


@pytest.mark.parametrize(("steps", "real"), [(48, True), (37, False), (1, True)])
def test_transitions_that_vary_and_resets(strict, real, steps):
    a, b, initial, g, reset = varying(steps, real)

    @jax.jit
    def run(*arrays):
        scans = [partial(linear_scan, reset=jnp.asarray(reset), backend=backend) for backend in BACKENDS]
        return [with_gradients(lambda a, b, x, s=scan: s(a, b, initial=x))(*arrays) for scan in scans]

    wanted = in_steps(a, b, initial, g, reset)
    for found in run(*(single(z, real) for z in (g, a, b, initial))):
        for one, two in zip(found, wanted, strict=True):
            close(one, two, 5e-6)


@pytest.mark.parametrize(("backend", "tolerance"), [("sequential", 1e-4), ("chunked", 1e-3)])
@pytest.mark.parametrize("radius", [pytest.param((0.9999, 0.99999), marks=pytest.mark.slow), (0.2, 0.5)], ids=str)
def test_long_sequences_of_varying_transitions(backend, tolerance, radius):
    """16,384 steps: slow decays, and fast ones, whose product underflows after some dozens of steps."""
    a, b, initial, g, reset = varying(16_384, True, batch=1, states=4, radius=radius)
    wanted = in_steps(a, b, 0 * initial, g, np.zeros_like(reset))
    found = with_gradients(partial(linear_scan, backend=backend))(*(single(z, True) for z in (g, a, b)))
    for one, two in zip(found, wanted[:3], strict=True):
        assert np.max(np.abs(one - two) / np.sqrt(np.mean(np.abs(two) ** 2))) < tolerance


# --- chunks side by side, and the choice of a form ---------------------------------------------------------------


@pytest.mark.parametrize(("chunks", "reverse"), [(3, False), (3, True), (12, False)])
def test_chunks_side_by_side_are_one_sequence(strict, chunks, reverse):
    lam, v, initial, g = problem(12)
    run = with_gradients(lambda a, b, x: linear_scan(a, b, reverse=reverse, initial=x))
    states, dlam, dv, dinitial = run(split(single(g), chunks), single(lam), split(single(v), chunks), single(initial))
    assert states.shape == (12 // chunks, chunks, 3, 5)

    def joined(x):
        return np.concatenate([whole(x)[:, k] for k in range(chunks)])

    found = joined(states), dlam, joined(dv), dinitial
    for one, two, error in zip(found, reference(lam, v, initial, g, reverse), (2e-6, 1e-5, 2e-6, 2e-6), strict=True):
        close(one, two, error)
    if chunks == 3 and not reverse:
        a, b, initial, g, reset = varying(12, True)
        of_all = in_steps(a, b, initial, g, np.zeros_like(reset))
        found = run(*(split(single(z, True), chunks) for z in (g, a, b)), single(initial, True))
        for one, two in zip((*map(joined, found[:3]), found[3]), of_all, strict=True):
            close(one, two, 5e-6)


def test_the_form_of_the_scan_on_cpus_and_elsewhere(monkeypatch):
    """Chunks are for few numbers a step, and no shorter than 64 steps."""
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert resolve("auto") == "sequential"
    assert chunk_count(16_384, 256, "auto") == 16
    assert chunk_count(16_384, 1, "auto") == 256
    assert chunk_count(16_384, 512, "auto") == chunk_count(64, 16, "auto") == 1
    assert chunk_count(1023, 16, "auto") == 1
    assert chunk_count(2000, 16, "auto") == 16  # 2000 = 16 * 125
    assert chunk_count(16_384, 256, "sequential") == chunk_count(16_384, 256, "associative") == 1
    assert chunk_count(1024, 64 * 64, "chunked") == 32
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert resolve("auto") == "associative"
    assert chunk_count(16_384, 256, "auto") == 1


def test_refuses_what_does_not_fit():
    lam, v, initial, _ = problem(4)
    reset = jnp.zeros((4, 3), bool)
    lam, v, initial = single(lam), single(v), single(initial)
    for a, b, others, rule in (
        (lam, v, {"backend": "other"}, "auto, sequential, chunked, associative, found 'other'"),
        (lam, initial, {}, r"^b must be \(T, B, N\) with T > 0, found \[\(3, 5\)\]"),
        (lam, single(np.zeros((0, 3, 5))), {}, "^b must be"),
        (single(np.zeros(2)), v, {}, r"^a must be \(5,\), or \(4, 3, 5\) as b, found \[\(2,\)\]"),
        (v.real[:2], v.real, {}, "^a must be"),
        (lam.real, v, {}, "^a and b must be both real or both Complex"),
        (lam, v.real, {}, "^a and b must be both real or both Complex"),
        (v.real[0, 0], Packed(v.real), {}, "^a and b must be both real or both Complex"),
        (lam, v, {"initial": single(np.zeros((1, 5)))}, r"^initial must be \(3, 5\), found \[\(1, 5\)\]"),
        (lam, v, {"reset": reset}, "^reset must be"),
        (v, v, {"reset": reset[:2]}, "^reset must be"),
        (v, v, {"reverse": True}, "^reverse needs an a that is the same at every step"),
    ):
        with pytest.raises(ValueError, match=rule):
            linear_scan(a, b, **others)


# --- blocks, products, loops -------------------------------------------------------------------------------------


def test_scans_of_block_diagonal_matrices():
    rng = np.random.default_rng(0)
    a, v = 0.5 * rng.normal(size=(6, 2, 2)), rng.normal(size=(7, 3, 6, 2))
    blocks = Blocks(*jnp.asarray(a.reshape(6, 4).T, jnp.float32))
    columns = Columns(*(jnp.asarray(v[..., i], jnp.float32) for i in (0, 1)))
    ways = [(backend, reverse) for backend in BACKENDS for reverse in (False, True)]
    scanned = jax.jit(lambda a, b: [linear_scan(a, b, reverse=way, backend=name) for name, way in ways])(
        blocks, columns
    )
    for (_, reverse), found in zip(ways, scanned, strict=True):
        wanted, x = np.zeros_like(v), np.zeros((3, 6, 2))
        for k in reversed(range(7)) if reverse else range(7):
            x = wanted[k] = np.einsum("nij,bnj->bni", a, x) + v[k]
        np.testing.assert_allclose(found.first, wanted[..., 0], atol=2e-6 * np.max(np.abs(wanted)))
        np.testing.assert_allclose(found.second, wanted[..., 1], atol=2e-6 * np.max(np.abs(wanted)))


@pytest.mark.parametrize(
    ("shape", "columns", "flatten"),
    [((6, 4, 2), 5, True), ((6, 4, 2), 11, True), ((6, 4, 2), 5, False), ((0, 3), 5, True)],
    ids=str,
)
def test_products_and_gradients(shape, columns, flatten):
    random = np.random.RandomState(0)
    x, w, g = (random.standard_normal(size) for size in ((*shape, 8), (8, columns), (*shape, columns)))
    small = [jnp.asarray(array, jnp.float32) for array in (g, x, w)]
    errors = {"float32": 1e-5, "tf32": 1e-2, "bf16": 5e-2}

    @jax.jit
    def run(g, x, w):
        return [with_gradients(lambda x, w, p=p: product(x, w, p, flatten=flatten))(g, x, w) for p in errors]

    for error, found in zip(errors.values(), run(*small), strict=True):
        wanted = x @ w, g @ w.T, np.einsum("mk,mn->kn", x.reshape(-1, 8), g.reshape(-1, columns))
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == jnp.float32
            np.testing.assert_allclose(one, other, atol=error * 8)


@pytest.mark.parametrize("length", [1, 6])
def test_the_loop_in_place_is_a_scan(length):
    random = np.random.RandomState(1)
    rows = [jnp.asarray(random.standard_normal((length, 3)), jnp.float32) for _ in range(2)]
    factor = random.standard_normal((length, 3)).astype(np.float32)

    def step(carry, rows, factor):
        carry = 0.5 * carry * factor + rows[0]
        return carry, [carry + rows[1], carry - rows[1]]

    for reverse in (False, True):
        scan = partial(scan_in_place, step, np.ones(3, np.float32), reverse=reverse)
        found = jax.jit(scan)(rows, factor)
        carry, wanted = np.ones(3, np.float32), [[None] * length, [None] * length]
        for k in reversed(range(length)) if reverse else range(length):
            carry, (wanted[0][k], wanted[1][k]) = step(carry, [np.asarray(row)[k] for row in rows], factor[k])
        wanted = carry, [np.stack(each) for each in wanted]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, wanted)
