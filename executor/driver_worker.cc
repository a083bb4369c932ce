// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_worker.h"

#include <errno.h>
#include <unistd.h>

#include "executor/driver_environment.h"
#include "executor/driver_message.h"
#include "sandbox/limits.h"
#include "sandbox/sandbox.h"

namespace hpvm::executor {
namespace {

constexpr int kSocket = 3;

Status LockDown(const DriverWorkerOptions& options) {
  HPVMD_RETURN_IF_ERROR(sandbox::LimitChild({.data_bytes = options.supervisor->memory_bytes_max}, options.parent));
  setpgid(0, 0);  // Its children end with it.
  if (dup2(options.socket, kSocket) != kSocket) {
    return FromErrno(errno, "Placing a builder's socket");
  }
  close_range(kSocket + 1, ~0u, 0);
  SetDriverEnvironment(options.private_folder, options.private_folder);
  if (!options.supervisor->is_sandboxed) {
    return absl::OkStatus();
  }
  sandbox::SandboxReport report;
  sandbox::ConfineOptions confine;
  confine.role = sandbox::SandboxRole::kBuilder;
  confine.paths = DriverPaths(options.private_folder, /*is_builder=*/true, options.supervisor->has_nodes);
  return sandbox::Confine(&report, confine);
}

Status Answer(uint64_t id, const Status& status, const DriverBinary& built = {}) {
  return SendFrame(kSocket, builder::AnswerHead(id, AnswerOf(status, built.log).SerializeAsString()), built.bytes);
}

Status Serve(const DriverFunctions& driver) {
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(kSocket, kDriverFrameLimits));
    HPVMD_ASSIGN_OR_RETURN(const builder::BuildMessage message, builder::ReadMessage(frame));
    HPVMD_ASSIGN_OR_RETURN(const DriverRequest request, ReadDriverRequest(message.request(), frame.body));
    StatusOr<DriverBinary> built = driver.build(request.build);
    if (built.ok() && built->bytes.size() > kDriverFrameLimits.body_bytes_max) {
      built = InvalidArgument("The driver's binary (" + std::to_string(built->bytes.size()) +
                              " bytes) is larger than the limit (" +
                              std::to_string(kDriverFrameLimits.body_bytes_max) + " bytes).");
    }
    HPVMD_RETURN_IF_ERROR(Answer(message.id(), built.status(), built.ok() ? *built : DriverBinary{}));
  }
}

}  // namespace

void RunDriverWorker(const DriverWorkerOptions& options) {
  const Status locked = LockDown(options);
  const Status ready = locked.ok() ? options.supervisor->driver.load() : locked;
  if (Answer(0, ready).ok() && ready.ok()) {
    Serve(options.supervisor->driver).IgnoreError();  // The supervisor is gone, or has violated the protocol.
  }
  // _exit instead of exit: the destructors of drivers hang and crash, and everything important has been sent.
  _exit(0);
}

}  // namespace hpvm::executor
