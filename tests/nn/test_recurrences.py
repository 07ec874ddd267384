"""The recurrences against plain NumPy in double precision, and against what the paper says of their initial values."""

import math

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
import scipy.stats
from jaxtyping import TypeCheckError

from lrurun.config import recurrences as declared
from lrurun.config.recurrences import Declaration, RecurrenceSettings
from lrurun.config.recurrences.lru import LRURecurrence
from lrurun.config.recurrences.rnn import RNNRecurrence
from lrurun.nn import conformance, recurrences, sampling
from lrurun.nn.recurrences import lru
from tests.harness.loops import check_values_and_gradients, double

KINDS = {
    "tanh": RNNRecurrence(activation="tanh"),
    "relu": RNNRecurrence(activation="relu"),
    "linear": RNNRecurrence(),
    "truncated": RNNRecurrence(draw="truncated"),
    "tanh, radius": RNNRecurrence(activation="tanh", radius=1.5),
    "cartesian": LRURecurrence(parametrization="cartesian"),
    "cartesian-gamma": LRURecurrence(parametrization="cartesian", normalize=True, r_max=0.99),
    "exponential": LRURecurrence(parametrization="exponential"),
    "exponential-log": LRURecurrence(parametrization="exponential", phase="log"),
    "stable": LRURecurrence(r_min=0.9, r_max=0.999),
    "lru": LRURecurrence(normalize=True, phase="log", r_min=0.9, r_max=0.999),
    "gamma of lambda": LRURecurrence(normalize=True, train_gamma=False, r_min=0.5, r_max=0.99),
}
WIDTH, STATE = 5, 8
LENGTHS = [11, 6, 1]


def reference(settings, p, u, lengths, bidirectional):
    """Outputs of each sequence by itself, without its padding, from float64 parameters; zero in the padding."""
    if isinstance(settings, RNNRecurrence):
        act = {"tanh": np.tanh, "relu": lambda x: np.where(x > 0, x, 0), "identity": lambda x: x}[settings.activation]
        a, b = p["A"], p["B"]
        readouts = [p["C"], p["C_back"]] if bidirectional else [p["C"]]
    else:
        if settings.parametrization == "cartesian":
            a = p["lam_re"] + 1j * p["lam_im"]
        else:
            theta = np.exp(p["theta_log"]) if settings.phase == "log" else p["theta"]
            nu = np.exp(p["nu_log"]) if settings.parametrization == "stable-exponential" else p["nu"]
            a = np.exp(-nu + 1j * theta)
        act, b, a = (lambda x: x), p["B_re"] + 1j * p["B_im"], np.diag(a)
        if settings.normalize:
            gamma = np.exp(p["gamma_log"]) if settings.train_gamma else np.sqrt(1 - np.abs(np.diag(a)) ** 2)
            b = gamma[:, None] * b
        readouts = [p["C_re"] + 1j * p["C_im"]]
        if bidirectional:
            readouts.append(p["C_re_back"] + 1j * p["C_im_back"])
    y = np.zeros(u.shape)
    for i, length in enumerate(lengths):
        y[:length, i] = p["D"] * u[:length, i]
        for c, order in zip(readouts, (range(length), reversed(range(length))), strict=False):
            x = np.zeros(len(a), a.dtype)
            for k in order:
                x = act(a @ x + b @ u[k, i])
                y[k, i] += (c @ x).real
    return y


@pytest.mark.parametrize(
    ("kind", "bidirectional"),
    [(kind, True) for kind in KINDS if kind != "truncated"] + [(kind, False) for kind in ("tanh", "cartesian", "lru")],
)
def test_values_and_gradients(strict, kind, bidirectional):
    settings = KINDS[kind]
    recurrence = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
    params = jax.jit(recurrence.init)(jax.random.key(3))
    check_values_and_gradients(
        recurrence, params, lambda p, u: reference(settings, p, u, LENGTHS, bidirectional), LENGTHS
    )


def test_the_scan_backend_is_the_one_asked_for():
    key, u = jax.random.key(0), jax.random.normal(jax.random.key(1), (6, 3, WIDTH), jnp.float32)
    sizes = {"width": WIDTH, "state": STATE, "bidirectional": True}
    one, two = (recurrences.build(KINDS["lru"], backend=name, **sizes) for name in ("sequential", "associative"))
    params = one.init(key)
    np.testing.assert_allclose(jax.jit(two.scan)(params, u), jax.jit(one.scan)(params, u), atol=1e-4)
    with pytest.raises(ValueError, match="scan backend must be one of"):
        recurrences.build(KINDS["lru"], backend="parallel", **sizes).scan(params, u)


