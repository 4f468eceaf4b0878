"""What the user hands to ``inspect_heads``: a model that can be inspected, and one text for it."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headwise.errors import CapabilityError, HeadwiseError

REFUSED_INPUTS = {
    "past_key_values": "a key/value cache from before",
    "cache": "a key/value cache from before",
}
KINDS = "token ids (a tensor of shape (n,) or (1, n), or what the tokenizer or the processor returns)"
SOURCE, TARGET = "source", "target"  # the two texts of an encoder-decoder model
MAIN = ("input_ids", "inputs_embeds", "pixel_values", "input_features", "input_values")


@dataclass(frozen=True, eq=False)
class Sequence:
    """One sequence of tokens among the inputs.

    Attributes:
        argument: the keyword that holds it, such as "input_ids".
        ids: (n,) token ids, padding included; None where only embeddings are known.
        real: (n,) False at padding.
    """

    argument: str
    ids: npt.NDArray[np.int64] | None
    real: npt.NDArray[np.bool_]

    @property
    def n(self) -> int:
        """Number of tokens, padding included."""
        return len(self.real)

    @property
    def span(self) -> tuple[int, int]:
        """From the first to the last real token."""
        real = np.flatnonzero(self.real)
        return (int(real[0]), int(real[-1]) + 1) if len(real) else (0, 0)


@dataclass(frozen=True, eq=False)
class Inputs:
    """One forward pass over one sequence (B = 1).

    Attributes:
        args, keywords: what the model is called with.
        texts: name -> Sequence; "text", or "source" and "target" of an encoder-decoder model. Images and
            sounds have none.
    """

    args: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, Sequence] = field(default_factory=dict)

    @property
    def main(self) -> Sequence | None:
        """The text that the model writes, or reads if it writes none."""
        return self.texts.get(TARGET) or self.texts.get("text")

    def first(self, count: int) -> "Inputs":
        """The same inputs for the first ``count`` tokens of each text that are no padding: every tensor over
        them, and every mask of their pairs, is cut."""
        keywords, texts = dict(self.keywords), {}
        for key, text in self.texts.items():
            start, stop = text.span
            span = slice(start, min(stop, start + count))
            texts[key] = Sequence(
                text.argument, None if text.ids is None else text.ids[span], text.real[span]
            )
            for name, value in self.keywords.items():
                if isinstance(value, torch.Tensor) and value.dim() > 1:
                    keywords[name] = _cut(keywords[name], value.shape, text.n, span)
        return Inputs(self.args, keywords, texts)

    def with_read(self, read: "list[tuple[str, torch.Tensor]]") -> "Inputs":
        """The same inputs with the ids that the model was given in all its steps."""
        texts = dict(self.texts)
        argument = read[0][0] if read else ""
        ids = np.concatenate([part[0].cpu().numpy() for _, part in read]) if read else np.zeros(0, np.int64)
        name = "text" if "text" in texts else TARGET
        texts[name] = Sequence(argument, ids.astype(np.int64), np.ones(len(ids), bool))
        return replace(self, texts=texts)


def _cut(value: torch.Tensor, shape: torch.Size, n: int, span: slice) -> torch.Tensor:
    if shape[1] == n:
        return value[:, span]
    if len(shape) == 4 and shape[-1] == n:  # (B, 1 or H, 1 or n, n)
        return value[..., span if shape[-2] == n else slice(None), span]
    return value


def check_model(model: Any) -> None:
    """Refuse what is not a torch model in evaluation mode.

    Raises:
        HeadwiseError: no torch module, or one in training mode.
        CapabilityError: a model without numbers, or one that is asked for dense weights by its config.
    """
    if not isinstance(model, torch.nn.Module):
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        hint = "AutoModel.from_pretrained(...), or a torch.nn.Module of your own"
        raise HeadwiseError("model", "a torch model", kind, hint)
    training = [name or type(model).__name__ for name, module in model.named_modules() if module.training]
    if training:
        raise HeadwiseError(
            "model", "a model in evaluation mode", f"{training[0]} in training mode", "model.eval()"
        )
    for name, weight in model.named_parameters():
        if weight.device.type != "cpu":
            raise CapabilityError(
                "model", "a model on the CPU", f"{name} on {weight.device}", "model.to('cpu')"
            )
    if getattr(getattr(model, "config", None), "output_attentions", False):
        raise CapabilityError(
            "model",
            "a model that is not asked for its dense weights",
            "config.output_attentions=True",
            "model.config.output_attentions = False",
        )


def take_inputs(model: torch.nn.Module, inputs: Any, sequence: int | None = None) -> Inputs:
    """The arguments of one forward pass over one sequence.

    Tensors over one sequence get a batch axis where they have none; of a batch, ``sequence`` is taken.
    ``use_cache=False`` is added where the model knows it. The caller's own dictionary and tensors are not
    touched.

    Raises:
        HeadwiseError: no ids, ids that are not integers or not of the model's vocabulary, too many for its
            positions, or nothing but padding.
        CapabilityError: several sequences and none chosen, a cache, or weights asked for.
    """
    if not hasattr(model, "config"):
        return _plain(inputs)
    given = _given(model, inputs)
    for name, what in REFUSED_INPUTS.items():
        if given.get(name) is not None:
            hint = "give the whole text at once, or generate=n and let the model write"
            raise CapabilityError("inputs", KINDS, f"{name} ({what})", hint)
    for name in ("use_cache", "output_attentions"):
        if given.get(name):
            raise CapabilityError("inputs", KINDS, f"{name}={given[name]}", f"leave {name} out")
    for name in ("input_ids", "decoder_input_ids"):
        if given.get(name) is not None:
            given[name] = _ids(name, given[name])
    given = {name: _tensor(value) for name, value in given.items()}
    main = next((given[name] for name in MAIN if isinstance(given.get(name), torch.Tensor)), None)
    if main is None:
        listed = ", ".join(map(str, given)) or "nothing"
        raise HeadwiseError("inputs", KINDS, f"a mapping with {listed} in it")
    given = _with_batch_axis(given)
    given = _one_of(given, next(given[n] for n in MAIN if isinstance(given.get(n), torch.Tensor)), sequence)
    texts = _texts(model, given)
    for text in texts.values():
        _check_text(model, text)
    if "use_cache" in inspect.signature(model.forward).parameters:
        given["use_cache"] = False
    return Inputs((), given, texts)


def _plain(inputs: Any) -> Inputs:
    """For a torch module of one's own: what it is called with, as it is; ids are known by their name."""
    if isinstance(inputs, Mapping):
        keywords = {name: _tensor(value) for name, value in inputs.items()}
        args: tuple[Any, ...] = ()
        ids = keywords.get("input_ids")
    else:
        args = inputs if isinstance(inputs, tuple) else (_tensor(inputs),)
        keywords, ids = {}, args[0] if len(args) == 1 else None
        if not args or not isinstance(args[0], torch.Tensor):
            raise HeadwiseError("inputs", "a tensor, a tuple or a mapping of them", type(inputs).__name__)
    if not isinstance(ids, torch.Tensor) or ids.is_floating_point() or ids.dim() != 2 or ids.shape[0] != 1:
        return Inputs(args, keywords)
    found = ids[0].cpu().numpy().astype(np.int64)
    return Inputs(args, keywords, {"text": Sequence("input_ids", found, np.ones(len(found), bool))})


