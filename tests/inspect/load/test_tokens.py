"""Text to ids, and ids to words that a person can read."""

import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, Unigram

from headwise.errors import HeadwiseError
from headwise.inspect.load.models import load_model
from headwise.inspect.load.tokens import (
    EXAMPLE,
    display_tokens,
    encode,
    place_of,
    position_limit,
    special_token_ids,
)
from tests.inspect.zoo import build


@pytest.fixture(scope="module")
def minilm():
    return load_model("minilm")


@pytest.fixture(scope="module")
def by_bytes():
    """A tokenizer of GPT-2's kind: "Ġ" starts a word, one token is both end and unknown."""
    pieces = ["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("e", "r"), ("h", "e")]
    pieces += ["".join(pair) for pair in merges]
    words = Tokenizer(BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words.decoder = decoders.ByteLevel()
    words.add_special_tokens([AddedToken("<|end|>", special=True)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<|end|>", eos_token="<|end|>", unk_token="<|end|>"
    )


@pytest.fixture(scope="module")
def by_marks():
    """A tokenizer of SentencePiece's kind: "▁" starts a word."""
    pieces = [
        ("<unk>", 0.0),
        ("</s>", 0.0),
        ("▁the", -1.0),
        ("▁a", -1.0),
        ("ir", -1.0),
        ("▁", -2.0),
        (".", -1.0),
    ]
    words = Tokenizer(Unigram(pieces, unk_id=0))
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    words.decoder = decoders.Metaspace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="</s>")


def test_the_example(minilm):
    found = encode(minilm.tokenizer, EXAMPLE)
    assert found.tokens[:6] == ["[CLS]", "the", "cat", "sat", "on", "the"] and found.tokens[-1] == "[SEP]"
    assert found.special == [0, len(found.tokens) - 1] and found.notes == []
    assert found.inputs["input_ids"].shape == (1, len(found.tokens)) == (1, 21)
    assert "it" in found.tokens and "cat" in found.tokens


def test_pieces_of_words_show_that_they_continue(minilm):
    assert encode(minilm.tokenizer, "unaffable ##").tokens == [
        "[CLS]",
        "una",
        "·ffa",
        "·ble",
        "#",
        "#",
        "[SEP]",
    ]


def test_byte_level_pieces(by_bytes):
    ids = by_bytes("the there é\n\t")["input_ids"]
    shown = display_tokens(by_bytes, [*ids, 0])
    assert shown == ["t", "·he", "the", "·r", "·e", "␣", "Ã", "©", "⏎", "⇥", "<|end|>"]


def test_sentencepiece_pieces(by_marks):
    ids = by_marks("the air.")["input_ids"]
    assert by_marks.convert_ids_to_tokens(ids) == ["▁the", "▁a", "ir", "."]
    assert display_tokens(by_marks, [*ids, 5, 1]) == ["the", "a", "·ir", ".", "␣", "</s>"]


def test_special_tokens_are_those_that_frame_a_text(minilm, by_bytes, by_marks):
    names = minilm.tokenizer.convert_ids_to_tokens(sorted(special_token_ids(minilm.tokenizer)))
    assert names == ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]  # the unknown word is a word
    assert special_token_ids(by_marks) == {1}
    assert special_token_ids(by_bytes) == {0}  # there the unknown token ends a text too


def test_unknown_words_are_counted(minilm):
    found = encode(minilm.tokenizer, "a \U0001f9ff b")
    assert found.tokens == ["[CLS]", "a", "[UNK]", "b", "[SEP]"] and found.special == [0, 4]
    assert found.notes == ["Tokens that the tokenizer does not know: 1, shown as [UNK]."]


def test_the_place_of_a_passage(minilm, by_bytes):
    text = "The cat sat on the unaffable mat."
    tokens = encode(minilm.tokenizer, text).tokens
    start, stop = place_of("unaffable mat", minilm.tokenizer, text, len(tokens))
    assert tokens[start:stop] == ["una", "·ffa", "·ble", "mat"]
    assert place_of("at s", minilm.tokenizer, text, 99) == (2, 4)  # pieces that it only touches belong to it
    assert place_of("3:17", minilm.tokenizer, text, 5) == (3, 17)
    with pytest.raises(
        HeadwiseError, match="once; received 'at', which stands there 3 times. Hint: --needle 12:20"
    ):
        place_of("at", minilm.tokenizer, text, len(tokens))
    with pytest.raises(
        HeadwiseError, match="expected a passage that stands in the text once; received nothing"
    ):
        place_of(" ", minilm.tokenizer, text, len(tokens))
    with pytest.raises(HeadwiseError, match="a passage of the 6 tokens that are kept; received 'mat'"):
        place_of("mat", minilm.tokenizer, text, 6)
    slow = transformers.ByT5Tokenizer()
    with pytest.raises(
        HeadwiseError, match="start:stop in tokens for this tokenizer; received ByT5Tokenizer, which"
    ):
        place_of("mat", slow, text, 40)


def test_max_tokens_cuts_and_keeps_the_special_tokens(minilm):
    found = encode(minilm.tokenizer, "one two three four five", max_tokens=4)
    assert found.tokens == ["[CLS]", "one", "two", "[SEP]"] and found.special == [0, 3]
    assert found.notes == ["The text has 7 tokens; 4 kept, the rest cut off (--max-tokens 4)."]
    whole = encode(minilm.tokenizer, "one two three four five", max_tokens=7)
    assert len(whole.tokens) == 7 and whole.notes == []
    again = encode(minilm.tokenizer, "one two three four five")  # the tokenizer did not keep the limit
    assert len(again.tokens) == 7


def test_a_text_beyond_the_positions_is_refused(minilm):
    text = "one " * 600
    limit = position_limit(minilm.model, minilm.tokenizer)
    assert limit == 512
    with pytest.raises(
        HeadwiseError, match=r"text: expected at most 512 tokens.*received 602\. Hint: --max-tokens 512"
    ):
        encode(minilm.tokenizer, text, limit=limit)
    with pytest.raises(HeadwiseError, match=r"received 600\. Hint: --max-tokens 512"):
        encode(minilm.tokenizer, text, max_tokens=600, limit=limit)
    assert len(encode(minilm.tokenizer, text, max_tokens=512, limit=limit).tokens) == 512


def test_the_limit_is_the_smaller_one(minilm):
    model = build("bert")
    assert position_limit(model) == 64
    assert position_limit(model, minilm.tokenizer) == 64
    bloom = transformers.BloomModel(
        transformers.BloomConfig(hidden_size=16, n_layer=1, n_head=2, vocab_size=9)
    )
    assert position_limit(bloom) is None  # no table of positions
    assert position_limit(bloom, minilm.tokenizer) == 512


@pytest.mark.parametrize("text", ["", " ", "\n\t\n"])
def test_an_empty_text_is_refused(minilm, text):
    with pytest.raises(HeadwiseError, match="text: expected some text; received an empty text"):
        encode(minilm.tokenizer, text)


@pytest.mark.parametrize("text", ["\u200b", "[SEP]", "[CLS] [SEP]"])
def test_a_text_without_tokens_is_refused(minilm, text):
    with pytest.raises(
        HeadwiseError, match="text: expected a text with at least one token; received .* none"
    ):
        encode(minilm.tokenizer, text)


@pytest.mark.parametrize("count", [2, 1, 0, -5])
def test_max_tokens_has_to_leave_room(minilm, count):
    with pytest.raises(
        HeadwiseError, match=rf"--max-tokens: expected at least 3 \(.*2 special tokens\); received {count}"
    ):
        encode(minilm.tokenizer, "one", max_tokens=count)
