"""The random-token probe, against dense weights of the same passes."""

import numpy as np
import pytest
import torch

from headwise.errors import HeadwiseError
from headwise.inspect.listen.capture import attached
from headwise.inspect.watch.probe import Probe, make_probe, run_probe, vocabulary_of
from tests.inspect.conftest import build
from tests.inspect.dense import weights_of


def test_the_ids_of_the_probe():
    probe = make_probe(range(10, 200), 1, block=5, repeats=3, sequences=4, seed=7)
    assert probe.repeated.shape == probe.control.shape == (4, 16)
    assert (probe.repeated[:, 0] == 1).all() and (probe.control[:, 0] == 1).all()
    for row, control in zip(probe.repeated[:, 1:], probe.control[:, 1:], strict=True):
        assert len(set(row[:5])) == 5 and (row == np.tile(row[:5], 3)).all()
        assert len(set(control)) == 15 and set(control) <= set(range(10, 200))
    again = make_probe(range(10, 200), 1, block=5, repeats=3, sequences=4, seed=7)
    other = make_probe(range(10, 200), 1, block=5, repeats=3, sequences=4, seed=8)
    assert (again.repeated == probe.repeated).all() and (other.repeated != probe.repeated).any()
    assert make_probe(range(200), None).repeated.shape == (4, 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block": 1}, "block: expected a whole number from 2; received 1"),
        ({"repeats": True}, "repeats: expected a whole number from 2; received True"),
        ({"sequences": 0}, "sequences: expected a whole number from 1; received 0"),
        (
            {"vocabulary": range(99)},
            "vocabulary: expected at least 100 tokens, so that none stands twice; received 99",
        ),
    ],
)
def test_numbers_that_make_no_probe_are_refused(change, message):
    with pytest.raises(HeadwiseError, match=message):
        make_probe(**{"vocabulary": range(500), "first": None, **change})


def dense_layers(model, ids):
    found = []
    with attached(model, found.append):
        model(input_ids=torch.as_tensor(ids[None]), use_cache=False)
    return [weights_of(call.query[0], call.key[0], call.scale, call.is_causal) for call in found]


def expected_of(weights, ids, causal):
    """Induction, per entry, preceding and previous of one head on one sequence: [sum, count] each."""
    n = len(ids)
    sums = {name: [0.0, 0] for name in ("induction", "entry", "preceding", "previous")}
    for i in range(n):
        seen = range(i + 1) if causal else range(n)
        copies = [j for j in range(n) if ids[j] == ids[i] and (j < i if causal else j != i)]
        after = [j + 1 for j in copies if j + 1 < n and j + 1 in seen]
        before = [j - 1 for j in copies if j >= 2 and j - 1 in seen]
        for name, keys in (("induction", after), ("preceding", before)):
            if keys:
                sums[name][0] += weights[i, keys].sum()
                sums[name][1] += 1
        for j in after:
            sums["entry"][0] += weights[i, j]
            sums["entry"][1] += 1
        if i:
            sums["previous"][0] += weights[i, i - 1]
            sums["previous"][1] += 1
    return sums


KEYS = {
    **{key: key for key in ("induction", "induction_control", "induction_null", "preceding")},
    **{key: key for key in ("previous", "previous_null")},
    "induction_entry": "entry",
}


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_against_dense_weights(kind):
    model = build(kind)
    probe = make_probe(range(3, 29), 1, block=6, repeats=3, sequences=2)
    steps = []
    found = run_probe(model, probe, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(i, 4) for i in range(1, 5)]
    assert {key: found[key] for key in ("tokens", "block", "repeats", "sequences", "seed")} == {
        "tokens": 19, "block": 6, "repeats": 3, "sequences": 2, "seed": 0,
    }  # fmt: skip
    causal = kind == "llama"
    of_repeated = [(dense_layers(model, ids), ids) for ids in probe.repeated]
    of_control = [
        (dense_layers(model, ids), as_if) for ids, as_if in zip(probe.control, probe.repeated, strict=True)
    ]
    uniform = np.tri(19) if causal else np.ones((19, 19))
    of_uniform = [(None, ids) for ids in probe.repeated]
    assert len(found["heads"]) == 18
    for entry in found["heads"]:
        sums = {}
        for kind_, runs in (("", of_repeated), ("_control", of_control), ("_null", of_uniform)):
            total = {}
            for layers, ids in runs:
                weights = (
                    uniform / uniform.sum(axis=1, keepdims=True)
                    if layers is None
                    else layers[entry["layer"]][entry["head"]]
                )
                for name, (value, count) in expected_of(weights, ids, causal).items():
                    total[name] = total.get(name, np.zeros(2)) + [value, count]
            sums |= {f"{name}{kind_}": part for name, part in total.items()}
        for key, name in KEYS.items():
            value, count = sums[name]
            assert entry[key] == pytest.approx(value / count, abs=1e-5), key
        assert entry["previous_all"] == pytest.approx(sums["previous"][0] / 38, abs=1e-5)


def test_ids_that_the_model_does_not_have_are_refused():
    ids = np.full((1, 8), 400)
    with pytest.raises(HeadwiseError, match="token ids from 0 to 28"):
        run_probe(build("bert"), Probe(ids, ids, 4, 2, 0))


class Tokenizer:
    all_special_ids, unk_token_id, bos_token_id, cls_token_id = [0, 1, 2], 2, None, 1

    def get_vocab(self):
        return {f"w{i}": i for i in range(103)}


def test_the_vocabulary_leaves_out_what_is_special_most_common_or_rare():
    ids, first = vocabulary_of(Tokenizer())
    assert (ids[0], ids[-1], len(ids), first) == (13, 92, 80, 1)
