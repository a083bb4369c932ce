// SPDX-License-Identifier: Apache-2.0
#include "server/observe/health.h"

#include <algorithm>

#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr Duration kThreadMax = std::chrono::seconds(10), kStoreMax = std::chrono::seconds(30);
// Executors that cannot be started keep the daemon not ready for this long after the last try; without work there
// would be no other try.
constexpr uint32_t kSpawnFailuresMin = 3;
constexpr Duration kSpawnFailureKept = std::chrono::seconds(60);

std::string Seconds(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) + " s";
}

void CheckLife(const HealthFacts& facts, HealthReport& report) {
  if (facts.core_owes > kThreadMax) {
    report.reasons.push_back({"core", "The core has not answered for " + Seconds(facts.core_owes) + "."});
  }
  if (facts.timer_owes > kThreadMax) {
    report.reasons.push_back({"timer", "The timer's thread has not moved for " + Seconds(facts.timer_owes) + "."});
  }
  if (facts.store_owes > kStoreMax) {
    report.reasons.push_back(
        {"store_thread", "The job store has not committed waiting writes for " + Seconds(facts.store_owes) + "."});
  }
  report.live = report.reasons.empty();
}

void CheckStore(const JobStoreHealth& store, HealthReport& report) {
  if (!store.accepts_writes) {
    report.reasons.push_back({store.is_transient ? "disk_full" : "store", store.reason});
  }
}

void CheckDevices(const std::vector<v1::Device>& devices, HealthReport& report) {
  const bool has_one = std::any_of(devices.begin(), devices.end(),
                                   [](const v1::Device& device) { return device.state() == v1::Device::STATE_READY; });
  if (!has_one) {
    report.reasons.push_back({"devices", "None of " + std::to_string(devices.size()) + " devices can be used."});
  }
}

// Tenants that require more than the configuration get their own error with each call.
void CheckSandbox(const CoreSnapshot& core, HealthReport& report) {
  report.sandbox = core.sandbox;
  if (core.sandbox.has_value() && core.sandbox->level < core.sandbox_level_min) {
    report.reasons.push_back({"sandbox", "Executors reach sandbox level " + std::to_string(core.sandbox->level) + " (" +
                                             core.sandbox->detail + "); executor.sandbox_min demands level " +
                                             std::to_string(core.sandbox_level_min) + ", so no work runs."});
  }
}

void AppendText(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : EscapeForLog(text)) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  out += '"';
}

}  // namespace

HealthReport Assess(const HealthFacts& facts) {
  HealthReport report;
  CheckLife(facts, report);
  const auto starting = [&](const char* detail) { report.reasons.push_back({"starting", detail}); };
  if (!facts.has_started || facts.snapshot == nullptr) {
    starting("The daemon is still reading its stored jobs.");
  } else {
    const CoreSnapshot& core = *facts.snapshot;
    if (core.draining) {
      report.reasons.push_back({"draining", "The daemon is stopping and takes no new work."});
    }
    if (core.intake.closed) {
      report.reasons.push_back({"closed", core.intake.Sentence()});
    }
    CheckSandbox(core, report);
    CheckStore(core.store, report);
    if (!core.devices_known) {
      starting("The daemon is still looking for devices.");
    } else {
      CheckDevices(core.devices, report);
    }
  }
  if (facts.spawn_failures >= kSpawnFailuresMin && facts.now - facts.last_spawn_failure < kSpawnFailureKept) {
    report.reasons.push_back(
        {"executors", "The last " + std::to_string(facts.spawn_failures) + " executors could not be started."});
  }
  report.ready = report.reasons.empty();
  return report;
}

std::string ToJson(std::string_view key, bool value, const std::vector<HealthReason>& reasons,
                   const std::optional<SandboxFacts>& sandbox) {
  std::string out = "{\"" + std::string(key) + "\":" + (value ? "true" : "false") + ",\"reasons\":[";
  for (const HealthReason& reason : reasons) {
    out += &reason == reasons.data() ? "{\"reason\":" : ",{\"reason\":";
    AppendText(out, reason.reason);
    out += ",\"detail\":";
    AppendText(out, reason.detail);
    out += "}";
  }
  out += "]";
  if (sandbox.has_value()) {
    out += ",\"sandbox\":{\"level\":" + std::to_string(sandbox->level) + ",\"detail\":";
    AppendText(out, sandbox->detail);
    out += "}";
  }
  return out + "}\n";
}

bool Congestion::Update(uint64_t queued, uint64_t queued_max) {
  const double full = queued_max == 0 ? 1.0 : static_cast<double>(queued) / static_cast<double>(queued_max);
  is_congested_ = full >= (is_congested_ ? 0.5 : 0.8);
  return is_congested_;
}

uint64_t DesiredWorkers(uint64_t queued, uint64_t running, uint64_t running_max) {
  const uint64_t each = std::max<uint64_t>(running_max, 1);
  return std::max<uint64_t>(1, (queued + running) / each + ((queued + running) % each != 0 ? 1 : 0));
}

void MinuteMax::Push(Duration value) {
  values_[next_] = value;
  next_ = (next_ + 1) % values_.size();
}

Duration MinuteMax::max() const { return *std::max_element(values_.begin(), values_.end()); }

}  // namespace hpvm::server
