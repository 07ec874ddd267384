"""The parts of the documentation that are made from the program: `python -m tests.docs.generated --write`.

A part is between `<!-- generated: NAME -->` and `<!-- end -->`. A test compares it with what this module makes.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import json
import re
import sqlite3
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from unittest import mock

import msgspec

from tests.docs import kept, schedules, table, task_map

if TYPE_CHECKING:
    from lrurun.report import papers

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
OUTPUT = ROOT / "docs" / "output" / "npDigits.txt"
"""What `lrurun ladder npDigits` printed at its end, on a terminal of 100 columns."""

PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def ladders() -> str:
    from lrurun.config.ladder import load_ladder

    names = ["lru", *sorted(path.stem for path in (ROOT / "ablations").glob("*.toml") if path.stem != "lru")]
    found = [load_ladder(name) for name in names]
    return table(["ladder", "what it compares"], [[f"`{ladder.name}`", ladder.title] for ladder in found])


def tasks() -> str:
    from lrurun.config.planning import data_of
    from lrurun.data.tasks import TASKS

    rows = []
    for name, task in TASKS.items():
        _, options, _ = data_of(name)
        spec, sizes = task.spec(options), task.sizes(options)
        steps = f"{2 if spec.pair else 1} x {spec.length:,}" if spec.pair else f"{spec.length:,}"
        train = "new ones at each step" if task.sampler(options) else f"{sizes['train']:,}"
        split = f"{train} / {sizes['validation']:,} / {sizes['test']:,}"
        rows.append([f"`{name}`", task.title, steps, spec.predicted, split])
    return table(["task", "data", "steps", "predicted", "train / validation / test"], rows)


def schema() -> str:
    from lrurun.ledger.database.schema import VIEWS, metadata

    text = [f"### `{name}`\n\nA view.\n\n```text\n{textwrap.dedent(sql).strip()}\n```" for name, sql in VIEWS.items()]
    for one in metadata.sorted_tables:
        rows = []
        for column in one.columns:
            notes = ["primary key"] * column.primary_key + [f"refers to `{key.column}`" for key in column.foreign_keys]
            notes += ["may be null"] * bool(column.nullable) + [column.comment] * bool(column.comment)
            rows.append([f"`{column.name}`", str(column.type).lower(), "; ".join(map(str, notes))])
        title = f"### `{one.name}`" + (f"\n\n{one.comment[0].upper()}{one.comment[1:]}." if one.comment else "")
        text.append(f"{title}\n\n{table(['column', 'type', 'notes'], rows)}")
    return "\n\n".join(text)


def claims() -> str:
    from lrurun.config.ladder import load_ladder
    from lrurun.judging.claims import by_papers
    from lrurun.report.tables import claims_table

    ladders = [load_ladder(path.stem) for path in sorted((ROOT / "ablations").glob("*.toml"))]
    return table(list(claims_table.PAPER_HEADERS), [claims_table.cells(claim) for claim in by_papers(ladders)])


def study_table() -> str:
    from lrurun import studies

    rows = [[f"`{one.name}`", ", ".join(one.aliases), one.source, one.question] for one in studies.every()]
    return table(["study", "also", "figure", "question"], rows)


def parameters() -> str:
    from lrurun.report import papers

    return table(list(papers.SIZE_HEADERS), papers.size_table(parameters_of))


def parameters_of(size: papers.Size) -> float | None:
    """The number of parameters of a rung at the size of a paper, or its ratio to another one's; None without a rung."""
    if not size.ladder:
        return None
    count = partial(_count, size.task, size.ladder, size.profile, tuple(size.set.items()))
    return count(size.than) / count(size.rung) if size.than else count(size.rung)


@cache
def _count(task: str, ladder: str, profile: str | None, sets: tuple[tuple[str, Any], ...], name: str) -> int:
    from lrurun.config import planning
    from lrurun.nn.network import Model

    made = planning.make(task, ladder=ladder, profile=profile, sets=dict(sets), imports=False)
    [rung] = [rung for rung in made.rungs if rung.name == name]
    config = rung.training.model
    model = Model(msgspec.structs.replace(config, depth=1), made.task.spec(made.options))
    params, _ = model.shapes
    return model.count(params) + (config.depth - 1) * model.count(params["blocks"])  # all blocks have the same size


@contextmanager
def read_at_once(place: Path) -> Iterator[None]:
    """All curves of a ledger with studies, which have no steps, are read by one query; one by one they take longer than
    all the rest."""
    import numpy as np

    from lrurun.ledger.ledger import Ledger

    sizes = "SELECT r.id, k.name, count(*) FROM metrics m JOIN stored_runs r ON r.number = m.run \
        JOIN metric_keys k ON k.id = m.key GROUP BY m.run, m.key ORDER BY m.run, m.key"
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    with closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT value FROM metrics ORDER BY run, key, step")
        values = iter(np.array([value for (value,) in rows], float).tolist())  # no number is NaN
        for run, name, size in connection.execute(sizes):
            curves.setdefault(run, {})[name] = list(enumerate(itertools.islice(values, size)))
    with mock.patch.object(Ledger, "metrics", lambda _, run: dict(sorted(curves.get(run, {}).items()))):
        yield


