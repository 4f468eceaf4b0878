"""The text of every error message of the core, word for word, in golden/messages.txt.

A last test reads the source: every place that raises has to be reached by one of the cases here.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import headwise
from headwise import AttentionWeights, AuxRequest, HeadwiseError, attention, multi_head_attention
from headwise.compute import positions
from headwise.compute.options import UNSERVED
from tests.raising import golden, unreached

CORE = ("compute", "reference", "plain/frameworks")


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


Q, K, V = zeros(2, 6, 5, 8), zeros(2, 3, 7, 8), zeros(2, 3, 7, 4)
X, W = zeros(4, 8), zeros(8, 8)


def wide_jax():
    """A float64 array of JAX, where JAX by default keeps results in 32 bits."""
    with jax.enable_x64(True):
        return jnp.zeros((2, 6, 5, 8), jnp.float64)


class Far:
    """An array on another device."""

    def __dlpack__(self, **options):
        raise BufferError

    def __dlpack_device__(self):
        return 2, 1


def call(query=Q, key=K, value=V, attn_mask=None, **options):
    return lambda: attention(query, key, value, attn_mask, **options)


def small(n_q, n_k, **options):
    return call(zeros(n_q, 8), zeros(n_k, 8), zeros(n_k, 4), **options)


def block(x=X, context=None, **changes):
    arguments = {"w_q": W, "w_k": W, "w_v": W, "w_o": W, "num_heads": 2, **changes}
    return lambda: multi_head_attention(x, context, **arguments)


def ask(**request):
    return lambda: AuxRequest(**request)


def asked(query_offset=0, **request):
    return call(return_aux=AuxRequest(**request), query_offset=query_offset)


def scaling(kind="linear", factor=2.0, **options):
    return lambda: positions.RotaryScaling(kind=kind, factor=factor, **options)


WIDE = zeros(512, 512)
CASES = {
    # what is no array that can be taken
    "a list": call([[1.0]]),
    "nothing": call(value=None),
    "an object": call(object()),
    "integers": call(Q.astype(np.int64)),
    "byte order": call(Q.astype(Q.dtype.newbyteorder())),
    "half precision": call(Q.astype(np.float16)),
    "half precision, torch": call(torch.zeros(5, 8, dtype=torch.float16)),
    "bfloat16, torch": call(torch.zeros(5, 8, dtype=torch.bfloat16)),
    "bfloat16, jax": call(jnp.zeros((5, 8), jnp.bfloat16)),
    "gradients": call(torch.zeros(5, 8, requires_grad=True)),
    "another device, torch": call(torch.zeros(5, 8, device="meta")),
    "another device, dlpack": call(Far()),
    "a sparse tensor": call(torch.eye(3).to_sparse()),
    "traced": lambda: jax.jit(lambda x: attention(x, x, x))(jnp.zeros((5, 8))),
    "a random key": call(jax.random.key(0)),
    "a masked array": call(np.ma.masked_array(Q)),
    "mixed kinds": call(key=torch.zeros(2, 3, 7, 8)),
    "mixed kinds, mask": call(attn_mask=torch.ones(5, 7, dtype=torch.bool)),
    "mixed dtypes": call(key=K.astype(np.float64)),
    # shapes
    "one axis": call(zeros(8)),
    "fewer axes": call(key=zeros(7, 8)),
    "another batch": call(key=zeros(4, 3, 7, 8)),
    "no width": call(zeros(2, 6, 5, 0)),
    "another width": call(key=zeros(2, 3, 7, 9)),
    "transposed key": call(key=zeros(2, 3, 8, 7)),
    "fewer values": call(value=zeros(2, 3, 6, 4)),
    "no heads": call(zeros(2, 0, 5, 8)),
    "more value heads": call(value=zeros(2, 6, 7, 4)),
    "heads that do not divide": call(key=zeros(2, 4, 7, 8), value=zeros(2, 4, 7, 4)),
    "grouped heads switched off": call(enable_gqa=False),
    # masks
    "integer mask": call(attn_mask=np.ones((5, 7), np.int64)),
    "mask of another dtype": call(attn_mask=np.ones((5, 7))),
    "mask of 0 and 1": call(attn_mask=np.tri(5, 7, dtype=np.float32)),
    "mask of another shape": call(attn_mask=np.ones((6, 6), bool)),
    "mask per batch entry, row": call(attn_mask=np.ones((2, 7), bool)),
    "mask per batch entry, grid": call(attn_mask=np.ones((2, 5, 7), bool)),
    "transposed mask": call(attn_mask=np.ones((7, 5), bool)),
    # positions
    "causal, more keys": small(2, 5, is_causal=True),
    "causal, more queries": small(5, 2, is_causal=True),
    "causal, large": small(200, 300, is_causal=True),
    "distance without positions": small(2, 3, return_aux=AuxRequest(distance=True)),
    "unknown alignment": call(causal_alignment="bottom"),
    "offset and alignment": call(causal_alignment="upper_left", query_offset=3),
    "offsets of another shape": call(query_offset=np.array([1, 2, 3])),
    "offset too large": call(query_offset=[0, 2**40]),
    "window of one number": call(window_size=3, query_offset=0),
    "window below zero": call(window_size=(-1, 2), query_offset=0),
    "window without positions": small(2, 3, window_size=(1, None)),
    "slopes without positions": small(2, 3, alibi_slopes=[0.5]),
    "length too large": call(kv_lengths=[7, 8]),
    "lengths of another shape": call(query_lengths=[1, 2, 3]),
    "one row of segment ids": call(segment_ids=range(7)),
    "too few segment ids": call(segment_ids=(range(4), range(7))),
    "fractional offset": call(query_offset=1.5),
    # options
    "is_causal": call(is_causal=1),
    "enable_gqa": call(enable_gqa="yes"),
    "dropout without a seed": call(dropout_p=0.1),
    "dropout seed": call(dropout_p=0.1, rng="lucky"),
    "dropout out of range": call(dropout_p=True),
    "a mask in a list": call(attn_mask=[[True, False]]),
    "scale": call(scale=float("nan")),
    "scale beyond float32": call(scale=1e39),
    "scale beyond every float": call(scale=10**400),
    "too many threads": call(num_threads=2**31),
    "offset beyond int64": call(query_offset=np.int64(-(2**63))),
    "statistic beyond all sizes": lambda: AuxRequest(pooled=2**63),
    "float64 of jax in 32 bits": call(wide_jax()),
    "implementation": call(implementation="flash"),
    "num_threads": call(num_threads=0),
    "return_aux": call(return_aux=True),
    **{name: call(**{name: np.zeros(3)}) for name in UNSERVED},
    "bias of another dtype": call(attn_bias=np.ones((5, 7))),
    "boolean bias": call(attn_bias=np.ones((5, 7), bool)),
    "bias of another shape": call(attn_bias=zeros(2, 5, 7)),
    "softcap": call(softcap=0),
    "slopes of another shape": call(alibi_slopes=[1.0, 2.0], query_offset=0),
    "ragged slopes": call(alibi_slopes=[[1.0], [1.0, 2.0]], query_offset=0),
    "slope": call(alibi_slopes=[float("inf")] * 6, query_offset=0),
    "boolean head mask": call(head_mask=[True] * 6),
    "sinks of another shape": call(sinks=zeros(1, 6)),
    # requests
    "flag": ask(lse=1),
    "count": ask(top_k=True),
    "relative": ask(relative=(0.5,)),
    "relative as text": ask(relative="12"),
    "relative too large": ask(relative=(2**40,)),
    "matches of floats": ask(matches=[0.5]),
    "ragged matches": ask(matches=[[1], [1, 2]]),
    "classes below -1": ask(classes=[-2]),
    "classes too large": asked(classes=[9999] * 7),
    "too few matches": asked(matches=[1, 2]),
    "too few query tokens": asked(matches=([1] * 7, [1])),
    "too few classes, one head": small(5, 7, return_aux=AuxRequest(classes=[0, 1])),
    # the lazy weights
    "memory limit": lambda: AttentionWeights(Q, K, memory_limit=-1),
    "too many weights": lambda: AttentionWeights(Q, K, memory_limit=100)[0],
    "stage": lambda: AttentionWeights(Q, K).logits("raw"),
    "no heaviest": lambda: AttentionWeights(Q, K).top_k(0),
    "no block": lambda: AttentionWeights(Q, K).pooled(0),
    "values of another length": lambda: AttentionWeights(Q, K) @ zeros(6, 4),
    "values of another batch": lambda: AttentionWeights(Q, K) @ zeros(3, 3, 7, 4),
    # positions
    "odd sinusoidal width": lambda: positions.sinusoidal(4, 0),
    "base": lambda: positions.sinusoidal(4, 8, base=0),
    "odd table": lambda: positions.rotary_table(4, 3),
    "rotary on one axis": lambda: positions.rotary(zeros(8)),
    "rotary width": lambda: positions.rotary(X, width=10),
    "rotary positions": lambda: positions.rotary(X, [1, 2, 3]),
    "rotary table": lambda: positions.rotary(X, table=(zeros(4, 3), zeros(4, 3))),
    "positions and table": lambda: positions.rotary(X, [1], table=(zeros(4, 4), zeros(4, 4))),
    "no scaling": lambda: positions.rotary(X, scaling="yarn"),
    "scaling kind": scaling(kind="dynamic"),
    "scaling factor": scaling(factor=0.5),
    "scaling without a length": scaling(kind="llama3"),
    "scaling bounds": scaling(beta_fast=1.0, beta_slow=32.0),
    "attention factor": scaling(attention_factor=0.0),
    "ntk of one pair": lambda: scaling(kind="ntk")().frequencies(2, 10.0),
    "yarn without a base": lambda: scaling(kind="yarn", original_length=64)().frequencies(8, 1.0),
    "no slopes": lambda: positions.alibi_slopes(0),
    "too few buckets": lambda: positions.t5_buckets(2, 2, num_buckets=3),
    # the block
    "x of one axis": block(zeros(8)),
    "another batch of context": block(context=zeros(2, 4, 8)),
    "weight of one axis": block(w_q=zeros(8)),
    "weight of another height": block(w_q=zeros(7, 9)),
    "transposed weight": block(w_q=zeros(6, 8)),
    "width of context": block(context=zeros(3, 5)),
    "no heads in the block": block(num_heads=0),
    "512 by 6": block(zeros(2, 512), w_q=WIDE, w_k=WIDE, w_v=WIDE, w_o=WIDE, num_heads=6),
    "key/value heads": block(num_heads=4, num_kv_heads=3),
    "width of keys": block(w_k=zeros(8, 6)),
    "width of grouped keys": block(w_k=zeros(8, 4), w_v=zeros(8, 4)),
    "no columns": block(w_q=zeros(8, 0)),
    "heads added": block(w_o=zeros(4, 8)),
    "bias": block(b_q=zeros(7)),
}  # fmt: skip


def caught(case):
    with pytest.raises(HeadwiseError) as error:
        case()
    return error.value


EXPECTED = golden("messages.txt")


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    error = caught(CASES[name])
    assert f"{type(error).__name__}\n{error}" == EXPECTED[name]


def test_no_golden_message_is_left_over():
    assert set(EXPECTED) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_message_has_every_part(name):
    error = caught(CASES[name])
    assert error.argument and error.expected and error.received and error.hint
    assert all("  " not in part.split("\n")[0] for part in (error.expected, error.received, error.hint))


def test_batched_torch_tensor():
    error = caught(lambda: torch.vmap(lambda x: attention(x, x, x))(torch.zeros(2, 3, 4)))
    assert str(error).startswith(
        "query: expected a plain torch tensor; received Tensor ("
    )  # torch's words follow
    assert str(error).endswith("Hint: call it outside torch.vmap, torch.func and torch.compile")


class FarJax:
    """Stands in for a JAX array on an accelerator, which a test machine does not have."""

    def devices(self):
        return {type("Device", (), {"platform": "gpu"})()}


def test_jax_array_on_another_device(monkeypatch):
    monkeypatch.setattr(jax, "Array", FarJax)
    assert str(caught(call(FarJax()))) == (
        "query: expected an array in the CPU's memory; received a JAX array on gpu. "
        "Hint: jax.device_put(query, jax.devices('cpu')[0])"
    )


def test_environment(environment):
    environment("HEADWISE_NUM_THREADS", "many")
    assert str(caught(call())) == (
        "HEADWISE_NUM_THREADS: expected a whole number >= 1; received many. "
        "Hint: unset it to take the default"
    )
    environment("HEADWISE_ISA", "avx1024")
    names = ", ".join(headwise._core.isa_names())
    assert str(caught(call())) == (
        f"HEADWISE_ISA: expected one that this processor runs ({names}); received avx1024. "
        "Hint: unset it to take the widest"
    )


def test_every_place_that_raises_is_reached(environment, monkeypatch):
    missed = unreached(
        CORE, [*CASES.values(), lambda: torch.vmap(lambda x: attention(x, x, x))(torch.zeros(2, 3, 4))]
    )
    environment("HEADWISE_NUM_THREADS", "many")
    missed = set(missed) & set(unreached(CORE, [call()]))
    environment("HEADWISE_ISA", "avx1024")
    missed &= set(unreached(CORE, [call()]))
    with monkeypatch.context() as patch:
        patch.setattr(jax, "Array", FarJax)
        missed &= set(unreached(CORE, [call(FarJax())]))
    assert missed == set()
