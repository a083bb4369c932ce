// SPDX-License-Identifier: Apache-2.0
// What happens in the daemon, told to whoever counts or traces it. The core calls; metrics and traces implement.
//
// Calls come from any thread, some under the core's mutex: they must be short, never block and never call the core.
#ifndef HPVMD_SERVER_EVENTS_OBSERVER_H_
#define HPVMD_SERVER_EVENTS_OBSERVER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread_watch.h"
#include "hpvm/v1/job.pb.h"

namespace hpvm {

struct RunOutcome;

class Observer {
 public:
  virtual ~Observer() = default;
  // A request was turned away before it became a run or a job. `what` is "run", "submit", "prepare", "upload".
  virtual void OnRejected(std::string_view tenant, std::string_view what, const Status& why) {}
  // A job was acknowledged, or changed its state for good: `job` is what is on disk. Also for each lost attempt.
  virtual void OnJob(std::string_view tenant, const v1::Job& job) {}
  // One run came back from its executor, or failed before: of a job's attempt (`job_id`) or of a Run.
  virtual void OnRun(std::string_view tenant, std::string_view job_id, std::string_view graph,
                     std::string_view traceparent, const RunOutcome& outcome) {}
  // A graph was prepared (or refused).
  virtual void OnPrepared(std::string_view tenant, const v1::PrepareTiming& timing, const Status& status) {}
  // `what`: "started" (it is ready), "failed" (it could not be started, or ended before it was ready), "crashed",
  // "retired", "killed".
  virtual void OnExecutor(std::string_view tenant, std::string_view what) {}
  // One decision of the scheduler. Under the core's mutex.
  virtual void OnDecision(Duration took) {}
  // One group commit of the job store.
  virtual void OnCommit(size_t writes, Duration took, const Status& status) {}
  // The configuration was read again, and taken or not.
  virtual void OnReload(bool ok) {}
  // The server's certificate was loaded, or what its files hold now was refused; `not_after_unix_s` is of the one in
  // force.
  virtual void OnCertificate(const Status& loaded, int64_t not_after_unix_s) {}
  // An item of a thread, or a hold of a lock, that serves several tenants took longer than it may. Perhaps under the
  // core's mutex.
  virtual void OnSlowItem(const SlowItem& item) {}
  // A client's connection was ended, or never came to gRPC. `reason`: "calls", "control_frames", "frame", "handshake",
  // "headers", "preface", "resets", "silent", "stalled" or "unknown".
  virtual void OnConnectionEnded(std::string_view reason) {}
  // One gRPC call has ended; `method` as on the wire: "/hpvm.v1.Hpvm/Run".
  virtual void OnCall(std::string_view method, const Status& status, Duration took) {}
};

// Does nothing. Lives for ever.
Observer& NoObserver();

}  // namespace hpvm

#endif  // HPVMD_SERVER_EVENTS_OBSERVER_H_
