// SPDX-License-Identifier: Apache-2.0
// PrometheusObserver counts the daemon's events for /metrics. docs/METRICS.md lists every metric.
//
// Counting takes no lock and allocates only for a tenant's or device's first event. Labels come from fixed sets, from
// the names of at most 100 tenants, and from device ids in our form; no other text from a tenant or an executor
// becomes a label.
#ifndef HPVMD_SERVER_OBSERVE_PROMETHEUS_OBSERVER_H_
#define HPVMD_SERVER_OBSERVE_PROMETHEUS_OBSERVER_H_

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "server/events/events.h"
#include "server/observe/metrics.h"

namespace hpvm::server {

class Families;

class PrometheusObserver final : public Observer {
 public:
  static constexpr size_t kTenantsMax = 100, kDevicesMax = 64, kMethodsMax = 48, kEndsMax = 16;
  static constexpr size_t kCodes = 17;  // Number of canonical codes.

  explicit PrometheusObserver(const Clock& clock) : clock_(clock) {}

  void On(const Event& event) override { Dispatch(*this, event); }
  void Take(const events::Rejected& event);
  void Take(const events::JobChanged& event);
  void Take(const events::RunEnded& event);
  void Take(const events::Prepared& event);
  void Take(const events::ExecutorChanged& event);
  void Take(const events::Decided& event);
  void Take(const events::Committed& event);
  void Take(const SlowItem& item);
  void Take(const events::Reloaded& event);
  void Take(const events::CertificateLoaded& event);
  void Take(const events::ConnectionEnded& event);
  void Take(const events::CallEnded& event);

  // Returns a tenant's label: its name or "other".
  std::string_view TenantLabel(std::string_view tenant) { return tenants_.Find(tenant).name; }
  // Adds all counters as families.
  void Describe(Families& families) const;

  // For health: the failures to start executors since the last success; kNever when the last one started.
  struct SpawnFailures {
    uint32_t in_a_row = 0;
    Time last{0};
  };
  SpawnFailures spawn_failures() const;
  // Returns when the last commit ended, and the number of commits; 0 before the first.
  Time last_commit() const { return Time(last_commit_ns_.load(std::memory_order_relaxed)); }

 private:
  enum Kind : uint8_t { kRun, kJob };
  enum Direction : uint8_t { kIn, kOut };
  static constexpr size_t kReasons = kCodes + 2;  // Codes, plus expired and dead.
  static constexpr size_t kPhases = 6, kEvents = 5;

  struct TenantTallies {
    std::array<AtomicCounter, 2> submitted, completed, cancelled;
    std::array<std::array<AtomicCounter, kReasons>, 2> failed;
    std::array<std::array<AtomicCounter, kCodes>, 5> rejected;
  };
  struct SecondsHistogram : Histogram {
    SecondsHistogram() : Histogram(kSecondsBuckets) {}
  };
  struct CountHistogram : Histogram {
    CountHistogram() : Histogram(kCountBuckets) {}
  };
  struct CallTallies {
    std::array<AtomicCounter, kCodes> codes;
    SecondsHistogram seconds;
  };

  void CountLost(const events::JobChanged& event);
  void CountEnd(TenantTallies& tenant, const events::JobChanged& event);
  void CountNodes(const RunOutcome& outcome);
  void DescribeGraphs(Families& families) const;
  void DescribeJobs(Families& families) const;
  void DescribeSlowItems(Families& families) const;
  void DescribeWork(Families& families) const;
  void DescribeCertificate(Families& families) const;
  void DescribeCalls(Families& families) const;

  const Clock& clock_;
  LabelTable<TenantTallies, kTenantsMax> tenants_;
  LabelTable<SecondsHistogram, kDevicesMax> devices_;
  LabelTable<CallTallies, kMethodsMax> methods_;
  LabelTable<AtomicCounter, kEndsMax> connection_ends_;  // Keyed by reason.
  std::array<SecondsHistogram, kPhases> phases_;
  std::array<SecondsHistogram, 2> queue_;
  SecondsHistogram decisions_, compile_, commits_;
  std::array<SecondsHistogram, 5> job_seconds_;  // Indexed by terminal state.
  CountHistogram commit_writes_;
  std::array<AtomicCounter, 2> bytes_;  // Indexed by direction.
  AtomicCounter nodes_, attempts_, cache_hits_, cache_misses_;
  std::array<AtomicCounter, 3> lost_;
  std::array<AtomicCounter, kEvents> executors_;
  std::array<AtomicCounter, kCodes> prepared_, commit_failures_;
  std::array<AtomicCounter, 2> reloads_, certificates_;  // Refused, accepted.
  std::atomic<int64_t> certificate_ends_s_{0};           // 0 when there is none.
  std::atomic<bool> certificate_refused_{false};
  std::atomic<uint32_t> failures_in_a_row_{0};
  struct SlowItems {
    uint64_t count = 0;
    Duration spent{0};
  };
  mutable std::mutex slow_mutex_;
  // Keyed by thread and item, which are names in the program.
  std::map<std::pair<std::string, std::string>, SlowItems> slow_items_;
  std::atomic<int64_t> last_failure_ns_{0}, last_commit_ns_{0};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_PROMETHEUS_OBSERVER_H_
