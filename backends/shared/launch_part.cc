// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/launch_part.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "backends/shared/host_queue.h"

namespace hpvm::backends {
namespace {

constexpr char kDimension[] = {'x', 'y', 'z'};

StatusOr<uint64_t> ReadExtent(const ExtentSource& source, const Submission& submission) {
  if (source.bytes != 4 && source.bytes != 8) {
    return Internal("An extent is read from " + std::to_string(source.bytes) + " bytes; 4 or 8 are allowed.");
  }
  HPVMD_ASSIGN_OR_RETURN(const uint8_t* data, HostRange(submission, source.slot, source.offset, source.bytes));
  uint64_t value = 0;  // Hosts are little-endian.
  std::memcpy(&value, data, source.bytes);
  return value;
}

}  // namespace

StatusOr<LaunchPart> PartOf(const DispatchCommand& dispatch, const Submission& submission) {
  LaunchPart part;
  for (size_t d = 0; d < 3; ++d) {
    uint64_t extent = dispatch.extent[d];
    if (dispatch.extent_from[d].slot != kNoSlot) {
      HPVMD_ASSIGN_OR_RETURN(extent, ReadExtent(dispatch.extent_from[d], submission));
      if (extent > dispatch.extent[d]) {
        return Aborted("The number of instances along " + std::string(1, kDimension[d]) + " that the graph computed (" +
                       std::to_string(extent) + ") is larger than the node's limit (" +
                       std::to_string(dispatch.extent[d]) + ").");
      }
    }
    const uint64_t group = std::max<uint64_t>(dispatch.group[d], 1);
    part.extent[d] = extent;
    part.from[d] = std::min(dispatch.first[d], extent);
    part.to[d] = part.from[d] + std::min(dispatch.count[d], extent - part.from[d]);
    if (dispatch.first[d] % group != 0 || (part.to[d] % group != 0 && part.to[d] != extent)) {
      return Internal("A part of a launch, instances " + std::to_string(part.from[d]) + " to " +
                      std::to_string(part.to[d]) + " along " + std::string(1, kDimension[d]) +
                      ", does not consist of whole groups (" + std::to_string(group) + ").");
    }
    part.is_whole &= part.from[d] == 0 && part.to[d] == extent;
    part.is_empty |= part.from[d] == part.to[d];
  }
  return part;
}

}  // namespace hpvm::backends
