#include "driver/threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace headwise {
namespace {

#if defined(__linux__)
// CPU quota of the control group in whole processors, rounded up; 0 when there is none.
int quota() {
    long long used = 0, period = 0;
    if (FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {  // version 2: "max 100000" or "150000 100000"
        const int read = std::fscanf(f, "%lld %lld", &used, &period);
        std::fclose(f);
        return read == 2 && used > 0 && period > 0 ? int((used + period - 1) / period) : 0;
    }
    FILE* f = std::fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r");  // version 1
    FILE* g = std::fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r");
    const bool read = f && g && std::fscanf(f, "%lld", &used) == 1 && std::fscanf(g, "%lld", &period) == 1;
    if (f) std::fclose(f);
    if (g) std::fclose(g);
    return read && used > 0 && period > 0 ? int((used + period - 1) / period) : 0;
}
#endif

thread_local bool inside = false;  // this thread is running a task

class Pool {
  public:
    // Runs the job with up to `threads` workers; false, with nothing done, when the pool is busy.
    bool run(int64_t tasks, int threads, const std::function<void(int64_t, int)>& job) {
        std::unique_lock<std::mutex> only(busy_, std::try_to_lock);
        if (!only) return false;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            while (int(workers_.size()) < threads - 1) {
                const int id = int(workers_.size()) + 1;
                try {
                    workers_.emplace_back([this, id] { work(id); });
                } catch (const std::system_error&) {  // the system grants no more: fewer do the same work
                    threads = id;
                }
            }
            job_ = &job;
            tasks_ = tasks;
            next_ = 0;
            error_ = nullptr;
            wanted_ = threads - 1;
            running_ = threads - 1;
            ++generation_;
        }
        wake_.notify_all();
        take_tasks(0);
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return running_ == 0; });
        job_ = nullptr;
        if (error_) std::rethrow_exception(error_);
        return true;
    }

  private:
    void take_tasks(int worker) {
        inside = true;
        try {
            for (int64_t t; (t = next_.fetch_add(1)) < tasks_;) (*job_)(t, worker);
        } catch (...) {
            next_ = tasks_;
            std::lock_guard<std::mutex> lock(error_mutex_);
            if (!error_) error_ = std::current_exception();
        }
        inside = false;
    }

    void work(int id) {
        uint64_t seen = 0;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return generation_ != seen; });
            seen = generation_;
            if (id > wanted_) continue;
            lock.unlock();
            take_tasks(id);
            lock.lock();
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::mutex busy_, mutex_, error_mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> workers_;
    const std::function<void(int64_t, int)>* job_ = nullptr;
    int64_t tasks_ = 0;
    std::atomic<int64_t> next_{0};
    std::exception_ptr error_;
    int wanted_ = 0, running_ = 0;
    uint64_t generation_ = 0;
};

// Never destroyed: threads waiting in it at exit, or a fork that leaves them behind, must not meet a dead object.
std::atomic<Pool*> pool{nullptr};

Pool& the_pool() {
    static std::once_flag once;
    std::call_once(once, [] {
#if defined(__unix__) || defined(__APPLE__)
        pthread_atfork(nullptr, nullptr, [] {  // a child has none of the threads: start afresh
            pool = new Pool;
            inside = false;
        });
#endif
        pool = new Pool;
    });
    return *pool;
}

}  // namespace

int default_threads() {
    static const int found = [] {  // asked once: the answer costs system calls, a small problem does not want to pay them
        int count = int(std::thread::hardware_concurrency());
#if defined(__linux__)
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
        if (const int q = quota()) count = std::min(count, q);
#endif
        return std::max(count, 1);
    }();
    return found;
}

void parallel_for(int64_t tasks, int threads, const std::function<void(int64_t, int)>& run) {
    // Workers stay for good, so a slip of the pen must not leave hundreds of them.
    threads = std::min(threads, std::max(64, 4 * default_threads()));
    threads = int(std::min<int64_t>(threads, tasks));
    if (threads > 1 && !inside && the_pool().run(tasks, threads, run)) return;
    for (int64_t t = 0; t < tasks; ++t) run(t, 0);
}

}  // namespace headwise
