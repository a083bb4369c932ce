// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/load.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace hpvm::chaos {
namespace {

constexpr size_t kOldIdsMax = 200;
constexpr Duration kPollPause = std::chrono::milliseconds(20);

bool HasEnded(v1::JobState state) { return state >= v1::JOB_STATE_SUCCEEDED; }

// The outcome is open: the same key may be sent again.
bool IsUncertain(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kNotFound:  // An upload that was lost in a restart.
      return true;
    default:
      return false;
  }
}

std::string Number(const char* name, int64_t value) { return std::string("\t") + name + "=" + std::to_string(value); }

}  // namespace

Load::Load(const LoadOptions& options, Journal journal) : options_(options), journal_(std::move(journal)) {
  connection_ = std::make_unique<Connection>(options.endpoint, options.tenant, options.module, journal_);
}

StatusOr<std::unique_ptr<Load>> Load::Start(const LoadOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(Journal journal, Journal::Open(options.journal));
  std::unique_ptr<Load> load(new Load(options, std::move(journal)));
  load->Replay(options.journal);
  for (int i = 0; i < options.threads; ++i) {
    load->threads_.emplace_back(
        [load = load.get(), seed = options.seed * 1000 + static_cast<uint64_t>(i)] { load->Loop(seed); });
  }
  return load;
}

Load::~Load() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Load::Replay(const std::string& path) {
  std::map<std::string, Tracked*> by_key;
  Journal::Read(path, [&](const std::string& op, const Journal::Fields& fields) {
    const auto text = [&](const char* name) {
      const auto found = fields.find(name);
      return found == fields.end() ? std::string() : found->second;
    };
    if (op == "round") {
      tracked_.clear();
      by_id_.clear();
      by_key.clear();
      round_unix_ns_ = std::strtoll(text("unix_ns").c_str(), nullptr, 10);
    } else if (op == "send" && !by_key.contains(text("key"))) {
      tracked_.push_back(std::make_unique<Tracked>());
      tracked_.back()->work = WorkOf(fields);
      tracked_.back()->is_sent = true;
      by_key[text("key")] = tracked_.back().get();
      ++next_key_;
    } else if (op == "refused" && by_key.contains(text("key"))) {
      by_key[text("key")]->is_refused = true;
    }
  }).IgnoreError();
  // Keys must differ from those of the previous process, any number of which may not have reached the journal.
  next_key_ += static_cast<uint64_t>(getpid()) * 1'000'000'000;
}

void Load::Go() {
  std::lock_guard lock(mutex_);
  is_paused_ = false;
  changed_.notify_all();
}

void Load::Pause() {
  std::unique_lock lock(mutex_);
  is_paused_ = true;
  changed_.wait(lock, [this] { return busy_ == 0; });
}

void Load::Loop(uint64_t seed) {
  SeededRng rng(seed);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !is_paused_ || stop_; });
      if (stop_) {
        return;
      }
      ++busy_;
    }
    Step(rng);
    {
      std::lock_guard lock(mutex_);
      --busy_;
      changed_.notify_all();
    }
    usleep(static_cast<useconds_t>(rng.Below(2 * static_cast<uint64_t>(options_.pause_us) + 1)));
  }
}

void Load::Step(Rng& rng) {
  const uint64_t roll = rng.Below(100);
  if (roll < 45) {
    SubmitNew(rng);
  } else if (roll < 55) {
    RunNow(rng);
  } else if (roll < 62) {
    // Sends a random key once more, known or not.
    size_t index = 0;
    {
      std::lock_guard lock(mutex_);
      if (tracked_.empty()) {
        return;
      }
      index = rng.Below(tracked_.size());
    }
    Send(index);
  } else {
    Look(rng);
  }
}

void Load::SubmitNew(Rng& rng) {
  std::string earlier = RandomId(rng);
  size_t index = 0;
  {
    std::lock_guard lock(mutex_);
    if (live_ >= options_.live_max) {
      return;
    }
    if (!by_id_.contains(earlier)) {
      earlier.clear();  // From an earlier round: the daemon may forget it any time.
    }
    auto tracked = std::make_unique<Tracked>();
    tracked->work = MakeWork(rng, options_.tenant + "-" + std::to_string(next_key_++), earlier);
    const auto found = by_id_.find(earlier);
    // Occasionally retries a finished job.
    if (found != by_id_.end() && found->second.second && rng.Below(100) < 6) {
      const Work& before = found->second.first->work;
      if (before.kind != Kind::kArray && before.after.empty() && before.retry_of.empty()) {
        const std::string key = tracked->work.key;
        tracked->work = before;
        tracked->work.key = key;
        tracked->work.retry_of = earlier;
      }
    }
    index = tracked_.size();
    tracked_.push_back(std::move(tracked));
    ++live_;
  }
  Send(index);
}

