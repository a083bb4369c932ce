// SPDX-License-Identifier: Apache-2.0
// What an attacker does who has taken over the runner: native code in the place of a kernel, after the lock-down.
//
// hpvm-executor-broken is the real executor but for one function: a run with an input tensor "attack" executes the
// probe which that input names and answers with what came of it. Everything else is as in production, so what a probe
// meets is the sandbox and the daemon themselves. A test's program; never installed.
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

// One probe's surroundings. On the thread that executes the run.
struct Task {
  std::map<std::string, std::string> arguments;  // Of the attack's text: "key=value" lines.
  executor::RunJob& job;
  uint64_t request_id = 0;  // The run's, on the daemon's socket.
  internal::RunDone* done;  // The answer, for probes that lie in it.
  bool keep_answer = false;  // Set by a probe that has filled `done` itself.
  bool run_kernel = false;   // Set by a probe after which the run goes on as any other.

  std::string Text(const char* name) const;
  int64_t Number(const char* name) const;  // 0 when it is not there.
};

// What came of it: "took: ..." when the attacker got what it wanted, "refused: ..." when not. A probe that kills its
// process answers nothing.
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

// How the process reaches its daemon, and the channel's writer, which is the runner's own.
RingPairMemory& DaemonRings();
int DaemonBell();
RingChannelWriter& DaemonWriter();
// What comes next is read from the socket.
void PutDaemonMark();

std::string Took(const std::string& what);
std::string Refused();  // By errno.
// The outcome of a system call's result: negative is refused. Closes nothing.
std::string Outcome(long result);

}  // namespace hpvm::lab

#endif  // HPVMD_TESTS_LAB_PAYLOAD_H_
