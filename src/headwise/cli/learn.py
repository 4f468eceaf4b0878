"""``headwise learn``, the book and the quiz, and ``headwise drill``, exercises without end."""

import random
import shlex
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.files import as_options, check_writable, write
from headwise.errors import HeadwiseError

LEVEL_HELP = "1 (recognise) to 5 (judge)."
BOOK = Path("learn.html")
COUNT = 10


def learn(
    out: Annotated[
        Path | None, typer.Option(help=f"Where the book goes; {BOOK} if left out.", show_default=False)
    ] = None,
    quiz: Annotated[bool, typer.Option("--quiz", help="Ask questions here instead; q stops.")] = False,
    level: Annotated[int | None, typer.Option(help=f"Quiz: exercises of this level, {LEVEL_HELP}")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Quiz: questions of this kind: true or false, spot the error, why, edge case, self-test."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Quiz: the order; random if left out.")] = None,
    count: Annotated[
        int | None, typer.Option(help=f"Quiz: how many questions; {COUNT} if left out.", show_default=False)
    ] = None,
    remember: Annotated[
        Path | None, typer.Option(help="Quiz: keep what you know in this file; what you know comes last.")
    ] = None,
) -> None:
    """Write the book of multi-head attention: lessons, figures, exercises, questions; one offline HTML page.

    With --quiz, ask from it in the terminal.
    """
    if quiz:
        if out is not None:
            raise HeadwiseError("--out", "nothing beside --quiz", str(out), "--remember keeps what you know")
        _quiz(level, kind, seed, COUNT if count is None else count, remember)
        return
    asked = (
        ("--level", level),
        ("--kind", kind),
        ("--seed", seed),
        ("--count", count),
        ("--remember", remember),
    )
    for option, given in asked:
        if given is not None:
            words = f"headwise learn --quiz {option} {shlex.quote(str(given))}"
            raise HeadwiseError(option, "only beside --quiz", str(given), words)
    out = BOOK if out is None else out
    check_writable("--out", out, (".html", ".htm"))
    from headwise.learn.book.contents import book_html

    write("--out", out, book_html())
    typer.echo(f"Book: {out.resolve()}")


def _quiz(level: int | None, kind: str | None, seed: int | None, count: int, remember: Path | None) -> None:
    from headwise.learn.curriculum import KINDS, LEVELS
    from headwise.learn.progress import read_progress, write_progress
    from headwise.learn.quiz import choose, run

    known = {}
    if remember is not None:
        check_writable("--remember", remember)
        known = read_progress(remember)
    if level is not None and level not in LEVELS:
        raise HeadwiseError("--level", "a whole number from 1 to 5", str(level))
    kind = (
        None if kind is None else kind.strip().casefold().replace("-", " ").replace("self test", "self-test")
    )
    if kind is not None and kind not in KINDS:
        raise HeadwiseError("--kind", f"one of {', '.join(KINDS)}", kind)
    seed, count = _seed(seed), _count(count)
    items = choose(level, kind, seed, count, [key for key, right in known.items() if right])
    score = run(items, _read, _say)
    if remember is not None:
        write_progress(remember, {**known, **dict(score.results)})
    chosen = {"level": level, "kind": kind, "seed": seed, "count": count, "remember": remember}
    again = [f"--{name} {shlex.quote(str(given))}" for name, given in chosen.items() if given is not None]
    typer.echo(f"\n{score}\nThe same questions again: headwise learn --quiz {' '.join(again)}")
    _end(score.interrupted)


def drill(
    level: Annotated[int, typer.Option(help=LEVEL_HELP)] = 1,
    seed: Annotated[int | None, typer.Option(help="The first exercise; random if left out.")] = None,
    count: Annotated[int, typer.Option(help="How many exercises; seeds count on from the first.")] = 5,
) -> None:
    """Exercises without end: asks, grades within the tolerance in the question, and shows every step.

    Answers are computed by headwise. The same level and seed give the same exercise; ? shows the answer, q
    stops.
    """
    from headwise.learn.drills.drill import make_drill
    from headwise.learn.quiz import drill_item, run

    seed, count = _seed(seed), _count(count)
    with as_options("level"):
        make_drill(level, seed)  # refuses a wrong level before anything is asked
    score = run((drill_item(make_drill(level, seed + i)) for i in range(count)), _read, _say)
    words = f"headwise drill --level {level} --seed"
    typer.echo(f"\n{score}\nThe same again: {words} {seed} --count {count}")
    done = len(score.results)
    if score.stopped and done:
        typer.echo(f"Go on from here: {words} {seed + done} --count {count - done}")
    _end(score.interrupted)


def _end(interrupted: bool) -> None:
    if interrupted:
        raise KeyboardInterrupt  # `main` gives it its exit code


def _seed(seed: int | None) -> int:
    if seed is not None and seed < 0:
        raise HeadwiseError("--seed", "a whole number of at least 0", str(seed))
    return random.SystemRandom().randrange(10_000) if seed is None else seed


def _count(count: int) -> int:
    if count < 1:
        raise HeadwiseError("--count", "a whole number of at least 1", str(count))
    return count


def _say(text: str) -> None:
    """Print; in a terminal long lines break between words, set in as the line is."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(_broken(line, width) for line in text.split("\n"))
    typer.echo(text)


def _broken(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    margin = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
    )


def _read() -> str | None:
    """A line of the input, None at its end; a prompt only where someone is there to read it."""
    if sys.stdin.isatty():
        typer.echo("> ", nl=False)
    sys.stdout.flush()
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        return "\ufffd"  # bytes that are no text: no answer, and not the end
    if not line and sys.stdin.isatty():
        typer.echo("")  # Ctrl-D leaves the prompt's line open
    return line if line else None
