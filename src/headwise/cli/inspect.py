"""``headwise inspect``: a model and a text, or arrays, to a report."""

import functools
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headwise.cli.files import as_options, check_outputs, read_text, write
from headwise.cli.marks import read_classes, read_pairs
from headwise.cli.report import Csv, Parquet, print_report, write_tables
from headwise.errors import HeadwiseError

DEFAULT_MODEL = "minilm"
NPZ = ".npz"  # the ending of a file of arrays
BUILT_IN = "built-in example"
AS_OPTIONS = ("generate", "pairs", "needle", "rollout", "compute")  # arguments of Python that the options set


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
    csv: Csv = None,
    parquet: Parquet = None,
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
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="Also score gold pairs: a file with a line per query, its position and those of its gold "
            "keys (8,2), or JSON."
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            help="Also score the weight on your own classes of tokens: a JSON file, such as "
            '{"punctuation": [".", ","]}; members are tokens as they are shown, or positions.'
        ),
    ] = None,
    needle: Annotated[
        str | None,
        typer.Option(
            help="With --generate: which heads copy this passage of the text as the model writes (the "
            "passage, or its tokens as start:stop)."
        ),
    ] = None,
) -> None:
    """Show what every attention head of a model does with a text.

    Prints the most telling heads and writes one offline HTML page.
    """
    check_outputs({"--out": out, "--json": json, "--csv": csv, "--parquet": parquet})
    arrays = model.endswith(NPZ)
    if context.args and not arrays:
        _refuse_loose_words(model, [text or "", *context.args])
    gold = {} if pairs is None else read_pairs(pairs)
    named = None if classes is None else read_classes(classes)
    look = None
    with _progress(Console(stderr=True)) as bar, as_options(*AS_OPTIONS):
        task = bar.add_task("reading the arrays" if arrays else "loading the model", total=None)
        if arrays:
            _refuse_beside_arrays(
                model,
                {
                    "a text": text if text_file is None else text_file,
                    "--max-tokens": max_tokens,
                    "--generate": generate,
                    "--needle": needle,
                    "--compute": None if compute == "torch" else compute,
                    "--probe": probe or None,
                },
            )
            from headwise.inspect.npz import inspect_npz

            wishes = gold if named is None else {**gold, "classes": named}
            report = inspect_npz(model, rollout=rollout, **wishes)
        else:
            _keep_frameworks_quiet()
            words, origin = _text(text, text_file, model)
            from headwise.inspect import inspect_heads
            from headwise.inspect.load.encoding import encoding
            from headwise.inspect.load.models import load_model

            def progress(step: str, done: int, total: int) -> None:
                bar.update(task, description=step, completed=done, total=total)

            loaded = load_model(model)
            report = inspect_heads(
                loaded.model,
                **encoding(
                    loaded, words, max_tokens=max_tokens, generate=generate, classes=named, needle=needle
                ),
                **gold,
                compute=compute,
                name=loaded.name,
                source=loaded.source,
                text_source=origin,
                rollout=rollout,
                progress=functools.partial(progress, "layers"),
            )
            if probe:
                from headwise.inspect.watch.probe import make_probe, run_probe, vocabulary_of

                tokens = make_probe(*vocabulary_of(loaded.tokenizer))
                found = run_probe(loaded.model, tokens, progress=functools.partial(progress, "probe"))
                report = report.with_fields(probe=found)
            if origin == BUILT_IN and model == DEFAULT_MODEL:
                look = functools.partial(_print_first_look, report.to_dict(), out)
        bar.update(task, description="writing the report", total=None)
        write("--out", out, report.to_html())
        if json is not None:
            write("--json", json, report.to_json())
        write_tables(report, csv, parquet)
    print_report(report, out, json, look)


def _refuse_beside_arrays(model: str, given: dict[str, Any]) -> None:
    """A file of arrays is neither read by a model nor cut."""
    for name, value in given.items():
        if value is not None:
            raise HeadwiseError("inspect", f"{model} alone: it holds query and key", name)


def _text(text: str | None, text_file: Path | None, model: str) -> tuple[str, str]:
    """The text to inspect and where it came from."""
    from headwise.inspect.load.models import PACKAGED
    from headwise.inspect.load.tokens import EXAMPLE

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
    return read_text("--text-file", text_file), str(text_file)


def _refuse_loose_words(model: str, words: list[str]) -> None:
    """A text without quotes reaches us as several arguments, its first word perhaps as the model."""
    from headwise.inspect.load.models import PACKAGED

    if model not in PACKAGED and not Path(model).is_dir() and "/" not in model:
        model, words = DEFAULT_MODEL, [model, *words]
    hint = f'put the text in quotes: headwise inspect {model} "{" ".join(words)}"'
    raise HeadwiseError("text", "one argument", f"{len(words)} words without quotes", hint)


def _print_first_look(report: dict[str, Any], out: Path) -> None:
    """The page's address at the strongest link of a pronoun, if the report has one."""
    from headwise.render.report.words import pronoun_link

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
