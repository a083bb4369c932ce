// SPDX-License-Identifier: Apache-2.0
#include "graph/long_form.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "graph/expr.h"
#include "graph/long_form_writer.h"

namespace hpvm::graph {
namespace long_form {

bool LongFormWriter::HasRoom() {
  const bool has_room =
      writer_.string_bytes() <= limits_.document_bytes_max &&
      writer_.values() <= uint64_t{64} * limits_.nodes_max + uint64_t{8} * limits_.edges_max + 1'000'000;
  if (!has_room && !is_full_) {
    is_full_ = true;
    Fail(document_.root(), "The document's long form is larger than the limit of ", limits_.document_bytes_max,
         " bytes: it repeats types and shapes that this document says once.");
  }
  return has_room;
}

void LongFormWriter::WriteExtent(std::string_view text, JsonId origin) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) {
    writer_.Add(Kind::kInteger, number, origin);
  } else {
    writer_.AddString(text, origin);
  }
}

void LongFormWriter::WriteTensor(const Tensor& tensor) {
  const JsonId origin = tensor.at;  // Faults of a shape name the place that declares it.
  writer_.Member(Text(Key::kType));
  if (tensor.type != kNoJson) {
    writer_.Copy(document_, tensor.type, origin);
    writer_.Member(Text(Key::kShape));
    writer_.Copy(document_, tensor.shape, origin);
    return;
  }
  writer_.AddString(tensor.text.type, origin);
  writer_.Member(Text(Key::kShape));
  writer_.Open(Kind::kArray, origin);
  for (const std::string_view extent : tensor.text.extents) {
    WriteExtent(extent, origin);
  }
  writer_.Close();
}

std::string LongFormWriter::EndOf(const Scope& scope, uint32_t member, uint32_t port) const {
  const Member& from = scope.members[member];
  return from.is_node ? Cat(document_.NameOf(from.id), ".", from.ports[port].name) : from.ports[port].name;
}

void LongFormWriter::WriteModule(std::string_view name, JsonId file) {
  std::string_view kind = "wasm";
  const std::string_view path = document_.String(file);
  if (path.ends_with(".spv")) {
    kind = "spirv";
  } else if (path.ends_with(".cl")) {
    kind = "opencl";
  } else if (!path.ends_with(".wasm")) {
    Fail(file, "Module ", Quoted(path), " ends with none of .wasm, .spv and .cl; an object with \"kind\" is needed.");
  }
  writer_.Member(name);
  writer_.Open(Kind::kObject, file);
  WriteText(Key::kKind, kind, file);
  writer_.Member(Text(Key::kSource));
  writer_.Open(Kind::kObject, file);
  WriteText(Key::kFile, path, file);
  writer_.Close();
  writer_.Close();
}

void LongFormWriter::WriteModules(JsonId modules) {
  writer_.Open(Kind::kObject, modules);
  ForEachChild(modules, [&](JsonId child) {
    if (Is(child, Kind::kString)) {
      WriteModule(document_.NameOf(child), child);
    } else {
      writer_.Member(document_.NameOf(child));
      writer_.Copy(document_, child);
    }
  });
  writer_.Close();
}

void LongFormWriter::WriteInputs(const Scope& scope, JsonId inputs) {
  writer_.Open(Kind::kObject, inputs);
  for (const Member& input : scope.members) {
    if (input.is_node) {
      break;
    }
    writer_.Member(document_.NameOf(input.id));
    if (Is(input.id, Kind::kString) && input.ports[0].tensor.is_known()) {
      writer_.Open(Kind::kObject, input.id);
      WriteTensor(input.ports[0].tensor);
      writer_.Close();
    } else {
      writer_.Copy(document_, input.id);
    }
  }
  writer_.Close();
}

