// SPDX-License-Identifier: Apache-2.0
// Runs through a ring of memory shared with a server on the same host (hpvm/v1/ring.proto), and the reasons not to
// use one.
#ifndef HPVMD_CLIENT_LOCAL_RING_H_
#define HPVMD_CLIENT_LOCAL_RING_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client/ring_caller.h"
#include "grpcpp/grpcpp.h"

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/client.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm {

// LocalRing opens a ring during the second run, so that a client with a single run does not pay for one. When the
// ring ends it opens another, with a delay that depends on how long the last one lived. No run waits for either:
// meanwhile runs go by gRPC. Thread-safe.
class LocalRing {
 public:
  // Borrows the stub. `sign` adds the credentials; it is called from Run, and during the lifetime of this object.
  LocalRing(v1::Hpvm::Stub& stub, std::string memory_path, std::function<Status(grpc::ClientContext&)> sign)
      : stub_(stub), memory_path_(std::move(memory_path)), sign_(std::move(sign)) {}
  // No Run may be in progress.
  ~LocalRing();
  LocalRing(const LocalRing&) = delete;
  LocalRing& operator=(const LocalRing&) = delete;

  // `request` carries the call's options. Returns nothing when the run was not sent and has to go by gRPC;
  // kUnavailable when the ring ended meanwhile: the outcome of the run is then unknown, as when a connection breaks.
  StatusOr<std::optional<v1::RunResponse>> Run(const v1::RunRequest& request, const CallOptions& call);
  // Starts a run that no thread waits for. `done` receives what Run would return, on a thread that must not be
  // blocked. Returns a function that cancels the run; nothing as with Run, and then `done` is not called. Not for
  // calls with a timeout.
  using Done = std::function<void(StatusOr<std::optional<v1::RunResponse>>)>;
  std::optional<std::function<void()>> Start(const v1::RunRequest& request, const CallOptions& call, Done done);
  // Returns "ring", or "gRPC: " and the reason.
  std::string Path() const;
  // Disables rings from now on.
  void Refuse(std::string why);

 private:
  class Stream;
  enum class State : uint8_t { kUnused, kWaits, kOpening, kOpen, kRefused };

  // Returns the ring to use, if there is one; opens one when it is time.
  std::shared_ptr<Stream> Find();
  // Converts the response from the ring; nothing when it was refused there and goes by gRPC.
  StatusOr<std::optional<v1::RunResponse>> Read(Stream& stream, const RingCaller::Answer& answer);
  void Open();
  // Called by the stream when its server has accepted it, wants it to end soon, or has ended it.
  void OnOpen(Stream& stream);
  void OnRetired(Stream& stream);
  void OnEnd(Stream& stream, const Status& why);
  void OnGone(std::shared_ptr<Stream> stream);
  void Fail(const Status& why);

  v1::Hpvm::Stub& stub_;
  const std::string memory_path_;
  const std::function<Status(grpc::ClientContext&)> sign_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kUnused;  // This and the following members are guarded by mutex_.
  std::string why_ = "The client has made no run yet, beside which a ring would be opened.";
  std::shared_ptr<Stream> stream_;  // Set while it opens and while it is used.
  size_t streams_ = 0;              // Number of streams that are not gone.
  // Streams that are gone but not destroyed, because the report may come on a stream's own thread, which would wait
  // for itself.
  std::vector<std::shared_ptr<Stream>> gone_;
  bool stops_ = false;
  Time not_before_{0}, opened_{0};
  Duration pause_{0};
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_LOCAL_RING_H_
