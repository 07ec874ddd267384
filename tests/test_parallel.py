"""Rounds in several processes: in order, as in one process, and nothing is left behind however they end."""

from __future__ import annotations

import itertools
import operator
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

import lrurun
from lrurun.errors import LrurunError
from lrurun.tasks.generators.parallel import rounds

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}


@pytest.fixture
def alone():
    """That no child process is left when the test is over."""
    before = psutil.Process().children()
    yield
    assert psutil.Process().children() == before


def helpers(of: psutil.Process, count: int) -> list[psutil.Process]:
    until = time.monotonic() + 20
    while len(found := of.children()) < count:
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_rounds_come_in_order_from_any_number_of_processes(workers, alone):
    stream = rounds(partial(operator.mul, 3), workers)
    assert list(itertools.islice(stream, 10)) == [0, 3, 6, 9, 12, 15, 18, 21, 24, 27]
    assert len(psutil.Process().children()) == (workers if workers > 1 else 0)
    stream.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_what_the_work_raises_is_raised_in_its_turn(workers, alone):
    stream = rounds(partial(operator.getitem, "ab"), workers)
    assert [next(stream), next(stream)] == ["a", "b"]
    with pytest.raises(IndexError, match="string index out of range"):
        next(stream)


def test_a_process_that_died_is_told(alone):
    stream = rounds(partial(operator.mul, b"x" * 100_000), 2)
    assert next(stream) == b""
    for helper in psutil.Process().children():
        helper.kill()
    with pytest.raises(LrurunError) as caught:
        list(stream)
    assert caught.value.message == "a process that generates data died: signal SIGKILL"
    assert caught.value.hint == "check the memory of this machine, and use fewer workers"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_starter(number):
    code = (
        "from functools import partial; from operator import mul; from lrurun.tasks.generators.parallel import rounds\n"
        "for _ in rounds(partial(mul, 3), 2): print('.', flush=True)"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    found = helpers(psutil.Process(starter.pid), 2)
    starter.stdout.read(1)
    if number == signal.SIGINT:
        os.killpg(starter.pid, number)  # as a terminal does it
    else:
        starter.send_signal(number)
    said = starter.communicate(timeout=20)[1]
    assert psutil.wait_procs(found, timeout=20)[1] == []
    assert said.count(b"Traceback") == (number == signal.SIGINT)  # the starter's own
    assert starter.returncode == -number
