"""`lrurun ui`: the browser view of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lrurun.commands._shared.options import OnlyInstances, Where, number
from lrurun.commands._shared.rules import examples
from lrurun.errors import LrurunError

if TYPE_CHECKING:
    from lrurun.paths import Places

PORT = 8765


@examples(
    "lrurun ui",
    "lrurun ui --port 8080",
)
def ui(
    context: typer.Context,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="N", help="The port; 0 is any.", **number("--port", int, 0, 65535, example=8080)
        ),
    ] = PORT,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Bind this address, which others may reach.")
    ] = "127.0.0.1",
    instance: OnlyInstances = None,
    where: Where = None,
) -> int:
    """Show the ledger in a browser: live ladders, reports, runs.

    It prints a link, and serves until ^C. The view is read-only, and works beside running ladders. Only this machine
    can connect, and only with the link, whose token becomes a cookie.

    With --instance and --where, its lists show only these instances, and runs that meet the condition: on the first
    page the instances that have such a run, among the claims those that they judge.

    \b
    On a remote machine, forward a port of your own by ssh, then open the link:
      ssh -t -L 8765:127.0.0.1:8765 USER@MACHINE lrurun --ledger PATH ui
    """
    places: Places = context.obj.places
    try:
        from lrurun.ui import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("lrurun"):
            raise
        raise LrurunError(f"lrurun ui needs {error.name}, which is not installed", "pip install 'lrurun[ui]'") from None
    serve.run(places, host, port, instances=instance or [], where=where)
    return 0
