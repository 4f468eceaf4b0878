"""The rules of a multi-head layer: projections, heads, masks, and what is left on in evaluation."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from headwise.check.cases.layer_case import LayerCase, random_layer
from headwise.check.rules.makers import OPTIONS, no_empty_rows
from headwise.check.rules.outputs import ask
from headwise.check.rules.rule import Rule, Run
from headwise.check.subjects.kinds import KINDS, kinds_for, take
from headwise.check.subjects.layer_function import LayerCaller
from headwise.check.subjects.layer_weights import LayerWeights
from headwise.check.subjects.subject import NoAnswer, Subject
from headwise.check.verdict.findings import FAILED, FOLLOWS, NOTE, PASSED, Finding
from headwise.check.verdict.judge import diagnose, judge

_GROUP = "layer"
Build = Callable[[np.random.Generator, int], LayerCase]


def layers_of(subject: Subject) -> Build:
    """Where the layer's weights come from: of a torch layer its own, else random ones."""
    if subject.layers is not None:
        return subject.layers

    def build(random: np.random.Generator, again: int) -> LayerCase:
        sizes = {"batch": 3, "n": 7, "heads": 2, "width": 6} if again == 2 else {}
        case = random_layer(random, **sizes)
        call = subject.contract.call
        return call.takes(case) if isinstance(call, LayerCaller) else case

    return build


def choose_layer(subject: Subject) -> Finding:
    """Runs the layer once; the kind of array is the contract's, or what the function's code names."""
    kinds = kinds_for(subject.fn) if subject.contract.kind is None else [subject.contract.kind]
    subject.layout = "bne"
    refusals = []
    ways = subject.contract.call.ways() if isinstance(subject.contract.call, LayerCaller) else [None]
    ran: list[tuple[int, str, str, Any]] = []
    for kind, way in product(kinds, ways):
        for dtype in KINDS[kind].dtypes()[:2]:
            subject.kind, subject.dtype = kind, dtype
            _go(subject, way)
            case = layers_of(subject)(subject.random("called"), 0)
            try:
                verdict = judge(subject, case, subject.run(case).output)
            except NoAnswer as no:
                refusals.append(no)
                continue
            named = verdict.ok or diagnose(subject, layers_of(subject), "called", case, verdict) is not None
            ran.append((0 if verdict.ok else 1 if named else 2, kind, dtype, way))
            break
        if ran and (not ran[-1][0] or way == ways[-1]):
            break  # right, or every way of the kind that runs was tried
    if ran:
        _, subject.kind, subject.dtype, way = min(ran, key=lambda one: one[0])
        _go(subject, way)
        remarks = sorted(subject.remarks)
        return Finding("called", "called", NOTE if remarks else PASSED, "".join(remarks[:1]))
    first = refusals[0]
    repair = "Contract(features={'layer'}, call=lambda fn, case: ...) says how it is called"
    return Finding("called", "called", FAILED, first.what, repair=repair, where=first.where)


def _go(subject: Subject, way: tuple[bool, bool] | None) -> None:
    if way is not None:
        subject.contract.call.transposed, subject.contract.call.one_by_one = way  # type: ignore[union-attr]


def _layer(name: str, option: str = "") -> Run:
    """A rule on the output of the layer, with one option of attention in it."""

    def run(subject: Subject) -> Finding:
        build = layers_of(subject)

        def make(random: np.random.Generator, again: int) -> LayerCase:
            case = build(random, again)
            for added in (option, *subject.contract.always):
                case = _with(case, added, random) if added in OPTIONS else case
            return case

        return ask(subject, name, make, _GROUP)

    return run


def _with(case: LayerCase, option: str, random: np.random.Generator) -> LayerCase:
    made = no_empty_rows(OPTIONS[option](random, case.inner()))
    fields = {"mask": made.mask, "padding": made.padding, "is_causal": made.is_causal or None}
    return replace(case, options={name: value for name, value in fields.items() if value is not None})


def _repeated(subject: Subject) -> Finding:
    name, group = "dropout off in evaluation", "called"
    case = layers_of(subject)(subject.random(name), 0)
    first = subject.run(case).output
    again = subject.run(case).output
    if np.array_equal(first, again, equal_nan=True):
        return Finding(name, group, PASSED, error=0.0, allowed=0.0)
    off = float(np.nanmax(np.abs(again - first)))
    return Finding(
        name,
        group,
        FAILED,
        "two calls in evaluation mode differ: dropout is still on",
        fault="dropout left on",
        repair="pass dropout_p only while self.training",
        evidence=f"largest difference {off:.3g}",
        error=off,
        allowed=0.0,
        seen=("pytorch/pytorch#124464", "karpathy/nanoGPT#240", "huggingface/pytorch-image-models#1978"),
    )


