// SPDX-License-Identifier: Apache-2.0
#include "graph/build.h"

#include <algorithm>

#include "graph/expr.h"

namespace hpvm::graph {

Builder::Builder(const JsonTree& tree, const Limits& limits, DiagnosticSink& faults, Graph& graph)
    : tree_(tree), limits_(limits), faults_(faults), graph_(graph) {}

void Builder::Build() {
  work_ += tree_.size();
  graph_.nodes.emplace_back();
  graph_.nodes[0].is_leaf = false;
  pending_.push_back({tree_.root(), kNoJson, 0});
  ReadRoot();
  // The arena is the queue: children are appended, and parents precede them.
  for (uint32_t i = 1; i < graph_.nodes.size(); ++i) {
    ReadNode(i);
  }
  child_of_.assign(tree_.names().size(), {Id<Node>::kInvalid, Id<Node>::kInvalid});
  for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
    ReadEdges(i);
  }
  CheckSymbolsSolvable();
}

bool Builder::Expect(JsonId id, Kind kind, std::string_view what) {
  if (tree_[id].kind() == kind) {
    return true;
  }
  if (tree_[id].kind() != Kind::kRefused) {
    Fail(id, what, " is ", KindName(tree_[id].kind()), "; ", KindName(kind), " is expected.");
  }
  return false;
}

bool Builder::ReadFields(JsonId id, std::string_view what, std::initializer_list<Key> allowed,
                         std::initializer_list<Key> required, Fields& fields) {
  fields.ids.fill(kNoJson);
  if (!Expect(id, Kind::kObject, what)) {
    return false;
  }
  uint64_t mask = 0;
  for (const Key key : allowed) {
    mask |= uint64_t{1} << static_cast<int>(key);
  }
  for (JsonId child = tree_.FirstChild(id); child != kNoJson; child = tree_.Next(child)) {
    const uint32_t name = tree_[child].name;
    if (name < kKeyNames.size() && (mask >> name & 1) != 0) {
      fields.ids[name] = child;
    } else {
      ReportUnknown(child, what, allowed);
    }
  }
  for (const Key key : required) {
    if (!fields.has(key)) {
      Fail(id, what, " has no ", Quoted(kKeyNames[static_cast<size_t>(key)]), "; it is required.");
    }
  }
  return true;
}

void Builder::ReportUnknown(JsonId member, std::string_view what, std::initializer_list<Key> allowed) {
  if (!faults_.AdmitError()) {
    return;
  }
  const std::string_view name = tree_.NameOf(member);
  NearMiss near(name);
  for (const Key key : allowed) {
    near.Offer(kKeyNames[static_cast<size_t>(key)]);
  }
  faults_.Add({Severity::kError, tree_.PointerTo(tree_[member].parent), std::nullopt,
               Cat(what, " has an unknown member ", Quoted(name), near.Ending())});
}

std::optional<uint32_t> Builder::ReadChoice(JsonId id, std::string_view what, std::span<const std::string_view> names) {
  if (!Expect(id, Kind::kString, what)) {
    return std::nullopt;
  }
  const std::string_view text = tree_.String(id);
  for (uint32_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) {
      return i;
    }
  }
  if (faults_.AdmitError()) {
    NearMiss near(text);
    std::string list;
    for (const std::string_view name : names) {
      near.Offer(name);
      list += (list.empty() ? "" : ", ") + Quoted(name);
    }
    const std::string ending = near.Ending();
    faults_.Add(
        {Severity::kError, tree_.PointerTo(id), std::nullopt,
         Cat(what, " ", Quoted(text), " is not known", ending == "." ? Cat("; it is one of ", list, ".") : ending)});
  }
  return std::nullopt;
}

std::string Builder::ReadText(JsonId id, std::string_view what) {
  return id != kNoJson && Expect(id, Kind::kString, what) ? std::string(tree_.String(id)) : std::string();
}

bool Builder::CheckName(JsonId at, std::string_view what, std::string_view name) {
  if (IsName(name)) {
    return true;
  }
  if (name.size() > kNameBytesMax) {
    Fail(at, what, " name ", Quoted(name), " has ", name.size(), " bytes; the limit is ", kNameBytesMax, ".");
  } else {
    Fail(at, what, " name ", Quoted(name), " is not a letter or \"_\" followed by letters, digits, \"_\" and \"-\".");
  }
  return false;
}

