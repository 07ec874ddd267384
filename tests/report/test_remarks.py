"""The remarks on a report are one list, from which each format takes what it shows; an instance is flat in JSON."""

from __future__ import annotations

import json
import re

from lrurun.config.instance import Instance
from lrurun.config.resolve import RateSource
from lrurun.report import formats
from lrurun.report.formats import as_json
from lrurun.report.tables import all_tasks
from lrurun.report.tables.ladder_table import LadderReport
from lrurun.report.tables.remarks import Caution, Remark, cautions_of, merged
from tests.harness.reports import MINI, RUNS, build, make_run

DEFAULT = {rung.name: (0.1, RateSource("default", "the recipe's default")) for rung in MINI.rungs}


def made() -> LadderReport:
    """A report whose provisional, untuned differences are of runs with several code and numerics versions."""
    return build(runs=[*RUNS, make_run("p0", "small-phase", 0, 0.5, numerics=1)], rates=DEFAULT, notes=["a note"])


def test_what_a_caution_says_is_not_repeated_beside_it() -> None:
    content = formats.content_of(made())
    columns = content.table.columns
    cautions = "; ".join(content.cautions)
    for short, full, stays in (
        ("provisional, fewer than", "Provisional: ", False),
        ("not tuned, see --tune", "Untuned: ", False),
        ("runs of 2 code versions", "These runs come from more than one code version: ", True),
        ("runs of 2 numerics versions", "These runs come from more than one numerics version: ", True),
    ):
        assert cautions.count(short) == 1
        for beside in (False, True):
            shown = [*content.conclusions(beside_cautions=beside), *content.notes(columns, beside_cautions=beside)]
            assert sum(text.startswith(full) for text in shown) == (stays or not beside)
    [provisional] = [remark for remark in content.remarks if remark.topic == "provisional"]
    assert provisional.caution is not None
    assert provisional.is_conclusion
    assert provisional.full.startswith("Provisional")


def test_formats_take_what_they_show_from_the_list() -> None:
    report = made()
    content = formats.content_of(report)
    short, details, page = (
        re.sub(r"\s+", " ", text)
        for text in (
            formats.render(report, "table", answer=True),
            formats.render(report, "table"),
            re.sub("<[^>]*>", "", formats.render(report, "html")),
        )
    )
    assert f"Caution: {'; '.join(content.cautions)}." in short
    assert "Note: a note" in short
    assert "Provisional: " not in short
    assert "more than one numerics version" not in short
    assert f"Caution: {'; '.join(content.cautions)}." in page
    assert "Provisional: " in details
    assert "Provisional: " not in page
    assert "more than one numerics version" in details
    assert "more than one numerics version" in page
    every = all_tasks.build(MINI, [report])
    whole = formats.content_of(every)
    assert any(text.startswith("Caution, sDigits: ") for text in whole.notes(whole.table.columns))
    assert not any("Caution, " in text for text in whole.notes(whole.table.columns, beside_cautions=True))
    assert whole.cautions[1:3] == ["not tuned, see --tune (all tasks)", "provisional, fewer than 12 seeds (all tasks)"]


def test_cautions_are_in_the_order_of_their_topics_wherever_their_remarks_are() -> None:
    cautions = [Remark(caution=Caution(what=topic), topic=topic) for topic in ("untuned", "edge", "code")]
    remarks = merged([Remark(full="C.", topic="code"), Remark(full="x"), Remark(full="U.", topic="untuned")], cautions)
    assert [(remark.full, remark.caution and remark.caution.what) for remark in remarks] == [
        ("C.", "code"),
        ("x", None),
        ("U.", "untuned"),
        ("", "edge"),
    ]
    assert [caution.what for caution in cautions_of(remarks)] == ["untuned", "edge", "code"]


def test_the_fields_of_an_instance_stand_among_those_of_its_document() -> None:
    report = build(set={"optim.lr": 0.5}, data={"kind": "embedded", "source": "here"}, profile="smoke")
    table = json.loads(formats.render(report, "json"))
    order = "schema_version task ladder title question profile instance short_name metric rows claims test_items data"
    assert " ".join(table).startswith(
        f"{order} notes grid set tune extend tuning label chance learns_from conclusions design "
    )
    assert (table["instance"], table["short_name"], table["set"]) == ("k", "toy", {"optim.lr": 0.5})
    assert (
        table["label"] == report.instance.label == "sDigits, profile smoke, without --tune, optim.lr=0.5, packaged data"
    )
    assert table["conclusions"] == list(report.conclusions)
    assert not {"findings", "key"} & set(table)
    every = as_json.plain(all_tasks.build(MINI, [report]))
    assert list(every["columns"][0])[:4] == ["name", "task", "profile", "instance"]
    assert list(every["rows"][0]["cells"][0])[-5:] == ["task", "profile", "instance", "label", "metric"]
    assert every["label"] == "all tasks, profile smoke, without --tune, optim.lr=0.5"
    assert Instance(ladder="lru", task="sDigits").description == "ladder lru on sDigits, without --tune"
