"""Per-item results of runs in a ledger: written, read and removed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import structs
from sqlalchemy import Connection, Select, Table, and_, func, select, update

from lrurun.ledger.database import damaged
from lrurun.ledger.database.schema import exclusions, item_results, ladder_runs, runs, test_sets
from lrurun.ledger.database.sql import among, now, upsert
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.rows import add_event
from lrurun.ledger.run_files import PackedItems, PackedTestSet

if TYPE_CHECKING:
    from lrurun.items import ItemResults, TestSet


class Items(Handle):
    """The results of runs on each test item, and the test sets that these belong to."""

    @retried
    def record_items(self, run_id: str, items: Mapping[str, ItemResults]) -> list[str]:
        """Add the per-item results of a run that is done; those that it has stay as they are.

        Returns the names of the scores whose results were added.

        Raises:
            ValueError: the run is not done.
        """
        item_records = packed_items(items)
        with self._writing() as connection:
            number = self._run_number(connection, run_id)
            if connection.execute(select(runs.c.state).where(runs.c.number == number)).scalar_one() != "done":
                raise ValueError(f"only a run that is done has per-item results: run {run_id} is not")
            added = write_items(connection, number, item_records)
            if added:
                text = f"per-item results added: {', '.join(added)}"
                add_event(connection, now(connection), "items", text, run=number)
            return added

    @retried
    def drop_items(self, run_ids: Iterable[str]) -> int:
        """Remove the per-item results of runs; that they were removed, and from which test set, is kept.

        Returns how many bytes they had.
        """
        table = item_results
        chosen = table.c.run.in_(select(runs.c.number).where(among(runs.c.id, run_ids)))
        having = and_(chosen, table.c.sums.is_not(None))
        with self._writing() as connection:
            sizes = select(table.c.run, table.c.result, func.length(table.c.sums)).where(having)
            removed = connection.execute(sizes.order_by(table.c.run, table.c.result)).all()
            connection.execute(update(table).where(having).values(sums=None))
            time = now(connection)
            for number, rows in groupby(removed, key=itemgetter(0)):
                text = f"per-item results removed: {', '.join(row.result for row in rows)}"
                add_event(connection, time, "items", text, run=number)
        return sum(size for *_, size in removed)

    @retried
    def items(self, run_ids: Iterable[str], result: str) -> dict[str, ItemResults]:
        """Run -> its per-item results for a score, as "test/accuracy"; runs without them are left out.

        Runs with the same test set have the same object as `test_set`.
        """
        from lrurun.items import ItemResults
        from lrurun.ledger import item_rows

        table = item_results.c
        with self._reading() as connection:
            rows = self._item_rows(
                connection,
                select(runs.c.id, table.test_set, table.sums).where(
                    among(runs.c.id, run_ids), table.result == result, table.sums.is_not(None)
                ),
            )
            rows_of_sets = self._test_sets(connection, {row.test_set for row in rows})
            try:
                sets = {number: item_rows.test_set(row) for number, row in rows_of_sets.items()}
                return {
                    row.id: ItemResults(
                        test_set=sets[row.test_set], sums=item_rows.sums(row.sums, sets[row.test_set].count)
                    )
                    for row in rows
                }
            except ValueError as error:
                raise damaged(self.path, error) from None

    @retried
    def first_test_set(self, ladder_key: str, result: str) -> tuple[str, TestSet] | None:
        """The oldest run of a ladder instance that has per-item results of a score and is not excluded, with its test
        set; None if there is none."""
        from lrurun.ledger import item_rows

        table = item_results.c
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            oldest = (
                select(runs.c.id.label("run"), *test_sets.c)
                .where(
                    runs.c.number.in_(select(ladder_runs.c.run).where(ladder_runs.c.ladder == ladder)),
                    runs.c.number.not_in(select(exclusions.c.run)),
                    runs.c.superseded == 0,
                    table.result == result,
                    table.sums.is_not(None),
                )
                .order_by(runs.c.number)
                .limit(1)
            )
            for row in self._item_rows(connection, oldest, test_sets):
                try:
                    return row.run, item_rows.test_set(item_rows.packed_test_set(row))
                except ValueError as error:
                    raise damaged(self.path, error) from None
            return None

    @retried
    def item_counts(self, run_id: str) -> dict[str, int]:
        """Score -> the number of test items whose results a run has."""
        table = item_results.c
        counts = select(table.result, test_sets.c.count).where(runs.c.id == run_id, table.sums.is_not(None))
        with self._reading() as connection:
            return dict(self._item_rows(connection, counts.order_by(table.result), test_sets))

    @retried
    def item_names(self, run_ids: Iterable[str]) -> list[str]:
        """The names of the scores of which some of these runs have per-item results, sorted."""
        table = item_results.c
        names = select(table.result).distinct().where(among(runs.c.id, run_ids), table.sums.is_not(None))
        with self._reading() as connection:
            return [row.result for row in self._item_rows(connection, names.order_by(table.result))]

    @retried
    def item_totals(self, ladder_key: str) -> tuple[int, int]:
        """How many scores of an instance's runs were recorded with per-item results, and how many still have them."""
        totals: Any = (func.count(), func.count(item_results.c.sums))
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            of_ladder = runs.c.number.in_(select(ladder_runs.c.run).where(ladder_runs.c.ladder == ladder))
            rows = self._item_rows(connection, select(*totals).where(of_ladder))
            return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    @retried
    def item_bytes(self) -> dict[str, int]:
        """Run -> the bytes of its per-item results, of the runs that have some."""
        table = item_results.c
        sizes = select(runs.c.id, func.sum(func.length(table.sums))).where(table.sums.is_not(None))
        with self._reading() as connection:
            rows = self._item_rows(connection, sizes.group_by(runs.c.number, runs.c.id).order_by(runs.c.number))
            return {run_id: int(size) for run_id, size in rows}

    @retried
    def items_removed(self, run_ids: Iterable[str], result: str) -> dict[str, int]:
        """Run -> the number of test items of a score, where `ledger gc --items` removed the per-item results."""
        table = item_results.c
        removed = select(runs.c.id, test_sets.c.count).where(
            among(runs.c.id, run_ids), table.result == result, table.sums.is_(None)
        )
        with self._reading() as connection:
            return dict(self._item_rows(connection, removed, test_sets))

    def _test_sets(self, connection: Connection, numbers: Collection[int]) -> dict[int, PackedTestSet]:
        """Number -> test set."""
        from lrurun.ledger import item_rows

        rows = connection.execute(select(test_sets).where(among(test_sets.c.id, numbers))) if numbers else ()
        found = {row.id: item_rows.packed_test_set(row) for row in rows}
        if missing := sorted(set(numbers) - found.keys()):
            raise damaged(self.path, f"test set {missing[0]} is missing")
        return found

    def _item_rows(self, connection: Connection, query: Select[Any], *more: Table) -> Sequence[Any]:
        """The rows of a query on runs and their per-item results; none where the ledger is of an older revision,
        which has no such tables."""
        if self.database.lacking >= {item_results.name}:
            return []
        joined = runs.join(item_results, item_results.c.run == runs.c.number)
        for table in more:
            joined = joined.join(table, table.c.id == item_results.c.test_set)
        return connection.execute(query.select_from(joined)).all()


