// statistics.h: what rides along with the softmax, row by row.
//
// Three kinds. Those that need scores: argmax, top-k (`watch_scores`, before exp). Sums that are taken together with the
// exponentials: entropy, squares (`Sums`). Those that are linear in e^{s-m}: masses and means (`watch_weights`, after exp);
// they are rescaled together with the output.
#pragma once

#include "matches.h"
#include "scores.h"

namespace headwise::HEADWISE_ISA {

// Sums over the keys of a tile, of one vector of rows.
template <class T>
struct Sums {
    Vec<T> total{};     // e^{s-m}
    Vec<T> weighted{};  // e^{s-m} (s-m), for the entropy
    Vec<T> squares{};   // e^{2(s-m)}
};

// K scores of one vector of rows become e^{s-m}, in place, and are added to the sums.
template <class T, int N, int K, bool entropy, bool squares>
[[gnu::always_inline]] inline void exponentials(Vec<T>* s, Vec<T> m, Sums<T>& sums) {
    Vec<T> x[K], e[K];
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) e[k] = x[k] = raised<T>(s[k * N] - m);  // which keeps 0 * -inf out of the product below
    exp_of_raised(e);
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) {
        s[k * N] = e[k];
        sums.total += e[k];
        if constexpr (entropy) sums.weighted += e[k] * x[k];
        if constexpr (squares) sums.squares += e[k] * e[k];
    }
}

template <class T, int N, bool entropy, bool squares>
inline Sums<T> exponentials_of_tile(Vec<T>* s, int64_t keys, Vec<T> m) {
    Sums<T> sums;
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4) exponentials<T, N, 4, entropy, squares>(s + j * N, m, sums);
    for (; j < keys; ++j) exponentials<T, N, 1, entropy, squares>(s + j * N, m, sums);
    return sums;
}

template <class T, int N>
[[gnu::always_inline]] inline Sums<T> exponentiate(const Statistics& want, Vec<T>* s, int64_t keys, Vec<T> m) {
    const auto of_tile = want.entropy ? want.sum_squares ? exponentials_of_tile<T, N, true, true>
                                                         : exponentials_of_tile<T, N, true, false>
                         : want.sum_squares ? exponentials_of_tile<T, N, false, true>
                                            : exponentials_of_tile<T, N, false, false>;
    return of_tile(s, keys, m);
}

// What is not linear in e^{s-m}, from the old maximum of vector n to the new one, m, and the sums of a tile to it.
template <class T>
[[gnu::always_inline]] inline void join_sums(const Statistics& want, Group<T>& g, int n, Vec<T> m, Vec<T> rescale,
                                             const Sums<T>& more) {
    if (want.entropy) {
        const Vec<T> drop = g.total[n] == 0 ? Vec<T>{} : g.top[n] - m;
        g.entropy[n] = rescale * (g.entropy[n] + drop * g.total[n]) + more.weighted;
    }
    if (want.sum_squares) g.squares[n] = g.squares[n] * (rescale * rescale) + more.squares;
}

// The same without a tile, where sink logits raise the maximum.
template <class T>
[[gnu::always_inline]] inline void rescale_sums(Group<T>& g, int n, Vec<T> m, Vec<T> rescale) {
    const Vec<T> drop = g.total[n] == 0 ? Vec<T>{} : g.top[n] - m;
    g.entropy[n] = rescale * (g.entropy[n] + drop * g.total[n]);
    g.squares[n] *= rescale * rescale;
}

constexpr int64_t top_k_stride = 8;

template <class T>
inline void insert_top_k(Group<T>& g, int64_t k, int64_t lane, T score, int32_t key) {
    T* scores = g.top_k_score + lane * k;
    int32_t* keys = g.top_k_index + lane * k;
    int64_t at = k - 1;
    for (; at > 0 && scores[at - 1] < score; --at) {  // strictly less: of equal scores the earlier key stays in front
        scores[at] = scores[at - 1];
        keys[at] = keys[at - 1];
    }
    scores[at] = score;
    keys[at] = key;
    g.top_k_least[lane / lanes<T>][lane % lanes<T>] = scores[k - 1];
}

