// SPDX-License-Identifier: Apache-2.0
// What happens in the daemon, as one list of events. Metrics, the audit and traces subscribe to it; those to whom
// things happen know none of them.
//
// Events are told on the thread on which they happen, with the core's mutex held or not: an observer is quick, and
// calls neither the core nor the store. An event borrows what it names until the observer returns.
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

// A request was turned away before it became a run or a job.
struct Rejected {
  std::string_view tenant;
  std::string_view what;  // "run", "submit", "prepare", "upload", "download".
  const Status& why;
};

// Why an attempt was lost.
enum class LostCause : uint8_t { kExecutor, kDevice, kDaemon };

// A job was acknowledged, or changed its state for good: `job` is what is on disk.
struct JobChanged {
  std::string_view tenant;
  const v1::Job& job;
  // Why its attempt was lost, if it ended or was put back for that.
  LostCause cause = LostCause::kExecutor;
};

// One run came back from its executor, or failed before: of a job's attempt (`job_id`) or of a Run.
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

// One decision of the scheduler.
struct Decided {
  Duration took{0};
};

// One group commit of the job store.
struct Committed {
  size_t writes = 0;
  Duration took{0};
  const Status& status;
};

// The configuration was read again, and taken or not.
struct Reloaded {
  bool ok = false;
};

// The server's certificate was loaded, or what its files hold now was refused.
struct CertificateLoaded {
  const Status& status;
  int64_t not_after_unix_s = 0;  // The end of the certificate in force.
};

// A client's connection was ended, or never came to gRPC.
struct ConnectionEnded {
  // "calls", "control_frames", "frame", "handshake", "headers", "preface", "resets", "ring_bells",
  // "ring_frame", "ring_stalled", "silent", "stalled" or "unknown".
  std::string_view reason;
};

// A call that may have a span came; its handler has not seen the request yet.
struct CallBegan {
  const void* call;  // Names it until CallEnded, and is nothing else.
  // Of the request, for whoever puts the context of the call's own span there.
  v1::RequestOptions* (*options)(void* request);
  void* request;
};

// What a call has prepared, just before its answer leaves.
struct CallPrepared {
  const void* call;
  const v1::PrepareTiming& timing;
};

// One gRPC call has ended.
struct CallEnded {
  // What a call says of itself: our name for it, and perhaps a tenant's text.
  using Fact = std::pair<const char*, std::variant<std::string, int64_t, bool>>;
  std::string_view method;  // As on the wire: "/hpvm.v1.Hpvm/Run".
  const Status& status;
  Duration took{0};
  const void* call = nullptr;  // As in CallBegan, if that may have been told; then:
  const char* span = nullptr;  // The name of its span.
  std::span<const Fact> facts = {};
};

// Somebody did something, or was refused it, that is to be written down; fields as in AuditRecord.
struct Recorded {
  std::string_view who = {}, peer = {}, tenant = {}, method = {}, object = {}, verdict = {}, detail = {}, payer = {};
};

}  // namespace events

// SlowItem: an item of a thread, or a hold of a lock, that serves several tenants took longer than it may.
using Event = std::variant<events::Rejected, events::JobChanged, events::RunEnded, events::Prepared,
                           events::ExecutorChanged, events::Decided, events::Committed, events::Reloaded,
                           events::CertificateLoaded, events::ConnectionEnded, events::CallBegan, events::CallPrepared,
                           events::CallEnded, events::Recorded, SlowItem>;

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void On(const Event& event) = 0;
};

// Does nothing. Lives for ever.
Observer& NoObserver();

// Tells all its subscribers, in order. Any thread, once the last one has subscribed.
class EventList final : public Observer {
 public:
  // Borrowed; lives longer.
  void Subscribe(Observer& observer) { observers_.push_back(&observer); }
  void On(const Event& event) override {
    for (Observer* observer : observers_) {
      observer->On(event);
    }
  }

 private:
  std::vector<Observer*> observers_;
};

// For observers of some kinds of events: calls the overload of `observer.Take` for those that it has.
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
