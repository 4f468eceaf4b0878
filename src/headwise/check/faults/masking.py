"""Mistakes with what a row may see: causal order, boolean masks, padding, and biases."""

import numpy as np

from headwise.check.cases.case import Case
from headwise.check.cases.chain import Fault, Step, causal, fault, grid, masked, padded
from headwise.plain.types import Array

_EARLIER = "query i keeps the keys up to its own position and hides the others"
_NUMBERS = (
    "hide by minus infinity; if it wants a mask of numbers to add, say mask_means='add', --mask-means add"
)
_BEFORE = "set hidden scores to minus infinity before the softmax"


def _order(seen: Step) -> Step:
    """A causal step from a rule on (row, key, offset); other cases are untouched."""

    def step(case: Case, n_k: int) -> Array | None:
        i, j = grid(case, n_k)
        return np.asarray(seen(i, j, case.offset)) if case.is_causal else None

    return step


def _rows_reversed(case: Case, n_k: int) -> Array | None:
    seen = causal(case, n_k)
    return None if seen is None else seen[::-1]


def _corner(case: Case) -> int:
    """Offset of the causal rule from the other corner."""
    return 0 if case.offset else case.n_k - case.n_q


def _other_corner(move: int) -> Step:
    def step(case: Case, n_k: int) -> Array | None:
        i, j = grid(case, n_k)
        return np.asarray(j <= i + _corner(case) + move) if case.is_causal else None

    return step


def _anti_other(case: Case, n_k: int) -> Array | None:
    i, j = grid(case, n_k)
    return np.asarray(j >= i + _corner(case)) if case.is_causal else None


def _filled(number: float) -> Step:
    return lambda s, visible, case: np.where(visible, s, number)


def _soft(add: Step) -> Step:
    """The mask is added as numbers, while padding stays hidden."""

    def step(s: Array, visible: Array, case: Case) -> Array:
        real = padded(case)
        s = s + add(visible if real is None else np.where(real, visible, False))
        return (
            s if real is None or not (case.is_causal or case.mask is not None) else np.where(real, s, -np.inf)
        )

    return step


def _only(axis: int) -> Step:
    """The mask reaches only entry 0 of an axis."""

    def step(s: Array, visible: Array, case: Case) -> Array:
        first = (np.arange(s.shape[axis]) == 0).reshape([-1 if at == axis else 1 for at in range(4)])
        return np.where(visible | ~first, s, -np.inf)

    return step


def _renamed(part: Step, change: Step) -> Step:
    def step(case: Case) -> Array | None:
        seen = part(case)
        return None if seen is None else change(seen)

    return step


def _tiled(case: Case) -> Array | None:
    """(B, n_q, n_k) repeated H times as a whole, read batch-major: entry b H + h has mask (b H + h) % B."""
    if case.mask is None:
        return None
    batch, heads = case.query.shape[:2]
    return np.tile(case.mask[:, 0], (heads, 1, 1)).reshape(batch, heads, case.n_q, case.n_k)


def _padding_tiled(case: Case) -> Array | None:
    if case.padding is None:
        return None
    batch, heads = case.query.shape[:2]
    return np.tile(case.padding, (heads, 1)).reshape(batch, heads, 1, case.n_k)


def _bias(change: Step) -> Step:
    return lambda s, case: s if case.bias is None else change(s, case.bias, case)


def _unasked(case: Case, n_k: int) -> Array:
    i, j = grid(case, n_k)
    return np.asarray(j <= i + case.offset)


