/* engine.cpp - the engine of engine.c in C++17: spans that end by themselves.
 *
 *   $ mkdir -p objects && cd objects && gcc -O2 -pthread -I../../include -c ../../src/writer/[a-z]*.c ../../src/fingerprint/[a-z]*.c
 *   $ ar rcs libbrick.a objects/[a-z]*.o
 *   $ g++ -std=c++17 -O2 -Wall -Wextra -pthread -I../include engine.cpp libbrick.a -o engine
 *   $ ./engine 4 200
 *
 * What to copy: bricks are globals, which do not open the segment. brick_init runs before the threads start, so that no
 * thread records while the segment is opening. A span is an object, which also ends on an exception. A device's work is
 * a number until the host has waited for it.
 */
#include "brick_agent.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t layers = 4, rows = 8, width = 64;
using Batch = std::array<std::array<float, width>, rows>;
using Matrix = std::array<std::array<float, width>, width>;

brick::Brick request_brick("request", "step"), upload_brick("upload", "transfer"), copy_brick("copy", "transfer"),
    norm_brick("norm", "norm"), gemm_brick("gemm", "ffn"), gemm_kernel("gemm_8x64", "kernel"), host("host"), device("device");

void norm(Batch &x)
{
    brick::Span span(norm_brick);
    span.amounts(rows * width, sizeof x);
    for (auto &row : x) {
        float squares = 1e-6f;
        for (float value : row)
            squares += value * value;
        if (!std::isfinite(squares))
            throw std::domain_error("a value is not finite");
        for (float &value : row)
            value /= std::sqrt(squares / width);
    }
}

Batch gemm(const Batch &x, const Matrix &w)
{
    brick::Span span(gemm_brick);
    span.amounts(rows * width, 2 * sizeof x + sizeof w);
    gemm_kernel.launched({{rows, 1, 1}, {width, 1, 1}, sizeof w, 0, 0}); /* gemm_8x64<<<rows, width, sizeof w>>>(...) */
    Batch y{};
    for (std::size_t row = 0; row < rows; row++)
        for (std::size_t to = 0; to < width; to++)
            for (std::size_t from = 0; from < width; from++)
                y[row][to] += x[row][from] * w[to][from];
    return y;
}

void forward(const std::vector<Matrix> &model, Batch &x)
{
    for (std::uint32_t n = 0; n < model.size(); n++) {
        brick::Layer layer(n);
        norm(x);
        x = gemm(x, model[n]);
    }
}

/* Stands for a library with its own clock: returns the duration. One request in fifty arrives damaged. */
std::chrono::nanoseconds copy_in(Batch &x, std::uint64_t request)
{
    const auto from = std::chrono::steady_clock::now();
    std::uint64_t i = request;
    for (auto &row : x)
        for (float &value : row)
            value = static_cast<float>(i++ % 17) - 8;
    if (request % 50 == 0)
        x[rows - 1][0] = NAN;
    return std::chrono::steady_clock::now() - from;
}

/* Sends the weights to a device on this thread's stream. The host does other work until it waits for that stream. */
void upload(const std::vector<Matrix> &model, std::uint64_t stream)
{
    const brick::Deferred work = upload_brick.defer(stream, model.size() * width * width, model.size() * sizeof model[0]);
    brick::moved(BRICK_TO_DEVICE, host, device, model.size() * sizeof model[0]);
    /* cudaMemcpyAsync(..., stream); cudaEventRecord(...); ...; cudaStreamSynchronize(stream); */
    work.measured(85000); /* the result of cudaEventElapsedTime; without it, brickd shows a bound */
    brick::finalize(stream);
}

void serve(const std::vector<Matrix> &model, std::uint64_t request)
{
    brick::Step step(request_brick, request, rows, rows);
    Batch x;
    const std::chrono::nanoseconds elapsed = copy_in(x, request);
    copy_brick.record(static_cast<std::uint64_t>(elapsed.count()), rows * width, sizeof x);
    forward(model, x);
}

} /* namespace */

int main(int count, char **arguments)
{
    const int many = count == 3 ? std::atoi(arguments[1]) : 0;
    if (many < 1) {
        std::fprintf(stderr, "usage: engine THREADS REQUESTS\n");
        return 2;
    }
    const unsigned long long requests = std::strtoull(arguments[2], nullptr, 10);
    std::vector<Matrix> model(layers);
    int i = 0;
    for (Matrix &matrix : model)
        for (auto &row : matrix)
            for (float &weight : row)
                weight = static_cast<float>(i++ % 13 - 6) / width;

    brick_init(nullptr); /* the service's name comes from the environment, else from the program's name */
    std::atomic<unsigned long long> next{0}, failed{0};
    std::vector<std::thread> threads;
    for (int n = 0; n < many; n++)
        threads.emplace_back([&, n] {
            upload(model, static_cast<std::uint64_t>(n));
            for (unsigned long long request; (request = next++) < requests;)
                try {
                    serve(model, request);
                } catch (const std::domain_error &) {
                    failed++;
                }
        });
    for (std::thread &thread : threads)
        thread.join();
    std::printf("%llu requests, %llu failed\n", requests, failed.load());
    return 0;
}
