"""headwise cost: sizes, configs and sweeps; every error is one calm message and exit code 2."""

import json

import pytest
from typer.testing import CliRunner

from headwise.cli.main import app
from headwise.costs import cost
from headwise.costs.data import Cost
from headwise.costs.sweep import Sweep, head_sweep
from headwise.render.costs.text import to_text

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return lambda *arguments: CliRunner().invoke(app, ["cost", *arguments])


def shown(result):
    return "\n".join(line.rstrip() for line in result.stdout.rstrip("\n").splitlines())


def test_sizes(run):
    result = run("--d-model", "768", "--heads", "12", "--seq", "4096")
    assert result.exit_code == 0 and result.stderr == ""
    assert shown(result) == str(cost(d_model=768, heads=12, seq=4096))


def test_every_option_arrives(run, tmp_path):
    result = run(
        "--d-model",
        "6",
        "--heads",
        "4",
        "--kv-heads",
        "2",
        "--head-dim",
        "3",
        "--v-head-dim",
        "5",
        "--d-context",
        "7",
        "--d-out",
        "9",
        "--bias",
        "qv",
        "--layers",
        "2",
        "--causal",
        "--window",
        "3,-",
        "--seq",
        "4",
        "--kv-seq",
        "5",
        "--query-offset",
        "1",
        "--batch",
        "2",
        "--dtype-bytes",
        "4",
        "--cache-bytes",
        "0.5",
        "--json",
        "c.json",
    )
    assert result.exit_code == 0, result.output
    expected = cost(
        d_model=6,
        heads=4,
        kv_heads=2,
        head_dim=3,
        v_head_dim=5,
        d_context=7,
        d_out=9,
        bias="qv",
        layers=2,
        causal=True,
        window=(3, None),
        seq=4,
        kv_seq=5,
        query_offset=1,
        batch=2,
        dtype_bytes=4.0,
        cache_bytes=0.5,
    )
    assert Cost.from_json((tmp_path / "c.json").read_text(encoding="utf-8")) == expected
    assert shown(result).endswith(f"Written: {tmp_path / 'c.json'}")


def test_latent_attention_and_a_cache(run, tmp_path):
    arguments = ("--d-model", "8", "--heads", "2", "--kv-rank", "4", "--rope-dim", "1", "--q-rank", "3")
    assert run(*arguments, "--seq", "1", "--cached", "9", "--json", "c.json").exit_code == 0
    expected = cost(d_model=8, heads=2, kv_rank=4, rope_dim=1, q_rank=3, seq=1, cached=9)
    assert Cost.from_json((tmp_path / "c.json").read_text(encoding="utf-8")) == expected


@pytest.mark.parametrize("word, bias", [("all", True), ("none", False), ("o", "o")])
def test_bias(run, tmp_path, word, bias):
    assert run("--d-model", "8", "--heads", "2", "--bias", word, "--json", "c.json").exit_code == 0
    assert (
        json.loads((tmp_path / "c.json").read_text())["totals"]
        == cost(d_model=8, heads=2, bias=bias).to_dict()["totals"]
    )


def test_a_config_file(run, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "novelty": 1}))
    result = run(
        "--config", ".", "--ignore", "novelty", "--seq", "1", "--cached", "8191", "--dtype-bytes", "2"
    )
    assert result.exit_code == 0, result.output
    assert "131,072" in result.stdout and "llama: 32 attention layers" in result.stdout


def test_a_sweep(run, tmp_path):
    result = run("--d-model", "512", "--seq", "1024", "--sweep", "--html", "s.html", "--json", "s.json")
    assert result.exit_code == 0, result.output
    sweep = head_sweep(512, 1024)
    assert shown(result).startswith(to_text(sweep.to_dict(), 100))
    assert shown(result).splitlines()[-2:] == [f"Written: {tmp_path / name}" for name in ("s.json", "s.html")]
    assert Sweep.from_dict(json.loads((tmp_path / "s.json").read_text())) == sweep
    assert (tmp_path / "s.html").read_text() == sweep.to_html() + "\n"


def test_a_page(run, tmp_path):
    assert run("--d-model", "8", "--heads", "2", "--seq", "3", "--html", "c.html").exit_code == 0
    assert (tmp_path / "c.html").read_text() == cost(d_model=8, heads=2, seq=3).to_html() + "\n"


def test_a_disk_that_is_full_is_one_message(run):
    result = run("--d-model", "8", "--heads", "2", "--json", "/dev/full")
    assert result.exit_code == 2 and "Written" not in result.stdout
    assert result.stderr.startswith(
        "headwise: --json: expected a file that can be written; received /dev/full ("
    )


def test_unknown_fields_come_with_what_to_type(run, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "novelty": 1, "other": 2}))
    result = run("--config", ".")
    assert result.stderr.endswith("leaves the sizes of attention alone: --ignore novelty --ignore other\n")


def test_a_drawing_in_a_message_keeps_its_columns(run):
    result = run("--d-model", "8", "--heads", "2", "--seq", "2", "--kv-seq", "3", "--causal")
    assert result.stderr.startswith(
        "headwise: --causal: expected --causal-alignment or --query-offset, when causal or window meets "
        "--kv-seq other than seq; received 2 queries and 3 keys."
    )
    *_, names, first, _, offsets = result.stderr.rstrip("\n").splitlines()
    assert names.index('"lower') == first.rindex("# #") == offsets.rindex("--query-offset 1")


def test_json_can_be_printed_instead_of_the_tables(run, tmp_path):
    result = run("--d-model", "8", "--heads", "2", "--json", "-", "--html", "c.html")
    assert result.exit_code == 0
    assert Cost.from_json(result.stdout) == cost(d_model=8, heads=2)
    assert result.stderr == f"Written: {tmp_path / 'c.html'}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["c.html"]
    sweep = run("--d-model", "8", "--seq", "2", "--sweep", "--json", "-")
    assert Sweep.from_json(sweep.stdout) == head_sweep(8, 2)


def test_deep_json_is_one_line(run, tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    result = run("--config", ".")
    assert result.exit_code == 2
    assert (
        result.stderr
        == "headwise: --config: expected a JSON file; received config.json (nested too deeply).\n"
    )


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_where_it_is_to_go_is_looked_at_first(run, option):
    """Before the sizes, however wrong they are, and so before any work."""
    result = run("--d-model", "512", "--heads", "6", option, "no/where.html")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"headwise: {option}: expected a file in a folder that exists")
    assert result.stdout == ""


def test_help_lists_every_option(run):
    result = run("--help")
    assert result.exit_code == 0
    for option in (
        "--d-model",
        "--kv-heads",
        "--config",
        "--sweep",
        "--cached",
        "--window",
        "--json",
        "--html",
    ):
        assert option in result.stdout
