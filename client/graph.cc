// SPDX-License-Identifier: Apache-2.0
#include "hpvm/graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/cord.h"
#include "client/files/input_file.h"
#include "client/status/status.h"
#include "nlohmann/json.hpp"

#include "base/clean_text.h"
#include "base/limits.h"
#include "base/status.h"

namespace hpvm {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kNameBytesMax = 255;
// Limit of a fault's place and of its message: names may be anything, of any length.
constexpr size_t kFaultBytesMax = 1'000;

std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// Matches "name" of the schema, the syntax of all names except those of symbols.
bool IsName(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && text.size() <= kNameBytesMax && is_letter(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; });
}

std::string_view NameOf(Port::Access access) {
  return access == Port::Access::kIn ? "in" : access == Port::Access::kOut ? "out" : "inout";
}

// Returns an empty name for an unknown kind.
std::string_view NameOf(v1::ModuleKind kind) {
  switch (kind) {
    case v1::MODULE_KIND_WASM:
      return "wasm";
    case v1::MODULE_KIND_SPIRV:
      return "spirv";
    case v1::MODULE_KIND_OPENCL:
      return "opencl";
    case v1::MODULE_KIND_BITSTREAM:
      return "bitstream";
    default:
      return "";
  }
}

template <typename Variant>
Json ValueOf(const Variant& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

Json ShapeOf(const Shape& shape) {
  Json list = Json::array();
  for (const Extent& extent : shape) {
    list.push_back(ValueOf(extent.value));
  }
  return list;
}

Json PortOf(const Port& port) {
  return {
      {"name", port.name}, {"access", NameOf(port.access)}, {"type", Name(port.type)}, {"shape", ShapeOf(port.shape)}};
}

Json ScalarOf(const Scalar& scalar) {
  Json value;
  if (const auto* const input = std::get_if<ScalarValue::InputName>(&scalar.value.value)) {
    value = {{"input", input->name}};
  } else if (const auto* const number = std::get_if<int64_t>(&scalar.value.value)) {
    value = *number;
  } else if (const auto* const real = std::get_if<double>(&scalar.value.value)) {
    value = *real;
  } else {
    value = std::get<std::string>(scalar.value.value);
  }
  return {{"name", scalar.name}, {"type", scalar.type}, {"value", std::move(value)}};
}

Json InstancesOf(const std::vector<Instances>& instances) {
  Json list = Json::array();
  for (const Instances& count : instances) {
    Json extent = ValueOf(count.max.value);
    list.push_back(count.port.empty() ? std::move(extent) : Json{{"port", count.port}, {"max", std::move(extent)}});
  }
  return list;
}

Json VariantOf(const Variant& variant) {
  Json object = {{"module", variant.module}, {"entry", variant.entry}};
  if (!variant.abi.empty()) {
    object["abi"] = variant.abi;
  }
  if (!variant.devices.empty()) {
    object["devices"] = variant.devices;
  }
  for (const auto& [id, value] : variant.constants) {
    object["constants"][std::to_string(id)] = ValueOf(value);
  }
  return object;
}

// Returns a node's variants; the short form comes first.
std::vector<Variant> VariantsOf(const NodeOptions& leaf) {
  std::vector<Variant> variants = leaf.variants;
  if (!leaf.module.empty() || !leaf.entry.empty()) {
    variants.insert(variants.begin(), {.module = leaf.module, .entry = leaf.entry});
  }
  return variants;
}

}  // namespace

// DocumentWriter writes one document and records its errors.
class DocumentWriter {
 public:
  explicit DocumentWriter(const Graph& graph) : graph_(graph) {}

  StatusOr<std::string> Write() {
    Json document = {{"hpvm", 1}};
    if (!graph_.name_.empty()) {
      document["name"] = graph_.name_;
    }
    if (!graph_.description_.empty()) {
      document["description"] = graph_.description_;
    }
    if (!graph_.symbols_.empty()) {
      document["symbols"] = graph_.symbols_;
    }
    document["inputs"] = Tensors(graph_.inputs_, "/inputs");
    document["outputs"] = Tensors(graph_.outputs_, "/outputs");
    document["modules"] = ModuleList();
    std::vector<Port> outer = graph_.inputs_;
    outer.insert(outer.end(), graph_.outputs_.begin(), graph_.outputs_.end());
    WriteBlock(graph_, outer, "", &document);
    HPVMD_RETURN_IF_ERROR(Faults());
    return document.dump(2, ' ', false, Json::error_handler_t::replace);
  }

 private:
  void Note(const std::string& place, const std::string& message) {
    v1::Diagnostic& fault = *faults_.add_items();
    fault.set_severity(v1::Diagnostic::SEVERITY_ERROR);
    fault.set_place(CleanText(place, kFaultBytesMax));
    fault.set_message(CleanText(message, kFaultBytesMax));
  }

