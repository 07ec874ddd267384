"""SGConv against plain NumPy in double precision, and its kernel, whose length is that of the task."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from msgspec import structs

from lrurun.config import plan as planning
from lrurun.config.recurrences.sgconv import SGConvRecurrence
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.errors import UsageError
from lrurun.nn import recurrences
from lrurun.nn.network import Model
from lrurun.nn.recurrences.base import Recurrence
from tests.harness.loops import double

WIDTH, STATE = 5, 8
FORMS = {
    "one scale": {"kernel_length": 8},
    "cut": {"kernel_length": 45},
    "range": {"kernel_length": 64, "alpha_min": 0.3, "alpha_max": 0.9},
    "trained": {"kernel_length": 64, "alpha_min": 0.3, "alpha_max": 0.9, "train_alpha": True, "init": "state"},
    "no decay": {"kernel_length": 33, "alpha_min": 1.0, "alpha_max": 1.0, "init": "state"},
}


def built(settings, **sizes):
    return recurrences.build(settings, **({"width": WIDTH, "state": STATE} | sizes))


def up(w, factor):
    """Linear interpolation of `w` as numbers at the middles of equal intervals, constant outside, by NumPy."""
    return np.interp((np.arange(len(w) * factor) + 0.5) / factor - 0.5, np.arange(len(w)), w)


def whole(w, alpha):
    """(H, lags): the concatenation of Li et al., eq. 1, from `w` (S, H, N) and `alpha` (H,), not normalised."""
    found = []
    for channel, decay in enumerate(alpha):
        scales = [decay**i * up(one[channel], 2 ** max(i - 1, 0)) for i, one in enumerate(w)]
        found.append(np.concatenate(scales))
    return np.array(found)


def fixed_alpha(settings, count=WIDTH):
    """1 / alpha is evenly spaced."""
    return 1 / np.linspace(1 / settings.alpha_min, 1 / settings.alpha_max, count)


def expected_norm(settings, alpha, scales, n):
    """The root of E|k|^2, from the matrix of every interpolation."""
    deviation = 1 / n if settings.init == "state" else 1.0
    energy = [np.sum([up(row, 2 ** max(i - 1, 0)) ** 2 for row in np.eye(n)]) for i in range(scales)]
    return deviation * np.sqrt([sum(a ** (2 * i) * e for i, e in enumerate(energy)) for a in alpha])


def reference(settings, p, u, lengths, bidirectional):
    """Outputs of each sequence by itself, by the sums of the convolution; zero in the padding."""
    first = np.linspace(settings.alpha_min, settings.alpha_max, WIDTH) if settings.train_alpha else None
    first = fixed_alpha(settings) if first is None else first
    norm = expected_norm(settings, first, len(p["w"]), STATE)
    y = np.zeros(u.shape)
    for i, length in enumerate(lengths):
        y[:length, i] = p["D"] * u[:length, i]
        for way in ("", "_back") if bidirectional else ("",):
            k = whole(p[f"w{way}"], p.get(f"alpha{way}", first)) / norm[:, None]
            k = k[:, : settings.kernel_length]
            for t in range(length):
                for lag in range(min(k.shape[1], length)):
                    at = t - lag if not way else t + 1 + lag
                    if 0 <= at < length:
                        y[t, i] += k[:, lag] * u[at, i]
    return y


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_outputs_are_those_of_the_formulas(form, bidirectional):
    settings = SGConvRecurrence(**FORMS[form])
    recurrence = built(settings, bidirectional=bidirectional)
    params = recurrence.init(jax.random.key(3))
    if settings.train_alpha:  # moved from where it starts, which Z must not follow
        params = {name: 0.9 * array if "alpha" in name else array for name, array in params.items()}
    lengths, steps = [40, 21, 1], 40
    mask = np.arange(steps)[:, None] < np.array(lengths)
    u = np.asarray(np.random.default_rng(0).normal(size=(steps, 3, WIDTH)), np.float32)
    found = np.asarray(jax.jit(recurrence.scan)(params, u, mask))
    wanted = reference(settings, double(params), u.astype(np.float64), lengths, bidirectional)
    np.testing.assert_allclose(found[mask], wanted[mask], atol=2e-6 * np.max(np.abs(wanted)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("state", [1, 2, STATE])
def test_the_initial_kernel_has_norm_one(form, state):
    settings = SGConvRecurrence(**FORMS[form])
    params = built(settings, state=state, bidirectional=True).init(jax.random.key(1))
    p = double(params)
    alpha = p["alpha"] if settings.train_alpha else fixed_alpha(settings)
    norm = expected_norm(settings, alpha, len(p["w"]), state)
    for way in ("", "_back"):
        k = whole(p[f"w{way}"], alpha) / norm[:, None]
        np.testing.assert_allclose(np.linalg.norm(k, axis=1), 1.0, rtol=1e-5)
    assert not np.array_equal(p["w"], p["w_back"])


@pytest.mark.parametrize(("init", "deviation"), [("one", 1.0), ("state", 1 / 256)])
def test_the_initial_numbers_have_the_declared_deviation(init, deviation):
    settings = SGConvRecurrence(kernel_length=1024, init=init)
    w = double(built(settings, width=32, state=256).init(jax.random.key(0)))["w"]
    assert w.shape == (3, 32, 256)
    # 24,576 numbers; that the norm is exact takes one in 768 away.
    assert np.std(w) == pytest.approx(deviation, rel=0.02)


@pytest.mark.parametrize(
    ("length", "state", "scales"),
    [(1, 8, 1), (8, 8, 1), (9, 8, 2), (16, 8, 2), (17, 8, 3), (33, 8, 4), (2**18, 4096, 7), (2**20, 4096, 9)],
)
def test_there_are_just_enough_scales(length, state, scales):
    """With H = 32 and N = 4,096, lengths of 2^18 take the 920K parameters of the DLR paper's Table 2."""
    settings = SGConvRecurrence(kernel_length=length)
    shapes = jax.eval_shape(built(settings, state=state, width=32).init, jax.random.key(0))
    assert shapes["w"].shape == (scales, 32, state)
    assert state * 2 ** (scales - 1) >= length
    assert scales == 1 or state * 2 ** (scales - 2) < length
    if length == 2**18:
        assert round(math.prod(shapes["w"].shape), -4) == 920_000