def packed_items(items: Mapping[str, ItemResults] | None) -> dict[str, PackedItems]:
    if not items:
        return {}
    from lrurun.ledger import item_rows  # which imports NumPy

    return item_rows.packed(items)


def write_items(connection: Connection, run: int, items: Mapping[str, PackedItems]) -> list[str]:
    """Writes those that the run does not have, or of which the results were removed. Returns their names."""
    if not items:
        return []
    test_set = {results.test_set.sha256: results.test_set for results in items.values()}
    add = upsert(connection, test_sets)
    connection.execute(
        add.on_conflict_do_nothing(index_elements=[test_sets.c.sha256]),
        # In one order, so that processes which add the same ones at once do not wait for each other.
        [_test_set_row(test_set[sha256]) for sha256 in sorted(test_set)],
    )
    known = select(test_sets.c.sha256, test_sets.c.id).where(among(test_sets.c.sha256, test_set))
    numbers: dict[str, int] = dict(connection.execute(known).all())
    table = item_results
    having = select(table.c.result).where(table.c.run == run, table.c.sums.is_not(None))
    present = set(connection.execute(having).scalars())
    added = [name for name in items if name not in present]
    if added:
        put = upsert(connection, table)
        connection.execute(
            put.on_conflict_do_update(
                index_elements=["run", "result"],
                set_={"test_set": put.excluded.test_set, "sums": put.excluded.sums},
            ),
            [
                {
                    "run": run,
                    "result": name,
                    "test_set": numbers[items[name].test_set.sha256],
                    "sums": items[name].sums,
                }
                for name in added
            ],
        )
    return added


def _test_set_row(test_set: PackedTestSet) -> dict[str, Any]:
    row = structs.asdict(test_set)
    return {"order_sha256": row.pop("order"), **row}
