// bind.cpp: the border to Python, and the only file that knows it. Takes views of any strides, checks what memory safety
// needs (the messages for people are made in Python), releases the lock, runs. No mathematics.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "isa/cpu.h"
#include "driver/run.h"
#include "driver/threads.h"

namespace nb = nanobind;
using namespace headwise;

namespace {

using In = nb::ndarray<nb::ro, nb::device::cpu>;
using Out = nb::ndarray<nb::device::cpu, nb::c_contig>;
using MaybeIn = std::optional<In>;
using Side = std::optional<int64_t>;  // of a window; none: open

void require(bool ok, const char* what) {
    if (!ok) throw std::invalid_argument(std::string("headwise._core: ") + what);
}

// Element offset of every batch index over the leading axes (all but the last `inner`) of an array with any strides.
std::vector<int64_t> batch_offsets(const In& a, size_t inner) {
    std::vector<int64_t> offsets{0};
    for (size_t axis = 0; axis + inner < a.ndim(); ++axis) {
        std::vector<int64_t> next;
        next.reserve(offsets.size() * a.shape(axis));
        for (int64_t base : offsets)
            for (size_t i = 0; i < a.shape(axis); ++i) next.push_back(base + int64_t(i) * a.stride(axis));
        offsets = std::move(next);
    }
    return offsets;
}

// What Python hands over by name. Each entry is read once; one that nobody reads is refused.
class Record {
  public:
    explicit Record(const nb::dict& entries) {
        unread_.reserve(entries.size());
        PyObject *name, *value;
        for (Py_ssize_t at = 0; PyDict_Next(entries.ptr(), &at, &name, &value);) {
            const char* text = PyUnicode_AsUTF8(name);
            if (!text) throw nb::python_error();
            unread_.emplace_back(text, value);
        }
    }

    template <class V>
    std::optional<V> read(const char* name) {
        const auto at = std::find_if(unread_.begin(), unread_.end(),
                                     [&](const auto& entry) { return std::strcmp(entry.first, name) == 0; });
        if (at == unread_.end()) return std::nullopt;
        V value{};
        require(nb::try_cast<V>(nb::handle(at->second), value, std::is_arithmetic_v<V>), name);
        unread_.erase(at);
        return value;
    }
    void finish(const char* what) const { require(unread_.empty(), what); }

  private:
    std::vector<std::pair<const char*, PyObject*>> unread_;
};

// What a problem points to, for as long as it is needed. Nothing in an empty list is ever read, but it has an address.
class Kept {
  public:
    const int64_t* keep(std::vector<int64_t> list) { return kept(wide_, std::move(list)); }
    const int32_t* keep(std::vector<int32_t> list) { return kept(narrow_, std::move(list)); }
    const double* keep(std::vector<double> list) { return kept(real_, std::move(list)); }

