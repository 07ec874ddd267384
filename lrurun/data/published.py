"""Whether a copy of a task's data is the published one, as far as digests are known."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lrurun.data.copies.reading import open_regular
from lrurun.data.task import Progress, Published, Remote, Task

_BLOCK = 1 << 20


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
    found = digest(archive, progress)
    if found in known:
        return "yes", ""
    wanted = ", ".join(f"{sha256[:12]}..." for sha256 in known)
    return "no", f"not the published data: {archive} has sha256 {found[:12]}..., the published {names} has {wanted}"


def digest(path: Path, progress: Progress) -> str:
    """The sha256 of a file, in hex digits."""
    found, done, size = hashlib.sha256(), 0, path.stat().st_size
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            found.update(block)
            done += len(block)
            progress(f"checking {path.name}", done, size)
    return found.hexdigest()


def complete(table: Mapping[str, Any], task: Task | None) -> dict[str, Any]:
    """A manifest, or what a run recorded about its data, with "published" where an older version has left it out.

    Downloads have always been compared with the published digests. `task` is None where it is not known.
    """
    kind = table.get("kind")
    if "published" in table or kind not in ("folder", "download"):
        return dict(table)
    remotes = task.remotes if task is not None else ()
    verified = kind == "download" and bool(remotes) and all(remote.sha256 for remote in remotes)
    return {**table, "published": "yes" if verified else "unverified"}
