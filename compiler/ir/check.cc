// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/check.h"

namespace hpvm::ir {
namespace {

using PlaceName = std::function<std::string(uint32_t)>;

std::string InstanceName(const FindingLocation& place) {
  const auto& id = place.instance;
  return "instance (" + std::to_string(id[0]) + ", " + std::to_string(id[1]) + ", " + std::to_string(id[2]) + ')';
}

// Returns text such as " (function "blur", byte 117 of the module)", as far as it is known.
std::string PlaceText(const FindingLocation& place, const Module& module, const PlaceName& name) {
  std::string text;
  if (place.function < module.functions.size()) {
    text += "function \"" + module.functions[place.function].name + '"';
  }
  if (place.source != 0) {
    text += text.empty() ? "" : ", ";
    text += name != nullptr ? name(place.source) : "byte " + std::to_string(place.source) + " of the module";
  }
  return text.empty() ? "" : " (" + text + ')';
}

std::string BufferName(uint32_t param, const Module& module) {
  return param < module.params.size() ? "buffer \"" + module.params[param].name + '"' : "a buffer";
}

std::string MemoryText(const Finding& finding, const Module& module) {
  const std::string bytes = finding.bytes == 1
                                ? "byte " + std::to_string(finding.offset)
                                : std::to_string(finding.bytes) + " bytes at " + std::to_string(finding.offset);
  switch (finding.memory) {
    case FindingMemory::kBuffer:
      return bytes + " of " + BufferName(finding.param, module);
    case FindingMemory::kGroup:
      return bytes + " of group memory";
    default:
      // In module memory, only the stack can be uninitialised.
      return bytes + (finding.kind == FindingKind::kUninitializedRead ? " of its stack" : " of module memory");
  }
}

std::string Verb(const FindingLocation& place) {
  if (place.is_atomic) {
    return place.is_write ? " atomically writes " : " atomically reads ";
  }
  return place.is_write ? " writes " : " reads ";
}

}  // namespace

std::string_view Name(FindingKind kind) {
  switch (kind) {
    case FindingKind::kRace:
      return "race";
    case FindingKind::kUninitializedRead:
      return "uninitialised read";
    case FindingKind::kWrongBuffer:
      return "wrong buffer";
    case FindingKind::kMissedBarrier:
      return "missed barrier";
  }
  return "?";
}

std::string ToString(const Finding& finding, const Module& module, const PlaceName& place) {
  const FindingLocation& first = finding.first;
  const FindingLocation second = finding.second.value_or(FindingLocation{});
  const std::string who = InstanceName(first), where = PlaceText(first, module, place);
  const std::string what = MemoryText(finding, module);
  std::string text(Name(finding.kind));
  switch (finding.kind) {
    case FindingKind::kRace:
      return text + " on " + what + ": " + who + Verb(first) + "it" + where + " and " + InstanceName(second) +
             Verb(second) + "it" + PlaceText(second, module, place) + ", with no barrier between them";
    case FindingKind::kUninitializedRead:
      return text + ": " + who + Verb(first) + what + ", which nothing has written" + where;
    case FindingKind::kWrongBuffer:
      return text + ": " + who + Verb(first) + what + " through an address computed from " +
             BufferName(finding.through, module) + where;
    case FindingKind::kMissedBarrier:
      break;
  }
  text += ": " + who + " waits at a barrier" + where + " and " + InstanceName(second);
  return second.has_ended ? text + " has ended" : text + " waits at another one" + PlaceText(second, module, place);
}

void Checker::Add(const Finding& finding, std::pair<uint32_t, uint32_t> sites) {
  if (sites.first > sites.second) {
    std::swap(sites.first, sites.second);  // Two operations race in either order.
  }
  const auto [known, is_new] = known_.emplace(std::pair(finding.kind, sites), findings_.size());
  if (!is_new) {
    ++findings_[known->second].count;
  } else if (findings_.size() < options_.findings_max) {
    findings_.push_back(finding);
  } else {
    known_.erase(known);
    ++dropped_;
  }
}

}  // namespace hpvm::ir
