"""ListOps: nested operations on lists of digits with the distribution of Long Range Arena (Tay et al. 2020).

A tree grows from its root: a node less than `max_depth` deep is an operator with probability 1/4, with 2 to `max_args`
children, else a digit; operators, digits and numbers of children are uniform. A tree is kept if its number of tokens (1
for a digit, 2 for an operator and its closing bracket) is strictly between `min_length` and `max_length`. MED is the
mean of the middle two, rounded down; SM is the sum modulo 10.

One tree at a time, this takes milliseconds for each tree that is kept. Here thousands grow together, level by level,
and until it is known which are kept, only numbers of children are sampled. All randomness is from frozen NumPy streams
(`RandomState`), one per round: the same bits with every version, in any order, with any number of processes.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from lrurun.data.synthetic.parallel import rounds
from lrurun.errors import LrurunError

VERSION = "1"
"""Version of the bits that a seed gives."""

TOKENS = ("<pad>", "[MIN", "[MAX", "[MED", "[SM", "]", *"0123456789")
"""The vocabulary in the order of ids."""

MIN, MAX, MED, SM, CLOSE, ZERO = range(1, 7)

TREES = 20_000
"""Trees per round, a compromise with memory (some 200 MB). Another number changes the bits."""

_PATIENCE = 20
"""Rounds over which the yield is measured."""
_MAX_ROUNDS = 10_000
"""Further rounds that are acceptable: about half an hour."""


class Parameters(NamedTuple):
    """The parameters of trees: which grow, and which are kept; the defaults are the published ones."""

    min_length: int = 500
    """Lower bound of the number of tokens, exclusive."""
    max_length: int = 2000
    """Upper bound of the number of tokens, exclusive."""
    max_depth: int = 10
    """Nodes from the root to the deepest digit."""
    max_args: int = 10
    subtrees: bool = False
    """Whether all closing brackets are labelled; then no two trees have the same operators and brackets."""


PUBLISHED = Parameters()


class Examples(NamedTuple):
    """Examples of one round."""

    inputs: np.ndarray
    """(n, max_length) uint8 token ids, then 0."""
    lengths: np.ndarray
    """(n,) int16."""
    labels: np.ndarray
    """(n,) uint8, 0 to 9. Of subtrees (n, max_length) int8: their values, each at its closing bracket, else -1."""

    @property
    def roots(self) -> np.ndarray:
        """(n,) uint8: the operators at the root, which are the first tokens."""
        return self.inputs[:, 0]


def generate(count: int, seed: int, parameters: Parameters = PUBLISHED, workers: int = 1) -> Iterator[Examples]:
    """The first `count` distinct examples of a seed, round by round. `workers`, processes, only change the time.

    Raises:
        LrurunError: the parameters keep so few distinct trees that this would not end.
    """
    seen: set[bytes] = set()
    recent: deque[int] = deque(maxlen=_PATIENCE)
    stream = rounds(partial(draw, seed, parameters=parameters), workers)
    try:
        while len(seen) < count:
            examples = next(stream)
            new = _new(examples, seen, count, parameters.subtrees)
            recent.append(len(new))
            yield Examples(*(array[new] for array in examples))
            if len(recent) == _PATIENCE and sum(recent) * (_MAX_ROUNDS // _PATIENCE) < count - len(seen):
                raise LrurunError(
                    f"ListOps: {sum(recent)} new examples in {_PATIENCE * TREES:,} trees with "
                    f"{_described(parameters)}; {len(seen):,} of {count:,} found",
                    "choose other lengths, another depth or number of arguments, or fewer examples",
                )
    finally:
        stream.close()


def draw(seed: int, number: int, parameters: Parameters = PUBLISHED, trees: int = TREES) -> Examples:
    """The examples of round `number`: a pure function of its arguments."""
    random = np.random.RandomState([seed, number])
    levels = _grow(random, parameters, trees)
    tokens = [_name(random, arity) for arity in levels]
    values, sizes = _evaluate(levels, tokens)
    shape = (len(sizes[0]), parameters.max_length)
    inputs = np.zeros(shape, np.uint8)
    labels = np.full(shape, -1, np.int8) if parameters.subtrees else values[0]
    for level, start in enumerate(_starts(levels, sizes, parameters.max_length)):
        inputs.reshape(-1)[start] = tokens[level]
        inner = levels[level] > 0
        end = start[inner] + sizes[level][inner] - 1
        inputs.reshape(-1)[end] = CLOSE
        if parameters.subtrees:
            labels.reshape(-1)[end] = values[level][inner]
    return Examples(inputs, sizes[0].astype(np.int16), labels)


def baselines(
    roots: np.ndarray, labels: np.ndarray, test_roots: np.ndarray, test_labels: np.ndarray
) -> dict[str, float]:
    """Test accuracy of two naive predictors: the most frequent training label, overall and for each root operator."""
    counts = np.zeros((len(TOKENS), 10), np.int64)
    np.add.at(counts, (roots, labels), 1)
    return {
        "majority class": float(np.mean(counts.sum(axis=0).argmax() == test_labels)),
        "root operator only": float(np.mean(counts.argmax(axis=1)[test_roots] == test_labels)),
    }


def operators(inputs: np.ndarray) -> np.ndarray:
    """(n, width) uint8: at each closing bracket of `inputs` the operator that it ends, elsewhere 0."""
    row, column = np.nonzero((inputs >= MIN) & (inputs <= CLOSE))
    tokens = inputs[row, column]
    closing = (tokens == CLOSE).astype(np.int64)
    depth = np.cumsum(1 - 2 * closing) + closing  # an operator and the bracket that ends it have the same
    begin, end = np.lexsort((depth, row)).reshape(-1, 2).T  # stable, so that they are neighbours
    ended = np.zeros_like(inputs)
    ended[row[end], column[end]] = tokens[begin]
    return ended


def heights(inputs: np.ndarray) -> np.ndarray:
    """(n, width) uint8: at each closing bracket the operators on the longest path into its subtree, elsewhere 0.

    Its own operator counts, so that an operator on digits has the height 1 (Gupta et al. 2023, section 3.4).
    """
    rows = np.arange(len(inputs))
    result = np.zeros_like(inputs)
    highest = np.zeros((len(inputs), inputs.shape[1] // 2 + 2), np.uint8)  # below each operator that is open
    depth = np.zeros(len(inputs), np.int64)
    for column, tokens in enumerate(inputs.T):
        opening, closing = rows[(tokens >= MIN) & (tokens < CLOSE)], rows[tokens == CLOSE]
        depth[opening] += 1
        highest[opening, depth[opening]] = 0
        height = highest[closing, depth[closing]] + 1
        result[closing, column] = height
        depth[closing] -= 1
        outer = depth[closing]
        highest[closing, outer] = np.maximum(highest[closing, outer], height)
    return result


def _described(parameters: Parameters) -> str:
    return (
        f"more than {parameters.min_length} and less than {parameters.max_length} tokens, "
        f"depth {parameters.max_depth} and {parameters.max_args} arguments"
    )


def _new(examples: Examples, seen: set[bytes], count: int, templates: bool) -> list[int]:
    """Indices of examples that are not in `seen`, until that has `count`; adds them to it.

    With `templates`, two examples are the same if they are without their digits.
    """
    indices = []
    for index, row in enumerate(examples.inputs):
        if templates:
            row = row[(row > 0) & (row < ZERO)]
        digest = hashlib.blake2b(row, digest_size=16).digest()
        if digest not in seen and len(seen) < count:
            seen.add(digest)
            indices.append(index)
    return indices


def _grow(random: np.random.RandomState, parameters: Parameters, trees: int) -> list[np.ndarray]:
    """Per level, the number of children of every node of the trees that are kept, 0 for digits; siblings are adjacent.

    A tree that is already too long does not grow further, so that huge trees do not fill the memory.
    """
    length = np.zeros(trees, np.int64)
    owner = np.arange(trees, dtype=np.int32)  # the tree of each node
    levels = []
    for depth in range(1, parameters.max_depth + 1):
        arity = np.zeros(len(owner), np.uint8)
        if depth < parameters.max_depth:
            (operators,) = np.nonzero(random.randint(0, 4, len(owner), dtype=np.uint8) == 0)
            arity[operators] = random.randint(2, parameters.max_args + 1, len(operators), dtype=np.uint8)
            length += np.bincount(owner[operators], minlength=trees)
        length += np.bincount(owner, minlength=trees)
        levels.append((owner, arity))
        children = np.bincount(owner, arity, trees).astype(np.int64)
        too_long = length + children >= parameters.max_length
        length[too_long] = parameters.max_length
        owner = np.repeat(owner, np.where(too_long[owner], 0, arity))
        if not len(owner):
            break
    kept = (length > parameters.min_length) & (length < parameters.max_length)
    return [arity[kept[owner]] for owner, arity in levels]


def _name(random: np.random.RandomState, arity: np.ndarray) -> np.ndarray:
    """The tokens of a level: random operators for nodes with children, random digits for the others."""
    tokens = np.empty(len(arity), np.uint8)
    inner = arity > 0
    operators = np.count_nonzero(inner)
    tokens[inner] = random.randint(MIN, SM + 1, operators, dtype=np.uint8)
    tokens[~inner] = random.randint(ZERO, ZERO + 10, len(arity) - operators, dtype=np.uint8)
    return tokens


def _evaluate(levels: list[np.ndarray], tokens: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Per level, the values and the numbers of tokens of the nodes' subtrees."""
    sizes: list[np.ndarray] = []
    values: list[np.ndarray] = []
    for arity, names in zip(reversed(levels), reversed(tokens), strict=True):
        size = np.ones(len(arity), np.int32)
        value = names - np.uint8(ZERO)
        inner = arity > 0
        if inner.any():
            first = _before(arity[inner])
            size[inner] = 2 + np.add.reduceat(sizes[-1], first)
            value[inner] = _apply(names[inner], arity[inner], first, values[-1])
        sizes.append(size)
        values.append(value)
    return values[::-1], sizes[::-1]


