// SPDX-License-Identifier: Apache-2.0
// The spill file as a device that only copies: its buffers are ranges of the file, so that plans move what fits in no
// memory to disk by the same commands as between memories.
//
// Copies run on threads of the device's, one a lane, by pread and pwrite in pieces, beside whatever else runs. A full
// disk or a failing one fails the submission with kResourceExhausted or kUnavailable and a sentence; it never ends the
// process. A range that is given back is punched out of the file, so that the disk is free again and the next buffer
// there reads as zero; where the file system cannot do that, zeros are written.
#ifndef HPVMD_ENGINE_MEMORY_SPILL_DEVICE_H_
#define HPVMD_ENGINE_MEMORY_SPILL_DEVICE_H_

#include <cstdint>
#include <memory>

#include "backends/contract/device.h"
#include "base/status.h"

namespace hpvm::engine {

inline constexpr char kSpillId[] = "disk";

// `fd` is duplicated, so the caller may close it; the file is never made longer than `bytes_max`. The hub is borrowed
// for the device's life; the device may outlive its buffers only.
StatusOr<std::unique_ptr<Device>> CreateSpillDevice(Hub& hub, int fd, uint64_t bytes_max);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_MEMORY_SPILL_DEVICE_H_
