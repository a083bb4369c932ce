// SPDX-License-Identifier: Apache-2.0
// hpvmctl mem: memory use of the machine, of devices, of tenants and of what a tenant keeps.
#include <stdio.h>

#include <algorithm>
#include <memory>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/text.h"
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

struct Options {
  uint64_t largest = 10;
};

struct Kept {
  std::string kind, id, name;
  uint64_t bytes = 0;
  std::string state;
};

std::string Of(uint64_t held, uint64_t limit) {
  char percent[32];
  snprintf(percent, sizeof(percent), " (%.0f %%)",
           limit == 0 ? 0 : 100.0 * static_cast<double>(held) / static_cast<double>(limit));
  return limit == 0 ? "-" : BytesText(limit) + percent;
}

Rows MachineRows(const v1::GetOverviewResponse& overview) {
  Rows rows = {{"MEMORY", "HELD", "OF", "BY"}};
  rows.push_back({"host", BytesText(overview.memory_bytes()), Of(overview.memory_bytes(), overview.host_memory_bytes()),
                  "the server and its executors"});
  for (const v1::DeviceLoad& load : overview.devices()) {
    const v1::Device& device = load.device();
    // Memory shared with the host or another device is counted in that row.
    if (device.kind() == v1::Device::KIND_GPU && !device.emulated() && device.memory_shared_with().empty()) {
      rows.push_back(
          {device.id(), BytesText(load.memory_bytes()), Of(load.memory_bytes(), device.memory_bytes()), "executors"});
    }
  }
  return rows;
}

Rows TenantRows(const v1::GetOverviewResponse& overview) {
  Rows rows = {{"TENANT", "HOST", "DEVICES", "DISK", "BUFFERS", "GRAPHS"}};
  std::vector<const v1::TenantLoad*> tenants;
  for (const v1::TenantLoad& tenant : overview.tenants()) {
    tenants.push_back(&tenant);
  }
  std::stable_sort(tenants.begin(), tenants.end(), [](const auto* a, const auto* b) {
    return a->host_bytes() + a->device_bytes() > b->host_bytes() + b->device_bytes();
  });
  for (const v1::TenantLoad* tenant : tenants) {
    rows.push_back({tenant->name(), BytesText(tenant->host_bytes()), BytesText(tenant->device_bytes()),
                    BytesText(tenant->disk_bytes()), std::to_string(tenant->buffers()),
                    std::to_string(tenant->graphs())});
  }
  return rows;
}

// Returns what the caller's tenant keeps, the largest first.
StatusOr<std::vector<Kept>> KeptBy(Client& client) {
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Buffer> buffers, client.ListBuffers());
  std::vector<Kept> kept;
  for (const v1::Buffer& buffer : buffers) {
    kept.push_back({"buffer", buffer.id(), "", buffer.size_bytes(), "unused for " + DurationText(buffer.idle_ns())});
  }
  StatusOr<std::vector<v1::StoredModule>> modules = client.ListModules();
  if (modules.status().code() != absl::StatusCode::kUnimplemented) {  // An older server cannot list them.
    HPVMD_RETURN_IF_ERROR(modules.status());
    for (const v1::StoredModule& module : *modules) {
      kept.push_back({module.is_graph() ? "graph" : "module", module.sha256().substr(0, 12), module.name(),
                      module.size_bytes(),
                      module.in_use() ? "in use" : "unused for " + DurationText(module.idle_ns())});
    }
  }
  std::stable_sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.bytes > b.bytes; });
  return kept;
}

Status ShowMemory(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::GetOverviewResponse overview, Admin(*client).GetOverview(0));
  HPVMD_ASSIGN_OR_RETURN(std::vector<Kept> kept, KeptBy(*client));
  const size_t left_out = kept.size() - std::min<size_t>(kept.size(), options.largest);
  kept.resize(kept.size() - left_out);
  if (globals.format != Format::kTable && globals.format != Format::kWide) {
    Json json = ToJson(overview);
    json.erase("running");
    json["kept"] = Json::array();
    for (const Kept& one : kept) {
      json["kept"].push_back(
          {{"kind", one.kind}, {"id", one.id}, {"name", one.name}, {"bytes", one.bytes}, {"state", one.state}});
    }
    json["kept_left_out"] = left_out;
    PrintData(json, globals.format);
    return absl::OkStatus();
  }
  Rows rows = {{"KEPT", "ID", "SIZE", "NAME", "STATE"}};
  for (const Kept& one : kept) {
    rows.push_back({one.kind, one.id, BytesText(one.bytes), one.name.empty() ? "-" : one.name, one.state});
  }
  const std::string text =
      Table(MachineRows(overview)) + "\n" + Table(TenantRows(overview)) + (kept.empty() ? "" : "\n" + Table(rows));
  fputs(text.c_str(), stdout);
  if (left_out > 0) {
    printf("... and %zu smaller ones (--largest).\n", left_out);
  }
  return absl::OkStatus();
}

}  // namespace

void AddMemory(Commands commands) {
  CLI::App& command = AddCommand(
      commands.app, "mem", "Show where memory goes: on the machine, on devices, by tenant, and what your tenant keeps",
      "Administrators see every tenant, others their own. `hpvmctl buffer delete`, `module delete` and\n"
      "`graph release` free what is kept; `hpvmctl quota` shows the limits.\n"
      "Examples:\n  hpvmctl mem\n  hpvmctl mem --largest 50\n  hpvmctl mem -o json");
  Options& options = SetWork(commands, command, ShowMemory);
  command.add_option("--largest", options.largest, "Show this many of the largest things that your tenant keeps")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
}

}  // namespace hpvm::ctl
