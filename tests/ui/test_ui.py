"""The browser view: what its pages show, which errors they explain, and that it only reads."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import time
from pathlib import Path

import msgspec
import pytest

from lrurun import console
from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.config.schedules import learning_rates
from lrurun.ledger.ledger import Ledger
from lrurun.report import formats
from lrurun.report.figures.curves import BAND, average
from lrurun.report.formats import html
from lrurun.report.tables import loaded_instance
from lrurun.ui import app, curves, ladder_pages
from lrurun.ui.source import size_of
from tests import conftest
from tests.harness.browsing import View, closed, links, words
from tests.harness.items import alike
from tests.harness.machine import Machine
from tests.harness.results import OWNER, fill
from tests.harness.servers import PrivateServer

__all__ = ["closed"]  # a fixture
SCORES = {"ring-init": [0.5, 0.54, 0.6], "gamma-norm": [0.91, 0.93, 0.95]}


@pytest.fixture(scope="module")
def filled() -> Machine:
    """A ledger with finished runs of two rungs, and one that is running."""

    def make(folder: Path) -> None:
        folder.mkdir()
        about = {"source": "generated", "baselines": {}}
        eigenvalues = {"start": [0.5 + 0.5j, -0.2j], "end": [0.9 + 0.1j, 1j]}
        fill(folder / "ledger.db", "sDigits", SCORES, profile="smoke", eigenvalues=eigenvalues, about=about)
        with Ledger.open(folder / "ledger.db") as ledger:
            plan = planning.make("sDigits", profile="smoke")
            [instance] = ledger.ladders()
            rung = plan.rungs[0]
            ledger.enqueue(instance.key, final_runs(plan, rung, [0, 1]))
            held = ledger.hold(instance.key, OWNER, environment={"device": "cpu"})
            assert held is not None
            ledger.record(held, [(10, "train/loss", 2.0), (20, "train/loss", float("nan"))], 20)
        (folder / "runs").mkdir()

    return Machine(conftest.once("ui", make))


@pytest.fixture
def view(filled: Machine) -> View:
    return View(filled.ledger, filled.runs)


def test_every_link_leads_to_a_page_and_viewing_writes_nothing(filled: Machine, view: View) -> None:
    def shape(address: str) -> str:
        return re.sub(r"[0-9a-f]{12}", "ID", re.sub(r"sort=[^&]*", "sort=", address))

    before = filled.ledger.read_bytes()
    seen, ahead, pages = set[str](), ["/"], {}
    while ahead:
        address = ahead.pop()
        if shape(address) in seen:
            continue
        seen.add(shape(address))
        if address.startswith(("/static", "/data")) or "/report." in address:
            answer = view.get(address)
            assert (answer.status, len(answer.body) > 20) == (200, True), address
        else:
            pages[address] = view.page(address)
            ahead += links(pages[address])
    files = set(re.findall(r'(?:href|src)="(/static/[^"]*)"', pages["/"]))
    assert {view.get(one).status for one in files} == {200}
    known = {one.partition("?")[0] for one in seen} | files
    assert known >= {"/", "/runs", "/claims", "/studies", "/ladders/ID", "/runs/ID", "/data/ladders/ID", "/data/runs"}
    assert {"/static/report.css", "/static/charts.js", "/static/uplot/uPlot.min.css"} <= known
    # claims are those of the command
    found, page = filled.json("claims", "sDigits"), words(pages["/claims"])
    told = [*(one["text"] for one in found["claims"]), *(one["here"]["detail"] for one in found["claims"])]
    assert len(told) > 10
    assert [text for text in told if " ".join(console.clean(text).split()) not in page] == []
    view.source.drop()
    assert filled.ledger.read_bytes() == before
    ledger = view.source.ledger()
    with pytest.raises(Exception, match="opened for reading only"):
        ledger.event("note", "x")


def test_a_ladder_has_the_report_in_the_same_words(filled: Machine, view: View) -> None:
    [entry] = re.findall(r'<a href="(/ladders/\w+)">', view.page("/"))
    page = view.page(entry)
    with Ledger.open(filled.ledger) as ledger:
        found = loaded_instance.LoadedInstance(
            planning.make("sDigits", profile="smoke"), ledger.ladders()[0], ledger
        ).report()
    static = html.render(found, msgspec.structs.replace(formats.content_of(found), curves=False), {})
    for element in ("li", "dd", "td", "th"):
        texts = re.findall(rf"<{element}\b[^>]*>(.*?)</{element}>", static, re.DOTALL)
        assert texts
        assert [text for text in texts if words(text) not in words(page)] == [], element
    report = filled.json("report", "sDigits", "--profile", "smoke")
    for row in report["rows"]:
        if row["n"]:
            assert f"{row['mean'] * 100:.2f} ± {row['stderr'] * 100:.2f} (n={row['n']})" in words(page)
    assert words(view.page("/")).count(report["conclusions"][0]) == 1
    assert "1 running" in words(page)
    # an interval for each claim that has one, and the spectra of the rungs that have some
    judged = [one for one in report["claims"] if one.get("low") is not None]
    assert page.count('class="interval ') == len(judged) > 0
    assert page.count('class="plane"') == 2
    assert "4 at initialisation" not in page
    assert "2 at initialisation, 2 after training" in page


def test_the_list_has_the_conclusion_by_the_test_items_that_are_known_now(tmp_path: Path) -> None:
    """Per-item results that are added or removed change verdicts, and no number of runs."""
    scores = {"tanh-rnn": [0.5] * 6 + [0.51] * 6, "linear-rnn": [0.57] * 6 + [0.58] * 6}
    fill(tmp_path / "ledger.db", "sDigits", scores, with_items=False)
    view = View(tmp_path / "ledger.db", tmp_path)
    assert "Helps: linear-rnn" not in words(view.page("/"))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for run in ledger.runs():
            score = (run.result or {})["test/accuracy"]
            ledger.record_items(run.id, {"test/accuracy": alike(score, 300)})
        assert "Helps: linear-rnn" in words(view.page("/"))
        ledger.drop_items(ledger.run_ids())
    assert "Helps: linear-rnn" not in words(view.page("/"))


def test_curves_are_the_means_of_the_report(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    [key] = re.findall(r'<a href="/ladders/(\w+)">', view.page("/"))
    drawn = json.loads(view.get(f"/data/ladders/{key}?kind=curves").body)
    accuracy = next(panel for panel in drawn["panels"] if panel["y"] == "validation accuracy [%]")
    scores = [[(10, 50 * one), (20, 100 * one)] for one in SCORES["gamma-norm"]]
    mean = average("gamma-norm (n=3)", scores)
    line = next(line for line in accuracy["curves"] if line["label"] == mean.label)
    assert (line["x"], line["y"]) == ([10, 20], pytest.approx(mean.y))
    assert (line["low"], line["high"]) == (pytest.approx(mean.low), pytest.approx(mean.high))
    assert [one["label"] for one in accuracy["curves"]] == ["ring-init (n=3)", "gamma-norm (n=3)"]
    # a running run has a line of its own; NaN is a gap
    loss = next(panel for panel in drawn["panels"] if panel["y"] == "training loss")
    assert [(one["label"], one["style"], one["y"]) for one in loss["curves"]] == [
        ("tanh-rnn, seed 0", "thin", [2, None])
    ]
    drawn = json.loads(view.get(f"/data/ladders/{key}?kind=curves&seeds=1").body)
    accuracy = next(panel for panel in drawn["panels"] if panel["y"] == "validation accuracy [%]")
    assert sum(one["style"] == "thin" for one in accuracy["curves"]) == 6
    assert drawn["caption"] == f"{BAND} Thin lines: single seeds."
    monkeypatch.setattr(curves, "_SINGLE", 2)
    drawn = json.loads(view.get(f"/data/ladders/{key}?kind=curves&seeds=2").body)
    accuracy = next(panel for panel in drawn["panels"] if panel["y"] == "validation accuracy [%]")
    assert sum(one["style"] == "thin" for one in accuracy["curves"]) == 4
    assert drawn["caption"].endswith("Thin lines: single seeds, 2 of a rung at most.")


def test_rates_are_those_of_training(view: View) -> None:
    [key] = re.findall(r'<a href="/ladders/(\w+)">', view.page("/"))
    assert "?kind=rates" in view.page(f"/ladders/{key}")
    drawn = json.loads(view.get(f"/data/ladders/{key}?kind=rates").body)
    assert [panel["title"] for panel in drawn["panels"]] == ["all but the recurrent group", "recurrent group"]
    [rung] = planning.choose_rungs(planning.make("sDigits", profile="smoke"), ["gamma-norm"])
    optim, steps = rung.training.optim, rung.training.train.steps
    rates = learning_rates(optim, steps)
    for panel, factor in zip(drawn["panels"], (1.0, optim.recurrent_factor), strict=True):
        assert {curve["style"] for curve in panel["curves"]} == {"line"}
        [curve] = [curve for curve in panel["curves"] if "gamma-norm" in curve["label"]]
        assert curve["x"] == list(range(steps))
        # what is far below the peaks is not drawn on a logarithmic axis
        shown = {k: y for k, y in enumerate(curve["y"]) if y is not None}
        assert len(shown) >= steps - 2
        assert shown == pytest.approx({k: float(factor * rates[k]) for k in shown})
    part = json.loads(view.get(f"/data/ladders/{key}?kind=rates&from=10&to=20").body)
    assert {(*curve["x"],) for panel in part["panels"] for curve in panel["curves"]} == {(*range(9, 22),)}


def test_the_table_of_runs_is_what_its_address_says(filled: Machine, view: View) -> None:
    address = "/runs?where=test/accuracy>0.55&sort=-test/accuracy&column=optim.lr&column=model.recurrence.kind"
    page = view.page(address)
    ids = re.findall(r'<th scope="row"><a href="/runs/(\w+)">', page)
    options = ("--where", "test/accuracy>0.55", "--sort", "-test/accuracy")
    assert ids == [run["id"] for run in filled.json("runs", *options)["runs"]]
    assert len(ids) == 4
    head = re.findall(r'<th scope="col"([^>]*)>(.*?)</th>', page, re.DOTALL)
    assert [words(text) for _, text in head][-2:] == ["optim.lr", "model.recurrence.kind"]
    assert [state for state, text in head if "▼" in text] == [head[-3][0]]
    assert 'aria-sort="descending"' in head[-3][0]
    assert 'value="test/accuracy&gt;0.55"' in page
    assert page.count(" checked") == 2
    assert "4 of 8 runs" in words(page)
    assert "None of 8 runs meets the condition." in words(view.page("/runs?where=seed>7"))
    assert "page 1 of" not in page


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/runs?where=seed>", "error: --where"),
        ("/runs?where=sede>1", "did you mean 'seed'?"),
        ("/runs?sort=sede", "did you mean 'seed'?"),
        ("/runs?column=optim.l", "did you mean 'optim.lr'?"),
    ],
)
def test_an_expression_that_is_wrong_is_explained_beside_it(view: View, address: str, said: str) -> None:
    page = view.page(address)
    assert said in words(page)
    assert "<tbody>" not in page


def test_errors_of_pages_have_a_status_and_a_hint(view: View) -> None:
    assert "error: no run 'zzz' in this ledger hint: see `lrurun runs`" in words(view.page("/runs/zzz", 404))
    assert "no ladder instance" in words(view.page("/ladders/zzz", 404))
    assert "at least two runs" in words(view.page("/compare", 400))
    assert view.get("/nothing").status == 404
    assert view.get("/static/../app.py").status == 404
    assert view.get("/runs/zzz/log/1").status == 404


def test_a_run_and_a_comparison(filled: Machine, view: View) -> None:
    runs = filled.json("runs", "--where", "rung=gamma-norm or rung=ring-init")["runs"]
    first, last = runs[0]["id"], runs[-1]["id"]
    page = words(view.page(f"/runs/{first}"))
    shown = filled.json("show", first)
    for path, source in shown["provenance"].items():
        assert f"{path} " in page, path
        assert source in page
    assert f"test/accuracy {shown['run']['metrics']['test/accuracy']:.6g}" in page
    toml = filled.run("show", first, "--toml").stdout
    assert " ".join(toml.split()) in page
    drawn = json.loads(view.get(f"/data/runs?run={first}").body)
    assert drawn["panels"][0]["curves"][0]["y"] == [100 * value for _, value in shown["metrics"]["val/accuracy"]]
    page = words(view.page(f"/compare?run={first}&run={last}"))
    compared = filled.json("compare", first, last)
    assert compared["differs"]
    for one in compared["differs"]:
        assert one["path"] in page
    drawn = json.loads(view.get(f"/data/runs?run={first}&run={last}").body)
    labels = [f"{run['rung']}, seed {run['seed']}" for run in (runs[0], runs[-1])]
    assert [line["label"] for line in drawn["panels"][0]["curves"]] == labels
    many = "&".join(f"run={run['id']}" for run in filled.json("runs")["runs"] * 2)
    assert "too many to compare" in words(view.page(f"/compare?{many}", 400))


def test_what_takes_long_is_made_again_after_a_rest(view: View) -> None:
    made: list[int] = []

    def make() -> int:
        time.sleep(0.02)
        made.append(len(made))
        return made[-1]

    source = view.source
    assert source.rested("x", "a", make, 1000) == (0, 0)
    assert source.rested("x", "a", make, 1000) == (0, 0)
    old, wait = source.rested("x", "b", make, 1000)
    assert (old, len(made)) == (0, 1)
    assert 10 < wait < 1000
    source.keep("x", "a", (0, 0.0))  # as if that time had passed
    assert source.rested("x", "b", make, 1000) == (1, 0)


def test_what_is_kept_is_bounded_by_its_size(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lrurun.ui.source.BYTES", 100_000)
    source = view.source
    for number in range(3):
        source.keep(number, "a", {"lines": [str(number) * 40_000]})
    assert [source.known(number, "a") is None for number in range(3)] == [True, False, False]
    source.keep("large", "a", "x" * 1_000_000)
    assert source.known("large", "a") is not None
    assert source.known(2, "a") is None
    kept = (1, memoryview(bytes(1000)), [{"a": ("b", None)}])
    assert 2000 < size_of(kept) < 4000


def test_long_texts_of_a_run_are_cut(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    fill(file, "sDigits", {"diagonal": [0.5]})
    with Ledger.open(file) as ledger:
        [run] = ledger.runs()
        ledger.mark([run.id], note=f"begin {'x' * 100_000} end")
        ledger.mark([run.id], exclude="y" * 100_000)
    page = words(View(file, tmp_path / "runs").page(f"/runs/{run.id}"))
    assert len(page) < 20_000
    assert "begin xxx" in page
    assert "xxx end" in page


def test_an_empty_view_fills(tmp_path: Path) -> None:
    view = View(tmp_path / "ledger.db", tmp_path / "runs")
    assert "There is no ledger at" in words(view.page("/"))
    assert "No runs yet." in words(view.page("/runs"))
    assert "No study yet." in words(view.page("/studies"))
    assert "there is no ledger yet" in words(view.page("/runs/abc", 404))
    assert view.source.stamp() == ()
    assert not list(tmp_path.iterdir())
    fill(tmp_path / "ledger.db", "sDigits", SCORES, profile="smoke")
    page = words(view.page("/"))
    assert "6 of 6 done" in page
    assert "There is no ledger" not in page
    # another file in its place
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    fill(tmp_path / "ledger.db", "sDigits", {"gamma-norm": [0.5]}, profile="smoke")
    assert "1 of 1 done" in words(view.page("/"))


def test_a_ledger_that_cannot_be_written_is_shown_and_followed(
    filled: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = filled.copy(tmp_path / "copy")
    Ledger.open(here.ledger).close()  # without a log that another reader has left
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: access(path, mode) and not mode & os.W_OK)
    view = View(here.ledger, here.runs)
    assert "is read-only" in words(view.page("/"))
    assert "Ladders" in words(view.page("/"))
    monkeypatch.undo()
    fill(here.ledger, "npDigits", {"gamma-norm": [0.5]})
    with contextlib.closing(sqlite3.connect(here.ledger, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    monkeypatch.setattr(os, "access", lambda path, mode: access(path, mode) and not mode & os.W_OK)
    assert "npDigits" in words(view.page("/"))


def test_everything_that_is_recorded_changes_the_stamp(tmp_path: Path) -> None:
    source = View(tmp_path / "ledger.db", tmp_path).source
    seen: list[object] = []

    def changed() -> None:
        source.drop()
        source._stamp = (float("-inf"), ())
        seen.append(source.stamp())
        assert seen[-1] not in seen[:-1]

    changed()
    plan = planning.make("sDigits", profile="smoke")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        changed()
        instance = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec)
        changed()
        ledger.enqueue(instance.key, final_runs(plan, plan.rungs[0], [0]))
        changed()
        held = ledger.hold(instance.key, OWNER)
        assert held is not None
        changed()
        results = ladder_pages.results_stamp(source.stamp())
        ledger.record(held, [(5, "train/loss", 1.0)], 5)
        changed()
        assert ladder_pages.results_stamp(source.stamp()) == results
        ledger.commit_checkpoint(held, ledger.begin_checkpoint(held, 5, "x"), 1, "0")
        changed()
        ledger.finish(held, "interrupted")
        changed()
        ledger.requeue([held.run.id])
        changed()
        held = ledger.hold(instance.key, OWNER)
        assert held is not None
        ledger.finish(held, "done", result={"test/accuracy": 0.5}, step=60)
        changed()
        ledger.mark([held.run.id], tag=["a"])
        changed()
        ledger.mark([held.run.id], tag=["b"], untag=["a"])
        changed()
        ledger.mark([held.run.id], note="a note")
        changed()
        ledger.mark([held.run.id], exclude="why not")
        changed()


def test_viewers_are_told_of_changes_and_that_the_server_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import anyio

    monkeypatch.setattr(app, "SECONDS", 0.001)
    monkeypatch.setattr(app, "_KEEP_ALIVE", 0.003)
    states = iter("aab" + "b" * 9)

    async def state() -> str:
        return next(states)

    async def listen() -> list[str]:
        return [text async for text, _ in zip_async(app._events(state), 4)]

    async def zip_async(events, count):
        for number in range(count):
            yield await anext(events), number

    assert anyio.run(listen) == ["data: a\n\n", "data: b\n\n", ": nothing new\n\n", ": nothing new\n\n"]


@pytest.mark.slow
def test_a_ledger_on_a_server(postgres: PrivateServer, tmp_path: Path) -> None:
    server = postgres.ledger()
    fill(server, "sDigits", SCORES, profile="smoke")
    view = View(server, tmp_path / "runs")
    assert "6 of 6 done" in words(view.page("/"))
    [key] = re.findall(r'<a href="/ladders/(\w+)">', view.page("/"))
    assert "93.00 ± 1.15 (n=3)" in words(view.page(f"/ladders/{key}"))
    assert "3 of 6 runs" in words(view.page("/runs?where=test/accuracy>0.9&sort=-seed"))
    before = view.source.stamp()
    fill(server, "npDigits", {"gamma-norm": [0.5]})
    assert "1 of 1 done" in words(view.page("/"))
    assert view.source.stamp() != before
    drawn = json.loads(view.get(f"/data/ladders/{key}?kind=curves").body)
    assert drawn["panels"]
    postgres.stop()
    view.source.drop()
    try:
        assert "hint:" in words(view.page("/runs", 503))
    finally:
        postgres.start()
    assert "7 runs" in words(view.page("/runs"))
