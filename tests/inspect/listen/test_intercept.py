"""The second and third seam: models outside the registry, against their own dense weights."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from headwise.errors import CapabilityError
from headwise.inspect.listen.attachment import Seams
from headwise.inspect.listen.capture import attached
from headwise.inspect.listen.seams import listen
from headwise.inspect.run import inspect_heads
from tests.inspect.compare import assert_scene
from tests.inspect.dense import Scene
from tests.inspect.listen.test_capture import state_of
from tests.inspect.zoo import build, eager_weights, random_ids, visible_of_call, weights_of_call

EVERYWHERE = Seams(registry=frozenset(), sdpa=True, softmax=True)


def heard(model, *args, compute="torch", **inputs):
    seams = listen(model, lambda: model(*args, **inputs)).seams
    calls = []
    with attached(model, calls.append, compute=compute, seams=seams):
        output = model(*args, **inputs)
    return calls, output, seams


@pytest.mark.parametrize("kind", ["falcon", "bloom", "mpt", "deberta"])
@pytest.mark.parametrize("compute", ["torch", "kernel"])
def test_models_with_an_attention_of_their_own(kind, compute):
    inputs = {"input_ids": random_ids()}
    dense, _ = eager_weights(kind, inputs)
    model = build(kind)
    inputs |= {} if kind == "deberta" else {"use_cache": False}
    with torch.no_grad():
        expected = model(**inputs)[0]
    before = state_of(model)
    calls, output, seams = heard(model, **inputs, compute=compute)
    assert state_of(model) == before
    assert seams.registry == frozenset() and seams.sdpa == (kind == "falcon") and seams.softmax != seams.sdpa
    assert [call.is_causal for call in calls] == [kind != "deberta"] * len(dense)
    for call, weights in zip(calls, dense, strict=True):
        assert np.abs(weights_of_call(call) - weights.numpy()).max() < 1e-5
    assert (output[0] - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.parametrize("kind", ["falcon", "bloom"])
def test_every_score_of_models_outside_the_registry(kind):
    ids = random_ids()
    dense, _ = eager_weights(kind, {"input_ids": ids}, build(kind, "eager").double())
    report = inspect_heads(build(kind).double(), ids, special=[0])
    causal = np.tri(ids.shape[1], dtype=bool)
    for layer, weights in zip(report.layers, dense, strict=True):
        for head, found in zip(layer["heads"], weights[0].double().numpy(), strict=True):
            scene = Scene(causal, ids[0].numpy(), special=[0], is_causal=True)
            assert_scene(head, found, scene, 1e-5, floor=1e-6)
    assert ("The model computes its attention weights itself" in " ".join(report.notes)) == (kind == "bloom")


class Own(nn.Module):
    """Plain torch code that calls torch's attention."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.project = nn.Embedding(29, 32), nn.Linear(32, 96)

    def forward(self, input_ids):
        parts = self.project(self.embed(input_ids)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2)


def test_plain_torch_code():
    model, ids = Own().eval(), random_ids()
    for compute in ("torch", "kernel"):
        report = inspect_heads(model, ids, compute=compute, name="mine")
        assert report.model["causal"] and report.model["heads"] == 4 and report.layers[0]["name"] == "Own"
        assert report.check["max_abs_difference"] < 1e-6 and report.check["causal_leak"] < 1e-6
        assert report.tokens == [str(token) for token in ids[0].tolist()]
    calls, output, _ = heard(model, ids)
    assert (
        np.abs(weights_of_call(calls[0]) @ calls[0].value.double().numpy() - calls[0].output.numpy()).max()
        < 1e-6
    )
    assert inspect_heads(model, {"input_ids": ids}).layers == inspect_heads(model, (ids,)).layers


