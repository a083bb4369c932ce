// SPDX-License-Identifier: Apache-2.0
// Prints the canonical document. Small lists and objects are on one line, for readability.
#include <charconv>
#include <string>

#include "graph/diagnostic_sink.h"
#include "graph/expr.h"
#include "graph/parse.h"

namespace hpvm::graph {
namespace {

constexpr std::string_view kAccessNames[] = {"in", "out", "inout"};
constexpr std::string_view kScalarTypes[] = {"i32", "i64", "f32", "f64"};

// The strings of a validated graph are well-formed UTF-8.
std::string Json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      out += "\\u00";
      out += kDigits[static_cast<uint8_t>(c) >> 4];
      out += kDigits[static_cast<uint8_t>(c) & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string Base64(const std::vector<uint8_t>& bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < count ? bytes[i + k] : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

// Returns the shortest text that reads back as the same double; it always has a fraction or exponent, so that it does
// not become an integer.
std::string Number(double value) {
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

template <typename List, typename F>
std::string Row(char open, const List& list, F text_of, char close) {
  std::string row(1, open);
  for (const auto& item : list) {
    row += (row.size() > 1 ? ", " : "") + text_of(item);
  }
  return row + close;
}

std::string ExprText(const Expr& expr) {
  const bool number = expr.terms.size() == 1 && expr.terms[0].kind == Expr::Kind::kConst;
  return number && expr.text == std::to_string(expr.terms[0].value) ? expr.text : Json(expr.text);
}
std::string Exprs(const std::vector<Expr>& exprs) { return Row('[', exprs, ExprText, ']'); }

std::string InstancesText(const Node& leaf) {
  size_t d = 0;
  const auto extent = [&](const Expr& limit) {
    const uint32_t port = leaf.extent_ports.empty() ? Node::kFixedExtent : leaf.extent_ports[d];
    ++d;
    return port == Node::kFixedExtent
               ? ExprText(limit)
               : Cat("{\"port\": ", Json(leaf.ports[port].name), ", \"max\": ", ExprText(limit), "}");
  };
  return Row('[', leaf.instances, extent, ']');
}
std::string Strings(const std::vector<std::string>& list) {
  return Row(
      '[', list, [](const std::string& text) { return Json(text); }, ']');
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}

  std::string Print() {
    Begin('{');
    Member("hpvm", std::to_string(graph_.version));
    if (!graph_.name.empty()) {
      Member("name", Json(graph_.name));
    }
    if (!graph_.description.empty()) {
      Member("description", Json(graph_.description));
    }
    if (graph_.declared_symbols > 0) {
      Member("symbols", Strings({graph_.symbols.begin(), graph_.symbols.begin() + graph_.declared_symbols}));
    }
    GraphPorts("inputs", true);
    GraphPorts("outputs", false);
    Modules();
    Children();
    End('}');
    out_ += '\n';
    return std::move(out_);
  }

 private:
  struct Frame {
    const Node* node;
    size_t child = 0;
  };

  void Line() {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    out_.append(2 * indent_, ' ');
  }
  void Begin(char open) {
    out_ += open;
    ++indent_;
    first_ = true;
  }
  void End(char close) {
    --indent_;
    if (!first_) {
      out_ += '\n';
      out_.append(2 * indent_, ' ');
    }
    out_ += close;
    first_ = false;
  }
  void Key(std::string_view key) {
    Line();
    out_ += Json(key) + ": ";
  }
  void Member(std::string_view key, std::string_view value) {
    Key(key);
    out_ += value;
  }
  template <typename List, typename F>
  void Rows(std::string_view key, const List& list, F text_of) {
    Key(key);
    Begin('[');
    for (const auto& item : list) {
      Line();
      out_ += text_of(item);
    }
    End(']');
  }

  static std::string TypeAndShape(const Port& port) {
    return Cat("\"type\": ", Json(Name(port.type)), ", \"shape\": ", Exprs(port.shape));
  }

  void GraphPorts(std::string_view key, bool inputs) {
    Key(key);
    Begin('{');
    for (const Port& port : graph_.nodes[0].ports) {
      if ((port.access == Access::kIn) == inputs) {
        Member(port.name, Cat("{", TypeAndShape(port), "}"));
      }
    }
    End('}');
  }

  void Modules() {
    Key("modules");
    Begin('{');
    for (const Module& module : graph_.modules) {
      const std::string source = module.source == Module::Source::kFile ? Cat("\"file\": ", Json(module.file))
                                 : module.source == Module::Source::kHash
                                     ? Cat("\"sha256\": ", Json(ToHex(*module.hash)))
                                     : Cat("\"inline\": ", Json(Base64(module.bytes)));
      const std::string options =
          module.build_options.empty() ? "" : Cat(", \"options\": ", Json(module.build_options));
      Member(module.name,
             Cat("{\"kind\": ", Json(Find(module.kind)->name), ", \"source\": {", source, "}", options, "}"));
    }
    End('}');
  }

  // Prints all nodes with an explicit stack, since the document may nest as deep as its limits allow.
  void Children() {
    std::vector<Frame> open = {{&graph_.nodes[0]}};
    Key("nodes");
    Begin('{');
    while (!open.empty()) {
      Frame& frame = open.back();
      if (frame.child == frame.node->children.size()) {
        End('}');
        Edges(*frame.node);
        open.pop_back();
        if (!open.empty()) {
          End('}');
        }
        continue;
      }
      const Node& child = graph_.node(frame.node->children[frame.child++]);
      Key(child.name);
      Begin('{');
      Rows("ports", child.ports, PortText);
      if (child.is_leaf) {
        Leaf(child);
        End('}');
        continue;
      }
      if (!child.instances.empty()) {
        Member("instances", Exprs(child.instances));
      }
      if (!child.index.empty()) {
        Member("index", Strings(child.index));
      }
      Key("nodes");
      Begin('{');
      open.push_back({&child});
    }
  }

  static std::string PortText(const Port& port) {
    return Cat("{\"name\": ", Json(port.name), ", \"access\": ", Json(kAccessNames[static_cast<int>(port.access)]),
               ", ", TypeAndShape(port), "}");
  }

  static std::string ScalarText(const Scalar& scalar) {
    std::string value;
    if (const auto* input = std::get_if<Scalar::InputRef>(&scalar.value); input != nullptr) {
      value = Cat("{\"input\": ", Json(input->input), "}");
    } else if (const auto* expr = std::get_if<Expr>(&scalar.value); expr != nullptr) {
      value = ExprText(*expr);
    } else {
      value = Number(std::get<double>(scalar.value));
    }
    return Cat("{\"name\": ", Json(scalar.name), ", \"type\": ", Json(kScalarTypes[static_cast<int>(scalar.type)]),
               ", \"value\": ", value, "}");
  }

  static std::string ConstantsText(const std::vector<Constant>& constants) {
    std::string text;
    for (const Constant& constant : constants) {
      const auto* integer = std::get_if<int64_t>(&constant.value);
      text += Cat(text.empty() ? "" : ", ", Json(std::to_string(constant.id)), ": ",
                  integer != nullptr ? std::to_string(*integer) : Number(std::get<double>(constant.value)));
    }
    return text.empty() ? "" : Cat(", \"constants\": {", text, "}");
  }

  void Leaf(const Node& node) {
    if (!node.scalars.empty()) {
      Rows("scalars", node.scalars, ScalarText);
    }
    bool in_order = true;
    for (size_t i = 0; i < node.params.size(); ++i) {
      in_order = in_order && node.params[i] == i;
    }
    if (!in_order) {
      const auto name = [&](uint32_t i) {
        return Json(i < node.ports.size() ? node.ports[i].name : node.scalars[i - node.ports.size()].name);
      };
      Member("params", Row('[', node.params, name, ']'));
    }
    if (!node.instances.empty()) {
      Member("instances", InstancesText(node));
    }
    if (!node.group.empty()) {
      Member("group", Exprs(node.group));
    }
    Rows("variants", node.variants, [&](const Variant& variant) {
      return Cat("{\"module\": ", Json(graph_.modules[variant.module.index].name), ", \"entry\": ", Json(variant.entry),
                 variant.hpvm_web ? ", \"abi\": \"hpvm-web\"" : "",
                 variant.devices.empty() ? "" : Cat(", \"devices\": ", Strings(variant.devices)),
                 ConstantsText(variant.constants), "}");
    });
    if (!node.devices.empty()) {
      Member("devices", Strings(node.devices));
    }
    if (!node.hints.empty()) {
      Member("hints", Strings(node.hints));
    }
    if (node.fast_math) {
      Member("math", "\"fast\"");
    }
  }

  void Edges(const Node& scope) {
    const auto end_text = [&](const Endpoint& end) {
      const Node& owner = end.node.valid() ? graph_.node(end.node) : scope;
      return Json(end.node.valid() ? Cat(owner.name, ".", owner.ports[end.port].name) : owner.ports[end.port].name);
    };
    Rows("edges", scope.edges, [&](const Edge& edge) {
      return Cat("{\"from\": ", end_text(edge.source), ", \"to\": ", end_text(edge.target),
                 edge.kind == EdgeKind::kOneToOne ? ", \"kind\": \"one_to_one\"" : "",
                 edge.stream ? ", \"stream\": true" : "",
                 edge.capacity != 1 ? Cat(", \"capacity\": ", edge.capacity) : "", "}");
    });
  }

  const Graph& graph_;
  std::string out_;
  size_t indent_ = 0;
  bool first_ = true;
};

}  // namespace

std::string Print(const Graph& graph) { return Printer(graph).Print(); }

}  // namespace hpvm::graph
