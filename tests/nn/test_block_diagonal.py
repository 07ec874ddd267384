"""The block-diagonal recurrence against plain NumPy in double precision, and beside the dense and the diagonal one."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config import plan as planning
from lrurun.config.recurrences.block_diagonal import BlockDiagonalRecurrence
from lrurun.config.recurrences.lru import LRURecurrence
from lrurun.config.recurrences.rnn import RNNRecurrence
from lrurun.errors import UsageError
from lrurun.nn import recurrences
from lrurun.nn.blocks import Blocks, Columns
from lrurun.nn.recurrences.block_diagonal import remapped
from lrurun.nn.scan import linear_scan
from tests.harness.loops import check_values_and_gradients, double

WIDTH, STATE = 5, 8
LENGTHS = [11, 6, 1]
FORMS = {"free": {}, "tied": {"tied": True, "r_min": 0.5}}


def built(settings, **others):
    return recurrences.build(settings, **({"width": WIDTH, "state": STATE} | others))


def blocks(p):
    if "A" in p:
        return p["A"]
    return np.array([[[a, -b], [b, a]] for a, b in zip(p["lam_re"], p["lam_im"], strict=True)])


def matrix(p):
    """The whole A (N, N): block m acts on the numbers m and N / 2 + m."""
    found = np.zeros((STATE, STATE))
    for m, block in enumerate(blocks(p)):
        at = [m, STATE // 2 + m]
        found[np.ix_(at, at)] = block
    return found


def reference(p, u, lengths, bidirectional):
    """Outputs of each sequence by itself, without its padding, by the whole matrix; zero in the padding."""
    y, a = np.zeros(u.shape), matrix(p)
    for i, length in enumerate(lengths):
        y[:length, i] = p["D"] * u[:length, i]
        for name, order in (("C", range(length)), ("C_back", reversed(range(length)))):
            if name == "C" or bidirectional:
                x = np.zeros(STATE)
                for k in order:
                    x = a @ x + p["B"] @ u[k, i]
                    y[k, i] += p[name] @ x
    return y


@pytest.mark.parametrize(
    ("backend", "bidirectional"),
    [("sequential", False), ("sequential", True), ("associative", True), ("chunked", True)],
)
@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients(form, bidirectional, backend):
    recurrence = built(BlockDiagonalRecurrence(**FORMS[form]), bidirectional=bidirectional, backend=backend)
    params = jax.jit(recurrence.init)(jax.random.key(3))
    check_values_and_gradients(recurrence, params, lambda p, u: reference(p, u, LENGTHS, bidirectional), LENGTHS)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 7, 64])
def test_logarithmic_depth_gives_the_states_of_single_steps(steps, reverse):
    a = remapped(jax.random.normal(jax.random.key(0), (6, 2, 2)), 0.9, math.pi)
    a = Blocks(*a.reshape(6, 4).T)
    v = Columns(*(jax.random.normal(jax.random.key(key), (steps, 3, 6)) for key in (1, 2)))
    one, other = (
        jax.jit(partial(linear_scan, reverse=reverse, backend=name))(a, v) for name in ("sequential", "associative")
    )
    for found, wanted in zip(jax.tree.leaves(other), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-6 * np.max(np.abs(wanted)))


def test_parameters_groups_and_counts():
    def names(settings, **others):
        recurrence = built(settings, **others)
        shapes = {name: leaf.shape for name, leaf in jax.eval_shape(recurrence.init, jax.random.key(0)).items()}
        return shapes, recurrence.recurrent_parameters

    n, h = (STATE,), (WIDTH,)
    shapes, recurrent = names(BlockDiagonalRecurrence(), bidirectional=True)
    assert shapes == {"A": (4, 2, 2), "B": n + h, "C": h + n, "C_back": h + n, "D": h}
    assert recurrent == {"A", "B"}
    shapes, recurrent = names(BlockDiagonalRecurrence(tied=True))
    assert shapes == {"lam_re": (4,), "lam_im": (4,), "B": n + h, "C": h + n, "D": h}
    assert recurrent == {"lam_re", "lam_im", "B"}
    # the students of Zucchet and Orvieto, Fig. 3B: 32 blocks of one input and output
    shapes, _ = names(BlockDiagonalRecurrence(), state=64, width=1)
    assert sum(math.prod(shape) for shape in shapes.values()) == 257


@pytest.mark.parametrize(("r_min", "max_phase"), [(0.0, math.pi), (0.99, math.pi), (0.5, 0.3)])
def test_initial_eigenvalues_are_remapped_as_in_the_paper(r_min, max_phase):
    """lambda to (nu + (1 - nu) tanh |lambda|) exp(i angle theta_0 / pi), by NumPy's eigenvectors."""
    normal = np.random.default_rng(0).normal(size=(200, 2, 2)) / math.sqrt(2)
    found = np.asarray(remapped(jnp.asarray(normal, jnp.float32), r_min, max_phase))
    lam, vectors = np.linalg.eig(normal)
    assert 20 < np.sum(lam[:, 0].imag != 0) < 180
    there = (r_min + (1 - r_min) * np.tanh(np.abs(lam))) * np.exp(1j * np.angle(lam) * max_phase / math.pi)
    wanted = (vectors @ (there[:, :, None] * np.linalg.inv(vectors))).real
    size = np.max(np.abs(wanted), axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(found / size, wanted / size, atol=3e-5)


@pytest.mark.slow
def test_the_spectrum_is_that_of_the_whole_matrix():
    for settings in (BlockDiagonalRecurrence(), BlockDiagonalRecurrence(tied=True, r_min=0.9, r_max=0.95)):
        recurrence = built(settings)
        params = recurrence.init(jax.random.key(1))
        found, wanted = recurrence.spectrum(params), np.linalg.eigvals(matrix(double(params)))
        np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(wanted), atol=1e-6)
        assert np.all(np.abs(found) < 1)
    assert np.all((np.abs(found) >= 0.9) & (np.abs(found) <= 0.95))
    # parameters of a diverged run
    params = built(BlockDiagonalRecurrence()).init(jax.random.key(1))
    broken = built(BlockDiagonalRecurrence()).spectrum(params | {"A": params["A"].at[1].set(jnp.inf)})
    assert np.isnan(broken).tolist() == [False, False, True, True, *[False] * 4]


