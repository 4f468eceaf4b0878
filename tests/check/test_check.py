"""What the checker says of broken functions, of functions that give no answer, and of right ones."""

import numpy as np
import pytest

from headwise import check_attention
from headwise.check import PRESETS, RULES, CheckReport, Contract
from headwise.check.subjects.contract import LAYOUTS
from tests.broken import functions
from tests.broken.functions import FUNCTIONS, NOTES, softmax


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_one_sin_each(function):
    expected = FUNCTIONS[function]
    report = check_attention(function)
    assert report.passed == (function in NOTES), str(report)
    if expected:
        assert expected in report.faults, str(report)
    else:
        assert report.faults == ()
    if function in NOTES:  # what the default contract only notes fails under the strict one
        strict = Contract(features=report_features(report), layout="bhnd", notes=())
        assert expected in [found.fault for found in check_attention(function, strict).findings]


def report_features(report):
    return report.calling.partition("options: ")[2].split(", ")


def test_an_unknown_mistake_is_shown_not_named():
    found = check_attention(functions.is_wrong_in_a_way_of_its_own).findings
    assert [one.rule for one in found] == ["values"]
    assert "no known mistake" in found[0].diagnosis
    assert "expected" in found[0].evidence and "weights of that row, read out" in found[0].evidence
    assert found[0].where == "batch 0, head 0, row 0, feature 0"
    assert found[0].error > 100 * found[0].allowed


def test_two_mistakes_are_both_named():
    def two(q, k, v, mask=None):
        s = q @ k.swapaxes(-1, -2)
        return softmax(s if mask is None else np.where(mask, s, 0.0)) @ v

    assert check_attention(two).faults[:2] == ("no scale", "hidden scores 0")


def test_rows_without_keys_that_average_are_part_of_the_evidence():
    report = check_attention(functions.hides_the_diagonal)
    assert report.faults == ("causal one too few",)
    assert "rows left without keys average all" in report.findings[0].evidence


