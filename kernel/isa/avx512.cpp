// AVX-512 (F, BW, DQ, VL): 16 floats or 8 doubles per vector, 32 registers. Compiled with its own flags; called after a
// probe.
#define HEADWISE_ISA avx512
#define HEADWISE_VECTOR_BYTES 64
#define HEADWISE_REGISTERS 32
#include "isa/isa.h"

namespace headwise {
extern const Kernel avx512_float = avx512::make_kernel<float>("avx512");
extern const Kernel avx512_double = avx512::make_kernel<double>("avx512");
int64_t avx512_fma_loop(int64_t rounds, float* sink) { return avx512::fma_loop<float>(rounds, sink); }
}  // namespace headwise
