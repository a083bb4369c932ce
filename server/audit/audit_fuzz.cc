// SPDX-License-Identifier: Apache-2.0
// Fuzzes audit files that somebody else wrote or changed: reading them fails only with a proper error, the verifier
// accepts only the true chain, and the daemon starts and continues whatever the files hold.
//
// Input: a byte whose low bits give the number of lines of a true chain; then edits: an offset of two bytes, and a
// byte that gives how many of the following bytes replace the old ones (bit 7: are inserted).
#include <stddef.h>

#include <string>
#include <string_view>

#include "server/audit/audit_log.h"
#include "server/process/log.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

constexpr size_t kLinesMax = 8;

// Makes the true chain, whose last records are not noted anywhere.
std::string Chain(size_t lines) {
  std::string bytes, hash = AuditOrigin();
  for (size_t i = 1; i <= lines; ++i) {
    const std::string line =
        SealAuditLine("{\"seq\":" + std::to_string(i) + ",\"time\":\"2026-01-02T03:04:05.000006Z\"," + "\"prev\":\"" +
                      hash + "\",\"who\":\"w\"");
    hash = ParseAuditLine(line)->hash;
    bytes += line + '\n';
  }
  return bytes;
}

void Edit(std::string_view edits, std::string& bytes) {
  while (edits.size() > 3) {
    const auto at = [&](size_t i) { return static_cast<uint8_t>(edits[i]); };
    const size_t offset = std::min<size_t>(at(0) | size_t{at(1)} << 8, bytes.size());
    const size_t count = at(2) & 127;
    const std::string_view with = edits.substr(3, count);
    bytes.replace(offset, (at(2) & 128) != 0 ? 0 : with.size(), with);
    edits.remove_prefix(3 + with.size());
  }
}

void Verify(const std::string& bytes, const std::string& truth) {
  AuditVerifier verifier;
  HPVMD_CHECK(verifier.BeginFile("audit-1.jsonl").ok());
  const bool is_whole = verifier.PushBytes(bytes).ok() && verifier.Finish().ok();
  // SHA-256 is not forged by chance: accepted bytes are a prefix of the true chain.
  HPVMD_CHECK(is_whole == (truth.starts_with(bytes) && (bytes.empty() || bytes.back() == '\n')));
}

// The daemon opens the file and continues, whatever it contains.
void GoOn(const std::string& bytes) {
  SimDisk disk;
  disk.AddFolder("/audit");
  {
    const auto file = *disk.Open("/audit/audit-1.jsonl", Disk::Mode::kCreate);
    HPVMD_CHECK(file->WriteAt(0, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok());
  }
  ManualClock clock;
  const auto log = *OpenAuditLog(disk, "/audit", 1 << 20, clock);
  log->Append({.who = "hpvmd",
               .peer = "",
               .tenant = "",
               .method = "daemon start",
               .object = "",
               .verdict = "ok",
               .detail = ""});
  HPVMD_CHECK(log->Flush().ok());
  AuditVerifier verifier;
  std::string last;
  HPVMD_CHECK(log->Read(0,
                        [&](std::string_view line) {
                          HPVMD_CHECK(verifier.Push(line).ok());
                          HPVMD_CHECK(EscapeForLog(line, line.size()) == line);
                          last = line;
                          return true;
                        })
                  .ok());
  HPVMD_CHECK(last.find("daemon start") != std::string::npos);
}

}  // namespace
}  // namespace hpvm::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hpvm::server;
  static const std::string& truth = *new std::string(Chain(kLinesMax));
  static const bool quiet = (StartLog("none", "text"), true);
  if (size == 0 || !quiet) {
    return 0;
  }
  std::string bytes = Chain(data[0] % (kLinesMax + 1));
  Edit(std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1), bytes);
  Verify(bytes, truth);
  GoOn(bytes);
  return 0;
}
