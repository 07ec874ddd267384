"""The browser view in a real browser: every page at all widths, what people do there, and a ladder that is watched."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from lrurun import items
from lrurun.items import ItemResults
from lrurun.ledger.ledger import Ledger
from tests.docs.browser import Watched, chromium, served
from tests.harness.machine import LONG, Machine
from tests.harness.results import fill

__all__ = ["chromium"]  # a fixture
pytestmark = pytest.mark.slow


SIZES = [(390, "light"), (768, "dark"), (1600, "dark")]
LONG_NAMES = """
name = "a-ladder-whose-name-is-longer-than-forty-characters"
title = "a ladder that is described in a title of more than a line"
source = "ours"

[[rung]]
name = "a-first-rung-whose-name-is-longer-than-forty-characters"
title = "a dense recurrence"
change = { "model.recurrence.kind" = "dense" }

[[rung]]
name = "another-rung-with-a-name-as-long-as-the-first-one"
title = "a diagonal recurrence"
change = { "model.recurrence.kind" = "diagonal" }
"""


@pytest.fixture(scope="module")
def trained(finished: Machine, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a finished ladder, one with long names and a diverged run, and a study; and its server."""
    machine = finished.copy(tmp_path_factory.mktemp("here") / "copy")
    (machine.folder / "ablations").mkdir()
    (machine.folder / "ablations" / "long.toml").write_text(LONG_NAMES)
    with contextlib.chdir(machine.folder):
        first, second = (line.split('"')[1] for line in LONG_NAMES.splitlines() if "-rung-" in line)
        fill(machine.ledger, "sDigits", {first: [0.5, 0.6], second: [0.9, None]}, ladder="long")
    with Ledger.open(machine.ledger) as ledger:
        for run in ledger.runs():
            if run.state == "done" and run.memberships[0].rung in (first, second):
                right = np.random.default_rng(run.seed).random(90) < (run.result or {})["test/accuracy"]
                result = ItemResults(test_set=items.TestSet(count=90), sums=right.astype(np.float64))
                ledger.record_items(run.id, {"test/accuracy": result})
    machine.run("study", "powers", "--profile", "ci")
    with served(machine) as (link, _):
        yield machine, link


def addresses(machine: Machine) -> list[str]:
    """Every kind of page, and the files that commands write."""
    runs = [run["id"] for run in machine.json("runs", "--ladder", "lru")["runs"]]
    [diverged] = [run["id"] for run in machine.json("runs", "--where", "state=diverged")["runs"]]
    keys = [one["instance"] for one in machine.json("status")["ladders"]]
    filtered = "/runs?where=seed%3C1&sort=-test%2Faccuracy&column=optim.lr&column=model.recurrence.kind"
    machine.run("report", "sDigits", "--profile", "smoke", "--format", "html", "--out", "ladder.html")
    machine.run("report", "--all", "--format", "html", "--out", "all.html")
    machine.run("study", "powers", "--profile", "ci", "--out", "study.html")
    return [
        *(
            "/",
            "/runs",
            filtered,
            "/runs?where=sede%3E",
            "/claims",
            "/studies",
            "/notes",
            "/?task=sDigits&state=finished",
            "/runs?instance=sDigits-smoke",
            f"/runs/{runs[0]}",
            f"/runs/{diverged}",
        ),
        *(f"/ladders/{key}" for key in keys),
        *(
            f"/ladders/{one['instance']}?items"
            for one in machine.json("status")["ladders"]
            if one["ladder"] in LONG_NAMES
        ),
        f"/compare?run={runs[0]}&run={diverged}",
        *((machine.folder / file).as_uri() for file in ("ladder.html", "all.html", "study.html")),
    ]


def test_every_page_at_all_widths_light_and_dark(chromium: Any, trained: Any) -> None:
    """axe takes a second for a large page, so that it looks at each once, and at some wide and dark, too."""
    machine, link = trained
    view = Watched(chromium, link)
    for address in addresses(machine):
        view.open(address)
        both = address.startswith(("/runs", "/ladders"))
        for width, scheme in SIZES if both else SIZES[::2]:
            view.resize(width, scheme)
            view.check(axe=(width, scheme) == SIZES[0] or (both and (width, scheme) == SIZES[-1]))
    view.open("/")
    view.page.locator("#connection", has_text="Live").wait_for()
    view.context.close()


