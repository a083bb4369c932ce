// SPDX-License-Identifier: Apache-2.0
// Describes a variant of an artifact in a few words, for the record of a run.
#ifndef HPVMD_COMPILER_API_VARIANT_TEXT_H_
#define HPVMD_COMPILER_API_VARIANT_TEXT_H_

#include <cstdint>
#include <string>

#include "compiler/api/artifact.h"

namespace hpvm {

// Upper bound of a text's length.
inline constexpr size_t kVariantTextBytesMax = 128;

// Returns "tiles of 48 x 8, unchecked", "groups, 8 lanes", "one at a time", "4 x 1 x 1 instances per work item", "as
// written" (native modules), or "interpreter". `index` refers to Artifact::variants or GpuCode::variants; the number of
// a CPU image's variants means one instance at a time. Returns an empty string when there is no such variant.
std::string VariantText(const Artifact& artifact, uint32_t index);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_VARIANT_TEXT_H_
