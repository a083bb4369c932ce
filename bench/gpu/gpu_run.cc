// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/gpu_run.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <thread>

#include "backends/registry.h"
#include "bench/cpu/cpu_verify.h"
#include "bench/gpu/gpu_case.h"
#include "bench/gpu/gpu_contender.h"
#include "bench/gpu/gpu_moves.h"

namespace hpvm::bench {
namespace {

// One device used through hpvmd.
struct Rig {
  std::string name;  // "ours_opencl".
  std::unique_ptr<LocalEngine> engine;
};

struct Contestant {
  std::unique_ptr<GpuContender> contender;
  double best = 0;
  int launches = 0;
  std::string fault{};
};

using Peers = std::vector<std::unique_ptr<GpuPeer>>;

StatusOr<Rig> StartRig(const std::string& device) {
  Rig rig{.name = "ours_" + device.substr(0, device.find(':')), .engine = nullptr};
  HPVMD_ASSIGN_OR_RETURN(rig.engine,
                         LocalEngine::Start({.kernels = "bench_gpu/kernels.wasm", .devices = {device, "cpu"}}));
  return rig;
}

// Returns the first real device of each interface; for an interface without one, the processor behind its driver.
std::vector<std::string> DefaultDevices() {
  std::vector<std::string> devices;
  for (const char* backend : {"opencl", "vulkan"}) {
    const StatusOr<std::vector<std::string>> all = backends::ListDevices(backend);
    if (all.ok() && !all->empty()) {
      devices.push_back(all->front());  // Processors come last.
    }
  }
  return devices;
}

class CaseMeasurer {
 public:
  CaseMeasurer(const CpuCase& problem, const GpuOptions& options)
      : problem_(problem), seconds_(options.seconds > 0 ? options.seconds : Pick(options.size, 2.0, 0.2, 0.0)) {}

  StatusOr<CpuMeasurement> Measure(std::vector<Rig>& rigs, const Peers& peers) {
    for (Rig& rig : rigs) {
      Add(rig.name, [&] { return MakeGpuOurs(rig.name, problem_, *rig.engine, false); });
    }
    for (Rig& rig : rigs) {
      Add(rig.name + "_fast", [&] { return MakeGpuOurs(rig.name + "_fast", problem_, *rig.engine, true); });
    }
    for (const std::unique_ptr<GpuPeer>& peer : peers) {
      for (const bool exact : {false, true}) {
        Add(peer->name() + (exact ? "_exact" : ""), [&] { return peer->Prepare(problem_, exact); });
      }
      if (StatusOr<std::unique_ptr<GpuContender>> library = peer->PrepareLibrary(problem_); library.ok()) {
        contestants_.push_back({.contender = *std::move(library)});
      }
    }
    if (seconds_ > 0) {
      HPVMD_RETURN_IF_ERROR(Rounds());
    }
    for (Contestant& one : contestants_) {
      Verify(one);
    }
    return Result();
  }

 private:
  void Add(const std::string& name, const std::function<StatusOr<std::unique_ptr<GpuContender>>()>& make) {
    StatusOr<std::unique_ptr<GpuContender>> contender = make();
    if (contender.ok()) {
      contestants_.push_back({.contender = *std::move(contender)});
    } else {
      missing_.push_back(name + ": " + Message(contender.status()));
    }
  }

  // At least three turns each, then as many as time permits.
  Status Rounds() {
    for (Contestant& one : contestants_) {
      HPVMD_RETURN_IF_ERROR(one.contender->Settle(seconds_ / 2));
    }
    const Time start = RealClock().Now();
    for (int round = 0; round < 3 || std::chrono::duration<double>(RealClock().Now() - start).count() < seconds_;
         ++round) {
      for (Contestant& one : contestants_) {
        const auto launches =
            static_cast<uint32_t>(one.best == 0 ? 1 : std::clamp(seconds_ / 100 / one.best, 1.0, 200.0));
        // Warms up: switching from the previous contender takes the GPU about 0.15 ms, which must not count as a
        // launch.
        HPVMD_RETURN_IF_ERROR(one.contender->Batch(1).status());
        HPVMD_ASSIGN_OR_RETURN(const double seconds, one.contender->Batch(launches));
        one.best = one.best == 0 ? seconds : std::min(one.best, seconds);
        one.launches += static_cast<int>(launches);
      }
    }
    return absl::OkStatus();
  }

