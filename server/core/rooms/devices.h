// SPDX-License-Identifier: Apache-2.0
// Devices: what discovery found, what runs lost, and what is tried out again.
#ifndef HPVMD_SERVER_CORE_ROOMS_DEVICES_H_
#define HPVMD_SERVER_CORE_ROOMS_DEVICES_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hpvm/v1/service.pb.h"
#include "server/core/state/core_context.h"
#include "server/executors/device_table.h"
#include "server/executors/sandbox_facts.h"

namespace hpvm::server {

class Devices : private CoreRoom {
 public:
  explicit Devices(CoreContext& context) : CoreRoom(context) {}

  // --- For clients; these lock the mutex ---
  // What discovery found of one family, at start and again later; a status when its probe failed.
  void SetFound(const std::string& family, const StatusOr<internal::Ready>& found);
  // What executors' sandboxes reach, before a tenant asks for one. Blocks (ProbeSandbox): for the thread that probes.
  void LookAtSandbox();
  // Every family has answered.
  void DevicesKnown();
  // Devices with drivers whose defects are to be looked for, and what was found of one (DeviceTable).
  std::vector<std::pair<std::string, std::string>> DriverDevices();
  // Those of a prepared graph's devices that have drivers.
  std::vector<std::string> DriverDevices(const Preparation& preparation) const;
  void SetDefects(const std::string& id, const std::vector<v1::DriverDefect>& defects);
  // For the thread that probes: a device that is to be tried out, or until when there is none.
  std::optional<std::string> DueProbe(Time* next);
  void OnProbed(const std::string& id, const Status& outcome);
  // Called, from any thread, when DueProbe has something earlier than it last said. Set before anything else.
  void SetProbeWake(std::function<void()> wake);
  // Answers when every family has: at once, or from the thread that looks for devices. Unavailable when the server
  // stops before, or too many calls of the tenant wait. `response` lives until then.
  void ListDevices(const TenantRef& tenant, v1::ListDevicesResponse* response,
                   std::function<void(const Outcome&)> done);
  // Answers at once; false before every family has answered: a device that is missing is not gone.
  bool ListKnownDevices(Tenant& tenant, v1::ListDevicesResponse* response);

  // --- For other rooms, with the mutex ---
  // The server stops: calls that wait for the devices are answered.
  void LeaveQueues(CoreScope& scope);
  const DeviceTable& table() const { return devices_; }
  bool known() const { return devices_known_; }
  // Of the executor that started last; empty: none has.
  const std::optional<SandboxFacts>& sandbox() const { return sandbox_; }
  // Of an executor that has started, whose tenant knew `own` of the one before.
  void SetSandbox(CoreScope& scope, const SandboxFacts& facts, std::optional<SandboxFacts>* own);
  // Called when what ListDevices answers may have changed. Set before anything else.
  void SetOnChanged(std::function<void(CoreScope&)> on_changed) { on_changed_ = std::move(on_changed); }
  // Called when a device may no longer be in question (AreSettled). Set before anything else.
  void SetOnSettled(std::function<void(CoreScope&)> on_settled) { on_settled_ = std::move(on_settled); }
  // Every family has answered, and no device is in question.
  bool AreSettled() const { return devices_known_ && !devices_.IsSettling(); }
  // Takes devices of a run away from executors that start, until they have been tried out.
  // Every tenant is shown `what`; `why` is one tenant's or its executor's text, for the log.
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

  DeviceTable devices_{config_->devices_backends};
  bool devices_known_ = !options_.awaits_devices;
  std::vector<Listing> listings_;  // That wait for the devices.
  std::optional<SandboxFacts> sandbox_;
  std::function<void()> probe_wake_;
  std::function<void(CoreScope&)> on_settled_ = [](CoreScope&) {};
  std::function<void(CoreScope&)> on_changed_ = [](CoreScope&) {};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_DEVICES_H_
