"""Slurm: an array job whose tasks are node supervisors.

At a time limit or a preemption a task saves its runs and requeues itself; Slurm requeues it when its node fails.
"""

from __future__ import annotations

import getpass
import math
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Any

from lrurun import console
from lrurun.errors import LrurunError, UsageError, hint_for, nearest
from lrurun.ledger import database, owner
from lrurun.runner import logs, node
from lrurun.runner.executors import NodeJob
from lrurun.runner.executors.nodes import EngineError, NodeExecutor, one_machine

SECONDS = 60.0
"""How long a command of Slurm may take."""
SAVE_SECONDS = 30
"""How long before the time limit Slurm sends the signal to save."""

_OURS = {
    "array": "nodes=N is the number of tasks",
    "ntasks": "each task of the array is one process",
    "job-name": "lrurun finds its jobs by their name",
    "chdir": "tasks run in the folder of the command",
    **dict.fromkeys(("output", "error"), "logs are in the runs folder"),
    **dict.fromkeys(
        "requeue no-requeue open-mode signal export export-file parsable test-only wait wrap".split(),
        "lrurun's own value is needed",
    ),
    **dict.fromkeys("help usage version quiet verbose uid gid clusters".split(), "it is no setting of a job"),
}
"""Options of sbatch that are not the user's, and why."""


_HIDE_GPUS = f"""\
if [ -z "${{CUDA_VISIBLE_DEVICES-}}${{ROCR_VISIBLE_DEVICES-}}${{SLURM_JOB_GPUS-}}" ] &&
   scontrol show node "$SLURMD_NODENAME" | grep -q 'Gres=.*gpu:'; then  # its GPUs are for other jobs
  export {" ".join(f"{name}={value}" for name, value in node.HIDDEN_GPUS.items())}
fi"""
"""Lines of the script. Slurm removes these variables from a job that asked for no GPU, and cgroups that keep it off the
devices are a choice of the cluster; without `Gres` the GPUs of a node are not Slurm's to give."""


