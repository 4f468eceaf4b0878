// group.h: the state of one group of queries, kept in scratch while the keys stream by.
//
// A group is N vectors of queries (N <= max_vectors), one query per lane. Everything of a row is lane-wise, so no step
// of the softmax and no statistic needs a horizontal reduction, and a row's bits do not depend on its neighbours.
#pragma once

#include "multiply.h"
#include "problem.h"

namespace headwise::HEADWISE_ISA {

constexpr int64_t key_block = 128;  // keys per step of the online softmax: the tile of scores stays in L1

// Hands out aligned pieces of scratch; with a null base it only counts, so that size and use cannot disagree.
struct Carver {
    char* base;
    int64_t used = 0;
    template <class U>
    U* take(int64_t count) {
        U* piece = base ? reinterpret_cast<U*>(base + used) : nullptr;
        used += (count * int64_t(sizeof(U)) + 63) & ~int64_t(63);
        return piece;
    }
};

template <class T>
struct Group {
    int64_t first = 0;  // first query
    int64_t used = 0;   // queries in use; the lanes behind them compute on zeros and are never written out
    int vectors = 0;    // N
    Range any{0, 0};    // keys outside are hidden from every row, by position, length or a mask that all rows share
    Range every{0, 0};  // keys inside are hidden from no row, by position or length
    int32_t low_segment = 0, high_segment = 0;
    uint64_t token_bits[16] = {};  // which tokens the queries may hold, by their last 10 bits: most keys match none
    Vec<T>* query;      // d_k x N, scaled
    Vec<T>* out;        // d_v x N, sum of e^{s-m} v
    Vec<T>* top;        // N, running maximum m
    Vec<T>* total;      // N, sum of e^{s-m}; at the end with the sink logits
    Vec<T>* share;      // N, at the end: the keys' part of the total; 0 = a row that saw none
    Vec<T>* best;       // N, at the end: e^{largest key score - m}
    Vec<T>* squares;    // N, sum of e^{2(s-m)}
    Vec<T>* entropy;    // N, sum of e^{s-m} (s-m)
    Vec<T>* linear;     // slots x N
    IntVec<T>* position;   // N, position among the keys, clamped to [-1, n_k]
    IntVec<T>* from;       // N, visible range of keys
    IntVec<T>* until;      // N
    IntVec<T>* segment;    // N, segment of the query
    Vec<T>* place;         // N, position as a number, not clamped
    IntVec<T>* tokens;     // N, token of the query
    IntVec<T>* duplicates; // N, possible matches seen
    IntVec<T>* inductions; // N
    int32_t* argmax;       // lane
    Vec<T>* top_k_least;   // N, k-th best score so far
    T* top_k_score;        // lane x k
    int32_t* top_k_index;  // lane x k
    Vec<T>* pooled_sum;    // key blocks x N, sum of e^{s-ref}
    Vec<T>* pooled_ref;    // key blocks x N
    Vec<T>* strip;         // n_k x N, e^{s-ref} of every key so far (strip mode only)
    Vec<T>* strip_ref;     // steps x N, the maximum in force at each step

    bool may_hold(int32_t token) const { return token_bits[(token >> 6) & 15] >> (token & 63) & 1; }