void LongFormWriter::WriteOutputs(Scope& scope, JsonId outputs) {
  writer_.Open(Kind::kObject, outputs);
  ForEachChild(outputs, [&](JsonId child) {
    const std::string_view name = document_.NameOf(child);
    writer_.Member(name);
    if (!Is(child, Kind::kString)) {
      writer_.Copy(document_, child);
      return;
    }
    const Scope::Output output = scope.outputs.front();
    scope.outputs.pop_front();
    writer_.Open(Kind::kObject, child);
    if (output.port != kNone) {
      scope.edges.push_back({child, EndOf(scope, output.member, output.port), std::string(name)});
      if (const Tensor& tensor = scope.members[output.member].ports[output.port].tensor; tensor.is_known()) {
        WriteTensor(tensor);
      }
    }
    writer_.Close();
  });
  writer_.Close();
}

void LongFormWriter::WritePorts(const Member& member) {
  writer_.Member(Text(Key::kPorts));
  writer_.Open(Kind::kArray, member.id);
  for (const Argument& argument : member.arguments) {
    if (argument.port == kNone) {
      continue;
    }
    const PortFact& port = member.ports[argument.port];
    writer_.Open(Kind::kObject, argument.at);
    WriteText(Key::kName, port.name, argument.at);
    WriteText(Key::kAccess, !port.is_written ? "in" : port.is_read ? "inout" : "out", argument.at);
    if (port.tensor.is_known()) {
      WriteTensor(port.tensor);
    }
    writer_.Close();
  }
  writer_.Close();
}

void LongFormWriter::WriteScalars(const Member& member) {
  writer_.Member(Text(Key::kScalars));
  writer_.Open(Kind::kArray, member.id);
  for (const Argument& argument : member.arguments) {
    if (argument.port != kNone) {
      continue;
    }
    writer_.Open(Kind::kObject, argument.at);
    WriteText(Key::kName, argument.scalar_name, argument.at);
    WriteText(Key::kType, argument.type, argument.at);
    writer_.Member(Text(Key::kValue));
    double number = 0;
    const std::string_view value = argument.value;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (!argument.input.empty()) {
      writer_.Open(Kind::kObject, argument.at);
      WriteText(Key::kInput, argument.input, argument.at);
      writer_.Close();
    } else if (value.empty()) {
      writer_.Copy(document_, argument.at, argument.at);
    } else if (argument.type.starts_with('f') && error == std::errc() && end == value.data() + value.size()) {
      writer_.AddNumber(number, argument.at);
    } else {
      WriteExtent(value, argument.at);
    }
    writer_.Close();
  }
  writer_.Close();
}

void LongFormWriter::WriteParams(const Member& member) {
  writer_.Member(Text(Key::kParams));
  writer_.Open(Kind::kArray, member.id);
  for (const Argument& argument : member.arguments) {
    writer_.AddString(argument.port == kNone ? argument.scalar_name : member.ports[argument.port].name, argument.at);
  }
  writer_.Close();
}

// Writes one instance for each element of the first output, or else of the first port that is updated in place. The
// last extent comes first.
void LongFormWriter::WriteInstances(const Member& member) {
  const auto is_out = [](const PortFact& port) { return port.is_written && !port.is_read; };
  auto shaping = std::find_if(member.ports.begin(), member.ports.end(), is_out);
  if (shaping == member.ports.end()) {
    shaping = std::find_if(member.ports.begin(), member.ports.end(), [](const PortFact& p) { return p.is_written; });
  }
  if (shaping == member.ports.end() || shaping->tensor.rank(document_) > 3) {
    Fail(member.id, "Node ", Quoted(document_.NameOf(member.id)),
         shaping == member.ports.end() ? " writes nothing" : " writes an output of more than 3 dimensions",
         ", so the number of its instances does not follow from an output; \"instances\" is needed.");
    return;
  }
  const Tensor& tensor = shaping->tensor;
  writer_.Member(Text(Key::kInstances));
  writer_.Open(Kind::kArray, tensor.is_known() ? tensor.at : member.id);
  if (tensor.shape != kNoJson) {
    std::vector<JsonId> extents;
    ForEachChild(tensor.shape, [&](JsonId extent) { extents.push_back(extent); });
    std::for_each(extents.rbegin(), extents.rend(), [&](JsonId extent) { writer_.Copy(document_, extent, tensor.at); });
  } else {
    const auto& extents = tensor.text.extents;
    std::for_each(extents.rbegin(), extents.rend(), [&](std::string_view e) { WriteExtent(e, tensor.at); });
  }
  writer_.Close();
}

