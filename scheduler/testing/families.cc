// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/families.h"

#include <algorithm>
#include <cmath>

namespace hpvm::scheduler {
namespace {

using graph::FlatNodeId;
using graph::FlatValueId;

double Uniform(Rng& rng, double least, double most) {
  return least + (most - least) * static_cast<double>(rng.Below(1 << 20)) / static_cast<double>(1 << 20);
}

// Milliseconds of a kind of task on a core, and the speed-up of a GPU and of the accelerator.
struct Kind {
  double core_ms, gpu, accelerator;
};
// Dense tiles of 960 x 960 doubles on cores of 30 GF/s: the more a kernel is a matrix product, the more a GPU helps.
constexpr Kind kFactor{11, 2, 0.5}, kSolve{30, 9, 3}, kProduct{60, 25, 8}, kUpdate{32, 18, 6};
constexpr Kind kQrPanel{25, 1.5, 0.5}, kQrApply{70, 14, 4};
constexpr uint64_t kTileBytes = 960 * 960 * 8;

class CaseBuilder {
 public:
  CaseBuilder(Platform platform, uint64_t seed) : rng_(seed * 7'919 + 13), case_(std::make_unique<FamilyCase>()) {
    AddDevices(platform);
    // Ratio of communication to computation, for families that do not fix it.
    constexpr double kRatios[] = {0.1, 0.5, 1, 2};
    ratio_ = kRatios[seed % 4];
  }

  void Build(Family family, uint32_t size) {
    switch (family) {
      case Family::kCholesky:
        return Cholesky(8 * size);
      case Family::kLu:
        return Lu(6 * size);
      case Family::kQr:
        return Qr(6 * size);
      case Family::kFft:
        return Fft(5, size);
      case Family::kStencil:
        return Stencil(12 * size, 12);
      case Family::kForkJoin:
        return ForkJoin(8 * size, 16);
      case Family::kMontage:
        return Montage(24 * size);
      case Family::kLayered:
        return Layered(150 * size);
    }
  }

  std::unique_ptr<FamilyCase> Take() {
    case_->candidates.resize(case_->flat.nodes.size());
    for (std::vector<Candidate>& list : case_->candidates) {
      for (DeviceIndex d = 0; d < case_->devices.size(); ++d) {
        list.push_back({.device = d});
      }
    }
    return std::move(case_);
  }

 private:
  enum class Speed : uint8_t { kCore, kGpu, kAccelerator };

  void AddDevices(Platform platform) {
    constexpr TableCosts::Link kBus{10'000, 1.0 / 12}, kSlow{100'000, 1.0 / 1.5};
    const uint32_t cores = platform == Platform::kManyCores ? 16 : 4;
    case_->devices.push_back({.id = "cpu:0", .lanes = cores, .silicon = 0});
    case_->devices.push_back({.id = "gpu:0", .space = 1, .is_gpu = true, .silicon = 1, .has_copy_lanes = true});
    case_->costs.links = {{}, kBus};
    speeds_ = {Speed::kCore, Speed::kGpu};
    if (platform == Platform::kTwoGpus) {
      case_->devices.push_back({.id = "gpu:1", .space = 2, .is_gpu = true, .silicon = 2, .has_copy_lanes = true});
      case_->costs.links.push_back(kBus);
      speeds_.push_back(Speed::kGpu);
    } else if (platform == Platform::kSlowLink) {
      case_->devices.push_back({.id = "fpga:0", .space = 2, .silicon = 2});
      case_->costs.links.push_back(kSlow);
      speeds_.push_back(Speed::kAccelerator);
    }
  }

  FlatValueId Value(uint64_t bytes, FlatNodeId producer) {
    case_->flat.values.push_back({.bytes = bytes, .shape = {}, .producer = producer});
    return FlatValueId(case_->flat.values.size() - 1);
  }

  FlatNodeId Node(const Kind& kind) {
    graph::FlatNode node;
    const FlatNodeId id(case_->flat.nodes.size());
    node.leaf = graph::NodeId(id.index);
    node.first_port = static_cast<uint32_t>(case_->flat.ports.size());
    case_->flat.nodes.push_back(node);
    std::vector<int64_t> ns;
    for (const Speed speed : speeds_) {
      const double quicker = speed == Speed::kCore ? 1 : speed == Speed::kGpu ? kind.gpu : kind.accelerator;
      ns.push_back(std::max<int64_t>(1, std::llround(kind.core_ms * 1e6 / quicker * Uniform(rng_, 0.85, 1.15))));
    }
    case_->costs.ns.push_back(std::move(ns));
    return id;
  }

