"""Downloads from a server on this machine, resumed, checked and refused; whether a copy is the published data."""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import threading
import time

import numpy as np
import pytest
from msgspec import structs

from lrurun.data import download, task_data, tasks
from lrurun.data.downloaded import images
from lrurun.data.downloaded.images import ARCHIVE, PICKLED_ARCHIVE, SCifar
from lrurun.data.task import Remote
from lrurun.errors import LrurunError
from tests.harness import formats
from tests.harness.machine import FINISHED_LADDER
from tests.harness.shared import SHARED

CONTENT = np.random.RandomState(0).bytes(300_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT, as badly as it is asked to."""

    content = CONTENT
    ranges = True
    length = True
    etag = '"one"'
    status = 200
    silent = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cuts, self.asked = [], []
        """Bytes after which the next answers break off, and the ranges that were asked for."""
        self.url = f"http://127.0.0.1:{self.server_port}/file.bin"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def remote(self, **changes) -> Remote:
        return Remote(**{"url": self.url, "name": "file.bin", "bytes": len(CONTENT), "sha256": SHA} | changes)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server, start = self.server, 0
        given = self.headers.get("Range")
        server.asked.append(given)
        if server.status != 200:
            return self.send_error(server.status)
        if server.silent:
            return time.sleep(2)
        if given and server.ranges and self.headers.get("If-Range") == server.etag:
            start = int(given.removeprefix("bytes=").removesuffix("-"))
        if start >= len(server.content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if server.length:
            self.send_header("Content-Length", str(len(server.content) - start))
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        end = server.cuts.pop(0) if server.cuts else len(server.content)
        self.wfile.write(server.content[start : max(start, end)])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "BLOCK", 1 << 15)
    server = Server()
    yield server
    server.shutdown()
    server.server_close()


def fetch(remote, folder):
    reported = []
    path = download.fetch(remote, folder, lambda *progress: reported.append(progress))
    assert path == folder / "file.bin"
    assert path.read_bytes() == CONTENT
    assert sorted(p.name for p in folder.iterdir()) == ["file.bin"]
    return reported


def refused(remote, folder):
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


def test_the_next_command_goes_on_too_or_begins_again_with_a_file_that_changed(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    server.cuts = [150_000]
    message, _ = refused(server.remote(), tmp_path)
    assert message.endswith(": the connection was interrupted; the same command resumes the download")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file.bin.part", "file.bin.part.tag"]
    fetch(server.remote(), tmp_path)
    assert server.asked[1] is not None
    server.cuts, server.content = [150_000], bytes(len(CONTENT))
    refused(server.remote(), tmp_path / "changed")
    server.content, server.etag = CONTENT, '"two"'
    fetch(server.remote(sha256=None, bytes=None), tmp_path / "changed")


@pytest.mark.parametrize("change", [{"ranges": False}, {"etag": ""}, {"length": False}])
def test_a_server_that_says_less_is_understood(server, tmp_path, change):
    for name, value in change.items():
        setattr(server, name, value)
    server.cuts = [150_000]
    fetch(server.remote(), tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes(len(CONTENT)), f"wrong checksum: expected {SHA[:12]}..., found "),
        (CONTENT[:-1], "expected 300,000 bytes, found 299,999"),
    ],
)
def test_another_file_than_published_is_refused_and_not_kept(server, tmp_path, content, message):
    server.content = content
    found, hint = refused(server.remote(), tmp_path)
    assert found.startswith(f"{tmp_path}/file.bin.part: {message}")
    assert hint == "the same command downloads it again"
    assert list(tmp_path.iterdir()) == []
    server.content = CONTENT
    fetch(server.remote(), tmp_path)


def test_a_bad_copy_that_a_person_put_there_is_left_alone(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(CONTENT[:100])
    message, hint = refused(server.remote(), tmp_path)
    assert message == f"{tmp_path}/file.bin: expected 300,000 bytes, found 100"
    assert hint == f"remove it, or put a good copy there: {tmp_path}/file.bin"
    assert (tmp_path / "file.bin").read_bytes() == CONTENT[:100]
    assert server.asked == []


def test_no_answer_is_named_at_once(server, tmp_path, monkeypatch):
    remote = server.remote()
    for status in (404, 500):
        server.status, server.asked = status, []
        assert refused(remote, tmp_path / "d")[0].startswith(f"{remote.url}: the server answered {status} ")
        assert server.asked == [None]
    monkeypatch.setattr(download, "READ_SECONDS", 0.3)
    server.status, server.silent = 200, True
    assert refused(remote, tmp_path / "d")[0] == f"{remote.url}: no answer in time"
    for url in ("http://127.0.0.1:9/file.bin", "https://no-such-host.invalid/file.bin"):
        assert refused(Remote(url=url, name="file.bin"), tmp_path / "d")[0] == f"{url}: no connection"
    monkeypatch.setattr(download, "NAME_SECONDS", 0.2)
    monkeypatch.setattr(download, "_look_up", lambda host: time.sleep(5))
    message, _ = refused(Remote(url="https://example.org/file.bin", name="file.bin"), tmp_path / "d")
    assert message == "https://example.org/file.bin: no connection: no answer from the name server"
    assert not (tmp_path / "d").exists()


# whether a copy is the published data

IMAGES = np.random.default_rng(0).integers(0, 256, (70, 32, 32, 3), np.uint8)
FILES = formats.cifar(IMAGES, np.arange(70) % 10, 60)


def small(remote):
    """sCIFAR with few images, whose published archive is `remote`."""
    task = SCifar(train=60, test=10)
    task.remotes = (remote,)
    return task


@pytest.fixture
def archive(tmp_path):
    return formats.tar(tmp_path / "any.bin", formats.cifar_archive(FILES))


@pytest.mark.parametrize("published", ["yes", "no", "other size", "unverified"])
def test_an_archive_is_known_by_its_digest_whatever_its_name(tmp_path, archive, published):
    content = archive.read_bytes()
    size, sha256 = len(content), hashlib.sha256(content).hexdigest()
    said, remote = [], structs.replace(ARCHIVE, bytes=size, sha256=sha256)
    if published == "no":
        remote = structs.replace(remote, sha256="0" * 64)
        said = [f"{archive} has sha256 {sha256[:12]}..., the published {ARCHIVE.name} has 000000000000..."]
    elif published == "other size":
        remote, said = ARCHIVE, [f"{archive} has {size:,} bytes, the published {ARCHIVE.name} has 170,052,171"]
    elif published == "unverified":
        remote = structs.replace(ARCHIVE, sha256=None, bytes=None)
    data, table = formats.prepared(small(remote), tmp_path / "out", archive)
    assert data.published == table.published == ("no" if said else published)
    assert table.notes == [f"not the published data: {one}" for one in said]
    unpacked = formats.tree(tmp_path / "given", FILES)  # of which nothing is claimed
    assert formats.prepared(small(remote), tmp_path / "unpacked", unpacked)[1].published == "unverified"


def test_the_archive_of_pickles_is_compared_with_the_published_one(tmp_path, monkeypatch):
    members = formats.cifar_pickled_archive(formats.cifar_pickled(FILES))
    archive = formats.tar(tmp_path / "cifar-10-python.tar.gz", members)
    content = archive.read_bytes()
    _, table = formats.prepared(small(ARCHIVE), tmp_path / "out", archive)
    said = f"{archive} has {len(content):,} bytes, the published cifar-10-python.tar.gz has 170,498,071"
    assert (table.published, table.notes) == ("no", [f"not the published data: {said}"])
    known = structs.replace(PICKLED_ARCHIVE, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(images, "PICKLED_ARCHIVE", known)
    assert formats.prepared(small(ARCHIVE), tmp_path / "again", archive)[1].published == "yes"


def test_commands_on_data_name_those_that_are_not_the_published_ones(machine, archive, monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "sCIFAR", small(ARCHIVE))
    data, where = ("sCIFAR", "--data-dir", str(machine.folder / "data")), machine.folder / "data/sCIFAR"
    task_data.prepare(small(ARCHIVE), SCifar.options(), where, from_path=archive)
    done = machine.run("data", "prepare", *data)
    assert done.stderr.startswith(f"warning: not the published data: {archive} has ")
    said = f"the archive {archive} (not the published data)"
    assert done.stdout == f"{where}: train 54, validation 6, test 10; {said}\n"
    assert f"prepared      from {said}\n" in machine.run("data", "info", *data).stdout
    assert f"\nsource: {said}\n" in machine.run("data", "check", *data).stdout
    checked = machine.json("data", "check", *data)
    assert checked["published"] == "no"
    plan = machine.run("plan", *data).stdout
    assert "\nInstance sCIFAR: sCIFAR, without --tune, not the published data.\n" in plan
    assert f"\nData: {said}.\n" in plan
    found = machine.json("plan", *data)
    assert found["label"] == "sCIFAR, without --tune, not the published data"
    source = {"source": f"the archive {archive}", "kind": "folder", "published": "no"}
    assert found["data"] == source | {"sha256": checked["sha256"]}


def test_a_ladder_on_data_that_are_not_the_published_ones_begins_with_a_warning(finished, tmp_path):
    here = finished.copy(tmp_path / "here")
    data = here.folder / "data"
    shutil.copytree(SHARED / "share/lrurun/sDigits", data / "sDigits")
    path = data / "sDigits/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "folder", "published": "no"}))
    done = here.run(*FINISHED_LADDER, "--data-dir", str(data))
    assert done.stderr.splitlines()[:2] == [
        f"warning: {data}/sDigits: not the published data: scikit-learn load_digits",
        "nothing to do: every run of this ladder is finished",
    ]
