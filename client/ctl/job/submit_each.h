// SPDX-License-Identifier: Apache-2.0
// Lines of `hpvmctl submit --each FILE`: one JSON object per line, with what one job has in addition to the command's
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
  uint64_t number = 0;  // Line number, from 1.
  std::string graph;    // A document that replaces the command's, unless empty.
  std::string name, key;
  std::vector<std::string> inputs, outputs, symbols, labels;  // Words as on the command line: "A=a.npy".

  // Adds the line's words to `arguments`; {index} in its outputs becomes the line's number.
  void AddTo(GraphArguments* arguments) const;
};

// kInvalidArgument names the line, the field and the expected value. Empty lines are skipped; a file without other
// lines is refused.
StatusOr<std::vector<JobLine>> ParseJobLines(const std::string& text, const std::string& file);
// "-" reads standard input.
StatusOr<std::vector<JobLine>> ReadJobLines(const std::string& file);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_SUBMIT_EACH_H_
