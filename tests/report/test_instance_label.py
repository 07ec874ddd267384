"""Reports and figures name their ladder instance, in every format and in the metadata of a file."""

from __future__ import annotations

import re
import zlib

import pytest

from lrurun.config import planning
from lrurun.config.instance import Instance, data_phrase
from lrurun.ledger.ledger import Ledger
from lrurun.report.formats import latex
from lrurun.report.tables.loaded_instance import LoadedInstance
from tests.harness import results
from tests.harness.machine import Machine

COPY = {"source": "the archive /x.tar", "kind": "folder", "baselines": {}, "published": "no"}
PLAIN = "sDigits, without --tune, packaged data"
CHANGED = "sDigits, profile smoke, tuned, train.batch=5000, not the published data"
OPTIONS = ("--profile", "smoke", "--tune", "--set", "train.batch=5000")
SCORES = {"tanh-rnn": (0.5, 0.6), "linear-rnn": (0.7, 0.8)}
SPECTRA = {"start": [0.5 + 0j], "end": [0.25 + 0j]}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A ledger with a plain instance, and one that differs from it in everything; tests only read it."""
    machine = Machine(tmp_path_factory.mktemp("two"))
    packaged = {"source": "scikit-learn load_digits", "kind": "embedded", "baselines": {"majority class": 0.1025}}
    results.fill(machine.ledger, "sDigits", SCORES, eigenvalues=SPECTRA, about=packaged)
    results.fill(
        machine.ledger,
        "sDigits",
        SCORES,
        profile="smoke",
        sets={"train.batch": 5000},
        tune=True,
        eigenvalues=SPECTRA,
        about=COPY,
    )
    return machine


@pytest.mark.parametrize("format", ["table", "md", "csv", "json", "latex"])
def test_reports_name_their_instance(two, format):
    formats = ["--json"] if format == "json" else ["--format", format]
    of_scores, of_speeds, plain = (
        two.run("report", "sDigits", *options, "--details", *formats).stdout
        for options in (OPTIONS, (*OPTIONS, "--speed"), ())
    )
    labels = [latex.escape(one) if format == "latex" else one for one in (PLAIN, CHANGED)]
    assert [one in plain for one in labels] == [True, False]
    assert [one in of_scores for one in labels] == [one in of_speeds for one in labels] == [False, True]
    if format == "latex":
        found = [re.findall(r"\\label\{(.*)\}", text) for text in (plain, of_scores, of_speeds)]
        end = found[1][0][-12:]
        assert re.fullmatch("tuned-[0-9a-f]{6}", end)
        assert found == [["tab:lru-sDigits"], [f"tab:lru-sDigits-smoke-{end}"], [f"tab:lru-sDigits-smoke-speed-{end}"]]


def test_details_name_naive_predictors_on_the_data_of_the_runs(two):
    text = " ".join(two.run("report", "sDigits", "--details").stdout.split())
    assert "Naive predictors on the same test items: majority class 10.2 %." in text
    assert "Naive" not in two.run("report", "sDigits", *OPTIONS, "--details").stdout


def test_every_line_of_csv_names_its_instance_also_in_the_table_of_all_tasks(two):
    for options in (("sDigits", *OPTIONS), ("--all", *OPTIONS)):
        head, *lines = two.run("report", *options, "--format", "csv").stdout.splitlines()
        assert head.split(",").count("label") == 1
        assert all(f',"{CHANGED}"' in line for line in lines)
    assert two.json("report", "sDigits", *OPTIONS)["data"] == COPY | {"sha256": results.DIGESTS["sDigits"]}
    assert two.json("report", "--all", *OPTIONS)["columns"][0]["label"] == CHANGED
    assert (
        two.run("report", "--all", *OPTIONS)
        .stdout.partition("\n")[0]
        .endswith(" on all tasks, profile smoke, tuned, train.batch=5000")
    )


def shown(name: str, content: bytes) -> str:
    """The text that the metadata of a PNG, SVG or PDF file have."""
    if name.endswith(".pdf"):
        pieces = re.findall(rb"stream\r?\n(.*?)endstream", content, re.DOTALL)
        whole = content + b"".join(zlib.decompress(piece) for piece in pieces if piece[:1] == b"x")
        return whole.decode("latin-1")
    return content.decode("latin-1").partition("</metadata>")[0] if name.endswith(".svg") else content.decode("latin-1")


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf"])
def test_figures_name_their_instance_in_title_and_file(two, drawing, name):
    kind = {"a.png": "curves", "a.svg": "eigenvalues", "a.pdf": "speed"}[name]
    two.run("plot", "sDigits", *OPTIONS, "--kind", kind, "--out", name)
    title = " ".join(drawing[-1].texts[0].get_text().split())
    assert title.endswith(f" on {CHANGED}")
    assert title in shown(name, (two.folder / name).read_bytes())


def test_figures_of_runs_name_the_instances_of_the_runs(two, sketched):
    ids = [run["id"] for run in two.json("runs", "--where", "rung=tanh-rnn")["runs"]]
    for kind in ("curves", "eigenvalues"):
        two.run("plot", *ids, "--kind", kind, "--out", "a.png")
        assert " ".join(sketched[-1].texts[0].get_text().split()) == f"{CHANGED}; {PLAIN}: 4 runs"


def test_the_label_of_every_kind_of_data():
    kinds = ({}, {"kind": "embedded"}, {"kind": "generated"}, {"kind": "folder"}, {"kind": "download"})
    assert [data_phrase(one) for one in kinds] == ["", "packaged data", "generated data"] + ["unverified data"] * 2
    known = [data_phrase({"kind": "folder", "published": one}) for one in ("yes", "no", "unverified")]
    assert known == ["published data", "not the published data", "unverified data"]
    data = {"kind": "folder", "published": "yes"}
    of = Instance(ladder="lru", task="T", set={"a.b": "x y", "c": True}, data=data)
    assert of.label == "T, without --tune, a.b=x y, c=true, published data"
    assert re.fullmatch("lru-T-[0-9a-f]{6}", of.anchor())


def test_the_data_may_be_recorded_by_an_earlier_attempt_of_a_run(machine):
    plan = planning.make("sDigits")
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder("lru", "sDigits", None, plan.spec)
        [run] = ledger.enqueue(instance.key, planning.final_runs(plan, plan.rungs[0], [0]))
        for environment, state in (({"data": COPY}, "interrupted"), ({"device": "cpu"}, "done")):
            ledger.requeue([run.id])
            held = ledger.hold(instance.key, results.OWNER, environment=environment)
            ledger.describe(held, parameters=1000, data_sha256="d" * 64)
            ledger.finish(held, state, result={"test/accuracy": 0.5} if state == "done" else {}, step=20)
        assert LoadedInstance(plan, instance, ledger).data == COPY | {"sha256": "d" * 64}


def test_an_instance_is_named_alone(two):
    for option in (("--ladder", "lru"), ("--profile", "smoke"), ("--tune",), ("--set", "optim.lr=1")):
        for command in (("report",), ("plot", "--out", "a.png")):
            error = two.run(*command, "--instance", "sDigits", *option, code=2).stderr
            assert f"--instance and {option[0]} exclude each other" in error


def test_a_missing_instance_and_those_of_the_ledger_are_named_with_their_settings(two):
    with Ledger.open(two.ledger) as ledger:
        names = {one.profile: one.short_name for one in ledger.ladders()}
    wanted = ("--profile", "smoke", "--tune", "--set", "train.batch=5001")
    error = two.run("report", "sDigits", *wanted, code=4).stderr
    for part in (
        "ladder lru on sDigits, profile smoke, tuned, train.batch=5001: not in this ledger",
        f"ladder lru on sDigits, without --tune (--instance {names[None]})",
        f"ladder lru on sDigits, profile smoke, tuned, train.batch=5000 (--instance {names['smoke']})",
    ):
        assert part in error
    assert "train.batch=5001: on no task of this ledger" in two.run("report", "--all", *wanted, code=4).stderr
