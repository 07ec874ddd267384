"""The declaration of a recurrence. No jax here: the class itself is imported when it is used."""

from __future__ import annotations

import pkgutil
from typing import Annotated, Any, Self

from msgspec import Meta, Struct

Fraction = Annotated[float, Meta(ge=0, le=1)]
Step = Annotated[float, Meta(gt=0, le=1000)]
Size = Annotated[int, Meta(ge=1, le=65536)]
KernelLength = Annotated[int, Meta(ge=0, le=2**24)]

LARGEST_HIPPO = 4096
"""The size of the largest HiPPO matrix whose eigenvectors are computed, in half a minute on one core."""


class RecurrenceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The base of every `[model.recurrence]` table. The tag of a subclass is its kind.

    The description of `ModelConfig.state` lists what each kind counts as N: add a new kind there.
    """

    @property
    def elementwise(self) -> bool:
        """Whether each feature has a state of its own, so that `fits` refuses a state other than the width."""
        return False

    @property
    def initial_only(self) -> frozenset[str]:
        """Names of the settings that decide about initial values alone, whatever they are set to.

        With any of their values, the parameters have the same names, shapes and groups, and all methods but `init` of
        the recurrence give the same. Runs that differ in them alone share their compiled functions.
        """
        return frozenset()

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        """Raise ValueError where a model of `width` H, `state` N and these settings cannot be built.

        The message is for users: it has the rule and the values found, with the names of the fields of `[model]`.
        """

    def fits_length(self, length: int) -> None:
        """Raise ValueError, with a message for users, where sequences of `length` steps do not fit these settings."""

    def at_length(self, length: int) -> Self:
        """The settings for sequences of `length` steps; they differ for kinds whose parameters depend on the length."""
        return self


class Declaration(Struct, frozen=True, kw_only=True):
    """The facts about a recurrence that do not need its class."""

    settings: type[RecurrenceSettings]
    implementation: str | type
    """The class, as "module:Class", which is imported on use; or the class itself, for plug-ins."""
    variants: dict[str, dict[str, Any]] = {}
    """Name -> settings that are not the default, for the conformance checks: a variant for each rung of the ladders and
    for each other form. Together the variants change every setting but real numbers, and have each of its choices.
    Without variants, they are derived from the settings."""

    @property
    def kind(self) -> str:
        return str(self.settings.__struct_config__.tag)

    def load(self) -> Any:
        """The class, a subclass of `lrurun.nn.recurrences.Recurrence`. This imports jax."""
        implementation = self.implementation
        return pkgutil.resolve_name(implementation) if isinstance(implementation, str) else implementation


def check_steps(dt_min: float, dt_max: float) -> None:
    """Raise ValueError where the smallest step is larger than the largest."""
    if dt_min > dt_max:
        raise ValueError(f"dt_min must not be larger than dt_max, found dt_min = {dt_min}, dt_max = {dt_max}")


def check_radii(r_min: float, r_max: float) -> None:
    """Raise ValueError where the inner radius is larger than the outer one."""
    if r_min > r_max:
        raise ValueError(f"r_min must not be larger than r_max, found r_min = {r_min}, r_max = {r_max}")


def check_kernel(kernel_length: int, length: int) -> None:
    """Raise ValueError where the kernel is longer than sequences of `length` steps."""
    if kernel_length > length:
        raise ValueError(
            f"kernel_length must not be larger than the task's sequences, {length} steps, found {kernel_length}"
        )
