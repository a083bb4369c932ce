// SPDX-License-Identifier: Apache-2.0
// The neighbour: runs a small graph steadily, checks every result, and records each duration.
//
//   hpvm-lab-neighbour ENDPOINT TENANT MODULE PERIOD_US LOG
//
// Each line of LOG is a run: its start (CLOCK_MONOTONIC, ns), its duration (ns), then "ok" or the fault. Ends at the
// end of standard input. Its inputs begin with the bytes of the environment variable LAB_SECRET; its token, if it has
// one, is in LAB_TOKEN.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/client.h"

namespace hpvm {
namespace {

constexpr char kDocument[] = R"({"hpvm": 1, "name": "neighbour", "symbols": ["n"],
  "inputs": {"in": {"type": "i32", "shape": ["n"]}}, "outputs": {"out": {"type": "i32", "shape": ["n"]}},
  "modules": {"k": {"kind": "wasm", "source": {"file": "kernels.wasm"}}},
  "nodes": {"node": {"ports": [{"name": "in", "access": "in", "type": "i32", "shape": ["n"]},
                               {"name": "out", "access": "out", "type": "i32", "shape": ["n"]}],
                     "scalars": [{"name": "amount", "type": "i32", "value": 7}], "instances": ["n"],
                     "variants": [{"module": "k", "entry": "add"}]}},
  "edges": [{"from": "in", "to": "node.in"}, {"from": "node.out", "to": "out"}]})";
constexpr uint64_t kElements = 1024;
constexpr Duration kCallWithin = std::chrono::seconds(10);

std::string OneLine(std::string text) {
  for (char& c : text) {
    c = c == '\n' || c == '\t' ? ' ' : c;
  }
  return text;
}

Tensor MakeInput(int round) {
  std::vector<int32_t> values(kElements);
  const char* secret = getenv("LAB_SECRET");
  if (secret != nullptr) {
    memcpy(values.data(), secret, std::min(strlen(secret), sizeof(int32_t) * kElements / 2));
  }
  values[kElements - 1] = round;
  Tensor tensor;
  tensor.type = ElementType::kI32;
  tensor.shape = {kElements};
  tensor.data.resize(kElements * sizeof(int32_t));
  memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

std::string Check(const Tensor& in, const Tensor& out) {
  if (out.data.size() != in.data.size()) {
    return "wrong size";
  }
  for (uint64_t i = 0; i < kElements; ++i) {
    int32_t before, after;
    memcpy(&before, &in.data[i * 4], 4);
    memcpy(&after, &out.data[i * 4], 4);
    if (after != static_cast<int32_t>(static_cast<uint32_t>(before) + 7)) {
      return "wrong value";
    }
  }
  return "ok";
}

int Run(char** arguments) {
  ClientOptions options;
  options.endpoint = arguments[1];
  options.patience = Duration(0);
  if (const char* token = getenv("LAB_TOKEN"); token != nullptr) {
    options.credentials.token = token;
  } else {
    options.tenant = arguments[2];
  }
  auto client = Client::Connect(options);
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", Message(client.status()).c_str());
    return 1;
  }
  std::ifstream file(arguments[3], std::ios::binary);
  const std::vector<uint8_t> module{std::istreambuf_iterator<char>(file), {}};
  auto graph = (*client)->Prepare(kDocument, {.bytes = {{"k", module}}, .hashes = {}});
  if (!graph.ok()) {
    std::fprintf(stderr, "%s\n", Message(graph.status()).c_str());
    return 1;
  }
  std::FILE* log = std::fopen(arguments[5], "w");
  const auto period = std::chrono::microseconds(atoi(arguments[4]));
  std::thread([] {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    _exit(0);
  }).detach();
  auto next = std::chrono::steady_clock::now();
  for (int round = 0;; ++round) {
    const Tensor input = MakeInput(round);
    RunOptions options;
    options.call.timeout = kCallWithin;
    const Time start = RealClock().Now();
    const StatusOr<RunOutcome> done = (*client)->Run(graph->handle, {{"in", input}}, options);
    const Time end = RealClock().Now();
    const auto found = done.ok() ? done->outputs.find("out") : std::map<std::string, Tensor>::const_iterator{};
    const std::string verdict = !done.ok()                     ? OneLine(Message(done.status()))
                                : found == done->outputs.end() ? "no output"
                                                               : Check(input, found->second);
    std::fprintf(log, "%lld\t%lld\t%s\n", static_cast<long long>(start.count()),
                 static_cast<long long>((end - start).count()), verdict.c_str());
    std::fflush(log);
    next = std::max(next + period, std::chrono::steady_clock::now());
    std::this_thread::sleep_until(next);
  }
}

}  // namespace
}  // namespace hpvm

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs("usage: hpvm-lab-neighbour ENDPOINT TENANT MODULE PERIOD_US LOG\n", stderr);
    return 2;
  }
  return hpvm::Run(argv);
}
