"""A claim of a paper, as the documents of ladders state it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from lrurun.errors import plural

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
Name = Annotated[str, Meta(pattern=rf"^{NAME}\Z")]


LARGEST = 1e9
"""Of scores and margins in documents, which excludes infinity; shares are at most 1, see `ladder_checks`."""


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement of a paper about a rung, in comparison with another one or with chance."""

    text: str
    source: str
    rung: Name
    """The rung that the claim calls better, as good, above chance, ..."""
    than: Name | None = None
    """None: chance."""
    kind: Literal["better", "no-worse", "equal", "above-chance", "at-chance", "faster"] = "better"
    margin: Annotated[float, Meta(gt=0, le=LARGEST)] | None = None
    """In the units of the metric: 0.005 is half a point of accuracy. For "equal" and "at-chance": the largest
    difference at which two scores count as equal. For "no-worse": the largest loss that does not count as one. For
    "above-chance", optional: what does not count yet."""
    margins: dict[str, Annotated[float, Meta(gt=0, le=LARGEST)]] = field(default_factory=dict)
    """Task -> margin, instead of `margin`."""
    metric: str = ""
    """What the claim is judged on; empty: the metric that selects the model. Another one of the task's metrics; one of
    them in a further test, as in "accuracy@256", or "accuracy@longest"; "escape_step", the step at which a run leaves
    its plateau."""
    tasks: tuple[str, ...] = ()
    """Tasks for which the paper states it; on others the report says so, or leaves out a claim on chance or speed."""
    min_length: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    """The least number of steps of the sequences that it is about, as for "very long sequences"; None: any."""
    depth: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    """The number of layers of `rung` that it is about, as for "one layer"; None: any."""

    def is_about(self, task: str) -> bool:
        """Whether it is judged on that task: elsewhere too, unless it needs what not every task has."""
        special = self.kind.endswith(("-chance", "faster")) or "@" in self.metric or self.metric == "escape_step"
        return task in self.tasks or not self.tasks or not special

    def margin_on(self, task: str) -> float:
        """Its margin on that task; 0 where it has none."""
        return self.margins.get(task, self.margin or 0.0)


def outside_scope(claim: Claim, length: int, depth: int) -> str:
    """Why a claim is not about sequences of this length and networks of this depth; empty where it is."""
    reasons = []
    if claim.min_length is not None and length < claim.min_length:
        reasons.append(f"about sequences of at least {claim.min_length:,} steps; these have {length:,}")
    if claim.depth is not None and depth != claim.depth:
        reasons.append(f"about networks of {plural(claim.depth, 'layer')}; these have {depth:,}")
    return ", and ".join(reasons)
