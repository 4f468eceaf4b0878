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
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "cpu.h"
#include "run.h"
#include "threads.h"

namespace nb = nanobind;
using namespace headwise;

namespace {

using In = nb::ndarray<nb::ro, nb::device::cpu>;
using Out = nb::ndarray<nb::device::cpu, nb::c_contig>;
using MaybeIn = std::optional<In>;
using MaybeOut = std::optional<Out>;

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

Operand operand(const In& a, std::vector<int64_t>& offsets) {
    require(a.ndim() >= 3, "arrays need the axes (..., H, n, d)");
    const size_t n = a.ndim();
    offsets = batch_offsets(a, 3);
    return {a.data(), offsets.data(), a.stride(n - 3), a.stride(n - 2), a.stride(n - 1)};
}

int64_t axis(const In& a, int from_end) { return int64_t(a.shape(a.ndim() - size_t(from_end))); }

void* buffer(const MaybeOut& a, nb::dlpack::dtype type, int64_t count, const char* name) {
    if (!a) return nullptr;
    require(a->dtype() == type && int64_t(a->size()) == count, name);
    return a->data();
}

int64_t* integers(const MaybeOut& a, int64_t count, const char* name) {
    return static_cast<int64_t*>(buffer(a, nb::dtype<int64_t>(), count, name));
}

// (B, n) integers as contiguous 32-bit lanes.
std::vector<int64_t> gather(const In& a, int64_t batch, int64_t n, const char* name) {
    require(a.dtype() == nb::dtype<int64_t>() && a.ndim() >= 1 && axis(a, 1) == n, name);
    const std::vector<int64_t> offsets = batch_offsets(a, 1);
    require(int64_t(offsets.size()) == batch, name);
    std::vector<int64_t> all;
    all.reserve(size_t(batch * n));
    const int64_t stride = a.stride(a.ndim() - 1);
    for (int64_t base : offsets)
        for (int64_t j = 0; j < n; ++j) all.push_back(static_cast<const int64_t*>(a.data())[base + j * stride]);
    return all;
}

// One number per batch entry (or per batch entry and head, or per head ...), as contiguous doubles.
std::vector<double> numbers(const In& a, int64_t count, const char* name) {
    require(a.dtype() == nb::dtype<double>() && int64_t(a.size()) == count, name);
    std::vector<double> all;
    all.reserve(size_t(count));
    for (int64_t at : batch_offsets(a, 0)) all.push_back(static_cast<const double*>(a.data())[at]);
    return all;
}

// The same for whole numbers.
std::vector<int64_t> whole_numbers(const In& a, int64_t count, const char* name) {
    require(a.dtype() == nb::dtype<int64_t>() && int64_t(a.size()) == count, name);
    std::vector<int64_t> all;
    all.reserve(size_t(count));
    for (int64_t at : batch_offsets(a, 0)) all.push_back(static_cast<const int64_t*>(a.data())[at]);
    return all;
}

// Token ids of any size, renumbered to 32 bits; equal stays equal and unequal stays unequal.
void renumber(const std::vector<int64_t>& keys, const std::vector<int64_t>& queries, std::vector<int32_t>& key_tokens,
              std::vector<int32_t>& query_tokens) {
    std::vector<int64_t> known(keys);
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    const auto number = [&](int64_t token) {
        const auto at = std::lower_bound(known.begin(), known.end(), token);
        return at != known.end() && *at == token ? int32_t(at - known.begin()) : int32_t(-1);  // -1: no key has it
    };
    for (int64_t t : keys) key_tokens.push_back(number(t));
    for (int64_t t : queries) query_tokens.push_back(number(t));
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

void attend(const In& query, const In& key, const MaybeIn& value, const MaybeOut& output, const MaybeIn& mask,
            double scale, bool is_causal, int64_t query_offset, const std::string& isa, int num_threads,
            const MaybeIn& bias, const MaybeIn& query_offsets, int64_t window_left, int64_t window_right,
            const MaybeIn& query_lengths, const MaybeIn& kv_lengths, const MaybeIn& query_segments,
            const MaybeIn& key_segments, double softcap, const MaybeIn& alibi_slopes, const MaybeIn& sinks,
            const MaybeIn& head_mask, double dropout_p, uint64_t seed,
            const MaybeOut& lse, const MaybeOut& max_weight, const MaybeOut& argmax, const MaybeOut& entropy,
            const MaybeOut& sum_squares, const MaybeOut& sink_logit_mass, const MaybeOut& distance_histogram,
            const MaybeOut& top_k_index, const MaybeOut& top_k_weight, const MaybeOut& sink_mass, int64_t sink_keys,
            const MaybeOut& distance, const MaybeIn& offsets, const MaybeOut& offset_mass, const MaybeIn& key_tokens,
            const MaybeIn& query_tokens, const MaybeOut& duplicate, const MaybeOut& induction,
            const MaybeOut& duplicate_count, const MaybeOut& induction_count, const MaybeIn& segments,
            const MaybeOut& segment_mass, const MaybeOut& received, const MaybeOut& received_count,
            const MaybeOut& pooled, int64_t pooled_block) {
    const nb::dlpack::dtype type = query.dtype();
    const bool single = type == nb::dtype<float>();
    require(single || type == nb::dtype<double>(), "query must be float32 or float64");
    require(key.dtype() == type && (!value || value->dtype() == type), "query, key and value must share a dtype");

    Problem p;
    std::vector<int64_t> query_at, key_at, value_at, mask_at, bias_at;
    p.query = operand(query, query_at);
    p.key = operand(key, key_at);
    p.batch = int64_t(query_at.size());
    p.heads = axis(query, 3), p.kv_heads = axis(key, 3);
    p.n_q = axis(query, 2), p.n_k = axis(key, 2);
    p.d_k = axis(query, 1);
    require(int64_t(key_at.size()) == p.batch && axis(key, 1) == p.d_k, "key does not fit query");
    require(p.kv_heads > 0 && p.heads % p.kv_heads == 0, "heads must be a multiple of key/value heads");
    require(p.n_k < INT32_MAX && p.n_q < INT32_MAX, "too many queries or keys");
    require(value.has_value() == output.has_value(), "value and output go together");
    if (value) {
        p.value = operand(*value, value_at);
        p.d_v = axis(*value, 1);
        require(int64_t(value_at.size()) == p.batch && axis(*value, 3) == p.kv_heads && axis(*value, 2) == p.n_k,
                "value does not fit key");
        p.output = buffer(output, type, p.batch * p.heads * p.n_q * p.d_v, "output does not fit");
        // An empty output may have no address; the pass must still know that it is asked for.
        static char nowhere[64];
        if (!p.output) p.output = nowhere;
    }
    if (mask) {
        p.mask = operand(*mask, mask_at);
        require(int64_t(mask_at.size()) == p.batch && axis(*mask, 3) == p.heads && axis(*mask, 2) == p.n_q &&
                    axis(*mask, 1) == p.n_k,
                "mask does not fit");
        require(mask->dtype() == nb::dtype<bool>() || mask->dtype() == type, "mask must be bool or of query's dtype");
        p.mask_kind = mask->dtype() == nb::dtype<bool>() ? MaskKind::boolean : MaskKind::additive;
    }
    if (bias) {
        p.bias = operand(*bias, bias_at);
        require(int64_t(bias_at.size()) == p.batch && axis(*bias, 3) == p.heads && axis(*bias, 2) == p.n_q &&
                    axis(*bias, 1) == p.n_k && bias->dtype() == type,
                "bias does not fit");
        static const double nowhere = 0;  // an empty one may have no address
        if (!p.bias.data) p.bias.data = &nowhere;
    }
    p.scale = scale;
    p.causal = is_causal;
    p.window_left = window_left;
    p.window_right = window_right;
    p.softcap = softcap;
    p.dropout = dropout_p;
    p.seed = seed;
    std::vector<int64_t> positions(size_t(p.batch), query_offset), query_ends, key_ends;
    if (query_offsets) positions = whole_numbers(*query_offsets, p.batch, "query_offsets do not fit");
    p.offsets = positions.data();
    const auto lengths = [&](const MaybeIn& given, std::vector<int64_t>& kept, int64_t most, const char* name) {
        if (!given) return static_cast<const int64_t*>(nullptr);
        kept = whole_numbers(*given, p.batch, name);
        for (int64_t length : kept) require(length >= 0 && length <= most, name);
        return static_cast<const int64_t*>(kept.data());
    };
    p.query_lengths = lengths(query_lengths, query_ends, p.n_q, "query_lengths do not fit");
    p.kv_lengths = lengths(kv_lengths, key_ends, p.n_k, "kv_lengths do not fit");
    std::vector<int32_t> query_groups, key_groups;
    if (query_segments || key_segments) {
        require(query_segments && key_segments, "query_segments and key_segments go together");
        renumber(gather(*key_segments, p.batch, p.n_k, "key_segments do not fit"),
                 gather(*query_segments, p.batch, p.n_q, "query_segments do not fit"), key_groups, query_groups);
        static const int32_t nothing = 0;
        p.key_segments = key_groups.empty() ? &nothing : key_groups.data();
        p.query_segments = query_groups.empty() ? &nothing : query_groups.data();
    }
    std::vector<double> slopes, sink_logits, factors;
    if (alibi_slopes) {
        slopes = numbers(*alibi_slopes, p.batch * p.heads, "alibi_slopes do not fit");
        p.alibi_slopes = slopes.data();
    }
    if (sinks && sinks->size() > 0) {
        p.n_sinks = int64_t(sinks->size()) / p.heads;
        sink_logits = numbers(*sinks, p.heads * p.n_sinks, "sinks do not fit");
        p.sinks = sink_logits.data();
    }
    if (head_mask) {
        factors = numbers(*head_mask, p.batch * p.heads, "head_mask does not fit");
        p.head_mask = factors.data();
    }

    Statistics& s = p.statistics;
    const int64_t rows = p.batch * p.heads * p.n_q, columns = p.batch * p.heads * p.n_k;
    s.lse = buffer(lse, type, rows, "lse does not fit");
    s.max_weight = buffer(max_weight, type, rows, "max_weight does not fit");
    s.argmax = integers(argmax, rows, "argmax does not fit");
    s.entropy = buffer(entropy, type, rows, "entropy does not fit");
    if (top_k_index || top_k_weight) {
        require(top_k_index && top_k_weight && top_k_index->ndim() > 0, "top_k_index and top_k_weight go together");
        s.top_k = int64_t(top_k_index->shape(top_k_index->ndim() - 1));
        s.top_k_index = integers(top_k_index, rows * s.top_k, "top_k_index does not fit");
        s.top_k_weight = buffer(top_k_weight, type, rows * s.top_k, "top_k_weight does not fit");
    }
    s.sum_squares = buffer(sum_squares, type, rows, "sum_squares does not fit");
    s.sink_logit_mass = buffer(sink_logit_mass, type, rows, "sink_logit_mass does not fit");
    if (distance_histogram) {
        require(distance_histogram->ndim() > 0, "distance_histogram needs an axis of buckets");
        s.n_buckets = int64_t(distance_histogram->shape(distance_histogram->ndim() - 1));
        require(s.n_buckets > 0, "distance_histogram needs a bucket");
        s.distance_histogram =
            buffer(distance_histogram, type, p.batch * p.heads * s.n_buckets, "distance_histogram does not fit");
    }
    s.sink_keys = sink_keys;
    s.sink_mass = buffer(sink_mass, type, rows, "sink_mass does not fit");
    s.distance = buffer(distance, type, rows, "distance does not fit");
    std::vector<int64_t> offset_list;
    if (offset_mass) {
        require(offsets.has_value(), "offset_mass needs offsets");
        offset_list = gather(*offsets, 1, int64_t(offsets->size()), "offsets must be a vector of int64");
        s.n_offsets = int64_t(offset_list.size());
        s.offsets = offset_list.data();
        s.offset_mass = buffer(offset_mass, type, rows * s.n_offsets, "offset_mass does not fit");
    }
    std::vector<int32_t> key_numbers, query_numbers, classes;
    if (duplicate || induction || duplicate_count || induction_count) {
        require(key_tokens && query_tokens, "matches need key_tokens and query_tokens");
        renumber(gather(*key_tokens, p.batch, p.n_k, "key_tokens do not fit"),
                 gather(*query_tokens, p.batch, p.n_q, "query_tokens do not fit"), key_numbers, query_numbers);
        s.key_tokens = key_numbers.data();
        s.query_tokens = query_numbers.data();
        s.duplicate = buffer(duplicate, type, rows, "duplicate does not fit");
        s.induction = buffer(induction, type, rows, "induction does not fit");
        s.duplicate_count = integers(duplicate_count, rows, "duplicate_count does not fit");
        s.induction_count = integers(induction_count, rows, "induction_count does not fit");
    }
    if (segment_mass) {
        require(segments && segment_mass->ndim() > 0, "segment_mass needs segments");
        s.n_classes = int64_t(segment_mass->shape(segment_mass->ndim() - 1));
        for (int64_t c : gather(*segments, p.batch, p.n_k, "segments do not fit")) {
            require(c < s.n_classes, "a class beyond segment_mass");
            classes.push_back(int32_t(std::max<int64_t>(c, -1)));
        }
        s.classes = classes.data();
        s.segment_mass = buffer(segment_mass, type, rows * s.n_classes, "segment_mass does not fit");
    }
    s.received = buffer(received, type, columns, "received does not fit");
    s.received_count = integers(received_count, columns, "received_count does not fit");
    if (pooled) {
        require(pooled_block > 0, "pooled needs a block size");
        s.pooled_block = pooled_block;
        const int64_t down = (p.n_q + pooled_block - 1) / pooled_block, across = (p.n_k + pooled_block - 1) / pooled_block;
        s.pooled = buffer(pooled, type, p.batch * p.heads * down * across, "pooled does not fit");
    }

    const InstructionSet& set = instruction_set(isa);
    const Kernel& kernel = single ? *set.for_float : *set.for_double;
    nb::gil_scoped_release unlocked;
    run(p, kernel, num_threads > 0 ? num_threads : default_threads());
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
          nb::kw_only(), nb::arg("scale"), nb::arg("is_causal"), nb::arg("query_offset"), nb::arg("isa") = "",
          nb::arg("num_threads") = 0, nb::arg("bias").noconvert() = nb::none(),
          nb::arg("query_offsets").noconvert() = nb::none(), nb::arg("window_left") = -1, nb::arg("window_right") = -1,
          nb::arg("query_lengths").noconvert() = nb::none(), nb::arg("kv_lengths").noconvert() = nb::none(),
          nb::arg("query_segments").noconvert() = nb::none(), nb::arg("key_segments").noconvert() = nb::none(),
          nb::arg("softcap") = 0.0, nb::arg("alibi_slopes").noconvert() = nb::none(),
          nb::arg("sinks").noconvert() = nb::none(), nb::arg("head_mask").noconvert() = nb::none(),
          nb::arg("dropout_p") = 0.0, nb::arg("seed") = 0, nb::arg("lse").noconvert() = nb::none(),
          nb::arg("max_weight").noconvert() = nb::none(), nb::arg("argmax").noconvert() = nb::none(),
          nb::arg("entropy").noconvert() = nb::none(), nb::arg("sum_squares").noconvert() = nb::none(),
          nb::arg("sink_logit_mass").noconvert() = nb::none(),
          nb::arg("distance_histogram").noconvert() = nb::none(), nb::arg("top_k_index").noconvert() = nb::none(),
          nb::arg("top_k_weight").noconvert() = nb::none(), nb::arg("sink_mass").noconvert() = nb::none(),
          nb::arg("sink_keys") = 0, nb::arg("distance").noconvert() = nb::none(),
          nb::arg("offsets").noconvert() = nb::none(), nb::arg("offset_mass").noconvert() = nb::none(),
          nb::arg("key_tokens").noconvert() = nb::none(), nb::arg("query_tokens").noconvert() = nb::none(),
          nb::arg("duplicate").noconvert() = nb::none(), nb::arg("induction").noconvert() = nb::none(),
          nb::arg("duplicate_count").noconvert() = nb::none(), nb::arg("induction_count").noconvert() = nb::none(),
          nb::arg("segments").noconvert() = nb::none(), nb::arg("segment_mass").noconvert() = nb::none(),
          nb::arg("received").noconvert() = nb::none(), nb::arg("received_count").noconvert() = nb::none(),
          nb::arg("pooled").noconvert() = nb::none(), nb::arg("pooled_block") = 0,
          "Fill the given buffers: output and statistics of exact attention over (..., H, n, d) views.");
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
