"""Reads reports back: pages as a browser does, and the cells of tables in every format."""

from __future__ import annotations

import html.parser
import re

import pytest


class Page(html.parser.HTMLParser):
    """What a browser finds on a page."""

    EMPTY = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.picture: list[list[str]] = []
        """The picture of a ladder, or the map of tasks: a table that is not among `tables`."""
        self.texts: dict[str, list[str]] = {}
        """Tag -> the texts of its elements."""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        assert not [name for name in found if name.startswith("on")]
        if "id" in found:
            self.ids.append(str(found["id"]))
        if "href" in found:
            self.links.append(str(found["href"]))
        if tag == "table":
            self.table = self.picture if found.get("class") in ("seeds", "map") else []
            self.tables += [self.table] if self.table is not self.picture else []
        if tag == "tr":
            self.table.append([])
        if tag in ("th", "td"):
            self.table[-1].append("")
        if tag == "br":
            self.handle_data("\n")
        if tag not in self.EMPTY:
            self.texts.setdefault(tag, []).append("")
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data
        if {"th", "td"} & set(self.open):
            self.table[-1][-1] += data


def read(page: str) -> Page:
    """The page, sound: tags closed, anchors unique and there, nothing from elsewhere and nothing that runs."""
    found = Page(page)
    assert len(set(found.ids)) == len(found.ids)
    assert all(link.startswith("#") for link in found.links)
    assert {link[1:] for link in found.links} <= set(found.ids)
    assert not {"script", "link", "img", "iframe", "object", "form"} & {tag for tag, _ in found.tags}
    assert not re.search(r"https?:|url\((?!#)|@import", page)
    inside = re.findall(r'xlink:href="#([^"]*)"|url\(#([^)]*)\)', page)
    assert {one or other for one, other in inside} <= set(found.ids)
    return found


def from_table(text: str) -> list[list[str]]:
    lines = text.split("\n\n")[1].split("\n")
    starts = [found.start() for found in re.finditer("─+", lines[1])]
    cuts = list(zip(starts, [*starts[1:], None], strict=True))
    return [[line[a:b].strip() for a, b in cuts] for line in (lines[0], *lines[2:])]


def from_markdown(text: str) -> list[list[str]]:
    lines = [line for line in text.split("\n") if line.startswith("| ")]
    rows = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in (lines[0], *lines[2:])]
    return [[html.unescape(re.sub(r"\\(.)", r"\1", cell)) for cell in row] for row in rows]


def from_latex(text: str) -> list[list[str]]:
    body = re.search(r"\\toprule\n(.*)\\bottomrule", text, re.DOTALL)
    assert body
    rows: list[list[str]] = []
    for line in body[1].replace("\\midrule\n", "").splitlines():
        for tex, sign in ((r"$\pm$", "±"), (r"$\times$", "×"), ("--", "–"), ("$-$", "-"), ("{[}", "["), ("{]}", "]"), (r"\%", "%"), (r"\textless{}", "<")):  # fmt: skip  # noqa: E501
            line = line.replace(tex, sign)
        cells = line.removesuffix(r" \\").split(" & ")
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [f"{known}, {more}" if more else known for known, more in zip(rows[-1], cells, strict=True)]
    return rows


def from_html(text: str) -> list[list[str]]:
    head, *rows = read(text).tables[0]
    return [head, *([row[0].split("\n")[0], *row[1:]] for row in rows)]


def number(text: str) -> float | None:
    return None if text in ("", "–") else float(text.replace(",", "").rstrip("×"))


def agrees(printed: str, value: float | None, scale: float = 1) -> None:
    """The printed number is the value, to the digits that are printed."""
    found = number(printed)
    assert (found is None) == (value is None)
    if found is not None and value is not None:
        assert found == pytest.approx(value * scale, abs=0.5000001 * 10 ** -len(printed.rstrip("×").partition(".")[2]))
