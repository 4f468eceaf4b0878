"""``cost``: what attention costs, as numbers with their formulas, before anything is run.

Counted from sizes alone. A live torch model is read by ``headwise.costs.live``, which is loaded only when
torch has been imported already and one of its modules is handed over.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from headwise.costs.config import read_config
from headwise.costs.data import Cost, LayerCost
from headwise.costs.formula import Formula, total
from headwise.costs.layer import Layer, LayerKind, Work, make_layer, make_work, sizes_in_words, whole
from headwise.costs.quantities import Quantity, cache_token, quantities
from headwise.errors import CapabilityError, HeadwiseError
from headwise.plain.values import shown
from headwise.plain.version import __version__

# Frameworks are guests: framework -> the class of its models, and the module of ours that reads them.
GUESTS = {"torch": ("nn.Module", "headwise.costs.live")}

# Quantities that belong to one layer and have no sum.
_OF_ONE_LAYER = ("parameters.head_q", "pairs.", "cache.tokens")


def cost(
    model: Any = None,
    *,
    d_model: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    v_head_dim: int | None = None,
    d_context: int | None = None,
    d_out: int | None = None,
    kv_rank: int | None = None,
    rope_dim: int | None = None,
    q_rank: int | None = None,
    bias: bool | str | None = None,
    layers: int | None = None,
    causal: bool | None = None,
    window: Any = None,
    seq: int | None = None,
    kv_seq: int | None = None,
    cached: int = 0,
    causal_alignment: str | None = None,
    query_offset: int | None = None,
    batch: int = 1,
    dtype_bytes: float | None = None,
    cache_bytes: float | None = None,
    ignore: Sequence[str] = (),
) -> Cost:
    """Parameters, FLOPs, bytes, key/value cache and activations of attention, each with its formula.

    A multiply-add counts as 2 FLOPs. Matrix products count visible query-key pairs only; softmax, scale and
    biases stand apart. Attention only: embeddings and feed-forward layers are not counted.

    Args:
        model: None (sizes as keywords), a Hugging Face ``config.json`` (its path, its folder, or a dict),
            or a live torch model.
        d_model, heads: width of the input, and h. kv_heads: h_kv, None = h.
        head_dim: d_k, None = d_model / h. v_head_dim: d_v, None = d_k. d_context, d_out: None = d_model.
        kv_rank, rope_dim, q_rank: latent attention (MLA): widths of the latent of keys and values, of the
            shared rotary key, and of the latent of queries (None: not compressed); ``head_dim`` is then the
            part without positions.
        bias: True, False, or the projections that have one, letters of "qkvo"; None = False, or what the
            model says.
        layers: how many; None = 1, or what the model says.
        causal: None = False, or what the model says. window: (left, right), counts exclude the query itself.
        seq: new tokens n_q; None counts only what depends on no length.
        kv_seq: length of another sequence, for cross-attention; of an encoder-decoder the encoder's, beside
            which ``seq`` is the decoder's. cached: tokens in the cache already
            (decoding).
        causal_alignment, query_offset: as for ``attention``, where causal or window meets kv_seq other than
            seq.
        batch: sequences. dtype_bytes: bytes of a number (None = 2, or what the model says); cache_bytes: of
            a number in the cache (None = dtype_bytes).
        ignore: fields of a config that are known to leave the attention alone.

    Returns:
        A :class:`headwise.costs.data.Cost`. Print it, or ask it: ``cost(...)["flops.scores"]``.

    Raises:
        HeadwiseError: an impossible configuration (the hint names the nearest valid ones), or a config with
            unknown fields.
        CapabilityError: a config of an unknown family, or a model with attention of an unknown form.

    >>> cost(d_model=512, heads=8).parameters
    1048576
    >>> cost(d_model=4096, heads=32, kv_heads=8, layers=32).kv_bytes_per_token
    131072
    """
    sizes: dict[str, Any] = {
        "d_model": d_model, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
        "v_head_dim": v_head_dim, "d_context": d_context, "d_out": d_out,
        "kv_rank": kv_rank, "rope_dim": rope_dim, "q_rank": q_rank,
    }  # fmt: skip
    work: dict[str, Any] = {
        "seq": seq, "kv_seq": kv_seq, "cached": cached, "causal_alignment": causal_alignment,
        "query_offset": query_offset, "batch": batch, "dtype_bytes": dtype_bytes, "cache_bytes": cache_bytes,
    }  # fmt: skip
    if model is None:
        for name in ("d_model", "heads"):
            if sizes[name] is None:
                hint = "cost(d_model=768, heads=12, seq=4096), or cost of a config.json or a torch model"
                raise HeadwiseError(name, "a whole number >= 1", "None", hint)
        if ignore:
            raise HeadwiseError("ignore", "nothing without a config", shown(ignore))
        count = 1 if layers is None else layers
        whole("layers", count)
        layer = make_layer(
            **sizes,
            bias=bias is not None and bias,
            causal=causal is not None and causal,
            window=window,
            cross=kv_seq is not None,
        )
        part = "self" if kv_seq is None else "cross"
        return count_layers([LayerKind("attention", count, layer, part)], _title(layer, count), work)
    described = {**sizes, "bias": bias, "layers": layers, "window": window}
    for name, size in described.items():
        if size is not None:
            expected = "None beside a model, which says it itself"
            raise HeadwiseError(name, expected, shown(size), "or give sizes only, without the model")
    reader = _guest(model)
    if reader is not None:
        if ignore:
            raise HeadwiseError("ignore", "nothing beside a live model", shown(ignore))
        return reader(model, causal=causal, work=work)
    if not isinstance(model, Mapping | str | Path):
        expected = "a config.json (path, folder or dict) or a torch model"
        raise HeadwiseError("model", expected, type(model).__name__, "or sizes: cost(d_model=768, heads=12)")
    config = read_config(model, tuple(ignore))
    if causal is not None and causal != config.causal:
        raise HeadwiseError("causal", f"None or {config.causal}, as {config.name} is", shown(causal))
    check_two_sided(work, any(kind.part == "cross" for kind in config.layers), config.name)
    work["dtype_bytes"] = config.dtype_bytes if dtype_bytes is None else dtype_bytes
    return count_layers(config.layers, config.title, work, config.notes)


def check_two_sided(work: dict[str, Any], crosses: bool, name: str) -> None:
    """The lengths that a model is counted for: of one sequence, or of an encoder's and a decoder's.

    Args:
        crosses: it has cross-attention.
        name: what a message calls it.

    Raises:
        HeadwiseError, CapabilityError: lengths that it cannot be run on.
    """
    if work["kv_seq"] is not None and not crosses:
        raise HeadwiseError("kv_seq", f"None: {name} has self-attention only", shown(work["kv_seq"]))
    if crosses and work["cached"]:
        expected = "0 where a model has cross-attention"
        raise CapabilityError("cached", expected, shown(work["cached"]), "cached=0")
    if crosses and work["seq"] is not None and work["kv_seq"] is None:
        expected = "the length of the sequence that cross-attention reads"
        raise HeadwiseError(
            "kv_seq", expected, "None", "kv_seq=1500 beside seq=448: the encoder's length, the decoder's"
        )


def count_layers(
    kinds: Sequence[LayerKind], title: str, work: dict[str, Any], notes: Sequence[str] = ()
) -> Cost:
    """The cost of layers run on the lengths of ``work`` (as ``cost`` names them)."""
    if work["seq"] is None and (work["kv_seq"] is not None or work["cached"]):
        hint = "seq=1 decodes one token"
        raise HeadwiseError("seq", "the number of new tokens, beside kv_seq or cached", "None", hint)
    counted = []
    for i, kind in enumerate(kinds):
        made = _work(kind, work)
        found = quantities(kind.layer, None if work["seq"] is None else made)
        if work["seq"] is None:
            found.append(cache_token(kind.layer, made.cache_bytes))
        if kind.part == "other":  # an encoder beside a decoder runs once, and keeps nothing
            found = [quantity for quantity in found if not quantity.key.startswith("cache.")]
        lengths = None if work["seq"] is None else asdict(made)
        counted.append(
            LayerCost(_letter(i), kind.name, kind.count, _sizes(kind.layer), lengths, tuple(found))
        )
    return Cost(
        headwise=__version__,
        title=title,
        work=counted[0].work,
        layers=tuple(counted),
        totals=tuple(_totals(counted)),
        notes=[*notes, *_notes(work, any(kind.part == "other" for kind in kinds))],
    )


def _work(kind: LayerKind, work: dict[str, Any]) -> Work:
    """The lengths of one kind of layer."""
    lengths = {**work, "seq": 1 if work["seq"] is None else work["seq"]}
    if kind.part == "self":
        lengths["kv_seq"] = None
    elif kind.part == "other":
        lengths.update(
            seq=work["kv_seq"] or 1, kv_seq=None, cached=0, causal_alignment=None, query_offset=None
        )
    return make_work(**lengths, uses_positions=kind.layer.causal or kind.layer.window is not None)


def _totals(kinds: Sequence[LayerCost]) -> list[Quantity]:
    """Every quantity summed over the layers, and the ratios of the sums."""
    names: dict[str, Quantity] = {}
    for kind in kinds:
        names |= {q.key: q for q in kind.quantities if q.key not in names}
    sums = []
    for key, first in names.items():
        if key.startswith(_OF_ONE_LAYER):
            continue
        formula = _over_layers(key, first, kinds)
        sums.append(Quantity(key, first.name, formula.value, first.unit, formula.letters, formula.numbers))
    values = {quantity.key: quantity.value for quantity in sums}
    if "bytes.streaming" in values:
        core = values["flops.scores"] + values["flops.values"]
        sums += [
            _ratio(
                "streaming", "streaming layer", "matmul", values["flops.matmul"], values["bytes.streaming"]
            ),
            _ratio("eager", "eager layer", "matmul", values["flops.matmul"], values["bytes.eager"]),
            _ratio("attention", "attention alone", "scores + values", core, values["bytes.attention"]),
        ]
    return sums


def _over_layers(key: str, first: Quantity, kinds: Sequence[LayerCost]) -> Formula:
    """A quantity times the number of layers; where layers differ in it, the sum over their kinds."""
    found = [next((q for q in kind.quantities if q.key == key), None) for kind in kinds]
    if all(q is not None and q.numbers == first.numbers for q in found):
        one = Formula(first.value, first.formula, first.numbers, 2 if " + " in first.formula else 1)
        count = sum(kind.count for kind in kinds)
        return one if count == 1 else Formula.of("L", count) * one
    values = [0 if quantity is None else quantity.value for quantity in found]
    parts = [kind.count * Formula.of(kind.letter, value) for kind, value in zip(kinds, values, strict=True)]
    summed = total(parts)
    same = {None if quantity is None else quantity.formula for quantity in found} == {first.formula}
    letters = f"{summed.letters}, each {first.formula}" if same else summed.letters
    return Formula(summed.value, letters, summed.numbers)


def _ratio(key: str, name: str, top: str, flops: float, traffic: float) -> Quantity:
    formula, numbers = f"FLOPs of {top} / bytes of {key}", f"{flops} / {traffic}"
    return Quantity(f"intensity.{key}", name, flops / traffic, "FLOPs per byte", formula, numbers)


def _letter(i: int) -> str:
    """k1, k2, …: no letter that stands for a size."""
    return f"k{i + 1}"


def _sizes(layer: Layer) -> dict[str, Any]:
    found = asdict(layer)
    found["window"] = None if layer.window is None else list(layer.window)
    return found


def _title(layer: Layer, count: int) -> str:
    stack = "one attention layer" if count == 1 else f"{count} attention layers"
    return f"{stack}: {sizes_in_words(layer)}"


def _notes(work: dict[str, Any], two_sided: bool) -> list[str]:
    notes = ["Attention only: embeddings, feed-forward layers and the norms between layers are not counted."]
    if two_sided:
        notes.append("The decoder alone has a cache: its own tokens, and in cross-attention the encoder's.")
    if work["dtype_bytes"] is None:
        notes.append("Numbers of 2 bytes (16 bit) are assumed; float32 has 4.")
    if work["seq"] is None:
        return [*notes, "No number of tokens was given: no FLOPs, bytes and activations."]
    notes.append(
        "FLOPs: a multiply-add is 2; visible pairs only; softmax is 5 operations per visible score, an "
        "exponential counted as one."
    )
    if work["cached"]:
        notes.append(f"Decoding: {work['cached']:,} tokens are in the cache; no backward pass.")
    return notes


def _guest(model: Any) -> Any:
    """What reads a live model of a framework that is imported already, else None."""
    for framework, (kind, reader) in GUESTS.items():
        owner: Any = sys.modules.get(framework)
        for part in kind.split("."):
            owner = getattr(owner, part, None)
        if owner is not None and isinstance(model, owner):
            return import_module(reader).cost_of_model
    return None
