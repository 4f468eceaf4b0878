"""cost: its numbers against operations that are counted one by one, against known totals, and against their
formulas."""

import random
from dataclasses import asdict

import numpy as np
import pytest

from headwise.compute.problem import divisors
from headwise.costs import cost
from headwise.costs.data import Cost
from headwise.costs.quantities import quantities
from headwise.costs.sizes import make_layer, make_work
from tests.counted import Counted

CONFIGURATIONS = 200


def random_configuration(seed):
    """Keywords of ``cost`` for one small layer and its work."""
    rng = random.Random(seed)
    heads = rng.choice([1, 2, 3, 4, 6])
    made = {"heads": heads, "kv_heads": rng.choice(divisors(heads)), "batch": rng.randint(1, 2)}
    made["bias"] = rng.choice([False, True, "qkv", "o", "vo"])
    made["seq"] = rng.randint(1, 5)
    kind = rng.choice(["self", "self", "cross", "decode", "latent"])
    if rng.random() < 0.5:
        made["head_dim"], made["d_model"] = rng.randint(1, 4), rng.randint(1, 6)
    else:
        made["d_model"] = heads * rng.randint(1, 3)
    if rng.random() < 0.5:
        made["v_head_dim"] = rng.randint(1, 4)
    if rng.random() < 0.3:
        made["d_out"] = rng.randint(1, 6)
    if rng.random() < 0.5:
        made["causal"] = True
    if rng.random() < 0.4:
        made["window"] = rng.choice([(1, 0), (0, 0), (2, None), (None, 1), (1, 2)])
    if kind == "cross":
        made["kv_seq"] = rng.randint(1, 6)
        if rng.random() < 0.5:
            made["d_context"] = rng.randint(1, 6)
        if "causal" in made or "window" in made:
            made["query_offset"] = rng.randint(-3, 4)
    if kind in ("decode", "latent"):
        made["cached"] = rng.randint(0, 4)
    if kind == "latent":
        made |= {"kv_heads": heads, "kv_rank": rng.randint(1, 4), "rope_dim": rng.randint(1, 3)}
        made["q_rank"] = rng.choice([None, 2, 3])
        made["bias"] = rng.choice([False, "qko", "o"])
        made.setdefault("head_dim", 2)
    return made


def layer_and_work(made):
    works = ("seq", "kv_seq", "cached", "batch", "query_offset")
    layer = make_layer(**{n: v for n, v in made.items() if n not in works}, cross="kv_seq" in made)
    uses = layer.causal or layer.window is not None
    return layer, make_work(**{n: v for n, v in made.items() if n in works}, uses_positions=uses)


@pytest.mark.parametrize("seed", range(CONFIGURATIONS))
def test_every_operation_counted_one_by_one(seed):
    made = random_configuration(seed)
    layer, work = layer_and_work(made)
    tally = Counted(np.random.default_rng(seed), layer).run(work)
    found = cost(**made)
    done, one = tally.operations, found.layers[0]
    for name, size in tally.parameters.items():
        assert found[f"parameters.{name}"] == size, name
    assert found["parameters.total"] == sum(tally.parameters.values())
    assert one["pairs.visible"] * work.batch * layer.heads == done["pairs"]
    weights = [name for name in tally.parameters if name != "biases"]
    for name in (*weights, "scores", "values", "biases", "scale", "softmax"):
        assert found[f"flops.{name}"] == done[name], name
    assert found["flops.exponentials"] == tally.exponentials
    assert found["flops.projections"] == sum(done[name] for name in weights)
    assert found.flops == sum(done[name] for name in (*weights, "scores", "values"))
    assert found["flops.forward"] == sum(count for name, count in done.items() if name != "pairs")


