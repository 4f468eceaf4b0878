"""The command line: what it prints, where it writes, and one calm message and exit code 2 for an error."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

import headwise
from headwise import cli
from headwise.inspect import HeadReport
from headwise.inspect.tokens import EXAMPLE


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Call the command line in an empty folder: arguments in, result out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("TOKENIZERS_PARALLELISM", "TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "x")  # so that what a run sets is undone afterwards
        monkeypatch.delenv(name)
    return lambda *arguments: CliRunner().invoke(cli.app, list(arguments))


def start(tmp_path, *arguments, code=None, encoding="utf-8"):
    """A real process in an empty folder."""
    command = [sys.executable, "-m", "headwise"] if code is None else [sys.executable, "-c", code]
    return subprocess.Popen(
        [*command, *arguments],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": encoding},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding=encoding,
    )


def finish(process):
    out, error = process.communicate(timeout=300)
    return process.returncode, out, error


def test_without_arguments_it_says_what_it_does(run):
    result = run()
    assert result.exit_code == 0 and result.stderr == ""
    assert result.stdout.startswith(f"headwise {headwise.__version__}: ")
    commands = [line.strip() for line in result.stdout.splitlines() if line.startswith("  headwise ")]
    assert len(commands) == 3
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_version(run):
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"headwise {headwise.__version__}\n")


def test_help_lists_every_option(run):
    result = run("inspect", "--help")
    assert result.exit_code == 0
    for option in ("--text-file", "--max-tokens", "--out", "--json"):
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


ERRORS = {
    "unknown model": (
        ["nosuch"],
        "model: expected a folder with config.json, a .gguf file, a Hugging Face hub name, or one of: minilm",
    ),
    "text as model": (["The cat sat"], 'headwise inspect minilm "Your text."'),
    "word as model": (["Hello"], 'headwise inspect minilm "Your text."'),
    "misspelt model": (["MiniLM"], "Hint: did you mean minilm?"),
    "hub name offline": (["some/model"], "Hint: unset HF_HUB_OFFLINE, or give a folder"),
    "loose words": (
        ["minilm", "The", "cat", "sat"],
        "text: expected one argument; received 3 words without quotes. "
        'Hint: put the text in quotes: headwise inspect minilm "The cat sat"',
    ),
    "loose words alone": (["The", "cat", "sat"], 'headwise inspect minilm "The cat sat"'),
    "empty text": (["minilm", ""], "text: expected some text; received an empty text"),
    "no token": (["minilm", "\u200b"], "text: expected a text with at least one token"),
    "long text": (["minilm", "one " * 600], "received 602. Hint: --max-tokens 512"),
    "no room": (["--max-tokens", "2"], "--max-tokens: expected at least 3"),
    "two texts": (
        ["minilm", "a", "--text-file", "b"],
        "--text-file: expected either a text or a file; received both",
    ),
    "no file": (["--text-file", "none.txt"], "received none.txt (No such file or directory)"),
    "folder as file": (["--text-file", "."], "--text-file: expected a file that can be read; received . ("),
    "no UTF-8": (
        ["--text-file", "latin.txt"],
        "a UTF-8 text file; received latin.txt (invalid continuation byte at byte 1)",
    ),
    "folder as out": (["--out", "."], "--out: expected a file; received . (this folder"),
    "no folder": (
        ["--out", "no/r.html"],
        "--out: expected a file in a folder that exists; received no/r.html",
    ),
    "no folder, json": (
        ["--json", "no/r.json"],
        "--json: expected a file in a folder that exists; received no/r.json",
    ),
    "one file": (["--out", "r", "--json", "./r"], "--json: expected another file than --out; received r"),
    "device as out": (
        ["--out", "/dev/full"],
        "--out: expected a file that can be written; received /dev/full (No space",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_one_message_and_exit_code_2(run, tmp_path, case):
    (tmp_path / "latin.txt").write_bytes("né ".encode("latin-1"))
    arguments, message = ERRORS[case]
    result = run("inspect", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("headwise: ") and result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("arguments", [["--bogus"], ["--max-tokens", "many"]])
def test_wrong_usage_is_exit_code_2(run, arguments):
    result = run("inspect", *arguments)
    assert result.exit_code == 2 and result.stdout == "" and "Usage:" in result.stderr


def test_an_unknown_command_is_exit_code_2(run):
    assert run("look").exit_code == 2


def test_ctrl_c_is_quiet(run, tmp_path, monkeypatch):
    from headwise.inspect import models

    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "load_model", interrupted)
    result = run("inspect")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_good_run_in_a_process(tmp_path):
    code, out, error = finish(start(tmp_path, "inspect"))
    assert (code, error) == (0, "")
    assert "6 layers × 12 heads, 21 tokens of the built-in example" in out
    assert f"\nReport: {(tmp_path / 'report.html').resolve()}\n" in out
    assert out.endswith("report.html#layer=5&head=11&token=8\n")


def test_a_terminal_without_unicode(tmp_path):
    code = "from headwise import cli; cli.app = lambda: cli.Console().print('it \u2192 cat'); cli.main()"
    assert finish(start(tmp_path, code=code, encoding="ascii")) == (0, "it ? cat\n", "")


def test_a_bad_run_in_a_process(tmp_path):
    code, out, error = finish(start(tmp_path, "inspect", "nosuch"))
    assert (code, out) == (2, "")
    assert error.startswith("headwise: model: ") and error.count("\n") == 1 and "Traceback" not in error


def test_without_torch_in_a_process(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from headwise.cli import main; main()"
    found = finish(start(tmp_path, "inspect", code=code))
    assert found == (
        2,
        "",
        "headwise: model: expected torch and transformers to be installed; received no module named torch. "
        "Hint: pip install 'headwise[models]'\n",
    )


def test_ctrl_c_in_a_process(tmp_path):
    waiting = (
        # A job in the background of a shell is born with Ctrl-C ignored, and so are the processes it starts.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "import headwise.inspect.models as models, pathlib, time;"
        "models.load_model = lambda name: (pathlib.Path('ready').touch(), time.sleep(100));"
        "from headwise.cli import main; main()"
    )
    process = start(tmp_path, "inspect", code=waiting)
    deadline = time.monotonic() + 200
    while not (tmp_path / "ready").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert finish(process) == (130, "", "")


def test_only_typer_is_needed_to_answer_a_question(tmp_path):
    code = (
        "import sys; from headwise.cli import app; app(['--version'], standalone_mode=False);"
        "print(sorted({'torch', 'transformers', 'jax'} & set(sys.modules)))"
    )
    _, out, _ = finish(start(tmp_path, code=code))
    assert out == f"headwise {headwise.__version__}\n[]\n"


def test_bytes_that_are_no_text_are_one_line(run):
    result = run("inspect", "minilm", "\udcff hello")
    assert result.exit_code == 2
    assert "TEXT: expected a text in UTF-8" in result.stderr


def test_who_computes_the_output(run, tmp_path):
    result = run("inspect", "minilm", "The cat sat on the mat.", "--compute", "kernel", "--json", "r.json")
    assert result.exit_code == 0
    report = HeadReport.from_json((tmp_path / "r.json").read_text())
    assert "Our kernel computed the model's attention" in report.notes[0]
    assert 0 < report.check["max_abs_difference"] < 1e-4
    result = run("inspect", "minilm", "The cat.", "--compute", "gpu")
    assert result.exit_code == 2 and 'compute: expected "torch" or "kernel"' in result.stderr


def test_a_reaction_is_the_example_of_rxnmapper(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    result = run("inspect", "rxnmapper", "--json", "r.json")
    assert result.exit_code == 0
    report = HeadReport.from_json((tmp_path / "r.json").read_text())
    assert report.tokens[1:5] == ["C", "C", "(", "C"] and report.model["source"] == "rxnmapper==0.4.3"
    assert report.model["layers"] == 12 and report.layers[3]["name"].endswith("(call 4)")


def test_a_model_that_hears_needs_a_file(run):
    result = run("inspect", "whisper")
    message = (
        "headwise: text: expected the name of a WAV file; received nothing. Hint: headwise inspect whisper"
    )
    assert result.exit_code == 2 and message in result.stderr
    result = run("inspect", "minilm", "A cat.", "--generate", "3")
    assert result.exit_code == 2 and "None for a model that does not write" in result.stderr