void LongFormWriter::WriteVariants(const Member& member) {
  if (const JsonId variants = Find(member.id, Key::kVariants); variants != kNoJson) {
    return;  // WriteLeaf copies them with the node's other members.
  }
  const JsonId module = Find(member.id, Key::kModule), entry = Find(member.id, Key::kEntry);
  if (module == kNoJson && only_module_.empty()) {
    Fail(member.id, "Node ", Quoted(document_.NameOf(member.id)),
         " names no module, which only a document with exactly one module allows; \"module\" is needed.");
    return;
  }
  writer_.Member(Text(Key::kVariants));
  writer_.Open(Kind::kArray, member.id);
  writer_.Open(Kind::kObject, member.id);
  writer_.Member(Text(Key::kModule));
  if (module != kNoJson) {
    writer_.Copy(document_, module);
  } else {
    writer_.AddString(only_module_, member.id);
  }
  writer_.Member(Text(Key::kEntry));
  if (entry != kNoJson) {
    writer_.Copy(document_, entry);
  } else {
    writer_.AddString(document_.NameOf(member.id), member.id);
  }
  writer_.Close();
  writer_.Close();
}

void LongFormWriter::WriteLeaf(Scope& scope, const Member& member) {
  writer_.Open(Kind::kObject, member.id);
  WritePorts(member);
  WriteScalars(member);
  WriteParams(member);
  if (Find(member.id, Key::kInstances) == kNoJson) {
    WriteInstances(member);
  }
  WriteVariants(member);
  if (Is(member.id, Kind::kObject)) {
    ForEachChild(member.id, [&](JsonId child) {
      const Key key = KeyOf(document_[child]);
      if (key != Key::kArgs && key != Key::kModule && key != Key::kEntry) {
        writer_.Member(document_.NameOf(child));
        writer_.Copy(document_, child);
      }
    });
  }
  writer_.Close();
  for (const Argument& argument : member.arguments) {
    if (argument.source != kNone) {
      scope.edges.push_back({argument.at, EndOf(scope, argument.source, argument.source_port),
                             Cat(document_.NameOf(member.id), ".", member.ports[argument.port].name)});
    }
  }
}

void LongFormWriter::WriteNodes(Scope& scope, JsonId nodes, uint32_t depth) {
  writer_.Open(Kind::kObject, nodes);
  for (const Member& member : scope.members) {
    if (!member.is_node || !HasRoom()) {
      continue;
    }
    writer_.Member(document_.NameOf(member.id));
    if (member.is_short) {
      WriteLeaf(scope, member);
    } else if (Is(Find(member.id, Key::kNodes), Kind::kObject) && depth < limits_.depth_max) {
      WriteScope(member.id, depth + 1);
    } else {
      writer_.Copy(document_, member.id);
    }
  }
  writer_.Close();
}

void LongFormWriter::WriteEdges(const Scope& scope, JsonId edges) {
  writer_.Member(Text(Key::kEdges));
  if (edges != kNoJson && !Is(edges, Kind::kArray)) {
    writer_.Copy(document_, edges);
    return;
  }
  writer_.Open(Kind::kArray, edges == kNoJson ? document_.root() : edges);
  for (const Scope::Edge& edge : scope.edges) {
    if (!HasRoom()) {
      break;
    }
    writer_.Open(Kind::kObject, edge.at);
    WriteText(Key::kFrom, edge.from, edge.at);
    WriteText(Key::kTo, edge.to, edge.at);
    writer_.Close();
  }
  if (edges != kNoJson) {
    ForEachChild(edges, [&](JsonId child) { writer_.Copy(document_, child); });
  }
  writer_.Close();
}

