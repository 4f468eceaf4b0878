"""The book as one plain dict: lessons, figures, exercises, questions. ``headwise.render.book`` draws it."""

from dataclasses import asdict
from functools import cache
from typing import Any

from headwise.learn.book.exercises import exercises
from headwise.learn.book.figures import figures
from headwise.learn.book.lessons_heads import HEADS
from headwise.learn.book.lessons_ideas import AROUND, SIZES
from headwise.learn.book.lessons_worked import WORKED
from headwise.learn.book.questions import questions
from headwise.learn.curriculum import Lesson, plain
from headwise.plain.version import __version__

SCHEMA = "headwise.book"
VERSION = 1


@cache
def lessons() -> tuple[Lesson, ...]:
    """Every lesson in reading order: the worked examples A to I, then the ideas."""
    return tuple(make() for make in (*WORKED, *SIZES, *HEADS, *AROUND))


def make_book() -> dict[str, Any]:
    """The book as plain data; every number in it is computed now."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "headwise": __version__,
        "lessons": [plain(asdict(lesson)) for lesson in lessons()],
        "figures": figures(),
        "exercises": [plain(asdict(exercise)) for exercise in exercises()],
        "questions": [{**plain(asdict(question)), "answer": question.answer} for question in questions()],
    }


def book_html() -> str:
    """The book as one offline HTML page; the same bytes every time."""
    from headwise.render.book.page import render_book

    return render_book(make_book())