// Before exp: `s` holds scores, `top` the maximum including this tile; g.top is still the one before it.
template <class T, int N>
void watch_scores(const Problem& p, Group<T>& g, int64_t key, int64_t keys, const Vec<T>* s, const Vec<T>* top) {
    const Statistics& want = p.statistics;
    if (want.argmax)
        for (int n = 0; n < N; ++n) {
            IntVec<T> open = top[n] > g.top[n];  // rows whose maximum stands in this tile: at the first key that equals it
            for (int64_t j = 0; any(open); ++j) {
                const IntVec<T> here = open & (s[j * N + n] == top[n]);
                if (!any(here)) continue;
                for (int i = 0; i < lanes<T>; ++i)
                    if (here[i]) g.argmax[n * lanes<T> + i] = int32_t(key + j);
                open &= ~here;
            }
        }
    if (want.top_k)
        for (int n = 0; n < N; ++n)
            for (int64_t first = 0; first < keys; first += top_k_stride) {
                // Most keys change nothing: several are asked at once.
                const int64_t stop = least(first + top_k_stride, keys);
                IntVec<T> better{};
                for (int64_t j = first; j < stop; ++j) better |= s[j * N + n] > g.top_k_least[n];
                if (!any(better)) continue;
                for (int64_t j = first; j < stop; ++j)
                    for (uint32_t rows = bits<T>(s[j * N + n] > g.top_k_least[n]); rows; rows &= rows - 1) {
                        const int i = __builtin_ctz(rows);
                        insert_top_k(g, want.top_k, n * lanes<T> + i, s[j * N + n][i], int32_t(key + j));
                    }
            }
}

// Adds sum e |position - key|. Where all gaps of a row have one sign, |position - first key| -+ j costs one multiply-add a
// key; left of the diagonal only at some distance from it, since there the two terms cancel. Each row decides for itself,
// so its bits do not depend on the rows beside it.
template <class T, int N>
void add_distance(const Group<T>& g, int64_t key, int64_t keys, const Vec<T>* e, const Vec<T>* sums,
                  Vec<T>* distance) {
    IntVec<T> left[N], far[N];
    Vec<T> steps[N], near[N];
    bool some_far = false, some_near = false;
    for (int n = 0; n < N; ++n) {
        steps[n] = near[n] = Vec<T>{};
        left[n] = g.place[n] >= T(key + key_block + key_block / 4);
        far[n] = left[n] | (g.place[n] <= T(key));
        some_far |= any(far[n]);
        some_near |= any(~far[n]);
    }
    Vec<T> j{};
    for (int64_t k = 0; k < keys && some_far; ++k) {
        for (int n = 0; n < N; ++n) steps[n] += e[k * N + n] * j;
        j += T(1);
    }
    for (int64_t k = 0; k < keys && some_near; ++k)
        for (int n = 0; n < N; ++n) {
            const Vec<T> gap = g.place[n] - T(key + k);
            near[n] += e[k * N + n] * (gap < 0 ? -gap : gap);
        }
    for (int n = 0; n < N; ++n) {
        const Vec<T> gaps = (g.place[n] - T(key)) * sums[n];
        distance[n] += far[n] ? (left[n] ? gaps - steps[n] : steps[n] - gaps) : near[n];
    }
}

// Distances 0, 1, 2-3, 4-7, ...: bucket 0 holds 0, bucket i holds [2^(i-1), 2^i).
inline int64_t distance_bucket(int64_t gap, int64_t buckets) {
    return gap == 0 ? 0 : least(64 - __builtin_clzll(uint64_t(gap)), buckets - 1);
}

// Adds the mass of each bucket of distances. The rows of a group stand side by side, so a bucket is a run of keys that
// shifts by one from row to row: only the ends of the run are asked row by row.
template <class T, int N>
void add_buckets(const Group<T>& g, int64_t nearest, int64_t key, int64_t keys, int64_t buckets, const Vec<T>* e,
                 const Vec<T>* sums, Vec<T>* mass) {
    const int64_t farthest = nearest + g.used - 1, last = key + keys - 1;
    const int64_t least_gap = last < nearest ? nearest - last : key > farthest ? key - farthest : 0;
    const int64_t most_gap = most(farthest - key, last - nearest);
    const int64_t low = distance_bucket(least_gap, buckets), high = distance_bucket(most(most_gap, 0), buckets);
    if (low == high) {
        for (int n = 0; n < N; ++n) mass[low * N + n] += sums[n];
        return;
    }
    for (int64_t bucket = low; bucket <= high; ++bucket) {
        const int64_t floor = bucket == 0 ? 0 : int64_t(1) << (bucket - 1);
        const int64_t ceiling = bucket == 0 ? 1 : bucket == buckets - 1 ? most_gap + 1 : 2 * floor;
        Vec<T> total[N] = {};
        // Keys [from, until) lie in the bucket for some row, those in [inner, outer) for every row.
        const auto add = [&](int64_t from, int64_t inner, int64_t outer, int64_t until) {
            from = most(from, key), until = least(until, key + keys);
            for (int64_t k = from; k < until; ++k)
                for (int n = 0; n < N; ++n) {
                    const Vec<T> x = e[(k - key) * N + n];
                    const Vec<T> gap = g.place[n] - T(k), size = gap < 0 ? -gap : gap;
                    const bool all = k >= inner && k < outer;
                    total[n] += all ? x : (size >= T(floor)) & (size < T(ceiling)) ? x : Vec<T>{};
                }
        };
        if (bucket == 0)
            add(nearest, farthest, nearest + 1, farthest + 1);
        else {
            const int64_t before = farthest - floor + 1;  // behind the last key on the left side
            add(nearest - ceiling + 1, farthest - ceiling + 1, nearest - floor + 1, before);
            add(most(nearest + floor, before), farthest + floor, nearest + ceiling, farthest + ceiling);
        }
        for (int n = 0; n < N; ++n) mass[bucket * N + n] += total[n];
    }
}