def test_what_has_no_default_is_in_every_call():
    def windowed(q, k, v, window, num_kv_heads, causal):
        s = (q @ k.repeat(q.shape[1] // num_kv_heads, 1).swapaxes(-1, -2)) / q.shape[-1] ** 0.5
        i, j = np.arange(s.shape[-2])[:, None] + s.shape[-1] - s.shape[-2], np.arange(s.shape[-1])
        seen = (i - j <= window) & ((j <= i) | (not causal))
        return softmax(np.where(seen, s, -np.inf)) @ v.repeat(q.shape[1] // num_kv_heads, 1)

    report = check_attention(windowed)
    assert report.passed, str(report)
    assert "options: causal, gqa, window" in report.calling


def test_a_pattern_that_was_read_out_explains_the_rest():
    report = check_attention(functions.drops_remainders)
    assert len(report.faults) <= 1
    strange = check_attention(lambda q, k, v: functions.inside(q, k[..., :3, :], v[..., :3, :]))
    assert [found.fault for found in strange.findings if found.status == "failed"] == ["other keys seen"]


def test_heads_that_meet_are_not_named_where_the_other_axes_fit():
    """Read as (B, n, H, d) the few heads are one block, and the answer that of attention across heads."""
    (found,) = check_attention(functions.forgets_to_rescale).findings[:1]
    assert found.fault == "" and "no known mistake" in found.diagnosis
    assert "(B, H, n, d)" in check_attention(functions.forgets_to_rescale).calling


def test_a_mistake_in_what_is_always_causal_is_told_by_the_way():
    def always(q, k, v):
        s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
        e = np.exp(s - s.max(-2, keepdims=True))
        return e / e.sum(-2, keepdims=True) @ v

    first = check_attention(always).findings[0]
    assert first.fault == "" and "then its mistake is \u201csoftmax over queries\u201d" in first.repair
    assert check_attention(always, Contract(always={"causal"})).faults[0] == "softmax over queries"
    assert "causal" not in check_attention(functions.is_wrong_in_a_way_of_its_own).findings[0].repair


def test_evidence_is_measured():
    found = check_attention(functions.forgets_scale).findings[0]
    assert "measured factor 1, right 0.4082" in found.evidence
    causal = check_attention(functions.leaks_future).findings[0]
    assert "keys seen xx... / xxx.. / xxxx. / xxxxx / xxxxx, right x.... / xx..." in causal.evidence
    heads = check_attention(functions.swaps_two_kv_heads).findings[0]
    assert "[1, 0, 0, 1, 1, 1]" in heads.evidence


@pytest.mark.parametrize(
    "function, said, where",
    [
        (functions.raises, "raises KeyError: 'no such head'", "functions.py:"),
        (functions.returns_nothing, "returns None, not an array", ""),
        (functions.returns_a_list_of_words, "returns a list of str, not an array", ""),
        (functions.raises_a_class_of_its_own, "raises Stop: enough", "functions.py:"),
        (functions.raises_without_words, "raises Wordless: (its message cannot be shown)", "functions.py:"),
        (lambda q, k, v: v + 0j, "returns an array of complex128, not of real numbers", ""),
        (lambda q, k, v: v.astype(str), "returns an array of <U32, not of real numbers", ""),
        (lambda q, k, v: v.sum(), "the output has shape ()", ""),
        (lambda q, k, v, w: q, "raises TypeError", ""),
    ],
)
def test_no_answer_is_a_plain_verdict(function, said, where):
    report = check_attention(function)
    assert not report.passed
    (found,) = report.outcomes
    assert found.rule == "called"
    assert found.diagnosis.startswith(said)
    assert found.where.startswith(where)
    assert report.calling == "could not be called"


def test_hanging_is_a_plain_verdict():
    (found,) = check_attention(functions.hangs, time_limit=0.3).outcomes
    assert found.diagnosis == "gives no answer within 0.3 s"
    assert found.fault == "no answer in time"


def test_a_function_that_hangs_later_stops_there():
    def hangs_with_a_mask(q, k, v, mask=None):
        return (
            softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v
            if mask is None
            else functions.hangs(q, k, v)
        )

    report = check_attention(hangs_with_a_mask, time_limit=0.3)
    assert report.outcomes[-1].rule == "mask"
    assert report.outcomes[-1].fault == "no answer in time"


def test_nan_is_a_plain_verdict():
    found = check_attention(functions.returns_nan).findings
    assert found[0].rule == "values"
    assert found[0].diagnosis == "30 of 30 rows hold NaN or infinity"


def test_a_tuple_is_judged_by_its_first_item():
    report = check_attention(functions.returns_a_tuple)
    assert report.passed
    assert "returns a tuple of 2; its first item is judged" in [found.diagnosis for found in report.findings]


def test_inputs_are_left_alone_between_rules():
    """A function that writes to its inputs fails for that alone: every call has fresh arrays."""
    found = check_attention(functions.writes_to_its_query).findings
    assert {one.rule for one in found} == {"inputs unchanged", "strides"}


@pytest.mark.parametrize("function", functions.LAYER_FUNCTIONS, ids=lambda function: function.__name__)
def test_a_whole_layer_in_one_function(function):
    expected = functions.LAYER_FUNCTIONS[function]
    report = check_attention(function)
    assert report.passed == (not expected), str(report)
    assert report.faults == ((expected,) if expected else ())


def test_arguments_by_name_and_masks_that_are_required():
    def by_name(*, value, key, query, mask):
        s = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
        return softmax(np.where(mask, s, -np.inf)) @ value

    report = check_attention(by_name)
    assert report.passed and "options: mask" in report.calling, str(report)


def test_switches_are_not_taken_for_arrays_or_numbers():
    def switches(q, k, v, mask=False, scale=True, bias=False):
        s = q @ k.swapaxes(-1, -2) / (q.shape[-1] ** 0.5 if scale else 1)
        if mask:
            s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
        return softmax(s) @ v

    report = check_attention(switches)
    assert report.passed and report.calling.endswith("options: causal"), str(report)


# Right functions, written in other ways: none is accused.


def by_loops(q, k, v, mask=None, is_causal=False):
    out = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    for b, h, i in np.ndindex(*q.shape[:3]):
        scores = []
        for j in range(k.shape[2]):
            hidden = (mask is not None and not mask[b, 0, i, j]) or (is_causal and j > i)
            scores.append(-np.inf if hidden else sum(q[b, h, i] * k[b, h, j]) / np.sqrt(q.shape[-1]))
        top = max(scores)
        parts = [np.exp(s - top) if s > -np.inf else 0.0 for s in scores]
        for j, part in enumerate(parts):
            if part:
                out[b, h, i] += part / sum(parts) * v[b, h, j]
    return out


def streaming(q, k, v):
    top = np.full((*q.shape[:-1], 1), -np.inf)
    total, out = np.zeros_like(top), np.zeros((*q.shape[:-1], v.shape[-1]))
    for j in range(k.shape[-2]):
        s = (q * k[..., j : j + 1, :]).sum(-1, keepdims=True) / q.shape[-1] ** 0.5
        new = np.maximum(top, s)
        keep, e = np.exp(top - new), np.exp(s - new)
        total, out, top = total * keep + e, out * keep + e * v[..., j : j + 1, :], new
    return (out / total).astype(q.dtype)


def by_exp2(q, k, v):
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 * float(np.log2(np.e)))
    e = np.exp2(s - s.max(-1, keepdims=True))
    return (e @ v) / e.sum(-1, keepdims=True)


def with_a_constant_added(q, k, v):
    """A key bias and a shift per row change nothing."""
    k = k + k.dtype.type(0.7)
    return softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5 + q.dtype.type(3)) @ v


def renormalised(q, k, v, mask=None):
    p = softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
    if mask is None:
        return p @ v
    p = p * mask
    return p / np.maximum(p.sum(-1, keepdims=True), np.finfo(p.dtype).tiny) @ v


def heads_last(q, k, v):
    return np.einsum("bhij,bjhd->bihd", softmax(np.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5), v)


def packed(q, k, v, num_heads):
    parts = (x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2) for x in (q, k, v))
    return by_exp2(*parts).swapaxes(1, 2).reshape(*q.shape[:2], -1)


