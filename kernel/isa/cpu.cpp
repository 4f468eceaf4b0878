#include "isa/cpu.h"

namespace headwise {

extern const Kernel baseline_float, baseline_double;
int64_t baseline_fma_loop(int64_t, float*);
#ifdef HEADWISE_X86
extern const Kernel avx2_float, avx2_double, avx512_float, avx512_double;
int64_t avx2_fma_loop(int64_t, float*);
int64_t avx512_fma_loop(int64_t, float*);
#endif

const std::vector<InstructionSet>& instruction_sets() {
    static const std::vector<InstructionSet> sets = [] {
        std::vector<InstructionSet> found{{baseline_float.isa, &baseline_float, &baseline_double, baseline_fma_loop}};
#ifdef HEADWISE_X86
        // The compiler's probe also asks the operating system whether it saves the wide registers.
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            found.push_back({"avx2", &avx2_float, &avx2_double, avx2_fma_loop});
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            found.push_back({"avx512", &avx512_float, &avx512_double, avx512_fma_loop});
#endif
        return found;
    }();
    return sets;
}

}  // namespace headwise