    void carve(Carver& c, const Problem& p, int n) {
        const Statistics& s = p.statistics;
        const int64_t rows = n * lanes<T>;
        vectors = n;
        query = c.take<Vec<T>>(p.d_k * n);
        out = c.take<Vec<T>>(p.output ? p.d_v * n : 0);
        top = c.take<Vec<T>>(n);
        total = c.take<Vec<T>>(n);
        share = c.take<Vec<T>>(n);
        best = c.take<Vec<T>>(n);
        squares = c.take<Vec<T>>(n);
        entropy = c.take<Vec<T>>(n);
        linear = c.take<Vec<T>>(Slots(s).count * n);
        position = c.take<IntVec<T>>(n);
        from = c.take<IntVec<T>>(n);
        until = c.take<IntVec<T>>(n);
        segment = c.take<IntVec<T>>(n);
        place = c.take<Vec<T>>(n);
        tokens = c.take<IntVec<T>>(n);
        duplicates = c.take<IntVec<T>>(n);
        inductions = c.take<IntVec<T>>(n);
        argmax = c.take<int32_t>(rows);
        top_k_least = c.take<Vec<T>>(n);
        top_k_score = c.take<T>(rows * s.top_k);
        top_k_index = c.take<int32_t>(rows * s.top_k);
        const int64_t pools = s.pooled ? (p.n_k + s.pooled_block - 1) / s.pooled_block : 0;
        pooled_sum = c.take<Vec<T>>(pools * n);
        pooled_ref = c.take<Vec<T>>(pools * n);
        const int64_t steps = p.strip ? (p.n_k + key_block - 1) / key_block : 0;
        strip = c.take<Vec<T>>(steps * key_block * n);
        strip_ref = c.take<Vec<T>>(steps * n);
    }
};

// The state before any key was seen.
template <class T, int N>
void clear(const Problem& p, Group<T>& g) {
    const Statistics& s = p.statistics;
    for (int n = 0; n < N; ++n) {
        g.top[n] = splat(minus_infinity<T>);
        g.total[n] = g.entropy[n] = g.squares[n] = Vec<T>{};
        g.duplicates[n] = g.inductions[n] = IntVec<T>{};
        g.top_k_least[n] = splat(minus_infinity<T>);
    }
    if (p.output) std::memset(static_cast<void*>(g.out), 0, sizeof(Vec<T>) * p.d_v * N);
    std::memset(static_cast<void*>(g.linear), 0, sizeof(Vec<T>) * Slots(s).count * N);
    for (int64_t i = 0; i < N * lanes<T>; ++i) g.argmax[i] = -1;
    for (int64_t i = 0; i < N * lanes<T> * s.top_k; ++i) {
        g.top_k_score[i] = minus_infinity<T>;
        g.top_k_index[i] = -1;
    }
    if (s.pooled) {
        const int64_t pools = (p.n_k + s.pooled_block - 1) / s.pooled_block;
        for (int64_t i = 0; i < pools * N; ++i) g.pooled_sum[i] = g.pooled_ref[i] = Vec<T>{};
    }
}

// Puts queries [first, first + used) of (b, h) into the lanes, scaled, and works out what they may see.
template <class T, int N>
void load(const Problem& p, int64_t b, int64_t h, int64_t first, int64_t used, Group<T>& g) {
    constexpr int64_t L = N * lanes<T>;
    const Operand& q = p.query;
    const T* rows = static_cast<const T*>(q.data) + q.batch[b] + h * q.head + first * q.row;
    const T scale = T(p.scale);
    T* to = reinterpret_cast<T*>(g.query);
    for (int n = 0; n < N; ++n) {
        const int64_t lane = n * lanes<T>, live = least(used - lane, lanes<T>);
        int64_t c = 0;
        if (q.col == 1 && live == lanes<T>)  // whole squares in registers
            for (; c + lanes<T> <= p.d_k; c += lanes<T>) {
                Square<T> square;
                for (int i = 0; i < lanes<T>; ++i) square[i] = load_loose(rows + (lane + i) * q.row + c) * scale;
                transpose<T>(square);
                for (int i = 0; i < lanes<T>; ++i) g.query[(c + i) * N + n] = square[i];
            }
        for (; c < p.d_k; ++c)
            for (int64_t i = 0; i < lanes<T>; ++i)
                to[c * L + lane + i] = i < live ? rows[(lane + i) * q.row + c * q.col] * scale : T(0);
    }
    using I = typename Lane<T>::Int;
    g.first = first;
    g.used = used;
    g.any = {p.n_k, 0};
    g.every = {0, p.n_k};
    std::memset(g.token_bits, 0, sizeof g.token_bits);
    for (int64_t lane = 0; lane < L; ++lane) {  // the lanes behind the last query repeat it
        const int64_t i = first + least(lane, used - 1), at = p.position(b, i), n = lane / lanes<T>, k = lane % lanes<T>;
        const Range r = p.range(b, i);
        g.position[n][k] = I(least(most(at, -1), p.n_k));
        g.place[n][k] = T(at);
        g.from[n][k] = I(r.from);
        g.until[n][k] = I(r.until);
        if (r.from < r.until) g.any = {least(g.any.from, r.from), most(g.any.until, r.until)};
        g.every = {most(g.every.from, r.from), least(g.every.until, r.until)};
        if (p.statistics.query_tokens) {
            const int32_t token = p.statistics.query_tokens[b * p.n_q + i];
            g.tokens[n][k] = token;
            g.token_bits[(token >> 6) & 15] |= uint64_t(1) << (token & 63);
        }
        if (p.query_segments) {
            const int32_t segment = p.query_segments[b * p.n_q + i];
            g.segment[n][k] = segment;
            g.low_segment = lane == 0 || segment < g.low_segment ? segment : g.low_segment;
            g.high_segment = lane == 0 || segment > g.high_segment ? segment : g.high_segment;
        }
    }
    // A mask that is the same for every row, as padding is: its hidden ends are no work at all.
    const Operand& m = p.mask;
    if (p.mask_kind == MaskKind::boolean && m.row == 0) {
        const uint8_t* shown = static_cast<const uint8_t*>(m.data) + m.batch[b] + h * m.head;
        while (g.any.from < g.any.until && !shown[(g.any.until - 1) * m.col]) --g.any.until;
        while (g.any.from < g.any.until && !shown[g.any.from * m.col]) ++g.any.from;
    }
    if (g.any.from >= g.any.until) g.any = {0, 0};
}

// How many of the remaining vectors the next group takes: full groups, and no thin one at the end where two halves do.
inline int next_group(int64_t vectors) {
    if (vectors == max_vectors || vectors >= max_vectors + 2) return max_vectors;
    return int(vectors > max_vectors ? (vectors + 1) / 2 : vectors);
}

// Calls f with the compile-time number of vectors.
template <int N>
struct Vectors {
    static constexpr int value = N;
};
template <class F>
inline void with_vectors(int n, F&& f) {
    switch (n) {
        case 1: return f(Vectors<1>{});
        case 2: return f(Vectors<2>{});
        case 3: return f(Vectors<3>{});
        default:
            if constexpr (max_vectors == 4) return f(Vectors<4>{});
    }
}

}  // namespace headwise::HEADWISE_ISA
