// matches.h: keys that hold a query's own token at another place (duplicates), and keys that follow such a place (induction).
//
// Key j and key j + 1 count by one comparison: the query's token stands at j, and, causal, j comes before the query.
#pragma once

#include "group.h"

namespace headwise::HEADWISE_ISA {

// Keys of a tile whose token some query of the group may hold, relative to its first key; -1 is the key before the tile.
struct Matches {
    int64_t count = 0;
    bool anywhere = false;  // the places of the queries rule none of them out
    int32_t at[key_block + 1];
};

template <class T>
void find_matches(const Problem& p, int64_t b, const Group<T>& g, int64_t key, int64_t keys, Matches& found) {
    const int32_t* token = p.statistics.key_tokens + b * p.n_k + key;
    found.count = 0;
    for (int64_t j = key > 0 ? -1 : 0; j < keys; ++j) {  // without a branch: what matches is as good as random
        found.at[found.count] = int32_t(j);
        found.count += g.may_hold(token[j]);
    }
    const int64_t nearest = p.position(b, g.first), farthest = nearest + g.used - 1;
    found.anywhere = nearest >= key + keys || (!p.causal && farthest < key - 1);
}

// Calls take(j, n, same) for every match and vector of queries: `same` marks the lanes that match at key j of the tile.
template <class T, int N, class F>
void each_match(const Problem& p, int64_t b, const Group<T>& g, int64_t key, const Matches& found, F&& take) {
    using I = typename Lane<T>::Int;
    const int32_t* token = p.statistics.key_tokens + b * p.n_k + key;
    for (int64_t m = 0; m < found.count; ++m) {
        const int64_t j = found.at[m];
        const IntVec<T> is = splat<I>(I(token[j])), at = splat<I>(I(key + j));
        for (int n = 0; n < N; ++n) {
            IntVec<T> same = g.tokens[n] == is;
            if (!found.anywhere) same &= p.causal ? g.position[n] > at : g.position[n] != at;
            take(j, n, same);
        }
    }
}

// Before exp, where some scores may be hidden: how many matches each row sees.
template <class T, int N>
void count_visible_matches(const Problem& p, int64_t b, Group<T>& g, int64_t key, int64_t keys, const Matches& found,
                           const Vec<T>* s) {
    each_match<T, N>(p, b, g, key, found, [&](int64_t j, int n, IntVec<T> same) {
        if (j >= 0) g.duplicates[n] -= same & (s[j * N + n] > splat(minus_infinity<T>));
        if (j + 1 < keys) g.inductions[n] -= same & (s[(j + 1) * N + n] > splat(minus_infinity<T>));
    });
}

// After exp: the mass of the matches, and, where nothing is hidden, their number.
template <class T, int N>
void add_matches(const Problem& p, const Slots& slot, int64_t b, Group<T>& g, int64_t key, int64_t keys,
                 const Matches& found, bool count, const Vec<T>* e) {
    Vec<T> duplicate[N] = {}, induction[N] = {};
    IntVec<T> duplicates[N] = {}, inductions[N] = {};
    each_match<T, N>(p, b, g, key, found, [&](int64_t j, int n, IntVec<T> same) {
        if (j >= 0) {
            duplicate[n] += same ? e[j * N + n] : Vec<T>{};
            duplicates[n] -= same;
        }
        if (j + 1 < keys) {
            induction[n] += same ? e[(j + 1) * N + n] : Vec<T>{};
            inductions[n] -= same;
        }
    });
    for (int n = 0; n < N; ++n) {
        if (slot.duplicate >= 0) g.linear[slot.duplicate * N + n] += duplicate[n];
        if (slot.induction >= 0) g.linear[slot.induction * N + n] += induction[n];
        if (count) g.duplicates[n] += duplicates[n], g.inductions[n] += inductions[n];
    }
}

}  // namespace headwise::HEADWISE_ISA
