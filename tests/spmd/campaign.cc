// SPDX-License-Identifier: Apache-2.0
#include "tests/spmd/campaign.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>

#include "compiler/back/llvm/llvm_back.h"
#include "tests/spmd/generate.h"
#include "tests/spmd/shrink.h"
#include "tests/spmd/time_limit.h"

namespace hpvm::spmd {
namespace {

constexpr uint32_t kJobsMax = 64;
constexpr uint32_t kSeedsAtOnce = 4;
// A kernel takes some hundred milliseconds; compiles of wide tiles on a busy machine some seconds.
constexpr unsigned kSecondsMax = 60;
constexpr size_t kExplanationBytes = 600;

// Shared between the processes of a campaign.
struct Board {
  std::atomic<uint64_t> next;
  std::atomic<uint64_t> kernels, instances, images, runs, gang_runs, unchecked_runs, trapped, refused, too_long;
  std::atomic<uint32_t> findings;
  std::atomic<bool> is_late;
  // The seed each job is at, and the end of its current chunk.
  std::atomic<uint64_t> at[kJobsMax];
  std::atomic<uint64_t> chunk_end[kJobsMax];
  char stage[kJobsMax][kStageBytes];
};

// The result that a child process returns.
struct Answer {
  Verdict verdict;
  char explanation[kExplanationBytes];
  char stage[kStageBytes];
};

template <typename T>
T* Share() {
  void* shared = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  HPVMD_CHECK(shared != MAP_FAILED);
  return new (shared) T();
}

using Begin = std::chrono::steady_clock::time_point;
double Seconds(Begin start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

std::string SignalText(int signal, const char* stage) {
  return std::string("Signal ") + std::to_string(signal) + " while at: " + stage + ".";
}

class Campaign {
 public:
  Campaign(const CampaignOptions& options, Board& board) : options_(options), board_(board) {}

  void Start(uint32_t job);
  // Waits for all jobs, and replaces those that die.
  void Supervise();

 private:
  void Work(uint32_t job);
  void RunSeed(uint64_t seed, uint32_t job);
  void Count(const Kernel& kernel, const CheckResult& result);
  // Shrinks, prints and writes the kernel of `seed`.
  void Record(uint64_t seed, Verdict verdict, const std::string& explanation);

  const CampaignOptions& options_;
  Board& board_;
  const Begin start_ = std::chrono::steady_clock::now();
  std::vector<pid_t> pids_;
};

void Campaign::Start(uint32_t job) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    Work(job);
    std::fflush(stdout);
    _exit(0);
  }
  pids_.resize(std::max<size_t>(pids_.size(), job + 1));
  pids_[job] = child;
}

void Campaign::Work(uint32_t job) {
  while (board_.findings < options_.findings_max && !board_.is_late) {
    // First the rest of a chunk whose process died.
    if (board_.at[job] >= board_.chunk_end[job]) {
      const uint64_t begin = board_.next.fetch_add(kSeedsAtOnce);
      if (begin > options_.last) {
        return;
      }
      board_.at[job] = begin;
      board_.chunk_end[job] = std::min(begin + kSeedsAtOnce, options_.last + 1);
    }
    for (; board_.at[job] < board_.chunk_end[job]; ++board_.at[job]) {
      board_.is_late = board_.is_late || (options_.seconds_max > 0 && Seconds(start_) > options_.seconds_max);
      if (board_.is_late) {
        return;
      }
      LimitSeconds(kSecondsMax);
      RunSeed(board_.at[job], job);
      LimitSeconds(0);
    }
  }
}

void Campaign::Count(const Kernel& kernel, const CheckResult& result) {
  ++board_.kernels;
  board_.instances += kernel.instances();
  board_.images += result.images;
  board_.runs += result.runs;
  board_.gang_runs += result.gang_runs;
  board_.unchecked_runs += result.unchecked_runs;
  board_.trapped += result.has_trapped ? 1 : 0;
  board_.refused += result.is_refused ? 1 : 0;
  board_.too_long += result.verdict == Verdict::kTooLong ? 1 : 0;
}

void Campaign::RunSeed(uint64_t seed, uint32_t job) {
  const Kernel kernel = Generate(seed);
  CheckOptions check = options_.check;
  check.stage = board_.stage[job];
  const CheckResult result = Check(kernel, check);
  Count(kernel, result);
  if (IsFinding(result.verdict)) {
    LimitSeconds(0);
    Record(seed, result.verdict, result.explanation);
  }
}

void Campaign::Record(uint64_t seed, Verdict verdict, const std::string& explanation) {
  if (board_.findings.fetch_add(1) >= options_.findings_max) {
    return;
  }
  Kernel kernel = Generate(seed);
  const uint64_t before = CountOps(kernel.module);
  CheckOptions check = options_.check;
  check.is_race_checked = true;
  std::string last = explanation;
  const auto is_wanted = [&](const Kernel& candidate) {
    const CheckResult result = CheckApart(candidate, check);
    if (result.verdict == verdict) {
      last = result.explanation;
    }
    return result.verdict == verdict;
  };
  if (options_.shrink_tries > 0 && is_wanted(kernel)) {
    kernel = Shrink(std::move(kernel), is_wanted, options_.shrink_tries);
  }
  std::string text = ToText(kernel);
  std::printf("FOUND seed %" PRIu64 ": %s. %s\n  %" PRIu64 " operations, shrunk to %" PRIu64 ": %s\n", seed,
              std::string(Name(verdict)).c_str(), explanation.c_str(), before, CountOps(kernel.module), last.c_str());
  if (options_.found_folder.empty()) {
    std::printf("%s", text.c_str());
  } else {
    const std::string path = options_.found_folder + "/seed-" + std::to_string(seed) + ".ir";
    std::ofstream(path) << ";; " << Name(verdict) << ": " << last << "\n" << text;
    std::printf("  %s\n", path.c_str());
  }
  std::fflush(stdout);
}

void Campaign::Supervise() {
  for (;;) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (ended < 0) {
      return;
    }
    const auto job = static_cast<uint32_t>(std::find(pids_.begin(), pids_.end(), ended) - pids_.begin());
    if (job >= pids_.size() || !WIFSIGNALED(status)) {
      continue;
    }
    // The seed it was at is a finding; a successor continues after it.
    const uint64_t seed = board_.at[job];
    const bool is_hang = WTERMSIG(status) == SIGALRM;
    ++board_.kernels;
    Record(seed, is_hang ? Verdict::kHang : Verdict::kCrash, SignalText(WTERMSIG(status), board_.stage[job]));
    board_.at[job] = seed + 1;
    Start(job);
  }
}

}  // namespace

