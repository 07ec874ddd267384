"""Short names of ladder instances, which people type: they are made of what distinguishes an instance from others."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from lrurun.config.schema import OPTIMIZER
from lrurun.console import setting
from lrurun.errors import UsageError

LONGEST_PROPOSED = 40
"""The most characters of a name that lrurun proposes; one that must differ from another may have LONGEST."""
LONGEST = 60
"""The most characters of a name that somebody gives."""
_LEAST = 20
"""The characters that file, ladder and profile have together at least, whatever the settings."""
_WORD, _NUMBER = 20, 7
"""The most characters of a value that is text, and of a number, unless they are needed to distinguish two instances."""


class NameParts(Struct, frozen=True, kw_only=True):
    """What a name is made of, for example "npDigits", "smoke" and optim.lr=0.01."""

    files: tuple[str, ...]
    """The file or the task, then the ladder where it has a file of its own."""
    options: tuple[str, ...] = ()
    """The profile, and "tune"."""
    changes: Mapping[str, Any] = {}
    """The values of `--set`, by their dotted paths."""


def proposed(parts: NameParts) -> str:
    """The name of these parts, for example "npDigits-smoke-lr0.01": the same parts always have the same one.

    What a file's name says already is not repeated. Of a name that is too long, settings are only counted.
    """
    return _name(_distinct((*parts.files, *parts.options)), changed_words(parts.changes))


def beside(parts: NameParts, other: Mapping[str, Any]) -> Iterator[str]:
    """The names to choose from where another instance, with these values of `--set`, has the proposed one.

    The first has what the proposed one did not repeat, the second the settings in which the two differ, the third all
    digits of their values.
    """
    words = [word for part in (*parts.files, *parts.options) if (word := _plain(part))] or ["ladder"]
    yield _name(words, changed_words(parts.changes))
    differing = [path for path, value in parts.changes.items() if path not in other or not _same(other[path], value)]
    ordered = {path: parts.changes[path] for path in [*differing, *parts.changes]}
    for longest in (LONGEST_PROPOSED, LONGEST):
        exact = longest == LONGEST
        yield _name(_distinct((*parts.files, *parts.options)), changed_words(ordered, exact=exact), longest)


def in_folder(parts: NameParts, folder: str) -> str:
    """The name to choose where a file of the same name in another folder has made the other instance."""
    return proposed(structs.replace(parts, files=(*parts.files, folder)))


def swept(name: str, points: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the instances of a sweep that was given a name, one for each combination of values.

    Raises:
        UsageError: one is too long, or two are the same.
    """
    for exact in (False, True):
        names = ["-".join([name, *changed_words(values, exact=exact)]) for values in points]
        if len({*names}) == len(names):
            break
    else:
        repeated = next(other for other in names if names.count(other) > 1)
        raise UsageError(
            f"--name {name}: two instances of the sweep would be {repeated}",
            "leave --name out, or train each with --set and a name of its own",
        )
    if too_long := next((other for other in names if len(other) > LONGEST), None):
        raise UsageError(
            f"--name {name}: makes {too_long}, of {len(too_long)} characters, at most {LONGEST} are possible",
            "choose a shorter one",
        )
    return names


def check(name: str, option: str) -> str:
    """A name that somebody gives with an option, or as an argument.

    Raises:
        UsageError: it is no such name.
    """
    example = f"{option} " if option.startswith("-") else ""
    if not re.fullmatch(rf"[A-Za-z][\w.+-]{{0,{LONGEST - 1}}}", name, re.ASCII):
        raise UsageError(
            f"{option} {name[:100]!r}: expected a letter, then up to {LONGEST - 1} letters, digits and any of . + - _",
            f"as in {example}npDigits-wide",
        )
    return name


def check_new(name: str, subject: str) -> None:
    """Checks a name that an instance is to get, and does not have yet.

    Raises:
        UsageError: it could be the beginning of an id; the error begins with `subject`.
    """
    if is_like_id(name):
        raise UsageError(
            f"{subject}: could be the beginning of an id, which has the digits 0 to 9 and a to f",
            f"add a word to it: {name}-runs",
        )


def is_like_id(name: str) -> bool:
    """Whether a name could be the id of a run or of an instance, or the beginning of one."""
    return re.fullmatch(r"[0-9a-fA-F]{3,12}(-[0-9]*)?", name) is not None