def test_runs_are_filtered_sorted_and_compared(chromium: Any, trained: Any) -> None:
    machine, link = trained
    view = Watched(chromium, link)
    page = view.page
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_label("Condition").fill("rung=gamma-norm or rung=ring-init")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?where=**")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("optim.lr", exact=True).check()
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**column=optim.lr**")
    page.get_by_role("link", name="seed", exact=True).click()
    page.wait_for_url("**sort=seed**")
    state = parse_qs(urlsplit(page.url).query)
    assert state == {"where": ["rung=gamma-norm or rung=ring-init"], "column": ["optim.lr"], "sort": ["seed"]}
    wanted = machine.json("runs", "--where", "rung=gamma-norm or rung=ring-init", "--sort", "seed")["runs"]
    assert page.locator("tbody th").all_inner_texts() == [run["id"] for run in wanted]
    # the address alone shows the same, in another tab
    other = view.context.new_page()
    other.goto(page.url)
    assert other.locator("main").inner_text() == page.locator("main").inner_text()
    other.close()
    for run in wanted:
        page.get_by_label(f"choose run {run['id']}").check()
    page.get_by_role("button", name="Compare the chosen runs").click()
    page.wait_for_url("**/compare?**")
    assert page.locator("h1").inner_text() == "Comparison of 2 runs"
    page.wait_for_selector(".chart canvas")
    drawn = json.loads(view.context.request.get(view.base + page.locator(".charts").get_attribute("data-src")).text())
    named = {f"{run['rung']}, seed {run['seed']}" for run in wanted}
    assert {line["label"] for line in drawn["panels"][0]["curves"]} == named
    view.check()
    view.context.close()


def test_charts_zoom_by_mouse_and_by_keyboard(chromium: Any, trained: Any) -> None:
    machine, link = trained
    view = Watched(chromium, link)
    page = view.page
    [run, *_] = machine.json("runs", "--ladder", "lru")["runs"]
    view.open(f"/runs/{run['id']}")
    chart = page.get_by_role("application").first
    chart.wait_for()
    chart.focus()
    page.keyboard.press("ArrowRight")
    step = page.locator(".u-legend .u-value").first
    assert re.fullmatch(r"[\d,.]+", step.inner_text())
    with page.expect_request("**from=**") as asked:
        page.keyboard.press("+")
    first = [int(found) for found in re.findall(r"(?:from|to)=(\d+)", asked.value.url)]
    assert 0 <= first[0] < first[1] <= run["steps"]
    assert page.evaluate("document.activeElement.getAttribute('role')") == "application"
    with page.expect_request(lambda request: "/data/" in request.url and "from" not in request.url):
        page.keyboard.press("0")
    page.wait_for_timeout(500)
    box = page.locator(".u-over").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 40, steps=4)
    with page.expect_request("**from=**"):
        page.mouse.up()
    view.check()
    view.context.close()


def test_tables_are_sorted_by_mouse_and_by_keyboard(chromium: Any, trained: Any) -> None:
    machine, link = trained
    view = Watched(chromium, link)
    page = view.page
    [key] = [one["instance"] for one in machine.json("status")["ladders"] if one["ladder"] == "lru"]
    view.open(f"/ladders/{key}")
    page.locator("#by-rung > summary").click()
    table = page.locator("#by-rung table")

    def rungs() -> list[str]:
        return table.locator("tbody tr th").all_text_contents()

    before = rungs()
    assert before != sorted(before)
    table.get_by_role("button", name="rung").focus()
    for order, wanted in (("ascending", sorted(before)), ("descending", sorted(before)[::-1]), (None, before)):
        page.keyboard.press("Enter")
        assert rungs() == wanted
        assert table.locator("th", has_text="rung").first.get_attribute("aria-sort") == order
    # numbers are compared as such, and empty cells come last
    numbers = page.locator("#report table.numbers").first
    numbers.get_by_role("button", name="test accuracy").click()
    cells = [text.split()[0] for text in numbers.locator("tbody tr td:nth-child(2)").all_text_contents()]
    scores = [float(text) for text in cells if text != "–"]
    assert scores == sorted(scores)
    assert len(scores) > 1
    assert cells == [f"{score:.2f}" for score in scores] + ["–"] * (len(cells) - len(scores))
    # a link to a rung opens it
    rung = page.locator("details.rung").first
    assert rung.get_attribute("open") is None
    page.locator("#report .picture tbody a").first.click()
    rung.locator("table").wait_for(state="visible")
    view.check()
    view.context.close()


def test_boxes_work_without_scripts(chromium: Any, trained: Any) -> None:
    machine, link = trained
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(link)
    page.locator("select[name=ladder]").select_option("lru")
    page.get_by_role("button", name="Show").click()
    assert parse_qs(urlsplit(page.url).query) == {"ladder": ["lru"]}
    [key] = [one["instance"] for one in machine.json("status")["ladders"] if one["ladder"] == "lru"]
    assert not page.get_by_text("First asked for").is_visible()
    page.locator(f"#entry-{key} summary").click()
    assert page.get_by_text("First asked for").is_visible()
    page.locator(".folded a").click()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Markdown").click()
    assert saved.value.suggested_filename == "sDigits-smoke.md"
    assert "| rung" in Path(saved.value.path()).read_text()
    context.close()


