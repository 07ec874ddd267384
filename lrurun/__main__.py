"""The command `lrurun`: words in, exit code out."""

from __future__ import annotations

import gc
import re
import sys

from lrurun.errors import LrurunError, UsageError, hint_for, nearest

GLOBAL_VALUES = ("--ledger", "--runs-dir", "--data-dir", "--load")
GLOBAL_FLAGS = ("-q", "--quiet", "-v", "--verbose", "--debug")


def main(argv: list[str] | None = None) -> None:
    """Runs one command and exits with its code."""
    # Most commands are over before they have made any garbage: looking for it takes a fifth of their time.
    gc.set_threshold(50_000, 20, 20)
    code = run(sys.argv[1:] if argv is None else argv)
    gc.freeze()  # or the end of the process searches all that was imported once more
    sys.exit(code)


def run(argv: list[str]) -> int:
    """The exit code of a command; every error is shown here, in one shape."""
    from lrurun import console

    try:
        code = _dispatch(*hoist(argv))
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


def _readable(error: Exception) -> LrurunError:
    if isinstance(error, LrurunError):
        return error
    if isinstance(error, OSError):
        what = f"{error.filename or 'the system'}: {error.strerror or error}"
        return LrurunError(what, "check the path, its space and permissions")
    return LrurunError(
        f"a bug in lrurun: {type(error).__name__}: {error}", "--debug shows where; please report what it says"
    )


def hoist(argv: list[str]) -> tuple[list[str], list[str]]:
    """Global options from anywhere on the line, and the other words: the options are parsed before the command.

    Raises:
        UsageError: a global option without its value.
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in GLOBAL_VALUES:
            value = next(words, "-")
            if value.startswith("-"):
                raise UsageError(f"option {word!r} requires an argument", f"as in {word} PATH")
            front += [word, value]
        elif (
            word in GLOBAL_FLAGS or word.partition("=")[0] in GLOBAL_VALUES or re.fullmatch("-[qv]+", word) is not None
        ):
            front.append(word)
        else:
            rest.append(word)
    return front, rest


def _dispatch(front: list[str], rest: list[str]) -> int:
    from lrurun.cli import app

    try:
        result = app(front + rest, prog_name="lrurun", standalone_mode=False, obj=front + rest)
    except Exception as error:
        # Typer carries its own Click: its usage errors are known by their shape
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            raise _usage(error, rest) from None
        if type(error).__name__ == "Abort":
            return 130
        raise
    return result if isinstance(result, int) else 0


def _usage(error: Exception, rest: list[str]) -> UsageError:
    """A usage error of Click's in the one shape, with the nearest command, option or value."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else " ".join(["lrurun", *[w for w in rest if w[0:1] != "-"][:1]])
    commands = getattr(context.command, "commands", {}) if context else {}
    help_ = f"{command} --help lists what it takes"
    message = error.format_message().strip()  # type: ignore[attr-defined]
    message = re.sub(r" Did you mean.*| \(Possible options:.*|Value error, ", "", message, flags=re.DOTALL).rstrip(".")
    message = message[:1].lower() + message[1:]
    if type(error).__name__ == "NoArgsIsHelpError" or message == "missing command":
        return UsageError(f"{command}: no command given", f"{command} --help; commands: {', '.join(commands)}")
    choice = re.search(r"'([^']*)' is not one of (.*)", message)
    option = getattr(error, "option_name", None)
    if choice:
        return UsageError(message, hint_for(choice[1], re.findall("'(.*?)'", choice[2]), "known values"))
    if message.startswith("no such command"):
        return UsageError(message, hint_for(message.split("'")[1], commands, "commands"))
    if message.startswith("no such option") and context:
        known = [name for parameter in context.command.params for name in parameter.opts]
        close = nearest(str(option), [*known, *GLOBAL_VALUES, *GLOBAL_FLAGS])
        return UsageError(message, f"did you mean {close}? {help_}" if close else help_)
    return UsageError(message, help_)


if __name__ == "__main__":
    main()
