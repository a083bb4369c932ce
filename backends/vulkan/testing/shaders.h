// SPDX-License-Identifier: Apache-2.0
// Shader modules for tests of the Vulkan device, written as assembly text, with the descriptions that a compiler would
// give them.
#ifndef HPVMD_BACKENDS_VULKAN_TESTING_SHADERS_H_
#define HPVMD_BACKENDS_VULKAN_TESTING_SHADERS_H_

#include <cstdint>

#include "compiler/api/artifact.h"

namespace hpvm::vulkan {

// y[i] = x[i] * k + i. Parameters x, y, k; all words. Push constants.
Artifact ScaleArtifact();
// y[i] = x[i] + k. Parameters x, y, k. Buffers in sets 0 and 3, values in a buffer in set 1.
Artifact SetsArtifact();
// y[i] = y[i] * 3 + k. Parameters y, k.
Artifact StepArtifact();
// y[i] = i + 1, but instance `bad` traps (unreachable, byte 77 of the module). Parameters y, bad.
Artifact TrapArtifact();
// A tenant's own: y[0] = the words of y; stores far beyond y's end, and y[1] = the result of a load there. One work
// item. Parameter y.
Artifact NativeArtifact();
// A tenant's own: every work item of a group of eight counts to y[number of the work item], and writes one more there.
// Parameter y.
Artifact NativeLoopArtifact();

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_TESTING_SHADERS_H_