  void Read(FlatValueId value) {
    case_->flat.ports.push_back({.access = graph::Access::kIn, .in = value, .out = {}});
  }
  void Update(FlatValueId& value) {
    const FlatNodeId node(case_->flat.nodes.size() - 1);
    const FlatValueId out = Value(case_->flat.values[value.index].bytes, node);
    case_->flat.ports.push_back({.access = graph::Access::kInOut, .in = value, .out = out});
    value = out;
  }
  FlatValueId Make(uint64_t bytes) {
    const FlatValueId out = Value(bytes, FlatNodeId(case_->flat.nodes.size() - 1));
    case_->flat.ports.push_back({.access = graph::Access::kOut, .in = {}, .out = out});
    return out;
  }

  std::vector<std::vector<FlatValueId>> Tiles(uint32_t n) {
    std::vector<std::vector<FlatValueId>> tiles(n);
    for (auto& row : tiles) {
      for (uint32_t j = 0; j < n; ++j) {
        row.push_back(Value(kTileBytes, FlatNodeId()));
      }
    }
    return tiles;
  }

  void Cholesky(uint32_t n) {
    auto a = Tiles(n);
    for (uint32_t k = 0; k < n; ++k) {
      Node(kFactor);
      Update(a[k][k]);
      for (uint32_t i = k + 1; i < n; ++i) {
        Node(kSolve);
        Read(a[k][k]);
        Update(a[i][k]);
      }
      for (uint32_t i = k + 1; i < n; ++i) {
        for (uint32_t j = k + 1; j <= i; ++j) {
          Node(i == j ? kUpdate : kProduct);
          Read(a[i][k]);
          if (i != j) {
            Read(a[j][k]);
          }
          Update(a[i][j]);
        }
      }
    }
  }

  void Lu(uint32_t n) {
    auto a = Tiles(n);
    for (uint32_t k = 0; k < n; ++k) {
      Node(kFactor);
      Update(a[k][k]);
      for (uint32_t i = k + 1; i < n; ++i) {
        Node(kSolve);
        Read(a[k][k]);
        Update(a[i][k]);
        Node(kSolve);
        Read(a[k][k]);
        Update(a[k][i]);
      }
      for (uint32_t i = k + 1; i < n; ++i) {
        for (uint32_t j = k + 1; j < n; ++j) {
          Node(kProduct);
          Read(a[i][k]);
          Read(a[k][j]);
          Update(a[i][j]);
        }
      }
    }
  }

  // With flat trees: the panel's tiles one after another.
  void Qr(uint32_t n) {
    auto a = Tiles(n);
    for (uint32_t k = 0; k < n; ++k) {
      Node(kQrPanel);
      Update(a[k][k]);
      const FlatValueId reflectors = Make(kTileBytes / 8);
      for (uint32_t j = k + 1; j < n; ++j) {
        Node(kQrApply);
        Read(reflectors);
        Update(a[k][j]);
      }
      for (uint32_t i = k + 1; i < n; ++i) {
        Node(kQrPanel);
        Update(a[k][k]);
        Update(a[i][k]);
        const FlatValueId more = Make(kTileBytes / 8);
        const FlatValueId panel = a[i][k];
        for (uint32_t j = k + 1; j < n; ++j) {
          Node(kQrApply);
          Read(panel);
          Read(more);
          Update(a[k][j]);
          Update(a[i][j]);
        }
      }
    }
  }

  // Returns a task that takes `core_ms` on a core, of a kind that devices run at their own speeds.
  Kind Some(double core_ms) {
    const double gpu = std::exp(Uniform(rng_, std::log(0.7), std::log(20)));
    return {core_ms, gpu, std::exp(Uniform(rng_, std::log(0.3), std::log(10)))};
  }
  // Returns the number of bytes whose transfer takes about `ratio_` times as long.
  uint64_t Bytes(double core_ms) {
    return static_cast<uint64_t>(std::max(64.0, core_ms / 6 * ratio_ * 1e6 * 12 * Uniform(rng_, 0.5, 1.5)));
  }

  // Recursive calls, then butterflies.
  void Fft(uint32_t levels, uint32_t width_factor) {
    const uint32_t points = (1u << levels) * width_factor;
    std::vector<FlatValueId> row;
    const Kind split = Some(2), butterfly = Some(8);
    Node(split);
    row.push_back(Make(Bytes(8)));
    while (row.size() < points) {
      std::vector<FlatValueId> next;
      for (const FlatValueId from : row) {
        for (int child = 0; child < 2 && next.size() < points; ++child) {
          Node(split);
          Read(from);
          next.push_back(Make(Bytes(8)));
        }
      }
      row = std::move(next);
    }
    for (uint32_t stride = 1; stride < points; stride *= 2) {
      std::vector<FlatValueId> next;
      for (uint32_t i = 0; i < points; ++i) {
        Node(butterfly);
        Read(row[i]);
        Read(row[(i ^ stride) % points]);
        next.push_back(Make(Bytes(8)));
      }
      row = std::move(next);
    }
  }

