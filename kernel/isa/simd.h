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
#if HEADWISE_VECTOR_BYTES == 32 && defined(__AVX__)
    using Words [[gnu::vector_size(32)]] = long long;
    return !__builtin_ia32_ptestz256((Words)mask, (Words)mask);
#elif HEADWISE_VECTOR_BYTES == 16 && defined(__SSE2__)
    using Bytes [[gnu::vector_size(16)]] = char;
    return __builtin_ia32_pmovmskb128((Bytes)mask) != 0;
#else
    uint64_t words[HEADWISE_VECTOR_BYTES / 8];
    std::memcpy(words, &mask, sizeof words);
    uint64_t all = 0;
    for (uint64_t w : words) all |= w;
    return all != 0;
#endif
}

// One bit for each lane of a comparison's result.
template <class T>
inline uint32_t bits(IntVec<T> mask) {
    uint32_t found = 0;
#if defined(__AVX__) && HEADWISE_VECTOR_BYTES >= 32
    using Floats [[gnu::vector_size(32)]] = float;
    using Doubles [[gnu::vector_size(32)]] = double;
    constexpr int half = 32 / sizeof(T);
    for (int i = 0; i < HEADWISE_VECTOR_BYTES / 32; ++i) {
        Floats part;
        std::memcpy(&part, reinterpret_cast<const char*>(&mask) + 32 * i, 32);
        found |= uint32_t(sizeof(T) == 4 ? __builtin_ia32_movmskps256(part) : __builtin_ia32_movmskpd256((Doubles)part))
                 << (half * i);
    }
#else
    for (int i = 0; i < lanes<T>; ++i) found |= uint32_t(mask[i] != 0) << i;
#endif
    return found;
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
// 0 and exactly 0 below -86.99 (double: -708.05), so -inf gives 0 and nothing denormal is made; NaN stays NaN.
// x = (n + f) ln 2 with integer n, f in [-1/2, 1/2]; 2^(f+1) by a minimax polynomial with constant term 2 (relative error
// 2.6e-9 for float, 1.8e-17 for double), 2^(n-1) by its exponent bits: these are all 0, the number 0, for the least n, to
// which `raised` brings all that is lower first.
#define HEADWISE_EACH _Pragma("GCC unroll 4") for (int i = 0; i < K; ++i)

// q = 2 (2^f - 1) / f.
template <int K>
[[gnu::always_inline]] inline void power_term(const Vec<float> (&f)[K], Vec<float> (&q)[K]) {
    HEADWISE_EACH q[i] = f[i] * 3.1189356e-4f + 2.681328e-3f;
    HEADWISE_EACH q[i] = q[i] * f[i] + 1.9235386e-2f;
    HEADWISE_EACH q[i] = q[i] * f[i] + 1.11006212e-1f;
    HEADWISE_EACH q[i] = q[i] * f[i] + 4.8045306e-1f;
    HEADWISE_EACH q[i] = q[i] * f[i] + 1.38629442f;
}
template <int K>
[[gnu::always_inline]] inline void power_term(const Vec<double> (&f)[K], Vec<double> (&q)[K]) {
    HEADWISE_EACH q[i] = f[i] * 8.15614385917667333e-10 + 1.414514082562884702e-8;
    HEADWISE_EACH q[i] = q[i] * f[i] + 2.036129531846827778e-7;
    HEADWISE_EACH q[i] = q[i] * f[i] + 2.643088535065964428e-6;
    HEADWISE_EACH q[i] = q[i] * f[i] + 3.05054547703877364e-5;
    HEADWISE_EACH q[i] = q[i] * f[i] + 3.080706088314426066e-4;
    HEADWISE_EACH q[i] = q[i] * f[i] + 2.66671163068799295e-3;
    HEADWISE_EACH q[i] = q[i] * f[i] + 1.923625821521400476e-2;
    HEADWISE_EACH q[i] = q[i] * f[i] + 1.110082173295807891e-1;
    HEADWISE_EACH q[i] = q[i] * f[i] + 4.804530139182019602e-1;
    HEADWISE_EACH q[i] = q[i] * f[i] + 1.3862943611198913936;
}

template <class T>
[[gnu::always_inline]] inline Vec<T> raised(Vec<T> x) {
    constexpr T lowest = sizeof(T) == 4 ? T(-87.3365447) : T(-708.39641853226408);  // ln(smallest normal), n = -126, -1022
    return splat(lowest) > x ? splat(lowest) : x;
}

template <int K>
[[gnu::always_inline]] inline void exp_of_raised(Vec<float> (&x)[K]) {
    constexpr float log2e = 1.44269504f, magic = 12582912.0f + 126.0f;
    Vec<float> n[K], f[K], q[K];
    HEADWISE_EACH n[i] = x[i] * log2e + magic;
    HEADWISE_EACH f[i] = n[i] - magic;
    HEADWISE_EACH f[i] = x[i] * log2e - f[i];
    power_term(f, q);
    HEADWISE_EACH q[i] = q[i] * f[i] + 2.0f;
    HEADWISE_EACH n[i] = (Vec<float>)((IntVec<float>)n[i] << 23);
    HEADWISE_EACH x[i] = q[i] * n[i];
}

template <int K>
[[gnu::always_inline]] inline void exp_of_raised(Vec<double> (&x)[K]) {
    constexpr double log2e = 1.4426950408889634, magic = 6755399441055744.0 + 1022.0;
    constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    Vec<double> n[K], f[K], q[K];
    HEADWISE_EACH n[i] = x[i] * log2e + magic;
    HEADWISE_EACH f[i] = n[i] - magic;
    // The remainder in natural units, ln 2 split in two: float64 keeps its last digits also for large |x|.
    HEADWISE_EACH f[i] = ((x[i] - f[i] * ln2_high) - f[i] * ln2_low) * log2e;
    power_term(f, q);
    HEADWISE_EACH q[i] = q[i] * f[i] + 2.0;
    HEADWISE_EACH n[i] = (Vec<double>)((IntVec<double>)n[i] << 52);
    HEADWISE_EACH x[i] = q[i] * n[i];
}

#undef HEADWISE_EACH

inline Vec<float> exp(Vec<float> x) {
    Vec<float> one[1] = {raised<float>(x)};
    exp_of_raised(one);
    return one[0];
}
inline Vec<double> exp(Vec<double> x) {
    Vec<double> one[1] = {raised<double>(x)};
    exp_of_raised(one);
    return one[0];
}

// tanh, by t = e^{-2|x|} - 1 (taken without cancellation: 2^n (2^f - 1) + (2^n - 1)) as -t / (2 + t) with the sign of x.
// Relative error of a few ulp everywhere; +-1 at +-infinity, NaN stays NaN.
template <class T>
inline Vec<T> tanh(Vec<T> x) {
    constexpr bool single = sizeof(T) == 4;
    constexpr T log2e = T(1.4426950408889634), magic = single ? T(12582912.0 + 126.0) : T(6755399441055744.0 + 1022.0);
    constexpr T ln2_high = single ? T(0.693359375) : T(6.93147180369123816490e-01);
    constexpr T ln2_low = single ? T(-2.12194440e-4) : T(1.90821492927058770002e-10);
    const Vec<T> a = x < 0 ? -x : x;
    const Vec<T> y = (a > T(20) ? splat(T(20)) : a) * T(-2);
    const Vec<T> shifted = y * log2e + magic, n = shifted - magic;
    const Vec<T> f[1] = {((y - n * ln2_high) - n * ln2_low) * log2e};
    Vec<T> q[1];
    power_term(f, q);
    const Vec<T> half = (Vec<T>)((IntVec<T>)shifted << (single ? 23 : 52));  // 2^(n-1)
    const Vec<T> t = half * f[0] * q[0] + (half + half - 1), r = -t / (2 + t);
    return x < 0 ? -r : r;
}

}  // namespace headwise::HEADWISE_ISA
