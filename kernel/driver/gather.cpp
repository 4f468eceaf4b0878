#include "driver/gather.h"

#include <algorithm>
#include <cstring>

#include "driver/threads.h"

namespace headwise {
namespace {

constexpr int64_t worth_queries = 256;             // with 128 the copy costs more than it brings
constexpr int64_t kept_bytes = int64_t(32) << 20;  // that stay with the process between calls
constexpr int64_t rows_per_task = 128;

// Never destroyed: a thread may still compute while the process ends.
Scratch& shared = *new Scratch;
std::mutex shared_by_one;

// How much of an operand has to be copied: what the entries of the batch, or all heads, have in common is copied once.
struct Extent {
    int64_t batch = 0, heads = 0, rows = 0, width = 0;
    int64_t size() const { return batch * heads * rows * width; }
};

Extent extent(const Problem& p, const Operand& o, int64_t width) {
    const bool beside = o.row == 0 || (o.col == 1 && o.row == width);
    if (beside || p.n_q < worth_queries || p.n_k < 2) return {};
    const bool same = std::all_of(o.batch, o.batch + p.batch, [&](int64_t start) { return start == o.batch[0]; });
    return {same ? 1 : p.batch, o.head == 0 ? 1 : p.kv_heads, p.n_k, width};
}

template <class U>
void copy_row(const U* from, int64_t col, int64_t width, U* to) {
    if (col == 1)
        std::memcpy(to, from, std::size_t(width) * sizeof(U));
    else
        for (int64_t c = 0; c < width; ++c) to[c] = from[c * col];
}

// Row by row over all heads: in the layout of models that reads the memory in order.
template <class U>
void copy(Operand& o, const Extent& e, int64_t batch, std::vector<int64_t>& starts, U* to, int threads) {
    const int64_t blocks = (e.rows + rows_per_task - 1) / rows_per_task;
    parallel_for(e.batch * blocks, threads, [&](int64_t task, int) {
        const int64_t b = task / blocks, first = task % blocks * rows_per_task;
        const U* from = static_cast<const U*>(o.data) + o.batch[b];
        for (int64_t i = first; i < std::min(first + rows_per_task, e.rows); ++i)
            for (int64_t h = 0; h < e.heads; ++h)
                copy_row(from + h * o.head + i * o.row, o.col, e.width, to + ((b * e.heads + h) * e.rows + i) * e.width);
    });
    starts.resize(std::size_t(batch));
    for (int64_t b = 0; b < batch; ++b) starts[std::size_t(b)] = e.batch == 1 ? 0 : b * e.heads * e.rows * e.width;
    o = {to, starts.data(), e.heads == 1 ? 0 : e.rows * e.width, e.width, 1};
}

Extent of_keys(const Problem& p) { return extent(p, p.key, p.d_k); }
Extent of_values(const Problem& p) { return p.output ? extent(p, p.value, p.d_v) : Extent{}; }

}  // namespace

int64_t gathered_bytes(const Problem& p, int64_t element_bytes) {
    return (of_keys(p).size() + of_values(p).size()) * element_bytes;
}

Gathered::Gathered(Problem& p, int64_t element_bytes, int threads) {
    const Extent keys = of_keys(p), values = of_values(p);
    if (keys.size() + values.size() == 0) return;
    lock_ = std::unique_lock(shared_by_one, std::try_to_lock);
    void* memory = (lock_ ? shared : own_).get((keys.size() + values.size()) * element_bytes);
    const auto copies = [&](auto* to) {
        if (keys.size()) copy(p.key, keys, p.batch, keys_, to, threads);
        if (values.size()) copy(p.value, values, p.batch, values_, to + keys.size(), threads);
    };
    if (element_bytes == 4)
        copies(static_cast<uint32_t*>(memory));
    else
        copies(static_cast<uint64_t*>(memory));
}

Gathered::~Gathered() {
    if (lock_) shared.trim(kept_bytes);
}

}  // namespace headwise
