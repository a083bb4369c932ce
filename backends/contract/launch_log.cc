// SPDX-License-Identifier: Apache-2.0
#include "backends/contract/launch_log.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/limits.h"
#include "compiler/ir/text/print_format.h"

namespace hpvm {
namespace {

auto KeyOf(const PrintedLine& line) {
  return std::make_tuple(line.repetition, line.node, line.instance[2], line.instance[1], line.instance[0], line.order);
}

bool IsBefore(const PrintedLine& a, const PrintedLine& b) { return KeyOf(a) < KeyOf(b); }

}  // namespace

bool LaunchLog::IsPastCut(const PrintedLine& line) const {
  return has_cut_.load(std::memory_order_relaxed) && IsBefore(last_kept_, line);
}

bool LaunchLog::Takes(uint32_t node, const std::array<uint64_t, 3>& instance) {
  if (!has_cut_.load(std::memory_order_relaxed)) {
    return true;
  }
  std::lock_guard lock(mutex_);
  return !IsPastCut({.repetition = repetition_, .node = node, .instance = instance, .order = order_, .text = {}});
}

void LaunchLog::Print(uint32_t node, const std::array<uint64_t, 3>& instance, std::string_view text) {
  if (!text.empty() && text.back() == '\n') {
    text.remove_suffix(1);
  }
  std::lock_guard lock(mutex_);
  while (true) {
    const size_t end = text.find('\n');
    PrintedLine line{.repetition = repetition_, .node = node, .instance = instance, .order = order_++, .text = {}};
    if (IsPastCut(line)) {
      Drop();
    } else {
      const std::string_view one = text.substr(0, end);
      line.text = one.substr(0, limits::kLogLineBytesMax);
      line.text += one.size() > limits::kLogLineBytesMax ? "..." : "";
      Tell(line);
      AddLine(std::move(line));
    }
    if (end == std::string_view::npos) {
      return;
    }
    text.remove_prefix(end + 1);
  }
}

void LaunchLog::Tell(const PrintedLine& line) {
  if (listener_ && told_lines_ < limits::kLogLinesMax && told_bytes_ + line.text.size() <= limits::kLogBytesMax) {
    ++told_lines_;
    told_bytes_ += line.text.size();
    listener_(line);
  }
}

void LaunchLog::AddLine(PrintedLine line) {
  bytes_ += line.text.size();
  lines_.push_back(std::move(line));
  // Sorting only when twice the bound is reached gives constant amortised cost per line.
  if (lines_.size() > 2 * limits::kLogLinesMax || bytes_ > 2 * limits::kLogBytesMax) {
    Cut();
  }
}

// Sorts, and drops entries beyond the bounds.
void LaunchLog::Cut() {
  std::sort(lines_.begin(), lines_.end(), IsBefore);
  size_t kept = 0, bytes = 0;
  while (kept < lines_.size() && kept < limits::kLogLinesMax &&
         bytes + lines_[kept].text.size() <= limits::kLogBytesMax) {
    bytes += lines_[kept++].text.size();
  }
  if (kept == lines_.size()) {
    return;
  }
  dropped_.fetch_add(lines_.size() - kept, std::memory_order_relaxed);
  lines_.resize(kept);
  bytes_ = bytes;
  // A line has at most limits::kLogLineBytesMax bytes, so some are kept.
  last_kept_ = lines_.back();
  last_kept_.text.clear();
  has_cut_.store(true, std::memory_order_relaxed);
}

void LaunchLog::AddFinding(Finding finding) {
  std::lock_guard lock(mutex_);
  if (findings_.size() < limits::kFindingsMax) {
    findings_.push_back(std::move(finding));
  } else {
    ++findings_dropped_;
  }
}

void LaunchLog::DropFindings(uint64_t count) {
  std::lock_guard lock(mutex_);
  findings_dropped_ += count;
}

std::vector<PrintedLine> LaunchLog::TakeLines() {
  std::lock_guard lock(mutex_);
  Cut();
  bytes_ = 0;
  has_cut_.store(false, std::memory_order_relaxed);
  return std::exchange(lines_, {});
}

std::vector<Finding> LaunchLog::TakeFindings() {
  std::lock_guard lock(mutex_);
  return std::exchange(findings_, {});
}

void LaunchPrinter::Print(const std::array<uint64_t, 3>& instance, uint32_t format, std::span<const uint64_t> values) {
  if (log_ == nullptr || format >= artifact_.formats.size()) {
    return;
  }
  if (!log_->Takes(node_, instance)) {
    log_->Drop();
    return;
  }
  log_->Print(node_, instance, ir::FormatPrint(artifact_.formats[format], values, artifact_.data));
}

}  // namespace hpvm
