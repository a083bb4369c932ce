// SPDX-License-Identifier: Apache-2.0
// A difference that was found, as two files: NAME.wasm and NAME.json with the launch and the expected outcome.
// Replaying them prevents regressions.
#ifndef HPVMD_TESTS_DIFF_CASE_H_
#define HPVMD_TESTS_DIFF_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/diff/engines.h"

namespace hpvm::diff {

struct Case {
  std::string note;  // Its origin, and what differed.
  std::vector<uint8_t> module;
  LaunchSpec launch;
  Outcome expected;           // For a trap only the code and the instance.
  bool only_whether = false;  // See Compare.
};

// `path` ends without an extension.
Status Write(const Case& item, const std::string& path);
StatusOr<Case> Load(const std::string& path);
// Returns the paths, without extension, of every case in a folder, sorted.
StatusOr<std::vector<std::string>> ListCases(const std::string& folder);

// Runs the case on the interpreter and the CPU; OK when both give the expected outcome.
Status Replay(const Case& item, const CpuForm& form);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_CASE_H_
