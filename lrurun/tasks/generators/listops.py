"""ListOps: nested operations on lists of digits, drawn by the law of Long Range Arena (Tay et al. 2020).

A tree grows from its root: a node less than `max_depth` deep is an operator with probability 1/4, with 2 to `max_args`
children, else a digit; operators, digits and numbers of children are uniform. A tree is kept where its number of
tokens (a digit is one, an operator two: itself and its closing bracket) is strictly between `min_length` and
`max_length`. MED is the mean of the middle two, rounded down; SM is the sum modulo 10.

One tree at a time, this takes milliseconds for each that is kept. Here thousands grow together, level by level;
only numbers of children are drawn until it is known which trees are kept. Everything comes from frozen NumPy streams
(`RandomState`), one a round: the same bits with every version, in any order, on any number of processes.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from lrurun.errors import LrurunError
from lrurun.tasks.generators.parallel import rounds

VERSION = "1"
"""Of the bits that a seed gives."""

TOKENS = ("<pad>", "[MIN", "[MAX", "[MED", "[SM", "]", *"0123456789")
"""The vocabulary in the order of ids."""

MIN, MAX, MED, SM, CLOSE, ZERO = range(1, 7)

TREES = 20_000
"""Trees a round: part of the streams, a matter of memory (some 200 MB)."""

_PATIENCE = 20
"""Rounds over which the yield is judged."""
_MOST_ROUNDS = 10_000
"""Rounds that may still lie ahead: about half an hour."""


class Law(NamedTuple):
    """Which trees grow, and which are kept; as published, unless told otherwise."""

    min_length: int = 500
    """Tokens; exclusive."""
    max_length: int = 2000
    """Tokens; exclusive."""
    max_depth: int = 10
    """Nodes from the root to the deepest digit."""
    max_args: int = 10


PUBLISHED = Law()


class Examples(NamedTuple):
    """Distinct or not, all from one round."""

    inputs: np.ndarray
    """(n, max_length) uint8 token ids, 0 after the end."""
    lengths: np.ndarray
    """(n,) int16."""
    labels: np.ndarray
    """(n,) uint8, 0 to 9."""

    @property
    def roots(self) -> np.ndarray:
        """(n,) uint8: the operator at the root, which is the first token."""
        return self.inputs[:, 0]


def generate(count: int, seed: int, law: Law = PUBLISHED, workers: int = 1) -> Iterator[Examples]:
    """The first `count` distinct examples of that seed, round by round; `workers` changes nothing but the time.

    Raises:
        LrurunError: the law is none, or keeps so few distinct trees that this would take for ever.
    """
    check(law, seed)
    seen: set[bytes] = set()
    recent: deque[int] = deque(maxlen=_PATIENCE)
    stream = rounds(partial(draw, seed, law=law), workers)
    try:
        while len(seen) < count:
            examples = next(stream)
            new = _new(examples, seen, count)
            recent.append(len(new))
            yield Examples(*(array[new] for array in examples))
            if len(recent) == _PATIENCE and sum(recent) * (_MOST_ROUNDS // _PATIENCE) < count - len(seen):
                raise LrurunError(
                    f"ListOps: {sum(recent)} new examples in {_PATIENCE * TREES:,} trees of {_words(law)}; "
                    f"{len(seen):,} of {count:,} found",
                    "choose other lengths, another depth or number of arguments, or fewer examples",
                )
    finally:
        stream.close()


def draw(seed: int, number: int, law: Law = PUBLISHED, trees: int = TREES) -> Examples:
    """What is kept of round `number`: a pure function of its arguments."""
    random = np.random.RandomState([seed, number])
    levels = _grow(random, law, trees)
    tokens = [_name(random, arity) for arity in levels]
    values, sizes = _evaluate(levels, tokens)
    return Examples(_write(levels, tokens, sizes, law.max_length), sizes[0].astype(np.int16), values)


def baselines(
    roots: np.ndarray, labels: np.ndarray, test_roots: np.ndarray, test_labels: np.ndarray
) -> dict[str, float]:
    """Accuracy on test examples of two guesses learned from train: the commonest label, and that of each root operator.

    The root operator is an example's first token.
    """
    counts = np.zeros((len(TOKENS), 10), np.int64)
    np.add.at(counts, (roots, labels), 1)
    return {
        "majority class": float(np.mean(counts.sum(axis=0).argmax() == test_labels)),
        "root operator only": float(np.mean(counts.argmax(axis=1)[test_roots] == test_labels)),
    }


def check(law: Law, seed: int) -> None:
    """Whether examples can be drawn.

    Raises:
        LrurunError: with what was expected.
    """
    bounds = {
        "seed": (seed, 0, 2**32 - 1),
        "max_length": (law.max_length, 2, 2**15 - 1),
        "min_length": (law.min_length, 1, law.max_length - 2),
        "max_depth": (law.max_depth, 2, 100),
        "max_args": (law.max_args, 2, 100),
    }
    for name, (value, low, high) in bounds.items():
        if not low <= value <= high:
            raise LrurunError(f"ListOps: {name}: expected {low} to {high}, found {value}")


def _words(law: Law) -> str:
    return (
        f"more than {law.min_length} and less than {law.max_length} tokens, "
        f"depth {law.max_depth} and {law.max_args} arguments"
    )


def _new(examples: Examples, seen: set[bytes], count: int) -> list[int]:
    """Indices of examples not seen before, until `count` are; remembers them."""
    found = []
    for index, row in enumerate(examples.inputs):
        digest = hashlib.blake2b(row, digest_size=16).digest()
        if digest not in seen and len(seen) < count:
            seen.add(digest)
            found.append(index)
    return found


def _grow(random: np.random.RandomState, law: Law, trees: int) -> list[np.ndarray]:
    """Level by level, the number of children of every node of the trees that are kept, 0 for digits; siblings together.

    A tree that is too long already grows no further, so a law of huge trees does not fill the memory.
    """
    length = np.zeros(trees, np.int64)
    owner = np.arange(trees, dtype=np.int32)  # the tree of each node
    levels = []
    for depth in range(1, law.max_depth + 1):
        arity = np.zeros(len(owner), np.uint8)
        if depth < law.max_depth:
            (operators,) = np.nonzero(random.randint(0, 4, len(owner), dtype=np.uint8) == 0)
            arity[operators] = random.randint(2, law.max_args + 1, len(operators), dtype=np.uint8)
            length += np.bincount(owner[operators], minlength=trees)
        length += np.bincount(owner, minlength=trees)
        levels.append((owner, arity))
        children = np.bincount(owner, arity, trees).astype(np.int64)
        too_long = length + children >= law.max_length
        length[too_long] = law.max_length
        owner = np.repeat(owner, np.where(too_long[owner], 0, arity))
        if not len(owner):
            break
    kept = (length > law.min_length) & (length < law.max_length)
    return [arity[kept[owner]] for owner, arity in levels]


def _name(random: np.random.RandomState, arity: np.ndarray) -> np.ndarray:
    """The tokens of a level: a random operator where there are children, else a random digit."""
    tokens = np.empty(len(arity), np.uint8)
    inner = arity > 0
    operators = np.count_nonzero(inner)
    tokens[inner] = random.randint(MIN, SM + 1, operators, dtype=np.uint8)
    tokens[~inner] = random.randint(ZERO, ZERO + 10, len(arity) - operators, dtype=np.uint8)
    return tokens


def _evaluate(levels: list[np.ndarray], tokens: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Values of the roots, and per level the tokens each node stands for, from the deepest level upwards."""
    sizes: list[np.ndarray] = []
    values = below = np.zeros(0, np.uint8)
    for arity, names in zip(reversed(levels), reversed(tokens), strict=True):
        size = np.ones(len(arity), np.int32)
        values = names - np.uint8(ZERO)
        inner = arity > 0
        if inner.any():
            first = _before(arity[inner])
            size[inner] = 2 + np.add.reduceat(sizes[-1], first)
            values[inner] = _apply(names[inner], arity[inner], first, below)
        sizes.append(size)
        below = values
    return values, sizes[::-1]


