"""How snakes and distractors grow, thousands at a time.

Positions are indices into maps that lie flat one behind the other; `home` is where the map of a position begins.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np

from lrurun.data.synthetic.pathfinder_generator.tables import DEGREES, Tables, collide, combine

_TRIES = 3
"""How often a position is tried for the next dash, and for the first dash of a distractor."""
_MIN_WEIGHT = 1672
"""A snake ends where all weights, times the room, are less together: 1e-4 of _STRAIGHT times 255."""
_GUESSES = 16
"""How many random positions are tried for a first dash before all positions are."""
_BATCH = 2048, 8192, 48 << 20
"""Pairs that grow together at first and at most, and the largest size of their maps in bytes. Other numbers change
the bits."""


class Maps(NamedTuple):
    """The positions that the dashes so far have taken, for many pairs."""

    taken: np.ndarray
    """(maps * cells,) uint8: 255 where a dash or its margin is."""
    free: np.ndarray
    """(maps * cells,) uint8: 255 where there is room for a head, 0 within another margin of what is taken."""

    def add(self, t: Tables, at: np.ndarray, angle: np.ndarray) -> None:
        """Takes the cells of one dash in each of some maps."""
        combine(np.maximum, self.taken, at, angle, t.claim)
        combine(np.minimum, self.free, at, angle, t.room)


def grow_pairs(t: Tables, random: np.random.RandomState, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Maps]:
    """The first `count` pairs of snakes that succeed.

    Returns:
        positions (2, contour_length, count), each in its own map, angles of the same shape, pairs begun for each, maps.
    """
    first, limit, size = _BATCH
    per_lane = 1 if t.parameters.quirks else 2
    limit = min(limit, size // (2 * per_lane * t.cells))
    maps = Maps(*(np.empty(limit * per_lane * t.cells, np.uint8) for _ in range(2)))
    lanes, begun, succeeded = min(first, limit), 0, 0
    order, batches = [np.array([-1])], []
    while succeeded < count:
        lane, *pairs = _grow(t, random, maps, lanes)
        order.append(begun + lane)
        batches.append(pairs)
        begun, succeeded = begun + lanes, succeeded + len(lane)
        if succeeded:
            lanes = min(limit, ceil((count - succeeded) * 1.1 * begun / succeeded) + 64)
    positions, angles = (np.concatenate([pairs[i] for pairs in batches], axis=2)[:, :, :count] for i in (0, 1))
    taken, free = (np.concatenate([pairs[i] for pairs in batches])[: count * t.cells] for i in (2, 3))
    return positions, angles, np.diff(np.concatenate(order)[: count + 1]), Maps(taken, free)


def _grow(t: Tables, random: np.random.RandomState, maps: Maps, lanes: int) -> tuple[np.ndarray, ...]:
    """Grows `lanes` pairs in `maps`, which are overwritten; returns the lanes that succeeded, positions, angles, maps.

    The newest dash of a snake is not on the map that it looks at, because the next one is too near. With quirks both
    look at one map, so that neither sees the other's newest; otherwise each has its own map.
    """
    p = t.parameters
    shift = (0, 0) if p.quirks else (0, t.cells)
    stride = t.cells + shift[1]
    for cells, blank in zip(maps, (t.taken, t.free), strict=True):
        cells[: lanes * stride].reshape(-1, t.cells)[:] = blank
    positions = np.empty((2, p.contour_length, lanes), np.int64)
    angles = np.empty((2, p.contour_length, lanes), np.int64)
    angles[0, 0], angles[1, 0] = t.first[random.randint(len(t.first), size=lanes)], random.randint(360, size=lanes)
    corner, span = t.start[angles[0, 0]].transpose(1, 2, 0)
    row, column = corner + (random.random_sample((2, lanes)) * span).astype(np.int64)
    positions[0, 0] = row * t.side + column
    positions[1, 0] = positions[0, 0] + t.second[random.randint(DEGREES, size=lanes)]

    lane = np.arange(lanes)
    state = np.empty((2, 3, lanes), np.int64)  # for both snakes: position, pivot and angle of the newest dash
    for snake in (0, 1):
        at = positions[snake, 0] + lane * stride
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
            positions[snake, step, lane] = head - shift[snake] - lane * stride
            angles[snake, step, lane] = turn
    if p.quirks:
        maps.add(t, state[1, 0], state[1, 2])
    taken, free = (cells[: lanes * stride].reshape(lanes, -1, t.cells)[lane] for cells in maps)
    return lane, positions[:, :, lane], angles[:, :, lane], taken.max(axis=1).reshape(-1), free.min(axis=1).reshape(-1)


def _step(
    t: Tables, random: np.random.RandomState, maps: Maps, pivot: np.ndarray, angle: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The next dash of each snake: indices of those that have one, its position (the head) and angle."""
    odds = maps.free.take(t.reach.take(angle, axis=1) + pivot).astype(np.int32)
    odds *= t.weight.take(angle, axis=1)
    np.cumsum(odds, axis=0, out=odds)
    at, turn = np.full(len(angle), -1), np.empty(len(angle), np.int64)
    remaining = np.flatnonzero(odds[-1] >= _MIN_WEIGHT)
    for _ in range(_TRIES):
        sums = odds.take(remaining, axis=1)
        choice = (sums <= (random.random_sample(len(remaining)) * sums[-1]).astype(np.int32)).sum(axis=0)
        head, new = pivot[remaining] + t.reach[choice, angle[remaining]], t.turn[choice, angle[remaining]]
        free = ~collide(maps.taken, head, new, t.limit)
        at[remaining[free]], turn[remaining[free]] = head[free], new[free]
        remaining = remaining[~free]
    ok = np.flatnonzero(at >= 0)
    return ok, at[ok], turn[ok]


