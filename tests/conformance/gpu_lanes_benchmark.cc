// SPDX-License-Identifier: Apache-2.0
// Benefit of a device's lanes: pieces that are uploaded, processed and downloaded, one after another and
// concurrently; cost of launches in boxes and in large buffers. Prints one JSON object.
//
//   gpu_lanes_benchmark DEVICE [MIB_OF_A_PIECE [PIECES]]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "backends/opencl/pocl.h"
#include "backends/shared/host_buffer.h"
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

constexpr std::array<uint64_t, 3> kOne = {1, 1, 1};
constexpr uint64_t kRoom = 3;  // Pieces on the device at once.
constexpr int kRounds = 5;

double Ms(Time begin, Time end) { return std::chrono::duration<double, std::milli>(end - begin).count(); }

void Check(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", Message(status).c_str());
    std::exit(1);
  }
}

// Returns the minimum of several rounds, after a warm-up.
template <typename Body>
double Best(const Body& body) {
  double best = 1e300;
  for (int round = 0; round <= kRounds; ++round) {
    const Time begin = RealClock().Now();
    body();
    const double ms = Ms(begin, RealClock().Now());
    best = round == 0 ? best : std::min(best, ms);
  }
  return best;
}

class Pieces {
 public:
  Pieces(Bench& bench, uint64_t bytes, uint64_t count)
      : bench_(bench), bytes_(bytes), count_(count), from_(bytes * count / 4, 1.0f), to_(bytes * count / 4, 0.0f) {
    saxpy_ = bench.Load("saxpy");
    HPVMD_CHECK(saxpy_ != nullptr);
    host_from_ =
        *backends::AllocateHostBuffer({bytes * count, reinterpret_cast<uint8_t*>(from_.data())}, bytes * count);
    host_to_ = *backends::AllocateHostBuffer({bytes * count, reinterpret_cast<uint8_t*>(to_.data())}, bytes * count);
    arena_ = bench.Allocate(kRoom * bytes);
  }

  // A part of 0 is left out.
  struct Mix {
    bool uploads = true, downloads = true;
    uint64_t launches = 0;  // Per piece.
  };
  double Serial(const Mix& mix) {
    return Best([&] { Run(mix, false); });
  }
  double Lanes(const Mix& mix) {
    return Best([&] { Run(mix, true); });
  }
  bool IsRight(uint64_t launches) const {
    const float want = std::ldexp(1.0f, static_cast<int>(launches));
    return std::all_of(to_.begin(), to_.end(), [&](float value) { return value == want; });
  }

 private:
  void Run(const Mix& mix, bool has_lanes) {
    std::unique_ptr<Timeline> timelines[3] = {bench_.CreateTimeline(), bench_.CreateTimeline(),
                                              bench_.CreateTimeline()};
    std::vector<Work> works(3 * count_);
    std::vector<std::vector<TimelinePoint>> waits(3 * count_);
    std::vector<TimelinePoint> signals(3 * count_);
    for (uint64_t i = 0; i < count_; ++i) {
      const uint64_t at = i % kRoom * bytes_;
      if (mix.uploads) {
        works[3 * i].Copy(*host_from_, i * bytes_, *arena_, at, bytes_);
      }
      const Arg piece = Arg::View(*arena_, at, bytes_);
      for (uint64_t k = 0; k < mix.launches; ++k) {
        works[3 * i + 1].Dispatch(*saxpy_, {bytes_ / 4, 1, 1}, kOne, {piece, piece, Arg::Scalar(1.0f)});
      }
      works[3 * i + 1].timings.clear();
      if (mix.downloads) {
        works[3 * i + 2].Copy(*arena_, at, *host_to_, i * bytes_, bytes_);
      }
      for (uint64_t k = 0; k < 3; ++k) {
        if (k > 0) {
          waits[3 * i + k] = {{timelines[k - 1].get(), i + 1}};
        } else if (i >= kRoom) {
          waits[3 * i] = {{timelines[2].get(), i + 1 - kRoom}};
        }
        if (!has_lanes) {
          waits[3 * i + k].clear();
        }
        signals[3 * i + k] = {timelines[has_lanes ? k : 0].get(), has_lanes ? i + 1 : 3 * i + k + 1};
        const Lane lane = !has_lanes || k == 1 ? Lane::kCompute : k == 0 ? Lane::kUpload : Lane::kDownload;
        Check(bench_.Submit(works[3 * i + k], waits[3 * i + k], {&signals[3 * i + k], 1}, lane));
      }
    }
    Check(signals.back().timeline->Wait(signals.back().value, kNever));
  }

  Bench& bench_;
  const uint64_t bytes_, count_;
  std::vector<float> from_, to_;
  std::unique_ptr<Executable> saxpy_;
  std::unique_ptr<Buffer> host_from_, host_to_, arena_;
};

