// SPDX-License-Identifier: Apache-2.0
// The lines of `hpvmctl submit --each FILE`: a JSON object a line, which says what one job has besides the command's
// options.
#ifndef HPVMD_CLIENT_CTL_JOB_SUBMIT_EACH_H_
#define HPVMD_CLIENT_CTL_JOB_SUBMIT_EACH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/ctl/graph_job.h"

#include "base/status.h"

namespace hpvm::ctl {

struct JobLine {
  uint64_t number = 0;  // From 1.
  std::string graph;    // Another document than the command's; empty: that one.
  std::string name, key;
  std::vector<std::string> inputs, outputs, symbols, labels;  // Words as on the command line: "A=a.npy".

  // Besides what is said there; {index} in its outputs becomes the line's number.
  void AddTo(GraphArguments* arguments) const;
};

// kInvalidArgument names the line, the field and what is wanted. Empty lines are left out; a file without any other is
// refused.
StatusOr<std::vector<JobLine>> ParseJobLines(const std::string& text, const std::string& file);
// "-": standard input.
StatusOr<std::vector<JobLine>> ReadJobLines(const std::string& file);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_SUBMIT_EACH_H_
