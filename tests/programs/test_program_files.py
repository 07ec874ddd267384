"""Copies of the files of users' programs: what they have, which of them a program reads, and how they are repaired."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest

from lrurun.config.programs import ProgramTable, digest_of, digests
from lrurun.errors import LrurunError
from lrurun.ledger.ledger import Ledger
from lrurun.programs import commands, execution
from lrurun.runner import node
from lrurun.runner.attempt import MachineFault
from lrurun.runner.program_files import ProgramSnapshot
from tests.harness.machine import Machine
from tests.harness.programs import LINEAR, PYTHON, runs_of, write, write_scripts

FILES = {
    "train.py": "import helper, model.net\nprint(helper.NAME, model.net.NAME)\n",
    "model/__init__.py": "",
    "model/net.py": "from . import layers\nNAME = layers.NAME\n",
    "conf.json": "{}",
    "run.sh": "#!/bin/sh\n",
}
OTHERS = {"helper.py": "NAME = 'helper'\n", "model/layers.py": "NAME = 'layers'\n", "data/images": "1 2"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a recipe: with the files that it lists, and with others."""
    folder = tmp_path / "mine"
    for name, text in {**FILES, **OTHERS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "run.sh").chmod(0o755)
    for name in ("__pycache__", "ledger.db-wal"):
        (folder / name).mkdir()
    (tmp_path / "runs").mkdir()
    (folder / "runs").symlink_to(tmp_path / "runs")
    return folder


def snapshot_of(folder: Path, runs: Path | None = None) -> ProgramSnapshot:
    """The snapshot of the files as they are now."""
    return ProgramSnapshot(runs or folder.parent / "runs", folder, {name: digest_of(folder / name) for name in FILES})


def test_a_copy_has_the_listed_files_and_links_to_what_is_beside_them(folder: Path) -> None:
    snapshot = snapshot_of(folder)
    snapshot.keep()
    found = {path.relative_to(snapshot.path).as_posix(): path for path in snapshot.path.rglob("*")}
    assert {name for name, path in found.items() if not path.is_symlink()} == {*FILES, "model"}
    assert {name: path.resolve() for name, path in found.items() if path.is_symlink()} == {
        name: folder / name for name in ("helper.py", "model/layers.py", "data")
    }
    assert (snapshot.path / "run.sh").stat().st_mode & 0o777 == 0o755
    for name in FILES:
        (folder / name).write_text("raise SystemError\n")
    (folder / "later.txt").write_text("")
    snapshot.keep()
    assert (snapshot.path / "later.txt").is_symlink(), "what was added since is beside it too"
    folder.parent.rename(folder.parent.with_name("moved"))
    script = folder.parent.with_name("moved") / snapshot.path.relative_to(folder.parent) / "train.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.stdout == "helper layers\n", done.stderr


def test_every_version_and_every_folder_has_a_copy_of_its_own(folder: Path, tmp_path: Path) -> None:
    first = snapshot_of(folder)
    (folder / "conf.json").write_text("[]")
    second = snapshot_of(folder)
    (tmp_path / "link").symlink_to(folder)
    elsewhere = tmp_path / "other"
    folder.rename(elsewhere)
    assert len({first.path, second.path, snapshot_of(elsewhere).path}) == 3
    folder.symlink_to(elsewhere)
    assert snapshot_of(folder).path == snapshot_of(elsewhere).path, "it is the same folder"


def test_what_is_missing_or_damaged_of_a_copy_is_made_again(folder: Path) -> None:
    snapshot = snapshot_of(folder)
    snapshot.keep()
    (snapshot.path / "conf.json").write_text("altered")
    (snapshot.path / "model/net.py").unlink()
    (snapshot.path / "helper.py").unlink()
    assert [name for name in FILES if not snapshot.has(name)] == ["model/net.py", "conf.json"]
    snapshot.keep()
    assert [name for name in FILES if not snapshot.has(name)] == []
    assert (snapshot.path / "helper.py").is_symlink()
    # the original has changed too: the copy in another folder, as the one of the run that `verify` repeats
    other = snapshot_of(folder, folder.parent / "other")
    other.keep()
    (snapshot.path / "conf.json").write_text("altered")
    (folder / "conf.json").write_text("edited")
    snapshot.keep(other.path)
    assert (snapshot.path / "conf.json").read_text() == "{}"
    (snapshot.path / "conf.json").write_text("altered")
    with pytest.raises(LrurunError) as caught:
        snapshot.keep()
    assert caught.value.message.startswith(f"{folder / 'conf.json'}: has changed since this run was queued: sha256:")
    assert caught.value.message.endswith(f", and {snapshot.path / 'conf.json'} was altered")
    (folder / "conf.json").unlink()
    with pytest.raises(LrurunError, match=r"conf\.json: cannot be read, or is gone") as caught:
        snapshot.keep()
    assert caught.value.hint == "restore the file of the program"


def test_a_copy_in_a_folder_that_cannot_be_written_is_an_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LrurunError, match="the files of the program cannot be copied: Not a directory"):
        snapshot_of(folder, tmp_path / "file").keep()