void MeasureLanes(Bench& bench, uint64_t bytes, uint64_t count) {
  Pieces pieces(bench, bytes, count);
  const double up = pieces.Lanes({true, false, 0}), down = pieces.Lanes({false, true, 0});
  const double one = pieces.Lanes({false, false, 1}), many = pieces.Lanes({false, false, 17});
  // As long as the slower of the copies.
  const double launch = std::max((many - one) / 16, 1e-3);
  const auto launches = static_cast<uint64_t>(std::clamp(std::max(up, down) / launch, 1.0, 100.0));
  const double run = pieces.Lanes({false, false, launches});
  const double serial = pieces.Serial({true, true, launches});
  const bool serial_is_right = pieces.IsRight(launches);
  const double lanes = pieces.Lanes({true, true, launches});
  const bool lanes_are_right = pieces.IsRight(launches);
  const double gigabytes = static_cast<double>(bytes * count) / 1e9;
  std::printf("\"piece_mib\": %llu, \"pieces\": %llu, \"launches_a_piece\": %llu, ",
              static_cast<unsigned long long>(bytes >> 20), static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(launches));
  std::printf("\"upload_ms\": %.3f, \"kernels_ms\": %.3f, \"download_ms\": %.3f, \"serial_ms\": %.3f, ", up, run, down,
              serial);
  std::printf("\"lanes_ms\": %.3f, \"upload_gb_s\": %.2f, \"download_gb_s\": %.2f, \"both_ways_ms\": %.3f, ", lanes,
              gigabytes / up * 1e3, gigabytes / down * 1e3, pieces.Lanes({true, true, 0}));
  std::printf("\"gain\": %.3f, \"over_longest\": %.3f, \"right\": %s, ", serial / lanes,
              lanes / std::max({up, run, down}), serial_is_right && lanes_are_right ? "true" : "false");
}

// Small pieces: the cost of handing over from lane to lane.
void MeasureHandOver(Bench& bench) {
  constexpr uint64_t kPieces = 200;
  Pieces pieces(bench, 4096, kPieces);
  std::printf("\"small_piece_serial_us\": %.2f, \"small_piece_lanes_us\": %.2f, ",
              pieces.Serial({true, true, 1}) / kPieces * 1e3, pieces.Lanes({true, true, 1}) / kPieces * 1e3);
}

// One launch against its boxes, and separate storages against a place far inside a large buffer.
void MeasureLaunches(Bench& bench) {
  const std::unique_ptr<Executable> saxpy = bench.Load("saxpy");
  HPVMD_CHECK(saxpy != nullptr);
  const bool is_large = !bench.device().info().is_emulated;
  const uint64_t floats = is_large ? uint64_t{1} << 26 : uint64_t{1} << 20, bytes = floats * 4;
  const uint64_t arena_bytes =
      is_large ? std::min<uint64_t>(bench.device().info().allocation_bytes_max, uint64_t{10} << 30) / 256 * 256
               : 4 * bytes;
  const std::unique_ptr<Buffer> x = bench.Allocate(bytes), y = bench.Allocate(bytes),
                                arena = bench.Allocate(arena_bytes);
  constexpr uint64_t kTimes = 20;
  const auto run = [&](Buffer& a, uint64_t a_at, Buffer& b, uint64_t b_at, uint64_t boxes) {
    Work work;
    for (uint64_t i = 0; i < kTimes; ++i) {
      for (uint64_t k = 0; k < boxes; ++k) {
        const Box box{{k * (floats / boxes), 0, 0}, {floats / boxes, 1, 1}};
        work.Dispatch(*saxpy, {floats, 1, 1}, kOne,
                      {Arg::View(a, a_at, bytes), Arg::View(b, b_at, bytes), Arg::Scalar(2.0f)}, box);
      }
    }
    work.timings.clear();
    return 3 * static_cast<double>(bytes) * kTimes / 1e6 / Best([&] { Check(bench.Run(work)); });
  };
  const uint64_t far = (arena_bytes - bytes) / 256 * 256, nearer = (far - bytes) / 256 * 256;
  std::printf("\"saxpy_gb_s\": {\"whole\": %.1f, \"8_boxes\": %.1f, ", run(*y, 0, *x, 0, 1), run(*y, 0, *x, 0, 8));
  std::printf("\"far_in_an_arena\": %.1f, \"arena_gib\": %.1f}, ", run(*arena, far, *arena, nearer, 1),
              static_cast<double>(arena_bytes) / (1 << 30));
  const std::unique_ptr<Executable> nothing = bench.Load("poke_nothing");
  Work chain;
  for (int i = 0; i < 2000; ++i) {
    chain.Dispatch(*nothing, {1024, 1, 1}, kOne, {Arg::Of(*x)});
  }
  chain.timings.clear();
  std::printf("\"launch_us\": %.3f", Best([&] { Check(bench.Run(chain)); }) / 2000 * 1e3);
}

void Measure(const std::string& device, uint64_t bytes, uint64_t count) {
  const Time begin = RealClock().Now();
  Bench bench(device);
  const double open_ms = Ms(begin, RealClock().Now());
  const DeviceInfo& info = bench.device().info();
  std::printf("{\"device\": \"%s\", \"name\": \"%s\", \"open_ms\": %.1f, \"has_copy_lanes\": %s, ", device.c_str(),
              info.name.c_str(), open_ms, info.has_copy_lanes ? "true" : "false");
  std::printf("\"told\": {\"operations_per_second\": %.3g, \"bytes_per_second\": %.3g, \"launch_ns\": %.0f, ",
              info.operations_per_second, info.bytes_per_second, info.launch_ns);
  std::printf("\"upload_bytes_per_second\": %.3g, \"download_bytes_per_second\": %.3g}, ", info.upload_bytes_per_second,
              info.download_bytes_per_second);
  MeasureLanes(bench, bytes, count);
  MeasureHandOver(bench);
  MeasureLaunches(bench);
  std::printf("}\n");
}

}  // namespace
}  // namespace hpvm::conformance

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "usage: gpu_lanes_benchmark DEVICE [MIB_OF_A_PIECE [PIECES]]\n");
    return 2;
  }
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  const uint64_t mib = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 32;
  const uint64_t pieces = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 16;
  hpvm::conformance::Measure(argv[1], std::max<uint64_t>(mib, 1) << 20, std::max<uint64_t>(pieces, 1));
  return 0;
}
