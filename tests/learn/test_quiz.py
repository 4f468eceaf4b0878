"""The quiz: what is asked, in which order, how it is graded, and what it remembers."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from headwise.cli.main import app
from headwise.errors import HeadwiseError
from headwise.learn.curriculum import KINDS, LEVELS
from headwise.learn.drills.drill import make_drill
from headwise.learn.progress import read_progress, write_progress
from headwise.learn.quiz import choose, drill_item, run

RUN = CliRunner()


def asked(answers, items):
    """Run items over given answers; the score and everything that was said."""
    lines, said = iter(answers), []
    return run(items, lambda: next(lines, None), said.append), "\n".join(said)


@pytest.mark.parametrize("seed", range(5))
def test_every_item_takes_its_own_answer(seed):
    items = choose(None, None, seed, 1000)
    assert len({item.key for item in items}) == len(items) > 60
    score, said = asked([item.answer.split(")")[0] for item in items], items)
    assert score.right == len(items)
    assert "Not right" not in said


def test_a_wrong_answer_shows_the_right_one_with_its_numbers():
    (item,) = choose(4, None, 0, 1)
    score, said = asked(["-1"], [item])
    assert score.right == 0 and item.answer in said and item.after[0] in said


@pytest.mark.parametrize("kind", KINDS)
def test_one_kind(kind):
    assert {item.heading for item in choose(None, kind, 0, 100)} == {kind}


@pytest.mark.parametrize("level", LEVELS)
def test_one_level(level):
    assert all(item.heading.endswith(f"level {level}") for item in choose(level, None, 0, 100))


def test_the_order_depends_on_the_seed_only():
    first, again, other = (choose(None, None, seed, 20) for seed in (1, 1, 2))
    assert [item.text for item in first] == [item.text for item in again]
    assert [item.text for item in first] != [item.text for item in other]


def test_what_is_known_comes_last():
    keys = [item.key for item in choose(None, "why", 0, 100)]
    assert [item.key for item in choose(None, "why", 0, 100, [keys[0]])] == [*keys[1:], keys[0]]


def test_it_stops_at_the_end_of_the_input_and_on_q():
    items = choose(None, "why", 0, 3)
    assert len(asked(["a"], items)[0].results) == 1
    assert len(asked(["a", " Q "], items)[0].results) == 1
    assert str(asked(["q"], items)[0]) == "Nothing was answered."


@pytest.mark.parametrize("nothing", ["", "  ", "\n"])
def test_nothing_is_no_answer_and_is_asked_again(nothing):
    (item,) = choose(None, "self-test", 0, 1)
    right = item.answer.split(")")[0]
    score, said = asked([nothing, nothing, right], [item])
    assert score.results == ((item.key, True),)
    assert said.count("Your answer, please; ? shows the answer, q stops.") == 2


def test_what_cannot_be_read_is_asked_again():
    drill = drill_item(make_drill(2, 7))
    score, said = asked(["foo", "1", drill.answer], [drill])
    assert score.results == ((drill.key, True),)
    assert "That cannot be read as 2 numbers. Once more, please; ? shows the answer, q stops." in said
    assert "2 numbers expected, 1 read. Once more, please" in said and "Not right" not in said


def test_the_answer_is_shown_on_asking_and_is_then_not_known():
    (item,) = choose(None, "why", 0, 1)
    score, said = asked(["?"], [item])
    assert score.results == ((item.key, False),) and f"The answer: {item.answer}" in said
    assert item.after[0] in said and "Not right" not in said


def test_ctrl_c_stops_and_keeps_what_was_answered():
    items = choose(None, "self-test", 0, 3)

    answers, said = [items[0].answer[0]], []

    def read():
        if answers:
            return answers.pop()
        raise KeyboardInterrupt

    score = run(items, read, said.append)
    assert score.results == ((items[0].key, True),) and score.stopped and score.interrupted
    assert said[-1] == "\nStopped."


# ---------------------------------------------------------------- the file it remembers in


def test_progress_comes_back(tmp_path):
    file = tmp_path / "known.json"
    assert read_progress(file) == {}
    write_progress(file, {"b": True, "a": False})
    assert read_progress(file) == {"a": False, "b": True}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"schema": "headwise.progress", "version": 1, "known": {"a": 1}}', "[" * 99999],
)
def test_a_file_that_is_something_else_is_refused_and_kept(tmp_path, text):
    file = tmp_path / "known.json"
    file.write_text(text)
    with pytest.raises(HeadwiseError, match="--remember: expected a progress file"):
        read_progress(file)
    assert file.read_text() == text


# ---------------------------------------------------------------- the commands


# In the new process: its standard input is its terminal, and Ctrl-C reaches it whatever we ignore. Not by
# `preexec_fn`, which forks this process: other libraries that are loaded here by now may object to that.
OWN_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "headwise", *sys.argv[1:]])
"""


