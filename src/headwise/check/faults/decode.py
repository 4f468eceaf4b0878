"""Mistakes of a decode step with cached keys and values."""

import numpy as np

from headwise.check.cases.case import Case, turn
from headwise.check.cases.chain import Fault, Step, appended, fault, grid
from headwise.plain.types import Array

_FIRST = "cached keys and values first, the new ones behind"
_PLACES = "new tokens stand at positions P, P + 1, ...; cached keys keep their own"
_OFFSET = "with P cached keys query i sees keys j <= i + P"


def _offset(rule: Step) -> Step:
    def step(case: Case, n_k: int) -> Array | None:
        i, j = grid(case, n_k)
        return np.asarray(j <= i + rule(case)) if case.is_causal else None

    return step


def _places(query: Step, key: Step | None = None) -> Step:
    """Rotary positions of the new queries and keys: rules on (numbers 0, 1, ..., P)."""

    def step(q: Array, k: Array, past: Array | None, case: Case) -> tuple[Array, Array, Array | None]:
        if case.rotary_base is None:
            return q, k, past
        of_key = (lambda at, p: at + p) if key is None else key
        q, k = _turn_at(case, q, query), _turn_at(case, k, of_key)
        return q, k, None if past is None else turn(case, past, 0)

    return step


def _turn_at(case: Case, x: Array, rule: Step) -> Array:
    rows = [turn(case, x[:, :, at : at + 1], int(rule(at, case.n_past))) for at in range(x.shape[2])]
    return np.concatenate(rows, 2)


def _past(change: Step) -> Step:
    def step(q: Array, k: Array, past: Array | None, case: Case) -> tuple[Array, Array, Array | None]:
        if case.rotary_base is None:
            return q, k, past
        q, k = turn(case, q, case.n_past), turn(case, k, case.n_past)
        return q, k, None if past is None else change(case, past)

    return step


def _pasts(change: Step) -> Step:
    """The cache is changed before it is put in front."""
    return lambda k, v, past_k, past_v: appended(k, v, change(past_k), change(past_v))


def _new_first(k: Array, v: Array, past_k: Array, past_v: Array) -> tuple[Array, Array]:
    return appended(past_k, past_v, k, v)


def _values_new_first(k: Array, v: Array, past_k: Array, past_v: Array) -> tuple[Array, Array]:
    return np.concatenate([past_k, k], 2), np.concatenate([v, past_v], 2)


def _evicted(k: Array, v: Array, past_k: Array, past_v: Array) -> tuple[Array, Array]:
    return appended(k, v, past_k[:, :, 1:], past_v[:, :, 1:])


def _overwritten(k: Array, v: Array, past_k: Array, past_v: Array) -> tuple[Array, Array]:
    return appended(k, v, past_k[:, :, :-1], past_v[:, :, :-1])


def _reversed(k: Array, v: Array, past_k: Array, past_v: Array) -> tuple[Array, Array]:
    return appended(k[:, :, ::-1], v[:, :, ::-1], past_k, past_v)


def _one_slot_more(k: Array, v: Array, past_k: Array, past_v: Array) -> tuple[Array, Array]:
    k, v = appended(k, v, past_k, past_v)
    return np.pad(k, ((0, 0), (0, 0), (0, 1), (0, 0))), np.pad(v, ((0, 0), (0, 0), (0, 1), (0, 0)))


FAULTS: tuple[Fault, ...] = (
    fault("causal as without cache", "new query i sees keys j <= i only, as if there were no cache", _OFFSET,
          needs="cache causal", causal=_offset(lambda case: 0),
          seen="pytorch/pytorch#103082 hyprstream/hyprstream#1521"),
    fault("cache offset one too many", "the offset of the cache is one too large", _OFFSET,
          needs="cache causal", causal=_offset(lambda case: case.n_past + 1)),
    fault("cache offset one too few", "the offset of the cache is one too small", _OFFSET,
          needs="cache causal", causal=_offset(lambda case: case.n_past - 1)),
    fault("cache behind", "cached keys and values stand behind the new ones", _FIRST, needs="cache",
          appended=_new_first),
    fault("cache ignored", "cached keys and values are ignored", _FIRST, needs="cache",
          appended=lambda k, v, past_k, past_v: (k, v), causal=_offset(lambda case: 0)),
    fault("new tokens not appended", "only cached keys are seen: the new ones are not appended", _FIRST,
          needs="cache", appended=lambda k, v, past_k, past_v: (past_k, past_v),
          causal=lambda case, n_k: None),
    fault("cached values behind", "cached keys stand first, cached values behind the new ones", _FIRST,
          needs="cache", appended=_values_new_first),
    fault("positions restart", "rotary positions of the new tokens start at 0 again", _PLACES,
          needs="cache rope", turned=_places(lambda at, p: at, lambda at, p: at),
          seen="lucidrains/x-transformers#311"),
    fault("query positions restart", "rotary positions of the new queries start at 0, those of keys do not",
          _PLACES, needs="cache rope", turned=_places(lambda at, p: at)),
    fault("one position for all new tokens", "all new tokens are turned by the position P", _PLACES,
          needs="cache rope", turned=_places(lambda at, p: p, lambda at, p: p)),
    fault("positions one ahead", "new tokens are turned as at P + 1, P + 2, ...", _PLACES,
          needs="cache rope", turned=_places(lambda at, p: at + p + 1, lambda at, p: at + p + 1),
          seen="mosaicml/examples#257"),
    fault("cached keys turned again", "cached keys are turned a second time", _PLACES, needs="cache rope",
          turned=_past(lambda case, past: turn(case, turn(case, past, 0), 0))),
    fault("cached keys never turned", "cached keys were never turned", _PLACES, needs="cache rope",
          turned=_past(lambda case, past: past)),
    fault("cache of the first entry", "every batch entry uses the cache of entry 0", "entry b, cache b",
          needs="cache", appended=_pasts(lambda x: np.broadcast_to(x[:1], x.shape))),
    fault("cache of another entry", "batch entries use each other's cache (a missed reordering of beams)",
          "entry b, cache b", needs="cache", appended=_pasts(lambda x: x[::-1])),
    fault("first cached key dropped", "the first cached key is dropped", _FIRST, needs="cache",
          appended=_evicted, causal=_offset(lambda case: case.n_past - 1)),
    fault("last cached key overwritten", "the first new key overwrites the last cached one", _FIRST,
          needs="cache", appended=_overwritten, causal=_offset(lambda case: case.n_past - 1)),
    fault("new tokens in reverse", "the new keys and values are appended in reverse order", _FIRST,
          needs="cache", appended=_reversed),
    fault("empty slot attended", "an empty slot of the buffer takes part: its key is 0, so its score is 0",
          "hide what lies behind the filled part", needs="cache", appended=_one_slot_more,
          causal=lambda case, n_k: None,
          seen="vllm-project/vllm-xpu-kernels#181"),
)  # fmt: skip
