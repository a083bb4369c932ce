// SPDX-License-Identifier: Apache-2.0
#include "bench/sched/sched_problems.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/clock.h"

namespace hpvm::bench {
namespace {

uint64_t Choose(RealSize size, uint64_t quick, uint64_t small, uint64_t large) {
  return size == RealSize::kQuick ? quick : size == RealSize::kSmall ? small : large;
}

PageMemory Reals(uint64_t count, double low, double high, uint64_t seed) {
  PageMemory memory(count * sizeof(float));
  const std::vector<float> values = RandomReals<float>(count, low, high, seed);
  std::copy(values.begin(), values.end(), memory.as<float>().begin());
  return memory;
}

RowArray Sliced(const std::string& name, uint64_t row_elements, uint64_t rows, double low, double high, uint64_t seed) {
  return {name, Access::kIn, row_elements, 0, Reals(row_elements * rows, low, high, seed)};
}
RowArray Shared(const std::string& name, uint64_t elements, double low, double high, uint64_t seed) {
  return {name, Access::kIn, 0, elements, Reals(elements, low, high, seed)};
}
RowArray Result(const std::string& name, uint64_t row_elements) { return {name, Access::kOut, row_elements, 0, {}}; }

std::unique_ptr<RowLaunch> BlackScholes(uint64_t rows) {
  auto launch = std::make_unique<RowLaunch>();
  launch->name = launch->entry = "black_scholes";
  launch->rows = rows;
  launch->arrays.push_back(Sliced("prices", 1, rows, 5, 30, 1));
  launch->arrays.push_back(Sliced("strikes", 1, rows, 1, 100, 2));
  launch->arrays.push_back(Sliced("years", 1, rows, 0.25, 10, 3));
  launch->arrays.push_back(Result("calls", 1));
  launch->arrays.push_back(Result("puts", 1));
  launch->scalars = {0.02f, 0.3f};
  return launch;
}

std::unique_ptr<RowLaunch> Sgemm(uint64_t order) {
  auto launch = std::make_unique<RowLaunch>();
  launch->name = launch->entry = "sgemm";
  launch->rows = launch->columns = order;
  launch->arrays.push_back(Sliced("a", order, order, -1, 1, 4));
  launch->arrays.push_back(Shared("b", order * order, -1, 1, 5));
  launch->arrays.push_back(Result("c", order));
  launch->scalars = {static_cast<int32_t>(order), static_cast<int32_t>(order)};
  return launch;
}

std::unique_ptr<RowLaunch> MriQ(uint64_t rows, uint64_t samples) {
  auto launch = std::make_unique<RowLaunch>();
  launch->name = launch->entry = "mri_q";
  launch->rows = rows;
  launch->arrays.push_back(Sliced("xs", 1, rows, -0.5, 0.5, 6));
  launch->arrays.push_back(Sliced("ys", 1, rows, -0.5, 0.5, 7));
  launch->arrays.push_back(Sliced("zs", 1, rows, -0.5, 0.5, 8));
  launch->arrays.push_back(Shared("samples", 4 * samples, -1, 1, 9));
  launch->arrays.push_back(Result("real", 1));
  launch->arrays.push_back(Result("imaginary", 1));
  launch->scalars = {static_cast<int32_t>(samples)};
  return launch;
}

std::unique_ptr<RowLaunch> NBody(uint64_t bodies) {
  auto launch = std::make_unique<RowLaunch>();
  launch->name = "n_body";
  launch->entry = "n_body_rows";
  launch->rows = bodies;
  launch->arrays.push_back(Shared("bodies", 4 * bodies, -1, 1, 11));
  launch->arrays.push_back(Result("accelerations", 3));
  launch->scalars = {0.01f, static_cast<int32_t>(bodies)};
  launch->takes_first = true;
  return launch;
}

// Adds the nodes and inputs of a launch to a graph, which keeps the launch's memory.
void AddLaunch(std::unique_ptr<RowLaunch> launch, MixedProblem* problem) {
  BenchGraph part = launch->Whole("");
  problem->graph.inputs.insert(part.inputs.begin(), part.inputs.end());
  problem->graph.nodes.insert(problem->graph.nodes.end(), part.nodes.begin(), part.nodes.end());
  for (RowArray& array : launch->arrays) {
    problem->memory.push_back(std::move(array.initial));
  }
}

// Independent launches of different kinds.
std::unique_ptr<MixedProblem> Branches(RealSize size) {
  auto problem = std::make_unique<MixedProblem>();
  problem->name = "branches";
  AddLaunch(BlackScholes(Choose(size, 1 << 12, 1 << 20, 32 << 20)), problem.get());
  AddLaunch(Sgemm(Choose(size, 64, 768, 8192)), problem.get());
  AddLaunch(MriQ(Choose(size, 1 << 8, 1 << 15, 1 << 20), Choose(size, 64, 512, 2048)), problem.get());
  return problem;
}

// Steps of heat diffusion in a box, one after the other.
std::unique_ptr<MixedProblem> Heat(const std::string& name, uint64_t n, int steps) {
  auto problem = std::make_unique<MixedProblem>();
  problem->name = name;
  const uint64_t cells = n * n * n;
  problem->memory.push_back(Reals(cells, 0, 1, 10));
  problem->graph.inputs["heat"] = {ElementType::kF32, cells, problem->memory.back().data()};
  std::string holder = "heat";
  for (int step = 0; step < steps; ++step) {
    GraphNode& node = problem->graph.nodes.emplace_back();
    node.name = "step" + std::to_string(step);
    node.entry = "heat";
    node.extent = {n - 2, n - 2, n - 2};
    node.scalars = {6.0f / 20, 1.0f / 20, static_cast<int32_t>(n), static_cast<int32_t>(n)};
    node.ports = {{"in", Access::kIn, ElementType::kF32, cells, holder, ""},
                  {"out", Access::kOut, ElementType::kF32, cells, "", step + 1 == steps ? "cooled" : ""}};
    holder = node.name + ".out";
  }
  return problem;
}

// Four vectors are made separately, joined in pairs, and then all together.
std::unique_ptr<MixedProblem> Tree(RealSize size) {
  auto problem = std::make_unique<MixedProblem>();
  problem->name = "tree";
  const uint64_t order = Choose(size, 64, 512, 4096);
  for (int leaf = 0; leaf < 4; ++leaf) {
    std::unique_ptr<RowLaunch> launch = Sgemm(order);
    launch->name += std::to_string(leaf);
    AddLaunch(std::move(launch), problem.get());
    problem->graph.nodes.back().ports.back().to.clear();
  }
  for (int join = 0; join < 3; ++join) {
    GraphNode& node = problem->graph.nodes.emplace_back();
    node.name = "join" + std::to_string(join);
    node.entry = "nstream";
    node.extent = {order * order, 1, 1};
    node.scalars = {0.5f};
    const auto from = [&](int side) {
      const int index = 2 * join + side;
      return index < 4 ? "sgemm" + std::to_string(index) + "0.c" : "join" + std::to_string(index - 4) + ".a";
    };
    node.ports = {{"a", Access::kInOut, ElementType::kF32, order * order, from(0), join == 2 ? "sum" : ""},
                  {"b", Access::kIn, ElementType::kF32, order * order, from(1), ""},
                  {"c", Access::kIn, ElementType::kF32, order * order, from(1), ""}};
  }
  return problem;
}

}  // namespace

BenchGraph RowLaunch::Parts(const std::vector<Part>& parts) const {
  BenchGraph graph;
  for (size_t p = 0; p < parts.size(); ++p) {
    const Part& part = parts[p];
    GraphNode& node = graph.nodes.emplace_back();
    node.name = name + std::to_string(p);
    node.entry = entry;
    node.device = part.device;
    node.scalars = scalars;
    if (takes_first) {
      node.scalars.push_back(static_cast<int32_t>(part.first));
    }
    node.extent =
        columns == 0 ? std::array<uint64_t, 3>{part.rows, 1, 1} : std::array<uint64_t, 3>{columns, part.rows, 1};
    for (const RowArray& array : arrays) {
      const uint64_t count = array.row_elements == 0 ? array.elements : array.row_elements * part.rows;
      const std::string own = name + "_" + array.name + (array.row_elements == 0 ? "" : std::to_string(p));
      GraphPort port{array.name, array.access, ElementType::kF32, count, "", ""};
      if (array.access == Access::kIn) {
        port.from = own;
        graph.inputs[own] = {ElementType::kF32, count,
                             array.initial.data() + part.first * array.row_elements * sizeof(float)};
      } else {
        port.to = own;
      }
      node.ports.push_back(port);
    }
  }
  return graph;
}

std::vector<std::unique_ptr<RowLaunch>> SplitProblems(RealSize size) {
  std::vector<std::unique_ptr<RowLaunch>> problems;
  problems.push_back(BlackScholes(Choose(size, 1 << 12, 4 << 20, 64 << 20)));
  problems.push_back(Sgemm(Choose(size, 64, 1024, 8192)));
  problems.push_back(MriQ(Choose(size, 1 << 8, 1 << 16, 4 << 20), Choose(size, 64, 1024, 4096)));
  problems.push_back(NBody(Choose(size, 1 << 8, 1 << 14, 1 << 19)));
  return problems;
}

BenchGraph MixedProblem::On(const std::vector<std::string>& devices) const {
  BenchGraph placed = graph;
  for (size_t i = 0; i < std::min(devices.size(), placed.nodes.size()); ++i) {
    placed.nodes[i].device = devices[i];
  }
  return placed;
}

std::vector<std::unique_ptr<MixedProblem>> MixedProblems(RealSize size) {
  std::vector<std::unique_ptr<MixedProblem>> problems;
  problems.push_back(Branches(size));
  problems.push_back(Heat("chain", Choose(size, 16, 128, 512), 8));
  problems.push_back(Heat("heat_200", Choose(size, 16, 64, 512), size == RealSize::kQuick ? 10 : 200));
  problems.push_back(Tree(size));
  return problems;
}

MixedProblem LaunchChain(uint64_t elements, int nodes) {
  MixedProblem problem;
  problem.name = "launches";
  for (const std::string name : {"a", "b", "c"}) {
    problem.memory.push_back(Reals(elements, 0, 1, 20 + problem.memory.size()));
    problem.graph.inputs[name] = {ElementType::kF32, elements, problem.memory.back().data()};
  }
  std::string holder = "a";
  for (int i = 0; i < nodes; ++i) {
    GraphNode& node = problem.graph.nodes.emplace_back();
    node.name = "step" + std::to_string(i);
    node.entry = "nstream";
    node.extent = {elements, 1, 1};
    node.scalars = {0.5f};
    node.ports = {{"a", Access::kInOut, ElementType::kF32, elements, holder, i + 1 == nodes ? "sum" : ""},
                  {"b", Access::kIn, ElementType::kF32, elements, "b", ""},
                  {"c", Access::kIn, ElementType::kF32, elements, "c", ""}};
    holder = node.name + ".a";
  }
  return problem;
}

std::vector<float> LaunchChainResult(const MixedProblem& chain) {
  const auto array = [&](size_t i) { return chain.memory[i].as<float>(); };
  std::vector<float> sums(array(0).begin(), array(0).end());
  for (size_t step = 0; step < chain.graph.nodes.size(); ++step) {
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] += array(1)[i] + 0.5f * array(2)[i];
    }
  }
  return sums;
}

}  // namespace hpvm::bench