def typed(arguments, lines):
    """Run headwise in a terminal of its own; each line is typed when the prompt for it has come."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    os.close(theirs)
    text, waiting, until = b"", list(lines), time.monotonic() + 60
    while time.monotonic() < until:
        if not select.select([ours], [], [], 1)[0]:
            continue
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        text += part
        if waiting and text.endswith(b"> "):
            os.write(ours, waiting.pop(0))
    os.close(ours)
    if time.monotonic() >= until:
        process.kill()
    return SimpleNamespace(code=process.wait(10), text=text.decode().replace("\r\n", "\n"))


def invoke(*arguments, text=""):
    return RUN.invoke(app, list(arguments), input=text)


def test_learn_writes_the_book(tmp_path):
    out = tmp_path / "book.html"
    found = invoke("learn", "--out", str(out))
    assert found.exit_code == 0 and str(out) in found.output
    assert out.read_text(encoding="ascii").startswith("<!doctype html>")


def test_the_quiz_reads_what_is_piped():
    found = invoke(
        "learn",
        "--quiz",
        "--seed",
        "1",
        "--kind",
        "True-or-false",
        "--count",
        "3",
        text="true\nfalse\nnonsense\n",
    )
    assert found.exit_code == 0
    assert "of 2 right.\nThe same questions again: headwise learn --quiz --kind 'true or false' --seed 1" in (
        found.output
    )
    assert "One of a, b expected. Once more, please" in found.output and "Stopped." in found.output


def test_the_quiz_remembers_where_it_is_told_to(tmp_path):
    file = tmp_path / "known.json"
    arguments = ("learn", "--quiz", "--seed", "1", "--kind", "self-test", "--remember", str(file))
    assert invoke(*arguments, text="a\nb\n").exit_code == 0
    assert len(json.loads(file.read_text())["known"]) == 2
    assert list(tmp_path.iterdir()) == [file]


def test_drill_asks_grades_and_shows():
    found = invoke("drill", "--level", "2", "--seed", "7", "--count", "2", text="1 2\n2 3\n")
    again = invoke("drill", "--level", "2", "--seed", "7", "--count", "2", text="1 2\n2 3\n")
    assert found.exit_code == 0 and found.output == again.output
    assert "drill, level 2, seed 8" in found.output
    assert "The same again: headwise drill --level 2 --seed 7 --count 2" in found.output
    assert "Go on" not in found.output
    stopped = invoke("drill", "--level", "2", "--seed", "7", "--count", "3", text="1 2\nq\n")
    assert "Stopped." in stopped.output
    assert "Go on from here: headwise drill --level 2 --seed 8 --count 2" in stopped.output


def test_ctrl_c_in_a_terminal_says_how_to_come_back():
    found = typed(["drill", "--level", "2", "--seed", "7"], [b"\n", b"1 2\n", b"\x03"])
    assert found.code == 130
    assert "Your answer, please" in found.text and "Stopped." in found.text and "Traceback" not in found.text
    assert "0 of 1 right.\nThe same again: headwise drill --level 2 --seed 7 --count 5" in found.text
    assert "Go on from here: headwise drill --level 2 --seed 8 --count 4" in found.text


def test_long_lines_break_between_words_in_a_terminal():
    found = typed(["drill", "--level", "3", "--seed", "4"], [b"q\n"])
    question = make_drill(3, 4).question
    assert max(map(len, question.splitlines())) > 80 >= max(map(len, found.text.splitlines()))
    assert " ".join(question.split()) in " ".join(found.text.split())


def test_ctrl_c_in_the_quiz_keeps_what_is_known(tmp_path):
    file = tmp_path / "known.json"
    options = ["--kind", "self-test", "--seed", "1", "--remember", str(file)]
    found = typed(["learn", "--quiz", *options], [b"a\n", b"\x03"])
    assert found.code == 130 and len(json.loads(file.read_text())["known"]) == 1
    assert f"--seed 1 --count 10 --remember {file}" in found.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("learn", "--level", "2"), "--level: expected only beside --quiz"),
        (("learn", "--quiz", "--level", "6"), "--level: expected a whole number from 1 to 5"),
        (("learn", "--quiz", "--kind", "hard"), "--kind: expected one of true or false"),
        (("learn", "--quiz", "--count", "0"), "--count: expected a whole number of at least 1"),
        (("learn", "--out", "."), "--out: expected a file"),
        (("learn", "--out", ""), "--out: expected a file; received . (this folder; so is an empty name)"),
        (("learn", "--out", "x.md"), "--out: expected a name that ends in .html or .htm; received x.md"),
        (("learn", "--count", "3"), "--count: expected only beside --quiz"),
        (("learn", "--kind", "edge case"), "Hint: headwise learn --quiz --kind 'edge case'"),
        (("learn", "--quiz", "--out", "x.html"), "--out: expected nothing beside --quiz"),
        (
            ("learn", "--quiz", "--level", "9", "--remember", "no/x"),
            "--remember: expected a file in a folder that",
        ),
        (("drill", "--level", "9"), "--level: expected a whole number from 1 to 5"),
        (("drill", "--seed", "-3"), "--seed: expected a whole number of at least 0"),
    ],
)
def test_what_is_refused(arguments, message):
    found = invoke(*arguments)
    assert found.exit_code == 2 and message in found.output
