"""A worker process: `python -m lrurun.runner.worker`; `orders` has what it does."""

from __future__ import annotations

import os
import sys

from lrurun import machine


def main() -> int:
    """Carries out the order on standard input; returns the exit code."""
    with machine.without_collection():
        from lrurun.runner import orders
        from lrurun.runner.processes import FAULT_EXIT
    code = orders.carry_out()
    if code == FAULT_EXIT:
        # a failed save may leave threads of Orbax that never end, and the supervisor waits for this process
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
