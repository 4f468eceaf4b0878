"""Listening to every attention call of a model, and leaving it as it was found, whatever happens.

Most Hugging Face models call attention through transformers' registry: ``registry`` hears them. What calls
torch's own attention, or computes a softmax of its own, is heard in ``intercept``. Both hand their calls to
the ``Attachment``.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect.listen.attachment import REGISTRY, Attachment, Observer, Seams

COMPUTES = ("torch", "kernel")


_ATTACHED: list[Attachment] = []


@contextmanager
def attached(
    model: torch.nn.Module,
    observe: Observer,
    *,
    compute: str = "torch",
    seams: Seams = REGISTRY,
) -> Iterator[Attachment]:
    """Show every attention call of ``model`` to ``observe`` while the block runs.

    The block runs forward passes, or ``model.generate``, without gradients. Everything is put back at the
    end, also after an exception or Ctrl-C. ``observe`` runs under ``torch.no_grad`` and may raise.

    Args:
        compute: who computes the model's output: "torch" (its own), or "kernel", our kernel in the same pass
            as the statistics.
        seams: where to listen; ``headwise.inspect.listen.seams`` finds it out.

    Raises:
        HeadwiseError: an unknown ``compute``.
        CapabilityError: the model is attached already; inside the block: an attention that is not served.
    """
    if compute not in COMPUTES:
        raise HeadwiseError("compute", '"torch" or "kernel"', repr(compute), 'leave it at "torch"')
    _check_at_rest(model)
    names: dict[int, tuple[str, torch.nn.Module]] = {}
    for name, module in model.named_modules():
        names[id(module)] = (name, module)
    attachment = Attachment(model, names, observe, compute, seams)
    with attachment.put_back as put_back:
        _ATTACHED.append(attachment)
        put_back.callback(_ATTACHED.remove, attachment)
        hook = model.register_forward_pre_hook(attachment.new_pass)
        put_back.callback(hook.remove)
        if seams.registry != frozenset() and importlib.util.find_spec("transformers") is not None:
            from headwise.inspect.listen.registry import registered

            put_back.enter_context(registered(attachment))
        if seams.sdpa or seams.softmax:
            from headwise.inspect.listen.intercept import intercepted

            put_back.enter_context(intercepted(attachment))
        put_back.enter_context(torch.no_grad())
        yield attachment


def _check_at_rest(model: torch.nn.Module) -> None:
    if any(attachment.model is model for attachment in _ATTACHED):
        raise CapabilityError("model", "a model at rest", "one that is being inspected already")


@contextmanager
def left_as_found(model: torch.nn.Module) -> Iterator[None]:
    """Look once more at the end whether the model was put back.

    Ctrl-C may come on the way out of ``attached``, before its own first line: what it had to undo then waits
    for as long as somebody keeps the exception.
    """
    _check_at_rest(model)
    try:
        yield
    finally:
        for attachment in list(_ATTACHED):
            if attachment.model is model:
                attachment.put_back.close()
