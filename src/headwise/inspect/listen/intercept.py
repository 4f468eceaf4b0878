"""The second and third seam: torch's own attention function, and softmax inside attention modules.

The second hears every call of ``torch.nn.functional.scaled_dot_product_attention``, by name or from inside
``nn.MultiheadAttention``. The third is for models that compute the n x n map themselves: their scores, as
they enter the softmax, are the ``attn_bias`` of a call whose query and key are zero. One layer's map is alive
at a time, as in the model itself.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import RLock, get_ident
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from headwise.errors import CapabilityError
from headwise.inspect.listen.attachment import Attachment, hidden_out

ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
SDPA = functional.scaled_dot_product_attention
SOFTMAX = (functional.softmax, torch.softmax, torch.Tensor.softmax, torch.special.softmax)
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")

TORCH_IS_CHANGED = RLock()  # one thread at a time changes torch for all of them, and puts it back


@contextmanager
def intercepted(attachment: Attachment) -> Iterator[None]:
    """Hear the calls of torch's attention function, of softmax, or of both while the block runs.

    Other threads that want to listen here wait meanwhile.
    """
    running: list[torch.nn.Module] = []
    own = get_ident()  # the hooks are called for the models of all threads

    def enter(module: torch.nn.Module, *_: Any) -> None:
        if get_ident() == own:
            running.append(module)

    def leave(module: torch.nn.Module, *_: Any) -> None:
        if get_ident() == own and running and running[-1] is module:
            running.pop()

    hooks = torch.nn.modules.module
    with ExitStack() as put_back:
        put_back.enter_context(TORCH_IS_CHANGED)
        put_back.callback(hooks.register_module_forward_pre_hook(enter).remove)
        put_back.callback(hooks.register_module_forward_hook(leave, always_call=True).remove)
        fast = torch.backends.mha.get_fastpath_enabled()
        put_back.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        put_back.enter_context(_Listening(attachment, running))
        yield


class _Listening(TorchFunctionMode):
    """What torch calls in place of its own functions while we listen."""

    def __init__(self, attachment: Attachment, running: list[torch.nn.Module]) -> None:
        super().__init__()
        self.attachment, self.running = attachment, running

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        keywords: dict[str, Any] | None = None,
    ) -> Any:
        keywords = keywords or {}
        if function is functional.multi_head_attention_forward:  # hear what it calls in turn
            with self, _seen_through():
                return function(*args, **keywords)
        if self.attachment.inside or not self.running or id(self.running[-1]) not in self.attachment.names:
            return function(*args, **keywords)
        if self.attachment.seams.sdpa and function is SDPA:
            return self._hear_sdpa(*args, **keywords)
        if self.attachment.seams.softmax and function in SOFTMAX:
            module = self._attention_module()
            if module is not None and id(module) not in self.attachment.seams.not_softmax:
                self._hear_softmax(module, *args, **keywords)
        return function(*args, **keywords)

    def _attention_module(self) -> torch.nn.Module | None:
        """The module that is running, or the one around it, if its class or name says attention."""
        for module in reversed(self.running[-2:]):
            last = self.attachment.name(module).split(".")[-1]
            if ATTENTION.search(type(module).__name__) or ATTENTION.search(last):
                return module
        return None

    def _hear_sdpa(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        module = self.running[-1]
        self.attachment.heard["sdpa"].add(id(module))
        where = self.attachment.name(module)
        if dropout_p > 0:
            raise CapabilityError("model", "no dropout", f"{where} with dropout {dropout_p}", "model.eval()")
        lead = query.shape[:-3]
        tensors = [_four(tensor) for tensor in (query, key, value)]
        n_q, n_k = query.shape[-2], key.shape[-2]
        kind = "cross" if self.attachment.is_cross(module) or (n_q != n_k and not is_causal) else "self"
        options: dict[str, Any] = {} if scale is None else {"scale": float(scale)}
        if is_causal:
            options |= {"is_causal": True, "query_offset": 0}
        if attn_mask is not None:
            mask = _four(attn_mask) if attn_mask.dim() > 4 else attn_mask
            name = "attn_mask" if mask.dtype == torch.bool else "attn_bias"
            options[name] = mask.detach() if name == "attn_mask" else hidden_out(mask)
            if kind == "self":
                options |= _order(mask, n_q, n_k)

        def own() -> torch.Tensor:
            found: torch.Tensor = SDPA(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
            return _four(found)

        output = self.attachment.hear(module, (tensors[0], tensors[1], tensors[2]), options, kind, own)
        assert output is not None
        output = output.to(query.dtype)
        return output.reshape(*lead, *output.shape[-3:]) if query.dim() != 4 else output

    def _hear_softmax(
        self, module: torch.nn.Module, scores: torch.Tensor, dim: int | None = None, *_: Any, **__: Any
    ) -> None:
        where = self.attachment.name(module)
        if dim not in (-1, scores.dim() - 1) or scores.dim() not in (3, 4):
            return  # not over keys: a gate inside an attention module, say
        if scores.dim() == 3:
            heads = next(
                (getattr(module, name) for name in HEADS if isinstance(getattr(module, name, None), int)), 1
            )
            if scores.shape[0] % heads:
                sizes = f"{where} with scores {tuple(scores.shape)} and {heads} heads"
                raise CapabilityError("model", "scores of shape (batch, heads, queries, keys)", sizes)
            scores = scores.unflatten(0, (-1, heads))
        self.attachment.heard["softmax"].add(id(module))
        bias = hidden_out(scores)
        batch, heads, n_q, n_k = bias.shape
        options: dict[str, Any] = {"attn_bias": bias, "scale": 1.0}
        kind = "cross" if self.attachment.is_cross(module) else "self"
        if kind == "self":
            order = _order(bias, n_q, n_k)
            kind = "cross" if n_q != n_k and not order["is_causal"] else "self"
            options |= order if kind == "self" else {}
        zeros = [bias.new_zeros(batch, heads, n, 1) for n in (n_q, n_k)]
        self.attachment.hear(module, (zeros[0], zeros[1], None), options, kind, lambda: None)


def _four(tensor: torch.Tensor) -> torch.Tensor:
    """(…, H, n, d) as (B, H, n, d)."""
    while tensor.dim() < 4:
        tensor = tensor[None]
    return tensor.flatten(0, -4) if tensor.dim() > 4 else tensor


def _order(mask: torch.Tensor, n_q: int, n_k: int) -> dict[str, Any]:
    """Whether a dense mask hides all that comes after a query, and where its queries stand among the keys."""
    offset = n_k - n_q
    later = torch.ones(n_q, n_k, dtype=torch.bool).triu(offset + 1)
    hidden = ~mask if mask.dtype == torch.bool else hidden_out(mask) == -torch.inf
    causal = bool(later.any()) and bool(hidden.expand(*hidden.shape[:-2], n_q, n_k)[..., later].all())
    return {"is_causal": causal or (n_q == 1 and n_k > 1), "query_offset": offset}


@contextmanager
def _seen_through() -> Iterator[None]:
    """Let torch's multi-head attention run its own body, though somebody listens."""
    module: Any = functional
    before = module.has_torch_function
    module.has_torch_function = lambda _: False
    try:
        yield
    finally:
        module.has_torch_function = before
