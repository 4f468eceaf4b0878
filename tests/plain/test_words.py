"""Words about things of any kind."""

import pytest

from headwise.plain.words import inner, sentence, visible


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("cat", "cat"),
        ("", "(empty)"),
        (" ", "␣"),
        ("\u00a0 ", "␣␣"),
        (" cat", " cat"),
        ("\n", "\\n"),
        ("a\tb\x1b[0m", "a\\tb\\x1b[0m"),
        ("\u2028", "\\u2028"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ("\u200d", "\\u200d"),
        ("👨\u200d👩", "👨\u200d👩"),
        ("שלום", "שלום"),
        ("</script>", "</script>"),
    ],
)
def test_tokens_are_shown_without_characters_that_hide_or_move_text(token: str, shown: str) -> None:
    assert visible(token) == shown
    visible(token).encode("utf-8")


def test_phrases_become_sentences() -> None:
    phrases = ("weight on the token before", "Weight.", "")
    assert [sentence(phrase) for phrase in phrases] == ["Weight on the token before.", "Weight.", "."]


def test_names_inside_a_sentence_keep_their_capitals_where_they_must() -> None:
    assert [inner(name) for name in ("Largest weight", "BOS mass", "x")] == [
        "largest weight",
        "BOS mass",
        "x",
    ]
