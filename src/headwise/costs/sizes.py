"""The sizes of one attention layer, and the work that it is given; impossible ones are refused."""

from dataclasses import dataclass
from typing import Any

from headwise.compute.options import ALIGNMENTS, both_readings
from headwise.compute.problem import divisors
from headwise.costs.pairs import Window
from headwise.errors import HeadwiseError
from headwise.plain.values import is_whole, shown
from headwise.plain.words import counted

PROJECTIONS = "qkvo"
LARGEST = 10**15  # of any size: products of all of them still fit into float64


@dataclass(frozen=True)
class Latent:
    """Latent attention (MLA): keys and values are kept as one latent vector, and made from it again.

    Attributes:
        kv_rank: width of the latent vector of a token; rope_dim: width of its one shared rotary key.
        q_rank: width of the latent of the queries; None: they are projected straight from the input.
    """

    kv_rank: int
    rope_dim: int
    q_rank: int | None = None


@dataclass(frozen=True)
class Layer:
    """One attention layer.

    Attributes:
        d_model, d_context, d_out: widths of the input, of what keys and values come from, and of the output;
            d_context_v where values come from something of another width than keys.
        heads, kv_heads: h and h_kv; head_dim, v_head_dim: d_k and d_v (of latent attention: d_k without the
            rotary part).
        bias: the projections that have one, letters of "qkvo".
        causal, window: what a query sees.
        cross: keys and values come from another sequence.
        norms: parameters of norms inside the layer; extra_keys: learned or zero keys beside the sequence's
            own, and extra: their parameters (``add_bias_kv``, ``add_zero_attn`` of torch).
        latent: None, or how keys and values are compressed.
    """

    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    d_context: int
    d_out: int
    d_context_v: int
    bias: str = ""
    causal: bool = False
    window: Window | None = None
    cross: bool = False
    norms: int = 0
    extra_keys: int = 0
    extra: int = 0
    latent: Latent | None = None

    @property
    def query_width(self) -> int:
        """Width in which queries and keys meet."""
        return self.head_dim + (self.latent.rope_dim if self.latent else 0)


@dataclass(frozen=True)
class LayerKind:
    """Layers of the same sizes: their name, how many, and on which lengths they run.

    ``part`` is "self" (seq tokens), "cross" (seq tokens over kv_seq others) or "other" (the kv_seq tokens
    of the other sequence among themselves).
    """

    name: str
    count: int
    layer: Layer
    part: str = "self"


@dataclass(frozen=True)
class Work:
    """What a layer is run on: n_q new tokens, n_k keys in all (cached ones among them), for a batch."""

    batch: int
    n_q: int
    n_k: int
    cached: int
    offset: int
    dtype_bytes: float
    cache_bytes: float


