// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "graph/diagnostic_sink.h"
#include "graph/expr.h"
#include "graph/flatten.h"

namespace hpvm::graph {
namespace {

using Kind = Expr::Kind;

struct Integers {
  using Value = int64_t;
  static Value Of(const Expr::Term& term) { return term.value; }
  static Value Of(int64_t symbol) { return symbol; }

  // Returns null, or what went wrong.
  static const char* Apply(Kind kind, int64_t left, int64_t right, int64_t& result) {
    switch (kind) {
      case Kind::kAdd:
        return __builtin_add_overflow(left, right, &result) ? "overflows 64 bits" : nullptr;
      case Kind::kSub:
        return __builtin_sub_overflow(left, right, &result) ? "overflows 64 bits" : nullptr;
      case Kind::kMul:
        return __builtin_mul_overflow(left, right, &result) ? "overflows 64 bits" : nullptr;
      case Kind::kMin:
        result = std::min(left, right);
        return nullptr;
      case Kind::kMax:
        result = std::max(left, right);
        return nullptr;
      default:
        break;
    }
    // Floored, so that (n - 1) / 16 + 1 also holds for n = 0; C++ rounds to zero.
    if (right == 0) {
      return "divides by zero";
    }
    if (right == -1) {  // INT64_MIN / -1 is no int64, and its remainder traps on x86.
      result = 0;
      return kind == Kind::kDiv && __builtin_sub_overflow(int64_t{0}, left, &result) ? "overflows 64 bits" : nullptr;
    }
    const bool adjust = left % right != 0 && (left < 0) != (right < 0);
    result = kind == Kind::kDiv ? left / right - (adjust ? 1 : 0) : left % right + (adjust ? right : 0);
    return nullptr;
  }
};

struct Reals {
  using Value = double;
  static Value Of(const Expr::Term& term) {
    return term.kind == Kind::kReal ? std::bit_cast<double>(term.value) : static_cast<double>(term.value);
  }
  static Value Of(int64_t symbol) { return static_cast<double>(symbol); }

  static const char* Apply(Kind kind, double left, double right, double& result) {
    switch (kind) {
      case Kind::kAdd:
        result = left + right;
        return nullptr;
      case Kind::kSub:
        result = left - right;
        return nullptr;
      case Kind::kMul:
        result = left * right;
        return nullptr;
      case Kind::kMin:
        result = std::min(left, right);
        return nullptr;
      case Kind::kMax:
        result = std::max(left, right);
        return nullptr;
      default:
        break;
    }
    if (right == 0) {
      return "divides by zero";
    }
    const double rest = std::fmod(left, right);
    const bool adjust = rest != 0 && (rest < 0) != (right < 0);
    result = kind == Kind::kDiv ? left / right : rest + (adjust ? right : 0);
    return nullptr;
  }
};

Status Broken(const Expr& expr, std::string_view why) {
  return InvalidArgument(Cat("Expression ", Quoted(expr.text), " ", why, "."));
}

// The stack machine for either arithmetic.
template <typename Arithmetic>
StatusOr<typename Arithmetic::Value> EvaluateIn(const Expr& expr, const SymbolValues& symbols) {
  std::array<typename Arithmetic::Value, kExprStackMax> stack;
  size_t depth = 0;
  for (const Expr::Term& term : expr.terms) {
    if (term.kind <= Kind::kSymbol) {
      const auto symbol = static_cast<uint64_t>(term.value);
      if (depth == stack.size() || (term.kind == Kind::kSymbol && symbol >= symbols.size())) {
        return Broken(expr,
                      depth == stack.size() ? "needs too many intermediate values" : "has a symbol without a value");
      }
      stack[depth++] = term.kind == Kind::kSymbol ? Arithmetic::Of(symbols[symbol]) : Arithmetic::Of(term);
      continue;
    }
    const size_t operands = term.kind == Kind::kNeg ? 1 : 2;
    if (depth < operands) {
      return Broken(expr, "lacks an operand");
    }
    const auto right = stack[--depth];
    const auto left = term.kind == Kind::kNeg ? 0 : stack[--depth];
    if (const char* why =
            Arithmetic::Apply(term.kind == Kind::kNeg ? Kind::kSub : term.kind, left, right, stack[depth]);
        why != nullptr) {
      return Broken(expr, why);
    }
    ++depth;
  }
  if (depth != 1) {
    return Broken(expr, "does not yield a single value");
  }
  return stack[0];
}

std::string InputPlace(const std::string& name, size_t dimension) {
  return Cat("Input ", Quoted(name), " dimension ", dimension);
}

class Solver {
 public:
  explicit Solver(const Graph& graph)
      : graph_(graph), values_(graph.symbols.size(), 0), origins_(graph.symbols.size()) {}

  Status TakeGiven(const std::map<std::string, int64_t>& given) {
    if (given.empty()) {
      return absl::OkStatus();
    }
    std::unordered_map<std::string_view, uint32_t> symbols;
    for (uint32_t i = 0; i < graph_.symbols.size(); ++i) {
      if (!graph_.is_index_symbol[i]) {
        symbols.emplace(graph_.symbols[i], i);
      }
    }
    for (const auto& [name, value] : given) {
      const auto found = symbols.find(name);
      if (found == symbols.end()) {
        return InvalidArgument(Cat("Graph has no symbol ", Quoted(name), " whose value can be given."));
      }
      values_[found->second] = value;
      origins_[found->second] = "the value given";
    }
    return absl::OkStatus();
  }

