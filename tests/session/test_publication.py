"""`ledger export --to publication`: the record is whole or not there, says the same as the ledger, and names nobody on
request."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tomllib
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lrurun.config import planning
from lrurun.instances import documents
from lrurun.ledger.ledger import Ledger
from lrurun.session.publication import crate, publishing
from tests.harness import imported, plug_ins, programs, ro_crate
from tests.harness.environments import ENVIRONMENT, train
from tests.harness.machine import Machine, small_files, wait_for
from tests.harness.plug_ins import forgotten as forgotten
from tests.harness.results import fill
from tests.harness.servers import PrivateServer
from tests.harness.shared import once

EXPORT = ("ledger", "export", "--to", "publication")
SMOKE = ("npDigits", "--profile", "smoke")
DATED = {"SOURCE_DATE_EPOCH": "1764374400"}
"""The day of records whose bytes are compared."""


@pytest.fixture(scope="session")
def ladder() -> Machine:
    """Two instances, one with attempts, checkpoints, an excluded run and one that diverged."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        train(
            machine.ledger,
            "tanh-rnn",
            ["done", "done", "diverged"],
            environments=({**ENVIRONMENT, "folder": "/home/ada/work"},),
        )
        train(machine.ledger, "linear-rnn", ["done"] * 3, attempts=2)
        fill(machine.ledger, "sDigits", {"ring-init": [0.5, 0.6]}, profile="smoke")
        run = next(run["id"] for run in machine.json("runs")["runs"] if run["rung"] == "linear-rnn")
        machine.run("mark", run, "--exclude", "the disk of ada was full")
        with contextlib.closing(sqlite3.connect(machine.ledger)) as connection:
            connection.execute("""
                INSERT INTO checkpoints (run, attempt, step, state, path, bytes, sha256)
                SELECT number, 1, 60, 'committed', id || '/1/checkpoints/60', 2000000, hex(zeroblob(5000))
                FROM stored_runs WHERE seed = 0
            """)
            connection.execute("UPDATE ladders SET user_name = 'ada'")
            connection.execute("UPDATE stored_attempts SET host = 'analytical-engine', user_name = 'ada'")
            connection.commit()

    return Machine(once("publication-ladder", make))


@pytest.fixture(scope="session")
def record(ladder: Machine) -> Path:
    """A record of the ladder, which tests only read."""
    words = ("--license", "CC-BY-4.0", "--author", "Ada Lovelace (0000-0002-1825-0097)", "--author", "C. Babbage")

    def make(folder: Path) -> None:
        folder.mkdir()
        done = ladder.run(*EXPORT, str(folder / "out"), *words)
        (folder / "said.txt").write_text(done.stderr.replace(str(folder / "out"), "OUT"))

    return once("publication-record", make) / "out"


def checked(folder: Path) -> dict[str, str]:
    """Path -> digest of the files of a record, after `sha256sum -c` has read its list of them."""
    done = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = dict(reversed(line.split("  ", 1)) for line in (folder / "SHA256SUMS").read_text().splitlines())
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {*listed} == there - {"SHA256SUMS"}
    assert ro_crate.faults(folder) == []
    return listed


@pytest.mark.slow
def test_a_record_has_everything_and_is_read_back(ladder: Machine, record: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(record, tmp_path / "out"))
    said = (record.parent / "said.txt").read_text()
    assert re.sub(r"[\d.]+ MB", "N MB", said) == (
        "it names people, machines or folders (analytical-engine, /home/ada/work, ada); --anonymous replaces them\n"
        "wrote OUT: 8 runs of 2 instances, 35 files with N MB; README.md says how to check and read it\n"
    )
    assert {*checked(out)} == {
        *("README.md", "ledger.db", "ro-crate-metadata.json", "tables/runs.csv", "tables/metrics.csv"),
        *(
            f"instances/{name}/{file}"
            for name in ("npDigits-smoke", "sDigits-smoke")
            for file in (
                *(f"report.{ending}" for ending in ("txt", "md", "csv", "json", "tex", "html")),
                *(f"methods.{ending}" for ending in ("txt", "md", "json", "tex")),
                *("ladder.pdf", "ladder.svg", "table.tex"),
            )
        ),
        *(f"instances/npDigits-smoke/{name}" for name in ("code/ladder.toml", "code/recipe.toml", "requirements.txt")),
    } | {path for path in checked(out) if path.startswith("instances/sDigits-smoke/requirements")}
    other = Machine(tmp_path / "other")
    assert "runs new here: 8;" in other.run("ledger", "merge", str(out)).stdout
    assert other.run("ledger", "check").stdout.endswith("ledger.db: 8 runs, 0 checkpoints, no problems\n")
    for task, name in (("npDigits", "npDigits-smoke"), ("sDigits", "sDigits-smoke")):
        report = other.run("report", task, "--profile", "smoke", "--details").stdout
        assert report == ladder.run("report", task, "--profile", "smoke", "--details").stdout
        assert report == (out / f"instances/{name}/report.txt").read_text()
        for format in ("csv", "json"):
            made = other.run("report", "--instance", name, "--format", format).stdout
            assert made == (out / f"instances/{name}/report.{format}").read_text()
        methods = ladder.json("report", "--instance", name, "--methods")["text"]
        assert (out / f"instances/{name}/methods.txt").read_text() == f"{methods}\n"
    readme = (out / "README.md").read_text()
    for words in (
        "by Ada Lovelace (0000-0002-1825-0097), C. Babbage",
        "License: CC-BY-4.0.",
        "Trained models are not here (3 checkpoints with 6.0 MB where this was made)",
        "lrurun report --instance npDigits-smoke --details --ledger check.db",
        "The ledger names 1 user, 1 machine and 1 folder of those who made it.",
    ):
        assert words in readme, words
    for command in re.findall(r"^    (lrurun (?:ledger|report).*)$", readme, re.MULTILINE):
        Machine(out).run(*command.split()[1:])
    (out / "check.db").unlink()
    query = re.findall(r'^    sqlite3 ledger.db "(.*)"$', readme, re.MULTILINE)[0]
    with contextlib.closing(sqlite3.connect(out / "ledger.db")) as connection:
        assert len(connection.execute(query).fetchall()) == 8


