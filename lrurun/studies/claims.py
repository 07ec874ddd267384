"""What the papers claim about their theory figures, and which checks of a study decide it: `claims.toml`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

from lrurun import decoding
from lrurun.studies.checks import Check


class StudyClaim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence of a paper about a figure."""

    study: str
    text: str
    source: str
    supported_by: tuple[str, ...] = ()
    """Patterns of names of checks, as in "slope*": the claim is supported if all of these checks passed."""
    contradicted_by: tuple[str, ...] = ()
    """The same of checks that say the opposite. Without any pattern, no check decides the claim."""
    profile: Literal["laptop", "paper"] = "laptop"
    """The smallest profile that has these checks, of those above "ci"."""
    would_decide: str = ""
    """Of a claim without any pattern: what would decide it."""


@cache
def every() -> tuple[StudyClaim, ...]:
    """All claims, in the order of studies."""
    file = Path(__file__).with_suffix(".toml")
    return decoding.convert(decoding.load_toml(file)["claim"], tuple[StudyClaim, ...], file.name)


def of(study: str) -> list[StudyClaim]:
    """The claims about a study."""
    return [claim for claim in every() if claim.study == study]


def judge(
    claim: StudyClaim, checks: Sequence[Check]
) -> tuple[Literal["supported", "contradicted", "undecided"], list[Check]]:
    """The verdict on a claim, and the checks that decide it.

    It is undecided where its checks are missing, as in profiles without seeds, or not all of them passed; where checks
    for and against it passed, as by means and by medians; and where an identity or a sampling check of the study
    failed, because then its numbers may be wrong. These are returned then.
    """
    if wrong := [one for one in checks if one.kind != "direction" and not one.passed]:
        return "undecided", wrong

    def about(patterns: Sequence[str]) -> list[Check]:
        return [one for one in checks if any(fnmatchcase(one.name, pattern) for pattern in patterns)]

    for_it, against = about(claim.supported_by), about(claim.contradicted_by)
    verdicts: list[tuple[Literal["supported", "contradicted"], list[Check]]] = [
        ("supported", for_it),
        ("contradicted", against),
    ]
    decided = [(verdict, found) for verdict, found in verdicts if found and all(one.passed for one in found)]
    return decided[0] if len(decided) == 1 else ("undecided", [*for_it, *against])
