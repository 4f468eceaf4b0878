// scores.h: one tile of masked scores, S^T = K Q^T for some keys and one group of queries. Both passes start here.
#pragma once

#include "group.h"

namespace headwise::HEADWISE_ISA {

enum class Seen { nothing, part, all };

// What a boolean mask shows of `rows` x `keys` entries. Bytes are 0 or 1.
inline Seen classify(const uint8_t* mask, int64_t row, int64_t col, int64_t rows, int64_t keys) {
    if (row == 0) rows = 1;
    if (col == 0) keys = 1;
    uint8_t some = 0, every = 1;
    for (int64_t i = 0; i < rows; ++i) {
        const uint8_t* m = mask + i * row;
        int64_t j = 0;
        if (col == 1) {
            uint64_t ones = ~uint64_t(0), bits = 0;
            for (; j + 8 <= keys; j += 8) {
                uint64_t eight;
                std::memcpy(&eight, m + j, 8);
                ones &= eight;
                bits |= eight;
            }
            if (j > 0) {
                every &= uint8_t(ones == 0x0101010101010101u);
                some |= uint8_t(bits != 0);
            }
        }
        for (; j < keys; ++j) {
            every &= m[j * col];
            some |= m[j * col];
        }
        if (some && !every) return Seen::part;
    }
    return every ? Seen::all : some ? Seen::part : Seen::nothing;
}

// Adds numbers to the scores; -inf hides (selected, so that NaN + -inf never shows).
template <class T, int N>
void add_bias(const Operand& bias, int64_t at, const Group<T>& g, int64_t keys, Vec<T>* s) {
    constexpr int64_t L = N * lanes<T>;
    const T* from = static_cast<const T*>(bias.data) + at;
    T* scores = reinterpret_cast<T*>(s);
    for (int64_t lane = 0; lane < L; ++lane)  // lanes behind the last query take its row: they must not read beyond
        for (int64_t j = 0; j < keys; ++j) {
            const T x = from[least(lane, g.used - 1) * bias.row + j * bias.col];
            T& to = scores[j * L + lane];
            to = x == minus_infinity<T> ? x : to + x;
        }
}

// Hides what a boolean mask marks False.
template <class T, int N>
void apply_mask(const Operand& mask, int64_t at, const Group<T>& g, int64_t keys, Vec<T>* s) {
    constexpr int64_t L = N * lanes<T>;
    const uint8_t* visible = static_cast<const uint8_t*>(mask.data) + at;
    T* scores = reinterpret_cast<T*>(s);
    if (mask.row == 0) {
        for (int64_t j = 0; j < keys; ++j)
            if (!visible[j * mask.col])
                for (int n = 0; n < N; ++n) s[j * N + n] = splat(minus_infinity<T>);
        return;
    }
    for (int64_t lane = 0; lane < L; ++lane)
        for (int64_t j = 0; j < keys; ++j) {
            T& to = scores[j * L + lane];
            to = visible[least(lane, g.used - 1) * mask.row + j * mask.col] ? to : minus_infinity<T>;
        }
}

// Hides keys of other segments.
template <class T, int N>
void apply_segments(const int32_t* segments, const Group<T>& g, int64_t keys, Vec<T>* s) {
    for (int64_t j = 0; j < keys; ++j) {
        const IntVec<T> segment = splat<typename Lane<T>::Int>(segments[j]);
        for (int n = 0; n < N; ++n)
            s[j * N + n] = g.segment[n] == segment ? s[j * N + n] : splat(minus_infinity<T>);
    }
}

// Scores of keys [key, key + keys) for the group: scale, soft cap, bias and ALiBi, then what is hidden becomes -inf
// whatever the key holds (selected, never added or multiplied, so NaN in a hidden key cannot leak). `top` (N vectors)
// grows to the largest of them. Returns what the rows see: `nothing`, and nothing is written; `all`: no score was touched.
template <class T, int N>
Seen masked_scores(const Problem& p, int64_t b, int64_t h, const Group<T>& g, int64_t key, int64_t keys, Vec<T>* s,
                   Vec<T>* top) {
    using I = typename Lane<T>::Int;
    if (key >= g.any.until || key + keys <= g.any.from) return Seen::nothing;
    const auto entry = [&](const Operand& m) { return m.batch[b] + h * m.head + g.first * m.row + key * m.col; };
    Seen seen = Seen::all;
    if (p.mask_kind == MaskKind::boolean) {
        const uint8_t* mask = static_cast<const uint8_t*>(p.mask.data) + entry(p.mask);
        seen = classify(mask, p.mask.row, p.mask.col, g.used, keys);
        if (seen == Seen::nothing) return seen;
    }
    const int32_t* segments = p.key_segments ? p.key_segments + b * p.n_k + key : nullptr;
    if (segments) {
        int32_t low = segments[0], high = segments[0];
        for (int64_t j = 1; j < keys; ++j) {
            low = segments[j] < low ? segments[j] : low;
            high = segments[j] > high ? segments[j] : high;
        }
        if (low > g.high_segment || high < g.low_segment) return Seen::nothing;
        if (low == high && g.low_segment == g.high_segment) segments = nullptr;  // one and the same
    }

    const Operand& k = p.key;
    const T* rows = static_cast<const T*>(k.data) + k.batch[b] + p.kv_head(h) * k.head + key * k.row;
    // Positions and lengths: most tiles lie inside the range of every row.
    const int64_t inside = least(most(g.every.from - key, 0), keys), outside = most(g.every.until - key, inside);
    const bool as_they_are = seen == Seen::all && !segments && inside == 0 && outside >= keys && p.softcap == 0 &&
                             !p.bias.data && p.mask_kind != MaskKind::additive && !p.alibi_slopes;
    if (as_they_are) {
        multiply<T, N, Finish::write_and_top>(rows, k.row, k.col, keys, p.d_k, g.query, s, top);
        return Seen::all;
    }
    multiply<T, N, Finish::write>(rows, k.row, k.col, keys, p.d_k, g.query, s);

    if (p.softcap > 0) {
        const T cap = T(p.softcap), inverse = T(1 / p.softcap);
        for (int64_t i = 0; i < keys * N; ++i) s[i] = cap * tanh<T>(s[i] * inverse);
    }
    if (p.bias.data) add_bias<T, N>(p.bias, entry(p.bias), g, keys, s);
    if (p.mask_kind == MaskKind::additive) add_bias<T, N>(p.mask, entry(p.mask), g, keys, s);
    if (p.alibi_slopes) {
        const T slope = T(p.alibi_slopes[b * p.heads + h]);
        for (int64_t j = 0; j < keys; ++j)
            for (int n = 0; n < N; ++n) {
                const Vec<T> gap = g.place[n] - T(key + j);
                s[j * N + n] -= slope * (gap < 0 ? -gap : gap);
            }
    }
    if (seen == Seen::part) apply_mask<T, N>(p.mask, entry(p.mask), g, keys, s);
    if (segments) apply_segments<T, N>(segments, g, keys, s);
    const auto hide = [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) {
            const IntVec<T> at = splat<I>(I(key + j));
            for (int n = 0; n < N; ++n)
                s[j * N + n] = (at >= g.until[n]) | (at < g.from[n]) ? splat(minus_infinity<T>) : s[j * N + n];
        }
    };
    hide(0, inside);
    hide(outside, keys);
    for (int n = 0; n < N; ++n)
        for (int64_t j = 0; j < keys; ++j) top[n] = s[j * N + n] > top[n] ? s[j * N + n] : top[n];
    return Seen::part;
}

}  // namespace headwise::HEADWISE_ISA
