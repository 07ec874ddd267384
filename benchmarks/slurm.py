"""Disturbs a ladder on a private Slurm cluster of two nodes, with its ledger in PostgreSQL, and checks the results.

    python benchmarks/slurm.py [--rounds 2] [--seeds 3] [--json]

A ladder of short runs is trained once on this machine. Then the same ladder is trained by `--on slurm:nodes=2`.
In each round its tasks are requeued, run into a time limit, and are cancelled and preempted; the slurmd of a node is
killed, so that Slurm starts its task elsewhere while the old process lives on; slurmctld is killed and restarted; the
command itself is killed and run again. In the end the ladder must equal the undisturbed one, to the last bit of the
final checkpoints, with each run done once, and the ledger must have refused the process that was left behind. Exit code
1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from lrurun.ledger.ledger import Ledger  # noqa: E402
from lrurun.server import Server  # noqa: E402
from tests.harness import servers  # noqa: E402
from tests.harness.machine import Machine, wait_for  # noqa: E402
from tests.harness.slurm_cluster import SlurmCluster  # noqa: E402

LADDER = [
    *("ladder", "sDigits", "--profile", "smoke"),
    *("--set", "train.steps=3000", "--set", "train.eval_every=250"),
    *("--set", "execution.checkpoint_seconds=0.5"),
]
FAULTS = ("node", "requeue", "limit", "cancel", "preempt", "controller", "command")


class Over(Exception):
    """The ladder ended before it could be disturbed."""


class Disturbed:
    """A ladder on a cluster, and what is done to it."""

    def __init__(
        self,
        machine: Machine,
        cluster: SlurmCluster,
        server: Server,
        arguments: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        self.machine, self.cluster, self.server, self.say = machine, cluster, server, say
        machine.env |= cluster.env | {"LRURUN_LEDGER": str(server), "PYTHONPATH": str(ROOT)}
        self.arguments = [*arguments, "--jobs", "1", "--on", "slurm:nodes=2"]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        with (self.machine.folder / "command.log").open("ab") as output:
            return self.machine.start(*self.arguments, stdout=output, stderr=subprocess.STDOUT)

    def running(self) -> list[tuple[str, Any]]:
        """Runs that have taken a step in their newest attempt, and that attempt."""
        with Ledger.read(self.server) as ledger:
            runs = {run.id: run for run in ledger.runs(states=["running"], brief=True)}
            newest = ledger.newest_attempts(runs)
            return [(name, one) for name, one in newest.items() if one.seen_at > one.started_at]

    def tasks(self, count: int) -> list[str]:
        """Waits until that many tasks run and train, and returns them. Raises Over if the command has ended."""

        def ready() -> list[str]:
            if self.process.poll() is not None:
                raise Over
            tasks = self.cluster.running()
            training = {attempt.environment["node"]["task"].rpartition(":")[2] for _, attempt in self.running()}
            found = [task for task in tasks if task in training]
            return found if len(found) >= count else []

        found: list[str] = wait_for(ready, 300)
        return found

    def requeue(self) -> None:
        self.cluster.run("scontrol", "requeue", self.tasks(2)[0])

    def limit(self) -> None:
        """Makes the time limit of a task one minute: the shortest, of which the task has used a part."""
        task = self.tasks(2)[0]
        self.cluster.run("scontrol", "update", f"JobId={task}", "TimeLimit=1")
        wait_for(lambda: self.cluster.jobs().get(task, ("", ""))[0] != "RUNNING", 90)
        self.cluster.run("scontrol", "update", f"JobId={task}", "TimeLimit=UNLIMITED")

    def cancel(self) -> None:
        self.cluster.run("scancel", self.tasks(2)[0])

    def preempt(self) -> None:
        self.tasks(2)
        script = "#!/bin/bash\nsleep 2\n"
        arguments = ("--partition=high", "--exclusive", "--array=0-1", "--job-name=urgent", "--output=/dev/null")
        self.cluster.run("sbatch", *arguments, given=script)
        wait_for(lambda: "urgent" not in self.cluster.run("squeue", "-h", "-o", "%j", check=False).stdout, 60)

    def node(self) -> None:
        """Kills a slurmd. Its task is started again on the other node, and the process that lives on is refused."""
        task = self.tasks(2)[0]
        node = self.cluster.jobs()[task][1]
        self.cluster.kill_node(node)
        self.say(f"{task} on {node} is lost by Slurm")
        wait_for(self.refused, 300)
        self.cluster.start_node(node)
        self.cluster.wait_for_nodes()

    def refused(self) -> bool:
        """Whether a process that Slurm has left behind has noticed that it no longer holds its run."""
        for run, attempts in self.machine.attempts().items():
            for one in attempts:
                if (one.reason or "").endswith("was started again"):
                    log = self.machine.runs / run / str(one.n) / "log.txt"
                    if f"attempt {one.n} at run {run} no longer holds it" in log.read_text():
                        return True
        return False

    def controller(self) -> None:
        self.tasks(1)
        self.cluster.kill_controller()
        time.sleep(2)
        self.cluster.start_controller()

    def command(self) -> None:
        self.tasks(1)
        self.process.kill()
        self.process.wait()
        self.process = self._start()


def disturb(
    faults: Sequence[str],
    folder: Path,
    *,
    seeds: int = 3,
    rungs: Sequence[str] = (),
    cache: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """The results of a ladder of these rungs, or of all; "violations" is empty if there are none."""
    arguments = [*LADDER, "--seeds", str(seeds), *(word for rung in rungs for word in ("--rung", rung))]
    cache = cache or folder / "cache"
    calm = Machine(folder / "undisturbed", cache)
    began = time.monotonic()
    calm.run(*arguments, apart=True, timeout=1200)
    history = calm.history()
    say(f"undisturbed: {len(history)} runs in {time.monotonic() - began:.0f} s")
    machine = Machine(folder / "disturbed", cache)
    began, violations, hit = time.monotonic(), [], []
    with servers.running() as database, SlurmCluster(folder / "slurm") as cluster:
        server = database.empty()
        machine.ledger = server  # type: ignore[assignment]
        disturbed = Disturbed(machine, cluster, server, arguments, say)
        for fault in faults:
            try:
                getattr(disturbed, fault)()
            except Over:
                violations.append(f"the ladder was over before {fault}")
                break
            hit.append(fault)
            say(f"{time.monotonic() - began:.0f} s: {fault}")
        code = disturbed.process.wait(600)
        if code != 0:
            last = (machine.folder / "command.log").read_text().splitlines()[-2:]
            violations.append(f"exit code {code}: {last}")
        if machine.history() != history:
            violations.append("results differ from the undisturbed ones")
        attempts = machine.attempts()
    for run, tried in attempts.items():
        if sum(one.reason == "done" for one in tried) != 1:
            violations.append(f"{run}: {[one.reason for one in tried]}")
    return {
        "runs": len(history),
        "faults": hit,
        "attempts": sum(map(len, attempts.values())),
        "seconds": round(time.monotonic() - began),
        "violations": violations,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = disturb(
            FAULTS * chosen.rounds, Path(folder), seeds=chosen.seeds, say=lambda text: print(text, file=sys.stderr)
        )
    print(json.dumps(found) if chosen.json else "\n".join(f"{name}: {value}" for name, value in found.items()))
    return bool(found["violations"])


if __name__ == "__main__":
    sys.exit(main())
