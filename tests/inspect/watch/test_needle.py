"""Retrieval: the strongest key in the needle, at the token that is then written, against dense weights."""

import numpy as np
import pytest
import torch

from headwise.errors import HeadwiseError
from headwise.inspect import inspect_heads
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.text import Text
from headwise.inspect.score.measure import request_for
from headwise.inspect.watch.needle import Retrieval
from tests.inspect.dense import logits, softmax
from tests.inspect.zoo import VOCABULARY, build, eager_weights, inputs_of, random_ids

NEW = {"max_new_tokens": 9, "min_new_tokens": 9}


def expected_of(weights, equal, prompt, written, span, key_ids):
    """Copied share, and that with every step counted, of one head and of keys picked at random."""
    places, hits, missed = set(), 0, dict.fromkeys(range(*span), 1.0)
    chance = 0.0
    for step, token in enumerate(written):
        row = prompt - 1 + step
        best = int(weights[row].argmax())
        if best in missed and key_ids[best] == token:
            places.add(best)
            hits += 1
        for place in missed:
            if key_ids[place] == token:
                missed[place] *= 1 - equal[row, place]
                chance += equal[row, place]
    length = span[1] - span[0]
    at_random = sum(1 - share for share in missed.values()) / length
    return (len(places) / length, at_random), (min(1, hits / length), min(1, chance / length))


def test_a_call_made_by_hand():
    """One head copies places 2, 3 and 3 again of the needle, one looks at the sink, one at wrong places."""
    n, prompt = 9, 6
    ids = np.array([9, 4, 5, 6, 4, 1, 5, 6, 6])
    written = np.array([5, 6, 6, 6])  # after rows 5 … 8; the last one was never read
    targets = np.zeros((3, n), int)
    targets[0, 5:], targets[2, 5:] = [2, 3, 3, 1], [3, 2, 1, 7]
    key = np.eye(n)[None].repeat(3, axis=0)
    query = 9.0 * np.eye(n)[targets]
    call = AttentionCall(
        layer=0, name="a", query=query[None], key=key[None], options={"is_causal": True, "query_offset": 0}
    )
    text = Text(n, ids)
    aux = call.statistics(request_for(call, text, text, top_k=0, block=0))
    found, null = Retrieval((1, 4), (prompt, written), text, text).watch(call, text, text, aux)
    copied, counted = (found.sums[name] for name in ("retrieval", "retrieval_counted"))
    assert [copied.value(head) for head in range(3)] == pytest.approx([2 / 3, 0, 0])
    assert [counted.value(head) for head in range(3)] == pytest.approx([1, 0, 0])
    weights = softmax(logits(query, key, 9**-0.5), np.tri(n, dtype=bool))
    equal = np.tri(n) / np.tri(n).sum(axis=1, keepdims=True)
    (value, chance), (count, count_chance) = expected_of(weights[0], equal, prompt, written, (1, 4), ids)
    assert (value, count) == (2 / 3, 1)
    assert null.sums["retrieval"].value(0) == pytest.approx(chance, abs=1e-12)
    assert null.sums["retrieval_counted"].value(0) == pytest.approx(count_chance, abs=1e-12)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "bart"])
def test_models_that_write(kind):
    model, two, span = build(kind), kind == "bart", (2, 15)
    for seed in range(30):  # until the model writes a token of the needle
        inputs = {
            "input_ids": torch.tensor([np.random.default_rng(seed).permutation(VOCABULARY)[:19].tolist()])
        }
        with torch.no_grad():
            whole = model.generate(**inputs, do_sample=False, num_beams=1, **NEW)[0]
        prompt = 1 if two else inputs["input_ids"].shape[1]
        written, key_ids = whole[prompt:].tolist(), inputs["input_ids"][0].tolist()
        if set(written) & set(key_ids[slice(*span)]):
            break
    report = inspect_heads(model, inputs, generate=NEW, needle=span)
    name = "decoder_input_ids" if two else "input_ids"
    dense, _ = eager_weights(kind, {**inputs, name: whole[None, :-1]})
    layers = [layer for layer in report.layers if layer["kind"] == ("cross" if two else "self")]
    layers = [(dense[layer["layer"]][0].double().numpy(), layer) for layer in layers]
    found = []
    for weights, layer in layers:
        seen = weights.sum(axis=0) > 0
        equal = seen / seen.sum(axis=-1, keepdims=True)
        for head in layer["heads"]:
            expected = expected_of(weights[head["head"]], equal, prompt, written, span, key_ids)
            for key, (value, null) in zip(("retrieval", "retrieval_counted"), expected, strict=True):
                line = head["scores"][key]
                assert line["value"] == pytest.approx(value, abs=1e-9), (layer["layer"], head["head"], key)
                assert line["null"] == pytest.approx(null, abs=1e-6)
                assert line["rows"] == 9
            found.append(head["scores"]["retrieval"]["value"])
    needle = report.needle
    assert (needle["start"], needle["stop"], needle["steps"]) == (*span, 9)
    assert needle["possible"] == sum(token in key_ids[slice(*span)] for token in written) > 0
    assert needle["heads"] == len(found) and needle["above"] == sum(value > 0.1 for value in found)
    assert [entry["value"] for entry in needle["best"]] == sorted(filter(None, found), reverse=True)[:10]
    others = [layer for layer in report.layers if layer["layer"] not in {at["layer"] for _, at in layers}]
    assert all("retrieval" not in head["scores"] for layer in others for head in layer["heads"])
    view = " ".join(str(report).split())
    assert f"Heads that copy the needle (tokens 2–14 of the {'source' if two else 'text'})" in view


def test_what_is_no_needle_is_refused():
    def refused(message, model, inputs, **options):
        with pytest.raises(HeadwiseError, match=message):
            inspect_heads(model, inputs, **options)

    llama, ids = build("llama"), random_ids()
    refused("needle: expected generate= beside it.*Hint: generate=32", llama, ids, needle=(2, 5))
    for needle in [(5, 5), (3, 20), (-1, 4), (2,), "ab", (0.5, 2), 3, [(1, 2)], (True, False), ((1, 2), 3)]:
        message = r"needle: expected \(start, stop\) with 0 <= start < stop <= 19, the tokens that the model"
        refused(message, llama, ids, needle=needle, generate=3)
    embedded = {"inputs_embeds": llama.get_input_embeddings()(ids).detach()}
    refused("needle: expected a text with token ids", llama, embedded, needle=(2, 5), generate=3)
    picture = inputs_of("vit")
    refused("needle: expected None for a model without token ids", build("vit"), picture, needle=(2, 5))
