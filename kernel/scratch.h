// scratch.h: working memory that is kept between calls, so that its page faults are paid once.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace headwise {

class Scratch {
  public:
    // At least `bytes` of memory, aligned for every vector; what it held may be gone.
    void* get(int64_t bytes) {
        if (bytes > size_) {
            memory_.reset();
            const std::size_t rounded = (std::size_t(bytes) + 63) & ~std::size_t(63);
            memory_.reset(std::aligned_alloc(64, rounded));
            size_ = memory_ ? int64_t(rounded) : 0;
            if (!memory_) throw std::bad_alloc();
        }
        return memory_.get();
    }
    // Gives the memory back if there is more than `kept` of it.
    void trim(int64_t kept) {
        if (size_ > kept) memory_.reset(), size_ = 0;
    }

  private:
    struct Free {
        void operator()(void* p) const { std::free(p); }
    };
    std::unique_ptr<void, Free> memory_;
    int64_t size_ = 0;
};

}  // namespace headwise
