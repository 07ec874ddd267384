"""Typer's usage errors in lrurun's format: what is wrong in one line, what to do next in another.

Typer contains its own copy of Click and exports few of its exceptions. The others are recognised here by their
attributes. Messages of Typer are printed, but nothing is decided by their text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from lrurun.cli.arguments import GLOBAL_FLAGS, GLOBAL_VALUES, options_of, with_json
from lrurun.errors import UsageError, hint_for, nearest

_OTHER_OPTIONS = {
    "--executor": "--on slurm, --on ray",
    "--slurm": "--on slurm:KEY=VALUE",
    "--ray": "--on ray:KEY=VALUE",
    "--address": "--on ray:address=HOST:PORT",
    "--nodes": "--on slurm:nodes=N",
    "--workers": "--jobs N",
    "--output": "--out FILE",
    "--filter": "--where EXPR",
}
"""Options that people type and that do not exist -> the option that does it."""
_OF_INSTANCES = "lrurun resume --instance NAME finishes one, lrurun report --instance NAME shows it"
"""What takes the option that names an instance, where a command does not have it."""
_ELSEWHERE = {
    **dict.fromkeys(("tag", "label", "annotate"), "mark RUN --tag TAG"),
    **dict.fromkeys(("note", "comment"), "mark RUN --note TEXT"),
    **dict.fromkeys(("exclude", "drop"), "mark RUN --exclude WHY"),
    "include": "mark RUN --include",
    **dict.fromkeys(("logs", "log", "tail"), "show RUN --log"),
    **dict.fromkeys(("train", "run", "fit", "ablate"), "ladder TASK"),
    "continue": "resume",
    **dict.fromkeys(("start", "begin"), "ladder TASK"),
    **dict.fromkeys(("watch", "progress", "ps"), "status --watch"),
    **dict.fromkeys(("ls", "tasks", "recipes", "ladders", "recurrences", "optimizers", "studies"), "list"),
    **dict.fromkeys(("diff",), "compare RUN RUN"),
    **dict.fromkeys(("table", "results", "summary"), "report TASK"),
    **dict.fromkeys(("figure", "draw"), "plot TASK --out FILE"),
    **dict.fromkeys(("sql", "select"), "query SQL"),
    **dict.fromkeys(("serve", "web", "dashboard", "browser"), "ui"),
    **dict.fromkeys(("init", "create"), "new"),
    **dict.fromkeys(("download", "fetch"), "data prepare TASK"),
    **dict.fromkeys(("sweep", "grid"), "ladder TASK --sweep K=V,V"),
    **dict.fromkeys(("tune", "search"), "ladder TASK --tune"),
    "clean": "ledger gc",
    "help": "--help",
    "version": "--version",
}
"""Commands that people type and that do not exist -> the command that does it."""
_NO_COMMAND = {
    **dict.fromkeys(
        ("delete", "del", "remove", "rm", "erase", "purge"),
        "lrurun ledger forget INSTANCE removes runs for good; lrurun mark RUN --exclude WHY leaves one out of reports; "
        "lrurun data remove TASK removes data",
    ),
    **dict.fromkeys(
        ("restart", "reset"), "lrurun resume continues what was interrupted; lrurun ladder TASK --fresh trains again"
    ),
    **dict.fromkeys(("stop", "cancel", "kill", "abort", "pause"), "^C in the terminal of a command saves and ends it"),
    **dict.fromkeys(("unmark", "untag", "undo"), "lrurun mark RUN --untag TAG, or --include after --exclude"),
    **dict.fromkeys(
        ("restore", "recover", "repair"),
        "lrurun ledger rebuild makes a lost ledger from the runs folder; a backup is a ledger: --ledger BACKUP",
    ),
    "import": "lrurun import reads runs that were made elsewhere; lrurun data import makes a task of your own arrays",
}
"""Words that name no command, or several -> what to do. The nearest name may mean the opposite."""


def _command_hint(word: str, commands: Mapping[str, Any]) -> str:
    """The command that someone meant who typed a word that is none, also one that is in a group."""
    if word in _ELSEWHERE:
        return f"it is: lrurun {_ELSEWHERE[word]}"
    if word in _NO_COMMAND:
        return _NO_COMMAND[word]
    inner = [f"{name} {word}" for name, group in everything().items() if word in getattr(group, "commands", ())]
    if inner:
        return f"it is: {' or '.join(f'lrurun {name}' for name in inner)}"
    return hint_for(word, commands, "commands")


def everything() -> Mapping[str, Any]:
    """All commands and groups of them, by name."""
    from lrurun.cli import make_command

    commands: Mapping[str, Any] = make_command().commands
    return commands


def is_usage_error(error: Exception) -> bool:
    """Whether Typer raised this because of the arguments."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def usage_error(error: Exception, arguments: Sequence[str]) -> UsageError:
    """The error to show.

    Args:
        error: Typer's, as `is_usage_error` recognises it.
        arguments: the command line, without the global options.
    """
    context = getattr(error, "ctx", None)
    named = [argument for argument in arguments if not argument.startswith("-")]
    command = context.command_path if context else " ".join(["lrurun", *named[:1]])
    help_ = f"see {command} --help"
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities"):
        return UsageError(f"no such option: {option}", f"{_option_hint(option, context, arguments)}{help_}")
    commands = getattr(context.command, "commands", None) if context else None
    if commands and option is None:
        depth = len(command.split()) - 1
        if len(named) <= depth:
            return UsageError(f"{command}: no command given", f"{command} --help; commands: {', '.join(commands)}")
        if named[depth] not in commands:
            return UsageError(f"no such command {named[depth]!r}", _command_hint(named[depth], commands))
    if context and hasattr(error, "param") and hasattr(error, "param_type"):  # a missing argument or option
        help_ = _example(context, error.param, arguments) or help_
    if context and option is None and getattr(error, "param", None) is None:
        # all that is left: more arguments than the command takes
        words = list(arguments)
        for name in command.split()[1:]:
            words.remove(name)
        words = with_json(words, options_of(context.command))
        _, extra, _ = context.command.make_parser(context).parse_args(words)
        if extra:
            return UsageError(f"{command}: unexpected argument {extra[0]!r}", _word_hint(extra[0], context) or help_)
    message = error.format_message().strip().rstrip(".")  # type: ignore[attr-defined]
    return UsageError(message[:1].lower() + message[1:], help_)


