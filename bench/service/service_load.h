// SPDX-License-Identifier: Apache-2.0
// Load on a server: many clients that each keep one call in flight (closed), or calls that start at given times
// regardless of earlier ones (open).
//
// Uses the callback API, so that the load needs no thread per client. In an open load a call's time counts from when
// it was due, not from when it was sent: a server that stalls is charged for every call that had to wait for it.
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
  // For Run and Submit: a prepared graph with input "x" and output "y", both of bytes.
  std::string handle;
  // Connection `i` belongs to tenant i modulo their number, with that tenant's handle. When empty, no name is sent,
  // and `handle` is used for all.
  struct Tenant {
    std::string name, handle;
  };
  std::vector<Tenant> tenants;
  // For RunMany and SubmitMany: number of equal items per call. A call counts once, whatever its number of items.
  uint32_t batch = 1;
  // Data that connection `i` sends, and the expected result (Run, Echo).
  std::function<std::string(uint32_t)> input, output;
  // The gRPC deadline of each call.
  Duration timeout = std::chrono::seconds(120);
};

enum class Verdict : uint8_t {
  kOk,
  kRejected,  // RESOURCE_EXHAUSTED, or UNAVAILABLE that may be retried.
  kFailed,
};

struct CallRecord {
  Time due{0}, sent{0}, done{0};
  Verdict verdict = Verdict::kOk;
  bool names_wait = false;  // A rejection that carries retry_after_ns.
};

struct LoadResult {
  Duration elapsed{0};
  std::vector<CallRecord> calls;     // In the order of responses.
  std::vector<std::string> job_ids;  // For Submit and SubmitMany: the acknowledged jobs.
  Duration late_max{0};              // Open: the maximum delay of sending a call after it was due.
  uint64_t unsent = 0;               // Open: calls not sent because too many were in flight.
  std::string failure;               // Message of the first kFailed.
};

// Returns the times of the calls with that verdict, from when they were due, sorted, in nanoseconds.
std::vector<int64_t> SortedTimes(const LoadResult& result, Verdict verdict);
// The same from when they were sent: without the load's own delay.
std::vector<int64_t> SortedSentTimes(const LoadResult& result, Verdict verdict);
uint64_t Count(const LoadResult& result, Verdict verdict);
// Returns the `per_mille` quantile of sorted values; 0 when there are none.
double Quantile(const std::vector<int64_t>& sorted, double per_mille);

class ServiceLoad {
 public:
  // Connects. kUnavailable when the server does not answer.
  static StatusOr<std::unique_ptr<ServiceLoad>> Make(const LoadSpec& spec);
  virtual ~ServiceLoad() = default;

  // Size of one request, as it is sent.
  virtual size_t RequestBytes() const = 0;

  // Keeps `clients` calls in flight until `calls` have been sent and answered. A wrong response or a failed call is
  // an error.
  virtual StatusOr<LoadResult> Closed(uint32_t clients, uint64_t calls) = 0;
  // Like Closed, until `length` has passed; failed calls are only counted.
  virtual StatusOr<LoadResult> ClosedFor(uint32_t clients, Duration length) = 0;
  // Makes calls at random times (a Poisson process, from `seed`), `per_second` on average. Returns when all are
  // answered. Failed calls are only counted; a wrong response is an error.
  virtual StatusOr<LoadResult> Open(double per_second, Duration length, uint64_t seed) = 0;
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_SERVICE_LOAD_H_
