// SPDX-License-Identifier: Apache-2.0
#include "tests/wast/script.h"

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace hpvm::wast {
namespace {

using nlohmann::json;
using wasm::ValueType;

constexpr std::string_view kCommandNames[] = {
    "module",
    "action",
    "register",
    "assert_return",
    "assert_trap",
    "assert_exhaustion",
    "assert_invalid",
    "assert_malformed",
    "assert_unlinkable",
    "assert_uninstantiable",
};

// Returns the member, which must be a string.
StatusOr<std::string> Text(const json& object, const char* key) {
  const auto member = object.find(key);
  if (member == object.end() || !member->is_string()) {
    return InvalidArgument("The member \"" + std::string(key) + "\" is missing or not a string.");
  }
  return member->get<std::string>();
}

std::string TextOrEmpty(const json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_string() ? member->get<std::string>() : std::string();
}

// Returns the member, which must be an array; empty when it is missing.
StatusOr<std::vector<json>> List(const json& object, const char* key) {
  const auto member = object.find(key);
  if (member == object.end()) {
    return std::vector<json>();
  }
  if (!member->is_array()) {
    return InvalidArgument("The member \"" + std::string(key) + "\" is not an array.");
  }
  return member->get<std::vector<json>>();
}

template <typename Enum>
std::optional<Enum> FromName(std::string_view name, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (Name(static_cast<Enum>(i)) == name) {
      return static_cast<Enum>(i);
    }
  }
  return std::nullopt;
}

StatusOr<LanePattern> ReadLane(const std::string& text, LaneType lane) {
  const bool is_float = lane == LaneType::kF32 || lane == LaneType::kF64;
  if (is_float && text == "nan:canonical") {
    return LanePattern{Match::kCanonicalNan, 0};
  }
  if (is_float && text == "nan:arithmetic") {
    return LanePattern{Match::kArithmeticNan, 0};
  }
  uint64_t bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits);
  const bool fits = Bytes(lane) == 8 || bits >> (8 * Bytes(lane)) == 0;
  if (error != std::errc() || end != text.data() + text.size() || !fits) {
    return InvalidArgument("\"" + text + "\" is no value of type " + std::string(Name(lane)) + ".");
  }
  return LanePattern{Match::kBits, bits};
}

StatusOr<LanePattern> ReadReference(const std::string& text, ValueType type) {
  if (text == "null") {
    return LanePattern{Match::kBits, 0};
  }
  // A script cannot name a function's reference: any number, or none, means any function.
  if (type == ValueType::kFuncRef || text.empty()) {
    return LanePattern{Match::kNonNull, 0};
  }
  HPVMD_ASSIGN_OR_RETURN(LanePattern pattern, ReadLane(text, LaneType::kI32));
  ++pattern.bits;
  return pattern;
}

StatusOr<Pattern> ReadVector(const json& object) {
  Pattern pattern{ValueType::kV128, LaneType::kI8, {}};
  HPVMD_ASSIGN_OR_RETURN(const std::string lane_name, Text(object, "lane_type"));
  const std::optional<LaneType> lane = FromName(lane_name, LaneType::kF64);
  HPVMD_ASSIGN_OR_RETURN(const std::vector<json> values, List(object, "value"));
  if (!lane || values.size() * Bytes(*lane) != 16) {
    return InvalidArgument("A v128 has " + std::to_string(values.size()) + " lanes of type \"" + lane_name + "\".");
  }
  pattern.lane = *lane;
  for (const json& value : values) {
    if (!value.is_string()) {
      return InvalidArgument("A lane of a v128 is not a string.");
    }
    HPVMD_ASSIGN_OR_RETURN(const LanePattern read, ReadLane(value.get<std::string>(), *lane));
    pattern.lanes.push_back(read);
  }
  return pattern;
}

StatusOr<Pattern> ReadPattern(const json& object) {
  HPVMD_ASSIGN_OR_RETURN(const std::string type_name, Text(object, "type"));
  const std::optional<ValueType> type = FromName(type_name, ValueType::kExternRef);
  if (!type) {
    return Unimplemented("Values of type \"" + type_name + "\" are not supported.");
  }
  if (*type == ValueType::kV128) {
    return ReadVector(object);
  }
  Pattern pattern{*type, LaneOf(*type), {}};
  const bool is_reference = *type == ValueType::kFuncRef || *type == ValueType::kExternRef;
  const std::string text = TextOrEmpty(object, "value");
  HPVMD_ASSIGN_OR_RETURN(const LanePattern lane,
                         is_reference ? ReadReference(text, *type) : ReadLane(text, pattern.lane));
  pattern.lanes.push_back(lane);
  return pattern;
}

