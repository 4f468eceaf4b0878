// run.h: from a problem to filled buffers: cut it into tasks, give each thread its scratch, run the passes.
#pragma once

#include "problem.h"

namespace headwise {

// Queries per task for this problem and thread count.
int64_t chunk_queries(const Problem&, const Kernel&, int threads);

// Fills every buffer of the problem. `temporary_lse` has room for B * H * n_q numbers of the problem's type when
// received attention is asked for without lse; else it may be null.
void run(Problem, const Kernel&, int threads, void* temporary_lse);

}  // namespace headwise
