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
#include <memory>
#include <span>
#include <vector>

#include "backends/shared/launch_class.h"
#include "compiler/api/artifact.h"
#include "compiler/ir/bounds.h"

namespace hpvm::backends {

// Unchecked code computes offsets in 32 bits.
inline constexpr uint64_t kProvenBytesMax = uint64_t{1} << 31;

// Which parameters a proof looks at.
struct ProofParams {
  std::vector<uint32_t> used;     // Those that the program names.
  std::vector<uint32_t> buffers;  // Those that are buffers.
  std::vector<uint32_t> words;    // Those of which it asks for the words.
};
ProofParams ProofParamsOf(const Artifact& artifact);

// `Argument` is what a device keeps of an argument; kFactOf(param, argument) is what the bounds program sees of it: a
// buffer's bytes, a scalar's bits; kWordsOf, where a device knows any, the range of a buffer's words. `Known` is what
// the device keeps of launches that look alike.
template <typename Argument, uint64_t (*kFactOf)(const ir::KernelParam&, const Argument&), typename Known,
          ir::WordRange (*kWordsOf)(const Argument&) = nullptr>
class ProofCache {
 public:
  // Keeps what it needs of `artifact`.
  explicit ProofCache(const Artifact& artifact)
      : bounds_(artifact.bounds), params_(artifact.params), named_(ProofParamsOf(artifact)) {
    for (Entry& entry : entries_) {
      entry.key.reset(new std::atomic<uint64_t>[kShape + named_.used.size() + named_.words.size()]());
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
    return !HasLargeBuffer(launch) && ir::ProveBounds(bounds_, FactsOf(launch));
  }
  // The same of those that rest on words, too.
  bool ProveByWords(const Launch& launch) const {
    return !bounds_.by_words.empty() && !HasLargeBuffer(launch) && ir::ProveByWords(bounds_, FactsOf(launch));
  }

  // What is remembered for launches like this; null when there is nothing, or when another thread writes just now.
  // Allocates nothing, and writes nothing that other threads read.
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
      // Written meanwhile: what was compared may be of two entries.
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
      return;  // Another thread is here: the next launch tries again.
    }
    Entry& entry = entries_[next_];
    last_.store(next_, std::memory_order_relaxed);
    next_ = (next_ + 1) % kEntries;
    // Each is a release: whoever reads one of them sees that the version is odd.
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
  static constexpr size_t kEntries = 8;  // A kernel that several nodes use is launched with as many sizes.
  // Words before the parameters': extent, group, count, whether a buffer is large.
  static constexpr size_t kShape = 10;
  struct Entry {
    std::atomic<Known*> known{nullptr};
    std::unique_ptr<std::atomic<uint64_t>[]> key;
  };

  // Each read is an acquire: a version that is read later is not older.
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
  std::array<Entry, kEntries> entries_;  // Written while version_ is odd, by whoever made it so.
  size_t next_ = 0;                      // As entries_.
  std::atomic<size_t> last_{0};          // Where the last one was found.
};

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_PROOF_CACHE_H_
