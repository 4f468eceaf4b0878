"""BERT-like models of molecules and reactions written as SMILES, with one word of vocab.txt per token."""

from pathlib import Path

PATTERN = (  # of Schwaller et al. 2018: atoms in brackets, two-letter atoms, atoms, bonds, rings
    r"\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|%[0-9]{2}|[0-9]"
)


def read(source: Path, into: Path) -> None:
    """Write the model of a folder with vocab.txt as a transformers folder whose tokenizer reads SMILES."""
    from tokenizers import Regex, Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    words = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
    ids = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    ends = [("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    named = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    limit = AutoConfig.from_pretrained(source).max_position_embeddings
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=limit, clean_up_tokenization_spaces=False, **named
    ).save_pretrained(into)
    AutoModel.from_pretrained(source, dtype="float32").save_pretrained(into)
