# ruff: noqa: E501 (whole outputs are compared as they are)
"""Reports as text tables, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from typing import get_args

import msgspec
import pytest
from msgspec import structs

from lrurun.config.ladder import Claim, Ladder, Published
from lrurun.report import formats
from lrurun.report.judging.verdicts import Comparison, Side
from lrurun.report.tables.row_scores import LadderRow
from tests.harness.reports import MINI, body, build, make_run, make_rung

TABLE_60 = """\
four rungs on sDigits, profile laptop, without --tune
Which of them matters?
Helps: linear-rnn scores 4.50 points more than tanh-rnn
(p = 0.013).
Undecided: stable-exponential against ring-init (between
-152.65 and +98.32 points; stable-exponential learns in 2 of
3 seeds; a run of stable-exponential is better than one of
ring-init in 67 % of pairs, though the mean is worse).
Provisional: all verdicts. With fewer than 12 seeds a
verdict assumes that no seed fails.
Not compared, because the runs are the same: ring-init
against linear-rnn.
Not run: small-phase against stable-exponential.
Of 4 claims (sDigits stands in for the tasks of 1 of them):
1 supported, 1 undecided, 1 not run, 1 not comparable (same
runs); all provisional.

rung                test accuracy        diff.      p
──────────────────  ──────────────────  ──────  ─────
tanh-rnn            91.00 ± 0.58 (n=3)       –      –
linear-rnn          95.50 ± 0.29 (n=3)   +4.50  0.013
ring-init           95.50 ± 0.29 (n=3)    same      –
stable-exponential  97.50 ± 0.50 (n=2)  -27.17  0.450
                    1 diverged
                    1 failed
                    1 unfinished
                    2 code versions
small-phase         – (n=0)                  –      –

Not shown at this width: title, difference [95 %], learn,
better [95 %], parameters, steps/s, published.
Test accuracy in per cent: mean ± standard error over n
finished seeds. Difference: to the previous rung, in points.
p: two-sided, of means (Welch), corrected by Holm's method
over all differences and claims with results.
Diverged runs rank below all others in p and verdicts, and
count in differences with the score of chance, 10.00; the
means of the rungs are without them.
A seed learns if its score is better than 15.20. Rate at
which seeds fail to learn, 95 % upper bound: 63 % (tanh-rnn,
linear-rnn); 86 % (stable-exponential).
One test item is 0.33 points (300 items).
Published: Paper, Table 1 (tanh-rnn); Paper, Table 2
(stable-exponential: not above chance). They are for the
plain recipe, not for profile laptop.
These runs come from more than one code version: 0.1.0 abc;
0.2.0 def.
Note: a note

Claims
supported (stand-in task): Linear is better. (Paper, 1)
    provisional (3 seeds); linear-rnn 95.50 ± 0.29 (n=3),
    tanh-rnn 91.00 ± 0.58 (n=3); difference +4.50 points
    [+2.42, +6.58]; chance of improvement 100 % [29, 100];
    p = 0.013; sDigits stands in for the paper's tasks of
    this claim (sCIFAR).
not comparable: The ring helps. (Paper, 2)
    ring-init and linear-rnn are the same runs on this task.
undecided: Stable is better. (Paper, 3)
    provisional (3 seeds); stable-exponential learns in 2 of
    3 seeds; a run of stable-exponential is better than one
    of ring-init in 67 % of pairs, though the mean is worse;
    stable-exponential 68.33 ± 29.17 (n=3, 1 diverged,
    counted as chance, 10.00), ring-init 95.50 ± 0.29 (n=3);
    difference -27.17 points [-152.65, +98.32]; chance of
    improvement 67 % [0, 100]; p = 0.450.
not run: Phases do not matter. (Paper, 4)
    no finished runs of small-phase."""

TABLE_100 = """\
four rungs on sDigits, profile laptop, without --tune
Which of them matters?
Helps: linear-rnn scores 4.50 points more than tanh-rnn (p = 0.013).
Undecided: stable-exponential against ring-init (between -152.65 and +98.32 points;
stable-exponential learns in 2 of 3 seeds; a run of stable-exponential is better than one of
ring-init in 67 % of pairs, though the mean is worse).
Provisional: all verdicts. With fewer than 12 seeds a verdict assumes that no seed fails.
Not compared, because the runs are the same: ring-init against linear-rnn.
Not run: small-phase against stable-exponential.
Of 4 claims (sDigits stands in for the tasks of 1 of them): 1 supported, 1 undecided, 1 not run, 1
not comparable (same runs); all provisional.

