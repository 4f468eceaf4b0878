"""Which tokens the queries and the keys of a call are: a text of the inputs, or positions without a name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect.call.call import AttentionCall, Span
from headwise.inspect.call.marks import marked
from headwise.inspect.call.text import Grid, Text
from headwise.inspect.listen.inputs import SOURCE, TARGET, Inputs

Words = Sequence[str] | Callable[[list[int]], Sequence[str]] | None
Special = Sequence[int] | Callable[[list[int]], Sequence[int]] | None
Classes = Mapping[str, Sequence[int] | Sequence[str]] | None


class Texts:
    """The texts of one forward pass, and which of them a call reads from and to.

    Attributes:
        texts: name -> (Text without padding, its span among the tokens of the pass, their number).
    """

    def __init__(self, model: torch.nn.Module, inputs: Inputs) -> None:
        self.texts: dict[str, tuple[Text, Span, int]] = {}
        self._unnamed: dict[tuple[str, int], Text] = {}
        self._patches = _patches(model) if "pixel_values" in inputs.keywords else (0, 0)
        self._sound = any(name in inputs.keywords for name in ("input_features", "input_values"))
        encoder = _encoder(model) if TARGET in inputs.texts or _two_sided(model) else None
        names = {id(module): name for name, module in model.named_modules()}
        self._encoder = None if encoder is None else names.get(id(encoder))

    def add(
        self,
        name: str,
        inputs: Inputs,
        words: Words,
        special: Special,
        classes: Classes = None,
        argument: str = "",
    ) -> None:
        """Make a text of the inputs known, with words to show, the positions of special tokens, and classes.

        Args:
            argument: what stands before the names of the user's arguments in a message.

        Raises:
            HeadwiseError: words, positions or classes that do not fit.
        """
        sequence = inputs.texts[name]
        a, z = sequence.span
        ids = None if sequence.ids is None else sequence.ids[a:z]
        if callable(special):
            special = None if ids is None else special(ids.tolist())
        where = np.zeros(z - a, bool)
        where[marked(f"{argument}special", special, z - a)] = True
        shown = _words(f"{argument}tokens", words, ids, z - a)
        text = Text(z - a, ids, where, name=name, words=shown)
        self.texts[name] = (text.with_classes(classes, f"{argument}classes"), (a, z), sequence.n)

    def main(self) -> Text | None:
        """The text that the model writes, or reads if it writes none."""
        found = self.texts.get(TARGET) or self.texts.get("text")
        return None if found is None else found[0]

    def source(self) -> Text | None:
        """The text that an encoder-decoder model reads."""
        found = self.texts.get(SOURCE)
        return None if found is None else found[0]

    def of(self, call: AttentionCall) -> tuple[AttentionCall, Text, Text]:
        """The call without padding, and the texts of its queries and its keys.

        Raises:
            CapabilityError: attention over parts of the text side by side, as in windows of an image.
        """
        if call.query.shape[0] != 1:
            received = f"{call.name} with {call.query.shape[0]} in one call"
            raise CapabilityError("model", "attention over one sequence at a time", received)
        n_q, n_k = call.first_row + call.query.shape[2], call.key.shape[2]
        inside = self._encoder is not None and call.name.startswith(f"{self._encoder}.")
        queries, rows = self._find(SOURCE if inside else "", n_q)
        keys, span = (queries, rows) if call.kind == "self" else self._find(SOURCE, n_k)
        if call.kind == "self" and n_q != n_k:
            keys, span = self._find("", n_k)
        return call.cut(0, queries=rows, keys=span), queries, keys

    def _find(self, name: str, n: int) -> tuple[Text, Span]:
        names = [name] if name else [TARGET, "text"]
        for known in names:
            text, span, whole = self.texts.get(known, (None, (0, 0), -1))
            if text is not None and whole == n:
                return text, span
        kind = "patches" if self._patches[0] else "frames" if self._sound and name == SOURCE else "positions"
        key = (kind, n)
        if key not in self._unnamed:
            grid = self._grid(kind, n)
            words = None if grid is None else _labels(grid)
            self._unnamed[key] = Text(n, name=_free(kind, self._unnamed), words=words, grid=grid)
        return self._unnamed[key], (0, n)

    def _grid(self, kind: str, n: int) -> Grid | None:
        """The patches among n tokens; those before them are tokens of the model's own."""
        side, pixels = self._patches
        first = n - side * side
        return Grid(first, side, pixels) if kind == "patches" and side and first >= 0 else None


def _labels(grid: Grid) -> tuple[str, ...]:
    """Row and column of every patch."""
    patches = [f"{row},{column}" for row in range(grid.side) for column in range(grid.side)]
    return tuple([f"[{i}]" for i in range(grid.first)] + patches)


def _free(kind: str, taken: dict[tuple[str, int], Text]) -> str:
    count = sum(known == kind for known, _ in taken)
    return kind if count == 0 else f"{kind} ({count + 1})"


def _two_sided(model: torch.nn.Module) -> bool:
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def _encoder(model: torch.nn.Module) -> torch.nn.Module | None:
    get = getattr(model, "get_encoder", None)
    found = get() if callable(get) else getattr(model, "encoder", None)
    return found if isinstance(found, torch.nn.Module) and found is not model else None


def _patches(model: torch.nn.Module) -> tuple[int, int]:
    """Patches a side of a square image, and pixels a side of a patch; 0 where the config does not say."""
    config = getattr(model, "config", None)
    config = getattr(config, "vision_config", config)
    image, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    return (image // patch, patch) if isinstance(image, int) and isinstance(patch, int) and patch else (0, 0)


def _words(argument: str, words: Words, ids: Any, n: int) -> tuple[str, ...] | None:
    if words is None:
        return None
    given = words(ids.tolist()) if callable(words) and ids is not None else words
    if isinstance(given, str) or callable(given) or len(given) != n:
        received = (
            "one string" if isinstance(given, str) else "a function" if callable(given) else f"{len(given)}"
        )
        hint = f"leave {argument} out to show the ids"
        raise HeadwiseError(argument, f"{n} strings, one per id", received, hint)
    return tuple(str(word) for word in given)
