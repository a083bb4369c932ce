// SPDX-License-Identifier: Apache-2.0
// Which bytes the launches of one plan touch, and which of them may run in parts: from what the compiler wrote down of
// each kernel (compiler/ir/access.h).
//
// Nodes that no kernel can tell apart are one kind: an answer is worked out once a kind, candidate and box, so that
// graphs of a million equal nodes cost a look-up each. After kAccessEvaluationsMax answers everything new is whole
// buffers: a plan must not take longer than it saves. Parts of launches that are known to be planned (Admit) are
// answered whatever was asked before: parts that touch whole buffers would be copied whole.
#ifndef HPVMD_ENGINE_ACCESS_H_
#define HPVMD_ENGINE_ACCESS_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/prepared_graph.h"
#include "graph/flatten.h"
#include "scheduler/task.h"

namespace hpvm::engine {

inline constexpr size_t kAccessEvaluationsMax = 20'000;

// One thread at a time.
class GraphAccesses final : public scheduler::AccessModel {
 public:
  // Both are borrowed.
  GraphAccesses(const PreparedGraph& prepared, const graph::FlatGraph& flat);

  scheduler::PortAccess Of(graph::FlatNodeId node, uint32_t choice, const scheduler::Box& box,
                           uint32_t port) const override;
  // Works out what these parts of launches touch; tasks that are whole launches are left for whoever asks.
  void Admit(std::span<const scheduler::Task> tasks) const;

  // In multiples of the group, on the outermost dimension that has more than one.
  bool MayCut(graph::FlatNodeId node, uint32_t choice, uint32_t* dimension, uint64_t* grain) const override;

 private:
  using Key = std::vector<uint64_t>;
  struct HashKey {
    size_t operator()(const Key& key) const;
  };

  // The kind of `node`, for which `scratch_` is overwritten.
  uint32_t KindOf(uint32_t node) const;
  // One a port of the node's leaf, from the result on in `accesses_`. kNoKind: not known, and there are `most` answers.
  uint32_t Find(uint32_t node, uint32_t choice, const scheduler::Box& box, size_t most) const;
  void Evaluate(uint32_t node, uint32_t choice, const scheduler::Box& box, scheduler::PortAccess* out) const;
  // Scalars of the leaf that some candidate's offsets depend on, by position in the leaf's scalars.
  const std::vector<bool>& NamedScalars(graph::NodeId leaf) const;

  const PreparedGraph& prepared_;
  const graph::FlatGraph& flat_;
  mutable std::unordered_map<uint32_t, std::vector<bool>> named_scalars_;  // By leaf.
  mutable std::vector<uint32_t> kinds_;                                    // By node; kNoKind: not asked for yet.
  mutable std::unordered_map<Key, uint32_t, HashKey> kind_by_key_;
  mutable std::unordered_map<Key, uint32_t, HashKey> found_;  // By kind, candidate and box: first in accesses_.
  mutable std::vector<scheduler::PortAccess> accesses_;
  mutable Key scratch_;
  // The last question: all ports of a task are asked for one after another.
  mutable uint32_t last_node_ = ~0u, last_choice_ = 0, last_first_ = 0;
  mutable scheduler::Box last_box_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_ACCESS_H_