  Status Faults() {
    if (faults_.items_size() == 0) {
      return absl::OkStatus();
    }
    if (faults_.items_size() > static_cast<int>(limits::kDiagnosticsMax)) {
      faults_.set_omitted(faults_.items_size() - limits::kDiagnosticsMax);
      faults_.mutable_items()->DeleteSubrange(limits::kDiagnosticsMax, static_cast<int>(faults_.omitted()));
    }
    v1::Status status;
    status.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
    status.set_message("The graph that was built is wrong:");
    v1::ErrorDetail detail;
    *detail.mutable_diagnostics() = faults_;
    status.add_details()->PackFrom(detail);
    return FromProto(status);
  }

  // Records an error when `name` is not a valid name or is already used.
  void CheckName(const std::string& name, const std::string& place, std::string_view what,
                 std::set<std::string>* names) {
    if (!IsName(name)) {
      Note(place,
           "The name " + Quoted(name) + " of the " + std::string(what) +
               " is not a letter or \"_\" followed by letters, digits, \"_\" and \"-\", or has more characters than " +
               std::to_string(kNameBytesMax) + ".");
    } else if (!names->insert(name).second) {
      Note(place, "There are two " + std::string(what) + "s of the name " + Quoted(name) + ".");
    }
  }

  Json Tensors(const std::vector<Port>& tensors, const std::string& place) {
    std::set<std::string> names;
    Json object = Json::object();
    for (const Port& tensor : tensors) {
      CheckName(tensor.name, place + "/" + tensor.name, place == "/inputs" ? "input" : "output", &names);
      object[tensor.name] = {{"type", Name(tensor.type)}, {"shape", ShapeOf(tensor.shape)}};
    }
    return object;
  }

  Json ModuleList() {
    Json object = Json::object();
    for (const Graph::ModuleItem& module : graph_.modules_) {
      const std::string place = "/modules/" + module.name;
      CheckName(module.name, place, "module", &modules_);
      if (NameOf(module.kind).empty()) {
        Note(place + "/kind",
             "The module's kind (" + std::to_string(module.kind) + ") is not a kind that a document can name.");
      }
      Json& made = object[module.name];
      made["kind"] = NameOf(module.kind);
      // The file name is for people: the client sends the bytes under the module's name.
      made["source"] = module.sha256.empty() ? Json{{"file", module.file.empty() ? module.name : module.file}}
                                             : Json{{"sha256", module.sha256}};
      if (!module.options.empty()) {
        made["options"] = module.options;
      }
    }
    return object;
  }

  // `outer` are the ports that edges inside may name without a node.
  void WriteBlock(const Block& block, const std::vector<Port>& outer, const std::string& place, Json* into) {
    std::map<std::string, const std::vector<Port>*> ports;
    std::set<std::string> names;
    Json& nodes = (*into)["nodes"] = Json::object();
    for (const Block::Item& item : block.items_) {
      const std::string at = place + "/nodes/" + item.name;
      CheckName(item.name, at, "node", &names);
      ports.emplace(item.name, item.inside != nullptr ? &item.outside.ports : &item.leaf.ports);
      nodes[item.name] = item.inside != nullptr ? Internal(item, at) : Leaf(item.leaf, at);
    }
    if (block.items_.empty()) {
      Note(place + "/nodes", "The graph has no node.");
    }
    Json& edges = (*into)["edges"] = Json::array();
    for (const Block::Edge& edge : block.edges_) {
      const std::string at = place + "/edges/" + std::to_string(edges.size());
      CheckEnd(edge.from, at + "/from", ports, outer);
      CheckEnd(edge.to, at + "/to", ports, outer);
      Json made = {{"from", edge.from}, {"to", edge.to}};
      if (edge.options.one_to_one) {
        made["kind"] = "one_to_one";
      }
      if (edge.options.stream) {
        made["stream"] = true;
      }
      if (edge.options.capacity != 0) {
        made["capacity"] = edge.options.capacity;
      }
      edges.push_back(std::move(made));
    }
  }

  Json Ports(const std::vector<Port>& ports, const std::string& place, std::set<std::string>* names) {
    Json list = Json::array();
    for (const Port& port : ports) {
      CheckName(port.name, place + "/ports/" + std::to_string(list.size()), "port", names);
      list.push_back(PortOf(port));
    }
    return list;
  }

