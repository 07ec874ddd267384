"""Ray: node supervisors that belong to detached actors, which Ray starts again when their node is lost.

A node supervisor is a process of its own, so that the jax of its workers has nothing of Ray. It ends with its node. Ray
is imported when this executor is used.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lrurun import console, machine
from lrurun.errors import LrurunError, UsageError, hint_for, nearest
from lrurun.ledger import database, owner
from lrurun.runner import logs, node
from lrurun.runner.executors import NodeJob
from lrurun.runner.executors.nodes import EngineError, NodeExecutor, write_token
from lrurun.version import VERSION

INHERITED = ("LRURUN_", "PG", "JAX_", "XLA_", "XDG_")
"""Variables that node supervisors get from the command, as arguments that Ray shows nowhere: some have passwords."""
ANSWER_SECONDS = 60.0
SAVE_SECONDS = 20.0
"""How long an actor that has begun may take to pass on that it is stopped; its node may be busy."""
NAMESPACE = "lrurun"
CONNECT_SECONDS = 20.0
_TRY = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level='error')"
_WITH_PARENT = """import ctypes, os, sys
if sys.platform == "linux": ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])"""
_STANDARD = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""Ray's names of what a node has -> of what an actor needs; custom resources have one name."""


class RayExecutor(NodeExecutor):
    """Settings: `address`, and what a node supervisor needs of its node: `num_cpus` (1 without a value), `num_gpus`,
    `memory` in bytes, and custom resources by their names."""

    poll_seconds = 2.0

    def __init__(self, job: NodeJob) -> None:
        super().__init__(job)
        amounts = dict(job.settings)
        self.address = amounts.pop("address", "") or os.environ.get("RAY_ADDRESS") or "auto"
        self.needs = {"num_cpus": 1.0} | {key: _amount(key, text) for key, text in amounts.items()}
        self._where: dict[str, Any] = {"scheduling_strategy": "SPREAD"}

    def script(self) -> str:
        raise UsageError("--dry-run: Ray is given no script", "lrurun plan shows what a command would train")

    def check(self, *, detach: bool) -> None:
        super().check(detach=detach)
        with cluster(self.address) as ray:
            self._check_cluster(ray)

    def _check_cluster(self, ray: Any) -> None:
        alive, lacking = [node for node in ray.nodes() if node["Alive"]], "no node of the cluster has"
        if not database.implementation(self.job.places.ledger).is_shared:
            node_id = ray.get_runtime_context().get_node_id()
            alive = [node for node in alive if node["NodeID"] == node_id]
            self._where = _only_on(node_id)
            lacking = "this node, the only one that may write to an SQLite ledger, has no"
        fit = [node["NodeID"] for node in alive if self._fits(node["Resources"])]
        if not fit:
            known = {_STANDARD.get(key, key) for node in alive for key in node["Resources"] if ":" not in key}
            names = sorted(known - {"object_store_memory"})
            unknown = next((key for key in self.needs if key not in names), None)
            needed = ", ".join(f"{key}={amount:g}" for key, amount in self.needs.items())
            hint = "ask for less of it"
            if unknown in _STANDARD.values():
                hint = f"leave {unknown} out, or start Ray on a node that has it"
            elif unknown in _STANDARD:
                hint = f"did you mean {_STANDARD[unknown]}?"
            elif unknown:
                hint = hint_for(unknown, names, "resources")
            raise LrurunError(f"--on ray: {lacking} {needed}", hint)
        try:
            ray.remote(NodeActor).options(**self._options())
        except ValueError as error:
            raise _refused(error) from None
        if "num_gpus" not in self.needs and any(member["Resources"].get("GPU") for member in alive):
            console.say(node.NO_GPU.format(engine="ray", setting="num_gpus=1"))
        self._check_nodes(ray, fit)

    def _options(self) -> dict[str, Any]:
        """Options of an actor, without its name. Ray refuses some amounts with a ValueError."""
        sizes = {key: amount for key, amount in self.needs.items() if key in _STANDARD.values()}
        custom = {key: amount for key, amount in self.needs.items() if key not in sizes}
        return {"lifetime": "detached", "max_restarts": -1, "resources": custom, **sizes, **self._where}

    def _fits(self, resources: dict[str, float]) -> bool:
        amounts = {_STANDARD.get(key, key): amount for key, amount in resources.items()}
        return all(amounts.get(key, 0) >= amount for key, amount in self.needs.items())

    def _check_nodes(self, ray: Any, ids: Sequence[str]) -> None:
        """Reads on every node that may be used what is written into the runs folder here."""
        runs = self.job.places.runs
        token = write_token(runs)
        answers = [
            ray.remote(look).options(num_cpus=0, **_only_on(node_id)).remote(str(runs), token) for node_id in ids
        ]
        for where, answer in zip((f"--on ray: node {node_id[:12]}" for node_id in ids), answers, strict=True):
            hint = "install the same lrurun on every node, for the Python that runs Ray"
            try:
                seen, version = ray.get(answer, timeout=ANSWER_SECONDS)
            except ray.exceptions.RayError as error:
                raise LrurunError(f"{where} cannot be used: {last_line(error)}", hint) from None
            if version != VERSION:
                raise LrurunError(f"{where} has lrurun {version}, this command {VERSION}", hint)
            if not seen:
                hint = "choose a folder on shared storage with --runs-dir"
                raise LrurunError(f"{where}: the runs folder {runs} is not shared with it", hint)

    def submit(self, count: int, variables: dict[str, str]) -> str:
        self._logs.mkdir(parents=True, exist_ok=True)
        inherited = {key: text for key, text in os.environ.items() if key.startswith(INHERITED)}
        if self.needs["num_cpus"]:
            inherited[machine.CORES] = str(max(1, int(self.needs["num_cpus"])))
        names = [f"{self.job.name}-{secrets.token_hex(3)}" for _ in range(count)]
        with cluster(self.address) as ray:
            for name in names:
                where = str(self.job.folder), str(self._log(name))
                try:
                    actor = ray.remote(NodeActor).options(name=name, **self._options())
                    actor.remote(name, list(self.job.arguments), *where, inherited | variables)
                except ValueError as error:
                    raise _refused(error) from None
        return f"Ray actors {', '.join(names)}"

    def _log(self, name: str) -> Path:
        """The file that an actor makes when it begins."""
        return self._logs / f"{name}.log"

    def _actors(self, ray: Any) -> dict[str, Any]:
        """Name -> handle of the actors of this job that have not ended."""
        handles = {}
        for name in ray.util.list_named_actors():
            if name.rpartition("-")[0] == self.job.name:
                with contextlib.suppress(ValueError):  # it has ended since
                    handles[name] = ray.get_actor(name)
        return handles

    def alive(self) -> int:
        with cluster(self.address) as ray:
            return len(self._actors(ray))

    def cancel(self, *, waiting_only: bool) -> None:
        with cluster(self.address) as ray:
            actors = self._actors(ray)
            begun = {name for name in actors if self._log(name).is_file()}
            if not waiting_only and begun:
                answers = {actors[name].stop.remote(): name for name in begun}
                late = ray.wait(list(answers), num_returns=len(answers), timeout=SAVE_SECONDS)[1]
                begun -= {answers[answer] for answer in late}
            for name in actors.keys() - begun:  # Ray has not found a place for it, or it does not answer
                ray.kill(actors[name])

    def last_line(self) -> tuple[str, str]:
        files = sorted(self._logs.glob(f"{self.job.name}-*.log"), key=lambda file: file.stat().st_mtime)
        lines = logs.tail(files[-1], 1) if files else []
        return (lines[0] if lines else ""), str(files[-1] if files else self._logs)


