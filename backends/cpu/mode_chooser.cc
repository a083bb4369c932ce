// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/mode_chooser.h"

#include <algorithm>

namespace hpvm::cpu {
namespace {

// Approximate overhead of a command in the flow on its own worker; and the cost of calling helpers.
constexpr double kFlowNs = 200;
constexpr double kCallNs = 10'000;
// A list with less parallelism than this is not shared.
constexpr double kWidthMin = 1.15;
// The other mode is tried if its estimated time is at most this many times as long; it is tried again after
// kTryAgainAfter turns, if it was that close.
constexpr double kTryRatio = 1.2;
constexpr uint64_t kTryAgainAfter = 64;
// The other mode has to be at least this much better.
constexpr double kMargin = 0.97;

}  // namespace

double ModeChooser::GuessInOrder() const {
  const Times& flow = known_[static_cast<size_t>(Mode::kFlow)].times;
  const double n = static_cast<double>(commands_);
  return std::max(flow.busy_ns - n * kFlowNs, flow.shared_ns + n * 50);
}

double ModeChooser::GuessFlow(double workers) const {
  const Times& in_order = known_[static_cast<size_t>(Mode::kInOrder)].times;
  const double own = in_order.busy_ns - in_order.shared_ns + static_cast<double>(commands_) * kFlowNs;
  return in_order.shared_ns + own / workers + kCallNs;
}

ModeChooser::Mode ModeChooser::Choose(uint32_t threads) {
  is_trying_ = false;
  if (threads < 2 || commands_ < 2 || width_ < kWidthMin) {
    return Mode::kInOrder;
  }
  if (threads != threads_) {
    threads_ = threads;
    known_ = {};
  }
  ++turns_;
  const double workers = std::min<double>(threads, width_);
  const double in_order = known_[static_cast<size_t>(Mode::kInOrder)].wall_ns;
  const double flow = known_[static_cast<size_t>(Mode::kFlow)].wall_ns;
  if (in_order == 0 && flow == 0) {
    last_ = Mode::kFlow;
    is_trying_ = true;
  } else if (in_order == 0) {
    last_ = GuessInOrder() < flow * kTryRatio ? Mode::kInOrder : Mode::kFlow;
    is_trying_ = last_ == Mode::kInOrder;
  } else if (flow == 0) {
    last_ = GuessFlow(workers) < in_order * kTryRatio ? Mode::kFlow : Mode::kInOrder;
    is_trying_ = last_ == Mode::kFlow;
  } else {
    const bool was_flow = last_ == Mode::kFlow;
    const bool is_flow = was_flow ? flow * kMargin <= in_order : flow < in_order * kMargin;
    last_ = is_flow ? Mode::kFlow : Mode::kInOrder;
    const bool is_near = std::max(in_order, flow) < kTryRatio * std::min(in_order, flow);
    if (is_near && turns_ % kTryAgainAfter == 0) {
      is_trying_ = true;
      return is_flow ? Mode::kInOrder : Mode::kFlow;
    }
  }
  return last_;
}

void ModeChooser::Learn(Mode mode, uint32_t threads, const Times& times) {
  if (mode == Mode::kFlow && commands_ != 0) {
    command_ns_ = times.busy_ns / static_cast<double>(commands_);
  }
  if (threads != threads_) {
    return;
  }
  Known& known = known_[static_cast<size_t>(mode)];
  // Disturbances only add time.
  known.wall_ns = known.wall_ns == 0 || times.wall_ns < known.wall_ns
                      ? times.wall_ns
                      : known.wall_ns + (times.wall_ns - known.wall_ns) / 8;
  known.times = times;
}

}  // namespace hpvm::cpu
