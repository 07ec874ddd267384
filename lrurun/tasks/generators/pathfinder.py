"""Pathfinder: two dashed snakes among shorter ones, and two discs. Does one snake lead from disc to disc?

The images of Kim, Linsley et al. (2020), with the parameters of Long Range Arena (Tay et al. 2020). A snake grows dash
by dash: the next head lies on a circle around a pivot ahead of the last one, more likely straight on than aside, and
never where there is no room. Two snakes grow in turns; where one has no way on, both are given up and two others begin.
One pair in hundreds succeeds, which is why the published program takes up to two seconds an image.

Here thousands of pairs grow together. What a dash of each angle looks like and which cells it claims is tabulated once;
a step is then a handful of look-ups for all pairs. A batch of pairs is always grown to its end, and images are taken in
the order in which their pairs began: taking them as they succeed would prefer snakes that soon do.
Everything comes from frozen NumPy streams (`RandomState`), one a chunk, and chances are integers: the same bits in any
order, on any number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import product
from math import ceil
from typing import NamedTuple

import numpy as np

from lrurun.errors import LrurunError
from lrurun.tasks.generators.parallel import rounds

VERSION = "1"
"""Of the bits that a seed gives."""

CHUNK = 250
"""Images a chunk: part of the streams."""

_FINE = 2
"""Dashes and discs are drawn this many times larger, then reduced."""
_DEGREES = 360
"""Angles that a first dash may have."""
_TRIES = 3
"""For the place of the next dash, and for that of a distractor's first one."""
_OCCUPIED = 76
"""A first dash lies where nothing is claimed beyond this: 0.3 of 255."""
_STRAIGHT = 1 << 16
"""The weight of a place straight ahead; of one aside, this times the squared cosine."""
_LEAST = 1672
"""A snake ends where all weights, times the room, are less together: 1e-4 of _STRAIGHT times 255."""
_GUESSES = 16
"""For the place of a first dash, before all places are looked at."""
_BATCH = 2048, 8192, 48 << 20
"""Pairs that grow together: at first, at most, and as many as have maps of so many bytes. Part of the streams."""


class Parameters(NamedTuple):
    """What the images look like; `parameters` knows what is published. Lengths are in pixels."""

    size: int
    contour_length: int
    """Dashes of each of the two snakes."""
    quirks: bool
    """Whether the published program's slips are kept."""
    dash: int
    """Length of a dash."""
    thickness: float
    """Of a dash; a multiple of 1/2."""
    margins: tuple[int, ...]
    """Room that a dash claims around it; one of them is drawn for each image."""
    seed_distance: int
    """Between the tails of the two snakes."""
    padding: int
    """Width of the frame on which no dash may lie."""
    continuity: float
    """Turns of 90 / continuity degrees or more do not happen."""
    radius: float
    """Of the discs."""
    contrasts: tuple[int, int]
    """Ink of the two snakes and of distractors, in percent of that of the discs."""
    overlap: int
    """Two dashes collide where the sum of their claims reaches this many percent of a full one."""
    distractors: int
    distractor_length: int
    """Dashes."""
    distractor_tries: int
    """Beginnings of a distractor before it is left out."""


