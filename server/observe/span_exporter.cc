// SPDX-License-Identifier: Apache-2.0
#include "server/observe/span_exporter.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr Duration kGather = std::chrono::milliseconds(500), kRequestMax = std::chrono::seconds(5);
constexpr Duration kBackoffFirst = std::chrono::seconds(1), kBackoffMax = std::chrono::seconds(30);

}  // namespace

struct SpanExporter::State {
  HttpTarget target;
  SpanResource resource;
  UniqueFd stop_event;  // Readable when a request must be cancelled.
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Span> waiting;  // This and the following members are guarded by the mutex.
  size_t sending = 0;
  SpanCounts counts;
  bool stop = false, done = false;
  Time give_up = kNever;
  bool was_failing = false;  // This and `backoff` are used by the thread only.
  Duration backoff = kBackoffFirst;

  void Loop();
  bool Send(const std::vector<Span>& batch);
  void TellFailure(const std::string& why);
};

// Returns true when the batch is finished, sent or dropped; otherwise the caller waits before a retry.
bool SpanExporter::State::Send(const std::vector<Span>& batch) {
  Time deadline = RealClock().Now() + kRequestMax;
  {
    std::lock_guard lock(mutex);
    deadline = std::min(deadline, give_up);
  }
  const StatusOr<HttpAnswer> answer =
      HttpPost(target, "application/json", ToOtlpJson(batch, resource), deadline, stop_event.get());
  const int code = answer.ok() ? answer->code : 0;
  const bool is_passing = !answer.ok() || code == 429 || code == 502 || code == 503 || code == 504;
  std::lock_guard lock(mutex);
  if (code >= 200 && code < 300) {
    counts.exported += batch.size();
    backoff = kBackoffFirst;
    was_failing = false;
    return true;
  }
  ++counts.failures;
  TellFailure(answer.ok() ? "The collector answers with HTTP status " + std::to_string(code) + "."
                          : Message(answer.status()));
  if (is_passing) {
    if (answer.ok() && answer->retry_after_s > 0) {
      backoff = std::min<Duration>(std::chrono::seconds(answer->retry_after_s), kBackoffMax);
    }
    return false;
  }
  counts.dropped += batch.size();
  return true;
}

// Logs once until exporting works again.
void SpanExporter::State::TellFailure(const std::string& why) {
  if (!was_failing && !stop) {
    LogWarning("The collector of traces does not accept spans", {{"error", why}});
  }
  was_failing = true;
}

void SpanExporter::State::Loop() {
  std::vector<Span> batch;
  std::unique_lock lock(mutex);
  while (true) {
    if (batch.empty()) {
      changed.wait(lock, [this] { return stop || !waiting.empty(); });
      // Waits for more spans to send together; not when many wait already.
      changed.wait_for(lock, kGather, [this] { return stop || waiting.size() >= kBatchMax; });
      const size_t count = std::min(waiting.size(), kBatchMax);
      std::move(waiting.begin(), waiting.begin() + static_cast<ptrdiff_t>(count), std::back_inserter(batch));
      waiting.erase(waiting.begin(), waiting.begin() + static_cast<ptrdiff_t>(count));
      sending = count;
    }
    if (stop && (batch.empty() || RealClock().Now() >= give_up)) {
      break;
    }
    lock.unlock();
    const bool is_done = Send(batch);
    lock.lock();
    if (is_done) {
      batch.clear();
      sending = 0;
      continue;
    }
    if (stop) {
      break;  // No retry at the end.
    }
    changed.wait_for(lock, backoff, [this] { return stop; });
    backoff = std::min(backoff * 2, kBackoffMax);
  }
  counts.dropped += batch.size() + waiting.size();
  waiting.clear();
  sending = 0;
  done = true;
  changed.notify_all();
}

SpanExporter::SpanExporter(HttpTarget target, SpanResource resource) : state_(std::make_shared<State>()) {
  state_->target = std::move(target);
  state_->target.path += "/v1/traces";
  state_->resource = std::move(resource);
  state_->stop_event = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::thread([state = state_] { state->Loop(); }).detach();
}

SpanExporter::~SpanExporter() {
  std::unique_lock lock(state_->mutex);
  state_->give_up = RealClock().Now() + kFlushMax;
  state_->stop = true;
  state_->changed.notify_all();
  if (state_->changed.wait_for(lock, kFlushMax, [this] { return state_->done; })) {
    return;
  }
  const uint64_t one = 1;
  if (write(state_->stop_event.get(), &one, sizeof(one)) == sizeof(one)) {
    state_->changed.wait_for(lock, std::chrono::milliseconds(100), [this] { return state_->done; });
  }
}

void SpanExporter::Add(std::vector<Span> spans) {
  std::lock_guard lock(state_->mutex);
  const bool was_empty = state_->waiting.empty();
  for (Span& span : spans) {
    if (state_->waiting.size() + state_->sending >= kWaitingMax || state_->stop) {
      ++state_->counts.dropped;
    } else {
      state_->waiting.push_back(std::move(span));
    }
  }
  if ((was_empty && !state_->waiting.empty()) || state_->waiting.size() >= kBatchMax) {
    state_->changed.notify_all();
  }
}

SpanCounts SpanExporter::counts() const {
  std::lock_guard lock(state_->mutex);
  SpanCounts counts = state_->counts;
  counts.waiting = state_->waiting.size() + state_->sending;
  return counts;
}

}  // namespace hpvm::server
