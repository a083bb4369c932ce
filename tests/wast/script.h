// SPDX-License-Identifier: Apache-2.0
// A script of WebAssembly's specification tests, as wabt's wast2json writes it: one JSON file, with the modules
// beside it.
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
  bool is_get = false;  // Reads a global; otherwise a call.
  std::string module;   // The instance's name; the latest when empty.
  std::string field;    // Name of the export.
  std::vector<Value> arguments;
};

struct Command {
  CommandKind kind = CommandKind::kModule;
  uint32_t line = 0;
  std::string name;      // For modules: "$m" or empty; for register: the instance, the latest when empty.
  std::string as;        // For register.
  std::string filename;  // The module's file, absolute or relative to the tool's working folder.
  bool is_text = false;  // The module is in the text format.
  std::string text;      // The specification's text about the failure.
  Action action;
  std::vector<Pattern> expected;
  bool is_either = false;  // `expected` are alternatives for the one result.
};

struct Script {
  std::string source;  // The .wast file, for messages.
  std::vector<Command> commands;
};

// Refuses scripts of another form, and, by name, commands and values of features that hpvmd does not support.
StatusOr<Script> ReadScript(const std::string& path);

// Returns the whole file, or kNotFound and similar codes.
StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace hpvm::wast

#endif  // HPVMD_TESTS_WAST_SCRIPT_H_