rung                test accuracy              difference [95 %]      p   learn  steps/s   published
──────────────────  ──────────────────  ────────────────────────  ─────  ──────  ───────  ──────────
tanh-rnn            91.00 ± 0.58 (n=3)                         –      –  3 of 3      101  69.9 ± 0.3
linear-rnn          95.50 ± 0.29 (n=3)      +4.50 [+2.42, +6.58]  0.013  3 of 3      250           –
ring-init           95.50 ± 0.29 (n=3)             as linear-rnn      –  3 of 3      250           –
stable-exponential  97.50 ± 0.50 (n=2)  -27.17 [-152.65, +98.32]  0.450  2 of 3     1234      chance
                    1 diverged
                    1 failed
                    1 unfinished
                    2 code versions
small-phase         – (n=0)                                    –      –       –        –           –

Not shown at this width: title, better [95 %], parameters.
Test accuracy in per cent: mean ± standard error over n finished seeds. Difference: to the previous
rung, in points, with its 95 % interval (Welch), not corrected. p: two-sided, of means (Welch),
corrected by Holm's method over all differences and claims with results. Learn: seeds better than
chance. Steps/s: median.
Diverged runs rank below all others in p and verdicts, and count in differences with the score of
chance, 10.00; the means of the rungs are without them.
A seed learns if its score is better than 15.20. Rate at which seeds fail to learn, 95 % upper
bound: 63 % (tanh-rnn, linear-rnn); 86 % (stable-exponential).
One test item is 0.33 points (300 items).
Published: Paper, Table 1 (tanh-rnn); Paper, Table 2 (stable-exponential: not above chance). They
are for the plain recipe, not for profile laptop.
These runs come from more than one code version: 0.1.0 abc; 0.2.0 def.
Note: a note

Claims
supported (stand-in task): Linear is better. (Paper, 1)
    provisional (3 seeds); linear-rnn 95.50 ± 0.29 (n=3), tanh-rnn 91.00 ± 0.58 (n=3); difference
    +4.50 points [+2.42, +6.58]; chance of improvement 100 % [29, 100]; p = 0.013; sDigits stands in
    for the paper's tasks of this claim (sCIFAR).
not comparable: The ring helps. (Paper, 2)
    ring-init and linear-rnn are the same runs on this task.
undecided: Stable is better. (Paper, 3)
    provisional (3 seeds); stable-exponential learns in 2 of 3 seeds; a run of stable-exponential is
    better than one of ring-init in 67 % of pairs, though the mean is worse; stable-exponential
    68.33 ± 29.17 (n=3, 1 diverged, counted as chance, 10.00), ring-init 95.50 ± 0.29 (n=3);
    difference -27.17 points [-152.65, +98.32]; chance of improvement 67 % [0, 100]; p = 0.450.
not run: Phases do not matter. (Paper, 4)
    no finished runs of small-phase."""

TABLE_200 = """\
rung                title                 test accuracy                                                                   difference [95 %]      p   learn    better [95 %]  parameters  steps/s   published
──────────────────  ────────────────────  ───────────────────────────────────────────────────────────────────────  ────────────────────────  ─────  ──────  ───────────────  ──────────  ───────  ──────────
tanh-rnn            dense RNN             91.00 ± 0.58 (n=3)                                                                              –      –  3 of 3                –      12,345      101  69.9 ± 0.3
linear-rnn          no nonlinearity       95.50 ± 0.29 (n=3)                                                           +4.50 [+2.42, +6.58]  0.013  3 of 3  100 % [29, 100]      12,345      250           –
ring-init           a ring                95.50 ± 0.29 (n=3)                                                                  as linear-rnn      –  3 of 3                –      12,345      250           –
stable-exponential  stable | exponential  97.50 ± 0.50 (n=2), 1 diverged, 1 failed, 1 unfinished, 2 code versions  -27.17 [-152.65, +98.32]  0.450  2 of 3    67 % [0, 100]      12,345     1234      chance
small-phase         small phases          – (n=0)                                                                                         –      –       –                –           –        –           –"""

MARKDOWN = """\
### four rungs on sDigits, without --tune

