// SPDX-License-Identifier: Apache-2.0
#include "server/executors/device_table.h"

#include <algorithm>
#include <utility>

#include "server/config/device_families.h"

namespace hpvm::server {
namespace {

// Delay after the first failed probe; doubles with each.
constexpr Duration kProbeAgain = std::chrono::seconds(1);

// "cpu:0" is the CPU's only device; CreateDevice knows it by its family.
std::string BackendOf(const std::string& family, const std::string& id) { return family == "cpu" ? "cpu" : id; }

std::string_view IdOf(std::string_view backend) { return backend == "cpu" ? "cpu:0" : backend; }

}  // namespace

bool DeviceTable::IsWanted(const std::string& id) const {
  if (backends_ == "auto") {
    return true;
  }
  const std::vector<std::string> names = SplitNames(backends_);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name == id || name == FamilyOf(id); });
}

bool DeviceTable::IsDenied(const v1::Device& device) const {
  const std::string uuid = UuidOf(device.health().uuid()), bus = BusOf(device.health().bus());
  const std::vector<std::string> names = SplitNames(denied_);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == device.id() || name == FamilyOf(device.id()) || (!uuid.empty() && UuidOf(name) == uuid) ||
           (!bus.empty() && BusOf(name) == bus);
  });
}

const DeviceVitals* DeviceTable::VitalsOf(const v1::Device& device) const {
  const std::string uuid = UuidOf(device.health().uuid()), bus = BusOf(device.health().bus());
  const auto found = std::find_if(vitals_.begin(), vitals_.end(), [&](const DeviceVitals& vitals) {
    const v1::DeviceHealth& health = vitals.health;
    return !uuid.empty() && !health.uuid().empty() ? health.uuid() == uuid : !bus.empty() && health.bus() == bus;
  });
  return found == vitals_.end() ? nullptr : &*found;
}

bool DeviceTable::IsOut(const Entry& entry) const {
  const DeviceVitals* vitals = is_any_fenced_ ? VitalsOf(entry.device) : nullptr;
  return vitals != nullptr && !vitals->health.fence().empty() && !vitals->is_fenced_by_heat;
}

bool DeviceTable::IsSurplus(const Entry& entry) const {
  return backends_ == "auto" && entry.device.emulated() &&
         std::any_of(entries_.begin(), entries_.end(), [&](const Entry& other) {
           return other.family == entry.family && !other.device.emulated() && other.state == State::kReady;
         });
}

DeviceTable::Entry* DeviceTable::Find(std::string_view id) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.device.id() == id; });
  return found == entries_.end() ? nullptr : &*found;
}

void DeviceTable::SetFound(const std::string& family, const StatusOr<internal::Ready>& found) {
  std::vector<Entry> entries, before;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(before),
               [&](const Entry& entry) { return entry.family == family; });
  std::erase_if(entries_, [&](const Entry& entry) { return entry.family == family; });
  const auto add_broken = [&](const std::string& id, const std::string& detail) {
    Entry& entry = entries.emplace_back();
    entry.family = family;
    entry.device.set_id(id);
    entry.device.set_kind(family == "cpu" ? v1::Device::KIND_CPU : v1::Device::KIND_GPU);
    entry.state = State::kBroken;
    entry.detail = detail;
    entry.has_driver = family != "cpu";
  };
  if (!found.ok()) {
    add_broken(family + ":0", Message(found.status()));
  } else {
    for (const internal::DeviceReport& report : found->devices()) {
      Entry& entry = entries.emplace_back();
      entry.family = family;
      entry.device = report.device();
      entry.has_driver = report.has_driver();
      // The same driver as before keeps its known defects until it has been probed again.
      const auto same = std::find_if(before.begin(), before.end(), [&](const Entry& e) {
        return e.device.id() == report.device().id() && e.device.name() == report.device().name();
      });
      if (same != before.end()) {
        *entry.device.mutable_defects() = same->device.defects();
      }
    }
    for (const v1::Device& broken : found->broken()) {
      add_broken(broken.id(), broken.detail());
    }
  }
  std::erase_if(entries, [&](const Entry& entry) { return !IsWanted(entry.device.id()); });
  for (Entry& entry : entries) {
    if (entry.state == State::kReady && entry.family != "cpu" && IsDenied(entry.device)) {
      entry.state = State::kLeftOut;
      entry.detail = "The configuration leaves the device to other programs (devices.deny).";
    }
  }
  const auto rank = [](const std::string& name) {
    return std::ranges::find(kFamilyRows, name, &FamilyRow::name) - kFamilyRows.begin();
  };
  entries_.insert(entries_.end(), entries.begin(), entries.end());
  std::stable_sort(entries_.begin(), entries_.end(),
                   [&](const Entry& a, const Entry& b) { return rank(a.family) < rank(b.family); });
}

