"""The ledger: what was requested, what is running, and the results.

`Ledger` has all that is done with one, by role: `queue`, `heartbeat` (runs of exited workers), `attempt` (what a worker
writes), `changes` (marks and events), `imports` (runs made elsewhere), `items` (per-item results), `names` (of
instances), `hiding`, `removing` (what is hidden or was removed), `forgetting` (runs that are deleted), `reading` and
`restoring` (from the runs folder).
Every method is one short transaction.

State changes are on the disk when a method returns; metrics and heartbeats survive any killed process, but the last
seconds of them may be lost in a power cut.
"""

from __future__ import annotations

from lrurun.ledger.attempt import AttemptWrites
from lrurun.ledger.changes import Changes
from lrurun.ledger.forgetting import Forgetting
from lrurun.ledger.heartbeat import Heartbeats
from lrurun.ledger.hiding import Hiding
from lrurun.ledger.imports import Imports
from lrurun.ledger.names import Names
from lrurun.ledger.queue import Queue
from lrurun.ledger.removing import Removing
from lrurun.ledger.restoring import Restoring


class Ledger(Queue, Heartbeats, AttemptWrites, Changes, Names, Imports, Hiding, Removing, Forgetting, Restoring):
    """A ledger that is open, for writing (`open`) or for reading (`read`). Threads may share it. Values that it returns
    are frozen."""