class _Size(NamedTuple):
    """One column of the table; ink in percent, `clutter` in dashes, `overlap` is that without quirks."""

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
    """The published parameters of 32, 64, 128 and 256 pixels a side, or our own of 22, which are 484 steps.

    `contour_length` is the longest that there is by default: 14 dashes, the hard level, or 6 at 22.

    With `quirks`, the images have the published law, the program's slips included: first dashes lie at few angles (at
    32 pixels within 15 degrees of up and left), since its search for free places breaks at others; so most distractors
    of 32 pixels are missing, and those that are there are brighter than the snakes. A snake does not see the other's
    newest dash, so that they cross at times, and distractors may cross the first snake's last one. The grey of an image
    is stretched to its own maximum.

    Without, first dashes lie at any angle; each snake keeps clear of all of the other; where margins are a single
    pixel, dashes keep further apart, so that ink of two snakes does not run together; distractors are tried until they
    fit, and have the ink of snakes; black, grey and white mean the same in all images.

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
            "Pathfinder: quirks: images of size 22 are our own, and there is no published law to keep",
            "choose quirks = false, or another size",
        )
    short = length // 3 if size != 22 else 2
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


class Images(NamedTuple):
    """Images, and how they were made. Places are (row, column) in pixels; snakes are 0 and 1."""

    images: np.ndarray
    """(n, size, size) uint8."""
    labels: np.ndarray
    """(n,) uint8: 1 if one snake leads from disc to disc."""
    markers: np.ndarray
    """(n, 2, 2) int16: places of the discs, one at the tail of a snake and one at the head of a snake."""
    marked: np.ndarray
    """(n, 2) uint8: the snakes they are on."""
    tails: np.ndarray
    """(n, 2, contour_length, 2) int16: the end of each dash towards the tail of its snake."""
    heads: np.ndarray
    """(n, 2, contour_length, 2) int16: the end of each dash towards the head of its snake."""
    angles: np.ndarray
    """(n, 2, contour_length) float64: from tail to head, in radians from the right, downwards."""
    margins: np.ndarray
    """(n,) uint8: the margin drawn."""
    distractors: np.ndarray
    """(n,) uint8: distractors that found a place."""
    attempts: np.ndarray
    """(n,) int32: pairs of snakes begun, without those whose first dash lies at an angle that never works."""


def generate(count: int, seed: int, parameters: Parameters, workers: int = 1) -> Iterator[Images]:
    """The first `count` images of that seed, chunk by chunk; `workers` changes nothing but the time.

    Raises:
        LrurunError: the seed is none, or a process died.
    """
    if not 0 <= seed < 2**32:
        raise LrurunError(f"Pathfinder: seed: expected 0 to {2**32 - 1}, found {seed}", "choose another seed")
    stream = rounds(partial(draw, seed, count=CHUNK, parameters=parameters), workers)
    try:
        for first in range(0, count, CHUNK):
            chunk = next(stream)
            yield Images(*(array[: count - first] for array in chunk))
    finally:
        stream.close()


def draw(seed: int, chunk: int, count: int, parameters: Parameters) -> Images:
    """`count` images of chunk `chunk`: a pure function of its arguments, of which no prefix is that of another."""
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
    )
    for margin in p.margins:
        chosen = np.flatnonzero(margins == margin)
        if len(chosen):
            _fill(images, chosen, _tables(p, margin), random)
    return images


def _fill(images: Images, chosen: np.ndarray, t: _Tables, random: np.random.RandomState) -> None:
    """Makes the images with these indices; labels and marked snakes stand there already."""
    p, count = t.parameters, len(chosen)
    places, angles, attempts, maps = _pairs(t, random, count)
    clutter, images.distractors[chosen] = _clutter(t, random, maps)
    home = np.arange(count) * t.cells
    snakes, discs = np.zeros(count * t.cells, np.uint8), np.zeros(count * t.cells, np.uint8)
    for at, angle in zip(places.reshape(-1, count), angles.reshape(-1, count), strict=True):
        _combine(np.maximum, snakes, home + at, angle, t.ink)

    own = np.stack(np.divmod(places, t.side), axis=-1).transpose(2, 0, 1, 3) - t.rim
    angles = angles.transpose(2, 0, 1)
    other = own + t.ends[angles]
    forwards = angles[..., None] < _DEGREES
    images.tails[chosen] = np.where(forwards, own, other)
    images.heads[chosen] = np.where(forwards, other, own)
    images.angles[chosen] = t.radians[angles]
    images.attempts[chosen] = attempts
    images.markers[chosen, 0] = images.tails[chosen, images.marked[chosen, 0], 0]
    images.markers[chosen, 1] = images.heads[chosen, images.marked[chosen, 1], -1]
    for marker in (0, 1):
        row, column = (images.markers[chosen, marker].astype(np.int64) + t.rim).T
        _combine(np.maximum, discs, home + row * t.side + column, np.zeros(count, np.int64), t.disc)
    images.images[chosen] = _develop(p, t, snakes, clutter, discs)


def _develop(p: Parameters, t: _Tables, snakes: np.ndarray, clutter: np.ndarray, discs: np.ndarray) -> np.ndarray:
    """(n, size, size) uint8 of three layers of ink, which lie flat."""
    ink = snakes.astype(np.int32) * p.contrasts[0]
    np.maximum(ink, clutter.astype(np.int32) * p.contrasts[1], out=ink)
    np.maximum(ink, discs.astype(np.int32) * 100, out=ink)
    ink = ink.reshape(-1, t.side, t.side)[:, t.rim : -t.rim, t.rim : -t.rim]
    white = ink.max(axis=(1, 2), keepdims=True) if p.quirks else np.int32(255 * 100)
    return np.minimum((2 * 255 * ink + white) // (2 * white), 255).astype(np.uint8)


# Growth. Places are indices into maps that lie flat one behind the other; `home` is where the map of a place begins.


class _Maps(NamedTuple):
    """What the dashes so far have taken, for many pairs."""

    taken: np.ndarray
    """(maps * cells,) uint8: 255 where a dash or its margin is."""
    free: np.ndarray
    """(maps * cells,) uint8: 255 where there is room for a head, 0 within another margin of what is taken."""

    def add(self, t: _Tables, at: np.ndarray, angle: np.ndarray) -> None:
        """Takes the cells of one dash in each of some maps."""
        _combine(np.maximum, self.taken, at, angle, t.claim)
        _combine(np.minimum, self.free, at, angle, t.room)


def _pairs(t: _Tables, random: np.random.RandomState, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, _Maps]:
    """The first `count` pairs of snakes that succeed.

    Returns:
        places (2, contour_length, count) in a map of their own, angles of the same shape, pairs begun for each, maps.
    """
    first, most, size = _BATCH
    per_lane = 1 if t.parameters.quirks else 2
    most = min(most, size // (2 * per_lane * t.cells))
    maps = _Maps(*(np.empty(most * per_lane * t.cells, np.uint8) for _ in range(2)))
    lanes, begun, made = min(first, most), 0, 0
    order, found = [np.array([-1])], []
    while made < count:
        lane, *pairs = _grow(t, random, maps, lanes)
        order.append(begun + lane)
        found.append(pairs)
        begun, made = begun + lanes, made + len(lane)
        if made:
            lanes = min(most, ceil((count - made) * 1.1 * begun / made) + 64)
    places, angles = (np.concatenate([pairs[i] for pairs in found], axis=2)[:, :, :count] for i in (0, 1))
    taken, free = (np.concatenate([pairs[i] for pairs in found])[: count * t.cells] for i in (2, 3))
    return places, angles, np.diff(np.concatenate(order)[: count + 1]), _Maps(taken, free)


def _grow(t: _Tables, random: np.random.RandomState, maps: _Maps, lanes: int) -> tuple[np.ndarray, ...]:
    """Grows so many pairs in `maps`, which are overwritten: the lanes that succeeded, their places, angles and maps.

    The newest dash of a snake is not on the map that it looks at, for the next one is too near. With quirks both look
    at one map, so that neither sees the other's newest; else each has a map of its own.
    """
    p = t.parameters
    shift = (0, 0) if p.quirks else (0, t.cells)
    stride = t.cells + shift[1]
    for cells, blank in zip(maps, (t.taken, t.free), strict=True):
        cells[: lanes * stride].reshape(-1, t.cells)[:] = blank
    places = np.empty((2, p.contour_length, lanes), np.int64)
    angles = np.empty((2, p.contour_length, lanes), np.int64)
    angles[0, 0], angles[1, 0] = t.first[random.randint(len(t.first), size=lanes)], random.randint(360, size=lanes)
    corner, span = t.start[angles[0, 0]].transpose(1, 2, 0)
    row, column = corner + (random.random_sample((2, lanes)) * span).astype(np.int64)
    places[0, 0] = row * t.side + column
    places[1, 0] = places[0, 0] + t.second[random.randint(_DEGREES, size=lanes)]

    lane = np.arange(lanes)
    state = np.empty((2, 3, lanes), np.int64)  # of both snakes: place, pivot and angle of the newest dash
    for snake in (0, 1):
        at = places[snake, 0] + lane * stride
        state[snake] = at + shift[snake], at + shift[snake] + t.pivot[angles[snake, 0]], angles[snake, 0]
        if not p.quirks:
            maps.add(t, at + shift[1 - snake], angles[snake, 0])
    for step in range(1, p.contour_length):
        for snake in (0, 1):
            ok, head, turn = _step(t, random, maps, *state[snake, 1:])
            lane, state = lane[ok], state[:, :, ok]
            at, pivot, angle = state[snake]
            maps.add(t, at, angle)
            if not p.quirks:
                maps.add(t, head - shift[snake] + shift[1 - snake], turn)
            state[snake] = head, pivot + t.advance[angle], turn
            places[snake, step, lane] = head - shift[snake] - lane * stride
            angles[snake, step, lane] = turn
    if p.quirks:
        maps.add(t, state[1, 0], state[1, 2])
    taken, free = (cells[: lanes * stride].reshape(lanes, -1, t.cells)[lane] for cells in maps)
    return lane, places[:, :, lane], angles[:, :, lane], taken.max(axis=1).reshape(-1), free.min(axis=1).reshape(-1)


def _step(
    t: _Tables, random: np.random.RandomState, maps: _Maps, pivot: np.ndarray, angle: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The next dash of each snake: indices of those that have one, its place (the head) and angle."""
    odds = maps.free.take(t.reach.take(angle, axis=1) + pivot).astype(np.int32)
    odds *= t.weight.take(angle, axis=1)
    np.cumsum(odds, axis=0, out=odds)
    at, turn = np.full(len(angle), -1), np.empty(len(angle), np.int64)
    left = np.flatnonzero(odds[-1] >= _LEAST)
    for _ in range(_TRIES):
        some = odds.take(left, axis=1)
        choice = (some <= (random.random_sample(len(left)) * some[-1]).astype(np.int32)).sum(axis=0)
        head, new = pivot[left] + t.reach[choice, angle[left]], t.turn[choice, angle[left]]
        free = ~_collide(maps.taken, head, new, t.limit)
        at[left[free]], turn[left[free]] = head[free], new[free]
        left = left[~free]
    ok = np.flatnonzero(at >= 0)
    return ok, at[ok], turn[ok]


