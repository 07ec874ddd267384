"""A private Ray cluster of two nodes on this machine, for tests of the executor."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

# 127.0.0.1 would be replaced by the machine's own address
HEAD, SECOND = "127.0.0.2", "127.0.0.3"
SETTINGS = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",  # a lost node is noticed after 2 s instead of 30
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


class RayCluster:
    """Two nodes with one CPU each and the custom resources `first` and `second`."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        """Starts the head node; `folder` has a short path, because sockets are in it."""
        self.folder = folder
        self.env = env | SETTINGS | {"HOME": str(folder), "RAY_TMPDIR": str(folder)}
        (folder / "ray").mkdir()
        with socket.socket() as free:
            free.bind((HEAD, 0))
            self.address = f"{HEAD}:{free.getsockname()[1]}"
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        port = self.address.partition(":")[2]
        try:
            unused = ("--include-dashboard=false", "--no-monitor")
            self._start("first", "--head", f"--port={port}", *unused, ip=HEAD)
            self.add_second()
        except BaseException:
            self.stop()
            raise

    def add_second(self, hidden: Path | None = None, gpus: int = 0) -> bool:
        """Starts the second node, if it does not run.

        Args:
            hidden: a folder that this node sees empty. Without the right to do that no node is started.
            gpus: how many GPUs are simulated there, by the environment variable that names them.
        """
        if "second" in self._nodes:
            return True
        options = [f"--address={self.address}", *([f"--num-gpus={gpus}"] if gpus else [])]
        prefix = ["env", f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(gpus)))}"] if gpus else []
        if hidden is not None:
            prefix = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{hidden}" && exec "$@"', "sh"]
            if subprocess.run([*prefix, "true"], capture_output=True).returncode:
                return False
        self._start("second", *options, ip=SECOND, prefix=prefix)
        return True

    def _start(self, name: str, *options: str, ip: str, prefix: Sequence[str] = ()) -> None:
        log = self.folder / f"{name}.log"
        size = ("--num-cpus=1", "--object-store-memory=80000000", f'--resources={{"{name}": 1}}')
        with log.open("wb") as file:
            start = [sys.executable, "-m", "ray.scripts.scripts", "start", *options, f"--node-ip-address={ip}", *size]
            self._nodes[name] = subprocess.Popen(
                [*prefix, *start, "--block"],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + 60
        while "Ray runtime started" not in (text := log.read_text(errors="replace")):
            assert self._nodes[name].poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.1)

    def processes(self, name: str) -> list[psutil.Process]:
        """All processes of a node, those that it started included; none where it does not run."""
        if name not in self._nodes:
            return []
        node = psutil.Process(self._nodes[name].pid)
        return [node, *node.children(recursive=True)]

    def crash_raylet(self, name: str) -> None:
        """Kills the one process of a node that Ray's other processes there depend on."""
        self._nodes[name].send_signal(signal.SIGSTOP)  # it would clean up
        [raylet] = [process for process in self.processes(name) if process.name() == "raylet"]
        raylet.kill()
        psutil.wait_procs([raylet], 10)

    def kill(self, name: str) -> None:
        """Kills a node with all its processes at once, as a power cut does."""
        tree = self.processes(name)
        for stop in (psutil.Process.suspend, psutil.Process.kill):  # first: none of them reacts to the end of another
            for process in tree:
                with contextlib.suppress(psutil.NoSuchProcess):  # a short one that has ended by now
                    stop(process)
        self._nodes.pop(name).wait()
        psutil.wait_procs(tree, 10)

    def stop(self) -> None:
        """Kills what remains and removes the folder."""
        for name in list(self._nodes):
            self.kill(name)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Skips the test where Ray is not installed, except in CI: there it fails."""
    if importlib.util.find_spec("ray") is None:
        needed = pytest.fail if os.environ.get("LRURUN_CI") else pytest.skip
        needed("Ray is not installed: pip install -e '.[ray]'")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("LRURUN", "PYTEST"))}
    folder = Path(tempfile.mkdtemp(prefix="lrurun-ray-"))
    cluster = None
    try:
        cluster = RayCluster(folder, env)
        yield cluster
    finally:
        if cluster is not None:
            cluster.stop()
