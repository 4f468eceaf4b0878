"""The question bank, by kind: a claim or a question, its answer, the reason, and numbers computed for it."""

from functools import cache

from headwise.learn.book import evidence
from headwise.learn.book.evidence import Evidence
from headwise.learn.curriculum import Question

TRUE = ("true", "false")
FALSE = ("false", "true")

Entry = tuple[str, str, tuple[str, ...], str, Evidence, str]

TRUE_OR_FALSE: tuple[Entry, ...] = (
    ("cost", "With 8 heads in place of one, the matrix products of attention cost 8 times as much.", FALSE,
     "A head is d_model / h wide, so h\u00b7n\u00b2\u00b7d_k = n\u00b2\u00b7d_model for any h.",
     evidence.flops_of_heads, "cost"),
    ("softmax-cost", "The number of exponentials in the softmax does not depend on h either.", FALSE,
     "Every head has its own n \u00d7 n grid: h\u00b7n\u00b2 exponentials.",
     evidence.exponentials_of_heads, "cost"),
    ("same",
     "If all heads shared W_Q, W_K and W_V, a second head would still help, by averaging two maps.", FALSE,
     "The two maps would be one and the same, and so would the outputs.",
     evidence.same_projections, "diversity"),
    ("own-scale", "A head divides its scores by the square root of its own width d_k, not of d_model.", TRUE,
     "The dot product has d_k terms, so that is what its spread depends on.",
     evidence.scale_of_head, "scale"),
    ("concat", "Concatenating the heads already lets them exchange information.", FALSE,
     "Concatenation puts columns side by side. The first step that mixes them is W_O.",
     evidence.concatenation_does_not_mix, "joining"),
    ("no-w-o", "W_O can be left out: the next layer may as well take the concatenation.", FALSE,
     "Without it each head would own a fixed block of columns, and nothing could be drawn from two heads "
     "at once.",
     evidence.concatenation_does_not_mix, "joining"),
    ("parameters", "At one d_model, one head and 8 heads have equally many projection weights.", TRUE,
     "The h slices of d_model \u00d7 d_k put together are one d_model \u00d7 d_model matrix.",
     evidence.parameters_of_heads, "I"),
    ("diagonal", "In self-attention a token puts its largest weight on itself.", FALSE,
     "Weights follow from learned scores. A head may look elsewhere altogether.",
     evidence.self_weight, "G"),
    ("cross", "Cross-attention splits its heads in the same way as self-attention.", TRUE,
     "Heads split the width. Where queries and keys come from changes the lengths only.",
     evidence.cross_shapes, "H"),
    ("any-h", "Any h up to d_model will do.", FALSE,
     "h has to divide d_model, or d_k is no whole number.", evidence.refused_heads, "shapes"),
    ("negative", "A negative score gives a negative weight.", FALSE,
     "The exponential of any number is positive.", evidence.negative_scores, "E"),
    ("hidden", "In causal attention the weight of a later key is exactly 0, not just small.", TRUE,
     "Its score is \u2212\u221e before softmax, and the exponential of that is 0.",
     evidence.hidden_weights, "causal"),
    ("project-add",
     "Projecting every head with its own rows of W_O and adding gives the same as concatenating and "
     "multiplying by W_O.", TRUE,
     "A matrix product over the concatenation is a sum over its blocks. What loses information is adding "
     "the heads before any projection, or one shared d_v \u00d7 d_model matrix.",
     evidence.four_ways_apart, "joining"),
)  # fmt: skip

