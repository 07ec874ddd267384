"""Published files: interrupted downloads are resumed, and archives are compared with the published digests.

TFDS's download manager neither resumes nor has a timeout: after a broken connection it would start two gigabytes again,
and without a network it would wait for minutes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lrurun.data.arrays import sha256
from lrurun.data.task import Progress, Published, Remote
from lrurun.errors import LrurunError

NAME_SECONDS = 6.0
"""Time for name resolution, which has no timeout of its own."""
CONNECT_SECONDS = 4.0
"""Time to connect to each address of the server."""
READ_SECONDS = 30.0
ATTEMPTS = 4
"""Attempts for a file of which some bytes have arrived; before that, there is one."""
BLOCK = 1 << 20


def fetch(remote: Remote, folder: Path, progress: Progress) -> Path:
    """The file `folder/remote.name`, downloaded if it is missing; `<name>.part` holds an interrupted download.

    Raises:
        LrurunError: it cannot be downloaded, or it is not the published file.
    """
    target = folder / remote.name
    if target.is_file():
        _check(remote, target, progress, remedy=f"remove it, or put a good copy there: {target}")
        return target
    part = folder / f"{remote.name}.part"
    try:
        _download(remote, part, progress)
        try:
            _check(remote, part, progress, remedy="the same command downloads it again")
        except LrurunError:
            _remove(part)
            raise
        part.rename(target)
        _tag(part).unlink(missing_ok=True)
    except OSError as error:
        raise LrurunError(
            f"{error.filename or part}: {error.strerror}", "check space and permissions, or choose another --data-dir"
        ) from None
    return target


def identify(archive: Path, remotes: Sequence[Remote], progress: Progress) -> tuple[Published, str]:
    """Whether the file is one of the published `remotes`, and a note if it is not.

    "unverified" where no digest is published.
    """
    known = {remote.sha256: remote for remote in remotes if remote.sha256 is not None}
    if not known:
        return "unverified", ""
    size = archive.stat().st_size
    names = ", ".join(remote.name for remote in known.values())
    if all(remote.bytes not in (None, size) for remote in known.values()):
        sizes = ", ".join(f"{remote.bytes:,}" for remote in known.values())
        return "no", f"not the published data: {archive} has {size:,} bytes, the published {names} has {sizes}"
    digest = sha256(archive, lambda done, total: progress(f"checking {archive.name}", done, total))
    if digest in known:
        return "yes", ""
    digests = ", ".join(f"{sha256[:12]}..." for sha256 in known)
    return "no", f"not the published data: {archive} has sha256 {digest[:12]}..., the published {names} has {digests}"


def _download(remote: Remote, part: Path, progress: Progress) -> None:
    import requests

    _resolve(remote.url)
    for attempt in range(ATTEMPTS):
        try:
            with requests.Session() as session:
                _request(session, remote, part, progress)
            return
        except requests.RequestException as error:
            # a file that has begun to arrive is requested again; without a network, there is no second attempt
            if isinstance(error, requests.HTTPError) or not part.exists() or attempt == ATTEMPTS - 1:
                raise LrurunError(f"{remote.url}: {_reason(error)}") from None


def _resolve(url: str) -> None:
    """Waits for the server's address, for a limited time.

    Raises:
        LrurunError: no answer in time. An unknown name is not an error here: the request may use a proxy.
    """
    query = threading.Thread(target=_look_up, args=(urlsplit(url).hostname,), daemon=True)
    query.start()
    query.join(NAME_SECONDS)
    if query.is_alive():
        raise LrurunError(f"{url}: no connection: no answer from the name server")


def _look_up(host: str | None) -> None:
    with contextlib.suppress(OSError):
        socket.getaddrinfo(host, None)


def _request(session: Any, remote: Remote, part: Path, progress: Progress) -> None:
    """Requests the missing bytes."""
    received = _size(part)
    headers = {"Accept-Encoding": "identity"}  # uncompressed, so that offsets count bytes of the file
    if received:
        headers |= {"Range": f"bytes={received}-", "If-Range": _tag(part).read_text()}
    with session.get(remote.url, headers=headers, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS)) as answer:
        if answer.status_code == 416:  # the file is complete, or has become shorter
            if received == remote.bytes:
                return
            _remove(part)
            return _request(session, remote, part, progress)
        answer.raise_for_status()
        resumed = answer.status_code == 206
        received = received if resumed else 0
        length = answer.headers.get("Content-Length")
        total = received + int(length) if length else remote.bytes
        tag = answer.headers.get("ETag", "")
        if tag.startswith("W/"):
            tag = ""
        part.parent.mkdir(parents=True, exist_ok=True)
        _tag(part).write_text(tag or answer.headers.get("Last-Modified", ""))
        with part.open("ab" if resumed else "wb") as file:
            for block in answer.iter_content(BLOCK):
                file.write(block)
                received += len(block)
                progress(f"downloading {remote.name}", received, total)
    if total is not None and received < total:
        import requests

        raise requests.exceptions.ChunkedEncodingError("the connection ended early")


def _check(remote: Remote, path: Path, progress: Progress, remedy: str) -> None:
    size = path.stat().st_size
    if remote.bytes is not None and size != remote.bytes:
        raise LrurunError(f"{path}: expected {remote.bytes:,} bytes, found {size:,}", remedy)
    if remote.sha256 is None:
        return
    digest = sha256(path, lambda done, total: progress(f"checking {remote.name}", done, total))
    if digest != remote.sha256:
        raise LrurunError(f"{path}: wrong checksum: expected {remote.sha256[:12]}..., found {digest[:12]}...", remedy)


def _tag(part: Path) -> Path:
    """The file that holds the server's name for the version that `part` is the beginning of."""
    return part.with_name(f"{part.name}.tag")


def _size(part: Path) -> int:
    """The bytes from which a download can be resumed."""
    with contextlib.suppress(OSError):
        if _tag(part).read_text():
            return part.stat().st_size
    return 0


def _remove(part: Path) -> None:
    for path in (part, _tag(part)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _reason(error: Exception) -> str:
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "the server's certificate was not accepted"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection was interrupted; the same command resumes the download"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
