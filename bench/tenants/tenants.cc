// SPDX-License-Identifier: Apache-2.0
#include "bench/tenants/tenants.h"

namespace hpvm::bench {

double Pairs::Ratio() const {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) {
    ratios.push_back(ours[i] / peer[i]);
  }
  return Median(std::move(ratios));
}

StatusOr<Pairs> MeasurePairs(int rounds, const std::function<StatusOr<double>()>& ours,
                             const std::function<StatusOr<double>()>& peer) {
  Pairs pairs;
  for (int round = -1; round < rounds; ++round) {
    double values[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const int which = (turn + round) & 1;
      HPVMD_ASSIGN_OR_RETURN(values[which], which == 0 ? ours() : peer());
    }
    if (round >= 0) {
      pairs.ours.push_back(values[0]);
      pairs.peer.push_back(values[1]);
    }
  }
  return pairs;
}

int RunTenants(const ServiceOptions& options, const std::string& command) {
  std::vector<ServiceCase> cases;
  AddSpawnCases(cases);
  AddMemoryCases(cases);
  AddShareCases(cases);
  AddSandboxCases(cases);
  return RunSuite("tenants", cases, options, command);
}

}  // namespace hpvm::bench
