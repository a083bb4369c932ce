// SPDX-License-Identifier: Apache-2.0
// Runs many seeds over several processes. A process that dies is a finding for the seed it was at, and is replaced.
#ifndef HPVMD_TESTS_SPMD_CAMPAIGN_H_
#define HPVMD_TESTS_SPMD_CAMPAIGN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/spmd/check.h"

namespace hpvm::spmd {

struct CampaignOptions {
  uint64_t first = 0, last = 99;  // Seeds, inclusive.
  uint32_t jobs = 1;
  uint32_t seconds_max = 0;   // No seed is started after that; unlimited when 0.
  uint32_t findings_max = 1;  // The campaign ends after this number.
  uint32_t shrink_tries = 1500;
  std::string found_folder;  // Folder for findings; none when empty.
  CheckOptions check;
};

struct Tally {
  uint64_t kernels = 0, instances = 0, images = 0, runs = 0, gang_runs = 0, unchecked_runs = 0, trapped = 0,
           refused = 0, too_long = 0;
};

struct CampaignResult {
  Tally tally;
  uint64_t last = 0;  // Every seed up to this one was run.
  uint32_t findings = 0;
  double seconds = 0;
};

// Prints findings as they come.
StatusOr<CampaignResult> RunCampaign(const CampaignOptions& options);

// Checks in a separate process, so that the kernel may crash or hang.
CheckResult CheckApart(const Kernel& kernel, const CheckOptions& options);

}  // namespace hpvm::spmd

#endif  // HPVMD_TESTS_SPMD_CAMPAIGN_H_
