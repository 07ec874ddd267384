"""`lrurun data` and the first stage of a ladder, as a person meets them: real commands, no network."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lrurun.config.planning import data_of
from lrurun.data import task_data
from tests.harness.machine import Machine, small_files, stop, wait_for

NO_NETWORK = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
"""A proxy where nobody listens: no test depends on the network of the machine it runs on."""

SMOKE = ("ListOps", "--profile", "smoke")


def recipe(machine: Machine, name: str, *data: str) -> str:
    """A recipe of one's own whose data are changed; its path."""
    source = Path(__file__).parents[2] / "recipes" / f"{name}.toml"
    text = source.read_text().replace("\n[model]\n", "\n[data]\n" + "\n".join(data) + "\n\n[model]\n", 1)
    (machine.folder / f"{name}.toml").write_text(text)
    return f"{name}.toml"


def left_in(machine: Machine) -> list[str]:
    """What lies in the data folder `d`, hidden files too."""
    folder = machine.folder / "d"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_without_a_network_a_ladder_says_what_is_missing_and_how_to_give_it(machine):
    said = machine.refused("ladder", "Retrieval", "--data-dir", "new/d", code=1, env=NO_NETWORK)
    error, hint = (line for line in said.splitlines() if line.startswith(("error: ", "hint: ")))
    assert error.startswith("error: Retrieval: the data are missing and could not be downloaded: http")
    assert error.endswith(": no connection")
    assert f"into {machine.folder}/new/d/downloads" in hint
    assert "if you have a copy: lrurun data prepare Retrieval --from PATH, where PATH is " in hint
    assert list(machine.folder.iterdir()) == []  # no ledger, no runs, no data


def test_info_prepare_and_check_of_generated_text(machine, golden):
    """As people see them; a full disk is named, and the next prepare succeeds."""
    words = (*SMOKE, "--data-dir", "d")
    printed = ["$ lrurun data info", machine.run("data", "info", *words).stdout]
    with small_files(60_000):
        done = machine.run("data", "prepare", *words, code=1)
    assert "File too large" in done.stderr
    assert "hint: check space and permissions" in done.stderr
    assert left_in(machine) == []
    done = machine.run("data", "prepare", *words)
    source = machine.json("data", "info", *words)["prepared"]["source"]
    assert done.stdout == f"d/ListOps-smoke: train 2,000, validation 200, test 200; {source}\n"
    assert left_in(machine) == ["ListOps-smoke"]
    assert machine.run("data", "prepare", *words).stdout == done.stdout
    printed += ["$ lrurun data prepare", done.stdout]
    for name in ("info", "check"):
        printed += [f"$ lrurun data {name}", machine.run("data", name, *words).stdout]
    text = re.sub(r"[0-9a-f]{64}", "DIGEST", "\n".join(printed)).replace(str(machine.folder), "HERE")
    golden("data-commands.txt", re.sub(r"sha256:\S+", "sha256:DIGEST", text))
    table = json.loads((machine.folder / "d/ListOps-smoke/manifest.json").read_text())
    assert table["kind"] == "generated"
    assert {"name", "version", "seed"} <= set(table["generator"])
    found = machine.json("data", "check", *words)
    labels = np.load(machine.folder / "d/ListOps-smoke/train-labels.npy")
    assert found["splits"]["train"]["classes"] == np.bincount(labels, minlength=10).tolist()
    assert sum(n for *_, n in found["splits"]["train"]["histogram"]) == 2000
    assert "has no pictures" in machine.refused("data", "check", *words, "--image", "x.png", code=1)


def test_check_draws_examples_of_images(machine):
    task, options, name = data_of("sDigits", None)
    task_data.prepare(task, options, machine.folder / "d" / name)
    machine.run("data", "check", "sDigits", "--data-dir", "d", "--image", "x.png")
    drawn = np.asarray(Image.open(machine.folder / "x.png"))
    digits = np.load(machine.folder / "d/sDigits/train-inputs.npy")[:4].reshape(4, 8, 8)
    assert drawn.shape == (128, 4 * 128 + 3 * 8)
    for k in range(4):
        np.testing.assert_array_equal(
            drawn[8::16, k * 136 + 8 : k * 136 + 128 : 16], np.minimum(digits[k] / 16 * 255, 255).astype(np.uint8)
        )


@pytest.mark.slow
def test_what_is_stopped_leaves_nothing_and_what_is_killed_is_made_good_by_the_next(machine):
    path = recipe(machine, "ListOps", "train = 2000000")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process = machine.start("data", "prepare", path, "--data-dir", "d")
        wait_for(lambda: ".ListOps.partial" in left_in(machine))
        time.sleep(0.3)
        stop(process, number)
        _, err = process.communicate(timeout=20)
        if number != signal.SIGKILL:
            assert process.returncode == 128 + number
            assert "no data were prepared; the same command prepares them" in err
            assert left_in(machine) == []
    small = recipe(machine, "ListOps", "train = 100", "validation = 10", "test = 10", "max_length = 520")
    machine.run("data", "prepare", small, "--data-dir", "d")
    assert left_in(machine) == ["ListOps"]


@pytest.mark.slow
def test_two_prepares_at_once_make_one_folder(machine):
    words = ("data", "prepare", *SMOKE, "--data-dir", "d")
    both = [machine.start(*words) for _ in range(2)]
    printed = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    assert printed[0][0] == printed[1][0]
    assert left_in(machine) == ["ListOps-smoke"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("prepare", "ListOp"), 2, "did you mean 'ListOps'?"),
        (("prepare", "ListOps", "--profile", "smok"), 2, "did you mean 'smoke'?"),
        (("prepare", *SMOKE, "--from", "nowhere"), 1, "nowhere: no such file or folder"),
        (("check", *SMOKE), 1, "run: lrurun data prepare ListOps --profile smoke --data-dir d"),
        (("prepare", *SMOKE, "--data-dir", "/proc/x"), 1, "error: /proc/x: No such file or directory"),
    ],
)
def test_wrong_words(machine, words, code, said):
    assert said in machine.refused("data", *words, *(() if "--data-dir" in words else ("--data-dir", "d")), code=code)


def test_data_settings_are_the_recipes(machine):
    assert "settings of the data cannot be set here" in machine.refused("plan", *SMOKE, "--set", "data.train=7")
    path = recipe(machine, "ListOps", "trian = 7")
    said = machine.refused("data", "info", path)
    assert "ListOps.toml [data], trian: unknown name" in said
    assert "did you mean 'train'?" in said
    assert "min_length" in machine.refused("data", "info", recipe(machine, "ListOps", "min_length = 3000"))


@pytest.mark.slow
def test_reports_say_that_data_are_generated_and_what_naive_predictors_score(machine):
    machine.run("ladder", *SMOKE, "--rung", "gamma-norm", "--data-dir", "d")
    table = machine.run("report", *SMOKE, "--details").stdout
    manifest = json.loads((machine.folder / "d/ListOps-smoke/manifest.json").read_text())
    assert f"Data: {manifest['source']}." in table
    assert "Naive predictors on the same test items: majority class " in table
    # the ledger alone says it: the data may be on another machine
    report = machine.json("report", *SMOKE, "--data-dir", "elsewhere")
    assert report["data"].pop("sha256").startswith("sha256:")
    assert report["data"] == {key: manifest[key] for key in ("source", "kind", "baselines")}
    shown = machine.json("show", report["rows"][6]["runs"][0])
    assert shown["config"]["data"] == {"version": manifest["version"], **manifest["options"]}
    assert shown["provenance"]["data.min_length"].endswith("ListOps.toml [profile.smoke.data]")
