// SPDX-License-Identifier: Apache-2.0
// The work that ours and every peer do in chain, wide and dag cases: tiny tasks, each updating one buffer in place,
// some reading another.
#ifndef HPVMD_BENCH_WORKLOAD_H_
#define HPVMD_BENCH_WORKLOAD_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace hpvm::bench {

inline constexpr uint32_t kBufferElements = 16;
using Elements = std::array<uint32_t, kBufferElements>;
inline constexpr uint32_t kNoBuffer = 0xffffffffu;

struct Task {
  uint32_t buffer = 0;         // Updated: e = 3e + 1, or e = 3e + other.
  uint32_t other = kNoBuffer;  // Read.
};

// Tasks in program order: a task sees what earlier ones wrote.
struct Workload {
  std::vector<Elements> buffers;  // As they are before the first task.
  std::vector<Task> tasks;
  // Not 0: tasks read another buffer and take so many steps of a generator, one after the other, each instead of the
  // update above. The last element of every buffer holds the number.
  uint32_t steps = 0;
};

// One buffer, every task after the one before.
Workload MakeChain(uint32_t tasks);
// 250 buffers, each with a chain of its own: 250 tasks may run at any time.
Workload MakeWide(uint32_t tasks);
// 64 buffers; each task updates one at random and reads another.
Workload MakeDag(uint32_t tasks);

// A DAG of tasks that take so many steps.
Workload MakeGrind(uint32_t tasks, uint32_t steps);

// The update itself, for peers; the Wasm kernels (bench/kernels.c) do the same.
void Step(Elements& data);
void Mix(const Elements& other, Elements& data);
void Grind(const Elements& other, Elements& data);
// What one task of the workload does to its buffers.
void RunTask(const Workload& workload, const Task& task, std::vector<Elements>& buffers);
// What a step of Grind takes here, in nanoseconds: the least of many measurements.
double GrindStepNs();

// What the buffers hold after all tasks.
std::vector<Elements> Evaluate(const Workload& workload);

// The graph document: inputs b0.., outputs o0.., one node a task; with `device`, restricted to that one.
std::string ToDocument(const Workload& workload, const std::string& device = "");

// For each task the earlier tasks that it must follow: the last writer of what it touches, and the readers since of
// what it writes.
std::vector<std::vector<uint32_t>> Predecessors(const Workload& workload);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_WORKLOAD_H_
