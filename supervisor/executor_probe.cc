// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/io/child_process.h"
#include "base/io/frame_socket.h"
#include "proto/internal/protocol.h"
#include "supervisor/executor_link.h"
#include "supervisor/executor_request.h"

namespace hpvm {
namespace {

StatusOr<internal::Ready> ReadReady(int socket, Time deadline) {
  HPVMD_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(socket, kFromExecutorLimits, deadline));
  internal::Envelope envelope;
  HPVMD_RETURN_IF_ERROR(DecodeFromExecutor(frame.head, frame.body.size(), frame.fds.size(), &envelope));
  if (envelope.has_fatal()) {
    return GetStatus(envelope.fatal().status());
  }
  if (!envelope.has_ready()) {
    return InvalidArgument("The probe answers with another message than its devices.");
  }
  return std::move(*envelope.mutable_ready());
}

StatusOr<internal::Ready> Ask(const std::string& program, const std::string& argument, Duration within,
                              const std::function<Status(int pid)>& on_spawned) {
  HPVMD_ASSIGN_OR_RETURN(auto ends, CreateSocketPair());
  SpawnOptions spawn;
  spawn.arguments = {program, argument};
  spawn.socket = ends.second.get();
  HPVMD_ASSIGN_OR_RETURN(const SpawnedProcess process, Spawn(spawn));
  ends.second.reset();  // So that the probe's end shows as the socket's.
  const auto ask = [&]() -> StatusOr<internal::Ready> {
    HPVMD_RETURN_IF_ERROR(on_spawned ? on_spawned(process.pid) : absl::OkStatus());
    return ReadReady(ends.first.get(), RealClock().Now() + within);
  };
  StatusOr<internal::Ready> ready = ask();
  KillAndReap(process);
  return ready;
}

}  // namespace

StatusOr<ProbedDevices> ProbeDevices(const std::string& program, const std::string& backend, Duration within,
                                     const std::function<Status(int pid)>& on_spawned) {
  const StatusOr<internal::Ready> answer = Ask(program, "--probe=" + backend, within, on_spawned);
  if (!answer.ok()) {
    return While(answer.status(), "probing for \"" + backend + "\" devices");
  }
  ExecutorReady ready = DecodeReady(*answer);
  return ProbedDevices{std::move(ready.devices), std::move(ready.broken)};
}

StatusOr<std::vector<DriverDefect>> ProbeDefects(const std::string& program, const std::string& device, Duration within,
                                                 const std::function<Status(int pid)>& on_spawned) {
  const StatusOr<internal::Ready> answer = Ask(program, "--probe-defects=" + device, within, on_spawned);
  if (!answer.ok()) {
    return While(answer.status(), "trying out the driver of " + device);
  }
  std::vector<DriverDefect> defects;
  for (const internal::DriverDefect& defect : answer->defects()) {
    defects.push_back({defect.name(), defect.reason(), defect.is_ours()});
  }
  return defects;
}

}  // namespace hpvm
