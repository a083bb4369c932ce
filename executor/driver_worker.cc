// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_worker.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "executor/driver_environment.h"
#include "executor/driver_wire.h"
#include "executor/sandbox.h"

namespace hpvm {
namespace {

constexpr int kSocket = 3;

Status LimitData(uint64_t bytes) {
  rlimit now{};
  if (getrlimit(RLIMIT_DATA, &now) != 0) {
    return FromErrno(errno, "Reading a resource limit");
  }
  const rlim_t bound = now.rlim_max == RLIM_INFINITY ? bytes : std::min<rlim_t>(bytes, now.rlim_max);
  const rlimit wanted{bound, bound};
  return setrlimit(RLIMIT_DATA, &wanted) == 0 ? absl::OkStatus() : FromErrno(errno, "Limiting a builder's memory");
}

Status LockDown(const DriverWorkerOptions& options) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != options.parent) {
    return FromErrno(errno, "Following the supervisor");
  }
  setpgid(0, 0);  // What it starts ends with it.
  if (dup2(options.socket, kSocket) != kSocket) {
    return FromErrno(errno, "Placing a builder's socket");
  }
  close_range(kSocket + 1, ~0u, 0);
  HPVMD_RETURN_IF_ERROR(LimitData(options.supervisor->memory_bytes_max));
  SetDriverEnvironment(options.private_folder, options.private_folder);
  if (!options.supervisor->is_sandboxed) {
    return absl::OkStatus();
  }
  SandboxReport report;
  ConfineOptions confine;
  confine.profile = SandboxProfile::kBuilder;
  confine.paths = DriverPaths(options.private_folder, /*is_builder=*/true, options.supervisor->has_nodes);
  return Confine(&report, confine);
}

Status Answer(const DriverAnswer& answer, std::span<const uint8_t> binary = {}) {
  return SendFrame(kSocket, EncodeDriverAnswer(answer), binary, {});
}

Status Serve(const DriverFunctions& driver) {
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(kSocket, kDriverFrameLimits));
    HPVMD_ASSIGN_OR_RETURN(const DriverRequest request, DecodeDriverRequest(frame));
    StatusOr<DriverBinary> built = driver.build(request.build);
    if (built.ok() && built->bytes.size() > kDriverFrameLimits.body_bytes_max) {
      built = InvalidArgument("The driver's binary (" + std::to_string(built->bytes.size()) +
                              " bytes) is larger than the limit (" +
                              std::to_string(kDriverFrameLimits.body_bytes_max) + " bytes).");
    }
    DriverAnswer answer;
    answer.id = request.id;
    answer.status = built.status();
    answer.log = built.ok() ? built->log : "";
    HPVMD_RETURN_IF_ERROR(Answer(answer, built.ok() ? std::span<const uint8_t>(built->bytes)
                                                    : std::span<const uint8_t>()));
  }
}

}  // namespace

void RunDriverWorker(const DriverWorkerOptions& options) {
  const Status locked = LockDown(options);
  DriverAnswer ready;
  ready.status = locked.ok() ? options.supervisor->driver.load() : locked;
  if (Answer(ready).ok() && ready.status.ok()) {
    Serve(options.supervisor->driver).IgnoreError();  // The supervisor is gone, or has broken the protocol.
  }
  // Not exit: the destructors of drivers hang and crash, and everything that matters has been sent.
  _exit(0);
}

}  // namespace hpvm
