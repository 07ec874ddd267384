"""The methods paragraph: its sentences in order, and its formats."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from lrurun.config.instance import Instance
from lrurun.console import clean, wrapped
from lrurun.errors import NotFoundError
from lrurun.report.methods import comparisons, evidence, machines, omissions, procedure, subject
from lrurun.report.methods.wording import Sentence

if TYPE_CHECKING:
    from lrurun.report.tables.loaded_instance import LoadedInstance

Format = Literal["table", "md", "latex", "json"]
"""The formats of the paragraph; "table" is plain text."""
FORMATS: tuple[Format, ...] = get_args(Format)


class Methods(Struct, frozen=True, kw_only=True):
    """The methods paragraph of an instance."""

    json_fields = "task ladder profile instance=key short_name set tune extend text sentences facts".split()
    instance: Instance
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        """The paragraph as plain text."""
        return " ".join(sentence.text for sentence in self.sentences).replace("\xa0", " ")

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        """What each sentence is about -> its facts."""
        return {sentence.about: sentence.facts for sentence in self.sentences}

    def render(self, format: Format, *, width: int | None = None) -> str:
        """The paragraph in a format; text has lines of at most `width`."""
        if format == "json":
            from lrurun.report.formats import as_json

            return as_json.render(self)
        if format == "latex":
            from lrurun.report.formats import latex

            return "\n".join(latex.escape(clean(sentence.text)) for sentence in self.sentences)
        if format == "md":
            from lrurun.report.formats import markdown

            return markdown.escape(clean(self.text))
        text = clean(self.text)
        return text if width is None else "\n".join(wrapped(text, width))


def of_instance(loaded: LoadedInstance) -> Methods:
    """The methods paragraph of an instance.

    Raises:
        NotFoundError: it has no results.
    """
    known = evidence.collect(loaded)
    if not known.results:
        name = loaded.instance.short_name
        raise NotFoundError(f"{name}: has no finished runs, so there is nothing to describe", f"run: {loaded.command}")
    parts = (subject, procedure, comparisons, omissions, machines)
    sentences = itertools.chain.from_iterable(part.sentences(known) for part in parts)
    return Methods(instance=loaded.identity, sentences=tuple(map(_checked, sentences)))


def _checked(sentence: Sentence) -> Sentence:
    assert sentence.text.endswith("."), sentence.text
    return sentence
