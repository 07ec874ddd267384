"""Splits of users' arrays: classes in proportion, groups in one piece."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lrurun.data.splits import grouped, stratified

CLASSES = st.lists(st.integers(0, 5), min_size=1, max_size=60)
SIZES = st.lists(st.integers(0, 25), min_size=1, max_size=3)


def seats(votes: Counter[int], size: int, first: list[int]) -> Counter[int]:
    """How many examples of each class a part of `size` has: seats by Webster, one after the other, and equal claims in
    the order of `first`. The last example of a class goes when nothing else is left."""
    taken: Counter[int] = Counter()
    places = {klass: [k for k, other in enumerate(first) if other == klass] for klass in votes}
    for _ in range(min(size, len(first))):

        def claim(klass: int) -> tuple[bool, Fraction, int]:
            seat = taken[klass]
            last = seat == votes[klass] - 1
            return last, Fraction(0 if last else 2 * seat + 1, votes[klass]), places[klass][seat]

        taken[min((klass for klass in votes if taken[klass] < votes[klass]), key=claim)] += 1
    return taken


@given(CLASSES, SIZES, st.integers(0, 100))
def test_classes_are_divided_as_seats_are(labels: list[int], sizes: list[int], seed: int) -> None:
    classes = np.array(labels)
    order = np.random.RandomState(seed).permutation(len(classes))
    found = stratified(order, classes, sizes)
    assert sorted(found.tolist()) == list(range(len(classes)))
    place, left, begin = {row: k for k, row in enumerate(order.tolist())}, order.tolist(), 0
    for size in [*sizes, len(classes)]:
        part = found[begin : begin + size].tolist()
        assert [place[row] for row in part] == sorted(place[row] for row in part)  # within a part, the order is kept
        expected = seats(Counter(labels[row] for row in left), size, [labels[row] for row in left])
        assert Counter(labels[row] for row in part) == +expected
        for klass in expected:  # the first ones of each class
            of_class = [row for row in left if labels[row] == klass]
            assert [row for row in part if labels[row] == klass] == of_class[: expected[klass]]
        left, begin = [row for row in left if row not in set(part)], begin + size


def test_a_part_has_each_class_to_the_nearest_whole_number_and_rare_ones_are_left_for_the_last_part() -> None:
    sizes = {0: 1000, 1: 600, 2: 47, 3: 12, 4: 5, 5: 2, 6: 1}
    classes = np.repeat(list(sizes), list(sizes.values()))
    found = stratified(np.random.RandomState(3).permutation(len(classes)), classes, [167, 167])
    parts = [np.bincount(classes[part], minlength=7).tolist() for part in np.split(found, [167, 334])]
    assert parts[0] == [100, 60, 5, 1, 1, 0, 0]
    assert parts[2][5:] == [2, 1]
    assert all(np.abs(np.array(part) - np.array(list(sizes.values())) / 10).max() <= 1 for part in parts[:2])


@given(st.lists(st.integers(0, 9), min_size=6, max_size=60), st.lists(st.integers(0, 20), min_size=1, max_size=2))
def test_groups_stay_together_and_sizes_are_the_nearest(labels: list[int], sizes: list[int]) -> None:
    names, groups = np.unique(labels, return_inverse=True)
    if len(names) <= len(sizes):
        return
    parts = grouped(groups, sizes, 1)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    of_parts = [set(groups[part].tolist()) for part in parts]
    assert all(of_parts)
    assert sum(map(len, of_parts)) == len(names)
    order = np.random.RandomState(1).permutation(len(names)).tolist()
    assert [group for part in of_parts for group in sorted(part, key=order.index)] == order
    end = 0
    for k, wanted in enumerate(np.cumsum(sizes).tolist()):
        begin, end = end, end + len(of_parts[k])
        counts = [int(np.isin(groups, order[:cut]).sum()) for cut in range(len(names) + 1)]
        allowed = range(begin + 1, len(names) - len(sizes) + k + 1)
        assert abs(counts[end] - wanted) == min(abs(counts[cut] - wanted) for cut in allowed)
