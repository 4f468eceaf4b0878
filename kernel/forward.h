// forward.h: the tile loop. For a chunk of queries of one head: stream the keys once, keep (m, l, o, statistics).
//
// Tried on a first-generation AMD EPYC (AVX2, float32, d = 64); "units" are times of one vector multiply-add:
//   register tiles 4x3, 6x2, 3x4, 5x2, k loops unrolled by 2: 84-88 % of the multiply-add rate in a product alone, so 4x3
//     stays; 6x2 unrolled by 4 gives 69-82 %, 2x5 and 2x6 80-82 %, 12x1 64-69 %
//   the same product by depth: 32 90 %, 64 91 %, 128 93 %, 256 94 %, 512 95 %: hence blocks of 128 keys, whose values'
//     product is 128 deep. Against 64: +1.5 % at d = 64, +2.3 % at d = 128
//   exponentials of 4 vectors in step instead of one: softmax 24.5 -> 20.9 units a vector (2: 21.4, 8: 20.7)
//   softmax without a pass for the maximum, which is taken while the first product's tile is still in registers: 18.2;
//     and what underflows raised to a lowest number before the exponential instead of cleared after it: 16.6.
//     Together +1.5 to 2 % of the whole
//   exponential of degree 5 with constant term exactly 1: 4.3e-7 relative, too coarse; degree 6 stays
//   received by a second pass over the keys: +60 % of the plain time; from the strip: +3 to 4 %
#pragma once

#include "dropout.h"
#include "statistics.h"

