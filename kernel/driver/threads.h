// threads.h: our own pool. Tasks are handed out by one counter; no result depends on who runs which.
#pragma once

#include <cstdint>
#include <functional>

namespace headwise {

// Processors this process may use: its affinity mask, cut to the control group's quota. At least 1.
int default_threads();

// Calls run(task, worker) for every task in [0, tasks), on the calling thread and up to threads - 1 others; worker is
// in [0, threads). A call from within a task, or while another thread uses the pool, runs on its own thread alone.
// An exception of a task is thrown again here, after the others have stopped.
void parallel_for(int64_t tasks, int threads, const std::function<void(int64_t task, int worker)>& run);

}  // namespace headwise
