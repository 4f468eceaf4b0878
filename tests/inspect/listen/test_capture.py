"""Listening: same output, same model afterwards, views and no copies; what cannot be heard is refused."""

import copy

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect.listen import registry
from headwise.inspect.listen.attachment import Seams
from headwise.inspect.listen.capture import attached
from headwise.inspect.listen.registry import KEY
from tests.inspect.zoo import build


def calls_of(model, ids, **inputs):
    calls = []
    with attached(model, calls.append):
        output = model(input_ids=ids, use_cache=False, **inputs)
    return output, calls


def state_of(model):
    """All that an inspection must leave alone."""
    modules = dict(model.named_modules())
    configs = {name: module.config for name, module in modules.items() if hasattr(module, "config")}
    hooks = torch.nn.modules.module
    return (
        copy.deepcopy(model.config.to_dict()) if hasattr(model, "config") else None,
        {name: copy.deepcopy(config.__dict__) for name, config in configs.items()},
        [
            (name, module.training, len(module._forward_hooks), len(module._forward_pre_hooks))
            for name, module in modules.items()
        ],
        (len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)),
        torch.backends.mha.get_fastpath_enabled(),
        torch.overrides._get_current_function_mode(),
        torch.is_grad_enabled(),
    )


def test_output_keeps_every_bit(model, ids):
    with torch.no_grad():
        before = model(input_ids=ids, use_cache=False)[0]
    output, _ = calls_of(model, ids)
    assert torch.equal(output[0], before)


NAMES = {
    "bert": "encoder.layer.{}.attention.self",
    "llama": "model.layers.{}.self_attn",
    "gpt2": "transformer.h.{}.attn",
}


def test_layers_have_the_names_of_their_modules(kind, model, ids):
    _, calls = calls_of(model, ids)
    assert [call.name for call in calls] == [NAMES[kind].format(layer) for layer in range(3)]


def test_nothing_is_copied(bert, ids):
    made = {"query": [], "key": [], "value": []}
    for layer in bert.encoder.layer:
        for name, found in made.items():
            getattr(layer.attention.self, name).register_forward_hook(
                lambda _, args, output, found=found: found.append(output.data_ptr())
            )
    _, calls = calls_of(bert, ids)
    for name, places in made.items():
        assert [getattr(call, name).data_ptr() for call in calls] == places
    assert not any(call.query.requires_grad or call.output.requires_grad for call in calls)


def test_a_second_pass_continues_the_layers_and_a_second_model_is_heard_apart(bert, ids):
    calls, others, other = [], [], build("llama")
    with attached(bert, calls.append), attached(other, others.append):
        bert(input_ids=ids)
        other(input_ids=ids, use_cache=False)
        bert(input_ids=ids[:, :4])
    assert [call.layer for call in calls] == [0, 1, 2] * 2 and [call.layer for call in others] == [0, 1, 2]
    assert [call.first_row for call in calls] == [0] * 3 + [19] * 3


@pytest.mark.parametrize("seams", [Seams(registry=None), Seams(registry=None, sdpa=True, softmax=True)])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_model_is_left_as_it_was_after_an_exception(model, ids, error, seams):
    with torch.no_grad():
        output = model(input_ids=ids, use_cache=False)[0]
    before = state_of(model)

    def fail(_):
        raise error

    with pytest.raises(error), attached(model, fail, seams=seams):
        assert model.config._attn_implementation == KEY
        model(input_ids=ids, use_cache=False)
    assert state_of(model) == before
    assert registry._BY_MODULE == {}  # and nothing of it is held
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids, use_cache=False)[0], output)


def test_a_model_is_not_attached_twice(bert):
    message = "being inspected already"
    with attached(bert, print), pytest.raises(CapabilityError, match=message), attached(bert, print):
        pass
    assert bert.config._attn_implementation == "sdpa"
    with attached(bert, print):  # the refusal left nothing behind
        pass


def test_an_unknown_way_to_compute_is_refused(bert):
    with (
        pytest.raises(HeadwiseError, match='compute: expected "torch" or "kernel"; received \'gpu\''),
        attached(bert, print, compute="gpu"),
    ):
        pass


def test_tensors_that_are_not_numbers_on_the_cpu_are_refused(bert, ids):
    with pytest.raises(CapabilityError, match=r"self on meta\. Hint: model\.to\('cpu'\)"):
        calls_of(bert.to("meta"), ids.to("meta"))


class Twice(torch.nn.Module):
    """Calls attention twice: by ``change``, with what became of query and key in between."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        batch, n, _ = x.shape
        query, key = x + 0.0, x * 0.5

        def attend(*tensors, **options):
            split = (t.view(batch, n, 2, 8).transpose(1, 2) for t in tensors)
            return scaled_dot_product_attention(*split, **options)

        first = attend(query, key, x)
        query, key, options = self.change(query, key)
        return first - attend(query, key, -x, **options)


@pytest.mark.parametrize(
    ("change", "many"),
    [
        (lambda query, key: (query, key, {}), 1),  # other views, which do not outlive the call
        (lambda query, key: (query.mul_(2.0), key, {}), 2),  # the same place, other numbers
        (lambda query, key: (query, key, {"is_causal": True}), 2),
        (lambda query, key: (query, key, {"scale": 0.1}), 2),
        (lambda query, key: (query, key, {"attn_mask": torch.ones(6, 6).tril().bool()}), 2),
        (lambda query, key: (query.flip(1), key, {}), 2),
    ],
)
def test_a_second_call_is_shown_unless_its_weights_are_the_same(change, many):
    model, calls = Twice(change), []
    x = torch.randn(1, 6, 16, generator=torch.Generator().manual_seed(0))
    for mode in (torch.no_grad, torch.inference_mode):
        calls.clear()
        with attached(model, calls.append, seams=Seams(sdpa=True)), mode():
            model(x)
        if mode is torch.no_grad or many == 1:  # tensors of inference mode count no writing
            assert len(calls) == many


def test_a_freed_tensors_address_says_nothing():
    class Fresh(torch.nn.Module):
        def forward(self, x):
            found = []
            for factor in (1.0, 2.0, 3.0):
                query, key = ((x * factor).view(1, 2, 64, 64) for _ in range(2))
                places.append((query.data_ptr(), key.data_ptr()))
                found.append(scaled_dot_product_attention(query, key, query))
                del query, key
            return sum(found)

    model, places, factors = Fresh(), [], []
    with attached(model, lambda call: factors.append(float(call.query.max())), seams=Seams(sdpa=True)):
        model(torch.ones(8192))
    assert factors == [1.0, 2.0, 3.0]