  // Compares with the reference; ours also with each other, exact ones bit for bit.
  void Verify(Contestant& one) {
    const StatusOr<double> once = one.contender->Run();
    if (!once.ok()) {
      one.fault = Message(once.status());
      return;
    }
    if (one.best == 0) {
      one.best = *once;
      one.launches = 1;
    }
    one.fault = CompareWithReference(problem_, *one.contender);
    const Contestant& first = contestants_.front();
    const std::string& name = one.contender->name();
    if (one.fault.empty() && &one != &first && name.rfind("ours", 0) == 0) {
      const bool is_fast = name.size() > 5 && name.compare(name.size() - 5, 5, "_fast") == 0;
      one.fault = CompareAll(problem_, *one.contender, *first.contender, problem_.is_bitwise && !is_fast);
    }
  }

  CpuMeasurement Result() {
    CpuMeasurement result;
    for (Contestant& one : contestants_) {
      result.entries.push_back({.name = one.contender->name(),
                                .seconds = one.best,
                                .launches = one.launches,
                                .chosen = one.contender->chosen(),
                                .fault = std::move(one.fault)});
    }
    result.missing = std::move(missing_);
    return result;
  }

  const CpuCase& problem_;
  const double seconds_;
  std::vector<Contestant> contestants_;
  std::vector<std::string> missing_;
};

// Measures the cost of launches and the speed of copies. Returns false when ours fails.
bool MeasureFigures(const GpuOptions& options, std::vector<Rig>& rigs, const Peers& peers, GpuFigures& figures) {
  const uint32_t count = options.size == CpuSize::kCheck ? 50 : 1'000;
  const uint64_t bytes = Pick<uint64_t>(options.size, 256, 16, 1) << 20;
  bool good = true;
  const auto add = [&](const std::string& figure, const std::string& who, const StatusOr<double>& value, double scale) {
    if (value.ok()) {
      figures[figure][who] = *value * scale;
    } else {
      std::fprintf(stderr, "hpvm-bench: %s, %s: %s\n", figure.c_str(), who.c_str(), Message(value.status()).c_str());
      good = good && who.rfind("ours", 0) != 0;
    }
  };
  const auto copies = [&](const std::string& who, const auto& measured) {
    const std::string size = ", " + std::to_string(bytes >> 20) + " MiB, GB/s";
    const auto one = [&](double rate) { return measured.ok() ? StatusOr<double>(rate) : measured.status(); };
    add("copy host to device" + size, who, one(measured.ok() ? measured->to_device : 0), 1e-9);
    add("copy device to host" + size, who, one(measured.ok() ? measured->from_device : 0), 1e-9);
    add("copy on the device" + size, who, one(measured.ok() ? measured->on_device : 0), 1e-9);
  };
  for (bool dependent : {true, false}) {
    const std::string figure =
        std::to_string(count) + (dependent ? " dependent" : " independent") + " launches, us each";
    for (Rig& rig : rigs) {
      add(figure, rig.name, MeasureNodes(*rig.engine, count, dependent), 1e6);
    }
    for (const std::unique_ptr<GpuPeer>& peer : peers) {
      StatusOr<double> best = peer->Launches(count, dependent);
      for (int round = 0; round < 5 && best.ok(); ++round) {
        const StatusOr<double> again = peer->Launches(count, dependent);
        best = again.ok() ? StatusOr<double>(std::min(*best, *again)) : again;
      }
      add(figure, peer->name(), best, 1e6);
    }
  }
  for (Rig& rig : rigs) {
    copies(rig.name, MeasureGpuCopies(*rig.engine, bytes));
  }
  for (const std::unique_ptr<GpuPeer>& peer : peers) {
    if (const StatusOr<GpuPeer::Copies> measured = peer->MeasureCopies(bytes);
        !absl::IsUnavailable(measured.status())) {
      copies(peer->name(), measured);
    }
  }
  return good;
}

bool Matches(const GpuOptions& options, const std::string& name) {
  return options.filters.empty() ||
         std::any_of(options.filters.begin(), options.filters.end(),
                     [&](const std::string& filter) { return name.find(filter) != std::string::npos; });
}

class GpuSuite {
 public:
  explicit GpuSuite(const GpuOptions& options) : options_(options), printer_(options) {}

