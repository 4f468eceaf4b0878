"""The terminal's twin of the book: asks, grades, and shows the answer with its numbers."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.learn.book.exercises import exercises
from headwise.learn.book.questions import questions
from headwise.learn.curriculum import Exercise, Question
from headwise.learn.drills.drill import Drill
from headwise.learn.drills.grading import Grade, grade_choice, grade_numbers

HAND = 5e-4  # how far a number worked by hand may be off
QUIT = ("q", "quit", "exit")
SHOW = ("?", "show")


@dataclass(frozen=True)
class Item:
    """One thing to ask: its text, a grader, the right answer, and what is shown after."""

    key: str
    heading: str
    text: str
    answer: str
    after: tuple[str, ...]
    grade: Callable[[str], Grade]


@dataclass(frozen=True)
class Score:
    """How a round went: what was answered, in order, with right or wrong, and whether it was stopped early.

    ``interrupted``: by Ctrl-C; a stop by "q" or the end of the input is only ``stopped``.
    """

    results: tuple[tuple[str, bool], ...]
    stopped: bool = False
    interrupted: bool = False

    @property
    def right(self) -> int:
        return sum(right for _, right in self.results)

    def __str__(self) -> str:
        return f"{self.right} of {len(self.results)} right." if self.results else "Nothing was answered."


def question_item(question: Question, rng: random.Random) -> Item:
    """A question of the bank with its choices in random order (true before false, yes before no)."""
    choices = list(question.choices)
    if set(choices) in ({"true", "false"}, {"yes", "no"}):
        choices.sort(reverse=True)
    else:
        rng.shuffle(choices)
    letters = dict(zip("abcdefgh", choices, strict=False))
    right = next(letter for letter, choice in letters.items() if choice == question.answer)
    lines = [question.text, *(f"  {letter}) {choice}" for letter, choice in letters.items())]
    return Item(
        question.key,
        question.kind,
        "\n".join(lines),
        f"{right}) {question.answer}",
        (question.reason, question.evidence),
        lambda text: grade_choice(text, right, letters),
    )


# Exercise -> what is to be typed, which of its numbers that is, and the tolerance.
_TYPED: dict[str, tuple[str, Callable[[dict[str, Any]], Sequence[float]], float]] = {
    "1.1": ("What is d_k?", lambda n: [n["d_k"]], 0),
    "1.2": ("How many columns has the output for d_model = 512, h = 8?", lambda n: [n["d_out"]], 0),
    "2.1": ("What shape are the scores of one head (rows, columns)?", lambda n: n["scores"], 0),
    "2.2": ("What is the scaled score?", lambda n: [n["scaled"]], HAND),
    "2.3": ("What are the three weights?", lambda n: n["weights"], HAND),
    "3.1": (
        "By which factor do the FLOPs of the matrix products grow from h = 1 to h = 8?",
        lambda n: [n["matmul"][1] / n["matmul"][0]],
        0,
    ),
    "3.2": ("What shape should W_O have (rows, columns)?", lambda n: n["w_o"], 0),
    "3.3": ("By how much do the outputs of the two heads differ?", lambda n: [n["difference"]], 0),
    "4.1": ("How many weights for d_model = 512?", lambda n: [n["total"]], 0),
    "4.2": ("What is the output (two numbers)?", lambda n: n["output"], HAND),
    "5.1": (
        "At h = d_model, how many different keys can be a favourite of a head?",
        lambda n: [n["favourites"][-1][2]],
        0,
    ),
    "5.2": ("With v = (7, -1), what is every output (two numbers)?", lambda n: n["value"], HAND),
    "5.3": ("What shape are the scores for 2 queries and 6 keys (rows, columns)?", lambda n: n["scores"], 0),
}


def exercise_item(exercise: Exercise) -> Item:
    """An exercise, with what is to be typed."""
    ask, pick, tolerance = _TYPED[exercise.key]
    expected = tuple(float(value) for value in pick(exercise.numbers))
    allowed = f" Each number may be off by {tolerance:g}." if tolerance else ""
    answer = ", ".join(f"{value:.4f}" if tolerance else f"{value:g}" for value in expected)
    if not tolerance:
        answer = ", ".join(str(int(value)) for value in expected)
    return Item(
        exercise.key,
        f"exercise {exercise.key}, level {exercise.level}",
        f"{exercise.question}\n{ask}{allowed}",
        answer,
        exercise.answer,
        lambda text: grade_numbers(text, expected, tolerance),
    )


def drill_item(drill: Drill) -> Item:
    """A drill; its solution is shown after it."""
    answer = f"{drill.answer}) {drill.choices[drill.answer]}" if drill.choices else drill.answer
    return Item(
        f"{drill.level}.{drill.seed}",
        f"drill, level {drill.level}, seed {drill.seed}: {drill.kind}",
        drill.question,
        answer,
        (drill.solution,),
        drill.grade,
    )


def choose(
    level: int | None, kind: str | None, seed: int, count: int, known: Iterable[str] = ()
) -> list[Item]:
    """Up to ``count`` items: exercises of the level, questions of the kind; everything if neither is given.

    The order depends on the seed only. What is ``known`` comes last.
    """
    rng = random.Random(seed)
    items: list[Item] = []
    if kind is not None or level is None:
        items += [question_item(q, rng) for q in questions() if kind is None or q.kind == kind]
    if level is not None or kind is None:
        items += [exercise_item(e) for e in exercises() if level is None or e.level == level]
    rng.shuffle(items)
    known = set(known)
    items.sort(key=lambda item: item.key in known)
    return items[:count]


def run(items: Iterable[Item], read: Callable[[], str | None], say: Callable[[str], None]) -> Score:
    """Ask every item in turn, each until its answer can be read.

    ``read`` gives a line, or None at the end of the input. "q" stops, and so does Ctrl-C; "?" shows the
    answer, which then counts as not known.
    """
    results: list[tuple[str, bool]] = []
    for number, item in enumerate(items, 1):
        say(f"\n{number}. {item.heading}\n{item.text}")
        try:
            grade = _answer(item, read, say)
        except KeyboardInterrupt:
            say("\nStopped.")
            return Score(tuple(results), stopped=True, interrupted=True)
        if grade is None:
            say("Stopped.")
            return Score(tuple(results), stopped=True)
        results.append((item.key, grade.right))
        say(grade.message if grade.right else f"{grade.message} The answer: {item.answer}".strip())
        for line in item.after:
            say(line)
    return Score(tuple(results))


def _answer(item: Item, read: Callable[[], str | None], say: Callable[[str], None]) -> Grade | None:
    """The grade of the first line that can be read as an answer; None to stop."""
    while True:
        text = read()
        if text is None or text.strip().casefold() in QUIT:
            return None
        if text.strip().casefold() in SHOW:
            return Grade(False, "")
        grade = item.grade(text)
        if grade.read:
            return grade
        problem = f"{grade.message} Once more" if text.strip() else "Your answer"
        say(f"{problem}, please; ? shows the answer, q stops.")
