"""Files from the network: resumed where they broke off, checked before anything reads them.

TFDS's download manager neither resumes nor has a timeout, so a broken connection at the end of two gigabytes would
start them again, and a machine without a network would wait for minutes; this asks for the missing bytes instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lrurun.errors import LrurunError
from lrurun.tasks.base import Remote, Tell

NAME_SECONDS = 6.0
"""For the name server, which has no limit of its own that can be set from here."""
CONNECT_SECONDS = 4.0
"""For each address of the server."""
READ_SECONDS = 30.0
ATTEMPTS = 4
"""Goes at a file that has begun to arrive; the first connection is tried once."""
BLOCK = 1 << 20


def fetch(remote: Remote, folder: Path, tell: Tell) -> Path:
    """The file `folder/remote.name`, downloaded if it is not there; `<name>.part` keeps what came of a broken download.

    Raises:
        LrurunError: it cannot be had, or it is not the file that was published.
    """
    target = folder / remote.name
    if target.is_file():
        _check(remote, target, tell, remedy=f"remove it, or put a good copy there: {target}")
        return target
    part = folder / f"{remote.name}.part"
    try:
        _download(remote, part, tell)
        try:
            _check(remote, part, tell, remedy="the same command downloads it again")
        except LrurunError:
            _forget(part)
            raise
        part.rename(target)
        _tag(part).unlink(missing_ok=True)
    except OSError as error:
        raise LrurunError(
            f"{error.filename or part}: {error.strerror}", "check space and permissions, or choose another --data-dir"
        ) from None
    return target


def _download(remote: Remote, part: Path, tell: Tell) -> None:
    import requests

    _resolve(remote.url)
    came = False
    for attempt in range(ATTEMPTS):
        try:
            with requests.Session() as session:
                came = _take(session, remote, part, tell) or came
            return
        except requests.RequestException as error:
            # what has begun to arrive is worth another go; a network that is not there is not
            came = came or part.exists()
            if isinstance(error, requests.HTTPError) or not came or attempt == ATTEMPTS - 1:
                raise LrurunError(f"{remote.url}: {_why(error)}", None) from None


def _resolve(url: str) -> None:
    """Waits for the server's address, and not for ever.

    Raises:
        LrurunError: no answer in time. A name without an address is left to the request, which may go through a proxy.
    """
    asked = threading.Thread(target=_ask, args=(urlsplit(url).hostname,), daemon=True)
    asked.start()
    asked.join(NAME_SECONDS)
    if asked.is_alive():
        raise LrurunError(f"{url}: no connection: no answer from the name server")


def _ask(host: str | None) -> None:
    with contextlib.suppress(OSError):
        socket.getaddrinfo(host, None)


def _take(session: Any, remote: Remote, part: Path, tell: Tell) -> bool:
    """One request for what is still missing; whether anything came."""
    have = _size(part)
    headers = {"Accept-Encoding": "identity"}  # the bytes as they lie on the server, or offsets mean nothing
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": _tag(part).read_text()}
    with session.get(remote.url, headers=headers, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS)) as answer:
        if answer.status_code == 416:  # nothing is left, or the file has become shorter
            if have == remote.bytes:
                return True
            _forget(part)
            return _take(session, remote, part, tell)
        answer.raise_for_status()
        resumed = answer.status_code == 206
        have = have if resumed else 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else remote.bytes
        tag = answer.headers.get("ETag", "")
        if tag.startswith("W/"):
            tag = ""
        part.parent.mkdir(parents=True, exist_ok=True)
        _tag(part).write_text(tag or answer.headers.get("Last-Modified", ""))
        with part.open("ab" if resumed else "wb") as file:
            for block in answer.iter_content(BLOCK):
                file.write(block)
                have += len(block)
                tell(f"downloading {remote.name}", have, total)
    if total is not None and have < total:
        import requests

        raise requests.exceptions.ChunkedEncodingError("the connection ended early")
    return True


def _check(remote: Remote, path: Path, tell: Tell, remedy: str) -> None:
    size = path.stat().st_size
    if remote.bytes is not None and size != remote.bytes:
        raise LrurunError(f"{path}: expected {remote.bytes:,} bytes, found {size:,}", remedy)
    if remote.sha256 is None:
        return
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            done += len(block)
            tell(f"checking {remote.name}", done, size)
    if digest.hexdigest() != remote.sha256:
        found = digest.hexdigest()[:12]
        raise LrurunError(f"{path}: wrong checksum: expected {remote.sha256[:12]}..., found {found}...", remedy)


def _tag(part: Path) -> Path:
    """What the server called the version of the file that `part` is the beginning of."""
    return part.with_name(f"{part.name}.tag")


def _size(part: Path) -> int:
    """Bytes that can be gone on from."""
    with contextlib.suppress(OSError):
        if _tag(part).read_text():
            return part.stat().st_size
    return 0


def _forget(part: Path) -> None:
    for path in (part, _tag(part)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _why(error: Exception) -> str:
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "the server's certificate was not accepted"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off; the same command goes on from there"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
