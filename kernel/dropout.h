// dropout.h: which weights are dropped, from a counter: the same for any thread count, tile order or chunking.
//
// Threefry-2x32 with 20 rounds (Salmon et al. 2011): key = (seed, head) mixed, counter = (query, key index). The first word
// of the answer, as a fraction of 2^32, is compared with the dropout share.
#pragma once

#include "group.h"

namespace headwise::HEADWISE_ISA {

struct Words {
    uint32_t a, b;
};

[[gnu::always_inline]] inline Words threefry(Words key, Words x) {
    const uint32_t keys[3] = {key.a, key.b, key.a ^ key.b ^ 0x1BD11BDAu};
    constexpr int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    x.a += keys[0];
    x.b += keys[1];
#pragma GCC unroll 5
    for (uint32_t five = 0; five < 5; ++five) {
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
            const int turn = turns[five % 2][r];
            x.a += x.b;
            x.b = (x.b << turn | x.b >> (32 - turn)) ^ x.a;
        }
        x.a += keys[(five + 1) % 3];
        x.b += keys[(five + 2) % 3] + five + 1;
    }
    return x;
}

// to = e with the dropped weights 0 and the others grown by 1 / (1 - share). `to` may be `e`.
template <class T, int N>
void drop(const Problem& p, int64_t b, int64_t h, const Group<T>& g, int64_t key, int64_t keys, const Vec<T>* e,
          Vec<T>* to) {
    constexpr int L = N * lanes<T>;
    const uint64_t head = uint64_t(b * p.heads + h);
    const Words mixed = threefry({uint32_t(p.seed), uint32_t(p.seed >> 32)}, {uint32_t(head), uint32_t(head >> 32)});
    const uint32_t threshold = p.dropout >= 1 ? ~0u : uint32_t(p.dropout * 4294967296.0);
    const T grown = p.dropout >= 1 ? T(0) : T(1 / (1 - p.dropout));
    const T* from = reinterpret_cast<const T*>(e);
    T* dropped = reinterpret_cast<T*>(to);
    for (int64_t j = 0; j < keys; ++j)
        for (int lane = 0; lane < L; ++lane) {
            const Words word = threefry(mixed, {uint32_t(g.first + lane), uint32_t(key + j)});
            dropped[j * L + lane] = word.a >= threshold ? from[j * L + lane] * grown : T(0);
        }
}

}  // namespace headwise::HEADWISE_ISA