void Load::Send(size_t index) {
  Tracked* tracked = nullptr;
  Work work;
  {
    std::lock_guard lock(mutex_);
    tracked = tracked_[index].get();
    if (tracked->is_refused) {
      return;
    }
    work = tracked->work;
    tracked->is_sent = true;
  }
  const int64_t start = NowNs();
  journal_.Write("send", "t0=" + std::to_string(start) + "\t" + ToText(work), /*durable=*/true);
  v1::SubmitResponse response;
  const Status status = connection_->Submit(work, &response);
  const std::string times = "t0=" + std::to_string(start) + Number("t1", NowNs());
  if (status.ok()) {
    std::vector<std::string> ids(response.array_job_ids().begin(), response.array_job_ids().end());
    if (ids.empty()) {
      ids.push_back(response.job().id());
    }
    std::string list;
    for (const std::string& id : ids) {
      list += (list.empty() ? "" : ",") + id;
    }
    journal_.Write("ack",
                   times + "\tkey=" + work.key + "\tids=" + list + "\tarray=" + response.job().array_id() +
                       Number("existed", response.existed()),
                   /*durable=*/true);
    {
      std::lock_guard lock(mutex_);
      if (!tracked->is_acknowledged) {
        tracked->is_acknowledged = true;
        tracked->ids = ids;
        for (const std::string& id : ids) {
          by_id_.emplace(id, std::pair(tracked, false));
        }
      }
    }
    // A job older than the daemon keeps comes back as its id and state alone.
    if (response.job().created_unix_ns() != 0) {
      Saw(response.job(), start, "ack");
    }
  } else if (!IsUncertain(status)) {
    journal_.Write("refused",
                   times + "\tkey=" + work.key + Number("code", static_cast<int>(status.code())) +
                       "\ttext=" + Clean(Message(status)),
                   /*durable=*/true);
    std::lock_guard lock(mutex_);
    live_ -= tracked->is_refused ? 0 : 1;
    tracked->is_refused = true;
  }
}

void Load::Saw(const v1::Job& job, int64_t start_ns, const char* how) {
  journal_.Write("see", "t0=" + std::to_string(start_ns) + Number("t1", NowNs()) + "\tid=" + job.id() +
                            "\tstate=" + v1::JobState_Name(job.state()) + Number("attempt", job.attempt()) +
                            Number("attempts_max", job.attempts_max()) + Number("lost", job.lost_attempts_size()) +
                            Number("code", job.error().code()) + Number("started", job.started_unix_ns()) +
                            Number("ended", job.ended_unix_ns()) + Number("cancel", job.cancel_requested()) +
                            Number("index", static_cast<int64_t>(job.array_index())) + "\tkey=" +
                            Clean(job.idempotency_key()) + "\thow=" + how + "\ttext=" + Clean(job.error().message()));
  if (HasEnded(job.state())) {
    std::lock_guard lock(mutex_);
    const auto found = by_id_.find(job.id());
    if (found != by_id_.end() && !found->second.second) {
      found->second.second = true;
      Tracked& tracked = *found->second.first;
      live_ -= ++tracked.ended == tracked.ids.size() ? 1 : 0;
    }
  }
}

std::string Load::RandomId(Rng& rng) {
  std::lock_guard lock(mutex_);
  if (!old_ids_.empty() && rng.Below(20) == 0) {
    return old_ids_[rng.Below(old_ids_.size())];
  }
  for (int tries = 0; tries < 5 && !tracked_.empty(); ++tries) {
    // Mostly one of the latest.
    const size_t span = std::min<size_t>(tracked_.size(), 100);
    const Tracked& tracked = *tracked_[tracked_.size() - 1 - rng.Below(span)];
    if (!tracked.ids.empty()) {
      return tracked.ids[rng.Below(tracked.ids.size())];
    }
  }
  return "";
}

