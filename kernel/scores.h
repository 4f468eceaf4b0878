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

// Scores of keys [key, key + keys) for the group; masked entries are -inf whatever the key holds (selected, never added
// or multiplied, so NaN in a masked key cannot leak). Returns false, with nothing written, when a mask hides them all.
template <class T, int N>
bool masked_scores(const Problem& p, int64_t b, int64_t h, const Group<T>& g, int64_t key, int64_t keys, Vec<T>* s) {
    constexpr int64_t L = N * lanes<T>;
    const Operand& m = p.mask;
    const int64_t mask_at = p.mask_kind == MaskKind::none ? 0 : m.batch[b] + h * m.head + g.first * m.row + key * m.col;
    Seen seen = Seen::all;
    if (p.mask_kind == MaskKind::boolean) {
        seen = classify(static_cast<const uint8_t*>(m.data) + mask_at, m.row, m.col, g.used, keys);
        if (seen == Seen::nothing) return false;
    }

    const Operand& k = p.key;
    const T* rows = static_cast<const T*>(k.data) + k.batch[b] + p.kv_head(h) * k.head + key * k.row;
    multiply<T, N, false>(rows, k.row, k.col, keys, p.d_k, g.query, s);

    if (p.mask_kind != MaskKind::none && m.row != 0)  // lanes behind the last query have no mask row: they see nothing
        for (int64_t lane = g.used; lane < L; ++lane)
            for (int64_t j = 0; j < keys; ++j) reinterpret_cast<T*>(s)[j * L + lane] = minus_infinity<T>;
    if (p.mask_kind == MaskKind::additive) {
        const T* bias = static_cast<const T*>(m.data) + mask_at;
        T* scores = reinterpret_cast<T*>(s);
        for (int64_t lane = 0; lane < (m.row ? g.used : L); ++lane)
            for (int64_t j = 0; j < keys; ++j) {
                const T x = bias[lane * m.row + j * m.col];
                T& to = scores[j * L + lane];
                to = x == minus_infinity<T> ? x : to + x;
            }
    } else if (seen == Seen::part) {
        const uint8_t* visible = static_cast<const uint8_t*>(m.data) + mask_at;
        T* scores = reinterpret_cast<T*>(s);
        if (m.row == 0) {
            for (int64_t j = 0; j < keys; ++j)
                if (!visible[j * m.col])
                    for (int n = 0; n < N; ++n) s[j * N + n] = splat(minus_infinity<T>);
        } else {
            for (int64_t lane = 0; lane < g.used; ++lane)
                for (int64_t j = 0; j < keys; ++j) {
                    T& to = scores[j * L + lane];
                    to = visible[lane * m.row + j * m.col] ? to : minus_infinity<T>;
                }
        }
    }
    for (int64_t j = most(g.open - key, 0); j < keys; ++j) {  // the causal diagonal
        const IntVec<T> at = splat<typename Lane<T>::Int>(typename Lane<T>::Int(key + j));
        for (int n = 0; n < N; ++n) s[j * N + n] = at > g.position[n] ? splat(minus_infinity<T>) : s[j * N + n];
    }
    return true;
}

}  // namespace headwise::HEADWISE_ISA
