"""TeacherStudent: its data against a recurrence step by step in double precision, its metric, and recurrences alone."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lrurun
from lrurun import data as tasks
from lrurun.config import plan as planning
from lrurun.config.recurrences.rnn import RNNRecurrence
from lrurun.data.metric import R2, Nmse
from lrurun.data.sampled.teacher import TeacherOptions, teacher
from lrurun.errors import UsageError
from lrurun.nn import recurrences
from lrurun.nn.network import Model
from tests.harness.machine import Machine
from tests.harness.plans import rungs

TASK = tasks.get("TeacherStudent")


def step_by_step(options: TeacherOptions, inputs: np.ndarray) -> np.ndarray:
    """Outputs for inputs (n, length, 1), with the weights of the teacher and float64."""
    a, b, c, d = teacher(options)
    h, found = np.zeros((len(inputs), len(b))), []
    for x in inputs.astype(np.float64).swapaxes(0, 1):
        h = h @ a.T + x * b
        found.append(h @ c[:, None] + d * x)
    return np.stack(found, axis=1)


@pytest.mark.parametrize(
    "options",
    [TeacherOptions(), TeacherOptions(nu=0.32, length=50, teacher=7), TeacherOptions(states=3, max_phase=0.3)],
    ids=["published", "short memory", "small phases"],
)
def test_labels_are_what_the_teacher_makes_of_the_inputs(options: TeacherOptions) -> None:
    inputs, labels, lengths = jax.jit(lambda key: TASK.sample(key, 5, options))(jax.random.key(3))
    assert lengths is None
    assert inputs.shape == labels.shape == (5, options.length, 1)
    wanted = step_by_step(options, np.asarray(inputs))
    np.testing.assert_allclose(labels, wanted, rtol=1e-5, atol=1e-5 * np.std(wanted))


def test_inputs_are_white_noise() -> None:
    inputs = np.asarray(TASK.sample(jax.random.key(0), 500, TeacherOptions(length=100))[0])[..., 0]
    assert np.mean(inputs) == pytest.approx(0, abs=5 / 50000**0.5)
    assert np.mean(inputs**2) == pytest.approx(1, abs=5 * (2 / 50000) ** 0.5)
    assert np.mean(inputs[:, 1:] * inputs[:, :-1]) == pytest.approx(0, abs=5 / 49500**0.5)


@pytest.mark.parametrize("nu", [0.0, 0.32, 0.84, 0.99])
def test_eigenvalues_of_the_teacher_are_those_of_a_random_matrix_moved_to_the_ring(nu: float) -> None:
    """Equation 133: phases stay, and |lambda| becomes nu + (1 - nu) tanh |lambda|."""
    options = TeacherOptions(nu=nu, teacher=5)
    moved = np.linalg.eigvals(teacher(options).a)
    before = np.linalg.eigvals(np.random.RandomState(5).standard_normal((10, 10)) / math.sqrt(10))
    wanted = (nu + (1 - nu) * np.tanh(np.abs(before))) * before / np.abs(before)
    np.testing.assert_allclose(np.sort_complex(moved), np.sort_complex(wanted), atol=1e-9)
    assert np.all((np.abs(moved) >= nu) & (np.abs(moved) < 1))


def test_the_teacher_depends_on_its_seed_alone_and_not_on_that_of_the_fixed_splits() -> None:
    kernels = [teacher(TeacherOptions(**one)).kernel(20) for one in ({}, {"seed": 3}, {"teacher": 1})]
    assert np.array_equal(kernels[0], kernels[1])
    assert not np.allclose(kernels[0], kernels[2])


def test_nmse_is_the_unexplained_share_of_the_variance_in_decibel() -> None:
    labels = [np.array([1.0, 2.0, 6.0]), np.array([-3.0])]
    predictions = [np.array([1.1, 2.0, 5.9]), np.array([-3.2])]
    pairs = list(zip(labels, predictions, strict=True))
    sums = {
        "loss": np.array([np.sum((y - p) ** 2) for y, p in pairs]),
        "count": np.array([3.0, 1.0]),
        "mean": np.array([y.mean() for y in labels]),
        "variation": np.array([np.sum((y - y.mean()) ** 2) for y in labels]),
    }
    flat, guess = np.concatenate(labels), np.concatenate(predictions)
    share = np.mean((flat - guess) ** 2) / np.var(flat)
    assert Nmse().value(sums) == pytest.approx(10 * math.log10(share))
    assert R2().value(sums) == pytest.approx(1 - share)
    constant = sums | {"loss": np.array([np.sum((y - flat.mean()) ** 2) for y in labels])}
    assert Nmse().value(constant) == pytest.approx(Nmse().chance, abs=1e-12)
    assert Nmse().value(sums | {"loss": np.zeros(2)}) == -200
    assert Nmse().oriented(-20.0) > Nmse().oriented(-10.0)


def test_students_have_the_published_numbers_of_parameters() -> None:
    """One input, one output and nothing around the recurrence."""
    counts = {}
    for name, rung in rungs(planning.make("TeacherStudent", ladder="cells")).items():
        model = Model(rung.config.model, TASK.spec(TeacherOptions()))
        counts[name] = model.count(jax.eval_shape(model.init, jax.random.key(0))[0])
    wanted = {"dense-rnn": 4225, "block-diagonal": 257, "more-neurons": 513, "complex-diagonal": 385}
    assert counts == wanted | {"gamma": 449, "lru": 449}


@pytest.mark.slow
def test_a_network_without_a_frame_is_its_recurrences() -> None:
    changes = ["model.depth=2", "model.state=6"]
    config = rungs(planning.make("TeacherStudent", ladder="cells", sets=changes))["lru"].config.model
    model = Model(config, TASK.spec(TeacherOptions(length=9)))
    params, stats = model.init(jax.random.key(1))
    x = jax.random.normal(jax.random.key(2), (4, 9, 1))
    y, scan = x.swapaxes(0, 1), jax.jit(model.recurrence.scan)
    for block in ("0", "1"):
        y = scan(params["blocks"][block]["recurrence"], y)
    assert (set(params), stats) == ({"blocks"}, {})
    np.testing.assert_allclose(model.apply(params, stats, x, train=True)[0], y.swapaxes(0, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "sets", "message", "hint"),
    [
        (
            "sDigits",
            ["model.frame=none"],
            '--set model.frame: frame = "none" needs inputs and outputs of the size of width, found: '
            "sDigits has inputs of size 1 and outputs of size 10, width is 32",
            "remove it",
        ),
        (
            "TeacherStudent",
            ["model.width=4"],
            'recipes/TeacherStudent.toml, model.frame: frame = "none" needs inputs and outputs of the size of width, '
            "found: TeacherStudent has inputs of size 1 and outputs of size 1, width is 4",
            "set model.width = 1",
        ),
        (
            "TeacherStudent",
            ["model.dropout=0.1"],
            'dropout and final_norm need frame = "blocks", found frame = "none", dropout = 0.1, final_norm = false',
            "change one of the values named above",
        ),
    ],
)
def test_what_does_not_fit_recurrences_alone_is_refused(task: str, sets: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        planning.make(task, ladder="cells", sets=sets)
    assert message in error.value.message
    assert hint in (error.value.hint or "")


def test_the_remapped_dense_matrix_keeps_phases_and_moves_eigenvalues_into_the_unit_circle() -> None:
    dense, plain = (
        recurrences.build(RNNRecurrence(draw=draw), width=1, state=24)  # type: ignore[arg-type]
        for draw in ("remapped", "normal")
    )
    params, others = (jax.jit(one.init)(jax.random.key(4)) for one in (dense, plain))
    before, after = plain.spectrum(others), dense.spectrum(params)
    wanted = np.tanh(np.abs(before)) * before / np.abs(before)
    np.testing.assert_allclose(np.sort_complex(after), np.sort_complex(wanted), atol=1e-3)
    assert params["A"].dtype == jnp.float32
    assert all(np.array_equal(params[name], others[name]) for name in ("B", "C", "D"))


@pytest.mark.slow
def test_a_student_trains_scores_in_decibel_and_is_loaded(machine: Machine) -> None:
    machine.run("ladder", "TeacherStudent", "--profile", "smoke", "--ladder", "cells", "--rung", "dense-rnn")
    (run,) = machine.json("runs")["runs"]
    scores = run["metrics"]
    share = 1 - scores["test/r2"]
    assert scores["test/nmse"] == pytest.approx(10 * math.log10(share), abs=1e-9)
    loaded = lrurun.load(run["id"], ledger=machine.ledger, runs_dir=machine.runs)
    assert loaded(np.zeros((2, 32, 1), np.float32)).tolist() == np.zeros((2, 32, 1)).tolist()
    x = np.asarray(jax.random.normal(jax.random.key(0), (64, 32, 1)))
    wanted = step_by_step(TeacherOptions(length=32), x)
    assert np.mean((loaded(x) - wanted) ** 2) < 0.9 * np.mean(wanted**2)
