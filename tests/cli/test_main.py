"""The command line: what it prints, where it writes, and one calm message and exit code 2 for an error."""

import os
import signal
import subprocess
import sys
import time

import headwise


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


def test_an_unknown_command_is_exit_code_2(run):
    assert run("look").exit_code == 2


def test_ctrl_c_is_quiet(run, tmp_path, monkeypatch):
    from headwise.inspect.load import models

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
    code = "from headwise.cli import main; main.app = lambda: print('it \u2192 cat'); main.main()"
    assert finish(start(tmp_path, code=code, encoding="ascii")) == (0, "it ? cat\n", "")


def test_a_bad_run_in_a_process(tmp_path):
    code, out, error = finish(start(tmp_path, "inspect", "nosuch"))
    assert (code, out) == (2, "")
    assert error.startswith("headwise: model: ") and error.count("\n") == 1 and "Traceback" not in error


def test_without_torch_in_a_process(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from headwise.cli.main import main; main()"
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
        "import headwise.inspect.load.models as models, pathlib, time;"
        "models.load_model = lambda name: (pathlib.Path('ready').touch(), time.sleep(100));"
        "from headwise.cli.main import main; main()"
    )
    process = start(tmp_path, "inspect", code=waiting)
    deadline = time.monotonic() + 200
    while not (tmp_path / "ready").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert finish(process) == (130, "", "")


def test_only_typer_is_needed_to_answer_a_question(tmp_path):
    code = (
        "import sys; from headwise.cli.main import app; app(['--version'], standalone_mode=False);"
        "print(sorted({'torch', 'transformers', 'jax'} & set(sys.modules)))"
    )
    _, out, _ = finish(start(tmp_path, code=code))
    assert out == f"headwise {headwise.__version__}\n[]\n"
