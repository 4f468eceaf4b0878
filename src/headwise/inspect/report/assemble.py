"""From scored layers to a report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwise.inspect.call.text import Text
from headwise.inspect.report.card import score_table
from headwise.inspect.report.entries import layer_entry
from headwise.inspect.report.labels import label_table, most_telling, out_of_reach, raised
from headwise.inspect.report.report import HeadReport
from headwise.inspect.report.sinks import sinks_of
from headwise.inspect.score.measure import means_of
from headwise.inspect.score.scorer import LayerScores
from headwise.plain.version import __version__

Cards = Sequence[tuple[int, int, dict[str, Any]]]

NO_CHECK = {"tokens": 0, "max_abs_difference": None, "causal_leak": None}


def assemble(
    layers: Sequence[LayerScores],
    *,
    model: Mapping[str, Any],
    text_source: str | None = None,
    check: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    watchers: Callable[[Cards], Mapping[str, Any]] | None = None,
) -> HeadReport:
    """The report on scored layers.

    Args:
        layers: in the order of the model; at least one.
        model: name, source, architecture, layers, heads, kv_heads, head_dim, causal.
        check: what the self-test found; None: none was run.
        notes: sentences to put first among the report's notes.
        watchers: gives, from layer, head and scores of every head, the report's fields pairs, needle,
            redundancy and rollout.
    """
    texts = texts_of(layers)
    main = texts[0]
    entries = [layer_entry(layer) for layer in layers]
    cards = [(layer["layer"], head["head"], head["scores"]) for layer in entries for head in layer["heads"]]
    found = [key for _, _, card in cards for key in card]
    null = _null(layers, main)
    return HeadReport(
        headwise=__version__,
        model=dict(model),
        text={"source": text_source, "n_tokens": main.n},
        tokens=main.shown,
        special=main.is_special.nonzero()[0].tolist(),
        sequences=[
            {"name": text.name, "tokens": text.shown, "special": text.is_special.nonzero()[0].tolist()}
            for text in texts
        ],
        check=dict(check if check is not None else NO_CHECK),
        scores=score_table(found),
        labels=label_table(null, any(layer.kind == "cross" for layer in layers)),
        layers=entries,
        telling=most_telling(entries),
        notes=[*notes, *_notes(layers, main), *out_of_reach(null, main.n), *raised(null)],
        pairs=None,
        needle=None,
        sinks=sinks_of(layers, main),
        probe=None,
        redundancy=None,
        rollout=None,
    ).with_fields(**(watchers(cards) if watchers else {}))


def texts_of(layers: Sequence[LayerScores]) -> list[Text]:
    """The texts of the layers, each name once; the first is what most layers read from (of equals: the first
    met), and the one that the report calls its tokens."""
    longest: dict[str, Text] = {}
    layers_of: dict[str, int] = {}
    for layer in layers:
        for text in (layer.queries, layer.keys):
            if text.name not in longest or text.n > longest[text.name].n:
                longest[text.name] = text
        layers_of[layer.queries.name] = layers_of.get(layer.queries.name, 0) + 1
    main = max(layers_of, key=lambda name: layers_of[name])
    return [longest[main], *(text for name, text in longest.items() if name != main)]


def _null(layers: Sequence[LayerScores], main: Text) -> dict[str, float | None]:
    """What uniform attention gives over the main text, by score: where a label is out of reach."""
    for layer in layers:
        if layer.kind == "self" and layer.queries.name == main.name:
            return {key: mean.value(0) for key, mean in means_of(layer.null).items()}
    return {}


def _notes(layers: Sequence[LayerScores], main: Text) -> list[str]:
    notes = []
    kept = min(len(layer.pictures.queries) for layer in layers if layer.queries.name == main.name)
    if kept < main.n:
        notes.append(
            f"The text is long: {kept:,} of its {main.n:,} tokens, in passages spread evenly over it, "
            "keep their strongest keys, and stand for the text in scores that need a pass of their own."
        )
    if not main.is_special.any():
        notes.append("No special tokens were named, so that score is missing.")
    if main.ids is None:
        notes.append("No token ids were given, so duplicate and induction scores are missing.")
    return notes
