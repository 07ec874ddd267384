"""The command `lrurun`: arguments in, exit code out."""

from __future__ import annotations

import gc
import os
import sys

from lrurun.errors import LrurunError


def main(argv: list[str] | None = None) -> None:
    """Runs one command and exits with its code."""
    # Most commands end before there is any garbage; looking for it takes a fifth of their time.
    gc.set_threshold(200_000, 20, 20)
    # The threads that numpy starts for itself sleep at once when they have nothing to do; they would spin first.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    code = run(sys.argv[1:] if argv is None else argv)
    gc.freeze()  # or Python searches everything that was imported once more as it exits
    sys.exit(code)


def run(argv: list[str]) -> int:
    """The exit code of a command. Every error is shown here, in one format."""
    from lrurun import console

    if sys.stdout is None:  # closed by what started this process
        console.fail(LrurunError("stdout is closed: there is no place for the result", "send it to /dev/null instead"))
        return LrurunError.exit_code
    try:
        code = _dispatch(argv)
        console.finish()
        return code
    except KeyboardInterrupt:
        return 130
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception as error:
        if "--debug" in argv:
            import traceback

            console.trace(traceback.format_exc())
        shown = _readable(error)
        console.fail(shown)
        return shown.exit_code


def _dispatch(argv: list[str]) -> int:
    import typer

    from lrurun.cli import COMMANDS, arguments, errors, make_command
    from lrurun.commands._shared import completing

    completing.rejoin_words()
    front, rest = arguments.split_global(argv)
    rest = rest or ["--help"]
    named = next((word for word in rest if not word.startswith("-")), None)
    command = make_command(named if named in COMMANDS else None)
    try:
        result = command(front + rest, prog_name="lrurun", standalone_mode=False, obj=front + rest)
    except typer.Abort:  # Typer's name for KeyboardInterrupt
        return 130
    except Exception as error:
        if errors.is_usage_error(error):
            raise errors.usage_error(error, rest) from None
        raise
    return result if isinstance(result, int) else 0


def _readable(error: Exception) -> LrurunError:
    if isinstance(error, LrurunError):
        return error
    from lrurun import plugins

    if (fault := plugins.fault(error)) is not None:
        return fault
    if isinstance(error, OSError):
        problem = f"{error.filename or 'the system'}: {error.strerror or error}"
        return LrurunError(problem, "check the path, its space and permissions")
    return LrurunError(
        f"a bug in lrurun: {type(error).__name__}: {error}", "--debug shows where; please report what it says"
    )


if __name__ == "__main__":
    main()