def _apply(operator: np.ndarray, arity: np.ndarray, first: np.ndarray, below: np.ndarray) -> np.ndarray:
    """What each operator makes of its `arity` values from `below[first]` on."""
    result = np.minimum.reduceat(below, first)
    for name, reduce in ((MAX, np.maximum), (SM, np.add)):
        chosen = operator == name
        result[chosen] = (reduce.reduceat(below, first, dtype=np.int32) % 10)[chosen]
    chosen = operator == MED
    if chosen.any():
        count = arity[chosen].astype(np.intp)
        place = np.arange(count.max())
        # in rows, sorted; what is beyond the row's end sorts last
        rows = below[np.minimum(first[chosen][:, None] + place, len(below) - 1)]
        rows[place >= count[:, None]] = 10
        rows.sort(axis=1)
        row = np.arange(len(rows))
        result[chosen] = (rows[row, (count - 1) // 2] + rows[row, count // 2]) // 2
    return result


def _write(levels: list[np.ndarray], tokens: list[np.ndarray], sizes: list[np.ndarray], width: int) -> np.ndarray:
    """(trees, width): every token at its place, from the roots downwards."""
    inputs = np.zeros((len(sizes[0]), width), np.uint8)
    flat = inputs.reshape(-1)
    start = np.arange(len(inputs)) * width
    for depth, (arity, names) in enumerate(zip(levels, tokens, strict=True)):
        flat[start] = names
        inner = arity > 0
        flat[start[inner] + sizes[depth][inner] - 1] = CLOSE
        if not inner.any():
            break
        # a child starts one behind its parent's start, and behind its elder siblings
        before = _before(sizes[depth + 1])
        elder = before[_before(arity[inner])]
        start = np.repeat(start[inner] + 1 - elder, arity[inner]) + before
    return inputs


def _before(counts: np.ndarray) -> np.ndarray:
    """The sum of all counts before each."""
    total = np.cumsum(counts, dtype=np.intp)
    return total - counts
