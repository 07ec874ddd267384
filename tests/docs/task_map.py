"""The parts and the picture of docs/map.md, as commands show them on the ledger of the map."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from tests.docs import table
from tests.harness.machine import Machine

DOCS = Path(__file__).resolve().parents[2] / "docs"
LEDGER = DOCS / "map.db.xz"
"""A compressed ledger, which `lrurun ledger merge` reads."""
PICTURE = DOCS / "images" / "map.svg"
LADDERS = ("lru", "selective")
VERDICTS = ("helps", "hurts", "undecided")
JUDGED = ("supported", "contradicted", "undecided")
TUNED = ("--profile", "map", "--tune")
SECONDS = """
    select l.name, l.task, sum(max(a.heartbeat_at, a.seen_at) - a.started_at)
    from ladders l join ladder_runs m on m.ladder = l.id join attempts a on a.run = m.run
    where l.profile = 'map' group by l.name, l.task
"""
HOURS = "select sum(max(heartbeat_at, seen_at) - started_at), count(distinct run), count(*) from attempts"

OF_LADDER = "where ladder = 'lru' and profile = 'map' group by task"
TRIED = f"select task, count(distinct optim_lr), group_concat(distinct seed) from trials {OF_LADDER}"
TRAINED = f"""
    select task, group_concat(distinct seed), min(model_depth), max(model_depth), min(model_width), max(model_width),
    min(steps), max(steps) from results {OF_LADDER}
"""


@cache
def shown() -> dict[str, Any]:
    """What commands print about the ledger, as JSON, and the picture."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        machine.run("ledger", "merge", str(LEDGER))
        machine.run("plot", "--kind", "map", *TUNED, "--plain", "--width", "page", "--out", "map.svg")
        return {
            **{ladder: machine.json("report", "--all", "--ladder", ladder, *TUNED) for ladder in LADDERS},
            "claims": machine.json("claims", "--ladder", "lru")["claims"],
            "seconds": machine.json("query", SECONDS),
            "hours": machine.json("query", HOURS),
            "tried": machine.json("query", TRIED),
            "trained": machine.json("query", TRAINED),
            "picture": (Path(folder) / "map.svg").read_text(),
        }


def texts(picture: str) -> list[str]:
    """The texts of a picture, which Matplotlib names in comments beside their curves."""
    return re.findall(r"<!-- (.*?) -->", picture)


def runs() -> str:
    """How rates were chosen, and what was then trained."""
    tried = {task: (rates, set(seeds.split(","))) for task, rates, seeds in shown()["tried"]["rows"]}
    trained = {task: (set(seeds.split(",")), *sizes) for task, seeds, *sizes in shown()["trained"]["rows"]}
    assert tried.keys() == trained.keys()
    [rates] = {rates for rates, _ in tried.values()}
    [final] = {len(seeds) for seeds, *_ in trained.values()}
    assert not any(tried[task][1] & trained[task][0] for task in tried)
    few = min(len(seeds) for _, seeds in tried.values())
    more = "".join(f"; {task}: {len(seeds)}" for task, (_, seeds) in tried.items() if len(seeds) > few)
    columns = list(zip(*(sizes for _, *sizes in trained.values()), strict=True))
    depth, width, steps = (_between(min(columns[k]), max(columns[k + 1])) for k in (0, 2, 4))
    return (
        f"For each rung one of {rates} learning rates was chosen on validation, with {few} seeds{more}. The rung was "
        f"then trained with {final} other seeds. Networks have a depth of {depth} and a width of {width}, and train "
        f"for {steps} steps."
    )