Which of them matters?

- Helps: linear-rnn scores 4.50 points more than tanh-rnn (p = 0.013).
- Undecided: stable-exponential against ring-init (between -152.65 and +98.32 points; stable-exponential learns in 2 of 3 seeds; a run of stable-exponential is better than one of ring-init in 67 % of pairs, though the mean is worse).
- Provisional: all verdicts. With fewer than 12 seeds a verdict assumes that no seed fails.
- Not compared, because the runs are the same: ring-init against linear-rnn.
- Not run: small-phase against stable-exponential.
- Of 4 claims (sDigits stands in for the tasks of 1 of them): 1 supported, 1 undecided, 1 not run, 1 not comparable (same runs); all provisional.

| rung | title | test accuracy | difference [95 %] | p | learn | better [95 %] | parameters | steps/s | published |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| tanh-rnn | dense RNN | 91.00 ± 0.58 (n=3) | – | – | 3 of 3 | – | 12,345 | 101 | 69.9 ± 0.3 |
| linear-rnn | no nonlinearity | 95.50 ± 0.29 (n=3) | +4.50 [+2.42, +6.58] | 0.013 | 3 of 3 | 100 % [29, 100] | 12,345 | 250 | – |
| ring-init | a ring | 95.50 ± 0.29 (n=3) | as linear-rnn | – | 3 of 3 | – | 12,345 | 250 | – |
| stable-exponential | stable \\| exponential | 97.50 ± 0.50 (n=2), 1 diverged, 1 failed, 1 unfinished, 2 code versions | -27.17 [-152.65, +98.32] | 0.450 | 2 of 3 | 67 % [0, 100] | 12,345 | 1234 | chance |
| small-phase | small phases | – (n=0) | – | – | – | – | – | – | – |

- Test accuracy in per cent: mean ± standard error over n finished seeds. Difference: to the previous rung, in points, with its 95 % interval (Welch), not corrected. p: two-sided, of means (Welch), corrected by Holm's method over all differences and claims with results. Learn: seeds better than chance. Better: the chance that a run scores better than one of the base, with its 95 % interval. Steps/s: median.
- Diverged runs rank below all others in p and verdicts, and count in differences with the score of chance, 10.00; the means of the rungs are without them.
- A seed learns if its score is better than 15.20. Rate at which seeds fail to learn, 95 % upper bound: 63 % (tanh-rnn, linear-rnn); 86 % (stable-exponential).
- One test item is 0.33 points (300 items).
- Published: Paper, Table 1 (tanh-rnn); Paper, Table 2 (stable-exponential: not above chance).
- These runs come from more than one code version: 0.1.0 abc; 0.2.0 def.

**Claims**

