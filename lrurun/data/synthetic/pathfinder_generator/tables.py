"""Look-up tables of dashes: what a dash of each angle looks like, which cells it takes, and where the next may begin.

Angles are indices: the first 360 are the degrees, from -180, of first dashes, whose position is their tail; the
others are the positions on the circle around a pivot, where the head of a next dash, its position, may lie.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import ceil
from typing import NamedTuple

import numpy as np

from lrurun.data.synthetic.pathfinder_generator.parameters import Parameters

DEGREES = 360
"""Angles that a first dash may have."""
_OCCUPIED = 76
"""A first dash lies where nothing is claimed beyond this: 0.3 of 255."""
_STRAIGHT = 1 << 16
"""The weight of a position straight ahead; of one aside, this times the squared cosine."""


class Stamps(NamedTuple):
    """A patch of cells for each angle, all of one shape and no larger than they must be."""

    values: np.ndarray
    """(angles, rows * width) uint8."""
    corners: np.ndarray
    """(angles,) from the position of a dash to the first cell of its patch."""
    rows: np.ndarray
    """(rows,) from the first cell of the patch to the first cell of each row."""
    width: int


class Tables(NamedTuple):
    """All that follows from parameters and one margin. Maps have a rim around the image, which no look-up leaves."""

    parameters: Parameters
    rim: int
    side: int
    """Side of a map, and the step to the next row in a flat map."""
    cells: int
    """Cells of a map."""
    taken: np.ndarray
    """(cells,) uint8: map before the first dash."""
    free: np.ndarray
    """(cells,) uint8."""
    inside: np.ndarray
    """(cells,) bool: the image."""
    radians: np.ndarray
    """(angles,)."""
    ends: np.ndarray
    """(angles, 2) rows and columns from the position of a dash to its other end."""
    allowed: np.ndarray
    """(360,) bool: angles of first dashes."""
    first: np.ndarray
    """(k,) the angles for which the first snake finds a position."""
    start: np.ndarray
    """(360, 2, 2) the rectangle of these positions: row and column of its corner, and its extent."""
    second: np.ndarray
    """(360,) from the first snake's tail to the second's, by degree."""
    tip: np.ndarray
    """(360,) from a tail to the head of the first dash."""
    pivot: np.ndarray
    """(360,) from a tail to the pivot of the first dash."""
    advance: np.ndarray
    """(angles,) from the pivot of a dash to the next."""
    reach: np.ndarray
    """(choices, angles) from the pivot of a dash to the positions for the next."""
    turn: np.ndarray
    """(choices, angles) the angle of a dash at each of these positions."""
    weight: np.ndarray
    """(choices, angles) int32: the weight of each of these positions."""
    ink: Stamps
    claim: Stamps
    """The positions that a dash takes."""
    limit: Stamps
    """A dash collides where more than this is taken."""
    room: Stamps
    """The positions that a dash leaves free."""
    fit: Stamps
    """A first dash does not fit where more than this is taken."""
    disc: Stamps


@lru_cache(maxsize=4)
def tables(p: Parameters, margin: int) -> Tables:
    radius = p.dash + margin
    rim = p.dash + 2 * margin + 3  # from a head to the farthest next head, a pivot ahead; no stamp is larger
    side = p.size + 2 * rim
    inside = np.zeros((side, side), bool)
    inside[rim:-rim, rim:-rim] = True
    taken = inside.astype(np.uint8) * 255
    taken[rim + p.padding : -rim - p.padding, rim + p.padding : -rim - p.padding] = 0
    free = np.where(inside, 255 - _widen(taken[None], margin)[0], 0).astype(np.uint8)

    degrees = np.radians(np.arange(DEGREES) - 180)
    circle = _circle(radius)
    steps = np.arctan2(circle[:, 0], circle[:, 1])
    radians = np.concatenate([degrees, steps])
    lines = np.concatenate([degrees, steps + np.pi])
    ends = _offset(lines, p.dash)
    ahead = _offset(radians, p.dash + 2 * margin)
    turn, weight = _turns(steps, radians, p.continuity)

    fine = _lines(p, margin, lines)
    claims = _reduce(_widen(fine, margin * p.fine), p.fine)
    collision = p.overlap * 255 // 100 - 1
    limits = np.where(claims > collision - 255, collision - claims.astype(np.int64), 255).astype(np.uint8)
    rooms = 255 - _widen(np.pad(claims, ((0, 0), (margin, margin), (margin, margin))), margin)
    clearances = _clearances(claims[:DEGREES] == 255, radius, p.quirks)
    allowed = _allowed(clearances, p.quirks)
    start = _rectangles(clearances, 2 * p.seed_distance, p.size)

    def flat(offsets: np.ndarray) -> np.ndarray:
        return offsets[..., 0] * side + offsets[..., 1]

    return Tables(
        parameters=p,
        rim=rim,
        side=side,
        cells=side * side,
        taken=taken.reshape(-1),
        free=free.reshape(-1),
        inside=inside.reshape(-1),
        radians=radians,
        ends=ends,
        allowed=allowed,
        first=np.flatnonzero(allowed & (start[:, 1] > 0).all(axis=1)),
        start=start + np.array([[rim], [0]]),
        second=flat(np.floor(p.seed_distance * _unit(degrees) + 0.5 + 1e-9).astype(np.int64)),
        tip=flat(ends[:DEGREES]),
        pivot=flat(ends[:DEGREES] + _offset(degrees + np.pi, radius)),
        advance=flat(ahead),
        reach=flat(ahead) + flat(circle)[turn],
        turn=DEGREES + turn,
        weight=weight,
        ink=_stamps(_reduce(fine, p.fine), 0, side),
        claim=_stamps(claims, 0, side),
        limit=_stamps(limits, 255, side),
        room=_stamps(rooms, 255, side),
        fit=_stamps(np.where(clearances, _OCCUPIED, 255).astype(np.uint8), 255, side),
        disc=_stamps(_disc(p.radius, p.fine), 0, side),
    )


def _unit(radians: np.ndarray) -> np.ndarray:
    """(..., 2) unit vectors: down, and to the right."""
    return np.stack([np.sin(radians), np.cos(radians)], axis=-1)


def _offset(radians: np.ndarray, distance: int) -> np.ndarray:
    """(..., 2) rows and columns to a point so far away; rounded up, as published."""
    return np.ceil(distance * _unit(radians) - 1e-9).astype(np.int64)


def _circle(radius: int) -> np.ndarray:
    """(k, 2) cells on a circle, sampled a pixel of arc apart."""
    samples = np.radians(np.arange(0, 360, 360 / (2 * np.pi * radius)))
    return np.unique(np.floor(radius * _unit(samples) + 1e-9).astype(np.int64), axis=0)


def _turns(steps: np.ndarray, radians: np.ndarray, continuity: float) -> tuple[np.ndarray, np.ndarray]:
    """The steps that have weight and their weight, for each angle of a last dash: both (choices, angles)."""
    delta = np.abs(steps[:, None] - radians)
    delta = np.minimum(delta, 2 * np.pi - delta)
    weight = np.rint(_STRAIGHT * np.cos(np.minimum(continuity * delta, np.pi / 2)) ** 2).astype(np.int32)
    order = np.argsort(weight == 0, axis=0, kind="stable")[: np.count_nonzero(weight, axis=0).max()]
    return order, np.take_along_axis(weight, order, axis=0)


def _clearances(full: np.ndarray, radius: int, quirks: bool) -> np.ndarray:
    """(360, s, s) bool: the cells that must be free around the position of a first dash, which is in the middle.

    They are the cells that a dash claims in `full`, in a square of that radius. The published program looks one cell
    too far down and right.
    """
    shift, beyond = int(quirks), full.shape[1] // 2 - radius
    clearances = np.zeros_like(full)
    clearances[:, shift:, shift:] = full[:, : full.shape[1] - shift, : full.shape[1] - shift]
    for axis in (1, 2):
        rows = np.moveaxis(clearances, axis, 0)
        rows[:beyond] = rows[len(rows) - beyond :] = False
    return clearances


def _allowed(clearances: np.ndarray, quirks: bool) -> np.ndarray:
    """(360,) bool: angles at which the published program finds free positions.

    It breaks as soon as no part of a clearance is in the image, which happens first in a corner.
    """
    middle = clearances.shape[1] // 2
    before, after = slice(middle + 1), slice(middle, None)
    allowed = np.ones(len(clearances), bool)
    for rows, columns in product((before, after), repeat=2) if quirks else ():
        allowed &= clearances[:, rows, columns].any(axis=(1, 2))
    return allowed


def _rectangles(clearances: np.ndarray, border: int, size: int) -> np.ndarray:
    """(360, 2, 2) corner and extent of the positions whose whole clearance is that far inside the image."""
    middle = clearances.shape[1] // 2
    rectangles = np.empty((len(clearances), 2, 2), np.int64)
    for axis in (0, 1):
        used = np.asarray(clearances.any(axis=2 - axis))
        low, high = used.argmax(axis=1) - middle, middle - used[:, ::-1].argmax(axis=1)
        rectangles[:, 0, axis] = border - low
        rectangles[:, 1, axis] = size - 2 * border - (high - low)
    return rectangles


def _lines(p: Parameters, margin: int, radians: np.ndarray) -> np.ndarray:
    """(angles, s, s) uint8: enlarged dashes that begin in the middle."""
    from PIL import Image, ImageDraw

    middle = (p.dash + ceil(p.thickness) + margin) * p.fine
    pictures = []
    for row, column in (_offset(radians, p.dash * p.fine) + middle).tolist():
        picture = Image.new("L", (2 * middle + 1, 2 * middle + 1))
        width = round(p.thickness * p.fine)
        ImageDraw.Draw(picture).line([(middle, middle), (column, row)], fill=255, width=width)
        pictures.append(np.asarray(picture))
    return np.stack(pictures)


def _disc(radius: float, fine: int) -> np.ndarray:
    """(1, s, s) uint8: the picture of a disc."""
    reach = ceil(radius) + 2
    squares = (np.arange((2 * reach + 1) * fine) - reach * fine) ** 2
    return _reduce(np.where(squares + squares[:, None] <= (radius * fine) ** 2, 255, 0)[None].astype(np.uint8), fine)


def _reduce(pictures: np.ndarray, fine: int) -> np.ndarray:
    """The pictures, which are `fine` times larger, reduced to the size of the image."""
    from PIL import Image

    side = -(-pictures.shape[1] // fine)
    return np.stack([np.asarray(Image.fromarray(x).resize((side, side), Image.Resampling.LANCZOS)) for x in pictures])


def _widen(pictures: np.ndarray, radius: int) -> np.ndarray:
    """Each pixel is the brightest within that distance."""
    side = pictures.shape[1]
    padded = np.pad(pictures, ((0, 0), (radius, radius), (radius, radius)))
    wide = pictures.copy()
    for row in range(2 * radius + 1):
        for column in range(2 * radius + 1):
            if (row - radius) ** 2 + (column - radius) ** 2 <= radius**2:
                np.maximum(wide, padded[:, row : row + side, column : column + side], out=wide)
    return wide


def _stamps(pictures: np.ndarray, blank: int, side: int) -> Stamps:
    """The part of (angles, s, s) pictures that is not blank; the middle is the position of a dash."""
    count, size = pictures.shape[:2]
    used = [(pictures != blank).any(axis=axis) for axis in (2, 1)]
    corners = [lines.argmax(axis=1) for lines in used]
    rows, width = (
        int((size - lines[:, ::-1].argmax(axis=1) - corner).max()) for lines, corner in zip(used, corners, strict=True)
    )
    top, left = np.minimum(corners[0], size - rows), np.minimum(corners[1], size - width)
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (rows, width), axis=(1, 2))
    values = windows[np.arange(count), top, left].reshape(count, rows * width)
    return Stamps(values, (top - size // 2) * side + left - size // 2, np.arange(rows) * side, width)


def _patches(
    cells: np.ndarray, at: np.ndarray, angle: np.ndarray, stamps: Stamps
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The cells under stamps: a view of all rows of cells, (n, rows) indices into it, (n, rows * width) uint8 values.

    A row is one item of the view: NumPy then copies bytes, many times faster than it gathers single cells.
    """
    view = np.ndarray((len(cells) - stamps.width + 1,), f"V{stamps.width}", cells, strides=(1,))
    where = (at + stamps.corners[angle])[:, None] + stamps.rows
    return view, where, view[where].view(np.uint8).reshape(len(at), len(stamps.rows) * stamps.width)


def collide(cells: np.ndarray, at: np.ndarray, angle: np.ndarray, stamps: Stamps) -> np.ndarray:
    """(n,) bool: whether any cell is beyond the stamp."""
    return (_patches(cells, at, angle, stamps)[2] > stamps.values[angle]).any(axis=1)


def combine(operation: np.ufunc, cells: np.ndarray, at: np.ndarray, angle: np.ndarray, stamps: Stamps) -> None:
    """cells = operation(cells, stamp), at positions in different maps."""
    view, where, values = _patches(cells, at, angle, stamps)
    operation(values, stamps.values[angle], out=values)
    view[where] = values.view(view.dtype).reshape(where.shape)
