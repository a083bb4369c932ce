// SPDX-License-Identifier: Apache-2.0
// Events of the daemon. Metrics, the audit and traces subscribe to them; the components that emit events know none of
// the subscribers.
//
// Events are delivered on the thread where they happen, whether or not it holds the core's mutex: an observer must be
// quick, and call neither the core nor the store. An event borrows its data until the observer returns.
#ifndef HPVMD_SERVER_EVENTS_EVENTS_H_
#define HPVMD_SERVER_EVENTS_EVENTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread_watch.h"
#include "hpvm/v1/common.pb.h"
#include "hpvm/v1/graph.pb.h"
#include "hpvm/v1/job.pb.h"

namespace hpvm::server {

struct RunOutcome;

namespace events {

// A request was refused before it became a run or a job.
struct Rejected {
  std::string_view tenant;
  std::string_view what;  // "run", "submit", "prepare", "upload", "download".
  const Status& why;
};

// Reasons why an attempt was lost.
enum class LostCause : uint8_t { kExecutor, kDevice, kDaemon };

// A job was acknowledged, or its state changed permanently: `job` is the state on disk.
struct JobChanged {
  std::string_view tenant;
  const v1::Job& job;
  // Why its attempt was lost, if the job ended or was requeued because of that.
  LostCause cause = LostCause::kExecutor;
};

// One run returned from its executor, or failed before: an attempt of a job (`job_id`) or a Run call.
struct RunEnded {
  std::string_view tenant, job_id, graph, traceparent;
  const RunOutcome& outcome;
};

// A graph was prepared, or refused.
struct Prepared {
  std::string_view tenant;
  const v1::PrepareTiming& timing;
  const Status& status;
};

// "started" (it is ready), "failed" (it could not be started, or ended before it was ready), "crashed", "retired",
// "killed", "breaker opened".
struct ExecutorChanged {
  std::string_view tenant, what;
};

// The scheduler made one decision.
struct Decided {
  Duration took{0};
};

// The job store made one group commit.
struct Committed {
  size_t writes = 0;
  Duration took{0};
  const Status& status;
};

// The configuration was read again, and accepted or refused.
struct Reloaded {
  bool ok = false;
};

// The server's certificate was loaded, or the current contents of its files were refused.
struct CertificateLoaded {
  const Status& status;
  int64_t not_after_unix_s = 0;  // Expiry of the certificate in force.
};

// A client's connection was ended, or never reached gRPC.
struct ConnectionEnded {
  // "calls", "control_frames", "frame", "handshake", "headers", "preface", "resets", "ring_bells",
  // "ring_frame", "ring_stalled", "silent", "stalled" or "unknown".
  std::string_view reason;
};

// A call that may have a span arrived; its handler has not seen the request yet.
struct CallBegan {
  const void* call;  // Identifies the call until CallEnded; must not be dereferenced.
  // Returns the options of the request, for the observer that sets the context of the call's own span there.
  v1::RequestOptions* (*options)(void* request);
  void* request;
};

// The results of a prepare call, just before its response is sent.
struct CallPrepared {
  const void* call;
  const v1::PrepareTiming& timing;
};

// One gRPC call ended.
struct CallEnded {
  // A fact about the call: a name of ours, and a value that may be a tenant's text.
  using Fact = std::pair<const char*, std::variant<std::string, int64_t, bool>>;
  std::string_view method;  // As on the wire: "/hpvm.v1.Hpvm/Run".
  const Status& status;
  Duration took{0};
  const void* call = nullptr;  // As in CallBegan, if that may have been emitted; then:
  const char* span = nullptr;  // Name of the call's span.
  std::span<const Fact> facts = {};
};

// An action or a refusal that must be recorded; fields as in AuditRecord.
struct Recorded {
  std::string_view who = {}, peer = {}, tenant = {}, method = {}, object = {}, verdict = {}, detail = {}, payer = {};
};

}  // namespace events

// SlowItem: a work item of a thread that serves several tenants, or a hold of such a lock, took longer than allowed.
using Event = std::variant<events::Rejected, events::JobChanged, events::RunEnded, events::Prepared,
                           events::ExecutorChanged, events::Decided, events::Committed, events::Reloaded,
                           events::CertificateLoaded, events::ConnectionEnded, events::CallBegan, events::CallPrepared,
                           events::CallEnded, events::Recorded, SlowItem>;

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void On(const Event& event) = 0;
};

// Returns an observer that does nothing. Never destroyed.
Observer& NoObserver();

// EventList passes events to all its subscribers, in order. Thread-safe once the last subscriber has been added.
class EventList final : public Observer {
 public:
  // `observer` is borrowed and must outlive this object.
  void Subscribe(Observer& observer) { observers_.push_back(&observer); }
  void On(const Event& event) override {
    for (Observer* observer : observers_) {
      observer->On(event);
    }
  }

 private:
  std::vector<Observer*> observers_;
};

// For observers of some kinds of events: calls `observer.Take` if it has an overload for the event.
template <typename T>
void Dispatch(T& observer, const Event& event) {
  std::visit(
      [&](const auto& one) {
        if constexpr (requires { observer.Take(one); }) {
          observer.Take(one);
        }
      },
      event);
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EVENTS_EVENTS_H_
