// SPDX-License-Identifier: Apache-2.0
// matmul MODULE [ENDPOINT]: C = A * B by a daemon, or, without an endpoint, by an engine in this program's own hands.
#include <hpvm/client.h>
#include <hpvm/graph.h>
#include <hpvm/local_engine.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr hpvm::ElementType kF32 = hpvm::ElementType::kF32;
constexpr uint64_t kRows = 64, kInner = 48, kColumns = 80;

hpvm::Graph Matmul(const std::string& module) {
  hpvm::Graph graph("matmul");
  graph.Input("A", kF32, {"m", "k"});
  graph.Input("B", kF32, {"k", "n"});
  graph.Output("C", kF32, {"m", "n"});
  graph.ModuleFile("matmul", hpvm::v1::MODULE_KIND_WASM, module);
  graph.Node("multiply", {.module = "matmul",
                          .entry = "matmul",
                          .ports = {hpvm::In("a", kF32, {"m", "k"}), hpvm::In("b", kF32, {"k", "n"}),
                                    hpvm::Out("c", kF32, {"m", "n"})},
                          .scalars = {{"n", "i32", "n"}, {"k", "i32", "k"}},
                          .instances = {"n", "m"}});
  graph.Connect("A", "multiply.a");
  graph.Connect("B", "multiply.b");
  graph.Connect("multiply.c", "C");
  return graph;
}

hpvm::Tensor ToTensor(const std::vector<float>& values, uint64_t rows, uint64_t columns) {
  hpvm::Tensor tensor{kF32, {rows, columns}, std::vector<uint8_t>(values.size() * sizeof(float))};
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

// Small whole numbers, whose products and sums are exact.
std::vector<float> Numbers(uint64_t count, uint32_t step) {
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i * step % 7) - 3;
  }
  return values;
}

// `Engine` is a client of a daemon or a local engine: both have the same calls.
template <typename Engine>
absl::Status Multiply(Engine& engine, const std::string& module) {
  const absl::StatusOr<hpvm::Prepared> prepared = engine.Prepare(Matmul(module));
  if (!prepared.ok()) {
    for (const hpvm::v1::Diagnostic& fault : hpvm::DiagnosticsOf(prepared.status())) {
      std::fprintf(stderr, "%s: %s\n", fault.place().c_str(), fault.message().c_str());
    }
    return prepared.status();
  }
  const std::vector<float> a = Numbers(kRows * kInner, 3), b = Numbers(kInner * kColumns, 5);
  const absl::StatusOr<hpvm::RunOutcome> outcome =
      engine.Run(prepared->handle, {{"A", ToTensor(a, kRows, kInner)}, {"B", ToTensor(b, kInner, kColumns)}});
  if (!outcome.ok()) {
    return outcome.status();
  }
  std::vector<float> c(kRows * kColumns);
  std::memcpy(c.data(), outcome->outputs.at("C").data.data(), c.size() * sizeof(float));
  for (uint64_t row = 0; row < kRows; ++row) {
    for (uint64_t column = 0; column < kColumns; ++column) {
      float sum = 0;
      for (uint64_t i = 0; i < kInner; ++i) {
        sum += a[row * kInner + i] * b[i * kColumns + column];
      }
      if (c[row * kColumns + column] != sum) {
        return absl::InternalError("An element of the product is wrong.");
      }
    }
  }
  std::printf("The product of two matrices is right; it took %llu us.\n",
              static_cast<unsigned long long>(outcome->timing.total_ns() / 1'000));
  return engine.Release(prepared->handle);
}

absl::Status Run(const std::string& module, const char* endpoint) {
  if (endpoint == nullptr) {
    auto engine = hpvm::LocalEngine::Start();
    return engine.ok() ? Multiply(**engine, module) : engine.status();
  }
  auto client = hpvm::Client::Connect({.endpoint = endpoint});
  return client.ok() ? Multiply(**client, module) : client.status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: matmul MODULE [ENDPOINT]\n");
    return 2;
  }
  const absl::Status status = Run(argv[1], argc == 3 ? argv[2] : nullptr);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  }
  return status.ok() ? 0 : 1;
}
