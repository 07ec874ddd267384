"""Processes that do the same work at the same moment."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.harness import ROOT

_SCRIPT = """
import io, os, sys, traceback
{code}
waiting, open_end = os.pipe()
pids = []
for number in range({count}):
    pid = os.fork()
    if pid == 0:
        os.close(open_end)
        os.read(waiting, 1)  # until the parent closes its end
        sys.stdout = io.StringIO()
        try:
            work(number)
            for line in sys.stdout.getvalue().splitlines(keepends=True):
                os.write(1, line.encode())  # at once, so that lines of several processes never mix
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    pids.append(pid)
os.close(open_end)
sys.exit(any(os.waitpid(pid, 0)[1] for pid in pids))
"""


def at_once(count: int, code: str, *arguments: object) -> list[str]:
    """The lines printed by `count` processes that call the `work(number)` of `code` together.

    They are forks of one interpreter, so that modules are imported once.
    """
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(code=code, count=count), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
