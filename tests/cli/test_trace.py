"""headwise explain: examples, files and formats; every error is one calm message and exit code 2."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from headwise.cli.main import app
from headwise.render.trace.text import to_text
from headwise.trace import explain
from headwise.trace.data import Trace
from headwise.trace.examples import EXAMPLES, example


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments, text=None: CliRunner().invoke(app, ["explain", *arguments], input=text)


def shown(result):
    return "\n".join(line.rstrip() for line in result.stdout.rstrip("\n").splitlines())


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example(run, name):
    result = run("--example", name)
    assert result.exit_code == 0 and result.stderr == ""
    assert shown(result) == to_text(example(name).to_dict(), 80)


def test_without_arguments_it_shows_example_a(run):
    assert run().stdout == run("--example", "a").stdout
    assert "1.339523  1.320954" in run().stdout


@pytest.mark.parametrize("form", ["text", "HTML", "markdown", "json"])
def test_every_format_to_the_terminal(run, form):
    result = run("--example", "C", "--format", form)
    trace = example("C")
    views = {
        "text": str(trace),
        "html": trace.to_html(),
        "markdown": trace.to_markdown(),
        "json": trace.to_json(),
    }
    assert result.exit_code == 0 and shown(result) == views[form.lower()].rstrip("\n")


@pytest.mark.parametrize(
    "out, start",
    [
        ("t.html", "<!doctype"),
        ("t.md", "# Example"),
        ("t.json", '{"schema"'),
        ("t.txt", "Example"),
        ("t", "Example"),
    ],
)
def test_the_ending_says_the_format(run, tmp_path, out, start):
    result = run("--example", "D", "--out", out)
    assert (result.exit_code, result.stdout) == (0, f"Trace: {tmp_path / out}\n")
    assert (tmp_path / out).read_text(encoding="utf-8").startswith(start)


def test_format_wins_over_the_ending(run, tmp_path):
    assert run("--example", "D", "--out", "t.txt", "--format", "html").exit_code == 0
    assert (tmp_path / "t.txt").read_text().startswith("<!doctype")
    assert run("--example", "D", "--out", "t.zzz", "--format", "markdown").exit_code == 0
    assert (tmp_path / "t.zzz").read_text().startswith("# Example D")


def test_a_file_and_a_trace_again(run, tmp_path):
    data = {
        "query": [[1, 0]],
        "key": [[1, 0], [0, 1]],
        "value": [[2], [4]],
        "title": "Mine",
        "tokens": ["it"],
    }
    (tmp_path / "in.json").write_text("\ufeff" + json.dumps(data), encoding="utf-8")
    same = explain(
        query=np.array([[1.0, 0]]), key=np.eye(2), value=np.array([[2.0], [4]]), title="Mine", tokens=["it"]
    )
    assert shown(run("in.json")) == str(same)
    assert run("in.json", "--out", "out.json").exit_code == 0
    assert Trace.from_json((tmp_path / "out.json").read_text(encoding="utf-8")) == same
    assert shown(run("out.json")) == str(same)


def test_standard_input(run):
    result = run("-", text='{"scores": [[2, 2, 2]], "value": [[10], [20], [30]]}')
    assert result.exit_code == 0 and "= 20" in result.stdout


def test_help(run):
    result = run("--help")
    assert result.exit_code == 0
    for option in ("--example", "--format", "--out", "file"):
        assert option in result.stdout


@pytest.mark.parametrize(
    "text",
    [
        '{"scores": [[1e308, -1e308]], "value": [[1], [2]]}',
        '{"query": [[1, 1]], "key": [[1, 0], [0, 1]], "value": [[1.7e308], [1.7e308]]}',
    ],
)
def test_numbers_near_the_end_of_float64_are_shown(tmp_path, text):
    file = tmp_path / "huge.json"
    file.write_text(text)
    result = CliRunner().invoke(app, ["explain", str(file)])
    assert result.exit_code == 0
    assert "Attention weights" in result.stdout


def test_json_nested_too_deeply_is_one_line(tmp_path):
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000)
    result = CliRunner().invoke(app, ["explain", str(file)])
    assert result.exit_code == 2
    assert "nested too deeply" in result.stderr
