// SPDX-License-Identifier: Apache-2.0
// Runs through a ring of memory that is shared with a server on the same host (hpvm/v1/ring.proto), and why not.
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

// Opens a ring beside the second run, so that a client of a single one pays for none; opens another when it ends,
// sooner or later after how long it lasted. No run waits for either: meanwhile they go by gRPC. Any thread.
class LocalRing {
 public:
  // Borrows the stub. `sign` says who calls; it is called from Run, and while this is there.
  LocalRing(v1::Hpvm::Stub& stub, std::string memory_path, std::function<Status(grpc::ClientContext&)> sign)
      : stub_(stub), memory_path_(std::move(memory_path)), sign_(std::move(sign)) {}
  // No Run is in progress.
  ~LocalRing();
  LocalRing(const LocalRing&) = delete;
  LocalRing& operator=(const LocalRing&) = delete;

  // `request` has the call's options. None: the run was not sent, and has to go by gRPC. kUnavailable when the ring
  // ended meanwhile: what became of the run is not known, as when a connection breaks.
  StatusOr<std::optional<v1::RunResponse>> Run(const v1::RunRequest& request, const CallOptions& call);
  // Begins a run that no thread waits for. `done` gets what Run would give, on a thread that must not be kept; the
  // answer cancels it. None: as with Run, and `done` is not called. Calls with a timeout are none of these.
  using Done = std::function<void(StatusOr<std::optional<v1::RunResponse>>)>;
  std::optional<std::function<void()>> Start(const v1::RunRequest& request, const CallOptions& call, Done done);
  // "ring", or "gRPC: " and why.
  std::string Path() const;
  // No ring from now on.
  void Refuse(std::string why);

 private:
  class Stream;
  enum class State : uint8_t { kUnused, kWaits, kOpening, kOpen, kRefused };

  // The ring to use, if there is one; opens one where it is time to.
  std::shared_ptr<Stream> Find();
  // What came through it; none: it was refused, and goes by gRPC.
  StatusOr<std::optional<v1::RunResponse>> Read(Stream& stream, const RingCaller::Answer& answer);
  void Open();
  // From the stream: its server answered, wants it to end soon, or has ended it.
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
  State state_ = State::kUnused;  // Guarded by mutex_, as below.
  std::string why_ = "The client has made no run yet, beside which a ring would be opened.";
  std::shared_ptr<Stream> stream_;  // While it opens, and while it is used.
  size_t streams_ = 0;              // That are not gone.
  // Gone, but not let go of: whoever says so may be a stream's own thread, which would wait for itself.
  std::vector<std::shared_ptr<Stream>> gone_;
  bool stops_ = false;
  Time not_before_{0}, opened_{0};
  Duration pause_{0};
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_LOCAL_RING_H_
