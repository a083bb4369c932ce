// SPDX-License-Identifier: Apache-2.0
// Computes which bytes the launches of one plan access, and which launches may run in parts, from the compiler's
// record of each kernel (compiler/ir/access.h).
//
// Nodes with equal access behaviour form one kind: an answer is computed once per kind, candidate and box, so that
// graphs of a million equal nodes cost one look-up each. After kAccessEvaluationsMax answers every new question gets
// whole buffers, because a plan must not take longer than it saves. Admit answers for parts of launches that are
// certain to be planned, whatever the number of earlier questions: parts that access whole buffers would copy them
// whole.
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

// Not thread-safe.
class GraphAccesses final : public scheduler::AccessModel {
 public:
  // Both are borrowed.
  GraphAccesses(const PreparedGraph& prepared, const graph::FlatGraph& flat);

  scheduler::PortAccess Of(graph::FlatNodeId node, uint32_t choice, const scheduler::Box& box,
                           uint32_t port) const override;
  // Computes the accesses of these parts of launches; tasks that are whole launches are computed when asked for.
  void Admit(std::span<const scheduler::Task> tasks) const;

  // Cuts in multiples of the group, along the outermost dimension that has more than one.
  bool MayCut(graph::FlatNodeId node, uint32_t choice, uint32_t* dimension, uint64_t* grain) const override;

 private:
  using Key = std::vector<uint64_t>;
  struct HashKey {
    size_t operator()(const Key& key) const;
  };

  // Returns the kind of `node`; overwrites `scratch_`.
  uint32_t KindOf(uint32_t node) const;
  // Returns the index in `accesses_` of the answers, one per port of the node's leaf; kNoKind when the answer is
  // unknown and there are `most` answers already.
  uint32_t Find(uint32_t node, uint32_t choice, const scheduler::Box& box, size_t most) const;
  void Evaluate(uint32_t node, uint32_t choice, const scheduler::Box& box, scheduler::PortAccess* out) const;
  // Returns, by position in the leaf's scalars, true for scalars that some candidate's offsets depend on.
  const std::vector<bool>& NamedScalars(graph::NodeId leaf) const;

  const PreparedGraph& prepared_;
  const graph::FlatGraph& flat_;
  mutable std::unordered_map<uint32_t, std::vector<bool>> named_scalars_;  // Keyed by leaf.
  mutable std::vector<uint32_t> kinds_;  // Indexed by node; kNoKind when not asked for yet.
  mutable std::unordered_map<Key, uint32_t, HashKey> kind_by_key_;
  mutable std::unordered_map<Key, uint32_t, HashKey> found_;  // Keyed by kind, candidate and box: index of the first
                                                              // answer in accesses_.
  mutable std::vector<scheduler::PortAccess> accesses_;
  mutable Key scratch_;
  // The last question, because callers ask for all ports of a task one after another.
  mutable uint32_t last_node_ = ~0u, last_choice_ = 0, last_first_ = 0;
  mutable scheduler::Box last_box_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_ACCESS_H_
