"""Swapping attention layers in a model, and measuring what that changes."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.torch.compat.drop_in import MultiheadAttention


@dataclass(frozen=True, slots=True)
class Replacement:
    """One layer that was replaced.

    Attributes:
        path: its name in the model.
        embed_dim, num_heads: its sizes.
        difference: largest |difference| of the outputs on random input, divided by the largest |output|;
            None where it could not be measured (a layer without data).
    """

    path: str
    embed_dim: int
    num_heads: int
    difference: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """What ``replace_attention`` did.

    Attributes:
        replaced: the layers, in the order of the model.
        left: path -> why the layer was left as it was.
        switched_off: encoders whose way past their attention layers was closed.
        model_difference: as ``Replacement.difference``, of the whole model on the given input; None without.
    """

    replaced: tuple[Replacement, ...]
    left: dict[str, str]
    switched_off: tuple[str, ...]
    model_difference: float | None

    def __str__(self) -> str:
        width = max((len(one.path) for one in self.replaced), default=0)
        lines = [f"replaced {len(self.replaced)} of {len(self.replaced) + len(self.left)} attention layers"]
        for one in self.replaced:
            shown = "not measured" if one.difference is None else f"{one.difference:.1e}"
            sizes = f"width {one.embed_dim}, {one.num_heads} heads"
            lines.append(f"  {one.path:<{width}}  {sizes}, relative difference {shown}")
        lines += [f"  {path} left: {why}" for path, why in self.left.items()]
        lines += [f"  {path}: nested tensors off, which go past the layers" for path in self.switched_off]
        if self.model_difference is not None:
            lines.append(f"whole model: relative difference {self.model_difference:.1e}")
        return "\n".join(lines)


def replace_attention(model: nn.Module, *example: Any, **example_options: Any) -> Report:
    """Put :class:`MultiheadAttention` in the place of every ``torch.nn.MultiheadAttention`` in ``model``.

    The new layers share the parameters, so nothing is copied, and optimisers go on working. Each is measured
    against the one it replaces, on random input; the whole model too, when an input is given.

    Args:
        model: changed in place.
        example, example_options: an input to measure the model on, as ``model(*example, **example_options)``.

    Returns:
        What was replaced where, what was left and why, and the differences; ``print`` shows it.

    Raises:
        HeadwiseError: ``model`` is no module, is itself a ``torch.nn.MultiheadAttention``, or holds none.

    >>> import torch
    >>> encoder = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> len(replace_attention(encoder).replaced)
    1
    """
    if not isinstance(model, nn.Module):
        hint = "replace_attention(model, x) measures it on x too"
        raise HeadwiseError("model", "a torch.nn.Module", type(model).__name__, hint)
    if isinstance(model, nn.MultiheadAttention):
        expected = "a model that holds attention layers"
        hint = "MultiheadAttention.from_torch(layer) makes the layer that shares its parameters"
        raise HeadwiseError("model", expected, "an attention layer itself", hint)
    measured = bool(example or example_options)
    before = _run(model, example, example_options) if measured else None
    if measured and not before:  # known before anything is changed
        hint = "a model that answers with tensors, alone or in a tuple, list or dict, can be measured"
        raise HeadwiseError("example", "an input on which the model answers with tensors", "none", hint)
    replaced, left, done = [], {}, {}
    for path, parent, name, module in list(_attention_layers(model)):
        if type(module) is not nn.MultiheadAttention:
            left[path] = f"{type(module).__name__}, whose forward may do other things"
            if type(module) is MultiheadAttention:
                left[path] = "headwise's already"
            continue
        if id(module) not in done:
            done[id(module)] = MultiheadAttention.from_torch(module)
        new = done[id(module)]
        difference = _measure(module, new)
        setattr(parent, name, new)
        replaced.append(Replacement(path, module.embed_dim, module.num_heads, difference))
    if not replaced and not left:
        hint = "Hugging Face models have attention classes of their own: see headwise.inspect_heads"
        raise HeadwiseError("model", "a model with torch.nn.MultiheadAttention in it", "one without", hint)
    switched_off = []
    for path, module in model.named_modules():
        if isinstance(module, nn.TransformerEncoder) and getattr(module, "use_nested_tensor", False):
            module.use_nested_tensor = False
            switched_off.append(path or type(module).__name__)
    after = _run(model, example, example_options) if measured else None
    change = _difference(before, after) if measured else None
    return Report(tuple(replaced), left, tuple(switched_off), change)


def _attention_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, nn.MultiheadAttention]]:
    """Path, parent, name and layer, wherever one is registered; one layer may be registered twice."""
    for prefix, parent in model.named_modules(remove_duplicate=True):
        for name, child in parent._modules.items():
            if isinstance(child, nn.MultiheadAttention):
                yield f"{prefix}.{name}" if prefix else name, parent, name, child


@contextmanager
def _still(*modules: nn.Module) -> Iterator[None]:
    """Without gradients, dropout and torch's ways past the layers; all flags come back as they were."""
    fast = torch.backends.mha.get_fastpath_enabled()
    flags = [(module, module.training) for top in modules for module in top.modules()]
    state = torch.get_rng_state()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        for top in modules:
            top.eval()
        with torch.no_grad():
            yield
    finally:
        for module, flag in flags:
            module.training = flag
        torch.set_rng_state(state)
        torch.backends.mha.set_fastpath_enabled(fast)


def _run(model: nn.Module, example: tuple[Any, ...], options: dict[str, Any]) -> list[Tensor]:
    with _still(model):
        return _tensors(model(*example, **options))


def _tensors(found: Any) -> list[Tensor]:
    """The floating tensors of an answer, whatever holds them."""
    if isinstance(found, Tensor):
        return [found] if found.is_floating_point() else []
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list | tuple):
        return [tensor for one in found for tensor in _tensors(one)]
    return []


def _measure(old: nn.MultiheadAttention, new: nn.Module) -> float | None:
    """Both layers, by themselves, on the same random input of a few tokens."""
    weight = old.out_proj.weight
    if weight.is_meta:
        return None
    generator = torch.Generator().manual_seed(0)
    shape = (2, 7) if old.batch_first else (7, 2)
    inputs = [
        torch.randn(*shape, width, generator=generator).to(weight.device, weight.dtype)
        for width in (old.embed_dim, old.kdim, old.vdim)
    ]
    bare_old, bare_new = (_without_hooks(layer) for layer in (old, new))
    with _still(bare_old, bare_new):
        outputs = [layer(*inputs, need_weights=False)[:1] for layer in (bare_old, bare_new)]
    return _difference(*map(_tensors, outputs))


def _without_hooks(layer: nn.Module) -> nn.Module:
    """The same layer, sharing its parameters, whose calls no hook sees."""
    bare = copy.copy(layer)
    bare.__dict__ = dict(layer.__dict__)
    for name in ("_forward_hooks", "_forward_pre_hooks"):
        bare.__dict__[name] = type(layer.__dict__[name])()
    return bare


def _difference(before: list[Tensor] | None, after: list[Tensor] | None) -> float:
    """Largest |difference|, divided by the largest |number|."""
    assert before is not None and after is not None
    largest = max((float(x.abs().max()) for x in before if x.numel()), default=0.0)
    pairs = [(x, y) for x, y in zip(before, after, strict=True) if x.numel()]
    change = max((float((x - y).abs().max()) for x, y in pairs), default=0.0)
    return change / largest if largest else change
