"""rxnmapper: a packaged model of reactions, whose head 5 is known to map atoms."""

import pytest

from headwise.inspect import inspect_heads
from headwise.inspect.load.models import REACTION, load_model


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_model("rxnmapper")


def test_the_tokenizer_reads_smiles(loaded):
    tokens = loaded.tokenizer.convert_ids_to_tokens(loaded.tokenizer(REACTION).input_ids)
    assert tokens[:7] == ["[CLS]", "C", "C", "(", "C", ")", "S"] and tokens[-1] == "[SEP]"
    assert "[O-]" in tokens and ">>" in tokens and "[UNK]" not in tokens
    assert "".join(tokens[1:-1]) == REACTION
    assert loaded.tokenizer("Brc1cccc[nH]1").input_ids.count(loaded.tokenizer.unk_token_id) == 0


def gold_pairs(tokens):
    """Atoms of the product and of the reactants that they were: thiol and fluoropyridine give the thioether.

    The atoms on either side of a symmetry may be exchanged: both are gold.
    """
    arrow = tokens.index(">>")
    product = [i for i in range(arrow + 1, len(tokens) - 1) if tokens[i][0].isalpha()]
    ring = tokens.index("F")  # of Fc1cccnc1F
    pyridine = [i for i in range(ring + 1, arrow) if tokens[i] in ("c", "n")]
    fluorine = [i for i in range(ring, arrow) if tokens[i] == "F"]
    thiol = {0: [1, 4], 1: [2], 2: [1, 4], 3: [6]}
    pairs = [(product[atom], key) for atom, keys in thiol.items() for key in keys]
    # Product: C C ( C ) S c 1 n c c c c 1 F; reactant: F c 1 c c c n c 1 F, its ring read backwards.
    order = [pyridine[5], pyridine[4], pyridine[3], pyridine[2], pyridine[1], pyridine[0]]
    pairs += list(zip(product[4:10], order, strict=True))
    return [*pairs, (product[10], fluorine[0])], [i for i in range(1, arrow) if tokens[i][0].isalpha()]


def test_head_5_maps_the_atoms(loaded):
    encoded = loaded.tokenizer(REACTION, return_tensors="pt")
    tokens = loaded.tokenizer.convert_ids_to_tokens(encoded.input_ids[0].tolist())
    pairs, candidates = gold_pairs(tokens)
    report = inspect_heads(
        loaded.model, dict(encoded), tokens, special=[0, len(tokens) - 1], pairs=pairs,
        pair_candidates=candidates, pairs_both_ways=True,
    )  # fmt: skip
    assert len(report.layers) == 12
    for layer in report.layers[5:]:
        accuracy = [head["scores"]["pair_accuracy"]["value"] for head in layer["heads"]]
        assert max(range(8), key=accuracy.__getitem__) == 5 and accuracy[5] >= 10 / 11
        assert sorted(accuracy)[-2] < accuracy[5]