FAULTS: tuple[Fault, ...] = (
    fault("causal unasked", "the function is causal although nothing asks for it",
          "make it an option; or say that it is meant: always={'causal'}, --always causal", causal=_unasked),
    fault("causal ignored", "later keys are seen: nothing is causal", _EARLIER, needs="causal",
          causal=lambda case, n_k: None, seen="huggingface/transformers#48745 meta-pytorch/torchtune#959"),
    fault("causal from the other corner", "the diagonal starts in the other corner of the matrix: keys are "
          "counted from the first one where the last was meant, or the reverse",
          "top-left: key j <= query i; bottom-right, as with a cache: j <= i + n_k - n_q", needs="causal",
          causal=_other_corner(0),
          seen="pytorch/pytorch#103082 NVIDIA/cutlass#2336 onnx/onnx#8068 hyprstream/hyprstream#1521"),
    fault("causal one too few", "the query's own position is hidden", _EARLIER, needs="causal",
          causal=_order(lambda i, j, at: j < i + at)),
    fault("causal one too many", "one later key is seen: the diagonal is off by one", _EARLIER,
          needs="causal", causal=_order(lambda i, j, at: j <= i + at + 1)),
    fault("causal one too few, other corner", "the query's own position is hidden, and the diagonal starts "
          "in the other corner", _EARLIER, needs="causal", causal=_other_corner(-1)),
    fault("causal reversed", "the past is hidden, the query itself and what follows are seen", _EARLIER,
          needs="causal", causal=_order(lambda i, j, at: j >= i + at), seen="pytorch/examples#649"),
    fault("causal reversed, other corner", "the past is hidden and the future seen, from the other corner",
          _EARLIER, needs="causal", causal=_anti_other),
    fault("causal inverted", "the mask hides what should be seen: only later keys take part", _EARLIER,
          needs="causal", causal=_order(lambda i, j, at: j > i + at),
          seen="hkproj/pytorch-transformer#19"),
    fault("causal rows reversed", "the rows of the causal mask are in reverse order", _EARLIER,
          needs="causal", causal=_rows_reversed),
    fault("last key hidden", "only the very last key is hidden, from every query", _EARLIER, needs="causal",
          causal=lambda case, n_k: np.arange(n_k) < n_k - 1),
    fault("own key only", "every query sees its own key and no other", _EARLIER, needs="causal",
          causal=_order(lambda i, j, at: j == i + at)),
    fault("hidden scores 0", "hidden scores become 0 (or tiny, or are multiplied by 0), and e^0 = 1", _BEFORE,
          hidden=_filled(0.0), seen="awslabs/gluonts#1401 NTMC-Community/MatchZoo-py#163"),
    fault("hidden scores -1", "hidden scores are replaced by -1", _BEFORE, hidden=_filled(-1.0)),
    fault("hidden scores 1", "hidden scores are replaced by 1", _BEFORE, hidden=_filled(1.0)),
    fault("mask added as 0 and 1", "the mask is added to the scores as the numbers 0 and 1", _NUMBERS,
          hidden=_soft(lambda seen: seen.astype(float)),
          seen="pytorch/pytorch#86120"),
    fault("mask added upside down", "1 is added to the scores that should be hidden", _BEFORE,
          hidden=_soft(lambda seen: (~seen).astype(float))),
    fault("mask after softmax", "the mask cuts the weights after the softmax: they no longer sum to 1",
          _BEFORE, hidden=lambda s, visible, case: s, weighed=lambda w, visible, case: w * visible),
    fault("mask on the first head", "the mask reaches head 0 only", "every head has the same mask",
          hidden=_only(1)),
    fault("mask on the first entry", "the mask reaches batch entry 0 only", "every entry has its own mask",
          hidden=_only(0)),
    fault("fill -1e9", "hidden scores are set to a large negative number: an empty row averages its keys",
          "minus infinity, and 0 for a row that sees no key", hidden=_filled(-1e9),
          seen="NVIDIA/apex#1390"),
    fault("mask inverted", "the mask is read the other way round: True hides",
          "True means attend; if the other is meant, say mask_means='hide', --mask-means hide", needs="mask",
          masked=_renamed(masked, np.logical_not), seen="hkproj/pytorch-transformer#19"),
    fault("mask transposed", "the mask is transposed: queries and keys have changed places",
          "mask[..., i, j] belongs to query i and key j", needs="mask",
          masked=_renamed(masked, lambda m: m.swapaxes(-1, -2))),
    fault("mask ignored", "the mask has no effect", _BEFORE, needs="mask", masked=lambda case: None,
          seen="opendilab/DI-engine#333"),
    fault("mask tiled heads-major", "masks are repeated as a whole list: heads use other entries' masks",
          "repeat each entry's mask H times in a row: M0, M0, M1, M1", needs="mask", masked=_tiled,
          seen="line/lighthouse#77 ArrowLuo/CLIP4Clip#22 reczoo/FuxiCTR#130"),
    fault("mask of the first entry", "every batch entry uses the mask of entry 0",
          "broadcast the mask along the heads, not along the batch", needs="mask",
          masked=_renamed(masked, lambda m: m[:1])),
    fault("padding inverted", "the padding mask is read the other way round: real keys are hidden",
          "True means a real key; ~padding turns one convention into the other", needs="padding",
          padded=_renamed(padded, np.logical_not)),
    fault("mask and padding inverted", "mask and padding are both read the other way round",
          "True means attend", needs="mask padding",
          masked=_renamed(masked, np.logical_not), padded=_renamed(padded, np.logical_not)),
    fault("padding on queries", "padding hides query rows instead of keys",
          "padding (B, n_k) meets the scores as (B, 1, 1, n_k)", needs="padding",
          padded=_renamed(padded, lambda p: p.swapaxes(-1, -2)),
          seen="hyunwoongko/transformer#40 keras-team/keras-io#1046"),
    fault("padding of the first entry", "every batch entry uses the padding of entry 0",
          "padding (B, n_k) meets the scores as (B, 1, 1, n_k)", needs="padding",
          padded=_renamed(padded, lambda p: p[:1])),
    fault("padding of another entry", "batch entries use each other's padding", "entry b uses row b",
          needs="padding", padded=_renamed(padded, lambda p: p[::-1])),
    fault("padding tiled heads-major", "padding rows are repeated as a whole list: heads use other entries'",
          "repeat each row H times in a row", needs="padding", padded=_padding_tiled,
          seen="lsdefine/attention-is-all-you-need-keras#36"),
    fault("mask or padding", "a key is seen where mask or padding allows it", "both must allow it",
          needs="mask padding", combined=lambda parts: np.logical_or(*parts[-2:])),
    fault("padding ignored", "padding has no effect", _BEFORE, needs="padding", padded=lambda case: None),
    fault("mask and padding ignored", "neither mask nor padding has an effect", _BEFORE,
          needs="mask padding", masked=lambda case: None, padded=lambda case: None),
    fault("padded rows zeroed", "the output of padded queries is set to 0", "padding hides keys only",
          needs="padding", joined=lambda o, q, k, v, case: o * case.padding[:, None, :, None]),
    fault("bias ignored", "the bias has no effect", "add it to the scaled scores", needs="bias",
          biased=lambda s, case: s),
    fault("bias scaled too", "the bias is added before the scores are scaled", "scale first, then add",
          needs="bias", biased=_bias(lambda s, b, case: s + b * case.factor)),
    fault("bias subtracted", "the bias is subtracted", "add it", needs="bias",
          biased=_bias(lambda s, b, case: s - b)),
    fault("bias multiplied", "the scores are multiplied by the bias", "add it", needs="bias",
          biased=_bias(lambda s, b, case: s * b)),
    fault("bias after softmax", "the bias is added to the weights", "add it to the scores", needs="bias",
          biased=lambda s, case: s, weighed=lambda w, visible, case: w + case.bias),
    fault("bias transposed", "the bias is transposed: queries and keys have changed places",
          "bias[..., i, j] belongs to query i and key j", needs="bias",
          biased=_bias(lambda s, b, case: s + b.swapaxes(-1, -2))),
    fault("bias heads reversed", "the bias meets the heads in reverse order", "bias[h] belongs to head h",
          needs="bias", biased=_bias(lambda s, b, case: s + b[::-1])),
    fault("bias of the first head", "every head uses the bias of head 0", "bias[h] belongs to head h",
          needs="bias", biased=_bias(lambda s, b, case: s + b[:1])),
)  # fmt: skip
