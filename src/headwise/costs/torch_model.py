"""The cost of a live torch model, read off its attention modules without running them.

``headwise.cost(model)`` leads here. Counting does not depend on hooks, so it sees what those miss: the
projection of ``nn.MultiheadAttention``, which is no submodule, and its products; and the attention modules of
Hugging Face transformers. An attention module of an unknown form is refused by name.
"""

from collections.abc import Iterator
from typing import Any

from torch import nn

from headwise.costs.data import Cost
from headwise.costs.sizes import Layer, LayerKind
from headwise.costs.stack import check_two_sided, cost_of_layers
from headwise.costs.torch_forms import FORMS, Found
from headwise.errors import CapabilityError


def cost_of_model(model: nn.Module, *, causal: bool | None, work: dict[str, Any]) -> Cost:
    """The cost of all attention modules of ``model``.

    Args:
        causal: None: what each module says (``is_causal``), else False.
        work: seq, kv_seq, cached, batch and the other lengths, as ``headwise.cost`` names them. With
            cross-attention in the model, ``seq`` is the decoder's length and ``kv_seq`` the encoder's.

    Raises:
        CapabilityError: no attention module, or one of an unknown form.
        HeadwiseError: lengths that the model cannot be run on.
    """
    found = list(_attention_modules(model, causal, work["kv_seq"]))
    if not found:
        expected = "a model with nn.MultiheadAttention or attention modules of Hugging Face transformers"
        raise CapabilityError(
            "model", expected, type(model).__name__, "or give sizes: cost(d_model=768, heads=12)"
        )
    crosses = any(item.layer.cross for item in found)
    check_two_sided(work, crosses, "the model")
    kinds = _kinds(found, crosses)
    notes = []
    others = sorted({name for item in found for name in item.others})
    if others:
        notes.append(f"Parameters counted without operations of their own: {', '.join(others)}.")
    lengths = dict(work)
    if lengths["dtype_bytes"] is None:
        lengths["dtype_bytes"] = next(model.parameters()).element_size()
    count = f"{len(found)} attention module{'s' if len(found) > 1 else ''}"
    return cost_of_layers(kinds, f"{type(model).__name__}: {count}", lengths, notes)


def _kinds(found: list[Found], crosses: bool) -> list[LayerKind]:
    """Layers of the same sizes, counted together."""
    groups: dict[tuple[Layer, str], list[Found]] = {}
    for item in found:
        encodes = crosses and not item.layer.cross and "encoder" in item.path.split(".")
        part = "cross" if item.layer.cross else "other" if encodes else "self"
        groups.setdefault((item.layer, part), []).append(item)
    kinds = []
    for (layer, part), items in groups.items():
        name = type(items[0].module).__name__
        if len(groups) > 1 and items[0].path:
            name += f" at {items[0].path}"
        kinds.append(LayerKind(name, len(items), layer, part))
    return kinds


def _attention_modules(model: nn.Module, causal: bool | None, kv_seq: int | None) -> Iterator[Found]:
    inside: list[str] = []  # paths that a module found above them has counted already
    for path, module in model.named_modules():
        if any(not above or path == above or path.startswith(f"{above}.") for above in inside):
            continue
        form = next((read for fits, read in FORMS if fits(module)), None)
        if form is None:
            if "attention" in type(module).__name__.lower() and not _holds_known(module):
                if next(module.parameters(), None) is None:
                    continue
                received = f"{type(module).__name__} at {path or 'the top'}"
                hint = "give its sizes instead: cost(d_model=..., heads=...)"
                raise CapabilityError("model", "attention modules of a known form", received, hint)
            continue
        inside.append(path)
        yield form(path, module, causal, kv_seq)


def _holds_known(module: nn.Module) -> bool:
    return any(fits(part) for name, part in module.named_modules() if name for fits, _ in FORMS)
