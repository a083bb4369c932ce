// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/format.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "client/ctl/text/text.h"
#include "client/ctl/text/yaml.h"
#include <nlohmann/json.hpp>

#include "base/edit_distance.h"
#include "base/number.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

struct FormatName {
  std::string_view name;
  Format::Kind kind;
  Format::Data data;
};
constexpr auto kFormatNames = std::to_array<FormatName>({
    {"table", Format::kTable, Format::Data::kIndented},
    {"wide", Format::kWide, Format::Data::kIndented},
    {"json", Format::kJson, Format::Data::kIndented},
    {"jsonl", Format::kJson, Format::Data::kLines},
    {"yaml", Format::kJson, Format::Data::kYaml},
    {"name", Format::kName, Format::Data::kIndented},
});
constexpr std::string_view kColumnsPrefix = "custom-columns=";

std::string Compact(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Removes the first step from a path and returns it: "outputs" from "outputs[0].name", then "0" from "[0].name".
StatusOr<std::string> TakeStep(std::string_view* path) {
  std::string step;
  if (path->starts_with('[')) {
    const size_t end = path->find(']');
    step = end == std::string_view::npos ? "" : path->substr(1, end - 1);
    if (!ParseNumber<uint32_t>(step).has_value()) {
      return InvalidArgument("has something else than a number between brackets");
    }
    path->remove_prefix(end + 1);
  } else {
    size_t i = 0;
    for (; i < path->size() && (*path)[i] != '.' && (*path)[i] != '['; ++i) {
      i += (*path)[i] == '\\' && i + 1 < path->size() ? 1 : 0;
      step += (*path)[i];
    }
    path->remove_prefix(i);
  }
  if (step.empty() || *path == ".") {
    return InvalidArgument("has an empty step in its path");
  }
  path->remove_prefix(path->starts_with('.') ? 1 : 0);
  return step;
}

StatusOr<Column> ParseColumn(const std::string& word) {
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument("The column \"" + word + "\" of --format custom-columns " + std::string(why) +
                           "; a column is NAME:PATH, as in JOB:id or FIRST:outputs[0].name.");
  };
  const size_t colon = word.find(':');
  if (colon == 0 || colon == std::string::npos) {
    return refuse(colon == 0 ? "has no name" : "has no path");
  }
  Column column{word.substr(0, colon), {}};
  std::string_view path = std::string_view(word).substr(colon + 1);
  do {
    const StatusOr<std::string> step = TakeStep(&path);
    if (!step.ok()) {
      return refuse(Message(step.status()));
    }
    column.path.push_back(*step);
  } while (!path.empty());
  return column;
}

StatusOr<std::vector<Column>> ParseColumns(std::string_view words) {
  std::vector<Column> columns;
  while (true) {
    const size_t comma = words.find(',');
    HPVMD_ASSIGN_OR_RETURN(columns.emplace_back(), ParseColumn(std::string(words.substr(0, comma))));
    if (comma == std::string_view::npos) {
      return columns;
    }
    words = words.substr(comma + 1);
  }
}

const Json* StepInto(const Json& value, const std::string& step) {
  if (value.is_object()) {
    const auto found = value.find(step);
    return found == value.end() ? nullptr : &*found;
  }
  const std::optional<size_t> position = ParseNumber<size_t>(step);
  return value.is_array() && position.has_value() && *position < value.size() ? &value[*position] : nullptr;
}

std::string CellOf(const Json& object, const Column& column) {
  const Json* value = &object;
  for (const std::string& step : column.path) {
    value = StepInto(*value, step);
    if (value == nullptr) {
      return "-";
    }
  }
  if (value->is_null() || (value->is_string() && value->get_ref<const std::string&>().empty())) {
    return "-";
  }
  return value->is_string() ? value->get<std::string>() : Compact(*value);
}

std::vector<std::string> RowOf(const Json& object, const std::vector<Column>& columns) {
  std::vector<std::string> row;
  for (const Column& column : columns) {
    row.push_back(CellOf(object, column));
    std::replace(row.back().begin(), row.back().end(), '\n', ' ');
  }
  return row;
}

Rows HeadingOf(const std::vector<Column>& columns) {
  Rows rows(1);
  for (const Column& column : columns) {
    rows.front().push_back(column.name);
  }
  return rows;
}

}  // namespace

std::string FormatNames() {
  std::string names;
  for (const FormatName& one : kFormatNames) {
    names += std::string(one.name) + "|";
  }
  return names + std::string(kColumnsPrefix);
}

StatusOr<Format> ParseFormat(const std::string& word) {
  NearMiss near_miss(word);
  for (const FormatName& one : kFormatNames) {
    if (one.name == word) {
      return Format(one.kind, one.data);
    }
    near_miss.Offer(one.name);
  }
  if (word.starts_with(kColumnsPrefix)) {
    Format format(Format::kJson, Format::Data::kColumns);
    HPVMD_ASSIGN_OR_RETURN(format.columns, ParseColumns(std::string_view(word).substr(kColumnsPrefix.size())));
    return format;
  }
  std::string names;
  for (const FormatName& one : kFormatNames) {
    names += std::string(one.name) + ", ";
  }
  return InvalidArgument(
      "\"" + word + "\" is no format; formats are " + names + "custom-columns=NAME:PATH,..." +
      (near_miss.best().empty() ? "." : "; did you mean \"" + std::string(near_miss.best()) + "\"?"));
}

std::string DataText(const Json& value, const Format& format) {
  switch (format.data) {
    case Format::Data::kIndented:
      return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    case Format::Data::kYaml:
      return ToYaml(value);
    default:
      break;
  }
  const Json list = value.is_array() ? value : Json::array({value});
  std::string text;
  Rows rows = HeadingOf(format.columns);
  for (const Json& item : list) {
    if (format.data == Format::Data::kColumns) {
      rows.push_back(RowOf(item, format.columns));
    } else {
      text += Compact(item) + "\n";
    }
  }
  return format.data == Format::Data::kColumns ? Table(rows) : text;
}

std::string DataLine(const Json& value, const Format& format, bool with_heading) {
  if (format.data == Format::Data::kYaml) {
    return "---\n" + ToYaml(value);
  }
  if (format.data != Format::Data::kColumns) {
    return Compact(value) + "\n";
  }
  Rows rows = HeadingOf(format.columns);
  rows.push_back(RowOf(value, format.columns));
  const std::string table = Table(rows);
  return with_heading ? table : table.substr(table.find('\n') + 1);
}

}  // namespace hpvm::ctl
