// multiply.h: the one micro-kernel. C[i, lanes] (+)= sum_k A(i, k) * B[k, lanes].
//
// A is read as scalar broadcasts with any strides: the user's own memory, or a copy with contiguous rows (gather.h). B and C
// are rows of N vectors in scratch. With queries in lanes both products of attention have this form, and nothing is transposed:
//   scores   C = S^T, A = K (row stride, column stride), B = Q^T
//   output   C = O^T, A = V (column stride, row stride), B = P^T
//
// Register tiles (rows x vectors): 4x3, 6x2, 8x1 with 16 registers; 6x4, 8x3, 12x2, 16x1 with 32. Each leaves one
// register per B vector and one for the broadcast, and has enough independent sums to hide the latency of two FMA pipes.
#pragma once

#include "isa/simd.h"

namespace headwise::HEADWISE_ISA {

// Most vectors in a group of queries, and rows of the register tile for a group of N vectors.
constexpr int max_vectors = HEADWISE_REGISTERS == 32 ? 4 : 3;
constexpr int tile_rows(int n) {
    if (HEADWISE_REGISTERS == 32) return n == 4 ? 6 : n == 3 ? 8 : n == 2 ? 12 : 16;
    return n == 3 ? 4 : n == 2 ? 6 : 8;
}

// The tile for rows that are left over: the next lower power of two, so that 4 rows behind tiles of 6 are one tile.
constexpr int fewer_rows(int r) { return r > 8 ? 8 : r > 4 ? 4 : r > 2 ? 2 : 1; }

// What becomes of a finished tile: written; added to C; or written while `top` (N vectors) grows to its largest numbers.
enum class Finish { write, add, write_and_top };

template <class T, int R, int N, Finish finish>
inline void multiply_tile(const T* a, int64_t row, int64_t step, int64_t depth, const Vec<T>* b, Vec<T>* c, Vec<T>* top) {
    Vec<T> acc[R][N];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) acc[r][n] = Vec<T>{};
    for (int64_t k = 0; k < depth; ++k) {
        Vec<T> bk[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) bk[n] = b[k * N + n];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const Vec<T> x = splat(a[r * row]);
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) acc[r][n] += x * bk[n];
        }
        a += step;
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n)
            // Each block is summed on its own and then added: rounding grows with the blocks, not with the keys.
            c[r * N + n] = finish == Finish::add ? c[r * N + n] + acc[r][n] : acc[r][n];
    if constexpr (finish == Finish::write_and_top)
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
            Vec<T> m = top[n];
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) m = acc[r][n] > m ? acc[r][n] : m;
            top[n] = m;
        }
}

template <class T, int R, int N, Finish finish>
inline void multiply_rows(const T* a, int64_t row, int64_t step, int64_t rows, int64_t depth, const Vec<T>* b,
                          Vec<T>* c, Vec<T>* top) {
    for (; rows >= R; rows -= R, a += R * row, c += R * N)
        multiply_tile<T, R, N, finish>(a, row, step, depth, b, c, top);
    if constexpr (R > 1)
        if (rows > 0) multiply_rows<T, fewer_rows(R), N, finish>(a, row, step, rows, depth, b, c, top);
}

template <class T, int N, Finish finish>
inline void multiply(const T* a, int64_t row, int64_t step, int64_t rows, int64_t depth, const Vec<T>* b, Vec<T>* c,
                     Vec<T>* top = nullptr) {
    // A unit stride known to the compiler saves address arithmetic in the inner loop.
    constexpr int R = tile_rows(N);
    if (step == 1)
        multiply_rows<T, R, N, finish>(a, row, 1, rows, depth, b, c, top);
    else if (row == 1)
        multiply_rows<T, R, N, finish>(a, 1, step, rows, depth, b, c, top);
    else
        multiply_rows<T, R, N, finish>(a, row, step, rows, depth, b, c, top);
}

}  // namespace headwise::HEADWISE_ISA
