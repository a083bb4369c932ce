// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/cost_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "client/ctl/text/text.h"

namespace hpvm::ctl {
namespace {

constexpr double kMost = 1e18;

uint64_t Whole(double figure) {
  return std::isfinite(figure) ? static_cast<uint64_t>(std::clamp(figure, 0.0, kMost)) : 0;
}

std::string ErrorText(const v1::KernelCost& kernel) {
  if (kernel.samples() < 2 || !std::isfinite(kernel.error())) {
    return "-";
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f %%", std::clamp(kernel.error() * 100, 0.0, 1e9));
  return text;
}

}  // namespace

std::string CostText(const google::protobuf::RepeatedPtrField<v1::KernelCost>& kernels, bool has_more) {
  std::vector<std::vector<std::string>> rows = {
      {"KERNEL", "DEVICE", "INSTANCES", "ESTIMATE", "MEASURED", "SAMPLES", "ERROR"}};
  for (const v1::KernelCost& kernel : kernels) {
    rows.push_back({kernel.kernel(), kernel.device(), "<= " + std::to_string(kernel.instances()),
                    DurationText(Whole(kernel.estimate_ns())),
                    kernel.samples() == 0 ? "~" : DurationText(Whole(kernel.measured_ns())),
                    std::to_string(kernel.samples()), ErrorText(kernel)});
  }
  return Table(rows) + (has_more ? "... there are more kernels; --handle names one graph's\n" : "");
}

std::string CostText(const google::protobuf::RepeatedPtrField<v1::TransferCost>& transfers) {
  std::vector<std::vector<std::string>> rows = {{"FROM", "TO", "START", "SPEED"}};
  for (const v1::TransferCost& transfer : transfers) {
    const char* mark = transfer.is_estimate() ? "~" : "";
    rows.push_back({transfer.source(), transfer.target(), mark + DurationText(Whole(transfer.start_ns())),
                    mark + BytesText(Whole(transfer.bytes_per_second())) + "/s"});
  }
  return Table(rows);
}

}  // namespace hpvm::ctl
