"""The door: `argosy COMMAND …`.

A command lives in its own module `argosy/cli/NAME.py`, which exposes ``register(app: typer.Typer) -> None`` and
imports only typer at its top, so that `argosy --help` stays fast; what the command needs is imported inside the
function that runs. To add a command, write the module and add its name to COMMANDS.

A command parses, calls and prints. It raises :class:`argosy.errors.ArgosyError` for what a user can mend, and
``typer.Exit(code)`` for any other exit code than 0. Where it prints results it has ``--json``, and its docstring ends
with an example after ``\\b``, which keeps the line breaks.
"""

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from argosy import __version__
from argosy.errors import ArgosyError, Exit

COMMANDS = (
    "recipe",
    "data",
    "weights",
    "plan",
    "simulate",
    "lab",
    "train",
    "checkpoint",
    "stop",
    "sample",
    "repeat",
    "incidents",
    "drill",
    "report",
)

# Which package click's errors live in depends on the version of typer; their place below BadParameter does not.
_WrongUsage: Any
_ClickError: Any
_WrongUsage, _ClickError = typer.BadParameter.__mro__[1:3]


def build_app() -> typer.Typer:
    """The command line with all commands registered."""
    app = typer.Typer(
        name="argosy",
        help="Trains large language models and accounts for every GPU-second that was paid for.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True)
    def _root(
        context: typer.Context,
        version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error (in any place).")] = False,
    ) -> None:
        if version:
            print(__version__)
            raise typer.Exit
        if context.invoked_subcommand is None:
            print(context.get_help())

    for name in COMMANDS:
        import_module(f"argosy.cli.{name}").register(app)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line on `arguments` (default: the process's) and exit with a code of INTERFACES 10."""
    words, debug = _take_debug(sys.argv[1:] if arguments is None else arguments)
    try:
        code = build_app()(args=words, prog_name="argosy", standalone_mode=False)
        sys.stdout.flush()
    except ArgosyError as error:
        code = _complain(str(error), error.exit_code, debug)
    except _WrongUsage as error:
        code = _complain(_usage_line(error), Exit.USAGE, debug)
    except _ClickError as error:
        code = _complain(error.format_message(), Exit.INPUT, debug)
    except (KeyboardInterrupt, typer.Abort):
        code = _complain("interrupted", Exit.INTERRUPTED, debug)
    except (BrokenPipeError, SystemExit) as error:
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # The reader (such as `head`) has what it wants; typer would make that a failure. Python would complain once
        # more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.DONE
    sys.exit(code or Exit.DONE)


def _usage_line(error: Any) -> str:
    """What was wrong with the words of a command; a group that was called without any has printed its help."""
    path = error.ctx.command_path if error.ctx else "argosy"
    message = error.format_message().rstrip(".") or "names no command"
    return f"{path}: {message} → see `{path} --help`"


def _take_debug(words: list[str]) -> tuple[list[str], bool]:
    """`--debug` works in any place before a `--`; the rest of the words goes to the command."""
    end = words.index("--") if "--" in words else len(words)
    return [word for place, word in enumerate(words) if place >= end or word != "--debug"], "--debug" in words[:end]


def _complain(line: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    print(f"argosy: {line}" if not line.startswith("argosy") else line, file=sys.stderr)
    return code
