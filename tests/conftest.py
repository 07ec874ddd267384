"""Settings of all tests: arrays of unequal rank never broadcast by themselves."""

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def strict():
    """Mixed types are an error inside, so that nothing becomes float64 or int32 unnoticed."""
    with jax.numpy_dtype_promotion("strict"):
        yield
