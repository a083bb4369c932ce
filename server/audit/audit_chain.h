// SPDX-License-Identifier: Apache-2.0
// The chain of audit lines: how lines are made, and AuditVerifier, which checks them. Depends on base only.
//
// A chain that somebody rewrote from its middle on is consistent in itself; only the head that an operator noted
// elsewhere (Expect) reveals it. The same holds for lines that are missing at the end.
#ifndef HPVMD_SERVER_AUDIT_AUDIT_CHAIN_H_
#define HPVMD_SERVER_AUDIT_AUDIT_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hpvm::server {

// Maximum length of a line; longer lines are invalid.
inline constexpr size_t kAuditLineBytesMax = 16'384;

// Returns the hash before the first line: 64 zeros.
const std::string& AuditOrigin();

// Returns "audit-<first sequence>.jsonl"; files are sorted by that number, not as text.
std::string AuditFileName(uint64_t first_sequence);
std::optional<uint64_t> AuditFileFirst(std::string_view name);

// The parts of a line that the chain needs; borrowed from the line.
struct AuditLine {
  uint64_t sequence = 0;
  std::string_view previous, hash;  // 64 lower-case hexadecimal digits each.
  std::string_view body;            // The text that `hash` covers.
};
// Returns nullopt unless the line has exactly the form {"seq":N,"time":"…","prev":"…",…,"hash":"…"}. The line must
// not include its newline.
std::optional<AuditLine> ParseAuditLine(std::string_view line);

// Returns the hash of the text before `,"hash"`.
std::string HashOfAuditBody(std::string_view body);
// Returns the whole line; `body` is the object without its closing brace.
std::string SealAuditLine(std::string body);

struct AuditHead {
  uint64_t first = 0, last = 0;  // Sequence numbers; 0 when there are none.
  std::string hash;              // Hash of the last record.
};

// AuditVerifier checks lines in their order. Each failure is kDataLoss and names the record and the fault; after one
// the verifier keeps its position. The first line may be any; head().first says where the chain begins. Not
// thread-safe.
class AuditVerifier {
 public:
  // Demands that this record is among the following ones, with this hash.
  void Expect(uint64_t sequence, std::string_view hash);
  // Announces that the next line begins the file of that name.
  Status BeginFile(std::string_view name);
  // Checks one line without its newline.
  Status Push(std::string_view line);
  // Checks bytes of a file, split anywhere. Stops at the first failure.
  Status PushBytes(std::string_view bytes);
  // Ends the check: fails for an unfinished line or an expected record that did not come.
  Status Finish() const;

  const AuditHead& head() const { return head_; }

 private:
  std::string Place() const;

  AuditHead head_;
  std::string unfinished_;
  uint64_t file_first_ = 0;  // The next line's required number; 0 for any.
  uint64_t expected_ = 0;
  std::string expected_hash_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_AUDIT_AUDIT_CHAIN_H_
