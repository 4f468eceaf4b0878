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

// A square of lanes x lanes numbers, rows to columns, in log2(lanes) rounds of pairwise exchanges. Without the builtin
// (GCC 11) the same by single numbers.
template <int... I>
struct Indices {};
template <int N, int... I>
struct Count : Count<N - 1, N - 1, I...> {};
template <int... I>
struct Count<0, I...> {
    using type = Indices<I...>;
};

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HEADWISE_SHUFFLE
#endif
#endif

template <class T>
using Square = Vec<T>[lanes<T>];

#ifdef HEADWISE_SHUFFLE
template <class T, int S, int... I>
[[gnu::always_inline]] inline void exchange(Square<T>& rows, Indices<I...>) {
#pragma GCC unroll 16
    for (int i = 0; i < lanes<T>; ++i) {
        if (i & S) continue;
        const Vec<T> a = rows[i], b = rows[i + S];
        rows[i] = __builtin_shufflevector(a, b, ((I & S) ? lanes<T> + I - S : I)...);
        rows[i + S] = __builtin_shufflevector(a, b, ((I & S) ? lanes<T> + I : I + S)...);
    }
    if constexpr (2 * S < lanes<T>) exchange<T, 2 * S>(rows, Indices<I...>{});
}
template <class T>
[[gnu::always_inline]] inline void transpose(Square<T>& rows) {
    if constexpr (lanes<T> > 1) exchange<T, 1>(rows, typename Count<lanes<T>>::type{});
}
#else
template <class T>
inline void transpose(Square<T>& rows) {
    for (int i = 0; i < lanes<T>; ++i)
        for (int j = 0; j < i; ++j) {
            const T x = rows[i][j];
            rows[i][j] = rows[j][i];
            rows[j][i] = x;
        }
}
#endif

