"""Downloads from a server on this machine, resumed, checked and refused; whether a copy is the published data."""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import tarfile
import threading
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from lrurun import data as tasks
from lrurun.data import download, store
from lrurun.data.downloaded.images import ARCHIVE, Cifar, SCifar
from lrurun.data.task import Remote
from lrurun.errors import LrurunError
from tests.conftest import SHARED
from tests.harness import formats

CONTENT = np.random.RandomState(0).bytes(300_000)


SHA = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT, as badly as it is asked to."""

    content = CONTENT
    cuts: list[int]
    """Bytes after which the next answers break off."""
    ranges = True
    etag = '"one"'
    status = 200
    silent = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.cuts, self.asked = [], []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def remote(self, **changes) -> Remote:
        return Remote(
            **{"url": f"http://127.0.0.1:{self.server_port}/file.bin", "name": "file.bin", "bytes": len(CONTENT)}
            | {"sha256": SHA}
            | changes
        )


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, start = self.server, 0
        given = self.headers.get("Range")
        server.asked.append(given)
        if server.status != 200:
            self.send_error(server.status)
            return
        if server.silent:
            time.sleep(3)
            return
        if given and server.ranges and self.headers.get("If-Range") == server.etag:
            start = int(given.removeprefix("bytes=").removesuffix("-"))
        if start >= len(server.content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(server.content) - start))
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        end = server.cuts.pop(0) if server.cuts else len(server.content)
        self.wfile.write(server.content[start : max(start, end)])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "BLOCK", 1 << 15)
    server = Server()
    yield server
    server.shutdown()
    server.server_close()


def fetch(remote: Remote, folder: Path) -> list[tuple[str, int, int | None]]:
    reported = []
    path = download.fetch(remote, folder, lambda *progress: reported.append(progress))
    assert path == folder / "file.bin"
    assert path.read_bytes() == CONTENT
    assert sorted(p.name for p in folder.iterdir()) == ["file.bin"]
    return reported


def refused(remote: Remote, folder: Path) -> tuple[str, str | None]:
    with pytest.raises(LrurunError) as caught:
        download.fetch(remote, folder, lambda *_: None)
    return caught.value.message, caught.value.hint


def test_a_file_is_fetched_once_and_its_progress_told(server, tmp_path):
    reported = fetch(server.remote(), tmp_path / "d")
    assert reported[-1] == ("checking file.bin", len(CONTENT), len(CONTENT))
    assert ("downloading file.bin", len(CONTENT), len(CONTENT)) in reported
    fetch(server.remote(), tmp_path / "d")
    assert server.asked == [None]


def test_a_broken_connection_is_gone_on_from_where_it_broke(server, tmp_path):
    server.cuts = [110_000, 220_000]
    fetch(server.remote(), tmp_path)
    assert server.asked[0] is None
    starts = [int(given.removeprefix("bytes=").removesuffix("-")) for given in server.asked[1:]]
    assert len(starts) == 2
    assert 0 < starts[0] <= 110_000 < starts[1] <= 220_000


def test_the_next_command_goes_on_too(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    server.cuts = [150_000]
    message, _ = refused(server.remote(), tmp_path)
    assert message.endswith(": the connection was interrupted; the same command resumes the download")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file.bin.part", "file.bin.part.tag"]
    fetch(server.remote(), tmp_path)
    assert server.asked[1] is not None


def test_a_file_that_changed_meanwhile_is_begun_again(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    server.cuts = [150_000]
    server.content = bytes(len(CONTENT))
    refused(server.remote(), tmp_path)
    server.content, server.etag = CONTENT, '"two"'
    fetch(server.remote(sha256=None, bytes=None), tmp_path)


@pytest.mark.parametrize("change", [{"ranges": False}, {"etag": ""}])
def test_a_server_that_cannot_go_on_begins_again(server, tmp_path, change):
    for name, value in change.items():
        setattr(server, name, value)
    server.cuts = [150_000]
    fetch(server.remote(), tmp_path)


def test_another_file_than_published_is_refused_and_not_kept(server, tmp_path):
    server.content = bytes(len(CONTENT))
    message, hint = refused(server.remote(), tmp_path)
    assert message.startswith(f"{tmp_path}/file.bin.part: wrong checksum: expected {SHA[:12]}..., found ")
    assert hint == "the same command downloads it again"
    assert list(tmp_path.iterdir()) == []
    server.content = CONTENT
    fetch(server.remote(), tmp_path)


def test_a_file_of_another_size_is_refused(server, tmp_path):
    server.content = CONTENT[:-1]
    message, _ = refused(server.remote(), tmp_path)
    assert message.endswith(f"expected {len(CONTENT):,} bytes, found {len(CONTENT) - 1:,}")
    assert list(tmp_path.iterdir()) == []


def test_a_bad_copy_that_a_person_put_there_is_left_alone(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(CONTENT[:100])
    message, hint = refused(server.remote(), tmp_path)
    assert message == f"{tmp_path}/file.bin: expected {len(CONTENT):,} bytes, found 100"
    assert hint == f"remove it, or put a good copy there: {tmp_path}/file.bin"
    assert (tmp_path / "file.bin").read_bytes() == CONTENT[:100]
    assert server.asked == []


@pytest.mark.parametrize("status", [404, 500])
def test_what_the_server_refuses_is_named_at_once(server, tmp_path, status):
    server.status = status
    message, _ = refused(server.remote(), tmp_path / "d")
    assert message.startswith(f"{server.remote().url}: the server answered {status} ")
    assert server.asked == [None]
    assert not (tmp_path / "d").exists()


def test_no_server_and_no_name_are_named_within_seconds(tmp_path):
    began = time.monotonic()
    for url in ("http://127.0.0.1:9/file.bin", "https://no-such-host.invalid/file.bin"):
        message, _ = refused(Remote(url=url, name="file.bin"), tmp_path / "d")
        assert message == f"{url}: no connection"
    assert time.monotonic() - began < 15
    assert not (tmp_path / "d").exists()


def test_a_name_server_that_never_answers_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "NAME_SECONDS", 0.2)
    monkeypatch.setattr(download, "_look_up", lambda host: time.sleep(5))
    message, _ = refused(Remote(url="https://example.org/file.bin", name="file.bin"), tmp_path / "d")
    assert message == "https://example.org/file.bin: no connection: no answer from the name server"


def test_a_server_that_falls_silent_is_not_waited_for(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "READ_SECONDS", 0.3)
    server.silent = True
    message, _ = refused(server.remote(), tmp_path / "d")
    assert message == f"{server.remote().url}: no answer in time"


IMAGE_COUNT = 60
IMAGES = np.random.default_rng(0).integers(0, 256, (IMAGE_COUNT + 10, 32, 32, 3), np.uint8)


LABELS = np.arange(IMAGE_COUNT + 10) % 10


def tarred() -> bytes:
    """A gzipped archive with the files of CIFAR-10, but few and random images."""
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in formats.cifar_archive(formats.cifar(IMAGES, LABELS, IMAGE_COUNT)).items():
            member = tarfile.TarInfo(name.rstrip("/"))
            member.type, member.size = (tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE), len(content)
            archive.addfile(member, BytesIO(content))
    return buffer.getvalue()


ARCHIVED = tarred()


TRUE = structs.replace(ARCHIVE, bytes=len(ARCHIVED), sha256=hashlib.sha256(ARCHIVED).hexdigest())


OTHER = structs.replace(TRUE, sha256="0" * 64)


def small(remote: Remote) -> Cifar:
    """sCIFAR with few images, whose published archive is `remote`."""
    task = SCifar(train=IMAGE_COUNT, test=10)
    task.remotes = (remote,)
    return task


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / ARCHIVE.name
    path.write_bytes(ARCHIVED)
    return path


@pytest.mark.parametrize(
    ("remote", "expected", "said"),
    [
        (TRUE, "yes", []),
        (OTHER, "no", [f"has sha256 {TRUE.sha256[:12]}..., the published {ARCHIVE.name} has 000000000000..."]),
        (ARCHIVE, "no", [f"has {len(ARCHIVED):,} bytes, the published {ARCHIVE.name} has 170,052,171"]),
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
    given = formats.tree(tmp_path / "given", formats.cifar(IMAGES, LABELS, IMAGE_COUNT))
    task, where = small(TRUE), tmp_path / "sCIFAR"
    assert store.prepare(task, task.options(), where, from_path=given).published == "unverified"


def test_commands_on_data_name_those_that_are_not_the_published_ones(machine, archive, monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "sCIFAR", small(ARCHIVE))
    data, where = ("--data-dir", str(machine.folder / "data")), machine.folder / "data/sCIFAR"
    store.prepare(small(ARCHIVE), SCifar.options(), where, from_path=archive)
    done = machine.run("data", "prepare", "sCIFAR", *data)
    assert done.stderr == (
        f"warning: not the published data: {archive} has {len(ARCHIVED):,} bytes, "
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
