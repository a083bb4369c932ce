// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/proof_cache.h"

namespace hpvm::backends {

ProofParams ProofParamsOf(const Artifact& artifact) {
  std::vector<bool> is_used(artifact.params.size());
  for (const ir::Atom& atom : artifact.bounds.atoms) {
    if (atom.kind == ir::Atom::Kind::kScalar || atom.kind == ir::Atom::Kind::kBufferBytes) {
      is_used[atom.index] = true;
    }
  }
  for (const std::vector<ir::BoundsAccess>* accesses : {&artifact.bounds.accesses, &artifact.bounds.by_words}) {
    for (const ir::BoundsAccess& access : *accesses) {
      if (access.param != ir::BoundsAccess::kGroupMemory) {
        is_used[access.param] = true;
      }
    }
  }
  const std::vector<bool> has_words = ir::FindWordParams(artifact.bounds);
  ProofParams params;
  for (uint32_t i = 0; i < is_used.size(); ++i) {
    if (is_used[i]) {
      params.used.push_back(i);
    }
    if (artifact.params[i].is_buffer) {
      params.buffers.push_back(i);
    }
    if (i < has_words.size() && has_words[i]) {
      params.words.push_back(i);
    }
  }
  return params;
}

}  // namespace hpvm::backends
