// problem.h: the plain struct that is the only input to everything below the border.
//
// Letters: B batch, H query heads, H_kv key/value heads, n_q queries, n_k keys, d_k query/key width, d_v value width.
#pragma once

#include <cstdint>

namespace headwise {

// Element (b, h, row, col) of an operand stands at data[batch[b] + h * head + row * row + col * col], in elements.
// Strides may be zero or negative.
struct Operand {
    const void* data = nullptr;
    const int64_t* batch = nullptr;
    int64_t head = 0, row = 0, col = 0;
};

enum class MaskKind : uint8_t { none, boolean, additive };

// Keys [from, until) that a row may see by its position and the lengths; masks and segments come on top.
struct Range {
    int64_t from, until;
};

// Where the answers go; null means not asked for. All C-contiguous, leading axes (B, H); `each_answer` below names and sizes
// them. Floats are of the problem's type.
struct Statistics {
    void* lse = nullptr;
    void* max_weight = nullptr;
    int64_t* argmax = nullptr;
    void* entropy = nullptr;
    void* sum_squares = nullptr;
    void* sink_logit_mass = nullptr;
    void* distance = nullptr;
    int64_t n_buckets = 0;  // distances 0, 1, 2-3, 4-7, ...; the last bucket is open
    void* distance_histogram = nullptr;  // mean mass of each bucket
    void* distance_rows = nullptr;       // rows x n_buckets: the driver's own; a row that sees no key holds -1
    int64_t top_k = 0;
    int64_t* top_k_index = nullptr;
    void* top_k_weight = nullptr;
    int64_t sink_keys = 0;  // how many first keys
    void* sink_mass = nullptr;
    int64_t n_relative = 0;
    const int64_t* relative = nullptr;  // n_relative: places as seen from the query's own
    void* relative_mass = nullptr;
    const int32_t* key_tokens = nullptr;    // (B, n_k)
    const int32_t* query_tokens = nullptr;  // (B, n_q)
    void* duplicate = nullptr;
    void* induction = nullptr;
    int64_t* duplicate_count = nullptr;
    int64_t* induction_count = nullptr;
    int64_t n_classes = 0;
    const int32_t* classes = nullptr;  // (B, n_k), negative: no class
    void* class_mass = nullptr;
    void* row_top = nullptr;  // rows, the driver's own: m and l for the second pass
    void* row_total = nullptr;
    void* received = nullptr;
    int64_t* received_count = nullptr;
    int64_t pooled_block = 0;
    void* pooled = nullptr;
};

// Which linear terms (sum of e^{s-m} times something) ride along, and where each stands among them.
struct Slots {
    int64_t sink = -1, distance = -1, duplicate = -1, induction = -1, relative = -1, classes = -1, buckets = -1;
    int64_t count = 0;
    [[gnu::always_inline]] explicit Slots(const Statistics& s) {
        if (s.sink_mass) sink = count++;
        if (s.distance) distance = count++;
        if (s.duplicate) duplicate = count++;
        if (s.induction) induction = count++;
        if (s.relative_mass) relative = count, count += s.n_relative;
        if (s.class_mass) classes = count, count += s.n_classes;
        if (s.distance_rows) buckets = count, count += s.n_buckets;
    }
};

struct Problem {
    int64_t batch = 0, heads = 0, kv_heads = 0, n_q = 0, n_k = 0, d_k = 0, d_v = 0;
    double scale = 1;
    double softcap = 0;  // 0: none
    bool causal = false;
    int64_t window_left = -1, window_right = -1;  // keys beside the query's own position; -1: open
    const int64_t* offsets = nullptr;             // (B): position of query 0 among the keys
    const int64_t* query_lengths = nullptr;       // (B), null: all
    const int64_t* kv_lengths = nullptr;          // (B), null: all
    const int32_t* query_segments = nullptr;      // (B, n_q); a row sees the keys of its own segment
    const int32_t* key_segments = nullptr;        // (B, n_k)
    const double* alibi_slopes = nullptr;         // (B, H): adds -slope |position - key|
    const double* sinks = nullptr;                // (H, n_sinks): logits that take part in the denominator only
    int64_t n_sinks = 0;
    const double* head_mask = nullptr;            // (B, H): factor of the output
    double dropout = 0;                           // share of weights dropped, the others grow by 1 / (1 - dropout)
    uint64_t seed = 0;
    MaskKind mask_kind = MaskKind::none;
    Operand query, key, value, mask, bias;        // bias: null data, or numbers to add
    void* output = nullptr;  // (B, H, n_q, d_v), C-contiguous; null: statistics only, the value product is skipped
    Statistics statistics;
    int64_t chunk = 0;  // queries per task; set by the driver, changes no result
    // Strip mode, for sums down the columns in the one pass: each group keeps e^{s-m} of all its keys until its rows are
    // complete. Every chunk then leaves its own sums in `column_sums` (B, H, chunks, n_k), to be added up in order.
    bool strip = false;
    void* column_sums = nullptr;
    int64_t* column_counts = nullptr;

