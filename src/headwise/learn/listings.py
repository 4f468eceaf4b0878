"""Short listings of multi-head attention with one line wrong. Tests run them: each gives other numbers."""

from dataclasses import dataclass

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
class Fault:
    """One line that is wrong.

    Attributes:
        key: its short name, the one that ``headwise check`` gives it.
        causal: belongs to the causal listing.
        line: the right line that it replaces.
        wrong: what stands there.
        what: the mistake in words.
        repair: what it should be, in words.
    """

    key: str
    causal: bool
    line: str
    wrong: str
    what: str
    repair: str

    def listing(self) -> tuple[list[str], int]:
        """The broken listing and the number of the wrong line, counted from 1."""
        lines = list(CAUSAL if self.causal else PLAIN)
        at = lines.index(self.line)
        lines[at] = self.wrong
        return lines, at + 1


FAULTS = (
    Fault("scale 1/root d_model", False, PLAIN[5], "S = Q @ K.transpose(0, 2, 1) / np.sqrt(d_model)",
          "the scores are divided by the root of d_model", "a head divides by the root of its own width d_k"),
    Fault("no scale", False, PLAIN[5], "S = Q @ K.transpose(0, 2, 1)",
          "the scores are not scaled", "divide by the root of d_k"),
    Fault("scale 1/d_k", False, PLAIN[5], "S = Q @ K.transpose(0, 2, 1) / d_k",
          "the scores are divided by d_k", "divide by the root of d_k"),
    Fault("sum over queries", False, PLAIN[7], "A = A / A.sum(-2, keepdims=True)",
          "the weights are normalised over the queries",
          "each query's weights sum to 1 over the keys, the last axis"),
    Fault("sum over the matrix", False, PLAIN[7], "A = A / A.sum((-2, -1), keepdims=True)",
          "the weights of a whole grid are made to sum to 1", "every row sums to 1 on its own"),
    Fault("merge without transpose", False, PLAIN[9], "out = heads.reshape(n, d_model) @ W_O",
          "the head axis is not moved behind the tokens before joining",
          "transpose to (n, h, d_k), then reshape"),
    Fault("queries split without transpose", False, PLAIN[2], "Q = (x @ W_Q).reshape(h, n, d_k)",
          "the reshape cuts the tokens, not the columns, into heads",
          "reshape to (n, h, d_k), then transpose"),
    Fault("heads summed into one", False, PLAIN[9], "out = heads.sum(0) @ W_O[:d_k]",
          "the heads are added and share the first rows of W_O", "concatenate the heads, then W_O"),
    Fault("no output projection", False, PLAIN[9], "out = heads.transpose(1, 0, 2).reshape(n, d_model)",
          "W_O is missing, so nothing mixes the heads", "multiply the concatenation by W_O"),
    Fault("keys as values", False, PLAIN[8], "heads = A @ K",
          "the weights blend the keys", "the weights blend the values"),
    Fault("weights transposed", False, PLAIN[8], "heads = A.transpose(0, 2, 1) @ V",
          "the weights are transposed before the blend", "row i of A belongs to query i"),
    Fault("causal inverted", True, CAUSAL[6], "S = np.where(np.tri(n, dtype=bool), -np.inf, S)",
          "the mask hides what should be seen", "query i keeps keys j <= i and hides the others"),
    Fault("causal reversed", True, CAUSAL[6], "S = np.where(np.tri(n, dtype=bool).T, S, -np.inf)",
          "the mask keeps the later keys", "query i keeps keys j <= i"),
    Fault("causal one too many", True, CAUSAL[6], "S = np.where(np.tri(n, k=1, dtype=bool), S, -np.inf)",
          "every query sees one key too many", "query i keeps keys j <= i: the diagonal and below"),
    Fault("hidden scores 0", True, CAUSAL[6], "S = np.where(np.tri(n, dtype=bool), S, 0)",
          "hidden scores are set to 0, whose exponential is 1", "hidden scores are minus infinity"),
    Fault("hidden scores 0", True, CAUSAL[6], "S = S * np.tri(n)",
          "hidden scores are multiplied by 0, and the exponential of 0 is 1",
          "hidden scores are minus infinity"),
)  # fmt: skip
