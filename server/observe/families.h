// SPDX-License-Identifier: Apache-2.0
// Families collects metric families for the text format. Only .cc files that need prometheus-cpp include this header.
#ifndef HPVMD_SERVER_OBSERVE_FAMILIES_H_
#define HPVMD_SERVER_OBSERVE_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/observe/metrics.h"

namespace hpvm::server {

class Families {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;
  using Names = std::span<const std::string_view>;

  // Begin a family, to which the following samples belong.
  void Counter(std::string_view name, std::string_view help) { Begin(name, help, prometheus::MetricType::Counter); }
  void Gauge(std::string_view name, std::string_view help) { Begin(name, help, prometheus::MetricType::Gauge); }
  void Histograms(std::string_view name, std::string_view help) {
    Begin(name, help, prometheus::MetricType::Histogram);
  }

  // Begin a family with a single sample.
  template <typename Value>
  void Counter(std::string_view name, std::string_view help, const Value& value) {
    Counter(name, help);
    Add({}, value);
  }
  template <typename Value>
  void Gauge(std::string_view name, std::string_view help, const Value& value) {
    Gauge(name, help);
    Add({}, value);
  }
  void Histograms(std::string_view name, std::string_view help, const Histogram& histogram) {
    Histograms(name, help);
    Add({}, histogram);
  }

  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void Add(Labels labels, Number value) { AddNumber(labels, static_cast<double>(value)); }
  void Add(Labels labels, const AtomicCounter& tally) { Add(labels, tally.value()); }
  void Add(Labels labels, const Histogram& histogram);
  // Adds a sample for each of `values`, whose name becomes one more label.
  template <typename Values>
  void AddEach(Labels labels, std::string_view label, Names names, const Values& values) {
    for (size_t i = 0; i < std::size(values); ++i) {
      Add(labels, values[i]);
      AddLabel(label, names[i]);
    }
  }
  // Like AddEach without values of 0: for families with many label sets, mostly unused.
  void AddUsed(Labels labels, std::string_view label, Names names, std::span<const AtomicCounter> tallies);

  // Removes the names of tenants: sums samples that differ by them alone.
  void AddUpTenants();

  // Formats the families in Prometheus' text format, version 0.0.4.
  std::string Text() const;

 private:
  void Begin(std::string_view name, std::string_view help, prometheus::MetricType type);
  prometheus::ClientMetric& Append(Labels labels);
  void AddNumber(Labels labels, double value);
  void AddLabel(std::string_view label, std::string_view value);
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_FAMILIES_H_