def count_backward(layer, work):
    """Operations of the gradients, loop by loop; a multiply-add is 2."""
    count = dict.fromkeys(("projections", "scores", "values", "softmax", "scale"), 0)
    seen = Counted(np.random.default_rng(0), layer).visible
    for _ in range(work.batch):
        for _ in range(layer.heads):
            for r in range(work.n_q):
                for _ in seen(r + work.offset, work.n_k):
                    count["values"] += 2 * layer.v_head_dim  # dV_j += w dO_r
                    count["values"] += 2 * layer.v_head_dim  # dw = dO_r . V_j
                    count["softmax"] += 2 + 1 + 1  # sum of w dw; dw - sum; times w
                    count["scale"] += 1
                    count["scores"] += 2 * layer.head_dim  # dQ_r += ds K_j
                    count["scores"] += 2 * layer.head_dim  # dK_j += ds Q_r
        new = work.n_k if layer.cross else work.n_q
        shapes = [
            (work.n_q, layer.d_model, layer.heads * layer.head_dim),
            (new, layer.d_context, layer.kv_heads * layer.head_dim),
            (new, layer.d_context, layer.kv_heads * layer.v_head_dim),
            (work.n_q, layer.heads * layer.v_head_dim, layer.d_out),
        ]
        for rows, width_in, width_out in shapes:
            count["projections"] += 2 * rows * width_out * width_in  # gradient of the input
            count["projections"] += 2 * width_in * rows * width_out  # gradient of the weight
    return count


@pytest.mark.parametrize("seed", range(CONFIGURATIONS))
def test_the_backward_pass(seed):
    made = random_configuration(seed)
    if made.get("cached") or "kv_rank" in made:
        made = {n: v for n, v in made.items() if n not in ("cached", "kv_rank", "rope_dim", "q_rank")}
    layer, work = layer_and_work(made)
    count, found = count_backward(layer, work), cost(**made)
    for name, operations in count.items():
        assert found[f"backward.{name}"] == operations, name
    assert found["backward.matmul"] == count["projections"] + count["scores"] + count["values"]
    assert found["backward.total"] == sum(count.values()) + found["flops.biases"]
    assert found["backward.recomputed"] == found["flops.scores"]


PLAIN = [seed for seed in range(CONFIGURATIONS) if "kv_rank" not in random_configuration(seed)]


@pytest.mark.parametrize("seed", PLAIN[::3])
def test_bytes_are_those_of_the_arrays(seed):
    made = random_configuration(seed)
    layer, work = layer_and_work(made)
    found = cost(**made, dtype_bytes=4)
    one = found.layers[0]

    def size(*shape):
        return np.zeros(shape, np.float32).nbytes

    b, h, h_kv, d_k, d_v = work.batch, layer.heads, layer.kv_heads, layer.head_dim, layer.v_head_dim
    seen = Counted(np.random.default_rng(0), layer).visible
    keys = len({j for r in range(work.n_q) for j in seen(r + work.offset, work.n_k)})
    first = [min(seen(r + work.offset, work.n_k), default=None) for r in range(work.n_q)]
    q, o = size(b, h, work.n_q, d_k), size(b, h, work.n_q, d_v)
    if None not in first:  # rows that see nothing leave no gap between the keys of the others
        assert one["bytes.attention"] == q + o + size(b, h_kv, keys, d_k) + size(b, h_kv, keys, d_v)
    new = work.n_k if layer.cross else work.n_q
    made_kv = size(b, h_kv, new, d_k) + size(b, h_kv, new, d_v)
    inputs = size(b, work.n_q, layer.d_model) + (size(b, work.n_k, layer.d_context) if layer.cross else 0)
    assert one["bytes.projections"] == inputs + q + made_kv + o + size(b, work.n_q, layer.d_out)
    assert one["bytes.weights"] == 4 * one["parameters.total"]
    assert one["bytes.grid"] == 4 * size(b, h, work.n_q, work.n_k)
    assert one["bytes.eager"] == one["bytes.streaming"] + one["bytes.grid"]
    kept = work.n_k if not layer.window or layer.window[0] is None else min(work.n_k, layer.window[0] + 1)
    assert one["cache.total"] == size(b, h_kv, kept, d_k) + size(b, h_kv, kept, d_v)
    assert one["activations.eager"] == size(b, h, work.n_q, work.n_k)
    assert one["activations.streaming"] == size(b, h, work.n_q)
    assert one["activations.shared"] == q + o + made_kv
    assert found["intensity.streaming"] == found.flops / found["bytes.streaming"]
    assert found["intensity.eager"] == found.flops / found["bytes.eager"]


