"""A private Slurm cluster of two nodes on this machine, for tests and benchmarks.

It needs Slurm's programs (Debian: slurmctld slurmd slurm-client munge), not a running Slurm. Without them tests are
skipped; with LRURUN_CI set, they fail.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
NODES = ("node1", "node2")
DOWN_SECONDS = 5
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_CONFIGURATION = """
ClusterName=lrurun
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={spool}/munge,cred_expire=5
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,sched_min_interval=0
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
KillWait=10
MinJobAge=3600
InactiveLimit=0
ReturnToService=2
SlurmdTimeout={down}
SlurmctldTimeout=20
MessageTimeout=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=2000 Gres=gpu:1 State=UNKNOWN
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=0 LLN=YES
PartitionName=high Nodes=node1,node2 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def require() -> None:
    """Skips the test, or fails it in CI, if Slurm's programs are missing."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        text = f"Slurm is not installed: {', '.join(missing)} (Debian: slurmctld slurmd slurm-client munge)"
        (pytest.fail if os.environ.get("LRURUN_CI") else pytest.skip)(text)


class SlurmCluster:
    """Daemons of this process, with two nodes of two CPUs each, and a GPU on the first, whose device is /dev/null.

    A context manager, which stops them.
    """

    def __init__(self, folder: Path, down_seconds: int = DOWN_SECONDS) -> None:
        """`down_seconds`: after how long without an answer Slurm declares a node down, and starts its task again."""
        self.folder = folder
        self._spool = Path(tempfile.mkdtemp(prefix="slurm-"))  # a socket's path has at most 108 bytes
        for name in ("munge", "state", "log"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "munge").chmod(0o700)
        (folder / "munge" / "key").write_bytes(secrets.token_bytes(1024))
        (folder / "munge" / "key").chmod(0o400)
        configuration = folder / "slurm.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                host=socket.gethostname().partition(".")[0],
                folder=folder,
                spool=self._spool,
                user=getpass.getuser(),
                ports=_free_ports(3),
                down=down_seconds,
            )
        )
        (folder / "gres.conf").write_text("NodeName=node1 Name=gpu File=/dev/null\n")
        self.env = {"SLURM_CONF": str(configuration), "PATH": _PATH}

    def __enter__(self) -> SlurmCluster:
        munge = self.folder / "munge"
        self._daemon(
            *(
                "munged",
                "--force",
                f"--socket={self._spool}/munge",
                f"--key-file={munge}/key",
                f"--log-file={munge}/log",
            ),
            *(f"--pid-file={munge}/pid", f"--seed-file={munge}/seed"),
        )
        self.start_controller("-c")
        for node in NODES:
            self.start_node(node)
        self.wait_for_nodes()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self.run("scancel", "--full", f"--user={getpass.getuser()}", check=False, timeout=10)
            deadline = time.monotonic() + 15
            while self.jobs() and time.monotonic() < deadline:
                time.sleep(0.1)
        for name in (*(f"slurmd.{node}.pid" for node in NODES), "slurmctld.pid"):
            self._end(self.folder / name)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # step daemons and batch scripts outlive slurmd
                if process.pid != os.getpid() and self._owns(process):
                    process.kill()
        self._end(self.folder / "munge" / "pid")
        shutil.rmtree(self._spool, ignore_errors=True)

    def _owns(self, process: psutil.Process) -> bool:
        """Whether a process is of this cluster; step daemons have no readable environment."""
        if process.name() == "slurmstepd":
            return Path(process.cwd()).is_relative_to(self._spool)
        return process.environ().get("SLURM_CONF") == self.env["SLURM_CONF"] and "SLURM_JOB_ID" in process.environ()

    def _daemon(self, *command: str) -> None:
        done = subprocess.run(command, env=os.environ | self.env, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"{command}: {done.stderr}"

    def _end(self, file: Path, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends the daemon of a pid file, and waits until it has exited."""
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            process = psutil.Process(int(file.read_text()))
            process.send_signal(number)
            deadline = time.monotonic() + 10
            while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
                time.sleep(0.05)

    def start_controller(self, *options: str) -> None:
        self._daemon("slurmctld", *options, "-f", self.env["SLURM_CONF"])

    def kill_controller(self) -> None:
        self._end(self.folder / "slurmctld.pid", signal.SIGKILL)

    def start_node(self, node: str) -> None:
        self._daemon("slurmd", "-N", node, "-f", self.env["SLURM_CONF"])

    def kill_node(self, node: str) -> None:
        """Kills the slurmd of a node. Its jobs run on, which Slurm does not know."""
        self._end(self.folder / f"slurmd.{node}.pid", signal.SIGKILL)

    def wait_for_nodes(self, seconds: float = 30) -> None:
        """Waits until all nodes are up."""
        deadline = time.monotonic() + seconds
        while True:
            states = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N|%t", check=False).stdout.split()
            if sorted(states) == [f"{node}|{state}" for node in NODES for state in self._states(states, node)]:
                return
            assert time.monotonic() < deadline, states
            time.sleep(0.1)

    @staticmethod
    def _states(found: list[str], node: str) -> list[str]:
        """The state of a node, if it is one of a node that is up."""
        return [state for state in ("idle", "alloc", "mix", "comp") if f"{node}|{state}" in found]

    def run(
        self, *command: str, check: bool = True, given: str = "", timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command of Slurm."""
        done = subprocess.run(
            command, env=os.environ | self.env, input=given, capture_output=True, text=True, timeout=timeout
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def account(self) -> str:
        """What the daemons and the tasks have said last, for a test that fails."""
        files = [*self.folder.glob("log/*.log"), *self.folder.parent.glob("**/nodes/*.log")]
        tails = (f"== {file}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-40:]) for file in files)
        return "\n".join([self.run("squeue", "-a", "-l", check=False).stdout, *tails])

    def jobs(self) -> dict[str, tuple[str, str]]:
        """Task -> its state and node, of all that have not ended."""
        lines = self.run("squeue", "-h", "-a", "-r", "-o", "%i|%T|%N", check=False).stdout.splitlines()
        fields = (line.split("|") for line in lines)
        return {task: (state, node) for task, state, node in fields}

    def running(self, node: str | None = None) -> list[str]:
        """The tasks that run, on a node if it is given."""
        return [task for task, (state, on) in self.jobs().items() if state == "RUNNING" and node in (None, on)]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
