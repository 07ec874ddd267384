"""The URL of a PostgreSQL server as the place of a ledger: what is accepted, and where passwords may be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lrurun import paths
from lrurun.errors import LrurunError, UsageError
from lrurun.server import Server, is_server, parse
from tests.harness.machine import Machine

SECRET = "gehe%23im"
ADDRESS = "postgresql+psycopg://ann@db.example:5433/lab"


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql", "postgres", "PostgreSQL"])
def test_the_schemes_are_names_of_one_driver(scheme):
    assert str(parse(f"{scheme}://ann@db.example:5433/lab")) == ADDRESS


def test_places_take_a_server(monkeypatch):
    assert paths.places(ADDRESS).ledger == Server(ADDRESS)
    assert paths.places(ADDRESS).runs == Path("runs")
    assert paths.places(ADDRESS, "there").runs == Path("there")
    monkeypatch.setenv("LRURUN_LEDGER", "postgres:///?service=lab&connect_timeout=2")
    assert str(paths.places().ledger) == "postgresql+psycopg:///?service=lab&connect_timeout=2"


@pytest.mark.parametrize("url", [f"postgresql+psycopg:ann:{SECRET}@db/lab", f"postgres:ann:{SECRET}@db/lab"])
def test_urls_without_slashes_are_refused_and_not_shown(url, monkeypatch):
    monkeypatch.setenv("LRURUN_LEDGER", url)
    with pytest.raises(UsageError, match="LRURUN_LEDGER: expected the path of a file or a URL") as refused:
        paths.places()
    assert "gehe" not in f"{refused.value} {refused.value.hint}"


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
    for where in ("--ledger", "OTHER"):
        with pytest.raises(UsageError, match="password") as refused:
            parse(url, where)
        assert "gehe" not in f"{refused.value} {refused.value.hint}"
        for known in ("PGPASSFILE", "PGSERVICE", "LRURUN_LEDGER"):
            assert known in str(refused.value.hint)
    monkeypatch.setenv("LRURUN_LEDGER", url)
    found = paths.places().ledger
    assert found == Server(ADDRESS)
    assert "gehe" not in f"{found} {found!r}"
    assert isinstance(found, Server)
    assert SECRET in found.url()
    assert paths.places(ADDRESS).ledger == found  # named on the command line, with the password of the environment
    assert "gehe" not in Server("postgresql+psycopg://ann@other/lab").url()


@pytest.mark.parametrize(
    "url",
    [
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
    ],
)
def test_no_part_of_a_url_that_cannot_be_read_is_shown(url):
    assert is_server(url)
    for where in ("--ledger", "LRURUN_LEDGER"):
        with pytest.raises(UsageError) as refused:
            parse(url, where)
        assert "geh" not in f"{refused.value} {refused.value.hint}"
        assert "postgresql+psycopg://" in str(refused.value.hint)


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
    for command in (["runs"], ["ladder", "sDigits"], ["ledger", "path"]):
        done = machine.run(*command, "--ledger", f"postgresql://ann:{SECRET}@localhost:9/lab", code=2)
        assert done.stderr.startswith("error: --ledger: a password on the command line")
        assert "gehe" not in done.stdout + done.stderr
    done = machine.run("ledger", "path", env={"LRURUN_LEDGER": f"postgresql://ann:{SECRET}@localhost:9/lab"})
    assert (done.returncode, done.stdout) == (0, "postgresql+psycopg://ann@localhost:9/lab\n")


@pytest.mark.parametrize("text", ["host=db.example password=geheim dbname=lab", " password = 'geheim'", "user=geheim"])
def test_a_connection_string_of_libpq_is_no_file(text, monkeypatch):
    for where in ("--ledger", "LRURUN_LEDGER"):
        if where != "--ledger":
            monkeypatch.setenv(where, text)
        with pytest.raises(UsageError, match=f"^{where}: expected the path of a file or a URL") as refused:
            paths.places(text if where == "--ledger" else None)
        assert "geheim" not in f"{refused.value} {refused.value.hint}"
        assert "postgresql+psycopg://" in str(refused.value.hint)
    assert paths.places("./user=geheim").ledger == Path("user=geheim")


def test_an_unknown_parameter_of_a_url_is_named(machine: Machine):
    done = machine.run("runs", "--ledger", "postgresql://ann@localhost:9/lab?nonsense=1", apart=True, code=2)
    assert "'nonsense' is no parameter of libpq" in done.stderr
