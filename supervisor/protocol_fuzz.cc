// SPDX-License-Identifier: Apache-2.0
// Heads of frames from a hostile peer, in both directions: the first byte selects the direction. Every accepted message
// must be safe to use, and be accepted again after it is serialised anew.
#include <stddef.h>

#include <string>
#include <vector>

#include "proto/internal/protocol.h"

namespace hpvm::supervisor {
namespace {

const std::vector<std::string>& Devices() {
  static const auto* const devices = new std::vector<std::string>{"cpu:0", "opencl:0"};
  return *devices;
}

void UseRun(const internal::RunDone& done, size_t body_bytes) {
  const std::vector<uint8_t> body(body_bytes);
  uint64_t sum = 0;
  for (const internal::OutputTensor& output : done.outputs()) {
    for (uint32_t i = 0; i < output.body().bytes(); ++i) {
      sum += body[output.body().offset() + i];
    }
  }
  HPVMD_CHECK(sum == 0);  // The body is zero; the purpose is to read it.
  for (const v1::NodePlacement& node : done.nodes()) {
    HPVMD_CHECK(node.device() == Devices()[0] || node.device() == Devices()[1] || node.device() == kCheckerName);
  }
}

void UseCosts(const internal::Costs& costs) {
  for (const internal::GraphCosts& graph : costs.graphs()) {
    HPVMD_CHECK(graph.handle() != 0);
    for (const v1::KernelCost& kernel : graph.kernels()) {
      HPVMD_CHECK(kernel.estimate_ns() >= 0 && kernel.measured_ns() >= 0 && kernel.error() >= 0);
      HPVMD_CHECK(kernel.estimate_ns() + kernel.measured_ns() + kernel.error() <= 3 * kCostFigureMax);
      HPVMD_CHECK(IsCleanText(kernel.kernel(), false) && kernel.handle().empty());
    }
  }
}

void UseUsage(const internal::Usage& usage) {
  HPVMD_CHECK(usage.device_bytes_size() <= static_cast<int>(kDevicesMax));
  HPVMD_CHECK(usage.idle_device_bytes_size() == usage.device_bytes_size());
  uint64_t sum = 0;
  for (int i = 0; i < usage.device_bytes_size(); ++i) {
    HPVMD_CHECK(usage.idle_device_bytes(i) <= usage.device_bytes(i) && usage.device_bytes(i) <= kDeviceBytesMax);
    sum += usage.device_bytes(i);
  }
  HPVMD_CHECK(sum <= kDevicesMax * kDeviceBytesMax);
}

// Returns the message that the daemon receives, or why there is none.
StatusOr<internal::Envelope> Decode(bool is_from_executor, std::string_view head, size_t body_bytes, size_t fds) {
  HPVMD_ASSIGN_OR_RETURN(Unchecked<internal::Envelope> said, ParseHead(head));
  return is_from_executor ? CheckFromExecutor(std::move(said), body_bytes, fds, Devices())
                          : CheckToExecutor(std::move(said), body_bytes, fds);
}

}  // namespace
}  // namespace hpvm::supervisor

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hpvm;
  using supervisor::Decode, supervisor::UseCosts, supervisor::UseRun, supervisor::UseUsage;
  if (size < 3) {
    return 0;
  }
  const std::string_view head(reinterpret_cast<const char*>(data) + 3, size - 3);
  const size_t body_bytes = data[1] * size_t{16}, fds = data[2] & 1;
  const bool is_from_executor = (data[0] & 1) != 0;
  const StatusOr<internal::Envelope> envelope = Decode(is_from_executor, head, body_bytes, fds);
  if (!envelope.ok()) {
    return 0;
  }
  HPVMD_CHECK(head.size() <= kHeadBytesMax);
  HPVMD_CHECK(Decode(is_from_executor, envelope->SerializeAsString(), body_bytes, fds).ok());
  if (envelope->has_run_done()) {
    UseRun(envelope->run_done(), body_bytes);
  } else if (envelope->has_costs()) {
    UseCosts(envelope->costs());
  } else if (envelope->has_usage()) {
    UseUsage(envelope->usage());
  }
  return 0;
}
