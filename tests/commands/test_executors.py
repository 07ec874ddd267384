"""`--on`: what is refused before anything is written or submitted, the user's configuration file, the script.

Slurm is replaced by programs on PATH; tests/runner/test_slurm.py has a cluster.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lrurun.errors import UsageError
from tests.harness.machine import Machine

SMOKE = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
SLURM = (*SMOKE, "--on", "slurm")
SBATCH = """#!/bin/bash
case "$1" in
  --help) echo "  -p, --partition=partition  partition requested"; echo "  -t, --time=minutes  time limit";;
  --test-only) echo "sbatch: error: invalid partition specified: gpux" >&2
    echo "allocation failure: Invalid partition name specified" >&2; exit 1;;
esac
"""

SINFO = """#!/bin/bash
case "$*" in *%R) echo cpu; echo gpu;; *partition=cpu*nodes=n1) echo n1 n2;; *) echo {hosts};; esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with Slurm's programs, whose partitions are cpu and gpu, and no configuration file."""
    found = Machine(tmp_path / "machine")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in {"sbatch": SBATCH, "sinfo": SINFO.format(hosts="$HOSTNAME")}.items():
        (tools / name).write_text(text)
    for name in ("squeue", "scancel"):
        (tools / name).write_text("#!/bin/bash\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    found.env |= {"PATH": f"{tools}{os.pathsep}{found.env['PATH']}", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    return found


def refused(machine: Machine, *arguments: str, code: int = 2) -> str:
    """The error and the hint of a command that writes nothing."""
    said = machine.refused(*arguments, code=code)
    assert (said.count("\n"), machine.files()) == (2, [])
    return said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--on", "slrum"), "--on: there is no executor 'slrum'\nhint: did you mean 'slurm'?"),
        (("--on", "local:nodes=2"), "--on local: has no settings, found nodes"),
        (("--detach",), "--detach: belongs to an executor of several machines"),
        (("--on", "ray:gpu"), "--on ray: expected KEY=VALUE, found 'gpu'\nhint: as in --on ray:num_gpus=1"),
        (("--on", "slurm:gpu"), "--on slurm: expected KEY=VALUE, found 'gpu'\nhint: as in --on slurm:partition=gpu"),
        (("--on", "slurm:--time=5"), "--on slurm:--time: expected a long option of sbatch without its dashes"),
        (("--on", "slurm:time="), "--on slurm:time: expected a value, found ''"),
        (("--on", "slurm:time=1\n#SBATCH --uid=0"), "--on slurm:time: expected a value, found '1\\n#SBATCH --uid=0'"),
        (("--on", "slurm:array=0-9"), "--on slurm:array: is set by lrurun: nodes=N is the number of tasks"),
        (("--on", "slurm:partitio=gpu"), "sbatch has no option --partitio\nhint: did you mean partition?"),
        (("--on", "slurm:node=2"), "sbatch has no option --node\nhint: did you mean nodes?"),
        (("--on", "ray:adress=h:1"), "--on ray:adress: expected a number that"),
        (("--on", "slurm:nodes=0"), "--on slurm:nodes: expected a whole number from 1 to 10000, found '0'"),
        (("--on", "slurm:nodes=2"), "nodes=2: an SQLite ledger is for one machine, and "),
    ],
    ids=range(14),
)
def test_invalid_options_are_refused(machine: Machine, options: tuple[str, ...], said: str) -> None:
    assert said in refused(machine, *SMOKE, *options)


@pytest.mark.parametrize(("hosts", "named"), [("$HOSTNAME login2", "login2"), ("", "others")])
def test_an_sqlite_ledger_is_for_the_machine_of_the_command(
    machine: Machine, tmp_path: Path, hosts: str, named: str
) -> None:
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/bash\n")
    (tmp_path / "bin" / "sinfo").write_text(SINFO.format(hosts=hosts))
    host = socket.gethostname().partition(".")[0]
    here = f"--on slurm: an SQLite ledger is for one machine, {host}; tasks may run on"
    said = refused(machine, *SLURM)
    assert f"error: {here} {named}\n" in said
    assert "--on slurm:nodelist=NODE" in said
    assert f"error: {here} n1, n2\n" in refused(machine, *SMOKE, "--on", "slurm:partition=cpu,nodelist=n1")


