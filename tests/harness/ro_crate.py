"""A check of RO-Crate metadata: what the specification 1.2 demands, read as linked data without a network.

The context is that of the specification, which is in the public domain (CC0 1.0).
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import warnings
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from rdflib import RDF, Graph, Namespace, URIRef

CONTEXT = "https://w3id.org/ro/crate/1.2/context"
SCHEMA, DCT = Namespace("http://schema.org/"), Namespace("http://purl.org/dc/terms/")
BASE = "https://example.org/record/"
_FILE = Path(__file__).parents[1] / "golden" / "ro-crate-1.2-context.json.xz"


@cache
def context() -> dict[str, Any]:
    """The terms of the specification."""
    found: dict[str, Any] = json.loads(lzma.decompress(_FILE.read_bytes()))["@context"]
    return found


def graph(document: dict[str, Any]) -> Graph:
    """The statements of a document, whose addresses begin with `BASE`."""
    text = json.dumps({**document, "@context": context()})
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # rdflib's reader of JSON-LD uses a class that it deprecates
        return Graph().parse(data=text, format="json-ld", publicID=BASE)


def faults(folder: Path) -> list[str]:
    """What is wrong with the metadata of a folder; empty for an RO-Crate."""
    try:
        document = json.loads((folder / "ro-crate-metadata.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return [f"ro-crate-metadata.json: {error}"]
    return [*_form(document), *_root(document), *_files(document, folder)]


def _form(document: dict[str, Any]) -> Iterator[str]:
    """Flattened and compacted JSON-LD, all of whose terms the context has."""
    if document.get("@context") != CONTEXT:
        yield f"the context is {document.get('@context')}"
    if set(document) != {"@context", "@graph"}:
        yield f"beside the graph: {sorted(set(document) - {'@context', '@graph'})}"
    ids = [entity.get("@id") for entity in document["@graph"]]
    yield from (f"twice: {identity}" for identity in {i for i in ids if ids.count(i) > 1})
    known = set(context())
    for entity in document["@graph"]:
        if "@id" not in entity or "@type" not in entity:
            yield f"without @id or @type: {entity}"
        types = entity.get("@type", [])
        for term in {*entity, *([types] if isinstance(types, str) else types)} - {"@id", "@type"}:
            if term not in known:
                yield f"{entity.get('@id')}: the context has no {term!r}"
        for name, value in entity.items():
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, dict) and set(part) != {"@id"}:
                    yield f"{entity.get('@id')}, {name}: nested"
                if isinstance(part, dict) and part.get("@id") not in ids and not _is_outside(part.get("@id", "")):
                    yield f"{entity.get('@id')}, {name}: refers to {part.get('@id')}, which is not described"
            if value in (None, "", []):
                yield f"{entity.get('@id')}, {name}: empty"


def _is_outside(identity: str) -> bool:
    return re.match(r"https?://", identity) is not None


def _root(document: dict[str, Any]) -> Iterator[str]:
    """The descriptor and the root, as statements."""
    statements = graph(document)
    descriptor, root = URIRef(f"{BASE}ro-crate-metadata.json"), URIRef(BASE)
    if (descriptor, RDF.type, SCHEMA.CreativeWork) not in statements:
        yield "the descriptor is no CreativeWork"
    if list(statements.objects(descriptor, SCHEMA.about)) != [root]:
        yield "the descriptor is not about ./"
    if list(statements.objects(descriptor, DCT.conformsTo)) != [URIRef("https://w3id.org/ro/crate/1.2")]:
        yield "the descriptor does not name the specification"
    if (root, RDF.type, SCHEMA.Dataset) not in statements:
        yield "the root is no Dataset"
    for name in ("name", "description", "license", "datePublished"):
        if len(list(statements.objects(root, SCHEMA[name]))) != 1:
            yield f"the root has not one {name}"
    for published in statements.objects(root, SCHEMA.datePublished):
        try:
            date.fromisoformat(str(published)[:10])
        except ValueError:
            yield f"datePublished: {published}"
    for action in statements.subjects(RDF.type, SCHEMA.CreateAction):
        instruments = list(statements.objects(action, SCHEMA.instrument))
        if not instruments:
            yield f"{action}: has no instrument"
        for instrument in instruments:
            if (instrument, RDF.type, SCHEMA.SoftwareApplication) not in statements:
                yield f"{instrument}: is no SoftwareApplication"
            if not list(statements.objects(instrument, SCHEMA.version)):
                yield f"{instrument}: has no version"
        if not list(statements.objects(action, SCHEMA.result)):
            yield f"{action}: has no result"


def _files(document: dict[str, Any], folder: Path) -> Iterator[str]:
    """Each file is described, linked from the root, and as it is described."""
    statements = graph(document)
    parts = {str(part) for part in statements.objects(URIRef(BASE), SCHEMA.hasPart)}
    described = {str(file) for file in statements.subjects(RDF.type, SCHEMA.MediaObject)}
    if parts != described:
        yield f"described and not linked, or the other way round: {sorted(parts ^ described)}"
    named = {unquote(identity.removeprefix(BASE)): identity for identity in described}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if unlike := {*named} ^ there - {"ro-crate-metadata.json"}:
        yield f"there and not described, or the other way round: {sorted(unlike)}"
    for path, identity in named.items():
        entity = URIRef(identity)
        if not (folder / path).is_file():
            continue
        sizes = [str(size) for size in statements.objects(entity, SCHEMA.contentSize)]
        if sizes != [str((folder / path).stat().st_size)]:
            yield f"{path}: contentSize {sizes}"
        digests = [str(digest) for digest in statements.objects(entity, SCHEMA.sha256)]
        if path != "SHA256SUMS" and digests != [hashlib.sha256((folder / path).read_bytes()).hexdigest()]:
            yield f"{path}: sha256 {digests}"
        if not list(statements.objects(entity, SCHEMA.encodingFormat)):
            yield f"{path}: no encodingFormat"