def test_bytes_of_latent_attention():
    """Two new tokens and three cached: latents of two are written, those of all five are read and
    expanded."""
    found = cost(
        d_model=6,
        heads=2,
        head_dim=3,
        v_head_dim=5,
        kv_rank=4,
        rope_dim=1,
        q_rank=7,
        seq=2,
        cached=3,
        dtype_bytes=1,
    ).layers[0]
    x, latents, read, query_latents = 2 * 6, 2 * (4 + 1), 5 * 4, 2 * (2 * 7)
    q, keys_and_values, o, y = 2 * 2 * 4, 5 * 2 * (4 + 5), 2 * 2 * 5, 2 * 6
    assert found["bytes.projections"] == x + latents + read + query_latents + q + keys_and_values + o + y
    assert found["bytes.attention"] == q + keys_and_values + o
    assert found["cache.total"] == 5 * (4 + 1)
    assert found["activations.shared"] == q + keys_and_values + o


@pytest.mark.parametrize("seed", range(CONFIGURATIONS))
def test_formulas_compute_their_numbers(seed):
    made = random_configuration(seed)
    found = cost(**made, layers=1 + seed % 3, cache_bytes=0.5 if seed % 2 else None)
    for quantity in (*found.layers[0].quantities, *found.totals):
        assert quantity.formula and quantity.numbers and quantity.value >= 0
        if "Σ" not in quantity.numbers:
            assert eval(quantity.numbers.replace("·", "*").replace("−", "-")) == quantity.value, quantity


def test_letters_and_numbers_say_the_same():
    found = cost(d_model=6, heads=4, kv_heads=2, head_dim=3, v_head_dim=5, seq=7, batch=2, bias=True)
    letters = {
        "B": 2,
        "n": 7,
        "d_model": 6,
        "h": 4,
        "h_kv": 2,
        "d_k": 3,
        "d_v": 5,
        "b": 2,
        "b_lse": 4,
        "L": 1,
    }
    for quantity in found.layers[0].quantities:
        letters[quantity.key.partition(".")[2]] = quantity.value
        known = {
            "W_Q": letters.get("w_q"),
            "W_K": letters.get("w_k"),
            "W_V": letters.get("w_v"),
            "W_O": letters.get("w_o"),
        }
        if quantity.key == "pairs.visible":
            letters["pairs"] = quantity.value
        if (
            quantity.key.startswith("flops.w_")
            or quantity.key.startswith("parameters.w_")
            or quantity.key
            in (
                "flops.scores",
                "flops.values",
                "flops.softmax",
                "cache.token",
                "activations.streaming",
            )
        ):
            assert eval(quantity.formula.replace("·", "*"), {}, letters) == quantity.value
        elif quantity.key == "parameters.without_biases":
            assert eval(quantity.formula, {}, known) == quantity.value


# ---- totals that are known ----


def test_512_with_8_heads():
    found = cost(d_model=512, heads=8)
    assert found.parameters == found["parameters.without_biases"] == 1_048_576
    assert found.layers[0]["parameters.head_q"] == 32_768
    assert sum(found[f"parameters.w_{letter}"] for letter in "qkv") == 786_432
    assert found["parameters.w_o"] == 262_144
    assert cost(d_model=512, heads=8, bias=True).parameters == 1_048_576 + 2048


def test_bert_base_and_gpt2():
    assert cost(d_model=768, heads=12, layers=12, bias=True).parameters == 28_348_416


def test_llama_3_8b_cache():
    found = cost(d_model=4096, heads=32, kv_heads=8, layers=32, dtype_bytes=2)
    assert found.kv_bytes_per_token == 131_072
    assert found.layers[0]["cache.token"] == 4096
    whole = cost(d_model=4096, heads=32, kv_heads=8, layers=32, seq=1, cached=8191, batch=2)
    assert whole["cache.total"] == 131_072 * 8192 * 2


def test_an_explicit_head_width_is_used():
    """Qwen3-4B: heads of 128 where hidden / heads is 80."""
    found = cost(d_model=2560, heads=32, kv_heads=8, head_dim=128, layers=36)
    assert found.kv_bytes_per_token == 2 * 36 * 8 * 128 * 2


