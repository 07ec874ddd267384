"""Words and numbers of methods paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct

from lrurun.console import setting
from lrurun.errors import plural

NAMED = 12
"""The most names of runs, rungs or values that a sentence lists."""
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Sentence(Struct, frozen=True, kw_only=True):
    """A sentence of a methods paragraph, with the facts that it states."""

    about: str
    """What it is about, as in "data" and "seeds"."""
    text: str
    facts: dict[str, Any]
    """Name -> value, as the ledger has it: fractions are not per cent, times are seconds unless the name says hours."""


def word(number: int) -> str:
    """A number in words up to nine, as texts have it."""
    return _WORDS[number] if 0 <= number < len(_WORDS) else f"{number:,}"


def count(number: int, noun: str, *, several: str = "") -> str:
    """A number with its noun, for example "one run", "two hypotheses" and "1,197 sequences"."""
    if several:
        return f"{word(number)} {noun if number == 1 else several}"
    return f"{word(number)} {plural(number, noun).partition(' ')[2]}"


def times(number: int) -> str:
    """How often, for example "once", "twice" and "10 times"."""
    return ("never", "once", "twice")[number] if number < 3 else f"{word(number)} times"


def listed(parts: Iterable[str], *, most: int = NAMED) -> str:
    """Parts as a series, for example "a, b and c"; of very many, the first ones and how many more there are."""
    parts = list(parts)
    if len(parts) > most + 1:
        return f"{', '.join(parts[:most])} and {word(len(parts) - most)} others"
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def decimal(value: float) -> str:
    """A number with up to six significant digits, for example "0.00001", "1e-8" and "1,600"."""
    if isinstance(value, int):
        return f"{value:,}"
    if 0 < abs(value) < 1e-5:
        digits, power = f"{value:.5e}".split("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    text = f"{Decimal(f'{value:.6g}'):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def value_text(value: Any) -> str:
    """The value of a setting."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(setting(value))
    return decimal(value)


def spanned(values: Sequence[float]) -> str:
    """A number, or the range of several, for example "32" and "16 to 64"."""
    low, high = min(values), max(values)
    return decimal(low) if low == high else f"{decimal(low)} to {decimal(high)}"


def seeds(numbers: Iterable[int]) -> str:
    """Seeds, for example "0 to 11" and "0, 4 and 7 to 9"."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    parts: list[str] = []
    for span in spans:
        parts += [str(number) for number in span] if len(span) < 3 else [f"{span[0]} to {span[-1]}"]
    return listed(parts)


def grouped(values: Mapping[str, Any]) -> dict[Any, list[str]]:
    """Value -> the names that have it, in the order of the names."""
    groups: dict[Any, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    return groups


def by_value(values: Mapping[str, str], *, every: str = "all rungs") -> str:
    """Texts of rungs, each once with its rungs, for example "0.004 for a and b, and 0.008 for c"."""
    groups = grouped(values)
    if len(groups) == 1:
        return f"{next(iter(groups))} for {every if len(values) > 1 else next(iter(values))}"
    *parts, last = [f"{text} for {listed(names)}" for text, names in groups.items()]
    comma = ", " if len(parts) > 1 or " and " in "".join([*parts, last]) else " "
    return f"{', '.join(parts)}{comma}and {last}"


def short_digest(sha256: str) -> str:
    """The first characters of a digest."""
    return sha256.removeprefix("sha256:")[:12]


_OF_THE_TOOL = re.compile(r"`|\blrurun (?:ladder|report|plan|data|verify|import)\b|(?<!\S)--?[a-z]")


def plain(text: str) -> str:
    """A text of a document without words of a command line; empty if it cannot be without them."""
    text = re.sub(r"\bby `?--tune`?", "by tuning on validation", text)
    text = re.sub(r",? see \[[\w.]+\]", "", text)
    return "" if _OF_THE_TOOL.search(text) else text.strip()


def whose(source: str, *, packaged: bool) -> str:
    """A source that says "ours" with whose it is: in a paper, "ours" would be its authors'."""
    owner = "the developers of the software" if packaged else "the authors"
    return re.sub(r"^ours\b[:,]?\s*", f"by {owner}, ", source).rstrip(", ")


def capital(text: str) -> str:
    """The text as it begins a sentence, unless it begins with a name that is written small."""
    return text[:1].upper() + text[1:]


def has_been(number: int) -> str:
    """ "was" or "were", by the number of what is spoken of."""
    return "was" if number == 1 else "were"
