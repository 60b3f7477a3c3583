/* brick_agent.hpp - brick_agent.h for C++17: a span ends with its block, even when the block throws.
 *
 *   static brick::Brick gemm("gemm", "ffn");          once, anywhere
 *   {
 *       brick::Span span(gemm);                       from here to the end of the block
 *       ...
 *       span.amounts(elements, bytes);
 *   }
 *   brick::Layer layer(3);                            spans in this block have the layer 3
 *   brick::Step step(decode, request, rows, valid);   a span that is one step of the engine
 *   gemm.record(elapsed_ns);                          a span that was timed elsewhere
 *   brick::Deferred work = gemm.defer(stream);        work that a device begins now
 *   work.measured(elapsed_ns);                        the duration that the device measured, if there is one
 *   brick::finalize(stream);                          the host has waited for that stream
 *   gemm_kernel.launched(how);                        a launch below the open span; `how` is a brick_launch
 *   brick::moved(BRICK_TO_DEVICE, tokens, gpu, bytes);
 *   attention.needs(qkv);                             attention cannot begin before qkv has ended
 *
 * These classes never allocate or throw, and do no more than the calls of brick_agent.h, which has the promises and the
 * build instructions. A Brick gets its id at its first use: creating a Brick does not open the segment, and the
 * order of globals does not matter. A Span, Layer or Step ends on its thread, so it cannot be copied or moved. A
 * Deferred is only an id, so it may be copied anywhere.
 */
#ifndef BRICK_AGENT_HPP
#define BRICK_AGENT_HPP

#include "brick_agent.h"
#include "brick_graph.h"

#include <atomic>
#include <cstdint>
#include <cstring>

namespace brick {

/* Deferred work of a device; converts to false if it was not recorded. */
class Deferred {
public:
    constexpr Deferred() noexcept = default;
    constexpr explicit Deferred(std::uint64_t id) noexcept : id_(id) {}
    constexpr explicit operator bool() const noexcept { return id_ != 0; }
    constexpr std::uint64_t id() const noexcept { return id_; }
    void measured(std::uint64_t elapsed_ns) const noexcept { brick_measured(id_, elapsed_ns); }

private:
    std::uint64_t id_ = 0;
};

inline void finalize() noexcept { brick_finalize(nullptr); } /* every stream */
inline void finalize(std::uint64_t stream) noexcept { brick_finalize(&stream); }
inline std::uint64_t pending() noexcept { return brick_pending(); }

/* A named unit of work. The name and category must stay valid as long as the Brick exists, as literals do. */
class Brick {
public:
    constexpr explicit Brick(const char *name, const char *category = nullptr) noexcept
        : name_(name), category_(category) {}
    Brick(const Brick &) = delete;
    Brick &operator=(const Brick &) = delete;

    /* Returns BRICK_UNNAMED while nothing can be recorded, so do not keep the result: call this each time. */
    std::uint32_t number() noexcept
    {
        const std::uint32_t known = number_.load(std::memory_order_relaxed);
        return known != BRICK_UNNAMED ? known : find();
    }

    void record(std::uint64_t elapsed_ns, std::uint64_t elements = 0, std::uint64_t bytes = 0,
                const void *key = nullptr) noexcept
    {
        brick_record(number(), key, elapsed_ns, elements, bytes);
    }

    Deferred defer(std::uint64_t stream = 0, std::uint64_t elements = 0, std::uint64_t bytes = 0,
                   const void *key = nullptr) noexcept
    {
        std::uint64_t id = 0;
        brick_defer(number(), key, stream, nullptr, elements, bytes, &id);
        return Deferred(id);
    }

    void launched(const brick_launch &how = {}, const void *key = nullptr) noexcept
    {
        brick_launched(number(), key, &how, nullptr, nullptr);
    }

    /* Records a launch together with the duration that the device measured. */
    void launched(const brick_launch &how, std::uint64_t elapsed_ns, const void *key = nullptr) noexcept
    {
        brick_launched(number(), key, &how, &elapsed_ns, nullptr);
    }

    void needs(Brick &needed, const void *key = nullptr) noexcept { brick_needs(number(), needed.number(), key); }

private:
    std::uint32_t find() noexcept
    {
        const std::uint32_t found = brick_name(name_, std::strlen(name_), category_);
        if (found != BRICK_UNNAMED)
            number_.store(found, std::memory_order_relaxed); /* every thread gets the same id for a name */
        return found;
    }

    const char *const name_;
    const char *const category_;
    std::atomic<std::uint32_t> number_{BRICK_UNNAMED};
};

/* Records a transfer. The ends are bricks, but only their names are used. */
inline void moved(brick_direction direction, Brick &from, Brick &to, std::uint64_t bytes, const void *key = nullptr) noexcept
{
    brick_moved(direction, from.number(), to.number(), key, bytes, nullptr);
}

class Span {
public:
    [[nodiscard]] explicit Span(Brick &brick, const void *key = nullptr) noexcept : number_(brick.number()), key_(key)
    {
        brick_begin(number_, key_, nullptr);
    }
    ~Span() { brick_end_of(number_, key_, &did_); }
    Span(const Span &) = delete;
    Span &operator=(const Span &) = delete;

    void amounts(std::uint64_t elements, std::uint64_t bytes = 0, double flops = 0) noexcept
    {
        did_ = {elements, bytes, flops};
    }

private:
    const std::uint32_t number_;
    const void *const key_;
    brick_amounts did_ = {};
};

class Step {
public:
    [[nodiscard]] Step(Brick &kind, std::uint64_t step, std::uint64_t rows, std::uint64_t valid,
                       const void *key = nullptr) noexcept
        : number_(kind.number()), key_(key), rows_(rows), valid_(valid)
    {
        brick_begin(number_, key_, &step);
    }
    ~Step() { brick_step_end(number_, key_, rows_, valid_); }
    Step(const Step &) = delete;
    Step &operator=(const Step &) = delete;

private:
    const std::uint32_t number_;
    const void *const key_;
    const std::uint64_t rows_, valid_;
};

class Layer {
public:
    [[nodiscard]] explicit Layer(std::uint32_t layer, const void *key = nullptr) noexcept : layer_(layer), key_(key)
    {
        brick_layer_begin(layer_, key_);
    }
    ~Layer() { brick_layer_end(layer_, key_); }
    Layer(const Layer &) = delete;
    Layer &operator=(const Layer &) = delete;

private:
    const std::uint32_t layer_;
    const void *const key_;
};

} /* namespace brick */

#endif
