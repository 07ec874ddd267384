"""The identity of a ladder instance: the value that names it in reports, figures and documents, whatever the format."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lrurun import paths, plugins
from lrurun.config.schema import RunKind
from lrurun.console import clean, setting


class Instance(Struct, frozen=True, kw_only=True):
    """The identity of a ladder instance: what distinguishes it from others, and the data of its runs.

    A document with one shows fields of it among its own, see `lrurun.report.formats.as_json.selected`.
    """

    ladder: str
    """The name of the ladder."""
    task: str
    profile: str | None = None
    set: dict[str, Any] = {}
    """The values of `--set`, by their dotted paths."""
    tune: bool = False
    """Whether it was tuned."""
    extend: int = 0
    """How many values tuning could add to the grid of each rung."""
    data: dict[str, Any] = {}
    """What its runs recorded about their data: "source", "kind", "baselines", "published", "sha256", for classes at
    positions "test_labels"; empty where they are not known."""
    key: str = ""
    """Its key in the ledger; empty where it is in none."""
    short_name: str = ""
    """Its name for `--instance`."""
    kind: RunKind = "training"
    """The kind of its runs."""

    def parts(self, untuned: str = "") -> list[str]:
        """All parts of the label but the data, for example ["sDigits", "profile smoke", "tuned", "train.batch=5000"].

        Args:
            untuned: what an instance that was not tuned has in place of "tuned"; empty: nothing.
        """
        tuning = untuned
        if self.tune:
            tuning = f"tuned with --extend {self.extend}" if self.extend else "tuned"
        return [
            self.task,
            *([f"profile {self.profile}"] if self.profile else []),
            *([tuning] if tuning else []),
            *(f"{path}={setting(value)}" for path, value in self.set.items()),
        ]

    @property
    def label(self) -> str:
        """The label of its reports and figures, for example "sDigits, profile smoke, without --tune,
        train.batch=5000, packaged data"."""
        data = data_phrase(self.data)
        untuned = "" if self.kind == "imported" else "without --tune"  # nobody here knows how they were tuned
        return clean(", ".join([*self.parts(untuned), *([data] if data else [])]))

    @property
    def description(self) -> str:
        """The label with the ladder before it, for example "ladder lru on sDigits, without --tune"."""
        return f"ladder {clean(self.ladder)} on {self.label}"

    def title(self, what: str) -> str:
        """The first line of a report or figure about `what`, which begins it; settings stand last."""
        return clean(f"{what} on {self.label}")

    def named(self, title: str) -> str:
        """A title of it on a terminal, which begins with its short name where the task does not say it."""
        return title if self.short_name in ("", self.task) else f"{clean(self.short_name)}: {title}"

    def anchor(self, what: str = "") -> str:
        """The label of a table in LaTeX; six digits stand for settings and unusual data, which the caption names."""
        data = data_phrase(self.data)
        changed = [f"{path}={setting(value)}" for path, value in sorted(self.set.items())]
        changed += [] if data in _USUAL else [data]
        digest = hashlib.sha256("\n".join(changed).encode()).hexdigest()[:6]
        tuned = "tuned" if self.tune else ""
        tuned += f"-extend{self.extend}" if self.extend else ""
        parts = [self.ladder, self.task, self.profile or "", what, tuned, digest if changed else ""]
        return "-".join(re.sub(r"[^\w.-]+", "", part, flags=re.ASCII) for part in parts if part)


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
