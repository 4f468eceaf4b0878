// AVX2 with FMA: 8 floats or 4 doubles per vector, 16 registers. Compiled with its own flags; called after a probe.
#define HEADWISE_ISA avx2
#define HEADWISE_VECTOR_BYTES 32
#define HEADWISE_REGISTERS 16
#include "isa/isa.h"

namespace headwise {
extern const Kernel avx2_float = avx2::make_kernel<float>("avx2");
extern const Kernel avx2_double = avx2::make_kernel<double>("avx2");
int64_t avx2_fma_loop(int64_t rounds, float* sink) { return avx2::fma_loop<float>(rounds, sink); }
}  // namespace headwise
