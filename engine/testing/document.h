// SPDX-License-Identifier: Apache-2.0
// Writes graph documents for tests and benchmarks.
#ifndef HPVMD_ENGINE_TESTING_DOCUMENT_H_
#define HPVMD_ENGINE_TESTING_DOCUMENT_H_

#include <string>
#include <vector>

namespace hpvm::engine::testing {

class Document {
 public:
  // `shape` is JSON, for example "[4]" or "[\"n\"]".
  explicit Document(std::string type = "i32", std::string shape = "[4]")
      : type_(std::move(type)), shape_(std::move(shape)) {}

  void Input(const std::string& name) { Add(inputs_, Quoted(name) + ":" + Tensor()); }
  void InputOf(const std::string& name, const std::string& type, const std::string& shape) {
    Add(inputs_, Quoted(name) + ":{\"type\":" + Quoted(type) + ",\"shape\":" + shape + "}");
  }
  void Output(const std::string& name) { Add(outputs_, Quoted(name) + ":" + Tensor()); }
  void OutputOf(const std::string& name, const std::string& type, const std::string& shape) {
    Add(outputs_, Quoted(name) + ":{\"type\":" + Quoted(type) + ",\"shape\":" + shape + "}");
  }
  // `ports` are "access name" ("in a", "inout data"); `more` contains further JSON members, with a leading comma.
  void Node(const std::string& name, const std::string& entry, const std::vector<std::string>& ports,
            const std::string& more = "") {
    Add(nodes_, Quoted(name) + ":" + Leaf(entry, ports, more));
  }
  // Declares a symbol that no input's dimension determines.
  void Symbol(const std::string& name) { Add(symbols_, Quoted(name)); }
  void RawNode(const std::string& name, const std::string& json) { Add(nodes_, Quoted(name) + ":" + json); }
  void Edge(const std::string& from, const std::string& to) {
    Add(edges_, "{\"from\":" + Quoted(from) + ",\"to\":" + Quoted(to) + "}");
  }

  std::string Leaf(const std::string& entry, const std::vector<std::string>& ports,
                   const std::string& more = "") const {
    std::string list;
    for (const std::string& port : ports) {
      const size_t space = port.find(' ');
      Add(list, "{\"name\":" + Quoted(port.substr(space + 1)) + ",\"access\":" + Quoted(port.substr(0, space)) +
                    ",\"type\":" + Quoted(type_) + ",\"shape\":" + shape_ + "}");
    }
    const std::string variants = more.find("\"variants\"") == std::string::npos
                                     ? ",\"variants\":[{\"module\":\"m\",\"entry\":" + Quoted(entry) + "}]"
                                     : "";
    return "{\"ports\":[" + list + "]" + variants + more + "}";
  }

  // `module` is the source of the module "m": {"file":"m.wasm"} by default.
  std::string Text(const std::string& module = "{\"file\":\"m.wasm\"}") const {
    return "{\"hpvm\":1,\"name\":\"test\"," + (symbols_.empty() ? "" : "\"symbols\":[" + symbols_ + "],") +
           "\"inputs\":{" + inputs_ + "},\"outputs\":{" + outputs_ +
           "},\"modules\":{\"m\":{\"kind\":\"wasm\",\"source\":" + module + "}},\"nodes\":{" + nodes_ +
           "},\"edges\":[" + edges_ + "]}";
  }

 private:
  static std::string Quoted(const std::string& text) { return '"' + text + '"'; }
  static void Add(std::string& list, const std::string& item) { list += (list.empty() ? "" : ",") + item; }
  std::string Tensor() const { return "{\"type\":" + Quoted(type_) + ",\"shape\":" + shape_ + "}"; }

  std::string type_, shape_;
  std::string symbols_, inputs_, outputs_, nodes_, edges_;
};

}  // namespace hpvm::engine::testing

#endif  // HPVMD_ENGINE_TESTING_DOCUMENT_H_
