"""`--executor`: what is refused before anything is written or submitted, the user's configuration file, the script.

Slurm is replaced by programs on PATH; tests/test_slurm.py has a cluster.
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
from tests.machine import Machine

SMOKE = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
SLURM = (*SMOKE, "--executor", "slurm")
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


def refused(machine: Machine, *arguments: str, code: int = 2) -> list[str]:
    """The error and the hint of a command that writes nothing."""
    done = machine.run(*arguments, code=code)
    assert done.stdout == ""
    assert list(machine.folder.iterdir()) == []
    return [line.partition(": ")[2] for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("options", "error", "hint"),
    [
        (("--executor", "slrum"), "--executor: there is no executor 'slrum'", "did you mean 'slurm'?"),
        (("--nodes", "2"), "--nodes: belongs to an executor of several machines", "name it with --executor"),
        (("--detach",), "--detach: belongs to an executor of several machines", "name it with --executor"),
        (("--dry-run",), "--dry-run: the local executor submits nothing", "lrurun plan shows"),
        (("--slurm", "time=1:00"), "--slurm: belongs to --executor slurm, found --executor local", "choose one"),
        (
            ("--executor", "slurm", "--address", "h:1"),
            "--address: belongs to --executor ray, found --executor slurm",
            "choose one",
        ),
        (("--executor", "ray", "--ray", "gpu"), "--ray: expected KEY=VALUE, found 'gpu'", "as in --ray num_gpus=1"),
        (("--executor", "slurm", "--slurm", "gpu"), "--slurm: expected KEY=VALUE, found 'gpu'", "as in --slurm"),
        (
            ("--executor", "slurm", "--slurm", "--time=5"),
            "--slurm --time: expected a long option of sbatch without its dashes, found '--time'",
            "as in --slurm partition=gpu",
        ),
        (("--executor", "slurm", "--slurm", "time="), "--slurm time: expected a value, found ''", "as in"),
        (
            ("--executor", "slurm", "--slurm", "time=1\n#SBATCH --uid=0"),
            "--slurm time: expected a value, found '1\\n#SBATCH --uid=0'",
            "as in",
        ),
        (
            ("--executor", "slurm", "--slurm", "array=0-9"),
            "--slurm array: is set by lrurun: --nodes N is the number of tasks",
            "leave it out",
        ),
        (
            ("--executor", "slurm", "--slurm", "partitio=gpu"),
            "--slurm partitio: sbatch has no option --partitio",
            "did you mean partition? see sbatch --help",
        ),
        (("--executor", "slurm", "--nodes", "0"), "--nodes: expected a whole number of at least 1, found '0'", "as in"),
    ],
)
def test_invalid_options_are_refused(machine: Machine, options: tuple[str, ...], error: str, hint: str) -> None:
    found = refused(machine, *SMOKE, *options)
    assert found[0] == error
    assert found[1].startswith(hint)
    assert len(found) == 2


def test_an_sqlite_ledger_is_for_one_node(machine: Machine) -> None:
    error, hint = refused(machine, *SLURM, "--nodes", "2")
    assert error == f"--nodes 2: an SQLite ledger is for one machine, and {machine.ledger} is one"
    assert hint.startswith("keep the ledger in PostgreSQL")


@pytest.mark.parametrize(("hosts", "named"), [("$HOSTNAME login2", "login2"), ("", "others")])
def test_an_sqlite_ledger_is_for_the_machine_of_the_command(
    machine: Machine, tmp_path: Path, hosts: str, named: str
) -> None:
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/bash\n")
    (tmp_path / "bin" / "sinfo").write_text(SINFO.format(hosts=hosts))
    host = socket.gethostname().partition(".")[0]
    here = f"--executor slurm: an SQLite ledger is for one machine, {host}; tasks may run on"
    error, hint = refused(machine, *SLURM)
    assert error == f"{here} {named}"
    assert "--slurm nodelist=NODE" in hint
    assert refused(machine, *SLURM, "--slurm", "partition=cpu", "--slurm", "nodelist=n1")[0] == f"{here} n1, n2"


def test_slurm_must_be_there_and_take_the_job(machine: Machine) -> None:
    error, hint = refused(machine, *SLURM, "--slurm", "partition=gpux", code=1)
    assert error == "--executor slurm: sbatch refuses the job: allocation failure: Invalid partition name specified"
    assert hint == "did you mean 'gpu'? partitions: cpu, gpu"
    machine.env["PATH"] = str(machine.folder)
    error, hint = refused(machine, *SLURM, code=1)
    assert error == "--executor slurm: sbatch was not found on PATH"
    assert "--dry-run prints the script" in hint


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[slurm\n", "not valid TOML: "),
        ("[slrum]\n", "unknown table [slrum]"),
        ("slurm = 1\n", "expected a table [slurm], found 1"),
        ("[slurm]\ntime = 04:00:00\n", "slurm.time: expected a text or a number, found "),
    ],
)
def test_an_invalid_configuration_file_is_refused(machine: Machine, text: str, error: str) -> None:
    file = Path(machine.env["XDG_CONFIG_HOME"]) / "lrurun" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    found = refused(machine, *SLURM)
    assert found[0].startswith(f"{file}: {error}")
    assert len(found) == 2


def test_the_script_has_the_settings_of_file_and_options(machine: Machine) -> None:
    file = Path(machine.env["XDG_CONFIG_HOME"]) / "lrurun" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[slurm]\npartition = "cpu"\nmem = 4000\nexclusive = true\ncontiguous = true\n')
    settings = ("--slurm", "partition=gpu", "--slurm", "contiguous=false", "--slurm", "comment=two words")
    ledger = "postgresql://me@db.example.org/lab"
    machine.env["LRURUN_LEDGER"] = ledger.replace("me@", "me:secret@")
    done = machine.run(*SLURM, *settings, "--nodes", "3", "--jobs", "2", "--seeds", "2", "--dry-run")
    assert list(machine.folder.iterdir()) == []
    assert "secret" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[:3] == ["#!/bin/bash", "# before sbatch:", f"#   mkdir -p {machine.folder / 'runs' / 'nodes'}"]
    assert lines[3] == "#   lrurun ledger migrate"
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert {"--partition=gpu", "--mem=4000", "--exclusive", "--comment='two words'", "--array=0-2"} <= set(options)
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


def test_a_refused_job_is_an_error_of_a_command_that_returns(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lrurun.commands.ladder._prepare_data", lambda *_: None)
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
    def name(*arguments: str) -> str:
        script = machine.run(*arguments, "--executor", "slurm", "--dry-run").stdout
        [found] = [line for line in script.splitlines() if "--job-name=" in line]
        return found

    same = name(*SMOKE, "--seeds", "2")
    assert same == name(*SMOKE, "--seeds", "0,1", "--jobs", "1", "--nodes", "1")
    others = (("--seeds", "3"), ("--seeds", "2", "--ledger", "b.db"), ("--seeds", "2", "--set", "train.batch=5"))
    assert len({same, *(name(*SMOKE, *more) for more in others)}) == 4


def test_studies_have_scripts_too(machine: Machine) -> None:
    lines = machine.run("study", "ring", "--seeds", "2", "--executor", "slurm", "--dry-run").stdout.splitlines()
    assert lines[-1].endswith(" study ring --seeds 2 --on-node")


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.2", ":6379", "head:port"])
def test_an_address_of_ray_has_a_port(address: str) -> None:
    from lrurun.runner.executors import ray

    with pytest.raises(UsageError, match="--address: expected HOST:PORT, found"):
        ray._try_address(address)
