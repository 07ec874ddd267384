"""The interface of a task: its settings, the sources of its data, and how stored integers become inputs. No jax."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
from msgspec import Meta, Struct, field

from lrurun.data.metric import Accuracy, Metric


class Output(Struct, frozen=True, kw_only=True):
    """The outputs of a task, their loss, and where they are. The default: one class for each sequence.

    Labels of sequences are (n,), or real values (n, size) with `size` = `Spec.classes`. Labels of positions are (n, P),
    or (n, P, size), for the last P of L positions, so that P = L labels all of them. Positions without a label have -1
    as class, or NaN as value.
    """

    loss: Literal["cross-entropy", "squared-error"] = "cross-entropy"
    """"cross-entropy": labels are integers below `Spec.classes`. "squared-error": real values. It is the mean over the
    labels of a batch."""
    at: Literal["sequence", "positions"] = "sequence"
    labelled: int | None = None
    """The largest number of positions of an example that have a label, of which only these are computed; None: all P
    have one."""
    balanced: bool = False
    """Whether each class has the same weight in the training loss of a batch: the inverse of its count."""

    def __post_init__(self) -> None:
        if self.labelled is not None and (self.at == "sequence" or self.labelled < 1):
            raise ValueError(f'labelled = {self.labelled}: at least 1, with at = "positions"')
        if self.balanced and self.loss != "cross-entropy":
            raise ValueError('balanced = true needs loss = "cross-entropy"')


if TYPE_CHECKING:
    from lrurun.data.arrays import Writer

SPLITS = ("train", "validation", "test")

Published = Literal["yes", "no", "unverified"]
"""Whether data are the published ones: their archive has the published digest, another one, or none is known."""

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Spec(Struct, frozen=True, kw_only=True):
    """The shapes and types of a task that a model needs."""

    name: str
    kind: Literal["features", "tokens"]
    """"features": inputs (n, length) or (n, length, features), as (`scale` * input - `mean`) / `std`.
    "tokens": ids, with 0 for padding."""
    features: int
    """Input features per step, or the size of the vocabulary."""
    classes: int
    """Classes of the output, or the number of real values that it predicts."""
    length: int
    output: Output = Output()
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    """Mean of each scaled input feature; empty: nothing is subtracted."""
    std: tuple[float, ...] = ()
    pair: bool = False
    """Whether an example is two documents, inputs (n, 2, length)."""

    @property
    def predicted(self) -> str:
        """The output in words, for example "10 classes" or "8 real values at positions"."""
        noun = "classes" if self.output.loss == "cross-entropy" else "real values" if self.classes > 1 else "real value"
        return f"{self.classes:,} {noun}" + (" at positions" if self.output.at == "positions" else "")


class Split(Struct, frozen=True, kw_only=True):
    """One split on disk or in memory."""

    inputs: np.ndarray
    """(n, length[, features]) numbers, mostly uint8 or int16, or (n, 2, length) ids for pairs."""
    labels: np.ndarray
    """(n,) integers below `classes`; other outputs have the labels that `Output` describes."""
    lengths: np.ndarray | None = None
    """(n,) or (n, 2) true lengths; None if every example has the full length."""
    groups: np.ndarray | None = None
    """(n,) integers: of a test split, the group of each item, such as its speaker; None: items are independent."""


class Grouping(Struct, frozen=True, kw_only=True):
    """A division of labels into groups, of which errors are counted separately."""

    name: str
    """The name of the division, with which an axis is labelled."""
    groups: tuple[str, ...]
    """The names of the groups, in their order."""
    index: np.ndarray
    """Integers of the shape of the labels: the group of each. Where there is no label, it does not matter."""


Sampler = Callable[[Any, int], tuple[Any, Any, Any]]
"""(key of jax.random, batch size) -> inputs, labels and lengths or None, as arrays of jax; it is traced."""


class Data(Struct, frozen=True, kw_only=True):
    """A prepared task, verified against its manifest."""

    spec: Spec
    sha256: str
    """Digest over the digests of all arrays; recorded with every run."""
    train: Split
    validation: Split
    test: Split
    source: str = ""
    """Where the data come from, as in the manifest."""
    kind: str = "embedded"
    """The kind of source: "embedded", "folder", "download", "generated" or "imported"."""
    published: Published | None = None
    """Whether a copy or download is the published one; None for data of other kinds."""
    baselines: dict[str, float] = field(default_factory=dict)
    """Naive predictor -> its score on the test split, a fraction."""
    metrics: tuple[Metric, ...] = (Accuracy(),)
    """The metrics of the task; the first one selects the model."""
    sampler: Sampler | None = None
    """The function that gives every training step new examples, of which `train` is only a sample; None without one."""
    vocabulary: Sequence[str] = ()
    """Tokens in the order of their ids, for tasks of tokens."""
    further_tests: dict[str, Split] = field(default_factory=dict)
    """Name -> a further test split, such as one of sequences longer than in training."""


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a recipe's table `[data]`. The defaults give the published data, other values other data."""

    train: Count | None = None
    """Examples of this split to keep, the first ones; None: all of them."""
    validation: Count | None = None
    test: Count | None = None


Progress = Callable[[str, int, int | None], None]
"""A callback with the activity, the amount done and the total (None: unknown). Calls are cheap."""


