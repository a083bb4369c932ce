// SPDX-License-Identifier: Apache-2.0
// The work of ours and every peer in chain, wide and dag cases: tiny tasks, each of which updates one buffer in place
// and may read another.
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

// Tasks in program order: a task sees the writes of earlier ones.
struct Workload {
  std::vector<Elements> buffers;  // Contents before the first task.
  std::vector<Task> tasks;
  // When not 0, each task reads another buffer and takes this many steps of a generator, one after the other, instead
  // of the update above. The last element of every buffer holds the generator's state.
  uint32_t steps = 0;
};

// One buffer, every task after the previous one.
Workload MakeChain(uint32_t tasks);
// 250 buffers, each with a chain of its own: 250 tasks may run at any time.
Workload MakeWide(uint32_t tasks);
// 64 buffers; each task updates one at random and reads another.
Workload MakeDag(uint32_t tasks);

// A DAG of tasks that take this many steps.
Workload MakeGrind(uint32_t tasks, uint32_t steps);

// The update itself, for peers; the Wasm kernels (bench/kernels.c) do the same.
void Step(Elements& data);
void Mix(const Elements& other, Elements& data);
void Grind(const Elements& other, Elements& data);
// Applies one task of the workload to its buffers.
void RunTask(const Workload& workload, const Task& task, std::vector<Elements>& buffers);
// Returns the nanoseconds of a step of Grind on this machine: the minimum of many measurements.
double GrindStepNs();

// Returns the contents of the buffers after all tasks.
std::vector<Elements> Evaluate(const Workload& workload);

// Returns the graph document: inputs b0.., outputs o0.., one node per task; with `device`, restricted to that one.
std::string ToDocument(const Workload& workload, const std::string& device = "");

// Returns for each task its predecessors: the last writer of each buffer that it uses, and the readers since then of
// the one that it writes.
std::vector<std::vector<uint32_t>> Predecessors(const Workload& workload);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_WORKLOAD_H_
