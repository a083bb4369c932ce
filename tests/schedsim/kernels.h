// SPDX-License-Identifier: Apache-2.0
// Simulated kernels and graphs of them.
#ifndef HPVMD_TESTS_SCHEDSIM_KERNELS_H_
#define HPVMD_TESTS_SCHEDSIM_KERNELS_H_

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "scheduler/placement/placement.h"
#include "scheduler/residency/residency.h"

namespace hpvm::schedsim {

// Relation of a port's bytes to the instances along dimension 0.
enum class Pattern : uint8_t { kWhole, kRows, kHalo, kFixed };

struct SimPort {
  graph::Access access = graph::Access::kIn;
  Pattern pattern = Pattern::kWhole;
  bool overwrites = false;
};

struct SimKernel {
  std::vector<SimPort> ports;
  uint64_t grain = 1;
  bool may_cut = false;
};

// Accesses by kernel (the leaf) and port: the same for every node of a kernel.
class SimAccesses final : public scheduler::AccessModel {
 public:
  // Borrows both.
  SimAccesses(const graph::FlatGraph& flat, const std::vector<SimKernel>& kernels) : flat_(flat), kernels_(kernels) {}
  scheduler::PortAccess Of(graph::FlatNodeId node, uint32_t choice, const scheduler::Box& box,
                           uint32_t port) const override;
  bool MayCut(graph::FlatNodeId node, uint32_t choice, uint32_t* dimension, uint64_t* grain) const override;

 private:
  const graph::FlatGraph& flat_;
  const std::vector<SimKernel>& kernels_;
};

struct SimMachine {
  std::vector<scheduler::DeviceFacts> devices;  // Includes the disk at the end when `spaces` are limited.
  std::vector<scheduler::SpaceFacts> spaces;    // No limits when empty.
  uint32_t computing = 0;                       // The first devices run kernels.
};

struct SimGraph {
  graph::FlatGraph flat;
  std::vector<SimKernel> kernels;                             // Indexed by leaf.
  std::vector<std::vector<scheduler::Candidate>> candidates;  // Indexed by leaf.
  std::vector<scheduler::Carry> carries;
  std::vector<uint32_t> on_host;
};

SimMachine MakeMachine(Rng& rng);
SimGraph MakeGraph(Rng& rng, const SimMachine& machine);
// Limits each space to the buffers of any one launch, or a little more; adds a disk below.
void LimitMemory(Rng& rng, const SimGraph& graph, SimMachine* machine);
// Returns the bytes that one launch needs at once.
uint64_t Footprint(const graph::FlatGraph& flat, uint32_t node);
uint32_t PortsEnd(const graph::FlatGraph& flat, uint32_t node);

}  // namespace hpvm::schedsim

#endif  // HPVMD_TESTS_SCHEDSIM_KERNELS_H_
