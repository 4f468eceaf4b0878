"""``headwise show`` draws a report again; how a report is printed, and the files of its score table."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli.files import check_outputs, read_json, write
from headwise.errors import HeadwiseError
from headwise.render.terminal import print_view

if TYPE_CHECKING:
    from headwise.inspect.report.report import HeadReport

Csv = Annotated[Path | None, typer.Option("--csv", help="Write the score table as CSV.")]
Parquet = Annotated[
    Path | None, typer.Option("--parquet", help="Write the score table as Parquet (needs pyarrow).")
]
Head = Annotated[
    str | None, typer.Option("--head", help="Print the whole card of one head, as layer.head: 5.11.")
]


def show(
    report: Annotated[Path, typer.Argument(help="A report that --json wrote; - reads standard input.")],
    head: Head = None,
    out: Annotated[Path | None, typer.Option(help="Write the HTML page here.")] = None,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Draw a report again: in the terminal, and as a page or a table where asked."""
    from headwise.inspect.report.report import HeadReport
    from headwise.render.report.text import render_head, render_text

    check_outputs({"--out": out, "--csv": csv, "--parquet": parquet})
    found = HeadReport.from_dict(read_json("REPORT", report))
    data = found.to_dict()
    if out is not None:
        write("--out", out, found.to_html())
    write_tables(found, csv, parquet)
    print_view(render_text(data) if head is None else render_head(data, *layer_and_head(head)))
    for name, path in (("Report", out), ("As CSV", csv), ("As Parquet", parquet)):
        if path is not None:
            typer.echo(f"{name}: {path.resolve()}")


def write_tables(report: "HeadReport", csv: Path | None, parquet: Path | None) -> None:
    """The score table of a report, to the files that were asked for."""
    if csv is not None:
        write("--csv", csv, report.to_csv())
    if parquet is not None:
        report.write_parquet(parquet)


def print_report(
    report: "HeadReport", out: Path, json: Path | None, then: Callable[[], None] | None = None
) -> None:
    """The terminal view, and where the files are; ``then`` says more of the page."""
    from headwise.render.report.text import render_text

    print_view(render_text(report.to_dict()))
    typer.echo(f"Report: {out.resolve()}")
    if then is not None:
        then()
    if json is not None:
        typer.echo(f"As JSON: {json.resolve()}")


def layer_and_head(text: str) -> tuple[int, int]:
    """``5.11`` -> layer 5, head 11."""
    layer, dot, head = text.partition(".")
    if not (dot and layer.isascii() and layer.isdecimal() and head.isascii() and head.isdecimal()):
        raise HeadwiseError("--head", "a layer and a head, such as 5.11", repr(text)[:60], "--head 5.11")
    return int(layer), int(head)
