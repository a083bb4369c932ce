// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench clients`: threads of one client on the daemon's host that each make one small run after the other, by
// ring and by gRPC: their rate, their latency, and the cost of a call in each process. In addition, calls by ring
// that do no work, with different polling times before each sleep (spin/).
#ifndef HPVMD_BENCH_SERVICE_CLIENTS_H_
#define HPVMD_BENCH_SERVICE_CLIENTS_H_

#include <string>

#include "bench/service/service.h"

namespace hpvm::bench {

void AddPythonCases(std::vector<ServiceCase>& cases);  // python_cases.cc

// Returns the exit code of RunSuite.
int RunClients(const ServiceOptions& options, const std::string& command);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_CLIENTS_H_
