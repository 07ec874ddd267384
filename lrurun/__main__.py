"""The command `lrurun`: words in, exit code out."""

from __future__ import annotations

import sys

from lrurun.errors import LrurunError, UsageError

GLOBAL_VALUES = ("--ledger", "--runs-dir", "--data-dir")
GLOBAL_FLAGS = ("-q", "--quiet", "-v", "--verbose", "--debug")


def main(argv: list[str] | None = None) -> None:
    """Runs one command and exits with its code."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: list[str]) -> int:
    """The exit code of a command; every error is shown here, in one shape."""
    from lrurun import console

    debug = "--debug" in argv
    try:
        code = _dispatch(hoist(argv))
        console.finish()
        return code
    except LrurunError as error:
        if debug:
            raise
        console.fail(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0
    except OSError as error:
        if debug:
            raise
        console.fail(
            LrurunError(
                f"{error.filename or 'the system'}: {error.strerror or error}",
                "check the path, its space and permissions",
            )
        )
        return 1
    except Exception as error:
        if debug:
            raise
        console.fail(
            LrurunError(f"a bug in lrurun: {type(error).__name__}: {error}", "--debug shows where; please report it")
        )
        return 1


def hoist(argv: list[str]) -> list[str]:
    """Global options from anywhere on the line, moved before the command, where they are parsed."""
    front, rest = [], []
    words = iter(argv)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in GLOBAL_VALUES:
            front += [word, *[value for value in [next(words, None)] if value is not None]]
        elif (
            word in GLOBAL_FLAGS
            or word.partition("=")[0] in GLOBAL_VALUES
            or (word[:2] in ("-v", "-q") and set(word[1:]) <= set("vq"))
        ):
            front.append(word)
        else:
            rest.append(word)
    return front + rest


def _dispatch(argv: list[str]) -> int:
    from lrurun.cli import app

    try:
        result = app(argv, prog_name="lrurun", standalone_mode=False)
    except Exception as error:
        # Typer carries its own Click: its usage errors are known by their shape
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            raise _usage(error) from None
        if type(error).__name__ == "Abort":
            return 130
        raise
    return result if isinstance(result, int) else 0


def _usage(error: Exception) -> UsageError:
    from lrurun.errors import hint_for, nearest

    message = error.format_message().strip().rstrip(".")  # type: ignore[attr-defined]
    message, _, _ = message.partition(" Did you mean")
    message = message.rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "lrurun"
    hint = f"{path} --help lists what it takes"
    option = getattr(error, "option_name", None)
    if option and context:
        known = [name for parameter in context.command.params for name in parameter.opts] + list(
            GLOBAL_VALUES + GLOBAL_FLAGS
        )
        close = nearest(option, known)
        hint = f"did you mean {close}? {hint}" if close else hint
    elif context and hasattr(context.command, "commands") and message.startswith("No such command"):
        hint = hint_for(message.split("'")[1], context.command.commands, "commands")
    return UsageError(message[:1].lower() + message[1:], hint)


if __name__ == "__main__":
    main()
