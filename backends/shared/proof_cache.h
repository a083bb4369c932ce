// SPDX-License-Identifier: Apache-2.0
// ProofCache stores proofs of a kernel's accesses for launches (ir::ProveBounds), for reuse by equal launches.
//
// A key holds all values on which the answer depends, and is compared completely, because a wrong answer would let
// unchecked code run.
#ifndef HPVMD_BACKENDS_SHARED_PROOF_CACHE_H_
#define HPVMD_BACKENDS_SHARED_PROOF_CACHE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/shared/launch_class.h"
#include "compiler/api/artifact.h"
#include "compiler/ir/bounds.h"

namespace hpvm::backends {

// Unchecked code computes offsets in 32 bits.
inline constexpr uint64_t kProvenBytesMax = uint64_t{1} << 31;

// The parameters that a proof uses.
struct ProofParams {
  std::vector<uint32_t> used;     // Parameters that the program names.
  std::vector<uint32_t> buffers;  // Parameters that are buffers.
  std::vector<uint32_t> words;    // Parameters whose words it uses.
};
ProofParams ProofParamsOf(const Artifact& artifact);

// `Argument` is a device's representation of an argument; kFactOf(param, argument) is the value that the bounds program
// uses: a buffer's bytes, a scalar's bits; kWordsOf, if a device knows any, is the range of a buffer's words. `Known`
// is the data that the device stores for equal launches.
template <typename Argument, uint64_t (*kFactOf)(const ir::KernelParam&, const Argument&), typename Known,
          ir::WordRange (*kWordsOf)(const Argument&) = nullptr>
class ProofCache {
 public:
  // Copies what it needs of `artifact`.
  explicit ProofCache(const Artifact& artifact)
      : bounds_(artifact.bounds), params_(artifact.params), named_(ProofParamsOf(artifact)) {
    for (Entry& entry : entries_) {
      entry.key.reset(new std::atomic<uint64_t>[kShape + named_.used.size() + named_.words.size()]());
    }
  }

  struct Launch {
    Extent extent{1, 1, 1}, group{1, 1, 1};
    std::span<const Argument> arguments;  // One per parameter of the artifact.
    // The number of instances that run, when that is not the whole extent: data about such launches is stored
    // separately. Proofs for the whole hold for its parts.
    Extent count{0, 0, 0};
  };

  // Returns true when accesses in the bounds program stay inside and no buffer exceeds kProvenBytesMax.
  bool Prove(const Launch& launch) const {
    return !HasLargeBuffer(launch) && ir::ProveBounds(bounds_, FactsOf(launch));
  }
  // The same, including accesses that depend on words.
  bool ProveByWords(const Launch& launch) const {
    return !bounds_.by_words.empty() && !HasLargeBuffer(launch) && ir::ProveByWords(bounds_, FactsOf(launch));
  }

  // Returns the data stored for such a launch; null when there is none, or when another thread is writing. Allocates
  // nothing, and does not modify data that other threads read.
  Known* Find(const Launch& launch) {
    const bool has_large = HasLargeBuffer(launch);
    const uint32_t version = version_.load(std::memory_order_acquire);
    const size_t last = last_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < kEntries; ++i) {
      const size_t at = (last + i) % kEntries;
      Known* const known = Match(entries_[at], launch, has_large);
      if (known == nullptr) {
        continue;
      }
      // Modified meanwhile: the comparison may have mixed two entries.
      if (version % 2 != 0 || version_.load(std::memory_order_relaxed) != version) {
        return nullptr;
      }
      if (i != 0) {
        last_.store(at, std::memory_order_relaxed);
      }
      return known;
    }
    return nullptr;
  }