def test_a_dense_recurrence_with_the_whole_matrix_is_the_same():
    recurrence, dense = (
        built(BlockDiagonalRecurrence(), bidirectional=True),
        built(RNNRecurrence(), bidirectional=True),
    )
    params = jax.jit(recurrence.init)(jax.random.key(5))
    same = params | {"A": jnp.asarray(matrix(double(params)), jnp.float32)}
    assert recurrence.variances == {name: value for name, value in dense.variances.items() if name != "A"}
    u = jax.random.normal(jax.random.key(6), (50, 4, WIDTH), jnp.float32)
    np.testing.assert_allclose(jax.jit(recurrence.scan)(params, u), jax.jit(dense.scan)(same, u), atol=1e-5)


def test_tied_blocks_are_a_complex_diagonal_whose_state_is_half_as_large():
    recurrence = built(BlockDiagonalRecurrence(tied=True), bidirectional=True)
    params, half = recurrence.init(jax.random.key(5)), STATE // 2
    same = {name: params[name] for name in ("lam_re", "lam_im", "D")}
    same |= {"B_re": params["B"][:half], "B_im": params["B"][half:]}
    for way in ("", "_back"):
        same |= {f"C_re{way}": params[f"C{way}"][:, :half], f"C_im{way}": -params[f"C{way}"][:, half:]}
    settings = LRURecurrence(parametrization="cartesian")
    diagonal = recurrences.build(settings, width=WIDTH, state=half, bidirectional=True)
    u = jax.random.normal(jax.random.key(6), (50, 4, WIDTH), jnp.float32)
    np.testing.assert_allclose(jax.jit(recurrence.scan)(params, u), jax.jit(diagonal.scan)(same, u), atol=1e-5)


def test_tied_blocks_start_on_the_ring():
    settings = BlockDiagonalRecurrence(tied=True, r_min=0.5, r_max=0.9, max_phase=1.0)
    lam = built(settings, state=20_000).spectrum(built(settings, state=20_000).init(jax.random.key(0)))
    upper = lam[lam.imag > 0]
    assert len(upper) == 10_000
    assert np.max(np.abs(np.sort(np.angle(upper)) - np.linspace(0, 1, len(upper)))) < 0.03
    share = np.sort((np.abs(upper) ** 2 - 0.25) / (0.81 - 0.25))
    assert np.max(np.abs(share - np.linspace(0, 1, len(upper)))) < 0.03


LADDER = """
name = "one"
title = "one"
source = "ours"

[[rung]]
name = "block-diagonal"
title = "block-diagonal RNN"
change = { "model.recurrence.kind" = "block-diagonal", "optim.lr" = 0.01 }
"""


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ("model.state=15", "block-diagonal needs an even state, for blocks of size 2, found state = 15"),
        ("model.recurrence.r_max=0.9", "r_max needs tied = true, found r_max = 0.9, tied = false"),
        (
            "model.recurrence.tied=true model.recurrence.r_min=0.9 model.recurrence.r_max=0.8",
            "r_min must not be larger",
        ),
        ("model.recurrence.max_phase=4.0", "model.recurrence.max_phase"),
    ],
)
def test_what_does_not_fit_is_an_error_before_training(tmp_path, sets, message):
    path = tmp_path / "one.toml"
    path.write_text(LADDER)
    planning.make("sDigits", ladder=str(path))
    with pytest.raises(UsageError) as caught:
        planning.make("sDigits", ladder=str(path), sets=sets.split())
    assert message in caught.value.message