// Returns the name of the document's only module, which nodes need not name; empty when there are several, or none.
std::string LongFormWriter::OnlyModule(JsonId root) {
  const JsonId modules = Find(root, Key::kModules), module = Find(root, Key::kModule);
  if (modules != kNoJson && module != kNoJson) {
    Fail(module, "The document has \"module\" and \"modules\"; one of them is enough.");
  } else if (Is(module, Kind::kString)) {
    const std::string_view path = document_.String(module);
    const std::string_view file = path.substr(path.rfind('/') + 1);
    const std::string_view stem = file.substr(0, file.find('.'));
    return IsName(stem) ? std::string(stem) : "module";
  } else if (Is(modules, Kind::kObject) && document_[modules].size == 1) {
    return std::string(document_.NameOf(document_.FirstChild(modules)));
  }
  return "";
}

void LongFormWriter::WriteMember(Scope& scope, JsonId member, uint32_t depth) {
  const Key key = KeyOf(document_[member]);
  const bool is_object = Is(member, Kind::kObject);
  if (key == Key::kEdges) {
    return;  // WriteScope writes edges last, with those that arguments and outputs add.
  }
  writer_.Member(document_.NameOf(member));
  if (key == Key::kNodes && is_object) {
    WriteNodes(scope, member, depth);
  } else if (depth > 0) {
    writer_.Copy(document_, member);
  } else if (key == Key::kHpvm) {
    writer_.Add(Kind::kInteger, 1, member);
  } else if (key == Key::kModules && is_object) {
    WriteModules(member);
  } else if (key == Key::kModule && Is(member, Kind::kString)) {
    writer_.Member(Text(Key::kModules));
    writer_.Open(Kind::kObject, member);
    WriteModule(only_module_.empty() ? "module" : only_module_, member);
    writer_.Close();
  } else if (key == Key::kInputs && is_object) {
    WriteInputs(scope, member);
  } else if (key == Key::kOutputs && is_object) {
    WriteOutputs(scope, member);
  } else {
    writer_.Copy(document_, member);
  }
}

void LongFormWriter::WriteScope(JsonId object, uint32_t depth) {
  Scope scope;
  scope.number = scopes_++;
  AddIndices(object);
  IndexInputs(scope, object, depth == 0);
  if (const JsonId nodes = Find(object, Key::kNodes); Is(nodes, Kind::kObject)) {
    ForEachChild(nodes, [&](JsonId child) { IndexNode(scope, child); });
  }
  Resolve(scope);
  writer_.Open(Kind::kObject, object);
  ForEachChild(object, [&](JsonId child) { WriteMember(scope, child, depth); });
  WriteEdges(scope, Find(object, Key::kEdges));
  writer_.Close();
}

void LongFormWriter::Write() {
  only_module_ = OnlyModule(document_.root());
  FindSymbols();
  WriteScope(document_.root(), 0);
}

}  // namespace long_form

bool IsShortForm(const JsonTree& document) {
  if (document[document.root()].kind() != JsonValue::Kind::kObject) {
    return false;
  }
  for (JsonId child = document.FirstChild(document.root()); child != kNoJson; child = document.Next(child)) {
    if (long_form::KeyOf(document[child]) == Key::kHpvm) {
      return document[child].kind() == JsonValue::Kind::kInteger && document[child].integer == 2;
    }
  }
  return false;
}

bool WriteLongForm(const JsonTree& document, const Limits& limits, DiagnosticSink& faults, JsonTree& long_form) {
  long_form::LongFormWriter(document, limits, faults, long_form).Write();
  return !faults.has_errors();
}

}  // namespace hpvm::graph
