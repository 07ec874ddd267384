"""Small networks for tests, with parameters and batches for them."""

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec

LRU = LRUSettings(normalize=True, r_min=0.5, r_max=0.9)
FEATURES = {"name": "pixels", "kind": "features"}
TOKENS = {"name": "letters", "kind": "tokens"}


def features(**changes):
    return Spec(**{**FEATURES, "features": 1, "classes": 3, "length": 12, "scale": 0.1, **changes})


def tokens(**changes):
    return Spec(**{**TOKENS, "features": 7, "classes": 3, "length": 12, **changes})


def config(**changes):
    return ModelConfig(**{"recurrence": LRU, "depth": 2, "width": 6, "state": 5, **changes})


def initial(model, seed=0):
    """Parameters off their symmetric start: norms that scale and biases that are not zero. Also inside of jit."""
    params, stats = jax.jit(model.init)(jax.random.key(seed))
    rng = np.random.default_rng(seed)

    def jiggle(path, x):
        moved = path[-1].key in ("bias", "scale")
        if not moved:
            return x
        by = (0.3 * rng.normal(size=x.shape)).astype(np.float32)
        return x + by if isinstance(x, jax.core.Tracer) else jnp.asarray(np.asarray(x) + by)

    return jax.tree_util.tree_map_with_path(jiggle, params), stats


def batch(spec, size=4, seed=0):
    rng = np.random.default_rng(seed)
    shape = (size, 2, spec.length) if spec.pair else (size, spec.length)
    inputs = rng.integers(0, spec.features if spec.kind == "tokens" else 17, shape).astype(np.uint8)
    lengths = rng.integers(1, spec.length + 1, shape[:-1]).astype(np.int16)
    lengths[0] = spec.length
    return jnp.asarray(inputs), jnp.asarray(lengths)


def junk(inputs, lengths):
    """The same with other values in the padding."""
    padded = np.arange(inputs.shape[-1]) >= np.asarray(lengths)[..., None]
    return jnp.where(padded, (inputs + 3) % 7, inputs).astype(inputs.dtype)
