// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/interpret/launch_check.h"

#include <algorithm>
#include <limits>

namespace hpvm::ir {
namespace {

constexpr uint32_t kStampMax = std::numeric_limits<uint32_t>::max();

FindingLocation ToPlace(const CheckedSite& site) {
  FindingLocation place;
  place.instance = site.instance;
  place.function = site.function;
  place.source = site.source;
  return place;
}

FindingLocation ToPlace(const CheckedSite& site, AccessKind kind) {
  FindingLocation place = ToPlace(site);
  place.is_write = IsWrite(kind);
  place.is_atomic = IsAtomic(kind);
  return place;
}

}  // namespace

Status LaunchCheck::CanCheck(const Module& module, const Launch& launch, uint64_t units) {
  if (launch.instance != nullptr || module.is_linked) {
    return InvalidArgument("Only kernels' launches can be checked.");
  }
  if (units >= kStampMax) {
    return InvalidArgument("The launch has more instances or groups (" + std::to_string(units) +
                           ") than a check can tell apart (" + std::to_string(kStampMax - 1) + ").");
  }
  return absl::OkStatus();
}

LaunchCheck::LaunchCheck(const DecodedModule& decoded, const Launch& launch, const AddressSpace& addresses,
                         Checker& checker, uint64_t begin)
    : decoded_(decoded),
      launch_(launch),
      addresses_(addresses),
      checker_(checker),
      by_groups_(RunsByGroups(decoded.module)),
      begin_(begin),
      bytes_left_(checker.options().record_bytes_max),
      group_record_(kGroupMemoryBytesMax, &bytes_left_) {
  uint32_t site = 0;
  for (const DecodedFunction& function : decoded.functions) {
    site_begin_.push_back(site);
    site += static_cast<uint32_t>(function.code.size());
  }
  PlaceBuffers();
}

// Buffers that share bytes share a record, so that a race through two parameters is found.
void LaunchCheck::PlaceBuffers() {
  std::vector<size_t> order;
  for (size_t i = 0; i < launch_.arguments.size(); ++i) {
    if (decoded_.module.params[i].is_buffer && launch_.arguments[i].bytes > 0) {
      order.push_back(i);
    }
  }
  const auto data = [&](size_t i) { return reinterpret_cast<uintptr_t>(launch_.arguments[i].data); };
  std::ranges::sort(order, [&](size_t a, size_t b) { return data(a) < data(b); });
  buffers_.resize(launch_.arguments.size());
  const std::vector<bool>& outputs = checker_.options().is_output;
  for (size_t first = 0; first < order.size();) {
    const uintptr_t begin = data(order[first]);
    uintptr_t end = begin;
    size_t last = first;
    for (; last < order.size() && (last == first || data(order[last]) < end); ++last) {
      end = std::max<uintptr_t>(end, data(order[last]) + launch_.arguments[order[last]].bytes);
    }
    for (size_t i = first; i < last; ++i) {
      const bool is_output = order[i] < outputs.size() && outputs[order[i]];
      // Bytes that are bound twice may have the content of the other parameter.
      buffers_[order[i]] = {records_.size(), data(order[i]) - begin, is_output && last == first + 1};
    }
    records_.emplace_back(end - begin, &bytes_left_);
    first = last;
  }
}

void LaunchCheck::BeginUnit() {
  PassBarrier();
  group_stamp_ = stamp_;
  if (by_groups_) {
    group_stamps_.push_back(stamp_);
    group_record_.Clear();
  }
}

void LaunchCheck::PassBarrier() {
  if (stamp_ < kStampMax) {
    ++stamp_;
  } else {
    checker_.SetIncomplete();
  }
}

bool LaunchCheck::TakeBytes(uint64_t bytes) {
  if (bytes > bytes_left_) {
    checker_.SetIncomplete();
    return false;
  }
  bytes_left_ -= bytes;
  return true;
}

Location LaunchCheck::Locate(uint64_t address, uint64_t bytes, uint64_t memory_bytes) const {
  if (bytes <= memory_bytes && address <= memory_bytes - bytes) {
    return {FindingMemory::kModule, 0, address};
  }
  for (uint32_t i = 0; i < launch_.arguments.size() && !addresses_.separate; ++i) {
    const uint64_t base = addresses_.base[i], size = launch_.arguments[i].bytes;
    if (decoded_.module.params[i].is_buffer && address >= base && bytes <= size && address - base <= size - bytes) {
      return {FindingMemory::kBuffer, i, address - base};
    }
  }
  return {FindingMemory::kGroup, 0, address - addresses_.group_base};
}

AccessRecord& LaunchCheck::RecordOf(const Location& location, uint64_t* offset) {
  if (location.memory == FindingMemory::kGroup) {
    *offset = location.offset;
    return group_record_;
  }
  const BufferLocation& place = buffers_[location.param];
  *offset = place.offset + location.offset;
  return records_[place.record];
}

void LaunchCheck::Access(const CheckedSite& site, AccessKind kind, bool reads, const Location& location,
                         uint64_t bytes) {
  uint64_t offset = 0;
  AccessRecord& record = RecordOf(location, &offset);
  // Outputs and group memory begin as zeros, and kernels count from zero with atomics. A plain read of unwritten
  // bytes is nevertheless a mistake.
  const bool begins_as_zeros = location.memory == FindingMemory::kGroup || buffers_[location.param].is_output;
  if (reads && !IsAtomic(kind) && begins_as_zeros) {
    if (const std::optional<uint64_t> at = record.FirstUnwritten(offset, bytes); at.has_value()) {
      ReportUninitialized(site, {location.memory, location.param, location.offset + (*at - offset)}, 1, false);
    }
  }
  const Mark mark{stamp_, site.local << Mark::kSiteBits | std::min(site.site, Mark::kSitesMax - 1)};
  const auto conflict = record.Add({kind, mark, group_stamp_}, offset, bytes);
  if (conflict.has_value()) {
    ReportRace(site, kind, {location.memory, location.param, location.offset + (conflict->offset - offset)}, *conflict);
  }
  if (!record.is_complete()) {
    checker_.SetIncomplete();
  }
}

FindingLocation LaunchCheck::PlaceOf(const Mark& mark, AccessKind kind) const {
  FindingLocation place;
  if (by_groups_) {
    const auto next = std::ranges::upper_bound(group_stamps_, mark.stamp);
    const uint64_t group = begin_ + static_cast<uint64_t>(next - group_stamps_.begin()) - 1;
    place.instance = BoxOfGroup(launch_, group).At(mark.local());
  } else {
    place.instance = Unflatten(begin_ + mark.stamp - 1, launch_.extent);
  }
  place.is_write = IsWrite(kind);
  place.is_atomic = IsAtomic(kind);
  if (mark.site() == Mark::kSitesMax - 1) {
    place.function = static_cast<uint32_t>(decoded_.functions.size());  // There are too many operations to tell which
                                                                        // one it was.
    return place;
  }
  const auto next = std::ranges::upper_bound(site_begin_, mark.site());
  place.function = static_cast<uint32_t>(next - site_begin_.begin()) - 1;
  const Code& code = decoded_.functions[place.function].code[mark.site() - site_begin_[place.function]];
  place.function = code.origin != 0 ? code.origin - 1 : place.function;
  place.source = code.source;
  return place;
}

void LaunchCheck::ReportRace(const CheckedSite& site, AccessKind kind, Location location,
                             const AccessRecord::Conflict& conflict) {
  Finding finding;
  finding.kind = FindingKind::kRace;
  finding.first = PlaceOf(conflict.earlier, conflict.kind);
  finding.second = ToPlace(site, kind);
  finding.memory = location.memory;
  finding.param = location.param;
  finding.offset = location.offset;
  finding.bytes = 1;
  checker_.Add(finding, {conflict.earlier.site(), site.site});
}

void LaunchCheck::ReportUninitialized(const CheckedSite& site, const Location& location, uint64_t bytes,
                                      bool is_atomic) {
  Finding finding;
  finding.kind = FindingKind::kUninitializedRead;
  finding.first = ToPlace(site, is_atomic ? AccessKind::kAtomicRead : AccessKind::kRead);
  finding.memory = location.memory;
  finding.param = location.param;
  finding.offset = location.offset;
  finding.bytes = bytes;
  checker_.Add(finding, {site.site, site.site});
}

void LaunchCheck::ReportWrongBuffer(const CheckedSite& site, AccessKind kind, const Location& location, uint64_t bytes,
                                    uint32_t through) {
  Finding finding;
  finding.kind = FindingKind::kWrongBuffer;
  finding.first = ToPlace(site, kind);
  finding.memory = location.memory;
  finding.param = location.param;
  finding.offset = location.offset;
  finding.bytes = bytes;
  finding.through = through;
  checker_.Add(finding, {site.site, site.site});
}

void LaunchCheck::ReportMissedBarrier(const CheckedSite& waiting, const CheckedSite& other, bool other_has_ended) {
  Finding finding;
  finding.kind = FindingKind::kMissedBarrier;
  finding.first = ToPlace(waiting);
  finding.second = ToPlace(other);
  finding.second->has_ended = other_has_ended;
  checker_.Add(finding, {waiting.site, other_has_ended ? waiting.site : other.site});
}

}  // namespace hpvm::ir