// After exp: `e` holds e^{s-m} of this tile and `sums` its sum over the keys; g.linear was rescaled to the same m (g.top).
template <class T, int N>
void watch_weights(const Problem& p, const Slots& slot, int64_t b, Group<T>& g, int64_t key, int64_t keys,
                   const Vec<T>* e, const Vec<T>* sums) {
    constexpr int64_t L = N * lanes<T>;
    const Statistics& want = p.statistics;
    if (slot.sink >= 0)
        for (int64_t j = 0; j < least(keys, want.sink_keys - key); ++j)
            for (int n = 0; n < N; ++n) g.linear[slot.sink * N + n] += e[j * N + n];
    const int64_t nearest = p.position(b, g.first);
    if (slot.distance >= 0) add_distance<T, N>(g, key, keys, e, sums, g.linear + slot.distance * N);
    if (slot.buckets >= 0)
        add_buckets<T, N>(g, nearest, key, keys, want.n_buckets, e, sums, g.linear + slot.buckets * N);
    if (slot.relative >= 0)
        for (int64_t o = 0; o < want.n_relative; ++o) {
            T* mass = reinterpret_cast<T*>(g.linear + (slot.relative + o) * N);
            const int64_t shift = nearest + want.relative[o] - key;  // row of lane 0 in this tile
            for (int64_t lane = most(0, -shift); lane < least(g.used, keys - shift); ++lane)
                mass[lane] += reinterpret_cast<const T*>(e)[(lane + shift) * L + lane];
        }
    if (slot.classes >= 0)
        for (int64_t j = 0; j < keys; ++j) {
            const int32_t c = want.classes[b * p.n_k + key + j];
            if (c < 0) continue;
            for (int n = 0; n < N; ++n) g.linear[(slot.classes + c) * N + n] += e[j * N + n];
        }
    if (want.pooled)
        for (int64_t j = 0; j < keys;) {
            const int64_t pool = (key + j) / want.pooled_block;
            const int64_t stop = least(keys, (pool + 1) * want.pooled_block - key);
            const bool begun = (key + j) % want.pooled_block != 0;  // an earlier tile held its first keys
            for (int n = 0; n < N; ++n) {
                Vec<T>& sum = g.pooled_sum[pool * N + n];
                Vec<T>& ref = g.pooled_ref[pool * N + n];
                const Vec<T> top = g.top[n] == splat(minus_infinity<T>) ? Vec<T>{} : g.top[n];
                Vec<T> more{};
                if (stop - j == keys)
                    more = sums[n];
                else
                    for (int64_t i = j; i < stop; ++i) more += e[i * N + n];
                sum = begun & (sum != 0) ? sum * exp(ref - top) + more : more;
                ref = g.top[n];  // -inf while the row has seen nothing: its empty sum then stays 0
            }
            j = stop;
        }
}

// Mean over the rows of a pooled block that see a key; rows arrive in order, blocks are flushed as they fill up.
template <class T>
struct Pool {
    double* mass = nullptr;  // key blocks
    int64_t rows = 0;        // rows that saw a key

    void flush(const Problem& p, int64_t b, int64_t h, int64_t last_row) {
        const int64_t block = p.statistics.pooled_block;
        const int64_t across = (p.n_k + block - 1) / block, down = (p.n_q + block - 1) / block;
        T* to = static_cast<T*>(p.statistics.pooled) + ((b * p.heads + h) * down + last_row / block) * across;
        for (int64_t i = 0; i < across; ++i) {
            to[i] = rows ? T(mass[i] / double(rows)) : T(__builtin_nan(""));
            mass[i] = 0;
        }
        rows = 0;
    }
};

