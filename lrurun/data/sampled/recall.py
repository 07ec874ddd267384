"""Tasks of recall and state: copying, associative recall, induction heads, parity.

Inputs are ids of tokens, labels are classes at positions. Integers are uniform, and independent unless stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta, structs

from lrurun.data.metric import Accuracy, Exact, WorstSlot
from lrurun.data.on_device import Sampled, SampledOptions
from lrurun.data.task import Output, Spec, Split

if TYPE_CHECKING:
    import jax

Length = Annotated[int, Meta(ge=3, le=2**20)]
SmallCount = Annotated[int, Meta(ge=1, le=4096)]

WITHOUT_QUERIES = "without the queries"
"""The naive predictor of MQAR, which sees the pairs; preparation measures it."""


class CopyOptions(SampledOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The defaults: Gu and Dao 2023, appendix E.1."""

    length: Length = 4096
    """Positions before the markers."""
    tokens: SmallCount = 16
    """Tokens to copy, and markers."""
    vocabulary: Annotated[int, Meta(ge=4, le=256)] = 16
    """Ids: 0 is noise, the last one the marker, those between them are the symbols."""

    def __post_init__(self) -> None:
        if self.tokens > self.length:
            raise ValueError(f"tokens must be at most length = {self.length}, found {self.tokens}")


class Copy(Sampled):
    """The tokens, then noise, then as many markers, at which the tokens are asked for in their order.

    Each token returns after the same delay, so that a time-invariant model can learn it: the control of SelectiveCopy
    (Gu and Dao 2023, section 3.1 and figure 2). As in the code of S4, with `length` as the number of all positions
    before the markers.
    """

    name = "Copy"
    title = "the first 16 tokens again after 4096 positions, 14 symbols"
    version = "1"
    options = CopyOptions
    classes = 16
    metric = Accuracy(chance=1 / 14, escape=0.5)
    metrics = (metric, Exact(), WorstSlot())

    def spec(self, options: CopyOptions, vocabulary: Sequence[str] = ()) -> Spec:
        size, length = options.vocabulary, options.length + options.tokens
        output = Output(at="positions")
        return Spec(name=self.name, kind="tokens", features=size, classes=size, length=length, output=output)

    def positions(self, key: jax.Array, count: int, options: CopyOptions) -> jax.Array:
        """(count, tokens) or (1, tokens): positions of the tokens, ascending."""
        import jax.numpy as jnp

        return jnp.arange(options.tokens)[None]

    def sample(self, key: jax.Array, count: int, options: CopyOptions) -> tuple[Any, Any, None]:
        import jax
        import jax.numpy as jnp

        key_tokens, key_positions = jax.random.split(key)
        marker = options.vocabulary - 1
        tokens = jax.random.randint(key_tokens, (count, options.tokens), 1, marker)
        inputs = jnp.full((count, options.length + options.tokens), marker, jnp.uint8).at[:, : options.length].set(0)
        positions = self.positions(key_positions, count, options)
        return inputs.at[jnp.arange(count)[:, None], positions].set(tokens.astype(jnp.uint8)), tokens, None


class SelectiveCopy(Copy):
    """Copy with the tokens at random positions among the noise, so that the delays differ.

    Jing et al. 2019, in the form of Gu and Dao 2023, section 3.1.
    """

    name = "SelectiveCopy"
    title = "16 tokens among noise again after 4096 positions, 14 symbols"

    def positions(self, key: jax.Array, count: int, options: CopyOptions) -> jax.Array:
        import jax.numpy as jnp

        return jnp.sort(distinct(key, count, options.tokens, options.length), axis=1)


