// SPDX-License-Identifier: Apache-2.0
// Runner executes the commands of a script and counts which held.
#ifndef HPVMD_TESTS_WAST_RUNNER_H_
#define HPVMD_TESTS_WAST_RUNNER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "tests/wast/engine.h"
#include "tests/wast/script.h"
#include "tests/wast/store.h"

namespace hpvm::wast {

struct Totals {
  uint64_t passed = 0, failed = 0;
  uint64_t skipped = 0;  // Modules in the text format: hpvmd reads the binary one.
};

class Runner {
 public:
  // Borrows `engine`. With `verbose`, every command is printed, and why modules were refused.
  static StatusOr<std::unique_ptr<Runner>> Create(Engine& engine, bool verbose);
  // Prints failures as "file:line: command: what was expected and what came".
  Totals Run(const Script& script);

 private:
  explicit Runner(bool verbose) : verbose_(verbose) {}

  // Returns an empty text when the command held.
  std::string RunCommand(const Command& command);
  std::string RunModule(const Command& command);
  std::string RunRegister(const Command& command);
  std::string RunRefusal(const Command& command);
  std::string RunReturn(const Command& command);
  std::string RunTrap(const Command& command);
  // Returns the instance of that name, or the latest one.
  const Instance* Find(const std::string& name) const;
  StatusOr<CallOutcome> Act(const Action& action);

  const bool verbose_;
  std::unique_ptr<Store> store_;
  const Instance* latest_ = nullptr;  // Null when the latest module could not be instantiated.
  std::map<std::string, const Instance*> named_;
  std::string refusal_;  // Why the last module was refused, for `verbose`.
};

}  // namespace hpvm::wast

#endif  // HPVMD_TESTS_WAST_RUNNER_H_