void Load::Look(Rng& rng) {
  const std::string id = RandomId(rng);
  if (id.empty()) {
    return;
  }
  const int64_t start = NowNs();
  const uint64_t roll = rng.Below(100);
  if (roll < 50) {
    v1::Job job;
    if (connection_->GetJob(id, &job).ok()) {
      Saw(job, start, "get");
    }
  } else if (roll < 65) {
    // Each event was true at some time during the call.
    connection_
        ->Watch(id, std::chrono::milliseconds(200 + rng.Below(1'000)),
                [&](const v1::Job& job) { Saw(job, start, "watch"); })
        .IgnoreError();
  } else if (roll < 75) {
    journal_.Write("want_cancel", "t0=" + std::to_string(start) + "\tid=" + id, /*durable=*/true);
    v1::CancelJobResponse response;
    if (connection_->Cancel(id, &response).ok()) {
      journal_.Write("cancel", "t0=" + std::to_string(start) + Number("t1", NowNs()) + "\tid=" + id);
      Saw(response.job(), start, "cancel");
    }
  } else if (roll < 82) {
    v1::ListJobsRequest request;
    request.set_page_size(50);
    v1::ListJobsResponse response;
    if (connection_->List(request, &response).ok()) {
      for (const v1::Job& job : response.jobs()) {
        Saw(job, start, "list");
      }
    }
  } else {
    Work work;
    {
      std::lock_guard lock(mutex_);
      const auto found = by_id_.find(id);
      if (found == by_id_.end() || !found->second.second) {
        return;
      }
      work = found->second.first->work;
    }
    Fetch(work, id);
  }
}

void Load::Fetch(const Work& work, const std::string& id) {
  const int64_t start = NowNs();
  std::string bytes;
  const Status status = connection_->Fetch(id, OutputOf(work.kind), &bytes);
  if (status.ok()) {
    journal_.Write("output", "t0=" + std::to_string(start) + Number("t1", NowNs()) + "\tid=" + id +
                                 Number("bytes", static_cast<int64_t>(bytes.size())) +
                                 "\tsha256=" + ToHex(HashOf(bytes)));
  }
}

void Load::RunNow(Rng& rng) {
  Work work = MakeWork(rng, "", "");
  if (work.kind != Kind::kAdd && work.kind != Kind::kBump && work.kind != Kind::kLarge) {
    return;
  }
  const int64_t start = NowNs();
  std::string bytes;
  if (connection_->Run(work, &bytes).ok()) {
    journal_.Write("run", "t0=" + std::to_string(start) + Number("t1", NowNs()) + "\t" + ToText(work) +
                              "\tsha256=" + ToHex(HashOf(bytes)));
  }
}

void Load::ForEach(const std::function<void(size_t)>& each, Time deadline) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (size_t index = next++; index < tracked_.size() && RealClock().Now() < deadline; index = next++) {
        each(index);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Finds out whether the key has jobs, and follows each to its end.
bool Load::Settle(size_t index, Time deadline) {
  Tracked& tracked = *tracked_[index];
  do {
    Send(index);  // Sent again even when it was acknowledged: the ids must be the same.
    if (tracked.is_acknowledged || tracked.is_refused) {
      break;
    }
    usleep(20'000);
  } while (RealClock().Now() < deadline);
  if (tracked.is_refused) {
    return true;
  }
  for (const std::string& id : tracked.ids) {
    while (true) {
      const int64_t start = NowNs();
      v1::Job job;
      const Status got = connection_->GetJob(id, &job);
      if (got.code() == absl::StatusCode::kNotFound) {
        return false;  // Lost.
      }
      if (got.ok()) {
        Saw(job, start, "get");
        if (job.state() == v1::JOB_STATE_SUCCEEDED) {
          Fetch(tracked.work, id);
        }
        if (HasEnded(job.state())) {
          break;
        }
      }
      if (RealClock().Now() >= deadline) {
        return false;
      }
      std::this_thread::sleep_for(kPollPause);
    }
  }
  return tracked.is_acknowledged;
}

// Lists the daemon's jobs since the last round: each must belong to a key.
void Load::ListAll(Time deadline) {
  v1::ListJobsRequest request;
  request.set_page_size(1'000);
  bool is_earlier = false;
  do {
    const int64_t start = NowNs();
    v1::ListJobsResponse response;
    if (!connection_->List(request, &response).ok()) {
      std::this_thread::sleep_for(kPollPause);
      continue;
    }
    for (const v1::Job& job : response.jobs()) {
      is_earlier = is_earlier || job.created_unix_ns() < round_unix_ns_;
      if (!is_earlier) {
        Saw(job, start, "final");
      }
    }
    request.set_page_token(response.next_page_token());
    is_earlier = is_earlier || response.next_page_token().empty();
  } while (!is_earlier && RealClock().Now() < deadline);
}

bool Load::Verify(Duration within) {
  Pause();
  const Time deadline = RealClock().Now() + within;
  const int64_t now_unix_ns = RealClock().WallNs();
  std::atomic<bool> all{true};
  std::atomic<size_t> seen{0};
  ForEach(
      [&](size_t index) {
        ++seen;
        if (!Settle(index, deadline)) {
          all = false;
        }
      },
      deadline);
  ListAll(deadline);
  for (const std::string& id : std::vector<std::string>(old_ids_)) {
    const int64_t start = NowNs();
    v1::Job job;
    if (connection_->GetJob(id, &job).ok()) {
      Saw(job, start, "get");
    }
  }
  all = all && seen == tracked_.size();
  journal_.Write("round",
                 "t0=" + std::to_string(NowNs()) + Number("unix_ns", now_unix_ns) +
                     Number("keys", static_cast<int64_t>(tracked_.size())) + Number("all", all ? 1 : 0),
                 true);
  for (const auto& [id, job] : by_id_) {
    if (old_ids_.size() < kOldIdsMax && HashOf(id).bytes[0] < 16) {
      old_ids_.push_back(id);
    }
  }
  std::lock_guard lock(mutex_);
  tracked_.clear();
  by_id_.clear();
  live_ = 0;
  round_unix_ns_ = now_unix_ns;
  return all;
}

}  // namespace hpvm::chaos
