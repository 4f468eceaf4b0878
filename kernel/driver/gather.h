// gather.h: keys and values whose rows lie apart in memory, laid side by side before many queries read them.
//
// The usual layout of models, (batch, tokens, heads, width), puts the other heads between two rows of one head, and every
// chunk of queries streams all rows of its head. On a first-generation AMD EPYC, two threads, the whole call then took 1.05
// (12 heads, 512 keys) to 1.24 times (8 heads, 2048 keys, strides of 2 KiB that meet in few sets of the cache) as long as
// with contiguous rows; with the copy, 1.00 to 1.04. Tried: each thread copies one head at a time, 1.04 to 1.15, since heads
// are copied by several threads; copies in fresh memory, up to 1.5, for its page faults.
#pragma once

#include <mutex>
#include <vector>

#include "problem.h"
#include "scratch.h"

namespace headwise {

// Bytes of the copies that a problem's keys and values take.
int64_t gathered_bytes(const Problem& p, int64_t element_bytes);

// Makes the keys and values of a problem contiguous where that pays, for as long as this lives. Every number and so every
// result stays the same.
class Gathered {
  public:
    Gathered(Problem& p, int64_t element_bytes, int threads);
    ~Gathered();
    Gathered(const Gathered&) = delete;
    Gathered& operator=(const Gathered&) = delete;

  private:
    std::unique_lock<std::mutex> lock_;  // on the memory that all calls share
    Scratch own_;                        // where another call has that
    std::vector<int64_t> keys_, values_; // starts of the entries of the batch
};

}  // namespace headwise