def make_layer(
    *,
    d_model: Any,
    heads: Any,
    kv_heads: Any = None,
    head_dim: Any = None,
    v_head_dim: Any = None,
    d_context: Any = None,
    d_out: Any = None,
    d_context_v: Any = None,
    bias: Any = False,
    causal: Any = False,
    window: Any = None,
    cross: bool = False,
    kv_rank: Any = None,
    rope_dim: Any = None,
    q_rank: Any = None,
    norms: int = 0,
    extra_keys: int = 0,
    extra: int = 0,
) -> Layer:
    """The layer, every size resolved.

    Raises:
        HeadwiseError: a size that no layer can have; the hint names the nearest ones that work.
    """
    for name, size in (("d_model", d_model), ("heads", heads)):
        whole(name, size)
    optional = {"kv_heads": kv_heads, "head_dim": head_dim, "v_head_dim": v_head_dim, "d_context": d_context,
                "d_out": d_out, "kv_rank": kv_rank, "rope_dim": rope_dim, "q_rank": q_rank}  # fmt: skip
    for name, size in optional.items():
        if size is not None:
            whole(name, size)
    kv_heads = heads if kv_heads is None else kv_heads
    if heads % kv_heads:
        near = _nearest(divisors(heads), kv_heads)
        groups = _either([heads // n for n in near])
        hint = f"nearest that work: {_either(near)} (groups of {groups} query heads)"
        raise HeadwiseError("kv_heads", f"a divisor of heads = {heads}", str(kv_heads), hint)
    if head_dim is None:
        if d_model % heads:
            raise HeadwiseError(
                "heads", f"a divisor of d_model = {d_model}", str(heads), _nearest_heads(d_model, heads)
            )
        head_dim = d_model // heads
    latent = None
    if kv_rank is not None or rope_dim is not None or q_rank is not None:
        for name, size in (("kv_rank", kv_rank), ("rope_dim", rope_dim)):
            if size is None:
                hint = (
                    "latent attention has kv_rank and rope_dim (and q_rank where queries are compressed too)"
                )
                raise HeadwiseError(name, "a whole number >= 1", "None", hint)
        if kv_heads != heads:
            hint = "latent attention makes every head's keys and values from the one latent vector"
            raise HeadwiseError("kv_heads", f"heads = {heads} beside kv_rank", str(kv_heads), hint)
        latent = Latent(kv_rank, rope_dim, q_rank)
    return Layer(
        d_model, heads, kv_heads, head_dim,
        head_dim if v_head_dim is None else v_head_dim,
        d_model if d_context is None else d_context,
        d_model if d_out is None else d_out,
        (d_model if d_context is None else d_context) if d_context_v is None else d_context_v,
        _bias(bias), _flag("causal", causal), _window(window), cross, norms, extra_keys, extra, latent,
    )  # fmt: skip


def make_work(
    *,
    seq: Any,
    kv_seq: Any = None,
    cached: Any = 0,
    batch: Any = 1,
    uses_positions: bool = False,
    causal_alignment: Any = None,
    query_offset: Any = None,
    dtype_bytes: Any = 2,
    cache_bytes: Any = None,
) -> Work:
    """The lengths, resolved.

    Args:
        seq: n_q; kv_seq: n_k of cross-attention; cached: tokens that are in the cache already.
        uses_positions: the layer is causal or has a window, so it matters where the queries stand.

    Raises:
        HeadwiseError: lengths that contradict each other, or that leave open where the queries stand.
    """
    whole("seq", seq)
    whole("batch", batch)
    if not is_whole(cached) or not 0 <= cached <= LARGEST:
        raise HeadwiseError(
            "cached", "a whole number >= 0", shown(cached), "tokens that are in the cache already"
        )
    for name, size in (("dtype_bytes", dtype_bytes), ("cache_bytes", cache_bytes)):
        if size is not None and (
            isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size <= 16
        ):
            hint = "2 for float16 and bfloat16, 4 for float32, 0.5 for 4 bits"
            raise HeadwiseError(name, "bytes of one number, above 0 and at most 16", shown(size), hint)
    if kv_seq is not None:
        whole("kv_seq", kv_seq)
        if cached:
            hint = "cached counts tokens of the same sequence; kv_seq is the length of another one"
            raise HeadwiseError("kv_seq", "None beside cached", f"kv_seq={kv_seq}, cached={cached}", hint)
    n_k = cached + seq if kv_seq is None else kv_seq
    offset = cached
    if query_offset is not None or causal_alignment is not None:
        offset = _offset(seq, n_k, causal_alignment, query_offset)
    elif uses_positions and kv_seq is not None and kv_seq != seq:
        expected = "causal_alignment or query_offset, when causal or window meets kv_seq other than seq"
        raise HeadwiseError("causal", expected, f"{seq} queries and {kv_seq} keys", both_readings(seq, n_k))
    dtype_bytes = 2 if dtype_bytes is None else dtype_bytes
    return Work(
        batch, seq, n_k, cached, offset, dtype_bytes, dtype_bytes if cache_bytes is None else cache_bytes
    )


def whole(name: str, size: Any) -> None:
    """A size is a whole number of at least 1."""
    if not is_whole(size) or size < 1:
        raise HeadwiseError(name, "a whole number >= 1", shown(size))
    if size > LARGEST:
        raise HeadwiseError(name, f"at most {LARGEST:,}", shown(size))


def _offset(n_q: int, n_k: int, alignment: Any, offset: Any) -> int:
    if alignment is not None and offset is not None:
        received = f"query_offset={shown(offset)} and causal_alignment={shown(alignment)}"
        raise HeadwiseError("query_offset", "query_offset or causal_alignment, not both", received)
    if offset is not None:
        if not is_whole(offset):
            raise HeadwiseError(
                "query_offset", "a whole number", shown(offset), "the position of query 0 among the keys"
            )
        return int(offset)
    if alignment not in ALIGNMENTS:
        expected = 'None, "upper_left" or "lower_right"'
        raise HeadwiseError("causal_alignment", expected, shown(alignment), both_readings(n_q, n_k))
    return 0 if alignment == "upper_left" else n_k - n_q


def _bias(bias: Any) -> str:
    if isinstance(bias, bool):
        return PROJECTIONS if bias else ""
    if isinstance(bias, str) and set(bias) <= set(PROJECTIONS):
        return "".join(letter for letter in PROJECTIONS if letter in bias)
    raise HeadwiseError("bias", 'True, False or letters of "qkvo"', shown(bias), 'bias="qkv": all but W_O')


def _flag(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise HeadwiseError(name, "True or False", shown(value))
    return value


def _window(window: Any) -> Window | None:
    if window is None:
        return None
    hint = "counts exclude the query itself, None is open: (4095, 0) sees 4096 keys, itself among them"
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise HeadwiseError("window", "(left, right)", shown(window), hint)
    for side in window:
        if side is not None and (not is_whole(side) or side < 0):
            raise HeadwiseError(
                "window", "(left, right), each None or a whole number >= 0", shown(window), hint
            )
    return (window[0], window[1])


def _nearest(choices: list[int], wanted: int) -> list[int]:
    """The nearest choice below and the nearest above."""
    return [n for n in choices if n < wanted][-1:] + [n for n in choices if n > wanted][:1]


def _nearest_heads(d_model: int, heads: int) -> str:
    near = [f"{counted(n, 'head')} (d_k = {d_model // n})" for n in _nearest(divisors(d_model), heads)]
    multiples = [n for n in (d_model // heads * heads, (d_model // heads + 1) * heads) if n]
    widths = " or ".join(f"d_model = {n}" for n in multiples)
    wider = f"{widths} with {counted(heads, 'head')}"
    return f"nearest that work: {' and '.join(near)}; or {wider}; or give head_dim"


def sizes_in_words(layer: Layer) -> str:
    """``d_model 4096, 32 heads of width 128, 8 key/value heads``."""
    heads = f"{counted(layer.heads, 'head')} of width {layer.query_width}"
    grouped = "" if layer.kv_heads == layer.heads else f", {counted(layer.kv_heads, 'key/value head')}"
    return f"d_model {layer.d_model}, {heads}{grouped}"


def _either(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))
