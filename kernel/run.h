// run.h: from a problem to filled buffers: cut it into tasks, give each thread its scratch, run the passes.
#pragma once

#include "problem.h"

namespace headwise {

// Fills every buffer of the problem.
void run(Problem, const Kernel&, int threads);

}  // namespace headwise