def test_several_processes_make_the_same_copy(folder: Path) -> None:
    errors: list[Exception] = []

    def keep() -> None:
        try:
            snapshot_of(folder).keep()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=keep) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = snapshot_of(folder)
    assert not errors
    assert all(map(snapshot.has, FILES))
    assert list(snapshot.path.parent.rglob("*.tmp")) == []


def test_a_copy_in_an_object_store_is_fetched(folder: Path, tmp_path: Path) -> None:
    """The folder of the recipe, which nodes share, need not have the files as they were."""
    store = quote(f"file://{tmp_path / 'store'}", safe="")
    for machine in ("a", "b"):
        runs = tmp_path / machine / store
        runs.mkdir(parents=True)
    snapshot = snapshot_of(folder, tmp_path / "a" / store)
    snapshot.keep()
    there = ProgramSnapshot(tmp_path / "b" / store, folder, snapshot.digests)
    for name in FILES:
        (folder / name).write_text("edited")
    there.keep()
    assert {name: (there.path / name).read_text() for name in FILES} == FILES


def test_copies_are_no_files_of_a_program(folder: Path) -> None:
    """Wherever the runs folder is: else each copy would make another run."""
    program = ProgramTable(command=("python",), files=("**/*.py",), metric="val/x")
    before = digests(program, folder, "recipe")
    snapshot_of(folder, folder / "trained").keep()
    assert digests(program, folder, "recipe") == before


MODULES = {"train.py", "model/__init__.py", "model/net.py"}


@pytest.mark.parametrize(
    ("command", "started", "copied"),
    [
        ("python train.py --lr 1", "python COPY/train.py --lr 1", MODULES),
        ("python ./model/../train.py", "python COPY/train.py", MODULES),
        ("torchrun --nproc 2 FOLDER/train.py", "torchrun --nproc 2 COPY/train.py", MODULES),
        ("python model/net.py", "python COPY/model/net.py", {"model/__init__.py", "model/net.py"}),
        ("python train.py --config=conf.json", "python COPY/train.py --config=COPY/conf.json", {*MODULES, "conf.json"}),
        ("sh run.sh train.txt", "sh COPY/run.sh train.txt", {"run.sh"}),
        ("./run.sh conf.json", "COPY/run.sh COPY/conf.json", {"run.sh", "conf.json"}),
        ("run.sh", "run.sh", set()),  # looked up on PATH
        ("python -m model.net a", f"python {commands.RUN_MODULE} COPY model.net a", MODULES),
        ("python3.12 -u -X dev -m train", f"python3.12 -u -X dev {commands.RUN_MODULE} COPY train", MODULES),
        ("python -m http.server", "python -m http.server", set()),
        ("python -m torch.distributed.run train.py", "python -m torch.distributed.run COPY/train.py", MODULES),
        ("python -P train.py", "python -P COPY/train.py", {"train.py"}),
        ("python -I -m model.net", "python -I -m model.net", set()),
        ("uv run -m model.net", "uv run -m model.net", set()),
        ("python -c import,train", "python -c import,train", set()),
        ("python helper.py", "python helper.py", set()),  # not listed
    ],
)
def test_the_copies_that_a_command_names_are_started(
    folder: Path, command: str, started: str, copied: set[str]
) -> None:
    snapshot = snapshot_of(folder)
    words = command.replace("FOLDER", str(folder)).split()
    assert commands.from_snapshot(words, snapshot) == (started.replace("COPY", str(snapshot.path)).split(), copied)


def test_a_module_is_started_as_by_python(folder: Path) -> None:
    """With the copy in place of the working directory."""
    script = "import sys\nfrom . import net\nprint(__name__, __package__, sys.argv[1:], sys.argv[0] == __file__)\n"
    (folder / "model/start.py").write_text(script + "print(net.NAME, sys.modules['__main__'].__spec__.name)\n")
    snapshot = snapshot_of(folder)
    snapshot.keep()
    started, _ = commands.from_snapshot([sys.executable, "-m", "model.start", "a", ""], snapshot)
    (folder / "model/net.py").write_text("NAME = 'edited'\n")
    done = [
        subprocess.run(command, capture_output=True, text=True, cwd=folder).stdout
        for command in ([sys.executable, "-m", "model.start", "a", ""], started)
    ]
    assert done[0] == "__main__ model ['a', ''] True\nedited model.start\n"
    assert done[1] == done[0].replace("edited", "layers")


def test_changed_files_that_a_program_may_not_read_from_its_copy_are_faults(folder: Path) -> None:
    files = snapshot_of(folder).digests
    execution._check_files(files, {"conf.json"}, folder)
    (folder / "conf.json").write_text("[]")
    execution._check_files(files, {"conf.json"}, folder)
    (folder / "train.py").write_text("2")
    with pytest.raises(MachineFault) as caught:
        execution._check_files(files, {"conf.json"}, folder)
    digest = files["train.py"][:19]
    said = f"{folder / 'train.py'}: has changed since this run was queued: {digest} then, sha256:"
    assert caught.value.message.startswith(said)
    assert cast("Any", caught.value).hint.startswith("its copy is not used, because the command does not name it; ")


