// SPDX-License-Identifier: Apache-2.0
// share/GRAPH: runs per second of the same 50 clients as one tenant, as 10 and as 50.
#include "bench/service/service_setup.h"
#include "bench/tenants/tenants.h"

namespace hpvm::bench {
namespace {

constexpr uint32_t kClients = 50;

struct Company {
  uint32_t tenants = 1;
  std::unique_ptr<ServiceLoad> load = {};
  std::vector<double> per_second = {}, ratio = {};
};

// Tenants t0 to t49, each with the graph prepared.
StatusOr<std::vector<LoadSpec::Tenant>> PrepareTenants(ServiceDaemon& daemon, const std::string& graph,
                                                       uint32_t count) {
  std::vector<LoadSpec::Tenant> tenants;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string name = "t" + std::to_string(i);
    HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon.Prepare(graph, name));
    tenants.push_back({name, handle});
  }
  return tenants;
}

LoadSpec SpecFor(const std::string& graph, const std::string& endpoint) {
  LoadSpec spec = CopyLoad(LoadKind::kRun, endpoint, "", kClients);
  if (graph == "work") {
    // About half a millisecond.
    spec.input = [](uint32_t) { return WorkInput(50'000, 10); };
    spec.output = [expected = WorkOutput(50'000, 10)](uint32_t) { return expected; };
  }
  return spec;
}

StatusOr<ServiceResult> MeasureShare(const ServiceOptions& options, const std::string& graph) {
  DaemonSettings settings = RoomySettings();
  settings.keys["tenants.from_metadata"] = "true";
  settings.keys["limits.connections_per_peer_max"] = "1000";
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServiceDaemon> daemon, ServiceDaemon::Start(settings));
  const std::vector<uint32_t> counts = options.quick ? std::vector<uint32_t>{1, 3} : std::vector<uint32_t>{1, 10, 50};
  HPVMD_ASSIGN_OR_RETURN(const std::vector<LoadSpec::Tenant> tenants, PrepareTenants(*daemon, graph, counts.back()));
  std::vector<Company> companies;
  for (const uint32_t count : counts) {
    LoadSpec spec = SpecFor(graph, daemon->endpoint());
    spec.tenants.assign(tenants.begin(), tenants.begin() + count);
    Company company{.tenants = count};
    HPVMD_ASSIGN_OR_RETURN(company.load, ServiceLoad::Make(spec));
    companies.push_back(std::move(company));
  }
  const Duration length = options.quick ? std::chrono::milliseconds(100) : std::chrono::seconds(3);
  for (int round = -1; round < (options.quick ? 1 : 7); ++round) {
    double alone = 0;
    for (Company& company : companies) {
      HPVMD_ASSIGN_OR_RETURN(const LoadResult result, company.load->ClosedFor(kClients, length));
      if (const uint64_t ok = Count(result, Verdict::kOk); ok != result.calls.size() || ok == 0) {
        return Internal("Of " + std::to_string(result.calls.size()) + " runs of " + std::to_string(company.tenants) +
                        " tenants not all were answered: " + result.failure);
      }
      const double rate = static_cast<double>(result.calls.size()) * 1e9 / static_cast<double>(result.elapsed.count());
      alone = company.tenants == 1 ? rate : alone;
      if (round >= 0) {
        company.per_second.push_back(rate);
        company.ratio.push_back(rate / alone);
      }
    }
  }
  ServiceResult result;
  for (const Company& company : companies) {
    result.Add("tenants_" + std::to_string(company.tenants) + "_per_s", Median(company.per_second));
  }
  for (const Company& company : companies) {
    if (company.tenants > 1) {
      result.Add("ratio_" + std::to_string(company.tenants) + "_over_1", Median(company.ratio));
    }
  }
  result.reach.push_back({.figure = "ratio_50_over_1", .at_least = true, .bound = 0.9});
  result.note = "50 clients in all, every answer compared; the ratio is of the same round.";
  result.verified = true;
  return result;
}

}  // namespace

void AddShareCases(std::vector<ServiceCase>& cases) {
  for (const char* graph : {"copy", "work"}) {
    cases.push_back({std::string("share/") + graph,
                     [graph](const ServiceOptions& options) { return MeasureShare(options, graph); }});
  }
}

}  // namespace hpvm::bench