  void Remember(const Launch& launch, Known* known) {
    const bool has_large = HasLargeBuffer(launch);
    uint32_t version = version_.load(std::memory_order_relaxed);
    if (version % 2 != 0 || !version_.compare_exchange_strong(version, version + 1, std::memory_order_acquire)) {
      return;  // Another thread is writing: the next launch tries again.
    }
    Entry& entry = entries_[next_];
    last_.store(next_, std::memory_order_relaxed);
    next_ = (next_ + 1) % kEntries;
    // Each store is a release: a reader of any of them sees that the version is odd.
    std::atomic<uint64_t>* key = entry.key.get();
    const auto write = [&](uint64_t word) { key++->store(word, std::memory_order_release); };
    for (const Extent& part : {launch.extent, launch.group, launch.count}) {
      std::for_each(part.begin(), part.end(), write);
    }
    write(has_large ? 1 : 0);
    for (uint32_t i : named_.used) {
      write(kFactOf(params_[i], launch.arguments[i]));
    }
    for (uint32_t i : named_.words) {
      write(WordsKey(launch.arguments[i]));
    }
    entry.known.store(known, std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

 private:
  // A kernel used by several nodes is launched with as many sizes.
  static constexpr size_t kEntries = 8;
  // Words before the parameters': extent, group, count, and whether a buffer is large.
  static constexpr size_t kShape = 10;
  struct Entry {
    std::atomic<Known*> known{nullptr};
    std::unique_ptr<std::atomic<uint64_t>[]> key;
  };

  // Each load is an acquire: a version that is read later is not older.
  Known* Match(const Entry& entry, const Launch& launch, bool has_large) const {
    Known* const known = entry.known.load(std::memory_order_acquire);
    const std::atomic<uint64_t>* key = entry.key.get();
    const auto is_next = [&](uint64_t word) { return key++->load(std::memory_order_acquire) == word; };
    if (known == nullptr || !std::all_of(launch.extent.begin(), launch.extent.end(), is_next) ||
        !std::all_of(launch.group.begin(), launch.group.end(), is_next) ||
        !std::all_of(launch.count.begin(), launch.count.end(), is_next) || !is_next(has_large ? 1 : 0)) {
      return nullptr;
    }
    for (uint32_t i : named_.used) {
      if (!is_next(kFactOf(params_[i], launch.arguments[i]))) {
        return nullptr;
      }
    }
    for (uint32_t i : named_.words) {
      if (!is_next(WordsKey(launch.arguments[i]))) {
        return nullptr;
      }
    }
    return known;
  }

  static ir::WordRange WordsOf(const Argument& argument) {
    if constexpr (kWordsOf != nullptr) {
      return kWordsOf(argument);
    }
    return {};
  }
  static uint64_t WordsKey(const Argument& argument) {
    const ir::WordRange words = WordsOf(argument);
    return uint64_t{static_cast<uint32_t>(words.hi)} << 32 | static_cast<uint32_t>(words.lo);
  }

  ir::BoundsFacts FactsOf(const Launch& launch) const {
    ir::BoundsFacts facts;
    facts.extent = launch.extent;
    facts.group = launch.group;
    for (size_t i = 0; i < params_.size(); ++i) {
      facts.params.push_back({params_[i].is_buffer, params_[i].is_writable, kFactOf(params_[i], launch.arguments[i]),
                              static_cast<uint8_t>(8 * ir::Bytes(params_[i].type)), WordsOf(launch.arguments[i])});
    }
    return facts;
  }

  bool HasLargeBuffer(const Launch& launch) const {
    uint64_t most = 0;
    for (uint32_t i : named_.buffers) {
      most = std::max(most, kFactOf(params_[i], launch.arguments[i]));
    }
    return most > kProvenBytesMax;
  }

  const ir::BoundsProgram bounds_;
  const std::vector<ir::KernelParam> params_;
  const ProofParams named_;
  std::atomic<uint32_t> version_{0};     // Odd while an entry is written.
  std::array<Entry, kEntries> entries_;  // Written while version_ is odd, by the thread that made it odd.
  size_t next_ = 0;                      // Like entries_.
  std::atomic<size_t> last_{0};          // Index of the last match.
};

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_PROOF_CACHE_H_
