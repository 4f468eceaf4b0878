// received.h: the second pass, for sums down the columns: attention received by each key, once every row's maximum and sum
// are known. (Not its log-sum-exp: for large scores that rounds away what e^{s - lse} needs.)
//
// A task owns some keys of one head and walks over all queries, so the sum has one order whatever the thread count.
#pragma once

#include "forward.h"

namespace headwise::HEADWISE_ISA {

constexpr int64_t received_keys = 8 * key_block;

template <class T>
int64_t received_scratch(const Problem& p, void* scratch, Group<T>* g, Vec<T>** tile, Vec<T>** sums, IntVec<T>** seen) {
    Carver c{static_cast<char*>(scratch)};
    Group<T> local;
    (g ? g : &local)->carve(c, p, max_vectors);
    *tile = c.take<Vec<T>>(key_block * max_vectors);
    *sums = c.take<Vec<T>>(received_keys);
    *seen = c.take<IntVec<T>>(received_keys);
    return c.used;
}

template <class T, int N>
void add_rows(const Problem& p, int64_t b, int64_t h, Group<T>& g, int64_t first_key, int64_t last_key, Vec<T>* tile,
              Vec<T>* sums, IntVec<T>* seen) {
    Vec<T> top[N], inverse[N];
    IntVec<T> in_use[N];
    const int64_t row = (b * p.heads + h) * p.n_q + g.first;
    const T* tops = static_cast<const T*>(p.statistics.row_top) + row;
    const T* totals = static_cast<const T*>(p.statistics.row_total) + row;
    for (int n = 0; n < N; ++n)
        for (int i = 0; i < lanes<T>; ++i) {
            const int64_t lane = n * lanes<T> + i;
            const bool live = lane < g.used && totals[lane] != 0;  // else not a row, or one that sees nothing
            top[n][i] = live ? tops[lane] : T(0);
            inverse[n][i] = live ? 1 / totals[lane] : T(0);
            in_use[n][i] = live ? -1 : 0;
        }
    for (int64_t key = first_key; key < least(last_key, g.any.until); key += key_block) {
        const int64_t keys = least(key_block, least(last_key, g.any.until) - key);
        Vec<T> unused[N] = {};  // the rows' maxima are known
        if (masked_scores<T, N>(p, b, h, g, key, keys, tile, unused) == Seen::nothing) continue;
        for (int64_t j = 0; j < keys; ++j) {
            Vec<T> sum{};
            for (int n = 0; n < N; ++n) sum += in_use[n] ? exp(tile[j * N + n] - top[n]) * inverse[n] : Vec<T>{};
            sums[key - first_key + j] += sum;
        }
        if (p.statistics.received_count)
            for (int64_t j = 0; j < keys; ++j)
                for (int n = 0; n < N; ++n)
                    seen[key - first_key + j] -= (tile[j * N + n] > splat(minus_infinity<T>)) & in_use[n];
    }
}

template <class T>
void received(const Problem& p, int64_t task, void* scratch) {
    const int64_t chunks = (p.n_k + received_keys - 1) / received_keys;
    const int64_t b = task / chunks / p.heads, h = task / chunks % p.heads;
    const int64_t first_key = task % chunks * received_keys, last_key = least(first_key + received_keys, p.n_k);
    Group<T> g;
    Vec<T>*tile, *sums;
    IntVec<T>* seen;
    received_scratch<T>(p, scratch, &g, &tile, &sums, &seen);
    for (int64_t j = 0; j < received_keys; ++j) sums[j] = Vec<T>{}, seen[j] = IntVec<T>{};
    for (int64_t first = 0; first < p.n_q;) {
        const int64_t vectors = (p.n_q - first + lanes<T> - 1) / lanes<T>;
        with_vectors(next_group(vectors), [&](auto n) {
            constexpr int N = decltype(n)::value;
            load<T, N>(p, b, h, first, least(p.n_q - first, N * lanes<T>), g);
            if (g.any.until > first_key && g.any.from < last_key)
                add_rows<T, N>(p, b, h, g, first_key, last_key, tile, sums, seen);
        });
        first += g.used;
    }
    const int64_t to = (b * p.heads + h) * p.n_k;
    for (int64_t j = 0; j < last_key - first_key; ++j) {
        if (p.statistics.received) static_cast<T*>(p.statistics.received)[to + first_key + j] = sum<T>(sums[j]);
        if (!p.statistics.received_count) continue;
        int64_t count = 0;
        for (int i = 0; i < lanes<T>; ++i) count += seen[j][i];
        p.statistics.received_count[to + first_key + j] = count;
    }
}

}  // namespace headwise::HEADWISE_ISA