def one_head(Q, K, V):
    return softmax(Q @ K.T / K.shape[1] ** 0.5) @ V


def small(x, y, z):
    return np.einsum("bij,bjd->bid", softmax(np.einsum("bid,bjd->bij", x, y) / x.shape[2] ** 0.5), z)


RIGHT = {
    by_loops: "bhnd", streaming: "bhnd", by_exp2: "bhnd", with_a_constant_added: "bhnd", renormalised: "bhnd",
    heads_last: "bnhd", packed: "bne", one_head: "nd", small: "bnd",
}  # fmt: skip


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_right_functions_are_not_accused(function):
    report = check_attention(function)
    assert report.passed, str(report)
    assert LAYOUTS[RIGHT[function]] in report.calling


@pytest.mark.parametrize("seed", range(1, 9))
def test_fresh_numbers_say_the_same(seed):
    """Other seeds: right stays right, and the mistakes keep their names."""
    assert check_attention(by_exp2, seed=seed).passed
    assert check_attention(functions.forgets_scale, seed=seed).faults == ("no scale",)
    assert "causal one too many" in check_attention(functions.leaks_future, seed=seed).faults


def test_a_rotation_shifted_as_a_whole_is_not_accused():
    def turned(x, angle):
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        return np.concatenate(
            [a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1
        )

    def rotary(q, k, v, base=None):
        if base is None:
            return by_exp2(q, k, v)
        angle = (np.arange(q.shape[2]) + 17)[:, None] / base ** (np.arange(0, q.shape[-1], 2) / q.shape[-1])
        return by_exp2(turned(q, angle), turned(k, angle), v)

    assert check_attention(rotary).passed


def test_both_alignments_pass_and_a_note_says_which():
    def top_left(q, k, v, is_causal=False):
        s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        return softmax(np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf) if is_causal else s) @ v

    report = check_attention(top_left)
    assert report.passed
    assert any("top-left" in found.diagnosis for found in report.findings)
    wanted = Contract(features={"causal"}, causal_alignment="lower_right", layout="bhnd")
    assert check_attention(top_left, wanted).faults == ("causal from the other corner",)


def test_a_function_that_is_always_causal_says_so_or_is_told():
    def causal(q, k, v):
        s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        n_q, n_k = s.shape[-2:]
        return softmax(np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, -np.inf)) @ v

    assert check_attention(causal).faults == ("causal unasked",)
    assert check_attention(causal, Contract(always={"causal"})).passed


@pytest.mark.parametrize("means, use", [("hide", lambda m: ~m), ("add", lambda m: m)])
def test_masks_of_other_conventions(means, use):
    def masked(q, k, v, mask=None):
        s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        if mask is None:
            return softmax(s) @ v
        return softmax(s + mask if means == "add" else np.where(use(mask), s, -np.inf)) @ v

    assert check_attention(masked, Contract(mask_means=means)).passed
    assert not check_attention(masked).passed


def test_seeds_make_reports_repeatable():
    first, second = (check_attention(functions.forgets_scale, seed=5) for _ in range(2))
    assert first == second
    assert isinstance(first, CheckReport)


def test_presets_note_only_rules_that_exist():
    names = {rule.name for rule in RULES}
    assert len(names) == len(RULES)
    for contract in PRESETS.values():
        assert set(contract.notes) <= names
