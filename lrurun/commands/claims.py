"""`lrurun claims`: the claims of papers, judged by the papers' own numbers."""

from __future__ import annotations

from lrurun import console
from lrurun.commands import output
from lrurun.commands.options import Json, OnlyLadder, OnlyTask


def claims(ladder: OnlyLadder = None, task: OnlyTask = None, json: Json = False) -> int:
    """Judge the papers' claims by the papers' own numbers.

    The rule is that for runs; reports show these verdicts beside those of the runs. No runs are needed.
    """
    from lrurun import data as tasks
    from lrurun import paths
    from lrurun.config.documents import load_ladder
    from lrurun.report import published_claims

    if task is not None:
        tasks.get(task)
    names = [ladder] if ladder is not None else list(paths.names("ablations"))
    found = published_claims.collect([load_ladder(name) for name in names], task)
    if json:
        output.write_json(published_claims.ClaimsReport(claims=found))
        return 0
    if found:
        console.table("claims", published_claims.HEADERS, [published_claims.cells(one) for one in found])
    else:
        console.say(f"no claims{f' of ladder {ladder}' if ladder else ''} on {task or 'tasks that are here'}")
    return 0
