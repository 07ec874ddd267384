"""Which process this is, and whether the process that holds a run still exists."""

from __future__ import annotations

import functools
import getpass
import os
import socket
import sys
from collections.abc import Iterable

from lrurun.console import clean
from lrurun.errors import LrurunError
from lrurun.ledger.values import Owner

NODE = "LRURUN_NODE"
"""The environment variable with an engine's name of the node that this process runs on, as executors set it."""

_LINUX = sys.platform.startswith("linux")


def this_process() -> Owner:
    """This process, as recorded with the attempts that it opens."""
    pid = os.getpid()
    started = _started(pid)
    if started is None:
        raise RuntimeError("the start time of this process cannot be read")
    return Owner(host=host(), boot=_boot(), namespace=_namespace(), pid=pid, pid_started=started, user=user())


@functools.cache
def user() -> str | None:
    """The name of the operating system's user, None if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def belongs_to_others(subject: str, users: Iterable[str], *, several: bool = False) -> LrurunError:
    """The error about an instance, or several runs, of other users of a server, which a command leaves alone."""
    return LrurunError(
        f"{subject}: {'belong' if several else 'belongs'} to {', '.join(map(clean, users))}",
        "ask them first; with --all-users, it is done",
    )


def host() -> str:
    """The name of this host, with the engine's node where that has another name: several nodes may share a machine.

    Owners with equal hosts are therefore on one machine, as without an engine.
    """
    name, node = socket.gethostname(), os.environ.get(NODE, "")
    return name if node in ("", name, name.partition(".")[0]) else f"{node}@{name}"


def alive(owner: Owner) -> bool:
    """Whether a process with the owner's pid and start time exists here. Zombies do not count, stopped processes do.

    Meaningful only for an owner on this host, boot and pid namespace. If the system hides the processes of other
    users, one of theirs counts as alive.
    """
    started = _started(owner.pid)
    if started is None and _hidden(owner.pid):
        # Taking a run from a living process is worse than waiting for a process that we cannot see.
        return True
    # Start times are in ticks of 10 ms on Linux, in microseconds elsewhere: half a tick allows for rounding only.
    return started is not None and abs(started - owner.pid_started) < 0.005


def _started(pid: int) -> float | None:
    """When a process started, None if there is none or it is a zombie.

    On Linux in seconds after boot, which setting the clock does not change; elsewhere in seconds since 1970.
    """
    if _LINUX:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name of the program is in parentheses and may itself contain spaces and parentheses.
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in (b"Z", b"X", b"x") else int(fields[19]) / os.sysconf("SC_CLK_TCK")
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return None


def _hidden(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not os.path.exists(f"/proc/{pid}/stat") if _LINUX else True
    except OSError:
        return False
    return False


@functools.cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        import psutil

        # The time of boot changes a little when the clock is set; a minute is coarse enough.
        return f"boot-{round(psutil.boot_time() / 60)}"


@functools.cache
def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
