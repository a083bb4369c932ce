// SPDX-License-Identifier: Apache-2.0
// The spill file as a device that only copies: its buffers are ranges of the file, so that plans move data that fits
// in no memory to disk with the same commands as between memories.
//
// Copies run on the device's threads, one per lane, by pread and pwrite in pieces, concurrently with other work. A
// full or failing disk fails the submission with kResourceExhausted or kUnavailable and a sentence; it never ends the
// process. A released range is punched out of the file, so that the disk space is free and the next buffer there
// reads as zero; where the file system does not support that, zeros are written.
#ifndef HPVMD_ENGINE_MEMORY_SPILL_DEVICE_H_
#define HPVMD_ENGINE_MEMORY_SPILL_DEVICE_H_

#include <cstdint>
#include <memory>

#include "backends/contract/device.h"
#include "base/status.h"

namespace hpvm::engine {

inline constexpr char kSpillId[] = "disk";

// `fd` is duplicated, so the caller may close it; the file never becomes longer than `bytes_max`. The hub is borrowed
// for the device's life; buffers may outlive the device.
StatusOr<std::unique_ptr<Device>> CreateSpillDevice(Hub& hub, int fd, uint64_t bytes_max);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_MEMORY_SPILL_DEVICE_H_
