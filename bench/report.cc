// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>

#include <nlohmann/json.hpp>

namespace hpvm::bench {
namespace {

std::string Processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      return line.substr(std::min(line.size(), line.find(':') + 2));
    }
  }
  return "unknown";
}

std::string Date() {
  const time_t now = time(nullptr);
  tm fields{};
  gmtime_r(&now, &fields);
  char text[32];
  strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

// Formats {"a":1,"b":2}.
std::string Object(const std::map<std::string, double>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += (text.empty() ? "\"" : ",\"") + name + "\":" + Number(value);
  }
  return "{" + text + "}";
}

void PrintJson(const Case& c, const Measurement& m) {
  std::string more = m.figures.empty() ? "" : ",\"figures\":" + Object(m.figures);
  if (!m.note.empty()) {
    more += ",\"note\":" + nlohmann::json(m.note).dump();
  }
  std::printf(R"({"suite":"%s","case":"%s","metric":"%s","better":"%s","ours":%s,"peers":%s%s,"verified":%s})"
              "\n",
              c.suite.c_str(), c.name.c_str(), c.metric.c_str(), c.better == Better::kHigher ? "higher" : "lower",
              Number(m.ours).c_str(), Object(m.peers).c_str(), more.c_str(), m.verified ? "true" : "false");
  std::fflush(stdout);
}

void PrintRow(const Case& c, const Measurement& m) {
  std::string rest = m.verified ? "" : " NOT VERIFIED";
  for (const auto& [name, value] : m.peers) {
    rest += "  " + name + " " + Number(value);
  }
  std::printf("%-34s %-20s %12s%s\n", c.name.c_str(), c.metric.c_str(), Number(m.ours).c_str(), rest.c_str());
  for (const auto& [name, value] : m.figures) {
    std::printf("  %-32s %s\n", name.c_str(), Number(value).c_str());
  }
  if (!m.note.empty()) {
    std::printf("  %s\n", m.note.c_str());
  }
  std::fflush(stdout);
}

}  // namespace

void PrintHead(const std::string& suite, const std::string& command, bool json) {
  const unsigned cores = std::thread::hardware_concurrency();
  if (json) {
    const nlohmann::ordered_json head = {
        {"suite", suite}, {"processor", Processor()}, {"cores", cores}, {"date", Date()}, {"command", command}};
    std::printf("%s\n", head.dump().c_str());
  } else {
    std::printf("%s, %u cores\n%s  %s\n\n", Processor().c_str(), cores, Date().c_str(), command.c_str());
  }
}

bool MeasureAndPrint(const Case& c, bool json) {
  const StatusOr<Measurement> measurement = c.run();
  if (!measurement.ok()) {
    std::fprintf(stderr, "hpvm-bench: Case \"%s\": %s\n", c.name.c_str(), Message(measurement.status()).c_str());
    return false;
  }
  (json ? PrintJson : PrintRow)(c, *measurement);
  return measurement->verified;
}

}  // namespace hpvm::bench
