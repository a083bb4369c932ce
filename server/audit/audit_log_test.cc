// SPDX-License-Identifier: Apache-2.0
// Tests of the audit on a disk that fails, fills up and loses power.
#include "server/audit/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/failpoint.h"
#include "server/audit/audit_backlog.h"
#include "server/audit/audit_files.h"
#include "server/audit/audit_observer.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

constexpr char kFolder[] = "/state/audit";
constexpr uint64_t kFileBytesMax = 1 << 20;

AuditRecord Record(const std::string& object, const std::string& detail = "") {
  return {.who = "token tok-1",
          .peer = "ipv4:127.0.0.1:5",
          .tenant = "blue",
          .method = "/hpvm.v1.Hpvm/Submit",
          .object = object,
          .verdict = "ok",
          .detail = detail};
}

class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest() { disk_.AddFolder("/state"); }

  void Open(uint64_t file_bytes_max = kFileBytesMax) {
    StatusOr<std::unique_ptr<AuditLog>> log = OpenAuditLog(disk_, kFolder, file_bytes_max, clock_);
    ASSERT_TRUE(log.ok()) << log.status();
    log_ = *std::move(log);
  }
  void Add(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      log_->Append(Record("job-" + std::to_string(++added_)));
    }
  }
  std::vector<std::string> Lines(uint64_t from = 0) {
    std::vector<std::string> lines;
    EXPECT_EQ(log_->Read(from,
                         [&](std::string_view line) {
                           lines.emplace_back(line);
                           return true;
                         }),
              absl::OkStatus());
    return lines;
  }
  // Checks that all files are one chain from the first record on.
  AuditHead Verified() {
    AuditVerifier verifier;
    for (const std::string& line : Lines()) {
      EXPECT_EQ(verifier.Push(line), absl::OkStatus());
    }
    EXPECT_EQ(verifier.head().first, verifier.head().last == 0 ? 0u : 1u);
    return verifier.head();
  }
  std::vector<std::string> Files() {
    std::vector<std::string> names;
    const StatusOr<std::vector<DiskEntry>> entries = disk_.List(kFolder);
    for (const DiskEntry& entry : *entries) {
      names.push_back(entry.name);
    }
    return names;
  }
  std::string Contents(const std::string& name) {
    auto file = disk_.Open(std::string(kFolder) + "/" + name, Disk::Mode::kRead);
    EXPECT_TRUE(file.ok()) << file.status();
    std::string bytes(*(*file)->Size(), '\0');
    EXPECT_TRUE((*file)->ReadAt(0, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}).ok());
    return bytes;
  }
  void WriteFile(const std::string& name, const std::string& bytes) {
    auto file = disk_.Open(std::string(kFolder) + "/" + name, Disk::Mode::kOpenOrCreate);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ((*file)->Truncate(0), absl::OkStatus());
    ASSERT_EQ((*file)->WriteAt(0, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}), absl::OkStatus());
    ASSERT_EQ((*file)->Sync(), absl::OkStatus());
    ASSERT_EQ(disk_.SyncFolder(kFolder), absl::OkStatus());
  }

  SimDisk disk_;
  ManualClock clock_;
  std::unique_ptr<AuditLog> log_;
  size_t added_ = 0;
};

TEST_F(AuditLogTest, ARecordIsALineOfJson) {
  Open();
  log_->Append(Record("job-1", "A sentence."));
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("{\"seq\":1,\"time\":\"2023-11-14T22:13:20.000000Z\",\"prev\":\"" + AuditOrigin() +
                                  "\",\"who\":\"token tok-1\",\"peer\":\"ipv4:127.0.0.1:5\",\"tenant\":\"blue\","
                                  "\"method\":\"/hpvm.v1.Hpvm/Submit\",\"object\":\"job-1\",\"verdict\":\"ok\","
                                  "\"detail\":\"A sentence.\",\"hash\":\""));
  EXPECT_EQ(Verified().last, 1u);
}