def test_metadata_name_authors_license_software_and_papers(record: Path) -> None:
    graph = entities(record)
    assert graph["./"]["license"] == {"@id": "https://spdx.org/licenses/CC-BY-4.0"}
    assert [author["@id"] for author in graph["./"]["author"]] == [
        "https://orcid.org/0000-0002-1825-0097",
        "#C.-Babbage",
    ]
    assert graph["https://orcid.org/0000-0002-1825-0097"]["name"] == "Ada Lovelace"
    assert "Orvieto et al. 2023" in graph[graph["./"]["citation"]["@id"]]["name"]
    action = graph["#runs-npDigits-smoke"]
    assert [entity["@id"] for entity in action["object"]] == [
        f"instances/npDigits-smoke/code/{name}" for name in ("ladder.toml", "recipe.toml")
    ]
    software = graph[action["instrument"]["@id"]]
    assert (software["@type"], software["name"]) == ("SoftwareApplication", "lrurun")
    assert software["version"].startswith("1.0.0")
    assert "aaaaaaa" in software["version"]


@pytest.mark.parametrize(
    ("license", "expected"),
    [
        (None, "No license was chosen: ask the authors before you reuse this."),
        ("Only for reviewers.", "Only for reviewers."),
        ("https://example.org/terms", {"@id": "https://example.org/terms"}),
        ("MIT", {"@id": "https://spdx.org/licenses/MIT"}),
    ],
)
def test_licenses(license: str | None, expected: Any) -> None:
    nothing: dict[str, Any] = {"authors": (), "citations": (), "files": (), "trainings": ()}
    text = crate.render(
        name="x", description="x", date="2026-11-29", license=license, version="1", ledger="ledger.db", **nothing
    )
    root = next(entity for entity in json.loads(text)["@graph"] if entity["@id"] == "./")
    assert root["license"] == expected


def entities(folder: Path) -> dict[str, Any]:
    """Address -> entity of the metadata of a record."""
    graph = json.loads((folder / "ro-crate-metadata.json").read_text())["@graph"]
    return {entity["@id"]: entity for entity in graph}


@pytest.mark.slow
def test_the_check_of_metadata_finds_faults(record: Path, tmp_path: Path) -> None:
    shutil.copytree(record, tmp_path / "out")
    path = tmp_path / "out" / "ro-crate-metadata.json"
    text = path.read_text()
    for before, after, fault in (
        ('"datePublished": "', '"datePublished": "the year ', "datePublished"),
        ('"license": {', '"licence": {', "the context has no 'licence'"),
        ('"@type": "Dataset"', '"@type": "Data"', "the root is no Dataset"),
        ('"about": {', '"mentions": {', "the descriptor is not about ./"),
        ('"@id": "ledger.db"\n', '"@id": "ledgers.db"\n', "described and not linked"),
        ('"contentSize": "', '"contentSize": "1', "contentSize"),
        ("https://w3id.org/ro/crate/1.2/context", "https://schema.org", "the context is"),
        ('"sha256": "', '"sha256": "0', "sha256"),
    ):
        assert before in text, before
        path.write_text(text.replace(before, after, 1))
        assert any(fault in found for found in ro_crate.faults(tmp_path / "out")), fault
    path.write_text(text)
    assert ro_crate.faults(tmp_path / "out") == []