def test_parameters_and_groups():
    def names(settings, bidirectional):
        recurrence = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
        shapes = {name: leaf.shape for name, leaf in jax.eval_shape(recurrence.init, jax.random.key(0)).items()}
        return shapes, recurrence.recurrent_parameters

    n, h = (STATE,), (WIDTH,)
    shapes, recurrent = names(RNNRecurrence(), True)
    assert shapes == {"A": n + n, "B": n + h, "C": h + n, "C_back": h + n, "D": h}
    assert recurrent == {"A", "B"}
    shapes, recurrent = names(LRURecurrence(normalize=True, phase="log"), True)
    inner = {"nu_log": n, "theta_log": n, "gamma_log": n, "B_re": n + h, "B_im": n + h}
    outer = dict.fromkeys(("C_re", "C_im", "C_re_back", "C_im_back"), h + n)
    assert shapes == {**inner, **outer, "D": h}
    assert recurrent == set(inner)
    shapes, recurrent = names(LRURecurrence(normalize=True, train_gamma=False), False)
    assert recurrent == {"nu_log", "theta", "B_re", "B_im"}
    assert set(shapes) == recurrent | {"C_re", "C_im", "D"}
    shapes, recurrent = names(LRURecurrence(parametrization="cartesian"), False)
    assert recurrent == {"lam_re", "lam_im", "B_re", "B_im"}
    assert set(shapes) == recurrent | {"C_re", "C_im", "D"}
    assert names(LRURecurrence(parametrization="exponential"), False)[1] == {"nu", "theta", "B_re", "B_im"}


@pytest.mark.parametrize(
    ("r_min", "r_max", "mean", "tolerance"),
    [(0.0, 0.99, 4.00, 0.02), (0.9, 0.999, 24.2, 0.015), (0.999, 0.9999, 1279.7, 0.01)],
)
def test_ring_mean_gain(r_min, r_max, mean, tolerance):
    """The mean of 1 / (1 - |lambda|^2) over the ring (proposition 3.3), four or more standard errors wide."""
    nu, _ = lru.ring(jax.random.key(1), 200_000, r_min, r_max, 1.0)
    gain = -1.0 / np.expm1(-2.0 * np.asarray(nu, np.float64))
    assert np.mean(gain) == pytest.approx(mean, rel=tolerance)


def test_ring_is_uniform_in_area_and_stays_inside():
    nu, theta = (np.asarray(x, np.float64) for x in lru.ring(jax.random.key(2), 100_000, 0.5, 0.9, math.pi / 10))
    share = np.sort((np.exp(-2 * nu) - 0.25) / (0.81 - 0.25))
    assert np.max(np.abs(share - np.linspace(0, 1, share.size))) < 0.01
    assert share[0] > -1e-6
    assert share[-1] < 1 + 1e-6
    assert np.max(np.abs(np.sort(theta) / (math.pi / 10) - np.linspace(0, 1, theta.size))) < 0.01
    assert abs(np.corrcoef(nu, theta)[0, 1]) < 0.02


@pytest.mark.parametrize("r", [(0.0, 1.0), (0.0, 0.0), (1.0, 1.0), (0.99, 0.99), (0.999999, 1.0)])
def test_extreme_rings_have_finite_logarithms(r):
    nu, theta = (np.asarray(x, np.float64) for x in lru.ring(jax.random.key(0), 100_000, *r, 2 * math.pi))
    assert nu.min() >= 0.999e-7
    assert nu.max() <= -math.log(1e-4) * 1.0001
    assert theta.min() > 0
    assert theta.max() <= 2 * math.pi * 1.000001
    inner, outer = np.clip(r, 1e-4, 1 - 1e-7)
    assert nu.min() >= -math.log(outer) * (1 - 1e-5)
    assert nu.max() <= -math.log(inner) * (1 + 1e-5)


@pytest.mark.parametrize("drawn", [0.0, 1.0 - 2.0**-23])
def test_the_ends_of_the_uniform_draw_are_harmless(monkeypatch, drawn):
    """The generator may return 0 and the number before 1; one in 2^23 does."""
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.full(shape, drawn, dtype))
    nu, theta = lru.ring(jax.random.key(0), 3, 0.0, 1.0, 2 * math.pi)
    assert np.all(np.isfinite(np.log(nu)))
    assert np.all(np.asarray(theta) > 0)


