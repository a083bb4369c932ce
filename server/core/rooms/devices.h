// SPDX-License-Identifier: Apache-2.0
// Devices keeps the state of devices: those that discovery found, those that runs lost, and those that are probed
// again.
#ifndef HPVMD_SERVER_CORE_ROOMS_DEVICES_H_
#define HPVMD_SERVER_CORE_ROOMS_DEVICES_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hpvm/v1/service.pb.h"
#include "server/core/state/core_context.h"
#include "server/executors/device_table.h"
#include "server/executors/sandbox_facts.h"

namespace hpvm::server {

class Devices : private CoreRoom {
 public:
  explicit Devices(CoreContext& context) : CoreRoom(context) { devices_.SetPaused(shutdown_.intake.paused); }

  // --- For clients; these lock the mutex ---
  // Takes the result of discovery for one family, at start and again later; an error when its probe failed.
  void SetFound(const std::string& family, const StatusOr<internal::Ready>& found);
  // Finds out which level executors' sandboxes reach, before a tenant asks for one. Blocks (ProbeSandbox): called on
  // the thread that probes.
  void LookAtSandbox();
  // Every family has answered.
  void DevicesKnown();
  // Returns the devices whose drivers are to be probed for defects; SetDefects takes the result for one (DeviceTable).
  std::vector<std::pair<std::string, std::string>> DriverDevices();
  // Returns the devices of a prepared graph that have drivers.
  std::vector<std::string> DriverDevices(const Preparation& preparation) const;
  void SetDefects(const std::string& id, const std::vector<v1::DriverDefect>& defects);
  // Called on the thread that probes: returns a device that is to be probed; when there is none, null, with the time
  // until which to wait in `next`.
  std::optional<std::string> DueProbe(Time* next);
  void OnProbed(const std::string& id, const Status& outcome);
  // Takes the readings of the management library, or the error that explains why there are none.
  void OnHealth(const StatusOr<std::vector<DeviceReading>>& readings);
  // Lifts the fence that earlier health readings caused. Ignores unknown ids.
  void LiftFence(std::string_view id);
  // Returns the device as administrators see it; null when there is none.
  std::optional<v1::Device> Find(std::string_view id);
  // Sets the function that is called, from any thread, when DueProbe has a device earlier than it last returned.
  // Called before anything else.
  void SetProbeWake(std::function<void()> wake);
  // Answers when every family has answered: at once, or from the discovery thread. Fails with kUnavailable when the
  // server stops before, or too many calls of the tenant wait. `response` must live until then.
  void ListDevices(const TenantRef& tenant, v1::ListDevicesResponse* response,
                   std::function<void(const Outcome&)> done);
  // Answers at once. Returns false before every family has answered, since a device that is missing then may still
  // appear.
  bool ListKnownDevices(Tenant& tenant, v1::ListDevicesResponse* response);

  // --- For other rooms; the caller holds the mutex ---
  // Returns all devices. Only administrators see who paused a device, and readings that reveal other tenants' load.
  std::vector<v1::Device> Seen(bool by_admin) const;
  // Answers the calls that wait for devices, because the server stops.
  void LeaveQueues(CoreScope& scope);
  const DeviceTable& table() const { return devices_; }
  bool known() const { return devices_known_; }
  // As the executor that started last reported it; empty: none has.
  const std::optional<SandboxFacts>& sandbox() const { return sandbox_; }
  // Takes the facts from an executor that has started; `own` is what its tenant last knew.
  void SetSandbox(CoreScope& scope, const SandboxFacts& facts, std::optional<SandboxFacts>* own);
  // Sets the function that is called when the answer of ListDevices may have changed. Called before anything else.
  void SetOnChanged(std::function<void(CoreScope&)> on_changed) { on_changed_ = std::move(on_changed); }
  // Sets the function that is called when devices were closed or opened (DeviceTable). Called before anything else.
  void SetOnClosed(std::function<void(CoreScope&)> on_closed) { on_closed_ = std::move(on_closed); }
  void SetPaused(CoreScope& scope, const std::map<std::string, DevicePause>& paused);
  // Sets the function that is called when suspect devices may have been settled (AreSettled). Called before anything
  // else.
  void SetOnSettled(std::function<void(CoreScope&)> on_settled) { on_settled_ = std::move(on_settled); }
  // Returns true when every family has answered, and no device is suspect.
  bool AreSettled() const { return devices_known_ && !devices_.IsSettling(); }
  // Keeps devices from executors that start, until they have been probed. Every tenant sees `what`; `why` is a text of
  // one tenant or of its executor, for the log only.
  void FenceDevices(CoreScope& scope, const std::vector<std::string>& ids, const std::string& what,
                    const std::string& why);
  Duration StopGrace(const std::vector<std::string>& profile) const;
  bool HasDriver(const std::vector<std::string>& profile) const;

 private:
  struct Listing {
    TenantRef tenant;
    v1::ListDevicesResponse* response;
    std::function<void(const Outcome&)> done;
  };
  void Fill(const Tenant& tenant, v1::ListDevicesResponse* response) const;
  void TakeVitals(CoreScope& scope);
  void OnStates(CoreScope& scope);

  DeviceTable devices_{config_->devices_backends, config_->devices_deny};
  HealthJudge judge_;
  bool devices_known_ = !options_.awaits_devices;
  std::vector<Listing> listings_;  // Calls that wait for the devices.
  std::optional<SandboxFacts> sandbox_;
  std::function<void()> probe_wake_;
  std::function<void(CoreScope&)> on_settled_ = [](CoreScope&) {};
  std::function<void(CoreScope&)> on_closed_ = [](CoreScope&) {};
  std::function<void(CoreScope&)> on_changed_ = [](CoreScope&) {};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_DEVICES_H_
