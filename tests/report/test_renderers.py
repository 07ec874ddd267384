"""Every report in every format: golden outputs, the same numbers and sentences, texts that are data, widths."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any, get_args

import pytest
from msgspec import structs

from lrurun.config.ladder import Claim, Grid, Ladder, Published, TrainingSpeed, load_ladder
from lrurun.data.metric import BitsPerByte
from lrurun.judging.rung_runs import Note
from lrurun.judging.verdicts import Comparison
from lrurun.report import formats
from lrurun.report.formats import latex
from lrurun.report.tables.row_scores import LadderRow
from tests.harness import speeds, typeset
from tests.harness.printed import agrees, from_html, from_latex, from_markdown, from_table, number, read
from tests.harness.reports import EVIL, GRID, MINI, body, build, evil, grid, make_run, make_rung

FORMATS = get_args(formats.Format)
TEXTS = {"table": from_table, "md": from_markdown, "latex": from_latex, "html": from_html}

FORMS = Ladder(
    name="forms",
    title="two forms on three rings",
    source="Paper",
    rungs=tuple(
        make_rung(name, **({"sDigits": (published,)} if published else {}))
        for name, published in {
            "free-1": Published(source="Paper", value=0.7, stderr=0.01),
            "stable-1": None,
            "free-2": None,
            "stable-2": Published(source="Paper", note="not above chance"),
            "free-3": None,
        }.items()
    ),
    grid=Grid(
        down="form",
        across="ring",
        columns=("one", "two", "th|ree"),
        rows={"free": ("free-1", "free-2", "free-3"), "kept_stable": ("stable-1", "stable-2", "")},
    ),
)
FORM_SCORES = {"free-1": (0.70, 0.72, 0.71), "stable-1": (0.80, 0.84, 0.82), "free-2": (0.81, 0.83), "stable-2": (0.5,)}
FORM_RUNS = [
    *(make_run(f"{rung}.{k}", rung, k, score) for rung, found in FORM_SCORES.items() for k, score in enumerate(found)),
    make_run("bad", "stable-2", 1, state="diverged"),
]
REPORTS: dict[str, Callable[[], Any]] = {
    "ladder": lambda: build(profile="laptop", notes=["a note"]),
    "branches": lambda: grid(),
    "grid": lambda: build(FORMS, FORM_RUNS),
    "speeds": lambda: speeds.laptop(),
    "evil": lambda: evil(),
    "nothing": lambda: build(runs=[], test_items=None),
}


@functools.cache
def made(name: str) -> Any:
    return REPORTS[name]()


def sections(**texts: str) -> str:
    """One file of several outputs. Of long numbers, the last digits are those of the installed scipy."""
    return re.sub(r"(\.\d{9})\d+", r"\1", "".join(f"==== {name}\n{text}\n\n" for name, text in texts.items()))


def rows_of(document: str) -> str:
    """JSON with a line for each row and claim."""
    found = json.loads(document)
    parts = [json.dumps(found | {"rows": len(found["rows"]), "claims": len(found.get("claims", ()))})]
    return "\n".join([*parts, *(json.dumps(one) for one in (*found["rows"], *found.get("claims", ())))])


def shown(text: str) -> str:
    """What a page shows: heading, picture, tables and sentences."""
    page = read(text)
    cells = [["", *row] for table in (page.picture, *page.tables) for row in ([], *table)]
    parts = [" | ".join(row).replace("\n", " / ") for row in cells]
    return "\n".join([*page.texts["h1"], *parts, *(f"{tag}: {one}" for tag in ("p", "dt", "dd", "li") for one in page.texts.get(tag, ()))])  # fmt: skip  # noqa: E501


SEEN: dict[str, tuple[tuple[int, ...], tuple[formats.Format, ...]]] = {
    "ladder": ((60, 100, 200), ("md", "latex", "csv", "json", "html")),
    "branches": ((25, 60), ("md",)),
    "grid": ((50, 64), ("md", "latex", "html")),
    "speeds": ((55, 100), ("md", "latex", "csv", "json", "html")),
}
"""The widths of tables and the other formats of what is compared."""


@pytest.mark.parametrize("name", SEEN)
def test_what_people_see(golden: Any, name: str) -> None:
    widths, others = SEEN[name]
    texts = {f"table of {width} columns": formats.render(made(name), "table", width=width) for width in widths}
    for one in others:
        text = formats.render(made(name), one)
        texts[one] = {"json": rows_of, "html": shown}.get(one, str)(text)
    golden(f"report/{name}.txt", sections(**texts))


# The contract of formats


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_shows_every_report(name: str, format: formats.Format) -> None:
    """Sound pages, no control characters, and in colour nothing but colour."""
    text = formats.render(made(name), format)
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    if format == "html":
        read(text)
    elif format == "latex":
        assert text.isascii()
    elif format == "table":
        plain, colored = (formats.render(made(name), "table", width=100, color=color) for color in (False, True))
        without = re.sub(r"\x1b\[[0-9;]*m", "", colored)
        assert [line.rstrip() for line in without.split("\n")] == plain.split("\n")
        assert ("\x1b[32msupported\x1b[0m" in colored) == ("\nsupported" in plain)


@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_wider_than_the_terminal(name: str) -> None:
    for width in (26, 33, 40, 49, 60, 80, 100, 121):
        text = formats.render(made(name), "table", width=width)
        assert max(map(len, text.split("\n"))) <= max(width, 34 * (name == "evil")), "which has a word of 34 letters"


def without_titles(rows: list[list[str]]) -> list[dict[str, str]]:
    names = [name.replace(" [95 %]", "") for name in rows[0]]
    found = [dict(zip(names, row, strict=True)) for row in rows[1:]]
    return [{name: cell for name, cell in row.items() if name != "title"} for row in found]


def parsed(report: Any) -> list[dict[str, str]]:
    """The cells that every format of documents shows."""
    found = {name: without_titles(back(formats.render(report, name))) for name, back in TEXTS.items()}  # type: ignore[arg-type]
    if not any(row.published for row in report.rows):
        for rows in found.values():  # some formats leave out a column that is empty
            assert {row.pop("published", "–") for row in rows} == {"–"}
    assert {*found, "csv", "json"} == {*FORMATS}
    assert all(rows == found["table"] for rows in found.values())
    return found["table"]


def lines_of(report: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(formats.render(report, "csv"))))


@pytest.mark.parametrize("name", ["ladder", "branches"])
def test_all_formats_carry_the_same_numbers(name: str) -> None:
    report = made(name)
    rows = json.loads(formats.render(report, "json"))["rows"]
    for cells, row, line in zip(parsed(report), rows, lines_of(report), strict=True):
        compared = row["comparison"] or {}
        sides = dict(zip(("compared", "base"), compared.get("sides", ()), strict=False))
        for field, cell in line.items():
            side, _, part = field.partition("_")
            if side in ("compared", "base"):
                assert number(cell) == sides.get(side, {}).get(part)
            elif field in (*Comparison.__struct_fields__, *row) and field not in ("rung", "metric", "verdict"):
                value = compared.get(field) if field in Comparison.__struct_fields__ else row[field]
                if value is None or isinstance(value, bool | float | int):
                    assert cell == ("" if value is None else str(value).lower())
        assert line["published_value"] == "; ".join(str(one["value"] or "") for one in row["published"])
        assert cells["rung"] == row["rung"] == line["rung"]
        score = re.fullmatch(r"(\S+?)(?: ± (\S+))? \(n=(\d+)\)(.*)", cells["test accuracy"])
        assert score
        agrees(score[1], row["mean"], 100)
        agrees(score[2] or "–", row["stderr"], 100)
        assert int(score[3]) == row["n"]
        for word in ("diverged", "failed", "unfinished"):
            found = re.search(rf"(\d+) {word}", score[4])
            assert (int(found[1]) if found else 0) == row[word]
        if row["same_as_before"]:
            assert cells["difference"].startswith("as ")
        else:
            change = re.fullmatch(r"(\S+)(?: \[(\S+), (\S+)\])?", cells["difference"])
            assert change
            for cell, field in zip(change.groups("–"), ("difference", "low", "high"), strict=True):
                agrees(cell, compared.get(field), 100)
        if cells["p"] == "<0.001":
            assert compared["p_adjusted"] < 0.001
        else:
            agrees(cells["p"], compared.get("p_adjusted"))
        agrees(cells["parameters"], row["parameters"])
        agrees(cells["steps/s"], row["steps_per_second"])


def test_all_formats_of_speeds_carry_the_same_numbers() -> None:
    report = made("speeds")
    rows = speeds.document(report)["rows"]
    for cells, row, line in zip(parsed(report), rows, lines_of(report), strict=True):
        for field in ("n", "steps_per_second", "stderr", "speedup", "speedup_low", "speedup_high", "threads"):
            assert number(line[field]) == row[field]
        for cell, fields in (("steps/s", ("steps_per_second", "stderr")), ("speed-up", ("speedup", "speedup_low"))):
            for text, field in zip(re.findall(r"[\d.–]+", cells[cell]), fields, strict=False):
                if row["n"] and "(n=1)" not in f"{field == 'stderr' and cells[cell]}":
                    agrees(text, row[field])


def test_all_documents_say_the_same_below_the_table() -> None:
    report = made("ladder")
    page = read(formats.render(report, "html"))
    signs = ((r"\%", "%"), (r"$\pm$", "±"), ("$-$", "-"), ("{[}", "["), ("{]}", "]"))
    tex = formats.render(report, "latex")
    for sign, plain in signs:
        tex = tex.replace(sign, plain)
    texts = [formats.render(report, "table"), formats.render(report, "md"), tex]
    warnings = [one for one in report.conclusions if one.startswith("Provisional")]
    notes = formats.content_of(report).notes(formats.content_of(report).table.columns)
    assert len(page.texts["li"]) == len((*report.conclusions, *notes)) - len(warnings)
    for sentence in (*page.texts["li"], *page.texts["dd"]):
        if not re.fullmatch(r"[\d.+−\s]+", sentence):  # the interval that is drawn below a claim
            assert [sentence in text for text in texts] == [True] * 3


def test_csv_has_every_field_of_a_row_but_these() -> None:
    missing = set(LadderRow.__struct_fields__) - lines_of(build())[0].keys()
    known = {"branches", "published", "rate_source", "other_runs", "paper", "untuned"}
    assert missing == known | {"further_tests", "slots", "comparison"}


def test_json_has_null_for_what_is_not_finite() -> None:
    report = build()
    odd = structs.replace(report.rows[0], steps_per_second=float("inf"), mean=float("nan"))
    row, other = json.loads(formats.render(structs.replace(report, rows=(odd, report.rows[1])), "json"))["rows"]
    assert (row["steps_per_second"], row["mean"], row["finite"]) == (None, None, False)
    assert "finite" not in other


def test_text_from_files_and_the_ledger_is_data() -> None:
    text = "=HYPERLINK(1)|\x1b[31m[bold]*x*</td><script>\n__y__ [a](b) r_max\u202e"
    published = Published(source="@SUM(A1)\x1b]0;t\x07", value=0.5)
    ladder = Ladder(
        name="evil",
        title=text,
        source="s",
        question=text,
        rungs=(make_rung("a", text, sDigits=(published,)), make_rung("b")),
        claims=(Claim(text=text, source=text, rung="b", than="a"),),
        speeds=(TrainingSpeed(system=text, rung="a", source=text, device=text, steps_per_second={"sDigits": 1.0}),),
    )
    runs = [make_run("-1+1", "a", 0, 0.5, code=("+cmd", "y")), make_run("2", "b", 0, 0.25)]
    report = build(ladder, runs, notes=[text])
    of_speeds = speeds.build([("x", "a", 1.0, {"device": text})], ladder=ladder)
    clean = "=HYPERLINK(1)|[bold]*x*</td><script> __y__ [a](b) r_max"
    escaped = r"=HYPERLINK(1)\|[bold]\*x\*&lt;/td&gt;&lt;script&gt; \_\_y\_\_ [a]\(b) r_max"
    for one, count in ((report, 6), (of_speeds, 5)):
        for width in (30, 200):
            assert not set(formats.render(one, "table", width=width)) & {"\x1b", "\x07", "\u202e"}
        markdown = formats.render(one, "md")
        assert markdown.count(escaped) >= count
        assert "<script>" not in markdown
        read(formats.render(one, "html"))
    assert sum(clean in line for line in formats.render(report, "table", width=200).split("\n")) == 5
    first, second = lines_of(report)
    assert [first[name] for name in ("title", "published_source", "runs", "code_versions")] == [f"'{clean}", "'@SUM(A1)", "'-1+1", "'+cmd; y"]  # fmt: skip  # noqa: E501
    assert second["difference"] == "-0.25", "a number below zero is a number"
    assert lines_of(of_speeds)[0]["device"] == f"'{clean}"
    found = formats.render(report, "json")
    assert found.isascii()
    assert json.loads(found)["rows"][0]["title"] == text
    page = read(formats.render(evil(), "html"))
    assert (page.texts["h1"], page.tables[0][1][0]) == ([f"{EVIL} on sDigits, without --tune"], f"a\n{EVIL}")


def test_the_notes_explain_the_columns_that_are_shown() -> None:
    notes = {
        "p": "p: two-sided, for new seeds and test items, of means (Welch)",
        "learn": "Learn: seeds better than chance",
        "difference [95 %]": "95 % interval (Welch) for new seeds and test items",
        "better [95 %]": "Better: the chance that a run scores better than one of the base",
        "steps/s": "Steps/s: median",
    }
    for width in (26, 40, 60, 80, 100, 160):
        flat = " ".join(formats.render(build(), "table", width=width).split())
        omitted = re.search(r"Not shown at this width: (.*?)\. Test acc", flat)
        names = omitted[1].split(", ") if omitted else []
        assert {name for name, note in notes.items() if note not in flat} == notes.keys() & set(names), width


def test_columns_that_are_left_out_first() -> None:
    """An empty one of published values, and a grid that is wider than the terminal."""
    rungs = tuple(structs.replace(rung, published={}) for rung in MINI.rungs)
    report = build(structs.replace(MINI, rungs=rungs), same_as_base={"ring-init"})
    heads = {width: body(formats.render(report, "table", width=width)).partition("\n")[0] for width in (85, 100, 200)}
    assert heads[85].split() == ["rung", "test", "accuracy", "difference", "[95", "%]", "p", "learn"]
    assert ["published" in head for head in heads.values()] == [False, False, True]
    firsts = [body(formats.render(made("grid"), "table", width=width)).split()[0] for width in (49, 50, 63, 64)]
    assert firsts == ["rung", "ring", "ring", "form"]
    for a, b in pairwise((90, 80, 65)):
        heads_of = [speeds.body(speeds.laptop(), width).split("\n")[0].split() for width in (a, b)]
        assert set(heads_of[1]) < set(heads_of[0])


def test_a_pipe_cuts_nothing_however_wide() -> None:
    title = "long " * 60
    ladder = Ladder(name="x", title="x", source="s", rungs=(make_rung("a", title.strip()),))
    text = formats.render(build(ladder, [make_run("1", "a", 0, 0.5)]), "table", width=200)
    assert [line for line in text.split("\n") if line.startswith(f"a     {title.strip()}") and "50.00 (n=1)" in line]


# Of single formats


def test_a_grid_is_one_row_a_rung_in_data_and_has_links_and_marks_on_a_page() -> None:
    plain = build(structs.replace(FORMS, grid=None), FORM_RUNS)
    found = json.loads(formats.render(made("grid"), "json"))
    assert found.pop("grid")["rows"]["free"] == ["free-1", "free-2", "free-3"]
    assert found | {"grid": None} == json.loads(formats.render(plain, "json"))
    assert formats.render(made("grid"), "csv") == formats.render(plain, "csv")
    text = formats.render(made("grid"), "html")
    assert read(text).texts["strong"] == ["82.00 ± 1.00 (n=2)", "82.00 ± 1.15 (n=3)"]
    assert '<a href="#runs/stable-1"><strong>82.00 ± 1.15 (n=3)</strong></a>' in text
    nothing = formats.render(build(FORMS, []), "table")
    assert (nothing.count("– (n=0)"), " *" in nothing) == (10, False)
    assert build(FORMS, [], shown=[rung.name for rung in FORMS.rungs[:4]]).grid is None


def test_the_best_cell_of_a_grid_is_the_lowest_where_less_is_better() -> None:
    scores = {"free-1": 3.0, "stable-1": 2.0, "free-2": 2.00004, "stable-2": 2.5}
    runs = [make_run(rung, rung, 0, result={"test/bits_per_byte": score}) for rung, score in scores.items()]
    rows = {form: tuple(f"{form}-{k}" for k in (1, 2, 3)) for form in ("free", "stable")}
    ladder = structs.replace(GRID, grid=Grid(down="form", across="ring", columns=("1", "2", "3"), rows=rows))
    for table in formats.content_of(build(ladder, runs, metric=BitsPerByte(chance=8.0))).above:
        cells = [(column.cell(row), column.is_marked(row)) for row in table.rows for column in table.columns[1:]]
        assert sorted(text for text, marked in cells if marked) == ["2.0000 (n=1)"] * 2, "they look equal"


def test_published_scores_are_of_the_metric_and_of_the_profile_first() -> None:
    def one(value: float, **more: str) -> Published:
        return Published(source="P", value=value, **more)

    rung = make_rung("a", sDigits=(one(0.5, metric="accuracy"), one(0.25, profile="small", metric="exact")))
    ladder = Ladder(name="one", title="t", source="s", rungs=(rung,))
    for profile, text, metric, elsewhere in [
        (None, "50.0", "accuracy", False),
        ("small", "25.0 exact", "exact", False),
        ("large", "50.0", "accuracy", True),
    ]:
        report = build(ladder, [], profile=profile)
        for form in TEXTS:
            found = formats.render(report, form)  # type: ignore[arg-type]
            assert text in found
            assert ("25.0" in found) == (profile == "small")
            assert (f"They are for the plain recipe, not for profile {profile}." in found) == elsewhere
        assert lines_of(report)[0]["published_metric"] == metric


def test_the_label_of_a_latex_table_distinguishes_instances_and_the_table_may_stand_alone() -> None:
    whole = formats.render(made("ladder"), "latex")
    alone = formats.render(made("ladder"), "latex", table_only=True)
    assert alone.startswith("\\begin{tabular}{llrrrrrrrr}\n\\toprule\n")
    assert alone.endswith("\\bottomrule\n\\end{tabular}")
    assert alone in whole
    changed = formats.render(build(set={"optim.lr": 0.5, "model.norm_first": True}, tune=True), "latex")
    assert re.search(r"\\label{tab:mini-sDigits-tuned-[0-9a-f]{6}}", changed)
    assert "tuned, optim.lr=0.5, model.norm\\_first=true" in changed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50 % a_b & #1 $x {y}", r"50 \% a\_b \& \#1 \$x \{y\}"),
        ("~^\\", r"\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        ('<|>`"q"', r"\textless{}\textbar{}\textgreater{}\textasciigrave{}''q''"),
        ("--set a-b a--b ---", r"-{}-set a-b a-{}-b -{}-{}-"),
        ("-0.5 [-1, -2] 2026-11-20 r-3", r"$-$0.5 {[}$-$1, $-$2{]} 2026-11-20 r-3"),
        ("é Ü ñ č ø – … † 95 ± 1 × γ −3", r"\'{e} \"{U} \~{n} \v{c} \o{} -- \dots{} \dag{} 95 $\pm$ 1 $\times$ $\gamma$ $-$3"),  # noqa: E501
        ("中\x1b[31m\u202e\n*", r"\texttt{U+4E2D} {*}"),
    ],
)  # fmt: skip
def test_latex_prints_what_the_text_says(text: str, expected: str) -> None:
    assert latex.escape(text) == expected


@pytest.mark.slow
def test_latex_compiles(tmp_path: Any) -> None:
    typeset.need("pdflatex")
    everything = " ".join([*latex._SPECIAL, *latex._SIGNS, *latex._MATHS, *latex._HANGING, *"éÜñčåçāăżő中"])
    stability = load_ladder("stability")
    its_runs = [make_run(rung.name, rung.name, 0, 0.5) for rung in stability.rungs]
    reports = [*map(made, REPORTS), structs.replace(build(), notes=(Note(everything),)), build(stability, its_runs)]
    tables = {f"report {place}": formats.render(report, "latex") for place, report in enumerate(reports)}
    assert typeset.faults(tmp_path, tables) == []


def test_reports_import_neither_jax_nor_the_database_nor_scipy() -> None:
    code = (
        "import sys; from lrurun.report import formats\n"
        "print([name for name in ('jax', 'sqlalchemy', 'scipy', 'rich', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
