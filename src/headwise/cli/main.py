"""The command line: parse, call, print. Every error that a user can cause is one message and exit code 2."""

import functools
import io
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from headwise.cli import check, costs, inspect, learn, report, trace
from headwise.errors import HeadwiseError
from headwise.plain.version import __version__

USAGE_ERROR = 2
INTERRUPTED = 130  # what a shell reports for Ctrl-C

OVERVIEW = """\
headwise {version}: exact multi-head attention that you can compute, see, check, cost and learn.

It runs a trained model on a text once and shows what every attention head does: a score card,
a label in plain words, the strongest links, and one HTML page that works offline.

Three commands to try:

  headwise inspect                                a small real model on an example sentence
  headwise inspect minilm "A text of your own."   your text; or --text-file notes.txt
  headwise inspect ./folder --json report.json    your own Hugging Face model, as data

Also: headwise show (a saved report once more), headwise check (is this attention right, and which
mistake does it make?), headwise explain (every step of a small forward pass), headwise cost (what
attention costs), headwise learn (a book of lessons with live numbers) and headwise drill
(exercises, graded).
headwise inspect --help lists every option. In Python: headwise.inspect_heads(model, inputs).
"""

app = typer.Typer(
    name="headwise",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def calm(command: Callable[..., None]) -> Callable[..., None]:
    """Turn what a user can cause into one line on stderr and an exit code: 2 for an error, 130 for Ctrl-C."""

    @functools.wraps(command)
    def run(*args: Any, **keywords: Any) -> None:
        try:
            command(*args, **keywords)
        except HeadwiseError as error:
            typer.echo(f"headwise: {error}", err=True)
            raise typer.Exit(USAGE_ERROR) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    return run


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headwise {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def overview(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Exact multi-head attention that you can compute, see, check, cost and learn."""
    if context.invoked_subcommand is None:
        typer.echo(OVERVIEW.format(version=__version__), nl=False)


app.command(context_settings={"allow_extra_args": True})(calm(inspect.inspect))
app.command()(calm(report.show))
app.command()(calm(trace.explain))
app.command()(calm(costs.cost))
app.command()(calm(check.check))
app.command()(calm(learn.learn))
app.command()(calm(learn.drill))


def main() -> None:
    """The ``headwise`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our arrows and dots shows "?" there
    try:
        app()
    except KeyboardInterrupt:  # outside a command: while Python still imports
        sys.exit(INTERRUPTED)
    except OSError as error:  # the terminal or the file behind stdout is full or gone
        sys.stdout = None  # what is still buffered cannot be written either
        print(f"headwise: the output could not be written: {error.strerror}", file=sys.stderr)
        sys.exit(USAGE_ERROR)


if __name__ == "__main__":
    main()
