// SPDX-License-Identifier: Apache-2.0
// Output of `hpvm-bench gpu`: a table for people, or one JSON object per line.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "bench/gpu/gpu_run.h"

namespace hpvm::bench {
namespace {

// Formats "4.39 TB/s".
std::string Rate(double per_second, const std::string& unit) {
  const char* prefixes[] = {"", "k", "M", "G", "T"};
  size_t prefix = 0;
  for (; per_second >= 1000 && prefix < 4; ++prefix) {
    per_second /= 1000;
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%.3g %s%s/s", per_second, prefixes[prefix], unit.c_str());
  return text;
}

bool IsOurs(const std::string& name) { return name.rfind("ours", 0) == 0; }

}  // namespace

void GpuPrinter::Head(const GpuMachine& machine) const {
  if (options_.json) {
    nlohmann::ordered_json line = {{"suite", "gpu"}, {"date", machine.date}, {"command", machine.command}};
    for (const auto& [id, name] : machine.devices) {
      line["devices"][id] = name;
    }
    std::printf("%s\n", line.dump().c_str());
  } else {
    for (const auto& [id, name] : machine.devices) {
      std::printf("%s: %s\n", id.c_str(), name.c_str());
    }
    std::printf("%s  %s\n\n", machine.date.c_str(), machine.command.c_str());
    if (options_.size != CpuSize::kCheck) {
      std::printf("Times are of one launch among many. Ratios are a peer's time over ours: above 1 we are quicker.\n");
    }
  }
  std::fflush(stdout);
}

void GpuPrinter::Case(const GpuCaseResult& result) const {
  const CpuMeasurement& m = result.measurement;
  if (options_.json) {
    nlohmann::ordered_json line = {{"suite", "gpu"},      {"case", result.name}, {"sizes", result.sizes},
                                   {"work", result.work}, {"unit", result.unit}, {"verified", m.verified()}};
    for (const CpuMeasurement::Entry& one : m.entries) {
      line["contenders"][one.name] = {{"seconds", one.seconds},
                                      {"launches", one.launches},
                                      {"chosen", one.chosen},
                                      {"verified", one.fault.empty()},
                                      {"fault", one.fault}};
    }
    line["missing"] = m.missing;
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
    return;
  }
  std::printf("%s, %s%s\n", result.name.c_str(), result.sizes.c_str(), m.verified() ? "" : "  WRONG");
  for (const CpuMeasurement::Entry& one : m.entries) {
    std::printf("  %-14s %10.4f ms  %-14s", one.name.c_str(), one.seconds * 1e3,
                Rate(result.work / std::max(one.seconds, 1e-12), result.unit).c_str());
    for (const CpuMeasurement::Entry& other : m.entries) {
      if (IsOurs(one.name) && !IsOurs(other.name)) {
        std::printf("  %s %.2f", other.name.c_str(), m.Ratio(other.name, one.name));
      }
    }
    std::printf("  %s%s\n", one.chosen.c_str(), one.fault.empty() ? "" : ("  WRONG: " + one.fault).c_str());
  }
  for (const std::string& missing : m.missing) {
    std::printf("  skipped %s\n", missing.c_str());
  }
  std::fflush(stdout);
}

void GpuPrinter::Figures(const GpuFigures& figures) const {
  for (const auto& [name, values] : figures) {
    if (options_.json) {
      nlohmann::ordered_json line = {{"suite", "gpu"}, {"figure", name}};
      for (const auto& [contender, value] : values) {
        line["contenders"][contender] = value;
      }
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-36s", name.c_str());
      for (const auto& [contender, value] : values) {
        std::printf("  %s %.2f", contender.c_str(), value);
      }
      std::printf("\n");
    }
  }
  std::fflush(stdout);
}

void GpuPrinter::Asked(const std::string& name, double value, double asked, bool less) const {
  if (options_.json) {
    const nlohmann::ordered_json line = {{"suite", "gpu"}, {"summary", name}, {"value", value}, {"asked", asked}};
    std::printf("%s\n", line.dump().c_str());
    return;
  }
  const bool missed = less ? value > asked : value < asked;
  std::printf("%-44s %8.2f  asked %s %.2f%s\n", name.c_str(), value, less ? "at most" : "at least", asked,
              missed ? ": missed" : "");
}

void GpuPrinter::Over(const std::vector<GpuCaseResult>& results, const std::string& ours, const std::string& peer,
                      const std::string& title, double mean, double least) const {
  double logs = 0, worst = 0;
  int count = 0;
  for (const GpuCaseResult& result : results) {
    if (const double ratio = result.measurement.Ratio(peer, ours); ratio > 0) {
      logs += std::log(ratio);
      worst = count++ == 0 ? ratio : std::min(worst, ratio);
    }
  }
  if (count > 0) {
    Asked(ours + ": geometric mean against " + title, std::exp(logs / count), mean);
    Asked(ours + ": least against " + title, worst, least);
  }
}

void GpuPrinter::Summary(const std::vector<GpuCaseResult>& results, const GpuFigures& figures,
                         const std::vector<std::string>& ours) const {
  if (!options_.json) {
    std::printf("\n");
  }
  for (const std::string& one : ours) {
    Over(results, one, "opencl", "OpenCL C", 1, 0.9);
    Over(results, one, "cuda_exact", "exact CUDA", 0.85, 0.6);
    Over(results, one + "_fast", "cuda", "fast CUDA", 0.9, 0.6);
    for (const GpuCaseResult& result : results) {
      if (const double ratio = result.measurement.Ratio("opencl", one); result.name == "matmul_4096" && ratio > 0) {
        Asked(one + ": matmul 4096 against OpenCL C", ratio, 3);
      }
    }
    for (const auto& [name, values] : figures) {
      const auto found = values.find(one);
      if (found != values.end() && name.rfind("1000 dependent", 0) == 0) {
        Asked(one + ": dependent launches, us each", found->second, one == "ours_vulkan" ? 4 : 5, true);
      } else if (found != values.end() && name.rfind("copy", 0) == 0 && name.find("host") != std::string::npos) {
        Asked(one + ": " + name, found->second, 50);
      }
    }
  }
}

}  // namespace hpvm::bench
