// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench service`: the daemon as a service, compared with plain SQLite and a minimal gRPC server: durable
// submits, latency of Run, overload, restart and drain.
//
// A case starts its own daemons and peers, alternates between them, and reports medians of its rounds. `verified`
// means that every response and every acknowledged job was checked.
#ifndef HPVMD_BENCH_SERVICE_SERVICE_H_
#define HPVMD_BENCH_SERVICE_SERVICE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hpvm::bench {

struct ServiceOptions {
  bool json = false;
  bool quick = false;  // A few calls each, for tests; the figures mean nothing.
  std::vector<std::string> filters;
};

// A figure beside its target. In quick runs it is only shown.
struct ServiceReach {
  std::string figure;
  bool at_least = true;  // Otherwise at most.
  double bound = 0;
};

struct ServiceResult {
  std::vector<std::pair<std::string, double>> figures;  // Names end in their unit: "p99_us", "ours_per_s", "ratio".
  std::vector<ServiceReach> reach;
  std::string note;  // For people.
  bool verified = false;

  void Add(const std::string& name, double value) { figures.emplace_back(name, value); }
  // Returns 0 when there is none.
  double Get(const std::string& name) const;
};

struct ServiceCase {
  std::string name;
  std::function<StatusOr<ServiceResult>(const ServiceOptions&)> run;
};

void AddSubmitCases(std::vector<ServiceCase>& cases);    // service_submit.cc
void AddManyCases(std::vector<ServiceCase>& cases);      // service_many.cc
void AddRunCases(std::vector<ServiceCase>& cases);       // service_run.cc
void AddOverloadCases(std::vector<ServiceCase>& cases);  // service_overload.cc
void AddRestartCases(std::vector<ServiceCase>& cases);   // service_restart.cc

double Median(std::vector<double> values);

// Returns the exit code: 0 when every case was measured and verified, whether or not targets were met; 1 otherwise.
int RunSuite(const std::string& suite, const std::vector<ServiceCase>& cases, const ServiceOptions& options,
             const std::string& command);
int RunService(const ServiceOptions& options, const std::string& command);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_SERVICE_H_
