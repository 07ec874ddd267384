"""sDigits: scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, read as sequences of 64 pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lrurun.data.arrays import Writer
from lrurun.data.task import SPLITS, Options, Progress, Source, Spec, Split, Task, limited

SIZES = {"train": 1197, "validation": 300, "test": 300}


class Digits(Task):
    """Real images, included in scikit-learn (the test part of UCI's optdigits).

    Validation is 300 of them, by a fixed permutation (`splits`).
    """

    name = "sDigits"
    title = "8x8 digits as 64-pixel sequences, 10 classes"
    version = "1"
    """1: the split below, pixels 0 to 16 as uint8."""
    classes = 10

    def sizes(self, options: Options) -> dict[str, int]:
        return limited(options, SIZES)

    def spec(self, options: Options, vocabulary: Sequence[str] = ()) -> Spec:
        return Spec(name=self.name, kind="features", features=1, classes=10, length=64, scale=1 / 16)

    def offline(self, options: Options) -> Source:
        def fill(writer: Writer, progress: Progress) -> None:
            for name, split in splits().items():
                count = self.sizes(options)[name]
                writer.save(name, "inputs", split.inputs[:count])
                writer.save(name, "labels", split.labels[:count])

        return Source(kind="embedded", text="scikit-learn load_digits", fill=fill)


def splits() -> dict[str, Split]:
    """A fixed random split: in the original order, the last quarter is by other writers."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    inputs = digits.images.reshape(len(order), 64).astype(np.uint8)[order]
    labels = digits.target.astype(np.uint8)[order]
    ends = np.cumsum([SIZES[name] for name in SPLITS])
    starts = ends - [SIZES[name] for name in SPLITS]
    return {
        name: Split(inputs=inputs[a:b], labels=labels[a:b]) for name, a, b in zip(SPLITS, starts, ends, strict=True)
    }
