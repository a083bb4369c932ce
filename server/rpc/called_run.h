// SPDX-License-Identifier: Apache-2.0
// CalledRun is a run that a client requested in a call of its own, from admission to response, by whatever transport.
#ifndef HPVMD_SERVER_RPC_CALLED_RUN_H_
#define HPVMD_SERVER_RPC_CALLED_RUN_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "hpvm/v1/service.pb.h"
#include "server/core/core.h"
#include "server/rpc/admission.h"

namespace hpvm::server {

class CalledRun {
 public:
  // Both messages are borrowed until Answer and, where Start was called, until the core releases `self`.
  CalledRun(Core& core, const v1::RunRequest& request, v1::RunResponse& response)
      : core_(core), request_(request), response_(response) {}
  virtual ~CalledRun() = default;
  CalledRun(const CalledRun&) = delete;
  CalledRun& operator=(const CalledRun&) = delete;

  // `self` is this object. Called once.
  void Start(Admission& admission, const TenantRef& tenant, const std::shared_ptr<CalledRun>& self);
  // The client no longer wants the response, which still comes. Thread-safe, before or after Start.
  void Cancel();
  // The request is no longer in memory.
  void ReleaseTicket() { ticket_.Release(); }

 protected:
  // Called once, from any thread, perhaps before Start returns. The response is filled as far as there are results.
  virtual void Answer(const Outcome& outcome) = 0;
  const v1::RunRequest& request() const { return request_; }
  v1::RunResponse& response() { return response_; }

 private:
  void OnOutcome(RunOutcome outcome);

  Core& core_;
  const v1::RunRequest& request_;
  v1::RunResponse& response_;
  Admission::Ticket ticket_;
  std::atomic<uint64_t> id_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CALLED_RUN_H_
