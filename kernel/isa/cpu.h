// cpu.h: which instruction sets this processor and this operating system run.
#pragma once

#include <vector>

#include "problem.h"

namespace headwise {

struct InstructionSet {
    const char* name;
    const Kernel* for_float;
    const Kernel* for_double;
    int64_t (*fma_loop)(int64_t rounds, float* sink);  // returns the multiply-adds done
};

// Slowest first; the last one is the default.
const std::vector<InstructionSet>& instruction_sets();

}  // namespace headwise
