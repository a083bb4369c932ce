// SPDX-License-Identifier: Apache-2.0
// What a launch shows of a kernel's accesses (ir::ProveBounds), remembered for the launches that look alike.
//
// A key holds the values the answer depends on, and is compared whole: a wrong answer would let code without checks
// run.
#ifndef HPVMD_BACKENDS_SHARED_PROOF_CACHE_H_
#define HPVMD_BACKENDS_SHARED_PROOF_CACHE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/shared/launch_class.h"
#include "compiler/artifact.h"
#include "compiler/ir/bounds.h"

namespace hpvm {

// Unchecked code computes offsets in 32 bits.
inline constexpr uint64_t kProvenBytesMax = uint64_t{1} << 31;

// Which parameters a proof looks at.
struct ProofParams {
  std::vector<uint32_t> used;     // Those that the program names.
  std::vector<uint32_t> buffers;  // Those that are buffers.
};
ProofParams ProofParamsOf(const Artifact& artifact);

// `Argument` is what a device keeps of an argument; kFactOf(param, argument) is what the bounds program sees of it: a
// buffer's bytes, a scalar's bits. `Known` is what the device keeps of launches that look alike.
template <typename Argument, uint64_t (*kFactOf)(const ir::KernelParam&, const Argument&), typename Known>
class ProofCache {
 public:
  // Keeps what it needs of `artifact`.
  explicit ProofCache(const Artifact& artifact)
      : bounds_(artifact.bounds), params_(artifact.params), named_(ProofParamsOf(artifact)) {
    for (Entry& entry : entries_) {
      entry.key.resize(kShape + named_.used.size());
    }
  }

  struct Launch {
    Extent extent{1, 1, 1}, group{1, 1, 1};
    std::span<const Argument> arguments;  // One a parameter of the artifact.
    // How many instances run, where that is not all of the extent: what is known of such launches is kept apart. What
    // is proven for the whole holds for its parts.
    Extent count{0, 0, 0};
  };

  // Whether accesses in the bounds program stay inside and no buffer passes kProvenBytesMax.
  bool Prove(const Launch& launch) const {
    if (HasLargeBuffer(launch)) {
      return false;
    }
    ir::BoundsFacts facts;
    facts.extent = launch.extent;
    facts.group = launch.group;
    for (size_t i = 0; i < params_.size(); ++i) {
      facts.params.push_back({params_[i].is_buffer, params_[i].is_writable, kFactOf(params_[i], launch.arguments[i]),
                              static_cast<uint8_t>(8 * ir::Bytes(params_[i].type))});
    }
    return ir::ProveBounds(bounds_, facts);
  }

  // What is remembered for launches like this; null when there is nothing, or when another thread is here. Allocates
  // nothing.
  Known* Find(const Launch& launch) {
    const bool has_large = HasLargeBuffer(launch);
    if (!TryLock()) {
      return nullptr;
    }
    Known* found = nullptr;
    for (size_t i = 0; i < kEntries && found == nullptr; ++i) {
      const size_t at = (last_ + i) % kEntries;
      if (Matches(entries_[at], launch, has_large)) {
        found = entries_[at].known;
        last_ = at;
      }
    }
    Unlock();
    return found;
  }

  void Remember(const Launch& launch, Known* known) {
    const bool has_large = HasLargeBuffer(launch);
    if (!TryLock()) {
      return;  // Another thread is here: the next launch tries again.
    }
    Entry& entry = entries_[next_];
    last_ = next_;
    next_ = (next_ + 1) % kEntries;
    uint64_t* key = std::copy(launch.extent.begin(), launch.extent.end(), entry.key.data());
    key = std::copy(launch.group.begin(), launch.group.end(), key);
    key = std::copy(launch.count.begin(), launch.count.end(), key);
    *key++ = has_large ? 1 : 0;
    for (uint32_t i : named_.used) {
      *key++ = kFactOf(params_[i], launch.arguments[i]);
    }
    entry.known = known;
    Unlock();
  }

 private:
  static constexpr size_t kEntries = 8;  // A kernel that several nodes use is launched with as many sizes.
  // Words before the parameters': extent, group, count, whether a buffer is large.
  static constexpr size_t kShape = 10;
  struct Entry {
    Known* known = nullptr;
    std::vector<uint64_t> key;
  };

  bool Matches(const Entry& entry, const Launch& launch, bool has_large) const {
    const uint64_t* key = entry.key.data();
    if (entry.known == nullptr || !std::equal(launch.extent.begin(), launch.extent.end(), key) ||
        !std::equal(launch.group.begin(), launch.group.end(), key + 3) ||
        !std::equal(launch.count.begin(), launch.count.end(), key + 6) || key[9] != (has_large ? 1 : 0)) {
      return false;
    }
    key += kShape;
    for (uint32_t i : named_.used) {
      if (*key++ != kFactOf(params_[i], launch.arguments[i])) {
        return false;
      }
    }
    return true;
  }

  bool HasLargeBuffer(const Launch& launch) const {
    uint64_t most = 0;
    for (uint32_t i : named_.buffers) {
      most = std::max(most, kFactOf(params_[i], launch.arguments[i]));
    }
    return most > kProvenBytesMax;
  }

  bool TryLock() { return !is_busy_.test_and_set(std::memory_order_acquire); }
  void Unlock() { is_busy_.clear(std::memory_order_release); }

  const ir::BoundsProgram bounds_;
  const std::vector<ir::KernelParam> params_;
  const ProofParams named_;
  std::atomic_flag is_busy_ = ATOMIC_FLAG_INIT;
  std::array<Entry, kEntries> entries_;  // Guarded by is_busy_.
  size_t next_ = 0;                      // Guarded by is_busy_.
  size_t last_ = 0;                      // Guarded by is_busy_; where the last one was found.
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_SHARED_PROOF_CACHE_H_
