// SPDX-License-Identifier: Apache-2.0
// hpvmctl audit list|verify.
#include <stdio.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "CLI/CLI.hpp"
#include "client/ctl/command.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/parse_args.h"
#include "client/ctl/text/text.h"
#include "client/files/input_file.h"
#include "nlohmann/json.hpp"

#include "base/hash.h"
#include "base/status.h"
#include "hpvm/admin.h"
#include "server/audit/audit_chain.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::json;

struct Options {
  uint64_t from = 0, limit = 0;
  std::string since, until, who, method;
  std::vector<std::string> paths;
  std::string head;
};

std::string Field(const Json& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end()) {
    return "";
  }
  std::string text = found->is_string() ? found->get<std::string>() : found->dump();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Shortens "/hpvm.v1.Hpvm/Submit" to its last word.
std::string_view LastWord(std::string_view method) {
  const size_t slash = method.rfind('/');
  return slash == std::string_view::npos ? method : method.substr(slash + 1);
}

// Filter selects the requested records. A line that is not a record is always selected, so that every reader notices
// damage.
class Filter {
 public:
  static StatusOr<Filter> Make(const Options& options) {
    Filter filter;
    const int64_t now = time(nullptr);
    if (!options.since.empty()) {
      HPVMD_ASSIGN_OR_RETURN(filter.since_, While(ParseMoment(options.since, now), "reading --since"));
    }
    if (!options.until.empty()) {
      HPVMD_ASSIGN_OR_RETURN(filter.until_, While(ParseMoment(options.until, now), "reading --until"));
    }
    filter.who_ = options.who;
    filter.method_ = options.method;
    return filter;
  }
  bool is_any() const { return since_.empty() && until_.empty() && who_.empty() && method_.empty(); }
  bool Wants(std::string_view line) const {
    const Json record = is_any() ? Json() : Json::parse(line, nullptr, false);
    if (!record.is_object()) {
      return true;
    }
    const std::string time = Field(record, "time"), method = Field(record, "method");
    return time >= since_ && (until_.empty() || time < until_) &&
           Field(record, "who").find(who_) != std::string::npos &&
           (method_.empty() || method == method_ || LastWord(method) == method_);
  }

 private:
  std::string since_, until_, who_, method_;
};

// Column widths of a table that is printed row by row: longer values shift the rest of their row.
constexpr size_t kWidths[] = {7, 27, 10, 14, 12, 14};

void PrintColumns(const std::vector<std::string>& cells, const std::vector<std::string>& rest) {
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    std::string cell = Printable(cells[i]);
    cell.resize(std::max(cell.size(), kWidths[i]), ' ');
    text += cell + "  ";
  }
  for (const std::string& value : rest) {
    text += value.empty() ? "" : Printable(value) + "  ";
  }
  text.erase(text.find_last_not_of(' ') + 1);
  puts(text.c_str());
}

// Prints "12  2026-…Z  ok  uid 1000  blur  Submit  job-…", one line per record, so that a long list needs no memory.
void PrintRecord(std::string_view line, const Format& format, bool with_heading) {
  const Json record = Json::parse(line, nullptr, false);
  const bool is_as_stored = format == Format::kJson && format.data <= Format::Data::kLines;
  if (is_as_stored || !record.is_object()) {
    puts(Printable(line).c_str());
    return;
  }
  if (format == Format::kJson) {
    PrintDataLine(record, format, with_heading);
    return;
  }
  if (format == Format::kName) {
    puts(Printable(Field(record, "seq")).c_str());
    return;
  }
  const std::string method = Field(record, "method");
  PrintColumns(
      {Field(record, "seq"), Field(record, "time"), Field(record, "verdict"), Field(record, "who"),
       Field(record, "tenant"), std::string(format == Format::kWide ? method : LastWord(method))},
      {Field(record, "object"), format == Format::kWide ? Field(record, "peer") : "", Field(record, "detail")});
}

void PrintHeading(const Format& format) {
  if (format == Format::kTable || format == Format::kWide) {
    PrintColumns({"RECORD", "TIME", "VERDICT", "WHO", "TENANT", "METHOD"}, {"OBJECT AND DETAIL"});
  }
}