def _example(context: Any, parameter: Any, arguments: Sequence[str]) -> str:
    """A hint with an example of the command that lacks a parameter; empty if it has no examples.

    What was typed with the option that is missing, where no other is; else the example that is most like it.
    """
    names = [name for name in parameter.opts if name.startswith("-")]
    lines = [shlex.split(line) for line in getattr(context.command.callback, "examples", ())]
    lines.sort(key=lambda words: len({*words} & {*arguments, *names}), reverse=True)
    lacking = [other for other in context.command.params if other.required and not {*other.opts} & {*arguments}]
    for words in lines:
        for name in names if lacking == [parameter] else ():
            if name in words:
                option, value = words[words.index(name) :][:2]
                if (format_ := context.params.get("format")) and name == "--out":  # whose file has its suffix
                    value = f"{PurePath(value).stem}.{format_}"
                return f"as in: {shlex.join(['lrurun', *arguments, option, value])}"
    return f"as in: {shlex.join(lines[0])}" if lines else ""


def _option_hint(option: str, context: Any, arguments: Sequence[str]) -> str:
    """The beginning of a hint about an unknown option: the setting or option that it probably means."""
    from lrurun.config.schema import known_paths

    known = options_of(context.command) if context else []
    name = option.lstrip("-").replace("-", "_")
    settings = [path for path in known_paths() if name in (path, path.rpartition(".")[2])]
    if "--set" in known and settings:
        following = [*arguments, ""][arguments.index(option) + 1] if option in arguments else ""
        joined = next((word.partition("=")[2] for word in arguments if word.startswith(f"{option}=")), following)
        value = "VALUE" if not joined or joined.startswith("--") else joined
        return f"it is: --set {shlex.quote(f'{settings[0]}={value}')}; "
    if (format_hint := _format_hint(name, known, context)) is not None:
        return format_hint
    if option == "--instance":
        return f"{_OF_INSTANCES}; "
    if option in _OTHER_OPTIONS:
        return f"it is: {_OTHER_OPTIONS[option]}; "
    # without the hyphens, which all have in common
    options = {spelling.lstrip("-"): spelling for spelling in (*known, *GLOBAL_VALUES, *GLOBAL_FLAGS)}
    close = nearest(option.lstrip("-"), options)
    return f"did you mean {options[close]}? " if close else ""


def _format_hint(name: str, known: Sequence[str], context: Any) -> str | None:
    """The beginning of a hint about `--format`, `--json`, `--csv` and the like; None about any other option."""
    from lrurun.report import formats

    if name not in ("format", *formats.NAMES):
        return None
    if "--format" in known:
        [parameter] = [parameter for parameter in context.command.params if "--format" in parameter.opts]
        alike = [value for value in str(parameter.metavar).split("|") if value in (name, f"{name}l")]
        return f"it is: --format {alike[0]}; " if alike else f"--format takes {parameter.metavar}; "
    if "--json" in known:
        return "it prints tables, or one JSON object with --json; "
    return "results as JSON, CSV and others: lrurun report --format, lrurun runs --format; "


def _word_hint(word: str, context: Any) -> str | None:
    """A hint about a word that a command does not take, by what it looks like; None if it looks like nothing."""
    from lrurun import paths
    from lrurun.config.schema import known_paths

    options = {name for parameter in context.command.params for name in parameter.opts}
    if word.endswith((".npy", ".npz")):
        return "it looks like an array; to make a task of it: lrurun data import NAME --inputs X.npy --labels Y.npy"
    if "--set" in options and word.partition("=")[0] in known_paths():
        return f"it looks like a setting: --set {shlex.quote(word)}"
    if "--seeds" in options and word.replace(",", "").replace("-", "").isdigit():
        return f"it looks like a number of seeds: --seeds {word}"
    if word in paths.names("recipes"):
        takes_task = any(str(parameter.metavar).startswith("TASK") for parameter in context.command.params)
        alternative = " --instance NAME, as lrurun status lists them" if "--instance" in options else " none"
        return f"it looks like a task; {context.command_path} takes{' one at a time' if takes_task else alternative}"
    if "--ladder" in options and word in paths.names("ablations"):
        return f"it looks like a ladder: --ladder {word}"
    if word.endswith(".py"):
        return f"it looks like code of your own: --load {word}"
    if "--out" in options and re.search(r"\.(png|svg|pdf|html|md|tex|csv|json)$", word):
        return f"it looks like a file to write: --out {word}"
    if re.fullmatch(r"[0-9a-f]{3,12}(-\d+)?", word):
        takes_run = any(str(parameter.metavar) == "RUN" for parameter in context.command.params)
        return f"it looks like a run, of which {context.command_path} takes {'one' if takes_run else 'none'}"
    return None
