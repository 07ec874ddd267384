"""The tables and the methods paragraphs that LaTeX has of every ladder of the kept results compile, and fit a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lrurun.config.schema import LADDER_KINDS
from lrurun.errors import LrurunError
from lrurun.instances import documents
from lrurun.instances.requests import LadderRequest
from lrurun.ledger.ledger import Ledger
from lrurun.report import formats
from lrurun.report.formats.paper_style import PaperStyle
from lrurun.report.methods import paragraph
from lrurun.report.tables import all_tasks, loaded_instance
from tests.docs import kept
from tests.harness import typeset

PLAIN = PaperStyle(plain=True)
COLUMNS = ["rung,n,mean,difference,low,high,p_adjusted,verdict", "rung,mean,verdict,parameters,learning_rate"]


def forms(report: formats.AnyReport, kinds: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """The class of document, the name and the text of each table that LaTeX has of a report."""
    yield "", "as it is", formats.render(report, "latex")
    for kind in kinds:
        for width, options in (("column", "twocolumn"), ("page", "twocolumn"), ("page", "")):
            style = PaperStyle(plain=True, tables=(kind,), width=width)
            yield options, f"plain {kind} {width}", formats.render(report, "latex", style=style)
        yield "", f"{kind}", formats.render(report, "latex", style=PaperStyle(tables=(kind,)))
    for columns in COLUMNS if "ablation" in kinds else []:
        yield "twocolumn", f"plain {columns}", formats.render(report, "latex", columns=[columns], style=PLAIN)
        yield "", columns, formats.render(report, "latex", columns=[columns])


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({path.name[3:].removesuffix(".db.xz") for path in kept.shards()}))
def test_every_ladder_of_the_kept_results(tmp_path: Path, page: str) -> None:
    typeset.need("pdflatex")
    tables: dict[str, dict[str, str]] = {"": {}, "twocolumn": {}}
    with kept.merged(page) as machine, Ledger.read(machine.ledger) as ledger:
        instances = [one for one in ledger.ladders() if one.kind in LADDER_KINDS]
        names = {(one.name, one.profile, one.spec.tune) for one in instances}
        for one in instances:
            loaded = loaded_instance.chosen(ledger, None, None, one.short_name, "")
            report = loaded.report(with_claims=True, with_unbeaten=True)
            for options, name, text in forms(report, ("ablation", "claims") if report.claims else ("ablation",)):
                tables[options][f"{one.short_name} {name}"] = text
            for options in tables:
                tables[options][f"{one.short_name} methods"] = paragraph.of_instance(loaded).render("latex")
        for ladder, profile, tune in sorted(names, key=str):
            request = LadderRequest(task="", ladder=ladder, profile=profile, tune=tune, sets={})
            try:
                map_ = all_tasks.collect(ledger, documents.ladder_of_name(ladder, ledger), request, with_unbeaten=True)
            except LrurunError:  # every instance was trained with --set
                continue
            for options, name, text in forms(map_, ("map",)):
                if name != "as it is":  # many tasks with all numbers are more than a page
                    tables[options][f"all of {ladder} {profile} {name}"] = text
    assert instances or page == "papers"
    for options, texts in tables.items():
        if texts:
            (folder := tmp_path / (options or "onecolumn")).mkdir()
            assert typeset.faults(folder, texts, options=options) == []
