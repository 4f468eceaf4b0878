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

from headwise import __version__, cli_check, cli_cost, cli_explain, cli_learn, cli_report
from headwise.cli_files import write
from headwise.errors import HeadwiseError

USAGE_ERROR = 2
INTERRUPTED = 130  # what a shell reports for Ctrl-C
DEFAULT_MODEL = "minilm"
BUILT_IN = "built-in example"

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


@app.command(context_settings={"allow_extra_args": True})
@calm
def inspect(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            help="A folder, a .gguf file, a Hugging Face hub name, or a packaged model: minilm, smollm2, "
            "rxnmapper, whisper; or arrays, as qk.npz."
        ),
    ] = DEFAULT_MODEL,
    text: Annotated[
        str | None, typer.Argument(help="The text (for whisper: a WAV file); an example if left out.")
    ] = None,
    text_file: Annotated[Path | None, typer.Option(help="Read the text from this UTF-8 file.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Keep at most so many tokens, special tokens counted.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where the HTML page goes; an existing file is overwritten.")
    ] = Path("report.html"),
    json: Annotated[
        Path | None, typer.Option(help="Write the report as JSON too, also over an existing file.")
    ] = None,
    csv: cli_report.Csv = None,
    parquet: cli_report.Parquet = None,
    generate: Annotated[
        int | None, typer.Option(help="Let the model write so many tokens, and score their rows too.")
    ] = None,
    compute: Annotated[
        str, typer.Option(help="Who computes the model's attention: torch, or kernel (ours; faster).")
    ] = "torch",
    probe: Annotated[
        bool, typer.Option("--probe", help="Also run repeated random tokens: induction, previous token.")
    ] = False,
    rollout: Annotated[
        int | None, typer.Option(help="Also follow attention through all layers, between so many groups.")
    ] = None,
) -> None:
    """Show what every attention head of a model does with a text.

    Prints the most telling heads and writes one offline HTML page.
    """
    cli_report.check_outputs({"--out": out, "--json": json, "--csv": csv, "--parquet": parquet})
    if cli_report.is_arrays(model):
        if text is not None or text_file is not None or max_tokens is not None or probe:
            given = "a text" if text is not None or text_file is not None else "--probe or --max-tokens"
            raise HeadwiseError("inspect", f"{model} alone: it holds query and key", given)
        from headwise.inspect.npz import inspect_npz

        report = inspect_npz(model, rollout=rollout)
        write("--out", out, report.to_html())
        if json is not None:
            write("--json", json, report.to_json())
        cli_report.write_tables(report, csv, parquet)
        cli_report.print_report(report, out, json)
        return
    from headwise.inspect.material import material
    from headwise.inspect.models import load_model

    if context.args:
        _refuse_loose_words(model, [text or "", *context.args])
    _keep_frameworks_quiet()
    words, origin = _text(text, text_file, model)
    errors = Console(stderr=True)
    with _progress(errors) as bar:
        task = bar.add_task("loading the model", total=None)
        loaded = load_model(model)
        from headwise.inspect import inspect_heads

        report = inspect_heads(
            loaded.model,
            **material(loaded, words, max_tokens=max_tokens, generate=generate),
            compute=compute,
            name=loaded.name,
            source=loaded.source,
            text_source=origin,
            rollout=rollout,
            progress=lambda done, total: bar.update(task, description="layers", completed=done, total=total),
        )
        if probe:
            from headwise.inspect.probes import make_probe, run_probe, vocabulary_of

            report = report.with_fields(
                probe=run_probe(
                    loaded.model,
                    make_probe(*vocabulary_of(loaded.tokenizer)),
                    progress=lambda done, total: bar.update(
                        task, description="probe", completed=done, total=total
                    ),
                )
            )
        bar.update(task, description="writing the report", total=None)
        write("--out", out, report.to_html())
        if json is not None:
            write("--json", json, report.to_json())
        cli_report.write_tables(report, csv, parquet)
    first = origin == BUILT_IN and model == DEFAULT_MODEL
    look = functools.partial(_print_first_look, report.to_dict(), out) if first else None
    cli_report.print_report(report, out, json, look)


def _text(text: str | None, text_file: Path | None, model: str) -> tuple[str, str]:
    """The text to inspect and where it came from."""
    from headwise.inspect.models import PACKAGED
    from headwise.inspect.tokens import EXAMPLE

    if text is not None and text_file is not None:
        raise HeadwiseError("--text-file", "either a text or a file", "both", "leave one out")
    if text is not None and not _is_utf8(text):
        raise HeadwiseError("TEXT", "a text in UTF-8", "bytes that are not", "--text-file notes.txt")
    if text_file is None and text is None:
        example = PACKAGED[model].example if model in PACKAGED else None
        if example == "":
            hint = f"headwise inspect {model} speech.wav"
            raise HeadwiseError("text", "the name of a WAV file", "nothing", hint)
        return example or EXAMPLE, BUILT_IN
    if text_file is None:
        return text or "", "command line"
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


def _refuse_loose_words(model: str, words: list[str]) -> None:
    """A text without quotes reaches us as several arguments, its first word perhaps as the model."""
    from headwise.inspect.models import PACKAGED

    if model not in PACKAGED and not Path(model).is_dir() and "/" not in model:
        model, words = DEFAULT_MODEL, [model, *words]
    hint = f'put the text in quotes: headwise inspect {model} "{" ".join(words)}"'
    raise HeadwiseError("text", "one argument", f"{len(words)} words without quotes", hint)


def _print_first_look(report: dict[str, Any], out: Path) -> None:
    """The page's address at the strongest link of a pronoun, if the report has one."""
    from headwise.render.words import pronoun_link

    found = pronoun_link(report)
    if found is None:
        return
    layer, head, query, key = found
    tokens = report["tokens"]
    place = f"{out.resolve().as_uri()}#layer={layer}&head={head}&token={query}"
    typer.echo(f"Open it at \u201c{tokens[query]}\u201d \u2192 \u201c{tokens[key]}\u201d: {place}")


def _is_utf8(text: str) -> bool:
    """False where the shell handed over bytes that are no text: Python keeps them as lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _progress(console: Console) -> Progress:
    """A bar over the layers that leaves nothing behind."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _keep_frameworks_quiet() -> None:
    """No advice, bars or warnings of other libraries between our lines; what the user has set stays."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


app.command()(calm(cli_report.show))
app.command()(calm(cli_explain.explain))
app.command()(calm(cli_cost.cost))
app.command()(calm(cli_check.check))
app.command()(calm(cli_learn.learn))
app.command()(calm(cli_learn.drill))


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