ERRORS: tuple[Entry, ...] = (
    ("e-six", "\u201cd_model = 512 and h = 6, so each head is 512 / 6 wide.\u201d",
     ("6 does not divide 512", "the width should be 6 / 512", "d_k does not depend on h"),
     "A width is a whole number, and the heads have to add up to d_model.",
     evidence.refused_heads, "shapes"),
    ("e-grid", "\u201cThe scores Q_i K_i\u1d40 form a d_k \u00d7 d_k grid.\u201d",
     ("the grid is n \u00d7 n", "the grid is n \u00d7 d_k", "the grid is d_model \u00d7 d_model"),
     "One score per pair of tokens; the features are summed away.", evidence.grid_shape, "shapes"),
    ("e-axis",
     "\u201cSoftmax runs over the whole n \u00d7 n grid, so that all its weights add up to 1.\u201d",
     ("it runs over the keys, row by row",
      "it runs over the queries, column by column",
      "it runs over the heads"),
     "Every query distributes its own 1 over the keys.", evidence.rows_sum, "A"),
    ("e-sum", "\u201cWe add the head outputs, to keep the width at d_model.\u201d",
     ("heads are concatenated", "heads are averaged", "heads are multiplied"),
     "The sum is only d_v wide and no longer tells the heads apart. Concatenated, h\u00b7d_v = d_model.",
     evidence.four_ways_apart, "joining"),
    ("e-w-o", "\u201cW_O is d_v \u00d7 d_model.\u201d",
     ("its input is h\u00b7d_v wide", "its input is n wide", "it is d_k \u00d7 d_v"),
     "W_O multiplies the concatenation of all heads.", evidence.w_o_shape, "B"),
    ("e-more", "\u201cMore heads always make a better model.\u201d",
     ("heads get narrower as h grows", "parameters grow with h", "softmax stops working"),
     "d_k = d_model / h. With few columns a head can tell little apart.",
     evidence.blind_heads, "narrow"),
    ("e-order", "\u201cAttention is blind to order, so it is of no use for word order.\u201d",
     ("positions are added to the inputs first",
      "attention is not blind to order",
      "the mask encodes all positions"),
     "The premise is right, the conclusion is not: with positions in the inputs, heads can learn to use "
     "them.",
     evidence.order_blind, "positions"),
    ("e-mask", "\u201cFirst softmax, then set the weights of hidden keys to 0.\u201d",
     ("the mask belongs before softmax", "hidden keys should get weight 1", "the mask belongs on the values"),
     "Weights that are cut afterwards no longer sum to 1.", evidence.mask_after_softmax, "causal"),
    ("e-scale", "\u201cAll heads divide by \u221ad_model, for that is the width of a token.\u201d",
     ("they divide by \u221ad_k", "they divide by d_model", "they divide by h"),
     "The scores of a head are sums of d_k products.", evidence.scale_of_head, "scale"),
)  # fmt: skip

WHY: tuple[Entry, ...] = (
    ("y-projections", "Why does each head have its own projections?",
     ("so that heads see different subspaces of the same tokens",
      "so that softmax converges",
      "to save parameters"),
     "The tokens and the formula are shared; the projections are all that can make heads differ.",
     evidence.same_projections, "diversity"),
    ("y-root", "Why divide by \u221ad_k, rather than by d_k or by nothing?",
     ("the spread of q \u00b7 k is \u221ad_k",
      "the mean of q \u00b7 k is \u221ad_k",
      "it makes the weights sum to 1"),
     "Dividing by exactly the spread keeps scores near 1 at any width. By d_k, all weights come close to "
     "equal; by nothing, softmax saturates and gradients vanish.", evidence.spread_at_64, "scale"),
    ("y-concat", "Why are heads concatenated and not added?",
     ("each then meets its own rows of W_O", "addition is slower", "addition would change n"),
     "Added unprojected, only their sum is left. Concatenated, W_O can weigh every head for every output "
     "column.",
     evidence.four_ways_apart, "joining"),
    ("y-formula", "Why do all heads run the same formula?",
     ("the variety lies in the projections, and one batched operation does it all",
      "other formulas are unknown",
      "so that all heads give the same map"),
     "One formula keeps every head readable in the same way, and all of them are one product of larger "
     "arrays.",
     evidence.batched_heads, "diversity"),
    ("y-w-o", "Why is W_O needed when every head has given an output already?",
     ("only W_O mixes the heads", "W_O makes the weights positive", "W_O restores the order of the tokens"),
     "The heads lie in separate columns until W_O blends them.",
     evidence.concatenation_does_not_mix, "joining"),
    ("y-diverge", "All heads read the same input. Why do they come to do different things?",
     ("their projections start from different random numbers and are trained from there",
      "each head reads other tokens", "each head has its own softmax"),
     "Gradient descent takes each from where it started.", evidence.same_projections, "diversity"),
    ("y-width", "Why does a block give back the width that it got?",
     ("so that layers can be stacked and added to their input", "because softmax keeps the width",
      "because n = d_model"),
     "h\u00b7d_v = d_model goes through W_O to d_model.", evidence.layer_widths, "home"),
)  # fmt: skip

