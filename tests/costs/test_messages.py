"""Every message of cost, word for word; a last test asks that no place that raises is left out."""

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
from tests.raising import unreached

MODULES = [
    f"costs/{name}"
    for name in ("sources", "stack", "sizes", "config", "config_forms", "families", "data", "sweep")
]
FAMILIES = (
    "bart, bert, camembert, deepseek_v2, deepseek_v3, distilbert, electra, falcon, gemma, gemma2, gpt2, "
    "gpt_neox, granite, llama, mistral, mixtral, olmo, opt, phi, phi3, qwen2, qwen3, qwen3_moe, roberta, t5, "
    "vit, whisper, xlm-roberta"
)
GIVE = "give sizes instead"
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
    "nothing": (
        call(),
        "d_model: expected a whole number >= 1; received None. "
        "Hint: cost(d_model=768, heads=12, seq=4096), or cost of a config.json or a torch model",
    ),
    "no heads": (
        call(d_model=8),
        "heads: expected a whole number >= 1; received None. "
        "Hint: cost(d_model=768, heads=12, seq=4096), or cost of a config.json or a torch model",
    ),
    "zero": (call(d_model=0, heads=1), "d_model: expected a whole number >= 1; received 0."),
    "a fraction": (call(d_model=8, heads=2.5), "heads: expected a whole number >= 1; received 2.5."),
    "true": (call(d_model=8, heads=True), "heads: expected a whole number >= 1; received True."),
    "no layer": (call(d_model=8, heads=2, layers=0), "layers: expected a whole number >= 1; received 0."),
    "head width": (
        call(d_model=8, heads=2, head_dim=-1),
        "head_dim: expected a whole number >= 1; received -1.",
    ),
    "six heads": (
        call(d_model=512, heads=6),
        "heads: expected a divisor of d_model = 512; received 6. "
        "Hint: nearest that work: 4 heads (d_k = 128) and 8 heads (d_k = 64); or d_model = 510 or d_model = "
        "516 with "
        "6 heads; or give head_dim",
    ),
    "more heads than columns": (
        call(d_model=8, heads=9),
        "heads: expected a divisor of d_model = 8; received 9. "
        "Hint: nearest that work: 8 heads (d_k = 1); or d_model = 9 with 9 heads; or give head_dim",
    ),
    "groups": (
        call(d_model=512, heads=8, kv_heads=3),
        "kv_heads: expected a divisor of heads = 8; received 3. "
        "Hint: nearest that work: 2 or 4 (groups of 4 or 2 query heads)",
    ),
    "bias": (
        call(d_model=8, heads=2, bias="xy"),
        'bias: expected True, False or letters of "qkvo"; received \'xy\'. Hint: bias="qkv": all but W_O',
    ),
    "causal": (call(d_model=8, heads=2, causal=1), "causal: expected True or False; received 1."),
    "window": (
        call(d_model=8, heads=2, window=4),
        "window: expected (left, right); received 4. "
        "Hint: counts exclude the query itself, None is open: (4095, 0) sees 4096 keys, itself among them",
    ),
    "window side": (
        call(d_model=8, heads=2, window=(-1, 0)),
        "window: expected (left, right), each None or a whole number >= 0; received (-1, 0). "
        "Hint: counts exclude the query itself, None is open: (4095, 0) sees 4096 keys, itself among them",
    ),
    "latent, half": (
        call(d_model=8, heads=2, kv_rank=4),
        "rope_dim: expected a whole number >= 1; received None. "
        "Hint: latent attention has kv_rank and rope_dim (and q_rank where queries are compressed too)",
    ),
    "latent, grouped": (
        call(d_model=8, heads=2, kv_heads=1, kv_rank=4, rope_dim=1),
        "kv_heads: expected heads = 2 beside kv_rank; received 1. "
        "Hint: latent attention makes every head's keys and values from the one latent vector",
    ),
    "seq": (call(d_model=8, heads=2, seq=0), "seq: expected a whole number >= 1; received 0."),
    "batch": (call(d_model=8, heads=2, batch=0), "batch: expected a whole number >= 1; received 0."),
    "cached": (
        call(d_model=8, heads=2, seq=1, cached=-1),
        "cached: expected a whole number >= 0; received -1. Hint: tokens that are in the cache already",
    ),
    "cached without seq": (
        call(d_model=8, heads=2, cached=3),
        "seq: expected the number of new tokens, beside kv_seq or cached; received None. Hint: seq=1 "
        "decodes one token",
    ),
    "bytes": (
        call(d_model=8, heads=2, dtype_bytes=0),
        "dtype_bytes: expected bytes of one number, above 0 and at most 16; received 0. "
        "Hint: 2 for float16 and bfloat16, 4 for float32, 0.5 for 4 bits",
    ),
    "two sequences": (
        call(d_model=8, heads=2, seq=1, kv_seq=4, cached=3),
        "kv_seq: expected None beside cached; received kv_seq=4, cached=3. "
        "Hint: cached counts tokens of the same sequence; kv_seq is the length of another one",
    ),
    "offset and alignment": (
        call(d_model=8, heads=2, seq=1, query_offset=1, causal_alignment="upper_left"),
        "query_offset: expected query_offset or causal_alignment, not both; received query_offset=1 and "
        "causal_alignment='upper_left'.",
    ),
    "offset": (
        call(d_model=8, heads=2, seq=1, query_offset=1.5),
        "query_offset: expected a whole number; received 1.5. Hint: the position of query 0 among the keys",
    ),
    "ignore": (
        call(d_model=8, heads=2, ignore=("x",)),
        "ignore: expected nothing without a config; received ('x',).",
    ),
    "sizes beside a config": (
        call(BERT, heads=4),
        "heads: expected None beside a model, which says it itself; received 4. "
        "Hint: or give sizes only, without the model",
    ),
    "no model": (
        call(3),
        "model: expected a config.json (path, folder or dict) or a torch model; received int. "
        "Hint: or sizes: cost(d_model=768, heads=12)",
    ),
    "ignore beside a model": (
        call(nn.MultiheadAttention(4, 2), ignore=("x",)),
        "ignore: expected nothing beside a live model; received ('x',).",
    ),
    "causal beside a config": (
        call(BERT, causal=True),
        "causal: expected None or False, as bert is; received True.",
    ),
    "cross beside a config": (
        call(BERT, seq=1, kv_seq=2),
        "kv_seq: expected None: bert has self-attention only; received 2.",
    ),
    "two sequences, one length": (
        call(BART, seq=1),
        "kv_seq: expected the length of the sequence that cross-attention reads; received None. "
        "Hint: kv_seq=1500 beside seq=448: the encoder's length, the decoder's",
    ),
    "a cache beside cross-attention": (
        call(BART, seq=1, kv_seq=2, cached=3),
        "cached: expected 0 where a model has cross-attention; received 3. Hint: cached=0",
    ),
    "half of two": (
        call({**BART, "is_encoder_decoder": False}),
        f"config: expected is_encoder_decoder = True; received is_encoder_decoder = False. Hint: {GIVE}",
    ),
    "unknown family": (
        call({"model_type": "mamba"}),
        f"config: expected one of the families {FAMILIES}; received model_type 'mamba'. Hint: give the sizes "
        f"yourself: "
        "cost(d_model=..., heads=..., kv_heads=..., head_dim=..., layers=...)",
    ),
    "no family": (
        call({}),
        f"config: expected one of the families {FAMILIES}; received no model_type. Hint: give the sizes "
        f"yourself: "
        "cost(d_model=..., heads=..., kv_heads=..., head_dim=..., layers=...)",
    ),
    "missing field": (
        call({"model_type": "bert", "hidden_size": 8}),
        "config: expected the field num_attention_heads; received a bert config without it. "
        "Hint: transformers would fill in a default of its class; add the value to the file or the dict",
    ),
    "unknown field": (
        call({**LLAMA, "num_sinks": 4, "attention_gate": True}),
        "config: expected fields of llama that headwise knows; received unknown num_sinks, attention_gate. "
        "Hint: if it leaves the sizes of attention alone: ignore=('num_sinks', 'attention_gate')",
    ),
    "cross-attention": (
        call({**BERT, "add_cross_attention": True}),
        f"config: expected add_cross_attention = False; received add_cross_attention = True. Hint: {GIVE}",
    ),
    "pruned": (
        call({**BERT, "pruned_heads": {"0": [1]}}),
        f"config: expected pruned_heads = {{}}; received pruned_heads = {{'0': [1]}}. Hint: {GIVE}",
    ),
    "relative positions": (
        call({**BERT, "position_embedding_type": "relative_key"}),
        f"config: expected position_embedding_type 'absolute'; received 'relative_key'. Hint: {GIVE}",
    ),
    "a number in words": (
        call({**BERT, "hidden_size": "8"}),
        "hidden_size: expected a whole number >= 1; received '8'.",
    ),
    "a flag in words": (
        call({**LLAMA, "attention_bias": "yes"}),
        "attention_bias: expected true or false; received 'yes'.",
    ),
    "two-sided": (
        call(
            {
                **LLAMA,
                "model_type": "gemma",
                "num_key_value_heads": 2,
                "head_dim": 4,
                "use_bidirectional_attention": True,
            }
        ),
        "config: expected causal attention; received use_bidirectional_attention = true. Hint: give sizes",
    ),
    "layer types": (
        call({**QWEN, "layer_types": ["chunked_attention"]}),
        "config: expected layer_types of 1 entries, full_attention or sliding_attention; received "
        "['chunked_attention']. "
        f"Hint: {GIVE}",
    ),
    "no start of windows": (call(QWEN), "max_window_layers: expected a whole number >= 1; received None."),
    "no file": (
        call("/nowhere/config.json"),
        "config: expected a config.json that can be read; received /nowhere/config.json (No such file or "
        "directory).",
    ),
    "another schema": (
        lambda: Cost.from_dict({"schema": "x"}),
        "cost: expected a dict with schema 'headwise.cost'; received 'x'. Hint: pass Cost.to_dict()",
    ),
    "a newer cost": (
        lambda: Cost.from_dict({**READINGS, "version": 9}),
        "cost: expected version 1 of 'headwise.cost'; received version 9. Hint: pip install --upgrade "
        "headwise",
    ),
    "half a cost": (
        lambda: Cost.from_dict(without(READINGS, "totals")),
        "cost: expected every field of a cost, and no other; received one without 'totals'. "
        "Hint: pass Cost.to_dict()",
    ),
    "no JSON": (
        lambda: Cost.from_json("x"),
        "cost: expected JSON text; received text that is not JSON (Expecting value: line 1 column 1 (char "
        "0)).",
    ),
    "another sweep": (
        lambda: Sweep.from_dict({}),
        "sweep: expected a dict with schema 'headwise.sweep'; received None. Hint: pass Sweep.to_dict()",
    ),
    "half a sweep": (
        lambda: Sweep.from_dict(without(SWEEP, "rows")),
        "sweep: expected every field of a sweep, and no other; received one without 'rows'. "
        "Hint: pass Sweep.to_dict()",
    ),
    "sweep": (lambda: head_sweep(0, 5), "d_model: expected a whole number >= 1; received 0."),
    "no rows": (
        lambda: Sweep.from_dict({**SWEEP, "rows": []}),
        "sweep: expected rows: numbers above 0; received (). Hint: pass Sweep.to_dict()",
    ),
    "a cost without layers": (
        lambda: Cost.from_dict({**READINGS, "layers": []}),
        "cost: expected layers: at least one kind of layer; received []. Hint: pass Cost.to_dict()",
    ),
    "a cost of no layer": (
        lambda: Cost.from_dict({**READINGS, "layers": [{**READINGS["layers"][0], "count": 0}]}),
        "cost: expected layers[0].count: a whole number >= 1; received 0. Hint: pass Cost.to_dict()",
    ),
    "lengths here and not there": (
        lambda: Cost.from_dict({**READINGS, "layers": [{**READINGS["layers"][0], "work": {}}]}),
        "cost: expected layers[0].work: lengths for every kind of layer, or for none; received {}. "
        "Hint: pass Cost.to_dict()",
    ),
    "no total": (
        lambda: Cost.from_dict({**READINGS, "totals": READINGS["totals"][:1]}),
        "cost: expected totals: parameters.total among them; received ['parameters.w_q']. "
        "Hint: pass Cost.to_dict()",
    ),
    "a negative number": (
        lambda: Cost.from_dict({**READINGS, "totals": [{**READINGS["totals"][0], "value": -1}]}),
        "cost: expected parameters.w_q: a number >= 0; received -1. Hint: pass Cost.to_dict()",
    ),
    "too large": (
        call(d_model=10**16, heads=1),
        "d_model: expected at most 1,000,000,000,000,000; received 10000000000000000.",
    ),
    "exponential": (
        lambda: head_sweep(4, 5, exponential=0),
        "exponential: expected a number above 0; received 0.",
    ),
}


def caught(case):
    with pytest.raises(HeadwiseError) as error:
        case()
    return error.value


@pytest.mark.parametrize("name", CASES)
def test_the_message(name):
    case, message = CASES[name]
    assert str(caught(case)) == message


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
    cases = [case for case, _ in CASES.values()]
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
