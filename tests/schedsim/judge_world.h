// SPDX-License-Identifier: Apache-2.0
// A machine that tries to mislead the comparison of plans: devices that try code variants, noise, temporary load of
// other tenants, changes of speed, a twin that is slower than it looks, wrong estimates.
#ifndef HPVMD_TESTS_SCHEDSIM_JUDGE_WORLD_H_
#define HPVMD_TESTS_SCHEDSIM_JUDGE_WORLD_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hpvm::schedsim {

struct JudgeVerdict {
  std::vector<std::string> faults;  // "property: sentence".
  double first_30 = 0;              // The first 30 runs over 30 settled ones of the final champion.
  double final_ratio = 0;           // The last runs over those of the best static plan.
};

// Simulates some hundred runs of one graph. The same seed is the same world.
JudgeVerdict RunJudgeWorld(uint64_t seed);

// Runs the worlds of many seeds, at least 1,000. Noise may mislead occasionally: a promise is broken when more than
// about one world in a hundred fails it, or one fails by far.
std::vector<std::string> RunJudgeWorlds(uint64_t first_seed, uint64_t last_seed);

}  // namespace hpvm::schedsim

#endif  // HPVMD_TESTS_SCHEDSIM_JUDGE_WORLD_H_
