"""The commands on reports and arrays: `show`, `inspect qk.npz`, and the files of the score table."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from headwise.cli.main import app
from headwise.inspect import HeadReport, inspect_qk
from headwise.render.report.text import to_text


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Call the command line in an empty folder: arguments in, result out."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments, **options: CliRunner().invoke(app, list(arguments), **options)


@pytest.fixture
def report(tmp_path):
    query, key = np.random.default_rng(0).standard_normal((2, 2, 3, 9, 4), dtype=np.float32)
    report = inspect_qk(query, key, tokens=[f"w{i}" for i in range(9)], is_causal=True)
    (tmp_path / "report.json").write_text(report.to_json(), encoding="utf-8")
    return report


def plain(text):
    return " ".join(text.split())


def test_show_draws_a_report_again(run, report, tmp_path):
    result = run("show", "report.json")
    assert result.exit_code == 0 and plain(result.output) == plain(to_text(report.to_dict(), 80))
    assert not (tmp_path / "report.html").exists()  # only what is asked for is written
    again = run("show", "-", input=report.to_json())
    assert again.output == result.output


def test_show_writes_page_and_tables(run, report, tmp_path):
    result = run("show", "report.json", "--out", "page.html", "--csv", "t.csv", "--parquet", "t.parquet")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page.html").read_text() == report.to_html()
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == len(report.table())
    assert (tmp_path / "t.parquet").stat().st_size > 1000
    assert "As CSV:" in result.output and "As Parquet:" in result.output


def test_the_card_of_one_head(run, report):
    result = run("show", "report.json", "--head", "1.2")
    value = report.layers[1]["heads"][2]["scores"]["entropy"]["value"]
    assert result.exit_code == 0
    assert "Layer 1, head 2" in result.output and f"{value:.2f}" in result.output
    assert "By offset" in result.output and "Tokens that receive most" in result.output


def test_marks_in_arrays(run, tmp_path):
    query, key = np.random.default_rng(0).standard_normal((2, 2, 3, 9, 4), dtype=np.float32)
    np.savez(tmp_path / "qk.npz", q=query, k=key, tokens=list("abcabcabc"))
    (tmp_path / "p.txt").write_text("8,2")
    (tmp_path / "c.json").write_text('{"b": ["b"]}')
    result = run("inspect", "qk.npz", "--pairs", "p.txt", "--classes", "c.json", "--json", "r.json")
    assert result.exit_code == 0, result.output
    report = HeadReport.from_json((tmp_path / "r.json").read_text(encoding="utf-8"))
    classes = {"b": [1, 4, 7]}
    assert report == inspect_qk(
        query, key, tokens=list("abcabcabc"), name="qk", source="qk.npz", pairs=[(8, 2)], classes=classes
    )


def test_inspect_arrays(run, tmp_path):
    query, key = np.random.default_rng(0).standard_normal((2, 2, 3, 9, 4), dtype=np.float32)
    np.savez(tmp_path / "qk.npz", q=query, k=key, is_causal=True, ids=np.arange(9) % 4)
    result = run("inspect", "qk.npz", "--json", "r.json", "--csv", "t.csv", "--rollout", "3")
    assert result.exit_code == 0, result.output
    report = HeadReport.from_json((tmp_path / "r.json").read_text(encoding="utf-8"))
    expected = inspect_qk(
        query, key, is_causal=True, ids=np.arange(9) % 4, name="qk", source="qk.npz", rollout=3
    )
    assert report == expected
    assert (tmp_path / "report.html").is_file() and (tmp_path / "t.csv").is_file()
    assert "qk: 2 layers × 3 heads" in result.output and "Attention rollout" in result.output


def test_the_probe_on_a_real_model(run, tmp_path, monkeypatch):
    for name in ("TOKENIZERS_PARALLELISM", "TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "x")
    result = run("inspect", "minilm", "A cat and a cat.", "--probe", "--json", "r.json", "--out", "r.html")
    assert result.exit_code == 0, result.output
    assert "Random-token probe" in result.output
    probe = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["probe"]
    assert (probe["tokens"], len(probe["heads"])) == (101, 72)
    previous = max(probe["heads"], key=lambda entry: entry["previous"])
    assert (previous["layer"], previous["head"]) == (0, 2) and previous["previous"] > 0.9
