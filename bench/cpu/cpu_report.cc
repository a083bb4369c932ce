// SPDX-License-Identifier: Apache-2.0
#include "bench/cpu/cpu_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>

#include <nlohmann/json.hpp>

namespace hpvm::bench {
namespace {

constexpr double kRatioMax = 8;  // Limits the weight of a single favourable case.

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string name, family, model;
  for (std::string line; std::getline(file, line) && (name.empty() || family.empty() || model.empty());) {
    const size_t colon = line.find(':');
    const std::string value = colon == std::string::npos || colon + 2 > line.size() ? "" : line.substr(colon + 2);
    if (line.rfind("model name", 0) == 0) {
      name = value;
    } else if (line.rfind("cpu family", 0) == 0) {
      family = value;
    } else if (line.rfind("model\t", 0) == 0) {
      model = value;
    }
  }
  return name + " (family " + family + ", model " + model + ")";
}

// Formats "12.3 Gflop/s".
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

// Returns the geometric mean, or with `least` the minimum, over the cases except matrix products; 0 when one of them
// is unknown.
double Over(const CpuResults& results, const std::function<double(const CpuMeasurement&)>& ratio, bool least) {
  double logs = 0, min = kRatioMax;
  int count = 0;
  for (const auto& [problem, measurement] : results) {
    if (problem.is_matmul) {
      continue;
    }
    const double one = std::min(kRatioMax, ratio(measurement));
    if (one <= 0) {
      return 0;
    }
    logs += std::log(one);
    min = std::min(min, one);
    ++count;
  }
  return count == 0 ? 0 : least ? min : std::exp(logs / count);
}

const CpuMeasurement* FindCase(const CpuResults& results, const std::string& name) {
  const auto found =
      std::find_if(results.begin(), results.end(), [&](const auto& one) { return one.first.name == name; });
  return found == results.end() ? nullptr : &found->second;
}

}  // namespace

CpuMachine DescribeMachine(const std::string& device, const std::string& command) {
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return {.processor = ProcessorName(), .device = device, .date = date, .command = command};
}

std::vector<CpuFigure> CpuFigures(const CpuResults& results) {
  const auto open_mp = [](const CpuMeasurement& m) { return m.RatioOpenMp(); };
  const auto pocl = [](const CpuMeasurement& m) { return m.Ratio("pocl"); };
  std::vector<CpuFigure> figures = {
      {"geometric mean against OpenMP", Over(results, open_mp, false), 1.6},
      {"least against OpenMP", Over(results, open_mp, true), 0.9},
      {"geometric mean against PoCL", Over(results, pocl, false), 2},
      {"least against PoCL", Over(results, pocl, true), 0.9},
  };
  if (const CpuMeasurement* sgemm = FindCase(results, "sgemm")) {
    figures.push_back({"sgemm fast against OpenBLAS", sgemm->Ratio("openblas", "ours_fast"), 1.3});
    figures.push_back({"sgemm exact against OpenBLAS", sgemm->Ratio("openblas"), 1.0});
  }
  const std::pair<const char*, double> asked[] = {{"mandelbrot", 8}, {"black_scholes", 3}, {"mri_q", 3}};
  for (const auto& [name, ratio] : asked) {
    if (const CpuMeasurement* one = FindCase(results, name)) {
      figures.push_back({std::string(name) + " against OpenMP", one->RatioOpenMp(), ratio});
    }
  }
  return figures;
}

void CpuPrinter::Head(const CpuMachine& machine) const {
  if (options_.json) {
    const nlohmann::ordered_json line = {{"suite", "cpu"},
                                         {"processor", machine.processor},
                                         {"device", machine.device},
                                         {"date", machine.date},
                                         {"command", machine.command}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%s; %s\n%s  %s\n\n", machine.processor.c_str(), machine.device.c_str(), machine.date.c_str(),
                machine.command.c_str());
    if (options_.size != CpuSize::kCheck) {
      std::printf("Ratios are a peer's time over ours; OpenMP is the better of its two builds.\n");
      std::printf("%-15s %10s %-16s %8s %8s %8s %8s   %s\n", "case", "ours, ms", "", "openmp", "contract", "pocl",
                  "fast", "other");
    }
  }
  std::fflush(stdout);
}

void CpuPrinter::Case(const CpuCase& problem, const CpuMeasurement& m) const {
  if (options_.json) {
    nlohmann::ordered_json line = {{"suite", problem.suite},
                                   {"case", problem.name},
                                   {"sizes", problem.sizes},
                                   {"work", problem.work},
                                   {"unit", problem.unit},
                                   {"verified", m.verified()},
                                   {"ratio_openmp", m.RatioOpenMp()},
                                   {"ratio_pocl", m.Ratio("pocl")}};
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
  const CpuMeasurement::Entry& ours = *m.Find("ours");
  if (options_.size == CpuSize::kCheck) {
    std::printf("%-15s %s", problem.name.c_str(), m.verified() ? "verified:" : "WRONG:");
    for (const CpuMeasurement::Entry& one : m.entries) {
      std::printf(" %s", one.name.c_str());
    }
  } else {
    std::printf("%-15s %10.3f %-16s %8.2f %8.2f %8.2f %8.2f  ", problem.name.c_str(), ours.seconds * 1e3,
                Rate(problem.work / ours.seconds, problem.unit).c_str(), m.Ratio("openmp"), m.Ratio("openmp_contract"),
                m.Ratio("pocl"), 1 / std::max(1e-9, m.Ratio("ours_fast") > 0 ? m.Ratio("ours_fast") : 1e9));
    for (const char* peer : {"openblas", "openmp_ikj"}) {
      if (m.Find(peer) != nullptr) {
        std::printf(" %s %.2f (fast %.2f)", peer, m.Ratio(peer), m.Ratio(peer, "ours_fast"));
      }
    }
    std::printf(" %s", ours.chosen.c_str());
  }
  std::printf("\n");
  for (const CpuMeasurement::Entry& one : m.entries) {
    if (!one.fault.empty()) {
      std::printf("  WRONG %s: %s\n", one.name.c_str(), one.fault.c_str());
    }
  }
  for (const std::string& missing : m.missing) {
    std::printf("  skipped %s\n", missing.c_str());
  }
  std::fflush(stdout);
}

void CpuPrinter::Figures(const std::vector<CpuFigure>& figures) const {
  if (!options_.json) {
    std::printf("\n");
  }
  for (const CpuFigure& figure : figures) {
    if (options_.json) {
      const nlohmann::ordered_json line = {{"figure", figure.name}, {"value", figure.value}, {"asked", figure.asked}};
      std::printf("%s\n", line.dump().c_str());
    } else if (figure.value > 0) {
      std::printf("%-32s %6.2f  asked %.1f%s\n", figure.name.c_str(), figure.value, figure.asked,
                  figure.value < figure.asked ? ": missed" : "");
    } else {
      std::printf("%-32s not measured, asked %.1f\n", figure.name.c_str(), figure.asked);
    }
  }
}

}  // namespace hpvm::bench
