// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/frame_socket.h"
#include "proto/internal/executor_link.h"
#include "proto/internal/executor_process.h"
#include "proto/internal/executor_request.h"
#include "proto/internal/protocol.h"

namespace hpvm {
namespace {

StatusOr<ProbedDevices> ReadDevices(int socket, Time deadline) {
  HPVMD_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(socket, kFromExecutorLimits, deadline));
  internal::Envelope envelope;
  HPVMD_RETURN_IF_ERROR(DecodeFromExecutor(frame.head, frame.body.size(), frame.fds.size(), &envelope));
  if (envelope.has_fatal()) {
    return GetStatus(envelope.fatal().status());
  }
  if (!envelope.has_ready()) {
    return InvalidArgument("The probe answers with another message than its devices.");
  }
  ExecutorReady ready = DecodeReady(envelope.ready());
  return ProbedDevices{std::move(ready.devices), std::move(ready.broken)};
}

}  // namespace

StatusOr<ProbedDevices> ProbeDevices(const std::string& program, const std::string& backend, Duration within,
                                     const std::function<Status(int pid)>& on_spawned) {
  HPVMD_ASSIGN_OR_RETURN(auto ends, CreateSocketPair());
  SpawnOptions spawn;
  spawn.arguments = {program, "--probe=" + backend};
  spawn.socket = ends.second.get();
  HPVMD_ASSIGN_OR_RETURN(const SpawnedProcess process, Spawn(spawn));
  ends.second.reset();  // So that the probe's end shows as the socket's.
  const auto ask = [&]() -> StatusOr<ProbedDevices> {
    HPVMD_RETURN_IF_ERROR(on_spawned ? on_spawned(process.pid) : absl::OkStatus());
    return ReadDevices(ends.first.get(), RealClock().Now() + within);
  };
  StatusOr<ProbedDevices> devices = ask();
  KillAndReap(process);
  return devices.ok() ? std::move(devices) : While(devices.status(), "probing for \"" + backend + "\" devices");
}

}  // namespace hpvm
