// SPDX-License-Identifier: Apache-2.0
// A random kernel on a device behind a driver, each variant by itself, against the interpreter.
#ifndef HPVMD_TESTS_GPU_RANDOM_COMPARE_H_
#define HPVMD_TESTS_GPU_RANDOM_COMPARE_H_

#include "tests/gpu/device_run.h"
#include "tests/spmd/kernel.h"

namespace hpvm::gpu_test {

// Of processor time a seed. Drivers compile some hundred milliseconds a variant; machines may be busy.
inline constexpr unsigned kSecondsMax = 120;

enum Outcome : int { kSame = 0, kDiffers = 1, kRefused = 2, kTooLong = 3, kNoDevice = 4 };

// Prints what differs, after `name`; with `prints_text` also the kernel and the program.
Outcome Compare(const spmd::Kernel& kernel, const std::string& name, DeviceRun& device, bool prints_text = false);

// Makes a kernel that differs small while it differs in the same way, and prints it.
void PrintShrunk(spmd::Kernel kernel, const std::string& name, DeviceRun& device);

}  // namespace hpvm::gpu_test

#endif  // HPVMD_TESTS_GPU_RANDOM_COMPARE_H_