  void Stencil(uint32_t width, uint32_t steps) {
    const Kind kind = Some(10);
    std::vector<FlatValueId> row;
    for (uint32_t i = 0; i < width; ++i) {
      row.push_back(Value(Bytes(10), FlatNodeId()));
    }
    for (uint32_t step = 0; step < steps; ++step) {
      std::vector<FlatValueId> next;
      for (uint32_t i = 0; i < width; ++i) {
        Node(kind);
        for (uint32_t near = i == 0 ? 0 : i - 1; near <= std::min(i + 1, width - 1); ++near) {
          Read(row[near]);
        }
        next.push_back(Make(Bytes(10)));
      }
      row = std::move(next);
    }
  }

  void ForkJoin(uint32_t stages, uint32_t width) {
    Node(Some(5));
    FlatValueId from = Make(Bytes(5));
    for (uint32_t stage = 0; stage < stages; ++stage) {
      const Kind kind = Some(15);
      std::vector<FlatValueId> made;
      for (uint32_t i = 0; i < width; ++i) {
        Node({kind.core_ms * Uniform(rng_, 0.5, 1.5), kind.gpu, kind.accelerator});
        Read(from);
        made.push_back(Make(Bytes(15)));
      }
      Node(Some(5));
      for (const FlatValueId value : made) {
        Read(value);
      }
      from = Make(Bytes(5));
    }
  }

  // Projections of images, differences of neighbours, one fit, corrections, and a mosaic.
  void Montage(uint32_t images) {
    const Kind project = Some(14), difference = Some(5), correct = Some(4);
    std::vector<FlatValueId> projected, fits;
    for (uint32_t i = 0; i < images; ++i) {
      Node(project);
      Read(Value(Bytes(14), FlatNodeId()));
      projected.push_back(Make(Bytes(14)));
    }
    for (uint32_t i = 0; i < images; ++i) {
      for (const uint32_t by : {1u, 5u}) {
        if (i + by < images) {
          Node(difference);
          Read(projected[i]);
          Read(projected[i + by]);
          fits.push_back(Make(Bytes(0.2)));
        }
      }
    }
    Node({8, 1, 0.5});
    for (const FlatValueId fit : fits) {
      Read(fit);
    }
    FlatValueId model = Make(Bytes(0.5));
    Node({20, 1, 0.5});
    Read(model);
    model = Make(Bytes(0.5));
    std::vector<FlatValueId> corrected;
    for (uint32_t i = 0; i < images; ++i) {
      Node(correct);
      Read(projected[i]);
      Read(model);
      corrected.push_back(Make(Bytes(14)));
    }
    for (const Kind& kind : {Some(10), Some(40), Some(20), Some(5)}) {
      Node(kind);
      for (const FlatValueId value : corrected) {
        Read(value);
      }
      corrected = {Make(Bytes(20))};
    }
  }

  void Layered(uint32_t tasks) {
    std::vector<FlatValueId> before, layer;
    size_t width = 1;
    for (uint32_t task = 0; task < tasks; ++task) {
      const double core_ms = Uniform(rng_, 2, 40);
      Node(Some(core_ms));
      if (before.empty()) {
        Read(Value(Bytes(core_ms), FlatNodeId()));
      } else {
        for (uint64_t reads = 1 + rng_.Below(4); reads-- > 0;) {
          Read(before[rng_.Below(before.size())]);
        }
      }
      layer.push_back(Make(Bytes(core_ms)));
      if (layer.size() >= width) {
        // Most outputs of a layer are read by the next one, some later.
        before.insert(before.begin(), layer.begin(), layer.end());
        before.resize(std::min<size_t>(before.size(), layer.size() * 5 / 4 + 1));
        layer.clear();
        width = 4 + rng_.Below(20);
      }
    }
  }

  SeededRng rng_;
  std::unique_ptr<FamilyCase> case_;
  std::vector<Speed> speeds_;
  double ratio_ = 1;
};

}  // namespace

std::string NameOf(Family family) {
  constexpr const char* kNames[] = {"cholesky", "lu", "qr", "fft", "stencil", "fork-join", "montage", "layered"};
  return kNames[static_cast<size_t>(family)];
}

std::string NameOf(Platform platform) {
  constexpr const char* kNames[] = {"16-cores-gpu", "4-cores-2-gpus", "4-cores-gpu-slow-link"};
  return kNames[static_cast<size_t>(platform)];
}

Cost TableCosts::Run(const Work& work, DeviceIndex index, const DeviceFacts&) const {
  return {.time = Duration(ns[work.leaf.index][index]), .is_estimate = false};
}

Duration TableCosts::Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const {
  Duration sum{0};
  for (const SpaceIndex space : {from, to}) {
    if (space != kHostSpace) {
      const Link& link = links[space];
      sum += Duration(std::llround(link.latency_ns + link.ns_per_byte * static_cast<double>(bytes)));
    }
  }
  return sum;
}

std::unique_ptr<FamilyCase> MakeFamily(Family family, Platform platform, uint64_t seed, uint32_t size) {
  CaseBuilder builder(platform, seed);
  builder.Build(family, size);
  return builder.Take();
}

}  // namespace hpvm::scheduler
