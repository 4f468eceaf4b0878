"""The words of ``--explain``: what each rule is about, examples in numbers, typical mistakes."""

MEANS = {
    "called": (
        "The function is called with query, key and value of random numbers. Kind (NumPy, torch, "
        "JAX), dtype and axes are found by trying, or taken from the contract."
    ),
    "dtype": (
        "What goes in as float32 comes out as float32. A wider answer is a note: nothing is lost,"
        " but memory and time are. NumPy does it when a float32 array meets a float64 scalar such"
        " as np.sqrt(d)."
    ),
    "shape": "One row per query, as wide as the values.",
    "values": (
        "Self-attention of random numbers, signed and of every size its own, so that scale, "
        "softmax axis, transposes and mixed axes all show. The error is compared with what "
        "rounding allows for these very numbers."
    ),
    "more keys than queries": (
        "Cross-attention, or a decode step: n_q and n_k differ. Code that was only ever called "
        "with one length mixes them up."
    ),
    "value width": "Values may be narrower or wider than keys. Code that reshapes with d_k fails here.",
    "all sizes unlike": "Batch, heads, n_q, n_k, d_k and d_v are all different numbers.",
    "scale": "A scale that the caller gives takes the place of 1 / root d_k.",
    "grouped heads": (
        "H query heads share H_kv key/value heads in groups of H / H_kv that lie in a row. With H"
        " = 6 and H_kv = 2 the map is 0 0 0 1 1 1; a group of 2 among 4 heads would hide the "
        "mistake."
    ),
    "mask": (
        "A boolean mask, unlike its transpose, its inverse and from batch entry to batch entry. "
        "True means attend; the contract's mask_means says otherwise."
    ),
    "padding": "A mask (B, n_k) of real keys. It belongs to the key axis of every head and every row.",
    "mask and padding": "Both at once: a key is seen where both allow it.",
    "bias": "Numbers per head, query and key, added after scaling.",
    "mask and bias": "Both at once.",
    "causal": "Query i sees the keys 0 ... i.",
    "causal, more keys": (
        "With more keys than queries there are two conventions: top-left (key j <= query i; "
        "torch, JAX, ONNX without cache) and bottom-right (j <= i + n_k - n_q; flash-attn, MLX, "
        "every cache). Without a contract either passes and a note says which it is."
    ),
    "causal and mask": "Both at once.",
    "rotary positions": (
        "Queries and keys turn in pairs of features by an angle that grows with the position, so "
        "that a score depends on the difference of positions. The base is 100, so that slow pairs"
        " show too."
    ),
    "cache": (
        "Four cached keys and values, three new ones. The new queries see all cached keys and the"
        " new ones up to their own; rotary positions go on where the cache ends."
    ),
    "window": "A window of W: the query's own key and the W keys before it.",
    "causal window": "Window and causal order at once.",
    "soft cap": "Scores are bent to lie within -c ... c, after scaling.",
    "soft cap and mask": (
        "The cap comes before the mask; the other way round hidden scores become -c and are seen."
    ),
    "soft cap and causal": "The cap comes before the causal mask.",
    "grouped heads and mask": "A mask of the batch entry serves every head of every group.",
    "grouped heads and causal": "Causal order in every head of every group.",
    "empty rows": (
        "A row whose keys are all hidden. The softmax of nothing is 0/0 = NaN, which spreads "
        "through the network and its gradients; a fill of -1e9 averages all keys instead. 0 is "
        "what torch's fused attention, ONNX and headwise give."
    ),
    "hidden values": (
        "Values that a row does not see are set to 1e30, keys to 20. Its output must not change: "
        "a mask that is only nearly closed lets them through."
    ),
    "masked NaN": (
        "The same with NaN and infinity, as an uninitialised cache may hold them: 0 times NaN is "
        "NaN. Many libraries leak here, torch among them, so most contracts have it as a note."
    ),
    "large scores": "e^5000 overflows. Subtracting the row's maximum first changes nothing but that.",
    "very low scores": (
        "All scores near -490000: the softmax only sees differences. A maximum that starts at a "
        "finite number, or a mask fill that is not low enough, shows here."
    ),
    "lengths": (
        "Kernels work in blocks of 16, 32 or 64; remainders are where they fail. Batch 1 and one "
        "head hide other mistakes and show some of their own."
    ),
    "batch entries apart": "Entry 1 is changed; entry 0 must stay as it was.",
    "same bits again": (
        "The same call, three times. Large differences are dropout or other random numbers; small"
        " ones come from sums in changing order and are a note."
    ),
    "inputs unchanged": "The caller's arrays are compared before and after.",
    "strides": "The same numbers in transposed, reversed, spread-out and read-only memory.",
    "float64": (
        "float64 inputs give float64 exactness; an error near 1e-7 means that they were computed in float32."
    ),
    "half precision": (
        "float16 and bfloat16 may err by their own rounding and no more, where they are taken."
    ),
    "gradient": "The gradients of query, key and value against the derivative of the formula in float64.",
    "gradient with mask": "The same with hidden keys.",
    "gradient, causal": "The same in causal order.",
    "gradient of empty rows": (
        "Zeroing the output of an empty row afterwards does not help its gradient: 0 times NaN is"
        " NaN, in every weight."
    ),
    "layer": (
        "The whole layer on random inputs and random weights: projections, split into heads, "
        "attention, concatenation, output projection."
    ),
    "layer with mask": "The layer with a boolean mask.",
    "layer with padding": "The layer with padded keys.",
    "layer, causal": "The layer in causal order.",
    "layer batch entries apart": (
        "Entry 1 is changed; entry 0 must stay as it was. Axes taken in the wrong order mix them."
    ),
    "dropout off in evaluation": (
        "All dropout rates are set to 0.5 and the layer to evaluation: two calls must agree."
    ),
}
EXAMPLES = {
    "dtype": (
        "Example: np.ones(2, np.float32) / np.sqrt(6) is float64 with NumPy 2; / 6**0.5 stays float32."
    ),
    "empty rows": (
        "Example: scores (-inf, -inf): maximum -inf, -inf - -inf = NaN. With -1e9 instead: weights 0.5, 0.5."
    ),
    "hidden values": "Example: weights (1, 1e-9), values (2, 1e30): the output is 1e21 instead of 2.",
    "masked NaN": "Example: weights (1, 0), values (2, NaN): 1 * 2 + 0 * NaN = NaN.",
    "large scores": (
        "Example: scores (5000, 0): e^5000 = inf, inf/inf = NaN; after subtracting 5000: e^0 = 1,"
        " e^-5000 = 0."
    ),
    "very low scores": (
        "Example: scores (-490000, hidden), the hidden one filled with -1e4: it wins by e^480000."
    ),
    "same bits again": (
        "Example: dropout at 0.1 in evaluation changes every output by about a tenth of a value."
    ),
    "float64": "Example: 0.1 kept in float32 is 0.10000000149: wrong in the ninth digit.",
    "inputs unchanged": ("Example: q *= scale inside the function; the caller's q is scaled after the call."),
    "gradient of empty rows": "Example: where(empty, 0, NaN) has the gradient 0 * NaN = NaN.",
    "shape": "Example: query (2, 3, 4, 6), value (2, 3, 7, 5): the output is (2, 3, 4, 5).",
    "strides": (
        "Example: q.transpose(1, 2) holds the same numbers at other addresses; code that reads "
        "memory in a row takes the wrong ones."
    ),
}
TYPICAL: dict[str, tuple[str, ...]] = {
    "values": ("scale 1/root d_model", "softmax over queries"),
    "more keys than queries": ("scale 1/root n_k",),
    "scale": ("scale argument ignored",),
    "grouped heads": ("kv heads tiled",),
    "mask": ("mask inverted", "hidden scores 0"),
    "padding": ("padding on queries",),
    "mask and padding": ("mask or padding",),
    "bias": ("bias scaled too",),
    "causal": ("causal one too many",),
    "causal, more keys": ("causal from the other corner",),
    "rotary positions": ("rotary layouts mixed",),
    "cache": ("positions restart",),
    "window": ("window one too few",),
    "soft cap": ("soft cap before scaling",),
    "soft cap and mask": ("soft cap after mask",),
    "empty rows": ("fill -1e9",),
    "layer": ("merge without transpose",),
}
FINDINGS = {
    "NaN in empty rows": ("a row that sees no key holds NaN", "give 0 for such a row"),
    "empty rows are 0": ("a row that sees no key holds 0, where the contract has something else",
        "see the contract"),
    "hidden value leaks": ("what a hidden value holds reaches the output", "select hidden values away"),
    "hidden key leaks": ("what a hidden key holds reaches the output", "select hidden scores away"),
    "no maximum subtracted": ("large scores overflow to NaN", "e^(s - max s), row by row"),
    "finite maximum": ("the running maximum starts at a finite number", "start it at minus infinity"),
    "fill not low enough": ("hidden keys win against very low scores", "fill with minus infinity"),
    "batch leaks": ("an entry of the batch changes when another does", "keep the batch axis apart"),
    "dropout left on": ("two calls with the same inputs differ", "no dropout outside training"),
    "inputs modified": ("the function writes to its inputs", "work on a copy"),
    "strides ignored": ("the answer depends on how the numbers lie in memory",
        "read arrays by their strides"),
    "float64 in float32": ("float64 inputs are computed in float32", "keep the dtype all the way"),
    "dtype changed": ("the output has another dtype than the inputs", "give back the caller's dtype"),
    "wrong shape": ("the output has another shape than (..., n_q, d_v)",
        "one row per query, as wide as the values"),
    "no gradient": ("no gradient reaches an input", "no detach(), no NumPy on the way"),
    "gradient scaled": ("a gradient is a multiple of the right one",
        "compare with the derivative of the formula"),
    "NaN gradient": ("a gradient holds NaN", "select before the operation that makes NaN, not after it"),
    "NaN gradient of empty rows": ("a row that sees no key gives NaN gradients",
        "select before the softmax"),
    "softmax gradient without its sum": ("the softmax's derivative lacks a term",
        "dS = P * (dP - sum P dP)"),
    "wrong gradient": ("a gradient is wrong", "compare with the derivative of the formula"),
    "identical heads": ("all heads start with the same weights",
        "draw the weights of every head on their own"),
    "another scale": ("the scores have another factor, which was measured",
        "1 / root d_k, or the scale passed"),
    "other keys seen": ("rows see other keys than they should", "compare the keys seen with your mask"),
    "other kv heads": ("query heads meet other key/value heads", "h // (H / H_kv)"),
}  # fmt: skip
