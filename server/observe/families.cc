// SPDX-License-Identifier: Apache-2.0
#include "server/observe/families.h"

#include <prometheus/text_serializer.h>

#include <map>
#include <sstream>

namespace hpvm::server {

void Families::Begin(std::string_view name, std::string_view help, prometheus::MetricType type) {
  prometheus::MetricFamily& family = families_.emplace_back();
  family.name = std::string(name);
  family.help = std::string(help);
  family.type = type;
}

prometheus::ClientMetric& Families::Append(Labels labels) {
  prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
  metric.label.reserve(labels.size());
  for (const auto& [name, value] : labels) {
    metric.label.push_back({std::string(name), std::string(value)});
  }
  return metric;
}

void Families::AddLabel(std::string_view label, std::string_view value) {
  families_.back().metric.back().label.push_back({std::string(label), std::string(value)});
}

void Families::AddUsed(Labels labels, std::string_view label, Names names, std::span<const AtomicCounter> tallies) {
  for (size_t i = 0; i < tallies.size(); ++i) {
    if (tallies[i].value() != 0) {
      Add(labels, tallies[i]);
      AddLabel(label, names[i]);
    }
  }
}

void Families::AddNumber(Labels labels, double value) {
  prometheus::ClientMetric& metric = Append(labels);
  (families_.back().type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

void Families::Add(Labels labels, const Histogram& histogram) {
  prometheus::ClientMetric& metric = Append(labels);
  const Buckets& buckets = histogram.buckets();
  uint64_t count = 0;
  for (size_t i = 0; i < buckets.bounds.size(); ++i) {
    count += histogram.count(i);
    metric.histogram.bucket.push_back({count, static_cast<double>(buckets.bounds[i]) * buckets.unit});
  }
  metric.histogram.sample_count = count + histogram.count(buckets.bounds.size());
  metric.histogram.sample_sum = histogram.sum();
}

void Families::AddUpTenants() {
  for (prometheus::MetricFamily& family : families_) {
    std::map<std::vector<std::pair<std::string, std::string>>, size_t> places;  // Positions by the other labels.
    std::vector<prometheus::ClientMetric> sums;
    for (prometheus::ClientMetric& metric : family.metric) {
      std::erase_if(metric.label, [](const auto& label) { return label.name == "tenant"; });
      std::vector<std::pair<std::string, std::string>> labels;
      for (const auto& label : metric.label) {
        labels.emplace_back(label.name, label.value);
      }
      const auto [place, is_new] = places.emplace(std::move(labels), sums.size());
      if (is_new) {
        sums.push_back(std::move(metric));
        continue;
      }
      sums[place->second].counter.value += metric.counter.value;
      sums[place->second].gauge.value += metric.gauge.value;
    }
    family.metric = std::move(sums);
  }
}

std::string Families::Text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families_);
  return std::move(out).str();
}

}  // namespace hpvm::server
