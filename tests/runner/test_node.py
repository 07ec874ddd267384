"""Node supervisors: which machine an owner is on, what a task takes back, and when it leaves."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lrurun.errors import LrurunError, UsageError
from lrurun.ledger import owner
from lrurun.ledger.store import Fenced, Ledger
from lrurun.runner import executors, node
from lrurun.runner.executors import NodeJob
from lrurun.runner.executors.nodes import write_token
from lrurun.runner.node import NodeTask
from tests.harness.stores import ME, key, ledger, path, want

__all__ = ["key", "ledger", "path"]  # fixtures


@pytest.mark.parametrize(
    ("name", "node_name", "expected"),
    [
        ("n01.example.org", "", "n01.example.org"),
        ("n01.example.org", "n01", "n01.example.org"),
        ("n01", "n01", "n01"),
        ("n01", "n1", "n1@n01"),
        ("n01.example.org", "0a1b", "0a1b@n01.example.org"),
    ],
)
def test_a_host_is_the_machine_with_the_node_of_an_engine(
    name: str, node_name: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    monkeypatch.setenv(owner.NODE, node_name)
    assert owner.host() == owner.this_process().host == expected


def test_a_task_takes_back_what_its_earlier_start_holds(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(seed=seed) for seed in range(5)])
    held = {}
    for label, task, start in (
        ("a", "slurm:7_0", 0),
        ("b", "slurm:7_0", 1),
        ("c", "slurm:7_0", 2),
        ("d", "slurm:7_1", 0),
    ):
        held[label] = ledger.claim(key, ME, environment={"node": {"task": task, "start": start}})
    held["e"] = ledger.claim(key, ME, environment={})
    NodeTask("slurm:7_0", 2).take_back(ledger, ledger.runs(states=["running"]))
    states = {label: ledger.run(claim.run.id).state for label, claim in held.items()}
    assert states == {"a": "interrupted", "b": "interrupted", "c": "running", "d": "running", "e": "running"}
    assert ledger.attempts(held["a"].run.id)[0].reason == "interrupted: slurm:7_0 was started again"
    with pytest.raises(Fenced):
        ledger.record(held["a"], [(1, "train/loss", 1.0)], 1)


def test_a_task_leaves_when_it_was_started_again(ledger: Ledger, key: str) -> None:
    instance = ledger.ladder(key)
    here, later, other = NodeTask("slurm:7_0", 0), NodeTask("slurm:7_0", 10), NodeTask("slurm:7_01", 11)
    for task in (here, other):
        task.begin(ledger, instance, "n1@m")
    for event in ledger.events():
        here.check(event)
        later.check(event)
    later.begin(ledger, instance, "n2@m")
    with pytest.raises(LrurunError, match=r"^slurm:7_0 was started again on n2@m: the engine has lost this process$"):
        here.check(ledger.events(limit=1)[0])


def test_a_task_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (node.TASK, node.START):
        monkeypatch.delenv(name, raising=False)
    assert node.task() is None
    monkeypatch.setenv(node.TASK, "slurm:7_0")
    assert node.task() == NodeTask("slurm:7_0", 0)
    monkeypatch.setenv(node.START, "3")
    assert node.task() == NodeTask("slurm:7_0", 3)


def test_the_ledger_counts_the_starts_of_a_task(ledger: Ledger, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(node.TASK, "ray:a")
    monkeypatch.setenv(node.START, "")  # so that it is restored
    for expected in (0, 1, 2):
        monkeypatch.delenv(node.START, raising=False)
        node.count_starts(ledger)
        assert node.task() == NodeTask("ray:a", expected)
        NodeTask("ray:a", expected).begin(ledger, ledger.ladder(key), "n1@m")
        NodeTask("ray:a", expected).begin(ledger, ledger.ladder(key), "n1@m")  # of its next ladder
        NodeTask("ray:ab", 7).begin(ledger, ledger.ladder(key), "n2@m")
    monkeypatch.setenv(node.START, "5")
    node.count_starts(ledger)
    assert node.task() == NodeTask("ray:a", 5), "Slurm says it"


def test_a_node_must_see_the_runs_folder_of_the_command(
    ledger: Ledger, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = ledger.ladder(key)
    monkeypatch.delenv(node.SHARED, raising=False)
    node.check(ledger, instance, tmp_path)
    write_token(tmp_path / "copied")
    shutil.copytree(tmp_path / "copied", tmp_path, dirs_exist_ok=True)
    for text in (None, "ab", b"\xff", ""):
        token = "" if text == "" else write_token(tmp_path / "copied")  # a new one for each submission
        monkeypatch.setenv(node.SHARED, token)
        if text is not None:
            node.shared_file(tmp_path, token).write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(LrurunError, match="the runs folder is not shared with the node"):
            node.check(ledger, instance, tmp_path)
        [event] = ledger.events(limit=1)
        assert event.kind == node.FAILED
        assert event.text.startswith(f"submission {token}: {tmp_path}: the runs folder is not shared with the node")
    monkeypatch.setenv(node.SHARED, write_token(tmp_path))
    write_token(tmp_path)
    node.check(ledger, instance, tmp_path)


JOB = NodeJob(name="j", arguments=[], folder=Path(), places=None)  # type: ignore[arg-type]


def test_unknown_executors_name_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        executors.make("locl", JOB)
    assert str(caught.value) == "--on: there is no executor 'locl'"
    assert (caught.value.hint or "").startswith("did you mean 'local'?")


def test_an_outside_package_adds_an_executor(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine:\n    def __init__(self, job):\n        self.job = job\n")
    info = tmp_path / "mine-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[lrurun.executors]\nmine = mine:Mine\nbroken = mine:Absent\n")
    code = (
        "from lrurun.errors import LrurunError\nfrom lrurun.runner import executors\n"
        "print(executors.names()[-2:], type(executors.make('mine', None)).__name__)\n"
        "try:\n    executors.make('broken', None)\nexcept LrurunError as error:\n    print(error)\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(executors.__file__).parents[3])])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.splitlines() == [
        "['broken', 'mine'] Mine",
        "executor 'broken' of package mine: raised AttributeError: module 'mine' has no attribute 'Absent'",
    ]
