// SPDX-License-Identifier: Apache-2.0
// Runs a random kernel on a device behind a driver, each variant separately, and compares with the interpreter.
#ifndef HPVMD_TESTS_GPU_RANDOM_COMPARE_H_
#define HPVMD_TESTS_GPU_RANDOM_COMPARE_H_

#include "tests/gpu/device_run.h"
#include "tests/spmd/kernel.h"

namespace hpvm::gpu_test {

// Processor time per seed. Drivers take some hundred milliseconds to compile a variant; machines may be busy.
inline constexpr unsigned kSecondsMax = 120;

enum Outcome : int { kSame = 0, kDiffers = 1, kRefused = 2, kTooLong = 3, kNoDevice = 4 };

// Prints the differences, after `name`; with `prints_text` also the kernel and the program.
Outcome Compare(const spmd::Kernel& kernel, const std::string& name, DeviceRun& device, bool prints_text = false);

// Shrinks a kernel that differs while it differs in the same way, and prints it.
void PrintShrunk(spmd::Kernel kernel, const std::string& name, DeviceRun& device);

}  // namespace hpvm::gpu_test

#endif  // HPVMD_TESTS_GPU_RANDOM_COMPARE_H_
