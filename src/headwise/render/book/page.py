"""The book: one offline HTML page of lessons, figures, exercises, questions and a self-test.

Hand-written HTML, CSS and JavaScript from this folder. Everything that has to be read is in the HTML itself;
the script adds what moves. The page is ASCII and asks for nothing; a policy inside forbids any request and
any script but its own.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from headwise.errors import HeadwiseError
from headwise.plain.words import visible
from headwise.render.book.figures import draw_figure
from headwise.render.pages.offline import asset, escaped, filled, policy, to_ascii, to_script_json
from headwise.render.pages.plain import mathematics

# Parts of a book: plain dicts.
Book: TypeAlias = Mapping[str, Any]
Lesson: TypeAlias = Mapping[str, Any]
Exercise: TypeAlias = Mapping[str, Any]
# One script of the page, in this order.
SCRIPTS = ("book_compute.js", "book_parts.js", "book_labs.js", "book_heads.js", "book.js")
_POWER = re.compile(r"\^(\([^()]*\)|<i>\w</i>|\w)")
_WORD = re.compile(r"\b(head|mean)_(\([^()]*\)|<i>\w</i>|\w)")
LEVELS = {1: "recognise", 2: "apply", 3: "analyse", 4: "put together", 5: "judge"}


def render_book(book: Book) -> str:
    """One self-contained page, the same bytes for the same book.

    `book` is the dict of `make_book` in `headwise.learn.book.contents`. Raises `HeadwiseError` for a dict
    that is no book.
    """
    if not isinstance(book, Mapping) or book.get("schema") != "headwise.book":
        raise HeadwiseError("book", "the dict of make_book()", type(book).__name__)
    css = "".join(asset(f"{name}.css") for name in ("pages/base", "pages/worked", "book/book"))
    script = "\n".join(asset(f"book/{name}") for name in SCRIPTS)
    data = {
        "labs": {lesson["key"]: lesson["lab"] for lesson in book["lessons"] if lesson["lab"]},
        "cards": [question["key"] for question in book["questions"]],
        "kinds": {question["key"]: question["kind"] for question in book["questions"]},
    }
    kinds = list(dict.fromkeys(question["kind"] for question in book["questions"]))
    parts = {
        "policy": policy(css, script),
        "version": escaped(book["headwise"]),
        "css": css,
        "contents": _contents(book),
        "lessons": "\n".join(_lesson(lesson, book) for lesson in book["lessons"]),
        "exercises": "\n".join(_level(level, book) for level in LEVELS),
        "bank": "\n".join(_kind(kind, book) for kind in kinds),
        "kinds": "".join(f'<option value="{escaped(kind)}">{escaped(kind)}</option>' for kind in kinds),
        "data": to_script_json(data),
        "script": script,
    }
    return to_ascii(filled(asset("book/book.html"), parts))


def prose(text: str, formula: bool = False) -> str:
    """Text as HTML: escaped, `d_k` with its index below, `e^s` and `e^(-s)` with the power above."""
    found = _POWER.sub(_raise, mathematics(visible(text), formula=formula))
    return _WORD.sub(lambda m: f"{m[1]}<sub>{m[2].strip('()')}</sub>", found)


def _raise(found: re.Match[str]) -> str:
    return f"<sup>{found[1][1:-1] if found[1].startswith('(') else found[1]}</sup>"


def _contents(book: Book) -> str:
    items = (_entry(lesson) for lesson in book["lessons"])
    return "".join(items)


def _entry(lesson: Lesson) -> str:
    name = f'<span class="letter">{_letter(lesson)}</span> <span>{prose(lesson["title"])}</span>'
    return f'<li><a href="#lesson-{escaped(lesson["key"])}">{name}</a></li>'


def _letter(lesson: Lesson) -> str:
    """Worked examples carry their letter, other lessons none."""
    return escaped(lesson["key"]) if len(lesson["key"]) == 1 else "\u00b7"


def _lesson(lesson: Lesson, book: Book) -> str:
    key = escaped(lesson["key"])
    letter = f'<span class="letter">{key}</span> ' if len(key) == 1 else ""
    rows = "".join(
        f'<tr><th scope="row">{prose(name)}</th><td class="number">{prose(value)}</td></tr>'
        for name, value in lesson["table"]
    )
    asks = [e for e in book["exercises"] if e["lesson"] == lesson["key"]]
    links = ", ".join(f'<a href="#exercise-{escaped(e["key"])}">{escaped(e["key"])}</a>' for e in asks)
    parts = [
        f'<section class="lesson" id="lesson-{key}" aria-labelledby="title-{key}">',
        f'<h2 id="title-{key}">{letter}{prose(lesson["title"])}</h2>',
        f'<p class="claim">{prose(lesson["claim"])}</p>',
        '<div class="sides"><div class="side">',
        *(f"<p>{prose(paragraph)}</p>" for paragraph in lesson["text"]),
        f'<p class="formula math">{prose(lesson["formula"], formula=True)}</p>' if lesson["formula"] else "",
        f'<table class="numbers"><tbody>{rows}</tbody></table>',
        f'<p class="quiet">Exercise{"s" if len(asks) > 1 else ""} {links}</p>' if asks else "",
        "</div>",
        f'<div class="card lab" data-lab="{key}"></div>' if lesson["lab"] else "",
        draw_figure(book["figures"][lesson["figure"]]) if lesson["figure"] else "",
        "</div>",
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _level(level: int, book: Book) -> str:
    items = [_exercise(e, book) for e in book["exercises"] if e["level"] == level]
    return f"<h3>Level {level}: {LEVELS[level]}</h3>\n{''.join(items)}"


def _exercise(exercise: Exercise, book: Book) -> str:
    answer = _paragraphs(exercise["answer"])
    if exercise["figure"]:
        answer += draw_figure(book["figures"][exercise["figure"]])
    title = exercise["title"] if exercise["title"].endswith("?") else exercise["title"] + "."
    ask = f"<b>{escaped(exercise['key'])} {prose(title)}</b> {prose(exercise['question'])}"
    return _hidden(f"exercise-{exercise['key']}", ask, answer, exercise["lesson"], book)


def _kind(kind: str, book: Book) -> str:
    items = []
    for question in book["questions"]:
        if question["kind"] == kind:
            answer = question["answer"][0].upper() + question["answer"][1:]
            reply = f'<p><b class="verdict">{prose(answer)}.</b> {prose(question["reason"])}</p>'
            reply += f'<p class="evidence">{prose(question["evidence"])}</p>'
            ask = prose(question["text"])
            items.append(_hidden(f"q-{question['key']}", ask, reply, question["lesson"], book))
    title = kind[0].upper() + kind[1:]
    return f"<h3>{escaped(title)}</h3>\n{''.join(items)}"


def _hidden(key: str, ask: str, reply: str, lesson: str, book: Book) -> str:
    """A question whose answer opens on asking."""
    title = next(one["title"] for one in book["lessons"] if one["key"] == lesson)
    link = f'<p class="quiet">Lesson: <a href="#lesson-{escaped(lesson)}">{prose(title)}</a></p>'
    return (
        f'<details class="qa" id="{escaped(key)}"><summary><span class="ask">{ask}</span></summary>'
        f'<div class="reply">{reply}{link}</div></details>\n'
    )


def _paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{prose(line)}</p>" for line in lines)
