"""Downloads from a real server on this machine: resumed, checked, and refused for what they are."""

from __future__ import annotations

import hashlib
import http.server
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from lrurun.data import download
from lrurun.data.task import Remote
from lrurun.errors import LrurunError

CONTENT = np.random.RandomState(0).bytes(3_000_000)
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
        threading.Thread(target=self.serve_forever, daemon=True).start()

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
def server():
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
    server.cuts = [1_100_000, 2_200_000]
    fetch(server.remote(), tmp_path)
    assert server.asked[0] is None
    starts = [int(given.removeprefix("bytes=").removesuffix("-")) for given in server.asked[1:]]
    assert len(starts) == 2
    assert 0 < starts[0] <= 1_100_000 < starts[1] <= 2_200_000


def test_the_next_command_goes_on_too(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    server.cuts = [1_500_000]
    message, _ = refused(server.remote(), tmp_path)
    assert message.endswith(": the connection was interrupted; the same command resumes the download")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file.bin.part", "file.bin.part.tag"]
    fetch(server.remote(), tmp_path)
    assert server.asked[1] is not None


def test_a_file_that_changed_meanwhile_is_begun_again(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    server.cuts = [1_500_000]
    server.content = bytes(len(CONTENT))
    refused(server.remote(), tmp_path)
    server.content, server.etag = CONTENT, '"two"'
    fetch(server.remote(sha256=None, bytes=None), tmp_path)


@pytest.mark.parametrize("change", [{"ranges": False}, {"etag": ""}])
def test_a_server_that_cannot_go_on_begins_again(server, tmp_path, change):
    for name, value in change.items():
        setattr(server, name, value)
    server.cuts = [1_500_000]
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


@pytest.mark.parametrize("status", [403, 404, 500])
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