// All keys seen: write the rows of this group.
template <class T, int N>
void write_statistics(const Problem& p, const Slots& slot, int64_t b, int64_t h, Group<T>& g, Pool<T>& pool) {
    constexpr int64_t L = N * lanes<T>;
    const Statistics& want = p.statistics;
    const T missing = T(__builtin_nan(""));
    const T* total = reinterpret_cast<const T*>(g.total);
    const T* share = reinterpret_cast<const T*>(g.share);
    const T* best = reinterpret_cast<const T*>(g.best);
    const T* squares = reinterpret_cast<const T*>(g.squares);
    const T* top = reinterpret_cast<const T*>(g.top);
    const T* entropy = reinterpret_cast<const T*>(g.entropy);
    const T* linear = reinterpret_cast<const T*>(g.linear);
    const typename Lane<T>::Int* duplicates = reinterpret_cast<const typename Lane<T>::Int*>(g.duplicates);
    const typename Lane<T>::Int* inductions = reinterpret_cast<const typename Lane<T>::Int*>(g.inductions);
    for (int64_t lane = 0; lane < g.used; ++lane) {
        const int64_t row = (b * p.heads + h) * p.n_q + g.first + lane;
        const T l = total[lane];
        const bool empty = share[lane] == 0;  // sink logits may still have made a total
        const auto mean = [&](int64_t s) { return empty ? missing : linear[s * L + lane] / l; };
        const auto put = [&](void* to, int64_t at, T x) { static_cast<T*>(to)[at] = x; };
        if (want.row_total) {
            put(want.row_top, row, top[lane]);
            put(want.row_total, row, empty ? T(0) : l);
        }
        if (want.lse) put(want.lse, row, l == 0 ? minus_infinity<T> : T(top[lane] + log(l)));
        if (want.max_weight) put(want.max_weight, row, empty ? missing : best[lane] / l);
        if (want.argmax) want.argmax[row] = g.argmax[lane];
        if (want.entropy) {
            const T h_row = (log(l) * share[lane] - entropy[lane]) / l;
            put(want.entropy, row, empty ? missing : h_row < 0 ? T(0) : h_row);  // rounding can dip below 0
        }
        for (int64_t k = 0; k < want.top_k; ++k) {
            const int32_t key = g.top_k_index[lane * want.top_k + k];
            want.top_k_index[row * want.top_k + k] = key;
            const T score = g.top_k_score[lane * want.top_k + k];
            put(want.top_k_weight, row * want.top_k + k, key < 0 ? T(0) : T(exp(score - top[lane]) / l));
        }
        if (want.sum_squares) put(want.sum_squares, row, empty ? missing : squares[lane] / (l * l));
        if (want.sink_logit_mass) put(want.sink_logit_mass, row, empty ? missing : 1 - share[lane] / l);
        if (want.sink_mass) put(want.sink_mass, row, mean(slot.sink));
        if (want.distance) put(want.distance, row, mean(slot.distance));
        if (want.duplicate) put(want.duplicate, row, mean(slot.duplicate));
        if (want.induction) put(want.induction, row, mean(slot.induction));
        if (want.duplicate_count) want.duplicate_count[row] = duplicates[lane];
        if (want.induction_count) want.induction_count[row] = inductions[lane];
        for (int64_t o = 0; o < want.n_relative; ++o)
            put(want.relative_mass, row * want.n_relative + o, mean(slot.relative + o));
        for (int64_t c = 0; c < want.n_classes; ++c)
            put(want.class_mass, row * want.n_classes + c, mean(slot.classes + c));
    }
    if (want.distance_rows)
        for (int64_t lane = 0; lane < g.used; ++lane)
            for (int64_t i = 0; i < want.n_buckets; ++i)
                static_cast<T*>(want.distance_rows)[((b * p.heads + h) * p.n_q + g.first + lane) * want.n_buckets + i] =
                    share[lane] == 0 ? T(-1) : linear[(slot.buckets + i) * L + lane] / total[lane];
    if (!want.pooled) return;
    const int64_t pools = (p.n_k + want.pooled_block - 1) / want.pooled_block;
    const int64_t seen = least(pools, (g.any.until + want.pooled_block - 1) / want.pooled_block);
    for (int64_t i = 0; i < seen * N; ++i) {  // from each block's own maximum to the row's weights
        const Vec<T> m = g.top[i % N] == splat(minus_infinity<T>) ? Vec<T>{} : g.top[i % N];
        g.pooled_sum[i] = g.pooled_sum[i] == 0 ? Vec<T>{} : g.pooled_sum[i] * exp(g.pooled_ref[i] - m) / g.total[i % N];
    }
    for (int64_t lane = 0; lane < g.used; ++lane) {
        const int64_t i = g.first + lane;
        if (share[lane] != 0) {
            for (int64_t k = 0; k < seen; ++k) pool.mass[k] += reinterpret_cast<const T*>(g.pooled_sum)[k * L + lane];
            ++pool.rows;
        }
        if ((i + 1) % want.pooled_block == 0 || i + 1 == p.n_q) pool.flush(p, b, h, i);
    }
}

}  // namespace headwise::HEADWISE_ISA