def test_gamma_keeps_its_digits():
    nu = jnp.asarray(np.logspace(-7, 0.9, 2000), jnp.float32)
    wanted = np.sqrt(-np.expm1(-2.0 * np.asarray(nu, np.float64)))
    # log gamma is near -8 there, and rounding it costs up to 8 units of the last place in gamma itself.
    np.testing.assert_allclose(np.exp(np.asarray(lru.log_gamma(nu), np.float64)), wanted, rtol=1e-6)


@pytest.mark.parametrize("parametrization", ["cartesian", "exponential", "stable-exponential"])
def test_all_parametrizations_start_at_the_same_eigenvalues(parametrization):
    ring = {"r_min": 0.9, "r_max": 0.999, "max_phase": 1.0, "normalize": True}
    stable = recurrences.build(LRURecurrence(**ring), width=3, state=50)
    other = recurrences.build(LRURecurrence(parametrization=parametrization, **ring), width=3, state=50)
    one, two = stable.init(jax.random.key(0)), other.init(jax.random.key(0))
    wanted, found = (r.parametrization.eigenvalues(p).numpy() for r, p in ((stable, one), (other, two)))
    np.testing.assert_allclose(found.real, wanted.real, rtol=1e-5)
    np.testing.assert_allclose(found.imag, wanted.imag, rtol=1e-5)
    decays, phases = zip(*(r.parametrization.decay_and_phase(p) for r, p in ((stable, one), (other, two))), strict=True)
    np.testing.assert_allclose(decays[1], decays[0], rtol=1e-4)
    np.testing.assert_allclose(phases[1], phases[0], rtol=1e-4)
    np.testing.assert_array_equal(one["gamma_log"], two["gamma_log"])
    np.testing.assert_allclose(np.exp(2 * double(one)["gamma_log"]), 1 - np.abs(wanted) ** 2, rtol=1e-4)


def test_gamma_makes_the_norm_of_the_state_that_of_its_input():
    """E|x_L|^2 = (1 - |lambda|^(2L)) E|B u|^2 for white u, for each state (proposition 3.3, eq. 7)."""
    radius = np.array([0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999])
    batch, steps = 4000, 300
    recurrence = recurrences.build(LRURecurrence(normalize=True), width=2, state=radius.size)
    nu = jnp.asarray(-np.log(radius), jnp.float32)
    params = recurrence.init(jax.random.key(0)) | {"nu_log": jnp.log(nu), "gamma_log": lru.log_gamma(nu)}
    u = jnp.asarray(np.random.default_rng(0).normal(size=(steps, batch, 2)), jnp.float32)

    @jax.jit
    def states(u):
        def body(x, u_k):
            x, _ = recurrence.step(params, x, u_k)
            return x, jnp.mean(x.abs2(), axis=0)

        return jax.lax.scan(body, recurrence.initial_state(batch), u)[1]

    found = np.asarray(states(u), np.float64)
    p = double(params)
    driven = np.sum(p["B_re"] ** 2 + p["B_im"] ** 2, axis=1)
    for length in (1, 3, 30, 100, 300):
        wanted = -np.expm1(2 * length * np.log(radius)) * driven
        np.testing.assert_allclose(found[length - 1] / wanted, 1.0, atol=5 * math.sqrt(2 / batch))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_dense_linear_rnn_is_the_diagonal_one_in_its_own_eigenvectors(bidirectional):
    linear = recurrences.build(RNNRecurrence(), width=WIDTH, state=STATE, bidirectional=bidirectional)
    params = linear.init(jax.random.key(5))
    a = np.asarray(params["A"], np.float64)
    params["A"] = jnp.asarray(a * 0.95 / np.max(np.abs(np.linalg.eigvals(a))), jnp.float32)
    p = double(params)
    lam, vectors = np.linalg.eig(p["A"])
    assert np.any(lam.imag != 0)
    b = np.linalg.solve(vectors, p["B"])
    changed = {"lam_re": lam.real, "lam_im": lam.imag, "B_re": b.real, "B_im": b.imag, "D": p["D"]}
    for suffix in ("", "_back") if bidirectional else ("",):
        c = p[f"C{suffix}"] @ vectors
        changed |= {f"C_re{suffix}": c.real, f"C_im{suffix}": c.imag}
    changed = {name: jnp.asarray(value, jnp.float32) for name, value in changed.items()}
    settings = LRURecurrence(parametrization="cartesian")
    other = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
    assert set(changed) == set(jax.eval_shape(other.init, jax.random.key(0)))
    u = jax.random.normal(jax.random.key(6), (100, 4, WIDTH), jnp.float32)
    wanted = np.asarray(linear.scan(params, u))
    np.testing.assert_allclose(other.scan(changed, u), wanted, atol=2e-5 * np.max(np.abs(wanted)))