std::string Builder::ReadName(JsonId id, std::string_view what) {
  if (id == kNoJson || !Expect(id, Kind::kString, Cat(what, " name"))) {
    return "";
  }
  const std::string_view name = tree_.String(id);
  return CheckName(id, what, name) ? std::string(name) : std::string();
}

void Builder::ReadRoot() {
  Fields fields;
  const JsonId id = tree_.root();
  if (!ReadFields(id, "The document",
                  {Key::kSchema, Key::kHpvm, Key::kName, Key::kDescription, Key::kSymbols, Key::kInputs, Key::kOutputs,
                   Key::kModules, Key::kNodes, Key::kEdges},
                  {Key::kHpvm, Key::kInputs, Key::kOutputs, Key::kModules, Key::kNodes, Key::kEdges}, fields)) {
    return;
  }
  if (const JsonId version = fields[Key::kHpvm]; version != kNoJson && Expect(version, Kind::kInteger, "Version")) {
    if (tree_[version].integer != 1) {
      Fail(version, "Version (", tree_[version].integer, ") is not known; this reader knows versions 1 and 2.");
    }
  }
  ReadText(fields[Key::kSchema], "\"$schema\"");
  graph_.name = ReadText(fields[Key::kName], "Name");
  graph_.description = ReadText(fields[Key::kDescription], "Description");
  DeclareSymbols(fields[Key::kSymbols]);
  ReadGraphPorts(fields[Key::kInputs], Access::kIn);
  ReadGraphPorts(fields[Key::kOutputs], Access::kOut);
  ReadModules(fields[Key::kModules]);
  pending_[0].edges = fields[Key::kEdges];
  ReadChildren(0, fields[Key::kNodes]);
}

void Builder::ReadChildren(uint32_t index, JsonId nodes) {
  if (nodes == kNoJson || !Expect(nodes, Kind::kObject, "Nodes")) {
    return;
  }
  if (tree_[nodes].size == 0) {
    Fail(nodes, "Graph has no nodes (0); at least 1 is needed.");
    return;
  }
  const uint32_t depth = pending_[index].depth + 1;
  if (depth > limits_.depth_max) {
    Fail(nodes, "Nodes are nested ", depth, " deep; the limit is ", limits_.depth_max, ".");
    return;
  }
  if (too_many_nodes_ || graph_.nodes.size() - 1 + tree_[nodes].size > limits_.nodes_max) {
    if (!too_many_nodes_) {
      Fail(nodes, "The document has at least ", graph_.nodes.size() - 1 + tree_[nodes].size, " nodes; the limit is ",
           limits_.nodes_max, ".");
    }
    too_many_nodes_ = true;
    return;
  }
  for (JsonId child = tree_.FirstChild(nodes); child != kNoJson; child = tree_.Next(child)) {
    const NodeId id(graph_.nodes.size());
    Node& node = graph_.nodes.emplace_back();
    const std::string_view name = tree_.NameOf(child);
    CheckName(child, "Node", name);
    node.name = name;
    node.parent = NodeId(index);
    node.pointer = graph_.nodes[index].pointer;
    node.pointer += "/nodes/";
    AppendPointerToken(node.pointer, name);
    graph_.nodes[index].children.push_back(id);
    pending_.push_back({child, kNoJson, depth});
  }
}

void Builder::ReadNode(uint32_t index) {
  const JsonId id = pending_[index].object;
  reading_ = index;
  if (!Expect(id, Kind::kObject, "Node")) {
    return;
  }
  bool internal = false;
  for (JsonId child = tree_.FirstChild(id); child != kNoJson; child = tree_.Next(child)) {
    internal = internal || tree_[child].name == static_cast<uint32_t>(Key::kNodes);
  }
  // ReadInternal appends nodes, so no reference into the arena may be held.
  Node node = std::move(graph_.nodes[index]);
  node.is_leaf = !internal;
  if (internal) {
    ReadInternal(node, index, id);
  } else {
    ReadLeaf(node, id);
    graph_.nodes[index] = std::move(node);
  }
}

}  // namespace hpvm::graph
