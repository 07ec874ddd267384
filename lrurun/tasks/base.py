"""What a task is: its settings, where its data come from, and how stored integers become inputs. No jax here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
from msgspec import Meta, Struct, field

if TYPE_CHECKING:
    from lrurun.tasks.writer import Writer

SPLITS = ("train", "validation", "test")

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Spec(Struct, frozen=True, kw_only=True):
    """What a model must know of a task to be built."""

    name: str
    kind: Literal["features", "tokens"]
    """"features": inputs (n, length) or (n, length, features), multiplied by `scale`, less `mean`, over `std`.
    "tokens": ids; 0 pads."""
    features: int
    """Input features a step, or the size of the vocabulary."""
    classes: int
    length: int
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    """Per feature, of scaled inputs; none subtracted where empty."""
    std: tuple[float, ...] = ()
    pair: bool = False
    """Two documents an example, inputs (n, 2, length)."""


class Split(Struct, frozen=True, kw_only=True):
    """One split on disk or in memory."""

    inputs: np.ndarray
    """(n, length[, features]) uint8 or int16, or (n, 2, length) for pairs."""
    labels: np.ndarray
    """(n,) integers below `classes`."""
    lengths: np.ndarray | None = None
    """(n,) or (n, 2) true lengths; None where every example is full."""


class Data(Struct, frozen=True, kw_only=True):
    """A prepared task, verified against its manifest."""

    spec: Spec
    sha256: str
    """Over the digests of all arrays; recorded on every run."""
    train: Split
    validation: Split
    test: Split
    source: str = ""
    """Where the data come from, as the manifest says it."""
    kind: str = "embedded"
    """Of the source: "embedded", "folder", "download" or "generated"."""
    baselines: dict[str, float] = field(default_factory=dict)
    """What naive predictors score on the test split, as fractions."""


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a recipe's `[data]` may set. Defaults are the published data; other values make data of their own."""

    train: Count | None = None
    """Examples to keep of this split, the first ones; all of them without it."""
    validation: Count | None = None
    test: Count | None = None


Tell = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and how much there is (None: unknown). Cheap."""


class Fill(Protocol):
    """Writes the three splits of a task; what it says of them goes into the manifest."""

    def __call__(self, writer: Writer, tell: Tell) -> None: ...


class Source(Struct, frozen=True, kw_only=True):
    """Where a task's data can be had from, found and ready to be read."""

    kind: Literal["embedded", "folder", "download", "generated"]
    text: str
    """One line for people, reports and the manifest: which copy, in which format."""
    fill: Fill
    generator: dict[str, Any] = field(default_factory=dict)
    """For generated data: the generator's name, version and seed."""


class Remote(Struct, frozen=True, kw_only=True):
    """A file that can be downloaded."""

    url: str
    name: str
    """Under this name it is kept."""
    bytes: int | None = None
    sha256: str | None = None
    """None where nobody has published one."""


class Task(ABC):
    """A data set with a question. Final subclasses say what it is and where its data come from."""

    name: str
    title: str
    version: str
    """The declared version of the data; part of every fingerprint."""
    protocols: tuple[str, ...] = ("holdout",)
    """Ways of selecting a model that the task knows; "paper" where a published habit differs from a held-out split."""
    options: ClassVar[type[Options]] = Options
    classes: int
    remotes: tuple[Remote, ...] = ()
    """What to download where there is no copy; together they are what `find` then gets as a folder."""
    wanted: str = ""
    """What `--from` takes, for people."""
    code: str = ""
    """The digest of the file that a plug-in's task comes from; set where it is registered."""

    @abstractmethod
    def sizes(self, options: Any) -> dict[str, int]:
        """Examples per split, as they must be."""

    @abstractmethod
    def spec(self, options: Any, vocabulary: Sequence[str] = ()) -> Spec:
        """What a model must know; `vocabulary` is that of the manifest, for tasks of tokens."""

    def find(self, path: Path, options: Any) -> Source | None:
        """The copy of the data that stands at `path`, a file or a folder; None where there is none that it knows.

        Raises:
            LrurunError: it is there, and is damaged or of the wrong kind.
        """
        return None

    def offline(self, options: Any) -> Source | None:
        """Data that need nothing from outside: packaged with a library, or generated; None where there are none."""
        return None

    def tolerance(self, split: str) -> int:
        """By how many examples a split of this source may differ from `sizes`, which is then said; 0 for most."""
        return 0

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> str | np.ndarray:
        """One example as a person sees it: text, or an image (height, width) or (height, width, 3) uint8."""
        row = np.asarray(split.inputs[index])
        if spec.kind == "tokens":
            length = int(split.lengths[index]) if split.lengths is not None else len(row)
            return " ".join(vocabulary[token] for token in row[:length])
        side = round(spec.length**0.5)
        if side * side == spec.length:
            levels = row.astype(np.float64) * spec.scale * 255
            return np.clip(levels, 0, 255).astype(np.uint8).reshape(side, side, *row.shape[1:])
        return " ".join(map(str, row.ravel()[:64]))


def limited(options: Options, full: Mapping[str, int]) -> dict[str, int]:
    """Sizes of the splits of which `options` keep the first ones."""
    return {split: min(full[split], getattr(options, split) or full[split]) for split in SPLITS}


def portions(sizes: Mapping[str, int], first: int, count: int) -> Iterator[tuple[str, int, slice]]:
    """Where generated examples `first` to `first + count` belong: split, place in it, and which of them.

    Test is drawn first and train last: a smaller train split is part of a larger one, and the test stays what it is.
    """
    begin = 0
    for split in ("test", "validation", "train"):
        end = begin + sizes[split]
        low, high = max(first, begin), min(first + count, end)
        if low < high:
            yield split, low - begin, slice(low - first, high - first)
        begin = end


def majority(train: np.ndarray, test: np.ndarray) -> float:
    """The accuracy on labels `test` of always answering with the commonest of `train`."""
    return float(np.mean(test == np.bincount(train).argmax()))
