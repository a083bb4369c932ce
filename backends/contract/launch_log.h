// SPDX-License-Identifier: Apache-2.0
// LaunchLog holds the output of the kernels of one run: printed lines, and findings of a checked run. It is bounded,
// whatever a kernel does (limits::kLogLinesMax, kLogBytesMax, kFindingsMax). A device whose kernels cannot call the
// host lets them append records to a buffer, and passes these to a LaunchPrinter when the launch has ended, also by a
// trap.
//
// When there is more output than fits, the first entries in the following order are kept, so that a run that ends has
// the same log however its instances were spread over threads: by repetition, node, instance (x fastest), and in order
// within an instance.
#ifndef HPVMD_BACKENDS_CONTRACT_LAUNCH_LOG_H_
#define HPVMD_BACKENDS_CONTRACT_LAUNCH_LOG_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
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
  uint64_t order = 0;  // Increases within an instance.
  std::string text;    // One line, without terminator. Any bytes.
};

// A fault that a checked run found in one kernel.
struct Finding {
  uint32_t node = 0;
  std::string kind;                                // "race", "uninitialised read" ...
  std::string message;                             // A full sentence that names instances, buffer and source line.
  std::vector<std::array<uint64_t, 3>> instances;  // Instances involved; at most two.
  std::string buffer;                              // The port, when a buffer is involved.
  std::string place;   // Source position of the first instance, such as "blur.c:17:9"; may be empty.
  uint64_t count = 1;  // Number of occurrences.
};

class LaunchLog {
 public:
  // Sets the repetition of the graph to which later lines belong. Call between launches.
  void SetRepetition(uint32_t repetition) { repetition_ = repetition; }
  // The listener receives each line as it is printed, in that order, up to as many lines or bytes as the log keeps.
  // Called by the printing threads, one at a time; must be quick, and must not call the log. Call between launches.
  void SetListener(std::function<void(const PrintedLine&)> listener) { listener_ = std::move(listener); }

  // Returns true when a line of that instance could be among those kept; cheap. Thread-safe.
  bool Takes(uint32_t node, const std::array<uint64_t, 3>& instance);
  // Adds each line of `text`. Thread-safe.
  void Print(uint32_t node, const std::array<uint64_t, 3>& instance, std::string_view text);
  // Counts a line that Takes has refused. Thread-safe.
  void Drop() { dropped_.fetch_add(1, std::memory_order_relaxed); }
  void AddFinding(Finding finding);
  // Counts findings that the device did not keep. Thread-safe.
  void DropFindings(uint64_t count);
  // A check ran out of memory for its record, so some faults may have been missed. Thread-safe.
  void SetCheckIncomplete() { check_incomplete_.store(true, std::memory_order_relaxed); }

  // Return the entries in order and empty the log. Call after the run.
  std::vector<PrintedLine> TakeLines();
  std::vector<Finding> TakeFindings();
  // Number of lines and findings that did not fit; exact for lines after TakeLines.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint64_t findings_dropped() const { return findings_dropped_; }
  bool check_incomplete() const { return check_incomplete_.load(std::memory_order_relaxed); }

 private:
  void Tell(const PrintedLine& line);
  void AddLine(PrintedLine line);
  void Cut();
  bool IsPastCut(const PrintedLine& line) const;

  std::mutex mutex_;
  uint32_t repetition_ = 0;  // Written only between launches, like the listener.
  std::function<void(const PrintedLine&)> listener_;
  size_t told_lines_ = 0, told_bytes_ = 0;  // Guarded by mutex_; passed to the listener.
  std::vector<PrintedLine> lines_;          // Guarded by mutex_; up to twice the bounds.
  size_t bytes_ = 0;                        // Guarded by mutex_.
  uint64_t order_ = 0;                      // Guarded by mutex_.
  std::vector<Finding> findings_;           // Guarded by mutex_.
  uint64_t findings_dropped_ = 0;           // Guarded by mutex_.
  PrintedLine last_kept_;                   // Guarded by mutex_; lines that sort after it are dropped.
  std::atomic<bool> has_cut_{false};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<bool> check_incomplete_{false};
};

// LaunchPrinter is the print sink of one launch: it formats its instances' output. A null log drops it.
class LaunchPrinter final : public ir::PrintSink {
 public:
  // All are borrowed. Strings for %s come from the artifact's data.
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