def add_distractors(
    t: Tables, random: np.random.RandomState, maps: Maps, discs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Distractors for all maps, which they are added to: (maps * cells,) their ink, (maps,) how many found a position.

    For segmentation, each has a disc in `discs` (maps * cells,) at the pivot of its first dash.
    """
    p = t.parameters
    count = len(maps.taken) // t.cells
    ink, placed = np.zeros((count, t.cells), np.uint8), np.zeros(count, np.uint8)
    rows = [cells.reshape(count, t.cells) for cells in maps]
    for _ in range(p.distractors):
        remaining = np.arange(count)
        for _ in range(p.distractor_tries):
            if not len(remaining):
                break
            trial = Maps(*(cells[remaining].reshape(-1) for cells in rows))
            lane, positions, angles = _distractor(t, random, trial, len(remaining))
            done = remaining[lane]
            for cells, tried in zip(rows, trial, strict=True):
                cells[done] = tried.reshape(-1, t.cells)[lane]
            for at, angle in zip(positions, angles, strict=True):
                combine(np.maximum, ink.reshape(-1), done * t.cells + at, angle, t.ink)
            if p.segmentation:
                pivots = done * t.cells + positions[0] + t.pivot[angles[0]]
                combine(np.maximum, discs, pivots, np.zeros_like(pivots), t.disc)
            placed[done] += 1
            remaining = np.delete(remaining, lane)
    return ink.reshape(-1), placed


def _distractor(
    t: Tables, random: np.random.RandomState, maps: Maps, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tries once in each of `count` maps: maps where it succeeded, positions (distractor_length, ...) and angles."""
    p = t.parameters
    lane, at, angle = _beginnings(t, random, maps, count)
    positions = np.empty((p.distractor_length, count), np.int64)
    angles = np.empty((p.distractor_length, count), np.int64)
    positions[0, lane], angles[0, lane] = at, angle
    at = at + lane * t.cells
    pivot = at + t.pivot[angle]
    for step in range(1, p.distractor_length):
        ok, head, turn = _step(t, random, maps, pivot, angle)
        lane, at, pivot, angle = lane[ok], at[ok], pivot[ok], angle[ok]
        maps.add(t, at, angle)
        at, pivot, angle = head, pivot + t.advance[angle], turn
        positions[step, lane], angles[step, lane] = at - lane * t.cells, angle
    maps.add(t, at, angle)
    return lane, positions[:, lane], angles[:, lane]


def _beginnings(
    t: Tables, random: np.random.RandomState, maps: Maps, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First dashes of distractors: in which of `count` maps there is one, position (the tail), angle."""
    beginnings = []
    remaining = np.arange(count)
    for _ in range(_TRIES):
        angle = random.randint(DEGREES, size=len(remaining))
        remaining, angle = remaining[t.allowed[angle]], angle[t.allowed[angle]]
        at = _vacancies(t, random, maps.taken, remaining * t.cells, angle)
        # where nothing is free, nothing is tried again
        remaining, angle, at = remaining[at >= 0], angle[at >= 0], at[at >= 0]
        inside = t.inside[at + t.tip[angle]] & t.inside[at + t.pivot[angle]]
        beginnings.append(np.stack([remaining, at, angle])[:, inside])
        remaining = remaining[~inside]
    lane, at, angle = np.concatenate(beginnings, axis=1)
    return lane, at, angle


def _vacancies(
    t: Tables, random: np.random.RandomState, taken: np.ndarray, home: np.ndarray, angle: np.ndarray
) -> np.ndarray:
    """A position on each map, any with equal chance, where the first dash of that angle fits; -1 without any."""
    frame = np.flatnonzero(t.inside)
    guesses = frame[random.randint(len(frame), size=(len(angle), _GUESSES))]
    angles = np.repeat(angle, _GUESSES)
    fits = ~collide(taken, (home[:, None] + guesses).reshape(-1), angles, t.fit).reshape(guesses.shape)
    at = np.where(fits.any(axis=1), guesses[np.arange(len(angle)), fits.argmax(axis=1)], -1)
    for index in np.flatnonzero(at < 0):
        vacant = frame[~collide(taken, home[index] + frame, np.full(len(frame), angle[index]), t.fit)]
        if len(vacant):
            at[index] = vacant[random.randint(len(vacant))]
    return at
