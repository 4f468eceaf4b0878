"""Short listings of multi-head attention with one line wrong. Tests run them: each gives other numbers."""

from dataclasses import dataclass

from headwise.check.cases.chain import Fault
from headwise.check.cases.layer_case import LayerFault
from headwise.check.faults import ALL

# Self-attention of x (n, d_model) by the book; W_Q, W_K, W_V, W_O are (d_model, d_model). The causal listing
# also hides later keys.
PLAIN = (
    "n, d_model = x.shape",
    "d_k = d_model // h",
    "Q = (x @ W_Q).reshape(n, h, d_k).transpose(1, 0, 2)",
    "K = (x @ W_K).reshape(n, h, d_k).transpose(1, 0, 2)",
    "V = (x @ W_V).reshape(n, h, d_k).transpose(1, 0, 2)",
    "S = Q @ K.transpose(0, 2, 1) / np.sqrt(d_k)",
    "A = np.exp(S - S.max(-1, keepdims=True))",
    "A = A / A.sum(-1, keepdims=True)",
    "heads = A @ V",
    "out = heads.transpose(1, 0, 2).reshape(n, d_model) @ W_O",
)
CAUSAL = (
    *PLAIN[:6],
    "S = np.where(np.tri(n, dtype=bool), S, -np.inf)",
    *PLAIN[6:],
)


@dataclass(frozen=True)
class WrongLine:
    """A listing with one line wrong.

    Attributes:
        key: the mistake, as ``headwise check`` names it; its words are the checker's.
        causal: belongs to the causal listing.
        line: the right line that it replaces.
        wrong: what stands there.
    """

    key: str
    causal: bool
    line: str
    wrong: str

    @property
    def fault(self) -> Fault | LayerFault:
        return next(fault for fault in ALL if fault.key == self.key)

    def listing(self) -> tuple[list[str], int]:
        """The broken listing and the number of the wrong line, counted from 1."""
        lines = list(CAUSAL if self.causal else PLAIN)
        at = lines.index(self.line)
        lines[at] = self.wrong
        return lines, at + 1


WRONG_LINES = (
    WrongLine("scale 1/root d_model", False, PLAIN[5], "S = Q @ K.transpose(0, 2, 1) / np.sqrt(d_model)"),
    WrongLine("no scale", False, PLAIN[5], "S = Q @ K.transpose(0, 2, 1)"),
    WrongLine("scale 1/d_k", False, PLAIN[5], "S = Q @ K.transpose(0, 2, 1) / d_k"),
    WrongLine("sum over queries", False, PLAIN[7], "A = A / A.sum(-2, keepdims=True)"),
    WrongLine("sum over the matrix", False, PLAIN[7], "A = A / A.sum((-2, -1), keepdims=True)"),
    WrongLine("merge without transpose", False, PLAIN[9], "out = heads.reshape(n, d_model) @ W_O"),
    WrongLine("queries split without transpose", False, PLAIN[2], "Q = (x @ W_Q).reshape(h, n, d_k)"),
    WrongLine("heads summed into one", False, PLAIN[9], "out = heads.sum(0) @ W_O[:d_k]"),
    WrongLine("no output projection", False, PLAIN[9], "out = heads.transpose(1, 0, 2).reshape(n, d_model)"),
    WrongLine("keys as values", False, PLAIN[8], "heads = A @ K"),
    WrongLine("weights transposed", False, PLAIN[8], "heads = A.transpose(0, 2, 1) @ V"),
    WrongLine("causal inverted", True, CAUSAL[6], "S = np.where(np.tri(n, dtype=bool), -np.inf, S)"),
    WrongLine("causal reversed", True, CAUSAL[6], "S = np.where(np.tri(n, dtype=bool).T, S, -np.inf)"),
    WrongLine("causal one too many", True, CAUSAL[6], "S = np.where(np.tri(n, k=1, dtype=bool), S, -np.inf)"),
    WrongLine("hidden scores 0", True, CAUSAL[6], "S = np.where(np.tri(n, dtype=bool), S, 0)"),
    WrongLine("hidden scores 0", True, CAUSAL[6], "S = S * np.tri(n)"),
)  # fmt: skip
