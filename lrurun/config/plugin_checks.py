"""What the checks of recurrences and of optimisers share: their results, and the settings that are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

from lrurun import plugins

T = TypeVar("T")


class Finding(Struct, frozen=True):
    """The result of one check."""

    name: str
    passed: bool
    detail: str
    """The measured value and its limit."""


def guarded(name: str, test: Callable[[T], tuple[bool, str]], case: T) -> Finding:
    """The result of a test of a case; of one that raises, a finding that failed."""
    try:
        passed, detail = test(case)
    except Exception as error:  # a plug-in may raise anything; the other checks still run
        fault = plugins.fault(error)
        raised = f"raised {type(error).__name__}: {' '.join(str(error).split())}"
        return Finding(name, False, raised if fault is None else fault.message)
    return Finding(name, bool(passed), detail)


def without_repeats(findings: list[Finding]) -> list[Finding]:
    """The findings; an exception at a line of a plug-in that an earlier one has names the line alone."""
    lines: set[str] = set()
    shortened = []
    for finding in findings:
        line, raised, _ = finding.detail.partition(": raised ")
        repeats = raised and line in lines
        shortened.append(Finding(finding.name, False, f"raised at {line}, too") if repeats else finding)
        if raised:
            lines.add(line)
    return shortened


def other_choices(settings: Any) -> Iterator[tuple[str, Any]]:
    """Yields each other value that a boolean or a choice among the fields of `settings` can have, with its name."""
    for field, hint in get_type_hints(type(settings)).items():
        choices = (False, True) if hint is bool else get_args(hint) if get_origin(hint) is Literal else ()
        yield from ((field, choice) for choice in choices if choice != getattr(settings, field))
