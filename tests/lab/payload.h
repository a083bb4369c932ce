// SPDX-License-Identifier: Apache-2.0
// Actions of an attacker who has taken over the runner: native code in place of a kernel, after the lock-down.
//
// hpvm-executor-broken is the real executor except for one function: a run with an input tensor "attack" executes the
// probe that the input names, and answers with the outcome. Everything else is as in production, so a probe meets the
// real sandbox and daemon. A test program; never installed.
#ifndef HPVMD_TESTS_LAB_PAYLOAD_H_
#define HPVMD_TESTS_LAB_PAYLOAD_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/io/ring_channel.h"
#include "executor/run_job.h"
#include "proto/internal/executor.pb.h"

namespace hpvm::lab {

// One probe's environment. Used on the thread that executes the run.
struct Task {
  std::map<std::string, std::string> arguments;  // "key=value" lines of the attack's text.
  executor::RunJob& job;
  uint64_t request_id = 0;   // Id of the run on the daemon's socket.
  internal::RunDone* done;   // The answer, for probes that falsify it.
  bool keep_answer = false;  // Set by a probe that has filled `done` itself.
  bool run_kernel = false;   // Set by a probe after which the run continues normally.

  std::string Text(const char* name) const;
  int64_t Number(const char* name) const;  // Returns 0 when it is missing.
};

// Returns the outcome: "took: ..." when the attacker succeeded, "refused: ..." when not. A probe that kills its
// process returns nothing.
using Probe = std::string (*)(Task&);
struct NamedProbe {
  const char* name;
  Probe run;
};
std::span<const NamedProbe> FileProbes();
std::span<const NamedProbe> ProcessProbes();
std::span<const NamedProbe> KernelProbes();
std::span<const NamedProbe> ResourceProbes();
std::span<const NamedProbe> ProtocolProbes();
std::span<const NamedProbe> CrashProbes();

// Returns the process's rings to its daemon, and the channel's writer, which is the runner's own.
RingPairMemory& DaemonRings();
int DaemonBell();
RingChannelWriter& DaemonWriter();
// Makes the daemon read the following data from the socket.
void PutDaemonMark();

std::string Took(const std::string& what);
std::string Refused();  // Formats errno.
// Returns the outcome of a system call's result: negative means refused. Closes nothing.
std::string Outcome(long result);

}  // namespace hpvm::lab

#endif  // HPVMD_TESTS_LAB_PAYLOAD_H_