COUNT = """
const paths = new Map(), stroke = CanvasRenderingContext2D.prototype.stroke;
CanvasRenderingContext2D.prototype.stroke = function (...given) {
  if (given[0]) paths.set(this.canvas, (paths.get(this.canvas) ?? new Set()).add(given[0]));
  return stroke.apply(this, given);
};
window.linesOfCharts = () => [...document.querySelectorAll(".chart canvas")].map((one) => paths.get(one)?.size ?? 0);
"""
"""Counts the paths that are drawn in each chart: every line is one, axes are none."""


def test_a_chart_of_many_lines_is_drawn(chromium: Any, trained: Any) -> None:
    """As of 27 rungs, with 12 seeds each."""
    machine, link = trained
    view = Watched(chromium, link)
    curve = {"x": list(range(700)), "y": [0.5] * 700, "low": [], "high": [], "style": "thin"}
    lines = [{"label": f"rung {n // 12}, seed {n % 12}", "family": f"rung {n // 12}"} | curve for n in range(27 * 12)]
    drawn = {"panels": [{"title": "", "y": "loss", "y_scale": "log", "curves": lines}], "caption": ""}
    view.page.add_init_script(COUNT)
    view.page.route("**/data/ladders/**", lambda route: route.fulfill(json=drawn))
    [key] = [one["instance"] for one in machine.json("status")["ladders"] if one["ladder"] == "lru"]
    view.open(f"/ladders/{key}")
    view.wait_for("linesOfCharts().length > 2 && linesOfCharts().every((lines) => lines > 0)")
    assert view.page.evaluate("linesOfCharts()") == [len(lines)] * 3, "learning curves, norms, learning rates"
    view.check(axe=False)
    view.context.close()


def test_hostile_text_is_shown_as_text(chromium: Any, trained: Any, tmp_path: Path) -> None:
    machine = trained[0].copy(tmp_path / "copy")
    [run, *_] = [one["id"] for one in machine.json("runs", "--ladder", "lru")["runs"]]
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>' \" <b>bold</b>"
    machine.run("mark", run, "--note", evil)
    [log] = (machine.runs / run).glob("*/log.txt")
    with log.open("ab") as file:
        file.write(b"y" * 10_000_000 + b"\x1b[31m\x00" + evil.encode() + b"\n")
    with served(machine) as (link, _):
        view = Watched(chromium, link, width=390)
        view.open(f"/runs/{run}")
        assert evil in view.page.locator("#attempts").inner_text()
        assert view.page.locator("main b, main img").count() == 0
        view.check()
        view.context.close()


def test_a_ladder_that_is_watched_killed_and_finished(chromium: Any, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    long = (*LONG, "--set", "train.steps=1500")  # it must not end before the browser has seen it and it is killed
    rarely = ("--set", "execution.checkpoint_seconds=3600")
    ladder = ("ladder", "sDigits", *long, *rarely, "--rung", "gamma-norm", "--seeds", "2", "--jobs", "1")
    with served(machine) as (link, server):
        port = urlsplit(link).port
        view = Watched(chromium, link)
        page = view.page
        page.get_by_text("There is no ledger at").wait_for()
        training = machine.start(*ladder)
        page.get_by_role("heading", name="ladder lru on sDigits").get_by_role("link").click()
        page.locator("#summary", has_text="1 running").wait_for()
        seen = page.locator("#by-rung table").inner_text()
        view.wait_for(f"document.querySelector('#by-rung table').innerText !== {json.dumps(seen)}")
        page.wait_for_selector(".chart canvas")  # the curve of the running run
        _kill(training)
        page.get_by_text("belong to processes that do not exist any more").first.wait_for()
        server.kill()
        server.wait(10)
        page.get_by_text("The server does not answer").wait_for()
    faults = [one for one in view.faults if "ERR_" not in one]  # of the connection that was cut
    assert faults == []
    with served(machine, port or 0) as (link, _):
        page.get_by_text("open the link that lrurun ui printed").wait_for()
        view.faults.clear()
        page.goto(link)
        page.get_by_role("heading", name="ladder lru on sDigits").get_by_role("link").click()
        machine.run(*ladder, apart=True)
        page.locator("#summary", has_text="2 of 2 done").wait_for()
        report = machine.json("report", "sDigits", *long[:6], *long[-2:])
        [row] = [row for row in report["rows"] if row["n"]]
        score = f"{100 * row['mean']:.2f} ± {100 * row['stderr']:.2f} (n=2)"
        page.locator("#report", has_text=score).wait_for()
        view.check()
        [run, *_] = machine.json("runs")["runs"]
        view.open(f"/runs/{run['id']}")
        with next((machine.runs / run["id"]).glob("*/log.txt")).open("a") as file:
            file.write("a line that was added\n")
        page.locator("#log", has_text="a line that was added").wait_for()
        view.context.close()


def _kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)
