"""README and docs are checked against the program: generated parts, links, limits, examples."""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lrurun import paths
from lrurun.config.ladder import load_ladder
from lrurun.ledger import owner
from tests.docs import generated, transcripts
from tests.harness.machine import Machine, training, wait_for
from tests.harness.shared import once

ROOT = generated.ROOT
README = ROOT / "README.md"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def files(page: Path) -> dict[str, str]:
    """The files that a page asks its reader to save: the code after a line that ends with its name and a colon."""
    marked = r"`([\w-]+\.(?:toml|py))`:\n\n(?:<!-- generated: [\w-]+ -->\n)?```\w+\n(.*?)^```"
    return dict(re.findall(marked, page.read_text(), re.DOTALL | re.MULTILINE))


def commands(page: Path) -> list[str]:
    return [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("lrurun ")]


def test_generated_parts_are_current() -> None:
    for page in generated.PAGES:
        assert page.read_text() == generated.page(page, long=False), "run: python -m tests.docs.generated --write"


def test_pages_outside_of_the_site_are_short_and_lead_somewhere() -> None:
    """MkDocs checks the links of those inside."""
    assert len(README.read_text().splitlines()) <= 110
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 60
    assert [block.strip() for block in blocks(README, "text") if "pip" in block] == [
        "pip install -e . && lrurun ladder npDigits",
        "pip install -e '.[dev]' && pytest",
    ]
    for page in (README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            assert target.startswith(("http", "#")) or (ROOT / target.partition("#")[0]).exists(), (page.name, target)
    for page in (*generated.PAGES, ROOT / "CONTRIBUTING.md"):
        for name in re.findall(r"`((?:recipes|ablations|tests|benchmarks|lrurun|docs)/[\w./-]+)`", page.read_text()):
            assert (ROOT / name).exists(), (page.name, name)
    for kind in ("ablations", "recipes"):
        assert paths.packaged(kind) == ROOT / kind


def test_printed_table_is_the_ladders() -> None:
    """The recorded output is one screen, and has the rungs in order, twelve seeds, and all claims."""
    text = generated.OUTPUT.read_text()
    ladder = load_ladder("lru")
    assert len(text.splitlines()) <= 30
    assert max(map(len, text.splitlines())) <= 100
    assert "· 12 seeds a rung ·" in text
    found = re.findall(r"^([a-z]+(?:-[a-z]+)*) +\d+\.\d+ ± \d+\.\d+ %", text, re.MULTILINE)
    assert found == [rung.name for rung in ladder.rungs]
    [counts] = re.findall(r"^Claims of Orvieto et al\. 2023.*?: (.*?)\s\(lrurun claims", text, re.MULTILINE | re.DOTALL)
    claims = [claim for claim in ladder.claims if claim.is_about("npDigits")]
    assert sum(map(int, re.findall(r"\d+", counts))) == len(claims)


def test_recorded_sessions_are_those_of_their_scripts_and_end_with_a_result() -> None:
    for name in transcripts.names():
        said = transcripts.recorded(name)
        assert list(said) == transcripts.commands(name)
        assert not any("error:" in text or "Traceback" in text for text in said.values())
    [ladder] = [text for command, text in transcripts.recorded("own").items() if command.startswith("lrurun ladder")]
    assert re.search(r"^Claims: 1 supported ", ladder, re.MULTILINE)
    assert len(re.findall(r" done, val ", ladder)) == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", transcripts.names())
def test_recorded_sessions_are_what_the_commands_print(
    name: str, machine: Machine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Apart from numbers, which depend on the machine, as does which parameter has the largest error, and from
    progress, which depends on its speed. Trainings are shorter, so that their answer is another one.
    """

    def masked(text: str) -> list[str]:
        text = re.sub(r"(largest relative error \S+) \(\w+\)", r"\1", text)
        text = re.sub(r"\|[ ○●]*\|", "|", text)
        lines = re.sub(r"\d[\d.,:]*(e[+-]\d+)?|\b[0-9a-f]{12}\b|[─±+-]+", "#", text.strip()).splitlines()
        return [" ".join(line.split()) for line in lines if " left" not in line]

    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", f"{os.environ['XDG_CACHE_HOME']}/lrurun/xla")
    environment = transcripts.environment(machine.folder, 110)
    owner.user.cache_clear()  # commands in this process have another user
    request.addfinalizer(owner.user.cache_clear)
    for command, before in transcripts.recorded(name).items():
        if command.startswith("lrurun ") and name != "own":  # that has plug-ins, which would stay in this process
            done = machine.run(*shlex.split(command)[1:], env=environment)
            said = (done.stdout + done.stderr).replace(f"{machine.folder}/", "")
        else:
            short = command.replace("steps = 600", "steps = 60").replace("eval_every = 100", "eval_every = 60")
            said = transcripts.run(short.replace("trials = 6", "trials = 2"), machine.folder)
        now, then = masked(said), masked(before)
        if command.startswith("lrurun ladder"):
            now, then = ([line for line in lines if line.startswith("rung ")] for lines in (now, then))
        elif command.startswith("lrurun data prepare"):
            now, then = now[-1:], then[-1:]
        assert set(now) == set(then), command  # there are fewer trials
        assert now or not before


def test_example_ladder_is_sound(machine: Machine) -> None:
    for name, text in files(ROOT / "docs" / "ladders.md").items():
        (machine.folder / name).write_text(text)
    machine.run("check", "ladder", "radius.toml")
    plan = machine.run("plan", "npDigits", "--profile", "smoke", "--ladder", "radius.toml").stdout
    assert "r_min = 0.9; r_max = 0.99" in plan


ONE_JOB = ("--jobs", "1")  # of several, each begins and compiles by itself
FEW_STEPS = ("--set", "train.steps=4", "--set", "train.eval_every=4")


def train_the_ladder(folder: Path) -> None:
    Machine(folder).run("ladder", "npDigits", "--profile", "smoke", *ONE_JOB)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in generated.PAGES if commands(page) or page.stem == "python"], ids=lambda page: page.stem
)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """Every `lrurun` line of a page, one after the other, in one folder, with the page's files in it.

    All pages begin with the ladder that the tutorial trains. Longer examples are in blocks of text, and other tests run
    them. SQL is run too, and Python about that ladder. Of the trainings of the page on data four steps are enough, and
    tuning is run on the page on tuning alone.
    """
    machine = Machine(once("npDigits-smoke", train_the_ladder)).copy(tmp_path / "here")
    for name, text in files(page).items():
        (machine.folder / name).write_text(text)
    for line in commands(page):
        if page.stem != "tuning" and line.startswith("lrurun ladder") and "--tune" in line:
            continue
        fast = ONE_JOB if line.startswith("lrurun ladder") else ()
        fast += FEW_STEPS if fast and page.stem == "data" else ()
        done = machine.run(*shlex.split(line)[1:], *fast)
        assert done.stdout or done.stderr, line
    for query in blocks(page, "sql"):
        assert machine.json("query", query)["rows"], query
    if page.stem == "python":
        code = "".join(blocks(page, "python"))
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=machine.folder,
            env=machine.env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert re.fullmatch(r"\[\d( \d){4}\]\n", done.stdout), done.stdout


@pytest.mark.slow
def test_the_example_of_a_regression_is_trained_by_the_recipe_beside_it(machine: Machine) -> None:
    found = files(ROOT / "docs" / "extending.md")
    for name in ("waves.py", "waves.toml", "delay.toml"):
        (machine.folder / name).write_text(found[name])
    machine.env |= {"LRURUN_DATA": str(machine.folder / "data")}  # other tests prepare the same data
    arguments = ("waves.toml", "--load", "waves.py", "--rung", "gamma-norm")
    missing = machine.run("data", "check", *arguments[:3], code=1).stderr
    assert missing.endswith("hint: run: lrurun data prepare waves.toml --load waves.py\n")
    assert "the defaults of the task" in machine.run("data", "info", *arguments[:3]).stdout
    machine.run("ladder", *arguments, *ONE_JOB)
    [run] = machine.json("runs")["runs"]
    assert run["metrics"]["test/r2"] > 0.8
    checked = machine.json("data", "check", "waves.toml", "--load", "waves.py")
    assert checked["splits"]["test"]["labels"] == 1
    assert abs(checked["splits"]["test"]["values"][0]) < 0.1


def test_the_example_of_an_optimizer_with_an_update_of_its_own_passes_the_check(machine: Machine) -> None:
    (machine.folder / "polyak.py").write_text(files(ROOT / "docs" / "extending.md")["polyak.py"])
    found = machine.json("check", "optimizer", "polyak", "--load", "polyak.py", apart=True)["findings"]
    assert {finding["check"] for finding in found} >= {"groups", "each number alone", "evaluated parameters"}
    assert all(finding["passed"] for finding in found)


@pytest.mark.slow
def test_the_example_of_an_executor_trains_on_nodes_of_its_own(machine: Machine) -> None:
    info = machine.folder / "site" / "processes-1.dist-info"
    info.mkdir(parents=True)
    (info.parent / "processes.py").write_text(files(ROOT / "docs" / "extending.md")["processes.py"])
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: processes\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[lrurun.executors]\nprocesses = processes:Processes\n")
    machine.env |= {"PYTHONPATH": os.pathsep.join([str(info.parent), str(ROOT)])}
    ladder = ("ladder", "sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--on", "processes")
    assert "--on-node" in machine.run(*ladder, "--dry-run", apart=True).stdout
    assert "submitted 1 node supervisor: process " in machine.run(*ladder, apart=True).stderr
    assert machine.states() == {"done": 1}
    [[attempt]] = machine.attempts().values()
    assert attempt.host.startswith("process-0@")
    assert attempt.environment["node"]["task"].startswith("processes:lrurun-")
    assert "gamma-norm seed 0" in (machine.runs / "nodes" / "0.log").read_text()


def test_the_example_of_a_reader_imports_runs(machine: Machine) -> None:
    info = machine.folder / "site" / "scribe-1.dist-info"
    info.mkdir(parents=True)
    (info.parent / "scribe.py").write_text(files(ROOT / "docs" / "extending.md")["scribe.py"])
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scribe\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[lrurun.trackers]\nscribe = scribe:ScribeReader\n")
    machine.env |= {"PYTHONPATH": os.pathsep.join([str(info.parent), str(ROOT)])}
    for number, (norm, seed) in enumerate(itertools.product(("none", "layer"), range(4))):
        folder = machine.folder / "runs" / f"{norm}-{seed}"
        folder.mkdir(parents=True)
        about = {"settings": {"norm": norm, "optim": {"seed": seed}}, "end": "ok" if number else "killed"}
        (folder / "about.json").write_text(json.dumps(about))
        rows = [{"metric": "acc", "value": 0.5 + 0.01 * number + 0.1 * step, "step": step} for step in range(3)]
        lines = [json.dumps(row) for row in rows]
        (folder / "log.jsonl").write_text("\n".join([*lines, '{"metric": "ac'] if number == 7 else lines))
    options = ("--metric", "acc", "--by", "norm", "--base", "norm=none", "--seed-column", "optim.seed")
    done = machine.run("import", "runs", *options, apart=True)
    assert "the last line is half written and left out" in done.stderr
    rows = machine.json("report", "--instance", "runs", apart=True)["rows"]
    assert [(row["n"], round(row["mean"], 4)) for row in rows] == [(3, 0.72), (4, 0.755)]
    [run] = machine.json("runs", "--where", "rung=layer and seed=3", apart=True)["runs"]
    curves = machine.json("show", run["id"], apart=True)["metrics"]
    assert [step for step, *_ in curves["test/acc"]] == [0, 1, 2]
    assert (
        "did you mean 'scribe'?"
        in machine.run("import", "runs", "--name", "b", "--from", "scrib", code=2, apart=True).stderr
    )


@pytest.mark.slow
def test_the_site_builds(tmp_path) -> None:
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        check=True,
        env={"PATH": "", "HOME": str(tmp_path), "NO_MKDOCS_2_WARNING": "1"},
    )
    assert (tmp_path / "site" / "cli" / "index.html").is_file()


def example(name: str, machine: Machine) -> None:
    """Copies a folder of `docs/examples/`, whose files the page Your own program shows."""
    shutil.copytree(ROOT / "docs" / "examples" / name, machine.folder, dirs_exist_ok=True)
    machine.env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), machine.env["PATH"]])


def test_a_script_becomes_a_ladder_by_at_most_ten_changed_lines() -> None:
    texts = [(ROOT / "docs/examples/argparse" / name).read_text().splitlines() for name in ("before.py", "train.py")]
    assert sum(line.startswith("+ ") for line in difflib.ndiff(*texts)) <= 10
    assert [line for line in texts[1] if "lrurun" in line] == ["import lrurun", "run = lrurun.this_run()"]


def test_the_first_recipe_of_the_page_on_programs_has_two_variants(machine: Machine) -> None:
    (machine.folder / "train.toml").write_text(files(ROOT / "docs" / "programs.md")["train.toml"])
    (machine.folder / "train.py").touch()
    machine.env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), machine.env["PATH"]])
    plan = machine.json("plan", "train.toml", "--tune", "--seeds", "5")
    assert [(rung["rung"], rung["runs"]) for rung in plan["rungs"]] == [("plain", 14), ("gated", 14)]


@pytest.mark.slow
def test_the_shell_script_of_the_page_on_programs_is_a_ladder(machine: Machine) -> None:
    example("shell", machine)
    machine.run("ladder", "integral.toml", "--jobs", "1", "--seeds", "1")
    rows = machine.json("report", "integral.toml")["rows"]
    assert [row["n"] for row in rows] == [1, 1, 1]
    assert rows[0]["mean"] > 5 * rows[1]["mean"] > 10 * rows[2]["mean"] > 0
    assert [row["improving"] for row in rows] == [0, 0, 0]  # a score that was logged once is not the best of several
    # without the file of the recipe, its task names what the ledger records; without the program, the instance does
    (machine.folder / "integral.toml").unlink()
    assert machine.json("report", "integral")["rows"] == rows
    (machine.folder / "integral.sh").unlink()
    assert machine.json("report", "--instance", "integral")["rows"] == rows


@pytest.mark.slow
def test_the_script_of_the_page_on_programs_that_prints_is_a_ladder(machine: Machine) -> None:
    example("printed", machine)
    found = {one["check"]: one for one in machine.json("check", "program", "fit.toml")["findings"]}
    assert [name for name, one in found.items() if one["warning"]] == ["items of test/mse"]
    assert all(one["passed"] for one in found.values())
    assert found["val/mse"]["detail"].startswith("0.")
    machine.run("ladder", "fit.toml", "--jobs", "1", "--seeds", "2")
    one, three, momentum = machine.json("report", "fit.toml")["rows"]
    assert one["mean"] > 10 * three["mean"] > 20 * momentum["mean"] > 0
    [run] = machine.json("runs", "--where", "rung=one and seed=0")["runs"]
    curves = machine.json("show", run["id"])["metrics"]
    assert {name: len(points) for name, points in curves.items() if not name.startswith("machine/")} == {
        **{"train/loss": 40, "val/mse": 40, "test/mse": 40}
    }


@pytest.mark.slow
def test_the_training_script_of_the_page_on_programs_becomes_table_and_figure(machine: Machine) -> None:
    example("argparse", machine)
    module = {"PYTHONPATH": str(ROOT / "lrurun/programs/module")}
    arguments = [sys.executable, "train.py", "--epochs", "2", "--activation", "relu", "--scale"]  # by hand too
    done = subprocess.run(
        arguments, cwd=machine.folder, env=machine.env | module, capture_output=True, text=True, check=True
    )
    assert re.search(r"^accuracy: 0\.\d{3}$", done.stdout, re.MULTILINE)
    assert "step 2: train/loss " in done.stdout
    few = ("train.toml", "--set", "settings.epochs=4", "--set", "settings.lr=0.1")
    machine.run("ladder", *few, "--rung", "relu", "--seeds", "2", "--jobs", "1")
    [row] = [row for row in machine.json("report", *few)["rows"] if row["n"]]
    assert (row["rung"], row["n"]) == ("relu", 2)
    assert row["mean"] > 0.5
    machine.run("report", *few, "--format", "latex", "--out", "table.tex")
    assert r"\begin{tabular}" in (machine.folder / "table.tex").read_text()
    machine.run("plot", *few, "--out", "ladder.pdf")
    assert (machine.folder / "ladder.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_the_pytorch_script_of_the_page_on_programs_continues_after_an_interruption(machine: Machine) -> None:
    pytest.importorskip("torch")
    example("pytorch", machine)
    ladder = ("ladder", "digits.toml", "--rung", "plain", "--rung", "dropout", "--seeds", "1", "--jobs", "1")
    first = machine.start(*ladder)
    wait_for(training(machine, step=6))
    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 130
    machine.run(*ladder)
    assert machine.states() == {"done": 2}
    assert any(attempt.resumed_from for attempts in machine.attempts().values() for attempt in attempts)
    means = [row["mean"] for row in machine.json("report", "digits.toml")["rows"] if row["n"]]
    assert len(means) == 2
    assert min(means) > 0.6
    for run in machine.json("runs")["runs"]:
        assert "equal bit for bit" in machine.run("verify", run["id"]).stdout
