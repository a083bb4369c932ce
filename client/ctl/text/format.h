// SPDX-License-Identifier: Apache-2.0
// The format that -o selects: text for people, or data for programs in one of several forms.
#ifndef HPVMD_CLIENT_CTL_TEXT_FORMAT_H_
#define HPVMD_CLIENT_CTL_TEXT_FORMAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace hpvm::ctl {

// A column of custom-columns: its heading, and the path of its value in an object.
struct Column {
  std::string name;
  std::vector<std::string> path;  // Names of members, and positions in lists.
};

struct Format {
  // kJson stands for all data formats; `data` says which.
  enum Kind : uint8_t { kTable, kWide, kJson, kName };
  enum class Data : uint8_t { kIndented, kLines, kYaml, kColumns };

  Format(Kind of = kTable, Data as = Data::kIndented) : kind(of), data(as) {}
  bool operator==(Kind other) const { return kind == other; }

  Kind kind;
  Data data;
  std::vector<Column> columns;  // Columns of kColumns.
};

// "table|wide|json|...".
std::string FormatNames();
// Parses "json", "custom-columns=JOB:id,PROJECT:labels.project,FIRST:outputs[0].name"; a backslash before a dot or a
// bracket makes it part of a name. kInvalidArgument lists all formats, or says what is wrong with a column.
StatusOr<Format> ParseFormat(const std::string& word);

// Formats a whole response for programs. For a list, kLines has one object per line, and kColumns one row per object;
// missing values are "-".
std::string DataText(const nlohmann::ordered_json& value, const Format& format);
// Formats one object of a continuous list: a line of JSON, a YAML document, or a row.
std::string DataLine(const nlohmann::ordered_json& value, const Format& format, bool with_heading);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_FORMAT_H_
