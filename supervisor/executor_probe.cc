// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/io/child_process.h"
#include "base/io/frame_socket.h"
#include "proto/internal/protocol.h"
#include "supervisor/executor_link.h"

namespace hpvm::supervisor {
namespace {

StatusOr<internal::Ready> ReadReady(int socket, Time deadline) {
  HPVMD_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(socket, kFromExecutorLimits, deadline));
  HPVMD_ASSIGN_OR_RETURN(Unchecked<internal::Envelope> said, ParseHead(frame.head));
  HPVMD_ASSIGN_OR_RETURN(internal::Envelope envelope,
                         CheckFromExecutor(std::move(said), frame.body.size(), frame.fds.size(), {}));
  if (envelope.has_fatal()) {
    return GetStatus(envelope.fatal().status());
  }
  if (!envelope.has_ready()) {
    return InvalidArgument("The probe answered with a message other than Ready, which lists its devices.");
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

StatusOr<internal::Ready> ProbeDevices(const std::string& program, const std::string& backend, Duration within,
                                       const std::function<Status(int pid)>& on_spawned) {
  StatusOr<internal::Ready> answer = Ask(program, "--probe=" + backend, within, on_spawned);
  return answer.ok() ? std::move(answer) : While(answer.status(), "probing for \"" + backend + "\" devices");
}

StatusOr<internal::Ready> ProbeDefects(const std::string& program, const std::string& device, Duration within,
                                       const std::function<Status(int pid)>& on_spawned) {
  StatusOr<internal::Ready> answer = Ask(program, "--probe-defects=" + device, within, on_spawned);
  return answer.ok() ? std::move(answer) : While(answer.status(), "trying out the driver of " + device);
}

}  // namespace hpvm::supervisor
