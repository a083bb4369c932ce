// SPDX-License-Identifier: Apache-2.0
// Reads the state of GPUs from NVIDIA's management library (NVML). Called only in a process of its own
// (health_watch.h), because the library may hang, crash, or corrupt memory.
#ifndef HPVMD_SERVER_EXECUTORS_NVML_H_
#define HPVMD_SERVER_EXECUTORS_NVML_H_

#include <cstdint>
#include <string>

namespace hpvm::server {

// Writes a line (health_reading.h) to standard output every `interval_ms`, `count` times; 0: until the reader is gone.
// When there is no such library, or it has no devices, the line says so and is the last one. Returns the exit code.
int WatchNvml(const std::string& library, uint64_t interval_ms, uint64_t count);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_NVML_H_
