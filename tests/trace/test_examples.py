"""The worked examples A to I and the exercises with numbers, as ``explain`` shows them, with their exact
values."""

import math

import numpy as np
import pytest

from headwise import multi_head_attention
from headwise.costs import cost
from headwise.trace.examples import EXAMPLES, example

DIGITS = 5e-7  # six decimals


def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=DIGITS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_check_of_every_example_holds(name):
    trace = example(name)
    assert trace.holds and trace.title == f"Example {name}: {EXAMPLES[name].title}"
    assert trace.about == EXAMPLES[name].about


def test_a():
    trace = example("A")
    np.testing.assert_array_equal(trace["scores"]["S_i"], [np.eye(2)])
    near(trace["scaled"]["Z_i"], [[[0.707107, 0], [0, 0.707107]]])
    near(trace["weights"]["A_i"], [[[0.669762, 0.330238], [0.330238, 0.669762]]])
    near(trace.output, [[[1.339523, 1.320954], [0.660477, 2.679046]]])
    assert "1.339523  1.320954" in str(trace) and "0.660477  2.679046" in str(trace)


def test_b():
    trace = example("b")
    np.testing.assert_array_equal(trace["split"]["V_i"], [[[1, 2]], [[3, 4]]])
    np.testing.assert_array_equal(trace["weights"]["A_i"], [[[1]], [[1]]])
    np.testing.assert_array_equal(trace["concatenation"]["H"], [[1, 2, 3, 4]])
    assert trace.output == [[1, 2, 3, 4]]


def test_c():
    trace = example("C")
    np.testing.assert_allclose(trace["weights"]["A_i"], [[[1 / 3] * 3]], rtol=1e-15)
    assert trace.output == [[[20.0]]]


def test_d():
    trace = example("D")
    assert trace["weights"]["A_i"][0, 0, 2] == pytest.approx(0.9999999958776928, rel=1e-15)
    assert trace.output[0][0][0] == pytest.approx(29.999999938165395, rel=1e-15)
    assert "0.99999999588" in str(trace) and "29.999999938" in str(trace), "not rounded to 1 and 30"


def test_e():
    trace = example("E")
    near(trace["weights"]["A_i"], [[[0.017986, 0.982014]]])
    near(trace.output, [[[198.201379]]])
    assert trace["weights"].check("never_negative").holds


def test_f():
    trace = example("F")
    np.testing.assert_array_equal(trace["scores"]["S_i"], [[[40, 8]]])
    np.testing.assert_array_equal(trace["scaled"]["Z_i"], [[[5, 1]]])
    near(trace["weights"]["A_i"][0, 0], [0.982014, 0.017986])
    unscaled = trace["scaled"].fact("largest_without_scale")
    assert 1 - unscaled == pytest.approx(math.exp(-32), rel=0.02) and 1 - unscaled == pytest.approx(
        1.2664e-14, rel=0.02
    )
    assert trace["scaled"].fact("largest_with_scale") == pytest.approx(0.982014, abs=DIGITS)


def test_g():
    trace = example("G")
    weights = trace["weights"]["A_i"][0, 0]
    assert weights[0] == pytest.approx(0.696304, abs=DIGITS)
    assert trace.keys[int(weights.argmax())] == "cat" and trace.queries == ["it"]
    assert trace["weights"].fact("strongest_0") == "query it → key cat: 0.696304"


def test_h():
    trace = example("H")
    assert trace.sizes == {
        "n_q": 3,
        "n_k": 5,
        "h": 8,
        "h_kv": 8,
        "d_k": 64,
        "d_v": 64,
        "d_in": 512,
        "d_context": 512,
        "d_out": 512,
    }
    shapes = {array.name: tuple(array.shape) for step in trace.steps for array in step.arrays}
    assert shapes["Q_i"] == (8, 3, 64) and shapes["K_i"] == shapes["V_i"] == (8, 5, 64)
    assert shapes["S_i"] == shapes["A_i"] == (8, 3, 5) and shapes["O_i"] == (8, 3, 64)
    assert shapes["H"] == (3, 512) and np.shape(trace.output) == (3, 512)
    arguments = EXAMPLES["H"].make()
    np.testing.assert_allclose(trace.output, multi_head_attention(**arguments), rtol=0, atol=1e-13)


def test_i():
    shapes = example("I")["shapes"]
    assert shapes.fact("parameters_head_query") == 32768
    assert shapes.fact("parameters_projections") == 786432 == 3 * 8 * 32768
    assert shapes.fact("parameters_output") == 262144
    assert (
        shapes.fact("parameters_weights")
        == 1048576
        == 4 * 512**2
        == 2**20
        == cost(d_model=512, heads=8).parameters
    )


def test_exercise_2_1():
    shapes = {array.name: tuple(array.shape) for step in example("2.1").steps for array in step.arrays}
    assert shapes["W_Q"] == (512, 512) and shapes["Q_i"] == (8, 10, 64)
    assert shapes["S_i"] == (8, 10, 10) and shapes["O_i"] == (8, 10, 64)


def test_exercise_2_2():
    assert example("2.2")["scaled"]["Z_i"].tolist() == [[[5.0]]]


def test_exercise_2_3():
    weights = example("2.3")["weights"]["A_i"][0, 0]
    np.testing.assert_array_equal(weights.round(4), [0.2595, 0.0351, 0.7054])
    assert weights[2] / weights[0] == pytest.approx(math.e, rel=1e-14)


def test_exercise_3_3():
    first, second = example("3.3")["blend"]["O_i"]
    np.testing.assert_array_equal(first, second)


def test_exercise_4_2():
    trace = example("4.2")
    np.testing.assert_array_equal(trace["weights"]["A_i"][0, 0].round(4), [0.2212, 0.1091, 0.2212, 0.4486])
    near(trace.output, [[[0.884724, 2.012437]]])
    assert "0.884724  2.012437" in str(trace), "2.0124, not 2.0123"


def test_exercise_5_2():
    np.testing.assert_allclose(example("5.2").output[0], [[7, -1]] * 3, rtol=1e-15)


def test_exercise_5_3():
    trace = example("5.3")
    assert trace["scores"]["S_i"].shape == (2, 2, 6) and np.shape(trace.output) == (2, 8)


@pytest.mark.parametrize("name", ["", "J", "9.9", None, 4.2])
def test_unknown_examples_are_refused(name):
    with pytest.raises(
        ValueError, match=r"^example: expected one of A, B, C, D, E, F, G, H, I, 2\.1, .*; received"
    ):
        example(name)


def test_arguments_are_made_anew():
    made = EXAMPLES["A"].make()
    made["query"][0, 0] = 99
    assert example("A")["scores"]["S_i"][0, 0, 0] == 1
