// SPDX-License-Identifier: Apache-2.0
// What the kernels of one run said: the lines they printed, and what a checked run found. Bounded, whatever a kernel
// does (limits::kLogLinesMax, kLogBytesMax, kFindingsMax).
// A device whose kernels cannot call the host lets them append records to a buffer of its own, and hands these to a
// LaunchPrinter when the launch has ended, also by a trap.
//
// When more is said than fits, the first of the order below stay, so that a run that ends says the same however its
// instances were spread over threads: by repetition, node, instance (x fastest), and in order within an instance.
#ifndef HPVMD_BACKENDS_CONTRACT_LAUNCH_LOG_H_
#define HPVMD_BACKENDS_CONTRACT_LAUNCH_LOG_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "compiler/api/artifact.h"
#include "compiler/ir/launch.h"

namespace hpvm {

struct PrintedLine {
  uint32_t repetition = 0;
  uint32_t node = 0;  // DispatchCommand::node.
  std::array<uint64_t, 3> instance{};
  uint64_t order = 0;  // Grows within an instance.
  std::string text;    // One line, without its end. Any bytes.
};

// What a checked run found wrong with one kernel.
struct Finding {
  uint32_t node = 0;
  std::string kind;                                // "race", "uninitialised read" ...
  std::string message;                             // A sentence that names instances, buffer and source line.
  std::vector<std::array<uint64_t, 3>> instances;  // Those involved; at most two.
  std::string buffer;                              // The port, where one is involved.
  std::string place;                               // Of the first: "blur.c:17:9"; may be empty.
  uint64_t count = 1;                              // How often it was seen.
};

class LaunchLog {
 public:
  // The lines that follow belong to this repetition of the graph. Between launches.
  void SetRepetition(uint32_t repetition) { repetition_ = repetition; }

  // Whether a line of that instance could be among those kept; cheap. Any thread.
  bool Takes(uint32_t node, const std::array<uint64_t, 3>& instance);
  // Adds each line of `text`. Any thread.
  void Print(uint32_t node, const std::array<uint64_t, 3>& instance, std::string_view text);
  // Counts a line that Takes has refused. Any thread.
  void Drop() { dropped_.fetch_add(1, std::memory_order_relaxed); }
  void AddFinding(Finding finding);
  // Findings that the device did not keep. Any thread.
  void DropFindings(uint64_t count);
  // A check ran out of the memory for its record, so that some faults may have gone unseen. Any thread.
  void SetCheckIncomplete() { check_incomplete_.store(true, std::memory_order_relaxed); }

  // In order; the log is empty afterwards. After the run.
  std::vector<PrintedLine> TakeLines();
  std::vector<Finding> TakeFindings();
  // Lines and findings that did not fit; exact for lines after TakeLines.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint64_t findings_dropped() const { return findings_dropped_; }
  bool check_incomplete() const { return check_incomplete_.load(std::memory_order_relaxed); }

 private:
  void AddLine(PrintedLine line);
  void Cut();
  bool IsPastCut(const PrintedLine& line) const;

  std::mutex mutex_;
  uint32_t repetition_ = 0;         // Written between launches only.
  std::vector<PrintedLine> lines_;  // Guarded by mutex_; up to twice the bounds.
  size_t bytes_ = 0;                // Guarded by mutex_.
  uint64_t order_ = 0;              // Guarded by mutex_.
  std::vector<Finding> findings_;   // Guarded by mutex_.
  uint64_t findings_dropped_ = 0;   // Guarded by mutex_.
  PrintedLine last_kept_;           // Guarded by mutex_; what sorts after it is dropped.
  std::atomic<bool> has_cut_{false};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<bool> check_incomplete_{false};
};

// The sink of one launch: formats what its instances print. A null log drops it.
class LaunchPrinter final : public ir::PrintSink {
 public:
  // All are borrowed. Strings of %s come from the artifact's data.
  LaunchPrinter(LaunchLog* log, uint32_t node, const Artifact& artifact)
      : log_(log), node_(node), artifact_(artifact) {}
  void Print(const std::array<uint64_t, 3>& instance, uint32_t format, std::span<const uint64_t> values) override;

 private:
  LaunchLog* const log_;
  const uint32_t node_;
  const Artifact& artifact_;
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_LAUNCH_LOG_H_
