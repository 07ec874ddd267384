"""Settings of all tests: arrays of unequal rank never broadcast by themselves."""

import jax
import pytest

from lrurun import console
from tests.machine import LONG, Machine

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def usual_talk():
    """A command that was told to be quiet leaves the tests after it as they are."""
    yield
    console.set_verbosity(0)


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


@pytest.fixture(scope="session")
def long_history(tmp_path_factory, cache):
    """An undisturbed ladder of longer runs."""
    machine = Machine(tmp_path_factory.mktemp("long"), cache)
    machine.run("ladder", "sDigits", *LONG)
    return machine.history()
