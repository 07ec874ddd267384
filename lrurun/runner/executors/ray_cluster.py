"""The connection to a Ray cluster, and its errors."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from lrurun.errors import LrurunError, UsageError
from lrurun.runner.executors.nodes import EngineError

NAMESPACE = "lrurun"
CONNECT_SECONDS = 20.0
_TRY = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level='error')"


@contextlib.contextmanager
def cluster(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster at an address.

    Raises:
        LrurunError: it is not installed, or there is no such cluster.
        EngineError: what is asked of Ray in the block fails.
    """
    ray = _connected(address)
    try:
        yield ray
    except (ray.exceptions.RayError, RuntimeError, TimeoutError) as error:
        raise EngineError(f"Ray does not answer: {last_line(error)}") from None


def last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _connected(address: str) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        import ray

        if not ray.is_initialized():
            _try_address(address)
            ray.init(address, namespace=NAMESPACE, log_to_driver=False, logging_level="error", configure_logging=False)
    except ImportError as error:
        text = f"--executor ray: Ray cannot be imported: {str(error).splitlines()[0]}"
        raise LrurunError(text, "pip install 'lrurun[ray]'") from None
    finally:
        for number, handler in before.items():  # Ray has its own
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)
    return ray


def _try_address(address: str) -> None:
    """Connects to a cluster in another process: where there is none, Ray tries for minutes and cannot be stopped."""
    hint = "give the address of the cluster's head node, as in --address HOST:6379; ray status shows whether it runs"
    if "://" in address:
        raise UsageError(f"--address {address}: expected HOST:PORT", "give the command on a node of the cluster")
    host, _, port = address.rpartition(":")
    if address not in ("auto", "local") and not (host and port.isdecimal()):
        raise UsageError(f"--address: expected HOST:PORT, found {address!r}", hint)
    try:
        if host:
            socket.create_connection((host, int(port)), timeout=5.0).close()
        tried = subprocess.run(
            [sys.executable, "-c", _TRY, address], capture_output=True, text=True, timeout=CONNECT_SECONDS
        )
        text = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1] if tried.returncode else ""
    except subprocess.TimeoutExpired:
        text = f"no Ray cluster answered for {CONNECT_SECONDS:.0f} s"
    except (OSError, OverflowError) as error:
        text = str(error)
    if text:
        raise LrurunError(f"--address {address}: {text}", hint)