def _only_on(node_id: str) -> dict[str, Any]:
    """Options of a task or an actor for this node alone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}


def _amount(key: str, text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        close = nearest(key, ["address", "nodes", *_STANDARD.values()])
        hint = f"did you mean {close}?" if close and close != key else f"as in --on ray:{key}=1"
        raise UsageError(f"--on ray:{key}: expected a number that is not negative, found {text!r}", hint)
    if key == "num_gpus" and amount > 1 and not amount.is_integer():
        raise UsageError(
            f"--on ray:{key}: expected a whole number of GPUs or a part of one, found {text!r}", "as in 0.5"
        )
    return amount


def _refused(error: ValueError) -> UsageError:
    """The error for amounts that Ray does not take."""
    text = "".join(map(str, error.args))
    return UsageError(f"--on ray: Ray refuses these amounts: {text}", "try whole numbers")


# The connection to a cluster


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
        text = f"--on ray: Ray cannot be imported: {str(error).splitlines()[0]}"
        raise LrurunError(text, "pip install 'lrurun[ray]'") from None
    finally:
        for number, handler in before.items():  # Ray has its own
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)
    return ray


def _try_address(address: str) -> None:
    """Connects to a cluster in another process: where there is none, Ray tries for minutes and cannot be stopped."""
    hint = "name the cluster's head node, as in --on ray:address=HOST:6379; ray status shows whether it runs"
    if "://" in address:
        raise UsageError(f"--on ray:address={address}: expected HOST:PORT", "give the command on a node of the cluster")
    host, _, port = address.rpartition(":")
    if address not in ("auto", "local") and not (host and port.isdecimal()):
        raise UsageError(f"--on ray:address: expected HOST:PORT, found {address!r}", hint)
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
        raise LrurunError(f"--on ray:address={address}: {text}", hint)


# What Ray runs on a node


def look(runs: str, token: str) -> tuple[bool, str]:
    """Runs on a node: whether it sees the file of a token in the runs folder, and the version of lrurun."""
    return node.sees(Path(runs), token), VERSION


class NodeActor:
    """Runs in a process of Ray on a node: starts a node supervisor, and ends with it."""

    def __init__(self, name: str, command: list[str], folder: str, log: str, variables: dict[str, str]) -> None:
        import ray

        context = ray.get_runtime_context()
        # without START: Ray does not say how often it has started an actor, and the ledger knows
        identity = {owner.NODE: context.get_node_id()[:12], node.TASK: f"ray:{name}"}
        env = {key: text for key, text in os.environ.items() if key != "OMP_NUM_THREADS"}  # which Ray has set
        accelerators = context.get_accelerator_ids()
        if not accelerators.get("GPU"):  # Ray has left these variables as they are on the node
            identity |= node.HIDDEN_GPUS
        if not any(accelerators.values()):
            env["JAX_PLATFORMS"] = "cpu"  # no variable hides TPUs
        prefix = [sys.executable, "-c", _WITH_PARENT, str(os.getpid()), sys.executable]
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [*prefix, *command[1:]],
                cwd=folder,
                env=env | variables | identity,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        threading.Thread(target=self._follow, args=(context.current_actor,), daemon=True).start()

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
