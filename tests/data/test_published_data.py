"""Whether a copy is the published data: by digest, by size, and what commands say about it."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from io import BytesIO

import numpy as np
import pytest
from msgspec import structs

from lrurun import data as tasks
from lrurun.data import store
from lrurun.data.downloaded.images import ARCHIVE, Cifar, SCifar
from lrurun.data.task import Remote
from tests.conftest import SHARED
from tests.harness import formats

COUNT = 60
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT + 10, 32, 32, 3), np.uint8)
LABELS = np.arange(COUNT + 10) % 10


def tarred() -> bytes:
    """A gzipped archive with the files of CIFAR-10, but few and random images."""
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in formats.cifar_archive(formats.cifar(IMAGES, LABELS, COUNT)).items():
            member = tarfile.TarInfo(name.rstrip("/"))
            member.type, member.size = (tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE), len(content)
            archive.addfile(member, BytesIO(content))
    return buffer.getvalue()


CONTENT = tarred()
TRUE = structs.replace(ARCHIVE, bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())
OTHER = structs.replace(TRUE, sha256="0" * 64)


def small(remote: Remote) -> Cifar:
    """sCIFAR with few images, whose published archive is `remote`."""
    task = SCifar(train=COUNT, test=10)
    task.remotes = (remote,)
    return task


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / ARCHIVE.name
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize(
    ("remote", "expected", "said"),
    [
        (TRUE, "yes", []),
        (OTHER, "no", [f"has sha256 {TRUE.sha256[:12]}..., the published {ARCHIVE.name} has 000000000000..."]),
        (ARCHIVE, "no", [f"has {len(CONTENT):,} bytes, the published {ARCHIVE.name} has 170,052,171"]),
        (structs.replace(ARCHIVE, sha256=None, bytes=None), "unverified", []),
    ],
)
def test_an_archive_is_known_by_its_digest_whatever_its_name(tmp_path, archive, remote, expected, said):
    path = archive.rename(tmp_path / "any.bin")
    task = small(remote)
    table = store.prepare(task, task.options(), tmp_path / "sCIFAR", from_path=path)
    assert table.published == expected
    assert table.notes == [f"not the published data: {path} {one}" for one in said]
    assert store.load(task, task.options(), tmp_path / "sCIFAR").published == expected


def test_of_an_unpacked_folder_nothing_is_claimed(tmp_path):
    given = formats.tree(tmp_path / "given", formats.cifar(IMAGES, LABELS, COUNT))
    task, where = small(TRUE), tmp_path / "sCIFAR"
    assert store.prepare(task, task.options(), where, from_path=given).published == "unverified"


def test_commands_on_data_name_those_that_are_not_the_published_ones(machine, archive, monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "sCIFAR", small(ARCHIVE))
    data, where = ("--data-dir", str(machine.folder / "data")), machine.folder / "data/sCIFAR"
    store.prepare(small(ARCHIVE), SCifar.options(), where, from_path=archive)
    done = machine.run("data", "prepare", "sCIFAR", *data)
    assert done.stderr == (
        f"warning: not the published data: {archive} has {len(CONTENT):,} bytes, "
        f"the published {ARCHIVE.name} has 170,052,171\n"
    )
    said = f"the archive {archive} (not the published data)"
    assert done.stdout == f"{where}: train 54, validation 6, test 10; {said}\n"
    assert f"prepared      from {said}\n" in machine.run("data", "info", "sCIFAR", *data).stdout
    assert f"\nsource: {said}\n" in machine.run("data", "check", "sCIFAR", *data).stdout
    assert machine.json("data", "check", "sCIFAR", *data)["published"] == "no"
    plan = machine.run("plan", "sCIFAR", *data).stdout
    assert "\nInstance sCIFAR: sCIFAR, without --tune, not the published data.\n" in plan
    assert f"\nData: {said}.\n" in plan
    found = machine.json("plan", "sCIFAR", *data)
    assert (found["label"], found["data"]) == (
        "sCIFAR, without --tune, not the published data",
        {
            "source": f"the archive {archive}",
            "kind": "folder",
            "published": "no",
            "sha256": machine.json("data", "check", "sCIFAR", *data)["sha256"],
        },
    )


def test_a_ladder_on_data_that_are_not_the_published_ones_begins_with_a_warning(finished, tmp_path):
    here = finished.copy(tmp_path / "here")
    data = here.folder / "data"
    shutil.copytree(SHARED / "share/lrurun/sDigits", data / "sDigits")
    path = data / "sDigits/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "folder", "published": "no"}))
    done = here.run("ladder", "sDigits", "--profile", "smoke", "--data-dir", str(data))
    assert done.stderr.splitlines()[:2] == [
        f"warning: {data}/sDigits: not the published data: scikit-learn load_digits",
        "nothing to do: every run of this ladder is finished",
    ]
