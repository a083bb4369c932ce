// SPDX-License-Identifier: Apache-2.0
#include "bench/workload.h"

#include <algorithm>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm::bench {
namespace {

constexpr uint32_t kWideBuffers = 250;
constexpr uint32_t kDagBuffers = 64;
constexpr uint64_t kSeed = 20260;

std::vector<Elements> MakeBuffers(uint32_t count) {
  SeededRng rng(kSeed);
  std::vector<Elements> buffers(count);
  for (Elements& buffer : buffers) {
    for (uint32_t& element : buffer) {
      element = static_cast<uint32_t>(rng.Next());
    }
  }
  return buffers;
}

std::string Tensor() { return "{\"type\":\"u32\",\"shape\":[" + std::to_string(kBufferElements) + "]}"; }

std::string Port(const char* name, const char* access) {
  return std::string("{\"name\":\"") + name + "\",\"access\":\"" + access + "\",\"type\":\"u32\",\"shape\":[" +
         std::to_string(kBufferElements) + "]}";
}

std::string Edge(const std::string& from, const std::string& to) {
  return "{\"from\":\"" + from + "\",\"to\":\"" + to + "\"}";
}

}  // namespace

Workload MakeChain(uint32_t tasks) { return {.buffers = MakeBuffers(1), .tasks = std::vector<Task>(tasks)}; }

Workload MakeWide(uint32_t tasks) {
  Workload workload{.buffers = MakeBuffers(kWideBuffers), .tasks = {}};
  for (uint32_t i = 0; i < tasks; ++i) {
    workload.tasks.push_back({.buffer = i % kWideBuffers});
  }
  return workload;
}

Workload MakeDag(uint32_t tasks) {
  Workload workload{.buffers = MakeBuffers(kDagBuffers), .tasks = {}};
  SeededRng rng(kSeed + 1);
  for (uint32_t i = 0; i < tasks; ++i) {
    const auto buffer = static_cast<uint32_t>(rng.Below(kDagBuffers));
    const auto other = static_cast<uint32_t>((buffer + 1 + rng.Below(kDagBuffers - 1)) % kDagBuffers);
    workload.tasks.push_back({.buffer = buffer, .other = other});
  }
  return workload;
}

Workload MakeGrind(uint32_t tasks, uint32_t steps) {
  Workload workload = MakeDag(tasks);
  workload.steps = steps;
  for (Elements& buffer : workload.buffers) {
    buffer.front() |= 1;  // The generator's state 0 is a fixed point.
    buffer.back() = steps;
  }
  return workload;
}

void Step(Elements& data) {
  for (uint32_t& element : data) {
    element = element * 3 + 1;
  }
}

void Mix(const Elements& other, Elements& data) {
  for (uint32_t i = 0; i < kBufferElements; ++i) {
    data[i] = data[i] * 3 + other[i];
  }
}

void Grind(const Elements& other, Elements& data) {
  uint32_t value = data.front() ^ (other.front() & 0xfffffffeu);
  for (uint32_t i = 0; i < data.back(); ++i) {
    value ^= value << 13;
    value ^= value >> 17;
    value ^= value << 5;
  }
  data.front() = value | 1;
}

void RunTask(const Workload& workload, const Task& task, std::vector<Elements>& buffers) {
  if (workload.steps != 0) {
    Grind(buffers[task.other], buffers[task.buffer]);
  } else if (task.other == kNoBuffer) {
    Step(buffers[task.buffer]);
  } else {
    Mix(buffers[task.other], buffers[task.buffer]);
  }
}

double GrindStepNs() {
  constexpr uint32_t kSteps = 20'000;
  Elements data{}, other{};
  data.front() = 1;
  data.back() = kSteps;
  Duration least = std::chrono::hours(1);
  for (int round = 0; round < 200; ++round) {
    const Time start = RealClock().Now();
    Grind(other, data);
    asm volatile("" : : "m"(data));  // Makes the data observable: compilers remove computations without an effect.
    least = std::min(least, RealClock().Now() - start);
  }
  HPVMD_CHECK(least.count() > 0);
  return static_cast<double>(least.count()) / kSteps;
}

std::vector<Elements> Evaluate(const Workload& workload) {
  std::vector<Elements> buffers = workload.buffers;
  for (const Task& task : workload.tasks) {
    RunTask(workload, task, buffers);
  }
  return buffers;
}

std::string ToDocument(const Workload& workload, const std::string& device) {
  std::string inputs, outputs, nodes, edges;
  const auto add = [](std::string& list, const std::string& item) {
    list += list.empty() ? "" : ",\n";
    list += item;
  };
  std::vector<std::string> current;  // Indexed by buffer: the endpoint that holds its contents.
  for (size_t b = 0; b < workload.buffers.size(); ++b) {
    const std::string name = std::to_string(b);
    add(inputs, "\"b" + name + "\":" + Tensor());
    add(outputs, "\"o" + name + "\":" + Tensor());
    current.push_back("b" + name);
  }
  const std::string where = device.empty() ? "" : ",\"devices\":[\"" + device + "\"]";
  const std::string step =
      R"({"ports":[)" + Port("data", "inout") + "]" + where + R"(,"variants":[{"module":"m","entry":"step"}]})";
  const std::string mix = R"({"ports":[)" + Port("other", "in") + "," + Port("data", "inout") + "]" + where +
                          R"(,"variants":[{"module":"m","entry":")" + (workload.steps != 0 ? "grind" : "mix") +
                          R"("}]})";
  for (size_t i = 0; i < workload.tasks.size(); ++i) {
    const Task& task = workload.tasks[i];
    const std::string name = "n" + std::to_string(i);
    add(nodes, "\"" + name + "\":" + (task.other == kNoBuffer ? step : mix));
    add(edges, Edge(current[task.buffer], name + ".data"));
    if (task.other != kNoBuffer) {
      add(edges, Edge(current[task.other], name + ".other"));
    }
    current[task.buffer] = name + ".data";
  }
  for (size_t b = 0; b < workload.buffers.size(); ++b) {
    add(edges, Edge(current[b], "o" + std::to_string(b)));
  }
  return "{\"hpvm\":1,\"inputs\":{" + inputs + "},\"outputs\":{" + outputs +
         "},\"modules\":{\"m\":{\"kind\":\"wasm\",\"source\":{\"file\":\"kernels.wasm\"}}},\"nodes\":{" + nodes +
         "},\"edges\":[" + edges + "]}";
}

std::vector<std::vector<uint32_t>> Predecessors(const Workload& workload) {
  struct State {
    uint32_t writer = kNoBuffer;
    std::vector<uint32_t> readers;  // Since the last writer.
  };
  std::vector<State> states(workload.buffers.size());
  std::vector<std::vector<uint32_t>> out(workload.tasks.size());
  for (uint32_t i = 0; i < workload.tasks.size(); ++i) {
    const Task& task = workload.tasks[i];
    std::vector<uint32_t>& before = out[i];
    const auto follow = [&](uint32_t earlier) {
      if (earlier != kNoBuffer && std::find(before.begin(), before.end(), earlier) == before.end()) {
        before.push_back(earlier);
      }
    };
    State& written = states[task.buffer];
    follow(written.writer);
    for (uint32_t reader : written.readers) {
      follow(reader);
    }
    if (task.other != kNoBuffer) {
      follow(states[task.other].writer);
      states[task.other].readers.push_back(i);
    }
    written = {.writer = i, .readers = {}};
  }
  return out;
}

}  // namespace hpvm::bench
