// SPDX-License-Identifier: Apache-2.0
// Tests that every manipulation of a chain of lines is detected: every bit, every line, every cut.
#include "server/audit/audit_chain.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hpvm::server {
namespace {

std::string Line(uint64_t sequence, const std::string& previous, const std::string& who = "token tok-1") {
  return SealAuditLine("{\"seq\":" + std::to_string(sequence) +
                       ",\"time\":\"2026-01-02T03:04:05.000006Z\",\"prev\":\"" + previous + "\",\"who\":\"" + who +
                       "\",\"detail\":\"\"");
}

std::string HashIn(const std::string& line) { return std::string(ParseAuditLine(line)->hash); }

std::vector<std::string> Chain(size_t count, const std::string& who = "token tok-1") {
  std::vector<std::string> lines;
  for (size_t i = 0; i < count; ++i) {
    lines.push_back(Line(i + 1, lines.empty() ? AuditOrigin() : HashIn(lines.back()), who));
  }
  return lines;
}

std::string Join(const std::vector<std::string>& lines) {
  std::string bytes;
  for (const std::string& line : lines) {
    bytes += line + '\n';
  }
  return bytes;
}

// Checks a file as an operator does: all of it, from the first record, against the head noted elsewhere.
Status Verify(const std::string& bytes, const AuditHead& noted) {
  AuditVerifier verifier;
  verifier.Expect(noted.last, noted.hash);
  HPVMD_RETURN_IF_ERROR(verifier.BeginFile("audit-1.jsonl"));
  HPVMD_RETURN_IF_ERROR(verifier.PushBytes(bytes));
  return verifier.Finish();
}

// Checks without a noted head.
Status VerifyAlone(const std::string& bytes) {
  AuditVerifier verifier;
  HPVMD_RETURN_IF_ERROR(verifier.BeginFile("audit-1.jsonl"));
  HPVMD_RETURN_IF_ERROR(verifier.PushBytes(bytes));
  return verifier.Finish();
}

class TamperTest : public testing::Test {
 protected:
  const std::vector<std::string> lines_ = Chain(7);
  const AuditHead head_{1, 7, HashIn(lines_.back())};
};

TEST_F(TamperTest, AWholeChainIsWhole) {
  EXPECT_EQ(Verify(Join(lines_), head_), absl::OkStatus());
  AuditVerifier verifier;
  for (const std::string& line : lines_) {
    ASSERT_EQ(verifier.Push(line), absl::OkStatus());
  }
  EXPECT_EQ(verifier.head().first, 1u);
  EXPECT_EQ(verifier.head().last, 7u);
  EXPECT_EQ(verifier.head().hash, head_.hash);
}

// The result does not depend on how the bytes are split.
TEST_F(TamperTest, PiecesOfAnySizeAreTheSame) {
  const std::string bytes = Join(lines_);
  for (size_t step : {1u, 2u, 63u, 1000u}) {
    AuditVerifier verifier;
    for (size_t at = 0; at < bytes.size(); at += step) {
      ASSERT_EQ(verifier.PushBytes(std::string_view(bytes).substr(at, step)), absl::OkStatus());
    }
    EXPECT_EQ(verifier.Finish(), absl::OkStatus());
    EXPECT_EQ(verifier.head().last, 7u);
  }
}

// Works without a noted head.
TEST_F(TamperTest, SeesEveryFlippedBit) {
  const std::string bytes = Join(lines_);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    ASSERT_TRUE(absl::IsDataLoss(VerifyAlone(changed))) << "bit " << bit % 8 << " of byte " << bit / 8;
  }
}

TEST_F(TamperTest, SeesEveryByteThatIsMissingOrTooMany) {
  const std::string bytes = Join(lines_);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed.erase(at, 1);
    ASSERT_TRUE(absl::IsDataLoss(VerifyAlone(changed))) << "without byte " << at;
    for (const char extra : {' ', '\n', '0', '"'}) {
      changed = bytes;
      changed.insert(at, 1, extra);
      ASSERT_TRUE(absl::IsDataLoss(VerifyAlone(changed))) << "with one more at " << at;
    }
  }
}

TEST_F(TamperTest, SeesEveryDeletion) {
  for (size_t from = 0; from < lines_.size(); ++from) {
    for (size_t to = from + 1; to <= lines_.size(); ++to) {
      std::vector<std::string> changed = lines_;
      changed.erase(changed.begin() + static_cast<ptrdiff_t>(from), changed.begin() + static_cast<ptrdiff_t>(to));
      ASSERT_TRUE(absl::IsDataLoss(Verify(Join(changed), head_))) << from << " to " << to;
      // Only lines missing at the end need the noted head.
      ASSERT_EQ(absl::IsDataLoss(VerifyAlone(Join(changed))), to != lines_.size()) << from << " to " << to;
    }
  }
}

TEST_F(TamperTest, SeesEverySwapAndEveryCopy) {
  for (size_t a = 0; a < lines_.size(); ++a) {
    for (size_t b = 0; b < lines_.size(); ++b) {
      std::vector<std::string> changed = lines_;
      std::swap(changed[a], changed[b]);
      ASSERT_EQ(absl::IsDataLoss(VerifyAlone(Join(changed))), a != b) << a << " " << b;
      changed = lines_;
      changed.insert(changed.begin() + static_cast<ptrdiff_t>(b), lines_[a]);
      ASSERT_TRUE(absl::IsDataLoss(VerifyAlone(Join(changed)))) << a << " again at " << b;
      changed = lines_;
      changed[b] = lines_[a];
      ASSERT_EQ(absl::IsDataLoss(VerifyAlone(Join(changed))), a != b) << a << " in the place of " << b;
    }
  }
}

