// The floor: whatever the compiler's default target has. SSE2 on x86-64, NEON on 64-bit ARM, plain code elsewhere.
#define HEADWISE_ISA baseline
#define HEADWISE_VECTOR_BYTES 16
#if defined(__aarch64__)
#define HEADWISE_REGISTERS 32
#else
#define HEADWISE_REGISTERS 16
#endif
#include "isa/isa.h"

namespace headwise {
#if defined(__aarch64__)
constexpr const char* baseline_name = "neon";
#else
constexpr const char* baseline_name = "baseline";
#endif
extern const Kernel baseline_float = baseline::make_kernel<float>(baseline_name);
extern const Kernel baseline_double = baseline::make_kernel<double>(baseline_name);
int64_t baseline_fma_loop(int64_t rounds, float* sink) { return baseline::fma_loop<float>(rounds, sink); }
}  // namespace headwise
