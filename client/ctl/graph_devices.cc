// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/graph_devices.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/device_family.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

// Returns the devices that both names cover, that is, the narrower of "opencl" and "opencl:0"; empty when there are
// none. The families of a kind ("gpu") are unknown here, so it matches everything but processors.
std::string Both(const std::string& one, const std::string& other) {
  if (one == other || FamilyOf(one) == other) {
    return one;
  }
  if (FamilyOf(other) == one) {
    return other;
  }
  const auto is_kind = [](const std::string& device) { return FindFamilyRow(FamilyOf(device)) == nullptr; };
  if (is_kind(one) != is_kind(other)) {
    const std::string& device = is_kind(one) ? other : one;
    const bool is_cpu = FamilyOf(device) == "cpu";
    return is_cpu ? "" : device;
  }
  return "";
}

Status Restrict(const std::vector<std::string>& devices, const std::string& name, Json* node) {
  Json left = Json::array();
  const auto own = node->find("devices");
  for (const std::string& device : devices) {
    if (own == node->end()) {
      left.push_back(device);
      continue;
    }
    for (const Json& one : *own) {
      const std::string both = Both(device, one.get<std::string>());
      if (!both.empty() && std::find(left.begin(), left.end(), both) == left.end()) {
        left.push_back(both);
      }
    }
  }
  if (left.empty()) {
    return InvalidArgument("Node \"" + name + "\" may run on " + own->dump() +
                           " only, and --device names none of these.");
  }
  (*node)["devices"] = std::move(left);
  return absl::OkStatus();
}

// Restricts the leaves of a graph and of the graphs nested in its nodes.
Status RestrictLeaves(const std::vector<std::string>& devices, Json* graph) {
  std::vector<std::pair<std::string, Json*>> open = {{"", graph}};
  while (!open.empty()) {
    const auto [path, inner] = open.back();
    open.pop_back();
    for (auto& [name, node] : (*inner)["nodes"].items()) {
      const std::string below = path.empty() ? name : path + "/" + name;
      if (node.is_array()) {  // In the short form, a node that is its arguments alone.
        node = Json::object({{"args", std::move(node)}});
      }
      if (node.contains("nodes")) {
        open.emplace_back(below, &node);
      } else {
        HPVMD_RETURN_IF_ERROR(Restrict(devices, below, &node));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status RestrictDevices(const std::vector<std::string>& devices, std::string* document) {
  Json json = Json::parse(*document, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return InvalidArgument("The graph is no JSON object.");
  }
  HPVMD_RETURN_IF_ERROR(RestrictLeaves(devices, &json));
  *document = json.dump();
  return absl::OkStatus();
}

}  // namespace hpvm::ctl
