"""Attention on torch tensors: both implementations against the specification, gradients against dense
float64 autograd."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise import AuxRequest
from headwise.compute.problem import build_problem
from headwise.reference import reference_attention
from headwise.reference.dropout import dropout_factors
from headwise.reference.statistics import dense_statistics
from headwise.torch import attention
from tests.compare import assert_output, assert_statistics, seen_by, weight_error
from tests.kernel.kernel_checks import VISIBILITY, requests
from tests.strategies import cases, random_rules
from tests.torch.dense import dense

IMPLEMENTATIONS = ("torch", "kernel")
DIFFERENTIABLE = ("attn_mask", "attn_bias", "alibi_slopes", "sinks", "head_mask")


def tensor(array):
    """A tensor on the array's own memory where torch allows that, else a copy."""
    if not isinstance(array, np.ndarray):
        return array
    if any(stride < 0 for stride in array.strides) or not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


def with_rules(case, seed, likely):
    lead, heads, n_q = case.query.shape[:-3], *case.query.shape[-3:-1]
    rules = random_rules(
        np.random.default_rng(seed), lead, heads, n_q, case.key.shape[-2], case.query.dtype, likely
    )
    return {"query_offset": 0, **case.options, **rules}


def check_forward(implementation, query, key, value, request, **options):
    """Output and statistics against the specification."""
    told = {name: option for name, option in options.items() if name not in ("rng", "dropout_p")}
    mask = told.pop("attn_mask")
    output, aux = attention(
        *map(tensor, (query, key, value)),
        **{name: tensor(option) for name, option in options.items()},
        return_aux=request,
        implementation=implementation,
    )
    expected, weights, lse = reference_attention(query, key, value, mask, **told)
    rules = {name: option for name, option in told.items() if name in VISIBILITY}
    visible, bias = seen_by(query, key, mask, **rules)
    bound = weight_error(query, key, visible, bias, options.get("scale"))
    spread = weights
    if options.get("dropout_p"):
        factors = dropout_factors(weights.shape, options["dropout_p"], options["rng"])
        expected, _, _ = reference_attention(query, key, value, mask, dropout=factors, **told)
        spread = spread * factors
    if options.get("head_mask") is not None:
        spread = spread * np.abs(np.asarray(options["head_mask"]))[..., None, None]
    assert_output(output.numpy(), expected, spread, value, bound)
    offset = options.get("query_offset", 0)
    problem = build_problem(query, key, value, return_aux=request, query_offset=offset)
    answers = dense_statistics(
        weights, visible, request, lse=lse, is_causal=options.get("is_causal", False), query_offset=offset,
        key_tokens=problem.key_tokens, query_tokens=problem.query_tokens,
    )  # fmt: skip
    found = aux.map(lambda answer: answer.numpy())
    assert_statistics(found, answers, weights, visible, bound, query.dtype)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@settings(max_examples=100)
@given(case=cases(), data=st.data(), seed=st.integers(0, 2**32 - 1), likely=st.sampled_from([0.15, 0.4, 0.8]))
def test_forward_of_random_compositions(implementation, case, data, seed, likely):
    request = requests(data.draw, case.query.shape[-2], case.key.shape[-2])
    check_forward(implementation, case.query, case.key, case.value, request, **with_rules(case, seed, likely))


@settings(max_examples=12)
@given(
    case=cases(sizes=(255, 256, 257, 511, 512, 513, 700), masks=("none", "boolean", "additive_inf")),
    data=st.data(),
    seed=st.integers(0, 2**32 - 1),
)
def test_forward_around_the_edges_of_tiles(case, data, seed):
    one = (slice(0, 1),) * (case.query.ndim - 3)
    mask = case.options["attn_mask"]
    case.query, case.key, case.value = (x[one][..., :6] for x in (case.query, case.key, case.value))
    case.options["attn_mask"] = mask[one] if mask is not None and mask.ndim > 3 else mask
    request = requests(data.draw, case.query.shape[-2], case.key.shape[-2])
    check_forward("torch", case.query, case.key, case.value, request, **with_rules(case, seed, 0.2))


def gradients(case, options, implementation, seed):
    """Gradients of a random linear function of output, lse and entropy: ours, and the dense formula's."""
    rng = np.random.default_rng(seed)
    names = ["query", "key", "value"]
    arrays = {"query": case.query, "key": case.key, "value": case.value}
    plain = {}
    for name, option in options.items():
        if name in DIFFERENTIABLE and option is not None and option.dtype != bool:
            names.append(name)
            arrays[name] = option
        else:
            plain[name] = option
    sides = []
    for side in (implementation, "dense"):
        given_ = {name: tensor(np.array(array)).requires_grad_() for name, array in arrays.items()}
        rules = {
            name: tensor(option) if side != "dense" or name == "attn_mask" else option
            for name, option in plain.items()
        }
        first, rest = [given_[name] for name in names[:3]], {name: given_[name] for name in names[3:]}
        if side == "dense":
            short = {"attn_mask": "mask", "attn_bias": "bias", "alibi_slopes": "slopes"}
            merged = {short.get(name, name): option for name, option in {**rules, **rest}.items()}
            answers = dense(*first, **merged)
        else:
            request = AuxRequest(lse=True, entropy=True)
            output, aux = attention(*first, **rules, **rest, return_aux=request, implementation=side)
            answers = (output, aux.lse, aux.entropy)
        sides.append((given_, answers))
    factors = [rng.normal(size=answer.shape) for answer in sides[0][1]]
    results = []
    for given_, answers in sides:
        total = sum(
            (torch.where(torch.isfinite(answer), answer, 0).double() * torch.from_numpy(factor)).sum()
            for answer, factor in zip(answers, factors, strict=True)
        )
        found = torch.autograd.grad(total, list(given_.values()), allow_unused=True)
        results.append(
            {
                name: np.zeros(array.shape) if grad is None else grad.double().numpy()
                for (name, array), grad in zip(given_.items(), found, strict=True)
            }
        )
    return results


def assert_gradients(found, expected, dtype, spread):
    for name, grad in expected.items():
        assert found[name].shape == grad.shape
        size = max(1.0, float(np.abs(grad).max(initial=0.0)))
        allowed = (3e-4 if dtype == np.float32 else 1e-10) * size * spread
        np.testing.assert_allclose(found[name], grad, rtol=0, atol=allowed, err_msg=name)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@settings(max_examples=100)
@given(
    case=cases(layouts=("plain", "heads_inside", "transposed")),
    seed=st.integers(0, 2**32 - 1),
    likely=st.sampled_from([0.15, 0.4, 0.8]),
)
def test_gradients_of_random_compositions(implementation, case, seed, likely):
    options = with_rules(case, seed, likely)
    found, expected = gradients(case, options, implementation, seed)
    assert_gradients(found, expected, case.query.dtype, spread=4.0)
