// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "graph/build.h"
#include "graph/expr.h"
#include "graph/validate.h"

namespace hpvm::graph {
namespace {

constexpr uint32_t kSymbolsMax = 4096;
constexpr uint32_t kGraphPortsMax = 65536;  // A large model has some thousands of weights.
constexpr std::string_view kAccessNames[] = {"in", "out", "inout"};
constexpr std::string_view kNoSymbolName =
    " is not a symbol name: a letter or \"_\", then at most 254 letters, digits and \"_\"; \"min\" and \"max\" are "
    "functions.";

}  // namespace

SymbolId Builder::MakeSymbol(std::string_view name, JsonId at) {
  const uint32_t symbol = symbol_names_.Intern(name);
  if (symbol == graph_.symbols.size()) {
    graph_.symbols.emplace_back(name);
    graph_.is_index_symbol.push_back(false);
    first_use_.push_back(at);
  } else if (first_use_[symbol] == kNoJson) {
    first_use_[symbol] = at;
  }
  return SymbolId(symbol);
}

void Builder::DeclareSymbols(JsonId id) {
  ForEach(id, "Symbols", kSymbolsMax, [&](JsonId child) {
    if (!Expect(child, Kind::kString, "Symbol")) {
      return;
    }
    const std::string_view name = tree_.String(child);
    if (!IsSymbolName(name)) {
      Fail(child, "Symbol ", Quoted(name), kNoSymbolName);
    } else if (symbol_names_.Find(name).has_value()) {
      Fail(child, "Symbol ", Quoted(name), " is declared twice; once is allowed.");
    } else {
      MakeSymbol(name, kNoJson);
    }
  });
  graph_.declared_symbols = static_cast<uint32_t>(graph_.symbols.size());
}

bool Builder::SeesIndex(uint32_t symbol) const {
  for (NodeId at = graph_.nodes[reading_].parent; at.valid(); at = graph_.node(at).parent) {
    for (const SymbolId index : graph_.node(at).index_symbols) {
      if (index.index == symbol) {
        return true;
      }
    }
  }
  return false;
}

SymbolId Builder::FindSymbol(std::string_view name, JsonId at) {
  const std::optional<uint32_t> known = symbol_names_.Find(name);
  if (known.has_value() && graph_.is_index_symbol[*known]) {
    if (SeesIndex(*known)) {
      return SymbolId(*known);
    }
    Fail(at, "Symbol ", Quoted(name), " is the index of a replicated node and is only known inside it.");
    return SymbolId();
  }
  if (!known.has_value() && graph_.symbols.size() >= kSymbolsMax) {
    Fail(at, "Symbol ", Quoted(name), " is one more than the limit of ", kSymbolsMax, " symbols.");
    return SymbolId();
  }
  return MakeSymbol(name, at);
}

void Builder::DeclareIndices(Node& node, JsonId id) {
  ForEach(id, "Index", 3, [&](JsonId child) {
    if (!Expect(child, Kind::kString, "Index")) {
      return;
    }
    const std::string_view name = tree_.String(child);
    const std::optional<uint32_t> known = symbol_names_.Find(name);
    if (!IsSymbolName(name)) {
      Fail(child, "Index ", Quoted(name), kNoSymbolName);
      return;
    }
    if (known.has_value() && (!graph_.is_index_symbol[*known] || SeesIndex(*known))) {
      Fail(child, "Index ", Quoted(name), " already names a symbol that is known here; another name is needed.");
      return;
    }
    const SymbolId symbol = MakeSymbol(name, child);
    if (std::find(node.index_symbols.begin(), node.index_symbols.end(), symbol) != node.index_symbols.end()) {
      Fail(child, "Index ", Quoted(name), " is listed twice; once is allowed.");
      return;
    }
    graph_.is_index_symbol[symbol.index] = true;
    node.index.emplace_back(name);
    node.index_symbols.push_back(symbol);
  });
  if (id != kNoJson && tree_[id].kind() == Kind::kArray && tree_[id].size > 0 &&
      tree_[id].size != node.instances.size()) {
    Fail(id, "Index has ", tree_[id].size, " names for ", node.instances.size(),
         " extents of \"instances\"; the numbers must be equal.");
  }
}

Expr Builder::ReadExpr(JsonId id, std::string_view what, int64_t min) {
  const JsonValue& value = tree_[id];
  if (value.kind() == Kind::kInteger) {
    if (value.integer < min) {
      Fail(id, what, " (", value.integer, ") is less than ", min, ".");
      return {};
    }
    return ConstantExpr(value.integer);
  }
  if (value.kind() == Kind::kBigInteger) {
    Fail(id, what, " is outside 64 bits.");
    return {};
  }
  if (value.kind() != Kind::kString) {
    if (value.kind() != Kind::kRefused) {
      Fail(id, what, " is ", KindName(value.kind()), "; an integer, a symbol or an expression is expected.");
    }
    return {};
  }
  std::optional<Expr> expr = ParseExprAt(id, what, ExprNumbers::kIntegers);
  if (!expr.has_value()) {
    return {};
  }
  if (const std::optional<int64_t> constant = ConstantOf(*expr); constant.has_value() && *constant < min) {
    Fail(id, what, " ", Quoted(tree_.String(id)), " is ", *constant, ", less than ", min, ".");
    return {};
  }
  return *std::move(expr);
}

Expr Builder::ReadRealExpr(JsonId id, std::string_view what) {
  return ParseExprAt(id, what, ExprNumbers::kReals).value_or(Expr{});
}

std::optional<Expr> Builder::ParseExprAt(JsonId id, std::string_view what, ExprNumbers numbers) {
  ExprOutcome outcome = ParseExpr(
      tree_.String(id), [&](std::string_view name) { return FindSymbol(name, id); }, numbers);
  if (!outcome.expr.has_value() && !outcome.fault.empty()) {
    Fail(id, what, " ", Quoted(tree_.String(id)), " ", outcome.fault, ".");
  }
  return std::move(outcome.expr);
}

std::vector<Expr> Builder::ReadExprs(JsonId id, std::string_view what, uint32_t max, int64_t min) {
  std::vector<Expr> exprs;
  if (id != kNoJson && tree_[id].kind() == Kind::kArray) {
    exprs.reserve(std::min<uint32_t>(tree_[id].size, max));
  }
  const std::string item = Cat(what, " extent");
  ForEach(id, what, max, [&](JsonId child) { exprs.push_back(ReadExpr(child, item, min)); });
  return exprs;
}

void Builder::ReadTypeAndShape(Port& port, const Fields& fields) {
  port.type = ElementType{0};  // Unknown until it has been read.
  if (const JsonId id = fields[Key::kType]; id != kNoJson && Expect(id, Kind::kString, "Type")) {
    if (const std::optional<ElementType> type = ElementTypeFromName(tree_.String(id)); type.has_value()) {
      port.type = *type;
    } else if (faults_.AdmitError()) {
      NearMiss near(tree_.String(id));
      for (const ElementTypeInfo& info : kElementTypes) {
        near.Offer(info.name);
      }
      faults_.Add({Severity::kError, tree_.PointerTo(id), std::nullopt,
                   Cat("Type ", Quoted(tree_.String(id)), " is not known", near.Ending())});
    }
  }
  const JsonId shape = fields[Key::kShape];
  port.shape = ReadExprs(shape, "Shape", limits::kTensorRankMax, 0);
  if (shape == kNoJson || tree_[shape].kind() != Kind::kArray || tree_[shape].size > limits::kTensorRankMax) {
    port.type = ElementType{0};  // The rank is unknown, too.
    return;
  }
  if (port.type == ElementType{0}) {
    return;
  }
  uint64_t bytes = ElementBytes(port.type);
  bool empty = false;
  bool overflow = false;
  for (const Expr& extent : port.shape) {
    const std::optional<int64_t> constant = extent.terms.empty() ? std::nullopt : ConstantOf(extent);
    empty = empty || constant == 0;
    overflow = overflow || __builtin_mul_overflow(bytes, static_cast<uint64_t>(constant.value_or(1)), &bytes);
  }
  if (!empty && (overflow || bytes > INT64_MAX)) {
    Fail(shape, "Shape needs more than 2^63 - 1 bytes.");
  }
}

void Builder::ReadGraphPorts(JsonId id, Access access) {
  const std::string_view what = access == Access::kIn ? "Input" : "Output";
  if (id == kNoJson || !Expect(id, Kind::kObject, access == Access::kIn ? "Inputs" : "Outputs")) {
    return;
  }
  if (tree_[id].size > kGraphPortsMax) {
    Fail(id, "The graph has ", tree_[id].size, access == Access::kIn ? " inputs" : " outputs", "; the limit is ",
         kGraphPortsMax, ".");
    return;
  }
  for (JsonId child = tree_.FirstChild(id); child != kNoJson; child = tree_.Next(child)) {
    Port port;
    port.name = tree_.NameOf(child);
    port.access = access;
    port.type = ElementType{0};
    CheckName(child, what, port.name);
    Fields fields;
    if (ReadFields(child, what, {Key::kType, Key::kShape}, {Key::kType, Key::kShape}, fields)) {
      ReadTypeAndShape(port, fields);
    }
    if (access == Access::kIn) {
      input_of_[tree_[child].name] = static_cast<uint32_t>(graph_.nodes[0].ports.size());
    }
    graph_.nodes[0].ports.push_back(std::move(port));
  }
}

void Builder::ReadPorts(Node& node, JsonId id) {
  node.ports.reserve(id != kNoJson && tree_[id].kind() == Kind::kArray ? std::min(tree_[id].size + 0u, 16u) : 0);
  ForEach(id, "Ports", node.is_leaf ? limits::kKernelParamsMax : kGraphPortsMax, [&](JsonId child) {
    Port& port = node.ports.emplace_back();
    port.type = ElementType{0};
    Fields fields;
    if (!ReadFields(child, "Port", {Key::kName, Key::kAccess, Key::kType, Key::kShape},
                    {Key::kName, Key::kAccess, Key::kType, Key::kShape}, fields)) {
      return;
    }
    port.name = ReadName(fields[Key::kName], "Port");
    if (fields.has(Key::kAccess)) {
      const std::optional<uint32_t> access = ReadChoice(fields[Key::kAccess], "Access", kAccessNames);
      port.access = access.has_value() ? static_cast<Access>(*access) : kUnknownAccess;
    } else {
      port.access = kUnknownAccess;
    }
    ReadTypeAndShape(port, fields);
  });
  if (std::any_of(node.ports.begin(), node.ports.end(), [](const Port& port) { return port.name.empty(); })) {
    unnamed_ports_.insert(reading_);
  }
}

void Builder::CheckSymbolsSolvable() {
  std::vector<bool> solvable(graph_.symbols.size(), false);
  bool inputs_known = true;
  for (const Port& port : graph_.nodes[0].ports) {
    inputs_known = inputs_known && (port.access != Access::kIn || port.type != ElementType{0});
    for (const Expr& extent : port.shape) {
      inputs_known = inputs_known && (port.access != Access::kIn || !extent.terms.empty());
      const std::optional<SymbolId> symbol = port.access == Access::kIn ? LoneSymbol(extent) : std::nullopt;
      if (symbol.has_value()) {
        solvable[symbol->index] = true;
      }
    }
  }
  for (uint32_t i = 0; i < graph_.symbols.size(); ++i) {
    if (first_use_[i] == kNoJson) {
      Warn(tree_.root(), "Symbol ", Quoted(graph_.symbols[i]), " is declared but not used.");
    } else if (inputs_known && !solvable[i] && !graph_.is_index_symbol[i] && i >= graph_.declared_symbols &&
               faults_.AdmitError()) {
      NearMiss near(graph_.symbols[i]);
      for (uint32_t j = 0; j < graph_.symbols.size(); ++j) {
        if (solvable[j] || j < graph_.declared_symbols) {
          near.Offer(graph_.symbols[j]);
        }
      }
      const std::string ending = near.Ending();
      faults_.Add({Severity::kError, tree_.PointerTo(first_use_[i]), std::nullopt,
                   Cat("Symbol ", Quoted(graph_.symbols[i]),
                       " has no value: it is neither a dimension of an input nor listed under \"symbols\"", ending)});
    }
  }
}

}  // namespace hpvm::graph
