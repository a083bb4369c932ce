// SPDX-License-Identifier: Apache-2.0
// Which devices of this machine executors may use, and what has become of the others. Pure: events and the time in,
// what to probe out.
//
// Discovery fills the table. A device that a run lost, or that an executor died with, is fenced: executors that start
// leave it out until a probe (a process of its own that tries the device) has shown that it works. It may have been the
// tenant's kernel that killed its own context, so the first probe is at once, and a device that answers is back within
// a second. One whose probes fail three times in a row is given up until the next discovery.
#ifndef HPVMD_SERVER_EXECUTORS_DEVICE_TABLE_H_
#define HPVMD_SERVER_EXECUTORS_DEVICE_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/v1/service.pb.h"
#include "proto/internal/executor.pb.h"

namespace hpvm::server {

class DeviceTable {
 public:
  static constexpr uint32_t kStrikesMax = 3;
  // The most devices of one executor (the grant page's and the protocol's limit).
  static constexpr size_t kProfileMax = 8;

  // `backends`: "auto", or a list of families and devices: "cpu,opencl,vulkan:1".
  explicit DeviceTable(std::string backends) : backends_(std::move(backends)) {}

  // What discovery found of one family; a status when its probe failed as a whole. Replaces what was known of the
  // family.
  void SetFound(const std::string& family, const StatusOr<internal::Ready>& found);

  // Leaves a device with a driver out until a probe has answered; others and unknown ones stay as they are. True when
  // this is news.
  bool Fence(std::string_view id, const std::string& why, Time now);
  // A fenced device whose probe is due, and when the next one is, if none is now. Each answer goes to OnProbed.
  std::optional<std::string> DueProbe(Time now);
  Time NextProbe() const;
  void OnProbed(const std::string& id, const Status& outcome, Time now);

  // What a driver device was seen to compute wrongly, until it is tried out anew. Unknown ids change nothing.
  void SetDefects(std::string_view id, const std::vector<v1::DriverDefect>& defects);
  // Devices of `profile` that are to run none of the code that our emitters make, each with a sentence.
  std::vector<internal::RefusedDevice> EmittedRefused(const std::vector<std::string>& profile) const;
  // A sentence for each device with defects in modules that were written for it and leaves that have such. `nodes` are
  // an executor's word.
  std::vector<std::string> DefectNotes(const google::protobuf::RepeatedPtrField<internal::NativeNode>& nodes) const;
  // Devices with a driver that are there: (id, what tells one driver and device from another).
  std::vector<std::pair<std::string, std::string>> DriverDevices() const;

  // For executors that start now: the ids of usable devices as CreateDevice takes them, the CPU first. With "auto",
  // emulated devices only of families that have no other: they are there for what nothing else runs.
  std::vector<std::string> Profile() const;
  bool HasDriver(std::string_view id) const;
  // What the device itself says of its memory; 0: unknown.
  uint64_t MemoryOf(std::string_view id) const;
  // What devices that share hardware have in common: "cpu" for the processor's, under whatever name.
  std::string SiliconOf(std::string_view id) const;
  // Some device's first probe after a loss is due or under way: it answers soon, and an executor that starts without it
  // would refuse graphs for what another tenant did.
  bool IsSettling() const;

  // For people: memory that several share belongs to the first of them (Device.memory_shared_with).
  std::vector<v1::Device> Describe() const;

 private:
  enum class State : uint8_t { kReady, kFenced, kBroken };
  struct Entry {
    std::string family;
    v1::Device device;  // With its defects; state and detail are those below.
    State state = State::kReady;
    std::string detail;
    bool has_driver = false;
    uint32_t strikes = 0;
    bool is_probing = false;
    Time probe_at{0};
  };

  bool IsWanted(const std::string& id) const;
  bool IsSurplus(const Entry& entry) const;
  Entry* Find(std::string_view id);

  const std::string backends_;
  std::vector<Entry> entries_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_DEVICE_TABLE_H_
