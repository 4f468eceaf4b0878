"""The command line: parse, call, print. Every error that a user can cause is one message and exit code 2."""

import functools
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headwise import __version__
from headwise.errors import HeadwiseError

USAGE_ERROR = 2
INTERRUPTED = 130  # what a shell reports for Ctrl-C
DEFAULT_MODEL = "minilm"

OVERVIEW = """\
headwise {version}: exact multi-head attention that you can compute and see.

It runs a trained model on a text once and shows what every attention head does: a score card,
a label in plain words, the strongest links, and one HTML page that works offline.

Three commands to try:

  headwise inspect                                a small real model on an example sentence
  headwise inspect minilm "A text of your own."   your text; or --text-file notes.txt
  headwise inspect ./folder --json report.json    your own Hugging Face model, as data

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
    """Exact multi-head attention that you can compute and see."""
    if context.invoked_subcommand is None:
        typer.echo(OVERVIEW.format(version=__version__), nl=False)


@app.command()
@calm
def inspect(
    model: Annotated[
        str, typer.Argument(help="A folder, a Hugging Face hub name, or a packaged model: minilm.")
    ] = DEFAULT_MODEL,
    text: Annotated[str | None, typer.Argument(help="The text; an example sentence if left out.")] = None,
    text_file: Annotated[Path | None, typer.Option(help="Read the text from this UTF-8 file.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Keep at most so many tokens of the text.")] = None,
    out: Annotated[Path, typer.Option(help="Where the HTML page goes.")] = Path("report.html"),
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON too.")] = None,
) -> None:
    """Show what every attention head of a model does with a text.

    Prints the most telling heads and writes one offline HTML page.
    """
    from headwise.inspect.models import load_model
    from headwise.inspect.tokens import encode, position_limit

    _keep_frameworks_quiet()
    words, origin = _text(text, text_file)
    _check_writable("--out", out)
    if json is not None:
        _check_writable("--json", json)
        if json.resolve() == out.resolve():
            raise HeadwiseError("--json", "another file than --out", str(json))
    errors = Console(stderr=True)
    with _progress(errors) as bar:
        task = bar.add_task("loading the model", total=None)
        loaded = load_model(model)
        limit = position_limit(loaded.model, loaded.tokenizer)
        encoded = encode(loaded.tokenizer, words, max_tokens=max_tokens, limit=limit)
        from headwise.inspect import inspect_heads

        report = inspect_heads(
            loaded.model,
            encoded.inputs,
            encoded.tokens,
            special=encoded.special,
            name=loaded.name,
            source=loaded.source,
            text_source=origin,
            notes=encoded.notes,
            progress=lambda done, total: bar.update(task, description="layers", completed=done, total=total),
        )
        bar.update(task, description="writing the report", total=None)
        _write("--out", out, report.to_html())
        if json is not None:
            _write("--json", json, report.to_json())
    from headwise.render.text import render_text

    Console().print(render_text(report.to_dict()))
    typer.echo(f"Report: {out.resolve()}")
    if json is not None:
        typer.echo(f"As JSON: {json.resolve()}")


def _text(text: str | None, text_file: Path | None) -> tuple[str, str]:
    """The text to inspect and where it came from."""
    from headwise.inspect.tokens import EXAMPLE

    if text is not None and text_file is not None:
        raise HeadwiseError("--text-file", "either a text or a file", "both", "leave one out")
    if text_file is None:
        return (EXAMPLE, "built-in example") if text is None else (text, "command line")
    try:
        return text_file.read_text(encoding="utf-8-sig"), str(text_file)
    except UnicodeDecodeError as error:
        raise HeadwiseError(
            "--text-file", "a UTF-8 text file", f"{text_file} ({error.reason} at byte {error.start})"
        ) from error
    except OSError as error:
        raise HeadwiseError(
            "--text-file", "a file that can be read", f"{text_file} ({error.strerror})"
        ) from error


def _check_writable(option: str, path: Path) -> None:
    """Refuse an output path that is sure to fail before minutes are spent on the model."""
    if path.is_dir():
        raise HeadwiseError(option, "a file", f"{path} (a folder)", f"{option} {path / 'report.html'}")
    target = path if path.exists() else path.parent
    if not target.exists():
        raise HeadwiseError(option, "a file in a folder that exists", f"{path} (no folder {path.parent})")
    if not os.access(target, os.W_OK):
        raise HeadwiseError(option, "a file that can be written", f"{path} (no permission)")


def _write(option: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HeadwiseError(option, "a file that can be written", f"{path} ({error.strerror})") from error


def _progress(console: Console) -> Progress:
    """A bar over the layers that leaves nothing behind."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _keep_frameworks_quiet() -> None:
    """No advice, bars or warnings of other libraries between our lines; what the user has set stays."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def main() -> None:
    """The ``headwise`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our arrows and dots shows "?" there
    try:
        app()
    except KeyboardInterrupt:  # outside a command: while Python still imports
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