EDGES: tuple[Entry, ...] = (
    ("d-one", "What is left of multi-head attention at h = 1?",
     ("plain attention with an output projection", "nothing", "an average over all tokens"),
     "d_k = d_model, and concatenating one head changes nothing.", evidence.one_head, "edges"),
    ("d-all", "What happens at h = d_model?",
     ("every head is one number wide and nearly blind",
      "every head sees all features",
      "the cost is d_model times higher"),
     "A score is then a product of two numbers: the favourite is the largest key or the smallest.",
     evidence.blind_heads, "narrow"),
    ("d-equal", "All scores of a query are equal. What does the head put out?",
     ("the mean of the values", "zero", "the value of the first key"),
     "Softmax of equal scores is uniform.", evidence.equal_scores, "C"),
    ("d-huge", "One score is far above all others. What does the head put out?",
     ("nearly a copy of that key's value", "the mean of the values", "an error"),
     "Softmax comes close to 1 for that key and never quite reaches it.", evidence.huge_score, "D"),
    ("d-cross", "n decoder tokens look at m encoder tokens. What shape are the scores of a head?",
     ("n \u00d7 m", "m \u00d7 n", "n \u00d7 n"),
     "One row per query, one column per key.", evidence.cross_shapes, "H"),
    ("d-dv", "d_v is not d_k. What has to change?",
     ("the input width of W_O, which is h\u00b7d_v",
      "the scale, which is 1/\u221ad_v",
      "nothing works any more"),
     "d_k belongs to the scores and the scale, d_v to the outputs.", evidence.other_value_width, "B"),
    ("d-first", "No attention has run before the first layer. What does it project?",
     ("embedding plus position of each token", "the output of the last layer", "random numbers"),
     "Positions go in before the first projection.", evidence.order_blind, "positions"),
    ("d-values", "All value rows are equal. What do the weights decide?",
     ("nothing: every output is that row", "the sign of the output", "the length of the output"),
     "A weighted mean of equal rows is that row.", evidence.equal_values, "edges"),
    ("d-token", "The sequence is one token long. What is its weight on itself?",
     ("1, whatever the score", "1/2", "the score itself"),
     "Softmax over one number is 1.", evidence.one_token, "B"),
    ("d-empty", "A query sees no key at all. What does headwise put out for it?",
     ("0, with weights 0", "the mean of the values", "not a number"),
     "There is nothing to average; 0 by convention.", evidence.empty_row, "edges"),
)  # fmt: skip

SELF_TEST: tuple[Entry, ...] = (
    ("s-flops", "Do more heads mean more FLOPs in the matrix products?", ("no", "yes"),
     "h heads of width d_model / h: the h cancels.", evidence.flops_of_heads, "cost"),
    ("s-mix", "Which matrix lets the heads talk to each other?", ("W_O", "W_Q", "W_V"),
     "It is the first that meets all of them.", evidence.concatenation_does_not_mix, "joining"),
    ("s-share", "What do shared projections make of two heads?",
     ("copies of each other", "one head twice as wide", "two heads of opposite sign"),
     "Same input, same formula, same projections.", evidence.same_projections, "diversity"),
    ("s-axis", "Along which axis do weights sum to 1?", ("over the keys, for each query",
     "over the queries, for each key",
     "over the heads"), "Softmax runs row by row.", evidence.rows_sum, "A"),
    ("s-divide", "Which number does h have to divide?", ("d_model", "n", "d_v"),
     "So that d_k = d_model / h is whole.", evidence.refused_heads, "shapes"),
    ("s-uniform", "n equal scores: what is each weight?", ("1/n", "1", "0"),
     "Nothing is preferred.", evidence.equal_scores, "C"),
    ("s-limit", "One score grows without end. Where do the weights go?",
     ("to 1 for it and 0 for the others", "to 1/n each", "without end too"),
     "Softmax turns into a choice.", evidence.huge_score, "D"),
    ("s-negative", "Can a softmax weight be negative?", ("no", "yes"),
     "e^s > 0 for every s.", evidence.negative_scores, "E"),
    ("s-shape", "3 queries, 5 keys: what shape are the scores?", ("3 \u00d7 5", "5 \u00d7 3", "3 \u00d7 3"),
     "Rows are queries, columns are keys.", evidence.cross_shapes, "H"),
    ("s-count", "How many weights has a block of width d_model, without biases?",
     ("4\u00b7d_model\u00b2", "3\u00b7d_model\u00b2", "4\u00b7h\u00b7d_model\u00b2"),
     "W_Q, W_K, W_V and W_O, each d_model \u00d7 d_model in all.", evidence.parameters_512, "I"),
    ("s-scale", "What does dividing by \u221ad_k prevent?",
     ("softmax that sees one key only", "negative weights", "rows that do not sum to 1"),
     "Wide heads have large dot products.", evidence.spread_at_64, "scale"),
    ("s-length", "How long is the output of cross-attention?",
     ("as long as the queries", "as long as the keys", "as long as both together"),
     "One output row per query.", evidence.cross_shapes, "H"),
    ("s-cancel", "What cancels the h in the cost of the matrix products?",
     ("the width d_model / h of each head", "the softmax", "the batch"),
     "h\u00b7n\u00b2\u00b7(d_model / h) = n\u00b2\u00b7d_model.", evidence.flops_of_heads, "cost"),
    ("s-concat", "What is lost when heads are added before any projection?",
     ("which head said what", "the order of the tokens", "nothing"),
     "Only the sum is left.", evidence.four_ways_apart, "joining"),
)  # fmt: skip

BANK = {
    "true or false": TRUE_OR_FALSE,
    "spot the error": ERRORS,
    "why": WHY,
    "edge case": EDGES,
    "self-test": SELF_TEST,
}  # fmt: skip


@cache
def questions() -> tuple[Question, ...]:
    """The whole bank, in order of kind."""
    return tuple(
        Question(key, kind, text, choices, reason, seen(), lesson)
        for kind, entries in BANK.items()
        for key, text, choices, reason, seen, lesson in entries
    )
