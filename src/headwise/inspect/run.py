"""The main job from end to end: check, self-test, one listened forward pass, report."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from headwise.errors import HeadwiseError
from headwise.inspect.load.models import require_frameworks
from headwise.inspect.report.assemble import assemble
from headwise.inspect.report.report import HeadReport
from headwise.inspect.score.scorer import Scorer
from headwise.inspect.watch.watchers import Watchers

if TYPE_CHECKING:
    from headwise.inspect.call.call import AttentionCall
    from headwise.inspect.listen.generation import Written
    from headwise.inspect.listen.inputs import Inputs
    from headwise.inspect.listen.selftest import SelfTest
    from headwise.inspect.listen.texts import Classes, Special, Texts, Words


def inspect_heads(
    model: Any,
    inputs: Any,
    tokens: "Words" = None,
    *,
    special: "Special" = None,
    source_tokens: "Words" = None,
    source_special: "Special" = None,
    classes: "Classes" = None,
    source_classes: "Classes" = None,
    sequence: int | None = None,
    generate: int | Mapping[str, Any] | None = None,
    compute: str = "torch",
    pairs: Sequence[Sequence[int]] | None = None,
    pair_candidates: Sequence[int] | None = None,
    pairs_both_ways: bool = False,
    needle: Sequence[int] | None = None,
    redundancy: bool = True,
    rollout: Any = None,
    name: str | None = None,
    source: str | None = None,
    text_source: str | None = None,
    notes: Sequence[str] = (),
    num_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> HeadReport:
    """Run one forward pass of a model over one text and score every head.

    The model computes its own output; headwise listens to query and key of every attention call and computes
    the statistics from them. No n x n array is made where the model makes none, and ``output_attentions`` is
    never asked for. Encoders, decoders, encoder-decoders and vision models are heard in transformers'
    attention registry; other models where they call torch's ``scaled_dot_product_attention``, or, one layer
    at a time, where they compute a softmax in a module named attention. A self-test on the first 32 tokens
    comes first; the model is left as it was, also after an exception or Ctrl-C.

    A head gets a label where its score passes the threshold of the label and is at least five times what
    uniform attention gives; the induction label also needs at least 5 query rows with a possible match. Where
    the text is too short for a label, the report's notes say so.

    Args:
        model: a torch model in evaluation mode, on the CPU, of any floating type: from transformers, or a
            module of your own. Half precision is scored in float32, from the model's own query and key.
        inputs: token ids, a tensor of shape (n,) or (1, n), or the mapping that a tokenizer or processor
            returns. Padding is cut off. For a module of your own: its argument, a tuple, or a mapping.
        tokens: n strings to show, or a function from ids to strings; None shows the ids. Of an
            encoder-decoder model these are the decoder's tokens.
        special: positions of the special tokens, from 0, padding not counted, or a function from ids to
            them; None or empty: there are none, and that score is missing.
        source_tokens, source_special: the same for what an encoder-decoder model reads.
        classes, source_classes: name -> the members of a class of your own: positions, or tokens as they are
            shown (``{"punctuation": [".", ","]}``). The weight on each class becomes a score.
        sequence: which sequence of a batch; needed where there are several.
        generate: how many tokens the model shall write, greedily and with its cache, or keywords of
            ``model.generate``. Their rows are scored too; the last token is never read, so it has none.
        compute: who computes the model's output: "torch", or "kernel", our kernel in the same pass as the
            statistics, which is faster.
        pairs, pair_candidates, pairs_both_ways: gold pairs (query, key), as for ``inspect_qk``; of an
            encoder-decoder model between its two texts.
        needle: (start, stop) of a passage of the prompt (of an encoder-decoder model: of what it reads), with
            ``generate``: which heads look there at the very token that the model then writes.
        redundancy: whether to compare all heads with each other.
        rollout: None; or how many groups of tokens, or the groups as (start, stop).
        name, source: what the report calls the model and says it came from; None: the class and the config's
            path.
        text_source: what the report says the text came from.
        notes: sentences to put first among the report's notes.
        num_threads: threads of our kernel; None: its own default.
        progress: called as ``progress(layers done, layers)``, first with 0.

    Returns:
        A HeadReport.

    Raises:
        HeadwiseError: a model in training mode, ids that the model does not have, tokens or special that do
            not fit.
        CapabilityError: what is not served: several sequences and none chosen, another device, dropout,
            sparse or paged attention, an attention that is heard nowhere. The message names it.
    """
    require_frameworks(["torch"])
    from headwise.inspect.listen.capture import left_as_found
    from headwise.inspect.listen.generation import started, write
    from headwise.inspect.listen.inputs import check_model, take_inputs
    from headwise.inspect.listen.selftest import self_test
    from headwise.inspect.listen.texts import Texts

    check_model(model)
    with left_as_found(model):
        given = take_inputs(model, inputs, sequence)
        check = self_test(model, given if generate is None else started(model, given), compute)
        written = None
        if generate is not None:
            written = write(model, given, generate, check.seams, compute)
            given = written.inputs
        texts = Texts(model, given)
        for text in given.texts:
            if text == "source":
                texts.add(text, given, source_tokens, source_special, source_classes, "source_")
            else:
                texts.add(text, given, tokens, special, classes)
        scorer = Scorer(check.all_heads, num_threads)
        watchers = Watchers(
            heads=check.all_heads,
            pairs=pairs,
            pair_candidates=pair_candidates,
            pairs_both_ways=pairs_both_ways,
            needle=needle,
            written=None if written is None else (written.prompt, written.tokens),
            redundancy=redundancy,
            rollout=rollout,
        )
        _attach(watchers, scorer, texts)
        calls = None if written is None else written.calls
        _score(model, given, check, compute, calls, texts, scorer, progress)
    return assemble(
        scorer.entries(),
        model={
            "name": name or type(model).__name__,
            "source": source if source is not None else _path(model),
            "architecture": type(model).__name__,
            "layers": check.layers,
            "heads": check.heads,
            "kv_heads": check.kv_heads,
            "head_dim": check.head_dim,
            "causal": check.is_causal,
        },
        text_source=text_source,
        check={
            "tokens": check.tokens,
            "max_abs_difference": check.max_abs_difference,
            "causal_leak": check.causal_leak,
        },
        notes=[*notes, *_notes(check, compute, written)],
        watchers=watchers.report,
    )


def _score(
    model: Any,
    given: "Inputs",
    check: "SelfTest",
    compute: str,
    steps: "list[AttentionCall] | None",
    texts: "Texts",
    scorer: Scorer,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Score the steps of a model that wrote, or one listened forward pass.

    The scoring has a thread of its own, for which the model waits: what it keeps then has a heap of its own.
    Small arrays that stay between the model's large ones would keep freed memory from being used again: 8,192
    tokens took one more tensor's memory for every layer.
    """
    import torch

    from headwise.inspect.listen.capture import attached
    from headwise.inspect.listen.inputs import forward, without_logits

    def score(call: "AttentionCall") -> None:
        with torch.no_grad():
            scorer.observe(*texts.of(call))

    def observe(call: "AttentionCall") -> None:
        aside.submit(score, call).result()
        if progress is not None:
            progress(len(scorer.layers), check.layers)

    if progress is not None:
        progress(0, check.layers)
    with ThreadPoolExecutor(max_workers=1) as aside:
        if steps is not None:
            for call in steps:
                observe(call)
            return
        with attached(model, observe, compute=compute, seams=check.seams):
            forward(model, without_logits(model, given))


def _attach(watchers: Watchers, scorer: Scorer, texts: "Texts") -> None:
    main = texts.main()
    if main is not None:
        watchers.attach(scorer, main, read=texts.source())
        return
    for argument, wish in (("pairs", watchers.pairs), ("needle", watchers.needle)):
        if wish is not None:
            raise HeadwiseError(argument, "None for a model without token ids", argument)


def _path(model: Any) -> str:
    return str(getattr(getattr(model, "config", None), "name_or_path", ""))


def _notes(check: "SelfTest", compute: str, written: "Written | None") -> list[str]:
    notes = []
    if written is not None and len(written.tokens):
        notes.append(
            f"The model wrote {len(written.tokens)} tokens, from token {written.prompt} on; the last one it "
            "never read, so that one is not shown."
        )
    if check.seams.softmax:
        notes.append(
            "The model computes its attention weights itself, so its n x n maps existed, one layer at a time."
        )
    if compute == "kernel":
        notes.append(
            "Our kernel computed the model's attention; on the first tokens its outputs differ from the "
            f"model's own by at most {check.max_abs_difference:.2g}."
        )
    return notes