// Vectors in the user's memory, at any address.
template <class T>
inline Vec<T> load_loose(const T* from) {
    Vec<T> v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
template <class T>
inline void store_loose(T* to, Vec<T> v) {
    std::memcpy(to, &v, sizeof v);
}

// e^x for x <= 0 (a few ulp above 0 is fine), for K vectors in step, so that their latencies hide each other. Exactly 1 at
// 0 and exactly 0 below ln(smallest normal), so -inf gives 0 and nothing denormal is made; NaN stays NaN.
// x = (n + f) ln 2 with integer n, f in [-1/2, 1/2]; 2^f by a minimax polynomial with constant term 1 (relative error
// 2.6e-9 for float, 1.8e-17 for double), 2^n by its exponent bits.
#define HEADWISE_EACH _Pragma("GCC unroll 4") for (int i = 0; i < K; ++i)

template <int K>
[[gnu::always_inline]] inline void exp(Vec<float> (&x)[K]) {
    constexpr float log2e = 1.44269504f, magic = 12582912.0f + 127.0f, lowest = -87.3365447f;
    Vec<float> n[K], f[K], p[K];
    HEADWISE_EACH n[i] = x[i] * log2e + magic;
    HEADWISE_EACH f[i] = n[i] - magic;
    HEADWISE_EACH f[i] = x[i] * log2e - f[i];
    HEADWISE_EACH p[i] = f[i] * 1.5594678e-4f + 1.3406640e-3f;
    HEADWISE_EACH p[i] = p[i] * f[i] + 9.6176930e-3f;
    HEADWISE_EACH p[i] = p[i] * f[i] + 5.5503106e-2f;
    HEADWISE_EACH p[i] = p[i] * f[i] + 2.4022653e-1f;
    HEADWISE_EACH p[i] = p[i] * f[i] + 6.9314721e-1f;
    HEADWISE_EACH p[i] = p[i] * f[i] + 1.0f;
    HEADWISE_EACH n[i] = (Vec<float>)((IntVec<float>)n[i] << 23);
    HEADWISE_EACH x[i] = x[i] < lowest ? Vec<float>{} : p[i] * n[i];
}

template <int K>
[[gnu::always_inline]] inline void exp(Vec<double> (&x)[K]) {
    constexpr double log2e = 1.4426950408889634, magic = 6755399441055744.0 + 1023.0, lowest = -708.39641853226408;
    constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    Vec<double> n[K], f[K], p[K];
    HEADWISE_EACH n[i] = x[i] * log2e + magic;
    HEADWISE_EACH f[i] = n[i] - magic;
    // The remainder in natural units, ln 2 split in two: float64 keeps its last digits also for large |x|.
    HEADWISE_EACH f[i] = ((x[i] - f[i] * ln2_high) - f[i] * ln2_low) * log2e;
    HEADWISE_EACH p[i] = f[i] * 4.078071929588336665e-10 + 7.072570412814423510e-9;
    HEADWISE_EACH p[i] = p[i] * f[i] + 1.018064765923413889e-7;
    HEADWISE_EACH p[i] = p[i] * f[i] + 1.321544267532982214e-6;
    HEADWISE_EACH p[i] = p[i] * f[i] + 1.525272738519386820e-5;
    HEADWISE_EACH p[i] = p[i] * f[i] + 1.540353044157213033e-4;
    HEADWISE_EACH p[i] = p[i] * f[i] + 1.333355815343996475e-3;
    HEADWISE_EACH p[i] = p[i] * f[i] + 9.618129107607002380e-3;
    HEADWISE_EACH p[i] = p[i] * f[i] + 5.550410866479039455e-2;
    HEADWISE_EACH p[i] = p[i] * f[i] + 2.402265069591009801e-1;
    HEADWISE_EACH p[i] = p[i] * f[i] + 6.931471805599456968e-1;
    HEADWISE_EACH p[i] = p[i] * f[i] + 1.0;
    HEADWISE_EACH n[i] = (Vec<double>)((IntVec<double>)n[i] << 52);
    HEADWISE_EACH x[i] = x[i] < lowest ? Vec<double>{} : p[i] * n[i];
}

#undef HEADWISE_EACH

inline Vec<float> exp(Vec<float> x) {
    Vec<float> one[1] = {x};
    exp(one);
    return one[0];
}
inline Vec<double> exp(Vec<double> x) {
    Vec<double> one[1] = {x};
    exp(one);
    return one[0];
}

// tanh, by t = e^{-2|x|} - 1 (taken without cancellation: 2^n f q(f) + (2^n - 1)) as -t / (2 + t) with the sign of x.
// Relative error of a few ulp everywhere; +-1 at +-infinity, NaN stays NaN.
inline Vec<float> tanh(Vec<float> x) {
    const Vec<float> a = x < 0 ? -x : x;
    const Vec<float> y = (a > 20.0f ? splat(20.0f) : a) * -2.0f;
    constexpr float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    const Vec<float> shifted = y * log2e + (12582912.0f + 127.0f), n = shifted - (12582912.0f + 127.0f);
    const Vec<float> f = ((y - n * ln2_high) - n * ln2_low) * log2e;
    Vec<float> q = f * 1.5594678e-4f + 1.3406640e-3f;
    q = q * f + 9.6176930e-3f;
    q = q * f + 5.5503106e-2f;
    q = q * f + 2.4022653e-1f;
    q = q * f + 6.9314721e-1f;
    const Vec<float> power = (Vec<float>)((IntVec<float>)shifted << 23);
    const Vec<float> t = power * f * q + (power - 1.0f), r = -t / (2.0f + t);
    return x < 0 ? -r : r;
}
inline Vec<double> tanh(Vec<double> x) {
    const Vec<double> a = x < 0 ? -x : x;
    const Vec<double> y = (a > 20.0 ? splat(20.0) : a) * -2.0;
    constexpr double log2e = 1.4426950408889634, magic = 6755399441055744.0 + 1023.0;
    constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    const Vec<double> shifted = y * log2e + magic, n = shifted - magic;
    const Vec<double> f = ((y - n * ln2_high) - n * ln2_low) * log2e;
    Vec<double> q = f * 4.078071929588336665e-10 + 7.072570412814423510e-9;
    q = q * f + 1.018064765923413889e-7;
    q = q * f + 1.321544267532982214e-6;
    q = q * f + 1.525272738519386820e-5;
    q = q * f + 1.540353044157213033e-4;
    q = q * f + 1.333355815343996475e-3;
    q = q * f + 9.618129107607002380e-3;
    q = q * f + 5.550410866479039455e-2;
    q = q * f + 2.402265069591009801e-1;
    q = q * f + 6.931471805599456968e-1;
    const Vec<double> power = (Vec<double>)((IntVec<double>)shifted << 52);
    const Vec<double> t = power * f * q + (power - 1.0), r = -t / (2.0 + t);
    return x < 0 ? -r : r;
}

}  // namespace headwise::HEADWISE_ISA