uint64_t DeviceTable::MemoryOf(std::string_view id) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.device.id() == id; });
  return found == entries_.end() ? 0 : found->device.memory_bytes();
}

std::string DeviceTable::SiliconOf(std::string_view id) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.device.id() == id; });
  const bool is_emulated = found != entries_.end() && found->device.emulated();
  if (!HasDriver(id) || is_emulated) {
    return "cpu";
  }
  return found == entries_.end() || found->device.silicon().empty() ? std::string(id) : found->device.silicon();
}

bool DeviceTable::HasDriver(std::string_view id) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.device.id() == id && entry.has_driver; });
}

bool DeviceTable::Fence(std::string_view id, const std::string& why, Time now) {
  Entry* entry = Find(id);
  if (entry == nullptr || !HasDriver(id) || entry->state != State::kReady) {
    return false;
  }
  entry->state = State::kFenced;
  entry->detail = why;
  entry->strikes = 0;
  entry->probe_at = now;
  return true;
}

bool DeviceTable::SetPaused(std::map<std::string, DevicePause> paused) {
  std::map<std::string, DevicePause, std::less<>> next(paused.begin(), paused.end());
  return std::exchange(paused_, next) != next;
}

bool DeviceTable::SetVitals(std::vector<DeviceVitals> vitals) {
  const auto fences = [&] {
    std::vector<std::pair<std::string, bool>> all;
    for (const Entry& entry : entries_) {
      const DeviceVitals* known = VitalsOf(entry.device);
      all.emplace_back(known == nullptr ? "" : known->health.fence(), known != nullptr && known->is_fenced_by_heat);
    }
    return all;
  };
  const auto before = fences();
  vitals_ = std::move(vitals);
  is_any_fenced_ =
      std::any_of(vitals_.begin(), vitals_.end(), [](const DeviceVitals& one) { return !one.health.fence().empty(); });
  return fences() != before;
}

std::string DeviceTable::WhyClosed(std::string_view id) const {
  const auto pause = paused_.find(IdOf(id));
  if (pause != paused_.end()) {
    return pause->first + " is paused" + (pause->second.reason.empty() ? "." : ": " + pause->second.reason + ".");
  }
  const Entry* entry = is_any_fenced_ ? Find(IdOf(id)) : nullptr;
  const DeviceVitals* vitals = entry == nullptr ? nullptr : VitalsOf(entry->device);
  return vitals == nullptr || vitals->health.fence().empty()
             ? ""
             : entry->device.id() + " is fenced. " + vitals->health.fence();
}

std::string DeviceTable::WhyAllClosed(const google::protobuf::RepeatedPtrField<std::string>& needs) const {
  if (!IsAnyClosed()) {
    return "";
  }
  for (const std::string& need : needs) {
    std::string why;
    bool is_any_open = false;
    for (const std::string& id : SplitNames(need)) {
      const Entry* entry = Find(id);
      const std::string closed = WhyClosed(id);
      is_any_open |= closed.empty() && entry != nullptr && entry->state == State::kReady;
      why += (why.empty() || closed.empty() ? "" : " ") + closed;
    }
    if (!is_any_open && !why.empty()) {
      return why + " A part of the graph runs nowhere else.";
    }
  }
  return "";
}

std::optional<std::string> DeviceTable::DueProbe(Time now) {
  for (Entry& entry : entries_) {
    if (entry.state == State::kFenced && !entry.is_probing && entry.probe_at <= now) {
      entry.is_probing = true;
      return entry.device.id();
    }
  }
  return std::nullopt;
}

Time DeviceTable::NextProbe() const {
  Time next = kNever;
  for (const Entry& entry : entries_) {
    if (entry.state == State::kFenced && !entry.is_probing) {
      next = std::min(next, entry.probe_at);
    }
  }
  return next;
}

void DeviceTable::OnProbed(const std::string& id, const Status& outcome, Time now) {
  Entry* entry = Find(id);
  if (entry == nullptr || !entry->is_probing) {
    return;
  }
  entry->is_probing = false;
  if (outcome.ok()) {
    entry->state = State::kReady;
    entry->detail.clear();
    return;
  }
  entry->detail = Message(outcome);
  if (++entry->strikes >= kStrikesMax) {
    entry->state = State::kBroken;
    entry->detail = "Given up after " + std::to_string(kStrikesMax) + " failed probes: " + entry->detail;
  } else {
    entry->probe_at = now + kProbeAgain * (1 << (entry->strikes - 1));
  }
}

