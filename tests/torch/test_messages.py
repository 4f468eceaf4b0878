"""What attention on torch tensors refuses, word for word, in golden/torch_messages.txt; the messages that it
shares with the core are tested there."""

import warnings

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

from headwise import AuxRequest, HeadwiseError
from headwise.torch import attention
from tests.raising import golden, unreached

Q, K, V = torch.zeros(2, 6, 5, 8), torch.zeros(2, 3, 7, 8), torch.zeros(2, 3, 7, 4)
META = Q.to("meta")
ZERO_ONE = torch.eye(7)[:5]


def call(query=Q, key=K, value=V, *rest, **options):
    return lambda: attention(query, key, value, *rest, **options)


def with_tangent():
    """Nothing asks for gradients, so that nothing but the tangent could be lost."""
    with warnings.catch_warnings():
        # Torch scripts its own forward derivatives here, and warns itself of that.
        warnings.filterwarnings("ignore", message=".*torch.jit", category=DeprecationWarning)
        with forward_ad.dual_level():
            attention(Q, K, V)  # a level alone is no harm
            attention(Q, K, V, sinks=forward_ad.make_dual(torch.zeros(6), torch.ones(6)))


CASES = {
    "NumPy": call(Q.numpy()),
    "nothing": call(Q, K, None),
    "NumPy mask": call(Q, K, V, np.zeros((5, 7), bool)),
    "list as bias": call(attn_bias=[0.0]),
    "sparse": call(Q.to_sparse()),
    "integers": call(Q.long(), K.long(), V.long()),
    "mixed": call(Q, K.double(), V),
    "mixed halves": call(Q.half(), K.half(), V.bfloat16()),
    "devices": call(Q, K, V, torch.zeros(5, 7, device="meta")),
    "mask dtype": call(Q, K, V, torch.zeros(5, 7).double()),
    "half mask": call(Q.half(), K.half(), V.half(), torch.zeros(5, 7)),
    "bias dtype": call(attn_bias=torch.zeros(5, 7).double()),
    "zeros and ones": call(Q.half(), K.half(), V.half(), ZERO_ONE.half()),
    "scale": call(scale="1"),
    "scale tensor": call(scale=torch.ones(2)),
    "softcap": call(softcap="2"),
    "alignment": call(causal_alignment=1),
    "implementation": call(implementation="flash"),
    "kernel elsewhere": call(META, K.to("meta"), V.to("meta"), implementation="kernel"),
    "transform": lambda: torch.func.grad(lambda x: attention(x, x, x).sum())(torch.ones(2, 3, 4)),
    "forward mode": with_tangent,
    "a seed without a number": call(dropout_p=0.5, rng=torch.zeros((), dtype=torch.long, device="meta")),
    "request": call(return_aux="lse"),
    "offset": call(query_offset="2"),
    "rng": call(dropout_p=0.1, rng="0"),
    "rng below 0": call(dropout_p=0.1, rng=-1),
    "rng tensor": call(dropout_p=0.1, rng=torch.zeros(2)),
}


def caught(case):
    with pytest.raises(HeadwiseError) as error:
        case()
    return error.value


EXPECTED = golden("torch_messages.txt")


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    error = caught(CASES[name])
    assert f"{type(error).__name__}\n{error}" == EXPECTED[name]


def test_no_golden_message_is_left_over():
    assert set(EXPECTED) == set(CASES)


SHARED = {
    "shape": (call(Q, K[..., :4], V), "key: expected width d_k = 8"),
    "heads": (call(head_mask=[1.0]), "head_mask: expected one number per query head"),
    "rng missing": (call(dropout_p=0.1), "rng: expected a seed"),
    "both readings": (call(is_causal=True), "is_causal: expected causal_alignment= or query_offset="),
    "window": (call(window_size=3, query_offset=0), "window_size: expected a pair"),
    "lengths": (call(kv_lengths=[8, 1]), "kv_lengths: expected whole numbers between 0 and 7"),
    "slopes": (call(alibi_slopes=[0.1], query_offset=0), "alibi_slopes: expected one number per query head"),
    "sinks": (call(sinks=torch.zeros(4)), "sinks: expected one logit per query head"),
    "infinite sinks": (call(sinks=[torch.inf] * 6), "sinks: expected finite numbers"),
    "segments": (call(segment_ids=[0, 1]), "segment_ids: expected a pair"),
    "mask shape": (call(Q, K, V, torch.zeros(4, 7, dtype=torch.bool)), "attn_mask: expected a shape"),
    "integer mask": (call(Q, K, V, torch.zeros(5, 7, dtype=torch.int32)), "attn_mask: expected booleans"),
    "seen zeros and ones": (call(Q, K, V, ZERO_ONE), "attn_mask: expected booleans"),
    "not served": (call(block_table=torch.zeros(2)), "block_table: expected None"),
    "flag": (call(is_causal=1), "is_causal: expected True or False"),
    "dropout": (call(dropout_p=2.0), "dropout_p: expected a probability"),
    "threads": (call(num_threads=0), "num_threads: expected None or a whole number"),
    "huge scale": (call(scale=1e300), "scale: expected None or a finite number"),
    "softcap 0": (call(softcap=0), "softcap: expected None or a finite number > 0"),
}


@pytest.mark.parametrize("implementation", ["torch", "kernel"])
@pytest.mark.parametrize("name", SHARED)
def test_messages_of_the_core_come_through(name, implementation):
    case, start = SHARED[name]
    inner = case.__closure__
    options = next(cell.cell_contents for cell in inner if isinstance(cell.cell_contents, dict))
    options["implementation"] = implementation
    assert str(caught(case)).startswith(start)


def test_every_place_that_raises_is_reached():
    operator = [f"torch/operator/{name}" for name in ("call", "packing", "dispatch")]
    assert unreached(["torch/functional", *operator, "torch/tiled"], CASES.values()) == []


@pytest.mark.parametrize(
    "rng",
    [np.random.default_rng(3), torch.Generator().manual_seed(3), torch.tensor(3), 2**64 - 1, None],
)
def test_what_rng_may_be(rng):
    """A generator gives another seed each time; without dropout it is left alone."""
    query = torch.randn(1, 2, 9, 4)
    if rng is None:
        rng = torch.randint(2**63 - 1, ())
    state = rng.get_state() if isinstance(rng, torch.Generator) else None
    attention(query, query, query, rng=rng)
    if state is not None:
        assert torch.equal(rng.get_state(), state)
    first, second = (attention(query, query, query, dropout_p=0.5, rng=rng) for _ in range(2))
    drawn = isinstance(rng, torch.Generator | np.random.Generator)
    assert torch.equal(first, second) != drawn
    aux = attention(query, query, query, return_aux=AuxRequest(lse=True))[1]
    assert aux.lse.shape == (1, 2, 9)
