// SPDX-License-Identifier: Apache-2.0
// Reads the OpenCL build options of a document. A module with an option that is not on the list is refused.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_BUILD_OPTIONS_H_
#define HPVMD_COMPILER_FRONT_OPENCL_BUILD_OPTIONS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hpvm::opencl {

struct BuildOptions {
  std::string text;                      // Options for the driver: all but definitions, with one space between words.
  std::vector<std::string> definitions;  // Values that -D gives to names; they are checked as part of the program.
  std::vector<std::string> arguments;    // Arguments for clang -cc1: definitions and options that change how a text is
                                         // read.
};

// `api_version` is the device's OpenCL version, 120 or 300.
StatusOr<BuildOptions> ReadBuildOptions(std::string_view options, uint32_t api_version);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_BUILD_OPTIONS_H_
