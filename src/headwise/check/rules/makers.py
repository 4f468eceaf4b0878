"""The cases of the rules on values: rule name -> maker of (random numbers, which time) -> case.

Times 0 and 1 have the same shape and different numbers; time 2 has another shape. Options that every call has
(``Contract.always``) are put into every case.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from headwise.check.cases import chain
from headwise.check.cases.case import Case, plain, with_bias, with_mask, with_padding, with_past
from headwise.check.subjects.contract import Contract

Random = np.random.Generator
Maker = Callable[[Random, int, Contract], Case]
BASE = 100.0  # all frequencies of 8 features show within a few positions
CAP, WINDOW, SCALE = 1.5, 3, 0.7


def _sizes(first: dict[str, Any], other: dict[str, Any]) -> Callable[[Random, int, Contract], Case]:
    """A plain case in one of two shapes; rotary pairs need an even width, groups their own heads."""

    def make(random: Random, again: int, contract: Contract) -> Case:
        sizes = dict(other if again == 2 else first)
        if "rope" in contract.always:
            sizes["d_k"] = 8
        if "gqa" in contract.always and "kv_heads" not in sizes:
            sizes |= {"heads": 6, "kv_heads": 2, "d_k": 8}
        return plain(random, **sizes)

    return make


_square = _sizes({"n_q": 5, "d_k": 6}, {"batch": 3, "heads": 2, "n_q": 7, "d_k": 4})
_cross = _sizes({"n_q": 4, "n_k": 7, "d_k": 6}, {"batch": 3, "heads": 2, "n_q": 6, "n_k": 9, "d_k": 4})
_wide = _sizes(
    {"n_q": 4, "n_k": 7, "d_v": 5}, {"batch": 3, "heads": 2, "n_q": 6, "n_k": 9, "d_k": 4, "d_v": 7}
)
_narrow = _sizes({"n_q": 5, "d_v": 4}, {"batch": 3, "heads": 2, "n_q": 7, "d_k": 4, "d_v": 3})
_groups = _sizes(
    {"heads": 6, "kv_heads": 2, "n_q": 5, "d_k": 8},
    {"batch": 3, "heads": 8, "kv_heads": 2, "n_q": 7, "d_k": 4},
)
_even = _sizes({"n_q": 5, "d_k": 8}, {"batch": 3, "heads": 2, "n_q": 7, "d_k": 12})
_step = _sizes({"n_q": 3, "d_k": 8}, {"batch": 3, "heads": 2, "n_q": 2, "d_k": 12})


def _then(make: Maker, *steps: Callable[..., Case], **changes: Any) -> Maker:
    """The case of ``make`` with options added."""

    def made(random: Random, again: int, contract: Contract) -> Case:
        case = replace(make(random, again, contract), **changes)
        for step in steps:
            case = step(random, case)
        return case

    return made


def _cached(random: Random, again: int, contract: Contract) -> Case:
    case = _step(random, again, contract)
    served = frozenset(contract.always) | frozenset(contract.features or ())
    changes: dict[str, Any] = {"is_causal": "causal" in served, "interleaved": contract.interleaved}
    if "rope" in contract.always or "rope" in served:
        changes["rotary_base"] = BASE
    return with_past(random, replace(case, **changes), 5 if again == 2 else 4)


def _masked(random: Random, again: int, contract: Contract) -> Case:
    return with_mask(random, _square(random, again, contract))


MAKERS: dict[str, Maker] = {
    "values": _square,
    "more keys than queries": _cross,
    "value width": _narrow,
    "all sizes unlike": _wide,
    "grouped heads": _groups,
    "scale": _then(_square, scale=SCALE),
    "mask": _masked,
    "padding": _then(_square, with_padding),
    "mask and padding": _then(_masked, with_padding),
    "bias": _then(_square, with_bias),
    "mask and bias": _then(_masked, with_bias),
    "causal": _then(_square, is_causal=True),
    "causal, more keys": _then(_cross, is_causal=True),
    "causal and mask": _then(_masked, is_causal=True),
    "rotary positions": _then(_even, rotary_base=BASE),
    "cache": _cached,
    "window": _then(_square, window=(WINDOW, None)),
    "causal window": _then(_square, window=(WINDOW, None), is_causal=True),
    "soft cap": _then(_square, softcap=CAP),
    "soft cap and mask": _then(_masked, softcap=CAP),
    "soft cap and causal": _then(_square, softcap=CAP, is_causal=True),
    "grouped heads and mask": _then(_groups, with_mask),
    "grouped heads and causal": _then(_groups, is_causal=True),
}


OPTIONS: dict[str, Callable[[Random, Case], Case]] = {
    "mask": with_mask,
    "padding": with_padding,
    "causal": lambda random, case: replace(case, is_causal=True),
}


def maker(name: str, contract: Contract) -> Callable[[Random, int], Case]:
    """``make(random, again)`` for a rule under a contract."""
    return partial(_complete, MAKERS[name], contract)


def complete(case: Case, random: Random, contract: Contract) -> Case:
    """The case with everything that every call has."""
    always, has = frozenset(contract.always), case.has()
    changes: dict[str, Any] = {"interleaved": contract.interleaved}
    if contract.causal_alignment is not None:
        changes["aligned"] = contract.causal_alignment
    if "causal" in always:
        changes["is_causal"] = True
    if "softcap" in always - has:
        changes["softcap"] = CAP
    if "window" in always - has:
        changes["window"] = (WINDOW, None)
    if "rope" in always - has:
        changes["rotary_base"] = BASE
    if "scale" in always - has:
        changes["scale"] = SCALE
    case = replace(case, **changes)
    for name, add in (("mask", with_mask), ("bias", with_bias), ("padding", with_padding)):
        if name in always - has:
            case = add(random, case)
    if "cache" in always - has:
        case = with_past(random, case, 4)
    return no_empty_rows(case)


def no_empty_rows(case: Case) -> Case:
    """The mask opened at the first key that everything else shows, in rows that would see nothing."""
    if case.mask is None:
        return case
    parts = [chain.causal(case, case.n_k), chain.windowed(case, case.n_k), chain.padded(case)]
    others = chain.combined([part for part in parts if part is not None])
    others = np.broadcast_to(others, case.mask.shape)
    empty = ~(case.mask & others).any(-1)
    first = np.arange(case.n_k) == others.argmax(-1)[..., None]
    return replace(case, mask=case.mask | (empty[..., None] & first))


def _complete(make: Maker, contract: Contract, random: Random, again: int) -> Case:
    return complete(make(random, again, contract), random, contract)
