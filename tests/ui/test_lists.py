"""The browser view of many instances: groups, boxes, what is hidden, tags and notes, downloads, a part of a ledger."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest

from lrurun.ledger.ledger import Ledger
from lrurun.paths import Places
from lrurun.report import formats
from lrurun.ui.source import Source
from tests.harness.browsing import View, closed, words
from tests.harness.machine import Machine, held
from tests.harness.projects import SSM, fill_projects, hide
from tests.harness.results import fill
from tests.harness.shared import once

__all__ = ["closed"]  # a fixture
EVIL = "<img src=x onerror=alert('1')>&\"'"


@pytest.fixture
def hour(tmp_path: Path) -> Machine:
    def make(folder: Path) -> None:
        folder.mkdir()
        fill_projects(folder / "ledger.db")

    machine = Machine(tmp_path / "hour")
    shutil.copyfile(once("projects of pages", make) / "ledger.db", machine.ledger)
    machine.runs.mkdir()
    return machine


@pytest.fixture
def view(hour: Machine) -> View:
    return View(hour.ledger, hour.runs)


def part_of(machine: Machine, instances: list[str], where: str | None = None) -> View:
    """The view of `lrurun ui` with these options."""
    view = View(machine.ledger, machine.runs)
    view.source._instances, view.source._where = instances, where
    return view


def listed(page: str) -> list[str]:
    """The keys of the instances on a page, in order."""
    return re.findall(r'<a href="/ladders/(\w+)">', page)


def keys(machine: Machine, *options: str) -> list[str]:
    return [one["instance"] for one in machine.json("status", *options)["ladders"]]


def test_the_first_page_has_groups_newest_first_and_folds_what_is_finished(hour: Machine, view: View) -> None:
    page = view.page("/")
    heads = [unescape(text) for text in re.findall(r'<h2 id="project-\w+">(.*?)</h2>', page)]
    assert heads == [
        f"ladder {name}"
        for name in ("lru on npDigits", "ssm on sCIFAR", "ssm on npDigits", "ssm on sDigits", "lru on sDigits")
    ]
    names = {one["instance"]: one["name"] for one in hour.json("status")["ladders"]}
    lines = [line.split()[0] for line in hour.run("status").stdout.splitlines() if line.startswith("  ")]
    assert [names[key] for key in listed(page)] == ["npDigits-lr0.5", *(name for name in lines if name != "instance")]
    assert page.count('<article class="entry folded">') == 14
    assert page.count('<article class="entry">') == 1
    best = "sDigits-smoke 3 of 4 done, 1 diverged, 2 seeds, finished 2027-01-15 15:30 UTC best on validation: ring-init"
    assert f"{best}, 90.5 %" in words(page)
    for rate in (0.002, 0.004, 0.02, 0.04):
        fill(hour.ledger, "npDigits", {"tanh-rnn": [0.3]}, profile="smoke", sets={"optim.lr": rate})
    page = view.page("/")
    assert len(set(listed(page))) == len(listed(page)) == 19
    assert "3 older" in words(page), "ten are shown"


@pytest.mark.parametrize(
    ("boxes", "where"),
    [
        ("ladder=ssm", "ladder=ssm"),
        ("task=sDigits", "task=sDigits"),
        ("ladder=lru&task=sDigits", "ladder=lru and task=sDigits"),
        ("state=diverged", "state=diverged"),
        ("state=interrupted", "state=interrupted"),
        ("tag=for+the+paper", "tag='for the paper'"),
        ("user=ann", "user=ann"),
        ("user=nobody", None),
        ("state=failed", None),
    ],
)
def test_boxes_filter_the_first_page_by_its_address(hour: Machine, view: View, boxes: str, where: str | None) -> None:
    """Against the conditions of `lrurun status`."""
    with Ledger.open(hour.ledger) as ledger:
        ledger.mark([run.id for run in ledger.runs()][::11], tag=["for the paper"])
    with contextlib.closing(sqlite3.connect(hour.ledger)) as connection, connection:
        connection.execute("UPDATE ladders SET user_name = 'ann' WHERE id % 3 = 0")
    page = view.page(f"/?{boxes}")
    assert sorted(listed(page)) == sorted([] if where is None else keys(hour, "--where", where))
    for box in boxes.split("&"):
        name, value = box.replace("+", " ").split("=")
        of_box = re.search(rf'<select name="{name}">.*?</select>', page, re.DOTALL)
        assert of_box is not None
        assert f"<option selected>{value}</option>" in of_box[0], "the form shows what it selects"
    assert ("None of this kind." in page) == (where is None)


def test_the_state_finished_leaves_out_what_remains(hour: Machine, view: View) -> None:
    unfinished = [one["instance"] for one in hour.json("status")["ladders"] if one["queued"] or one["interrupted"]]
    assert set(listed(view.page("/?state=finished"))) == set(keys(hour)) - set(unfinished)


def test_hidden_instances_are_shown_on_request(hour: Machine, view: View) -> None:
    every = set(listed(view.page("/")))
    hide(hour.ledger, "npDigits-smoke-width3", "npDigits-smoke-width5")
    page = view.page("/?task=npDigits")
    assert "Not shown: 2 hidden instances." in words(page)
    [address] = re.findall(r'<a href="([^"]*)">Show hidden ones too</a>', page)
    assert unescape(address) == "/?task=npDigits&hidden=1"
    assert len(listed(view.page(unescape(address)))) == len(listed(page)) + 2
    assert set(listed(view.page("/?hidden=1"))) == every
    assert len(listed(view.page("/"))) == len(every) - 2
    [key] = keys(hour, "--instance", "npDigits-smoke-width3")
    assert "tanh-rnn" in view.page(f"/ladders/{key}"), "its own page is there"
    assert "width" in words(view.page("/notes"))


def test_runs_of_an_instance_are_folded_by_rung_and_sorted_over_all_pages(
    hour: Machine, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = view.page("/runs?instance=npDigits")
    runs = hour.json("runs", "--where", "instance=npDigits")["runs"]
    summaries = [words(text) for text in re.findall(r"<summary>(.*?)</summary>", page, re.DOTALL)][1:]
    assert summaries == [f"{rung} 3 runs: 3 done" for rung in ("tanh-rnn", "ring-init", "gamma-norm")]
    ids = re.findall(r'<th scope="row"><a href="/runs/(\w+)">', page)
    wanted = [run["id"] for rung in ("tanh-rnn", "ring-init", "gamma-norm") for run in runs if run["rung"] == rung]
    assert ids == wanted
    assert "6 of 92 runs, by rung" in words(view.page("/runs?instance=npDigits&where=seed>0"))
    monkeypatch.setattr("lrurun.ui.run_pages.PAGE", 2)
    page = view.page("/runs?instance=npDigits&page=1")
    more = [unescape(text) for text in re.findall(r'<a href="([^"]*)">All 3 runs of [\w-]+</a>', page)]
    assert len(more) == 3
    assert "3 of 92 runs, page 1 of 2" in words(view.page(more[0]))
    for sort in ("rung", "-test/accuracy", "stage"):
        found: list[str] = []
        for number in (1, 2, 3, 4, 5):
            page = view.page(f"/runs?instance=npDigits&sort={sort}&page={number}")
            found += re.findall(r'<th scope="row"><a href="/runs/(\w+)">', page)
        options = ("--where", "instance=npDigits", "--sort", sort)
        assert found == [run["id"] for run in hour.json("runs", *options)["runs"]], sort
    assert "no ladder instance" in words(view.page("/runs?instance=nothing", 404))


def test_a_ladder_folds_its_runs_by_rung(hour: Machine, view: View) -> None:
    [key] = keys(hour, "--instance", "sDigits")
    page = view.page(f"/ladders/{key}")
    folds = re.findall(r'<details class="rung" id="rung-runs/([\w-]+)">(.*?)</details>', page, re.DOTALL)
    assert [name for name, _ in folds] == ["tanh-rnn", "ring-init", "gamma-norm"]
    for name, content in folds:
        assert f'<div id="runs/{name}">' in content, "which links of the report lead to"
        assert len(re.findall(r'<th scope="row"><a href="/runs/\w+">', content)) == 3
    assert 'href="/runs?instance=sDigits"' in page


def test_tags_and_notes_can_be_read_by_others(hour: Machine, view: View) -> None:
    assert words(view.page("/notes")).count("None") == 5
    with Ledger.open(hour.ledger) as ledger:
        first, second, third, *rest = [run.id for run in ledger.runs()]
        ledger.mark([first, second], tag=["for the paper", EVIL], note=f"check {EVIL}")
        ledger.mark([third], exclude="a broken disk")
        ledger.mark(rest[:20], tag=["many"])
        user = ledger.events(kind="note")[-1].payload
    assert user is not None
    page = view.page("/notes")
    text = words(page)
    assert f"{EVIL} 2 runs" in text
    assert "many 20 runs" in text
    assert "and 8 more" in text
    assert text.count(f"check {EVIL}") == 1, "one command has noted it for both runs"
    assert text.count(f", {user['user']}") == 2, "a note and an exclusion"
    assert f"{first} " in text
    assert f"{second} " in text
    assert text.count("npDigits-lr0.5: tanh-rnn, seed 1") == 3, "with both tags, and with the note"
    assert f"{third} " in text
    assert "a broken disk" in text
    assert f'href="/runs?where={quote("tag=")}'.replace("%3D", "%3D") in page
    [address] = [unescape(one) for one in re.findall(r'<a href="(/runs[^"]*)">for the paper</a>', page)]
    assert "2 of 92 runs" in words(view.page(address))
    assert "npDigits-lr0.5: tanh-rnn, seed 1" in text
    with contextlib.closing(sqlite3.connect(hour.ledger)) as connection, connection:
        connection.execute(
            "INSERT INTO removals (key, kind, time, user_name, selection, why, runs, bytes, finished_at) "
            "VALUES ('k', 'forgotten', 1.8e9, 'ann', '--where ''seed>20''', ?, 7, 10, NULL)",
            (EVIL,),
        )
    view.source.drop()
    text = words(view.page("/notes?again"))
    assert f"7 runs forgotten: --where 'seed>20' (files of them remain) {EVIL} 2027-01-15T08:00:00Z, ann" in text


def test_what_a_copy_lacks_is_shown_by_status_and_by_the_pages(hour: Machine) -> None:
    hour.run("ledger", "backup", "--out", "part.db", "--instance", "sDigits-ssm", "--where", "rung=s5")
    options = ("--ledger", "part.db")
    listed = hour.run(*options, "status").stdout
    assert "2 left out of this copy" in listed
    [one] = hour.json(*options, "status")["ladders"]
    assert one["removed"] == {"left out": 2}
    assert "2 of 2 done, 2 left out of this copy" in hour.run(*options, "status", "--details").stdout
    view = View(hour.folder / "part.db", hour.runs)
    assert "2 of 2 done, 2 left out of this copy" in words(view.page("/"))
    page = view.page(f"/ladders/{one['instance']}")
    assert "2 of 2 done, 2 left out of this copy" in words(page)
    assert '<h1 id="heading">sDigits-ssm: the LRU beside' in page
    assert "Removed runs 2 runs left out of this copy" in words(view.page("/notes"))
    hour.run(*options, "ledger", "merge", "ledger.db")
    assert not any(one["removed"] for one in hour.json(*options, "status")["ladders"])


def test_tables_on_pages_have_no_column_of_published_values_without_one(hour: Machine, view: View) -> None:
    [key] = keys(hour, "--instance", "sCIFAR-ssm")
    assert ">published<" in view.page(f"/ladders/{key}"), "the paper has values of this task"
    [key] = keys(hour, "--instance", "sDigits")
    page = view.page(f"/ladders/{key}")
    assert ">published<" not in page
    assert ">parameters<" in page


def test_tags_and_notes_are_bounded(hour: Machine, view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(hour.ledger) as ledger:
        ids = [run.id for run in ledger.runs()][:5]
        for number, run in enumerate(ids):
            ledger.mark([run], tag=[f"tag {number}"], note=f"note {number}", exclude=f"reason {number}")
    names = [one["name"] for one in hour.json("status")["ladders"]][:5]
    hide(hour.ledger, *names)
    with contextlib.closing(sqlite3.connect(hour.ledger)) as connection, connection:
        connection.execute("UPDATE hidden SET time = time + ladder")
        for number in range(5):
            connection.execute(
                "INSERT INTO removals (key, kind, time, user_name, selection, why, runs, bytes, finished_at) "
                "VALUES (?, 'forgotten', ?, 'ann', ?, NULL, 1, 10, 1.9e9)",
                (f"k{number}", 1.8e9 + number, f"removal {number}"),
            )
    assert "not shown" not in view.page("/notes")
    for name in ("_TAGS", "_NOTES"):
        monkeypatch.setattr(f"lrurun.ui.note_pages.{name}", 2)
    view.source.drop()
    view.source._kept.clear()
    page = words(view.page("/notes?bounded"))
    for kind, kept in {"tag": (0, 1), "note": (3, 4), "reason": (3, 4), "removal": (3, 4)}.items():
        assert [number for number in range(5) if f"{kind} {number}" in page] == list(kept), kind
    removed = page.partition("Hidden instances")[2]
    assert [name for name in names if name in removed.split()] == names[3:]
    assert page.count("3 more tags are not shown.") == 1
    assert page.count("3 older ones are not shown.") == 4


def test_downloads_are_what_the_command_writes(hour: Machine, view: View) -> None:
    [key] = keys(hour, "--instance", "sDigits")
    page = view.page(f"/ladders/{key}")
    addresses = re.findall(rf'<a href="(/ladders/{key}/report\.\w+)" download>', page)
    assert [address.rpartition(".")[2] for address in addresses] == ["txt", "md", "csv", "tex", "html", "json"]
    assert {f".{address.rpartition('.')[2]}" for address in addresses} == set(formats.ENDINGS)
    for address in addresses:
        ending = address.rpartition(".")[2]
        hour.run("report", "--instance", "sDigits", "--out", f"sDigits.{ending}")
        answer = view.get(address)
        assert answer.status == 200
        assert answer.headers["content-disposition"] == f'attachment; filename="sDigits.{ending}"'
        # the command names the ledger in commands that show more
        assert answer.body == (hour.folder / f"sDigits.{ending}").read_bytes(), ending
    assert view.get(f"/ladders/{key}/report.exe").status == 404
    assert view.get("/ladders/nothing/report.md").status == 404
    with contextlib.closing(sqlite3.connect(hour.ledger)) as connection, connection:
        connection.execute("UPDATE ladders SET short_name = ? WHERE key = ?", ('a/../b"\r\nx: é', key))
    view.source.drop()
    view.source._kept.clear()
    assert view.get(f"/ladders/{key}/report.csv").headers["content-disposition"] == (
        'attachment; filename="a_.._b_x_.csv"'
    )


def test_a_part_of_a_ledger_is_what_lists_show(hour: Machine) -> None:
    view = part_of(hour, ["sDigits", "sDigits-ssm"], "seed=0")
    front = view.page("/")
    assert sorted(listed(front)) == sorted(keys(hour, "--instance", "sDigits", "--instance", "sDigits-ssm"))
    assert "Lists show a part of the ledger: --instance sDigits --instance sDigits-ssm --where seed=0" in words(front)
    runs = hour.json("runs", "--where", "(instance=sDigits or instance=sDigits-ssm) and seed=0")["runs"]
    page = view.page("/runs")
    assert re.findall(r'<th scope="row"><a href="/runs/(\w+)">', page) == [run["id"] for run in runs]
    assert len(runs) == 3 + len(SSM)
    judging = set(re.findall(r'href="/ladders/(\w+)"', view.page("/claims")))
    assert judging
    assert judging <= set(keys(hour, "--where", "task=sDigits"))
    with Ledger.open(hour.ledger) as ledger:
        inside = runs[0]["id"]
        outside = next(run.id for run in ledger.runs() if run.task == "sCIFAR")
        ledger.mark([inside, outside], note="seen")
    assert words(view.page("/notes")).count("seen") == 1
    # what links lead to is whole
    assert "seed 2" in words(view.page(f"/compare?run={inside}&run={outside}")) or view.page(f"/runs/{outside}")
    assert listed(part_of(hour, [], "state=diverged").page("/")) == keys(hour, "--where", "state=diverged")
    hide(hour.ledger, "sDigits")
    assert len(listed(part_of(hour, ["sDigits"]).page("/"))) == 1, "it is named"
    assert "no ladder instance" in words(part_of(hour, ["gone"]).page("/", 404))


def test_the_command_refuses_a_part_that_is_not_there(hour: Machine) -> None:
    assert "did you mean 'sDigits'" in hour.refused("ui", "--instance", "sDigit", code=4)
    assert "did you mean 'seed'" in hour.refused("ui", "--where", "sed=1", code=2)


def test_a_ledger_that_grows_is_locked_or_replaced(hour: Machine, view: View, tmp_path: Path) -> None:
    before = listed(view.page("/"))
    with held(hour.ledger):
        assert listed(view.page("/?x")) == before, "a writer does not keep readers out"
        view.page("/notes?x")
    fill(hour.ledger, "ListOps", {"tanh-rnn": [0.3]})
    assert len(listed(view.page("/"))) == len(before) + 1
    fill(tmp_path / "other.db", "sCIFAR", {"tanh-rnn": [0.3]})
    (tmp_path / "other.db").replace(hour.ledger)
    for name in ("-wal", "-shm"):
        hour.ledger.with_name(hour.ledger.name + name).unlink(missing_ok=True)
    assert len(listed(view.page("/"))) == 1
    hour.ledger.unlink()
    assert "There is no ledger at" in words(view.page("/"))


def test_a_part_is_found_by_the_key_when_it_is_renamed(hour: Machine) -> None:
    [key] = keys(hour, "--instance", "sDigits")
    source = Source(Places(ledger=hour.ledger, runs=hour.runs, data=hour.runs), [key])
    with contextlib.closing(sqlite3.connect(hour.ledger)) as connection, connection:
        connection.execute("UPDATE ladders SET short_name = 'better' WHERE key = ?", (key,))
    assert source.part(source.ledger(), ()).text == "--instance better"
    source.drop()
