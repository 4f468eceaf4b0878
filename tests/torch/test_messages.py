"""What attention on torch tensors refuses, word for word; the messages that it shares with the core are
tested there."""

import warnings

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

from headwise import AuxRequest, HeadwiseError
from headwise.torch import attention
from tests.raising import unreached

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


NUMBER = "None or a finite number"
SEED = (
    "a seed (a whole number >= 0, < 2**64), a numpy.random.Generator, a torch.Generator or an int64 tensor "
    "of one number"
)
SAME_SEED = "rng=0; the same seed drops the same weights for any number of threads"
DTYPES = "float16, bfloat16, float32 or float64"
CAST = "nothing is cast in silence"
MEANING = "booleans (True = attend) or floats (added to the scores)"

# Name -> call, kind, argument, expected, received, hint.
CASES = {
    "NumPy": (
        call(Q.numpy()),
        "DtypeError",
        "query",
        "a torch tensor",
        "ndarray",
        "headwise.attention takes NumPy and JAX arrays too",
    ),
    "nothing": (
        call(Q, K, None),
        "DtypeError",
        "value",
        "a torch tensor",
        "None",
        "headwise.attention takes NumPy and JAX arrays too",
    ),
    "NumPy mask": (
        call(Q, K, V, np.zeros((5, 7), bool)),
        "DtypeError",
        "attn_mask",
        "None or a torch tensor",
        "ndarray",
        "torch.as_tensor(attn_mask)",
    ),
    "list as bias": (
        call(attn_bias=[0.0]),
        "DtypeError",
        "attn_bias",
        "None or a torch tensor",
        "list",
        "torch.as_tensor(attn_bias)",
    ),
    "sparse": (
        call(Q.to_sparse()),
        "DtypeError",
        "query",
        "a dense tensor",
        "layout torch.sparse_coo",
        "query.to_dense()",
    ),
    "integers": (
        call(Q.long(), K.long(), V.long()),
        "DtypeError",
        "query",
        DTYPES,
        "int64",
        f"{CAST}: convert query to a floating dtype",
    ),
    "mixed": (
        call(Q, K.double(), V),
        "DtypeError",
        "key",
        "float32, the dtype of query",
        "float64",
        f"{CAST}: convert one of them first",
    ),
    "mixed halves": (
        call(Q.half(), K.half(), V.bfloat16()),
        "DtypeError",
        "value",
        "float16, the dtype of query",
        "bfloat16",
        f"{CAST}: convert one of them first",
    ),
    "devices": (
        call(Q, K, V, torch.zeros(5, 7, device="meta")),
        "DtypeError",
        "attn_mask",
        "a tensor on cpu, as query is",
        "one on meta",
        "attn_mask.to(query.device)",
    ),
    "mask dtype": (
        call(Q, K, V, torch.zeros(5, 7).double()),
        "DtypeError",
        "attn_mask",
        "bool, or float32 as query has",
        "float64",
        f"{CAST}: convert the mask to the dtype of query",
    ),
    "half mask": (
        call(Q.half(), K.half(), V.half(), torch.zeros(5, 7)),
        "DtypeError",
        "attn_mask",
        "bool, or float16 as query has",
        "float32",
        f"{CAST}: convert the mask to the dtype of query",
    ),
    "bias dtype": (
        call(attn_bias=torch.zeros(5, 7).double()),
        "DtypeError",
        "attn_bias",
        "float32 as query has",
        "float64",
        f"{CAST}: convert the bias to the dtype of query",
    ),
    "zeros and ones": (
        call(Q.half(), K.half(), V.half(), ZERO_ONE.half()),
        "HeadwiseError",
        "attn_mask",
        MEANING,
        "float16 with nothing but 0 and 1 in it, which would add 1 and hide no key",
        "attn_mask != 0 (.bool() in torch), if 1 means attend; attn_bias= adds any numbers",
    ),
    "scale": (call(scale="1"), "HeadwiseError", "scale", NUMBER, "'1'", "None means 1/sqrt(d_k)"),
    "scale tensor": (
        call(scale=torch.ones(2)),
        "HeadwiseError",
        "scale",
        NUMBER,
        "Tensor of shape (2,)",
        "None means 1/sqrt(d_k)",
    ),
    "softcap": (
        call(softcap="2"),
        "HeadwiseError",
        "softcap",
        "None or a finite number > 0",
        "'2'",
        "the score s becomes softcap * tanh(s / softcap); None caps nothing",
    ),
    "alignment": (
        call(causal_alignment=1),
        "HeadwiseError",
        "causal_alignment",
        'None, "upper_left" or "lower_right"',
        "1",
        "upper_left is offset 0, lower_right is offset n_k - n_q",
    ),
    "implementation": (
        call(implementation="flash"),
        "HeadwiseError",
        "implementation",
        '"auto", "kernel" or "torch"',
        "'flash'",
        'leave it at "auto"',
    ),
    "kernel elsewhere": (
        call(META, K.to("meta"), V.to("meta"), implementation="kernel"),
        "CapabilityError",
        "implementation",
        '"auto" or "torch" for tensors on meta',
        '"kernel"',
        "the kernel reads the CPU's memory; .cpu() brings tensors there",
    ),
    "transform": (
        lambda: torch.func.grad(lambda x: attention(x, x, x).sum())(torch.ones(2, 3, 4)),
        "CapabilityError",
        "query",
        "plain tensors, outside the transforms of torch.func (grad, vmap, jvp)",
        "a call inside one",
        "torch.autograd.grad gives gradients; a batch is one more leading axis",
    ),
    "forward mode": (
        with_tangent,
        "CapabilityError",
        "query",
        "plain tensors, without tangents",
        "forward-mode derivatives",
        "torch.autograd.grad gives gradients; a directional derivative is their product with the tangent",
    ),
    "a seed without a number": (
        call(dropout_p=0.5, rng=torch.zeros((), dtype=torch.long, device="meta")),
        "DtypeError",
        "rng",
        "a tensor that holds numbers, beside a query on cpu",
        "one on meta",
        'made under torch.device("meta")? device="cpu" makes a real one there too',
    ),
    "request": (
        call(return_aux="lse"),
        "HeadwiseError",
        "return_aux",
        "None or an AuxRequest",
        "'lse'",
        "return_aux=headwise.AuxRequest(entropy=True)",
    ),
    "offset": (
        call(query_offset="2"),
        "HeadwiseError",
        "query_offset",
        "a whole number, or one per batch entry",
        "'2'",
        "it is the position of query 0 among the keys",
    ),
    "rng": (call(dropout_p=0.1, rng="0"), "HeadwiseError", "rng", SEED, "'0'", SAME_SEED),
    "rng below 0": (call(dropout_p=0.1, rng=-1), "HeadwiseError", "rng", SEED, "-1", SAME_SEED),
    "rng tensor": (
        call(dropout_p=0.1, rng=torch.zeros(2)),
        "HeadwiseError",
        "rng",
        "an int64 tensor of one number",
        "a tensor of shape (2,) and torch.float32",
        "torch.randint(2**63 - 1, ()) draws one",
    ),
}


def caught(case):
    with pytest.raises(HeadwiseError) as error:
        case()
    return error.value


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    case, kind, *parts = CASES[name]
    error = caught(case)
    assert type(error).__name__ == kind
    assert [error.argument, error.expected, error.received, error.hint] == parts


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
    cases = [case for case, *_ in CASES.values()]
    assert unreached(["torch/functional", *operator, "torch/tiled"], cases) == []


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
