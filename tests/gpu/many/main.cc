// SPDX-License-Identifier: Apache-2.0
// hpvm-gpu-many: runs graphs whose launches are split over several devices and compares every bit with the result of
// the CPU device: a product, all pairs, a stencil with halos over repetitions, a chain of them with an update in
// place, sizes that grow and shrink, and the loss of the last device at each of its first submissions.
//
//   hpvm-gpu-many --device opencl:0 --device opencl:1 [--distinct] [--size N] [--losses N] [--cache FOLDER]
//
// Prints a line of JSON for each case. Exits with 1 when one has other bits or fails, or when fewer than half of them
// ran on all devices at once: a long chain of small steps may be faster on one. Exits with 3 when the machine lacks a
// device.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include <CLI/CLI.hpp>

#include "backends/contract/device.h"
#include "backends/registry.h"
#include "base/clock.h"
#include "bench/local_engine.h"
#include "engine/testing/document.h"

namespace hpvm::gpu_many {
namespace {

using bench::LocalEngine;
using engine::testing::Document;
using nlohmann::json;

constexpr int kNoDevice = 3;

struct Options {
  std::vector<std::string> devices;
  bool is_distinct = false, has_cpu = false;
  uint32_t size = 256, losses = 6, runs = 6, steps = 40;
  std::string cache, kernels = "gpu_many.wasm";
};

// One of several names for the same hardware, presented as separate hardware.
class Twin final : public Device {
 public:
  // `submissions_left` is the number of launches accepted before the device is lost; never lost when negative.
  // Borrowed; may be null.
  Twin(Hub& hub, std::unique_ptr<Device> device, uint32_t index, std::atomic<int64_t>* submissions_left)
      : Device(hub), device_(std::move(device)), info_(device_->info()), submissions_left_(submissions_left) {
    info_.id = info_.id.substr(0, info_.id.find(':') + 1) + std::to_string(index);
    info_.silicon = "twin " + std::to_string(index);
    info_.is_emulated = false;
    info_.exports_memory = info_.imports_memory = false;
    // So slow, compared with the links, that everything is worth a split.
    info_.operations_per_second = 1e8;
    info_.upload_bytes_per_second = info_.download_bytes_per_second = 1e11;
  }
  const DeviceInfo& info() const override { return info_; }
  Support Supports(const KernelNeeds& needs) const override { return device_->Supports(needs); }
  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience& patience) override {
    return device_->Load(std::move(artifact), patience);
  }
  StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) override { return device_->Allocate(spec); }
  Status Submit(const Submission& submission) override {
    if (submissions_left_ != nullptr && submission.lane == Lane::kCompute) {
      int64_t left = submissions_left_->load();
      while (left > 0 && !submissions_left_->compare_exchange_weak(left, left - 1)) {
      }
      if (left == 0) {
        return Unavailable("The device is lost.");
      }
    }
    return device_->Submit(submission);
  }

 private:
  const std::unique_ptr<Device> device_;
  DeviceInfo info_;
  std::atomic<int64_t>* const submissions_left_;
};

using Tensors = std::map<std::string, std::vector<float>>;

struct Case {
  std::string name, document;
  std::vector<uint64_t> shape;  // Shape of every tensor.
  std::vector<std::string> inputs;
  std::string output;
  uint32_t repeat = 1;
  std::vector<engine::Rotation> rotations{};
};

std::string Scalar(const std::string& name, const std::string& value) {
  return R"({"name":")" + name + R"(","type":"i32","value":)" + value + "}";
}

std::string Grid(const std::string& scalar) {
  return R"(,"instances":["n","n"],"scalars":[)" + Scalar(scalar, "\"n\"") + "]";
}

Case Product(uint64_t n) {
  Document d("f32", R"(["n","n"])");
  d.Input("a");
  d.Input("b");
  d.Output("c");
  d.Node("multiply", "product", {"in a", "in b", "out c"}, Grid("n"));
  d.Edge("a", "multiply.a");
  d.Edge("b", "multiply.b");
  d.Edge("multiply.c", "c");
  return {"product " + std::to_string(n), d.Text(), {n, n}, {"a", "b"}, "c"};
}

