"""CIFAR-10 (Krizhevsky 2009), pixel by pixel: in colour as sCIFAR, in gray as the Image task of Long Range Arena."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from lrurun.data.arrays import Writer
from lrurun.data.copies import parquet, pickles, png, reader
from lrurun.data.copies.reader import Copy, File
from lrurun.data.copies.tfds import Tfds
from lrurun.data.reduction import first_examples, fits
from lrurun.data.splits import tfds_order, torch_permutation
from lrurun.data.task import SPLITS, Options, Progress, Reduction, Remote, Source, Spec, Split, Task, limited
from lrurun.errors import LrurunError

ARCHIVE = Remote(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    name="cifar-10-binary.tar.gz",
    bytes=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
PICKLED_ARCHIVE = Remote(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    name="cifar-10-python.tar.gz",
    bytes=170_498_071,
    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
"""The same batches as pickles: what other libraries download and leave."""
FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = "test_batch"
BATCHES = (*TRAIN, TEST)
BINARY = ".bin"
"""The suffix of binary files."""
CIFAR_100 = {"cifar-100-python": ("meta", "train", "test"), "cifar-100-binary": ("train.bin", "test.bin")}
"""Folders of the other data set, and some of their files."""

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
"""Mean and standard deviation of red, green and blue pixels from 0 to 1, as published for S4."""

SIDE = 32
CLASSES = 10
_RECORD = 1 + 3 * SIDE * SIDE
"""Bytes of an image in the archive: its label, then its red, green and blue pixels, row by row."""
_FILE_LIMIT = 1 << 25
"""Bytes of a batch: the published ones have 30,730,000."""
_PICKLE_LIMIT = 1 << 26
"""Bytes of a pickled batch: the published ones have 31 million; Python 3 writes half as many more in their protocol."""
_HINT = f"give an undamaged {ARCHIVE.name} or {PICKLED_ARCHIVE.name}, or omit --from to download one"


class CifarOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The training images that are for validation, and the size of the images."""

    split: Literal["s4", "lra"] = "s4"
    """The random split of S4 and S5, or the split of Long Range Arena: the first nine tenths in the order of TFDS."""
    pool: Literal[1, 2, 4] = 1
    """Side of the squares that are averaged; an image is then a sequence of (32 / pool)**2 steps."""


