"""``headwise learn``, the book and the quiz, and ``headwise drill``, exercises without end."""

import random
import sys
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli_files import check_writable, write
from headwise.errors import HeadwiseError

LEVEL_HELP = "1 (recognise) to 5 (judge)."


def learn(
    out: Annotated[Path, typer.Option(help="Where the book goes.")] = Path("learn.html"),
    quiz: Annotated[bool, typer.Option("--quiz", help="Ask questions here instead; q stops.")] = False,
    level: Annotated[int | None, typer.Option(help=f"Quiz: exercises of this level, {LEVEL_HELP}")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Quiz: questions of this kind: true or false, spot the error, why, edge case, self-test."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Quiz: the order; random if left out.")] = None,
    count: Annotated[int, typer.Option(help="Quiz: how many questions.")] = 10,
    remember: Annotated[
        Path | None, typer.Option(help="Quiz: keep what you know in this file; what you know comes last.")
    ] = None,
) -> None:
    """Write the book of multi-head attention: lessons, figures, exercises, questions; one offline HTML page.

    With --quiz, ask from it in the terminal.
    """
    if not quiz:
        for option, given in (
            ("--level", level),
            ("--kind", kind),
            ("--seed", seed),
            ("--remember", remember),
        ):
            if given is not None:
                raise HeadwiseError(
                    option, "only beside --quiz", str(given), f"headwise learn --quiz {option} {given}"
                )
        check_writable("--out", out)
        from headwise.learn.book import book_html

        write("--out", out, book_html())
        typer.echo(f"Book: {out.resolve()}")
        return
    from headwise.learn.parts import KINDS, LEVELS
    from headwise.learn.progress import read_progress, write_progress
    from headwise.learn.quiz import choose, run

    if level is not None and level not in LEVELS:
        raise HeadwiseError("--level", "a whole number from 1 to 5", str(level))
    kind = (
        None if kind is None else kind.strip().casefold().replace("-", " ").replace("self test", "self-test")
    )
    if kind is not None and kind not in KINDS:
        raise HeadwiseError("--kind", f"one of {', '.join(KINDS)}", kind)
    seed, count = _seed(seed), _count(count)
    known = {} if remember is None else read_progress(remember)
    if remember is not None:
        check_writable("--remember", remember)
    items = choose(level, kind, seed, count, [key for key, right in known.items() if right])
    score = run(items, _read, _say)
    if remember is not None:
        write_progress(remember, {**known, **dict(score.results)})
    typer.echo(f"\n{score} The same questions again: --seed {seed}")


def drill(
    level: Annotated[int, typer.Option(help=LEVEL_HELP)] = 1,
    seed: Annotated[int | None, typer.Option(help="The first exercise; random if left out.")] = None,
    count: Annotated[int, typer.Option(help="How many exercises; seeds count on from the first.")] = 5,
) -> None:
    """Exercises without end: asks, grades within the tolerance in the question, and shows every step.

    Answers are computed by headwise. The same level and seed give the same exercise; q stops.
    """
    from headwise.learn.drills import make_drill
    from headwise.learn.quiz import drill_item, run

    seed, count = _seed(seed), _count(count)
    make_drill(level, seed)  # refuses a wrong level before anything is asked
    score = run((drill_item(make_drill(level, seed + i)) for i in range(count)), _read, _say)
    typer.echo(f"\n{score} The same again: headwise drill --level {level} --seed {seed} --count {count}")


def _seed(seed: int | None) -> int:
    if seed is not None and seed < 0:
        raise HeadwiseError("--seed", "a whole number of at least 0", str(seed))
    return random.SystemRandom().randrange(10_000) if seed is None else seed


def _count(count: int) -> int:
    if count < 1:
        raise HeadwiseError("--count", "a whole number of at least 1", str(count))
    return count


def _say(text: str) -> None:
    typer.echo(text)


def _read() -> str | None:
    """A line of the input, None at its end; a prompt only where someone is there to read it."""
    if sys.stdin.isatty():
        typer.echo("> ", nl=False)
    sys.stdout.flush()
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        return ""  # bytes that are no text: a wrong answer, not an end
    return line if line else None