def _between(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def conclusions(ladder: str) -> str:
    """Which changes help or hurt on most tasks, on some, and on none; on which tasks the first rung is the best, and on
    which most seeds of no rung learn."""
    first, unlearned = [], []
    for column, cells in _columns(ladder):
        if all(2 * (cell["learning"] or 0) <= cell["n"] for cell in cells):
            unlearned.append(column["task"])
        elif _best(column["score"], cells) is cells[0]:
            first.append(column["task"])
    sentences = [
        *shown()[ladder]["conclusions"],
        f"No later rung has a better mean than {shown()[ladder]['rows'][0]['rung']} on: {', '.join(first) or 'none'}.",
        f"On no rung do most seeds learn, which is to be better than chance: {', '.join(unlearned) or 'none'}.",
    ]
    return "\n".join(f"* {sentence}" for sentence in sentences)


def changes(ladder: str) -> str:
    """Each rung, with the tasks on which its change helps, hurts, or is undecided."""
    rows = []
    for row in shown()[ladder]["rows"][1:]:
        on = {verdict: [cell["task"] for cell in row["cells"] if cell["verdict"] == verdict] for verdict in VERDICTS}
        base = f" on `{row['cells'][0]['on']}`" if row["cells"][0]["branches"] else ""
        rows.append([f"`{row['rung']}`{base}", *map(_counted, on.values())])
    decided = [
        (abs(cell["comparison"]["difference"]), cell["rung"], cell["task"])
        for column, cells in _columns(ladder)
        for cell in cells
        if column["score"]["unit"] == "R²" and cell["verdict"] in VERDICTS[:2]
    ]
    text = table(["change to the rung before", *(f"{verdict} on" for verdict in VERDICTS)], rows)
    if decided:
        size, rung, task = min(decided)
        text += "\n\nRead the counts with the sizes in the picture: the smallest difference in R² that is decided is "
        text += f"{size:.4f} (`{rung}` on {task})."
    return text


def claims() -> str:
    """Each claim of the paper, with the tasks on which the runs support it, contradict it, or do not decide it."""
    tasks: dict[str, dict[str, list[str]]] = defaultdict(lambda: {verdict: [] for verdict in JUDGED})
    for claim in shown()["claims"]:
        if claim["here"]["verdict"] in JUDGED:
            tasks[claim["text"]][claim["here"]["verdict"]].append(claim["task"])
    return table(["claim", *JUDGED], [[text, *map(_counted, on.values())] for text, on in tasks.items()])


def tasks(ladder: str) -> str:
    """Each task: the scores of the first and the best rung, what limits its verdicts, and what its runs took."""
    rows = []
    taken = {(of_ladder, task): seconds for of_ladder, task, seconds in shown()["seconds"]["rows"]}
    for column, cells in _columns(ladder):
        form, best = column["score"], _best(column["score"], cells)
        improving, diverged = sum(cell["improving"] for cell in cells), sum(cell["diverged"] for cell in cells)
        at_edge = [caution["where"] for caution in column["cautions"] if caution["what"].startswith("best rate at the")]
        scores = [_score(form, cells[0]), f"{_score(form, best)} {best['rung']}"]
        limits = [f"{improving} of {sum(cell['n'] for cell in cells)}", str(diverged or "–"), *(at_edge or ["–"])]
        rows.append([column["task"], *scores, *limits, f"{taken[ladder, column['task']] / 60:.0f} min"])
    first = shown()[ladder]["rows"][0]["rung"]
    limits = ["still improving", "diverged", "best rate at the edge"]
    return table(["task", first, "best rung", *limits, "time of all runs"], rows)


def hours() -> str:
    """What all runs took."""
    [(seconds, runs, attempts)] = shown()["hours"]["rows"]
    return (
        f"{runs:,} runs took {seconds / 3600:.1f} hours together, two at a time, mostly beside other work; "
        f"{attempts - runs} were killed, and continued."
    )


def _columns(ladder: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each task, with its cells from the first rung to the last."""
    report = shown()[ladder]
    return [(column, [row["cells"][k] for row in report["rows"]]) for k, column in enumerate(report["columns"])]


def _best(form: dict[str, Any], cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The cell with the best mean score on the test set, the first of equal ones."""
    sign = -1 if form["higher_is_better"] is False else 1
    return max((cell for cell in cells if cell["n"]), key=lambda cell: sign * cell["mean"])


def _score(form: dict[str, Any], cell: dict[str, Any]) -> str:
    return f"{form['scale'] * cell['mean']:.{form['decimals']}f} {form['symbol']}".rstrip()


def _counted(names: list[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "–"
