// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "bench/registry.h"

namespace hpvm::bench {

std::vector<std::string> OverheadCaseNames() {
  std::vector<std::string> names;
  for (const char* shape : {"chain/", "wide/", "dag/"}) {
    for (const char* nodes : {"1000", "10000", "100000"}) {
      names.push_back(std::string(shape) + nodes);
    }
    names.push_back(std::string(shape) + "10000/executor");
  }
  for (const char* name : {"run/1", "run/64", "ring/1", "ring/64", "transfer/64MiB", "local/64MiB", "registered/256MiB",
                           "parse/1000", "parse/10000", "parse/100000"}) {
    names.push_back(name);
  }
  return names;
}

std::vector<std::string> QuickOverheadCaseNames() {
  return {"chain/10000", "wide/10000", "dag/10000", "chain/10000/executor", "run/1", "run/64", "parse/10000"};
}

StatusOr<Measurement> MeasureInterleaved(Better better, const std::vector<Contender>& contenders, int rounds) {
  Measurement best;
  for (int round = -1; round < rounds; ++round) {
    for (const Contender& contender : contenders) {
      StatusOr<double> value = contender.round();
      if (!value.ok()) {
        return While(value.status(), "measuring \"" + contender.name + "\"");
      }
      if (round < 0) {
        continue;
      }
      double& kept = contender.name == "ours" ? best.ours : best.peers[contender.name];
      kept = round == 0 ? *value : better == Better::kLower ? std::min(kept, *value) : std::max(kept, *value);
    }
  }
  return best;
}

}  // namespace hpvm::bench
