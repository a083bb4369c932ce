// SPDX-License-Identifier: Apache-2.0
// A script of WebAssembly's specification tests, as wabt's wast2json writes it: one JSON file, the modules beside it.
#ifndef HPVMD_TESTS_WAST_SCRIPT_H_
#define HPVMD_TESTS_WAST_SCRIPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/wast/value.h"

namespace hpvm::wast {

enum class CommandKind : uint8_t {
  kModule,
  kAction,
  kRegister,
  kAssertReturn,
  kAssertTrap,
  kAssertExhaustion,
  kAssertInvalid,
  kAssertMalformed,
  kAssertUnlinkable,
  kAssertUninstantiable,
};
std::string_view Name(CommandKind kind);  // As in the JSON.

struct Action {
  bool is_get = false;  // Of a global; else a call.
  std::string module;   // The instance's name; empty: the latest.
  std::string field;    // The export.
  std::vector<Value> arguments;
};

struct Command {
  CommandKind kind = CommandKind::kModule;
  uint32_t line = 0;
  std::string name;      // Modules: "$m" or empty; register: the instance, empty for the latest.
  std::string as;        // Register.
  std::string filename;  // The module's file, absolute or relative to where the tool runs.
  bool is_text = false;  // The module is in the text format.
  std::string text;      // What the specification says went wrong.
  Action action;
  std::vector<Pattern> expected;
  bool is_either = false;  // `expected` are alternatives for the one result.
};

struct Script {
  std::string source;  // The .wast file, for messages.
  std::vector<Command> commands;
};

// Refuses what is not of that form, and commands and values of features that hpvmd does not take, by name.
StatusOr<Script> ReadScript(const std::string& path);

// A whole file. kNotFound and the like.
StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace hpvm::wast

#endif  // HPVMD_TESTS_WAST_SCRIPT_H_
