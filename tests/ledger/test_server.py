"""The URL of a PostgreSQL server as the place of a ledger: what is accepted, and where passwords may be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lrurun import paths
from lrurun.errors import LrurunError, UsageError
from lrurun.ledger.ledger import Ledger
from lrurun.server import Server, is_server, parse
from tests.harness.machine import Machine

SECRET = "gehe%23im"
ADDRESS = "postgresql+psycopg://ann@db.example:5433/lab"


def refused(url: str, where: str) -> str:
    """What is said of a URL, in which no part of a password is."""
    with pytest.raises(UsageError) as found:
        parse(url, where)
    said = f"{found.value} {found.value.hint}"
    assert "geh" not in said
    return said


def test_places_take_a_server(monkeypatch):
    for scheme in ("postgresql+psycopg", "postgresql", "postgres", "PostgreSQL"):
        assert str(parse(f"{scheme}://ann@db.example:5433/lab")) == ADDRESS
    assert paths.places(ADDRESS).ledger == Server(ADDRESS)
    assert paths.places(ADDRESS).runs == Path("runs")
    assert paths.places(ADDRESS, "there").runs == Path("there")
    monkeypatch.setenv("LRURUN_LEDGER", "postgres:///?service=lab&connect_timeout=2")
    assert str(paths.places().ledger) == "postgresql+psycopg:///?service=lab&connect_timeout=2"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@db.example:5433/lab",
        f"postgresql://ann@db.example:5433/lab?password={SECRET}",
        f"postgresql://ann@db.example:5433/lab?pass%77ord={SECRET}",
        f"postgresql://ann@db.example:5433/lab?sslpassword={SECRET}",
    ],
)
def test_a_password_is_refused_as_an_argument_and_kept_apart_from_the_environment(url, monkeypatch):
    for where in ("--ledger", "OTHER", "ledger"):
        said = refused(url, where)
        assert "password" in said
        assert [known in said for known in ("PGPASSFILE", "PGSERVICE", "LRURUN_LEDGER")] == [True] * 3
    monkeypatch.setenv("LRURUN_LEDGER", url)
    found = paths.places().ledger
    assert found == Server(ADDRESS)
    assert "gehe" not in f"{found} {found!r}"
    assert isinstance(found, Server)
    assert SECRET in found.url()
    assert paths.places(ADDRESS).ledger == found  # named on the command line, with the password of the environment
    assert "gehe" not in Server("postgresql+psycopg://ann@other/lab").url()


def test_no_part_of_a_url_that_cannot_be_read_is_shown(monkeypatch):
    for url in (
        "postgresql://ann:gehe#im@host/db",
        "postgresql://ann:gehe/im@host/db",
        "postgresql://ann:12/geheim@host/db",
        "postgresql://ann:gehe?im@host/db",
        "postgresql://ann@host:geheim/db",
        "postgresql://ann:geh eim@host/db",
        "postgresql://[geheim/db",
        "postgresql:/ann:geheim/db",
        "postgresql+psycopg2://ann:geheim@host/db",
        "postgresqlx://ann:geheim@host/db",
        f"postgresql+psycopg:ann:{SECRET}@db/lab",
        "host=db.example password=geheim dbname=lab",
        " password = 'geheim'",
        "user=geheim",
    ):
        assert is_server(url)
        for where in ("--ledger", "LRURUN_LEDGER"):
            said = refused(url, where)
            assert said.startswith(f"{where}: ")
            assert "postgresql+psycopg://" in said
        for ask in (Ledger.open, Ledger.read, paths.places):
            with pytest.raises(LrurunError) as found:
                ask(url)
            assert "geh" not in f"{found.value} {found.value.hint}"
        monkeypatch.setenv("LRURUN_LEDGER", url)
        with pytest.raises(UsageError, match=r"^LRURUN_LEDGER: "):
            paths.places()
    assert paths.places("./user=geheim").ledger == Path("user=geheim")
    with pytest.raises(LrurunError, match="PostgreSQL database") as found:
        Ledger.open("mysql://u:geheim@h/d")
    assert "geheim" not in f"{found.value} {found.value.hint}"


def test_passwords_are_encoded_for_the_driver(monkeypatch):
    monkeypatch.setenv("LRURUN_LEDGER", "postgres://ann:a@b:c%25@host/db")
    found = paths.places().ledger
    assert isinstance(found, Server)
    assert found == Server("postgresql+psycopg://ann@host/db")
    assert found.url() == "postgresql+psycopg://ann:a%40b%3Ac%25@host/db"


def test_a_missing_driver_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LrurunError, match="psycopg") as missing:
        Server(ADDRESS).url()
    assert missing.value.hint == "pip install 'lrurun[postgres]'"
    assert missing.value.exit_code == 1


def test_a_password_on_the_command_line_stops_every_command(machine: Machine):
    url = f"postgresql://ann:{SECRET}@localhost:9/lab"
    for command in (["runs"], ["ladder", "sDigits"], ["ledger", "path"]):
        said = machine.refused(*command, "--ledger", url)
        assert said.startswith("error: --ledger: a password on the command line")
        assert "gehe" not in said
    done = machine.run("ledger", "path", env={"LRURUN_LEDGER": url})
    assert done.stdout == "postgresql+psycopg://ann@localhost:9/lab\n"
    said = machine.refused("runs", "--ledger", "postgresql://ann@localhost:9/lab?nonsense=1")
    assert "'nonsense' is no parameter of libpq" in said
