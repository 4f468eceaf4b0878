"""Text to token ids, and ids to words that a person can read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwise.errors import HeadwiseError

EXAMPLE = "The cat sat on the mat because it was tired, while the dog looked at the mat."

CONTINUES = "·"  # shown before a piece that continues the word to its left
BLANKS = {"\n": "⏎", "\r": "⏎", "\t": "⇥", " ": "␣"}
PLACES = re.compile(r"(\d+):(\d+)", re.ASCII)
HINT = "--needle 12:20 names its tokens"
NO_LIMIT = 10**9  # tokenizers without a limit of their own say 1e30


@dataclass(frozen=True)
class Encoded:
    """A text as the model takes it.

    Attributes:
        inputs: keyword arguments for the model, tensors of shape (1, n).
        tokens: n words to show.
        special: positions of the special tokens, ascending, counted from 0.
        notes: what was cut or is unknown, in plain sentences.
    """

    inputs: dict[str, Any]
    tokens: list[str]
    special: list[int]
    notes: list[str]


def encode(tokenizer: Any, text: str, *, max_tokens: int | None = None, limit: int | None = None) -> Encoded:
    """Tokenise ``text`` with the tokenizer's special tokens.

    Args:
        tokenizer: a Hugging Face tokenizer.
        max_tokens: keep at most so many tokens, the special ones included and kept; None keeps the whole
            text.
        limit: the most tokens that the model has positions for; None where it has no limit.

    Raises:
        HeadwiseError: nothing to tokenise, a ``max_tokens`` that leaves no room for a word, or more tokens
            than ``limit``.
    """
    if not text.strip():
        raise HeadwiseError(
            "text", "some text", "an empty text", "write the text after the model, or use --text-file"
        )
    added = tokenizer.num_special_tokens_to_add()
    if max_tokens is not None and max_tokens <= added:
        raise HeadwiseError(
            "--max-tokens",
            f"at least {added + 1} (this tokenizer adds {added} special tokens)",
            str(max_tokens),
        )
    ids = tokenizer(text, verbose=False)["input_ids"]
    whole = len(ids)
    special_ids = special_token_ids(tokenizer)
    if all(token in special_ids for token in ids):
        raise HeadwiseError(
            "text", "a text with at least one token", f"{text!r}, which has none for this tokenizer"
        )
    kept = whole if max_tokens is None else min(whole, max_tokens)
    if limit is not None and kept > limit:
        raise HeadwiseError(
            "text", f"at most {limit} tokens, the positions of this model", f"{kept}", f"--max-tokens {limit}"
        )
    cut = {"truncation": True, "max_length": kept} if kept < whole else {}
    inputs = dict(tokenizer(text, return_tensors="pt", verbose=False, **cut))
    ids = inputs["input_ids"][0].tolist()
    special = [position for position, token in enumerate(ids) if token in special_ids]
    notes = []
    if kept < whole:
        notes.append(
            f"The text has {whole} tokens; {len(ids)} kept, the rest cut off (--max-tokens {max_tokens})."
        )
    unknown = sum(token == tokenizer.unk_token_id and token not in special_ids for token in ids)
    if unknown:
        notes.append(f"Tokens that the tokenizer does not know: {unknown}, shown as {tokenizer.unk_token}.")
    return Encoded(inputs, display_tokens(tokenizer, ids), special, notes)


def place_of(passage: str, tokenizer: Any, text: str, n: int) -> tuple[int, int]:
    """(start, stop) of the tokens that hold a passage of the text; "start:stop" says it itself.

    Args:
        n: how many tokens of the text are kept.

    Raises:
        HeadwiseError: a passage that does not stand there, or not once, or was cut off; a tokenizer that does
            not know where its tokens stand.
    """
    spoken = PLACES.fullmatch(passage)
    if spoken:
        return int(spoken[1]), int(spoken[2])
    times = text.count(passage) if passage.strip() else 0
    if times != 1:
        received = "nothing" if not passage.strip() else f"{passage[:60]!r}, which stands there {times} times"
        raise HeadwiseError("--needle", "a passage that stands in the text once", received, HINT)
    if not getattr(tokenizer, "is_fast", False):
        received = f"{type(tokenizer).__name__}, which does not know where its tokens stand"
        raise HeadwiseError("--needle", "start:stop in tokens for this tokenizer", received, HINT)
    start = text.index(passage)
    stop = start + len(passage)
    spans = tokenizer(text, verbose=False, return_offsets_mapping=True)["offset_mapping"]
    inside = [at for at, (a, z) in enumerate(spans) if a < stop and z > start]
    if not inside or inside[-1] >= n:
        raise HeadwiseError(
            "--needle", f"a passage of the {n} tokens that are kept", f"{passage[:60]!r}", HINT
        )
    return inside[0], inside[-1] + 1


def position_limit(model: Any, tokenizer: Any = None) -> int | None:
    """The most tokens that the model has positions for, by its config and its tokenizer; None: no limit."""
    config = getattr(model.config, "get_text_config", lambda: model.config)()
    said = [getattr(config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None)]
    limits = [int(limit) for limit in said if limit is not None and 0 < limit < NO_LIMIT]
    return min(limits, default=None)


def special_token_ids(tokenizer: Any) -> frozenset[int]:
    """Ids that frame a text, such as [CLS] and </s>; the one for unknown words stands for a word instead."""
    ids = set(tokenizer.all_special_ids)
    unknown = tokenizer.unk_token_id
    frames = {
        getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "cls", "sep", "pad", "mask")
    }
    return frozenset(ids if unknown in frames else ids - {unknown})


def display_tokens(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """One readable string per id, without "##", "Ġ" and "▁".

    A piece that continues the word to its left starts with "·"; blanks are shown as ␣, ⏎ and ⇥.
    """
    raw = tokenizer.convert_ids_to_tokens(list(ids))
    special = special_token_ids(tokenizer)
    vocabulary = tokenizer.get_vocab()
    by_bytes = "Ġthe" in vocabulary or "Ġa" in vocabulary
    by_words = by_bytes or "▁the" in vocabulary or "▁a" in vocabulary  # starts of words carry the mark
    shown: list[str] = []
    inside_word = False
    for token, piece in zip(ids, raw, strict=True):
        if token in special:
            shown.append(piece)
            inside_word = False
            continue
        text, continues = piece, False
        if by_words:
            starts = piece[:1] in {"Ġ", "▁"}
            text = (
                tokenizer.decode([token], clean_up_tokenization_spaces=False)
                if by_bytes
                else piece.replace("▁", " ")
            )
            if "\ufffd" in text:  # part of a character: the raw piece says more than a replacement mark
                text = piece
            text = text[1:] if starts and len(text) > 1 and text[0] == " " else text
            continues = inside_word and not starts and text[:1].isalnum()
        elif piece.startswith("##") and len(piece) > 2:
            text, continues = piece[2:], True
        inside_word = text[-1:].isalnum()
        text = "".join(BLANKS.get(letter, letter) for letter in text) or "␣"
        shown.append(CONTINUES + text if continues else text)
    return shown
