// SPDX-License-Identifier: Apache-2.0
#include "server/core/rooms/devices.h"

#include <algorithm>
#include <utility>

#include "server/process/log.h"

namespace hpvm::server {
namespace {

// A driver's kernels can only be waited for, not stopped from outside: the grace period keeps a kernel that ends soon
// from costing the tenant its executor.
constexpr Duration kDriverStopGrace = std::chrono::milliseconds(1'000);

// Limits on the number of calls that wait for the devices.
constexpr int kListingsOfTenantMax = 64;
constexpr size_t kListingsMax = 1024;

}  // namespace

std::vector<v1::Device> Devices::Seen(bool by_admin) const {
  std::vector<v1::Device> devices = devices_.Describe();
  for (v1::Device& device : devices) {
    if (device.kind() == v1::Device::KIND_CPU && !options_.cpu_note.empty()) {
      device.set_name(device.name() + ", " + options_.cpu_note);
    }
    if (!by_admin && device.has_paused()) {
      device.mutable_paused()->clear_by();
    }
    if (!by_admin && device.has_health()) {
      device.mutable_health()->clear_memory_used_bytes();
      device.mutable_health()->clear_busy();
      device.mutable_health()->clear_power_w();
    }
  }
  return devices;
}

void Devices::ListDevices(const TenantRef& tenant, v1::ListDevicesResponse* response,
                          std::function<void(const Outcome&)> done) {
  CoreScope scope(monitor_);
  if (devices_known_) {
    Fill(*tenant, response);
    scope.Defer([done = std::move(done)] { done({}); });
    return;
  }
  const auto of_tenant = [&](const Listing& listing) { return listing.tenant == tenant; };
  if (shutdown_.draining) {
    scope.Defer([done = std::move(done)] { done(Later(Unavailable("The server is stopping."))); });
  } else if (listings_.size() >= kListingsMax ||
             std::count_if(listings_.begin(), listings_.end(), of_tenant) >= kListingsOfTenantMax) {
    scope.Defer([done = std::move(done)] {
      done(Later(Unavailable("The devices are not known yet, and too many calls wait for them.")));
    });
  } else {
    listings_.push_back({tenant, response, std::move(done)});
  }
}

void Devices::LeaveQueues(CoreScope& scope) {
  for (Listing& listing : listings_) {
    scope.Defer([done = std::move(listing.done)] { done(Later(Unavailable("The server is stopping."))); });
  }
  listings_.clear();
}

std::optional<v1::Device> Devices::Find(std::string_view id) {
  CoreScope scope(monitor_);
  std::vector<v1::Device> all = devices_.Describe();
  const auto found = std::ranges::find_if(all, [&](const v1::Device& device) { return device.id() == id; });
  return found == all.end() ? std::nullopt : std::optional(std::move(*found));
}

bool Devices::ListKnownDevices(Tenant& tenant, v1::ListDevicesResponse* response) {
  CoreScope scope(monitor_);
  if (devices_known_) {
    Fill(tenant, response);
    // Readings are removed, because each would count as a change.
    for (v1::Device& device : *response->mutable_devices()) {
      v1::DeviceHealth kept;
      kept.set_uuid(device.health().uuid());
      kept.set_bus(device.health().bus());
      kept.set_fence(device.health().fence());
      if (device.has_health()) {
        *device.mutable_health() = std::move(kept);
      }
    }
  }
  return devices_known_;
}

void Devices::Fill(const Tenant& tenant, v1::ListDevicesResponse* response) const {
  for (v1::Device& device : Seen(/*by_admin=*/false)) {
    *response->add_devices() = std::move(device);
  }
  v1::Sandbox& shown = *response->mutable_sandbox();
  shown.set_level_min(std::max(tenant.policy->sandbox_level_min, static_cast<uint32_t>(config_->executor_sandbox_min)));
  const std::optional<SandboxFacts>& facts = tenant.executor.sandbox.has_value() ? tenant.executor.sandbox : sandbox_;
  if (facts.has_value()) {
    shown.set_known(true);
    shown.set_level(facts->level);
    shown.set_detail(facts->detail);
  }
}

void Devices::SetFound(const std::string& family, const StatusOr<internal::Ready>& found) {
  if (!found.ok()) {
    LogError("Looking for devices failed", {{"backend", family}, {"error", Message(found.status())}});
  } else {
    for (const internal::DeviceReport& report : found->devices()) {
      const v1::Device& device = report.device();
      LogInfo("Device found",
              {{"device", device.id()}, {"name", device.name()}, {"emulated", device.emulated() ? "yes" : "no"}});
    }
    for (const v1::Device& broken : found->broken()) {
      LogWarning("Device broken", {{"device", broken.id()}, {"reason", broken.detail()}});
    }
  }
  CoreScope scope(monitor_);
  devices_.SetFound(family, found);
  OnStates(scope);
  on_settled_(scope);
}

// When one device is closed, an alternative to it may have appeared or gone.
void Devices::OnStates(CoreScope& scope) {
  on_changed_(scope);
  if (devices_.IsAnyClosed()) {
    on_closed_(scope);
  }
}

void Devices::LookAtSandbox() {
  std::vector<std::string> profile;
  bool has_driver = false;
  {
    CoreScope scope(monitor_);
    profile = devices_.Profile();
    has_driver = HasDriver(profile);
  }
  if (profile.empty()) {
    return;
  }
  const StatusOr<SandboxFacts> facts = options_.spawner->ProbeSandbox(profile, !has_driver);
  if (!facts.ok()) {
    LogWarning("Probing the executors' sandbox failed", {{"error", Message(facts.status())}});
    return;
  }
  CoreScope scope(monitor_);
  SetSandbox(scope, *facts, nullptr);
  if (facts->level < config_->executor_sandbox_min) {
    LogError("Executors' sandbox is weaker than executor.sandbox_min: no work runs",
             {{"level", std::to_string(facts->level)},
              {"sandbox_min", std::to_string(config_->executor_sandbox_min)},
              {"sandbox", facts->detail}});
  }
}

void Devices::SetSandbox(CoreScope& scope, const SandboxFacts& facts, std::optional<SandboxFacts>* own) {
  const bool is_news = sandbox_ != facts || (own != nullptr && *own != facts);
  sandbox_ = facts;
  if (own != nullptr) {
    *own = facts;
  }
  if (is_news) {
    on_changed_(scope);
  }
}

void Devices::DevicesKnown() {
  CoreScope scope(monitor_);
  devices_known_ = true;
  for (Listing& listing : listings_) {
    Fill(*listing.tenant, listing.response);
    scope.Defer([done = std::move(listing.done)] { done({}); });
  }
  listings_.clear();
  on_changed_(scope);
  scope.Defer([this, profile = devices_.Profile()] { options_.spawner->Expect(profile, !HasDriver(profile)); });
  on_settled_(scope);
}

std::vector<std::pair<std::string, std::string>> Devices::DriverDevices() {
  CoreScope scope(monitor_);
  return devices_.DriverDevices();
}

void Devices::SetDefects(const std::string& id, const std::vector<v1::DriverDefect>& defects) {
  for (const v1::DriverDefect& defect : defects) {
    LogWarning("Driver computes wrong results",
               {{"device", id},
                {"defect", defect.name()},
                {"concerns", defect.in_generated_code() ? "generated code" : "native modules"},
                {"reason", defect.reason()}});
  }
  CoreScope scope(monitor_);
  devices_.SetDefects(id, defects);
  on_changed_(scope);
}

std::optional<std::string> Devices::DueProbe(Time* next) {
  CoreScope scope(monitor_);
  std::optional<std::string> due = devices_.DueProbe(options_.clock->Now());
  *next = devices_.NextProbe();
  return due;
}

void Devices::OnProbed(const std::string& id, const Status& outcome) {
  if (outcome.ok()) {
    LogInfo("Device works and is used again", {{"device", id}});
  } else {
    LogWarning("Device does not answer a probe", {{"device", id}, {"error", Message(outcome)}});
  }
  CoreScope scope(monitor_);
  devices_.OnProbed(id, outcome, options_.clock->Now());
  OnStates(scope);
  on_settled_(scope);
}

void Devices::SetPaused(CoreScope& scope, const std::map<std::string, DevicePause>& paused) {
  if (devices_.SetPaused(paused)) {
    on_changed_(scope);
    on_closed_(scope);
  }
}

void Devices::OnHealth(const StatusOr<std::vector<DeviceReading>>& readings) {
  CoreScope scope(monitor_);
  if (!readings.ok()) {
    LogInfo("Devices' health is not known", {{"reason", Message(readings.status())}});
    judge_.OnSilence();
  } else {
    for (const DeviceReading& reading : *readings) {
      for (const uint64_t xid : reading.xids) {
        LogWarning("The driver reported a fault of a device",
                   {{"device", reading.health.bus()}, {"xid", std::to_string(xid)}});
      }
    }
    judge_.OnReading(*readings, config_->devices_health_temperature_max_c, options_.clock->WallNs());
  }
  TakeVitals(scope);
}

void Devices::TakeVitals(CoreScope& scope) {
  if (!devices_.SetVitals(judge_.vitals())) {
    return;
  }
  for (const v1::Device& device : devices_.Describe()) {
    if (!device.health().fence().empty()) {
      LogError("Device fenced: nothing is started on it", {{"device", device.id()}, {"reason", device.detail()}});
    }
  }
  on_changed_(scope);
  on_closed_(scope);
}

void Devices::LiftFence(std::string_view id) {
  CoreScope scope(monitor_);
  for (const v1::Device& device : devices_.Describe()) {
    if (device.id() == id) {
      judge_.Lift(device.health().uuid(), device.health().bus());
    }
  }
  TakeVitals(scope);
}

void Devices::SetProbeWake(std::function<void()> wake) {
  CoreScope scope(monitor_);
  probe_wake_ = std::move(wake);
}

void Devices::FenceDevices(CoreScope& scope, const std::vector<std::string>& ids, const std::string& what,
                           const std::string& why) {
  bool is_news = false;
  for (const std::string& id : ids) {
    if (devices_.Fence(id, what, options_.clock->Now())) {
      LogWarning("Device not used until a probe has tested it", {{"device", id}, {"reason", what}, {"error", why}});
      is_news = true;
    }
  }
  if (is_news) {
    on_changed_(scope);
  }
  if (is_news && probe_wake_) {
    scope.Defer(probe_wake_);
  }
}

std::vector<std::string> Devices::DriverDevices(const Preparation& preparation) const {
  std::vector<std::string> ids;
  for (const std::string& id : preparation.summary.devices()) {
    if (devices_.HasDriver(id)) {
      ids.push_back(id);
    }
  }
  return ids;
}

Duration Devices::StopGrace(const std::vector<std::string>& profile) const {
  return HasDriver(profile) ? kDriverStopGrace : Duration(std::chrono::milliseconds(limits::kStopGraceMs));
}

bool Devices::HasDriver(const std::vector<std::string>& profile) const {
  return std::any_of(profile.begin(), profile.end(), [&](const std::string& id) { return devices_.HasDriver(id); });
}

}  // namespace hpvm::server