namespace headwise::HEADWISE_ISA {

constexpr int64_t groups_per_step = 4;  // groups that share a block of keys and values while it is in cache

template <class T>
constexpr int64_t step_vectors = groups_per_step* max_vectors;

// Queries that share a block of keys: in strip mode one group, whose strip then fits the second-level cache.
template <class T>
int64_t queries_per_step(const Problem& p) {
    return (p.strip ? 1 : groups_per_step) * max_vectors * lanes<T>;
}

// All working memory of one task.
template <class T>
struct Workspace {
    Group<T> groups[step_vectors<T>];
    Vec<T>* tile;          // key_block x N: scores, then e^{s-m}
    T* values;             // key_block x d_v: values with what is not finite set to 0 (careful mode only)
    IntVec<T>* visible;    // key_block x N (careful mode only)
    Pool<T> pool;
    Vec<T>* columns;       // n_k: sums down the columns, one partial sum per lane (strip mode only)
    IntVec<T>* seen;       // n_k: rows that see the key
    Matches matches;       // of the tile
    int count = 0;
};

// Lays out the groups for `queries` rows.
template <class T>
int64_t lay_out(const Problem& p, int64_t queries, void* scratch, Workspace<T>* w) {
    Carver c{static_cast<char*>(scratch)};
    Workspace<T> local;
    Workspace<T>& to = w ? *w : local;
    const int64_t pools = p.statistics.pooled ? (p.n_k + p.statistics.pooled_block - 1) / p.statistics.pooled_block : 0;
    to.pool.mass = c.take<double>(pools);
    to.tile = c.take<Vec<T>>(key_block * max_vectors);
    to.values = c.take<T>(p.output && p.masked() ? key_block * p.d_v : 0);
    to.visible = c.take<IntVec<T>>(p.output && p.masked() ? key_block * max_vectors : 0);
    to.columns = c.take<Vec<T>>(p.strip ? p.n_k : 0);
    to.seen = c.take<IntVec<T>>(p.column_counts ? p.n_k : 0);
    to.count = 0;
    for (int64_t v = (queries + lanes<T> - 1) / lanes<T>; v > 0;) {
        const int n = next_group(v);
        to.groups[to.count++].carve(c, p, n);
        v -= n;
    }
    return c.used;
}

template <class T>
int64_t scratch_bytes(const Problem& p) {
    return lay_out<T>(p, queries_per_step<T>(p), nullptr, nullptr);
}

// O^T += V^T P^T.
template <class T, int N>
void add_values(const Problem& p, const T* v, Group<T>& g, int64_t keys, const Vec<T>* e) {
    multiply<T, N, Finish::add>(v, p.value.col, p.value.row, p.d_v, keys, e, g.out);
}

// The same where values hold NaN or infinity in keys that some row does not see: 0 * NaN must not reach that row.
template <class T, int N>
void add_values_carefully(const Problem& p, const T* v, Group<T>& g, int64_t keys, const Vec<T>* e, T* clean,
                          const IntVec<T>* visible) {
    for (int64_t j = 0; j < keys; ++j)
        for (int64_t c = 0; c < p.d_v; ++c) {
            const T x = v[j * p.value.row + c * p.value.col];
            const bool finite = x - x == 0;
            clean[j * p.d_v + c] = finite ? x : 0;
            if (finite) continue;
            for (int n = 0; n < N; ++n)
                g.out[c * N + n] += visible[j * N + n] ? e[j * N + n] * x : Vec<T>{};
        }
    multiply<T, N, Finish::add>(clean, 1, p.d_v, p.d_v, keys, e, g.out);
}

// Rows that see each key, lane by lane (under a mask; else it is known). Lanes behind the last query do not count.
template <class T, int N>
void count_visible(const Group<T>& g, int64_t key, int64_t keys, const Vec<T>* s, IntVec<T>* seen) {
    IntVec<T> used[N];
    for (int n = 0; n < N; ++n)
        for (int i = 0; i < lanes<T>; ++i) used[n][i] = n * lanes<T> + i < g.used ? -1 : 0;
    for (int64_t j = 0; j < keys; ++j)
        for (int n = 0; n < N; ++n) seen[key + j] -= (s[j * N + n] > splat(minus_infinity<T>)) & used[n];
}

// All keys seen: the strip's e^{s-ref} become weights, e^{s-m} / l, and are added down the columns.
template <class T, int N>
void add_columns(const Group<T>& g, Vec<T>* columns) {
    for (int64_t key = g.any.from / key_block * key_block; key < g.any.until; key += key_block) {
        Vec<T> factor[N];
        for (int n = 0; n < N; ++n) {
            Vec<T> used;
            for (int i = 0; i < lanes<T>; ++i) used[i] = n * lanes<T> + i < g.used ? T(1) : T(0);
            const Vec<T> m = g.top[n] == splat(minus_infinity<T>) ? Vec<T>{} : g.top[n];
            const Vec<T> ref = g.strip_ref[key / key_block * N + n];
            factor[n] = (used == 0) | (g.share[n] == 0) ? Vec<T>{} : exp(ref - m) / g.total[n];
        }
        const int64_t stop = least(key + key_block, g.any.until);
        for (int64_t j = key; j < stop; ++j) {
            Vec<T> sum = columns[j];
            for (int n = 0; n < N; ++n) sum += g.strip[j * N + n] * factor[n];
            columns[j] = sum;
        }
    }
}

// One step of the online softmax: keys [key, key + keys) for one group.
template <class T, int N>
void step(const Problem& p, const Slots& slot, int64_t b, int64_t h, Workspace<T>& w, Group<T>& g, int64_t key,
          int64_t keys, bool careful) {
    const Statistics& want = p.statistics;
    Vec<T>* tile = p.strip && !careful ? g.strip + key * N : w.tile;
    Vec<T> top[N], rescale[N], sums[N];
    for (int n = 0; n < N; ++n) top[n] = g.top[n];
    const Seen seen = masked_scores<T, N>(p, b, h, g, key, keys, tile, top);
    if (seen == Seen::nothing) {
        if (want.pooled || p.strip) {  // a hidden tile still opens its pooled blocks and its part of the strip, empty
            for (int64_t j = 0; j < keys * N; ++j) tile[j] = Vec<T>{};
            for (int n = 0; n < N; ++n) sums[n] = Vec<T>{};
            for (int n = 0; n < N && p.strip && !careful; ++n) g.strip_ref[key / key_block * N + n] = g.top[n];
            watch_weights<T, N>(p, Slots(Statistics{}), b, g, key, keys, tile, sums);
        }
        return;
    }

    bool grew = false;
    for (int n = 0; n < N; ++n) grew |= any(top[n] > g.top[n]);
    if (want.argmax || want.top_k) watch_scores<T, N>(p, g, key, keys, tile, top);
    if (want.key_tokens) {
        find_matches<T>(p, b, g, key, keys, w.matches);
        if (seen == Seen::part) count_visible_matches<T, N>(p, b, g, key, keys, w.matches, tile);
    }
    if (p.column_counts && !careful) count_visible<T, N>(g, key, keys, tile, w.seen);
    if (careful)
        for (int64_t j = 0; j < keys * N; ++j) w.visible[j] = tile[j] > splat(minus_infinity<T>);

    for (int n = 0; n < N; ++n) {
        // A row that has seen nothing yet keeps m = -inf; 0 stands in for it, so that -inf - m is never NaN.
        const Vec<T> m = top[n] == splat(minus_infinity<T>) ? Vec<T>{} : top[n];
        rescale[n] = exp(g.top[n] - m);
        const Sums<T> more = exponentiate<T, N>(want, tile + n, keys, m);
        join_sums<T>(want, g, n, m, rescale[n], more);
        g.total[n] = g.total[n] * rescale[n] + more.total;
        g.top[n] = top[n];
        sums[n] = more.total;
        if (p.strip && !careful) g.strip_ref[key / key_block * N + n] = top[n];  // -inf: nothing seen, factor 0
    }
    if (grew) {
        if (p.output)
            for (int64_t c = 0; c < p.d_v; ++c)
                for (int n = 0; n < N; ++n) g.out[c * N + n] *= rescale[n];
        for (int64_t s = 0; s < slot.count; ++s)
            for (int n = 0; n < N; ++n) g.linear[s * N + n] *= rescale[n];
    }
    if (slot.count || want.pooled) watch_weights<T, N>(p, slot, b, g, key, keys, tile, sums);
    if (want.key_tokens) add_matches<T, N>(p, slot, b, g, key, keys, w.matches, seen == Seen::all, tile);

    if (!p.output) return;
    if (p.dropout > 0) {  // after every statistic: those describe the weights before dropout
        drop<T, N>(p, b, h, g, key, keys, tile, w.tile);
        tile = w.tile;
    }
    const Operand& value = p.value;
    const T* v = static_cast<const T*>(value.data) + value.batch[b] + p.kv_head(h) * value.head + key * value.row;
    if (careful)
        add_values_carefully<T, N>(p, v, g, keys, tile, w.values, w.visible);
    else
        add_values<T, N>(p, v, g, keys, tile);
}

// Does any key stand open to this row, by range, masks and segments alone? Asked of the rows that came out empty.
template <class T>
bool sees_a_key(const Problem& p, int64_t b, int64_t h, int64_t query) {
    const Range r = p.range(b, query);
    const auto at = [&](const Operand& m, int64_t j) {
        return m.batch[b] + h * m.head + query * m.row + j * m.col;
    };
    const auto hidden_by = [&](const Operand& m, int64_t j) {
        return static_cast<const T*>(m.data)[at(m, j)] == minus_infinity<T>;
    };
    for (int64_t j = r.from; j < r.until; ++j) {
        if (p.mask_kind == MaskKind::boolean && !static_cast<const uint8_t*>(p.mask.data)[at(p.mask, j)]) continue;
        if (p.mask_kind == MaskKind::additive && hidden_by(p.mask, j)) continue;
        if (p.bias.data && hidden_by(p.bias, j)) continue;
        if (p.key_segments && p.key_segments[b * p.n_k + j] != p.query_segments[b * p.n_q + query]) continue;
        return true;
    }
    return false;
}

// All keys seen: the sink logits join the denominator, as keys without a value would.
template <class T, int N>
void close(const Problem& p, int64_t b, int64_t h, Group<T>& g) {
    // -inf means hidden. Where every score that a row does see overflowed to -inf, its answer is not 0 but unknown: NaN.
    for (int64_t lane = 0; lane < g.used; ++lane) {
        T& total = reinterpret_cast<T*>(g.total)[lane];
        if (total == 0 && sees_a_key<T>(p, b, h, g.first + lane)) {
            total = T(__builtin_nan(""));
            reinterpret_cast<T*>(g.top)[lane] = total;
        }
    }
    for (int n = 0; n < N; ++n) {
        g.share[n] = g.total[n];
        g.best[n] = splat(T(1));
    }
    if (p.n_sinks == 0) return;
    const double* sinks = p.sinks + h * p.n_sinks;
    Vec<T> rescale[N];
    for (int n = 0; n < N; ++n) {
        Vec<T> m = g.top[n];
        for (int64_t k = 0; k < p.n_sinks; ++k) m = T(sinks[k]) > m ? splat(T(sinks[k])) : m;
        const Vec<T> at = m == splat(minus_infinity<T>) ? Vec<T>{} : m;
        rescale[n] = exp(g.top[n] - at);
        rescale_sums<T>(g, n, at, rescale[n]);
        // A row whose keys all underflow against a sink still saw them: its share stays above 0.
        constexpr T smallest = sizeof(T) == 4 ? T(1.17549435e-38f) : T(2.2250738585072014e-308);
        const Vec<T> kept = g.total[n] * rescale[n];
        g.share[n] = g.total[n] == 0 ? Vec<T>{} : kept < smallest ? splat(smallest) : kept;
        g.best[n] = rescale[n];
        g.total[n] = kept;
        for (int64_t k = 0; k < p.n_sinks; ++k) g.total[n] += exp(T(sinks[k]) - at);
        g.top[n] = m;
    }
    if (p.output)
        for (int64_t c = 0; c < p.d_v; ++c)
            for (int n = 0; n < N; ++n) g.out[c * N + n] *= rescale[n];
    for (int64_t s = 0; s < Slots(p.statistics).count; ++s)
        for (int n = 0; n < N; ++n) g.linear[s * N + n] *= rescale[n];
}

// Divides by l and writes the rows of the output. Returns false when a number is not finite.
template <class T, int N>
bool write_output(const Problem& p, int64_t b, int64_t h, const Group<T>& g) {
    constexpr int64_t L = N * lanes<T>;
    const T factor = p.head_mask ? T(p.head_mask[b * p.heads + h]) : T(1);
    T* to = static_cast<T*>(p.output) + ((b * p.heads + h) * p.n_q + g.first) * p.d_v;
    const T* from = reinterpret_cast<const T*>(g.out);
    Vec<T> wrong{};  // stays 0 until the first NaN or infinity
    for (int n = 0; n < N; ++n) {
        const Vec<T> inverse = factor / g.total[n];
        for (int64_t c = 0; c < p.d_v; ++c) {  // a row that sees no key: output 0
            const Vec<T> x = g.share[n] == 0 ? Vec<T>{} : g.out[c * N + n] * inverse;
            g.out[c * N + n] = x;
            wrong += x - x;
        }
        const int64_t lane = n * lanes<T>, live = least(g.used - lane, lanes<T>);
        int64_t c = 0;
        for (; c + lanes<T> <= p.d_v; c += lanes<T>) {
            Square<T> square;
            for (int i = 0; i < lanes<T>; ++i) square[i] = g.out[(c + i) * N + n];
            transpose<T>(square);
            for (int i = 0; i < live; ++i) store_loose<T>(to + (lane + i) * p.d_v + c, square[i]);
        }
        for (; c < p.d_v; ++c)
            for (int64_t i = 0; i < live; ++i) to[(lane + i) * p.d_v + c] = from[c * L + lane + i];
    }
    return !any(wrong != 0);
}

// Runs `queries` rows from `first` of head (b, h): clears, streams all keys, writes.
template <class T>
void run_rows(const Problem& p, const Slots& slot, int64_t b, int64_t h, int64_t first, int64_t queries, void* scratch,
              Workspace<T>& w) {
    lay_out<T>(p, queries, scratch, &w);
    int64_t at = first, begin = p.n_k, end = 0;
    for (int i = 0; i < w.count; ++i) {
        Group<T>& g = w.groups[i];
        with_vectors(g.vectors, [&](auto n) {
            constexpr int N = decltype(n)::value;
            load<T, N>(p, b, h, at, least(first + queries - at, N * lanes<T>), g);
            clear<T, N>(p, g);
        });
        at += g.used;
        if (g.any.until > g.any.from) begin = least(begin, g.any.from);
        end = most(end, g.any.until);
    }
    // Steps start at multiples of key_block whatever the rows see, so that a row's bits do not depend on its neighbours.
    for (int64_t key = begin / key_block * key_block; key < end; key += key_block)
        for (int i = 0; i < w.count; ++i) {
            Group<T>& g = w.groups[i];
            const int64_t keys = least(key_block, g.any.until - key);
            if (keys <= 0 || key + keys <= g.any.from) continue;
            with_vectors(g.vectors, [&](auto n) {
                step<T, decltype(n)::value>(p, slot, b, h, w, g, key, keys, false);
            });
        }
    for (int i = 0; i < w.count; ++i) {
        Group<T>& g = w.groups[i];
        with_vectors(g.vectors, [&](auto n) {
            constexpr int N = decltype(n)::value;
            close<T, N>(p, b, h, g);
            write_statistics<T, N>(p, slot, b, h, g, w.pool);
            if (p.strip) add_columns<T, N>(g, w.columns);
            if (!p.output || write_output<T, N>(p, b, h, g) || !p.masked()) return;
            // Something is not finite. It may be a masked value's NaN times a weight of 0: once more, with care.
            Problem again = p;
            again.statistics = Statistics{};
            again.strip = false;
            clear<T, N>(again, g);
            for (int64_t key = g.any.from / key_block * key_block; key < g.any.until; key += key_block)
                step<T, N>(again, Slots(again.statistics), b, h, w, g, key, least(key_block, g.any.until - key), true);
            close<T, N>(again, b, h, g);
            write_output<T, N>(again, b, h, g);
        });
    }
}

// Task t: one chunk of queries of one head. Causal chunks with the most keys come first, so that threads end together.
template <class T>
void forward(const Problem& p, int64_t task, void* scratch) {
    const int64_t all_heads = p.batch * p.heads, chunks = p.chunks();
    const int64_t head = p.causal ? task % all_heads : task / chunks;
    const int64_t chunk = p.causal ? chunks - 1 - task / all_heads : task % chunks;
    const int64_t b = head / p.heads, h = head % p.heads;
    const int64_t begin = chunk * p.chunk, end = least(begin + p.chunk, p.n_q);
    const Slots slot(p.statistics);
    Workspace<T> w;
    lay_out<T>(p, 0, scratch, &w);
    if (p.statistics.pooled) {
        const int64_t pools = (p.n_k + p.statistics.pooled_block - 1) / p.statistics.pooled_block;
        for (int64_t i = 0; i < pools; ++i) w.pool.mass[i] = 0;
    }
    if (p.strip)
        for (int64_t j = 0; j < p.n_k; ++j) w.columns[j] = Vec<T>{};
    if (p.column_counts)
        for (int64_t j = 0; j < p.n_k; ++j) w.seen[j] = IntVec<T>{};
    const int64_t together = queries_per_step<T>(p);
    for (int64_t first = begin; first < end; first += together)
        run_rows<T>(p, slot, b, h, first, least(together, end - first), scratch, w);
    if (!p.strip) return;
    const int64_t to = (head * chunks + chunk) * p.n_k;
    for (int64_t j = 0; j < p.n_k; ++j) static_cast<T*>(p.column_sums)[to + j] = sum<T>(w.columns[j]);
    for (int64_t j = 0; p.column_counts && j < p.n_k; ++j) {
        int64_t count = 0;
        for (int i = 0; i < lanes<T>; ++i) count += w.seen[j][i];
        p.column_counts[to + j] = count;
    }
}

}  // namespace headwise::HEADWISE_ISA
