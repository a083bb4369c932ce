// SPDX-License-Identifier: Apache-2.0
// Prepares and releases graphs repeatedly, for tests/e2e/soak.py, which watches the memory of the processes:
//   prepare_cycles ENDPOINT MODULE CYCLES [--compile]
// Uses more graphs in turn than the daemon keeps while they are unused, so that each cycle reaches the executor. With
// --compile each cycle uploads a module that was not seen before.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/client.h"

namespace hpvm {
namespace {

constexpr uint64_t kGraphs = 64;

// A document of one node; the number makes it unique.
std::string DocumentOf(uint64_t number) {
  return R"({"hpvm":1,"name":"g)" + std::to_string(number) +
         R"(","symbols":["n"],
    "inputs":{"in":{"type":"i32","shape":["n"]}},"outputs":{"out":{"type":"i32","shape":["n"]}},
    "modules":{"k":{"kind":"wasm","source":{"file":"k.wasm"}}},
    "nodes":{"node":{"ports":[{"name":"in","access":"in","type":"i32","shape":["n"]},
                              {"name":"out","access":"out","type":"i32","shape":["n"]}],
             "scalars":[{"name":"amount","type":"i32","value":1}],
             "instances":["n"],"variants":[{"module":"k","entry":"add"}]}},
    "edges":[{"from":"in","to":"node.in"},{"from":"node.out","to":"out"}]})";
}

// The module with a unique custom section at the end.
std::vector<uint8_t> ModuleOf(const std::vector<uint8_t>& base, uint64_t number) {
  std::vector<uint8_t> module = base;
  module.insert(module.end(), {0, 9, 0});  // A custom section of nine bytes without a name.
  for (int i = 0; i < 8; ++i) {
    module.push_back(static_cast<uint8_t>(number >> (8 * i)));
  }
  return module;
}

Status Cycle(Client& client, const std::vector<uint8_t>& base, uint64_t number, bool compiles) {
  Modules modules;
  modules.bytes["k"] = compiles ? ModuleOf(base, SystemRng().Next()) : base;
  HPVMD_ASSIGN_OR_RETURN(const Prepared prepared, client.Prepare(DocumentOf(number % kGraphs), modules));
  const Tensor input{ElementType::kI32, {4}, std::vector<uint8_t>(16, 1)};
  HPVMD_RETURN_IF_ERROR(client.Run(prepared.handle, {{"in", input}}).status());
  return client.Release(prepared.handle);
}

int Main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("prepare_cycles ENDPOINT MODULE CYCLES [--compile]\n", stderr);
    return 2;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::vector<uint8_t> module{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  StatusOr<std::unique_ptr<Client>> client = Client::Connect({.endpoint = argv[1]});
  Status status = client.status();
  const uint64_t cycles = std::strtoull(argv[3], nullptr, 10);
  for (uint64_t i = 0; status.ok() && i < cycles; ++i) {
    status = Cycle(**client, module, i, argc > 4 && std::string_view(argv[4]) == "--compile");
  }
  if (!status.ok()) {
    std::fprintf(stderr, "prepare_cycles: %s\n", Message(status).c_str());
  }
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace hpvm

int main(int argc, char** argv) { return hpvm::Main(argc, argv); }
