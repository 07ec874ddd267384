"""What the papers claim about their theory figures, and which checks of a study decide it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from lrurun.studies.checks import Check

LRU, ZUCCHET = "Orvieto et al. 2023", "Zucchet and Orvieto 2024"
DLR, ROTRNN = "Gupta et al. 2023", "Biegun et al. 2024"


class StudyClaim(Struct, frozen=True, kw_only=True):
    """A sentence of a paper about a figure."""

    study: str
    text: str
    source: str
    supported_by: tuple[str, ...] = ()
    """Patterns of names of checks, as in "slope*": the claim is supported if all of these checks passed."""
    contradicted_by: tuple[str, ...] = ()
    """The same of checks that say the opposite."""


CLAIMS = (
    StudyClaim(
        study="memory",
        text="The sensitivity to the eigenvalue explodes faster than the state",
        source=f"{ZUCCHET}, section 2.2, Fig. 1A",
        supported_by=("slope of sensitivity over state*",),
    ),
    StudyClaim(
        study="powers",
        text="The exponential parametrisation decouples absolute value and phase for Adam",
        source=f"{LRU}, section 3.3, Fig. 8",
        supported_by=("exponential: losses*", "updates of real-imaginary*"),
    ),
    StudyClaim(
        study="powers",
        text="Real and imaginary parts are slowest for a target phase of pi/2",
        source=f"{LRU}, Fig. 8",
        contradicted_by=("real-imaginary: losses at angle 1*",),
    ),
    StudyClaim(
        study="teacher",
        text="LRUs outperform dense linear RNNs the more, the longer the memory of the teacher is",
        source=f"{ZUCCHET}, section 4.2, Fig. 3A",
        supported_by=("log(dense / LRU) rises*",),
    ),
    StudyClaim(
        study="bridge",
        text="A block-diagonal matrix of 2 x 2 blocks closes most of the gap to the LRU",
        source=f"{ZUCCHET}, caption of Fig. 3B",
        supported_by=("dense > block, *",),
    ),
    StudyClaim(
        study="bridge",
        text="Complex numbers in place of the blocks lower the loss further",
        source=f"{ZUCCHET}, caption of Fig. 3B",
        supported_by=("block > complex, *",),
        contradicted_by=("complex > block, *",),
    ),
    StudyClaim(
        study="bridge",
        text="The normalisation by gamma lowers the loss of the complex diagonal RNN",
        source=f"{ZUCCHET}, Fig. 3B",
        supported_by=("complex > gamma, *",),
    ),
    StudyClaim(
        study="bridge",
        text="The exponential parametrisation lowers the loss further",
        source=f"{ZUCCHET}, Fig. 3B",
        contradicted_by=("lru > gamma, *",),
    ),
    StudyClaim(
        study="adam",
        text="Adam takes larger steps in the complex diagonal RNN than in the dense one",
        source=f"{ZUCCHET}, section 4.3, Figs. 4C and 4D",
        supported_by=("step of complex*",),
    ),
    StudyClaim(
        study="adam",
        text="In the LRU, the angles are what Adam takes the smallest steps in",
        source=f"{ZUCCHET}, appendix B.4, Fig. 9",
        supported_by=("step of lru nu*",),
    ),
)


def of(study: str) -> list[StudyClaim]:
    """The claims about a study."""
    return [claim for claim in CLAIMS if claim.study == study]


def judge(
    claim: StudyClaim, checks: Sequence[Check]
) -> tuple[Literal["supported", "contradicted", "undecided"], list[Check]]:
    """The verdict on a claim, and the checks that it is about.

    It is undecided where the checks are missing, as in profiles without seeds, or not all of them passed.
    """

    def about(patterns: Sequence[str]) -> list[Check]:
        return [one for one in checks if any(fnmatchcase(one.name, pattern) for pattern in patterns)]

    for_it, against = about(claim.supported_by), about(claim.contradicted_by)
    if against and all(one.passed for one in against):
        return "contradicted", against
    if for_it and all(one.passed for one in for_it):
        return "supported", for_it
    return "undecided", [*for_it, *against]
