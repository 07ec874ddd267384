"""A private PostgreSQL server for tests, and databases on it.

It needs PostgreSQL's programs (Debian: postgresql), not a running server. Without them tests are skipped; with
LRURUN_CI set, they fail.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lrurun.ledger.ledger import Ledger
from lrurun.server import Server

USER = "lrurun"
"""A role without superuser rights, which owns the databases."""
LOCKED, PASSWORD = "locked", "geheim"
"""A role that needs a password."""
_CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
fsync = off
full_page_writes = off
shared_buffers = 32MB
max_connections = 60
"""
_WITH_PARENT = [shutil.which("setpriv"), "--pdeathsig", "QUIT"] if shutil.which("setpriv") else []
"""Before a command: it ends with this process. (A function of this process, called in the child, would be a fork.)"""
_ACCESS = f"host all {LOCKED} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"


class PrivateServer:
    """A server of this process, which ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._programs = programs()
        # PostgreSQL refuses to run as root.
        self._account: dict[str, Any] = {}
        if os.geteuid() == 0:
            entry = pwd.getpwnam("postgres")
            os.chown(folder, entry.pw_uid, entry.pw_gid)
            self._account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        self._data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        made = ["initdb", "-D", self._data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8"]
        self._run(*made, "--no-sync")
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(_CONFIGURATION.format(port=self.port))
        (self._data / "pg_hba.conf").write_text(_ACCESS)
        self.start()
        self.admin(f"CREATE ROLE {USER} LOGIN")
        self.admin(f"CREATE ROLE {LOCKED} LOGIN PASSWORD '{PASSWORD}'")

    def _run(self, program: str, *arguments: object) -> None:
        command = [self._programs / program, *map(str, arguments)]
        done = subprocess.run(command, cwd="/", capture_output=True, check=False, **self._account)
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Starts the server. It ends with the thread that calls this."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_WITH_PARENT, self._programs / "postgres", "-D", self._data],
                cwd="/",
                stdout=log,
                stderr=log,
                **self._account,
            )
        deadline = time.monotonic() + 30
        while True:
            try:
                self.admin("SELECT 1")
                return
            except Exception:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
            time.sleep(0.05)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """Of the server's first process, None if it is stopped."""
        return None if self._process is None else self._process.pid

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Ends the server: SIGINT ends its sessions first, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """The server hangs: its connections stay open, and nothing is answered."""
        assert self._process is not None
        main = psutil.Process(self._process.pid)
        main.suspend()
        processes = [main, *main.children(recursive=True)]
        try:
            for process in processes[1:]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
            yield
        finally:
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def admin(self, statement: str, database: str = "postgres") -> None:
        """Executes a statement as the superuser."""
        import psycopg

        address = {"host": "127.0.0.1", "port": self.port, "user": "postgres", "dbname": database}
        with contextlib.closing(psycopg.connect(**address, autocommit=True)) as connection:
            connection.execute(statement.encode())

    def server(self, database: str, user: str = USER) -> Server:
        return Server(f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}")

    def empty(self) -> Server:
        """A new empty database."""
        return self._create("template0")

    def ledger(self) -> Server:
        """A new database with an empty ledger."""
        if not hasattr(self, "_template"):
            self._template = self.empty()
            Ledger.open(self._template).close()
        return self._create(self._template.text.rpartition("/")[2])

    def _create(self, template: str) -> Server:
        name = f"test_{next(self._numbers)}"
        self.admin(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {USER}")
        return self.server(name)

    def drop(self, server: Server) -> None:
        self.admin(f"DROP DATABASE {server.text.rpartition('/')[2]} WITH (FORCE)")


def programs() -> Path:
    """The folder of PostgreSQL's programs. Skips the test, or fails it in CI, if they are missing."""
    known = [Path(found).parent for found in [shutil.which("postgres")] if found]
    known += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    known = [folder for folder in known if (folder / "initdb").exists() and (folder / "postgres").exists()]
    missing = "PostgreSQL's programs are not installed (Debian: apt-get install postgresql)"
    if not known:
        (pytest.fail if os.environ.get("LRURUN_CI") else pytest.skip)(missing)
    if os.geteuid() == 0 and "postgres" not in {entry.pw_name for entry in pwd.getpwall()}:
        (pytest.fail if os.environ.get("LRURUN_CI") else pytest.skip)("there is no user postgres to run PostgreSQL as")
    return known[-1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running() -> Iterator[PrivateServer]:
    """A private server while the context lasts."""
    folder = Path(tempfile.mkdtemp(prefix="lrurun-postgres-"))
    folder.chmod(0o755)
    try:
        server = PrivateServer(folder)
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivateServer]:
    """A server that the tests of this process share."""
    programs()
    with running() as server:
        yield server


@pytest.fixture
def path(postgres: PrivateServer) -> Iterator[Server]:
    """A ledger on it, for a module whose tests are of servers alone."""
    made = postgres.ledger()
    yield made
    postgres.drop(made)
