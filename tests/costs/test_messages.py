"""Every message of cost, word for word, in golden/cost_messages.txt; no place that raises is left out."""

import json

import pytest
import torch
from torch import nn

import headwise
from headwise.costs import cost
from headwise.costs.data import Cost
from headwise.costs.families import FAMILIES as READ
from headwise.costs.sweep import Sweep, head_sweep
from headwise.errors import HeadwiseError
from tests.raising import caught, golden, said, unreached

MODULES = [
    f"costs/{name}"
    for name in ("sources", "stack", "sizes", "config", "config_forms", "families", "data", "sweep")
]
BERT = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
SIDES = ("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads")
BART = {"model_type": "bart", "d_model": 8, **dict.fromkeys(SIDES, 2)}
LLAMA = {**BERT, "model_type": "llama"}
QWEN = {
    **BERT,
    "model_type": "qwen2",
    "num_key_value_heads": 2,
    "use_sliding_window": True,
    "sliding_window": 4,
}
READINGS = cost(d_model=8, heads=2).to_dict()
SWEEP = head_sweep(4, 2).to_dict()


def call(model=None, **arguments):
    return lambda: cost(model, **arguments)


def without(data, name):
    return {key: value for key, value in data.items() if key != name}


CASES = {
    "nothing": call(),
    "no heads": call(d_model=8),
    "zero": call(d_model=0, heads=1),
    "a fraction": call(d_model=8, heads=2.5),
    "true": call(d_model=8, heads=True),
    "no layer": call(d_model=8, heads=2, layers=0),
    "head width": call(d_model=8, heads=2, head_dim=-1),
    "six heads": call(d_model=512, heads=6),
    "more heads than columns": call(d_model=8, heads=9),
    "groups": call(d_model=512, heads=8, kv_heads=3),
    "bias": call(d_model=8, heads=2, bias="xy"),
    "causal": call(d_model=8, heads=2, causal=1),
    "window": call(d_model=8, heads=2, window=4),
    "window side": call(d_model=8, heads=2, window=(-1, 0)),
    "latent, half": call(d_model=8, heads=2, kv_rank=4),
    "latent, grouped": call(d_model=8, heads=2, kv_heads=1, kv_rank=4, rope_dim=1),
    "seq": call(d_model=8, heads=2, seq=0),
    "batch": call(d_model=8, heads=2, batch=0),
    "cached": call(d_model=8, heads=2, seq=1, cached=-1),
    "cached without seq": call(d_model=8, heads=2, cached=3),
    "bytes": call(d_model=8, heads=2, dtype_bytes=0),
    "two sequences": call(d_model=8, heads=2, seq=1, kv_seq=4, cached=3),
    "offset and alignment": call(d_model=8, heads=2, seq=1, query_offset=1, causal_alignment="upper_left"),
    "offset": call(d_model=8, heads=2, seq=1, query_offset=1.5),
    "ignore": call(d_model=8, heads=2, ignore=("x",)),
    "sizes beside a config": call(BERT, heads=4),
    "no model": call(3),
    "ignore beside a model": call(nn.MultiheadAttention(4, 2), ignore=("x",)),
    "causal beside a config": call(BERT, causal=True),
    "cross beside a config": call(BERT, seq=1, kv_seq=2),
    "two sequences, one length": call(BART, seq=1),
    "a cache beside cross-attention": call(BART, seq=1, kv_seq=2, cached=3),
    "half of two": call({**BART, "is_encoder_decoder": False}),
    "unknown family": call({"model_type": "mamba"}),
    "no family": call({}),
    "missing field": call({"model_type": "bert", "hidden_size": 8}),
    "unknown field": call({**LLAMA, "num_sinks": 4, "attention_gate": True}),
    "cross-attention": call({**BERT, "add_cross_attention": True}),
    "pruned": call({**BERT, "pruned_heads": {"0": [1]}}),
    "relative positions": call({**BERT, "position_embedding_type": "relative_key"}),
    "a number in words": call({**BERT, "hidden_size": "8"}),
    "a flag in words": call({**LLAMA, "attention_bias": "yes"}),
    "two-sided": call(
        {
            **LLAMA,
            "model_type": "gemma",
            "num_key_value_heads": 2,
            "head_dim": 4,
            "use_bidirectional_attention": True,
        }
    ),
    "layer types": call({**QWEN, "layer_types": ["chunked_attention"]}),
    "no start of windows": call(QWEN),
    "no file": call("/nowhere/config.json"),
    "another schema": lambda: Cost.from_dict({"schema": "x"}),
    "a newer cost": lambda: Cost.from_dict({**READINGS, "version": 9}),
    "half a cost": lambda: Cost.from_dict(without(READINGS, "totals")),
    "no JSON": lambda: Cost.from_json("x"),
    "another sweep": lambda: Sweep.from_dict({}),
    "half a sweep": lambda: Sweep.from_dict(without(SWEEP, "rows")),
    "sweep": lambda: head_sweep(0, 5),
    "no rows": lambda: Sweep.from_dict({**SWEEP, "rows": []}),
    "a cost without layers": lambda: Cost.from_dict({**READINGS, "layers": []}),
    "a cost of no layer": lambda: Cost.from_dict(
        {**READINGS, "layers": [{**READINGS["layers"][0], "count": 0}]}
    ),
    "lengths here and not there": lambda: Cost.from_dict(
        {**READINGS, "layers": [{**READINGS["layers"][0], "work": {}}]}
    ),
    "no total": lambda: Cost.from_dict({**READINGS, "totals": READINGS["totals"][:1]}),
    "a negative number": lambda: Cost.from_dict(
        {**READINGS, "totals": [{**READINGS["totals"][0], "value": -1}]}
    ),
    "too large": call(d_model=10**16, heads=1),
    "exponential": lambda: head_sweep(4, 5, exponential=0),
}


