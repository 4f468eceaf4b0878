"""Every number of the founding documents, pinned against what lessons, exercises and questions compute."""

import math

import numpy as np
import pytest

from headwise.learn.book.contents import lessons
from headwise.learn.book.exercises import EXERCISES, exercises
from headwise.learn.book.figures import FIGURES, figures
from headwise.learn.book.questions import questions
from headwise.learn.curriculum import KINDS

LESSONS = {lesson.key: lesson for lesson in lessons()}
ANSWERS = {exercise.key: exercise for exercise in exercises()}
QUESTIONS = {question.key: question for question in questions()}


def numbers(key):
    return LESSONS[key].numbers


def close(found, expected, digits=6):
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.5000001 * 10.0**-digits)


# ---------------------------------------------------------------- worked examples


def test_a():
    close(numbers("A")["weights"], [[0.669762, 0.330238], [0.330238, 0.669762]])
    close(numbers("A")["output"], [[1.339523, 1.320954], [0.660477, 2.679046]])
    close(numbers("A")["output"], [[1.3395, 1.3210], [0.6605, 2.6790]], 4)


def test_b():
    assert numbers("B")["output"] == [1, 2, 3, 4] and numbers("B")["heads"] == [[1, 2], [3, 4]]


def test_c():
    np.testing.assert_allclose(numbers("C")["weights"], 1 / 3, rtol=1e-15)
    assert numbers("C")["output"] == [20] and numbers("C")["entropy"] == pytest.approx(math.log(3))


def test_d():
    assert numbers("D")["weights"][2] == 0.9999999958776928
    assert numbers("D")["output"][0] == pytest.approx(29.999999938165395, abs=4e-15)


def test_e():
    close(numbers("E")["weights"], [0.017986, 0.982014])
    close(numbers("E")["output"], [198.201379])


def test_f():
    assert numbers("F")["unscaled"][1] == pytest.approx(1.2664e-14, rel=1e-4)
    assert numbers("F")["scaled"] == [5, 1]
    close(numbers("F")["weights"][0], 0.982014)


def test_g():
    close(numbers("G")["weights"][0], 0.696304)
    assert numbers("G")["argmax"] == "cat"


def test_h():
    x = "\u00d7"
    assert numbers("H")["shapes"] == {
        "Q_i": f"3 {x} 64",
        "K_i, V_i": f"5 {x} 64",
        "scores of a head": f"3 {x} 5",
        "output of a head": f"3 {x} 64",
        "concatenated": f"3 {x} 512",
    }


def test_i():
    found = numbers("I")
    assert (found["head_q"], found["projections"], found["w_o"]) == (32768, 786432, 262144)
    assert found["total"] == 1048576 == 4 * 512**2 == 2**20


# ---------------------------------------------------------------- exercises


def test_every_exercise_is_there():
    assert [exercise.level for exercise in exercises()] == [int(key[0]) for key in EXERCISES]
    assert list(EXERCISES) == [
        "1.1",
        "1.2",
        "2.1",
        "2.2",
        "2.3",
        "3.1",
        "3.2",
        "3.3",
        "4.1",
        "4.2",
        "5.1",
        "5.2",
        "5.3",
    ]


@pytest.mark.parametrize(
    ("key", "name", "expected"),
    [
        ("1.1", "d_k", 64),
        ("1.2", "d_out", 512),
        ("2.1", "W_i", [512, 64]),
        ("2.1", "Q_i", [10, 64]),
        ("2.1", "scores", [10, 10]),
        ("2.1", "head", [10, 64]),
        ("2.2", "scaled", 5.0),
        ("3.2", "w_o", [512, 512]),
        ("3.3", "difference", 0.0),
        ("3.3", "overlap", 1.0),
        ("4.1", "total", 1048576),
        ("5.2", "away", 0.0),
        ("5.3", "scores", [2, 6]),
        ("5.3", "length", 2),
    ],
)
def test_exact_answers(key, name, expected):
    assert ANSWERS[key].numbers[name] == expected


def test_2_3():
    close(ANSWERS["2.3"].numbers["weights"], [0.2595, 0.0351, 0.7054], 4)
    assert ANSWERS["2.3"].numbers["ratio"] == pytest.approx(math.e, rel=1e-14)


def test_3_1():
    """Matrix products do not grow with h; softmax does, from about 1 % of the vector work to most of it."""
    found = ANSWERS["3.1"].numbers
    assert found["matmul"][0] == found["matmul"][1]
    assert found["exponentials"] == [1024**2, 8 * 1024**2]
    first, _, last = found["share"]
    assert first == pytest.approx(0.01, abs=0.005) and last > 0.8