Case Pairs(uint64_t n) {
  Document d("f32", R"(["n"])");
  d.Input("x");
  d.Output("force");
  d.Node("sum", "pairs", {"in x", "out force"}, R"(,"instances":["n"],"scalars":[)" + Scalar("n", "\"n\"") + "]");
  d.Edge("x", "sum.x");
  d.Edge("sum.force", "force");
  return {"pairs " + std::to_string(n), d.Text(), {n}, {"x"}, "force"};
}

Case Heat(uint64_t n, uint32_t steps) {
  Document d("f32", R"(["n","n"])");
  d.Input("u");
  d.Output("v");
  d.Node("step", "heat", {"in u", "out v"}, Grid("n"));
  d.Edge("u", "step.u");
  d.Edge("step.v", "v");
  return {"heat " + std::to_string(n) + " x " + std::to_string(steps),
          d.Text(),
          {n, n},
          {"u"},
          "v",
          steps,
          {{.output = "v", .input = "u"}}};
}

// A product, two steps of the stencil over it, and an update in place.
Case Chain(uint64_t n) {
  Document d("f32", R"(["n","n"])");
  d.Input("a");
  d.Input("b");
  d.Output("y");
  d.Node("multiply", "product", {"in a", "in b", "out c"}, Grid("n"));
  d.Node("first", "heat", {"in u", "out v"}, Grid("n"));
  d.Node("second", "heat", {"in u", "out v"}, Grid("n"));
  d.Node("fade", "decay", {"inout values"}, R"(,"instances":["n*n"],"scalars":[)" + Scalar("turns", "100") + "]");
  d.Edge("a", "multiply.a");
  d.Edge("b", "multiply.b");
  d.Edge("multiply.c", "first.u");
  d.Edge("first.v", "second.u");
  d.Edge("second.v", "fade.values");
  d.Edge("fade.values", "y");
  return {"chain " + std::to_string(n), d.Text(), {n, n}, {"a", "b"}, "y"};
}

// A stencil, node after node: as many halos, each of a separate value. `more` holds the nodes' instances and scalars.
Case Steps(const std::string& name, std::vector<uint64_t> shape, const std::string& shape_text,
           const std::string& entry, const std::string& more, uint32_t steps) {
  Document d("f32", shape_text);
  d.Input("u");
  d.Output("v");
  std::string from = "u";
  for (uint32_t step = 0; step < steps; ++step) {
    const std::string node = "s" + std::to_string(step);
    d.Node(node, entry, {"in u", "out v"}, more);
    d.Edge(from, node + ".u");
    from = node + ".v";
  }
  d.Edge(from, "v");
  const std::string title = name + " " + std::to_string(shape[0]) + " x " + std::to_string(steps);
  return {title, d.Text(), std::move(shape), {"u"}, "v"};
}

Case Squares(uint64_t n, uint32_t steps) { return Steps("steps", {n, n}, R"(["n","n"])", "heat", Grid("n"), steps); }

// In three dimensions, without its faces, where each step's result is zero.
Case Cubes(uint64_t n, uint32_t steps) {
  return Steps("cubes", {n, n, n}, R"(["n","n","n"])", "heat3",
               R"(,"instances":["n-2","n-2","n-2"],"scalars":[)" + Scalar("n", "\"n\"") + "]", steps);
}

struct Outcome {
  std::vector<float> output;
  std::map<std::string, uint64_t> parts;  // Launches, or parts of them, by device.
  uint64_t moved_bytes = 0;
  double seconds = 0;
};

StatusOr<Outcome> RunOnce(LocalEngine& local, engine::PreparedGraph& prepared, const Case& graph) {
  uint64_t elements = 1;
  for (const uint64_t extent : graph.shape) {
    elements *= extent;
  }
  Tensors tensors;
  engine::RunRequest request;
  const auto bind = [&](std::vector<float>& tensor) {
    return engine::Binding{.type = ElementType::kF32,
                           .shape = graph.shape,
                           .data = reinterpret_cast<uint8_t*>(tensor.data()),
                           .bytes = tensor.size() * sizeof(float)};
  };
  for (const std::string& name : graph.inputs) {
    SeededRng rng(name[0]);
    std::vector<float>& tensor = tensors[name];
    for (uint64_t i = 0; i < elements; ++i) {
      tensor.push_back(static_cast<float>(rng.Below(2000)) / 1000 - 1);
    }
    request.inputs[name] = bind(tensor);
  }
  Outcome outcome;
  outcome.output.assign(elements, -7);
  request.outputs[graph.output] = bind(outcome.output);
  request.repeat = graph.repeat;
  request.rotations = graph.rotations;
  HPVMD_ASSIGN_OR_RETURN(const engine::RunResult result, local.engine().Run(prepared, request));
  for (const engine::NodeRecord& node : result.nodes) {
    ++outcome.parts[node.device];
  }
  outcome.moved_bytes = result.moved_bytes;
  outcome.seconds = std::chrono::duration<double>(result.run).count();
  return outcome;
}

