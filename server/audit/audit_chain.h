// SPDX-License-Identifier: Apache-2.0
// The chain of audit lines: how one is made, and how a reader checks many. Links only base.
//
// A chain that somebody wrote anew from its middle on is whole again by itself; against the head that an operator noted
// elsewhere (Expect) it is not. The same holds for lines that are missing at the end.
#ifndef HPVMD_SERVER_AUDIT_AUDIT_CHAIN_H_
#define HPVMD_SERVER_AUDIT_AUDIT_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hpvm::server {

// No line that is written is longer; a longer one is none.
inline constexpr size_t kAuditLineBytesMax = 16'384;

// What stands in for the hash before the first line: 64 zeros.
const std::string& AuditOrigin();

// Names "audit-<first sequence>.jsonl"; they sort by that number, not as text.
std::string AuditFileName(uint64_t first_sequence);
std::optional<uint64_t> AuditFileFirst(std::string_view name);

// What a chain needs of a line; borrowed from it.
struct AuditLine {
  uint64_t sequence = 0;
  std::string_view previous, hash;  // 64 lower-case hexadecimal digits each.
  std::string_view body;            // What `hash` is of.
};
// Nullopt when it has not exactly the form {"seq":N,"time":"…","prev":"…",…,"hash":"…"}. Without its end of line.
std::optional<AuditLine> ParseAuditLine(std::string_view line);

// The hash of what goes before `,"hash"`.
std::string HashOfAuditBody(std::string_view body);
// The whole line: `body` is the object without its closing brace.
std::string SealAuditLine(std::string body);

struct AuditHead {
  uint64_t first = 0, last = 0;  // Sequence numbers; 0: there are none.
  std::string hash;              // Of the last.
};

// Checks lines in their order. Each failure is kDataLoss and names the record and what is wrong about it; after one the
// verifier stays where it was. The first line may be any: head().first says where the chain begins. Not thread-safe.
class AuditVerifier {
 public:
  // This record must be among those that come, with this hash.
  void Expect(uint64_t sequence, std::string_view hash);
  // The next line begins the file of that name.
  Status BeginFile(std::string_view name);
  // One line without its end.
  Status Push(std::string_view line);
  // Bytes of a file as they stand, cut anywhere. Stops at the first failure.
  Status PushBytes(std::string_view bytes);
  // There is no more: an unfinished line or an expected record that did not come.
  Status Finish() const;

  const AuditHead& head() const { return head_; }

 private:
  std::string Place() const;

  AuditHead head_;
  std::string unfinished_;
  uint64_t file_first_ = 0;  // What the next line's number must be; 0: no demand.
  uint64_t expected_ = 0;
  std::string expected_hash_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_AUDIT_AUDIT_CHAIN_H_
