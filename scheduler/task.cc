// SPDX-License-Identifier: Apache-2.0
#include "scheduler/task.h"

namespace hpvm::scheduler {
namespace {

bool Overlap(const ByteRange& a, const ByteRange& b) {
  return !a.is_empty() && !b.is_empty() && a.begin < b.end && b.begin < a.end;
}

}  // namespace

std::string_view Name(Whole why) {
  switch (why) {
    case Whole::kNotAsked:
      return "";
    case Whole::kSizeUnknown:
      return "its size is known only when it starts";
    case Whole::kBytesUnknown:
      return "the compiler cannot tell which bytes a part of it touches";
    case Whole::kPartsMeet:
      return "its parts would write bytes of each other";
    case Whole::kNotMeasured:
      return "its time on the other devices was not measured yet";
    case Whole::kNoGain:
      return "the plan expects that splitting it would hardly make it end earlier";
  }
  return "";
}

PortAccess WholeBuffers::Of(graph::FlatNodeId, uint32_t, const Box&, uint32_t port) const {
  const graph::FlatPort& p = flat_.ports[port];
  const ByteRange whole{0, flat_.values[(p.out.valid() ? p.out : p.in).index].bytes};
  PortAccess access;
  access.read = p.access == graph::Access::kOut ? ByteRange() : whole;
  access.written = p.access == graph::Access::kIn ? ByteRange() : whole;
  return access;
}

bool SplitIsSafe(const graph::FlatGraph& flat, const AccessModel& accesses, const std::vector<Task>& parts) {
  if (parts.empty()) {
    return true;
  }
  const uint32_t node = parts.front().node.index;
  const uint32_t end =
      node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
  std::vector<PortAccess> of_parts(parts.size());
  for (uint32_t port = flat.nodes[node].first_port; port < end; ++port) {
    for (size_t i = 0; i < parts.size(); ++i) {
      of_parts[i] = accesses.Of(parts[i].node, parts[i].choice, parts[i].box, port);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      for (size_t j = 0; j < parts.size(); ++j) {
        if (i != j && (Overlap(of_parts[i].written, of_parts[j].written) ||
                       Overlap(of_parts[i].written, of_parts[j].read))) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace hpvm::scheduler
