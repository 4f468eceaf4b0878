"""What the user hands to ``inspect_heads``: a model that can be inspected, and the ids of one text."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from headwise.errors import CapabilityError, HeadwiseError

REFUSED_INPUTS = {
    "past_key_values": "a key/value cache",
    "cache": "a key/value cache",
    "encoder_hidden_states": "cross-attention to another sequence",
    "decoder_input_ids": "an encoder-decoder model",
    "inputs_embeds": "embeddings instead of token ids",
}
KINDS = "token ids (a tensor of shape (n,) or (1, n), or what the tokenizer returns)"


def check_model(model: Any) -> None:
    """Refuse what is not a Hugging Face torch model in evaluation mode, float32 or float64, on the CPU.

    Raises:
        HeadwiseError: no torch module with a config, or one in training mode.
        CapabilityError: another device or dtype, an encoder-decoder model, or weights asked for by the
            config.
    """
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise HeadwiseError("model", "a Hugging Face torch model", kind, "AutoModel.from_pretrained(...)")
    training = [name or type(model).__name__ for name, module in model.named_modules() if module.training]
    if training:
        raise HeadwiseError(
            "model", "a model in evaluation mode", f"{training[0]} in training mode", "model.eval()"
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise CapabilityError(
            "model",
            "an encoder or a decoder alone",
            f"{type(model).__name__}, an encoder-decoder model",
            "model.get_encoder() gives the encoder; cross-attention is not yet served",
        )
    for name, weight in model.named_parameters():
        if weight.device.type != "cpu":
            raise CapabilityError(
                "model", "a model on the CPU", f"{name} on {weight.device}", "model.to('cpu')"
            )
        if weight.is_floating_point() and weight.dtype not in (torch.float32, torch.float64):
            raise CapabilityError(
                "model", "float32 or float64 weights", f"{name} in {weight.dtype}", "model.float()"
            )
    if getattr(model.config, "output_attentions", False):
        raise CapabilityError(
            "model",
            "a model that is not asked for its dense weights",
            "config.output_attentions=True",
            "model.config.output_attentions = False",
        )


def one_sequence(model: torch.nn.Module, inputs: Any) -> dict[str, Any]:
    """The keyword arguments of one forward pass over one sequence, ``input_ids`` of shape (1, n) among them.

    Other tensors of shape (n,) get a batch axis too. ``use_cache=False`` is added
    where the model knows it. The caller's own dictionary and tensors are not touched.

    Raises:
        HeadwiseError: no ids, ids that are not integers or not of the model's vocabulary, or too many for its
            positions.
        CapabilityError: several sequences, padding, a cache, cross-attention, or weights asked for.
    """
    given: dict[str, Any] = dict(inputs) if isinstance(inputs, Mapping) else {"input_ids": inputs}
    for name, what in REFUSED_INPUTS.items():
        if given.get(name) is not None:
            raise CapabilityError("inputs", KINDS, f"{name} ({what})", "it is not yet served")
    for name in ("use_cache", "output_attentions"):
        if given.get(name):
            raise CapabilityError("inputs", KINDS, f"{name}={given[name]}", f"leave {name} out")
    if "input_ids" not in given:
        raise HeadwiseError(
            "inputs", KINDS, f"a mapping with {', '.join(map(str, given)) or 'nothing'} in it"
        )
    ids = given["input_ids"] = _ids(given["input_ids"])
    n = ids.shape[1]
    for name, value in given.items():  # a tokenizer may also return lists or NumPy arrays
        if isinstance(value, list | tuple | np.ndarray):
            given[name] = torch.as_tensor(np.asarray(value))
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and value.shape == (n,):
            given[name] = value[None]
    _check_ids(model, ids)
    padding = given.get("attention_mask")
    if isinstance(padding, torch.Tensor) and padding.dim() == 2 and not bool(padding.all()):
        hidden = int((padding == 0).sum())
        raise CapabilityError(
            "inputs['attention_mask']",
            "a text without padding",
            f"{hidden} masked positions of {padding.numel()}",
            "pass one text of its own length; padding is not yet served",
        )
    if "use_cache" in inspect.signature(model.forward).parameters:
        given["use_cache"] = False
    return given


def _ids(value: Any) -> torch.Tensor:
    kind = type(value).__name__
    if isinstance(value, str):
        raise HeadwiseError("inputs", KINDS, "a text", "tokenizer(text, return_tensors='pt')")
    try:
        if isinstance(value, torch.Tensor):
            ids = value
        else:
            found = np.asarray(value)
            ids = torch.as_tensor(found if found.size else found.astype(np.int64))
    except (TypeError, ValueError, RuntimeError) as error:
        raise HeadwiseError("inputs", KINDS, kind) from error
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise HeadwiseError("inputs", KINDS, f"{kind} of {ids.dtype}")
    if ids.dim() == 2 and ids.shape[0] > 1:
        raise CapabilityError(
            "inputs", KINDS, f"a batch of {ids.shape[0]} sequences", "call once per sequence"
        )
    if ids.dim() not in (1, 2) or ids.shape[-1] == 0 or ids.shape[0] == 0:
        raise HeadwiseError("inputs", KINDS, f"shape {tuple(ids.shape)}")
    return ids.reshape(1, -1).to(torch.int64)


def _check_ids(model: torch.nn.Module, ids: torch.Tensor) -> None:
    try:
        vocabulary = int(model.get_input_embeddings().num_embeddings)
    except (AttributeError, NotImplementedError):
        vocabulary = None
    if vocabulary is not None and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
        raise HeadwiseError(
            "inputs",
            f"token ids from 0 to {vocabulary - 1}",
            f"ids from {int(ids.min())} to {int(ids.max())}",
            "use the tokenizer of this model",
        )
    config = getattr(model.config, "get_text_config", lambda: model.config)()
    limit = getattr(config, "max_position_embeddings", None)
    if isinstance(limit, int) and 0 < limit < ids.shape[1]:
        raise HeadwiseError(
            "inputs",
            f"at most {limit} tokens, the positions of this model",
            str(ids.shape[1]),
            f"cut the text (on the command line: --max-tokens {limit})",
        )


def first_tokens(inputs: dict[str, Any], count: int) -> dict[str, Any]:
    """The same keyword arguments for the first ``count`` tokens: every tensor over the n positions is cut."""
    n = inputs["input_ids"].shape[1]
    return {
        name: value[:, :count] if isinstance(value, torch.Tensor) and value.shape[:2] == (1, n) else value
        for name, value in inputs.items()
    }


def without_logits(model: torch.nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """The same keyword arguments, but a language model gives the logits of the last token only."""
    known = "logits_to_keep" in inspect.signature(model.forward).parameters
    return {"logits_to_keep": 1, **inputs} if known else inputs


def forward(model: torch.nn.Module, inputs: dict[str, Any]) -> Any:
    """One forward pass without gradients; an index outside the model's tables becomes a HeadwiseError."""
    try:
        with torch.no_grad():
            return model(**inputs)
    except IndexError as error:
        raise HeadwiseError(
            "inputs",
            "ids and positions that the model has",
            f"{inputs['input_ids'].shape[1]} tokens ({error})",
            "fewer tokens (on the command line: --max-tokens)",
        ) from error
