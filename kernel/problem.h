// problem.h: the plain struct that is the only input to everything below the border.
//
// Letters: B batch, H query heads, H_kv key/value heads, n_q queries, n_k keys, d_k query/key width, d_v value width.
#pragma once

#include <cstdint>

namespace headwise {

// Element (b, h, row, col) of an operand stands at data[batch[b] + h * head + row * row + col * col], in elements.
// Strides may be zero or negative: nothing is ever copied to please the kernel.
struct Operand {
    const void* data = nullptr;
    const int64_t* batch = nullptr;
    int64_t head = 0, row = 0, col = 0;
};

enum class MaskKind : uint8_t { none, boolean, additive };

// Where the answers go; null means not asked for. All C-contiguous, leading axes (B, H). Floats are of the problem's
// type. "Rows" below means (B, H, n_q).
struct Statistics {
    void* lse = nullptr;              // rows
    void* max_weight = nullptr;       // rows
    int64_t* argmax = nullptr;        // rows
    void* entropy = nullptr;          // rows
    void* distance = nullptr;         // rows
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
    void* received = nullptr;              // (B, H, n_k)
    int64_t* received_count = nullptr;     // (B, H, n_k)
    int64_t pooled_block = 0;              //
    void* pooled = nullptr;                // (B, H, ceil(n_q / block), ceil(n_k / block))
};

struct Problem {
    int64_t batch = 0, heads = 0, kv_heads = 0, n_q = 0, n_k = 0, d_k = 0, d_v = 0;
    double scale = 1;
    bool causal = false;
    int64_t offset = 0;  // position of query 0 among the keys
    MaskKind mask_kind = MaskKind::none;
    Operand query, key, value, mask;
    void* output = nullptr;  // (B, H, n_q, d_v), C-contiguous; null: statistics only, the value product is skipped
    Statistics statistics;
    int64_t chunk = 0;  // queries per task; set by the driver, changes no result
    // Strip mode, for sums down the columns in the one pass: each group keeps e^{s-m} of all its keys until its rows are
    // complete. Every chunk then leaves its own sums in `column_sums` (B, H, chunks, n_k), to be added up in order.
    bool strip = false;
    void* column_sums = nullptr;
    int64_t* column_counts = nullptr;

    // Always inlined: each instruction set's unit must keep its own copy.
    [[gnu::always_inline]] int64_t kv_head(int64_t head) const { return head / (heads / kv_heads); }
    [[gnu::always_inline]] int64_t chunks() const { return (n_q + chunk - 1) / chunk; }
    [[gnu::always_inline]] bool masked() const { return causal || mask_kind != MaskKind::none; }
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
