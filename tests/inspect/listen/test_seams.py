"""Where a model is heard: in the registry alone where it can be, elsewhere only what is left."""

import pytest
import torch

from headwise.inspect.listen.seams import listen
from tests.inspect.zoo import build, inputs_of, random_ids


@pytest.mark.parametrize("kind", ["llama", "bert", "t5", "whisper", "vit", "diffllama"])
def test_models_of_the_registry(kind):
    model, passes = build(kind), []
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    inputs = {"input_ids": random_ids()} if kind == "diffllama" else inputs_of(kind)
    seams = listen(model, lambda: model(**inputs)).seams
    assert seams.registry and not seams.sdpa and not seams.softmax and len(passes) == 1
    assert id(model.config) in seams.registry or kind in ("t5", "vit")


@pytest.mark.parametrize(("kind", "sdpa"), [("bloom", False), ("mpt", False), ("falcon", True)])
def test_models_outside_of_it_keep_their_own(kind, sdpa):
    model, ids = build(kind), random_ids()
    seams = listen(model, lambda: model(input_ids=ids)).seams
    assert seams.registry == frozenset() and seams.sdpa == sdpa and seams.softmax != sdpa


def test_a_model_without_attention():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Softmax(-1))
    seams = listen(model, lambda: model(torch.ones(2, 3))).seams
    assert seams.registry == frozenset() and not seams.sdpa and not seams.softmax


def test_a_failure_of_the_model_itself_is_not_hidden():
    model = build("llama")
    with pytest.raises(IndexError):
        listen(model, lambda: model(input_ids=torch.tensor([[400]])))


def test_a_softmax_beside_the_registry_is_no_other_attention():
    def another_softmax(*_):
        torch.softmax(torch.zeros(1, 6, 12, 12), -1)

    model = build("llama")
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(another_softmax)
    heard = listen(model, lambda: model(**inputs_of("llama")))
    assert len(heard.calls) == len(model.model.layers) and not heard.seams.softmax