Status List(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(const Filter filter, Filter::Make(options));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  v1::ReadAuditRequest request;
  request.set_from_sequence(options.from);
  request.set_records_max(filter.is_any() ? options.limit : 0);
  request.set_tenant(globals.tenant);
  bool is_first = true;
  PrintHeading(globals.format);
  uint64_t left = options.limit == 0 ? ~uint64_t{0} : options.limit;
  return Admin(*client).ReadAudit(request, [&](std::string_view line) {
    if (filter.Wants(line)) {
      PrintRecord(line, globals.format, std::exchange(is_first, false));
      --left;
    }
    return left > 0;
  });
}

// Check follows a chain and looks for a noted record: "HASH", or "SEQUENCE:HASH" as Verify prints it.
class Check {
 public:
  static StatusOr<Check> Make(const std::string& noted) {
    Check check;
    const size_t colon = noted.find(':');
    const std::string hash = noted.substr(colon == std::string::npos ? 0 : colon + 1);
    uint64_t sequence = 0;
    const auto [end, error] = std::from_chars(noted.data(), noted.data() + std::min(colon, noted.size()), sequence);
    const bool has_sequence = error == std::errc() && end == noted.data() + colon && sequence != 0;
    if (!noted.empty() && (!Sha256FromHex(hash).has_value() || (colon != std::string::npos && !has_sequence))) {
      return InvalidArgument(
          "--head takes the head that an earlier `hpvmctl audit verify` printed: a number, a colon "
          "and 64 hexadecimal digits.");
    }
    check.wanted_ = hash;
    if (colon != std::string::npos) {
      check.verifier_.Expect(sequence, hash);
    }
    return check;
  }
  Status BeginFile(const std::string& name) { return verifier_.BeginFile(name); }
  Status Push(std::string_view line) {
    HPVMD_RETURN_IF_ERROR(verifier_.Push(line));
    if (!wanted_.empty() && verifier_.head().hash == wanted_) {
      found_ = verifier_.head().last;
    }
    return absl::OkStatus();
  }
  Status Finish() const {
    HPVMD_RETURN_IF_ERROR(verifier_.Finish());
    if (!wanted_.empty() && !found_.has_value()) {
      return DataLoss("No record has the noted hash (" + wanted_ +
                      "): records were cut off at the end or rewritten, or they come from another server.");
    }
    return absl::OkStatus();
  }
  const server::AuditHead& head() const { return verifier_.head(); }
  std::optional<uint64_t> found() const { return found_; }

 private:
  std::string wanted_;
  server::AuditVerifier verifier_;
  std::optional<uint64_t> found_;
};

Status CheckFile(const std::string& path, Check* check) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (server::AuditFileFirst(name).has_value()) {
    HPVMD_RETURN_IF_ERROR(check->BeginFile(name));
  }
  HPVMD_RETURN_IF_ERROR(OpenInputFile(path).status());  // An endless file is not a log.
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return NotFound("The file \"" + path + "\" cannot be read.");
  }
  std::vector<char> line(server::kAuditLineBytesMax + 2);
  while (file.getline(line.data(), static_cast<std::streamsize>(line.size()))) {
    if (file.eof()) {
      return DataLoss("The last line of \"" + path + "\" is incomplete: it was cut off, or is still being written.");
    }
    HPVMD_RETURN_IF_ERROR(
        While(check->Push({line.data(), static_cast<size_t>(file.gcount()) - 1}), "checking \"" + path + "\""));
  }
  if (!file.eof() && !file.bad()) {
    return DataLoss("A line of \"" + path + "\" is longer than any record (" +
                    std::to_string(server::kAuditLineBytesMax) + " bytes).");
  }
  if (file.bad()) {
    return DataLoss("Reading \"" + path + "\" failed.");
  }
  return absl::OkStatus();
}

// Lists the record files of a folder, or of the audit folder below a state folder, sorted by their first record.
StatusOr<std::vector<std::string>> FilesOf(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::map<uint64_t, std::string> found;
    for (const std::string& folder : {path, path + "/audit"}) {
      for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        if (const auto first = server::AuditFileFirst(at->path().filename().string())) {
          found[*first] = at->path().string();
        }
      }
    }
    if (found.empty()) {
      return NotFound("The folder \"" + path + "\" has no file audit-N.jsonl" + (error ? ": " + error.message() : "."));
    }
    for (const auto& [first, file] : found) {
      files.push_back(file);
    }
  }
  return files;
}