std::vector<std::string> DeviceTable::Profile() const {
  std::vector<std::string> profile = {"cpu"};
  for (const Entry& entry : entries_) {
    if (entry.family != "cpu" && entry.state == State::kReady && profile.size() < kProfileMax && !IsSurplus(entry) &&
        !IsOut(entry)) {
      profile.push_back(BackendOf(entry.family, entry.device.id()));
    }
  }
  return profile;
}

void DeviceTable::SetDefects(std::string_view id, const std::vector<v1::DriverDefect>& defects) {
  if (Entry* const entry = Find(id); entry != nullptr) {
    entry->device.mutable_defects()->Assign(defects.begin(), defects.end());
  }
}

std::vector<internal::RefusedDevice> DeviceTable::EmittedRefused(const std::vector<std::string>& profile) const {
  std::vector<internal::RefusedDevice> refused;
  for (const Entry& entry : entries_) {
    const auto& defects = entry.device.defects();
    const auto ours = std::find_if(defects.begin(), defects.end(),
                                   [](const v1::DriverDefect& defect) { return defect.in_generated_code(); });
    if (ours != defects.end() && std::find(profile.begin(), profile.end(), entry.device.id()) != profile.end()) {
      internal::RefusedDevice& device = refused.emplace_back();
      device.set_id(entry.device.id());
      device.set_reason("The driver of the device computes generated code wrongly (" + ours->name() +
                        "), so the device runs none. " + ours->reason());
    }
  }
  return refused;
}

std::vector<std::string> DeviceTable::DefectNotes(
    const google::protobuf::RepeatedPtrField<internal::NativeNode>& nodes) const {
  constexpr size_t kNodesNamedMax = 5;
  std::vector<std::string> notes;
  for (const Entry& entry : entries_) {
    const std::string& id = entry.device.id();
    std::string faults;
    for (const v1::DriverDefect& defect : entry.device.defects()) {
      faults += defect.in_generated_code() ? "" : " " + defect.name() + ": " + defect.reason();
    }
    std::string names;
    size_t count = 0;
    for (const internal::NativeNode& node : nodes) {
      const bool is_for_it = std::find(node.devices().begin(), node.devices().end(), id) != node.devices().end();
      if (is_for_it && ++count <= kNodesNamedMax) {
        names += (names.empty() ? "\"" : ", \"") + node.name() + "\"";
      }
    }
    if (faults.empty() || count == 0) {
      continue;
    }
    names += count > kNodesNamedMax ? " and " + std::to_string(count - kNodesNamedMax) + " more" : "";
    notes.push_back("The driver of " + id + " (" + entry.device.name() +
                    ") is known to compute some native modules wrongly, perhaps those of " +
                    (count == 1 ? "node " : "nodes ") + names + "." + faults);
  }
  return notes;
}

std::vector<std::pair<std::string, std::string>> DeviceTable::DriverDevices() const {
  std::vector<std::pair<std::string, std::string>> devices;
  for (const Entry& entry : entries_) {
    if (HasDriver(entry.device.id()) && entry.state == State::kReady) {
      devices.emplace_back(entry.device.id(), entry.device.name() + "\n" + entry.device.silicon());
    }
  }
  return devices;
}

bool DeviceTable::IsSettling() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.state == State::kFenced && entry.strikes == 0; });
}

std::vector<v1::Device> DeviceTable::Describe() const {
  std::vector<v1::Device> described;
  for (const Entry& entry : entries_) {
    v1::Device to = entry.device;
    to.set_state(entry.state == State::kReady     ? v1::Device::STATE_READY
                 : entry.state == State::kFenced  ? v1::Device::STATE_PROBING
                 : entry.state == State::kLeftOut ? v1::Device::STATE_LEFT_OUT
                                                  : v1::Device::STATE_BROKEN);
    to.set_detail(entry.detail);
    if (const DeviceVitals* vitals = VitalsOf(to); vitals != nullptr) {
      *to.mutable_health() = vitals->health;
      if (!vitals->health.fence().empty()) {
        to.set_state(v1::Device::STATE_BROKEN);
        to.set_detail(vitals->health.fence());
      }
    }
    if (const auto pause = paused_.find(to.id()); pause != paused_.end()) {
      to.mutable_paused()->set_reason(pause->second.reason);
      to.mutable_paused()->set_by(pause->second.paused_by);
      to.mutable_paused()->set_since_unix_ns(pause->second.since_unix_ns);
    }
    const auto same = std::find_if(described.begin(), described.end(), [&](const v1::Device& earlier) {
      return !to.silicon().empty() && earlier.id() != to.id() && earlier.silicon() == to.silicon();
    });
    if (same != described.end()) {
      to.set_memory_shared_with(same->id());
    }
    described.push_back(std::move(to));
  }
  return described;
}

}  // namespace hpvm::server
