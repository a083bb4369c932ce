// SPDX-License-Identifier: Apache-2.0
// Heads of frames from a hostile peer, both ways: the first byte says which. Whatever is accepted must survive being
// used, and be accepted again when it is written anew.
#include <stddef.h>

#include "proto/internal/protocol.h"
#include "supervisor/executor_request.h"

namespace hpvm {
namespace {

void Use(const internal::Envelope& envelope, size_t body_bytes) {
  const ExecutorDevice devices[2] = {};
  if (envelope.has_run_done()) {
    const StatusOr<RunReply> reply = DecodeRunDone(envelope.run_done(), std::vector<uint8_t>(body_bytes), devices);
    uint64_t sum = 0;
    if (reply.ok()) {
      for (const OutputTensor& output : reply->outputs) {
        for (const uint8_t byte : output.data) {
          sum += byte;
        }
      }
    }
    HPVMD_CHECK(sum == 0);  // The body is zero; reading it is what is tested.
  } else if (envelope.has_prepared()) {
    DecodePrepared(envelope.prepared());
  } else if (envelope.has_ready()) {
    DecodeReady(envelope.ready());
  } else if (envelope.has_shapes()) {
    DecodeOutputs(envelope.shapes().outputs(), {});
  } else if (envelope.has_costs()) {
    const StatusOr<ExecutorCosts> costs = DecodeCostList(envelope.costs(), devices);
    for (size_t i = 0; costs.ok() && i < costs->kernels.size(); ++i) {
      const ExecutorKernelCost& kernel = costs->kernels[i];
      HPVMD_CHECK(kernel.estimate_ns >= 0 && kernel.measured_ns >= 0 && kernel.error >= 0);
      HPVMD_CHECK(kernel.estimate_ns + kernel.measured_ns + kernel.error <= 3 * kCostFigureMax);
      HPVMD_CHECK(IsCleanText(kernel.kernel, false) && kernel.handle != 0);
    }
  } else if (envelope.has_usage()) {
    const internal::Usage& usage = envelope.usage();
    HPVMD_CHECK(usage.device_bytes_size() <= static_cast<int>(kDevicesMax));
    HPVMD_CHECK(usage.idle_device_bytes_size() == usage.device_bytes_size());
    uint64_t sum = 0;
    for (int i = 0; i < usage.device_bytes_size(); ++i) {
      HPVMD_CHECK(usage.idle_device_bytes(i) <= usage.device_bytes(i) && usage.device_bytes(i) <= kDeviceBytesMax);
      sum += usage.device_bytes(i);
    }
    HPVMD_CHECK(sum <= kDevicesMax * kDeviceBytesMax);
  }
}

}  // namespace
}  // namespace hpvm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hpvm;
  if (size < 3) {
    return 0;
  }
  const std::string_view head(reinterpret_cast<const char*>(data) + 3, size - 3);
  const size_t body_bytes = data[1] * size_t{16}, fds = data[2] & 1;
  const auto decode = (data[0] & 1) == 0 ? DecodeToExecutor : DecodeFromExecutor;
  internal::Envelope envelope, again;
  if (!decode(head, body_bytes, fds, &envelope).ok()) {
    return 0;
  }
  HPVMD_CHECK(head.size() <= kHeadBytesMax);
  HPVMD_CHECK(decode(envelope.SerializeAsString(), body_bytes, fds, &again).ok());
  if ((data[0] & 1) != 0) {
    Use(envelope, body_bytes);
  }
  return 0;
}
