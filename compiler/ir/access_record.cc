// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/access_record.h"

#include <type_traits>
#include <utility>

namespace hpvm::ir {

void AccessRecord::MarkPair::Add(const CurrentAccess& access) {
  const Mark& now = access.mark;
  if (first.stamp == 0) {
    first = now;
  } else if (first.stamp < access.group_stamp) {
    other = first;  // `first` is of an earlier group: it is concurrent with all accesses of the current group.
    first = now;
  } else if (first.stamp != now.stamp) {
    // `first` precedes the last barrier of this group: it is ordered with the rest of the group, and later groups
    // have `now`.
    first = now;
    other = other.stamp < access.group_stamp ? other : Mark{};
  } else if (first.local() != now.local() && other.stamp == 0) {
    other = now;
  }
}

bool AccessRecord::Take(uint64_t bytes) {
  if (bytes > *bytes_left_) {
    is_complete_ = false;
    return false;
  }
  *bytes_left_ -= bytes;
  return true;
}

// Turns cells of words into cells of bytes.
bool AccessRecord::SplitWords(Page& page) {
  if (!Take(kPage / 4 * 3 * (sizeof(Plain) + (page.atomic.empty() ? 0 : sizeof(Atomic))))) {
    return false;
  }
  const auto split = [](auto& cells) {
    std::remove_reference_t<decltype(cells)> bytes;
    bytes.reserve(4 * cells.size());
    for (const auto& cell : cells) {
      bytes.insert(bytes.end(), 4, cell);
    }
    cells = std::move(bytes);
  };
  split(page.plain);
  split(page.atomic);
  page.cell_bytes = 1;
  return true;
}

AccessRecord::Page* AccessRecord::PageFor(uint64_t index, bool needs_bytes, bool needs_atomic) {
  std::unique_ptr<Page>& page = pages_[index];
  if (page == nullptr) {
    if (!Take(sizeof(Page) + kPage / 4 * sizeof(Plain))) {
      return nullptr;
    }
    page = std::make_unique<Page>();
    page->plain.resize(kPage / 4);
  }
  if (needs_bytes && page->cell_bytes != 1 && !SplitWords(*page)) {
    return nullptr;
  }
  if (needs_atomic && page->atomic.empty()) {
    if (!Take(page->plain.size() * sizeof(Atomic))) {
      return nullptr;
    }
    page->atomic.resize(page->plain.size());
  }
  return page.get();
}

const Mark* AccessRecord::FindConflict(const Page& page, size_t cell, const CurrentAccess& access, AccessKind* kind) {
  const Plain& plain = page.plain[cell];
  if (access.IsConcurrentWith(plain.write)) {
    *kind = AccessKind::kWrite;
    return &plain.write;
  }
  if (IsWrite(access.kind)) {
    *kind = AccessKind::kRead;
    if (const Mark* found = plain.reads.Concurrent(access); found != nullptr) {
      return found;
    }
  }
  if (page.atomic.empty() || IsAtomic(access.kind)) {
    return nullptr;
  }
  *kind = AccessKind::kAtomicWrite;
  if (const Mark* found = page.atomic[cell].writes.Concurrent(access); found != nullptr) {
    return found;
  }
  *kind = AccessKind::kAtomicRead;
  return IsWrite(access.kind) ? page.atomic[cell].reads.Concurrent(access) : nullptr;
}

void AccessRecord::Put(Page& page, size_t cell, const CurrentAccess& access) {
  switch (access.kind) {
    case AccessKind::kRead:
      return page.plain[cell].reads.Add(access);
    case AccessKind::kWrite:
      page.plain[cell].write = access.mark;
      return;
    case AccessKind::kAtomicRead:
      return page.atomic[cell].reads.Add(access);
    case AccessKind::kAtomicWrite:
      return page.atomic[cell].writes.Add(access);
  }
}

void AccessRecord::AddInPage(Page& page, uint64_t page_begin, uint64_t begin, uint64_t end, const CurrentAccess& access,
                             std::optional<Conflict>& conflict) {
  for (uint64_t at = begin; at < end; at += page.cell_bytes) {
    const size_t cell = (at - page_begin) / page.cell_bytes;
    AccessKind kind;
    if (!conflict.has_value()) {
      if (const Mark* earlier = FindConflict(page, cell, access, &kind); earlier != nullptr) {
        conflict = Conflict{at, *earlier, kind};
      }
    }
    Put(page, cell, access);
  }
}

std::optional<AccessRecord::Conflict> AccessRecord::Add(const CurrentAccess& access, uint64_t offset, uint64_t bytes) {
  std::optional<Conflict> conflict;
  const bool needs_bytes = offset % 4 != 0 || bytes % 4 != 0;
  for (uint64_t at = offset; at < offset + bytes;) {
    const uint64_t page_begin = at / kPage * kPage;
    const uint64_t end = std::min(offset + bytes, page_begin + kPage);
    if (Page* page = PageFor(at / kPage, needs_bytes, IsAtomic(access.kind)); page != nullptr) {
      AddInPage(*page, page_begin, at, end, access, conflict);
    }
    at = end;
  }
  return conflict;
}

std::optional<uint64_t> AccessRecord::FirstUnwritten(uint64_t offset, uint64_t bytes) const {
  for (uint64_t at = offset; at < offset + bytes;) {
    const Page* page = pages_[at / kPage].get();
    if (page == nullptr) {
      // After unrecorded accesses nothing is known about the page.
      return is_complete_ ? std::optional(at) : std::nullopt;
    }
    const size_t cell = at % kPage / page->cell_bytes;
    if (page->plain[cell].write.stamp == 0 && (page->atomic.empty() || page->atomic[cell].writes.first.stamp == 0)) {
      return is_complete_ ? std::optional(at) : std::nullopt;
    }
    at = (at / page->cell_bytes + 1) * page->cell_bytes;
  }
  return std::nullopt;
}

void AccessRecord::Clear() {
  for (const std::unique_ptr<Page>& page : pages_) {
    if (page != nullptr) {
      std::ranges::fill(page->plain, Plain{});
      std::ranges::fill(page->atomic, Atomic{});
    }
  }
}

}  // namespace hpvm::ir