class MqarOptions(SampledOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The defaults: the shortest setting of Arora et al. 2023, figure 2. Length and pairs of the others: 128 and 8, 256
    and 16, 512 and 64."""

    length: Length = 64
    pairs: SmallCount = 4
    """N: pairs of a key and its value."""
    vocabulary: Annotated[int, Meta(ge=8, le=65_536)] = 8192
    """Ids: 0 is the filler, keys are below half of it, values from there on."""
    power: Annotated[float, Meta(gt=0, le=1)] = 0.01
    """a: the probability that a key is asked for at slot j, from 0, is proportional to (j + 1)**(a - 1)."""
    random_filler: bool = False
    """Whether filler positions have random ids instead of 0."""

    def __post_init__(self) -> None:
        if self.length % 2 or self.length < 4 * self.pairs:
            raise ValueError(f"length must be even and at least 4 pairs = {4 * self.pairs}, found {self.length}")
        if self.vocabulary % 2 or self.pairs >= self.vocabulary // 2:
            raise ValueError(f"vocabulary must be even and above 2 pairs = {2 * self.pairs}, found {self.vocabulary}")


class Mqar(Sampled):
    """Multi-query associative recall: pairs of a key and a value, then each key once more, to be answered by its value.

    As in the code of Arora et al. 2023. The first 2 N positions are distinct keys, each followed by its value; values
    are distinct too. After them every second position is a slot. Keys take slots one after another.
    """

    name = "MQAR"
    title = "the values of 4 keys among 8192 ids"
    version = "1"
    options = MqarOptions
    classes = 8192
    metric = Accuracy(chance=1 / 4096, naive=WITHOUT_QUERIES, escape=0.5)
    metrics = (metric, Exact(), WorstSlot())

    def spec(self, options: MqarOptions, vocabulary: Sequence[str] = ()) -> Spec:
        size, output = options.vocabulary, Output(at="positions", labelled=options.pairs)
        return Spec(name=self.name, kind="tokens", features=size, classes=size, length=options.length, output=output)

    def sample(self, key: jax.Array, count: int, options: MqarOptions) -> tuple[Any, Any, None]:
        import jax
        import jax.numpy as jnp

        key_keys, key_values, key_slots, key_filler = jax.random.split(key, 4)
        half, first = options.vocabulary // 2, 2 * options.pairs
        keys = 1 + distinct(key_keys, count, options.pairs, half - 1)
        values = half + distinct(key_values, count, options.pairs, half)
        weights = (options.power - 1) * jnp.log1p(jnp.arange((options.length - first) // 2))[None]
        # the largest of independent Gumbel variables, in their order, are a sample without replacement in its order
        slots = jax.lax.top_k(weights + jax.random.gumbel(key_slots, (count, weights.size)), options.pairs)[1]
        inputs = jnp.zeros((count, options.length), jnp.uint16)
        if options.random_filler:
            inputs = jax.random.randint(key_filler, inputs.shape, 0, options.vocabulary).astype(jnp.uint16)
        rows, pairs = jnp.arange(count)[:, None], jnp.stack([keys, values], axis=2).reshape(count, first)
        inputs = inputs.at[:, :first].set(pairs.astype(jnp.uint16))
        inputs = inputs.at[rows, first + 2 * slots].set(keys.astype(jnp.uint16))
        return inputs, jnp.full((count, options.length - first), -1).at[rows, 2 * slots].set(values), None

    def baselines(self, options: MqarOptions, validation: Split, test: Split) -> dict[str, float]:
        """The best guess without the queries: at each slot, the value of the pair that is asked for most often there.

        Pairs that take their slots first tend to early ones, so that it exceeds 1 / N.
        """
        first = 2 * options.pairs
        queried = _queried(validation, first)
        often = np.stack([((queried == pair) & (validation.labels >= 0)).sum(axis=0) for pair in range(options.pairs)])
        right = (_queried(test, first) == often.argmax(axis=0)) & (test.labels >= 0)
        return {WITHOUT_QUERIES: float(right.sum() / (test.labels >= 0).sum())}


def _queried(split: Split, first: int) -> np.ndarray:
    """(n, P): which pair has the label as its value; 0 without a label."""
    return np.argmax(split.inputs[:, None, 1:first:2] == split.labels[:, :, None], axis=2)


class InductionOptions(SampledOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The defaults: Gu and Dao 2023, section 4.1.2 and appendix E.1; they test at up to 2**20 positions."""

    length: Length = 256
    vocabulary: Annotated[int, Meta(ge=3, le=256)] = 16
    """Ids: the last one is the special token, the others are the symbols."""
    longest: Length = 4096
    """The test is repeated at twice the length, four times, and so on up to this."""


class InductionHeads(Sampled):
    """Random symbols; the last position repeats the special token, and the label is the symbol after its first one.

    Olsson et al. 2022 in the form of Gu and Dao 2023, section 4.1.2, who released no generator: the first special token
    is at any position from 0 to length - 3 here.
    """

    name = "InductionHeads"
    title = "the symbol after the first special token, 256 positions, 15 symbols"
    version = "1"
    options = InductionOptions
    classes = 16
    metric = Accuracy(chance=1 / 15, escape=0.5)

    def further_tests(self, options: InductionOptions) -> dict[str, InductionOptions]:
        lengths = [options.length << k for k in range(1, 21)]
        return {str(n): structs.replace(options, length=n) for n in lengths if n <= options.longest}

    def spec(self, options: InductionOptions, vocabulary: Sequence[str] = ()) -> Spec:
        size, output = options.vocabulary, Output(at="positions")
        return Spec(name=self.name, kind="tokens", features=size, classes=size, length=options.length, output=output)

    def sample(self, key: jax.Array, count: int, options: InductionOptions) -> tuple[Any, Any, None]:
        import jax
        import jax.numpy as jnp

        key_symbols, key_position = jax.random.split(key)
        special, last = options.vocabulary - 1, options.length - 1
        symbols = jax.random.randint(key_symbols, (count, options.length), 0, special)
        position = jax.random.randint(key_position, (count, 1), 0, last - 1)
        at = jnp.arange(options.length)[None]
        inputs = jnp.where((at == position) | (at == last), special, symbols).astype(jnp.uint8)
        return inputs, jnp.take_along_axis(symbols, position + 1, axis=1), None


class ParityOptions(SampledOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The defaults: Grazzi et al. 2024, Table 3 and appendix E.1."""

    min_length: Length = 3
    max_length: Length = 40
    longest: Length = 256
    """The test is repeated with lengths from `max_length` to this."""

    def __post_init__(self) -> None:
        if not self.min_length <= self.max_length < self.longest:
            actual = f"{self.min_length}, {self.max_length}, {self.longest}"
            raise ValueError(f"min_length, max_length and longest must ascend, found {actual}")


class Parity(Sampled):
    """Is the number of ones odd? Bits of a uniform length; the label is at the last one (Grazzi et al. 2024)."""

    name = "Parity"
    title = "the parity of 3 to 40 bits, and of up to 256 in a further test, 2 classes"
    version = "1"
    options = ParityOptions
    classes = 2
    metric = Accuracy(chance=1 / 2, escape=0.75)

    def further_tests(self, options: ParityOptions) -> dict[str, ParityOptions]:
        bounds = {"min_length": options.max_length, "max_length": options.longest, "longest": options.longest + 1}
        return {str(options.longest): structs.replace(options, **bounds)}

    def spec(self, options: ParityOptions, vocabulary: Sequence[str] = ()) -> Spec:
        output = Output(at="positions", labelled=1)
        return Spec(name=self.name, kind="tokens", features=3, classes=2, length=options.max_length, output=output)

    def sample(self, key: jax.Array, count: int, options: ParityOptions) -> tuple[Any, Any, Any]:
        """Ids: 0 is padding, 1 a zero, 2 a one."""
        import jax
        import jax.numpy as jnp

        key_bits, key_length = jax.random.split(key)
        bits = jax.random.randint(key_bits, (count, options.max_length), 0, 2)
        lengths = jax.random.randint(key_length, (count,), options.min_length, options.max_length + 1)
        at, ends = jnp.arange(options.max_length)[None], lengths[:, None]
        inputs = jnp.where(at < ends, 1 + bits, 0).astype(jnp.uint8)
        labels = jnp.where(at == ends - 1, jnp.cumsum(bits, axis=1) % 2, -1)
        return inputs, labels[:, options.min_length - 1 :], lengths


def distinct(key: jax.Array, rows: int, count: int, below: int) -> jax.Array:
    """(rows, count) whole numbers from 0 to `below` - 1, in each row distinct and in random order.

    Floyd's algorithm (Communications of the ACM, 1987): `count` draws a row, however large `below` is.
    """
    import jax
    import jax.numpy as jnp

    key_draws, key_order = jax.random.split(key)
    last = jnp.arange(below - count, below)
    draws = jax.random.randint(key_draws, (rows, count), 0, last[None] + 1)

    def add(k: Any, chosen: jax.Array) -> jax.Array:
        draw = draws[:, k]
        taken = jnp.any(chosen == draw[:, None], axis=1)
        return chosen.at[:, k].set(jnp.where(taken, last[k], draw))

    chosen = jax.lax.fori_loop(0, count, add, jnp.full((rows, count), -1))
    return jax.random.permutation(key_order, chosen, axis=1, independent=True)
