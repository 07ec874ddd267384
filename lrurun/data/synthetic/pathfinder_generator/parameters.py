"""Parameters of Pathfinder images: the published ones for each size, and our own for laptops."""

from __future__ import annotations

from typing import NamedTuple

from lrurun.errors import LrurunError


class Parameters(NamedTuple):
    """The parameters of images; `parameters` knows the published ones. Lengths are in pixels."""

    size: int
    contour_length: int
    """Dashes of each of the two snakes."""
    quirks: bool
    """Whether the published program's errors are kept."""
    dash: int
    """Length of a dash."""
    thickness: float
    """Thickness of a dash."""
    margins: tuple[int, ...]
    """Room that a dash claims around it; one of them is sampled for each image."""
    seed_distance: int
    """Distance between the tails of the two snakes."""
    padding: int
    """Width of the frame on which no dash may lie."""
    continuity: float
    """Turns of 90 / continuity degrees or more do not happen."""
    radius: float
    """Radius of the discs."""
    contrasts: tuple[int, int]
    """Ink of the two snakes and of distractors, in percent of the ink of the discs."""
    overlap: int
    """Two dashes collide where the sum of their claims reaches this many percent of a full one."""
    distractors: int
    distractor_length: int
    """Dashes of a distractor."""
    distractor_tries: int
    """Attempts to place a distractor before it is omitted."""
    segmentation: bool = False
    """Whether distractors have discs too, and images a mask."""
    fine: int = 2
    """Dashes and discs are drawn this many times larger, then reduced; times the thickness, it is an integer."""


class _Size(NamedTuple):
    """One column of the table; ink in percent, `clutter` in dashes, `overlap` without quirks."""

    dash: int
    thickness: float
    margins: tuple[int, ...]
    seed_distance: int
    padding: int
    continuity: float
    radius: float
    contrasts: tuple[int, int]
    overlap: int
    clutter: int
    lengths: tuple[int, ...]


_SIZES = {
    22: _Size(2, 1.0, (1,), 4, 1, 1.5, 1.5, (80, 80), 140, 4, (4, 6)),  # our own, for laptops
    32: _Size(2, 0.5, (1,), 7, 1, 1.0, 1.5, (150, 200), 140, 20, (6, 9, 14)),
    64: _Size(5, 1.0, (1,), 12, 1, 1.8, 2.5, (80, 80), 140, 20, (6, 9, 14)),
    128: _Size(5, 1.5, (2, 3), 20, 1, 1.8, 3.0, (90, 90), 180, 35, (6, 9, 14)),
    256: _Size(5, 2.0, (3,), 27, 22, 1.8, 5.0, (100, 100), 180, 30, (6, 9, 14)),
}


def parameters(size: int, contour_length: int | None = None, quirks: bool = True) -> Parameters:
    """The published parameters for 32, 64, 128 and 256 pixels per side, or our own for 22, which are 484 steps.

    `contour_length` is the longest that there is by default: 14 dashes, the hard level, or 6 at 22.

    With `quirks`, images have the published distribution with the program's errors: first dashes lie at few angles (at
    32 pixels within 15 degrees of up and left), since its search for free places breaks at others; so most distractors
    of 32 pixels are missing, and those that are there are brighter than the snakes. A snake does not see the other's
    newest dash, so that they cross at times, and distractors may cross the first snake's last one. The gray of an image
    is stretched to its own maximum.

    Without, first dashes lie at any angle; each snake keeps clear of all of the other; where margins are a single
    pixel, dashes keep further apart, so that ink of two snakes does not run together; distractors are tried until they
    fit, and have the ink of snakes; black, gray and white mean the same in all images.

    Raises:
        LrurunError: there are no such images.
    """
    if size not in _SIZES:
        sizes = ", ".join(map(str, _SIZES))
        raise LrurunError(f"Pathfinder: size: expected one of {sizes}, found {size}", "choose one of these sizes")
    table = _SIZES[size]
    length = table.lengths[-1] if contour_length is None else contour_length
    if length not in table.lengths:
        lengths = ", ".join(map(str, table.lengths))
        raise LrurunError(
            f"Pathfinder: contour_length: expected one of {lengths} at size {size}, found {length}",
            "choose one of these lengths",
        )
    if quirks and size == 22:
        raise LrurunError(
            "Pathfinder: quirks: images of size 22 are our own, and there is no published distribution to keep",
            "choose quirks = false, or another size",
        )
    return _build(table, size, length, length // 3 if size != 22 else 2, quirks)


_SEGMENTED = {
    32: _Size(2, 1.0, (1,), 6, 1, 1.5, 1.5, (80, 80), 140, 4, (6,)),  # our own, for laptops
    128: _Size(5, 1.5, (2, 3), 22, 1, 1.8, 2.1, (90, 90), 180, 64, (14,)),
    256: _Size(8, 2.0, (4,), 27, 1, 2.2, 4.2, (100, 100), 180, 80, (16,)),
    512: _Size(22, 6.0, (7,), 40, 1, 2.5, 9.0, (100, 100), 180, 72, (12,)),
}


def segmented(size: int, quirks: bool = True) -> Parameters:
    """The parameters of PathfinderSegmentation (Gupta et al. 2023) for 128, 256 and 512 pixels per side.

    The published program has the same; for 32 pixels they are our own. Quirks are as in `parameters`, and masks have
    the ripples that reducing an image leaves around a dash, of a few levels of gray; without quirks, they are where a
    dash covers a quarter of a pixel or more.

    Raises:
        LrurunError: there are no such images.
    """
    if size not in _SEGMENTED:
        sizes = ", ".join(map(str, _SEGMENTED))
        raise LrurunError(
            f"PathfinderSegmentation: size: expected one of {sizes}, found {size}", "choose one of these sizes"
        )
    if quirks and size == 32:
        raise LrurunError(
            "PathfinderSegmentation: quirks: images of size 32 are our own, and there is no published distribution to "
            "keep",
            "choose quirks = false, or another size",
        )
    table = _SEGMENTED[size]
    short = 2 if size == 32 else table.lengths[-1] // 3
    return _build(table, size, table.lengths[-1], short, quirks)._replace(
        segmentation=True, fine=3 if size == 512 else 2
    )


def _build(table: _Size, size: int, length: int, short: int, quirks: bool) -> Parameters:
    """The parameters of images with `short` dashes in a distractor."""
    return Parameters(
        size=size,
        contour_length=length,
        quirks=quirks,
        dash=table.dash,
        thickness=table.thickness,
        margins=table.margins,
        seed_distance=table.seed_distance,
        padding=table.padding,
        continuity=table.continuity,
        radius=table.radius,
        contrasts=table.contrasts if quirks else (table.contrasts[0], table.contrasts[0]),
        overlap=180 if quirks else table.overlap,
        distractors=table.clutter // short,
        distractor_length=short,
        distractor_tries=5 if quirks else 100,
    )