EDITS = """\
import json, lrurun, pathlib, model
run = lrurun.this_run()
run.log(1, **{"val/accuracy": model.SCORE, "test/accuracy": model.SCORE})
for name in ("train.py", "model.py", "note.txt"):
    path = pathlib.Path(name)  # from the working directory, which is the folder of the recipe
    path.write_text("SCORE = 0.9\\n# " + path.read_text())
"""


@pytest.mark.slow
def test_a_program_may_be_edited_while_its_runs_train(machine: Machine) -> None:
    """Each run edits its program; `verify` repeats the one that was queued."""
    folder = machine.folder
    (folder / "train.py").write_text(EDITS)
    (folder / "model.py").write_text("SCORE = 0.5\n")
    (folder / "note.txt").write_text("a note")
    (folder / "edited.toml").write_text(
        f'task = "edited"\n[program]\ncommand = [{PYTHON}, "train.py"]\nfiles = ["train.py", "model.py"]\n'
        'metric = "val/accuracy"\n[settings]\nlr = 0.1\n[[rung]]\nname = "only"\n'
    )
    machine.run("ladder", "edited.toml", "--seeds", "3", "--jobs", "2")
    runs = machine.json("runs")["runs"]
    assert [run["metrics"]["test/accuracy"] for run in runs] == [0.5, 0.5, 0.5]
    files = machine.json("show", runs[0]["id"], "--files")
    assert files["folder"] == str(folder)
    assert [(file["path"], file["state"], file["at"]) for file in files["files"]] == [
        (name, "kept", f"{files['copy']}/{name}") for name in ("train.py", "model.py")
    ]
    assert Path(files["copy"], "train.py").read_text() == EDITS
    assert "train.py" in machine.run("show", runs[0]["id"], "--files").stdout
    assert "verified: " in machine.run("verify", runs[0]["id"]).stdout
    machine.run("ledger", "gc", "--finished")
    assert "no problems" in machine.run("ledger", "check").stdout
    assert machine.json("show", runs[0]["id"], "--files") == files
    Path(files["copy"], "model.py").write_text("altered")
    (folder / "train.py").write_text(EDITS)
    Path(files["copy"], "train.py").unlink()
    states = {file["path"]: file["state"] for file in machine.json("show", runs[0]["id"], "--files")["files"]}
    assert states == {"train.py": "unchanged", "model.py": "changed"}


CHANGING = Path("/proc/sys/kernel/random/uuid")
"""A file of Linux that is another one each time it is read."""


@pytest.mark.slow
@pytest.mark.skipif(not CHANGING.exists(), reason="Linux has such a file")
def test_nothing_is_recorded_where_a_file_changes_before_it_is_copied(machine: Machine) -> None:
    write_scripts(machine.folder, {"first": "", "second": ""})
    (machine.folder / "first.py").unlink()
    (machine.folder / "first.py").symlink_to(CHANGING)
    done = machine.run("ladder", "scripts.toml", code=1)
    assert "first.py: has changed since this run was queued: sha256:" in done.stderr
    assert not machine.ledger.exists()


@pytest.mark.slow
def test_runs_of_an_earlier_version_have_no_copy_and_are_checked(machine: Machine) -> None:
    """They were queued, and their program was edited before this version copied it."""
    edit = "open('later.py', 'a').write('#')\nimport shutil\nshutil.rmtree(run.folder + '/../../programs')\n"
    original = "import lrurun\nrun = lrurun.this_run()\nrun.log(1, **{'val/accuracy': 0.5, 'test/accuracy': 0.4})\n"
    write_scripts(machine.folder, {"edits": original + edit, "later": original})
    arguments = ("ladder", "scripts.toml", "--seeds", "1", "--jobs", "1")
    done = machine.run(*arguments, code=1)
    assert "later.py: has changed since this run was queued: sha256:" in done.stderr
    assert "hint: restore the file; or repeat the ladder command, which queues runs of the new one" in done.stderr
    states = {rung: run.state for rung, (run, _) in runs_of(machine).items()}
    # interrupted, and perhaps already queued again when the worker exits
    assert states in ({"edits": "done", "later": "interrupted"}, {"edits": "done", "later": "queued"})
    (machine.folder / "later.py").write_text(original)
    machine.run(*arguments)
    assert {rung: run.state for rung, (run, _) in runs_of(machine).items()} == {"edits": "done", "later": "done"}


@pytest.mark.slow
def test_a_node_has_the_files_of_the_command_that_started_it(machine: Machine) -> None:
    """A node supervisor reads the recipe again, when the program may have been edited."""
    write(machine.folder)
    arguments = ("ladder", "toy.toml", "--rung", "wide", "--jobs", "1")
    machine.run(*arguments, "--seeds", "1")
    with Ledger.read(machine.ledger) as ledger:
        [instance] = ledger.ladders()
    (machine.folder / "toy.py").write_text(LINEAR + "# edited\n")
    machine.run(*arguments, "--seeds", "2", "--on-node", env={node.INSTANCE: instance.key})
    states = [(run["seed"], run["state"]) for run in machine.json("runs")["runs"]]
    assert sorted(states) == [(0, "done"), (1, "done")], "and not two runs of the edited program"
