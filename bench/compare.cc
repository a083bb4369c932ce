// SPDX-License-Identifier: Apache-2.0
// The arithmetic of comparisons, and the parser of benchmarks' output.
#include "bench/compare.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

namespace hpvm::bench {
namespace {

using Json = nlohmann::json;

constexpr double kConfidence = 0.9;

// Returns the direction that a figure's unit implies; nothing without a unit, for a count or a ratio.
std::optional<Better> DirectionOf(std::string_view figure) {
  if (figure.ends_with("_per_s")) {
    return Better::kHigher;
  }
  for (const char* unit : {"_ns", "_us", "_ms", "_s", "_mib"}) {
    if (figure.ends_with(unit)) {
      return Better::kLower;
    }
  }
  return std::nullopt;
}

// Matches figures of a peer, of the offered load, and tails.
bool IsLeftOut(const std::string& figure) {
  for (const char* other : {"sqlite_raw", "grpc_echo", "bubblewrap", "bin_true", "offered", "generator"}) {
    if (figure.starts_with(other)) {
      return true;
    }
  }
  for (const char* tail : {"_p90_", "_p99_", "_p999_", "_max_"}) {
    if (figure.find(tail) != figure.npos) {
      return true;
    }
  }
  return false;
}

void Add(BenchOutput& output, const std::string& name, const Json& value, Better better, bool counts = true) {
  if (value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0) {
    output.figures[name] = {value.get<double>(), better, counts};
  }
}

// cpu and gpu: {"case", "contenders": {"ours": {"seconds"}}}; launches and copies: {"figure", "contenders": {"ours":
// 1}}.
void ReadContenders(const Json& line, const std::string& name, BenchOutput& output) {
  const bool is_case = line.contains("case");
  const Better better = !is_case && name.find("copy") != name.npos ? Better::kHigher : Better::kLower;
  for (const auto& [contender, value] : line["contenders"].items()) {
    if (!contender.starts_with("ours")) {
      continue;
    }
    if (value.is_object() && value.value("verified", Json(true)) == Json(false)) {
      output.unverified.insert(name);
    }
    const Json& number = value.is_object() && value.contains("seconds") ? value["seconds"] : value;
    Add(output, contender == "ours" ? name : name + ": " + contender, number, better, is_case);
  }
}

void ReadLine(const Json& line, BenchOutput& output) {
  const std::string key = line.contains("case") ? "case" : "figure";
  if (!line.is_object() || !line.contains(key) || !line[key].is_string()) {
    return;
  }
  const std::string name = line[key];
  if (line.contains("contenders")) {
    ReadContenders(line, name, output);  // A peer's fault is not ours.
    return;
  }
  if (line.value("verified", Json(true)) == Json(false)) {
    output.unverified.insert(name);
  }
  if (line.contains("ours")) {
    Add(output, name, line["ours"], line.value("better", "lower") == "higher" ? Better::kHigher : Better::kLower);
  } else if (line.contains("figures")) {
    for (const auto& [figure, value] : line["figures"].items()) {
      const std::optional<Better> better = DirectionOf(figure);
      if (better && !IsLeftOut(figure)) {
        Add(output, name + ": " + figure, value, *better);
      }
    }
  }
}

double RatioOf(const BenchOutput::Figure& base, const BenchOutput::Figure& ours) {
  return ours.better == Better::kLower ? ours.value / base.value : base.value / ours.value;
}

}  // namespace

// The confidence that the k lowest and k highest values exclude comes from the probability of so few heads in n
// throws of a coin.
MedianInterval FindMedian(std::vector<double> values) {
  HPVMD_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  MedianInterval found;
  found.median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  double tail = std::pow(0.5, static_cast<double>(n)), term = tail;
  for (size_t k = 0; 2 * k < n; ++k) {
    const double confidence = 1 - 2 * tail;
    if (k > 0 && confidence < kConfidence) {
      break;
    }
    found.low = values[k];
    found.high = values[n - 1 - k];
    found.confidence = std::max(0.0, confidence);
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    tail += term;
  }
  return found;
}

bool IsSlower(const MedianInterval& ratio, double slack) {
  return ratio.confidence >= kConfidence && ratio.median > 1 + slack && ratio.low > 1;
}

BenchOutput ReadBenchOutput(const std::string& text) {
  BenchOutput output;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object()) {
      ReadLine(parsed, output);
    }
  }
  return output;
}

ComparedCase& Comparison::CaseOf(const std::string& benchmark, const std::string& name, bool counts) {
  const auto found = std::find_if(cases_.begin(), cases_.end(), [&](const ComparedCase& one) {
    return one.benchmark == benchmark && one.name == name;
  });
  if (found != cases_.end()) {
    return *found;
  }
  cases_.push_back({.benchmark = benchmark, .name = name, .ratios = {}, .counts = counts});
  return cases_.back();
}

void Comparison::AddPair(const std::string& benchmark, const BenchOutput& base, const BenchOutput& ours) {
  if (std::find(benchmarks_.begin(), benchmarks_.end(), benchmark) == benchmarks_.end()) {
    benchmarks_.push_back(benchmark);
  }
  for (const std::string& name : ours.unverified) {
    Fault(benchmark + "/" + name, "the result is not verified");
  }
  double logs = 0;
  int count = 0;
  for (const auto& [name, figure] : ours.figures) {
    const auto theirs = base.figures.find(name);
    if (theirs == base.figures.end()) {
      Skip(benchmark + "/" + name, "the base has no such figure");
      continue;
    }
    const double ratio = RatioOf(theirs->second, figure);
    CaseOf(benchmark, name, figure.counts).ratios.push_back(ratio);
    if (figure.counts) {
      logs += std::log(ratio);
      ++count;
    }
  }
  for (const auto& [name, figure] : base.figures) {
    if (!ours.figures.contains(name)) {
      Skip(benchmark + "/" + name, "only the base has it");
    }
  }
  if (count > 0) {
    means_[benchmark].push_back(std::exp(logs / count));
  }
}

std::vector<ComparedCase> Comparison::Means() const {
  std::vector<ComparedCase> means;
  for (const std::string& benchmark : benchmarks_) {
    if (const auto found = means_.find(benchmark); found != means_.end()) {
      means.push_back({.benchmark = benchmark, .name = "geometric mean", .ratios = found->second});
    }
  }
  return means;
}

bool Comparison::Fails() const {
  const std::vector<ComparedCase> means = Means();
  return !faults_.empty() || std::any_of(means.begin(), means.end(), [](const ComparedCase& mean) {
    return (mean.benchmark == "cpu" || mean.benchmark == "gpu") && IsSlower(FindMedian(mean.ratios), kMeanSlack);
  });
}

}  // namespace hpvm::bench
