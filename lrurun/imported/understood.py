"""What is read and understood before anything is written."""

from __future__ import annotations

from lrurun.errors import UsageError
from lrurun.imported import first_import, later_import
from lrurun.imported.placing import EarlierRuns, Understood
from lrurun.imported.request import Request


def understand(request: Request, earlier: EarlierRuns) -> Understood:
    """Reads a source and says what it has, by the file of the import where there is one.

    Nothing is written. `earlier` gives the imported runs that the ledger has.

    Raises:
        UsageError: something in the source, an option or the file does not fit, or is not clear.
        LrurunError: the source cannot be read.
    """
    target = request.target
    if request.document is not None and not target.is_file():
        raise UsageError(f"{target}: there is no such file", "name a source of runs, or the file of an import")
    return (later_import if target.exists() else first_import).understand(request, target, earlier)
