"""The Ray executor: what it refuses, and node supervisors on a cluster of two nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from lrurun.ledger.ledger import Ledger
from lrurun.paths import Places
from lrurun.runner.executors import NodeJob
from lrurun.runner.executors.nodes import EngineError
from lrurun.runner.executors.ray import NodeActor, RayExecutor
from tests.harness.machine import LONG, TWO_RUNS, Machine, training, wait_for
from tests.harness.ray_cluster import RayCluster, ray_cluster
from tests.harness.servers import LOCKED, PASSWORD, PrivateServer

__all__ = ["ray_cluster"]  # a fixture

SQLITE = ["ladder", "sDigits", "--profile", "smoke"]


def test_what_cannot_work_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for on, code, message in [
        ("ray", 1, "error: --on ray: Ray cannot be imported"),
        ("ray:num_gpus=all", 2, "error: --on ray:num_gpus: expected a number that is not negative, found 'all'"),
        ("ray:num_gpus=1.5", 2, "--on ray:num_gpus: expected a whole number of GPUs or a part of one, found '1.5'"),
        ("ray:gpu", 2, "--on ray: expected KEY=VALUE, found 'gpu'\nhint: as in --on ray:num_gpus=1"),
        ("ray:nodes=2", 2, "error: nodes=2: an SQLite ledger is for one machine"),
    ]:
        done = machine.run(*SQLITE, "--on", on, code=code)
        assert message in done.stderr
        assert "hint: " in done.stderr
    assert "pip install 'lrurun[ray]'" in machine.run(*SQLITE, "--on", "ray", code=1).stderr
    assert not machine.ledger.exists()
    assert not machine.runs.exists()


class Actor:
    """An actor that records whether it was asked to stop."""

    def __init__(self) -> None:
        self.stop = SimpleNamespace(remote=self._stop)
        self.asked = False

    def _stop(self) -> Actor:
        self.asked = True
        return self


def test_an_actor_that_has_begun_may_take_its_time_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class RayError(Exception):
        pass

    actors = {name: Actor() for name in ("j-prompt", "j-slow", "j-waiting", "other-one")}
    killed: list[Actor] = []
    faults: list[Exception] = []

    def wait(answers: list[Actor], *, num_returns: int, timeout: float) -> tuple[list[Actor], list[Actor]]:
        assert timeout >= 10
        assert num_returns == len(answers) == 2
        for fault in faults:
            raise fault
        return [actors["j-prompt"]], [actors["j-slow"]]

    util = SimpleNamespace(list_named_actors=lambda: list(actors))
    exceptions = SimpleNamespace(RayError=RayError)
    fake = SimpleNamespace(is_initialized=lambda: True, get_actor=actors.get, kill=killed.append, wait=wait)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(**vars(fake), util=util, exceptions=exceptions))
    places = Places(ledger=tmp_path / "ledger.db", runs=tmp_path / "runs", data=tmp_path / "data")
    executor = RayExecutor(NodeJob(name="j", arguments=[], folder=tmp_path, places=places))
    (places.runs / "nodes").mkdir(parents=True)
    for name in ("j-prompt", "j-slow"):
        (places.runs / "nodes" / f"{name}.log").touch()
    assert executor.alive() == 3
    executor.cancel(waiting_only=True)
    assert killed == [actors["j-waiting"]]
    assert not any(actor.asked for actor in actors.values())
    killed.clear()
    executor.cancel(waiting_only=False)
    assert set(killed) == {actors["j-waiting"], actors["j-slow"]}
    assert [actor.asked for actor in actors.values()] == [True, True, False, False]
    faults.append(RayError("the head node\nis lost"))
    with pytest.raises(EngineError, match=r"^Ray does not answer: is lost$"):
        executor.cancel(waiting_only=False)


VISIBLE = """import os
from lrurun import machine
print(machine.nvidia_devices(), [os.environ.get(name) for name in (
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "JAX_PLATFORMS")], flush=True)"""
HIDDEN = "[] ['-1', '-1', '-1', 'cpu']\n"
"""What it prints where no accelerator is visible."""


def test_a_node_supervisor_sees_the_accelerators_that_ray_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(get_node_id=lambda: "0" * 40, current_actor=None)
    ended: list[object] = []
    fake = SimpleNamespace(get_runtime_context=lambda: context, kill=ended.append)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # of the node, or of what Ray gave
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)
    cases: list[tuple[dict[str, list[str]], dict[str, str], str]] = [
        ({"GPU": ["0", "1"], "TPU": []}, {}, "['0', '1'] ['0,1', None, None, None]\n"),
        ({"GPU": [], "TPU": []}, {}, HIDDEN),
        ({"GPU": [], "TPU": ["0"]}, {}, "[] ['-1', '-1', '-1', None]\n"),
        ({}, {"JAX_PLATFORMS": "cuda"}, "[] ['-1', '-1', '-1', 'cuda']\n"),  # then training is refused on the node
    ]
    for number, (given, variables, _) in enumerate(cases):
        context.get_accelerator_ids = lambda given=given: given
        NodeActor("job", [sys.executable, "-c", VISIBLE], str(tmp_path), f"{tmp_path}/{number}", variables)
    wait_for(lambda: len(ended) == len(cases), 60)
    assert [(tmp_path / str(number)).read_text() for number in range(len(cases))] == [case[2] for case in cases]


@pytest.mark.slow
def test_gpus_that_ray_gave_to_others_are_hidden(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    ray_cluster.kill("second")
    ray_cluster.add_second(gpus=2)
    script = f"""import pathlib, sys, time, ray
