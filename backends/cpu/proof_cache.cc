// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/proof_cache.h"

#include <algorithm>

#include "compiler/ir/ir.h"

namespace hpvm::cpu {
namespace {

// Unchecked code computes offsets in 32 bits.
constexpr uint64_t kLargeBytes = uint64_t{1} << 31;

// What of an argument the program sees.
uint64_t FactOf(const ir::KernelParam& param, const ir::CpuArgument& argument) {
  return param.is_buffer ? argument.bytes : argument.base;
}

}  // namespace

ProofCache::ProofCache(const Artifact& artifact) : bounds_(artifact.bounds), params_(artifact.params) {
  std::vector<bool> is_used(params_.size());
  for (const ir::Atom& atom : bounds_.atoms) {
    if (atom.kind == ir::Atom::Kind::kScalar || atom.kind == ir::Atom::Kind::kBufferBytes) {
      is_used[atom.index] = true;
    }
  }
  for (const ir::BoundsAccess& access : bounds_.accesses) {
    if (access.param != ir::BoundsAccess::kGroupMemory) {
      is_used[access.param] = true;
    }
  }
  for (uint32_t i = 0; i < params_.size(); ++i) {
    if (is_used[i]) {
      used_.push_back(i);
    }
    if (params_[i].is_buffer) {
      buffers_.push_back(i);
    }
  }
  for (Entry& entry : entries_) {
    entry.key.resize(kShape + used_.size());
  }
}

bool ProofCache::HasLargeBuffer(const Launch& launch) const {
  uint64_t most = 0;
  for (uint32_t i : buffers_) {
    most = std::max(most, launch.arguments[i].bytes);
  }
  return most > kLargeBytes;
}

bool ProofCache::Prove(const Launch& launch) const {
  if (HasLargeBuffer(launch)) {
    return false;
  }
  ir::BoundsFacts facts;
  facts.extent = launch.extent;
  facts.group = launch.group;
  for (size_t i = 0; i < params_.size(); ++i) {
    facts.params.push_back({params_[i].is_buffer, params_[i].is_writable, FactOf(params_[i], launch.arguments[i]),
                            static_cast<uint8_t>(8 * ir::Bytes(params_[i].type))});
  }
  return ir::ProveBounds(bounds_, facts);
}

bool ProofCache::Matches(const Entry& entry, const Launch& launch, bool has_large) const {
  const uint64_t* key = entry.key.data();
  if (entry.launch_class == nullptr || !std::equal(launch.extent.begin(), launch.extent.end(), key) ||
      !std::equal(launch.group.begin(), launch.group.end(), key + 3) || key[6] != (has_large ? 1 : 0)) {
    return false;
  }
  key += kShape;
  for (uint32_t i : used_) {
    if (*key++ != FactOf(params_[i], launch.arguments[i])) {
      return false;
    }
  }
  return true;
}

LaunchClass* ProofCache::Find(const Launch& launch) {
  const bool has_large = HasLargeBuffer(launch);
  if (!TryLock()) {
    return nullptr;
  }
  LaunchClass* found = nullptr;
  for (size_t i = 0; i < kEntries && found == nullptr; ++i) {
    const size_t at = (last_ + i) % kEntries;
    if (Matches(entries_[at], launch, has_large)) {
      found = entries_[at].launch_class;
      last_ = at;
    }
  }
  Unlock();
  return found;
}

void ProofCache::Remember(const Launch& launch, LaunchClass* launch_class) {
  const bool has_large = HasLargeBuffer(launch);
  if (!TryLock()) {
    return;  // Another thread is here: the next launch tries again.
  }
  Entry& entry = entries_[next_];
  last_ = next_;
  next_ = (next_ + 1) % kEntries;
  uint64_t* key = std::copy(launch.extent.begin(), launch.extent.end(), entry.key.data());
  key = std::copy(launch.group.begin(), launch.group.end(), key);
  *key++ = has_large ? 1 : 0;
  for (uint32_t i : used_) {
    *key++ = FactOf(params_[i], launch.arguments[i]);
  }
  entry.launch_class = launch_class;
  Unlock();
}

}  // namespace hpvm::cpu