@pytest.mark.slow
def test_a_zip_file_has_the_same_files_and_the_same_bytes_again(ladder: Machine, tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip", "folder"):
        ladder.run(*EXPORT, str(tmp_path / name), env=DATED)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(tmp_path / "a")
    # the record is named after the file
    assert checked(tmp_path / "a") == checked(tmp_path / "folder")
    assert "with lrurun" in (tmp_path / "a/README.md").read_text()
    assert " on 2025-11-29" in (tmp_path / "a/README.md").read_text()
    other = Machine(tmp_path / "other")
    assert other.run("ledger", "merge", str(tmp_path / "a.zip")).stdout == (
        f"{tmp_path / 'a.zip'}: runs new here: 8; unfinished here and now finished: 0; unchanged: 0; checkpoints "
        "copied: 0\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.zip", "b.zip", "folder", "other"]


@pytest.mark.slow
def test_a_part_is_published_alone(ladder: Machine, tmp_path: Path) -> None:
    done = ladder.run(*EXPORT, str(tmp_path / "out"), "--instance", "npDigits-smoke", "--where", "seed<2")
    assert f"wrote {tmp_path / 'out'}: 4 runs of 1 instance, " in done.stderr
    assert [path.name for path in (tmp_path / "out/instances").iterdir()] == ["npDigits-smoke"]
    checked(tmp_path / "out")
    assert "(4 runs here; 2 further runs of it not)" in (tmp_path / "out/README.md").read_text()
    methods = (tmp_path / "out/instances/npDigits-smoke/methods.txt").read_text()
    assert "further runs of the comparison are not part of the record that this was written from" in methods


@pytest.mark.slow
def test_an_anonymous_record_names_nobody(ladder: Machine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = ladder.run(*EXPORT, str(out), "--anonymous")
    assert "still named" not in done.stderr
    assert "/home/ada" not in done.stderr
    checked(out)
    for path in (path for path in out.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for name in (b"ada ", b'"ada"', b"/home", b"analytical-engine", str(ladder.folder).encode()):
            assert name not in content, (path, name)
    assert b"/1/checkpoints/60" not in (out / "ledger.db").read_bytes()  # what was removed is not in the file
    with contextlib.closing(sqlite3.connect(out / "ledger.db")) as connection:
        assert connection.execute("SELECT DISTINCT host, user_name FROM stored_attempts").fetchall() == [
            ("host-1", "user-1")
        ]
        assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)
        assert connection.execute("SELECT why FROM exclusions").fetchall() == [("the disk of user-1 was full",)]
        triggers = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone()
    with contextlib.closing(sqlite3.connect(ladder.ledger)) as connection:
        assert triggers == connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone()
    other = Machine(tmp_path / "other")
    other.run("ledger", "merge", str(out))
    assert "no problems" in other.run("ledger", "check").stdout
    assert scores(other) == scores(ladder)
    assert "Names of people, machines and folders were replaced." in (out / "README.md").read_text()


@pytest.mark.slow
def test_an_anonymous_record_names_nobody_anywhere(machine: Machine, tmp_path: Path) -> None:
    """Names in each form and each place in which a ledger may have them."""
    train(
        machine.ledger,
        "tanh-rnn",
        ["done", "done", "failed"],
        environments=(
            {**ENVIRONMENT, "folder": "/scratch/babbage"},
            {**ENVIRONMENT, "origin": {"place": "https://mill.lab.example/x", "files": {"/gpfs/users/noel/a.py": "x"}}},
        ),
    )
    train(machine.ledger, "linear-rnn", ["done"] * 2)
    forms = (
        ("file:///home/ada/x.csv", "file:///folder-N/x.csv"),
        ("sqlite:////home/ada/m.db", "sqlite:///folder-N/m.db"),
        ("analytical-engine:/home/ada/runs", "host-N:/folder-N/runs"),
        ("sftp://ada@analytical-engine/home/ada/runs", "sftp:///folder-N/runs"),
        ("s3://engine-bucket/ada/runs", "s3:///folder-N/runs"),
        ("C:\\Users\\ada\\my work\\x.py", "/folder-N/x.py"),
        ("C:\\\\Users\\\\ada\\\\x.py", "/folder-N/x.py"),
        ("D:/Users/ada/x.py", "D:/folder-N/x.py"),
        ("\\\\lovelace-nas\\share\\x.py", "/folder-N/x.py"),
        ('File "/home/ada/my work/train.py", line 3', 'File "/folder-N/train.py", line 3'),
        ("ada@lab.example wrote", "user-N wrote"),
        ("git@git.lab.example:ada/project.git", "user-N"),
        ("on analytical-engine.lab.example, rank 0", "on host-N, rank 0"),
        ("~ada/x", "~user-N/x"),
        ("see https://arxiv.org/abs/2303.06349", "see https://arxiv.org/abs/2303.06349"),
        ("a ratio of 1/2 and/or 3/4", "a ratio of 1/2 and/or 3/4"),
    )
    run = next(run["id"] for run in machine.json("runs")["runs"] if run["seed"] == 0)
    failed = next(run["id"] for run in machine.json("runs")["runs"] if run["state"] == "failed")
    for form, _ in forms:
        machine.run("mark", run, "--note", form)
    machine.run("mark", run, "--tag", "ada")
    with contextlib.closing(sqlite3.connect(machine.ledger)) as connection:
        connection.execute("UPDATE stored_attempts SET host = 'analytical-engine', user_name = 'ada'")
        error = 'Traceback:\n  File "/home/ada/my work/train.py", line 3\nOSError: no C:\\Users\\ada\\x.npy'
        connection.execute("UPDATE stored_runs SET error = ? WHERE id = ?", (error, failed))
        payload = {"task": "slurm:1", "start": 0, "host": "difference-engine.lab.example"}
        connection.execute(
            "INSERT INTO events (ladder, time, kind, text, payload) VALUES (1, 0, 'node', ?, ?)",
            ("slurm:1, start 0, on difference-engine.lab.example", json.dumps(payload)),
        )
        connection.commit()
    machine.run("ledger", "forget", "--where", "seed=1", "--why", "the disk of ada was full", "--yes")
    out = tmp_path / "out"
    done = machine.run(*EXPORT, str(out), "--anonymous")
    assert "still named" not in done.stderr, done.stderr
    checked(out)
    known = (
        "ada",
        "engine",
        "babbage",
        "noel",
        "mill",
        "lab.example",
        "lovelace",
        "/home",
        "Users",
        str(machine.folder),
    )
    for path in (path for path in out.rglob("*") if path.is_file()):
        for name in known:
            found = re.search(rf"(?<![A-Za-z]){re.escape(name)}(?![A-Za-z])".encode(), path.read_bytes())
            assert found is None, (path, name)
    with contextlib.closing(sqlite3.connect(out / "ledger.db")) as connection:
        notes = [text for (text,) in connection.execute("SELECT text FROM events WHERE kind = 'note' ORDER BY id")]
        assert connection.execute("SELECT name FROM tags").fetchall() == [("user-1",)]
        assert connection.execute("SELECT files, finished_at IS NULL, why FROM removals").fetchall() == [
            (None, 0, "the disk of user-1 was full")
        ]
    assert [re.sub(r"(user|host|folder)-\d+", r"\1-N", note) for note in notes] == [after for _, after in forms]
    other = Machine(tmp_path / "other")
    other.run("ledger", "merge", str(out))
    assert "no problems" in other.run("ledger", "check").stdout


def test_names_that_stay_are_named(machine: Machine, tmp_path: Path) -> None:
    """In the name of an instance and of a file, in any case, and in the files that name these."""
    fill(machine.ledger, "npDigits", {"tanh-rnn": [0.5, 0.6]}, profile="smoke")
    machine.run("ledger", "rename", "npDigits-smoke", "Ada_wide")
    with contextlib.closing(sqlite3.connect(machine.ledger)) as connection:
        connection.execute("UPDATE stored_attempts SET user_name = 'ada'")
        connection.commit()
    done = machine.run(*EXPORT, str(tmp_path / "out"), "--anonymous")
    warned = re.findall("still named in (.*): (?:here, )?ada$", done.stderr, re.MULTILINE)
    assert {"ledger.db", "README.md", "ro-crate-metadata.json"} <= {*warned}
    instance = tmp_path / "out/instances/Ada_wide"
    below = [path.relative_to(tmp_path / "out").as_posix() for path in instance.rglob("*") if path.is_file()]
    assert {*below} <= {*warned}
    readme = (tmp_path / "out/README.md").read_text()
    for path in warned:
        assert f"- `{path}`" in readme
    checked(tmp_path / "out")


def test_a_copy_of_a_part_and_a_record_do_not_say_where_removed_files_were(machine: Machine) -> None:
    train(machine.ledger, "tanh-rnn", ["done"] * 3)
    machine.run("ledger", "forget", "--where", "seed=2", "--yes")
    machine.run("ledger", "backup", "--instance", "npDigits-smoke", "--out", "part.db")
    machine.run(*EXPORT, "out")
    for file in ("part.db", "out/ledger.db"):
        with contextlib.closing(sqlite3.connect(machine.folder / file)) as connection:
            assert connection.execute("SELECT files, finished_at > 0 FROM removals").fetchall() == [(None, 1)], file


def scores(machine: Machine) -> Any:
    rows = machine.json("report", *SMOKE)["rows"]
    return [(row["rung"], row["n"], row["mean"], row["verdict"], row["runs"]) for row in rows]


def test_refusals_change_nothing(ladder: Machine, machine: Machine, tmp_path: Path) -> None:
    ladder = ladder.copy(tmp_path / "copy")  # what other tests read has files of SQLite beside it meanwhile
    (tmp_path / "there").mkdir()
    (tmp_path / "there.zip").touch()
    (tmp_path / "closed").mkdir(mode=0o500)
    for words, code, error in (
        (("there",), 1, "there: exists already, and is not overwritten\nhint: name a new folder"),
        (("there.zip",), 1, "there.zip: exists already, and is not overwritten"),
        (
            ("no/where",),
            1,
            f"no/where: the folder {tmp_path}/no does not exist\nhint: create it: mkdir -p {tmp_path}/no",
        ),
        (("x", "--instance", "npDigit-smoke"), 4, "'npDigit-smoke'"),
        (("x", "--where", "seed>100"), 4, "--where: none of 8 runs meets the condition"),
        (("x", "--author", "Ada (0000-0002-1825)"), 2, "expected an ORCID of 16 digits in parentheses"),
        (("x", "--author", " "), 2, "--author: expected a name, found none"),
        (("x", "--author", "Ada", "--anonymous"), 2, "--author and --anonymous exclude each other"),
        ((), 2, "--to publication: writes a folder, and needs its name\nhint: add it: --to publication DEST"),
    ):
        target = [str(tmp_path / words[0]), *words[1:]] if words else []
        assert error in ladder.refused(*EXPORT, *target, code=code).replace(f"{tmp_path}/there", "there").replace(
            f"{tmp_path}/no/where", "no/where"
        )
    if os.geteuid():
        assert "is read-only for this user" in ladder.refused(*EXPORT, str(tmp_path / "closed/x"), code=1)
    for option in (("--license", "MIT"), ("--author", "Ada"), ("--anonymous",)):
        assert f"{option[0]}: belongs to --to publication" in ladder.refused("ledger", "export", *option)
    assert "there is no ledger" in machine.refused(*EXPORT, "x", code=4)
    train(machine.ledger, "diagonal", ["queued", "failed"])
    assert "no run of this ledger is finished, so there is nothing to publish" in machine.refused(*EXPORT, "x", code=4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed", "copy", "here", "there", "there.zip"]


def test_folders_and_zip_files_that_are_no_record_are_refused(machine: Machine) -> None:
    (machine.folder / "empty").mkdir()
    with zipfile.ZipFile(machine.folder / "other.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    with zipfile.ZipFile(machine.folder / "text.zip", "w") as archive:
        archive.writestr("ledger.db", "a text")
    (machine.folder / "broken.zip").write_bytes((machine.folder / "other.zip").read_bytes()[:-10])
    for name, code, error in (
        ("empty", 4, "empty: is a folder without ledger.db"),
        ("other.zip", 5, "other.zip: has no ledger.db in it"),
        ("text.zip", 5, "text.zip: has no ledger in it"),
        ("broken.zip", 5, "broken.zip: is not a zip file, or is incomplete"),
    ):
        assert error in machine.refused("ledger", "merge", name, code=code)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_files_that_cannot_be_unpacked_are_no_bug(machine: Machine, tmp_path: Path) -> None:
    """Each is one ledger in a zip file, damaged or packed in a way that is not read."""
    train(machine.ledger, "tanh-rnn", ["done"])
    content = machine.ledger.read_bytes()
    other = Machine(tmp_path / "other")

    def packed(*names: str, compression: int = zipfile.ZIP_DEFLATED) -> bytearray:
        with zipfile.ZipFile(other.folder / "x.zip", "w", compression) as archive:
            for name in names:
                archive.writestr(name, content if name.endswith("db") else "")
        return bytearray((other.folder / "x.zip").read_bytes())

    def changed(start: int, new: bytes, *, compression: int = zipfile.ZIP_DEFLATED, of_directory: bool = True) -> bytes:
        """A zip file with other bytes, at a place in its entry in the directory, or at one in the file."""
        archive = packed("ledger.db", compression=compression)
        start += archive.find(b"PK\x01\x02") if of_directory else 0
        archive[start : start + len(new)] = new
        return bytes(archive)

    whole = bytes(packed("ledger.db"))
    damaged = "is not a zip file, or is incomplete\nhint: copy it again"
    unpack = "hint: unpack it with another program, and name the folder with ledger.db"
    for what, archive, error in (
        ("no bytes", b"", damaged),
        *((f"without the last {size} bytes", whole[:-size], damaged) for size in (1, 22, 50, len(whole) // 2)),
        ("other bytes inside", changed(len(whole) // 2, b"\0" * 50, of_directory=False), damaged),
        ("another name inside", changed(30, b"ledger.dc", of_directory=False), damaged),
        ("a wrong size", changed(24, b"\7\0\0\0"), damaged),
        ("a place that is not there", changed(42, b"\0\0\0\x60"), damaged),
        ("a directory that is not there", whole[:-6] + b"\0\0\0\x80" + whole[-2:], damaged),
        ("a name that is no text", changed(9, b"\x08" + bytes(36) + b"\xff" * 9), damaged),
        ("damaged LZMA", changed(60, b"\xff" * 90, compression=zipfile.ZIP_LZMA, of_directory=False), damaged),
        ("damaged bzip2", changed(60, b"\xff" * 90, compression=zipfile.ZIP_BZIP2, of_directory=False), damaged),
        ("a password", changed(8, b"\1"), f"its ledger.db is encrypted\n{unpack}"),
        ("a new format", changed(6, b"\x5a"), f"cannot be unpacked here: zip file version 9.0\n{unpack}"),
        ("a new compression", changed(10, b"\x63"), "cannot be unpacked here: That compression method is not "),
        ("two ledgers", bytes(packed("ledger.db", "ledger.db")), "has 2 files ledger.db in it"),
        ("a folder", bytes(packed("ledger.db/")), "has no ledger.db in it"),
        ("in a folder", bytes(packed("a/ledger.db", "a/b")), "hint: it has a/ledger.db: unpack it, and name the "),
    ):  # fmt: skip
        (other.folder / "x.zip").write_bytes(archive)
        found = other.run("ledger", "merge", "x.zip", code=5).stderr
        assert error in found, (what, found)
        assert not other.ledger.exists(), what
    packed("ledger.db", compression=zipfile.ZIP_LZMA)
    assert "runs new here: 1;" in other.run("ledger", "merge", "x.zip").stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out", "out.zip"])
def test_a_full_disk_leaves_nothing(ladder: Machine, tmp_path: Path, name: str) -> None:
    for size in (1000, 100_000, 250_000):
        with small_files(size):
            error = ladder.run(*EXPORT, str(tmp_path / name), code=1).stderr
        assert "bug" not in error, error
        assert list(tmp_path.iterdir()) == []
    ladder.run(*EXPORT, str(tmp_path / name))


def _is_begun(process: subprocess.Popen[str], folder: Path, name: str) -> bool:
    """Whether an export has written a file of this name, or is over."""
    return process.poll() is not None or bool(list(folder.glob(f".out.*/{name}")))


@pytest.mark.slow
def test_a_killed_export_leaves_nothing_by_its_name(ladder: Machine, tmp_path: Path) -> None:
    machine = ladder.copy(tmp_path / "copy")
    for expected in ("ledger.db", "tables", "instances", "README.md"):
        out = tmp_path / "out"
        process = machine.start(*EXPORT, str(out))
        is_begun = partial(_is_begun, process, tmp_path, expected)
        wait_for(is_begun)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        assert not out.exists() or checked(out)
        for left in [out, *tmp_path.glob(".out.*")]:
            shutil.rmtree(left, ignore_errors=True)
    machine.run(*EXPORT, str(out))
    checked(out)


def test_recorded_documents_name_the_same_instance(ladder: Machine, record: Path) -> None:
    """The TOML in a record is what was run: it makes the same plan."""
    folder = record / "instances/npDigits-smoke/code"
    plan = planning.make(str(folder / "recipe.toml"), ladder=str(folder / "ladder.toml"), profile="smoke")
    with Ledger.read(ladder.ledger) as ledger:
        assert plan.spec == ledger.ladder("npDigits-smoke").spec


@pytest.mark.slow
def test_recorded_documents_of_an_import_name_the_same_instance(machine: Machine) -> None:
    imported.fill(machine.ledger, imported.write(machine.folder))
    machine.run(*EXPORT, "out")
    file = machine.folder / "out/instances/runs/code/recipe.toml"
    with Ledger.read(machine.ledger) as ledger:
        recorded = documents.find(ledger, ledger.ladder("runs"))
        assert recorded is not None
        again = planning.make(str(file))
        assert again.spec == ledger.ladder("runs").spec
        assert again.recipe.imported == recorded.recipe.imported
        assert again.ladder.claims == recorded.ladder.claims


@pytest.mark.slow
def test_files_of_a_program_have_names_of_their_own(machine: Machine) -> None:
    """None is replaced by another one of its base name, or by a file that lrurun writes, and none is read as TOML."""
    own = {
        "toy.py": programs.LINEAR,
        "report.md": "not a report",
        "methods.txt": "no methods",
        "requirements.txt": "numpy",
        "README.md": "of the program",
        "recipe.toml": "of the program",
        "Ladder.toml": "= no TOML",
        "notes.toml": 'source = "a diary"',
        "a\\b.txt": "a backslash",
        "two\nlines.txt": "a line end",
        "util.py": "u = 1",
        "shared.py/inside.txt": "in a folder",
    }
    outside = {"one/util.py": "u = 2", "two/util.py": "u = 3", "two/shared.py": "s = 1", "two/code": "c"}
    listed = [*own, *(str(machine.folder / name) for name in outside)]
    project = machine.folder / "project"
    text = 'name = "two\\nlines\\u007f\\u001b[1m"'
    programs.write(project, ('files = ["toy.py"]', f"files = {json.dumps(listed)}"), ('name = "plain text"', text))
    for name, text in own.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    for name, text in outside.items():
        (machine.folder / name).parent.mkdir(exist_ok=True)
        (machine.folder / name).write_text(text)
    machine.run("ladder", "project/toy.toml", "--seeds", "2", "--jobs", "1")
    machine.run(*EXPORT, "out")
    checked(machine.folder / "out")
    folder = machine.folder / "out/instances/toy"
    there = {path.relative_to(folder / "code").as_posix() for path in (folder / "code").rglob("*") if path.is_file()}
    texts = {name: (folder / "code" / name).read_text() for name in there}
    recorded = texts.pop("recorded-recipe.toml")
    assert {texts[name] for name in ("util-2.py", "util-3.py")} == {"u = 2", "u = 3"}
    assert texts == {
        **{re.sub(r"[\n\\]", "_", name): text for name, text in own.items()},
        **{name: texts[name] for name in ("util-2.py", "util-3.py")},
        **{"shared-2.py": "s = 1", "code": "c"},
    }
    assert tomllib.loads(recorded)["program"]["files"] == listed
    assert tomllib.loads(recorded)["settings"]["name"] == "two\nlines\x7f\x1b[1m"
    assert (folder / "report.md").read_text() != own["report.md"]
    readme = (machine.folder / "out/README.md").read_text()
    assert "what was run (`code/recorded-recipe.toml`)" in readme
    graph = entities(machine.folder / "out")
    assert "citation" not in graph["./"]
    described = {path: entity.get("description", "") for path, entity in graph.items() if "/toy/code/" in path}
    assert described.pop("instances/toy/code/recorded-recipe.toml") == "How they were trained"
    assert {*described.values()} == {"A file that the runs used"}
    assert len(described) == len(texts)
    machine.run(*EXPORT, "out.zip")
    with zipfile.ZipFile(machine.folder / "out.zip") as archive:
        assert {*archive.namelist()} == {
            path.relative_to(machine.folder / "out").as_posix()
            for path in (machine.folder / "out").rglob("*")
            if path.is_file()
        }


@pytest.mark.slow
@pytest.mark.usefixtures("forgotten")
def test_plug_ins_of_one_base_name_have_names_of_their_own(machine: Machine) -> None:
    """The recorded ladder loads them by these names, and makes the same plan."""
    for folder, text in (("one", plug_ins.AVERAGES), ("two", plug_ins.MAJORITY)):
        (machine.folder / folder).mkdir()
        (machine.folder / folder / "mine.py").write_text(text)
    load = 'load = ["one/mine.py", "two/mine.py"]'
    (machine.folder / "ladder.toml").write_text(plug_ins.LADDER.replace('load = ["averages.py"]', load))
    (machine.folder / "m.toml").write_text(plug_ins.RECIPE)
    machine.run("ladder", "m.toml", "--ladder", "ladder.toml", "--load", "two/mine.py", "--seeds", "1", "--jobs", "1")
    machine.run(*EXPORT, "out")
    checked(machine.folder / "out")
    [folder] = (machine.folder / "out/instances").iterdir()
    assert {path.name for path in (folder / "code").iterdir()} == {"ladder.toml", "recipe.toml", "mine.py", "mine-2.py"}
    texts = {name: (folder / "code" / name).read_text() for name in ("mine.py", "mine-2.py")}
    assert {*texts.values()} == {plug_ins.AVERAGES, plug_ins.MAJORITY}
    names = {text: name for name, text in texts.items()}
    ladder = tomllib.loads((folder / "code/ladder.toml").read_text())
    assert ladder["load"] == [names[plug_ins.AVERAGES], names[plug_ins.MAJORITY]]
    plug_ins.forget()
    plan = planning.make(str(folder / "code/recipe.toml"), ladder=str(folder / "code/ladder.toml"))
    with Ledger.read(machine.ledger) as ledger:
        assert plan.spec == ledger.ladders()[0].spec
    assert [entity["name"] for path, entity in entities(machine.folder / "out").items() if "ours" in path] == ["ours"]


@pytest.mark.slow
def test_the_files_of_a_program_are_those_that_ran(machine: Machine) -> None:
    programs.write(machine.folder)
    script = machine.folder / "toy.py"
    script.write_text(programs.LINEAR)
    machine.run("ladder", "toy.toml", "--seeds", "2", "--jobs", "1")
    machine.run(*EXPORT, "first")
    folder = machine.folder / "first/instances/toy/code"
    assert (folder / "toy.py").read_text() == programs.LINEAR
    plan = planning.make(str(folder / "recipe.toml"))
    with Ledger.read(machine.ledger) as ledger:
        assert plan.spec == ledger.ladder("toy").spec
    script.write_text(f"{programs.LINEAR}# later\n")
    machine.run(*EXPORT, "second")  # from the copy that the runs folder has
    assert (machine.folder / "second/instances/toy/code/toy.py").read_text() == programs.LINEAR
    shutil.rmtree(machine.runs / "programs")
    digest = hashlib.sha256(programs.LINEAR.encode()).hexdigest()
    warning = f"toy.py: has changed since (digest sha256:{digest[:12]})"
    assert f"warning: not in third: {warning}\n" in machine.run(*EXPORT, "third").stderr
    assert not (machine.folder / "third/instances/toy/code/toy.py").exists()
    assert f"- toy: {warning.replace('toy.py: ', 'toy.py ')}" in (machine.folder / "third/README.md").read_text()
    script.unlink()
    assert "toy.py: is not here" in machine.run(*EXPORT, "fourth").stderr
    for name in ("first", "second", "third", "fourth"):
        checked(machine.folder / name)
    anonymous = machine.run(*EXPORT, "fifth", "--anonymous").stderr
    here = str(machine.folder).encode()
    for path in (path for path in (machine.folder / "fifth").rglob("*") if path.is_file()):
        assert here not in path.read_bytes(), path
    # the recipe of this test names Python by its path, which is part of what identifies runs
    assert "still named in ledger.db: " in anonymous
    assert "look whether it is a name there" in " ".join(anonymous.split())
    assert "- `ledger.db`" in (machine.folder / "fifth/README.md").read_text()


@pytest.mark.slow
def test_the_files_of_plug_ins_are_those_that_ran(machine: Machine) -> None:
    plug_ins.forget()
    file = machine.folder / "averages.py"
    file.write_text(plug_ins.AVERAGES)
    (machine.folder / "averages.toml").write_text(plug_ins.LADDER)
    machine.run("ladder", "sDigits", "--profile", "smoke", "--ladder", "averages.toml", "--seeds", "1", "--jobs", "1")
    plug_ins.forget()
    machine.run(*EXPORT, "first")
    [folder] = (machine.folder / "first/instances").iterdir()
    assert (folder / "code/averages.py").read_text() == plug_ins.AVERAGES
    assert (folder / "report.txt").read_text().count("averages") > 1
    file.write_text(f"{plug_ins.AVERAGES}# later\n")
    assert "warning: not in second: " in machine.run(*EXPORT, "second").stderr
    assert not list((machine.folder / "second").rglob("averages.py"))
    for name in ("first", "second"):
        checked(machine.folder / name)


@pytest.mark.slow
def test_a_record_of_a_server_is_that_of_a_file(machine: Machine, postgres: PrivateServer, tmp_path: Path) -> None:
    scores = {"ring-init": [0.5, 0.6, 0.55], "gamma-norm": [0.7, None, 0.8]}
    server = postgres.empty()
    try:
        fill(machine.ledger, "sDigits", scores, profile="smoke")
        report = machine.run("report", "sDigits", "--profile", "smoke", "--details").stdout
        machine.use(server)
        fill(server, "sDigits", scores, profile="smoke")
        machine.run(*EXPORT, str(tmp_path / "out"))
    finally:
        postgres.drop(server)
    checked(tmp_path / "out")
    assert (tmp_path / "out/instances/sDigits-smoke/report.txt").read_text() == report
    for path in (path for path in (tmp_path / "out").rglob("*") if path.is_file()):
        assert b"postgresql" not in path.read_bytes(), path
    reader = Machine(tmp_path / "reader")
    reader.run("ledger", "merge", str(tmp_path / "out"))
    assert reader.run("report", "sDigits", "--profile", "smoke", "--details").stdout == report
    with contextlib.closing(sqlite3.connect(tmp_path / "out/ledger.db")) as connection:
        states = connection.execute("SELECT state, count(*) FROM stored_runs GROUP BY state ORDER BY 1").fetchall()
    assert states == [("diverged", 1), ("done", 5)]


def test_names_are_not_looked_for_in_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "ladder.pdf").write_bytes(b"%PDF-1.4 \x00 vm \xff")
    (tmp_path / "notes.txt").write_text("on vm")
    assert list(publishing._remaining(tmp_path, ("vm",))) == [("notes.txt", ("vm",))]