class Runner {
 public:
  explicit Runner(const Options& options) : options_(options) {}

  Status Start() {
    LocalEngine::Options local{.kernels = options_.kernels, .cache_folder = options_.cache};
    HPVMD_ASSIGN_OR_RETURN(cpu_, LocalEngine::Start(local));
    return absl::OkStatus();
  }

  // Starts the devices anew. The last one is lost after `submissions` launches; never when negative.
  StatusOr<std::unique_ptr<LocalEngine>> StartMany(int64_t submissions) {
    submissions_left_ = submissions;
    LocalEngine::Options local{
        .kernels = options_.kernels, .devices = options_.devices, .cache_folder = options_.cache};
    local.devices.push_back("cpu");  // For memory of the host alone.
    uint32_t index = 0;
    local.wrap = [&](std::unique_ptr<Device> device) -> std::unique_ptr<Device> {
      const bool is_last = index + 1 == options_.devices.size();
      const bool is_wrapped =
          index < options_.devices.size() && (options_.is_distinct || (is_last && submissions >= 0));
      Hub& hub = device->hub();
      const uint32_t name = index++;
      return is_wrapped ? std::make_unique<Twin>(hub, std::move(device), name, is_last ? &submissions_left_ : nullptr)
                        : std::move(device);
    };
    return LocalEngine::Start(local);
  }

  // Restricts nodes to the devices, though the processor may be faster.
  std::string OnGpus(const std::string& document) const {
    json root = json::parse(document);
    for (json& node : root.at("nodes")) {
      if (options_.has_cpu) {
        break;
      }
      node["devices"] = {options_.devices[0].substr(0, options_.devices[0].find(':'))};
    }
    return root.dump();
  }

  void RunCase(const Case& graph) {
    json line = {{"case", graph.name}};
    const Status status = [&]() -> Status {
      HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<LocalEngine> many, StartMany(-1));
      return Compare(*many, {graph}, options_.runs, &line);
    }();
    Tell(line, status);
  }

  // One prepared graph, with other sizes each time.
  void RunSizes(const std::vector<Case>& sizes) {
    json line = {{"case", sizes[0].name + " and other sizes"}};
    const Status status = [&]() -> Status {
      HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<LocalEngine> many, StartMany(-1));
      return Compare(*many, sizes, 3, &line);
    }();
    Tell(line, status);
  }

  void RunLosses(const Case& graph) {
    json line = {{"case", graph.name + " with a loss"}};
    uint32_t lost = 0;
    const Status status = [&]() -> Status {
      for (uint32_t loss = 0; loss < options_.losses; ++loss) {
        HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<LocalEngine> many, StartMany(loss));
        HPVMD_RETURN_IF_ERROR(Compare(*many, {graph}, 2, &line));
        lost += submissions_left_ == 0 ? 1 : 0;
      }
      return lost == 0 ? Internal("No device was lost.") : absl::OkStatus();
    }();
    line["losses"] = lost;
    Tell(line, status);
  }

  bool has_failed() const { return has_failed_; }
  bool is_mostly_split() const { return split_ >= whole_; }

 private:
  // Runs the graphs in turn, `runs` times each; they differ in shapes alone.
  Status Compare(LocalEngine& many, const std::vector<Case>& graphs, uint32_t runs, json* line) {
    HPVMD_ASSIGN_OR_RETURN(const std::shared_ptr<engine::PreparedGraph> split,
                           many.Prepare(OnGpus(graphs[0].document)));
    HPVMD_ASSIGN_OR_RETURN(const std::shared_ptr<engine::PreparedGraph> whole, cpu_->Prepare(graphs[0].document));
    std::set<std::string> used;
    double best = 0;
    uint64_t moved = 0;
    for (uint32_t run = 0; run < runs; ++run) {
      for (const Case& graph : graphs) {
        HPVMD_ASSIGN_OR_RETURN(const Outcome want, RunOnce(*cpu_, *whole, graph));
        HPVMD_ASSIGN_OR_RETURN(const Outcome got, RunOnce(many, *split, graph));
        if (std::memcmp(want.output.data(), got.output.data(), want.output.size() * sizeof(float)) != 0) {
          return Internal(graph.name + " has other bits in run " + std::to_string(run) + ".");
        }
        const bool is_split = got.parts.size() > 1;
        for (const auto& [device, count] : got.parts) {
          if (is_split) {
            used.insert(device);
          }
        }
        moved = is_split ? got.moved_bytes : moved;
        best = best == 0 ? got.seconds : std::min(best, got.seconds);
      }
    }
    (*line)["best_ms"] = best * 1e3;
    (*line)["used"] = used;
    (*line)["moved_mb_when_split"] = static_cast<double>(moved) / 1e6;
    const bool may_lose = submissions_left_ >= 0;
    if (!may_lose) {
      const bool is_split = used.size() >= options_.devices.size();
      (*line)["on_all"] = is_split;
      ++(is_split ? split_ : whole_);
    }
    return absl::OkStatus();
  }

  void Tell(json& line, const Status& status) {
    line["ok"] = status.ok();
    if (!status.ok()) {
      line["message"] = Message(status);
      has_failed_ = true;
    }
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

  const Options& options_;
  std::atomic<int64_t> submissions_left_{-1};
  std::unique_ptr<LocalEngine> cpu_;
  bool has_failed_ = false;
  uint32_t split_ = 0, whole_ = 0;  // Number of cases that ran on all devices at once, and of others.
};

