"""Batches whose parts go through the network one after another: the step of the whole batch, within rounding."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from msgspec import structs

from lrurun.config.recurrences.min_gru import MinGRUSettings
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.schema import RunConfig
from lrurun.data.on_device import stream
from lrurun.data.task import SPLITS, Data, Output, Split
from lrurun.training import feed
from lrurun.training.compiled import Compiled, TrainState
from lrurun.training.events import Ended
from lrurun.training.loop import train
from tests.harness.toy import EXECUTION, config, data, make_data
from tests.training import placements
from tests.training.test_feeds import task

__all__ = ["data"]  # a fixture


def parts(run: RunConfig, count: int, **changes: Any) -> RunConfig:
    return structs.replace(run, optim=structs.replace(run.optim, accumulate=count, **changes))


def labelled(loss: str, *, most: int | None, balanced: bool = False) -> Data:
    """Labels at some of the positions of sequences of different lengths, of some examples at none of them."""
    base, draw = make_data(), np.random.RandomState(3)

    def split(of: Split) -> Split:
        labels = draw.randint(0, 2, of.inputs.shape).astype(np.int16)
        labels[draw.random_sample(labels.shape) < 0.6] = -1
        labels[::5] = -1
        if most is not None:
            labels[np.cumsum(labels >= 0, axis=1) > most] = -1
        if loss == "squared-error":
            values = np.where(labels[..., None] < 0, np.nan, draw.normal(size=(*labels.shape, 2)))
            return structs.replace(of, labels=values.astype(np.float32))
        return structs.replace(of, labels=labels)

    output = Output(loss=loss, at="positions", labelled=most, balanced=balanced)  # type: ignore[arg-type]
    spec = structs.replace(base.spec, output=output)
    return structs.replace(base, spec=spec, **{name: split(getattr(base, name)) for name in SPLITS})


def real_values() -> Data:
    """Real values for each sequence, of which some have none."""
    base, draw = make_data(), np.random.RandomState(4)

    def split(of: Split) -> Split:
        values = draw.normal(size=(len(of.labels), 2)).astype(np.float32)
        values[::4] = np.nan
        return structs.replace(of, labels=values)

    spec = structs.replace(base.spec, output=Output(loss="squared-error"))
    return structs.replace(base, spec=spec, **{name: split(getattr(base, name)) for name in SPLITS})


PLAIN: dict[str, Any] = {"norm": "layer", "dropout": 0.0}
CASES: dict[str, tuple[RunConfig, Any]] = {
    "classes, lengths": (config(**PLAIN), make_data),
    "classes, features": (config(**PLAIN), partial(task, "features")),
    "tokens": (config(**PLAIN), partial(task, "tokens")),
    "pairs": (config(recurrence=RNNSettings(), **PLAIN), partial(task, "pairs")),
    "positions": (config(**PLAIN), partial(labelled, "cross-entropy", most=None)),
    "chosen positions": (config(**PLAIN), partial(labelled, "cross-entropy", most=3)),
    "balanced": (config(**PLAIN), partial(labelled, "cross-entropy", most=3, balanced=True)),
    "values at positions": (config(**PLAIN), partial(labelled, "squared-error", most=None)),
    "values": (config(**PLAIN), real_values),
}


def one_step(run: RunConfig, data: Data) -> tuple[Compiled, TrainState]:
    """The state after one step without weight decay: its first moments are a tenth of the gradient."""
    compiled = Compiled(run, EXECUTION, data.spec, metrics=())
    states = compiled.init(run.model, np.array([run.seed], np.uint32))
    indices = np.zeros((1, compiled.rows, run.train.batch), np.int32)
    indices[0, 0] = feed.Batches(run.seed, run.train.batch, len(data.train.labels))(0)
    arrays = feed.to_devices(data.train, compiled.placement.everywhere)
    rates = np.full((1, compiled.rows), 0.01, np.float32)
    states, _ = compiled.dispatch(
        states, np.array([run.seed], np.uint32), indices, rates, np.bool_(True), np.int32(1), arrays
    )
    return compiled, compiled.on_host(states)[0]


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_parts_is_that_of_the_whole_batch(case: str) -> None:
    """Loss, numbers of labels and correct predictions, and the gradient, whatever labels a part has."""
    run, make = CASES[case]
    data = make()
    (_, whole), *others = (one_step(parts(run, count), data) for count in (1, 2, 8))
    for _, state in others:
        np.testing.assert_allclose(state.window, whole.window, rtol=1e-5)
        assert state.window[1:].tolist() == whole.window[1:].tolist()
        for found, expected in zip(jax.tree.leaves(state.moments), jax.tree.leaves(whole.moments), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_parts_take_turns_with_norm_statistics_and_have_dropout_of_their_own(data: Data) -> None:
    """One step by hand: every third example, statistics of one part after the other, a key for each part."""
    run = parts(config(batch=6), 3)
    compiled, state = one_step(run, data)
    [before] = compiled.on_host(compiled.init(run.model, np.array([run.seed], np.uint32)))
    index, split, model = feed.Batches(run.seed, 6, 50)(0), data.train, compiled.model
    key = jax.random.fold_in(stream(np.uint32(run.seed), "dropout"), 0)

    @jax.jit
    def by_hand(params: Any, stats: Any, inputs: Any, lengths: Any, labels: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            logits, new = model.apply(params, stats, inputs, lengths, train=True, key=key)
            return -jax.nn.log_softmax(logits)[np.arange(2), labels].mean(), new

        return jax.value_and_grad(loss, has_aux=True)(params)

    stats, losses, gradients = before.stats, [], []
    for part in range(3):
        of_part = index[part::3]
        (value, stats), gradient = by_hand(
            before.params,
            stats,
            split.inputs[of_part],
            split.lengths[of_part],  # type: ignore[index]
            split.labels[of_part].astype(np.int32),
            jax.random.fold_in(key, part),
        )
        losses.append(float(value))
        gradients.append(gradient)
    assert state.window[0] == pytest.approx(6 * np.mean(losses), rel=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), state.stats, stats)
    mean = jax.tree.map(lambda *of: 0.1 * sum(of) / 3, *gradients)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-7), state.moments.mu, mean)


def test_a_batch_without_a_label_changes_nothing_but_what_decays() -> None:
    data = labelled("cross-entropy", most=None)
    data = structs.replace(data, train=structs.replace(data.train, labels=np.full_like(data.train.labels, -1)))
    for count in (1, 4):
        _, state = one_step(parts(config(**PLAIN), count), data)
        assert state.window.tolist() == [0, 0, 1]
        assert all(not leaf.any() for leaf in jax.tree.leaves(state.moments.mu))


def test_compiled_code_does_not_grow_with_the_number_of_parts(data: Data) -> None:
    def text(count: int) -> str:
        run = parts(config(batch=32), count)
        compiled = Compiled(run, EXECUTION, data.spec)
        states = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), compiled.vector_shapes)
        arrays = feed.to_devices(data.train, None)  # type: ignore[arg-type]
        index, rates = np.zeros((1, compiled.rows, 32), np.int32), np.zeros((1, compiled.rows), np.float32)
        seeds = np.zeros(1, np.uint32)
        lowered = compiled.dispatch.lower(states, seeds, index, rates, np.bool_(False), np.int32(1), arrays)
        return str(lowered.as_text())

    two, sixteen = (len(text(count).splitlines()) for count in (2, 16))
    assert two == sixteen


def test_parts_need_less_memory() -> None:
    """Beside parameters and data: the activations of a part."""
    whole, quarter = (placements.memory(1, parts=count) for count in (1, 4))
    assert quarter < 0.3 * whole


def test_a_bad_loss_of_one_part_is_the_divergence_of_the_step(data: Data) -> None:
    """Of the hot run of `test_train`, with a part that overflows."""
    hot = config(recurrence=RNNSettings(activation="identity"), lr=100.0, steps=40, eval_every=40, norm="layer")
    ended = list(train(parts(hot, 4), EXECUTION, data))[-1]
    assert isinstance(ended, Ended)
    assert ended.state == "diverged"
    assert 1 < ended.step < 40


def test_batch_norm_and_shuffled_gates_depend_on_the_parts() -> None:
    """And a shuffled gate needs another sequence in each part."""
    shuffled = config(recurrence=MinGRUSettings(gates="shuffled"), **PLAIN)
    for run, depends in ((config(), True), (config(norm="layer"), False), (shuffled, True)):
        assert not run.depends_on_parts
        assert parts(run, 4).depends_on_parts == depends
    with pytest.raises(ValueError, match=r"needs other sequences in a part of a batch, found train\.batch = 8"):
        parts(shuffled, 8)
