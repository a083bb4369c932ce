// SPDX-License-Identifier: Apache-2.0
#include "tests/diff/campaign.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "compiler/back/llvm/llvm_back.h"
#include "tests/diff/case.h"
#include "tests/diff/encode.h"
#include "tests/diff/shrink.h"
#include "tests/spmd/time_limit.h"

namespace hpvm::diff {
namespace {

constexpr uint32_t kJobsMax = 64;
constexpr uint32_t kFindingsMax = 256;
constexpr uint32_t kSeedsAtOnce = 8;
// A program takes milliseconds.
constexpr unsigned kSecondsMax = 30;
constexpr unsigned kShrinkSecondsMax = 600;

struct SharedFinding {
  uint64_t seed;
  Verdict verdict;
  uint32_t nodes_before, nodes;
  uint64_t module_bytes;
  char explanation[512];
  char path[256];
};

// Shared between the processes of a campaign.
struct Board {
  std::atomic<uint64_t> next;
  std::atomic<uint64_t> modules, compared_with_v8, trapped, barriers, simd, too_long, instances, bytes;
  std::atomic<uint32_t> findings;  // Claimed slots; a slot is complete once its process has continued or ended.
  std::atomic<bool> had_v8, is_late;
  // The seed each job is at, and the end of its current chunk.
  std::atomic<uint64_t> at[kJobsMax];
  std::atomic<uint64_t> chunk_end[kJobsMax];
  SharedFinding list[kFindingsMax];
};

using Begin = std::chrono::steady_clock::time_point;
double Seconds(Begin start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

void Copy(const std::string& text, char* into, size_t bytes) {
  const size_t length = std::min(text.size(), bytes - 1);
  std::memcpy(into, text.data(), length);
  into[length] = '\0';
}

// Checks a program in a separate process, so that it may crash or hang.
Verdict CheckApart(const Program& program, const CheckOptions& options) {
  const pid_t child = fork();
  if (child == 0) {
    spmd::LimitSeconds(kSecondsMax);
    _exit(static_cast<int>(Check(program, options).verdict));
  }
  int status = 0;
  while (child < 0 || (waitpid(child, &status, 0) < 0 && errno == EINTR)) {
  }
  if (WIFEXITED(status)) {
    return static_cast<Verdict>(WEXITSTATUS(status));
  }
  return WTERMSIG(status) == SIGALRM ? Verdict::kHang : Verdict::kCrash;
}

class Campaign {
 public:
  Campaign(const CampaignOptions& options, Board& board) : options_(options), board_(board) {}

  void Start(uint32_t job);
  // Waits for all jobs, and replaces those that die.
  void Supervise();

 private:
  void Work(uint32_t job);
  void RunSeed(uint64_t seed, const CheckOptions& options);
  void Count(const Program& program, const CheckResult& result);
  // Shrinks and writes the program that gave `verdict`.
  void Record(uint64_t seed, Verdict verdict, const std::string& explanation, const CheckOptions& options);
  void WriteFinding(const Program& program, const CheckResult& result, SharedFinding& finding);

  const CampaignOptions& options_;
  Board& board_;
  const Begin start_ = std::chrono::steady_clock::now();
  std::vector<pid_t> pids_;
};

void Campaign::Start(uint32_t job) {
  const pid_t child = fork();
  if (child == 0) {
    Work(job);
    _exit(0);
  }
  pids_.resize(std::max<size_t>(pids_.size(), job + 1));
  pids_[job] = child;
}

void Campaign::Work(uint32_t job) {
  std::unique_ptr<V8> v8;
  if (options_.with_v8) {
    StatusOr<std::unique_ptr<V8>> started = V8::Start(options_.server_script);
    if (started.ok()) {
      v8 = *std::move(started);
      board_.had_v8 = true;
    }
  }
  CheckOptions check;
  check.v8 = v8.get();
  check.fault = options_.fault;
  check.form = options_.form;
  while (board_.findings < options_.findings_max && !board_.is_late) {
    // First the rest of a chunk whose process died.
    if (board_.at[job] >= board_.chunk_end[job]) {
      const uint64_t begin = board_.next.fetch_add(kSeedsAtOnce);
      if (begin > options_.last) {
        return;
      }
      board_.is_late = options_.seconds_max > 0 && Seconds(start_) > options_.seconds_max;
      board_.at[job] = begin;
      board_.chunk_end[job] = std::min(begin + kSeedsAtOnce, options_.last + 1);
    }
    for (; board_.at[job] < board_.chunk_end[job]; ++board_.at[job]) {
      spmd::LimitSeconds(kSecondsMax);
      RunSeed(board_.at[job], check);
    }
  }
}

void Campaign::Count(const Program& program, const CheckResult& result) {
  ++board_.modules;
  board_.compared_with_v8 += result.ran_on_v8 ? 1 : 0;
  board_.too_long += result.verdict == Verdict::kTooLong ? 1 : 0;
  board_.trapped += result.expected && result.expected->trap.code != ir::TrapCode::kNone ? 1 : 0;
  board_.barriers += program.has_barrier ? 1 : 0;
  bool has_vectors = false;
  for (const Function& function : program.functions) {
    ForEachNode(function.body, [&](const Node& node) { has_vectors |= node.type == ValueType::kV128; });
  }
  board_.simd += has_vectors ? 1 : 0;
  board_.instances += program.instances();
  board_.bytes += result.module.size();
}

void Campaign::RunSeed(uint64_t seed, const CheckOptions& options) {
  const Program program = Generate(seed, options_.features);
  const CheckResult result = Check(program, options);
  Count(program, result);
  if (result.verdict != Verdict::kSame && result.verdict != Verdict::kTooLong) {
    Record(seed, result.verdict, result.explanation, options);
  }
}

void Campaign::WriteFinding(const Program& program, const CheckResult& result, SharedFinding& finding) {
  Case item;
  item.note =
      "Seed " + std::to_string(finding.seed) + ", " + std::string(Name(finding.verdict)) + ": " + finding.explanation;
  item.module = result.module;
  item.launch = LaunchOf(program);
  item.only_whether = program.has_barrier;
  if (result.expected) {
    item.expected = *result.expected;
  }
  const std::string path = options_.found_folder + "/seed-" + std::to_string(finding.seed);
  if (Write(item, path).ok()) {
    Copy(path, finding.path, sizeof(finding.path));
  }
}

void Campaign::Record(uint64_t seed, Verdict verdict, const std::string& explanation, const CheckOptions& options) {
  const uint32_t index = board_.findings.fetch_add(1);
  if (index >= std::min(kFindingsMax, options_.findings_max)) {
    return;
  }
  SharedFinding& finding = board_.list[index];
  finding.seed = seed;
  finding.verdict = verdict;
  Copy(explanation, finding.explanation, sizeof(finding.explanation));
  spmd::LimitSeconds(kShrinkSecondsMax);
  Program program = Generate(seed, options_.features);
  finding.nodes_before = CountNodes(program);
  // V8 is used only when it is what differs; its refusal cannot be told from an invalid module.
  CheckOptions shrinking = options;
  shrinking.v8 = verdict == Verdict::kV8Differs || verdict == Verdict::kV8Fails ? options.v8 : nullptr;
  if (shrinking.v8 == nullptr) {
    // Pinned nodes keep addresses within V8's memory.
    for (Function& function : program.functions) {
      ForEachNode(function.body, [](Node& node) { node.is_pinned = false; });
    }
  }
  if (verdict != Verdict::kRefused && verdict != Verdict::kV8Fails && options_.shrink_tries > 0) {
    program = Shrink(
        std::move(program), [&](const Program& candidate) { return CheckApart(candidate, shrinking) == verdict; },
        options_.shrink_tries);
  }
  finding.nodes = CountNodes(program);
  // For a crash only the module is known.
  CheckResult result;
  if (verdict != Verdict::kCrash && verdict != Verdict::kHang) {
    result = Check(program, options);
    Copy(result.explanation, finding.explanation, sizeof(finding.explanation));
  } else {
    result.module = Encode(program, Dialect::kKernel).value_or(std::vector<uint8_t>());
  }
  finding.module_bytes = result.module.size();
  if (!options_.found_folder.empty()) {
    WriteFinding(program, result, finding);
  }
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
    const bool hung = WTERMSIG(status) == SIGALRM;
    CheckOptions check;
    check.fault = options_.fault;
    check.form = options_.form;
    ++board_.modules;
    Record(seed, hung ? Verdict::kHang : Verdict::kCrash,
           "The process ended by signal " + std::to_string(WTERMSIG(status)) + ".", check);
    spmd::LimitSeconds(0);
    board_.at[job] = seed + 1;
    Start(job);
  }
}

}  // namespace

StatusOr<CampaignResult> RunCampaign(const CampaignOptions& options) {
  cpu::InitializeLlvm();
  void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    return FromErrno(errno, "Mapping shared memory");
  }
  auto* board = new (shared) Board();
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
  result.had_v8 = board->had_v8;
  result.tally = {board->modules, board->compared_with_v8, board->trapped,   board->barriers,
                  board->simd,    board->too_long,         board->instances, board->bytes};
  const uint32_t count = std::min({board->findings.load(), options.findings_max, kFindingsMax});
  for (uint32_t i = 0; i < count; ++i) {
    const SharedFinding& from = board->list[i];
    result.findings.push_back(
        {from.seed, from.verdict, from.explanation, from.path, from.nodes_before, from.nodes, from.module_bytes});
  }
  munmap(shared, sizeof(Board));
  return result;
}

}  // namespace hpvm::diff
