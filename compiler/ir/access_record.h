// SPDX-License-Identifier: Apache-2.0
// Who touched which bytes of a stretch of memory that instances share; for the checker.
//
// What is kept of each byte is enough to find a race on it if there is one, not every race: the last plain write, and
// of reads and of atomic accesses two of different instances. A page keeps it by words of 4 bytes until an access does
// not consist of such words, and nothing about atomics until there is one.
#ifndef HPVMD_COMPILER_IR_ACCESS_RECORD_H_
#define HPVMD_COMPILER_IR_ACCESS_RECORD_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace hpvm::ir {

// An access. Stamps grow: each group has one more than the group before it, and each barrier of a group takes the next.
// Instances that do not run by groups are each a group.
struct Mark {
  static constexpr uint32_t kSiteBits = 22;
  static constexpr uint32_t kSitesMax = 1u << kSiteBits;

  uint32_t stamp = 0;  // 0: no access.
  uint32_t who = 0;    // The instance's number in its group, above the operation's site.

  uint32_t local() const { return who >> kSiteBits; }
  uint32_t site() const { return who & (kSitesMax - 1); }
};

enum class AccessKind : uint8_t { kRead, kWrite, kAtomicRead, kAtomicWrite };
constexpr bool IsWrite(AccessKind kind) { return kind == AccessKind::kWrite || kind == AccessKind::kAtomicWrite; }
constexpr bool IsAtomic(AccessKind kind) { return kind >= AccessKind::kAtomicRead; }

// The access that is being made, and its group's first stamp.
struct CurrentAccess {
  AccessKind kind;
  Mark mark;
  uint32_t group_stamp = 0;

  // Whether nothing orders an earlier access before this one: another group, or another instance between the same two
  // barriers.
  bool IsConcurrentWith(const Mark& earlier) const {
    return earlier.stamp != 0 &&
           (earlier.stamp < group_stamp || (earlier.stamp == mark.stamp && earlier.local() != mark.local()));
  }
};

class AccessRecord {
 public:
  struct Conflict {
    uint64_t offset = 0;  // The first byte that both touch.
    Mark earlier;
    AccessKind kind = AccessKind::kRead;  // The earlier one's.
  };

  // `bytes_left` is what records may still allocate; shared, and longer-lived.
  AccessRecord(uint64_t bytes, uint64_t* bytes_left) : bytes_left_(bytes_left), pages_((bytes + kPage - 1) / kPage) {}

  // Adds an access to [offset, offset + bytes), which must lie within, and gives the first conflict with those before.
  std::optional<Conflict> Add(const CurrentAccess& access, uint64_t offset, uint64_t bytes);
  // The first byte of the range that nothing has written.
  std::optional<uint64_t> FirstUnwritten(uint64_t offset, uint64_t bytes) const;
  // Forgets all accesses.
  void Clear();
  // False when an access was not recorded because no bytes were left.
  bool is_complete() const { return is_complete_; }

 private:
  static constexpr uint64_t kPage = 4096;

  // One access, and if there was one by another instance that later accesses may conflict with where they do not with
  // the first, that too.
  struct MarkPair {
    Mark first, other;

    void Add(const CurrentAccess& access);
    const Mark* Concurrent(const CurrentAccess& access) const {
      return access.IsConcurrentWith(first) ? &first : access.IsConcurrentWith(other) ? &other : nullptr;
    }
  };
  struct Plain {
    Mark write;
    MarkPair reads;
  };
  struct Atomic {
    MarkPair reads, writes;
  };
  struct Page {
    uint64_t cell_bytes = 4;  // 4 or 1.
    std::vector<Plain> plain;
    std::vector<Atomic> atomic;  // Empty, or one a cell.
  };

  Page* PageFor(uint64_t index, bool needs_bytes, bool needs_atomic);
  bool Take(uint64_t bytes);
  bool SplitWords(Page& page);
  static const Mark* FindConflict(const Page& page, size_t cell, const CurrentAccess& access, AccessKind* kind);
  static void Put(Page& page, size_t cell, const CurrentAccess& access);
  void AddInPage(Page& page, uint64_t page_begin, uint64_t begin, uint64_t end, const CurrentAccess& access,
                 std::optional<Conflict>& conflict);

  uint64_t* bytes_left_;
  std::vector<std::unique_ptr<Page>> pages_;
  bool is_complete_ = true;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_ACCESS_RECORD_H_
