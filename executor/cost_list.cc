// SPDX-License-Identifier: Apache-2.0
#include "executor/cost_list.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hpvm::executor {
namespace {

// The daemon accepts no other figures.
double Figure(double value) { return std::isfinite(value) ? std::clamp(value, 0.0, kCostFigureMax) : 0; }

void Describe(const engine::KernelCostRecord& record, const std::string& device, v1::KernelCost* kernel) {
  kernel->set_kernel(CleanText(record.kernel, kTextBytesMax, false));
  kernel->set_device(device);
  kernel->set_instances(record.instances);
  kernel->set_estimate_ns(Figure(record.estimate_ns));
  kernel->set_measured_ns(Figure(record.measured_ns));
  kernel->set_samples(record.samples);
  kernel->set_error(Figure(record.error));
}

void Describe(const engine::TransferCostRecord& record, const std::vector<DeviceInfo>& devices,
              v1::TransferCost* transfer) {
  const auto name = [&](uint32_t end) { return end < devices.size() ? devices[end].id : std::string(kHostName); };
  transfer->set_source(name(record.source));
  transfer->set_target(name(record.target));
  transfer->set_start_ns(Figure(record.start_ns));
  transfer->set_bytes_per_second(Figure(record.bytes_per_second));
  transfer->set_is_estimate(record.is_estimate);
}

}  // namespace

void DescribeCosts(const engine::Engine& engine,
                   const std::map<uint64_t, std::shared_ptr<engine::PreparedGraph>>& graphs, internal::Costs* costs) {
  const std::vector<DeviceInfo> devices = engine.devices();
  for (const engine::TransferCostRecord& record : engine::ListTransfers(engine.costs())) {
    if (costs->transfers_size() == static_cast<int>(kTransferCostsMax)) {
      break;
    }
    Describe(record, devices, costs->add_transfers());
  }
  size_t bytes = costs->ByteSizeLong(), count = 0;
  std::vector<engine::KernelCostRecord> records;
  for (const auto& [handle, graph] : graphs) {
    records.clear();
    costs->set_more(!engine::ListKernels(*graph, kCostsMax - count, &records) || costs->more());
    if (records.empty()) {
      continue;
    }
    internal::GraphCosts* of_graph = costs->add_graphs();
    of_graph->set_handle(handle);
    bytes += 16;
    for (const engine::KernelCostRecord& record : records) {
      v1::KernelCost* kernel = of_graph->add_kernels();
      Describe(record, devices[record.device].id, kernel);
      bytes += kernel->ByteSizeLong() + 4;
      if (bytes > kCostsHeadBytesMax) {
        of_graph->mutable_kernels()->RemoveLast();
        costs->set_more(true);
        return;
      }
      ++count;
    }
  }
}

}  // namespace hpvm::executor