def page_of_papers() -> str:
    """What `lrurun claims --page` writes from the kept results."""
    from lrurun.ledger.ledger import Ledger
    from lrurun.report import papers
    from lrurun.report.tables import ledger_claims
    from lrurun.studies.machinery import study_claims

    with (
        kept.merged("papers") as machine,
        closing(Ledger.read(machine.ledger)) as ledger,
        read_at_once(machine.ledger),
    ):
        ladders, _ = ledger_claims.ladders_of(ledger)
        evidence = ledger_claims.gather(ledger, ladders, None, study_claims.evidence(ledger, None))
    return papers.render(evidence, ledger_claims.collect(evidence, ladders, None, None).claims).rstrip()


def layers() -> str:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [c for c in linter["contracts"] if c["type"] == "layers"]
    return "\n".join(["```text", *contract["layers"], "```"])


def documents() -> dict[str, type]:
    """Command -> the struct of its JSON."""
    from lrurun.commands import (
        bench,
        check,
        compare,
        data,
        doctor,
        ledger,
        query,
        runs,
        show,
        status,
        verify,
    )
    from lrurun.commands.ledger import forget, rename
    from lrurun.commands.list import Listing
    from lrurun.commands.verify import items
    from lrurun.instances.remaining import PlanDocument
    from lrurun.instances.sweep import SweepDocument
    from lrurun.ledger.merging import Merged
    from lrurun.ledger.rebuilding import Rebuilt
    from lrurun.report import run_table
    from lrurun.report.formats.item_lists import ItemsDocument
    from lrurun.report.methods.paragraph import Methods
    from lrurun.report.tables.all_tasks import AllTasksReport
    from lrurun.report.tables.chosen_table import ChosenReport
    from lrurun.report.tables.ladder_table import LadderReport
    from lrurun.report.tables.ledger_claims import LedgerClaims
    from lrurun.report.tables.speed import SpeedReport
    from lrurun.report.tables.swept_table import SweptReport
    from lrurun.session import hiding
    from lrurun.studies.machinery.reporting import StudyReport

    return {
        "runs": runs.RunsDocument,
        "runs --columns": run_table.ColumnsDocument,
        "runs --by": run_table.GroupsDocument,
        "show": show.RunDocument,
        "status": status.StatusDocument,
        "plan": PlanDocument,
        "plan --sweep": SweepDocument,
        "report TASK": LadderReport,
        "report TASK --by": SweptReport,
        "report TASK --by --choose": ChosenReport,
        "report TASK --speed": SpeedReport,
        "report TASK --methods": Methods,
        "report --all": AllTasksReport,
        "plot --kind items": ItemsDocument,
        "study NAME": StudyReport,
        "report study:NAME": StudyReport,
        "claims": LedgerClaims,
        "compare": compare.CompareDocument,
        "verify": verify.VerifyDocument,
        "verify --items": items.VerifyItemsDocument,
        "query": query.QueryDocument,
        "query --views": query.ViewsDocument,
        "show --log": show.LogDocument,
        "show --files": show.FilesDocument,
        "list": Listing,
        "check": check.CheckDocument,
        "doctor": doctor.DoctorDocument,
        "bench": bench.BenchDocument,
        "data check": data.DataCheck,
        "data info": data.DataInfo,
        "ledger check": ledger.IntegrityDocument,
        "ledger merge": Merged,
        "ledger rebuild": Rebuilt,
        "ledger hide": hiding.HiddenInstances,
        "ledger forget": forget.ForgetDocument,
        "ledger forgotten": forget.Removals,
        "ledger rename": rename.RenameDocument,
    }


def json_fields() -> str:
    shown: dict[tuple[type, Paths], str] = {}
    rows = [[f"`{name}`", fields((kind, ()), name, shown)] for name, kind in documents().items()]
    return table(["command", "fields"], rows)


Paths = tuple[str, ...]
"""The dotted paths of the values of a struct that a document shows, see `as_json.selected`; none: all of them."""


def fields(struct: tuple[type, Paths], command: str, shown: dict[tuple[type, Paths], str]) -> str:
    """The fields of a struct; those of a struct inside it are in parentheses, or named by the command that has them."""
    shown[struct] = command
    found = []
    for name, inner in json_fields_of(*struct).items():
        text = f"`{name}`"
        if inner in shown:
            text += f" (as in `{shown[inner]}`)" if shown[inner] != command else ""
        elif inner is not None:
            text += f" ({fields(inner, command, shown)})"
        found.append(text)
    return ", ".join(found)