def test_a_truncated_draw_is_that_of_a_normal_cut_off_at_two_standard_deviations():
    n = 300
    normal, cut = (
        jax.jit(recurrences.build(RNNRecurrence(draw=draw), width=7, state=n, bidirectional=True).init)(
            jax.random.key(4)
        )
        for draw in ("normal", "truncated")
    )
    entries = np.sort(double(cut)["A"].ravel()) * math.sqrt(n)
    law = scipy.stats.truncnorm(-2, 2)
    assert scipy.stats.kstest(entries, law.cdf).pvalue > 0.01
    assert max(abs(entries[0]), abs(entries[-1])) <= 2 * (1 + 1e-6)
    assert np.std(entries) == pytest.approx(law.std(), abs=5 * law.std() / math.sqrt(2 * n * n))
    declared = recurrences.build(RNNRecurrence(draw="truncated"), width=7, state=n).variances
    assert sampling.TRUNCATED == pytest.approx(law.std(), rel=1e-12)
    assert round(sampling.TRUNCATED, 4) == 0.8796
    assert declared["A"] == pytest.approx(law.var() / n)
    # A alone is another, and its entries keep their order
    assert list(cut) == list(normal)
    assert {name for name in cut if not np.array_equal(cut[name], normal[name])} == {"A"}
    assert np.all(np.diff(np.asarray(cut["A"]).ravel()[np.argsort(np.asarray(normal["A"]).ravel())]) >= 0)


@pytest.mark.parametrize("draw", ["normal", "truncated", "remapped"])
@pytest.mark.parametrize("radius", [0.5, 1.0, 1.7])
def test_a_dense_matrix_with_a_radius_is_the_drawn_one_scaled_to_that_spectral_radius(draw, radius):
    layers = [recurrences.build(RNNRecurrence(draw=draw, radius=r), width=7, state=24) for r in (0.0, radius)]
    drawn, scaled = (jax.jit(layer.init)(jax.random.key(4)) for layer in layers)
    before, after = double(drawn)["A"], double(scaled)["A"]
    sizes = [np.max(np.abs(np.linalg.eigvals(a))) for a in (before, after)]
    assert sizes[1] == pytest.approx(radius, rel=1e-5)
    np.testing.assert_allclose(after, before * radius / sizes[0], rtol=1e-5)
    assert {name for name in drawn if not np.array_equal(drawn[name], scaled[name])} == {"A"}
    assert scaled["A"].dtype == jnp.float32
    assert layers[1].init_on_cpu
    assert "A" not in layers[1].variances


def test_a_radius_outside_of_its_range_is_refused():
    for radius in (-0.1, 10.5):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"kind": "dense", "radius": radius}, RNNRecurrence)


def test_the_ends_of_the_normal_draw_are_truncated_too():
    z = jnp.asarray([-40.0, -6.0, -1.0, 0.0, 1.0, 6.0, 40.0], jnp.float32)
    found = np.asarray(sampling.truncated(z))
    assert found == pytest.approx([-2, -2, -found[4], 0, found[4], 2, 2], abs=1e-6)
    assert found[4] == pytest.approx(scipy.stats.truncnorm(-2, 2).ppf(scipy.stats.norm.cdf(1.0)), abs=1e-6)


@pytest.mark.slow
def test_a_truncated_draw_stays_finite_where_a_normal_one_overflows():
    """192 states, 4,096 steps, as on the longer tasks: the state grows like a power of the spectral radius."""
    n, steps, width = 192, 4096, 4
    layers = {
        draw: recurrences.build(RNNRecurrence(draw=draw), width=width, state=n) for draw in ("normal", "truncated")
    }
    inits = {draw: jax.jit(layer.init) for draw, layer in layers.items()}

    def radius(draw, seed):
        return np.max(np.abs(np.linalg.eigvals(double(inits[draw](jax.random.key(seed)))["A"])))

    radii = {draw: np.array([radius(draw, seed) for seed in range(20)]) for draw in layers}
    overflows = steps * np.log(radii["normal"]) > math.log(np.finfo(np.float32).max)
    assert np.sum(overflows) >= 5
    assert np.max(radii["truncated"]) < 1.0
    assert np.mean(radii["truncated"]) == pytest.approx(0.9, abs=0.03)
    seed = jax.random.key(int(np.argmax(radii["normal"])))
    u = jax.random.normal(jax.random.key(0), (steps, 1, width), jnp.float32)
    finite = {
        draw: bool(np.all(np.isfinite(jax.jit(layer.scan)(inits[draw](seed), u)))) for draw, layer in layers.items()
    }
    assert finite == {"normal": False, "truncated": True}