// Values chosen by a client cannot make a second record, end a string, or control a terminal.
TEST_F(AuditLogTest, ValuesAreEscapedAndCut) {
  Open();
  AuditRecord record = Record("x\",\"verdict\":\"ok", "a\nb\x1b[31m\\\xff\xc2\x9b" + std::string(5'000, 'x'));
  record.tenant = std::string(100'000, '\x01');
  log_->Append(record);
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_LT(lines[0].size(), kAuditLineBytesMax);
  EXPECT_THAT(lines[0], HasSubstr("\"object\":\"x\\\",\\\"verdict\\\":\\\"ok\""));
  EXPECT_THAT(lines[0], HasSubstr("\"detail\":\"a\\\\nb\\\\x1b[31m\\\\\\\\xff\\\\xc2\\\\x9bxxx"));
  EXPECT_THAT(lines[0], HasSubstr("…\",\"hash\":"));
  EXPECT_EQ(Verified().last, 1u);
}

// The longest possible record still fits in a line.
TEST_F(AuditLogTest, TheLongestRecordIsALine) {
  Open();
  const std::string longest(10'000, '\xff');
  log_->Append({longest, longest, longest, longest, longest, longest, longest});
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  EXPECT_EQ(Verified().last, 1u);
}

TEST_F(AuditLogTest, TheChainGoesOnOverRestarts) {
  for (int i = 0; i < 5; ++i) {
    Open();
    Add(7);
    log_.reset();  // Writes the waiting records.
  }
  Open();
  EXPECT_EQ(Verified().last, 35u);
  EXPECT_EQ(Files(), std::vector<std::string>{"audit-1.jsonl"});
}

TEST_F(AuditLogTest, FilesRotateAndTheChainGoesOn) {
  for (int i = 0; i < 3; ++i) {
    Open(/*file_bytes_max=*/4'000);
    for (int j = 0; j < 10; ++j) {
      Add(3);
      ASSERT_EQ(log_->Flush(), absl::OkStatus());
    }
    log_.reset();
  }
  Open(4'000);
  EXPECT_EQ(Verified().last, 90u);
  EXPECT_GT(Files().size(), 5u);
  for (const std::string& name : Files()) {
    const std::string bytes = Contents(name);
    const std::string first = bytes.substr(0, bytes.find('\n'));
    EXPECT_EQ(ParseAuditLine(first)->sequence, AuditFileFirst(name)) << name;
  }
  // Reads from the middle on.
  const std::vector<std::string> lines = Lines(41);
  ASSERT_EQ(lines.size(), 50u);
  EXPECT_EQ(ParseAuditLine(lines[0])->sequence, 41u);
}

// Copies beside the running daemon: the copy is the same chain, without the line that is being written. Removed files
// are the oldest; a record says so, and the remaining chain is whole.
TEST_F(AuditLogTest, OldFilesGoByBytes) {
  Open(2'000);
  log_->SetRetention({.keep_days = 0, .bytes_max = 8'000});
  for (int i = 0; i < 60; ++i) {
    Add(1);
    ASSERT_EQ(log_->Flush(), absl::OkStatus());
  }
  const std::vector<std::string> lines = Lines();
  AuditVerifier verifier;
  for (const std::string& line : lines) {
    ASSERT_EQ(verifier.Push(line), absl::OkStatus());
  }
  const uint64_t first = verifier.head().first;
  EXPECT_GT(first, 20u);
  EXPECT_GE(verifier.head().last, 60u);
  EXPECT_LE(Files().size(), 6u);
  const std::string said = "to " + std::to_string(first - 1) +
                           " were removed, because audit.bytes_max says so. The head was " + std::to_string(first - 1) +
                           ":" + std::string(ParseAuditLine(lines.front())->previous);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [&](const std::string& line) { return line.find(said) != std::string::npos; }),
            1);
  log_.reset();
  Open(2'000);  // The log continues, and nothing is missing.
  Add(1);
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  for (const std::string& line : Lines(verifier.head().last + 1)) {
    EXPECT_EQ(verifier.Push(line), absl::OkStatus());
    EXPECT_THAT(line, testing::Not(HasSubstr("recovery")));
  }
}

// At most one file per hour is removed by age: a clock that jumps is noticed before the log is gone.
TEST_F(AuditLogTest, OldFilesGoByAge) {
  Open(1'000);
  for (int i = 0; i < 4; ++i) {
    Add(20);
    ASSERT_EQ(log_->Flush(), absl::OkStatus());
  }
  ASSERT_GT(Files().size(), 3u);
  log_->SetRetention({.keep_days = 2, .bytes_max = 0});
  const auto write = [this] {
    for (int i = 0; i < 3; ++i) {
      Add(1);
      ASSERT_EQ(log_->Flush(), absl::OkStatus());
    }
  };
  write();
  EXPECT_EQ(Lines().front().find("{\"seq\":1,"), 0u);  // Nothing is old.
  clock_.JumpWall(3 * 86'400'000'000'000);
  clock_.Advance(std::chrono::minutes(61));
  write();
  const auto oldest = [this] { return ParseAuditLine(Lines().front())->sequence; };
  const uint64_t one = oldest();
  EXPECT_GT(one, 1u);
  clock_.Advance(std::chrono::minutes(59));
  write();
  EXPECT_EQ(oldest(), one);
  clock_.Advance(std::chrono::minutes(2));
  write();
  EXPECT_GT(oldest(), one);
  EXPECT_THAT(Lines(), testing::Contains(HasSubstr("because audit.keep_days says so")));
}

TEST_F(AuditLogTest, BacksUpWholeLines) {
  disk_.AddFolder("/backup");
  EXPECT_EQ(BackUpAudit(disk_, "/nowhere", "/backup").value(), 0u);
  Open(2'000);
  for (int i = 0; i < 6; ++i) {
    Add(5);
    ASSERT_TRUE(log_->Flush().ok());
  }
  const std::vector<std::string> files = Files();
  ASSERT_GT(files.size(), 2u);
  const AuditHead head = Verified();
  {
    // Names sort by number; here their numbers have equally many digits.
    std::string last;
    for (const std::string& name : files) {
      last = AuditFileFirst(name).value_or(0) > AuditFileFirst(last).value_or(0) ? name : last;
    }
    auto file = disk_.Open(std::string(kFolder) + "/" + last, Disk::Mode::kReadWrite);
    const std::string torn = "{\"seq\":31,";
    ASSERT_TRUE((*file)->WriteAt(*(*file)->Size(), {reinterpret_cast<const uint8_t*>(torn.data()), torn.size()}).ok());
  }
  EXPECT_EQ(BackUpAudit(disk_, "/state", "/backup").value(), files.size());
  AuditVerifier verifier;
  ASSERT_TRUE(AuditFiles::Read(disk_, "/backup/audit", 0, UINT64_MAX, [&](std::string_view line) {
                EXPECT_TRUE(verifier.Push(line).ok()) << line;
                return true;
              }).ok());
  EXPECT_EQ(verifier.head().last, head.last);
  EXPECT_EQ(verifier.head().hash, head.hash);
}

TEST_F(AuditLogTest, ReadingStopsWhenAsked) {
  Open();
  Add(10);
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  size_t count = 0;
  ASSERT_EQ(log_->Read(0, [&](std::string_view) { return ++count < 4; }), absl::OkStatus());
  EXPECT_EQ(count, 4u);
}

// A daemon that was killed during a write leaves a partial line.
TEST_F(AuditLogTest, ATornLineIsSetAsideAndSaid) {
  Open();
  Add(5);
  log_.reset();
  const std::string whole = Contents("audit-1.jsonl");
  for (const size_t cut : {size_t{1}, size_t{30}, size_t{200}}) {
    WriteFile("audit-1.jsonl", whole.substr(0, whole.size() - cut));
    Open();
    ASSERT_EQ(log_->Flush(), absl::OkStatus());
    EXPECT_EQ(Verified().last, 5u);
    EXPECT_THAT(Lines().back(), HasSubstr("\"method\":\"audit recovery\""));
    EXPECT_THAT(Lines().back(), HasSubstr("torn-5.bin"));
    log_.reset();
    EXPECT_THAT(Contents("torn-5.bin"), HasSubstr("{\"seq\":5,"));
    ASSERT_EQ(disk_.Remove(std::string(kFolder) + "/torn-5.bin"), absl::OkStatus());
  }
}

// After a power loss at any time, records confirmed by Flush are there, and the rest is a chain too.
TEST_F(AuditLogTest, ConfirmedRecordsSurviveLossesOfPower) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SimDisk disk(seed);
    disk.AddFolder("/state");
    SeededRng rng(seed);
    uint64_t confirmed = 0;
    for (int life = 0; life < 4; ++life) {
      StatusOr<std::unique_ptr<AuditLog>> log = OpenAuditLog(disk, kFolder, 2'000, clock_);
      ASSERT_TRUE(log.ok()) << log.status() << " seed " << seed;
      disk.PowerOffAfter(rng.Below(20));
      for (int i = 0; i < 6; ++i) {
        const uint64_t count = 1 + rng.Below(4);
        for (uint64_t j = 0; j < count; ++j) {
          (*log)->Append(Record("job-" + std::to_string(j)));
        }
        if ((*log)->Flush().ok()) {
          confirmed += count;
        }
      }
      log->reset();
      disk.Crash(rng);
      StatusOr<std::unique_ptr<AuditLog>> again = OpenAuditLog(disk, kFolder, 2'000, clock_);
      ASSERT_TRUE(again.ok()) << again.status() << " seed " << seed;
      ASSERT_EQ((*again)->Flush(), absl::OkStatus());
      AuditVerifier verifier;
      uint64_t others = 0;
      ASSERT_EQ((*again)->Read(0,
                               [&](std::string_view line) {
                                 EXPECT_EQ(verifier.Push(line), absl::OkStatus()) << "seed " << seed;
                                 others += line.find("audit recovery") != std::string_view::npos ? 1 : 0;
                                 return true;
                               }),
                absl::OkStatus());
      EXPECT_GE(verifier.head().last - others, confirmed) << "seed " << seed;
      confirmed = verifier.head().last - others;
    }
  }
}

// Every disk operation fails once, in turn: in the end no appended record is missing.
TEST_F(AuditLogTest, EveryFailureOnceLosesNothing) {
  constexpr SimDisk::Op kOps[] = {SimDisk::Op::kCreate, SimDisk::Op::kWrite, SimDisk::Op::kSync,
                                  SimDisk::Op::kSyncFolder, SimDisk::Op::kTruncate};
  for (const SimDisk::Op op : kOps) {
    for (const absl::StatusCode code : {absl::StatusCode::kDataLoss, absl::StatusCode::kResourceExhausted}) {
      for (uint64_t nth = 1; nth <= 6; ++nth) {
        SimDisk disk(nth);
        disk.AddFolder("/state");
        StatusOr<std::unique_ptr<AuditLog>> log = OpenAuditLog(disk, kFolder, 1'000, clock_);
        ASSERT_TRUE(log.ok());
        disk.FailNth(op, nth, {.code = code, .is_short = true});
        if (op == SimDisk::Op::kTruncate) {
          disk.FailNth(SimDisk::Op::kWrite, 1, {.code = code, .is_short = true});
        }
        for (int i = 1; i <= 12; ++i) {
          (*log)->Append(Record("job-" + std::to_string(i)));
          Status status = (*log)->Flush();
          for (int tries = 0; !status.ok() && tries < 10; ++tries) {
            EXPECT_EQ(status.code(), code);
            status = (*log)->Flush();
          }
          ASSERT_EQ(status, absl::OkStatus()) << static_cast<int>(op) << " " << nth;
        }
        EXPECT_EQ((*log)->Healthy(), absl::OkStatus());
        log->reset();
        SeededRng rng(nth);
        disk.Crash(rng, SimDisk::Keep::kNothing);
        log = OpenAuditLog(disk, kFolder, 1'000, clock_);
        ASSERT_TRUE(log.ok());
        AuditVerifier verifier;
        uint64_t records = 0;
        ASSERT_EQ((*log)->Read(0,
                               [&](std::string_view line) {
                                 EXPECT_EQ(verifier.Push(line), absl::OkStatus());
                                 EXPECT_THAT(std::string(line), HasSubstr("\"job-" + std::to_string(++records) + "\""));
                                 return true;
                               }),
                  absl::OkStatus());
        EXPECT_EQ(records, 12u);
      }
    }
  }
}

TEST_F(AuditLogTest, AFullDiskIsSaidAndWhatWaitsIsWrittenLater) {
  Open();
  Add(3);
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  disk_.SetSpace(disk_.used_bytes() + 100);
  Add(20);
  EXPECT_TRUE(absl::IsResourceExhausted(log_->Flush()));
  EXPECT_TRUE(absl::IsResourceExhausted(log_->Healthy())) << log_->Healthy();
  EXPECT_EQ(Verified().last, 3u);  // Records that are not on disk are not readable either.
  disk_.SetSpace(UINT64_MAX);
  EXPECT_EQ(log_->Flush(), absl::OkStatus());
  EXPECT_EQ(log_->Healthy(), absl::OkStatus());
  EXPECT_EQ(Verified().last, 23u);
}

// FlushThen calls back on the log's thread, when the records are on disk or the write fails; at the latest when the
// log ends.
TEST_F(AuditLogTest, FlushesWithoutWaiting) {
  Open();
  const auto flush = [this] {
    auto told = std::make_shared<std::promise<std::pair<Status, std::thread::id>>>();
    log_->FlushThen([told](const Status& status) { told->set_value({status, std::this_thread::get_id()}); });
    return told;
  };
  Add(1);
  const auto [good, thread] = flush()->get_future().get();
  EXPECT_EQ(good, absl::OkStatus());
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(flush()->get_future().get().first, absl::OkStatus());  // Nothing is left to write.
  ASSERT_TRUE(SetFailpoints("audit.write.before=error(unavailable)").ok());
  Add(1);
  EXPECT_FALSE(flush()->get_future().get().first.ok());
  const auto last = flush();
  log_.reset();
  EXPECT_FALSE(last->get_future().get().first.ok());
  ASSERT_TRUE(SetFailpoints("").ok());
}

// Records beyond the limit are counted, and the count is a record.
TEST_F(AuditLogTest, WhatIsLostIsSaidInTheRecord) {
  Open();
  Add(1);
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  disk_.FailNth(SimDisk::Op::kWrite, 1, {.code = absl::StatusCode::kDataLoss, .for_ever = true});
  Add(100'000);
  EXPECT_FALSE(log_->Healthy().ok());
  EXPECT_FALSE(log_->Flush().ok());
  disk_.ClearFaults();
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  EXPECT_EQ(log_->Healthy(), absl::OkStatus());
  const AuditHead head = Verified();
  EXPECT_LT(head.last, 100'001u);
  EXPECT_THAT(Lines(head.last).back(), HasSubstr("\"method\":\"audit overflow\""));
  // Every record is there or counted; on a slow machine by more than one record.
  uint64_t records = head.last;
  for (const std::string& line : Lines()) {
    if (line.find("\"method\":\"audit overflow\"") != line.npos) {
      records += std::stoull(line.substr(line.find("\"detail\":\"") + 10)) - 1;
    }
  }
  EXPECT_EQ(records, 100'001u);
}

// A tenant that makes more records than the disk can take loses its own records and no others.
TEST_F(AuditLogTest, AFloodCostsItsOwnRecords) {
  Open();
  disk_.FailNth(SimDisk::Op::kWrite, 1, {.code = absl::StatusCode::kDataLoss, .for_ever = true});
  const auto append = [&](const std::string& tenant, int count) {
    for (int i = 0; i < count; ++i) {
      log_->Append({.who = "w",
                    .peer = "",
                    .tenant = tenant,
                    .method = "m",
                    .object = "",
                    .verdict = "ok",
                    .detail = "",
                    .payer = tenant});
    }
  };
  append("hostile", 100'000);
  // The flood does not affect administrators; the disk's failure is another matter.
  EXPECT_FALSE(absl::IsResourceExhausted(log_->Healthy())) << log_->Healthy();
  append("quiet", 1'000);
  append("", 10);
  append("hostile", 1'000);
  disk_.ClearFaults();
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  Verified();
  std::map<std::string, uint64_t> counts;
  uint64_t lost = 0;
  for (const std::string& line : Lines()) {
    const bool is_count = line.find("audit overflow") != std::string::npos;
    for (const char* tenant : {"hostile", "quiet", ""}) {
      if (line.find("\"tenant\":\"" + std::string(tenant) + "\"") != std::string::npos) {
        counts[tenant] += is_count ? 0 : 1;
        lost += is_count ? std::stoull(line.substr(line.find("\"detail\":\"") + 10)) : 0;
      }
    }
  }
  EXPECT_EQ(counts["quiet"], 1'000u);
  EXPECT_EQ(counts[""], 10u);
  EXPECT_EQ(counts["hostile"] + lost, 101'000u);
  EXPECT_GT(lost, 60'000u);
}

// Callers who make up a tenant name for each call share the room of a few tenants.
TEST(AuditBacklogTest, MadeUpPayersShareRoom) {
  AuditBacklog backlog([](std::string_view payer, uint64_t, int64_t) { return std::string(payer); });
  for (int i = 0; i < 300'000; ++i) {
    backlog.Add({.payer = "made up " + std::to_string(i), .fields = "f", .unix_ns = 1});
  }
  EXPECT_LT(backlog.size(), 40'000u);
  EXPECT_EQ(backlog.size() + backlog.lost(), 300'000u);
  EXPECT_TRUE(backlog.Add({.payer = "", .fields = "f", .unix_ns = 1})) << "the daemon's own never share";
  uint64_t records = 0;
  while (!backlog.empty() || backlog.lost() > 0) {
    backlog.NoteLost(2);
    records += backlog.Pop().stands_for;
  }
  EXPECT_EQ(records, 300'001u);
  EXPECT_EQ(backlog.size(), 0u);
}

// Damage that a crash cannot cause is left for inspection, and the log continues.
TEST_F(AuditLogTest, DamageFurtherUpIsSaidAndKept) {
  Open();
  Add(2'000);
  log_.reset();
  const std::string before = Contents("audit-1.jsonl");
  ASSERT_GT(before.size(), 500'000u);
  ASSERT_TRUE(disk_.Damage(std::string(kFolder) + "/audit-1.jsonl", 100'000, 1));
  Open();
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  AuditVerifier verifier;
  size_t bad = 0, good = 0;
  for (const std::string& line : Lines()) {
    (verifier.Push(line).ok() ? good : bad) += 1;
  }
  EXPECT_GT(bad, 0u);
  EXPECT_THAT(Lines().back(), HasSubstr("is damaged after record " + std::to_string(verifier.head().last)));
  EXPECT_EQ(ParseAuditLine(Lines().back())->sequence, 2'001u);
  EXPECT_EQ(Files(), std::vector<std::string>{"audit-1.jsonl"});
}

// A crash between the creation of a file and its first line.
TEST_F(AuditLogTest, AnEmptyLastFileIsUsed) {
  Open();
  Add(4);
  log_.reset();
  WriteFile("audit-5.jsonl", "");
  Open();
  Add(1);
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  EXPECT_EQ(Verified().last, 5u);
  EXPECT_EQ(Lines().size(), 5u);
  EXPECT_GT(Contents("audit-5.jsonl").size(), 0u);
}

TEST_F(AuditLogTest, AMissingFileIsSaid) {
  Open();
  Add(4);
  log_.reset();
  WriteFile("audit-9.jsonl", "");  // Records 5 to 8 were in a file that somebody removed.
  Open();
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  EXPECT_THAT(Lines().back(), HasSubstr("Records 5 to 8 are missing."));
  EXPECT_EQ(ParseAuditLine(Lines().back())->sequence, 9u);
}

TEST_F(AuditLogTest, ManyThreadsMayAppendAndRead) {
  Open(20'000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      for (int j = 0; j < 200; ++j) {
        log_->Append(Record("job-" + std::to_string(i) + "-" + std::to_string(j)));
        if (j % 50 == 0) {
          EXPECT_EQ(log_->Flush(), absl::OkStatus());
          Verified();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  EXPECT_EQ(Verified().last, 800u);
}

TEST_F(AuditLogTest, TheObserverTellsWhatNoCallDid) {
  Open();
  AuditObserver observer(*log_);
  v1::Job job;
  job.set_id("job-1");
  for (const v1::JobState state : {v1::JOB_STATE_ACCEPTED, v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING}) {
    job.set_state(state);
    observer.On(events::JobChanged{"blue", job});
  }
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  observer.On(events::JobChanged{"blue", job});
  job.set_state(v1::JOB_STATE_FAILED);
  job.mutable_error()->set_code(static_cast<int>(absl::StatusCode::kAborted));
  job.mutable_error()->set_message("What a kernel said.");
  observer.On(events::JobChanged{"blue", job});
  for (const char* what : {"started", "crashed", "retired", "killed"}) {
    observer.On(events::ExecutorChanged{"blue", what});
  }
  observer.On(events::Reloaded{false});
  ASSERT_EQ(log_->Flush(), absl::OkStatus());
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[0], HasSubstr("\"method\":\"job end\",\"object\":\"job-1\",\"verdict\":\"ok\""));
  EXPECT_THAT(lines[1], HasSubstr("\"verdict\":\"ABORTED\",\"detail\":\"FAILED\""));
  EXPECT_THAT(lines[2], HasSubstr("\"method\":\"executor crashed\""));
  EXPECT_THAT(lines[3], HasSubstr("\"method\":\"executor killed\""));
  EXPECT_THAT(lines[4], HasSubstr("\"method\":\"configuration reload\""));
}

TEST(NoAuditLogTest, KeepsNothing) {
  NoAuditLog().Append(Record("job-1"));
  EXPECT_EQ(NoAuditLog().Flush(), absl::OkStatus());
  EXPECT_EQ(NoAuditLog().Healthy(), absl::OkStatus());
}

}  // namespace
}  // namespace hpvm::server
