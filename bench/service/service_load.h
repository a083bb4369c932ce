// SPDX-License-Identifier: Apache-2.0
// Load on a server: many clients that each keep one call in flight, or calls that begin at given times whatever became
// of the earlier ones.
//
// Callback API, so that the load costs no thread a client. In an open load a call's time counts from when it was due,
// not from when it was sent: a server that stalls is charged for every call that had to wait for it.
#ifndef HPVMD_BENCH_SERVICE_SERVICE_LOAD_H_
#define HPVMD_BENCH_SERVICE_SERVICE_LOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm::bench {

enum class LoadKind { kRun, kSubmit, kEcho, kRunMany, kSubmitMany };

struct LoadSpec {
  LoadKind kind = LoadKind::kRun;
  std::string endpoint;
  uint32_t connections = 1;
  // Run and Submit: a prepared graph with input "x" and output "y", both of bytes.
  std::string handle;
  // In whose name: connection `i` is of tenant i modulo their number, with that tenant's handle. Empty: nobody's name
  // is sent, and `handle` holds for all.
  struct Tenant {
    std::string name, handle;
  };
  std::vector<Tenant> tenants;
  // RunMany and SubmitMany: items of a call, all alike. A call counts once, however many it has.
  uint32_t batch = 1;
  // What connection `i` sends, and what must come back (Run, Echo).
  std::function<std::string(uint32_t)> input, output;
  // The gRPC deadline of each call.
  Duration timeout = std::chrono::seconds(120);
};

enum class Verdict : uint8_t {
  kOk,
  kRejected,  // RESOURCE_EXHAUSTED, or UNAVAILABLE that says it may be tried again: turned away.
  kFailed,
};

struct CallRecord {
  Time due{0}, sent{0}, done{0};
  Verdict verdict = Verdict::kOk;
  bool names_wait = false;  // A rejection that carries retry_after_ns.
};

struct LoadResult {
  Duration elapsed{0};
  std::vector<CallRecord> calls;     // As they were answered.
  std::vector<std::string> job_ids;  // Submit, SubmitMany: what was acknowledged.
  Duration late_max{0};              // Open: how much later than due a call was sent at most.
  uint64_t unsent = 0;               // Open: due, but as many as may be were in flight.
  std::string failure;               // The first kFailed.
};

// Times of the calls with that verdict, from when they were due, sorted, in nanoseconds.
std::vector<int64_t> SortedTimes(const LoadResult& result, Verdict verdict);
// The same from when they were sent: without what the load itself was late.
std::vector<int64_t> SortedSentTimes(const LoadResult& result, Verdict verdict);
uint64_t Count(const LoadResult& result, Verdict verdict);
// `per_mille` of sorted values; 0 of none.
double Quantile(const std::vector<int64_t>& sorted, double per_mille);

class ServiceLoad {
 public:
  // Connects. kUnavailable when the server does not answer.
  static StatusOr<std::unique_ptr<ServiceLoad>> Make(const LoadSpec& spec);
  virtual ~ServiceLoad() = default;

  // Of one request, as it is sent.
  virtual size_t RequestBytes() const = 0;

  // `clients` calls in flight until `calls` have been sent and answered. A wrong answer is an error, a failed call too.
  virtual StatusOr<LoadResult> Closed(uint32_t clients, uint64_t calls) = 0;
  // As Closed, until `length` has passed; failed calls are only counted.
  virtual StatusOr<LoadResult> ClosedFor(uint32_t clients, Duration length) = 0;
  // Calls at random times (Poisson, from `seed`), `per_second` on average. Returns when all are answered. Failed calls
  // are only counted; a wrong answer is an error.
  virtual StatusOr<LoadResult> Open(double per_second, Duration length, uint64_t seed) = 0;
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_SERVICE_LOAD_H_
