"""Settings of all tests: arrays of unequal rank never broadcast by themselves."""

import jax
import pytest

from tests.machine import Machine

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def strict():
    """Mixed types are an error inside, so that nothing becomes float64 or int32 unnoticed."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Compiled programs and prepared data that all commands of a session share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def machine(tmp_path, cache):
    """A folder with a ledger of its own, to run commands in."""
    return Machine(tmp_path / "here", cache)
