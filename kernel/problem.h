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

// Where the answers go; null means not asked for. All C-contiguous, leading axes (B, H). Floats are of the problem's
// type. "Rows" below means (B, H, n_q).
struct Statistics {
    void* lse = nullptr;              // rows
    void* max_weight = nullptr;       // rows
    int64_t* argmax = nullptr;        // rows
    void* entropy = nullptr;          // rows
    void* sum_squares = nullptr;      // rows
    void* sink_logit_mass = nullptr;  // rows
    void* distance = nullptr;         // rows
    int64_t n_buckets = 0;            // distances 0, 1, 2-3, 4-7, ...; the last bucket is open
    void* distance_histogram = nullptr;  // (B, H, n_buckets): mean mass of each bucket
    void* distance_rows = nullptr;       // rows x n_buckets: the driver's own; a row that sees no key holds -1
    int64_t top_k = 0;                //
    int64_t* top_k_index = nullptr;   // rows x top_k
    void* top_k_weight = nullptr;     // rows x top_k
    int64_t sink_keys = 0;            //
    void* sink_mass = nullptr;        // rows
    int64_t n_offsets = 0;            //
    const int64_t* offsets = nullptr; // n_offsets, each relative to the query's own position
    void* offset_mass = nullptr;      // rows x n_offsets
    const int32_t* key_tokens = nullptr;   // (B, n_k)
    const int32_t* query_tokens = nullptr; // (B, n_q)
    void* duplicate = nullptr;             // rows
    void* induction = nullptr;             // rows
    int64_t* duplicate_count = nullptr;    // rows
    int64_t* induction_count = nullptr;    // rows
    int64_t n_classes = 0;                 //
    const int32_t* classes = nullptr;      // (B, n_k), negative: no class
    void* segment_mass = nullptr;          // rows x n_classes
    void* row_top = nullptr;               // rows, the driver's own: m and l for the second pass
    void* row_total = nullptr;             // rows
    void* received = nullptr;              // (B, H, n_k)
    int64_t* received_count = nullptr;     // (B, H, n_k)
    int64_t pooled_block = 0;              //
    void* pooled = nullptr;                // (B, H, ceil(n_q / block), ceil(n_k / block))
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
