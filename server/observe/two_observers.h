// SPDX-License-Identifier: Apache-2.0
// Tells two observers of everything, in order.
#ifndef HPVMD_SERVER_OBSERVE_TWO_OBSERVERS_H_
#define HPVMD_SERVER_OBSERVE_TWO_OBSERVERS_H_

#include <cstddef>
#include <string_view>

#include "server/events/observer.h"

namespace hpvm {

// Both live longer.
class TwoObservers final : public Observer {
 public:
  TwoObservers(Observer& a, Observer& b) : a_(a), b_(b) {}
  void OnRejected(std::string_view tenant, std::string_view what, const Status& why) override {
    a_.OnRejected(tenant, what, why);
    b_.OnRejected(tenant, what, why);
  }
  void OnJob(std::string_view tenant, const v1::Job& job) override {
    a_.OnJob(tenant, job);
    b_.OnJob(tenant, job);
  }
  void OnRun(std::string_view tenant, std::string_view job_id, std::string_view graph, std::string_view traceparent,
             const RunOutcome& outcome) override {
    a_.OnRun(tenant, job_id, graph, traceparent, outcome);
    b_.OnRun(tenant, job_id, graph, traceparent, outcome);
  }
  void OnPrepared(std::string_view tenant, const v1::PrepareTiming& timing, const Status& status) override {
    a_.OnPrepared(tenant, timing, status);
    b_.OnPrepared(tenant, timing, status);
  }
  void OnExecutor(std::string_view tenant, std::string_view what) override {
    a_.OnExecutor(tenant, what);
    b_.OnExecutor(tenant, what);
  }
  void OnDecision(Duration took) override {
    a_.OnDecision(took);
    b_.OnDecision(took);
  }
  void OnSlowItem(const SlowItem& item) override {
    a_.OnSlowItem(item);
    b_.OnSlowItem(item);
  }
  void OnCommit(size_t writes, Duration took, const Status& status) override {
    a_.OnCommit(writes, took, status);
    b_.OnCommit(writes, took, status);
  }
  void OnReload(bool ok) override {
    a_.OnReload(ok);
    b_.OnReload(ok);
  }
  void OnCertificate(const Status& loaded, int64_t not_after_unix_s) override {
    a_.OnCertificate(loaded, not_after_unix_s);
    b_.OnCertificate(loaded, not_after_unix_s);
  }
  void OnConnectionEnded(std::string_view reason) override {
    a_.OnConnectionEnded(reason);
    b_.OnConnectionEnded(reason);
  }
  void OnCall(std::string_view method, const Status& status, Duration took) override {
    a_.OnCall(method, status, took);
    b_.OnCall(method, status, took);
  }

 private:
  Observer& a_;
  Observer& b_;
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_OBSERVE_TWO_OBSERVERS_H_
