"""PathfinderSegmentation (Gupta et al. 2023, section 3.2): which pixels are on the snake between two discs.

Distractors have a disc too, so that discs do not show which snakes are the long ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.data.metric import Accuracy, BalancedAccuracy, MacroF1, Metric
from lrurun.data.synthetic import pathfinder_generator
from lrurun.data.synthetic.listops import SIZES
from lrurun.data.synthetic.pathfinder import SnakeImages, SnakeOptions
from lrurun.data.task import Output, Spec, Split


class PathfinderSegmentationOptions(SnakeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes are 128, 256 or 512, as published, or 32."""

    size: Annotated[int, Meta(ge=1, le=1024)] = 128

    def parameters(self) -> pathfinder_generator.Parameters:
        return pathfinder_generator.segmented(self.size, self.quirks)


class PathfinderSegmentation(SnakeImages):
    """Labels are uint8 as well, (n, size * size): the classes of `Images.masks`.

    Validation is the images that are generated after the test split. The sizes are as in the paper, 96/2/2 per cent;
    its code divides 80/10/10 by default, with which its steps and epochs agree.
    """

    name = "PathfinderSegmentation"
    title = "which pixels are on a long dashed line, and on one between two discs? 128x128 images, 3 classes"
    version = "1"
    """1: pixels row by row, and the bits of Pathfinder's generator, version 1."""
    options = PathfinderSegmentationOptions
    classes = 3
    metric = MacroF1()
    output = Output(at="positions", balanced=True)
    full = SIZES

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The published ones and the accuracy of all pixels, of which few are on a line."""
        return (self.metric, BalancedAccuracy(chance=1 / 3), Accuracy())

    def labels(self, images: pathfinder_generator.Images) -> np.ndarray:
        return images.masks.reshape(len(images.masks), -1)

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> np.ndarray:
        """The image, and its mask beside it."""
        image, mask = (
            np.asarray(part[index]).reshape(-1, round(spec.length**0.5)) for part in (split.inputs, split.labels)
        )
        return np.concatenate([image, np.full((len(image), 2), 128, np.uint8), mask * np.uint8(127)], axis=1)