def _clutter(t: _Tables, random: np.random.RandomState, maps: _Maps) -> tuple[np.ndarray, np.ndarray]:
    """Distractors for all maps, which they are added to: (maps * cells,) their ink, (maps,) how many found a place."""
    p = t.parameters
    count = len(maps.taken) // t.cells
    ink, number = np.zeros((count, t.cells), np.uint8), np.zeros(count, np.uint8)
    own = [cells.reshape(count, t.cells) for cells in maps]
    for _ in range(p.distractors):
        left = np.arange(count)
        for _ in range(p.distractor_tries):
            if not len(left):
                break
            trial = _Maps(*(cells[left].reshape(-1) for cells in own))
            lane, places, angles = _distractor(t, random, trial, len(left))
            done = left[lane]
            for cells, tried in zip(own, trial, strict=True):
                cells[done] = tried.reshape(-1, t.cells)[lane]
            for at, angle in zip(places, angles, strict=True):
                _combine(np.maximum, ink.reshape(-1), done * t.cells + at, angle, t.ink)
            number[done] += 1
            left = np.delete(left, lane)
    return ink.reshape(-1), number


def _distractor(
    t: _Tables, random: np.random.RandomState, maps: _Maps, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One try in each of `count` maps: those where it succeeded, places (distractor_length, ...) and angles there."""
    p = t.parameters
    lane, at, angle = _beginnings(t, random, maps, count)
    places = np.empty((p.distractor_length, count), np.int64)
    angles = np.empty((p.distractor_length, count), np.int64)
    places[0, lane], angles[0, lane] = at, angle
    at = at + lane * t.cells
    pivot = at + t.pivot[angle]
    for step in range(1, p.distractor_length):
        ok, head, turn = _step(t, random, maps, pivot, angle)
        lane, at, pivot, angle = lane[ok], at[ok], pivot[ok], angle[ok]
        maps.add(t, at, angle)
        at, pivot, angle = head, pivot + t.advance[angle], turn
        places[step, lane], angles[step, lane] = at - lane * t.cells, angle
    maps.add(t, at, angle)
    return lane, places[:, lane], angles[:, lane]


def _beginnings(
    t: _Tables, random: np.random.RandomState, maps: _Maps, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First dashes of distractors: in which of `count` maps there is one, place (the tail), angle."""
    found = []
    left = np.arange(count)
    for _ in range(_TRIES):
        angle = random.randint(_DEGREES, size=len(left))
        left, angle = left[t.allowed[angle]], angle[t.allowed[angle]]
        at = _vacancies(t, random, maps.taken, left * t.cells, angle)
        left, angle, at = left[at >= 0], angle[at >= 0], at[at >= 0]  # where nothing is free, nothing is tried again
        inside = t.inside[at + t.tip[angle]] & t.inside[at + t.pivot[angle]]
        found.append(np.stack([left, at, angle])[:, inside])
        left = left[~inside]
    lane, at, angle = np.concatenate(found, axis=1)
    return lane, at, angle


def _vacancies(
    t: _Tables, random: np.random.RandomState, taken: np.ndarray, home: np.ndarray, angle: np.ndarray
) -> np.ndarray:
    """For each map a place, any with equal chance, where the first dash of that angle fits; -1 where there is none."""
    frame = np.flatnonzero(t.inside)
    guesses = frame[random.randint(len(frame), size=(len(angle), _GUESSES))]
    every = np.repeat(angle, _GUESSES)
    fits = ~_collide(taken, (home[:, None] + guesses).reshape(-1), every, t.fit).reshape(guesses.shape)
    at = np.where(fits.any(axis=1), guesses[np.arange(len(angle)), fits.argmax(axis=1)], -1)
    for index in np.flatnonzero(at < 0):
        vacant = frame[~_collide(taken, home[index] + frame, np.full(len(frame), angle[index]), t.fit)]
        if len(vacant):
            at[index] = vacant[random.randint(len(vacant))]
    return at


# Tables. Angles are indices: the first 360 are the degrees, from -180, of first dashes, whose place is their tail; the
# others are the places on the circle around a pivot, where the head of a next dash, its place, may lie.


class _Stamps(NamedTuple):
    """A patch of cells for each angle, all of one shape and no larger than they must be."""

    values: np.ndarray
    """(angles, rows * width) uint8."""
    corners: np.ndarray
    """(angles,) from the place of a dash to the first cell of its patch."""
    rows: np.ndarray
    """(rows,) from there to the first cell of each row."""
    width: int


class _Tables(NamedTuple):
    """All that follows from parameters and one margin. Maps have a rim around the image, which no look-up leaves."""

    parameters: Parameters
    rim: int
    side: int
    """Of a map; a step down in a flat map."""
    cells: int
    """Of a map."""
    taken: np.ndarray
    """(cells,) uint8: map before the first dash."""
    free: np.ndarray
    """(cells,) uint8."""
    inside: np.ndarray
    """(cells,) bool: the image."""
    radians: np.ndarray
    """(angles,)."""
    ends: np.ndarray
    """(angles, 2) rows and columns from the place of a dash to its other end."""
    allowed: np.ndarray
    """(360,) bool: angles of first dashes."""
    first: np.ndarray
    """(k,) those for which the first snake finds a place."""
    start: np.ndarray
    """(360, 2, 2) the rectangle of these places: row and column of its corner, and its extent."""
    second: np.ndarray
    """(360,) from the first snake's tail to the second's, by degree."""
    tip: np.ndarray
    """(360,) from a tail to the head of the first dash."""
    pivot: np.ndarray
    """(360,) from a tail to the pivot of the first dash."""
    advance: np.ndarray
    """(angles,) from the pivot of a dash to the next."""
    reach: np.ndarray
    """(choices, angles) from the pivot of a dash to the places for the next."""
    turn: np.ndarray
    """(choices, angles) the angle there."""
    weight: np.ndarray
    """(choices, angles) int32."""
    ink: _Stamps
    claim: _Stamps
    """What a dash takes."""
    limit: _Stamps
    """It collides where more than this is taken."""
    room: _Stamps
    """What it leaves free."""
    fit: _Stamps
    """A first dash does not fit where more than this is taken."""
    disc: _Stamps


@lru_cache(maxsize=4)
def _tables(p: Parameters, margin: int) -> _Tables:
    radius = p.dash + margin
    rim = p.dash + 2 * margin + 3  # from a head to the farthest next head, a pivot ahead; no stamp is larger
    side = p.size + 2 * rim
    inside = np.zeros((side, side), bool)
    inside[rim:-rim, rim:-rim] = True
    taken = inside.astype(np.uint8) * 255
    taken[rim + p.padding : -rim - p.padding, rim + p.padding : -rim - p.padding] = 0
    free = np.where(inside, 255 - _widen(taken[None], margin)[0], 0).astype(np.uint8)

    degrees = np.radians(np.arange(_DEGREES) - 180)
    circle = _circle(radius)
    steps = np.arctan2(circle[:, 0], circle[:, 1])
    radians = np.concatenate([degrees, steps])
    lines = np.concatenate([degrees, steps + np.pi])
    ends = _offset(lines, p.dash)
    ahead = _offset(radians, p.dash + 2 * margin)
    turn, weight = _turns(steps, radians, p.continuity)

    fine = _lines(p, margin, lines)
    claims = _reduce(_widen(fine, margin * _FINE))
    collision = p.overlap * 255 // 100 - 1
    limits = np.where(claims > collision - 255, collision - claims.astype(np.int64), 255).astype(np.uint8)
    rooms = 255 - _widen(np.pad(claims, ((0, 0), (margin, margin), (margin, margin))), margin)
    kernels = _kernels(claims[:_DEGREES] == 255, radius, p.quirks)
    allowed = _allowed(kernels, p.quirks)
    start = _rectangles(kernels, 2 * p.seed_distance, p.size)

    def flat(offsets: np.ndarray) -> np.ndarray:
        return offsets[..., 0] * side + offsets[..., 1]

    return _Tables(
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
        tip=flat(ends[:_DEGREES]),
        pivot=flat(ends[:_DEGREES] + _offset(degrees + np.pi, radius)),
        advance=flat(ahead),
        reach=flat(ahead) + flat(circle)[turn],
        turn=_DEGREES + turn,
        weight=weight,
        ink=_stamps(_reduce(fine), 0, side),
        claim=_stamps(claims, 0, side),
        limit=_stamps(limits, 255, side),
        room=_stamps(rooms, 255, side),
        fit=_stamps(np.where(kernels, _OCCUPIED, 255).astype(np.uint8), 255, side),
        disc=_stamps(_disc(p.radius), 0, side),
    )


def _unit(radians: np.ndarray) -> np.ndarray:
    """(..., 2) down and to the right."""
    return np.stack([np.sin(radians), np.cos(radians)], axis=-1)


def _offset(radians: np.ndarray, distance: int) -> np.ndarray:
    """(..., 2) rows and columns to a point so far away; rounded up, as published."""
    return np.ceil(distance * _unit(radians) - 1e-9).astype(np.int64)


def _circle(radius: int) -> np.ndarray:
    """(k, 2) cells on a circle, sampled a pixel of arc apart."""
    samples = np.radians(np.arange(0, 360, 360 / (2 * np.pi * radius)))
    return np.unique(np.floor(radius * _unit(samples) + 1e-9).astype(np.int64), axis=0)


def _turns(steps: np.ndarray, radians: np.ndarray, continuity: float) -> tuple[np.ndarray, np.ndarray]:
    """Per angle of a last dash, the steps that have weight, and their weight: both (choices, angles)."""
    delta = np.abs(steps[:, None] - radians)
    delta = np.minimum(delta, 2 * np.pi - delta)
    weight = np.rint(_STRAIGHT * np.cos(np.minimum(continuity * delta, np.pi / 2)) ** 2).astype(np.int32)
    order = np.argsort(weight == 0, axis=0, kind="stable")[: np.count_nonzero(weight, axis=0).max()]
    return order, np.take_along_axis(weight, order, axis=0)


def _kernels(full: np.ndarray, radius: int, quirks: bool) -> np.ndarray:
    """(360, s, s) bool: the cells that must be free around the place of a first dash, which is in the middle.

    Those it claims in `full`, in a square of that radius. The published program looks one cell too far down and right.
    """
    shift, beyond = int(quirks), full.shape[1] // 2 - radius
    kernels = np.zeros_like(full)
    kernels[:, shift:, shift:] = full[:, : full.shape[1] - shift, : full.shape[1] - shift]
    for axis in (1, 2):
        rows = np.moveaxis(kernels, axis, 0)
        rows[:beyond] = rows[len(rows) - beyond :] = False
    return kernels


def _allowed(kernels: np.ndarray, quirks: bool) -> np.ndarray:
    """(360,) bool: angles at which the published program finds free places.

    It breaks as soon as no part of a kernel is in the image, which happens first in a corner.
    """
    middle = kernels.shape[1] // 2
    before, after = slice(middle + 1), slice(middle, None)
    allowed = np.ones(len(kernels), bool)
    for rows, columns in product((before, after), repeat=2) if quirks else ():
        allowed &= kernels[:, rows, columns].any(axis=(1, 2))
    return allowed


def _rectangles(kernels: np.ndarray, border: int, size: int) -> np.ndarray:
    """(360, 2, 2) corner and extent of the places whose kernel is wholly that far inside the image."""
    middle = kernels.shape[1] // 2
    rectangles = np.empty((len(kernels), 2, 2), np.int64)
    for axis in (0, 1):
        used = np.asarray(kernels.any(axis=2 - axis))
        low, high = used.argmax(axis=1) - middle, middle - used[:, ::-1].argmax(axis=1)
        rectangles[:, 0, axis] = border - low
        rectangles[:, 1, axis] = size - 2 * border - (high - low)
    return rectangles


def _lines(p: Parameters, margin: int, radians: np.ndarray) -> np.ndarray:
    """(angles, s, s) uint8: enlarged dashes that begin in the middle."""
    from PIL import Image, ImageDraw

    middle = (p.dash + ceil(p.thickness) + margin) * _FINE
    pictures = []
    for row, column in (_offset(radians, p.dash * _FINE) + middle).tolist():
        picture = Image.new("L", (2 * middle + 1, 2 * middle + 1))
        width = round(p.thickness * _FINE)
        ImageDraw.Draw(picture).line([(middle, middle), (column, row)], fill=255, width=width)
        pictures.append(np.asarray(picture))
    return np.stack(pictures)


def _disc(radius: float) -> np.ndarray:
    """(1, s, s) uint8."""
    reach = ceil(radius) + 2
    squares = (np.arange((2 * reach + 1) * _FINE) - reach * _FINE) ** 2
    return _reduce(np.where(squares + squares[:, None] <= (radius * _FINE) ** 2, 255, 0)[None].astype(np.uint8))


def _reduce(pictures: np.ndarray) -> np.ndarray:
    """Pictures in the size of the image."""
    from PIL import Image

    side = (pictures.shape[1] + 1) // _FINE
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


def _stamps(pictures: np.ndarray, blank: int, side: int) -> _Stamps:
    """The part of (angles, s, s) pictures that is not blank; the middle is the place of a dash."""
    count, size = pictures.shape[:2]
    used = [(pictures != blank).any(axis=axis) for axis in (2, 1)]
    corners = [lines.argmax(axis=1) for lines in used]
    rows, width = (
        int((size - lines[:, ::-1].argmax(axis=1) - corner).max()) for lines, corner in zip(used, corners, strict=True)
    )
    top, left = np.minimum(corners[0], size - rows), np.minimum(corners[1], size - width)
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (rows, width), axis=(1, 2))
    values = windows[np.arange(count), top, left].reshape(count, rows * width)
    return _Stamps(values, (top - size // 2) * side + left - size // 2, np.arange(rows) * side, width)


def _patches(
    cells: np.ndarray, at: np.ndarray, angle: np.ndarray, stamps: _Stamps
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The cells under stamps: a view of all rows of cells, (n, rows) indices into it, (n, rows * width) uint8 values.

    A row is one item of the view: NumPy then copies bytes, many times faster than it gathers single cells.
    """
    view = np.ndarray((len(cells) - stamps.width + 1,), f"V{stamps.width}", cells, strides=(1,))
    where = (at + stamps.corners[angle])[:, None] + stamps.rows
    return view, where, view[where].view(np.uint8).reshape(len(at), len(stamps.rows) * stamps.width)


def _collide(cells: np.ndarray, at: np.ndarray, angle: np.ndarray, stamps: _Stamps) -> np.ndarray:
    """(n,) bool: whether any cell is beyond the stamp."""
    return (_patches(cells, at, angle, stamps)[2] > stamps.values[angle]).any(axis=1)


def _combine(operation: np.ufunc, cells: np.ndarray, at: np.ndarray, angle: np.ndarray, stamps: _Stamps) -> None:
    """cells = operation(cells, stamp), at places in maps of their own."""
    view, where, values = _patches(cells, at, angle, stamps)
    operation(values, stamps.values[angle], out=values)
    view[where] = values.view(view.dtype).reshape(where.shape)
