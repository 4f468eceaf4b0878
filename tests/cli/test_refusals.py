"""What the commands refuse, word for word: commands and their messages, in golden/refusals.txt.

`python -m tests.cli.test_refusals` writes the messages of the commands in that file anew.
"""

import json
import os
import shlex
import tempfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from headwise.cli.main import app
from tests.render.reports import make_report

GOLDEN = Path(__file__).parents[1] / "golden" / "refusals.txt"
REPORT = make_report(layers=2, heads=3)
FILES = {
    "broken.json": "no",
    "config.json": '{"model_type": "mamba"}',
    "latin.json": b"\xe9",
    "latin.txt": b"n\xe9 ",
    "q.json": '{"q": 1}',
    "shape.json": '{"query": [[1]], "key": [[1]], "value": [[1], [2]]}',
    "report.json": json.dumps(REPORT),
    "cut.json": json.dumps({key: part for key, part in REPORT.items() if key != "layers"}),
    "far.txt": "8,21",
    "class.json": '{"a": ["zebra"]}',
    "mine.py": "import numpy as np\ndef attention(q, k, v): return v\n"
    "class Layer:\n    def __init__(self, width): pass\n",
}


def golden():
    """Command -> message, from "$ headwise ..." followed by the message and an empty line."""
    entries = GOLDEN.read_text(encoding="utf-8").strip("\n").split("\n\n")
    return dict(entry.removeprefix("$ headwise ").split("\n", 1) for entry in entries)


def prepare(folder):
    for name, text in FILES.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    query, key = np.random.default_rng(0).standard_normal((2, 2, 3, 9, 4), dtype=np.float32)
    np.savez(folder / "qk.npz", q=query, k=key)


@pytest.mark.parametrize("command", golden())
def test_a_refusal_is_one_message_and_exit_code_2(run, tmp_path, command):
    prepare(tmp_path)
    before = set(tmp_path.iterdir())
    result = run(*shlex.split(command))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"headwise: {golden()[command]}\n"
    assert set(tmp_path.iterdir()) == before


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    commands = golden()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        prepare(Path(folder))
        said = {command: CliRunner().invoke(app, shlex.split(command)).stderr for command in commands}
    lines = [f"$ headwise {command}\n{text.removeprefix('headwise: ')}" for command, text in said.items()]
    GOLDEN.write_text("\n".join(lines), encoding="utf-8", newline="\n")
