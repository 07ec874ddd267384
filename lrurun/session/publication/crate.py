"""RO-Crate metadata of a record: JSON-LD by the specification 1.2 (https://w3id.org/ro/crate/1.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct

METADATA = "ro-crate-metadata.json"
SPECIFICATION = "https://w3id.org/ro/crate/1.2"
SOFTWARE, RECORDING = "#lrurun", "#record"
NO_LICENSE = "No license was chosen: ask the authors before you reuse this."
_PAPERS = ("doi.org/", "arxiv.org/", "openreview.net/")

FORMATS: Mapping[str, tuple[str, str]] = {
    ".db": ("application/vnd.sqlite3", "https://www.nationalarchives.gov.uk/PRONOM/fmt/729"),
    ".txt": ("text/plain", ""),
    ".md": ("text/markdown", ""),
    ".csv": ("text/csv", ""),
    ".json": ("application/json", ""),
    ".tex": ("application/x-tex", ""),
    ".html": ("text/html", ""),
    ".toml": ("application/toml", ""),
    ".pdf": ("application/pdf", ""),
    ".svg": ("image/svg+xml", ""),
    ".py": ("text/x-python", ""),
}
"""Ending of a file -> its media type, and the address of its entry in PRONOM, if it is needed."""


class CrateFile(Struct, frozen=True, kw_only=True):
    """A file of a record."""

    path: str
    """From the folder of the record."""
    bytes: int
    sha256: str | None
    """Hex digits; None for the list of checksums, which has the one of the metadata."""
    description: str


class Training(Struct, frozen=True, kw_only=True):
    """How the runs of an instance were made."""

    name: str
    """The short name of the instance."""
    description: str
    started: str | None
    """As in "2026-11-29T15:20:19Z"; None where it is not recorded."""
    ended: str | None
    inputs: tuple[str, ...]
    """Files of the record that runs were made from."""
    made_here: bool
    versions: tuple[str, ...] = ()
    """Versions of lrurun."""


def render(
    *,
    name: str,
    description: str,
    date: str,
    license: str | None,
    authors: Sequence[str],
    citations: Sequence[str],
    files: Sequence[CrateFile],
    trainings: Sequence[Training],
    version: str,
    ledger: str,
) -> str:
    """The text of `ro-crate-metadata.json`.

    Args:
        date: when the record was made, as in "2026-11-29".
        license: an address, an SPDX identifier, or a text; None: no license was chosen.
        authors: names, each with an ORCID in parentheses if there is one.
        citations: texts about papers.
        version: of lrurun, which made the record.
        ledger: the path of the ledger in the record.
    """
    people = list(map(_person, authors))
    papers = list(map(_paper, dict.fromkeys(citations)))
    license_value, license_entities = _license(license)
    root: dict[str, Any] = {
        "@id": "./",
        "@type": "Dataset",
        "name": name,
        "description": description,
        "datePublished": date,
        "license": license_value,
        "hasPart": [{"@id": _id(file.path)} for file in files],
        "mentions": [{"@id": RECORDING}, *({"@id": _action(training)} for training in trainings)],
        "author": [{"@id": person["@id"]} for person in people],
        "citation": [{"@id": paper["@id"]} for paper in papers],
    }
    graph = [
        {
            "@id": METADATA,
            "@type": "CreativeWork",
            "about": {"@id": "./"},
            "conformsTo": {"@id": SPECIFICATION},
        },
        _compact(root),
        *map(_file, files),
        *license_entities,
        *people,
        *papers,
        *_software(version, trainings),
        *(_training(training, ledger, version) for training in trainings),
        _recording(name, date, files, people, ledger),
        *_formats(files),
    ]
    document = {"@context": f"{SPECIFICATION}/context", "@graph": graph}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _compact(entity: Mapping[str, Any]) -> dict[str, Any]:
    """An entity without properties that have no value; a single value is no list."""
    known = {key: value for key, value in entity.items() if value not in (None, "", [])}
    return {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in known.items()}


def _recording(
    name: str, date: str, files: Sequence[CrateFile], people: Sequence[Mapping[str, Any]], ledger: str
) -> dict[str, Any]:
    """How the files of the record were made from the ledger."""
    made = [file.path for file in files if file.path != ledger]
    return _compact(
        {
            "@id": RECORDING,
            "@type": "CreateAction",
            "name": f"Record: {name}",
            "endTime": date,
            "agent": [{"@id": person["@id"]} for person in people],
            "instrument": {"@id": SOFTWARE},
            "object": {"@id": _id(ledger)},
            "result": [{"@id": _id(path)} for path in made],
        }
    )


def _id(path: str) -> str:
    return quote(path)


def _file(file: CrateFile) -> dict[str, Any]:
    ending = re.search(r"\.\w+$", file.path)
    media, pronom = FORMATS.get(ending[0] if ending else "", ("text/plain" if not ending else "", ""))
    entity: dict[str, Any] = {
        "@id": _id(file.path),
        "@type": "File",
        "name": file.path,
        "description": file.description,
        "contentSize": str(file.bytes),
        "encodingFormat": [media, {"@id": pronom}] if pronom else media,
        "sha256": file.sha256,
    }
    return _compact(entity)


def _formats(files: Sequence[CrateFile]) -> list[dict[str, Any]]:
    used = dict.fromkeys(
        pronom for ending, (_, pronom) in FORMATS.items() if any(f.path.endswith(ending) for f in files)
    )
    return [
        {"@id": address, "@type": ["WebPage", "Standard"], "name": "SQLite database"} for address in used if address
    ]


def _license(license: str | None) -> tuple[Any, list[dict[str, Any]]]:
    if license is None:
        return NO_LICENSE, []
    address = license
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]*", license):
        address = f"https://spdx.org/licenses/{license}"
    if not re.match(r"https?://", address):
        return license, []
    name = license if address != license else license.rstrip("/").rpartition("/")[2]
    entity = {"@id": address, "@type": "CreativeWork", "name": name, "description": f"The license {name}."}
    return {"@id": address}, [entity]


_ORCID = re.compile(r"(?:https://orcid\.org/)?(\d{4}-\d{4}-\d{4}-\d{3}[\dX])")


def orcid(text: str) -> str | None:
    """The address of an ORCID that ends a name, as in "Ada Lovelace (0000-0002-1825-0097)"; None if there is none."""
    found = re.fullmatch(rf".*\(\s*{_ORCID.pattern}\s*\)\s*", text)
    return None if found is None else f"https://orcid.org/{found[1]}"


def _person(text: str) -> dict[str, Any]:
    name = re.sub(r"\s*\([^()]*\)\s*$", "", text) if orcid(text) else text
    slug = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-") or "author"
    return {"@id": orcid(text) or f"#{slug}", "@type": "Person", "name": name}


def _paper(text: str) -> dict[str, Any]:
    address = re.search(r"https?://\S+", text)
    found = address is not None and any(place in address[0] for place in _PAPERS)
    slug = re.sub(r"[^\w.-]+", "-", text[:60], flags=re.ASCII).strip("-").lower()
    identity = address[0].rstrip(".,;)") if address is not None and found else f"#{slug or 'paper'}"
    return {"@id": identity, "@type": "ScholarlyArticle", "name": text}


def _software(version: str, trainings: Sequence[Training]) -> list[dict[str, Any]]:
    versions = dict.fromkeys([version, *(text for training in trainings for text in training.versions)])
    return [
        {
            "@id": _software_id(text, version),
            "@type": "SoftwareApplication",
            "name": "lrurun",
            "version": text,
            "description": "Ablation ladders: trains, records and compares.",
        }
        for text in versions
    ]


def _software_id(text: str, version: str) -> str:
    return SOFTWARE if text == version else f"{SOFTWARE}-{quote(text, safe='')}"


def _action(training: Training) -> str:
    return f"#runs-{quote(training.name)}"


def _training(training: Training, ledger: str, version: str) -> dict[str, Any]:
    verb = "Training and evaluation" if training.made_here else "Import"
    instruments = [{"@id": _software_id(text, version)} for text in training.versions]
    entity: dict[str, Any] = {
        "@id": _action(training),
        "@type": "CreateAction",
        "name": f"{verb} of the runs of {training.name}",
        "description": training.description,
        "startTime": training.started,
        "endTime": training.ended,
        "instrument": instruments or [{"@id": SOFTWARE}],
        "object": [{"@id": _id(path)} for path in training.inputs],
        "result": {"@id": _id(ledger)},
    }
    return _compact(entity)
