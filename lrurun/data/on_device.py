"""Tasks whose training examples are sampled on the device, new ones at every step; evaluation has fixed examples.

Their functions import jax when they are called, which is in workers only.
"""

from __future__ import annotations

import hashlib
import zlib
from abc import abstractmethod
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lrurun.data.arrays import Writer
from lrurun.data.task import Count, Options, Progress, Sampler, Seed, Source, Split, Task

if TYPE_CHECKING:
    import jax

PRNG = "threefry2x32"
"""The generator of jax, named so that another default of jax changes nothing. Its bits are the same on every device;
real numbers that are computed from them may differ in the last digit. Evaluation reads stored splits."""
PARTITIONABLE = True
"""The order of its counters, jax's default since 0.5; fixed here, because JAX_THREEFRY_PARTITIONABLE changes it."""
SAMPLE = 64
"""Examples of step 0 of seed 0, in a batch of this size, that are stored: to be looked at, and so that the digest of
the data covers the implementation of what is sampled in training."""
_BLOCK = 64
"""Examples that are sampled at once."""


class SampledOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes of the fixed splits, and their seed; the training examples depend on the seed of the run."""

    train: Count | None = SAMPLE
    """Stored examples of the training stream."""
    validation: Count | None = 1024
    test: Count | None = 1024
    seed: Seed = 0
    """Seed of the validation and the test split."""


class Sampled(Task):
    """A task that is a distribution: a subclass defines `spec` and `sample`."""

    options: ClassVar[type[Options]] = SampledOptions

    @abstractmethod
    def sample(self, key: jax.Array, count: int, options: Any) -> tuple[Any, Any, Any]:
        """`count` examples: inputs, labels as `Output` describes them, and lengths or None. Traced by jax."""

    def sizes(self, options: Any) -> dict[str, int]:
        return {"train": options.train, "validation": options.validation, "test": options.test}

    def sampler(self, options: Any) -> Sampler:
        return partial(self.sample, options=options)

    def baselines(self, options: Any, validation: Split, test: Split) -> dict[str, float]:
        """Naive predictor -> its score on the test split; it may have seen the validation split."""
        return {}

    def offline(self, options: Any) -> Source:
        return Source(
            kind="generated",
            text=f"sampled by lrurun, {PRNG}, seed {options.seed}",
            fill=partial(self._fill, options),
            generator={
                "name": self.name,
                "version": self.version,
                "prng": PRNG,
                "partitionable": PARTITIONABLE,
                "seed": options.seed,
            },
        )

    def _fill(self, options: Any, writer: Writer, progress: Progress) -> None:
        """Writes the fixed splits, and as `train` what training samples at step 0 of seed 0 in a batch of `SAMPLE`."""
        import jax

        further = {f"test@{name}": test_options for name, test_options in self.further_tests(options).items()}
        splits = dict.fromkeys(("train", "validation", "test"), options) | further
        written: dict[str, dict[str, np.ndarray]] = {split: {} for split in splits}

        @cache  # validation and test are of one program
        def sampler(count: int, split_options: Any) -> Callable[[jax.Array], Any]:
            return jax.jit(partial(self.sample, count=count, options=split_options))

        with fixed_generator(), jax.default_device(jax.local_devices(backend="cpu")[0]):
            for split, split_options in splits.items():
                progress(f"sampling {split}", 0, None)
                count = self.sizes(split_options)[split.partition("@")[0]]
                sampled = sampler(count if split == "train" else _BLOCK, split_options)
                base = stream(options.seed, f"{self.name}/{split}")
                keys = [jax.random.fold_in(base, block) for block in range(-(-count // _BLOCK))]
                blocks = [jax.device_get(sampled(k)) for k in ([training_key(0, 0)] if split == "train" else keys)]
                for part, arrays in zip(("inputs", "labels", "lengths"), zip(*blocks, strict=True), strict=True):
                    if arrays[0] is not None:
                        written[split][part] = np.concatenate(arrays)[:count]
                        writer.save(split, part, written[split][part])
        writer.baselines |= self.baselines(options, Split(**written["validation"]), Split(**written["test"]))


def fixed_generator() -> Any:
    """A context in which the functions of jax.random give the numbers of this release, whatever jax's flags are."""
    import jax

    return jax.threefry_partitionable(PARTITIONABLE)


def stream(seed: Any, name: str) -> jax.Array:
    """The random key of a stream, a pure function of seed and name; the seed may be traced."""
    import jax

    return jax.random.fold_in(jax.random.key(seed, impl=PRNG), np.uint32(zlib.crc32(name.encode())))


def training_key(seed: Any, step: Any) -> jax.Array:
    """The key of the examples of training step `step`, counted from 0; both may be traced."""
    import jax

    return jax.random.fold_in(stream(seed, "data"), step)


def training_batch(sampler: Sampler, seed: Any, step: Any, count: int) -> tuple[Any, Any, Any]:
    """The examples of training step `step`, counted from 0; seed and step may be traced."""
    with fixed_generator():
        return sampler(training_key(seed, step), count)


def batch_digest(sampler: Sampler, seed: int, count: int) -> str:
    """`sha256:` and 64 hex digits over the training batch 0 of a run, sampled on the CPU.

    It changes with everything that the examples depend on: code of task and sampler, jax's generator, seed, batch size.
    """
    import jax

    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        arrays = jax.device_get(_compiled(sampler, count)(np.uint32(seed), np.int32(0)))
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(b"none" if array is None else f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return "sha256:" + digest.hexdigest()


@lru_cache(maxsize=4)
def _compiled(sampler: Sampler, count: int) -> Callable[..., Any]:
    import jax

    return jax.jit(partial(training_batch, sampler, count=count))