def test_parameters_and_groups():
    def names(settings, bidirectional):
        recurrence = built(settings, bidirectional=bidirectional)
        return set(jax.eval_shape(recurrence.init, jax.random.key(0))), recurrence.recurrent_parameters

    plain, trained = SGConvRecurrence(kernel_length=20), SGConvRecurrence(kernel_length=20, train_alpha=True)
    assert names(plain, False) == ({"w", "D"}, {"w"})
    assert names(plain, True) == ({"w", "w_back", "D"}, {"w", "w_back"})
    recurrent = {"w", "w_back", "alpha", "alpha_back"}
    assert names(trained, True) == (recurrent | {"D"}, recurrent)


def test_longer_sequences_than_the_kernel_see_zeros_beyond_it():
    recurrence = built(SGConvRecurrence(kernel_length=10))
    params = recurrence.init(jax.random.key(0))
    k = np.asarray(recurrence.kernels(params, 25))
    assert k.shape == (1, 25, WIDTH)
    assert np.all(k[0, :10] != 0)
    assert not np.any(k[0, 10:])
    u = jnp.zeros((25, 1, WIDTH)).at[0].set(1.0)
    np.testing.assert_allclose(recurrence.scan(params, u)[:, 0], k[0], atol=1e-6)


@pytest.mark.parametrize("kernel_length", [3, 10, 40])
def test_norms_are_those_of_the_state_that_steps_have(kernel_length):
    recurrence = built(SGConvRecurrence(kernel_length=kernel_length))
    u = jax.random.normal(jax.random.key(2), (25, 2, WIDTH), jnp.float32)
    params = recurrence.init(jax.random.key(0))
    wanted = Recurrence.norms(recurrence, params, u)
    np.testing.assert_allclose(recurrence.norms(params, u), wanted, rtol=1e-5)


def test_a_kernel_without_a_length_takes_that_of_the_task():
    config = ModelConfig(recurrence=SGConvRecurrence(), depth=1, width=4, state=STATE)
    for length, scales in ((50, 4), (100, 5)):
        model = Model(config, Spec(name="any", kind="features", features=1, classes=2, length=length))
        params, _ = model.init(jax.random.key(0))
        assert params["blocks"]["0"]["recurrence"]["w"].shape == (scales, 4, STATE)
    longer = structs.replace(config, recurrence=SGConvRecurrence(kernel_length=400))
    model = Model(longer, Spec(name="any", kind="features", features=1, classes=2, length=50))
    assert model.recurrence.settings.kernel_length == 400
    with pytest.raises(ValueError, match="kernel_length = 0 is the length of the sequences"):
        built(SGConvRecurrence()).init(jax.random.key(0))


LADDER = """
name = "one"
title = "one"
source = "ours"

[[rung]]
name = "sgconv"
title = "SGConv"
change = { "model.recurrence.kind" = "sgconv", "optim.lr" = 0.01 }
"""


def test_a_length_beyond_the_kernel_is_an_error_before_training(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text(LADDER)
    for fits in (0, 64, 65):
        planning.make("sDigits", ladder=str(path), sets=[f"model.recurrence.kernel_length={fits}"])
    with pytest.raises(UsageError) as caught:
        planning.make("sDigits", ladder=str(path), sets=["model.recurrence.kernel_length=63"])
    assert caught.value.message == (
        "--set model.recurrence.kernel_length: kernel_length must be at least the task's sequences, 64 steps, found 63"
    )
    assert caught.value.hint == "the length of the sequences always fits: model.recurrence.kernel_length = 64"
    with pytest.raises(UsageError, match="alpha_min must not be larger than alpha_max"):
        planning.make("sDigits", ladder=str(path), sets=["model.recurrence.alpha_min=0.6"])


def test_a_kernel_must_reach_as_far_as_the_longest_test(tmp_path) -> None:
    """The kernel is that of the training length, also for further test splits of longer sequences."""
    ladder = tmp_path / "one.toml"
    ladder.write_text("""
name = "one"
title = "SGConv"
source = "ours"

[[rung]]
name = "sgconv"
title = "SGConv"
change = { "model.recurrence.kind" = "sgconv" }
""")
    with pytest.raises(UsageError, match="kernel_length must be at least the task's sequences, 512 steps, found 256"):
        planning.make("InductionHeads", ladder=str(ladder))
    longest = {"model.recurrence.kernel_length": 4096}
    [rung] = planning.make("InductionHeads", ladder=str(ladder), sets=longest).rungs
    assert rung.config.model.recurrence.kernel_length == 4096
