"""Everybody who takes part: for each name a function that makes the call to be timed.

``make(case, threads) -> call``; ``call()`` returns the output ``(batch, heads, n, d)``. Each peer gets its
inputs once, in the layout that it wants; only the call itself is timed. Frameworks are imported where they
are used, so that a peer that is not installed is left out and says so.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from cases import EVERYTHING, STATISTICS, Case

import headwise

Call = Callable[[], Any]


def ours(case: Case, threads: int) -> Call:
    arrays, mask = case.arrays(), case.mask()
    return lambda: headwise.attention(*arrays, mask, is_causal=case.causal, num_threads=threads)


def with_statistics(request: headwise.AuxRequest) -> Callable[[Case, int], Call]:
    def make(case: Case, threads: int) -> Call:
        arrays = case.arrays()
        return lambda: headwise.attention(*arrays, return_aux=request, num_threads=threads)[0]

    return make


def torch_fused(case: Case, threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    tensors = [torch.from_numpy(a) for a in case.arrays()]
    mask = case.mask()
    hidden = None if mask is None else torch.from_numpy(mask)
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(*tensors, hidden, is_causal=case.causal).numpy()


def torch_eager(case: Case, threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    query, key, value = (torch.from_numpy(a) for a in case.arrays())
    visible = _visible(case)
    bias = None
    if visible is not None:
        bias = torch.zeros(visible.shape).masked_fill_(~torch.from_numpy(visible), -math.inf)

    def call() -> np.ndarray:
        scores = (query @ key.mT) * (1 / math.sqrt(case.d))
        if bias is not None:
            scores += bias
        return (scores.softmax(-1) @ value).numpy()

    return call


def torch_everything(case: Case, threads: int) -> Call:
    """The numbers of EVERYTHING the usual way: eager weights, then one dense line for each statistic."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    query, key, value = (torch.from_numpy(a) for a in case.arrays())
    places = torch.arange(case.n, dtype=torch.float32)
    apart = (places[:, None] - places).abs()
    block = EVERYTHING.pooled

    def call() -> np.ndarray:
        scores = (query @ key.mT) * (1 / math.sqrt(case.d))
        lse = scores.logsumexp(-1)
        weights = (scores - lse[..., None]).exp()
        found = {
            "entropy": torch.special.entr(weights).sum(-1),
            "max": weights.max(-1),
            "sink": weights[..., : EVERYTHING.sink_mass].sum(-1),
            "distance": (weights * apart).sum(-1),
            "received": weights.sum(-2),
            "pooled": weights.unflatten(-1, (-1, block)).sum(-1).unflatten(-2, (-1, block)).mean(-2),
            "top_k": weights.topk(EVERYTHING.top_k),
        }
        assert len(found) == 7
        return (weights @ value).numpy()

    return call


def numpy_plain(case: Case, threads: int) -> Call:
    query, key, value = case.arrays()
    visible = _visible(case)
    scale = np.float32(1 / math.sqrt(case.d))

    def call() -> np.ndarray:
        scores = (query @ key.swapaxes(-1, -2)) * scale
        if visible is not None:
            scores = np.where(visible, scores, np.float32(-np.inf))
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        return scores @ value

    return call


def jax_compiled(case: Case, threads: int) -> Call:
    import jax

    arrays = [jax.numpy.asarray(a.swapaxes(1, 2)) for a in case.arrays()]  # (batch, n, heads, d)
    mask = case.mask()
    attend = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=case.causal))
    return lambda: np.asarray(attend(*arrays).block_until_ready()).swapaxes(1, 2)


def onnxruntime_fused(case: Case, threads: int) -> Call:
    """Microsoft's ``MultiHeadAttention`` operator: (batch, n, heads * d) in and out."""
    import onnx
    import onnxruntime

    if case.padded:
        raise NotImplementedError("its mask is another one")
    width = case.heads * case.d
    names = ["query", "key", "value"]
    shape = [case.batch, case.n, width]
    floats = onnx.TensorProto.FLOAT
    node = onnx.helper.make_node(
        "MultiHeadAttention", names, ["output"], domain="com.microsoft", num_heads=case.heads,
        unidirectional=int(case.causal),
    )  # fmt: skip
    graph = onnx.helper.make_graph(
        [node], "attention",
        [onnx.helper.make_tensor_value_info(name, floats, shape) for name in names],
        [onnx.helper.make_tensor_value_info("output", floats, shape)],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    feeds = {
        name: np.ascontiguousarray(a.swapaxes(1, 2)).reshape(shape)
        for name, a in zip(names, case.arrays(), strict=True)
    }
    split = (case.batch, case.n, case.heads, case.d)
    return lambda: session.run(None, feeds)[0].reshape(split).swapaxes(1, 2)


def openvino_fused(case: Case, threads: int) -> Call:
    import openvino
    from openvino import opset13

    inputs = [opset13.parameter(list(a.shape), np.float32) for a in case.arrays()]
    feeds = list(case.arrays())
    nodes = list(inputs)
    mask = case.mask()
    if mask is not None:
        nodes.append(opset13.parameter(list(mask.shape), np.bool_))
        feeds.append(mask)
    attended = opset13.scaled_dot_product_attention(*nodes, causal=case.causal)
    model = openvino.Model([attended], nodes)
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = openvino.compile_model(model, "CPU", settings).create_infer_request()
    return lambda: request.infer(feeds, share_inputs=True, share_outputs=True)[0]


def _visible(case: Case) -> np.ndarray | None:
    if case.causal:
        return np.tril(np.ones((case.n, case.n), bool))
    return case.mask()


PEERS: dict[str, Callable[[Case, int], Call]] = {
    "headwise": ours,
    "torch": torch_fused,
    "onnxruntime": onnxruntime_fused,
    "openvino": openvino_fused,
    "torch eager": torch_eager,
    "jax": jax_compiled,
    "numpy": numpy_plain,
    "torch eager, everything": torch_everything,
    "headwise, everything": with_statistics(EVERYTHING),
    **{f"headwise, {name}": with_statistics(request) for name, (request, _) in STATISTICS.items()},
}
