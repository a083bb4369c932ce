// SPDX-License-Identifier: Apache-2.0
// The jobs that the chaos test submits. A job is determined by a few numbers, which the journal keeps, so that a
// restarted client sends the same request again, and the checker computes the expected result.
#ifndef HPVMD_TESTS_CHAOS_WORK_H_
#define HPVMD_TESTS_CHAOS_WORK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "hpvm/v1/service.pb.h"

namespace hpvm::chaos {

// The kernels are those of tests/e2e/kernels.c.
enum class Kind : uint8_t {
  kAdd,    // out[i] = in[i] + amount.
  kBump,   // The same on one port that is input and output: running it twice would show.
  kLarge,  // kAdd, with an output that the store keeps in a file.
  kSlow,   // kAdd by a slow kernel: in progress for a while.
  kTrap,   // A division by zero: must fail.
  kSpin,   // Endless: its deadline or a cancellation ends it.
  kArray,  // kAdd of one element, for each index of an array.
};
inline constexpr int kKinds = 7;
const char* Name(Kind kind);

struct Work {
  std::string key;
  Kind kind = Kind::kAdd;
  uint32_t amount = 1;       // 1 to 4.
  uint64_t seed = 0;         // For the input.
  uint32_t count = 16;       // Elements of the input.
  uint32_t elements = 0;     // Elements of the array of jobs.
  std::string retry_of;      // Id of a finished job to retry; empty for a submission.
  std::string after;         // A job's id; none when empty.
  int condition = 0;         // v1::JobDependency::Condition.
  uint64_t deadline_ms = 0;  // The server's default when 0.
  uint32_t attempts_max = 10;
};

// Formats "kind=add\tamount=1…", and parses it.
std::string ToText(const Work& work);
Work WorkOf(const std::map<std::string, std::string>& fields);

// Makes the next work from a seed. `earlier` is an id that it may depend on; none when empty.
Work MakeWork(Rng& rng, std::string key, const std::string& earlier);

// Returns the document of a kind, whose only module is "k".
std::string DocumentOf(Kind kind, uint32_t amount);
v1::SubmitRequest RequestOf(const Work& work, const std::string& graph_sha256, const std::string& module_sha256);
// Return the port names.
std::string InputOf(Kind kind);
std::string OutputOf(Kind kind);
std::vector<int32_t> ValuesOf(const Work& work);

}  // namespace hpvm::chaos

#endif  // HPVMD_TESTS_CHAOS_WORK_H_
