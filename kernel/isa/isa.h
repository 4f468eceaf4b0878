// isa.h: the body of every instruction set's translation unit. The including file sets the three macros of simd.h.
#pragma once

#include "received.h"

namespace headwise::HEADWISE_ISA {

template <class T>
constexpr Kernel make_kernel(const char* isa) {
    return {isa,
            sizeof(T),
            lanes<T>,
            max_vectors * lanes<T>,
            key_block,
            received_keys,
            [](const Problem& p) {
                Vec<T>*tile, *sums;
                IntVec<T>* seen;
                return most(scratch_bytes<T>(p), received_scratch<T>(p, nullptr, nullptr, &tile, &sums, &seen));
            },
            forward<T>,
            received<T>};
}

// Multiply-adds of a loop that does nothing else: what the processor can do right now. Returns how many were done.
template <class T>
int64_t fma_loop(int64_t rounds, T* sink) {
    constexpr int chains = HEADWISE_REGISTERS == 32 ? 24 : 12;  // independent sums, enough to hide the latency
    Vec<T> acc[chains];
    const Vec<T> x = splat(T(0.999)), y = splat(T(0.001));
#pragma GCC unroll 24
    for (int i = 0; i < chains; ++i) acc[i] = splat(*sink + T(i));  // unlike starts: equal chains would be merged
    for (int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 24
        for (int i = 0; i < chains; ++i) acc[i] = acc[i] * x + y;
#pragma GCC unroll 24
    for (int i = 1; i < chains; ++i) acc[0] += acc[i];
    *sink = sum<T>(acc[0]);
    return rounds * chains * lanes<T>;
}

}  // namespace headwise::HEADWISE_ISA