  Status TakeShapes(const std::map<std::string, std::vector<uint64_t>>& shapes) {
    size_t known = 0;
    for (const Port& port : graph_.nodes[0].ports) {
      const auto shape = port.access == Access::kIn ? shapes.find(port.name) : shapes.end();
      if (shape == shapes.end()) {
        continue;
      }
      ++known;
      if (shape->second.size() != port.shape.size()) {
        return InvalidArgument(Cat("Input ", Quoted(port.name), " has rank ", shape->second.size(),
                                   "; the graph needs ", port.shape.size(), "."));
      }
      for (size_t d = 0; d < port.shape.size(); ++d) {
        HPVMD_RETURN_IF_ERROR(TakeExtent(port, d, shape->second[d]));
      }
    }
    if (known == shapes.size()) {
      return absl::OkStatus();
    }
    for (const auto& [name, shape] : shapes) {
      const auto& ports = graph_.nodes[0].ports;
      const auto is_input = [&, &wanted = name](const Port& port) {
        return port.access == Access::kIn && port.name == wanted;
      };
      if (std::none_of(ports.begin(), ports.end(), is_input)) {
        return InvalidArgument(Cat("Graph has no input ", Quoted(name), "."));
      }
    }
    return absl::OkStatus();
  }

  Status CheckShapes(const std::map<std::string, std::vector<uint64_t>>& shapes) const {
    for (const Port& port : graph_.nodes[0].ports) {
      const auto shape = port.access == Access::kIn ? shapes.find(port.name) : shapes.end();
      for (size_t d = 0; shape != shapes.end() && d < port.shape.size(); ++d) {
        const StatusOr<int64_t> wanted = Evaluate(port.shape[d], values_);
        if (!wanted.ok()) {
          return While(wanted.status(), Cat("computing input ", Quoted(port.name), ", dimension ", d));
        }
        if (*wanted < 0 || static_cast<uint64_t>(*wanted) != shape->second[d]) {
          return InvalidArgument(Cat(InputPlace(port.name, d), " (", shape->second[d], ") must be ",
                                     Quoted(port.shape[d].text), " = ", *wanted, "."));
        }
      }
    }
    return absl::OkStatus();
  }

  Status CheckAllSolved() const {
    for (uint32_t i = 0; i < graph_.symbols.size(); ++i) {
      if (origins_[i].empty() && !graph_.is_index_symbol[i]) {
        return InvalidArgument(Cat("Symbol ", Quoted(graph_.symbols[i]),
                                   " has no value: no bound input has it as a dimension, and no value is given."));
      }
    }
    return absl::OkStatus();
  }

  SymbolValues Take() { return std::move(values_); }

 private:
  Status TakeExtent(const Port& port, size_t d, uint64_t extent) {
    const std::optional<SymbolId> symbol = LoneSymbol(port.shape[d]);
    if (!symbol.has_value()) {
      return absl::OkStatus();
    }
    if (extent > INT64_MAX) {
      return InvalidArgument(Cat(InputPlace(port.name, d), " (", extent, ") is more than 2^63 - 1."));
    }
    int64_t& value = values_[symbol->index];
    std::string& origin = origins_[symbol->index];
    if (origin.empty()) {
      value = static_cast<int64_t>(extent);
      origin = Cat("input ", Quoted(port.name), " dimension ", d);
    } else if (value != static_cast<int64_t>(extent)) {
      return InvalidArgument(Cat(InputPlace(port.name, d), " (", extent, ") must equal symbol ",
                                 Quoted(graph_.symbols[symbol->index]), " = ", value, " (", origin, ")."));
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  SymbolValues values_;
  std::vector<std::string> origins_;  // The origin of each value; empty while the value is unknown.
};

}  // namespace

StatusOr<int64_t> Evaluate(const Expr& expr, const SymbolValues& symbols) {
  return EvaluateIn<Integers>(expr, symbols);
}

StatusOr<double> EvaluateReal(const Expr& expr, const SymbolValues& symbols) {
  HPVMD_ASSIGN_OR_RETURN(const double value, EvaluateIn<Reals>(expr, symbols));
  return std::isfinite(value) ? StatusOr<double>(value) : Broken(expr, "is not finite");
}

StatusOr<SymbolValues> SolveSymbols(const Graph& graph,
                                    const std::map<std::string, std::vector<uint64_t>>& input_shapes,
                                    const std::map<std::string, int64_t>& given) {
  Solver solver(graph);
  HPVMD_RETURN_IF_ERROR(solver.TakeGiven(given));
  HPVMD_RETURN_IF_ERROR(solver.TakeShapes(input_shapes));
  HPVMD_RETURN_IF_ERROR(solver.CheckAllSolved());
  HPVMD_RETURN_IF_ERROR(solver.CheckShapes(input_shapes));
  return solver.Take();
}

}  // namespace hpvm::graph