  Status Start(const std::string& command) {
    const std::vector<std::string> devices = options_.devices.empty() ? DefaultDevices() : options_.devices;
    if (devices.empty()) {
      return NotFound("This machine has neither OpenCL nor Vulkan devices.");
    }
    GpuMachine machine{.devices = {}, .date = DateNow(), .command = command};
    std::string opencl;
    for (const std::string& device : devices) {
      HPVMD_ASSIGN_OR_RETURN(rigs_.emplace_back(), StartRig(device));
      machine.devices.emplace_back(device, rigs_.back().engine->device(0).info().name);
      opencl = opencl.empty() && device.rfind("opencl", 0) == 0 ? device : opencl;
    }
    const std::string& first = opencl.empty() ? devices.front() : opencl;
    AddPeer("opencl", StartOpenClPeer(opencl.empty() ? "opencl:0" : opencl));
    AddPeer("cuda", StartCudaPeer(first));
    printer_.Head(machine);
    return absl::OkStatus();
  }

  bool Run() {
    bool good = true, has_any = false;
    for (const GpuCaseMaker& maker : GpuCases(options_.size)) {
      if (Matches(options_, maker.name)) {
        has_any = true;
        good = RunCase(maker) && good;
      }
    }
    GpuFigures figures;
    if (!has_any && !Matches(options_, "figures")) {
      std::fprintf(stderr, "hpvm-bench: No filter is a part of a case's name, or of \"figures\".\n");
      return false;
    }
    if (Matches(options_, "figures")) {
      good = MeasureFigures(options_, rigs_, peers_, figures) && good;
      printer_.Figures(figures);
    }
    std::vector<std::string> ours;
    for (const Rig& rig : rigs_) {
      ours.push_back(rig.name);
    }
    if (options_.size != CpuSize::kCheck) {
      printer_.Summary(results_, figures, ours);
    }
    return good;
  }

 private:
  void AddPeer(const char* name, StatusOr<std::unique_ptr<GpuPeer>> peer) {
    if (peer.ok()) {
      peers_.push_back(*std::move(peer));
    } else {
      std::fprintf(stderr, "hpvm-bench: The peer \"%s\" is skipped: %s\n", name, Message(peer.status()).c_str());
    }
  }

  static std::string DateNow() {
    const std::time_t now = std::time(nullptr);
    char date[32];
    std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    return date;
  }

  bool RunCase(const GpuCaseMaker& maker) {
    const CpuCase problem = maker.make();
    StatusOr<CpuMeasurement> measurement = CaseMeasurer(problem, options_).Measure(rigs_, peers_);
    if (!measurement.ok()) {
      std::fprintf(stderr, "hpvm-bench: Case \"%s\": %s\n", maker.name.c_str(), Message(measurement.status()).c_str());
      return false;
    }
    GpuCaseResult result{.name = maker.name,
                         .sizes = problem.sizes,
                         .unit = problem.unit,
                         .work = problem.work,
                         .measurement = *std::move(measurement)};
    printer_.Case(result);
    bool good = result.measurement.verified();
    for (const Rig& rig : rigs_) {
      good = good && result.measurement.Find(rig.name) != nullptr;
    }
    results_.push_back(std::move(result));
    return good;
  }

  const GpuOptions& options_;
  const GpuPrinter printer_;
  std::vector<Rig> rigs_;
  Peers peers_;
  std::vector<GpuCaseResult> results_;
};

}  // namespace

int RunGpu(const GpuOptions& options, const std::string& command) {
  GpuSuite suite(options);
  if (const Status status = suite.Start(command); !status.ok()) {
    std::fprintf(stderr, "hpvm-bench: %s\n", Message(status).c_str());
    return 1;
  }
  return suite.Run() ? 0 : 1;
}

}  // namespace hpvm::bench