class Fill(Protocol):
    """Writes the three splits of a task, and what the manifest says about them."""

    def __call__(self, writer: Writer, progress: Progress) -> None: ...


class Reduction(Protocol):
    """Writes the three splits of smaller data, from larger ones of the same task."""

    def __call__(self, full: Data, writer: Writer, progress: Progress) -> None: ...


class Source(Struct, frozen=True, kw_only=True):
    """A copy or generator of a task's data, ready to be read."""

    kind: Literal["embedded", "folder", "download", "generated", "imported"]
    text: str
    """One line for messages, reports and the manifest: which copy, and its format."""
    fill: Fill
    archive: Path | None = None
    """The file that is read, if it should be one of the task's `remotes`, or of the `remotes` below."""
    remotes: tuple[Remote, ...] = ()
    """Published files with the same data in another form, if the archive has that form."""
    generator: dict[str, Any] = field(default_factory=dict)
    """The generator's name, version and seed, if the data are generated; the split of imported arrays."""
    published: Published | None = None
    """Whether they are the published data, where that is known without reading an archive."""


class Remote(Struct, frozen=True, kw_only=True):
    """A file that can be downloaded."""

    url: str
    name: str
    """The name of the stored file."""
    bytes: int | None = None
    sha256: str | None = None
    """Digest of the file; None where it is not published."""


class Task(ABC):
    """A data set with a question. A subclass describes it and finds, downloads or generates its data."""

    name: str
    title: str
    version: str
    """Declared version of the data; part of every fingerprint."""
    protocols: tuple[str, ...] = ("holdout",)
    """Protocols of model selection; "paper" if published results did not use a held-out split."""
    options: ClassVar[type[Options]] = Options
    classes: int
    remotes: tuple[Remote, ...] = ()
    """Files to download if there is no copy; `find` then gets the folder that holds them."""
    wanted: str = ""
    """A description of what `--from` accepts, for messages."""
    restore: str = ""
    """A hint for missing or damaged data that lrurun itself cannot prepare."""
    code: str = ""
    """Digest of the file that defines a plug-in's task; set at registration."""
    recipe: str = ""
    """The recipe with which this process uses a plug-in's task, for messages."""

    @property
    def metric(self) -> Metric:
        """How runs are scored. Without a declaration: accuracy, with equally likely classes as chance."""
        return Accuracy(chance=1 / self.classes)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All measured metrics: `metric`, which selects the model and is compared, and others beside it."""
        return (self.metric,)

    @abstractmethod
    def sizes(self, options: Any) -> dict[str, int]:
        """Examples per split."""

    @abstractmethod
    def spec(self, options: Any, vocabulary: Sequence[str] = ()) -> Spec:
        """The shapes and types that a model needs; `vocabulary` is from the manifest, for tasks of tokens."""

    def find(self, path: Path, options: Any) -> Source | None:
        """The copy of the data at `path`, a file or a folder; None if there is none that the task can read.

        Raises:
            LrurunError: there is one, but it is damaged or does not fit the options.
        """
        return None

    def offline(self, options: Any) -> Source | None:
        """Data that need no copy: packaged with a library, or generated; None if there are none."""
        return None

    def reduction(self, options: Any, full: Any) -> Reduction | None:
        """How data with `options` follow from prepared ones with the options `full`; None where they do not.

        They have the bits that a copy would give. `lrurun.data.reduction` has parts of such functions.
        """
        return None

    def sampler(self, options: Any) -> Sampler | None:
        """Samples the examples of every training step on the device; None where they are the examples of the split."""
        return None

    def further_tests(self, options: Any) -> Mapping[str, Any]:
        """Name -> the options of a further test split, such as a longer one, on which every run is evaluated too."""
        return {}

    def tolerance(self, split: str) -> int | None:
        """The number of examples by which a split may differ from `sizes`; the manifest then has a note.

        None: `sizes` are estimates.
        """
        return 0

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> str | np.ndarray:
        """One example as a person sees it: text, or an image (height, width) or (height, width, 3) uint8."""
        row = np.asarray(split.inputs[index])
        if spec.kind == "tokens":
            length = int(split.lengths[index]) if split.lengths is not None else len(row)
            return " ".join(vocabulary[token] for token in row[:length])
        if row.dtype.kind == "f":
            return "; ".join(" ".join(f"{number:.3g}" for number in np.atleast_1d(step)) for step in row[:32])
        side = round(spec.length**0.5)
        if side * side == spec.length:
            levels = row.astype(np.float64) * spec.scale * 255
            return np.clip(levels, 0, 255).astype(np.uint8).reshape(side, side, *row.shape[1:])
        return " ".join(map(str, row.ravel()[:64]))

    def groupings(self, spec: Spec, split: Split) -> tuple[Grouping, ...]:
        """How the labels of a split, which are classes, are divided where errors are counted: by class."""
        return (Grouping(name="class", groups=tuple(map(str, range(spec.classes))), index=np.asarray(split.labels)),)


def limited(options: Options, full: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the splits after `options` have limited them."""
    return {split: min(full[split], getattr(options, split) or full[split]) for split in SPLITS}


def majority(train: np.ndarray, test: np.ndarray) -> float:
    """Accuracy on labels `test` of a constant prediction, the most frequent label of `train`."""
    classes, counts = np.unique(train, return_counts=True)
    return float(np.mean(test == classes[counts.argmax()]))
