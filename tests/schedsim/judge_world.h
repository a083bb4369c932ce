// SPDX-License-Identifier: Apache-2.0
// A machine that does what it can to mislead whoever compares plans: devices that try their code out, noise, other
// tenants for a while, speeds that change, a twin that is slower than it looks, estimates that are off.
#ifndef HPVMD_TESTS_SCHEDSIM_JUDGE_WORLD_H_
#define HPVMD_TESTS_SCHEDSIM_JUDGE_WORLD_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hpvm::schedsim {

struct JudgeVerdict {
  std::vector<std::string> faults;  // "property: sentence".
  double first_30 = 0;              // The first 30 runs over 30 settled ones of the plan that ends up as champion.
  double final_ratio = 0;           // The last runs over the best static plan's.
};

// Some hundred runs of one graph. The same seed is the same world.
JudgeVerdict RunJudgeWorld(uint64_t seed);

// All worlds of many seeds, at least 1,000. Noise may mislead anybody now and then: a promise is broken when more
// worlds fail it than one in a hundred or so, or one by far.
std::vector<std::string> RunJudgeWorlds(uint64_t first_seed, uint64_t last_seed);

}  // namespace hpvm::schedsim

#endif  // HPVMD_TESTS_SCHEDSIM_JUDGE_WORLD_H_
