"""Pathfinder: two dashed snakes among shorter ones, and two discs. Does one snake lead from disc to disc?

The images of Kim, Linsley et al. (2020), with the parameters of Long Range Arena (Tay et al. 2020). A snake grows dash
by dash: the next head lies on a circle around a pivot ahead of the last one, more likely straight on than aside, and
never where there is no room. Two snakes grow in turns; if one cannot continue, both are discarded and another pair
starts. One pair in hundreds succeeds, which is why the published program takes up to two seconds per image.

Here thousands of pairs grow together. The appearance of a dash of each angle and the cells that it claims are tabulated
once; a step is then a few look-ups for all pairs. A batch of pairs always grows to its end, and images are taken in the
order in which their pairs started: to take them as they succeed would prefer snakes that succeed soon.
All randomness is from frozen NumPy streams (`RandomState`), one per chunk, and probabilities are integers: the same
bits in any order, with any number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from lrurun.data.synthetic.parallel import rounds
from lrurun.data.synthetic.pathfinder_generator.growth import add_distractors, grow_pairs
from lrurun.data.synthetic.pathfinder_generator.parameters import Parameters, parameters, segmented
from lrurun.data.synthetic.pathfinder_generator.tables import DEGREES, Tables, combine, tables

__all__ = ["CHUNK", "VERSION", "Images", "Parameters", "draw", "generate", "parameters", "segmented"]

VERSION = "1"
"""Version of the bits that a seed gives."""

CHUNK = 250
"""Images per chunk. Another number changes the bits."""


class Images(NamedTuple):
    """Images with their construction. Places are (row, column) in pixels; the snakes are 0 and 1."""

    images: np.ndarray
    """(n, size, size) uint8."""
    labels: np.ndarray
    """(n,) uint8: 1 if one snake leads from disc to disc."""
    markers: np.ndarray
    """(n, 2, 2) int16: positions of the discs, one at the tail of a snake and one at the head of a snake."""
    marked: np.ndarray
    """(n, 2) uint8: the snakes they are on."""
    tails: np.ndarray
    """(n, 2, contour_length, 2) int16: the end of each dash towards the tail of its snake."""
    heads: np.ndarray
    """(n, 2, contour_length, 2) int16: the end of each dash towards the head of its snake."""
    angles: np.ndarray
    """(n, 2, contour_length) float64: from tail to head, in radians from the right, downwards."""
    margins: np.ndarray
    """(n,) uint8: the margin of each image."""
    distractors: np.ndarray
    """(n,) uint8: distractors that found a position."""
    attempts: np.ndarray
    """(n,) int32: pairs of snakes started, without those whose first dash has an angle that never works."""
    masks: np.ndarray
    """(n, size, size) uint8, for segmentation: 2 where a snake with both discs has ink, 1 where only another long one
    has, 0 elsewhere; otherwise (n, 0, 0)."""


def generate(count: int, seed: int, parameters: Parameters, workers: int = 1) -> Iterator[Images]:
    """The first `count` images of a seed, chunk by chunk. `workers`, processes, only change the time.

    Raises:
        LrurunError: a process died.
    """
    stream = rounds(partial(draw, seed, count=CHUNK, parameters=parameters), workers)
    try:
        for first in range(0, count, CHUNK):
            chunk = next(stream)
            yield Images(*(array[: count - first] for array in chunk))
    finally:
        stream.close()


def draw(seed: int, chunk: int, count: int, parameters: Parameters) -> Images:
    """`count` images of chunk `chunk`: a pure function of its arguments. Another count gives other images."""
    p = parameters
    random = np.random.RandomState([seed, chunk])
    labels = random.randint(2, size=count)
    origin = random.randint(2, size=count)
    marked = np.stack([origin, np.where(labels, origin, 1 - origin)], axis=1)
    margins = np.take(p.margins, random.randint(len(p.margins), size=count))
    images = Images(
        images=np.empty((count, p.size, p.size), np.uint8),
        labels=labels.astype(np.uint8),
        markers=np.empty((count, 2, 2), np.int16),
        marked=marked.astype(np.uint8),
        tails=np.empty((count, 2, p.contour_length, 2), np.int16),
        heads=np.empty((count, 2, p.contour_length, 2), np.int16),
        angles=np.empty((count, 2, p.contour_length)),
        margins=margins.astype(np.uint8),
        distractors=np.empty(count, np.uint8),
        attempts=np.empty(count, np.int32),
        masks=np.empty((count, p.size, p.size) if p.segmentation else (count, 0, 0), np.uint8),
    )
    for margin in p.margins:
        chosen = np.flatnonzero(margins == margin)
        if len(chosen):
            _fill(images, chosen, tables(p, margin), random)
    return images


def _fill(images: Images, chosen: np.ndarray, t: Tables, random: np.random.RandomState) -> None:
    """Makes the images with these indices; their labels and marked snakes are set already."""
    p, count = t.parameters, len(chosen)
    positions, angles, attempts, maps = grow_pairs(t, random, count)
    discs, *snakes = np.zeros((3, count * t.cells), np.uint8)
    clutter, images.distractors[chosen] = add_distractors(t, random, maps, discs)
    home = np.arange(count) * t.cells
    for snake in (0, 1):
        for at, angle in zip(positions[snake], angles[snake], strict=True):
            combine(np.maximum, snakes[snake], home + at, angle, t.ink)

    starts = np.stack(np.divmod(positions, t.side), axis=-1).transpose(2, 0, 1, 3) - t.rim
    angles = angles.transpose(2, 0, 1)
    ends = starts + t.ends[angles]
    forwards = angles[..., None] < DEGREES
    images.tails[chosen] = np.where(forwards, starts, ends)
    images.heads[chosen] = np.where(forwards, ends, starts)
    images.angles[chosen] = t.radians[angles]
    images.attempts[chosen] = attempts
    images.markers[chosen, 0] = images.tails[chosen, images.marked[chosen, 0], 0]
    images.markers[chosen, 1] = images.heads[chosen, images.marked[chosen, 1], -1]
    for marker in (0, 1):
        row, column = (images.markers[chosen, marker].astype(np.int64) + t.rim).T
        combine(np.maximum, discs, home + row * t.side + column, np.zeros(count, np.int64), t.disc)
    images.images[chosen] = _develop(p, t, np.maximum(*snakes), clutter, discs)
    if p.segmentation:
        connected = images.labels[chosen] == 1
        classes = [1 + (connected & (images.marked[chosen, 0] == snake)) for snake in (0, 1)]
        least = 1 if p.quirks else 64
        masks = [
            (ink.reshape(-1, t.cells) >= least) * value[:, None] for ink, value in zip(snakes, classes, strict=True)
        ]
        images.masks[chosen] = _framed(t, np.maximum(*masks))


def _develop(p: Parameters, t: Tables, snakes: np.ndarray, clutter: np.ndarray, discs: np.ndarray) -> np.ndarray:
    """(n, size, size) uint8 from three flat layers of ink."""
    ink = snakes.astype(np.int32) * p.contrasts[0]
    np.maximum(ink, clutter.astype(np.int32) * p.contrasts[1], out=ink)
    np.maximum(ink, discs.astype(np.int32) * 100, out=ink)
    ink = _framed(t, ink)
    white = ink.max(axis=(1, 2), keepdims=True) if p.quirks else np.int32(255 * 100)
    return np.minimum((2 * 255 * ink + white) // (2 * white), 255).astype(np.uint8)


def _framed(t: Tables, maps: np.ndarray) -> np.ndarray:
    """(n, size, size): the images in flat maps."""
    return maps.reshape(-1, t.side, t.side)[:, t.rim : -t.rim, t.rim : -t.rim]