def json_fields_of(kind: type, paths: Paths = ()) -> dict[str, tuple[type, Paths] | None]:
    """Name in JSON -> the struct that the field has, if any, with the paths that are shown of it.

    Names that are not declared are of the instance of the struct, or of a property.
    """
    declared = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    inside: dict[str, list[str]] = {}
    for path in paths or getattr(kind, "json_fields", declared):
        first, _, rest = path.partition(".")
        inside.setdefault(first, []).extend([rest] if rest else [])
    return {
        first.partition("=")[0]: (inner, tuple(below))
        if first in declared and (inner := struct_in(declared[first].type)) is not None
        else None
        for first, below in inside.items()
    }


def struct_in(hint: Any) -> type | None:
    """The struct that a type is, or that its items or values are."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((found for part in get_args(hint) if (found := struct_in(part)) is not None), None)


def members(path: str, name: str) -> str:
    """What a subclass of a class may define: its public attributes and methods, from the source."""
    tree = ast.parse((ROOT / path).read_text())
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    rows = []
    for node, after in zip(found.body, [*found.body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            needed = any(isinstance(one, ast.Attribute) and one.attr == "abstractmethod" for one in node.decorator_list)
            needed |= any(isinstance(one, ast.Name) and one.id == "abstractmethod" for one in node.decorator_list)
            is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list)
            arguments = ", ".join(one.arg for one in node.args.args[1:])
            text = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
            rows.append([f"`{node.name}`" if is_property else f"`{node.name}({arguments})`", "yes" * needed, text])
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            said = after.value if isinstance(after, ast.Expr) else None
            text = said.value if isinstance(said, ast.Constant) else ""
            rows.append([f"`{node.target.id}`", "yes" * (node.value is None), " ".join(str(text).split())])
    return table(["name", "required", "what it is"], rows)


def output() -> str:
    return f"```text\n{OUTPUT.read_text().rstrip()}\n```"


def example(what: str, name: str, suffix: str) -> str:
    """A file that `lrurun new` writes."""
    from lrurun.commands.new import texts

    return f"```{'python' if suffix == '.py' else 'toml'}\n{texts(what, name)[name + suffix]}```"


def file(path: str) -> str:
    """A file of `docs/examples/`, which tests run."""
    language = {".py": "python", ".toml": "toml", ".sh": "bash"}[Path(path).suffix]
    return f"```{language}\n{(ROOT / 'docs' / 'examples' / path).read_text()}```"


def changes(before: str, after: str) -> str:
    """The lines that differ between two files of `docs/examples/`, each with a line before and after it."""
    texts = [(ROOT / "docs" / "examples" / path).read_text().splitlines() for path in (before, after)]
    lines = list(difflib.unified_diff(*texts, n=1, lineterm=""))[2:]
    return "\n".join(["```diff", *("..." if line.startswith("@@") else line for line in lines), "```"])


def program_table() -> str:
    """The fields of `[program]`, with defaults."""
    tree = ast.parse((ROOT / "lrurun/config/programs.py").read_text())
    [table_class] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ProgramTable"]
    rows = []
    for node, text in itertools.pairwise(table_class.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert isinstance(text, ast.Expr)
            assert isinstance(text.value, ast.Constant)
            default = None if node.value is None else ast.literal_eval(node.value)
            shown = (
                "required"
                if node.value is None
                else ""
                if default in (None, (), "", {})
                else f"`{json.dumps(default)}`"
            )
            rows.append([f"`{node.target.id}`", shown, " ".join(str(text.value.value).split())])
    return table(["field", "default", "what it is"], rows)


def session(name: str) -> str:
    """A session that `tests.docs.transcripts` has recorded."""
    return f"```text\n{(ROOT / 'docs' / 'output' / f'{name}.txt').read_text().rstrip()}\n```"


def recorded_part(name: str, *beginnings: str) -> str:
    """The commands of a recorded session that begin in one of these ways, and what they printed."""
    from tests.docs import transcripts

    parts = [
        f"$ {command}\n{text}".rstrip()
        for command, text in transcripts.recorded(name).items()
        if command.startswith(beginnings)
    ]
    return "```text\n" + "\n\n".join(parts) + "\n```"


PARTS: dict[str, Callable[[], str]] = {
    "ladders": ladders,
    "schedules": schedules.schedules,
    "tasks": tasks,
    "schema": schema,
    "layers": layers,
    "studies": study_table,
    "claims": claims,
    "json": json_fields,
    "recurrence": partial(members, "lrurun/nn/recurrences/base.py", "Recurrence"),
    "task": partial(members, "lrurun/data/task.py", "Task"),
    "output": output,
    "new-recurrence": partial(example, "recurrence", "averages", ".py"),
    "new-recurrence-ladder": partial(example, "recurrence", "averages", ".toml"),
    "optimizer": partial(members, "lrurun/training/optimizers/base.py", "Optimizer"),
    "new-optimizer": partial(example, "optimizer", "signum", ".py"),
    "new-optimizer-ladder": partial(example, "optimizer", "signum", ".toml"),
    "new-task": partial(example, "task", "oddness", ".py"),
    "new-recipe": partial(example, "task", "oddness", ".toml"),
    "new-ladder": partial(example, "ladder", "radius", ".toml"),
    "own": partial(session, "own"),
    "search": partial(session, "search"),
    "paper": partial(recorded_part, "paper", "lrurun report", "cat", "lrurun ledger", "ls"),
    "sharing": partial(recorded_part, "sharing", "lrurun status", "lrurun ledger", "lrurun --ledger"),
    "elsewhere-table": partial(recorded_part, "elsewhere", "lrurun new", "lrurun import example/table"),
    "elsewhere-file": partial(recorded_part, "elsewhere", "cat runs.toml"),
    "elsewhere-mlflow": partial(recorded_part, "elsewhere", "lrurun import example/mlflow"),
    "elsewhere-tensorboard": partial(recorded_part, "elsewhere", "lrurun import example/tensorboard"),
    "elsewhere-frame": partial(recorded_part, "elsewhere", "python"),
    "elsewhere-show": partial(recorded_part, "elsewhere", "lrurun show"),
    "program-changes": partial(changes, "argparse/before.py", "argparse/train.py"),
    "program-recipe": partial(file, "argparse/train.toml"),
    "program-answer": partial(session, "train"),
    "program-table": program_table,
    "program-pytorch": partial(file, "pytorch/digits.py"),
    "program-pytorch-recipe": partial(file, "pytorch/digits.toml"),
    "program-pytorch-answer": partial(session, "pytorch"),
    "program-printed": partial(file, "printed/fit.py"),
    "program-printed-recipe": partial(file, "printed/fit.toml"),
    "program-shell": partial(file, "shell/integral.sh"),
    "program-shell-recipe": partial(file, "shell/integral.toml"),
    "parameters": parameters,
    "papers": page_of_papers,
    "map-answer": task_map.answer,
    "map-runs": task_map.runs,
    "map-conclusions": partial(task_map.conclusions, "lru"),
    "map-changes": partial(task_map.changes, "lru"),
    "map-smallest": task_map.smallest,
    "map-radius": partial(task_map.changes, "controls", task_map.RADIUS),
    "map-claims": task_map.claims,
    "map-tasks": partial(task_map.tasks, "lru"),
    "map-hours": task_map.hours,
    "map-selective-conclusions": partial(task_map.conclusions, "selective"),
    "map-selective-changes": partial(task_map.changes, "selective"),
    "map-selective-tasks": partial(task_map.tasks, "selective"),
    "map-budgets": task_map.budgets,
    "map-speed": task_map.speed,
    "map-order": task_map.order,
    "map-rates": task_map.by_rate,
}


def command_line() -> str:
    """The command reference, as Typer writes it."""
    import typer
    import typer.cli

    from lrurun.cli import make_command

    command = make_command()
    context = typer.Context(command)
    text = typer.cli.get_docs_for_click(obj=command, ctx=context, name="lrurun", title="Command line")
    for group in (command, *(inner for inner in command.commands.values() if hasattr(inner, "commands"))):
        for name, inner in group.commands.items():  # Typer cuts the sentences of its lists at 45 characters
            cut, whole = inner.get_short_help_str(), inner.get_short_help_str(limit=1000)
            text = text.replace(f"* `{name}`: {cut}\n", f"* `{name}`: {whole}\n")
    text = re.sub(r"\x08\n((?:Examples|Exit codes):)\n((?:  .+\n)+)", r"\1\n\n```text\n\2```\n", text)
    return text.rstrip() + "\n"


LONG = ("parameters", "papers", *(part for part in PARTS if part.startswith("map-")))
"""Parts that take long, which have tests of their own: of many networks, and of kept results."""


def page(path: Path, *, long: bool = True) -> str:
    """What a page should be; without `long`, the parts that take long may differ."""
    if path.name == "cli.md":
        return command_line()

    def made(part: re.Match[str]) -> str:
        return f"{part[1]}{PARTS[part[2]]()}\n{part[4]}" if long or part[2] not in LONG else part[0]

    return PART.sub(made, path.read_text())


def write() -> None:
    """Brings all pages up to date."""
    for path in PAGES:
        path.write_text(page(path))
    for path, picture in task_map.shown()["pictures"].items():
        path.write_text(picture)
    schedules.PICTURE.write_text(schedules.picture())


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.docs.generated --write")
    write()
