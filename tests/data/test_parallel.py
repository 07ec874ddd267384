"""Rounds in several processes: in order, as in one process, and no process remains however they end."""

from __future__ import annotations

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
from lrurun.data.synthetic.parallel import rounds
from lrurun.errors import LrurunError

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}


def helpers(of: psutil.Process | None = None) -> list[psutil.Process]:
    """The processes that compute rounds; multiprocessing has one more, which keeps account of its locks."""
    return [child for child in (of or psutil.Process()).children() if "spawn_main" in "".join(child.cmdline())]


@pytest.fixture
def alone():
    """Checks that no such process remains when the test is over."""
    assert helpers() == []
    yield
    assert helpers() == []


@pytest.mark.parametrize("workers", [1, 2])
def test_rounds_come_in_order_and_what_one_raises_is_raised_when_it_is_due(workers, alone):
    stream = rounds(partial(operator.getitem, "abcdefgh"), workers)
    assert [next(stream) for _ in range(8)] == list("abcdefgh")
    assert len(helpers()) == (workers if workers > 1 else 0)
    with pytest.raises(IndexError, match="string index out of range"):
        next(stream)


def test_a_process_that_died_is_reported(alone):
    stream = rounds(sleep_after_first, 2)
    assert next(stream) == 0
    for helper in helpers():
        helper.kill()
    with pytest.raises(LrurunError) as caught:
        next(stream)
    assert caught.value.message == "a process that generates data died"
    assert caught.value.hint == "check the memory of this machine, and use fewer workers"


def test_closing_does_not_wait_for_a_long_round(alone, tmp_path):
    stream = rounds(partial(sleep_after_first, folder=tmp_path), 2)
    assert next(stream) == 0
    stream.close()
    assert [path.name for path in tmp_path.iterdir()] == ["0"], "no other round has ended"


def sleep_after_first(number: int, folder: Path | None = None) -> int:
    time.sleep(60 * (number > 0))
    if folder is not None:
        (folder / str(number)).touch()
    return number


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_starter(number):
    code = (
        "from functools import partial; from operator import mul\n"
        "from lrurun.data.synthetic.parallel import rounds\n"
        "for _ in rounds(partial(mul, 3), 2): print('.', flush=True)"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    starter = subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT, **pipes)
    starter.stdout.read(1)
    found = helpers(psutil.Process(starter.pid))
    assert len(found) == 2
    if number == signal.SIGINT:
        os.killpg(starter.pid, number)  # as a terminal does it
    else:
        starter.send_signal(number)
    starter.communicate(timeout=20)
    assert psutil.wait_procs(found, timeout=20)[1] == []
    assert starter.returncode == -number