def _apply(operator: np.ndarray, arity: np.ndarray, first: np.ndarray, below: np.ndarray) -> np.ndarray:
    """The result of each operator for its `arity` values from `below[first]` on."""
    result = np.minimum.reduceat(below, first)
    for name, reduce in ((MAX, np.maximum), (SM, np.add)):
        chosen = operator == name
        result[chosen] = (reduce.reduceat(below, first, dtype=np.int32) % 10)[chosen]
    chosen = operator == MED
    if chosen.any():
        count = arity[chosen].astype(np.intp)
        column = np.arange(count.max())
        # values in sorted rows; what is beyond a row's end becomes 10 and comes last
        rows = below[np.minimum(first[chosen][:, None] + column, len(below) - 1)]
        rows[column >= count[:, None]] = 10
        rows.sort(axis=1)
        row = np.arange(len(rows))
        result[chosen] = (rows[row, (count - 1) // 2] + rows[row, count // 2]) // 2
    return result


def _starts(levels: list[np.ndarray], sizes: list[np.ndarray], width: int) -> Iterator[np.ndarray]:
    """Per level, from the roots downwards, the index of each node's first token in a flat array of rows of `width`."""
    start = np.arange(len(sizes[0])) * width
    for level, arity in enumerate(levels):
        yield start
        inner = arity > 0
        if not inner.any():
            break
        # a child starts one token after its parent's start, and after its elder siblings
        before = _before(sizes[level + 1])
        elder = before[_before(arity[inner])]
        start = np.repeat(start[inner] + 1 - elder, arity[inner]) + before


def _before(counts: np.ndarray) -> np.ndarray:
    """The sum of all counts before each."""
    total = np.cumsum(counts, dtype=np.intp)
    return total - counts
