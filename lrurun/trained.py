"""The trained model of a run, its predictions, and the eigenvalues of its recurrences, from its checkpoints."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from msgspec import Struct

from lrurun import paths, plugins
from lrurun.config import plugin_code
from lrurun.config.schema import Execution, RunConfig
from lrurun.data import tasks
from lrurun.data.on_device import stream
from lrurun.data.task import Data, Spec, Split
from lrurun.errors import LrurunError, NoEigenvaluesError, NotFoundError, UsageError, check_type
from lrurun.instances import documents
from lrurun.items import ItemResults
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import FINISHED, Checkpoint, Run
from lrurun.nn.network import Model
from lrurun.nn.spectra import eigenvalues
from lrurun.paths import inside
from lrurun.runner.storage import storage_for
from lrurun.training import checkpoint_verification, checkpoints
from lrurun.training.compiled import Compiled, compiled_for
from lrurun.training.evaluation import evaluate, tolerance
from lrurun.training.events import Snapshot
from lrurun.training.loop import order_digest

ENCODER = checkpoints.leaf("params", "encoder", "kernel")

Layers = list[tuple[complex, ...]]
"""The eigenvalues of each layer."""


class Trained(Struct, frozen=True, kw_only=True, dict=True):
    """The model of a run, with the parameters of its best validation score."""

    id: str
    config: RunConfig
    spec: Spec
    """The form of inputs and outputs; `scale`, `mean` and `std` are applied to inputs, as in training."""
    step: int
    """The step of the best validation score."""
    score: float
    """The best validation score, negated where lower is better; -inf before the first evaluation."""
    model: Model
    params: dict[str, Any]
    stats: dict[str, Any]

    def __call__(self, inputs: Any, lengths: Any = None) -> np.ndarray:
        """Logits or values (B, classes); (B, L, classes) where the task has outputs at positions.

        Args:
            inputs: numbers as in the prepared data, not scaled: the model scales them as in training. Pixels of digits
                are from 0 to 16, pixels of CIFAR-10 from 0 to 255. (B, L) ids of tokens, (B, 2, L) for pairs;
                (B, L, features) numbers, (B, L) with one feature.
            lengths: numbers of real positions, (B,), or (B, 2) for pairs, from 1 to L; None if all positions are real.

        Raises:
            UsageError: inputs or lengths of another shape or type, ids outside of the vocabulary, or lengths outside of
                the inputs.
        """
        inputs = self._inputs(inputs)
        return np.asarray(self._outputs(self.params, self.stats, inputs, self._lengths(lengths, inputs)))

    def _inputs(self, inputs: Any) -> np.ndarray:
        """The ids, int32, or numbers, float32, of a call."""
        array, spec = self._array("inputs", inputs), self.spec
        shape = array.shape
        if spec.pair:
            expected, fits = "(B, 2, L)", len(shape) == 3 and shape[1] == 2
        elif spec.kind == "tokens" or (spec.features == 1 and len(shape) != 3):
            expected, fits = "(B, L)", len(shape) == 2
        else:
            expected, fits = f"(B, L, {spec.features})", len(shape) == 3 and shape[2] == spec.features
        if not fits:
            raise self._unfit(f"inputs {expected}", shape)
        if spec.kind == "tokens":
            return self._integers("ids", array, least=0, most=spec.features - 1)
        if not (jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.kind in "iub"):
            raise self._unfit("inputs that are real numbers", array.dtype)
        return array.astype(np.float32)

    def _lengths(self, lengths: Any, inputs: np.ndarray) -> np.ndarray | None:
        """The lengths of a call, int32."""
        if lengths is None:
            return None
        array = self._array("lengths", lengths)
        expected = inputs.shape[: 2 if self.spec.pair else 1]
        if array.shape != expected:
            raise self._unfit(f"lengths {expected}", array.shape)
        return self._integers("lengths", array, least=1, most=inputs.shape[2 if self.spec.pair else 1])

    def _array(self, name: str, values: Any) -> np.ndarray:
        try:
            return np.asarray(values)
        except ValueError:  # numpy's message for rows of different lengths
            raise self._unfit(f"{name} that are an array", "rows of different lengths") from None

    def _integers(self, name: str, array: np.ndarray, *, least: int, most: int) -> np.ndarray:
        """The same numbers as int32."""
        if array.dtype.kind not in "iu":
            raise self._unfit(f"{name} that are integers", array.dtype)
        if (outside := array[(array < least) | (array > most)]).size:
            raise self._unfit(f"{name} from {least} to {most}", outside[0])
        return array.astype(np.int32)

    def _unfit(self, expected: str, found: Any) -> UsageError:
        spec = self.spec
        return UsageError(
            f"run {self.id}: expected {expected}, found {found}",
            f"B sequences of L steps, as in the data of {self.config.task}, which have {spec.length} steps",
        )

    @cached_property
    def _outputs(self) -> Callable[..., jax.Array]:
        """(params, stats, inputs, lengths) -> outputs, compiled once for each shape of its arguments."""
        model = self.model
        return jax.jit(lambda *arrays: model.apply(*arrays, train=False)[0])


def load(
    run: str,
    *,
    ledger: str | os.PathLike[str] | None = None,
    runs_dir: str | os.PathLike[str] | None = None,
    files: Sequence[str | os.PathLike[str]] = (),
) -> Trained:
    """The model of a run, by its id or the beginning of it, from the newest checkpoint that passes verification.

    It is called with inputs as in the prepared data, which it scales as in training: see `Trained.__call__`.

    Ledger and runs folder have the same defaults as in commands. `files` has the files of the plug-ins that the run was
    trained with, as they were then, where they are no longer in their place; not of classes that the calling program
    has registered itself.

    Raises:
        NotFoundError: there is no such ledger or run.
        UsageError: an argument of another type; what `ledger` names is no ledger.
        LrurunError: every checkpoint is missing or damaged; a plug-in is not loaded, or has changed.
    """
    check_type("run", run, str, "text", "give the id of a run, or its beginning, as in load(run.id)")
    plugins.load_files(files, named="files")
    if ledger is not None:
        paths.given_ledger(ledger)
    if runs_dir is not None:
        check_type("runs_dir", runs_dir, str | os.PathLike, "a path or a URL", 'as in runs_dir="runs"')
    places = paths.places(
        None if ledger is None else os.fspath(ledger), runs=None if runs_dir is None else os.fspath(runs_dir)
    )
    with Ledger.read(places.ledger) as opened:
        if not opened.exists:
            raise NotFoundError(f"run {run!r}: there is no ledger at {places.ledger}", "name one: ledger=PATH")
        recorded = opened.run(run)
        entries = opened.checkpoints(recorded.id, "committed")
        documents.load_code_of(opened, recorded)
    return _trained(recorded, entries, places.runs)


def _trained(recorded: Run, entries: Sequence[Checkpoint], folder: Path) -> Trained:
    """The model of a run whose plug-ins are loaded; the arguments are as in `newest`."""
    config = plugin_code.config_of(recorded.config, f"run {recorded.id}")
    _, path = newest(recorded, entries, folder)
    compiled, snapshot = _restored(config, path, recorded.fingerprint)
    return Trained(
        id=recorded.id,
        config=config,
        spec=compiled.model.spec,
        step=snapshot.best_step,
        score=snapshot.score,
        model=compiled.model,
        params=snapshot.best.params,
        stats=snapshot.best.stats,
    )


def _restored(config: RunConfig, path: Path, fingerprint: str) -> tuple[Compiled, Snapshot]:
    """The functions of a configuration, made without its data, and the snapshot in the checkpoint in `path`."""
    task = tasks.get(config.task, config.data)
    # only the size of the vocabulary matters, which the encoder has, so the data are not needed
    encoder = checkpoints.arrays(path, fingerprint).get(ENCODER)
    spec = task.spec(tasks.options_of(task, config.data), () if encoder is None else ("",) * len(encoder))
    compiled = Compiled(config, Execution(), spec)
    return compiled, checkpoints.restore(path, compiled, fingerprint)


def predictions(run: Run, ledger: Ledger, folder: Path, split: Split) -> np.ndarray:
    """The outputs of the model of a run for the examples of a split, at the positions of their labels.

    Args:
        folder: the runs folder.

    Returns:
        integers of the shape of the labels, or real values where the task has those.

    Raises:
        LrurunError: no checkpoint is on disk.
    """
    documents.load_code_of(ledger, run)
    model = _trained(run, ledger.checkpoints(run.id, "committed"), folder)
    batch, parts = model.config.train.batch, []
    for start in range(0, len(split.labels), batch):
        index = np.minimum(np.arange(start, start + batch), len(split.labels) - 1)  # so that nothing is compiled twice
        lengths = None if split.lengths is None else jnp.asarray(split.lengths[index])
        outputs = np.asarray(model._outputs(model.params, model.stats, jnp.asarray(split.inputs[index]), lengths))
        if model.spec.output.loss == "cross-entropy":
            outputs = outputs.argmax(-1)
        parts.append(outputs[: len(split.labels) - start])
    predicted = np.concatenate(parts)
    if model.spec.output.at == "positions":
        predicted = predicted[:, predicted.shape[1] - split.labels.shape[1] :]
    return predicted


class OtherScores(Exception):
    """An evaluation of a kept model does not give the scores that are recorded."""


def final(run: Run, entries: Sequence[Checkpoint], folder: Path) -> Path:
    """The folder of the checkpoint that a finished run ended with; the arguments are as in `newest`.

    Raises:
        LrurunError: it is not kept, or damaged.
    """
    return newest(run, [entry for entry in entries if entry.step == run.step], folder)[1]


def items(run: Run, config: RunConfig, checkpoint: Path, data: Data) -> dict[str, ItemResults]:
    """Name of a test score -> the per-item results of a run, by an evaluation of its final checkpoint.

    Raises:
        OtherScores: the evaluation gives other scores than the run has.
        LrurunError: the checkpoint cannot be read.
    """
    compiled = compiled_for(config, run.execution, data)
    best = compiled.on_device([checkpoints.restore(checkpoint, compiled, run.fingerprint).best])
    splits = {"test": data.test, **{f"test@{name}": split for name, split in data.further_tests.items()}}
    by_score: dict[str, ItemResults] = {}
    for name, split in splits.items():
        order = order_digest(data, name)
        [evaluated] = evaluate(compiled, best, split, config.train.batch, data.metrics, order)
        for metric in data.metrics:
            score, recorded = evaluated.scores[metric.name], (run.result or {}).get(f"{name}/{metric.name}")
            count = evaluated.labels if metric.over == "labels" else len(split.labels)
            if recorded is None or not _is_same(score, recorded, tolerance(metric, recorded, count)):
                raise OtherScores(f"{name}/{metric.name} is {score!r} in the evaluation, {recorded!r} in the run")
        if evaluated.faults:
            raise OtherScores("; ".join(f"{name}/{key}: {why}" for key, why in evaluated.faults.items()))
        by_score |= {f"{name}/{key}": results for key, results in evaluated.items.items()}
    return by_score


def _is_same(score: float, recorded: float, tolerance: float) -> bool:
    """Whether an evaluation gives a score that is recorded. One that is not finite has no items, and only has to be
    that again: how a sum overflows may depend on the machine."""
    if math.isfinite(recorded):
        return abs(score - recorded) <= tolerance
    return not math.isfinite(score)


def newest(run: Run, entries: Sequence[Checkpoint], folder: Path) -> tuple[Checkpoint, Path]:
    """The newest undamaged checkpoint of a run, and its folder.

    Args:
        entries: the committed checkpoints of the run, newest first.
        folder: the runs folder.

    Raises:
        LrurunError: there is none, or the object store of the runs folder cannot be read.
    """
    wrong, is_over = "", run.state in FINISHED
    for entry in entries:
        try:
            path = inside(folder, entry.path)
        except LrurunError as error:
            wrong = wrong or error.message
            continue
        try:
            storage_for(folder).fetch(path)
        except OSError as error:  # an older checkpoint does not stand in for one that is out of reach
            message = f"run {run.id}: the checkpoint of step {entry.step} cannot be fetched: {error}"
            raise LrurunError(message, "check the store, its credentials and the free space here") from None
        try:
            checkpoint_verification.verify(path, entry.sha256)
        except (LrurunError, OSError) as error:
            wrong = wrong or str(error)
        else:
            return entry, path
    raise LrurunError(
        f"run {run.id}: no checkpoint to read: {wrong or ('none is kept' if is_over else 'none was saved yet')}",
        "name the folder of its checkpoints with --runs-dir, or train it again with --fresh"
        if wrong or is_over
        else f"see its progress with: lrurun show {run.id}",
    )


def before_and_after(run: Run, ledger: Ledger, folder: Path) -> tuple[int, Layers, Layers]:
    """The last checkpoint's step, and the eigenvalues at initialisation and there, of a run that recorded none.

    There, they are those of the parameters that are evaluated: averages, where the run has some.

    Args:
        folder: the runs folder.

    Raises:
        LrurunError: no checkpoint is on disk.
        NoEigenvaluesError: this kind of recurrence has no eigenvalues.
    """
    jax.config.update("jax_platforms", "cpu")  # an accelerator may be in use by the run itself
    documents.load_code_of(ledger, run)
    config = plugin_code.config_of(run.config, f"run {run.id}")
    entry, path = newest(run, ledger.checkpoints(run.id, "committed"), folder)
    compiled, snapshot = _restored(config, path, run.fingerprint)
    model, layers = compiled.model, [str(layer) for layer in range(config.model.depth)]

    @jax.jit  # computes the recurrences and nothing else
    def initial(seed: jax.Array) -> dict[str, Any]:
        blocks = model.init(stream(seed, "init"))[0]["blocks"]
        return {layer: {"recurrence": blocks[layer]["recurrence"]} for layer in layers}

    last = compiled.evaluated(compiled.vectors(snapshot.live)).params["blocks"]
    before, after = (
        eigenvalues(model.recurrence, {"blocks": blocks}) for blocks in (initial(jnp.uint32(config.seed)), last)
    )
    if before is None or after is None:
        kind = type(config.model.recurrence).__struct_config__.tag
        raise NoEigenvaluesError(
            f"run {run.id}: the eigenvalues of recurrence {kind!r} are not known", "plot --kind curves instead"
        )
    return entry.step, [tuple(layer.tolist()) for layer in before], [tuple(layer.tolist()) for layer in after]