def changed_words(changes: Mapping[str, Any], *, exact: bool = False) -> list[str]:
    """A word for each setting, for example "lr0.01", "width64" and "glu-full".

    A setting is called by the last part of its path; by more where two of them end alike. Of an optimiser, it is the
    name alone, as "muon". `exact` keeps all digits.
    """
    keys = _ends(changes)
    return [
        _text(value, exact=exact)
        if path == OPTIMIZER and isinstance(value, str)
        else f"{_plain(keys[path]) or 'set'}{_value(keys[path], value, exact=exact)}"
        for path, value in changes.items()
    ]


def _name(words: Sequence[str], settings: Sequence[str], longest: int = LONGEST_PROPOSED) -> str:
    """Words and settings. Where they do not fit, words are shortened, but to no less than 20 characters; of the
    settings, the last ones are counted."""
    needed = min(len("-".join(words)), _LEAST)
    for kept in range(len(settings), -1, -1):
        left = len(settings) - kept
        tail = [*settings[:kept], *([f"and{left}" if kept else f"set{left}"] if left else [])]
        room = longest - sum(len(word) + 1 for word in tail)
        if room >= needed:
            break
    name = "-".join([*_shortened(words, room), *tail])
    return f"{name}-ladder" if is_like_id(name) else name


def _shortened(words: Sequence[str], longest: int) -> list[str]:
    """Words that together are not longer, of which the longest ones have lost their ends."""
    kept = list(words)
    while len("-".join(kept)) > longest:
        at = max(range(len(kept)), key=lambda number: len(kept[number]))
        kept[at] = kept[at][:-1]
    return [word.rstrip("-.") for word in kept]


def _distinct(parts: Iterable[str]) -> list[str]:
    """The parts as words of a name, without those that the ones before say already."""
    words: list[str] = []
    for part in parts:
        word = _plain(part)
        pieces, known = _pieces(word), [piece for other in words for piece in _pieces(other)]
        if not word or any(known[at : at + len(pieces)] == pieces for at in range(len(known))):
            continue
        words = [word] if known and pieces[: len(known)] == known else [*words, word]
    return words or ["ladder"]


def _pieces(word: str) -> list[str]:
    return [piece for piece in re.split(r"[-_]", word.lower()) if piece]


def _plain(text: str) -> str:
    """Text with letters, digits and any of . + - _ alone, which no shell reads as anything else."""
    letters = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^\w.+-]+", "-", letters, flags=re.ASCII).strip("-.")


def _ends(paths: Collection[str]) -> dict[str, str]:
    """Each dotted path -> the shortest end of it that no other one has."""
    parts = {path: path.split(".") for path in paths}
    ends = {}
    for path, own in parts.items():
        others = [other for at, other in parts.items() if at != path]
        count = next((n for n in range(1, len(own)) if all(other[-n:] != own[-n:] for other in others)), len(own))
        ends[path] = ".".join(own[-count:])
    return ends


def _value(key: str, value: Any, *, exact: bool) -> str:
    """A value as it stands behind the name of its setting: a number at once, or behind "_" where a digit precedes it,
    text after a hyphen."""
    values = value if isinstance(value, list | tuple) and value else [value]
    text = "-".join(_number(each, exact=exact) if _is_number(each) else _text(each, exact=exact) for each in values)
    if _is_number(values[0]):
        return f"{'_' * key[-1:].isdigit()}{text}"
    return f"{'_' if text[0].isdigit() else '-'}{text}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(value: float, *, exact: bool) -> str:
    """A number in its shortest form, for example 0.001, 1e-5 and 0.003162."""
    text = setting(value)
    if not exact and isinstance(value, float) and len(text.lstrip("-")) > _NUMBER:
        text = format(value, ".4g")
    return re.sub(r"e([+-])0*(?=\d)", lambda sign: "e" + sign[1].strip("+"), text)


def _text(value: Any, *, exact: bool) -> str:
    """A value that is no number, without what a name cannot have."""
    text = _plain(json.dumps(value) if isinstance(value, dict) else "none" if value == [] else setting(value))
    return (text if exact else text[:_WORD].rstrip("-.")) or "empty"


def _same(first: Any, second: Any) -> bool:
    """Whether two values of a setting are the same: 1 and 1.0 are, 1 and true are not."""
    return bool(first == second) and isinstance(first, bool) == isinstance(second, bool)
