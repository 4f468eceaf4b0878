"""What the names of weights tell: which of them is W_Q, W_K, W_V, W_O, or all three in one."""

import re

ROLES = {
    "q": {"q", "query", "queries", "qs"},
    "k": {"k", "key", "keys", "ks"},
    "v": {"v", "value", "values", "vs"},
    "o": {"o", "out", "output", "dense", "", "unifyheads", "unify", "wo", "heads", "concat", "combine"},
    "qkv": {"qkv", "in", "attn", "querykeyvalue", "inputs", "input", "kqv", "attention", "all"},
}
_FILLERS = {
    "proj", "projection", "projections", "linear", "linears", "lin", "weight", "weights", "layer",
    "fc", "w", "to", "c", "net", "map", "matrix", "mat", "transform", "bias", "b", "heads", "head",
}  # fmt: skip


def role_of(name: str) -> str | None:
    """ "attn.q_proj.weight" -> "q"."""
    path = [part for part in name.split(".") if part not in ("weight", "bias")]
    for part in reversed(path):
        if part.isdigit():
            continue
        words = [
            word for word in re.split(r"[_\d]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", part).lower()) if word
        ]
        words = [re.sub(r"^[wb](?=(q|k|v|o|qkv)s?$)", "", word) for word in words]
        token = "".join(word for word in words if word not in _FILLERS)
        return next((role for role, tokens in ROLES.items() if token in tokens), None)
    return None
