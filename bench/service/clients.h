// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench clients`: threads of one client on the daemon's host that each make one small run after the other, by
// ring and by gRPC: how many there are a second, how long each takes, and what a call costs each process. Beside them
// calls by ring that nobody works for, with more or less looking before each sleep (spin/).
#ifndef HPVMD_BENCH_SERVICE_CLIENTS_H_
#define HPVMD_BENCH_SERVICE_CLIENTS_H_

#include <string>

#include "bench/service/service.h"

namespace hpvm::bench {

void AddPythonCases(std::vector<ServiceCase>& cases);  // python_cases.cc

// Exit code as RunSuite.
int RunClients(const ServiceOptions& options, const std::string& command);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_CLIENTS_H_