EXPECTED = golden("cost_messages.txt")


@pytest.mark.parametrize("name", CASES)
def test_the_message(name):
    assert said(CASES[name]) == EXPECTED[name]


def test_no_golden_message_is_left_over():
    assert set(EXPECTED) == set(CASES)


def files(tmp_path):
    """Files that are no config, each with what is said about it."""
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "empty").mkdir()
    return {
        "list.json": "config: expected a JSON object of fields; received {}, a list.",
        "deep.json": "config: expected a JSON file; received {} (nested too deeply).",
        "broken.json": "config: expected a JSON file; received {} (Expecting property name",
        "empty": "config: expected a config.json that can be read; received {}/config.json (No such file",
    }


def test_files_that_are_no_config(tmp_path):
    for name, message in files(tmp_path).items():
        path = tmp_path / name
        assert str(caught(call(path))).startswith(message.format(path))


def readings(**arguments):
    return call(d_model=8, heads=2, seq=2, kv_seq=3, causal=True, **arguments)


def test_two_lengths_ask_for_a_reading():
    message = str(caught(readings()))
    assert message.startswith(
        "causal: expected causal_alignment or query_offset, when causal or window meets kv_seq other than "
        "seq; "
        "received 2 queries and 3 keys. Hint: choose a reading"
    )
    assert "query_offset=0" in message and "query_offset=1" in message
    assert str(caught(readings(causal_alignment="left"))).startswith(
        'causal_alignment: expected None, "upper_left" or "lower_right"; received \'left\'.'
    )
    for alignment, pairs in (("upper_left", 3), ("lower_right", 5)):
        assert (
            cost(d_model=8, heads=2, seq=2, kv_seq=3, causal=True, causal_alignment=alignment).layers[0][
                "pairs.visible"
            ]
            == pairs
        )


def test_every_place_that_raises_is_reached(tmp_path):
    cases = [*CASES.values()]
    cases += [call(tmp_path / name) for name in files(tmp_path)]
    cases += [readings(), readings(causal_alignment="left")]
    assert unreached(MODULES, cases) == []


def test_refusals_have_the_right_kind():
    assert type(caught(call({"model_type": "mamba"}))) is headwise.CapabilityError
    assert type(caught(call(d_model=512, heads=6))) is HeadwiseError
    assert type(caught(call(torch.nn.Linear(2, 2)))) is headwise.CapabilityError


@pytest.mark.parametrize("heads", range(1, 40))
@pytest.mark.parametrize("d_model", [12, 30, 64])
def test_the_nearest_valid_heads_are_valid_and_nearest(d_model, heads):
    if d_model % heads == 0:
        assert cost(d_model=d_model, heads=heads).parameters == 4 * d_model**2
        return
    hint = caught(call(d_model=d_model, heads=heads)).hint
    named = [int(word) for word in hint.partition(";")[0].replace(":", " ").split() if word.isdigit()]
    valid = [n for n in range(1, d_model + 1) if d_model % n == 0]
    below, above = [n for n in valid if n < heads][-1:], [n for n in valid if n > heads][:1]
    assert [n for n in named if f"{n} heads" in hint] == below + above
    for width in (int(part.split()[0]) for part in hint.split("d_model = ")[1:]):
        assert cost(d_model=width, heads=heads).parameters == 4 * width**2


def test_json_of_a_config_reads_like_the_dict(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    assert cost(tmp_path, seq=3) == cost(tmp_path / "config.json", seq=3) == cost(BERT, seq=3)


def test_no_config_however_odd_gives_a_raw_error():
    """Every field of every family, replaced by what no config holds."""
    odd = (None, True, -1, 0, 1.5, "x", [], [1], {}, ["full_attention"], [["x"]], 10**400)
    for family in READ:
        base = {"model_type": family, **dict.fromkeys(READ[family].required, 8)}
        names = {
            *base,
            "layer_types",
            "sliding_window",
            "dtype",
            "head_dim",
            "attention_bias",
            "_name_or_path",
        }
        for name in names:
            for value in odd:
                try:
                    assert str(cost({**base, name: value}, seq=2))
                except HeadwiseError as error:
                    assert len(str(error)) < 700
