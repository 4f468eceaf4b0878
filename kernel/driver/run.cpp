#include "driver/run.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "driver/gather.h"
#include "scratch.h"
#include "driver/threads.h"

namespace headwise {
namespace {

// Below this many multiply-adds waking other threads costs more than they bring.
constexpr double worth_a_thread = 1e5;

constexpr int64_t kept_bytes = 2 * largest_strip;  // working memory that stays with a thread between calls
thread_local Scratch scratch;

// Queries per task. In strip mode every chunk holds its own column sums, so their number depends on the shape alone.
int64_t chunk_queries(const Problem& p, const Kernel& k, int threads) {
    const int64_t all_heads = std::max<int64_t>(p.batch * p.heads, 1);
    int64_t chunk;
    if (p.strip) {
        const int64_t chunks = std::clamp<int64_t>(64 / all_heads, 1, 8);
        chunk = ((p.n_q + chunks - 1) / chunks + k.group - 1) / k.group * k.group;
    } else {
        // Large chunks share a block of keys while it is in cache; small ones keep all threads busy to the end.
        const int64_t wanted = threads > 1 ? (4 * threads + all_heads - 1) / all_heads : 1;
        chunk = 4 * k.group;
        while (chunk > k.group && (p.n_q + chunk - 1) / chunk < wanted) chunk -= k.group;
        // Few queries: split them evenly over whole vectors, so that no task is left with a sliver.
        const int64_t vectors = (p.n_q + k.lanes - 1) / k.lanes, chunks = (p.n_q + chunk - 1) / chunk;
        if (chunks > 0 && chunks < 8) chunk = (vectors + chunks - 1) / chunks * k.lanes;
    }
    if (const int64_t block = p.statistics.pooled ? p.statistics.pooled_block : 0)
        chunk = (chunk + block - 1) / block * block;  // a pooled row block belongs to one task
    return std::max<int64_t>(chunk, 1);
}

// Rows that see each key, where only positions and lengths decide: each row opens its range and closes it again.
void count_rows(const Problem& p) {
    for (int64_t b = 0; b < p.batch; ++b) {
        std::vector<int64_t> change(std::size_t(p.n_k + 1), 0);
        for (int64_t i = 0; i < p.n_q; ++i) {
            const Range r = p.range(b, i);
            ++change[std::size_t(r.from)];
            --change[std::size_t(r.until)];
        }
        int64_t seen = 0;
        for (int64_t j = 0; j < p.n_k; ++j) {
            seen += change[std::size_t(j)];
            for (int64_t h = 0; h < p.heads; ++h) p.statistics.received_count[(b * p.heads + h) * p.n_k + j] = seen;
        }
    }
}

// Mean over the rows of each head that see a key; the rows' own masses stand in `rows`, negative where a row saw none.
template <class T>
void average_buckets(const Problem& p, const T* rows, T* histogram) {
    const int64_t buckets = p.statistics.n_buckets;
    for (int64_t head = 0; head < p.batch * p.heads; ++head)
        for (int64_t i = 0; i < buckets; ++i) {
            double sum = 0;
            int64_t count = 0;
            for (int64_t row = head * p.n_q; row < (head + 1) * p.n_q; ++row) {
                const T mass = rows[row * buckets + i];
                if (mass < 0) continue;
                sum += double(mass);
                ++count;
            }
            histogram[head * buckets + i] = count ? T(sum / double(count)) : std::numeric_limits<T>::quiet_NaN();
        }
}

// Adds up what the chunks left, in order.
template <class T>
void merge_columns(const Problem& p, const T* parts, T* sums) {
    for (int64_t head = 0; head < p.batch * p.heads; ++head)
        for (int64_t j = 0; j < p.n_k; ++j) {
            T sum = 0;
            for (int64_t c = 0; c < p.chunks(); ++c) sum += parts[(head * p.chunks() + c) * p.n_k + j];
            sums[head * p.n_k + j] = sum;
        }
}

bool has_columns(const Problem& p) { return p.statistics.received || p.statistics.received_count; }

// Fewer threads where the work is small.
int threads_for(const Problem& p, int threads) {
    const double work = double(p.batch) * double(p.heads) * double(p.n_q) * double(p.n_k) * double(p.d_k + p.d_v);
    return work < worth_a_thread ? 1 : threads;
}

// Chooses strip and chunks, and gives the driver's own arrays their places in `memory`. Returns how many bytes they take.
int64_t lay_out(Problem& p, const Kernel& k, int threads, char* memory) {
    Statistics& s = p.statistics;
    const int64_t all_heads = p.batch * p.heads, rows = all_heads * p.n_q, width = k.element_bytes;
    p.strip = has_columns(p) && p.n_k * k.group * width <= largest_strip;
    p.chunk = chunk_queries(p, k, threads);
    int64_t used = 0;
    const auto take = [&](int64_t bytes) {
        void* piece = memory + used;
        used += (bytes + 63) & ~int64_t(63);
        return piece;
    };
    if (p.strip) {
        const int64_t parts = all_heads * p.chunks() * p.n_k;
        p.column_sums = take(parts * width);
        if (s.received_count) p.column_counts = static_cast<int64_t*>(take(parts * int64_t(sizeof(int64_t))));
    } else if (has_columns(p)) {
        s.row_top = take(rows * width);
        s.row_total = take(rows * width);
    }
    if (s.distance_histogram) s.distance_rows = take(rows * s.n_buckets * width);
    return used;
}

}  // namespace

Memory memory_of(Problem p, const Kernel& k, int threads) {
    threads = threads_for(p, threads);
    if (!p.hides_by_number()) p.statistics.received_count = nullptr;
    char nowhere;
    const int64_t own = lay_out(p, k, threads, &nowhere);
    return {k.scratch_bytes(p), own + gathered_bytes(p, k.element_bytes), has_columns(p) && !p.strip};
}

void run(Problem p, const Kernel& k, int threads) {
    threads = threads_for(p, threads);
    const int64_t all_heads = p.batch * p.heads, width = k.element_bytes;
    const Gathered gathered(p, width, threads);
    Statistics& s = p.statistics;
    if (s.received_count && !p.hides_by_number()) {
        count_rows(p);
        s.received_count = nullptr;
    }
    const bool columns = has_columns(p);
    char nowhere;
    const int64_t own_bytes = lay_out(p, k, threads, &nowhere);
    std::unique_ptr<char[]> own;
    if (own_bytes > 0) {
        own.reset(new char[std::size_t(own_bytes)]);
        lay_out(p, k, threads, own.get());
    }

    const int64_t bytes = k.scratch_bytes(p);
    const auto pass = [&](int64_t tasks, void (*body)(const Problem&, int64_t, void*)) {
        parallel_for(tasks, threads, [&](int64_t task, int) {
            body(p, task, scratch.get(bytes));
            scratch.trim(kept_bytes);
        });
    };
    pass(all_heads * p.chunks(), k.forward);
    if (columns && !p.strip) pass(all_heads * ((p.n_k + k.received_keys - 1) / k.received_keys), k.received);
    if (s.distance_histogram && width == 4)
        average_buckets(p, static_cast<const float*>(s.distance_rows), static_cast<float*>(s.distance_histogram));
    else if (s.distance_histogram)
        average_buckets(p, static_cast<const double*>(s.distance_rows), static_cast<double*>(s.distance_histogram));
    if (!p.strip) return;
    if (s.received && width == 4)
        merge_columns(p, static_cast<const float*>(p.column_sums), static_cast<float*>(s.received));
    else if (s.received)
        merge_columns(p, static_cast<const double*>(p.column_sums), static_cast<double*>(s.received));
    if (s.received_count) merge_columns(p, p.column_counts, s.received_count);
}

}  // namespace headwise
