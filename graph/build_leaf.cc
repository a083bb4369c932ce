// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/limits.h"
#include "graph/build.h"
#include "graph/expr.h"

namespace hpvm::graph {
namespace {

constexpr uint32_t kListMax = 64;  // Limit on variants and devices of one node.
constexpr uint32_t kEntryBytesMax = 4096;
constexpr std::string_view kScalarTypes[] = {"i32", "i64", "f32", "f64"};
constexpr std::string_view kAbis[] = {"hpvm", "hpvm-web"};
constexpr std::string_view kMaths[] = {"exact", "fast"};

// Returns true for a kind, or a kind and a number: "gpu", "cpu:0".
bool IsDevice(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string_view number = colon == std::string_view::npos ? "0" : text.substr(colon + 1);
  const auto is_kind = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  return !kind.empty() && kind[0] >= 'a' && kind[0] <= 'z' && std::all_of(kind.begin(), kind.end(), is_kind) &&
         !number.empty() && number.size() <= 9 &&
         std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

void Builder::ReadInternal(Node& node, uint32_t index, JsonId id) {
  Fields fields;
  ReadFields(id, "Internal node", {Key::kPorts, Key::kNodes, Key::kEdges, Key::kInstances, Key::kIndex},
             {Key::kPorts, Key::kNodes, Key::kEdges}, fields);
  ReadPorts(node, fields[Key::kPorts]);
  node.instances = ReadExprs(fields[Key::kInstances], "Instances", 3, 1);
  if (fields.has(Key::kIndex)) {
    DeclareIndices(node, fields[Key::kIndex]);
  }
  pending_[index].edges = fields[Key::kEdges];
  graph_.nodes[index] = std::move(node);
  ReadChildren(index, fields[Key::kNodes]);
}

void Builder::ReadLeaf(Node& node, JsonId id) {
  Fields fields;
  ReadFields(id, "Node",
             {Key::kPorts, Key::kScalars, Key::kParams, Key::kInstances, Key::kGroup, Key::kVariants, Key::kDevices,
              Key::kHints, Key::kMath},
             {Key::kPorts, Key::kVariants}, fields);
  ReadPorts(node, fields[Key::kPorts]);
  ReadScalars(node, fields[Key::kScalars]);
  if (node.ports.size() + node.scalars.size() > limits::kKernelParamsMax) {
    Fail(id, "The kernel has ", node.ports.size() + node.scalars.size(),
         " parameters (ports and scalars); the limit is ", limits::kKernelParamsMax, ".");
  }
  ReadParams(node, fields[Key::kParams]);
  ReadInstances(node, fields[Key::kInstances]);
  node.group = ReadExprs(fields[Key::kGroup], "Group", 3, 1);
  if (!node.group.empty() && node.group.size() != node.instances.size()) {
    Fail(fields[Key::kGroup], "Group has ", node.group.size(), " extents for ", node.instances.size(),
         " extents of \"instances\"; the numbers must be equal.");
  }
  ReadVariants(node, fields[Key::kVariants]);
  node.devices = ReadDevices(fields[Key::kDevices], "Devices");
  node.hints = ReadDevices(fields[Key::kHints], "Hints");
  if (fields.has(Key::kMath)) {
    node.fast_math = ReadChoice(fields[Key::kMath], "Math", kMaths) == 1;
  }
}

void Builder::ReadInstances(Node& node, JsonId id) {
  bool is_fixed = true;
  ForEach(id, "Instances", 3, [&](JsonId child) {
    uint32_t port = Node::kFixedExtent;
    if (tree_[child].kind() != Kind::kObject) {
      node.instances.push_back(ReadExpr(child, "Instances extent", 0));
    } else {
      Fields fields;
      ReadFields(child, "Instances extent", {Key::kPort, Key::kMax}, {Key::kPort, Key::kMax}, fields);
      node.instances.push_back(fields.has(Key::kMax) ? ReadExpr(fields[Key::kMax], "Max", 0) : Expr());
      port = fields.has(Key::kPort) ? ReadExtentPort(node, fields[Key::kPort]) : port;
    }
    is_fixed = is_fixed && port == Node::kFixedExtent;
    node.extent_ports.push_back(port);
  });
  if (is_fixed) {
    node.extent_ports.clear();
  }
}

uint32_t Builder::ReadExtentPort(const Node& node, JsonId id) {
  if (!Expect(id, Kind::kString, "Port")) {
    return Node::kFixedExtent;
  }
  const std::string_view name = tree_.String(id);
  const auto found = std::find_if(node.ports.begin(), node.ports.end(),
                                  [&](const Port& port) { return port.name == name && !name.empty(); });
  work_ += node.ports.size();
  if (found == node.ports.end()) {
    NearMiss near(name);
    if (faults_.AdmitError()) {
      for (const Port& port : node.ports) {
        near.Offer(port.access == Access::kIn ? port.name : "");
      }
      faults_.Add(
          {Severity::kError, tree_.PointerTo(id), std::nullopt, Cat("Node has no port ", Quoted(name), near.Ending())});
    }
    return Node::kFixedExtent;
  }
  if (found->type == ElementType{0}) {
    return Node::kFixedExtent;  // Reported already.
  }
  constexpr ElementType kCounts[] = {ElementType::kI32, ElementType::kU32, ElementType::kI64, ElementType::kU64};
  if (found->access != Access::kIn) {
    Fail(id, "Port ", Quoted(name), " is written by the node; an extent comes from a port with access \"in\".");
  } else if (!found->shape.empty()) {
    Fail(id, "Port ", Quoted(name), " has rank ", found->shape.size(), "; an extent takes one of rank 0 (shape []).");
  } else if (std::find(std::begin(kCounts), std::end(kCounts), found->type) == std::end(kCounts)) {
    Fail(id, "Port ", Quoted(name), " has type ", Quoted(Name(found->type)),
         "; an extent takes \"i32\", \"u32\", \"i64\" or \"u64\".");
  } else {
    return static_cast<uint32_t>(found - node.ports.begin());
  }
  return Node::kFixedExtent;
}

void Builder::ReadScalars(Node& node, JsonId id) {
  ForEach(id, "Scalars", limits::kKernelParamsMax, [&](JsonId child) {
    Scalar& scalar = node.scalars.emplace_back();
    Fields fields;
    if (!ReadFields(child, "Scalar", {Key::kName, Key::kType, Key::kValue}, {Key::kName, Key::kType, Key::kValue},
                    fields)) {
      return;
    }
    scalar.name = ReadName(fields[Key::kName], "Scalar");
    if (!fields.has(Key::kType)) {
      return;
    }
    const std::optional<uint32_t> type = ReadChoice(fields[Key::kType], "Type", kScalarTypes);
    if (type.has_value() && fields.has(Key::kValue)) {
      scalar.type = static_cast<ScalarType>(*type);
      ReadScalarValue(scalar, fields[Key::kValue]);
    }
  });
}

void Builder::ReadScalarValue(Scalar& scalar, JsonId id) {
  const bool is_float = scalar.type == ScalarType::kF32 || scalar.type == ScalarType::kF64;
  const JsonValue& value = tree_[id];
  switch (value.kind()) {
    case Kind::kObject:
      return ReadScalarInput(scalar, id);
    case Kind::kString:
      scalar.value = is_float ? ReadRealExpr(id, "Value") : ReadExpr(id, "Value", INT64_MIN);
      return;
    case Kind::kFloat:
      if (!is_float) {
        return Fail(id, "Value is a number with a fraction or exponent; type ",
                    Quoted(kScalarTypes[static_cast<int>(scalar.type)]), " takes an integer.");
      }
      if (scalar.type == ScalarType::kF32 && !std::isfinite(static_cast<float>(value.number))) {
        return Fail(id, "Value is too large for type \"f32\".");
      }
      scalar.value = value.number;
      return;
    case Kind::kInteger:
      // Accepts bit patterns of u32 as well as negative numbers.
      if (scalar.type == ScalarType::kI32 && (value.integer < INT32_MIN || value.integer > UINT32_MAX)) {
        return Fail(id, "Value (", value.integer, ") is outside 32 bits.");
      }
      if (is_float) {
        scalar.value = static_cast<double>(value.integer);
      } else {
        scalar.value = ConstantExpr(value.integer);
      }
      return;
    case Kind::kBigInteger:
      return Fail(id, "Value is outside 64 bits.");
    case Kind::kRefused:
      return;
    default:
      return Fail(id, "Value is ", KindName(value.kind()),
                  "; a number, an expression or {\"input\": name} is expected.");
  }
}

void Builder::ReadScalarInput(Scalar& scalar, JsonId id) {
  Fields fields;
  ReadFields(id, "Value", {Key::kInput}, {Key::kInput}, fields);
  if (!fields.has(Key::kInput) || !Expect(fields[Key::kInput], Kind::kString, "Input")) {
    return;
  }
  const std::string_view name = tree_.String(fields[Key::kInput]);
  const std::optional<uint32_t> known = tree_.names().Find(name);
  const auto input = known.has_value() ? input_of_.find(*known) : input_of_.end();
  if (input == input_of_.end() && !faults_.AdmitError()) {
    return;
  }
  if (input == input_of_.end()) {
    NearMiss near(name);
    for (const Port& port : graph_.nodes[0].ports) {
      near.Offer(port.access == Access::kIn ? port.name : "");
    }
    faults_.Add({Severity::kError, tree_.PointerTo(fields[Key::kInput]), std::nullopt,
                 Cat("Graph has no input ", Quoted(name), near.Ending())});
    return;
  }
  scalar.value = Scalar::InputRef{std::string(name)};
  const Port& port = graph_.nodes[0].ports[input->second];
  if (port.type == ElementType{0}) {
    return;
  }
  constexpr ElementType kTypes[][2] = {{ElementType::kI32, ElementType::kU32},
                                       {ElementType::kI64, ElementType::kU64},
                                       {ElementType::kF32, ElementType::kF32},
                                       {ElementType::kF64, ElementType::kF64}};
  const auto& types = kTypes[static_cast<int>(scalar.type)];
  if (!port.shape.empty()) {
    Fail(fields[Key::kInput], "Input ", Quoted(name), " has rank ", port.shape.size(),
         "; a scalar takes an input of rank 0 (shape []).");
  } else if (port.type != types[0] && port.type != types[1]) {
    Fail(fields[Key::kInput], "Input ", Quoted(name), " has type ", Quoted(Name(port.type)), "; the scalar's type is ",
         Quoted(kScalarTypes[static_cast<int>(scalar.type)]), ".");
  }
}

void Builder::ReadParams(Node& node, JsonId id) {
  const size_t count = node.ports.size() + node.scalars.size();
  const auto name_of = [&](size_t i) -> const std::string& {
    return i < node.ports.size() ? node.ports[i].name : node.scalars[i - node.ports.size()].name;
  };
  if (id == kNoJson) {
    node.params.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      node.params[i] = i;
    }
    return;
  }
  std::vector<bool> listed(count, false);
  size_t next = 0;
  ForEach(id, "Params", limits::kKernelParamsMax, [&](JsonId child) {
    if (!Expect(child, Kind::kString, "Parameter")) {
      return;
    }
    const std::string_view name = tree_.String(child);
    // Most lists follow the order of declaration, so the search starts with the next name.
    size_t tries = 0;
    while (tries < count && (name.empty() || name_of((next + tries) % count) != name)) {
      ++tries;
    }
    work_ += tries;
    if (tries == count) {
      NearMiss near(name);
      if (faults_.AdmitError()) {
        for (size_t i = 0; i < count; ++i) {
          near.Offer(name_of(i));
        }
        faults_.Add({Severity::kError, tree_.PointerTo(child), std::nullopt,
                     Cat("Node has no port or scalar ", Quoted(name), near.Ending())});
      }
      return;
    }
    const auto found = static_cast<uint32_t>((next + tries) % count);
    next = found + 1;
    if (listed[found]) {
      Fail(child, "Parameter ", Quoted(name), " is listed twice; once is allowed.");
    }
    listed[found] = true;
    node.params.push_back(found);
  });
  if (tree_[id].kind() != Kind::kArray) {
    return;
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (!listed[i] && !name_of(i).empty()) {
      Fail(id, "Params do not list ", Quoted(name_of(i)), "; every port and scalar is needed.");
    }
  }
}

void Builder::ReadVariants(Node& node, JsonId id) {
  if (id != kNoJson && tree_[id].kind() == Kind::kArray && tree_[id].size == 0) {
    Fail(id, "Node has no variants (0); at least 1 is needed.");
  }
  ForEach(id, "Variants", kListMax, [&](JsonId child) { ReadVariant(node.variants.emplace_back(), child); });
}

void Builder::ReadVariant(Variant& variant, JsonId id) {
  variant.pointer.text = tree_.PointerTo(id);
  Fields fields;
  if (!ReadFields(id, "Variant", {Key::kModule, Key::kEntry, Key::kAbi, Key::kDevices, Key::kConstants},
                  {Key::kModule, Key::kEntry}, fields)) {
    return;
  }
  if (const JsonId module = fields[Key::kModule]; module != kNoJson && Expect(module, Kind::kString, "Module")) {
    const std::string_view name = tree_.String(module);
    const std::optional<uint32_t> known = tree_.names().Find(name);
    const auto found = known.has_value() ? module_of_.find(*known) : module_of_.end();
    if (found != module_of_.end()) {
      variant.module = ModuleId(found->second);
    } else if (faults_.AdmitError()) {
      NearMiss near(name);
      for (const Module& candidate : graph_.modules) {
        near.Offer(candidate.name);
      }
      faults_.Add({Severity::kError, tree_.PointerTo(module), std::nullopt,
                   Cat("Graph has no module ", Quoted(name), near.Ending())});
    }
  }
  if (const JsonId entry = fields[Key::kEntry]; entry != kNoJson && Expect(entry, Kind::kString, "Entry")) {
    variant.entry = tree_.String(entry);
    if (variant.entry.empty() || variant.entry.size() > kEntryBytesMax ||
        variant.entry.find('\0') != std::string::npos) {
      Fail(entry, "Entry ", Quoted(variant.entry), " has ", variant.entry.size(), " bytes; 1 to ", kEntryBytesMax,
           " without zero bytes are allowed.");
    }
  }
  if (fields.has(Key::kAbi)) {
    variant.hpvm_web = ReadChoice(fields[Key::kAbi], "ABI", kAbis) == 1;
    if (variant.hpvm_web && variant.module.valid() && graph_.modules[variant.module.index].kind != ModuleKind::kWasm) {
      Fail(fields[Key::kAbi], "ABI \"hpvm-web\" is for modules of kind \"wasm\"; module ",
           Quoted(graph_.modules[variant.module.index].name), " is of another kind.");
    }
  }
  variant.devices = ReadDevices(fields[Key::kDevices], "Devices");
  ReadConstants(variant, fields[Key::kConstants]);
}

void Builder::ReadConstants(Variant& variant, JsonId id) {
  if (id == kNoJson || !Expect(id, Kind::kObject, "Constants")) {
    return;
  }
  if (variant.module.valid() && Find(graph_.modules[variant.module.index].kind)->takes != "constants") {
    return Fail(id, "Constants are for modules of kind ", NamesOfKinds("constants"), "; module ",
                Quoted(graph_.modules[variant.module.index].name), " is of another kind.");
  }
  if (tree_[id].size > limits::kSpecialisationConstantsMax) {
    return Fail(id, "Constants has ", tree_[id].size, " members; the limit is ", limits::kSpecialisationConstantsMax,
                ".");
  }
  for (JsonId child = tree_.FirstChild(id); child != kNoJson; child = tree_.Next(child)) {
    ReadConstant(variant, child);
  }
}

void Builder::ReadConstant(Variant& variant, JsonId id) {
  const std::string_view name = tree_.NameOf(id);
  Constant constant;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), constant.id);
  // Only one spelling of each number is accepted, so that no constant occurs twice.
  if (error != std::errc() || end != name.data() + name.size() || std::to_string(constant.id) != name) {
    return Fail(id, "Constant ", Quoted(name), " is not a SpecId: a decimal number below 4294967296 is expected.");
  }
  switch (const JsonValue& value = tree_[id]; value.kind()) {
    case Kind::kBool:
    case Kind::kInteger:
      constant.value = value.integer;
      break;
    case Kind::kFloat:
      constant.value = value.number;
      break;
    case Kind::kRefused:
      return;
    default:
      return Fail(id, "Constant ", Quoted(name), " is ", KindName(value.kind()),
                  "; a number of up to 64 bits, true or false is expected.");
  }
  variant.constants.push_back(constant);
}

std::vector<std::string> Builder::ReadDevices(JsonId id, std::string_view what) {
  std::vector<std::string> devices;
  ForEach(id, what, kListMax, [&](JsonId child) {
    if (!Expect(child, Kind::kString, "Device")) {
      return;
    }
    devices.emplace_back(tree_.String(child));
    if (!IsDevice(devices.back())) {
      Fail(child, "Device ", Quoted(devices.back()), " is not a kind (\"gpu\") or a kind and a number (\"gpu:0\").");
    } else if (std::find(devices.begin(), devices.end() - 1, devices.back()) != devices.end() - 1) {
      Fail(child, "Device ", Quoted(devices.back()), " is listed twice; once is allowed.");
    }
  });
  return devices;
}

}  // namespace hpvm::graph