// A forger who knows how lines are made.
TEST_F(TamperTest, SeesAnInsertedLineThatIsMadeWell) {
  for (size_t at = 0; at < lines_.size(); ++at) {
    std::vector<std::string> changed = lines_;
    const std::string previous = at == 0 ? AuditOrigin() : HashIn(lines_[at - 1]);
    changed.insert(changed.begin() + static_cast<ptrdiff_t>(at), Line(at + 1, previous, "nobody"));
    ASSERT_TRUE(absl::IsDataLoss(VerifyAlone(Join(changed)))) << at;
    changed = lines_;
    changed[at] = Line(at + 1, previous, "nobody");
    // In place of the last line, the forgery is a chain that only the noted head distinguishes from the true one.
    ASSERT_EQ(absl::IsDataLoss(VerifyAlone(Join(changed))), at + 1 != lines_.size()) << at;
    ASSERT_TRUE(absl::IsDataLoss(Verify(Join(changed), head_))) << at;
  }
}

TEST_F(TamperTest, SeesEveryTruncationAgainstTheNotedHead) {
  const std::string bytes = Join(lines_);
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_TRUE(absl::IsDataLoss(Verify(bytes.substr(0, size), head_))) << size;
  }
}

TEST_F(TamperTest, SeesAChainThatWasWrittenAnew) {
  const Status status = Verify(Join(Chain(7, "nobody")), head_);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_NE(Message(status).find("written anew"), std::string::npos) << status;
}

// Records after the noted head are not checked against it.
TEST_F(TamperTest, ANotedHeadMayBeOlder) {
  EXPECT_EQ(Verify(Join(lines_), {1, 3, HashIn(lines_[2])}), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(Verify(Join(lines_), {1, 3, HashIn(lines_[3])})));
}

TEST(AuditChainTest, FilesFollowOneAnother) {
  const std::vector<std::string> lines = Chain(5);
  AuditVerifier verifier;
  ASSERT_EQ(verifier.BeginFile("audit-1.jsonl"), absl::OkStatus());
  ASSERT_EQ(verifier.PushBytes(lines[0] + '\n' + lines[1] + '\n'), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(verifier.BeginFile("audit-4.jsonl")));
  ASSERT_EQ(verifier.BeginFile("audit-3.jsonl"), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(verifier.Push(lines[3])));
  ASSERT_EQ(verifier.Push(lines[2]), absl::OkStatus());
  EXPECT_EQ(verifier.head().last, 3u);
  // A file that does not begin where its name says.
  AuditVerifier other;
  ASSERT_EQ(other.BeginFile("audit-2.jsonl"), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(other.Push(lines[2])));
  ASSERT_EQ(other.Push(lines[1]), absl::OkStatus());
  EXPECT_EQ(other.head().first, 2u);
  // A file without a final newline, followed by another file.
  ASSERT_EQ(other.PushBytes(lines[2]), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(other.BeginFile("audit-3.jsonl")));
}

TEST(AuditChainTest, FileNames) {
  EXPECT_EQ(AuditFileFirst(AuditFileName(17)), 17u);
  EXPECT_EQ(AuditFileFirst("audit-10.jsonl"), 10u);
  for (const char* name :
       {"", "audit-.jsonl", "audit-0.jsonl", "audit-01.jsonl", "audit-1.jsonl~", "audit-1", "audit-", "audit--1.jsonl",
        "audit-+1.jsonl", "audit-99999999999999999999.jsonl", "torn-1.bin", "audit-18446744073709551615.jsonl"}) {
    EXPECT_EQ(AuditFileFirst(name), std::nullopt) << name;
  }
}

TEST(AuditChainTest, OtherFormsAreNoLines) {
  const std::string line = Line(1, AuditOrigin());
  EXPECT_TRUE(ParseAuditLine(line).has_value());
  const std::string hash = line.substr(line.size() - 75);
  for (const std::string& other : {std::string(), std::string("{}"), hash, "{\"seq\":" + hash, line + " ", " " + line,
                                   "{\"seq\":01,\"time\":\"\",\"prev\":\"" + AuditOrigin() + "\",\"a\":1" + hash,
                                   "{\"seq\":0,\"time\":\"\",\"prev\":\"" + AuditOrigin() + "\",\"a\":1" + hash,
                                   "{\"seq\":1,\"time\":\"\",\"prev\":\"" + AuditOrigin() + hash,
                                   "{\"seq\":1,\"time\":\"" + std::string(200, 'x') + hash,
                                   "{\"seq\":1,\"time\":\"\",\"prev\":\"" + std::string(64, 'G') + "\",\"a\":1" + hash,
                                   "{\"seq\":1,\"time\":\"\",\"prev\":\"" + AuditOrigin() + "\",\"a\":\"" +
                                       std::string(kAuditLineBytesMax, 'x') + "\"" + hash}) {
    EXPECT_FALSE(ParseAuditLine(other).has_value()) << other.substr(0, 200);
  }
}

// A line of unbounded length is not buffered.
TEST(AuditChainTest, ALineWithoutEndIsRefused) {
  AuditVerifier verifier;
  const std::string bytes(kAuditLineBytesMax - 1, 'x');
  ASSERT_EQ(verifier.PushBytes(bytes), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(verifier.PushBytes("xx")));
}

}  // namespace
}  // namespace hpvm::server
