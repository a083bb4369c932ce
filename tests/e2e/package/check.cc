// SPDX-License-Identifier: Apache-2.0
// Tests an installed package with a real daemon:
//   check calls ENDPOINT RUNAWAYS     tests runs, buffers, asynchronous runs, cancellation and administration
//   check restart ENDPOINT RUNAWAYS   prepares, prints "ready", waits for a line while the daemon is restarted, runs
//   check local RUNAWAYS              runs the same graph without a daemon
// RUNAWAYS is tests/e2e/runaways.wasm. Exits with status 1 and a message when a check fails.
#include <hpvm/admin.h>
#include <hpvm/buffer.h>
#include <hpvm/client.h>
#include <hpvm/graph.h>
#include <hpvm/local_engine.h>
#include <hpvm/version.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Moment = std::chrono::steady_clock;

constexpr hpvm::ElementType kI32 = hpvm::ElementType::kI32;

void Expect(bool is_so, const std::string& what) {
  if (!is_so) {
    std::fprintf(stderr, "check: not so: %s\n", what.c_str());
    std::exit(1);
  }
}
template <typename T>
T Get(absl::StatusOr<T> value, const std::string& doing) {
  Expect(value.ok(), doing + ": " + std::string(value.status().message()));
  return *std::move(value);
}

hpvm::Graph OneNode(const std::string& module, const std::string& entry, const std::string& in) {
  hpvm::Graph graph(entry);
  graph.Input(in, kI32, {"n"});
  graph.Output("out", kI32, {"n"});
  graph.ModuleFile("runaways", hpvm::v1::MODULE_KIND_WASM, module);
  graph.Node("node", {.module = "runaways",
                      .entry = entry,
                      .ports = {hpvm::In("in", kI32, {"n"}), hpvm::Out("out", kI32, {"n"})},
                      .instances = {"n"}});
  graph.Connect(in, "node.in");
  graph.Connect("node.out", "out");
  return graph;
}

hpvm::Tensor Of(const std::vector<int32_t>& values) {
  hpvm::Tensor tensor{kI32, {values.size()}, std::vector<uint8_t>(values.size() * sizeof(int32_t))};
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

// `add` returns each element plus one.
template <typename Engine>
void ExpectSum(Engine& engine, const std::string& handle, int32_t value) {
  const hpvm::RunOutcome outcome = Get(engine.Run(handle, {{"x", Of({value, 5})}}), "running");
  Expect(outcome.outputs.at("out").data == Of({value + 1, 6}).data, "the sum is right");
}

// Cancels a kernel that never ends from another thread; afterwards the device runs other kernels.
template <typename Engine>
void CheckCancellation(Engine& engine, const std::string& endless, const std::string& add, const std::string& way) {
  hpvm::Cancellation cancellation;
  hpvm::RunOptions options;
  options.call.cancel = cancellation;
  Moment::time_point triggered;
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(300));
    triggered = Moment::now();
    cancellation.Cancel();
  });
  const absl::Status ended = engine.Run(endless, {{"go", Of({0})}}, options).status();
  const auto took = std::chrono::duration_cast<milliseconds>(Moment::now() - triggered);
  other.join();
  Expect(absl::IsCancelled(ended), way + ": the run is cancelled, not: " + std::string(ended.message()));
  Expect(took < milliseconds(100), way + ": it ends within 100 ms, not " + std::to_string(took.count()));
  ExpectSum(engine, add, 1);
  std::printf("cancelled by %s within %lld ms\n", way.c_str(), static_cast<long long>(took.count()));
}

void CheckBuffers(hpvm::Client& client, const std::string& add) {
  const uint64_t shape[] = {2};
  {
    hpvm::Buffer x;
    x = Get(client.MakeBuffer(kI32, shape), "making a buffer");
    hpvm::Buffer out = Get(client.MakeLocalBuffer(kI32, shape), "making a buffer of shared memory");
    Expect(x.Write(Of({7, 8}).data).ok(), "a buffer is written");
    hpvm::RunOptions options;
    options.input_buffers["x"] = x.View();
    options.output_buffers["out"] = out.id();
    const hpvm::RunOutcome outcome = Get(client.Run(add, {}, options), "running with buffers");
    Expect(outcome.outputs.empty() && outcome.buffers.at("out").shape == std::vector<uint64_t>{2}, "nothing came back");
    Expect(Get(out.ReadTensor(), "reading").data == Of({8, 9}).data, "the sum is in shared memory");
    // Runs in the opposite direction, with a view of one buffer.
    options.input_buffers["x"] = out.View(kI32, {1});
    options.output_buffers["out"] = x.id();
    Get(client.Run(add, {}, options), "running with a view");
    std::vector<uint8_t> first(sizeof(int32_t));
    Expect(x.Read(first).ok() && first == Of({9}).data, "the view is of one element");
    Expect(Get(client.ListBuffers(), "listing").size() == 2, "there are two buffers");
  }
  Expect(Get(client.ListBuffers(), "listing").empty(), "buffers go with their owners");
}