  Json Leaf(const NodeOptions& leaf, const std::string& place) {
    std::set<std::string> names;
    Json node = {{"ports", Ports(leaf.ports, place, &names)}};
    for (const Scalar& scalar : leaf.scalars) {
      CheckName(scalar.name, place + "/scalars/" + std::to_string(node["scalars"].size()), "scalar", &names);
      node["scalars"].push_back(ScalarOf(scalar));
    }
    if (!leaf.params.empty()) {
      node["params"] = leaf.params;
    }
    if (!leaf.instances.empty()) {
      node["instances"] = InstancesOf(leaf.instances);
    }
    if (!leaf.group.empty()) {
      node["group"] = ShapeOf(leaf.group);
    }
    Json& variants = node["variants"] = Json::array();
    for (const Variant& variant : VariantsOf(leaf)) {
      if (!modules_.contains(variant.module)) {
        Note(place + "/variants/" + std::to_string(variants.size()) + "/module",
             "There is no module " + Quoted(variant.module) + ".");
      }
      variants.push_back(VariantOf(variant));
    }
    if (variants.empty()) {
      Note(place + "/variants", "The node has no implementation: neither a module and an entry, nor variants.");
    }
    if (!leaf.devices.empty()) {
      node["devices"] = leaf.devices;
    }
    if (!leaf.hints.empty()) {
      node["hints"] = leaf.hints;
    }
    if (!leaf.math.empty()) {
      node["math"] = leaf.math;
    }
    return node;
  }

  Json Internal(const Block::Item& item, const std::string& place) {
    std::set<std::string> names;
    Json node = {{"ports", Ports(item.outside.ports, place, &names)}};
    if (!item.outside.instances.empty()) {
      node["instances"] = ShapeOf(item.outside.instances);
    }
    if (!item.outside.index.empty()) {
      node["index"] = item.outside.index;
    }
    WriteBlock(*item.inside, item.outside.ports, place, &node);
    return node;
  }

  void CheckEnd(const std::string& end, const std::string& place,
                const std::map<std::string, const std::vector<Port>*>& nodes, const std::vector<Port>& outer) {
    const size_t dot = end.find('.');
    const std::vector<Port>* ports = &outer;
    std::string whose = "here";
    if (dot != std::string::npos) {
      const std::string node = end.substr(0, dot);
      const auto found = nodes.find(node);
      if (found == nodes.end()) {
        Note(place, "There is no node " + Quoted(node) + ".");
        return;
      }
      ports = found->second;
      whose = "in node " + Quoted(node);
    }
    const std::string name = dot == std::string::npos ? end : end.substr(dot + 1);
    if (std::none_of(ports->begin(), ports->end(), [&](const Port& port) { return port.name == name; })) {
      Note(place, "There is no port " + Quoted(name) + " " + whose + ".");
    }
  }

  const Graph& graph_;
  std::set<std::string> modules_;
  v1::Diagnostics faults_;
};

void Block::Node(std::string name, NodeOptions options) {
  items_.push_back({.name = std::move(name), .leaf = std::move(options), .outside = {}, .inside = nullptr});
}

Block& Block::Nested(std::string name, BlockOptions options) {
  items_.push_back(
      {.name = std::move(name), .leaf = {}, .outside = std::move(options), .inside = std::make_unique<Block>()});
  return *items_.back().inside;
}

void Block::Connect(std::string from, std::string to, EdgeOptions options) {
  edges_.push_back({std::move(from), std::move(to), options});
}

void Graph::Input(std::string name, ElementType type, Shape shape) {
  inputs_.push_back(In(std::move(name), type, std::move(shape)));
}

void Graph::Output(std::string name, ElementType type, Shape shape) {
  outputs_.push_back(Out(std::move(name), type, std::move(shape)));
}

void Graph::Module(std::string name, v1::ModuleKind kind, std::vector<uint8_t> bytes, std::string options) {
  modules_.push_back({std::move(name), kind, std::move(options), std::move(bytes), "", ""});
}

void Graph::ModuleFile(std::string name, v1::ModuleKind kind, std::string file, std::string options) {
  modules_.push_back({std::move(name), kind, std::move(options), {}, std::move(file), ""});
}

void Graph::ModuleHash(std::string name, v1::ModuleKind kind, std::string sha256, std::string options) {
  modules_.push_back({std::move(name), kind, std::move(options), {}, "", std::move(sha256)});
}

StatusOr<std::string> Graph::document() const { return DocumentWriter(*this).Write(); }

StatusOr<Modules> Graph::modules() const {
  Modules modules;
  for (const ModuleItem& module : modules_) {
    if (!module.sha256.empty()) {
      modules.hashes[module.name] = module.sha256;
    } else if (module.file.empty()) {
      modules.bytes[module.name] = module.bytes;
    } else {
      HPVMD_ASSIGN_OR_RETURN(modules.bytes[module.name], While(ReadInputFile(module.file, limits::kModuleBytesMax),
                                                               "reading module " + Quoted(module.name)));
    }
  }
  return modules;
}

}  // namespace hpvm
