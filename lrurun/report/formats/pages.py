"""Pages are made by Jinja templates: those here are of reports, and the browser view uses them beside its own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from lrurun import console

TEMPLATES = Path(__file__).parent / "templates"


class _Empty(jinja2.ChainableUndefined):
    """A value that a page does not have is shown as nothing."""


def environment(*folders: Path) -> jinja2.Environment:
    """Templates of these folders, and of reports. Text is escaped, and has no control characters."""
    loader = jinja2.FileSystemLoader([*folders, TEMPLATES])
    return jinja2.Environment(
        loader=loader, autoescape=True, finalize=_text, undefined=_Empty, trim_blocks=True, lstrip_blocks=True
    )


def _text(value: Any) -> Any:
    if isinstance(value, Markup) or value is None:
        return "" if value is None else value
    return console.clean(str(value), lines=True)


def render(template: str, **context: Any) -> str:
    """A page, or a part of one, by a template of reports."""
    return _reports().get_template(template).render(**context)


@cache
def _reports() -> jinja2.Environment:
    return environment()


def style() -> str:
    """The style sheet of all pages."""
    return (TEMPLATES / "report.css").read_text(encoding="utf-8")
