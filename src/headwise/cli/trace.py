"""``headwise explain``: a forward pass, step by step, from a JSON file or a named example."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli.files import as_options, check_writable, read_json, write
from headwise.errors import HeadwiseError
from headwise.render.terminal import print_view

if TYPE_CHECKING:
    from headwise.trace.data import Trace

FORMATS = ("text", "html", "markdown", "json")
SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".txt": "text"}
DEFAULT_EXAMPLE = "A"


def explain(
    file: Annotated[
        Path | None,
        typer.Argument(help="JSON with the arguments of headwise.explain; - reads standard input."),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(help="A worked example, A to I, or an exercise: 2.1 2.2 2.3 3.3 4.2 5.2 5.3."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="text, html, markdown or json; else the ending of --out says it."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
) -> None:
    """Show every step of a small forward pass with its numbers, formulas and checks.

    Without a file: worked example A. A file holds the arguments of headwise.explain as JSON, such as
    {"query": [[1, 0]], "key": [[1, 0], [0, 1]], "value": [[2], [4]]}, or a trace that --format json wrote.
    """
    if file is not None and example is not None:
        raise HeadwiseError("--example", "a file or an example", "both", "leave one out")
    if out is not None:
        hint = "--format text writes text whatever the name"
        hint = "leave --out out and the trace is printed" if str(out) == "-" else hint
        check_writable("--out", out, tuple(SUFFIXES) if form is None else (), hint)
    form = _format(form, out)
    trace = _trace(file, example)
    if form == "text" and out is None:
        from headwise.render.trace.text import render_trace

        print_view(render_trace(trace.to_dict()))
        return
    views = {
        "text": trace.__str__,
        "html": trace.to_html,
        "markdown": trace.to_markdown,
        "json": trace.to_json,
    }
    text = views[form]()
    if out is None:
        typer.echo(text)
        return
    write("--out", out, text if text.endswith("\n") else text + "\n")
    typer.echo(f"Trace: {out.resolve()}")


def _format(form: str | None, out: Path | None) -> str:
    if form is None:
        return SUFFIXES[out.suffix.lower()] if out is not None and out.suffix else "text"
    if form.lower() not in FORMATS:
        raise HeadwiseError("--format", f"one of {', '.join(FORMATS)}", form)
    return form.lower()


def _trace(file: Path | None, example: str | None) -> "Trace":
    from headwise.trace import examples
    from headwise.trace.json_arguments import trace_of

    if file is None:
        with as_options("example"):
            return examples.example(DEFAULT_EXAMPLE if example is None else example)
    return trace_of(read_json("FILE", file))