int Run(const Options& options) {
  for (const std::string& device : options.devices) {
    const StatusOr<std::vector<std::string>> listed = backends::ListDevices(device.substr(0, device.find(':')));
    if (!listed.ok() || std::find(listed->begin(), listed->end(), device) == listed->end()) {
      std::fprintf(stderr, "hpvm-gpu-many: This machine has no device \"%s\".\n", device.c_str());
      return kNoDevice;
    }
  }
  Runner runner(options);
  if (const Status started = runner.Start(); !started.ok()) {
    std::fprintf(stderr, "hpvm-gpu-many: %s\n", Message(started).c_str());
    return 2;
  }
  const uint64_t n = options.size;
  runner.RunCase(Product(n));
  runner.RunCase(Pairs(16 * n));
  runner.RunCase(Heat(n, 20));
  runner.RunCase(Chain(n));
  runner.RunCase(Squares(n, options.steps));
  runner.RunCase(Cubes(n / 4, options.steps));
  runner.RunSizes({Product(n), Product(n / 2), Product(n + 64), Product(n / 4)});
  if (options.losses > 0) {
    runner.RunLosses(Product(n));
    runner.RunLosses(Heat(n, 6));
    runner.RunLosses(Chain(n));
  }
  if (!runner.is_mostly_split()) {
    std::fprintf(stderr, "hpvm-gpu-many: Most cases never ran on all devices at once.\n");
  }
  return runner.has_failed() || !runner.is_mostly_split() ? 1 : 0;
}

}  // namespace
}  // namespace hpvm::gpu_many

int main(int argc, char** argv) {
  CLI::App app{"Graphs that are split over several devices, against the processor's device."};
  hpvm::gpu_many::Options options;
  app.add_option("--device", options.devices, "As \"opencl:0\"; at least two.")->required();
  app.add_flag("--distinct", options.is_distinct,
               "Takes each for hardware of its own, though they may be one, and for a slow one.");
  app.add_flag("--with-cpu", options.has_cpu, "The processor may take part.");
  app.add_option("--size", options.size, "Rows of a matrix.")->capture_default_str()->check(CLI::Range(64, 65536));
  app.add_option("--runs", options.runs, "Of each case.")->capture_default_str()->check(CLI::Range(1, 10000));
  app.add_option("--steps", options.steps, "Of the longest chain.")->capture_default_str()->check(CLI::Range(1, 10000));
  app.add_option("--losses", options.losses, "At so many of its first launches the last device is lost, each in turn.")
      ->capture_default_str();
  app.add_option("--cache", options.cache, "Folder of compiled kernels that processes share.");
  app.add_option("--kernels", options.kernels, "The module, beside this program.")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.devices.size() < 2) {
    std::fprintf(stderr, "hpvm-gpu-many: Give at least two devices by --device.\n");
    return 2;
  }
  return hpvm::gpu_many::Run(options);
}