class SlurmExecutor(NodeExecutor):
    """Submits array jobs by `sbatch`, and counts and cancels them by name."""

    def __init__(self, job: NodeJob) -> None:
        super().__init__(job)
        self._submitted = ""
        """The newest job."""
        for key, value in job.settings.items():
            if not re.fullmatch(r"[a-z][a-z0-9-]*", key):
                text = f"--on slurm:{key}: expected a long option of sbatch without its dashes, found {key!r}"
                raise UsageError(text, "as in --on slurm:partition=gpu")
            if key in _OURS:
                raise UsageError(f"--on slurm:{key}: is set by lrurun: {_OURS[key]}", "leave it out")
            if not value or not value.isprintable():
                raise UsageError(
                    f"--on slurm:{key}: expected a value, found {value!r}", f"as in --on slurm:{key}=VALUE"
                )

    def check(self, *, detach: bool) -> None:
        super().check(detach=detach)
        for program in ("sbatch", "squeue", "scancel"):
            if shutil.which(program) is None:
                hint = "run the command where Slurm's programs are, as on a login node; --dry-run prints the script"
                raise LrurunError(f"--on slurm: {program} was not found on PATH", hint)
        known = set(re.findall(r"(?<=--)[a-z][a-z-]*", _run("sbatch", "--help").stdout))
        for key in self.job.settings:
            if known and key not in known:
                close = nearest(key, {*known, "nodes"})
                hint = f"did you mean {close}? " if close else ""
                raise UsageError(f"--on slurm:{key}: sbatch has no option --{key}", f"{hint}see sbatch --help")
        if not self._is_alive():  # otherwise an earlier command has submitted it
            self._check_job()
        if not database.implementation(self.job.places.ledger).is_shared:
            self._check_hosts()
        settings = " ".join(f"{key}={value}" for key, value in self.job.settings.items())
        if not re.search("gpu|gres|tres|exclusive", settings) and "gpu:" in self._nodes_listed("%G"):
            console.say(node.NO_GPU.format(engine="slurm", setting="gres=gpu:1"))

    def _nodes_listed(self, field: str) -> str:
        """A field that `sinfo` prints of each node on which tasks may run, one a line."""
        settings = (("partition", "partition"), ("nodelist", "nodes"))
        options = [f"--{name}={self.job.settings[key]}" for key, name in settings if key in self.job.settings]
        return _run("sinfo", "--noheader", "--Node", f"--format={field}", *options).stdout

    def _check_hosts(self) -> None:
        """Refuses an SQLite ledger where tasks may run on other machines than this one, which also writes to it."""
        listed = self._nodes_listed("%n")
        own_host = socket.gethostname().partition(".")[0]
        hosts = sorted({host.partition(".")[0] for host in listed.split()} - {own_host})
        if hosts or own_host not in listed:
            detail = f", {own_host}; tasks may run on {', '.join(hosts[:3]) or 'others'}"
            otherwise = "give the command on a node and name that node: --on slurm:nodelist=NODE"
            raise one_machine("--on slurm", detail, otherwise)

    def _check_job(self) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
                file.write(self._script(self.nodes, {}))
                file.flush()
                tried = _run("sbatch", "--test-only", file.name)
            busy = re.search("contact|timed out|temporarily", tried.stderr, re.IGNORECASE)
            if tried.returncode == 0 or not busy or time.monotonic() > deadline:
                break
            time.sleep(1.0)
        if tried.returncode:
            text = _message(tried)
            hint = "sinfo shows partitions and nodes; correct --on slurm:..., or the table of the configuration file"
            if "partition" in text.lower() and (name := self.job.settings.get("partition")):
                partitions = _run("sinfo", "--noheader", "--format=%R").stdout.split()
                hint = hint_for(name, dict.fromkeys(partitions), "partitions")
            raise LrurunError(f"--on slurm: sbatch refuses the job: {text}", hint)

    def script(self) -> str:
        """The script, to be submitted by hand: its comments say what must be done before."""
        first, _, rest = self._script(self.nodes, {}).partition("\n")
        ledger = self.job.places.ledger
        before = f"mkdir -p {shlex.quote(str(self._logs))}", database.command("migrate", ledger)
        return "\n".join([first, "# before sbatch:", *(f"#   {line}" for line in before), rest])

    def _script(self, count: int, variables: dict[str, str]) -> str:
        """The batch script of an array of `count` tasks."""
        options = {
            "job-name": self.job.name,
            "array": f"0-{count - 1}",
            "requeue": "true",
            "open-mode": "append",
            "signal": f"B:USR1@{SAVE_SECONDS + math.ceil(self.job.stop_seconds)}",
            "chdir": str(self.job.folder),
            "output": str(self._logs).replace("%", "%%") + "/%A_%a.log",
            **self.job.settings,
        }
        lines = ["#!/bin/bash"]
        for key, value in options.items():
            if value != "false":
                lines.append(f"#SBATCH --{key}" if value == "true" else f"#SBATCH --{key}={shlex.quote(value)}")
        task = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
        exported = {
            owner.NODE: "$SLURMD_NODENAME",
            node.TASK: f"slurm:$SLURM_CLUSTER_NAME:{task}",
            node.START: "${SLURM_RESTART_COUNT:-0}",
            node.REQUEUE: f"scontrol requeue {task}",
        }
        lines += [f'export {name}="{value}"' for name, value in exported.items()]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        lines += [_HIDE_GPUS]
        return "\n".join([*lines, f"exec {shlex.join(self.job.arguments)}", ""])

    def submit(self, count: int, variables: dict[str, str]) -> str:
        self._logs.mkdir(parents=True, exist_ok=True)
        done = _run("sbatch", "--parsable", stdin=self._script(count, variables))
        if done.returncode:
            raise EngineError(f"sbatch: {_message(done)}")
        self._submitted = done.stdout.strip().partition(";")[0]
        return f"Slurm job {self._submitted}"

    def alive(self) -> int:
        return len(self._tasks())

    def _is_alive(self) -> bool:
        try:
            return self.alive() > 0
        except EngineError:
            return False

    def _tasks(self) -> dict[str, str]:
        """The tasks of this name that have not ended -> their states."""
        name = f"--name={self.job.name}"
        done = _run("squeue", "--noheader", "--array", f"--user={getpass.getuser()}", name, "--format=%i|%T")
        if done.returncode:
            raise EngineError(f"squeue: {_message(done)}")
        pairs = (line.split("|") for line in done.stdout.splitlines() if "|" in line)
        return {task.strip(): state for task, state in pairs}

    def cancel(self, *, waiting_only: bool) -> None:
        tasks = [task for task, state in self._tasks().items() if state == "PENDING" or not waiting_only]
        if tasks and (done := _run("scancel", *tasks)).returncode:
            raise EngineError(f"scancel: {_message(done)}")

    def last_line(self) -> tuple[str, str]:
        files = sorted(self._logs.glob(f"{self._submitted}_*.log"))
        lines = logs.tail(files[-1], 20) if files else []
        errors = [line for line in lines if line.startswith("error: ")]
        return (errors or lines or [""])[-1].removeprefix("error: "), str(files[-1] if files else self._logs)


def _run(*command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    # these variables override the script, and hide jobs
    env = {key: text for key, text in os.environ.items() if not key.startswith(("SBATCH_", "SQUEUE_", "SCANCEL_"))}
    options: Any = {"input": stdin, "capture_output": True, "text": True, "errors": "replace", "env": env}
    try:
        return subprocess.run(command, timeout=SECONDS, **options)
    except subprocess.TimeoutExpired:
        raise EngineError(f"{command[0]} did not answer for {SECONDS:.0f} s") from None
    except OSError as error:
        raise EngineError(f"{command[0]}: {error.strerror}") from None


def _message(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that a command of Slurm printed, without its own name."""
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ").strip() for line in done.stderr.splitlines()]
    printed = [line for line in lines if line and not line.startswith("Try ")]
    return printed[-1] if printed else f"exit code {done.returncode}"