def test_4_1():
    assert len(set(ANSWERS["4.1"].numbers["totals"])) == 1


def test_4_2():
    """The last digit that the document gives, 2.0123, is off."""
    close(ANSWERS["4.2"].numbers["weights"], [0.2212, 0.1091, 0.2212, 0.4486], 4)
    close(ANSWERS["4.2"].numbers["output"], [0.884724, 2.012437])
    assert "(0.8847, 2.0124)" in ANSWERS["4.2"].answer[1]


def test_5_1():
    means = [mean for _, _, mean in ANSWERS["5.1"].numbers["favourites"]]
    assert means == sorted(means, reverse=True) and means[-1] <= 2 < means[0]


# ---------------------------------------------------------------- ideas


def test_joining():
    """Own rows of W_O, then added, is concatenating. Adding first, or one shared W_O, is not."""
    away = numbers("joining")["away"]
    assert away["concatenated"] == 0 and away["projected"] < 1e-14
    assert away["summed"] > 0.1 and away["shared"] > 0.1
    np.testing.assert_allclose(numbers("joining")["summed"], numbers("joining")["shared"], rtol=1e-13)


def test_diversity():
    found = numbers("diversity")
    assert found["difference"] == 0 and found["redundancy"] == 1
    assert found["own"] < 0.9 and found["own_difference"] > 0.1 and found["one_head"] < 1e-14


def test_positions():
    assert numbers("positions")["without"] < 1e-14 and numbers("positions")["with"] > 0.1


def test_edges():
    found = numbers("edges")
    assert found["away"] == 0 and found["alone"] == 5 and found["nothing"] == 0 and found["one_head"] < 1e-14


def test_scale():
    spread = np.array(numbers("scale")["spread"])
    assert spread.shape == (128,)
    np.testing.assert_allclose(spread, np.sqrt(np.arange(1, 129)), rtol=0.03)


def test_cost():
    found = numbers("cost")
    assert found["heads"][0] == 1 and found["heads"][-1] == 512
    assert len(set(found["matmul"])) == 1
    assert found["exponentials"] == [h * 1024**2 for h in found["heads"]]


def test_causal():
    weights = np.array(numbers("causal")["all_weights"])
    np.testing.assert_array_equal(weights[np.triu_indices(4, 1)], 0)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-14)
    np.testing.assert_allclose(weights[3], numbers("causal")["weights"], rtol=1e-14)


def test_home():
    assert numbers("home")["shapes"] == [[6, 8]] * 3


# ---------------------------------------------------------------- figures and bank


def test_the_six_figures():
    found = figures()
    assert {"collapse", "slices", "spread", "links", "grid", "cross"} <= set(FIGURES)
    used = {lesson.figure for lesson in LESSONS.values()} | {exercise.figure for exercise in ANSWERS.values()}
    assert set(FIGURES) <= used
    collapse = found["collapse"]
    assert collapse["y"] == sorted(collapse["y"])
    assert collapse["x"][collapse["mark"]] == 20 and collapse["y"][collapse["mark"]] == 0.9999999958776928
    assert (found["slices"]["h"], found["slices"]["d_k"]) == (8, 64)
    assert np.shape(found["slices"]["weights"]) == np.shape(found["grid"]["values"]) == (10, 10)
    assert found["links"]["keys"][0] == "cat" and found["links"]["query"] == "it"
    assert np.shape(found["cross"]["weights"]) == (2, 6)


def test_the_bank():
    assert len(QUESTIONS) == len(questions()) >= 50
    assert {question.kind for question in questions()} == set(KINDS)
    for question in questions():
        assert question.lesson in LESSONS
        assert len(set(question.choices)) == len(question.choices) >= 2
        assert question.evidence and question.reason


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("cost", "false"),
        ("softmax-cost", "false"),
        ("same", "false"),
        ("own-scale", "true"),
        ("concat", "false"),
        ("no-w-o", "false"),
        ("parameters", "true"),
        ("diagonal", "false"),
        ("cross", "true"),
        ("any-h", "false"),
        ("negative", "false"),
        ("hidden", "true"),
        ("project-add", "true"),
    ],
)
def test_true_or_false(key, answer):
    assert QUESTIONS[key].kind == "true or false" and QUESTIONS[key].answer == answer


def test_six_heads_are_refused_with_the_nearest():
    assert "4 heads" in QUESTIONS["any-h"].evidence and "8 heads" in QUESTIONS["any-h"].evidence
