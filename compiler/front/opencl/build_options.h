// SPDX-License-Identifier: Apache-2.0
// Build options of a document: each word is on a list, or the module is refused.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_BUILD_OPTIONS_H_
#define HPVMD_COMPILER_FRONT_OPENCL_BUILD_OPTIONS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hpvm::opencl {

struct BuildOptions {
  std::string text;                      // For the driver: what is not a definition, one space between words.
  std::vector<std::string> definitions;  // What -D gives to names, to be read as a part of the program.
  std::vector<std::string> arguments;    // For clang -cc1: definitions, and what changes how a text is read.
};

// `api_version`: the device's, 120 or 300.
StatusOr<BuildOptions> ReadBuildOptions(std::string_view options, uint32_t api_version);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_BUILD_OPTIONS_H_