  private:
    template <class U>
    static const U* kept(std::vector<std::vector<U>>& lists, std::vector<U> list) {
        if (list.empty()) list.push_back(U(0));
        lists.push_back(std::move(list));
        return lists.back().data();
    }
    std::vector<std::vector<int64_t>> wide_;
    std::vector<std::vector<int32_t>> narrow_;
    std::vector<std::vector<double>> real_;
};

Operand operand(const In& a, Kept& kept) {
    require(a.ndim() >= 3, "arrays need the axes (..., H, n, d)");
    const size_t n = a.ndim();
    static const char nowhere[64] = {};  // an empty array may have no address
    const void* data = a.data() ? a.data() : nowhere;
    return {data, kept.keep(batch_offsets(a, 3)), a.stride(n - 3), a.stride(n - 2), a.stride(n - 1)};
}

int64_t axis(const In& a, int from_end) { return int64_t(a.shape(a.ndim() - size_t(from_end))); }

// Entries of the axes before the last `inner`.
int64_t leading(const In& a, size_t inner) {
    int64_t count = 1;
    for (size_t i = 0; i + inner < a.ndim(); ++i) count *= int64_t(a.shape(i));
    return count;
}

// Numbers in their order, from an array of any strides.
template <class U>
std::vector<U> numbers(const In& a, int64_t count, const char* name) {
    require(a.dtype() == nb::dtype<U>() && int64_t(a.size()) == count, name);
    const size_t inner = a.ndim() ? 1 : 0;
    const int64_t n = inner ? axis(a, 1) : 1, stride = inner ? a.stride(a.ndim() - 1) : 0;
    std::vector<U> all;
    all.reserve(size_t(count));
    for (int64_t base : batch_offsets(a, inner))
        for (int64_t j = 0; j < n; ++j) all.push_back(static_cast<const U*>(a.data())[base + j * stride]);
    return all;
}

// Token ids of any size, renumbered to 32 bits; equal stays equal and unequal stays unequal.
std::pair<std::vector<int32_t>, std::vector<int32_t>> renumber(const std::vector<int64_t>& keys,
                                                               const std::vector<int64_t>& queries) {
    std::vector<int64_t> known(keys);
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    const auto number = [&](int64_t token) {
        const auto at = std::lower_bound(known.begin(), known.end(), token);
        return at != known.end() && *at == token ? int32_t(at - known.begin()) : int32_t(-1);  // -1: no key has it
    };
    std::pair<std::vector<int32_t>, std::vector<int32_t>> numbers;
    for (int64_t t : keys) numbers.first.push_back(number(t));
    for (int64_t t : queries) numbers.second.push_back(number(t));
    return numbers;
}

const InstructionSet& instruction_set(const std::string& name) {
    const std::vector<InstructionSet>& sets = instruction_sets();
    if (name.empty()) return sets.back();
    for (const InstructionSet& set : sets)
        if (name == set.name) return set;
    throw std::invalid_argument("headwise._core: this processor does not run " + name);
}

const Kernel& kernel_for(const std::string& isa, const std::string& dtype) {
    require(dtype == "float32" || dtype == "float64", "dtype must be float32 or float64");
    const InstructionSet& set = instruction_set(isa);
    return dtype == "float32" ? *set.for_float : *set.for_double;
}

// The problem without its buffers: arrays checked against each other, and every option read.
Problem problem_of(const In& query, const In& key, const MaybeIn& value, const MaybeIn& mask, double scale,
                   bool is_causal, int64_t query_offset, const nb::dict& given, Kept& kept) {
    const nb::dlpack::dtype type = query.dtype();
    require(type == nb::dtype<float>() || type == nb::dtype<double>(), "query must be float32 or float64");
    require(key.dtype() == type && (!value || value->dtype() == type), "query, key and value must share a dtype");

    Problem p;
    p.query = operand(query, kept);
    p.key = operand(key, kept);
    p.batch = leading(query, 3);
    p.heads = axis(query, 3), p.kv_heads = axis(key, 3);
    p.n_q = axis(query, 2), p.n_k = axis(key, 2);
    p.d_k = axis(query, 1);
    require(leading(key, 3) == p.batch && axis(key, 1) == p.d_k, "key does not fit query");
    require(p.kv_heads > 0 && p.heads % p.kv_heads == 0, "heads must be a multiple of key/value heads");
    require(p.n_k < INT32_MAX && p.n_q < INT32_MAX, "too many queries or keys");
    if (value) {
        p.value = operand(*value, kept);
        p.d_v = axis(*value, 1);
        require(leading(*value, 3) == p.batch && axis(*value, 3) == p.kv_heads && axis(*value, 2) == p.n_k,
                "value does not fit key");
    }
    const auto over_all = [&](const In& a, const char* name) {
        const Operand o = operand(a, kept);
        require(leading(a, 3) == p.batch && axis(a, 3) == p.heads && axis(a, 2) == p.n_q && axis(a, 1) == p.n_k, name);
        return o;
    };
    if (mask) {
        p.mask = over_all(*mask, "mask does not fit");
        require(mask->dtype() == nb::dtype<bool>() || mask->dtype() == type, "mask must be bool or of query's dtype");
        p.mask_kind = mask->dtype() == nb::dtype<bool>() ? MaskKind::boolean : MaskKind::additive;
    }
    p.scale = scale;
    p.causal = is_causal;

    Record options(given);
    const auto list = [&]<class U>(const char* name, int64_t count, U) -> const U* {
        const auto array = options.read<In>(name);
        return array ? kept.keep(numbers<U>(*array, count, name)) : nullptr;
    };
    const auto lengths = [&](const char* name, int64_t most) {
        const int64_t* all = list(name, p.batch, int64_t());
        for (int64_t b = 0; all && b < p.batch; ++b) require(all[b] >= 0 && all[b] <= most, name);
        return all;
    };
    const auto ids = [&](const char* of_keys, const char* of_queries, const int32_t*& keys, const int32_t*& queries) {
        const auto key_ids = options.read<In>(of_keys), query_ids = options.read<In>(of_queries);
        require(key_ids.has_value() == query_ids.has_value(), of_keys);
        if (!key_ids) return;
        auto [narrow_keys, narrow_queries] = renumber(numbers<int64_t>(*key_ids, p.batch * p.n_k, of_keys),
                                                      numbers<int64_t>(*query_ids, p.batch * p.n_q, of_queries));
        keys = kept.keep(std::move(narrow_keys)), queries = kept.keep(std::move(narrow_queries));
    };
    if (const auto bias = options.read<In>("bias")) {
        p.bias = over_all(*bias, "bias does not fit");
        require(bias->dtype() == type, "bias must be of query's dtype");
    }
    p.offsets = list("query_offsets", p.batch, int64_t());
    if (!p.offsets) p.offsets = kept.keep(std::vector<int64_t>(size_t(p.batch), query_offset));
    if (const auto window = options.read<std::tuple<Side, Side>>("window"))
        p.window_left = std::get<0>(*window).value_or(-1), p.window_right = std::get<1>(*window).value_or(-1);
    p.query_lengths = lengths("query_lengths", p.n_q);
    p.kv_lengths = lengths("kv_lengths", p.n_k);
    ids("key_segments", "query_segments", p.key_segments, p.query_segments);
    p.softcap = options.read<double>("softcap").value_or(0);
    p.alibi_slopes = list("alibi_slopes", p.batch * p.heads, double());
    if (const auto sinks = options.read<In>("sinks")) {
        p.n_sinks = axis(*sinks, 1);
        p.sinks = kept.keep(numbers<double>(*sinks, p.heads * p.n_sinks, "sinks do not fit"));
    }
    p.head_mask = list("head_mask", p.batch * p.heads, double());
    p.dropout = options.read<double>("dropout_p").value_or(0);
    p.seed = options.read<uint64_t>("seed").value_or(0);

    Statistics& s = p.statistics;
    s.n_buckets = options.read<int64_t>("buckets").value_or(0);
    s.top_k = options.read<int64_t>("top_k").value_or(0);
    s.sink_keys = options.read<int64_t>("sink_mass").value_or(0);
    s.pooled_block = options.read<int64_t>("pooled").value_or(0);
    if (const auto relative = options.read<In>("relative")) {
        s.n_relative = int64_t(relative->size());
        s.relative = kept.keep(numbers<int64_t>(*relative, s.n_relative, "relative must be int64"));
    }
    ids("key_tokens", "query_tokens", s.key_tokens, s.query_tokens);
    s.n_classes = options.read<int64_t>("class_count").value_or(0);
    if (const auto classes = options.read<In>("classes")) {
        std::vector<int32_t> narrow;
        for (int64_t c : numbers<int64_t>(*classes, p.batch * p.n_k, "classes do not fit")) {
            require(c < s.n_classes, "a class beyond class_count");
            narrow.push_back(int32_t(std::max<int64_t>(c, -1)));
        }
        s.classes = kept.keep(std::move(narrow));
    }
    options.finish("an option that the kernel does not know");
    return p;
}

// Where the answers go: buffers of type A, each checked against what the options say.
template <class A>
void read_answers(Problem& p, const nb::dict& given, nb::dlpack::dtype type) {
    Record answers(given);
    each_answer(p, [&](const char* name, auto*& place, int64_t count) {
        const auto array = answers.read<A>(name);
        if (!array) return;
        const bool whole = std::is_same_v<decltype(place), int64_t*&>;
        static char nowhere[64];  // an empty array may have no address
        const void* address = array->data() ? array->data() : nowhere;
        require(array->dtype() == (whole ? nb::dtype<int64_t>() : type) && int64_t(array->size()) == count, name);
        place = static_cast<std::remove_reference_t<decltype(place)>>(const_cast<void*>(address));
    });
    answers.finish("an answer that the kernel does not give");
    const Statistics& s = p.statistics;
    require(!s.top_k || (s.top_k_index && s.top_k_weight), "top_k needs its index and its weight");
    require(!s.n_relative || s.relative_mass, "relative needs its masses");
    require(!s.n_classes || (s.classes && s.class_mass), "class_count needs classes and their masses");
    require(!s.pooled || s.pooled_block > 0, "pooled needs a block size");
    require(!s.distance_histogram || s.n_buckets > 0, "distance_histogram needs a bucket");
    require(s.key_tokens || !(s.duplicate || s.induction || s.duplicate_count || s.induction_count),
            "matches need key_tokens and query_tokens");
}

void attend(const In& query, const In& key, const MaybeIn& value, const std::optional<Out>& output, const MaybeIn& mask,
            double scale, bool is_causal, int64_t query_offset, const std::string& isa, int threads,
            const nb::dict& options, const nb::dict& answers) {
    Kept kept;
    Problem p = problem_of(query, key, value, mask, scale, is_causal, query_offset, options, kept);
    require(value.has_value() == output.has_value(), "value and output go together");
    if (output) {
        require(output->dtype() == query.dtype() && int64_t(output->size()) == p.batch * p.heads * p.n_q * p.d_v,
                "output does not fit");
        // An empty output may have no address; the pass must still know that it is asked for.
        static char nowhere[64];
        p.output = output->data() ? output->data() : nowhere;
    }
    read_answers<Out>(p, answers, query.dtype());
    const InstructionSet& set = instruction_set(isa);
    const Kernel& kernel = query.dtype() == nb::dtype<float>() ? *set.for_float : *set.for_double;
    nb::gil_scoped_release unlocked;
    run(p, kernel, threads > 0 ? threads : default_threads());
}

// The answers may be stand-ins without memory: nothing is written.
std::tuple<int64_t, int64_t, bool> scratch(const In& query, const In& key, const MaybeIn& value, const MaybeIn& mask,
                                           bool is_causal, const std::string& isa, int threads,
                                           const nb::dict& options, const nb::dict& answers) {
    Kept kept;
    Problem p = problem_of(query, key, value, mask, 1, is_causal, 0, options, kept);
    static char nowhere[64];
    if (value) p.output = nowhere;
    read_answers<In>(p, answers, query.dtype());
    const InstructionSet& set = instruction_set(isa);
    const Kernel& kernel = query.dtype() == nb::dtype<float>() ? *set.for_float : *set.for_double;
    const Memory memory = memory_of(p, kernel, threads);
    return {memory.of_each_thread, memory.of_all, memory.second_pass};
}

// Multiply-adds per second of one thread, measured now for about `seconds`: the ceiling that speed is compared with.
double fma_rate(const std::string& isa, double seconds) {
    using clock = std::chrono::steady_clock;
    const InstructionSet& set = instruction_set(isa);
    nb::gil_scoped_release unlocked;
    volatile float keep = 0;
    float sink = 0;
    int64_t done = 0;
    const auto start = clock::now();
    double elapsed = 0;
    while (elapsed < seconds) {
        done += set.fma_loop(100000, &sink);
        keep = sink;
        elapsed = std::chrono::duration<double>(clock::now() - start).count();
    }
    (void)keep;
    return double(done) / elapsed;
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "The native kernel of headwise. Private: use headwise.attention.";
    m.def("attend", &attend, nb::arg("query").noconvert(), nb::arg("key").noconvert(),
          nb::arg("value").noconvert().none(), nb::arg("output").noconvert().none(), nb::arg("mask").noconvert().none(),
          nb::arg("scale"), nb::arg("is_causal"), nb::arg("query_offset"), nb::arg("isa"), nb::arg("num_threads"),
          nb::arg("options"), nb::arg("answers"),
          "Fill the given buffers: output and answers of exact attention over (..., H, n, d) views.");
    m.def("scratch", &scratch, nb::arg("query").noconvert(), nb::arg("key").noconvert(),
          nb::arg("value").noconvert().none(), nb::arg("mask").noconvert().none(), nb::arg("is_causal"), nb::arg("isa"),
          nb::arg("num_threads"), nb::arg("options"), nb::arg("answers"),
          "(bytes of each thread, bytes of all together, does it read the keys twice) of such a call; computes nothing.");
    m.def("isa_names", [] {
        std::vector<std::string> names;
        for (const InstructionSet& set : instruction_sets()) names.push_back(set.name);
        return names;
    }, "Instruction sets that this processor runs, slowest first; the last is the default.");
    m.def("tile", [](const std::string& isa, const std::string& dtype) {
        const Kernel& k = kernel_for(isa, dtype);
        return std::tuple(k.lanes, k.group, k.key_block);
    }, nb::arg("isa"), nb::arg("dtype"), "(queries per vector, queries per register tile, keys per step).");
    m.attr("largest_strip") = largest_strip;
    m.def("default_threads", &default_threads, "Processors that affinity and control-group quota leave to this process.");
    m.def("fma_rate", &fma_rate, nb::arg("isa") = "", nb::arg("seconds") = 0.2,
          "Float32 multiply-adds per second of one thread, measured now.");
}
