// SPDX-License-Identifier: Apache-2.0
#include "base/round_thread.h"

#include <utility>

namespace hpvm {

RoundThread::RoundThread(Round round, Duration first)
    : round_(std::move(round)), thread_([this, first] { Loop(first); }) {}

void RoundThread::Wake() {
  std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_one();
}

void RoundThread::Stop() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void RoundThread::Loop(Duration pause) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (pause > Duration{0}) {
      changed_.wait_for(lock, pause, [this] { return woken_ || stops_; });
    }
    if (stops_) {
      return;
    }
    woken_ = false;
    lock.unlock();
    pause = round_();
    lock.lock();
  }
}

}  // namespace hpvm
