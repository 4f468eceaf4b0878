"""The command `inspect`: what it prints and writes, and one calm message for an error."""

import json

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from headwise.inspect import HeadReport
from headwise.inspect.load.tokens import EXAMPLE
from tests.inspect.zoo import build


def test_help_lists_every_option(run):
    result = run("inspect", "--help")
    assert result.exit_code == 0
    for option in ("--text-file", "--max-tokens", "--out", "--json", "--pairs", "--classes", "--needle"):
        assert option in result.stdout
    words = " ".join(result.stdout.replace("│", " ").split())
    assert "special tokens counted" in words and "an existing file is overwritten" in words


def test_inspect_the_example(run, tmp_path):
    result = run("inspect", "--json", "r.json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "previous token" in result.stdout
    page = (tmp_path / "report.html").resolve()
    assert result.stdout.rstrip().splitlines()[-3:] == [
        f"Report: {page}",
        f"Open it at “it” → “cat”: {page.as_uri()}#layer=5&head=11&token=8",
        f"As JSON: {tmp_path / 'r.json'}",
    ]
    assert (tmp_path / "report.html").read_text().lstrip().lower().startswith("<!doctype html")
    report = HeadReport.from_json((tmp_path / "r.json").read_text())
    assert report.text == {"source": "built-in example", "n_tokens": 21}
    assert report.model["name"] == "minilm" and report.check["max_abs_difference"] == 0.0
    assert [len(layer["heads"]) for layer in report.layers] == [12] * 6


def test_inspect_a_text(run, tmp_path):
    result = run("inspect", "minilm", "A dog barked.", "--out", "a.html", "--json", "a.json")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "a.json").read_text())["tokens"] == [
        "[CLS]",
        "a",
        "dog",
        "barked",
        ".",
        "[SEP]",
    ]
    assert "6 tokens from the command line" in result.stdout and "Open it at" not in result.stdout
    assert "the label separator cannot be reached" in result.stdout.replace("\n", " ")
    assert (tmp_path / "a.html").is_file() and not (tmp_path / "report.html").exists()


def test_inspect_a_file_and_cut_it(run, tmp_path):
    (tmp_path / "t.txt").write_text("\ufeff" + EXAMPLE, encoding="utf-8")
    result = run("inspect", "--text-file", "t.txt", "--max-tokens", "5", "--json", "t.json")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "t.json").read_text())
    assert report["tokens"] == ["[CLS]", "the", "cat", "sat", "[SEP]"] and report["text"]["source"] == "t.txt"
    assert "The text has 21 tokens; 5 kept" in result.stdout.replace("\n", " ")


@pytest.mark.parametrize("arguments", [["--bogus"], ["--max-tokens", "many"]])
def test_wrong_usage_is_exit_code_2(run, arguments):
    result = run("inspect", *arguments)
    assert result.exit_code == 2 and result.stdout == "" and "Usage:" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\udcff hello", "TEXT: expected a text in UTF-8"),
        ("\u200b", "text: expected a text with at least one token"),
        ("one " * 600, "received 602. Hint: --max-tokens 512"),
    ],
    ids=["bytes", "no token", "too long"],
)
def test_a_text_that_cannot_be_read_is_one_line(run, text, message):
    result = run("inspect", "minilm", text)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and message in result.stderr


def test_who_computes_the_output(run, tmp_path):
    result = run("inspect", "minilm", "The cat sat on the mat.", "--compute", "kernel", "--json", "r.json")
    assert result.exit_code == 0
    report = HeadReport.from_json((tmp_path / "r.json").read_text())
    assert "Our kernel computed the model's attention" in report.notes[0]
    assert 0 < report.check["max_abs_difference"] < 1e-4


def test_a_reaction_is_the_example_of_rxnmapper(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    result = run("inspect", "rxnmapper", "--json", "r.json")
    assert result.exit_code == 0
    report = HeadReport.from_json((tmp_path / "r.json").read_text())
    assert report.tokens[1:5] == ["C", "C", "(", "C"] and report.model["source"] == "rxnmapper==0.4.3"
    assert report.model["layers"] == 12 and report.layers[3]["name"].endswith("(call 4)")


def test_marks_in_the_text(run, tmp_path):
    (tmp_path / "pairs.txt").write_text("8,2\n")  # it -> cat
    (tmp_path / "classes.json").write_text('{"articles": ["the"], "end": [20]}')
    marks = ("--pairs", "pairs.txt", "--classes", "classes.json")
    result = run("inspect", *marks, "--json", "r.json")
    assert result.exit_code == 0, result.output
    assert "Heads that find the 1 gold pair" in result.stdout
    report = HeadReport.from_json((tmp_path / "r.json").read_text())
    the = [at for at, token in enumerate(report.tokens) if token == "the"]
    assert len(the) == 4 and report.tokens[8] == "it"
    head = report.layers[5]["heads"][11]["scores"]
    assert head["pair_accuracy"]["value"] == 1 and head["pair_mass"]["value"] == pytest.approx(
        0.41, abs=0.005
    )
    assert head["class:articles"]["null"] == pytest.approx(4 / 21)
    assert head["class:end"]["value"] == pytest.approx(head["special"]["value"], abs=1)
    assert {"class:articles", "class:end"} <= {score["key"] for score in report.scores}


def test_a_needle_in_a_model_that_writes(run, tmp_path):
    folder = tmp_path / "llama"
    build("llama").save_pretrained(folder)
    words = Tokenizer(WordLevel({"[UNK]": 0, **{f"w{i}": i for i in range(1, 29)}}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(folder)
    text = " ".join(f"w{i}" for i in range(1, 25))
    for needle in ("w5 w6 w7", "4:7"):
        marks = ("--generate", "6", "--needle", needle, "--json", "r.json")
        result = run("inspect", str(folder), text, *marks)
        assert result.exit_code == 0, result.output
        assert "Heads that copy the needle (tokens 4–6 of the text)" in result.stdout
        report = HeadReport.from_json((tmp_path / "r.json").read_text())
        assert (report.needle["start"], report.needle["stop"], report.needle["steps"]) == (4, 7, 6)
    result = run("inspect", str(folder), text, "--generate", "6", "--needle", "20:26")
    assert result.exit_code == 2
    assert "--needle: expected (start, stop) with 0 <= start < stop <= 24, the tokens" in result.stderr