def _batch(subject: Subject) -> Finding:
    name = "layer batch entries apart"
    case = layers_of(subject)(subject.random(name), 0)
    before = subject.run(case).output
    after = subject.run(replace(case, x=np.concatenate([case.x[:1], case.x[1:] + 1.7]))).output
    off = float(np.nanmax(np.abs(after[0] - before[0])))
    size = float(np.nanmax(np.abs(before[0])))
    allowed = 1e-4 * max(size, 1e-30)
    if off <= allowed:
        return Finding(name, _GROUP, PASSED, error=off, allowed=allowed)
    said = "batch entry 0 changes when entry 1 does"
    status = FOLLOWS if subject.named else FAILED
    return Finding(
        name,
        _GROUP,
        status,
        said,
        fault="batch leaks",
        repair="batch_first, or the axes in their order",
        error=off,
        allowed=allowed,
    )


def judge_weights(layer: LayerWeights, subject: Subject) -> Finding:
    """What shows in the weights themselves, before anything runs."""
    rule, group = "weights", "layer"
    if layer.is_shared():
        shape = tuple(layer.matrix("q").shape)
        return Finding(
            rule,
            group,
            FAILED,
            "all heads share one projection: the input is split before it is projected",
            fault="one projection for all heads",
            repair="project the whole input, then split",
            evidence=f"W_Q is {shape} in a layer of width {layer.width()} with {layer.heads} heads",
            seen=("MarcoMeter/episodic-transformer-memory-ppo#22",),
        )
    own = dict(layer.original.named_parameters(remove_duplicate=False))
    if "qkv" not in layer.roles:
        q, k, v = (own[layer.roles[role][0]] for role in "qkv")
        if q is k or q is v or k is v:
            what = (
                "query, key and value share one parameter"
                if q is k and k is v
                else "two projections are one parameter"
            )
            return Finding(
                rule,
                group,
                FAILED,
                what,
                fault="one projection for q, k and v",
                repair="each has a weight of its own",
            )
    if layer.heads > 1 and _heads_alike(layer, own):
        return Finding(
            rule,
            group,
            FAILED,
            "all heads start with the same weights, and so stay alike in training",
            fault="identical heads",
            repair="draw the weights of every head on their own",
        )
    if "o" not in layer.roles and layer.heads > 1:
        return Finding(
            rule,
            group,
            FAILED,
            "there is no output projection: nothing mixes the heads",
            fault="no output projection",
            repair="multiply the concatenation by W_O; if it lives in another "
            "module: Contract(notes={'weights'})",
        )
    return Finding(rule, group, PASSED)


def _heads_alike(layer: LayerWeights, own: Mapping[str, Any]) -> bool:
    """Whether W_Q of every head holds the same numbers, and not only zeros."""
    names = layer.roles["qkv" if "qkv" in layer.roles else "q"]
    matrix = np.concatenate(
        [take(own[name]) if name.endswith("weight") else take(own[name]).T for name in names]
    )
    if "qkv" in layer.roles:
        matrix = matrix[: matrix.shape[0] * layer.heads // (layer.heads + 2 * layer.kv_heads)]
    if matrix.shape[0] % layer.heads:
        return False
    parts = matrix.reshape(layer.heads, -1, matrix.shape[1])
    return bool(matrix.any() and (parts == parts[:1]).all() and not (matrix == matrix.flat[0]).all())


_NEEDS = frozenset({"layer"})
LAYER_RULES: tuple[Rule, ...] = (
    Rule("dropout off in evaluation", "called", "two calls in evaluation mode give the same bits", _repeated,
         _NEEDS),
    Rule("layer", _GROUP, "project, split, attend, concatenate, project back", _layer("layer"), _NEEDS),
    Rule("layer with mask", _GROUP, "hidden keys take no part", _layer("layer with mask", "mask"),
         _NEEDS | {"mask"}),
    Rule("layer with padding", _GROUP, "padded keys take no part", _layer("layer with padding", "padding"),
         _NEEDS | {"padding"}),
    Rule("layer, causal", _GROUP, "position i sees positions j <= i", _layer("layer, causal", "causal"),
         _NEEDS | {"causal"}),
    Rule("layer batch entries apart", _GROUP, "entries of a batch do not meet", _batch, _NEEDS),
)  # fmt: skip