- **supported** (stand-in task): Linear is better. (Paper, 1) provisional (3 seeds); linear-rnn 95.50 ± 0.29 (n=3), tanh-rnn 91.00 ± 0.58 (n=3); difference +4.50 points [+2.42, +6.58]; chance of improvement 100 % [29, 100]; p = 0.013; sDigits stands in for the paper's tasks of this claim (sCIFAR).
- **not comparable**: The ring helps. (Paper, 2) ring-init and linear-rnn are the same runs on this task.
- **undecided**: Stable is better. (Paper, 3) provisional (3 seeds); stable-exponential learns in 2 of 3 seeds; a run of stable-exponential is better than one of ring-init in 67 % of pairs, though the mean is worse; stable-exponential 68.33 ± 29.17 (n=3, 1 diverged, counted as chance, 10.00), ring-init 95.50 ± 0.29 (n=3); difference -27.17 points [-152.65, +98.32]; chance of improvement 67 % [0, 100]; p = 0.450.
- **not run**: Phases do not matter. (Paper, 4) no finished runs of small-phase."""

CSV = """\
task,ladder,profile,instance,metric,rung,title,n,mean,stderr,on,verdict,difference,low,high,improvement,improvement_low,improvement_high,p_adjusted,p_unadjusted,provisional,look,detectable,compared_n,compared_mean,compared_stderr,base_n,base_mean,base_stderr,diverged,learning,failure_bound,improving,failed,unfinished,parameters,steps_per_second,same_as_before,published_value,published_stderr,published_source,published_note,published_metric,runs,scores,code_versions,learning_rate,rate_source_kind,rate_source_text,left_out,steps,numerics,test_selected,escape_step,escaped,label
sDigits,mini,,k,test/accuracy,tanh-rnn,dense RNN,3,0.91,0.005773502,,,,,,,,,,,,,,,,,,,,0,3,0.631596850,0,0,0,12345,101.0,false,0.699,0.003,"Paper, Table 1",,,t0 t1 t2,0.9 0.91 0.92,0.1.0 abc,0.01,,,0,10,2,false,,,"sDigits, without --tune"
sDigits,mini,,k,test/accuracy,linear-rnn,no nonlinearity,3,0.955,0.002886751,tanh-rnn,helps,0.044999999,0.024223002,0.065776997,1.0,0.292401773,1.0,0.012915178,0.006457589,true,,0.027759980,3,0.955,0.002886751,3,0.91,0.005773502,0,3,0.631596850,0,0,0,12345,250.0,false,,,,,,l0 l1 l2,0.95 0.96 0.955,0.1.0 abc,0.01,,,0,10,2,false,,,"sDigits, without --tune"
sDigits,mini,,k,test/accuracy,ring-init,a ring,3,0.955,0.002886751,linear-rnn,same runs,0.0,,,,,,,,false,,,3,0.955,0.002886751,3,0.955,0.002886751,0,3,0.631596850,0,0,0,12345,250.0,true,,,,,,l0 l1 l2,0.95 0.96 0.955,0.1.0 abc,0.01,,,0,10,2,false,,,"sDigits, without --tune"
sDigits,mini,,k,test/accuracy,stable-exponential,stable | exponential,2,0.975,0.005000000,ring-init,undecided,-0.271666666,-1.526494437,0.983161104,0.666666666,0.0,1.0,0.449982210,0.449982210,true,,1.648798914,3,0.683333333,0.291680952,3,0.955,0.002886751,1,2,0.864649637,0,1,1,12345,1234.5,false,,,"Paper, Table 2",not above chance,,s0 s1,0.97 0.98,0.1.0 abc; 0.2.0 def,0.01,,,0,10,2,false,,,"sDigits, without --tune"
sDigits,mini,,k,test/accuracy,small-phase,small phases,0,,,stable-exponential,not run,,,,,,,,,false,,,0,,,3,0.683333333,0.291680952,0,0,,0,0,0,,,false,,,,,,,,,,,,0,,,false,,,"sDigits, without --tune"
""".rstrip()


@pytest.mark.parametrize(("width", "expected"), [(60, TABLE_60), (100, TABLE_100)])
def test_the_whole_table(width: int, expected: str) -> None:
    assert formats.render(build(profile="laptop", notes=["a note"]), "table", width=width) == expected


def test_a_published_score_of_another_metric_says_so_and_those_of_the_profile_come_first() -> None:
    def one(value: float, **more: str) -> Published:
        return Published(source="P", value=value, **more)

    rung = make_rung("a", sDigits=(one(0.5, metric="accuracy"), one(0.25, profile="small", metric="exact")))
    ladder = Ladder(name="one", title="t", source="s", rungs=(rung,))
    for profile, text, metric, sentence in [
        (None, "50.0", "accuracy", False),
        ("small", "25.0 exact", "exact", False),
        ("large", "50.0", "accuracy", True),
    ]:
        report = build(ladder, [], profile=profile)
        for form in ("table", "md", "latex", "html"):
            shown = formats.render(report, form, **({"width": 200} if form == "table" else {}))
            assert text in shown, form
            assert ("25.0" in shown) == (profile == "small"), form
            assert (f"They are for the plain recipe, not for profile {profile}." in shown) == sentence
        (line,) = csv.DictReader(io.StringIO(formats.render(report, "csv")))
        (row,) = json.loads(formats.render(report, "json"))["rows"]
        assert line["published_metric"] == row["published"][0]["metric"] == metric


def test_an_empty_column_of_published_values_is_left_out_first() -> None:
    rungs = tuple(structs.replace(rung, published={}) for rung in MINI.rungs)
    report = build(structs.replace(MINI, rungs=rungs), same_as_base={"ring-init"})
    heads = {width: body(formats.render(report, "table", width=width)).partition("\n")[0] for width in (85, 100, 200)}
    assert heads[85].split() == ["rung", "test", "accuracy", "difference", "[95", "%]", "p", "learn"]
    assert "steps/s" in heads[100]
    assert "published" not in heads[100]
    assert "published" in heads[200]
    assert "published" in TABLE_100


@pytest.mark.parametrize("width", [26, 40, 60, 80, 100, 160])
def test_the_notes_explain_the_columns_that_are_shown(width: int) -> None:
    flat = " ".join(formats.render(build(), "table", width=width).split())
    omitted = re.search(r"Not shown at this width: (.*?)\. Test acc", flat)
    names = omitted[1].split(", ") if omitted else []
    notes = {
        "p": "p: two-sided, of means (Welch)",
        "learn": "Learn: seeds better than chance",
        "difference [95 %]": "95 % interval (Welch)",
        "better [95 %]": "Better: the chance that a run scores better than one of the base",
        "steps/s": "Steps/s: median",
    }
    for name, note in notes.items():
        assert (note in flat) == (name not in names), name


def test_rungs_without_spread_are_named_in_every_format() -> None:
    runs = [make_run(f"{rung}{k}", rung, k, 0.2) for rung in ("a", "b") for k in range(2)]
    runs += [make_run("c0", "c", 0, 0.5), make_run("c1", "c", 1, 0.6)]
    ladder = Ladder(name="x", title="x", source="s", rungs=tuple(make_rung(name) for name in "abc"))
    report = build(ladder, runs)
    assert report.without_spread == ("a", "b")
    note = "No spread over seeds: the error of 300 test items is used in tests and claims (a, b)."
    for name in ("table", "md", "latex", "html"):
        assert note in formats.render(report, name), name  # type: ignore[arg-type]
    assert "No spread" not in formats.render(build(), "table")


def test_the_table_of_a_pipe_has_every_column() -> None:
    assert body(formats.render(build(), "table", width=200)) == TABLE_200


@pytest.mark.parametrize("width", [1, 26, 40, 50, 60, 80, 100, 120, 160, 199])
def test_no_line_is_wider_than_the_terminal_and_no_value_is_broken(width: int) -> None:
    table = formats.render(build(), "table", width=width)
    if width >= 20:
        assert max(map(len, table.split("\n"))) <= width
    joined = re.sub(r"\s+", " ", body(table))
    for value in ("91.00 ± 0.58 (n=3)", "95.50 ± 0.29 (n=3)", "97.50 ± 0.50 (n=2)", "– (n=0)", "1 diverged"):
        assert value in (joined if value == "1 diverged" else body(table))


def test_a_pipe_cuts_nothing_however_wide() -> None:
    title = "long " * 60
    ladder = Ladder(name="x", title="x", source="s", rungs=(make_rung("a", title.strip()),))
    report = build(ladder, [make_run("1", "a", 0, 0.5)])
    (line,) = [line for line in formats.render(report, "table", width=200).split("\n") if line.startswith("a ")]
    assert title.strip() in line
    assert "50.00 (n=1)" in line


def test_colour_changes_nothing_but_colour() -> None:
    plain, colored = (formats.render(build(), "table", width=100, color=color) for color in (False, True))
    assert "\x1b" not in plain
    assert "\x1b[32msupported\x1b[0m" in colored
    without = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert [line.rstrip() for line in without.split("\n")] == plain.split("\n")


def test_markdown() -> None:
    assert formats.render(build(), "md") == MARKDOWN


def test_csv() -> None:
    # The last digits of a quantile are those of the installed scipy.
    assert re.sub(r"(\.\d{9})\d+", r"\1", formats.render(build(), "csv")) == CSV


def test_csv_has_every_field_of_a_row_but_these() -> None:
    missing = set(LadderRow.__struct_fields__) - set(CSV.partition("\n")[0].split(","))
    known = {"branches", "published", "rate_source", "other_runs", "paper", "untuned"}
    assert missing == known | {"further_tests", "slots", "comparison"}


def test_csv_has_the_comparison_with_the_base_in_columns() -> None:
    report = build()
    lines = list(csv.DictReader(io.StringIO(formats.render(report, "csv"))))
    parts = [name for name in Comparison.__struct_fields__ if name in lines[0]]
    parts = [name for name in parts if name not in ("rung", "metric", "verdict")]
    assert {"difference", "low", "improvement", "p_adjusted", "provisional", "look"} <= set(parts)
    sides = [f"{side}_{name}" for side in ("compared", "base") for name in ("n", "mean", "stderr")]
    assert [lines[0][name] for name in (*parts, *sides)] == [""] * len((*parts, *sides))
    for row, line in zip(report.rows[1:], lines[1:], strict=True):
        assert row.comparison is not None
        mine, base = row.comparison.sides
        expected = [getattr(row.comparison, name) for name in parts]
        expected += [getattr(side, name) for side in (mine, base) for name in ("n", "mean", "stderr")]
        assert [line[name] for name in (*parts, *sides)] == [text_of(value) for value in expected]
    assert (lines[1]["verdict"], lines[1]["provisional"], lines[1]["compared_n"]) == ("helps", "true", "3")


def text_of(value: object) -> str:
    return "" if value is None else str(value).lower()


def test_json_has_the_fields_that_are_fixed() -> None:
    report = build(profile="laptop")
    found = json.loads(formats.render(report, "json"))
    assert {key: found[key] for key in ("schema_version", "task", "ladder", "profile", "metric")} == {
        "schema_version": 1,
        "task": "sDigits",
        "ladder": "mini",
        "profile": "laptop",
        "metric": "test/accuracy",
    }
    fixed = {
        "rung": "stable-exponential",
        "title": "stable | exponential",
        "n": 2,
        "mean": report.rows[3].mean,
        "stderr": report.rows[3].stderr,
        "verdict": "undecided",
        "learning": 2,
        "failure_bound": report.rows[3].failure_bound,
        "improving": 0,
        "diverged": 1,
        "failed": 1,
        "parameters": 12345,
        "steps_per_second": 1234.5,
        "runs": ["s0", "s1"],
    }
    assert {key: found["rows"][3][key] for key in fixed} == fixed
    paper = {
        "source": "Paper, Table 1",
        "value": 0.699,
        "stderr": 0.003,
        "n": None,
        "note": "",
        "metric": "",
        "profile": "",
    }
    assert found["rows"][0]["published"] == [paper]
    assert found["rows"][3]["published"][0]["value"] is None
    assert found["rows"][4]["mean"] is None
    fields = {
        "text": "Linear is better",
        "verdict": "supported",
        "detail": "",
        "source": "Paper, 1",
        "rung": "linear-rnn",
        "kind": "better",
        "stand_in": True,
        "difference_p": None,
    }
    claim = found["claims"][0] | {"detail": ""}
    assert {key: claim[key] for key in fields} == fields
    # the question of the claim is that of the row, and so are all its numbers
    comparison = found["rows"][1]["comparison"]
    assert {key: claim[key] for key in comparison} == comparison
    assert (comparison["other"], comparison["margin"], comparison["provisional"]) == ("tanh-rnn", None, True)
    assert [sorted(side) for side in comparison["sides"]] == [sorted(Side.__struct_fields__)] * 2
    assert [(side["rung"], side["n"], side["diverged"], side["learning"]) for side in comparison["sides"]] == [
        ("linear-rnn", 3, 0, 3),
        ("tanh-rnn", 3, 0, 3),
    ]
    assert 0 <= comparison["improvement_low"] < comparison["improvement"] == comparison["improvement_high"] == 1
    assert found["rows"][0]["comparison"] is None


def test_json_has_null_for_what_is_not_finite() -> None:
    report = build()
    odd = msgspec.structs.replace(report.rows[0], steps_per_second=float("inf"), mean=float("nan"))
    row, other = json.loads(formats.render(msgspec.structs.replace(report, rows=(odd, report.rows[1])), "json"))["rows"]
    assert (row["steps_per_second"], row["mean"], row["finite"]) == (None, None, False)
    assert "finite" not in other


def test_every_format_has_the_same_numbers() -> None:
    report = build()
    rows = json.loads(formats.render(report, "json"))["rows"]
    lines = list(csv.DictReader(io.StringIO(formats.render(report, "csv"))))
    texts = [formats.render(report, "table"), formats.render(report, "md")]
    for row, line in zip(rows, lines, strict=True):
        for key in ("mean", "stderr", "failure_bound", "steps_per_second"):
            assert (float(line[key]) if line[key] else None) == row[key]
        for key in ("difference", "low", "high", "improvement", "p_adjusted", "p_unadjusted", "detectable"):
            assert (float(line[key]) if line[key] else None) == (row["comparison"] or {}).get(key)
        assert int(line["n"]) == row["n"]
        if row["mean"] is not None:
            for text in texts:
                assert f"{row['mean'] * 100:.2f} ± {row['stderr'] * 100:.2f} (n={row['n']})" in text


def test_text_from_files_and_the_ledger_is_data() -> None:
    evil = "=HYPERLINK(1)|\x1b[31m[bold]*x*</td><script>\n__y__ [a](b) r_max\u202e"
    published = Published(source="@SUM(A1)\x1b]0;t\x07", value=0.5)
    ladder = Ladder(
        name="evil",
        title=evil,
        source="s",
        question=evil,
        rungs=(make_rung("a", evil, sDigits=(published,)), make_rung("b")),
        claims=(Claim(text=evil, source=evil, rung="b", than="a"),),
    )
    report = build(
        ladder, [make_run("-1+1", "a", 0, 0.5, code=("+cmd", "y")), make_run("2", "b", 0, 0.25)], notes=[evil]
    )
    clean = "=HYPERLINK(1)|[bold]*x*</td><script> __y__ [a](b) r_max"
    for width in (30, 60, 100, 200):
        table = formats.render(report, "table", width=width)
        assert not set(table) & {"\x1b", "\x07", "\u202e"}
    assert sum(clean in line for line in table.split("\n")) == 5
    markdown = formats.render(report, "md")
    escaped = r"=HYPERLINK(1)\|[bold]\*x\*&lt;/td&gt;&lt;script&gt; \_\_y\_\_ [a]\(b) r_max"
    assert f"| a | {escaped} | 50.00 (n=1), 2 code versions |" in markdown
    assert markdown.count(escaped) == 6
    assert "<script>" not in markdown
    cells = next(csv.DictReader(io.StringIO(formats.render(report, "csv"))))
    assert cells["title"] == f"'{clean}"
    assert cells["published_source"] == "'@SUM(A1)"
    assert cells["runs"] == "'-1+1"
    assert cells["code_versions"] == "'+cmd; y"
    # A number below zero is a number.
    assert list(csv.DictReader(io.StringIO(formats.render(report, "csv"))))[1]["difference"] == "-0.25"
    text = formats.render(report, "json")
    assert text.isascii()
    assert json.loads(text)["rows"][0]["title"] == evil


def test_an_empty_ledger_gives_a_table_of_nothing() -> None:
    report = build(runs=[], test_items=None)
    for format in get_args(formats.Format):
        formats.render(report, format)  # type: ignore[arg-type]
    table = formats.render(report, "table")
    assert table.count("– (n=0)") == 5
    assert "Rate at which" not in table
    assert "test item" not in table


def test_reports_import_neither_jax_nor_the_database_nor_scipy() -> None:
    code = (
        "import sys; from lrurun.report import formats\n"
        "print([name for name in ('jax', 'sqlalchemy', 'scipy', 'rich', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("format", ["table", "md", "latex", "html"])
def test_the_title_shows_the_settings_of_the_instance(format: str) -> None:
    changed = build(changes={"model.recurrence.r_min": 0.9, "model.norm_first": True}, tune=True)
    title = "four rungs on sDigits, tuned, model.recurrence.r_min=0.9, model.norm_first=true"
    shown = formats.render(changed, format)
    assert title in (shown.replace(r"\_", "_") if format == "latex" else shown)
    assert title not in formats.render(build(), format)


def test_json_and_the_label_distinguish_instances() -> None:
    plain, changed = build(), build(changes={"optim.lr": 0.5}, tune=True)
    tables = [json.loads(formats.render(one, "json")) for one in (plain, changed)]
    assert [(table["set"], table["tune"]) for table in tables] == [({}, False), ({"optim.lr": 0.5}, True)]
    assert r"\label{tab:mini-sDigits}" in formats.render(plain, "latex")
    assert re.search(r"\\label{tab:mini-sDigits-tuned-[0-9a-f]{6}}", formats.render(changed, "latex"))