def test_torch_modules():
    torch.manual_seed(0)
    model = nn.Transformer(32, 4, 2, 2, 64, batch_first=True).eval()
    source, target = torch.randn(1, 7, 32), torch.randn(1, 7, 32)
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    with torch.no_grad():
        expected = model(source, target, tgt_mask=mask)
    calls, output, seams = heard(model, source, target, tgt_mask=mask)
    assert torch.allclose(output, expected, atol=1e-5) and seams.sdpa and not seams.softmax
    assert [(call.kind, call.is_causal) for call in calls] == [("self", False)] * 2 + [
        ("self", True),
        ("cross", False),
    ] * 2
    assert calls[3].name == "decoder.layers.0.multihead_attn"


def test_multi_head_attention_that_gives_its_weights():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x = torch.randn(2, 7, 32)
    with torch.no_grad():
        _, dense = layer(x, x, x, average_attn_weights=False)
    calls, (_, mean), seams = heard(layer, x, x, x)
    assert seams.softmax and torch.equal(mean, dense.mean(1))
    assert np.abs(weights_of_call(calls[0]) - dense.numpy()).max() < 1e-6


def test_a_softmax_elsewhere_is_no_attention():
    class Gate(nn.Module):
        def forward(self, x):
            return x.softmax(-1)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = Gate()

        def forward(self, x):
            return torch.softmax(x, 1) + torch.softmax(x[0, 0, 0], -1)

    x, calls = torch.randn(1, 2, 5, 5), []
    for model in (Gate(), Attention()):
        with attached(model, calls.append, seams=EVERYWHERE):
            model(x)
    assert calls == []


def test_scores_of_batch_and_heads_together():
    class Attention(nn.Module):
        num_heads = 3

        def forward(self, scores):
            return nn.functional.softmax(scores, dim=-1)

    scores, calls = torch.randn(6, 5, 5), []
    scores[:, 0, 1:] = torch.finfo(torch.float32).min
    with attached(Attention(), calls.append, seams=EVERYWHERE) as attachment:
        attachment.model(scores)
        with pytest.raises(CapabilityError, match=r"Attention with scores \(7, 5, 5\) and 3 heads"):
            attachment.model(torch.randn(7, 5, 5))
    assert np.abs(weights_of_call(calls[0]) - scores.softmax(-1).view(2, 3, 5, 5).numpy()).max() < 1e-6
    assert visible_of_call(calls[0])[:, :, 0].sum() == 6  # the lowest number of a type hides


def test_dropout_is_refused():
    class Leaky(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)

    with (
        pytest.raises(CapabilityError, match=r"Leaky with dropout 0\.1"),
        attached(Leaky(), print, seams=EVERYWHERE) as attachment,
    ):
        attachment.model(torch.randn(1, 2, 5, 4))


def test_a_model_in_another_thread_is_not_heard_and_hides_nothing():
    class Waiting(nn.Module):
        def forward(self, x):
            started.set()
            assert go_on.wait(60)
            return nn.functional.scaled_dot_product_attention(x, x, x)

    started, go_on, waiting = threading.Event(), threading.Event(), Waiting()
    other = threading.Thread(target=waiting, args=(torch.ones(1, 2, 3, 4),))

    def meanwhile(done, many):
        if done == 1:
            other.start()
            assert started.wait(60)
        if done == many:
            go_on.set()
            other.join()

    alone = inspect_heads(build("bloom"), random_ids())
    assert inspect_heads(build("bloom"), random_ids(), progress=meanwhile) == alone


def test_who_listens_in_another_thread_waits():
    one, two, heard = nn.MultiheadAttention(8, 2).eval(), nn.MultiheadAttention(8, 2).eval(), []
    x = torch.ones(5, 1, 8)
    before = state_of(one), nn.functional.has_torch_function

    def listen_too():
        with attached(two, heard.append, seams=Seams(sdpa=True)):
            two(x, x, x, need_weights=False)

    other = threading.Thread(target=listen_too)
    with attached(one, heard.append, seams=Seams(sdpa=True)):
        other.start()
        one(x, x, x, need_weights=False)
        other.join(0.2)
        assert other.is_alive() and len(heard) == 1
    other.join()
    assert len(heard) == 2 and (state_of(one), nn.functional.has_torch_function) == before
