// SPDX-License-Identifier: Apache-2.0
// Runs many seeds over several processes. A process that dies is a finding for the seed it was at, and is replaced.
#ifndef HPVMD_TESTS_DIFF_CAMPAIGN_H_
#define HPVMD_TESTS_DIFF_CAMPAIGN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/diff/check.h"
#include "tests/diff/generate.h"

namespace hpvm::diff {

struct CampaignOptions {
  uint64_t first = 0, last = 499;  // Seeds, inclusive.
  uint32_t jobs = 1;
  uint32_t seconds_max = 0;  // No seed is started after that; unlimited when 0.
  Features features;
  bool with_v8 = true;
  std::string server_script;
  std::optional<Fault> fault;
  CpuForm form;
  uint32_t findings_max = 20;  // The campaign ends after this number.
  uint32_t shrink_tries = 3000;
  std::string found_folder;  // Folder for findings; none when empty.
};

struct Tally {
  uint64_t modules = 0, compared_with_v8 = 0, trapped = 0, barriers = 0, simd = 0, too_long = 0, instances = 0;
  uint64_t bytes = 0;  // Size of the modules.
};

struct Finding {
  uint64_t seed = 0;
  Verdict verdict = Verdict::kSame;
  std::string explanation;
  std::string path;  // Path of the case without extension; empty when none was written.
  uint32_t nodes_before = 0, nodes = 0;
  uint64_t module_bytes = 0;  // Size of the shrunk module.
};

struct CampaignResult {
  Tally tally;
  uint64_t last = 0;  // Every seed up to this one was run.
  std::vector<Finding> findings;
  bool had_v8 = false;
  double seconds = 0;
};

StatusOr<CampaignResult> RunCampaign(const CampaignOptions& options);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_CAMPAIGN_H_
