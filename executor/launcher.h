// SPDX-License-Identifier: Apache-2.0
// From a fresh process to a serving runner: greet, isolate, start the compiler, confine, open the devices, serve.
#ifndef HPVMD_EXECUTOR_LAUNCHER_H_
#define HPVMD_EXECUTOR_LAUNCHER_H_

#include <string>

#include "base/status.h"

namespace hpvm {

// The private socket's descriptor, by agreement with whoever starts the process.
inline constexpr int kExecutorSocket = 3;

// Runs the executor on kExecutorSocket until its peer goes away. Returns only on failure, after telling the peer.
Status RunExecutor();

// Prints the devices of `backend` as one JSON line and sends them as Ready if kExecutorSocket is a socket. Locked down
// like the runner.
Status RunProbe(const std::string& backend);

}  // namespace hpvm

#endif  // HPVMD_EXECUTOR_LAUNCHER_H_
