// simd.h: the vector words that the kernels are written in.
//
// GCC and Clang vector extensions: the same source becomes SSE2, AVX2, AVX-512 or NEON, by the flags and by the two
// macros of the including file:
//   HEADWISE_ISA            namespace of this build of the code (each instruction set has its own: no shared inlines)
//   HEADWISE_VECTOR_BYTES   16, 32 or 64
//   HEADWISE_REGISTERS      vector registers of the machine: 16 or 32
// No standard templates in here: an inline function compiled with wide registers must never be picked by the linker
// for the baseline.
#pragma once

#include <cstdint>
#include <cstring>

namespace headwise::HEADWISE_ISA {

template <class T>
struct Lane;
template <>
struct Lane<float> {
    using Int = int32_t;
};
template <>
struct Lane<double> {
    using Int = int64_t;
};

template <class T>
constexpr int lanes = HEADWISE_VECTOR_BYTES / sizeof(T);

template <class T>
using Vec [[gnu::vector_size(HEADWISE_VECTOR_BYTES)]] = T;
template <class T>
using IntVec = Vec<typename Lane<T>::Int>;

template <class T>
inline Vec<T> splat(T x) {
    return x - Vec<T>{};  // exact, and one broadcast instruction
}

template <class T>
constexpr T minus_infinity = -T(__builtin_huge_val());

inline float log(float x) { return __builtin_logf(x); }
inline double log(double x) { return __builtin_log(x); }
inline float exp(float x) { return __builtin_expf(x); }
inline double exp(double x) { return __builtin_exp(x); }

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// True when any lane of a comparison's result is set.
template <class I>
inline bool any(I mask) {
    uint64_t words[HEADWISE_VECTOR_BYTES / 8];
    std::memcpy(words, &mask, sizeof words);
    uint64_t all = 0;
    for (uint64_t w : words) all |= w;
    return all != 0;
}

template <class T>
inline T sum(Vec<T> v) {
    T total = 0;
    for (int i = 0; i < lanes<T>; ++i) total += v[i];
    return total;
}

// e^x for x <= 0 (a few ulp above 0 is fine). Exactly 1 at 0 and exactly 0 below ln(smallest normal), so -inf gives 0
// and nothing denormal is made; NaN stays NaN. x = (n + f) ln 2 with integer n, f in [-1/2, 1/2]; 2^f by a minimax
// polynomial with constant term 1 (relative error 2.6e-9 for float, 1.8e-17 for double), 2^n by its exponent bits.
inline Vec<float> exp(Vec<float> x) {
    constexpr float log2e = 1.44269504f, magic = 12582912.0f + 127.0f, lowest = -87.3365447f;
    const Vec<float> shifted = x * log2e + magic;
    const Vec<float> n = shifted - magic;
    const Vec<float> f = x * log2e - n;
    Vec<float> p = f * 1.5594678e-4f + 1.3406640e-3f;
    p = p * f + 9.6176930e-3f;
    p = p * f + 5.5503106e-2f;
    p = p * f + 2.4022653e-1f;
    p = p * f + 6.9314721e-1f;
    p = p * f + 1.0f;
    const Vec<float> power = (Vec<float>)((IntVec<float>)shifted << 23);
    return x < lowest ? Vec<float>{} : p * power;
}

inline Vec<double> exp(Vec<double> x) {
    constexpr double log2e = 1.4426950408889634, magic = 6755399441055744.0 + 1023.0, lowest = -708.39641853226408;
    constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    const Vec<double> shifted = x * log2e + magic;
    const Vec<double> n = shifted - magic;
    // The remainder in natural units, split in two: float64 keeps its last digits also for large |x|.
    const Vec<double> f = ((x - n * ln2_high) - n * ln2_low) * log2e;
    Vec<double> p = f * 4.078071929588336665e-10 + 7.072570412814423510e-9;
    p = p * f + 1.018064765923413889e-7;
    p = p * f + 1.321544267532982214e-6;
    p = p * f + 1.525272738519386820e-5;
    p = p * f + 1.540353044157213033e-4;
    p = p * f + 1.333355815343996475e-3;
    p = p * f + 9.618129107607002380e-3;
    p = p * f + 5.550410866479039455e-2;
    p = p * f + 2.402265069591009801e-1;
    p = p * f + 6.931471805599456968e-1;
    p = p * f + 1.0;
    const Vec<double> power = (Vec<double>)((IntVec<double>)shifted << 52);
    return x < lowest ? Vec<double>{} : p * power;
}

}  // namespace headwise::HEADWISE_ISA
