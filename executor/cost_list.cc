// SPDX-License-Identifier: Apache-2.0
#include "executor/cost_list.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hpvm {
namespace {

// The daemon takes nothing else.
double Figure(double value) { return std::isfinite(value) ? std::clamp(value, 0.0, kCostFigureMax) : 0; }

void Describe(const KernelCostRecord& record, uint64_t handle, internal::KernelCost* kernel) {
  kernel->set_kernel(CleanText(record.kernel, kTextBytesMax, false));
  kernel->set_device(record.device);
  kernel->set_instances(record.instances);
  kernel->set_estimate_ns(Figure(record.estimate_ns));
  kernel->set_measured_ns(Figure(record.measured_ns));
  kernel->set_samples(record.samples);
  kernel->set_error(Figure(record.error));
  kernel->set_handle(handle);
}

}  // namespace

void DescribeCosts(const Engine& engine, const std::map<uint64_t, std::shared_ptr<PreparedGraph>>& graphs,
                   internal::Costs* costs) {
  for (const TransferCostRecord& record : engine.ListTransferCosts()) {
    if (costs->transfers_size() == static_cast<int>(kTransferCostsMax)) {
      break;
    }
    internal::TransferCost* transfer = costs->add_transfers();
    transfer->set_source_plus_1(record.source + 1);  // kHost wraps to 0.
    transfer->set_target_plus_1(record.target + 1);
    transfer->set_start_ns(Figure(record.start_ns));
    transfer->set_bytes_per_second(Figure(record.bytes_per_second));
    transfer->set_is_estimate(record.is_estimate);
  }
  size_t bytes = costs->ByteSizeLong();
  std::vector<KernelCostRecord> records;
  for (const auto& [handle, graph] : graphs) {
    records.clear();
    const size_t room = kCostsMax - static_cast<size_t>(costs->kernels_size());
    costs->set_more(!engine.ListCosts(*graph, room, &records) || costs->more());
    for (const KernelCostRecord& record : records) {
      internal::KernelCost* kernel = costs->add_kernels();
      Describe(record, handle, kernel);
      bytes += kernel->ByteSizeLong() + 4;
      if (bytes > kCostsHeadBytesMax) {
        costs->mutable_kernels()->RemoveLast();
        costs->set_more(true);
        return;
      }
    }
  }
}

}  // namespace hpvm