from lrurun.runner.executors.ray import NodeActor
ray.init({ray_cluster.address!r}, namespace="test", log_to_driver=False, logging_level="error")
for number, gpus in enumerate([{{}}, {{"num_gpus": 0}}, {{"num_gpus": 0.5}}, {{"num_gpus": 2}}]):
    options = {{"num_cpus": 0, "resources": {{"second": 1}}, **gpus}}
    log = pathlib.Path({str(tmp_path)!r}, str(number))
    command = [sys.executable, "-c", {VISIBLE!r}]
    actor = ray.remote(NodeActor).options(**options).remote("job", command, str(log.parent), str(log), {{}})
    while not (log.exists() and log.read_text().endswith("\\n")):
        time.sleep(0.1)
"""
    subprocess.run([sys.executable, "-c", script], env=ray_cluster.env, check=True, timeout=120)
    seen = [(tmp_path / str(number)).read_text() for number in range(4)]
    assert seen[:2] == [HIDDEN, HIDDEN]
    assert seen[2] in ("['0'] ['0', None, None, None]\n", "['1'] ['1', None, None, None]\n")
    assert seen[3] in ("['0', '1'] ['0,1', None, None, None]\n", "['1', '0'] ['1,0', None, None, None]\n")
    ray_cluster.kill("second")


@pytest.fixture
def shared(
    machine: Machine, postgres: PrivateServer, ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    """A machine whose ledger is on a server that needs a password, beside a cluster of two nodes."""
    ray_cluster.add_second()
    database = postgres.empty().text.rpartition("/")[2]
    postgres.admin(f"ALTER DATABASE {database} OWNER TO {LOCKED}")
    server = postgres.server(database, LOCKED)
    machine.ledger = server  # type: ignore[assignment]
    monkeypatch.setenv("LRURUN_LEDGER", server.text.replace("@", f":{PASSWORD}@"))
    machine.env |= {"LRURUN_LEDGER": os.environ["LRURUN_LEDGER"], "RAY_ADDRESS": ray_cluster.address}
    machine.env |= {"RAY_AUTH_MODE": "disabled"}
    yield machine
    assert wait_for(lambda: not [*_trained("first", ray_cluster), *_trained("second", ray_cluster)], 30)
    files = [*ray_cluster.folder.rglob("*.*"), *machine.folder.rglob("*")]
    assert [file for file in files if file.is_file() and PASSWORD.encode() in file.read_bytes()] == []


def _trained(node: str, cluster: RayCluster) -> list[psutil.Process]:
    """The node supervisors and workers on a node."""
    found = []
    for process in cluster.processes(node):
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if "--on-node" in command or "lrurun.runner.worker" in command:
            found.append(process)
    return found


@pytest.mark.slow
def test_a_ladder_outlives_a_node(shared: Machine, ray_cluster: RayCluster, long_history: dict) -> None:
    ladder = ["ladder", "sDigits", *LONG, *TWO_RUNS, "--on", "ray:nodes=2", "--jobs", "1"]
    process = shared.start(*ladder)
    wait_for(lambda: process.poll() is not None or len(_trained("second", ray_cluster)) == 2)
    wait_for(lambda: process.poll() is not None or training(shared, step=100)())
    assert process.poll() is None, process.communicate()
    ray_cluster.kill("second")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    history = shared.history()
    assert len(history) == 2
    assert history == {place: long_history[place] for place in history}
    hosts = {attempt.host.partition("@")[0] for attempts in shared.attempts().values() for attempt in attempts}
    assert len(hosts) == 2  # ids of nodes
    assert sum(len(attempts) for attempts in shared.attempts().values()) == 3


@pytest.mark.slow
def test_an_actor_is_started_again_without_the_command(shared: Machine, ray_cluster: RayCluster) -> None:
    ladder = ["ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--on", "ray:second=1", "--detach"]
    assert "submitted 1 node supervisor: Ray actors lrurun-" in shared.run(*ladder, apart=True).stderr
    wait_for(training(shared, step=100))
    processes = _trained("second", ray_cluster)
    assert len(processes) == 2
    assert PASSWORD not in str([process.cmdline() for process in ray_cluster.processes("second")])
    ray_cluster.crash_raylet("second")
    wait_for(lambda: not any(process.is_running() and process.status() != "zombie" for process in processes), 20)
    ray_cluster.kill("second")
    ray_cluster.add_second()
    wait_for(lambda: shared.states() == {"done": 1})
    [attempts] = shared.attempts().values()
    assert len(attempts) == 2
    assert attempts[0].reason.endswith(" was started again")
    assert attempts[1].reason == "done"
    assert attempts[0].host != attempts[1].host
    first, second = (attempt.environment["node"] for attempt in attempts)
    assert first["task"] == second["task"]
    assert first["start"] == 0 < second["start"]


@pytest.mark.slow
def test_what_a_cluster_does_not_allow_is_refused(shared: Machine, ray_cluster: RayCluster) -> None:
    ladder = ["ladder", "sDigits", "--profile", "smoke"]
    nowhere = shared.run(*ladder, "--on", "ray:address=127.0.0.2:1", code=1, apart=True).stderr
    assert (
        "error: --on ray:address=127.0.0.2:1: [Errno 111] Connection refused\nhint: name the cluster's head node"
        in nowhere
    )
    unknown = shared.run(*ladder, "--on", "ray:secnd=1", code=1, apart=True).stderr
    assert "error: --on ray: no node of the cluster has num_cpus=1, secnd=1\nhint: did you mean 'second'?" in unknown
    gpus = shared.run(*ladder, "--on", "ray:num_gpus=1", code=1, apart=True).stderr
    assert "no node of the cluster has num_cpus=1, num_gpus=1\nhint: leave num_gpus out, or start Ray on a node" in gpus
    sqlite = ["--ledger", "ledger.db", "--on", "ray:second=1"]
    assert (
        "this node, the only one that may write to an SQLite ledger"
        in shared.run(*ladder, *sqlite, code=1, apart=True).stderr
    )
    assert not Ledger.read(shared.ledger).exists
    ray_cluster.kill("second")
    hidden = shared.folder / "shared"
    hidden.mkdir()
    if not ray_cluster.add_second(hidden=hidden):
        pytest.skip("cannot mount a folder for one process here")
    lost = shared.run(*ladder, "--runs-dir", str(hidden / "runs"), "--on", "ray:second=1", code=1, apart=True).stderr
    assert f"the runs folder {hidden / 'runs'} is not shared with it" in lost
    ray_cluster.kill("second")


@pytest.mark.slow
def test_a_grid_is_extended_on_ray(machine: Machine, ray_cluster: RayCluster) -> None:
    ladder = ("npDigits", "--profile", "smoke", "--rung", "gamma-norm", "--tune", "--extend", "2")
    machine.run("ladder", *ladder, "--on", f"ray:address={ray_cluster.address}", apart=True)
    [row] = machine.json("plan", *ladder)["rungs"]
    assert (row["runs_left"], row["extension_runs"]) == (0, 0)
    added = machine.json("report", *ladder[:3], "--tune", "--extend", "2")["tuning"]["added"]["gamma-norm"]
    assert row["runs_done"] == row["tuning_runs"] + 1 == 2 + added + 1
    assert added > 0