    // Always inlined: each instruction set's unit must keep its own copies.
    [[gnu::always_inline]] int64_t kv_head(int64_t head) const { return head / (heads / kv_heads); }
    [[gnu::always_inline]] int64_t chunks() const { return (n_q + chunk - 1) / chunk; }
    [[gnu::always_inline]] int64_t position(int64_t b, int64_t query) const { return query + offsets[b]; }
    [[gnu::always_inline]] bool hides_by_number() const {
        return mask_kind != MaskKind::none || bias.data || key_segments;
    }
    [[gnu::always_inline]] bool masked() const {
        return hides_by_number() || causal || window_left >= 0 || window_right >= 0 || kv_lengths || query_lengths;
    }
    [[gnu::always_inline]] Range range(int64_t b, int64_t query) const {
        if (query_lengths && query >= query_lengths[b]) return {0, 0};
        int64_t from = 0, until = kv_lengths && kv_lengths[b] < n_k ? kv_lengths[b] : n_k;
        const int64_t at = position(b, query);
        if (window_left >= 0 && at - window_left > from) from = at - window_left;
        if (window_right >= 0 && at + window_right + 1 < until) until = at + window_right + 1;
        if (causal && at + 1 < until) until = at + 1;
        return from < until ? Range{from, until} : Range{0, 0};
    }
};

// Calls take(name, place, count) for every answer: its name for Python, where its address goes, and how many numbers it has.
template <class F>
void each_answer(Problem& p, F&& take) {
    Statistics& s = p.statistics;
    const int64_t heads = p.batch * p.heads, rows = heads * p.n_q, keys = heads * p.n_k;
    const auto blocks = [&](int64_t n) { return s.pooled_block ? (n + s.pooled_block - 1) / s.pooled_block : 0; };
    take("lse", s.lse, rows);
    take("max_weight", s.max_weight, rows);
    take("argmax", s.argmax, rows);
    take("entropy", s.entropy, rows);
    take("sum_squares", s.sum_squares, rows);
    take("sink_logit_mass", s.sink_logit_mass, rows);
    take("distance", s.distance, rows);
    take("distance_histogram", s.distance_histogram, heads * s.n_buckets);
    take("top_k_index", s.top_k_index, rows * s.top_k);
    take("top_k_weight", s.top_k_weight, rows * s.top_k);
    take("sink_mass", s.sink_mass, rows);
    take("relative", s.relative_mass, rows * s.n_relative);
    take("duplicate", s.duplicate, rows);
    take("induction", s.induction, rows);
    take("duplicate_count", s.duplicate_count, rows);
    take("induction_count", s.induction_count, rows);
    take("classes", s.class_mass, rows * s.n_classes);
    take("received", s.received, keys);
    take("received_count", s.received_count, keys);
    take("pooled", s.pooled, heads * blocks(p.n_q) * blocks(p.n_k));
}

// One instruction set's kernel for one element type. Each function works on one task, touches only the rows (forward)
// or columns (received) of that task, and takes all its working memory from `scratch`.
struct Kernel {
    const char* isa;
    int64_t element_bytes;  // of the element type
    int64_t lanes;          // queries per vector
    int64_t group;          // queries of a full register tile
    int64_t key_block;      // keys per step of the online softmax
    int64_t received_keys;  // keys per task of the received pass
    int64_t (*scratch_bytes)(const Problem&);
    void (*forward)(const Problem&, int64_t task, void* scratch);
    void (*received)(const Problem&, int64_t task, void* scratch);
};

}  // namespace headwise