void CheckAsync(hpvm::Client& client, const std::string& add, const std::string& endless) {
  std::vector<hpvm::Pending<hpvm::RunOutcome>> pending;
  for (int32_t i = 0; i < 50; ++i) {
    pending.push_back(client.RunAsync(add, {{"x", Of({i})}}));
  }
  for (int32_t i = 0; i < 50; ++i) {
    const hpvm::RunOutcome outcome = Get(pending[static_cast<size_t>(i)].Wait(), "waiting");
    Expect(outcome.outputs.at("out").data == Of({i + 1}).data, "an async sum is right");
  }
  for (int i = 0; i < 10'000; ++i) {
    client.RunAsync(endless, {{"go", Of({0})}});  // Destroying the result cancels the run.
  }
  // When the machine is too busy to stop a run in time, the tenant's executor ends, and the next run may return
  // kUnavailable.
  absl::Status lost = absl::UnavailableError("");
  for (int i = 0; i < 100 && absl::IsUnavailable(lost) && lost.message().find("Socket") == std::string::npos; ++i) {
    lost = client.Run(add, {{"x", Of({3, 5})}}).status();
  }
  Expect(lost.ok(), "a run after thousands that were dropped: " + std::string(lost.message()));
  ExpectSum(client, add, 3);
}

void Calls(const std::string& endpoint, const std::string& module) {
  auto client = Get(hpvm::Client::Connect({.endpoint = endpoint}), "connecting");
  const hpvm::v1::ServerInfoResponse info = Get(client->ServerInfo(), "asking for the server");
  Expect(info.version() == hpvm::Version(), "library and server are of one release");
  const std::string add = Get(client->Prepare(OneNode(module, "add", "x")), "preparing").handle;
  const std::string endless = Get(client->Prepare(OneNode(module, "tight", "go")), "preparing").handle;
  auto by_grpc = Get(hpvm::Client::Connect({.endpoint = endpoint, .local_ring = false}), "connecting");
  CheckCancellation(*by_grpc, endless, add, "gRPC");
  for (int i = 0; i < 1'000 && client->CallPath() != "ring"; ++i) {
    ExpectSum(*client, add, i);
    std::this_thread::sleep_for(milliseconds(5));
  }
  Expect(client->CallPath() == "ring", "there is a ring, not: " + client->CallPath());
  CheckCancellation(*client, endless, add, "ring");
  CheckBuffers(*client, add);
  CheckAsync(*client, add, endless);
  CheckAsync(*by_grpc, add, endless);
  hpvm::Graph twice = OneNode(module, "add", "x");
  twice.Connect("node.out", "out");
  const std::vector<hpvm::v1::Diagnostic> faults = hpvm::DiagnosticsOf(client->Prepare(twice).status());
  Expect(!faults.empty() && faults[0].place() == "/outputs/out", "the server's fault has its place");
  Expect(!Get(client->ListCosts(add), "asking for costs").kernels().empty(), "the costs of a kernel are known");
  hpvm::Admin admin(*client);
  Expect(Get(admin.GetUsage(""), "asking for the use").ByteSizeLong() > 0, "the use is known");
  Expect(client->Release(add).ok() && client->Release(endless).ok(), "graphs are released");
}

void Restart(const std::string& endpoint, const std::string& module) {
  std::string told;
  hpvm::ClientOptions options;
  options.endpoint = endpoint;
  options.on_prepared_again = [&](const std::string& handle) { told = handle; };
  auto client = Get(hpvm::Client::Connect(options), "connecting");
  const std::string add = Get(client->Prepare(OneNode(module, "add", "x")), "preparing").handle;
  const std::string released = Get(client->Prepare(OneNode(module, "add", "x")), "preparing").handle;
  for (int32_t i = 0; i < 5; ++i) {
    ExpectSum(*client, add, i);
  }
  Expect(client->Release(released).ok(), "a graph is released");
  std::printf("ready\n");
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
  Get(client->ServerInfo(), "waiting for the new daemon");
  absl::StatusOr<hpvm::RunOutcome> outcome = client->Run(add, {{"x", Of({1})}});
  // A run whose connection or ring broke is not retried, because it may have run.
  for (int i = 0; i < 100 && absl::IsUnavailable(outcome.status()); ++i) {
    std::this_thread::sleep_for(milliseconds(50));
    outcome = client->Run(add, {{"x", Of({1})}});
  }
  Expect(outcome.ok(), "the run succeeds: " + std::string(outcome.status().message()));
  Expect(outcome->prepared_again && told == add, "the client says that it prepared again");
  Expect(!Get(client->Run(add, {{"x", Of({1})}}), "running").prepared_again, "and once only");
  Expect(absl::IsNotFound(client->Run(released, {{"x", Of({1})}}).status()), "a released graph stays so");
  Expect(client->Release(add).ok(), "the graph is released");
  std::printf("prepared again\n");
}

void Local(const std::string& module) {
  auto engine = Get(hpvm::LocalEngine::Start(), "starting an engine");
  const std::string add = Get(engine->Prepare(OneNode(module, "add", "x")), "preparing").handle;
  const std::string endless = Get(engine->Prepare(OneNode(module, "tight", "go")), "preparing").handle;
  ExpectSum(*engine, add, 1);
  CheckCancellation(*engine, endless, add, "a local engine");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "calls") {
    Calls(arguments[1], arguments[2]);
  } else if (arguments.size() == 3 && arguments[0] == "restart") {
    Restart(arguments[1], arguments[2]);
  } else if (arguments.size() == 2 && arguments[0] == "local") {
    Local(arguments[1]);
  } else {
    std::fprintf(stderr, "usage: check calls ENDPOINT MODULE | restart ENDPOINT MODULE | local MODULE\n");
    return 2;
  }
}
