"""What Ray runs on a node: a look at the node, and the actor that starts a node supervisor.

The node supervisor is a process of its own, so that the jax of its workers has nothing of Ray. It ends with its node.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from lrurun.ledger import owner
from lrurun.runner import node
from lrurun.version import VERSION

_WITH_PARENT = """import ctypes, os, sys
if sys.platform == "linux": ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])"""


def look(runs: str, token: str) -> tuple[bool, str]:
    """Runs on a node: whether it sees the file of a token in the runs folder, and the version of lrurun."""
    return node.sees(Path(runs), token), VERSION


class NodeActor:
    """Runs in a process of Ray on a node: starts a node supervisor, and ends with it."""

    def __init__(self, name: str, command: list[str], folder: str, log: str, variables: dict[str, str]) -> None:
        import ray

        here = ray.get_runtime_context()
        # without START: Ray does not say how often it has started an actor, and the ledger knows
        own = {owner.NODE: here.get_node_id()[:12], node.TASK: f"ray:{name}"}
        env = {key: text for key, text in os.environ.items() if key != "OMP_NUM_THREADS"}  # which Ray has set
        prefix = [sys.executable, "-c", _WITH_PARENT, str(os.getpid()), sys.executable]
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [*prefix, *command[1:]],
                cwd=folder,
                env=env | variables | own,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        threading.Thread(target=self._follow, args=(here.current_actor,), daemon=True).start()

    def _follow(self, itself: Any) -> None:
        import ray

        raylet = os.getppid()
        while self._process.poll() is None:
            if os.getppid() != raylet:
                os._exit(1)  # the node supervisor is killed with this process
            time.sleep(0.5)
        ray.kill(itself)  # for good: Ray starts only those again that are lost

    def stop(self) -> None:
        """Lets the node supervisor save and end."""
        self._process.send_signal(signal.SIGTERM)
