"""The same numbers and sentences in all formats of reports."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any, get_args

import pytest

from lrurun.report import formats
from tests.harness import speeds
from tests.harness.printed import agrees, from_html, from_latex, from_markdown, from_table, number, read
from tests.harness.reports import build, grid

TEXTS = {"table": from_table, "md": from_markdown, "latex": from_latex, "html": from_html}


def without_titles(rows: list[list[str]]) -> list[dict[str, str]]:
    names = [name.replace(" [95 %]", "") for name in rows[0]]
    found = [dict(zip(names, row, strict=True)) for row in rows[1:]]
    return [{name: cell for name, cell in row.items() if name != "title"} for row in found]


@pytest.mark.parametrize("report", [build(profile="laptop", notes=["a note"]), grid()], ids=["ladder", "branches"])
def test_all_formats_carry_the_same_numbers(report: Any) -> None:
    assert set(get_args(formats.Format)) == {*TEXTS, "csv", "json"}
    parsed = {name: without_titles(read_back(formats.render(report, name))) for name, read_back in TEXTS.items()}  # type: ignore[arg-type]
    document = json.loads(formats.render(report, "json"))
    if not any(row["published"] for row in document["rows"]):
        for rows in parsed.values():  # some formats leave out a column that is empty
            assert {row.pop("published", "–") for row in rows} == {"–"}
    assert parsed["md"] == parsed["table"]
    assert parsed["latex"] == parsed["table"]
    assert parsed["html"] == parsed["table"]

    lines = list(csv.DictReader(io.StringIO(formats.render(report, "csv"))))
    assert len(lines) == len(document["rows"]) == len(parsed["table"])
    for shown, row, line in zip(parsed["table"], document["rows"], lines, strict=True):
        for field, cell in line.items():
            if field in (
                "mean",
                "stderr",
                "failure_bound",
                "steps_per_second",
            ):
                assert number(cell) == row[field]
            elif field in ("difference", "low", "high", "improvement", "p_adjusted", "p_unadjusted", "detectable"):
                assert number(cell) == (row["comparison"] or {}).get(field)
            elif field in ("n", "parameters", "diverged", "failed", "unfinished", "learning", "improving"):
                assert (int(cell) if cell else None) == row[field]
        assert line["published_value"] == "; ".join(str(one["value"] or "") for one in row["published"])
        assert shown["rung"] == row["rung"] == line["rung"]
        score = re.fullmatch(r"(\S+?)(?: ± (\S+))? \(n=(\d+)\)(.*)", shown["test accuracy"])
        assert score
        agrees(score[1], row["mean"], 100)
        agrees(score[2] or "–", row["stderr"], 100)
        assert int(score[3]) == row["n"]
        for word in ("diverged", "failed", "unfinished"):
            found = re.search(rf"(\d+) {word}", score[4])
            assert (int(found[1]) if found else 0) == row[word]
        compared = row["comparison"] or dict.fromkeys(("difference", "low", "high", "p_adjusted"))
        if row["same_as_before"]:
            assert shown["difference"].startswith("as ")
        else:
            change = re.fullmatch(r"(\S+)(?: \[(\S+), (\S+)\])?", shown["difference"])
            assert change
            for cell, field in zip(change.groups("–"), ("difference", "low", "high"), strict=True):
                agrees(cell, compared[field], 100)
        if shown["p"] == "<0.001":
            assert compared["p_adjusted"] < 0.001
        else:
            agrees(shown["p"], compared["p_adjusted"])
        if (seeds := row["n"] + row["diverged"]) and "learn" in shown:
            assert shown["learn"] == f"{row['learning']} of {seeds}"
        agrees(shown["parameters"], row["parameters"])
        agrees(shown["steps/s"], row["steps_per_second"])
        for cell, one in zip(shown.get("published", "–").split(" / "), row["published"], strict=False):
            value, _, stderr = cell.partition(" ± ")
            agrees(value.replace("chance", "–"), one["value"], 100)
            agrees(stderr, one["stderr"], 100)


def test_all_formats_of_documents_say_the_same_below_the_table() -> None:
    report = build(notes=["a note"])
    page = read(formats.render(report, "html"))
    table, markdown = formats.render(report, "table"), formats.render(report, "md")
    tex = (
        formats.render(report, "latex")
        .replace(r"\%", "%")
        .replace(r"$\pm$", "±")
        .replace("$-$", "-")
        .replace("{[}", "[")
        .replace("{]}", "]")
    )
    content = formats.content_of(report)
    warnings = [one for one in report.conclusions if one.startswith("Provisional")]
    assert len(page.texts["li"]) == len((*report.conclusions, *content.notes(content.table.columns))) - len(warnings)
    for sentence in (*page.texts["li"], *page.texts["dd"]):
        if re.fullmatch(r"[\d.+−\s]+", sentence):
            continue  # the interval that is drawn below a claim
        for text in (table, markdown, tex):
            assert sentence in text


def test_all_formats_of_speeds_carry_the_same_numbers() -> None:
    report = speeds.laptop()
    parsed = {name: without_titles(read_back(formats.render(report, name))) for name, read_back in TEXTS.items()}  # type: ignore[arg-type]
    assert parsed["md"] == parsed["latex"] == parsed["html"] == parsed["table"]
    lines = list(csv.DictReader(io.StringIO(formats.render(report, "csv"))))
    rows = json.loads(formats.render(report, "json"))["rows"]
    for shown, row, line in zip(parsed["table"], rows, lines, strict=True):
        for field in ("steps_per_second", "stderr"):
            assert number(line[field]) == row[field]
        score = re.fullmatch(r"(\S+?)(?: ± (\S+))? \(n=(\d+)\)", shown["steps/s"])
        assert score
        agrees(score[1], row["steps_per_second"])
        agrees(score[2] or "–", row["stderr"])
        assert int(score[3]) == row["n"] == int(line["n"])
        ratio = re.fullmatch(r"(\S+)(?: \[(\S+), (\S+)\])?", shown["speed-up"])
        assert ratio
        for cell, name in zip(ratio.groups("–"), ("speedup", "speedup_low", "speedup_high"), strict=True):
            agrees(cell, row[name])
            assert number(line[name]) == row[name]
