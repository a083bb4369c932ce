// SPDX-License-Identifier: Apache-2.0
// DeviceTable tracks which devices of this machine executors may use, and the state of the others. It does no I/O:
// events and the time go in, devices to probe come out.
//
// Discovery fills the table. A device that a run lost, or that an executor died with, is fenced: executors that start
// leave it out until a probe (a process of its own that tries the device) has shown that it works. The tenant's kernel
// may have killed its own context, so the first probe is at once, and a device that answers is back within a second. A
// device whose probes fail three times in a row is given up until the next discovery.
//
// A device is *closed* while an administrator has paused it or its health forbids work: nothing is started on it, and
// work that runs there ends. Executors keep a paused device, so that it works again at once.
#ifndef HPVMD_SERVER_EXECUTORS_DEVICE_TABLE_H_
#define HPVMD_SERVER_EXECUTORS_DEVICE_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/v1/service.pb.h"
#include "proto/internal/executor.pb.h"
#include "server/executors/health_judge.h"
#include "server/process/intake_file.h"

namespace hpvm::server {

class DeviceTable {
 public:
  static constexpr uint32_t kStrikesMax = 3;
  // Maximum number of devices of one executor (the grant page's and the protocol's limit).
  static constexpr size_t kProfileMax = 8;

  // `backends`: "auto", or a list of families and devices: "cpu,opencl,vulkan:1".
  // `denied`: a list (CheckDeviceNames) of devices that are not used, whatever `backends` says.
  explicit DeviceTable(std::string backends, std::string denied = "")
      : backends_(std::move(backends)), denied_(std::move(denied)) {}

  // Replaces the devices of one family by those that discovery found, or by the error with which its probe failed as a
  // whole.
  void SetFound(const std::string& family, const StatusOr<internal::Ready>& found);

  // Leaves a device with a driver out until a probe has answered; ignores other and unknown devices. Returns true when
  // the state changes.
  bool Fence(std::string_view id, const std::string& why, Time now);
  // Returns a fenced device whose probe is due; NextProbe returns the time of the next probe if none is due. Each
  // result goes to OnProbed.
  std::optional<std::string> DueProbe(Time now);
  Time NextProbe() const;
  void OnProbed(const std::string& id, const Status& outcome, Time now);

  // Pauses exactly these devices from now on. Returns true when the set changes.
  bool SetPaused(std::map<std::string, DevicePause> paused);
  // Sets the health of all devices, identified by UUID or, where it is unknown, by bus address. A device with a fence
  // is closed, and executors that start leave it out unless heat alone is the reason. Returns true when the set of
  // closed devices has changed.
  bool SetVitals(std::vector<DeviceVitals> vitals);
  // Returns true when any device is closed; cheap.
  bool IsAnyClosed() const { return !paused_.empty() || is_any_fenced_; }
  bool IsClosed(std::string_view id) const { return !WhyClosed(id).empty(); }
  // Returns a sentence such as "cpu:0 is paused: new fans."; empty when the device is not closed.
  std::string WhyClosed(std::string_view id) const;
  // Returns why work that needs one device of each set (Preparation::needs) cannot start for now; empty when it can,
  // or when waiting would not help.
  std::string WhyAllClosed(const google::protobuf::RepeatedPtrField<std::string>& needs) const;

  // Sets the operations that a driver device computes wrongly, until it is probed again. Ignores unknown ids.
  void SetDefects(std::string_view id, const std::vector<v1::DriverDefect>& defects);
  // Returns the devices of `profile` that must not run code from our emitters, each with a sentence.
  std::vector<internal::RefusedDevice> EmittedRefused(const std::vector<std::string>& profile) const;
  // Returns a sentence for each device with defects in native modules, for the leaf nodes that use such modules.
  // `nodes` are reported by an executor and not trusted.
  std::vector<std::string> DefectNotes(const google::protobuf::RepeatedPtrField<internal::NativeNode>& nodes) const;
  // Returns the available devices with a driver: the id, and a string that identifies driver and device.
  std::vector<std::pair<std::string, std::string>> DriverDevices() const;

  // Returns the ids of usable devices for executors that start now, as CreateDevice takes them, the CPU first. With
  // "auto", emulated devices are included only for families that have no other, since they are meant for work that
  // nothing else runs.
  std::vector<std::string> Profile() const;
  bool HasDriver(std::string_view id) const;
  // Returns the device's memory in bytes as the driver reports it; 0 when unknown.
  uint64_t MemoryOf(std::string_view id) const;
  // Returns a name that devices on the same hardware share: "cpu" for every device of the processor.
  std::string SiliconOf(std::string_view id) const;
  // Returns true while the first probe of a device after a loss is due or in progress: it answers soon, and an
  // executor that starts without the device would refuse graphs because of another tenant's work.
  bool IsSettling() const;

  // Describes all devices for people: shared memory is attributed to the first device (Device.memory_shared_with).
  std::vector<v1::Device> Describe() const;

 private:
  enum class State : uint8_t { kReady, kFenced, kBroken, kLeftOut };
  struct Entry {
    std::string family;
    v1::Device device;  // Includes its defects; state and detail are the members below.
    State state = State::kReady;
    std::string detail;
    bool has_driver = false;
    uint32_t strikes = 0;
    bool is_probing = false;
    Time probe_at{0};
  };

  bool IsWanted(const std::string& id) const;
  bool IsDenied(const v1::Device& device) const;
  // Returns null when nothing is known of the device.
  const DeviceVitals* VitalsOf(const v1::Device& device) const;
  // Returns true when the device's health forbids work until an administrator resumes it.
  bool IsOut(const Entry& entry) const;
  bool IsSurplus(const Entry& entry) const;
  Entry* Find(std::string_view id);
  const Entry* Find(std::string_view id) const { return const_cast<DeviceTable*>(this)->Find(id); }

  const std::string backends_, denied_;
  std::vector<Entry> entries_;
  std::map<std::string, DevicePause, std::less<>> paused_;
  std::vector<DeviceVitals> vitals_;
  bool is_any_fenced_ = false;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_DEVICE_TABLE_H_
