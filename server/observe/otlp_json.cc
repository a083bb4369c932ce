// SPDX-License-Identifier: Apache-2.0
// OTLP's JSON encoding: ids in hexadecimal, 64-bit numbers as strings.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "server/observe/span_exporter.h"

namespace hpvm::server {
namespace {

using nlohmann::json;

json ToJson(const Span::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return {{"stringValue", *text}};
  }
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return {{"intValue", std::to_string(*number)}};
  }
  return {{"boolValue", std::get<bool>(value)}};
}

json ToJson(const Span& span) {
  json out = {{"traceId", ToHex(span.trace)},
              {"spanId", ToHex(span.id)},
              {"name", span.name},
              {"kind", static_cast<int>(span.kind)},
              {"startTimeUnixNano", std::to_string(span.start_unix_ns)},
              {"endTimeUnixNano", std::to_string(span.end_unix_ns)},
              {"flags", 1}};
  if (std::any_of(span.parent.begin(), span.parent.end(), [](uint8_t b) { return b != 0; })) {
    out["parentSpanId"] = ToHex(span.parent);
  }
  if (!span.tracestate.empty()) {
    out["traceState"] = span.tracestate;
  }
  json attributes = json::array();
  for (const auto& [key, value] : span.attributes) {
    attributes.push_back({{"key", key}, {"value", ToJson(value)}});
  }
  out["attributes"] = std::move(attributes);
  if (span.failed) {
    out["status"] = {{"code", 2}, {"message", span.error}};
  }
  return out;
}

json Attribute(const char* key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

}  // namespace

std::string ToOtlpJson(const std::vector<Span>& spans, const SpanResource& resource) {
  json list = json::array();
  for (const Span& span : spans) {
    list.push_back(ToJson(span));
  }
  json attributes = json::array();
  attributes.push_back(Attribute("service.name", "hpvmd"));
  attributes.push_back(Attribute("service.version", resource.service_version));
  attributes.push_back(Attribute("service.instance.id", resource.instance));
  json scope_spans = {{"scope", {{"name", "hpvmd"}, {"version", resource.service_version}}},
                      {"spans", std::move(list)}};
  json resource_spans = {{"resource", {{"attributes", std::move(attributes)}}},
                         {"scopeSpans", json::array({std::move(scope_spans)})}};
  const json request = {{"resourceSpans", json::array({std::move(resource_spans)})}};
  return request.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace hpvm::server
