// SPDX-License-Identifier: Apache-2.0
#include "bench/cpu/cpu_measure.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "bench/cpu/cpu_verify.h"

namespace hpvm::bench {
namespace {

struct Contestant {
  std::unique_ptr<CpuContender> contender;
  double best = 0, spent = 0;
  int launches = 0;
  std::string fault{};
};

bool Wanted(const CpuOptions& options, const std::string& name) {
  return options.peers.empty() || std::find(options.peers.begin(), options.peers.end(), name) != options.peers.end();
}

class CaseMeasurer {
 public:
  CaseMeasurer(const CpuCase& problem, CpuEngine& engine, const CpuOptions& options)
      : problem_(problem), engine_(engine), options_(options) {
    seconds_ = options.seconds > 0 ? options.seconds : Pick(options.size, 8.0, 1.0, 0.0);
  }

  StatusOr<CpuMeasurement> Measure() {
    HPVMD_RETURN_IF_ERROR(Assemble());
    for (Contestant& one : contestants_) {
      HPVMD_RETURN_IF_ERROR(While(Prepare(one), "preparing \"" + one.contender->name() + "\""));
    }
    // At least three turns each, the first of which is often slow; then as many as time permits.
    const Time start = RealClock().Now();
    for (int round = 0; seconds_ > 0; ++round) {
      for (Contestant& one : contestants_) {
        HPVMD_RETURN_IF_ERROR(While(Turn(one, round), "measuring \"" + one.contender->name() + "\""));
      }
      if (round >= 2 && std::chrono::duration<double>(RealClock().Now() - start).count() > seconds_) {
        break;
      }
    }
    Verify();
    return Result();
  }

 private:
  // A contender that cannot run here is named in the result; without ours there is no case.
  Status Assemble() {
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<CpuContender> ours, engine_.Prepare(problem_, "exact"));
    contestants_.push_back({.contender = std::move(ours)});
    Add("ours_fast", [&] { return engine_.Prepare(problem_, "fast"); });
    Add("openmp", [&] { return MakeNative(problem_, "openmp", "libopenmp.so", problem_.name); });
    Add("openmp_contract",
        [&] { return MakeNative(problem_, "openmp_contract", "libopenmp_contract.so", problem_.name); });
    Add("pocl", [&] { return MakePocl(problem_, options_.size == CpuSize::kFull); });
    if (problem_.name == "sgemm" || problem_.name == "dgemm") {
      Add("openblas", [&] { return MakeOpenBlas(problem_, engine_.threads()); });
    }
    if (problem_.name == "sgemm") {
      Add("openmp_ikj", [&] { return MakeNative(problem_, "openmp_ikj", "libopenmp_contract.so", "sgemm_ikj"); });
    }
    return absl::OkStatus();
  }

  void Add(const char* name, const std::function<StatusOr<std::unique_ptr<CpuContender>>()>& make) {
    if (!Wanted(options_, name)) {
      return;
    }
    StatusOr<std::unique_ptr<CpuContender>> contender = make();
    if (contender.ok()) {
      contestants_.push_back({.contender = *std::move(contender)});
    } else {
      missing_.push_back(std::string(name) + ": " + Message(contender.status()));
    }
  }

  Status Prepare(Contestant& one) {
    if (seconds_ > 0) {
      return one.contender->Settle(seconds_ / 6);
    }
    HPVMD_ASSIGN_OR_RETURN(one.best, one.contender->Run());
    one.launches = 1;
    return absl::OkStatus();
  }

  // Launches several times in a row, so that caches and threads are in the state of a caller in a loop.
  Status Turn(Contestant& one, int round) {
    constexpr double kTurnSeconds = 0.1;
    const double share = seconds_ / static_cast<double>(contestants_.size());
    if (round >= 3 && one.spent > share) {
      return absl::OkStatus();
    }
    double turn = 0;
    for (int launch = 0; launch < 20 && (launch == 0 || turn + one.best < kTurnSeconds); ++launch) {
      HPVMD_ASSIGN_OR_RETURN(const double once, one.contender->Run());
      turn += once;
      one.best = one.launches++ == 0 ? once : std::min(one.best, once);
    }
    one.spent += turn;
    if (one.contender->spins()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return absl::OkStatus();
  }

  // Compares every contender with the reference; then ours with the same C bit for bit, and the others, except
  // libraries, whose rounding differs, within the tolerance.
  void Verify() {
    const auto native = std::find_if(contestants_.begin(), contestants_.end(),
                                     [](const Contestant& one) { return one.contender->name() == "openmp"; });
    for (Contestant& one : contestants_) {
      one.fault = CompareWithReference(problem_, *one.contender);
      if (one.fault.empty() && !one.contender->is_library() && native != contestants_.end() && &one != &*native) {
        const bool bitwise = problem_.is_bitwise && one.contender->name() == "ours";
        one.fault = CompareAll(problem_, *one.contender, *native->contender, bitwise);
      }
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
  CpuEngine& engine_;
  const CpuOptions& options_;
  double seconds_ = 0;
  std::vector<Contestant> contestants_;
  std::vector<std::string> missing_;
};

}  // namespace

const CpuMeasurement::Entry* CpuMeasurement::Find(const std::string& name) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& one) { return one.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

double CpuMeasurement::Ratio(const std::string& peer, const std::string& ours) const {
  const Entry *theirs = Find(peer), *own = Find(ours);
  const bool known = theirs != nullptr && own != nullptr && theirs->fault.empty() && own->fault.empty();
  return known && own->seconds > 0 ? theirs->seconds / own->seconds : 0;
}

double CpuMeasurement::RatioOpenMp(const std::string& ours) const {
  const double exact = Ratio("openmp", ours), contracted = Ratio("openmp_contract", ours);
  return exact > 0 && contracted > 0 ? std::min(exact, contracted) : std::max(exact, contracted);
}

bool CpuMeasurement::verified() const {
  return std::all_of(entries.begin(), entries.end(), [](const Entry& one) { return one.fault.empty(); });
}

StatusOr<CpuMeasurement> MeasureCpuCase(const CpuCase& problem, CpuEngine& engine, const CpuOptions& options) {
  return CaseMeasurer(problem, engine, options).Measure();
}

}  // namespace hpvm::bench
