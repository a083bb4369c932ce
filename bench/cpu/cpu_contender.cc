// SPDX-License-Identifier: Apache-2.0
#include "bench/cpu/cpu_contender.h"

#include <stdlib.h>

#include <cstring>
#include <utility>

#include "base/clock.h"

namespace hpvm::bench {

CpuContender::CpuContender(std::string name, const CpuCase& problem) : name_(std::move(name)), problem_(problem) {
  for (const CpuArray& array : problem.arrays) {
    written_.push_back(array.access == Access::kIn ? PageMemory() : PageMemory(array.count * ElementBytes(array.type)));
  }
}

StatusOr<double> CpuContender::Run() {
  for (size_t i = 0; i < written_.size() && !copies(); ++i) {
    if (problem_.arrays[i].access == Access::kInOut) {
      std::memcpy(written_[i].data(), problem_.arrays[i].initial.data(), written_[i].bytes());
    }
  }
  return Launch();
}

uint8_t* CpuContender::data(size_t array) const {
  return problem_.arrays[array].access == Access::kIn ? problem_.arrays[array].initial.data() : written_[array].data();
}

Status CpuContender::Settle(double seconds) {
  for (int i = 0; i < 2; ++i) {
    HPVMD_ASSIGN_OR_RETURN(const double once, Run());
    if (once > seconds) {
      break;
    }
  }
  return absl::OkStatus();
}

double Seconds(const std::function<void()>& call) {
  const Time start = RealClock().Now();
  call();
  return std::chrono::duration<double>(RealClock().Now() - start).count();
}

void SetPeerThreads(uint32_t threads) {
  const std::string count = std::to_string(threads);
  setenv("OMP_NUM_THREADS", count.c_str(), 0);
  setenv("OPENBLAS_NUM_THREADS", count.c_str(), 0);
  setenv("POCL_MAX_PTHREAD_COUNT", count.c_str(), 0);
  // Idle threads spin first, on processors that the next contender needs: some milliseconds suffice between the
  // launches of one contender, and the measurement pauses longer between two contenders.
  setenv("KMP_BLOCKTIME", "5", 0);
  setenv("OPENBLAS_THREAD_TIMEOUT", "22", 0);  // 2^22 cycles.
}

}  // namespace hpvm::bench