def test_annotations_of_shapes_are_checked():
    recurrence = recurrences.build(RNNRecurrence(), width=2, state=2)
    params = recurrence.init(jax.random.key(0))
    with pytest.raises(TypeCheckError, match="u"):
        recurrence.scan(params, jnp.zeros((4, 3, 2)), jnp.ones((4, 2), bool))  # another batch than the inputs'


def test_an_unknown_kind_is_named():
    class Other(RecurrenceSettings, frozen=True, tag="other"):
        pass

    with pytest.raises(ValueError, match=f"{', '.join(declared.KINDS)}, found 'other'"):
        recurrences.build(Other(), width=2, state=2)


class Faulty(RecurrenceSettings, frozen=True, tag="faulty"):
    faults: tuple[str, ...] = ()


class Leaky(recurrences.Recurrence):
    """A leaky sum of its inputs that has the faults in its settings."""

    recurrent_parameters = frozenset({"decay"})

    @property
    def variances(self):
        return {"D": 4.0 if "scale" in self.settings.faults else 1.0}

    def init(self, key):
        faults = self.settings.faults
        key = jax.random.key(0) if "key" in faults else key
        decay = jnp.full((1,), 0.5, jnp.float16 if "type" in faults else jnp.float32)
        return {
            "rate" if "group" in faults else "decay": decay,
            "D": jax.random.normal(key, (self.width,), jnp.float32),
        }

    def decay(self, params, dtype):
        return params["rate" if "group" in self.settings.faults else "decay"][0].astype(dtype)

    def scan(self, params, u, mask=None):
        faults, decay = self.settings.faults, self.decay(params, u.dtype)
        seen = u if mask is None or "padding" in faults else jnp.where(mask[..., None], u, 0.0)
        if "gradient" in faults:
            decay = jax.lax.stop_gradient(decay)

        def one_way(reverse):
            def body(x, u_k):
                x = decay * x + u_k
                return x, x

            return jax.lax.scan(body, jnp.zeros_like(u[0]), seen, reverse=reverse)[1]

        x = one_way(False)
        if (self.bidirectional and "one way" not in faults) or "causal" in faults:
            x = x + one_way(True)
        y = params["D"][None, None] * x
        return y * jnp.nan if "finite" in faults and len(u) > 1000 else y

    def initial_state(self, batch):
        return jnp.zeros((batch, self.width), jnp.float32)

    def step(self, params, state, u):
        if "refuse" not in self.settings.faults:
            self.require_causal()
        x = self.decay(params, u.dtype) * state + u
        return x, params["D"][None] * x * (2.0 if "step" in self.settings.faults else 1.0)


def either_way(name):
    return {f"{name}, one direction", f"{name}, both directions"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "caught"),
    [
        ((), set()),
        (
            ("step", "gradient", "padding", "finite"),
            {
                "scan equals step",
                *either_way("gradients"),
                "padding does not leak, both directions",
                *either_way("finite"),
            },
        ),
        (("causal", "scale"), {"scan equals step", "causal", "initial scale"}),
        (
            ("key", "type", "group", "one way", "refuse"),
            {
                "initial scale",
                "looks both ways",
                "step refuses both directions",
                *either_way("same key, same parameters"),
                *either_way("float32 throughout"),
                *either_way("recurrent parameters exist"),
            },
        ),
    ],
)
def test_the_checks_catch_what_they_are_for(monkeypatch, faults, caught):
    monkeypatch.setitem(declared.KINDS, "faulty", Declaration(settings=Faulty, implementation=Leaky))
    findings = conformance.check(Faulty(faults))
    assert {finding.name for finding in findings if not finding.passed} == caught


def test_a_check_that_raises_is_a_finding(monkeypatch):
    monkeypatch.setitem(declared.KINDS, "faulty", Declaration(settings=Faulty, implementation=Leaky))
    monkeypatch.setattr(Leaky, "init", lambda self, key: 1 / 0)
    findings = conformance.check(Faulty())
    assert any("raised ZeroDivisionError" in finding.detail for finding in findings)
