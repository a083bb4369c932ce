// SPDX-License-Identifier: Apache-2.0
// Builds small documents for tests from fragments.
#ifndef HPVMD_GRAPH_TESTING_DOCUMENT_H_
#define HPVMD_GRAPH_TESTING_DOCUMENT_H_

#include <string>
#include <vector>

namespace hpvm::graph::testing {

// Returns a port's JSON, for example for "x in f32 [n, 4]".
inline std::string JsonPort(const std::string& name, const std::string& access, const std::string& shape,
                            const std::string& type = "f32") {
  return R"({"name": ")" + name + R"(", "access": ")" + access + R"(", "type": ")" + type + R"(", "shape": )" +
         shape + "}";
}

inline std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

// `more` contains further members, each preceded by a comma.
inline std::string Leaf(const std::string& name, const std::vector<std::string>& ports,
                        const std::string& more = "") {
  return "\"" + name + R"(": {"ports": [)" + Join(ports) + R"(], "variants": [{"module": "k", "entry": "f"}])" +
         more + "}";
}

inline std::string JsonEdge(const std::string& from, const std::string& to, const std::string& more = "") {
  return R"({"from": ")" + from + R"(", "to": ")" + to + "\"" + more + "}";
}

inline std::string Internal(const std::string& name, const std::vector<std::string>& ports,
                            const std::vector<std::string>& nodes, const std::vector<std::string>& edges,
                            const std::string& more = "") {
  return "\"" + name + R"(": {"ports": [)" + Join(ports) + R"(], "nodes": {)" + Join(nodes) + R"(}, "edges": [)" +
         Join(edges) + "]" + more + "}";
}

// Inputs and outputs are names of f32 tensors of shape [n]; `more` as above.
inline std::string Document(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                            const std::vector<std::string>& nodes, const std::vector<std::string>& edges,
                            const std::string& more = "") {
  const auto tensors = [](const std::vector<std::string>& names) {
    std::vector<std::string> members;
    for (const std::string& name : names) {
      members.push_back("\"" + name + R"(": {"type": "f32", "shape": ["n"]})");
    }
    return Join(members);
  };
  return R"({"hpvm": 1, "inputs": {)" + tensors(inputs) + R"(}, "outputs": {)" + tensors(outputs) +
         R"(}, "modules": {"k": {"kind": "wasm", "source": {"file": "k.wasm"}}}, "nodes": {)" + Join(nodes) +
         R"(}, "edges": [)" + Join(edges) + "]" + more + "}";
}

}  // namespace hpvm::graph::testing

#endif  // HPVMD_GRAPH_TESTING_DOCUMENT_H_
