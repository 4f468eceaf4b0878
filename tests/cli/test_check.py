"""``headwise check``: exit codes, files, plain verdicts whatever the function does."""

import json
import textwrap
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from headwise.check import RULES, CheckReport
from headwise.check.faults import FAULTS
from headwise.check.glossary import FINDINGS, MEANS
from headwise.cli.main import app

RIGHT = """
    import numpy as np

    def attention(q, k, v):
        s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v
"""
WRONG = RIGHT.replace("** 0.5", "")


def run(*arguments):
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


@pytest.fixture
def write(tmp_path):
    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


def test_right_is_0(write):
    result = run(f"{write(RIGHT)}:attention")
    assert result.exit_code == 0, result.output
    assert "Right" in result.output and "rules kept" in result.output


def test_wrong_is_1_and_files_are_written(write, tmp_path):
    report, junit = tmp_path / "report.json", tmp_path / "junit.xml"
    result = run(write(WRONG), "--json", report, "--junit", junit)
    assert result.exit_code == 1
    assert "scale 1/d_k" in result.output
    found = CheckReport.from_json(report.read_text())
    assert found.faults == ("scale 1/d_k",)
    assert found.name.endswith("mine.py:attention")
    assert ElementTree.parse(junit).getroot().get("failures") != "0"


def test_json_can_be_printed(write, tmp_path):
    result = run(write(WRONG), "--json", "-", "--junit", tmp_path / "junit.xml")
    assert result.exit_code == 1
    assert CheckReport.from_json(result.stdout).faults == ("scale 1/d_k",)


def test_options_reach_the_check(write, tmp_path):
    causal = RIGHT.replace(
        "e = np", "s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)\n        e = np"
    )
    path, report = write(causal), tmp_path / "report.json"
    assert run(path).exit_code == 1
    told = run(
        path, "--always", "causal", "--causal-alignment", "upper_left", "--layout", "bhnd", "--json", report
    )
    assert told.exit_code == 0, told.output
    assert "options: causal" in json.loads(report.read_text())["calling"]
    assert run(path, "--contract", "flash-attn").exit_code == 1


@pytest.mark.parametrize(
    "text, said",
    [
        ("def attention(q, k, v):\n    return q, v", "its first item is judged"),
        ("def attention(q, k, v):\n    return None", "returns None, not an array"),
        ("def attention(q, k, v):\n    raise ValueError('no heads')", "raises ValueError: no heads"),
        ("def attention(q, k, v):\n    while True: pass", "gives no answer within 0.5 s"),
        ("import os\ndef attention(q, k, v):\n    os._exit(7)", "ends the process: exit code 7"),
        ("import os\ndef attention(q, k, v):\n    os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("def attention(q, k, v):\n    return q * float('nan')", "hold NaN or infinity"),
        ("def attention(q, k, v):\n    print('hello'); q += 1; return v", "writes to its inputs: query"),
    ],
)
def test_plain_verdicts(write, text, said):
    result = run(write(text), "--time-limit", "0.5")
    assert result.exit_code == 1, result.output
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output and "hello" not in result.stdout


def test_a_child_that_cannot_be_interrupted_is_ended(write):
    """Signals blocked: the parent has the last word."""
    text = """
        import signal
        def attention(q, k, v):
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            while True: pass
    """
    from headwise.check import child

    limit, child._IMPORTS = child._IMPORTS, 4.0
    try:
        result = run(write(text), "--time-limit", "0.2")
    finally:
        child._IMPORTS = limit
    assert result.exit_code == 1
    assert "gives no answer within 6.4 s" in result.output


@pytest.mark.parametrize(
    "text, message",
    [
        ("import nothing_of_that_name", "(ModuleNotFoundError: No module named 'nothing_of_that_name')"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("x = 1", "the name of one function: there is none"),
        ("def a(q): pass\ndef b(q): pass", "the name of one function: a, b"),
        ("class Attention:\n    def __init__(self, width): pass", "the name of one function"),
    ],
)
def test_files_that_cannot_be_used(write, text, message):
    result = run(write(text))
    assert result.exit_code == 2
    assert message in result.output and "Traceback" not in result.output


def test_a_file_of_a_package_imports_what_stands_beside_it(tmp_path):
    inner = tmp_path / "a folder" / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("")
    (inner.parent / "softly.py").write_text(
        "import numpy as np\n\ndef softmax(s):\n    e = np.exp(s - s.max(-1, keepdims=True))\n"
        "    return e / e.sum(-1, keepdims=True)\n"
    )
    (inner / "mine.py").write_text(
        "from ..softly import softmax\n\ndef attention(q, k, v):\n"
        "    return softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v\n"
    )
    result = run(inner / "mine.py")
    assert result.exit_code == 0, result.output


def test_list_names_every_rule_with_its_level():
    result = run("--list", "--contract", "torch-sdpa")
    assert result.exit_code == 0
    for rule in RULES:
        assert rule.name in result.output
    assert "note" in result.output and "must" in result.output


def test_every_rule_and_mistake_is_explained():
    assert set(MEANS) == {rule.name for rule in RULES}
    for name in [*MEANS, *(fault.key for fault in FAULTS[:5]), *FINDINGS]:
        result = run("--explain", name)
        assert result.exit_code == 0
        assert result.output.startswith(f"{name}: a ")
    example = run("--explain", "kv heads tiled").output
    assert "weights right   0.003  0.195  0.802" in example and "onnx/onnx#7274" in example
