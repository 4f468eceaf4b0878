"""The node tests of the ONNX standard for Attention and RotaryEmbedding, each as its authors wrote it."""

import warnings

import numpy as np
import pytest

with warnings.catch_warnings():  # making the cases of all other operators sets off warnings of their own
    warnings.simplefilter("ignore")
    import onnx
    from onnx import helper, numpy_helper
    from onnx.backend.test.loader import load_model_tests

    CASES = [
        case
        for case in load_model_tests(kind="node")
        if case.name.startswith(("test_attention", "test_rotary_embedding")) and "_expanded" not in case.name
    ]

from tests.onnx.adapter import run_attention, run_rotary

RUN = {"Attention": run_attention, "RotaryEmbedding": run_rotary}


def array_of(tensor):
    return numpy_helper.to_array(tensor) if isinstance(tensor, onnx.TensorProto) else tensor


def present(names, tensors):
    """The arrays in the operator's own order, None where an optional one is absent."""
    tensors = iter(tensors)
    return [array_of(next(tensors)) if name else None for name in names]


def test_all_cases_are_here():
    operators = [case.model.graph.node[0].op_type for case in CASES]
    assert (operators.count("Attention"), operators.count("RotaryEmbedding")) == (93, 8)
    assert all(len(case.model.graph.node) == 1 and case.data_sets for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.name.removeprefix("test_") for case in CASES])
def test_node(case):
    (node,) = case.model.graph.node
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    for inputs, outputs in case.data_sets:
        expected = present(node.output, outputs)
        found = RUN[node.op_type](present(node.input, inputs), attributes)
        for name, ours, theirs in zip(node.output, found, expected, strict=False):
            if theirs is None:
                continue
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
            rtol = max(case.rtol, 2**-6) if theirs.dtype.name == "bfloat16" else case.rtol
            wide = [np.asarray(x).astype(np.float64) for x in (ours, theirs)]
            np.testing.assert_allclose(*wide, rtol=rtol, atol=case.atol, err_msg=name)
