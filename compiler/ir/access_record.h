// SPDX-License-Identifier: Apache-2.0
// Records which instances accessed which bytes of shared memory; for the checker.
//
// The record keeps enough per byte to find a race on the byte if there is one, but not every race: the last plain
// write, and two reads and two atomic accesses by different instances. A page has cells of 4 bytes until an access
// does not consist of aligned words, and has no cells for atomics until there is an atomic access.
#ifndef HPVMD_COMPILER_IR_ACCESS_RECORD_H_
#define HPVMD_COMPILER_IR_ACCESS_RECORD_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace hpvm::ir {

// An access. Stamps increase: each group begins with a new stamp, and each barrier of a group takes the next one.
// Each instance of a kernel that does not run by groups counts as a group.
struct Mark {
  static constexpr uint32_t kSiteBits = 22;
  static constexpr uint32_t kSitesMax = 1u << kSiteBits;

  uint32_t stamp = 0;  // 0 when there is no access.
  uint32_t who = 0;    // The instance's number in its group, in the bits above the operation's site.

  uint32_t local() const { return who >> kSiteBits; }
  uint32_t site() const { return who & (kSitesMax - 1); }
};

enum class AccessKind : uint8_t { kRead, kWrite, kAtomicRead, kAtomicWrite };
constexpr bool IsWrite(AccessKind kind) { return kind == AccessKind::kWrite || kind == AccessKind::kAtomicWrite; }
constexpr bool IsAtomic(AccessKind kind) { return kind >= AccessKind::kAtomicRead; }

// The access in progress, and its group's first stamp.
struct CurrentAccess {
  AccessKind kind;
  Mark mark;
  uint32_t group_stamp = 0;

  // Returns true when nothing orders `earlier` before this access: it is by another group, or by another instance
  // between the same two barriers.
  bool IsConcurrentWith(const Mark& earlier) const {
    return earlier.stamp != 0 &&
           (earlier.stamp < group_stamp || (earlier.stamp == mark.stamp && earlier.local() != mark.local()));
  }
};

class AccessRecord {
 public:
  struct Conflict {
    uint64_t offset = 0;  // The first byte that both accesses touch.
    Mark earlier;
    AccessKind kind = AccessKind::kRead;  // Kind of the earlier access.
  };

  // `bytes_left` is the number of bytes that records may still allocate; it is shared and outlives the record.
  AccessRecord(uint64_t bytes, uint64_t* bytes_left) : bytes_left_(bytes_left), pages_((bytes + kPage - 1) / kPage) {}

  // Adds an access to [offset, offset + bytes), which must lie within the memory; returns the first conflict with
  // earlier accesses.
  std::optional<Conflict> Add(const CurrentAccess& access, uint64_t offset, uint64_t bytes);
  // Returns the first byte of the range that no access has written.
  std::optional<uint64_t> FirstUnwritten(uint64_t offset, uint64_t bytes) const;
  // Forgets all accesses.
  void Clear();
  // Returns false when an access was not recorded because no bytes were left.
  bool is_complete() const { return is_complete_; }

 private:
  static constexpr uint64_t kPage = 4096;

  // An access, and an access by another instance that can conflict with later accesses with which the first one does
  // not.
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
    std::vector<Atomic> atomic;  // Empty, or one per cell.
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