class ImageOptions(CifarOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of CIFAR-10 in gray."""

    split: Literal["s4", "lra"] = "lra"
    gray: Literal["lra", "pil"] = "lra"
    """The formula of Long Range Arena (TensorFlow's), or Pillow's, as in S4 and S5; they differ by at most 1."""


class Batch(NamedTuple):
    """Images in the order of the archive."""

    images: np.ndarray
    """(n, 32, 32, 3) uint8."""
    labels: np.ndarray
    """(n,) uint8 below 10."""


class Cifar(Task):
    """The common part of the tasks of CIFAR-10: the copies that they can read, and their splits.

    Validation is a tenth of the training images, by the order that `CifarOptions.split` names.
    """

    version = "1"
    """1: the splits, pixels as uint8 row by row, both gray formulas; averages are rounded, halves up."""
    options = CifarOptions
    classes = CLASSES
    dtype: ClassVar[Any] = np.uint8
    """The type of the inputs."""
    reducible: ClassVar[tuple[str, ...]] = ("pool",)
    """Options that may differ where data are made from prepared ones."""
    block = 5000
    """Images that are converted at once."""
    remotes = (ARCHIVE,)
    wanted = (
        f"{ARCHIVE.name} or {PICKLED_ARCHIVE.name}, the unpacked folder {' or '.join(FOLDERS)}, a folder with one of "
        "them, or a TFDS folder of cifar10"
    )

    def __init__(self, train: int = 50_000, test: int = 10_000) -> None:
        self.train, self.test = train, test
        """Images in the five training batches and in the test batch."""

    @abstractmethod
    def pixels(self, images: np.ndarray, options: Any) -> np.ndarray:
        """(n, 32, 32, 3) uint8 -> (n, 32, 32[, features]) uint8."""

    def steps(self, images: np.ndarray, split: str, first: int, options: Any) -> np.ndarray:
        """Examples of a split, from example `first` on: (n, height, width[, features]) -> (n, length[, features])."""
        return images

    def sizes(self, options: CifarOptions) -> dict[str, int]:
        validation = self.train - int(0.9 * self.train)
        return limited(options, {"train": self.train - validation, "validation": validation, "test": self.test})

    def find(self, path: Path, options: CifarOptions) -> Source | None:
        copy = reader.find(
            path,
            [batch + BINARY for batch in BATCHES],
            _HINT,
            forms=[BATCHES],
            folders=["", *FOLDERS],
            archives=[ARCHIVE.name, PICKLED_ARCHIVE.name],
            data_set="cifar10",
        )
        if (copy is None or copy.archive == path) and (other := _cifar_100(path)):
            raise LrurunError(f"{other}: this is CIFAR-100, not CIFAR-10", f"give {self.wanted}")
        if copy is None and _has_parquet(path):
            reason = "their rows do not say which image of the archive they are, on which the splits depend"
            raise LrurunError(f"{path}: Parquet files of CIFAR-10 are not read: {reason}", f"give {self.wanted}")
        return self.source(copy, options) if copy else None

    def source(self, copy: Copy | Tfds, options: Any) -> Source:
        def fill(writer: Writer, progress: Progress) -> None:
            batches = self._prepared(copy, progress) if isinstance(copy, Tfds) else self._batches(copy, progress)
            self._write(writer, *batches, options)

        remotes = (PICKLED_ARCHIVE,) if isinstance(copy, Copy) and copy.patterns == BATCHES else ()
        return Source(kind="folder", text=copy.text, fill=fill, archive=copy.archive, remotes=remotes)

    def _write(self, writer: Writer, train: Batch, test: Batch, options: CifarOptions) -> None:
        count = len(train.labels)
        order = torch_permutation(count, 42) if options.split == "s4" else tfds_order(count, "train")
        first = int(0.9 * count)
        rows = {
            "train": (train, order[:first]),
            "validation": (train, order[first:]),
            "test": (test, np.arange(self.test)),
        }
        sizes = self.sizes(options)
        for split in SPLITS:
            batch, chosen = rows[split]
            chosen = chosen[: sizes[split]]
            inputs = writer.create(split, "inputs", (len(chosen), *self._shape(options)), self.dtype)
            for begin in range(0, len(chosen), self.block):
                images = batch.images[chosen[begin : begin + self.block]]
                pixels = pooled(self.pixels(images, options), options.pool)
                inputs.put(begin, self._rows(pixels, split, begin, options))
            writer.save(split, "labels", batch.labels[chosen])

    def _shape(self, options: Any) -> tuple[int, ...]:
        """The shape of an example."""
        spec = self.spec(options)
        return (spec.length, *([spec.features] if spec.features > 1 else []))

    def _rows(self, pixels: np.ndarray, split: str, first: int, options: Any) -> np.ndarray:
        return self.steps(pixels, split, first, options).reshape(-1, *self._shape(options))

    def images(self, inputs: np.ndarray, options: Any) -> np.ndarray:
        """Prepared examples as images: (n, length[, features]) -> (n, height, width[, colours]) uint8."""
        side = SIDE // options.pool
        return inputs.reshape(len(inputs), side, side, *inputs.shape[2:])

    def reduction(self, options: Any, full: Any) -> Reduction | None:
        if not fits(options, full, ignored=self.reducible) or full.pool not in (1, options.pool):
            return None

        def change(rows: Split, split: str, first: int) -> Split:
            pixels = pooled(self.images(rows.inputs, full), options.pool // full.pool)
            return Split(inputs=self._rows(pixels, split, first, options), labels=rows.labels)

        return first_examples(options, change, self.block)

    def _batches(self, copy: Copy, progress: Progress) -> tuple[Batch, Batch]:
        batches = {}
        for file in copy.files(progress):
            name = file.name.removesuffix(BINARY)
            count = self.test if name == TEST else self.train // len(TRAIN)
            read = _binary if name != file.name else _pickled
            batches[name] = read(file, count)
        parts = [batches[name] for name in TRAIN]
        train = Batch(np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts]))
        return train, batches[TEST]

    def _prepared(self, copy: Tfds, progress: Progress) -> tuple[Batch, Batch]:
        """Both splits of TFDS in the order of the archive.

        Raises:
            LrurunError: it is not CIFAR-10, or incomplete.
        """
        batches = []
        for split, count in (("train", self.train), ("test", self.test)):
            copy.expect(split, count, _HINT)
            images, labels = np.zeros((count, SIDE, SIDE, 3), np.uint8), np.zeros(count, np.uint8)
            index_of, filled = _index_of(split, count), np.zeros(count, bool)
            for row, (where, example) in enumerate(copy.read(split, {"image": bytes, "label": CLASSES}, progress)):
                index = index_of(row, example.get("id"), where)
                images[index] = png.pixels(example["image"], where, SIDE, _HINT, "RGB")
                labels[index], filled[index] = example["label"], True
            if not filled.all():
                missing = f"{np.count_nonzero(~filled):,} of {count:,} images are missing, others occur twice"
                raise LrurunError(f"{copy.path}: {split}: {missing}", _HINT)
            batches.append(Batch(images, labels))
        return batches[0], batches[1]


class SCifar(Cifar):
    """CIFAR-10 in colour, as published for S4 and the LRU paper's Table 1."""

    name = "sCIFAR"
    title = "CIFAR-10 in colour as 1024-pixel sequences, 10 classes"

    def spec(self, options: CifarOptions, vocabulary: Sequence[str] = ()) -> Spec:
        return Spec(
            name=self.name,
            kind="features",
            features=3,
            classes=CLASSES,
            length=(SIDE // options.pool) ** 2,
            scale=1 / 255,
            mean=MEAN,
            std=STD,
        )

    def pixels(self, images: np.ndarray, options: CifarOptions) -> np.ndarray:
        return images


class Image(Cifar):
    """CIFAR-10 in gray, as in Long Range Arena (Tay et al. 2020)."""

    name = "Image"
    title = "CIFAR-10 in gray as 1024-pixel sequences, 10 classes"
    options = ImageOptions

    def spec(self, options: ImageOptions, vocabulary: Sequence[str] = ()) -> Spec:
        return Spec(
            name=self.name,
            kind="features",
            features=1,
            classes=CLASSES,
            length=(SIDE // options.pool) ** 2,
            scale=1 / 255,
            mean=(122.6 / 255,),
            std=(61 / 255,),
        )

    def pixels(self, images: np.ndarray, options: ImageOptions) -> np.ndarray:
        return lra_gray(images) if options.gray == "lra" else pil_gray(images)


def _has_parquet(path: Path) -> bool:
    """Whether a folder has Parquet files of training images, as the Hugging Face hub has them."""
    patterns = [pattern for form in parquet.forms(["train"]) for pattern in form]
    return any(any((path / below).glob(pattern)) for below in ("", "plain_text", "data") for pattern in patterns)


def _cifar_100(path: Path) -> str:
    """The folder or archive with a copy of CIFAR-100; empty if there is none, or an archive has CIFAR-10 before it."""
    if not path.is_file():
        folders = (path / below for name in CIFAR_100 for below in ("", name))
        complete = (
            str(folder)
            for folder in folders
            if any(all((folder / n).is_file() for n in names) for names in CIFAR_100.values())
        )
        return next(complete, "")
    for name, _ in reader.members(path) if reader.is_archive(path) else ():
        file = PurePosixPath(name)
        if file.parent.name in CIFAR_100:
            return f"{path}: {file.parent.name}"
        if file.name.removesuffix(BINARY) in BATCHES:
            break
    return ""


def _binary(file: File, count: int) -> Batch:
    """The images of a binary batch.

    Raises:
        LrurunError: too many or too few, or an invalid label.
    """
    content = file.read(_FILE_LIMIT)
    if len(content) != count * _RECORD:
        raise LrurunError(
            f"{file.where}: expected {count:,} records of {_RECORD:,} bytes, found {len(content):,} bytes", _HINT
        )
    records = np.frombuffer(content, np.uint8).reshape(count, _RECORD)
    return _batch(records[:, 1:], records[:, 0], file.where)


def _pickled(file: File, count: int) -> Batch:
    """The images of a pickled batch.

    Raises:
        LrurunError: it is not a pickle of images and labels, there are too many or too few, or an invalid label.
    """
    batch = pickles.table(file.read(_PICKLE_LIMIT), file.where)
    if "fine_labels" in batch:
        raise LrurunError(f"{file.where}: has the labels of CIFAR-100, not of CIFAR-10", _HINT)
    if not {"data", "labels"} <= set(batch):
        keys = ", ".join(map(repr, sorted(batch)))[:100] or "nothing"
        raise LrurunError(f"{file.where}: expected data and labels, found {keys}", _HINT)
    images, labels = batch["data"], batch["labels"]
    shape = images.shape if isinstance(images, np.ndarray) else ()
    if shape != (count, _RECORD - 1):
        expected = f"an array of shape ({count}, {_RECORD - 1})"
        raise LrurunError(f"{file.where}: data: expected {expected}, found {shape or type(images).__name__}", _HINT)
    if not isinstance(labels, list) or len(labels) != count or not all(type(label) is int for label in labels):
        actual = f"{len(labels):,} of them" if isinstance(labels, list) else type(labels).__name__
        raise LrurunError(f"{file.where}: labels: expected {count:,} whole numbers, found {actual}", _HINT)
    return _batch(images, np.array(labels, np.int64), file.where)


def _batch(pixels: np.ndarray, labels: np.ndarray, where: str) -> Batch:
    """A batch of images with one colour after the other.

    Raises:
        LrurunError: an invalid label.
    """
    for row in np.flatnonzero((labels < 0) | (labels >= CLASSES))[:1]:
        raise LrurunError(f"{where}: record {row}: expected a label of 0 to 9, found {labels[row]}", _HINT)
    images = pixels.reshape(len(labels), 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return Batch(images, labels.astype(np.uint8))


def lra_gray(images: np.ndarray) -> np.ndarray:
    """(..., 3) uint8 -> (...) uint8 as TensorFlow's `rgb_to_grayscale`: in float32, in this order, truncated.

    Bit-identical for all 2**24 colours; with exact coefficients, 237 of them would be one level darker.
    """
    red, green, blue = np.moveaxis(images.astype(np.float32) * np.float32(1 / 255), -1, 0)
    gray = red * np.float32(0.2989) + green * np.float32(0.587) + blue * np.float32(0.114)
    return (gray * np.float32(255.5)).astype(np.uint8)


def pil_gray(images: np.ndarray) -> np.ndarray:
    """(..., 3) uint8 -> (...) uint8 as Pillow's mode "L": in units of 1/65536, rounded."""
    red, green, blue = np.moveaxis(images.astype(np.uint32), -1, 0)
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).astype(np.uint8)


def pooled(images: np.ndarray, pool: int) -> np.ndarray:
    """(n, h, w[, c]) uint8 -> (n, h / pool, w / pool[, c]) uint8: means of squares, rounded, halves up."""
    if pool == 1:
        return images
    n, height, width, *channels = images.shape
    squares = images.reshape(n, height // pool, pool, width // pool, pool, *channels)
    return ((squares.sum((2, 4), dtype=np.uint16) + pool * pool // 2) // (pool * pool)).astype(np.uint8)


def _index_of(split: str, count: int) -> Callable[[int, bytes | None, str], int]:
    """A function from an example of TFDS to its index in the archive, by its id, or by its row in old versions."""
    order = tfds_order(count, split)

    def index_of(row: int, identity: bytes | None, where: str) -> int:
        if identity is None:
            return int(order[row])
        text = identity.decode(errors="replace") if isinstance(identity, bytes) else str(identity)
        match = re.fullmatch(rf"{split}_(\d{{1,9}})", text)
        if not match or int(match[1]) >= count:
            raise LrurunError(f"{where}: expected an id like {split}_{count - 1:05d}, found {identity!r}", _HINT)
        return int(match[1])

    return index_of
