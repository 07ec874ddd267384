"""The browser view lets only its user in, serves only what is its own, and shows text as text."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import sys
from pathlib import Path

import pytest

from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.config.runs import InstanceSpec
from lrurun.ledger.ledger import Ledger
from lrurun.ui import token_guard
from tests.harness.browsing import HOST, TOKEN, View, closed, words
from tests.harness.machine import Machine
from tests.harness.reports import EVIL
from tests.harness.results import OWNER, fill

__all__ = ["closed"]  # a fixture
ADDRESSES = ("/", "/runs", "/claims", "/studies", "/live", "/static/ui.css", "/data/runs", "/nothing", "/?token=")
WRONG = ["mine=", "mine=wrong", f"other={TOKEN}", f"mine={TOKEN}x", f"mine={TOKEN[:-1]}", 'a="; b\x7f', "mine=é"]
OTHERS = ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "10.0.0.1", "", "[::1", "a@127.0.0.1:1"]
MINE = {"host": HOST, "cookie": f"mine={TOKEN}"}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    place = tmp_path_factory.mktemp("ledger")
    fill(place / "ledger.db", "sDigits", {"gamma-norm": [0.5, 0.6]}, profile="smoke")
    return View(place / "ledger.db", place / "runs")


def test_without_the_token_nothing_is_shown(view: View) -> None:
    tried = [(address, cookie) for address in ADDRESSES for cookie in (None, WRONG[1])]
    for address, cookie in [*tried, *(("/", cookie) for cookie in WRONG)]:
        answer = view.request(address, {"host": HOST} | ({} if cookie is None else {"cookie": cookie}))
        assert answer.status == 403, (address, cookie)
        assert answer.text.startswith("This page belongs to one user.")
        assert "set-cookie" not in answer.headers


def test_the_link_gives_a_cookie_that_scripts_and_other_sites_cannot_use(view: View) -> None:
    answer = view.request(f"/?token={TOKEN}", {"host": HOST})
    assert (answer.status, answer.headers["location"], answer.body) == (303, "/", b"")
    name, _, settings = answer.headers["set-cookie"].partition(";")
    assert name == f"mine={TOKEN}"
    assert {"httponly", "samesite=strict", "path=/"} == {one.strip().lower() for one in settings.split(";")}
    assert view.request(f"/?token={TOKEN}x", {"host": HOST}).status == 403
    for other in ("a=b", 'a={"b": 1}', "a[b]=1", "a b=é"):  # of another server on this machine
        assert view.request("/", {"host": HOST, "cookie": f"{other}; {name}"}).status == 200
    # the cookie is no token of another page, and the link is one of the first page alone
    # so does the address of any other page, which keeps its state, and never leads to another server
    for address, page in (
        (f"/runs?where=seed%3C1&token={TOKEN}&sort=id", "/runs?where=seed%3C1&sort=id"),
        (f"/runs/abc?token={TOKEN}", "/runs/abc"),
        (f"//elsewhere.org?token={TOKEN}", "/elsewhere.org"),
    ):
        answer = view.request(address, {"host": HOST})
        assert (answer.status, answer.headers["location"]) == (303, page)
        assert answer.headers["set-cookie"].startswith(f"mine={TOKEN};")
    assert view.request(f"/runs?token={TOKEN}x", {"host": HOST}).status == 403


@pytest.mark.parametrize("host", OTHERS)
def test_another_host_is_refused(view: View, host: str) -> None:
    answer = view.request("/", MINE | {"host": host})
    assert (answer.status, answer.text) == (400, "This server has another name.\n")
    assert view.request(f"/?token={TOKEN}", {"host": host}).status == 400


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1:9000", "[::1]:8765", "LOCALHOST"])
def test_a_tunnel_may_have_another_port(view: View, host: str) -> None:
    assert view.request("/", MINE | {"host": host}).status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", f"https://{HOST}", "http://127.0.0.1:9", "http://127.0.0.1", "http://["]
)
def test_another_origin_is_refused(view: View, origin: str) -> None:
    assert view.request("/live", MINE | {"origin": origin}).status == 403
    assert view.request(f"/?token={TOKEN}", {"host": HOST, "origin": origin}).status == 403
    assert view.request("/runs", MINE | {"origin": f"http://{HOST}"}).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])  # the latter: another port of this host
def test_pages_of_other_sites_may_link_and_no_more(view: View, site: str) -> None:
    def status(address: str, mode: str, dest: str, site: str = site) -> int:
        fetched = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
        return view.request(address, MINE | fetched).status

    for mode, dest in (("no-cors", "script"), ("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")):
        for address in ("/", "/static/live.js", "/data/runs", f"/?token={TOKEN}"):
            assert status(address, mode, dest) == 403
        assert status("/runs", mode, dest, "same-origin") == status("/runs", mode, dest, "none") == 200
    assert view.request("/runs", MINE | {"sec-fetch-site": site}).status == 403
    assert status("/runs", "navigate", "document") == 200
    assert status(f"/?token={TOKEN}", "navigate", "document") == 303


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(view: View, method: str) -> None:
    assert view.request("/", MINE, method).status == 405


def test_a_server_for_others_may_be_named_by_its_addresses() -> None:
    made = token_guard.Guard(View, token="t", names=token_guard.names_of("0.0.0.0"), cookie="c", only_loopback=False)  # type: ignore[arg-type]
    assert made._is_ours(f"{socket.gethostname()}:80")
    assert made._is_ours("192.0.2.1:8765")
    assert made._is_ours("[2001:db8::1]:8765")
    assert not made._is_ours("evil.example:8765")


@pytest.mark.parametrize("address", ["/", "/static/live.js", "/nothing", "/data/runs", "/runs/zzz"])
def test_every_answer_has_the_policy(view: View, address: str) -> None:
    for headers in (MINE, {"host": HOST}, {"host": "evil.example"}):
        found = view.request(address, headers).headers
        assert found["content-security-policy"] == token_guard.POLICY
        assert found["cache-control"] == "no-store"
        assert found["x-content-type-options"] == "nosniff"
        assert (found["referrer-policy"], found["x-frame-options"]) == ("no-referrer", "DENY")
    assert "unsafe" not in token_guard.POLICY
    assert "default-src 'none'" in token_guard.POLICY


NASTY = f"{EVIL} \x1b]0;title\x07\x00‮ ' onload=x {{{{ 7 * 6 }}}} {{% raw %}}"


def test_text_of_a_ledger_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        plan = planning.make("sDigits", profile="smoke")
        instance = ledger.add_ladder(f"<b>{EVIL}", f"<i>{EVIL}", f"<u>{EVIL}", InstanceSpec(set={EVIL: EVIL}))
        ledger.enqueue(instance.key, final_runs(plan, plan.rungs[0], [0]))
        held = ledger.hold(instance.key, OWNER, environment={"device": EVIL})
        assert held is not None
        ledger.record(held, [(5, f"<a>{EVIL}", 1.0)], 5)
        ledger.finish(held, "failed", error=NASTY, step=5, result=None)
        ledger.mark([held.run.id], tag=["a<b>'\""])
        ledger.mark([held.run.id], note=NASTY)
        ledger.mark([held.run.id], exclude=NASTY)
        run = held.run.id
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE ladder_runs SET rung = ?", (NASTY,))
    view = View(path, tmp_path / "runs")
    log = tmp_path / "runs" / run / "1" / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"<script>first</script>\n" + b"x" * 10_000_000 + b"</pre><script>alert(1)</script>\n\xff\x00end\n")
    for address in (
        "/",
        "/runs",
        f"/runs/{run}",
        f"/ladders/{instance.key}",
        f"/compare?run={run}",
        "/runs?where=<script>",
    ):
        page = view.page(address, 400 if "compare" in address else 200)
        assert "alert('1')" not in page.replace("&#39;", "").replace("&#x27;", "")
        assert not set(page) & set("\x1b\x00\x07‮")
    page = view.page(f"/runs/{run}")
    assert len(page) < 200_000
    assert "{{ 7 * 6 }} {% raw %}" in words(page)
    assert "characters are left out" in page
    assert "first" not in page
    answer = view.get(f"/runs/{run}/log/1")
    shown = log.read_bytes().replace(b"\xff\x00", "\ufffd".encode()).replace(b"\n", b"")
    assert (answer.status, answer.body.replace(b"\n", b"") == shown) == (200, True)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "content-length" not in answer.headers, "the log may grow while it is sent"
    access = os.access
    with monkeypatch.context() as patch:  # a log of another user
        patch.setattr(os, "access", lambda path, mode: access(path, mode) and path != log)
        assert view.get(f"/runs/{run}/log/1").status == 404
        assert "There is no log of attempt 1 in the runs folder that can be read." in words(view.page(f"/runs/{run}?x"))
    drawn = json.loads(view.get(f"/data/runs?run={run}").body)
    assert drawn["panels"][0]["y"] == f"<a>{EVIL}"


def test_files_come_from_inside_the_runs_folder_alone(view: View, tmp_path: Path) -> None:
    runs = view.source.places.runs
    ledger = view.source.ledger()
    first, second = ledger.runs()
    secret = tmp_path / "log.txt"
    secret.write_text("secret")
    (runs / first.id).mkdir(parents=True)
    (runs / first.id / "1").symlink_to(tmp_path)
    (runs / second.id / "1").mkdir(parents=True)
    (runs / second.id / "1" / "log.txt").mkdir()
    for address in (
        f"/runs/{first.id}/log/1", f"/runs/{second.id}/log/1", "/runs/../../log/1", f"/runs/{first.id}/log/../1",
        "/static/../../../log.txt", "/static/%2e%2e/app.py", f"/static/{secret}", "/static/uplot/../../app.py",
    ):  # fmt: skip
        answer = view.get(address)
        assert answer.status == 404 or (answer.status == 500 and "leads out" in words(answer.text)), address
        assert b"secret" not in answer.body
    assert "There is no log of attempt 1" in words(view.page(f"/runs/{first.id}"))


def test_errors_of_the_command(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        err = machine.refused("ui", "--port", str(port), code=1)
        assert err.startswith(f"error: port {port} of 127.0.0.1 is in use")
        assert "hint: choose another one: --port N" in err
    machine.refused("ui", "--port", "70000")
    assert (
        "error: --host nowhere.invalid: no such address"
        in machine.run("ui", "--host", "nowhere.invalid", code=1).stderr
    )
    Ledger.open(machine.ledger).close()
    view = View(machine.ledger, machine.runs)
    with contextlib.closing(sqlite3.connect(machine.ledger, isolation_level=None)) as connection:
        connection.execute("UPDATE lrurun_version SET version_num = '9999'")
    err = machine.run("ui", code=5).stderr
    assert "newer" in err
    assert "hint: " in err
    assert "newer" in words(view.page("/runs", 503))
    machine.ledger.write_text("this is no ledger" * 100)
    machine.run("ui", code=5)

    monkeypatch.delitem(sys.modules, "lrurun.ui.serve", raising=False)
    monkeypatch.delattr("lrurun.ui.serve", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert machine.run("ui", code=1).stderr.splitlines() == [
        "error: lrurun ui needs uvicorn, which is not installed", "hint: pip install 'lrurun[ui]'"
    ]  # fmt: skip