def test_slurm_must_be_there_and_take_the_job(machine: Machine) -> None:
    said = refused(machine, *SMOKE, "--on", "slurm:partition=gpux", code=1)
    assert "sbatch refuses the job: allocation failure: Invalid partition name specified\n" in said
    assert "did you mean 'gpu'? partitions: cpu, gpu" in said
    machine.env["PATH"] = str(machine.folder)
    said = refused(machine, *SLURM, code=1)
    assert "--on slurm: sbatch was not found on PATH" in said
    assert "--dry-run prints the script" in said


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[on.slurm\n", "not valid TOML: "),
        ("[slurm]\n", "unknown table [slurm]"),
        ("on.slurm = 1\n", "expected a table [on.slurm], found 1"),
        ("[on.slurm]\ntime = 04:00:00\n", "on.slurm.time: expected a text or a number, found "),
        ("[on.slurm]\nexecutor = 'slrum'\n", "on.slurm.executor: there is no executor 'slrum'"),
    ],
)
def test_an_invalid_configuration_file_is_refused(machine: Machine, text: str, error: str) -> None:
    file = Path(machine.env["XDG_CONFIG_HOME"]) / "lrurun" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert f"{file}: {error}" in refused(machine, *SLURM)


def test_the_script_has_the_settings_of_file_and_options(machine: Machine) -> None:
    file = Path(machine.env["XDG_CONFIG_HOME"]) / "lrurun" / "config.toml"
    file.parent.mkdir(parents=True)
    settings = 'partition = "cpu"\nmem = 4000\nexclusive = true\ncontiguous = true\nnodes = 8\n'
    file.write_text(f'[on.big]\nexecutor = "slurm"\n{settings}')
    on = ("--on", "big:partition=gpu,contiguous=false,comment=two words,nodelist=n1,n2,nodes=3")
    ledger = "postgresql://me@db.example.org/lab"
    machine.env["LRURUN_LEDGER"] = ledger.replace("me@", "me:secret@")
    done = machine.run(*SMOKE, *on, "--jobs", "2", "--seeds", "2", "--dry-run")
    assert list(machine.folder.iterdir()) == []
    assert "secret" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[:3] == ["#!/bin/bash", "# before sbatch:", f"#   mkdir -p {machine.folder / 'runs' / 'nodes'}"]
    assert lines[3] == "#   lrurun ledger migrate"
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert {
        "--partition=gpu",
        "--mem=4000",
        "--exclusive",
        "--comment='two words'",
        "--nodelist=n1,n2",
        "--array=0-2",
    } <= set(options)
    assert {"--requeue", "--open-mode=append", "--signal=B:USR1@30"} <= set(options)
    assert not any("contiguous" in option for option in options)
    assert not any("SHARED" in line for line in lines), "a script that is submitted by hand checks no folder"
    program, *arguments = shlex.split(lines[-1].removeprefix("exec "))
    assert program == sys.executable
    assert arguments[:5] == ["-P", "-m", "lrurun", "--ledger", ledger.replace("postgresql:", "postgresql+psycopg:")]
    assert shlex.join(arguments).endswith(
        "ladder sDigits --profile smoke --rung tanh-rnn --seeds 0,1 --jobs 2 --on-node"
    )
    assert subprocess.run(["bash", "-n"], input=done.stdout, text=True).returncode == 0