CheckResult CheckApart(const Kernel& kernel, const CheckOptions& options) {
  auto* answer = Share<Answer>();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    LimitSeconds(kSecondsMax);
    CheckOptions apart = options;
    apart.stage = answer->stage;
    const CheckResult result = Check(kernel, apart);
    answer->verdict = result.verdict;
    std::snprintf(answer->explanation, kExplanationBytes, "%s", result.explanation.c_str());
    _exit(0);
  }
  int status = 0;
  while (child < 0 || (waitpid(child, &status, 0) < 0 && errno == EINTR)) {
  }
  CheckResult result;
  result.verdict = answer->verdict;
  result.explanation = answer->explanation;
  if (WIFSIGNALED(status)) {
    result.verdict = WTERMSIG(status) == SIGALRM ? Verdict::kHang : Verdict::kCrash;
    result.explanation = SignalText(WTERMSIG(status), answer->stage);
  }
  munmap(answer, sizeof(Answer));
  return result;
}

StatusOr<CampaignResult> RunCampaign(const CampaignOptions& options) {
  cpu::InitializeLlvm();
  auto* board = Share<Board>();
  board->next = options.first;
  const auto start = std::chrono::steady_clock::now();
  Campaign campaign(options, *board);
  for (uint32_t job = 0; job < std::clamp(options.jobs, 1u, kJobsMax); ++job) {
    campaign.Start(job);
  }
  campaign.Supervise();
  CampaignResult result;
  result.seconds = Seconds(start);
  result.last = std::min(board->next.load(), options.last + 1) - 1;
  result.tally = {board->kernels,        board->instances, board->images,  board->runs,    board->gang_runs,
                  board->unchecked_runs, board->trapped,   board->refused, board->too_long};
  result.findings = std::min(board->findings.load(), options.findings_max);
  munmap(board, sizeof(Board));
  return result;
}

}  // namespace hpvm::spmd
