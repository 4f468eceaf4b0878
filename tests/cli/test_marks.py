"""What a user marks in a text: files of gold pairs and of classes, and what is said of others."""

import json

import pytest

from headwise.cli.marks import read_classes, read_pairs
from headwise.errors import HeadwiseError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8,2\n", {"pairs": [(8, 2)]}),
        (
            "# query, keys\n\n8,2,3  # two keys\n 11; 4\n3\t9\n15 0",
            {"pairs": [(8, 2), (8, 3), (11, 4), (3, 9), (15, 0)]},
        ),
        ("[[8, 2, 3], [11, 4]]", {"pairs": [(8, 2), (8, 3), (11, 4)]}),
        (
            '\n{"pairs": [[8, 2]], "pair_candidates": [1, 2], "pairs_both_ways": true}',
            {"pairs": [(8, 2)], "pair_candidates": [1, 2], "pairs_both_ways": True},
        ),
    ],
)
def test_pairs(tmp_path, text, expected):
    (tmp_path / "p").write_text("\ufeff" + text, encoding="utf-8")
    assert read_pairs(tmp_path / "p") == expected


PAIR = r"--pairs: expected a query and its gold keys, as positions from 0: 8,2; received "
WRONG_PAIRS = {
    "8": PAIR + r"line 1 of .*p: \[8\]",
    "8,2\nx,3": PAIR + "line 2 of .*p: 'x,3'",
    "8,-2": PAIR + "line 1 of .*p: '8,-2'",
    "8,²": PAIR + "line 1 of .*p: '8,²'",
    "": "--pairs: expected at least one pair; received .*p with none in it",
    "# nothing": "--pairs: expected at least one pair",
    "[]": "--pairs: expected at least one pair",
    "[[8, 2], [3]]": PAIR + r"entry 1 of .*p: \[3\]",
    "[[8, 2.5]]": PAIR + "entry 0",
    "[[8, true]]": PAIR + "entry 0",
    "[8, 2]": PAIR + "entry 0 of .*p: 8",
    "[[8, 2]": "--pairs: expected a JSON file",
    '{"gold": []}': "expected a list of pairs, or an object with pairs and, .*; received 'gold' in .*p",
    '{"pair_candidates": [1]}': "received .*p without a list of pairs",
    '{"pairs": [[1, 2]], "pairs_both_ways": 1}': "expected pairs_both_ways true or false; received 1",
}


@pytest.mark.parametrize("text", WRONG_PAIRS)
def test_what_are_no_pairs(tmp_path, text):
    (tmp_path / "p").write_text(text, encoding="utf-8")
    with pytest.raises(HeadwiseError, match=WRONG_PAIRS[text]):
        read_pairs(tmp_path / "p")


def test_classes(tmp_path):
    given = {"commas": [",", ";"], "first": [0, 1]}
    (tmp_path / "c").write_text(json.dumps(given))
    assert read_classes(tmp_path / "c") == given
    expected = "--classes: expected a JSON object with lists of positions or of tokens; received "
    for wrong, message in [([1], r".*c with \[1\]"), ({}, ".*c with {}"), ({"a": ","}, "'a': \",\"")]:
        (tmp_path / "c").write_text(json.dumps(wrong))
        with pytest.raises(HeadwiseError, match=expected + message + r".* Hint: \{\"commas\""):
            read_classes(tmp_path / "c")
    (tmp_path / "c").write_text("{")
    with pytest.raises(HeadwiseError, match="--classes: expected a JSON file"):
        read_classes(tmp_path / "c")


@pytest.mark.parametrize("read", [read_pairs, read_classes])
def test_no_such_file(tmp_path, read):
    with pytest.raises(
        HeadwiseError, match=r"^--\w+: expected a file that can be read; received \S*none \(No"
    ):
        read(tmp_path / "none")
    (tmp_path / "latin").write_bytes(b"\xe9")
    with pytest.raises(HeadwiseError, match="expected a UTF-8 text file; received .*latin"):
        read(tmp_path / "latin")
