// SPDX-License-Identifier: Apache-2.0
// Metric families on their way into the text format. Only .cc files that need prometheus-cpp include this.
#ifndef HPVMD_SERVER_OBSERVE_FAMILIES_H_
#define HPVMD_SERVER_OBSERVE_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/observe/tally.h"

namespace hpvm::server {

class Families {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // What follows belongs to this family.
  void Counter(std::string_view name, std::string_view help) { Begin(name, help, prometheus::MetricType::Counter); }
  void Gauge(std::string_view name, std::string_view help) { Begin(name, help, prometheus::MetricType::Gauge); }
  void Histograms(std::string_view name, std::string_view help) {
    Begin(name, help, prometheus::MetricType::Histogram);
  }

  void Add(Labels labels, double value);
  void Add(Labels labels, const Tally& tally) { Add(labels, static_cast<double>(tally.value())); }
  void Add(Labels labels, const Histogram& histogram);
  // Unless it is 0: for families whose label sets are many and mostly unused.
  void AddUsed(Labels labels, const Tally& tally) {
    if (tally.value() != 0) {
      Add(labels, tally);
    }
  }

  // Takes the names of tenants out: what differed by them alone is added up.
  void AddUpTenants();

  // Prometheus' text format, version 0.0.4.
  std::string Text() const;

 private:
  void Begin(std::string_view name, std::string_view help, prometheus::MetricType type);
  prometheus::ClientMetric& Append(Labels labels);
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_FAMILIES_H_
