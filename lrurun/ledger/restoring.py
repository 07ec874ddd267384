"""The files of runs and ladder instances that are kept in the runs folder, and a ledger that is made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Struct, structs
from sqlalchemy import Connection, Table, exists, insert, select, update
from sqlalchemy.exc import DataError, IntegrityError

from lrurun.errors import LedgerError, NotFoundError
from lrurun.ledger.attempt import columns_of_result
from lrurun.ledger.database.schema import (
    attempts,
    checkpoints,
    eigenvalues,
    events,
    exclusions,
    hidden,
    item_results,
    ladder_runs,
    ladders,
    metrics,
    removals,
    removed_runs,
    runs,
    tags,
)
from lrurun.ledger.handle import retried
from lrurun.ledger.heartbeat import OWNER_EXITED
from lrurun.ledger.items import Items, write_items
from lrurun.ledger.queue import add_memberships
from lrurun.ledger.reading import Reader
from lrurun.ledger.rows import (
    Document,
    build,
    build_removal,
    clean,
    code_version,
    ladder_instance,
    load_runs,
    numbered,
    pack,
    pack_complex,
    pack_instances,
    pack_result,
    share,
    to_real,
    unpack,
)
from lrurun.ledger.run_files import (
    LADDERS_FOLDER,
    REMOVALS_FOLDER,
    RUN_FILE,
    CurveValues,
    LadderFile,
    MembershipRow,
    PackedItems,
    RemovalRecord,
    RemovedPlace,
    RunFile,
    RunRow,
)
from lrurun.ledger.values import BACK, Event, Hidden


class Restoring(Reader, Items):
    """What a ledger has of a run or an instance as one value, and the way back."""

    @retried
    def run_file(self, run_id: str) -> RunFile:
        """The run file of a run (an id)."""
        run = self.run(run_id)
        with self._reading() as connection:
            number = self._run_number(connection, run.id)
            table = item_results.c
            item_query = select(table.result, table.test_set, table.sums).where(runs.c.number == number)
            item_table = self._item_rows(connection, item_query.order_by(table.result))
            sets = self._test_sets(connection, {row.test_set for row in item_table})
        moments = self.eigenvalues(run.id)
        return RunFile(
            number=number,
            run=RunRow(**structs.asdict(run) | {"memberships": (), "result": None, "settings": None}),
            config=msgspec.to_builtins(run.config),
            execution=msgspec.to_builtins(run.execution),
            sources=run.sources,
            result=run.result,
            attempts=self.attempts(run.id),
            checkpoints=self.checkpoints(run.id, "committed"),
            events=self.events(run=run.id),
            eigenvalues={
                moment: [None if layer is None else [(z.real, z.imag) for z in layer] for layer in layers]
                for moment, layers in moments.items()
            },
            curves={
                curve.key: CurveValues(curve.steps.tolist(), curve.values.tolist()) for curve in self.curves([run.id])
            },
            items={row.result: PackedItems(test_set=sets[row.test_set], sums=row.sums) for row in item_table},
        )

    @retried
    def ladder_file(self, key: str) -> LadderFile:
        """The ladder file of an instance (a key)."""
        with self._reading() as connection:
            number = self._ladder_number(connection, key)
            table = ladder_runs.c
            query = select(table.id, runs.c.id, table.rung, table.stage, table.position)
            query = query.join(runs, runs.c.number == table.run).where(table.ladder == number).order_by(table.id)
            memberships = [MembershipRow(*row) for row in connection.execute(query)]
            flag = None
            if hidden.name not in self.database.lacking:
                flag = connection.execute(select(hidden).where(hidden.c.ladder == number)).one_or_none()
        return LadderFile(
            number=number,
            ladder=self.ladder(key),
            events=self.events(ladder_key=key, of_runs=False),
            memberships=memberships,
            hidden=None if flag is None else build(Hidden, flag),
        )

    @retried
    def removal_record(self, key: str) -> RemovalRecord:
        """The removal record of a removal (a key).

        Raises:
            NotFoundError: there is no such removal.
        """
        with self._reading() as connection:
            row = connection.execute(select(removals).where(removals.c.key == key)).one_or_none()
            if row is None:
                raise NotFoundError(f"no removal {key!r} in {self.path}")
            query = select(*(removed_runs.c[name] for name in RemovedPlace.__struct_fields__))
            query = query.where(removed_runs.c.removal == row.id).order_by(*removed_runs.primary_key)
            places = [RemovedPlace(*place) for place in connection.execute(query)]
            files = None if row.files is None else unpack(row.files)
        return RemovalRecord(number=row.id, removal=build_removal(row), runs=places, files=files)

    def restore(
        self,
        run_files: Iterable[RunFile],
        ladder_files: Iterable[LadderFile],
        removal_records: Iterable[RemovalRecord],
        has_checkpoint: Callable[[str], bool],
    ) -> tuple[dict[str, str], list[str]]:
        """Adds runs, ladder instances and removals to an empty ledger, in this order, in one transaction.

        Running runs become interrupted; runs that were forgotten, and of which files are left, do not come back.
        `has_checkpoint` says whether a checkpoint is at its path in the runs folder; others are left out. Returns the
        files that are left out because no reader would understand their rows or they contradict themselves or others,
        their paths in the runs folder, with the reasons; and those of forgotten runs.
        """
        refused: dict[str, str] = {}
        of_forgotten: list[str] = []
        numbers: dict[str, int] = {}
        event_rows: list[tuple[int, dict[str, Any]]] = []
        removed = list(removal_records)
        forgotten = _forgotten(removed)
        with self._writing() as connection:
            if any(connection.execute(select(table).limit(1)).first() for table in (runs, ladders)):
                raise LedgerError(
                    f"the ledger {self.path} has runs, and is not overwritten", "move it aside, or name another one"
                )
            for run_file in run_files:
                if _is_forgotten(run_file, forgotten):
                    of_forgotten.append(f"{run_file.run.id}/{RUN_FILE}")
                    continue
                try:
                    with connection.begin_nested():
                        number = self._restore_run(connection, run_file, has_checkpoint)
                        load_runs(connection, runs.c.number == number)
                        rows = [(event.id, _event_row(event, run=number, ladder=None)) for event in run_file.events]
                except _REFUSED as error:
                    refused[f"{run_file.run.id}/{RUN_FILE}"] = _why(error)
                    continue
                numbers[run_file.run.id] = number
                event_rows += rows
            later = runs.alias()
            newer = (later.c.fingerprint == runs.c.fingerprint) & (later.c.generation > runs.c.generation)
            connection.execute(update(runs).where(exists().where(newer)).values(superseded=1))
            memberships: list[tuple[int, dict[str, Any]]] = []
            taken: set[str] = set()
            for ladder_file in ladder_files:
                instance = ladder_file.ladder
                short_name = next(name for name in numbered(instance.short_name) if name not in taken)
                try:
                    with connection.begin_nested():
                        row = _row(ladders, instance, spec=pack(instance.spec.table), short_name=short_name)
                        inserted = connection.execute(insert(ladders).values(row).returning(ladders)).one()
                        if ladder_file.hidden is not None:
                            flag = _row(hidden, ladder_file.hidden, ladder=inserted.id)
                            connection.execute(insert(hidden).values(flag))
                        ladder_instance(inserted)
                        rows = [(event.id, _event_row(event, ladder=inserted.id)) for event in ladder_file.events]
                        restored = [
                            (row.number, _row(ladder_runs, row, ladder=inserted.id, run=numbers[row.run]))
                            for row in ladder_file.memberships
                            if row.run in numbers
                        ]
                except _REFUSED as error:
                    refused[f"{LADDERS_FOLDER}/{instance.key}.json"] = _why(error)
                    continue
                taken.add(short_name)
                event_rows += rows
                memberships += restored
            if memberships:
                add_memberships(connection, _in_order(memberships))
            _insert(connection, events, _in_order(event_rows))
            for removal_record in removed:
                try:
                    with connection.begin_nested():
                        _restore_removal(connection, removal_record)
                except _REFUSED as error:
                    refused[f"{REMOVALS_FOLDER}/{removal_record.removal.key}.json"] = _why(error)
        return refused, of_forgotten

    def _restore_run(self, connection: Connection, file: RunFile, has_checkpoint: Callable[[str], bool]) -> int:
        run, result = file.run, file.result
        config, execution, sources = file.config, file.execution, file.sources
        settings = [Document.pack(config, run.seed), Document.pack(execution), Document.pack(sources)]
        environments = [Document.pack(attempt.environment) for attempt in file.attempts]
        documents = share(connection, [*settings, *environments])
        names = ("config_id", "execution_id", "provenance_id")
        was_running = run.state == "running"
        row = _row(
            runs,
            run,
            id=run.id,
            state="interrupted" if was_running else run.state,
            superseded=int(run.superseded),
            attempt=max((attempt.n for attempt in file.attempts), default=0),
            result=None if result is None else pack_result(result),
            **({} if result is None else columns_of_result(result)),
            **{name: documents[document] for name, document in zip(names, settings, strict=True)},
        )
        number = int(connection.execute(insert(runs).values(row).returning(runs.c.number)).scalar_one())
        attempt_rows = []
        for attempt, environment in zip(file.attempts, environments, strict=True):
            ended = (
                {}
                if attempt.ended_at is not None
                else {"ended_at": attempt.seen_at, "outcome": "exited", "reason": OWNER_EXITED}
            )
            code = code_version(attempt.environment)
            attempt_rows.append(
                _row(attempts, attempt, run=number, environment_id=documents[environment], code=code, **ended)
            )
        _insert(connection, attempts, attempt_rows)
        _insert(
            connection,
            checkpoints,
            [
                _row(checkpoints, checkpoint, run=number)
                for checkpoint in reversed(file.checkpoints)
                if has_checkpoint(checkpoint.path)
            ],
        )
        _insert(
            connection,
            eigenvalues,
            [
                {"run": number, "moment": moment, "layer": layer, "pairs": _packed(pairs)}
                for moment, layers in file.eigenvalues.items()
                for layer, pairs in enumerate(layers)
            ],
        )
        keys = self._key_numbers(connection, set(file.curves))
        for name, curve in file.curves.items():
            rows = zip(curve.steps, curve.values, strict=True)
            _insert(
                connection,
                metrics,
                [{"run": number, "key": keys[name], "step": step, "value": to_real(value)} for step, value in rows],
            )
        if file.items:
            from lrurun.ledger import item_rows

            for items in file.items.values():
                item_rows.check(items)
            write_items(connection, number, file.items)
        _insert(connection, tags, [{"run": number, "name": name} for name in run.tags])
        if run.excluded is not None:
            times = [event.time for event in file.events if event.kind == "excluded"]
            row = {"run": number, "why": clean(run.excluded), "time": max(times, default=run.created_at)}
            _insert(connection, exclusions, [row])
        return number


def _forgotten(removed: Iterable[RemovalRecord]) -> dict[str, float]:
    """Id of each run that was forgotten -> when, the last time."""
    newest: dict[str, float] = {}
    for file in sorted(removed, key=lambda file: file.removal.time):
        if file.removal.kind == "forgotten":
            newest |= dict.fromkeys((place.run for place in file.runs), file.removal.time)
    return newest


def _is_forgotten(file: RunFile, forgotten: Mapping[str, float]) -> bool:
    """Whether a run file has survived the removal of its run, as in a folder that was not there; not if the run was
    trained again afterwards, or came back by a merge."""
    time = forgotten.get(file.run.id)
    if time is None or file.run.created_at > time:
        return False
    return not any(event.kind == BACK and event.time >= time for event in file.events)


def _restore_removal(connection: Connection, file: RemovalRecord) -> None:
    files = None if file.files is None else pack(file.files)
    instances = pack_instances(file.removal.instances)
    row = _row(removals, file.removal, files=files, instances=instances)
    number = connection.execute(insert(removals).values(row).returning(removals.c.id)).scalar_one()
    _insert(connection, removed_runs, [_row(removed_runs, place, removal=number) for place in file.runs])


def _packed(pairs: list[tuple[float, float]] | None) -> str | None:
    return None if pairs is None else pack_complex([complex(*pair) for pair in pairs])


_REFUSED = (ValueError, TypeError, OverflowError, msgspec.ValidationError, LedgerError, IntegrityError, DataError)
"""The errors of a file whose values do not fit into a ledger, or that no reader would understand."""


def _why(error: Exception) -> str:
    return str(error.orig if isinstance(error, IntegrityError | DataError) else error).splitlines()[0]


def _row(table: Table, value: Struct, **columns: Any) -> dict[str, Any]:
    """The row of a value in a table that numbers its rows itself; `columns` differ from its fields.

    Raises:
        OverflowError: a number has more bits than a column.
    """
    fields = structs.asdict(value).items()
    row = {name: field for name, field in fields if name in table.c and name != "id"} | columns
    for name, field in row.items():
        if isinstance(field, int) and field.bit_length() > 63:
            raise OverflowError(f"{name}: the number {field} is too large")
    return row


def _event_row(event: Event, **columns: Any) -> dict[str, Any]:
    payload = None if event.payload is None else pack(event.payload)
    return _row(events, event, payload=payload, **columns)


def _in_order(rows: list[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [row for _, row in sorted(rows, key=itemgetter(0))]


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)