def test_a_task_without_a_gpu_sees_none(machine: Machine) -> None:
    script = machine.run(*SMOKE, "--on", "slurm", "--dry-run").stdout.splitlines()
    script[-1] = 'echo "$CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES"'
    scontrol = machine.folder.parent / "bin" / "scontrol"
    scontrol.parent.mkdir(exist_ok=True)
    for generic, given, seen in [
        ("gpu:1", {}, "-1 -1 -1"),
        ("gpu:a100:4(S:0-1),nvme:2", {}, "-1 -1 -1"),
        ("gpu:1", {"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0"}, "0  "),
        ("gpu:1,mps:100", {"CUDA_VISIBLE_DEVICES": "0"}, "0  "),  # a part of one
        ("gpu:2", {"SLURM_JOB_GPUS": "1", "ROCR_VISIBLE_DEVICES": "1"}, "  1"),
        ("(null)", {}, "  "),  # its GPUs are not Slurm's
    ]:
        lines = f"NodeName=n1 CoresPerSocket=2\\n   Gres={generic}\\n   CfgTRES=cpu=2,gres/gpu=1"
        scontrol.write_text(f"#!/bin/sh\n[ \"$*\" = 'show node n1' ] && printf '{lines}'\n")
        scontrol.chmod(0o755)
        env = {"PATH": f"{scontrol.parent}:/usr/bin:/bin", "SLURMD_NODENAME": "n1", **given}
        done = subprocess.run(["bash"], input="\n".join(script), env=env, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == (f"{seen}\n", "")


def test_a_refused_job_is_an_error_of_a_command_that_returns(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lrurun.session.preparing.prepare_data", lambda *_: None)
    machine.env |= {"SBATCH_JOB_NAME": "mine", "SQUEUE_STATES": "PENDING"}  # override the script, hide jobs
    limit = "Batch job submission failed: Job violates accounting/QOS policy (QOSMaxSubmitJobPerUserLimit)"
    seen = tmp_path / "seen"
    refuse = f'[ $1 = --parsable ] || exit 0\necho "{limit}" >&2; exit 1'
    for name, text in {"sbatch": refuse, "squeue": "exit 0"}.items():
        look = f'env | grep -E "^S(BATCH|QUEUE)_" >> "{seen}"'
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{look}\n{text}\n")
    done = machine.run(*SLURM, "--seeds", "1", "--detach", code=1)
    assert f"error: nothing was submitted: sbatch: {limit}\nhint: the runs are queued" in done.stderr
    assert machine.states() == {"queued": 1}
    assert seen.read_text() == ""


def test_jobs_are_named_by_what_they_train_and_where(machine: Machine) -> None:
    def name(*arguments: str, on: str = "slurm") -> str:
        script = machine.run(*arguments, "--on", on, "--dry-run").stdout
        [found] = [line for line in script.splitlines() if "--job-name=" in line]
        return found

    same = name(*SMOKE, "--seeds", "2")
    assert same == name(*SMOKE, "--seeds", "0,1", "--jobs", "1", on="slurm:nodes=1")
    others = (("--seeds", "3"), ("--seeds", "2", "--ledger", "b.db"), ("--seeds", "2", "--set", "train.batch=5"))
    assert len({same, *(name(*SMOKE, *more) for more in others)}) == 4
    assert machine.run("study", "ring", "--seeds", "2", "--on", "slurm", "--dry-run").stdout.endswith(
        " study ring --seeds 2 --on-node\n"
    )
    for options in ((), ("--sweep", "optim.lr=0.1,0.2")):  # on this machine it shows the plan
        expected = machine.run("plan", *SMOKE[1:], *options).stdout
        assert machine.run(*SMOKE, *options, "--dry-run").stdout == expected
    assert machine.files() == []


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.2", ":6379", "head:port"])
def test_an_address_of_ray_has_a_port(address: str) -> None:
    from lrurun.runner.executors import ray

    with pytest.raises(UsageError, match="--on ray:address: expected HOST:PORT, found"):
        ray._try_address(address)
