"""The label of a ladder instance: what every report and figure of it carries, whatever the format."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from lrurun import paths, plugins
from lrurun.console import clean, setting

if TYPE_CHECKING:
    from lrurun.config.runs import InstanceSpec


class InstanceLabel(Struct, frozen=True, kw_only=True):
    """The label of an instance: what distinguishes it from others of its ladder, and the data of its runs."""

    task: str
    profile: str | None
    tune: bool
    """Whether the instance was tuned."""
    changes: Mapping[str, Any]
    """The values of `--set`, by their dotted paths."""
    data: str = ""
    """The data, as `data_phrase` returns them."""

    def parts(self, untuned: str = "") -> list[str]:
        """All parts of the label but the data, for example ["sDigits", "profile smoke", "tuned", "train.batch=5000"].

        Args:
            untuned: what an instance that was not tuned has in place of "tuned"; empty: nothing.
        """
        tuning = "tuned" if self.tune else untuned
        return [
            self.task,
            *([f"profile {self.profile}"] if self.profile else []),
            *([tuning] if tuning else []),
            *(f"{path}={setting(value)}" for path, value in self.changes.items()),
        ]

    @property
    def text(self) -> str:
        """The label as text, for example "sDigits, profile smoke, without --tune, train.batch=5000, packaged data"."""
        return clean(", ".join([*self.parts("without --tune"), *([self.data] if self.data else [])]))

    def title(self, what: str) -> str:
        """The first line of a report or figure about `what`, which begins it; settings stand last."""
        return clean(f"{what} on {self.text}")

    def anchor(self, ladder: str, what: str = "") -> str:
        """The label of a table in LaTeX; six digits stand for settings and unusual data, which the caption names."""
        changed = [f"{path}={setting(value)}" for path, value in sorted(self.changes.items())]
        changed += [] if self.data in _USUAL else [self.data]
        digest = hashlib.sha256("\n".join(changed).encode()).hexdigest()[:6]
        parts = [ladder, self.task, self.profile or "", what, "tuned" if self.tune else "", digest if changed else ""]
        return "-".join(re.sub(r"[^\w.-]+", "", part, flags=re.ASCII) for part in parts if part)


class Labelled(Protocol):
    """A report on an instance."""

    @property
    def task(self) -> str: ...

    @property
    def profile(self) -> str | None: ...

    @property
    def tune(self) -> bool: ...

    @property
    def set(self) -> dict[str, Any]: ...

    @property
    def data(self) -> dict[str, Any]: ...


def label_of(report: Labelled) -> InstanceLabel:
    """The label of the instance that a report is about."""
    return make_label(report.task, report.profile, report.tune, report.set, report.data)


def make_label(
    task: str, profile: str | None, tune: bool, changes: Mapping[str, Any], data: Mapping[str, Any]
) -> InstanceLabel:
    """A label; `data` are those of `data_phrase`."""
    return InstanceLabel(task=task, profile=profile, tune=tune, changes=changes, data=data_phrase(data))


def instance_title(ladder: str, task: str, profile: str | None, spec: InstanceSpec) -> str:
    """A title such as "ladder lru on sDigits, profile smoke, without --tune, optim.lr=0.01"; `spec` is that of the
    instance."""
    label = make_label(task, profile, spec.tune, spec.set, {})
    return f"ladder {clean(ladder)} on {label.text}"


def ladder_command(task: str, options: Mapping[str, Any], *more: str, name: str = "ladder") -> str:
    """The command that trains an instance of a ladder, or another one about it.

    Args:
        options: those that name it, each with a text, texts, a table of values, or whether it is there. Empty ones
            are left out.
        more: further arguments.
    """
    from lrurun.config.settings import set_text

    words = ["lrurun", name, task]
    for option, value in options.items():
        if isinstance(value, Mapping):
            value = [set_text(path, part) for path, part in value.items()]
        for part in value if isinstance(value, list | tuple) else [value]:
            words += [option, *([] if part is True else [str(part)])] if part else []
    return shlex.join([*words, *more])


_PACKAGED, _PUBLISHED = "packaged data", "published data"
_USUAL = ("", _PACKAGED, _PUBLISHED)


def data_phrase(data: Mapping[str, Any]) -> str:
    """The data that runs were trained on, in a few words; "" where they are not recorded.

    `data` is what a run records about them: "kind", "source", "published".
    """
    if not data:
        return ""
    kind = data.get("kind", "embedded")
    if kind == "embedded":
        return _PACKAGED
    if kind in ("generated", "imported"):
        return f"{kind} data"
    return {"yes": _PUBLISHED, "no": "not the published data"}.get(str(data.get("published")), "unverified data")


def data_sentence(data: Mapping[str, Any], task: str = "") -> str:
    """A footnote on data that are not packaged: their source, and what is known about it; "" for others.

    `task` is named where a report has several.
    """
    if data.get("kind", "embedded") == "embedded":
        return ""
    origin = "" if data["kind"] in ("generated", "imported") else f" ({data_phrase(data)})"
    return clean(f"Data{task and f' of {task}'}: {data['source']}{origin}.")


def items_command(short_name: str) -> str:
    """The command that adds per-item results to the runs of an instance."""
    words = ["lrurun", "verify", "--items", "--instance", short_name]
    return shlex.join([*words, *paths.place_options(), *plugins.load_options()])
