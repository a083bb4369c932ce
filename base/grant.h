// SPDX-License-Identifier: Apache-2.0
// The grant page: one 4 KiB page per executor, written by the daemon and read by the runner at chunk and segment
// boundaries (one load, no system call). It says what the executor may use; revoking a grant increments the epoch.
#ifndef HPVMD_BASE_GRANT_H_
#define HPVMD_BASE_GRANT_H_

#include <array>
#include <atomic>
#include <cstdint>

namespace hpvm {

enum class GrantState : uint32_t { kNone = 0, kGranted = 1, kRevoked = 2 };

// Shared by two processes: every field is a separate atomic, so a reader may see fields of two updates but never a torn
// field.
struct GrantEntry {
  // Incremented after every change of the other fields. A thread without a grant may wait for a change by futex
  // (base/io/futex.h, shared); the daemon wakes it when it grants something.
  std::atomic<uint32_t> epoch;
  std::atomic<uint32_t> state;          // GrantState.
  std::atomic<uint32_t> cpu_threads;    // Worker threads, including the submitting thread.
  std::atomic<uint32_t> in_flight_max;  // Submissions a driver device may hold.
  std::atomic<uint64_t> bytes_max;      // Device memory; 0: no limit.
  std::atomic<uint32_t> contended;      // Another tenant waits for this device: do not spin.
  std::atomic<uint32_t> closed;         // Not 0: no work is started on the device; running work ends.
};
static_assert(sizeof(GrantEntry) == 32);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline constexpr uint32_t kGrantPageBytes = 4096;
inline constexpr uint32_t kGrantEntriesMax = 64;

struct GrantPage {
  std::atomic<uint32_t> version;           // 1.
  std::atomic<uint32_t> count;             // Entries in use, in the order of the executor's device profile.
  std::atomic<uint64_t> device_bytes_max;  // Limit of the own memory of all devices together; 0: no limit.
  uint8_t padding[48];
  std::array<GrantEntry, kGrantEntriesMax> entries;
};
static_assert(sizeof(GrantPage) <= kGrantPageBytes);

}  // namespace hpvm

#endif  // HPVMD_BASE_GRANT_H_
