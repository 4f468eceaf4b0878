// run.h: from a problem to filled buffers: cut it into tasks, give each thread its scratch, run the passes.
#pragma once

#include "problem.h"

namespace headwise {

// Strip mode keeps a group's exponentials of all keys; beyond this many bytes they would leave the cache, and a second pass
// over the keys costs less.
constexpr int64_t largest_strip = int64_t(4) << 20;

// Fills every buffer of the problem.
void run(Problem, const Kernel&, int threads);

// What `run` takes beside the buffers of the problem, of which only whether they are asked for counts here.
struct Memory {
    int64_t of_each_thread, of_all;
    bool second_pass;
};
Memory memory_of(Problem, const Kernel&, int threads);

}  // namespace headwise
