#include "run.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "threads.h"

namespace headwise {
namespace {

// Below this many multiply-adds waking other threads costs more than they bring.
constexpr double worth_a_thread = 1e5;

// Working memory of a thread, kept between calls so that the page faults are paid once; released when it is large.
class Scratch {
  public:
    void* get(int64_t bytes) {
        if (bytes > size_) {
            memory_.reset();
            const std::size_t rounded = (std::size_t(bytes) + 63) & ~std::size_t(63);
            memory_.reset(std::aligned_alloc(64, rounded));
            size_ = memory_ ? int64_t(rounded) : 0;
            if (!memory_) throw std::bad_alloc();
        }
        return memory_.get();
    }
    void trim() {
        if (size_ > (int64_t(4) << 20)) memory_.reset(), size_ = 0;
    }

  private:
    struct Free {
        void operator()(void* p) const { std::free(p); }
    };
    std::unique_ptr<void, Free> memory_;
    int64_t size_ = 0;
};

thread_local Scratch scratch;

}  // namespace

int64_t chunk_queries(const Problem& p, const Kernel& k, int threads) {
    // Large chunks share a block of keys while it is in cache; small ones keep all threads busy to the end.
    const int64_t all_heads = std::max<int64_t>(p.batch * p.heads, 1);
    const int64_t wanted = threads > 1 ? (4 * threads + all_heads - 1) / all_heads : 1;
    int64_t chunk = 4 * k.group;
    while (chunk > k.group && (p.n_q + chunk - 1) / chunk < wanted) chunk -= k.group;
    // Few queries: split them evenly over whole vectors, so that no task is left with a sliver.
    const int64_t vectors = (p.n_q + k.lanes - 1) / k.lanes, chunks = (p.n_q + chunk - 1) / chunk;
    if (chunks > 0 && chunks < 8) chunk = (vectors + chunks - 1) / chunks * k.lanes;
    if (const int64_t block = p.statistics.pooled ? p.statistics.pooled_block : 0)
        chunk = (chunk + block - 1) / block * block;  // a pooled row block belongs to one task
    return std::max<int64_t>(chunk, 1);
}

void run(Problem p, const Kernel& k, int threads, void* temporary_lse) {
    const double work = double(p.batch) * double(p.heads) * double(p.n_q) * double(p.n_k) * double(p.d_k + p.d_v);
    if (work < worth_a_thread) threads = 1;
    const bool second_pass = p.statistics.received || p.statistics.received_count;
    if (second_pass && !p.statistics.lse) p.statistics.lse = temporary_lse;
    p.chunk = chunk_queries(p, k, threads);
    const int64_t bytes = k.scratch_bytes(p), all_heads = p.batch * p.heads;
    const auto pass = [&](int64_t tasks, void (*body)(const Problem&, int64_t, void*)) {
        parallel_for(tasks, threads, [&](int64_t task, int) {
            body(p, task, scratch.get(bytes));
            scratch.trim();
        });
    };
    pass(all_heads * p.chunks(), k.forward);
    if (second_pass) pass(all_heads * ((p.n_k + k.received_keys - 1) / k.received_keys), k.received);
}

}  // namespace headwise