// Arguments are patterns that match exactly one value.
StatusOr<Value> ReadValue(const json& object) {
  HPVMD_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(object));
  Value value{pattern.type, 0, 0};
  const uint32_t bits = 8 * Bytes(pattern.lane);
  for (uint32_t i = 0; i < pattern.lanes.size(); ++i) {
    if (pattern.lanes[i].match != Match::kBits) {
      return InvalidArgument("An argument is not one value: " + ToString(pattern) + ".");
    }
    uint64_t& half = i * bits < 64 ? value.low : value.high;
    half |= pattern.lanes[i].bits << (i * bits % 64);
  }
  return value;
}

StatusOr<Action> ReadAction(const json& object) {
  const auto member = object.find("action");
  if (member == object.end() || !member->is_object()) {
    return InvalidArgument("The member \"action\" is missing or not an object.");
  }
  Action action;
  HPVMD_ASSIGN_OR_RETURN(const std::string type, Text(*member, "type"));
  if (type != "invoke" && type != "get") {
    return Unimplemented("Actions of type \"" + type + "\" are not supported.");
  }
  action.is_get = type == "get";
  action.module = TextOrEmpty(*member, "module");
  HPVMD_ASSIGN_OR_RETURN(action.field, Text(*member, "field"));
  HPVMD_ASSIGN_OR_RETURN(const std::vector<json> arguments, List(*member, "args"));
  for (const json& argument : arguments) {
    HPVMD_ASSIGN_OR_RETURN(const Value value, ReadValue(argument));
    action.arguments.push_back(value);
  }
  return action;
}

Status ReadExpected(const json& object, Command& command) {
  command.is_either = object.contains("either");
  HPVMD_ASSIGN_OR_RETURN(const std::vector<json> values, List(object, command.is_either ? "either" : "expected"));
  for (const json& value : values) {
    HPVMD_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(value));
    command.expected.push_back(std::move(pattern));
  }
  return absl::OkStatus();
}

Status ReadModule(const json& object, const std::filesystem::path& folder, Command& command) {
  HPVMD_ASSIGN_OR_RETURN(const std::string filename, Text(object, "filename"));
  command.filename = (folder / filename).string();
  command.is_text = TextOrEmpty(object, "module_type") == "text";
  command.text = TextOrEmpty(object, "text");
  return absl::OkStatus();
}

StatusOr<Command> ReadCommand(const json& object, const std::filesystem::path& folder) {
  Command command;
  HPVMD_ASSIGN_OR_RETURN(const std::string type, Text(object, "type"));
  const std::optional<CommandKind> kind = FromName(type, CommandKind::kAssertUninstantiable);
  if (!kind) {
    return Unimplemented("The command \"" + type + "\" is not supported.");
  }
  command.kind = *kind;
  command.name = TextOrEmpty(object, "name");
  switch (*kind) {
    case CommandKind::kRegister: {
      HPVMD_ASSIGN_OR_RETURN(command.as, Text(object, "as"));
      break;
    }
    case CommandKind::kAssertReturn:
      HPVMD_RETURN_IF_ERROR(ReadExpected(object, command));
      [[fallthrough]];
    case CommandKind::kAction:
    case CommandKind::kAssertTrap:
    case CommandKind::kAssertExhaustion: {
      HPVMD_ASSIGN_OR_RETURN(command.action, ReadAction(object));
      command.text = TextOrEmpty(object, "text");
      break;
    }
    default:
      HPVMD_RETURN_IF_ERROR(ReadModule(object, folder, command));
  }
  return command;
}

}  // namespace

std::string_view Name(CommandKind kind) { return kCommandNames[static_cast<size_t>(kind)]; }

StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return FromErrno(errno, "Opening \"" + path + "\"");
  }
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) {
    return FromErrno(errno, "Reading \"" + path + "\"");
  }
  return bytes;
}

StatusOr<Script> ReadScript(const std::string& path) {
  HPVMD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("commands")) {
    return InvalidArgument("\"" + path + "\" is not a script that wast2json wrote.");
  }
  Script script;
  script.source = TextOrEmpty(document, "source_filename");
  HPVMD_ASSIGN_OR_RETURN(const std::vector<json> commands, List(document, "commands"));
  for (const json& object : commands) {
    const auto line = object.find("line");
    const bool has_line = object.is_object() && line != object.end() && line->is_number_unsigned();
    const std::string place = script.source + ":" + (has_line ? line->dump() : "?");
    StatusOr<Command> command = has_line ? ReadCommand(object, std::filesystem::path(path).parent_path())
                                         : StatusOr<Command>(InvalidArgument("A command has no line."));
    if (!command.ok()) {
      return MakeStatus(command.status().code(), place + ": " + Message(command.status()));
    }
    command->line = line->get<uint32_t>();
    script.commands.push_back(*std::move(command));
  }
  if (script.commands.empty()) {
    return InvalidArgument("\"" + path + "\" holds no commands.");
  }
  return script;
}

}  // namespace hpvm::wast