def test_latent_cache():
    """DeepSeek-V3: 512 + 64 numbers a token and layer, not 2 x 128 x 128."""
    found = cost(
        d_model=7168,
        heads=128,
        head_dim=128,
        v_head_dim=128,
        kv_rank=512,
        rope_dim=64,
        q_rank=1536,
        layers=61,
    )
    assert found.kv_bytes_per_token == 61 * 576 * 2
    assert found.layers[0]["parameters.total"] == (
        7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    )


def test_sdpa_of_12_heads():
    """What torch's counter should find for q, k, v of (1, 12, 64, 64): 12,582,912."""
    found = cost(d_model=768, heads=12, seq=64)
    assert found["flops.scores"] + found["flops.values"] == 12_582_912


def test_causal_counts_the_triangle():
    full, causal = (cost(d_model=8, heads=2, seq=10, causal=causal) for causal in (False, True))
    assert full.layers[0]["pairs.visible"] == 100 and causal.layers[0]["pairs.visible"] == 55
    assert causal["flops.projections"] == full["flops.projections"]
    assert causal["flops.scores"] / full["flops.scores"] == 0.55


def test_decoding_one_token():
    found = cost(d_model=8, heads=2, seq=1, cached=99, causal=True)
    assert found.layers[0]["pairs.visible"] == 100
    assert found["flops.projections"] == 2 * 4 * 64
    with pytest.raises(KeyError, match="no quantity 'backward.total'"):
        found["backward.total"]


def test_twice_the_length_costs_more_than_twice():
    one, two = (cost(d_model=64, heads=4, seq=n).flops for n in (128, 256))
    assert two / one > 2


def test_products_do_not_depend_on_the_heads_but_exponentials_do():
    found = {heads: cost(d_model=64, heads=heads, seq=32) for heads in divisors(64)}
    assert len({c.flops for c in found.values()}) == 1
    assert [found[h]["flops.exponentials"] for h in (1, 8, 64)] == [1024, 8 * 1024, 64 * 1024]


def test_without_a_length():
    found = cost(d_model=512, heads=8)
    assert found.work is None and found.layers[0].work is None
    with pytest.raises(KeyError, match=r"no quantity 'flops.matmul'; .*\(seq=\.\.\. adds FLOPs and bytes\)"):
        assert found.flops


def test_layers_multiply():
    one, four = (cost(d_model=8, heads=2, seq=5, layers=layers) for layers in (1, 4))
    for quantity in one.totals:
        times = 1 if quantity.key.startswith("intensity") else 4
        assert four[quantity.key] == times * quantity.value, quantity.key
    assert four.layers[0].quantities == one.layers[0].quantities


def test_bytes_of_a_number():
    half, full = (cost(d_model=8, heads=2, seq=5, dtype_bytes=size) for size in (2, 4))
    assert full["bytes.streaming"] == 2 * half["bytes.streaming"]
    assert full["activations.streaming"] == half["activations.streaming"], "log-sum-exp is float32 in both"
    assert (
        cost(d_model=8, heads=2, seq=5, dtype_bytes=8)["activations.streaming"]
        == 2 * half["activations.streaming"]
    )
    assert cost(d_model=8, heads=2, cache_bytes=1).kv_bytes_per_token == 16
    assert cost(d_model=8, heads=2, cache_bytes=0.5).kv_bytes_per_token == 8


def test_a_cost_survives_json():
    for made in map(random_configuration, range(20)):
        found = cost(**made)
        assert Cost.from_json(found.to_json()) == found
    assert Cost.from_json(cost(d_model=8, heads=2).to_json()) == cost(d_model=8, heads=2)


def test_a_cost_says_what_it_is():
    found = cost(d_model=768, heads=12, kv_heads=4, layers=3)
    assert repr(found) == (
        "<Cost of 3 attention layers: d_model 768, 12 heads of width 64, 4 key/value heads: 4,718,592 "
        "parameters; "
        "print it for every number>"
    )


def test_quantities_of_a_layer_are_what_cost_shows():
    layer, work = make_layer(d_model=8, heads=2), make_work(seq=3)
    found = cost(d_model=8, heads=2, seq=3)
    assert tuple(quantities(layer, work)) == found.layers[0].quantities
    assert found.layers[0].sizes["latent"] is None and found.work == asdict(work)
