// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/context.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace hpvm::server::sim {
namespace {

uint64_t Fnv(uint64_t hash, std::string_view text) {
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace

void Trace::Add(std::string_view who, std::string_view what) {
  ++lines_;
  const auto us = static_cast<uint64_t>(clock_.Now().count()) / 1'000;
  char time[32];
  std::snprintf(time, sizeof(time), "%6u.%06u ", static_cast<unsigned>(us / 1'000'000),
                static_cast<unsigned>(us % 1'000'000));
  std::string line(time);
  line.append(who).append(" ").append(what);
  hash_ = Fnv(Fnv(hash_, line), "\n");
  if (prints_) {
    std::fprintf(stdout, "%s\n", line.c_str());
  }
  last_.push_back(std::move(line));
  if (last_.size() > kKept) {
    last_.pop_front();
  }
}

void EventQueue::After(Duration delay, uint64_t owner, std::function<void()> action) {
  heap_.push_back({clock_.Now() + delay, next_number_++, owner, std::move(action)});
  std::push_heap(heap_.begin(), heap_.end(), IsLater);
}

void EventQueue::DropForgotten() {
  while (!heap_.empty() && heap_.front().owner != 0 && heap_.front().owner < first_owner_) {
    std::pop_heap(heap_.begin(), heap_.end(), IsLater);
    heap_.pop_back();
  }
}

Time EventQueue::next() {
  DropForgotten();
  return heap_.empty() ? kNever : heap_.front().when;
}

void EventQueue::RunNext() {
  DropForgotten();
  std::pop_heap(heap_.begin(), heap_.end(), IsLater);
  Event event = std::move(heap_.back());
  heap_.pop_back();
  if (event.when > clock_.Now()) {
    clock_.Advance(event.when - clock_.Now());
  }
  event.action();
}

SeededRng Context::RngFor(std::string_view purpose) const {
  SeededRng mixed(seed ^ Fnv(0xcbf29ce484222325u, purpose));
  return SeededRng(mixed.Next());
}

void Context::Fail(std::string_view checker, std::string sentence) {
  if (failure.has_value()) {
    return;
  }
  trace.Add("FAILED", std::string(checker) + ": " + sentence);
  failure = Failure{std::string(checker), std::move(sentence)};
}

}  // namespace hpvm::server::sim
