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
    """The same of checks that say the opposite. Without any pattern, no check decides the claim."""
    profile: Literal["laptop", "paper"] = "laptop"
    """The smallest profile that has these checks, of those above "ci"."""


CLAIMS = (
    StudyClaim(
        study="disk",
        text="The eigenvalues of a Glorot matrix become uniform on the unit disk as it grows",
        source=f"{LRU}, Theorem 1, Fig. 2",
        supported_by=(
            "mean of |lambda|^2*",
            "distance to uniform*",
        ),
    ),
    StudyClaim(
        study="ring",
        text="The sampler fills a ring of the disk uniformly",
        source=f"{LRU}, Lemma 2, Fig. 3",
        supported_by=(
            "mean of |lambda|*",
            "distance of*",
        ),
    ),
    StudyClaim(
        study="impulse",
        text="Over 1,024 steps, eigenvalues with phases on the whole circle oscillate only a few times",
        source=f"{LRU}, Fig. 4",
        contradicted_by=("sign changes are many, phase=2pi, 1024 steps",),
    ),
    StudyClaim(
        study="impulse",
        text="Phases in a small slice make few oscillations over 16,384 steps",
        source=f"{LRU}, Fig. 4",
        supported_by=("sign changes are few, phase=0.02pi, 16384 steps",),
    ),
    StudyClaim(
        study="phase",
        text="With small phases a long model generalises, with phases on the whole circle it does not",
        source=f"{LRU}, section 3.4, Fig. 5",
        supported_by=("test accuracy of phase 0.02π above*",),
    ),
    StudyClaim(
        study="phase",
        text="Without normalisation the loss at initialisation blows up",
        source=f"{LRU}, section 3.4, Fig. 5",
        supported_by=("initial loss without γ over with it*",),
    ),
    StudyClaim(
        study="leak",
        text="A ReLU moves energy to new frequencies",
        source=f"{LRU}, Prop. 4, Fig. 6",
        supported_by=(
            "rectified sine, coefficient*",
            "share at other*",
        ),
    ),
    StudyClaim(
        study="convolution",
        text="A linear RNN learns a linear filter faster than a tanh RNN, at the best learning rate of each",
        source=f"{LRU}, Fig. 7",
        supported_by=("p of a sign test*",),
    ),
    StudyClaim(
        study="powers",
        text="The exponential parametrisation decouples absolute value and phase for Adam",
        source=f"{LRU}, section 3.3, Fig. 8",
        supported_by=(
            "exponential: losses*",
            "updates of real-imaginary*",
        ),
    ),
    StudyClaim(
        study="powers",
        text="Real and imaginary parts are slowest for a target phase of pi/2",
        source=f"{LRU}, Fig. 8",
        contradicted_by=("real-imaginary: losses at angle 1*",),
    ),
    StudyClaim(
        study="gain",
        text="The forward pass amplifies white input by log((1 - a^2) / (1 - b^2)) / (b^2 - a^2)",
        source=f"{LRU}, Prop. 3, Fig. 9",
        supported_by=(
            "mean gain, white input*",
            "Prop. 3 as an integral*",
        ),
    ),
    StudyClaim(
        study="gain",
        text="It amplifies constant input by the same factor, in the mean",
        source=f"{LRU}, Prop. 3, Fig. 9",
        supported_by=("mean gain, constant input*",),
    ),
    StudyClaim(
        study="memory",
        text="The sensitivity to the eigenvalue explodes faster than the state",
        source=f"{ZUCCHET}, section 2.2, Fig. 1A",
        supported_by=("slope of sensitivity over state*",),
    ),
    StudyClaim(
        study="landscape",
        text="The loss is sharper the longer the teacher's memory is, in absolute value and angle",
        source=f"{ZUCCHET}, Fig. 1B, 1C",
        supported_by=(
            "curvature by radius, rho*",
            "curvature by angle, rho*",
        ),
    ),
    StudyClaim(
        study="remedy",
        text="Normalisation and the exponential form bound state and gradient for uncorrelated input",
        source=f"{ZUCCHET}, section 3, Fig. 2",
        supported_by=("* near its limit, rho=0",),
    ),
    StudyClaim(
        study="remedy",
        text="For correlated input below 1 both still explode",
        source=f"{ZUCCHET}, section 3, Fig. 2",
        contradicted_by=("* and its limit, rho=0.*",),
    ),
    StudyClaim(
        study="teacher",
        text="LRUs outperform dense linear RNNs the more, the longer the memory of the teacher is",
        source=f"{ZUCCHET}, section 4.2, Fig. 3A",
        supported_by=("log(dense / LRU) rises*",),
    ),
    StudyClaim(
        study="bridge",
        text="A block-diagonal matrix of 2 x 2 blocks lowers the loss of the dense linear RNN",
        source=f"{ZUCCHET}, caption of Fig. 3B",
        supported_by=("dense > block, *",),
    ),
    StudyClaim(
        study="bridge",
        text="Complex numbers in place of the blocks lower the loss further",
        source=f"{ZUCCHET}, caption of Fig. 3B",
    ),
    StudyClaim(
        study="bridge",
        text="The normalisation by gamma lowers the loss of the complex diagonal RNN",
        source=f"{ZUCCHET}, Fig. 3B",
        supported_by=("complex > gamma, *",),
        profile="paper",
    ),
    StudyClaim(
        study="bridge",
        text="The exponential parametrisation lowers the loss further",
        source=f"{ZUCCHET}, Fig. 3B",
        contradicted_by=("lru > gamma, *",),
        profile="paper",
    ),
    StudyClaim(
        study="hessian",
        text="The largest eigenvectors are more concentrated for complex diagonal networks than for dense ones",
        source=f"{ZUCCHET}, section 4.3, Fig. 4A, 4B",
        supported_by=("participation, dense over complex*",),
    ),
    StudyClaim(
        study="hessian",
        text="The spectra of the Hessians of dense and complex networks are almost the same",
        source=f"{ZUCCHET}, section 4.3, Fig. 4",
        contradicted_by=("top, dense over complex*",),
    ),
    StudyClaim(
        study="hessian",
        text="The loss of an LRU is sharper in its angles than in its absolute values",
        source=f"{ZUCCHET}, Fig. 9",
        supported_by=("LRU*sharpest angle over sharpest magnitude*",),
    ),
    StudyClaim(
        study="adam",
        text="Adam takes larger steps in the complex diagonal RNN than in the dense one",
        source=f"{ZUCCHET}, section 4.3, Figs. 4C and 4D",
        supported_by=("step of complex*",),
    ),
    StudyClaim(
        study="adam",
        text="In the LRU, Adam takes smaller steps in the angles than in the absolute values",
        source=f"{ZUCCHET}, appendix B.4, Fig. 9",
        supported_by=("step of lru nu*",),
    ),
    StudyClaim(
        study="parametrise",
        text="With the exponential form, the curvature of the absolute value stays bounded",
        source=f"{ZUCCHET}, section 3.2, Fig. 6",
        supported_by=("exponential, |λ*| = 0.999: curvature of the magnitude",),
    ),
    StudyClaim(
        study="parametrise",
        text="The curvature of the angle still explodes",
        source=f"{ZUCCHET}, section 3.2, Fig. 6",
        supported_by=("exponential, |λ*| = 0.999: curvature of the angle",),
    ),
    StudyClaim(
        study="angle",
        text="A parametrisation that is best at the optimum can trap learning",
        source=f"{ZUCCHET}, Fig. 7",
        supported_by=("*adam: loss at the end",),
    ),
    StudyClaim(
        study="similarity",
        text="An eigenvalue interacts most with its conjugate without correlation, with those near 1 at full",
        source=f"{ZUCCHET}, Fig. 8",
        supported_by=("angle of the largest*",),
    ),
    StudyClaim(
        study="concentration",
        text="Concentrated angles make the Hessian less diagonal",
        source=f"{ZUCCHET}, Fig. 10",
        supported_by=("*share off the diagonal, θ0 = * π over *",),
    ),
    StudyClaim(
        study="norms",
        text="White input gives the RotRNN a state of norm 1 after 1 / (1 - gamma) steps",
        source=f"{ROTRNN}, Lemma 3, Fig. 3",
        supported_by=(
            "E|h|² *",
            "mean |h|² *",
        ),
    ),
    StudyClaim(
        study="norms",
        text="RotRNN is a special case of the LRU",
        source=f"{ROTRNN}, section 4.1",
        supported_by=("outputs of the RotRNN and of its LRU*",),
    ),
    StudyClaim(
        study="reals",
        text="Real eigenvalues cannot express a shift",
        source=f"{DLR}, appendix A.4, Table 2",
        supported_by=(
            "residual, real*",
            "smallest sum of |w|*",
        ),
    ),
    StudyClaim(
        study="reals",
        text="A state smaller than the length limits a shift",
        source=f"{DLR}, Table 2",
        supported_by=("residual 1 - 1 / *",),
    ),
)


def of(study: str) -> list[StudyClaim]:
    """The claims about a study."""
    return [claim for claim in CLAIMS if claim.study == study]


def judge(
    claim: StudyClaim, checks: Sequence[Check]
) -> tuple[Literal["supported", "contradicted", "undecided"], list[Check]]:
    """The verdict on a claim, and the checks that decide it.

    It is undecided where its checks are missing, as in profiles without seeds, or not all of them passed; and where an
    identity or a sampling check of the study failed, because then its numbers may be wrong. These are returned then.
    """
    if wrong := [one for one in checks if one.kind != "direction" and not one.passed]:
        return "undecided", wrong

    def about(patterns: Sequence[str]) -> list[Check]:
        return [one for one in checks if any(fnmatchcase(one.name, pattern) for pattern in patterns)]

    for_it, against = about(claim.supported_by), about(claim.contradicted_by)
    if against and all(one.passed for one in against):
        return "contradicted", against
    if for_it and all(one.passed for one in for_it):
        return "supported", for_it
    return "undecided", [*for_it, *against]