Status CheckServer(const Globals& globals, const Options& options, Check* check) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  v1::ReadAuditRequest request;
  request.set_from_sequence(options.from);
  Status wrong;
  HPVMD_RETURN_IF_ERROR(Admin(*client).ReadAudit(request, [&](std::string_view line) {
    wrong = check->Push(line);
    return wrong.ok();
  }));
  return wrong;
}

void PrintVerdict(const Check& check, const Options& options, const Format& format) {
  const server::AuditHead& head = check.head();
  if (format == Format::kJson) {
    Json json = {{"first", head.first}, {"last", head.last}, {"head", head.hash}};
    if (check.found().has_value()) {
      json["noted"] = *check.found();
    }
    PrintData(json, format);
    return;
  }
  if (format == Format::kName) {
    printf("%llu:%s\n", static_cast<unsigned long long>(head.last), head.hash.c_str());
    return;
  }
  if (head.last == 0) {
    puts("There are no records.");
    return;
  }
  printf("Records %llu to %llu are intact and in order.\n", static_cast<unsigned long long>(head.first),
         static_cast<unsigned long long>(head.last));
  if (check.found().has_value()) {
    printf("The noted head belongs to record %llu; %llu records came after it.\n",
           static_cast<unsigned long long>(*check.found()),
           static_cast<unsigned long long>(head.last - *check.found()));
  }
  if (head.first > 1 && options.from <= 1) {
    printf("Records before %llu are missing, and were not checked.\n", static_cast<unsigned long long>(head.first));
  }
  printf("head %llu:%s\n", static_cast<unsigned long long>(head.last), head.hash.c_str());
}

Status Verify(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(Check check, Check::Make(options.head));
  if (options.paths.empty()) {
    HPVMD_RETURN_IF_ERROR(CheckServer(globals, options, &check));
  } else {
    HPVMD_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(options.paths));
    for (const std::string& file : files) {
      HPVMD_RETURN_IF_ERROR(CheckFile(file, &check));
    }
  }
  HPVMD_RETURN_IF_ERROR(check.Finish());
  PrintVerdict(check, options, globals.format);
  return absl::OkStatus();
}

}  // namespace

void AddAudit(Commands commands) {
  CLI::App* audit = commands.app.add_subcommand("audit", "Show and check the audit: the record of who changed what");
  audit->require_subcommand(1);
  CLI::App& list = AddCommand(*audit, "list", "List records, the oldest first",
                              "Examples:\n"
                              "  hpvmctl audit list --from 1000\n"
                              "  hpvmctl audit list --since 2h --who \"token tok-3f\" --method Submit\n"
                              "  hpvmctl audit list --since 2026-11-01 --until 2026-12-01 --method UpdateTenant\n"
                              "  hpvmctl audit list --tenant blur -o json | jq -c 'select(.verdict != \"ok\")'");
  Options& listed = SetWork(commands, list, List);
  list.add_option("--from", listed.from, "Begin with the record of this number");
  AddWord(list, "--since", listed.since,
          "Only records from this time on: 2h (ago), 2026-11-30, or 2026-11-30T08:00 in UTC");
  AddWord(list, "--until", listed.until, "Only records before this time, in the same forms");
  AddWord(list, "--who", listed.who, "Only records of callers whose name contains this text");
  AddWord(list, "--method", listed.method,
          "Only records of this method: Submit, or /hpvm.v1.Hpvm/Submit, or \"job end\"");
  list.add_option("--limit", listed.limit, "Show at most this many records")->check(CLI::Range(1, 1'000'000'000));
  CLI::App& verify = AddCommand(
      *audit, "verify", "Check that no record was changed, taken out or moved",
      "Keep the head that it prints in another place: with --head the next check also finds records that were cut off\n"
      "at the end, or rewritten from some point on.\n"
      "Examples:\n"
      "  hpvmctl audit verify\n"
      "  hpvmctl audit verify /var/lib/hpvmd --head 812:3f0c…");
  Options& verified = SetWork(commands, verify, Verify);
  verify.add_option("--from", verified.from, "Begin with the record of this number");
  verify.add_option("path", verified.paths,
                    "Files or folders of records, from a copy or from a server that is down; default: ask the server");
  AddWord(verify, "--head", verified.head,
          "A head that an earlier check printed, SEQUENCE:HASH or HASH; its record must still exist");
}

}  // namespace hpvm::ctl