def _given(model: Any, inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if isinstance(inputs, str):
        raise HeadwiseError("inputs", KINDS, "a text", "tokenizer(text, return_tensors='pt')")
    main = getattr(model, "main_input_name", "input_ids")
    return {main if getattr(inputs, "ndim", 0) > 2 else "input_ids": inputs}


def _tensor(value: Any) -> Any:
    """A tokenizer may also return lists or NumPy arrays."""
    return torch.as_tensor(np.asarray(value)) if isinstance(value, list | tuple | np.ndarray) else value


def _ids(name: str, value: Any) -> torch.Tensor:
    where = "inputs" if name == "input_ids" else f"inputs[{name!r}]"
    kind = type(value).__name__
    try:
        if isinstance(value, torch.Tensor):
            ids = value
        else:
            found = np.asarray(value)
            ids = torch.as_tensor(found if found.size else found.astype(np.int64))
    except (TypeError, ValueError, RuntimeError) as error:
        raise HeadwiseError(where, KINDS, kind) from error
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise HeadwiseError(where, KINDS, f"{kind} of {ids.dtype}")
    if ids.dim() not in (1, 2) or ids.shape[-1] == 0 or ids.shape[0] == 0:
        raise HeadwiseError(where, KINDS, f"shape {tuple(ids.shape)}")
    return ids.to(torch.int64)


def _with_batch_axis(given: dict[str, Any]) -> dict[str, Any]:
    """Ids of shape (n,) become (1, n), and so does what stands beside them with their shape."""
    flat = [given[name].shape for name in ("input_ids", "decoder_input_ids") if _is_flat(given.get(name))]
    return {
        name: value[None] if isinstance(value, torch.Tensor) and value.shape in flat else value
        for name, value in given.items()
    }


def _is_flat(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 1


def _one_of(given: dict[str, Any], main: torch.Tensor, sequence: int | None) -> dict[str, Any]:
    batch = main.shape[0]
    if sequence is None and batch > 1:
        hint = f"sequence=0 … {batch - 1} picks one; a report is about one text"
        raise CapabilityError("inputs", KINDS, f"a batch of {batch} sequences", hint)
    if sequence is not None and not (isinstance(sequence, int) and 0 <= sequence < batch):
        raise HeadwiseError("sequence", f"a number from 0 to {batch - 1}", repr(sequence))
    at = slice(sequence or 0, (sequence or 0) + 1)
    return {
        name: value[at]
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == batch
        else value
        for name, value in given.items()
    }


def _texts(model: Any, given: dict[str, Any]) -> dict[str, Sequence]:
    two = bool(getattr(model.config, "is_encoder_decoder", False))
    named = [("input_ids", "attention_mask", SOURCE if two else "text")]
    named.append(("decoder_input_ids", "decoder_attention_mask", TARGET))
    texts = {}
    for argument, mask, name in named:
        value = given.get(argument)
        if argument == "input_ids" and value is None:
            argument, value = "inputs_embeds", given.get("inputs_embeds")
        if not isinstance(value, torch.Tensor):
            continue
        ids = None if value.is_floating_point() else value[0].cpu().numpy().astype(np.int64)
        real = np.ones(value.shape[1], bool)
        hidden = given.get(mask)
        if isinstance(hidden, torch.Tensor) and tuple(hidden.shape) == tuple(value.shape[:2]):
            real = hidden[0].cpu().numpy().astype(bool)
        texts[name] = Sequence(argument, ids, real)
    return texts


def _check_text(model: Any, text: Sequence) -> None:
    where = "inputs" if text.argument == "input_ids" else f"inputs[{text.argument!r}]"
    if not text.real.any():
        raise HeadwiseError(where, "at least one real token", f"{text.n} of padding")
    if text.ids is not None:
        try:
            vocabulary = int(model.get_input_embeddings().num_embeddings)
        except (AttributeError, NotImplementedError):
            vocabulary = None
        low, high = int(text.ids.min()), int(text.ids.max())
        if vocabulary is not None and not 0 <= low <= high < vocabulary:
            expected = f"token ids from 0 to {vocabulary - 1}"
            raise HeadwiseError(
                where, expected, f"ids from {low} to {high}", "use the tokenizer of this model"
            )
    config = getattr(model.config, "get_text_config", lambda: model.config)()
    limit = getattr(config, "max_position_embeddings", None)
    if isinstance(limit, int) and 0 < limit < text.n:
        raise HeadwiseError(
            where,
            f"at most {limit} tokens, the positions of this model",
            str(text.n),
            f"cut the text (on the command line: --max-tokens {limit})",
        )


def without_logits(model: torch.nn.Module, inputs: Inputs) -> Inputs:
    """The same inputs, but a language model gives the logits of the last token only."""
    known = "logits_to_keep" in inspect.signature(model.forward).parameters
    keywords = {"logits_to_keep": 1, **inputs.keywords} if known else inputs.keywords
    return Inputs(inputs.args, keywords, inputs.texts)


def forward(model: torch.nn.Module, inputs: Inputs) -> Any:
    """One forward pass without gradients; an index outside the model's tables becomes a HeadwiseError."""
    try:
        with torch.no_grad():
            return model(*inputs.args, **inputs.keywords)
    except IndexError as error:
        tokens = inputs.main.n if inputs.main else "these"
        raise HeadwiseError(
            "inputs",
            "ids and positions that the model has",
            f"{tokens} tokens ({error})",
            "fewer tokens (on the command line: --max-tokens)",
        ) from error
    except ValueError as error:
        two = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
        if isinstance(error, HeadwiseError) or not two or TARGET in inputs.texts:
            raise
        hint = "add decoder_input_ids, or generate=n and let the model write"
        raise HeadwiseError("inputs", "both texts of an encoder-decoder model", "one text", hint) from error
