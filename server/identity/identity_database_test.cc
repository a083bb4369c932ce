// SPDX-License-Identifier: Apache-2.0
// Tests the database on a disk that loses power, fails and is written by other programs.
#include "server/identity/identity_database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "server/jobs/testing/disk_vfs.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kPath[] = "/s/identity.sqlite";

struct World {
  explicit World(uint64_t seed) : rng(seed), disk(seed) {
    disk.AddFolder("/s");
    vfs = *DiskVfs::Register(disk, clock, rng);
  }
  StatusOr<std::unique_ptr<IdentityDatabase>> Open() { return IdentityDatabase::Open(kPath, disk, vfs->name()); }

  ManualClock clock;
  SeededRng rng;
  SimDisk disk;
  std::unique_ptr<DiskVfs> vfs;
};

v1::Tenant TenantNamed(const std::string& name, uint32_t weight) {
  v1::Tenant tenant;
  tenant.set_name(name);
  tenant.set_weight(weight);
  return tenant;
}

StoredToken TokenOf(const std::string& id, int64_t revoked) {
  StoredToken token;
  token.token.set_id(id);
  token.token.set_tenant("ann");
  token.token.set_revoked_unix_ns(revoked);
  token.secret_hash = HashOf(id);
  return token;
}

// Makes one of the kSteps writes of a daemon's life, which create and change tenants, and create and revoke tokens.
constexpr int kSteps = 8;
Status Step(IdentityDatabase& database, int step) {
  switch (step) {
    case 0:
    case 1:
      return database.Put(TenantNamed(step == 0 ? "ann" : "bob", 1));
    case 4:
      return database.Put(TenantNamed("ann", 2));
    case 5:
      return database.Put(TokenOf("tok-2", 9));
    case 7:
      return database.Put(TokenOf("tok-7", 0), {"tok-2"});
    default:
      return database.Put(TokenOf("tok-" + std::to_string(step), 0));
  }
}

std::string TextOf(IdentityDatabase& database) {
  const StatusOr<IdentityContents> contents = database.Load();
  if (!contents.ok()) {
    return contents.status().ToString();
  }
  std::string text;
  for (const v1::Tenant& tenant : contents->tenants) {
    text += tenant.ShortDebugString() + "\n";
  }
  for (const StoredToken& token : contents->tokens) {
    text += token.token.ShortDebugString() + " " + ToHex(token.secret_hash) + "\n";
  }
  return text;
}

std::string TextAfter(int count) {
  World world(1);
  auto database = world.Open();
  EXPECT_TRUE(database.ok()) << database.status();
  for (int step = 0; step < count; ++step) {
    EXPECT_TRUE(Step(**database, step).ok());
  }
  return TextOf(**database);
}

// Power is lost after every change of the disk: all acknowledged writes are there, and the write in progress is there
// completely or not at all. A revoked token does not become valid again.
TEST(IdentityDatabaseTest, PowerIsLostAfterEveryChange) {
  std::vector<std::string> wanted;
  for (int count = 0; count <= kSteps; ++count) {
    wanted.push_back(TextAfter(count));
  }
  ASSERT_NE(wanted[5], wanted[6]);
  bool reached_end = false;
  uint64_t crashes = 0;
  for (uint64_t after = 0; !reached_end; ++after) {
    SCOPED_TRACE("power lost after " + std::to_string(after) + " changes");
    World world(after + 1);
    world.disk.PowerOffAfter(after);
    int acknowledged = 0;
    bool opened = false;
    {
      auto database = world.Open();
      opened = database.ok();
      while (opened && acknowledged < kSteps && Step(**database, acknowledged).ok()) {
        ++acknowledged;
      }
      reached_end = !world.disk.is_off();
      world.disk.PowerOffAfter(0);
    }
    world.disk.Crash(world.rng);
    ++crashes;
    auto database = world.Open();
    ASSERT_TRUE(database.ok()) << database.status();
    const std::string text = TextOf(**database);
    if (text != wanted[acknowledged]) {
      ASSERT_LT(acknowledged, kSteps);
      EXPECT_EQ(text, wanted[acknowledged + 1]);
    }
  }
  EXPECT_GT(crashes, 50u);
}

// After a write whose outcome is unknown nothing more is written, until the next start.
TEST(IdentityDatabaseTest, StopsAfterAFailedSync) {
  World world(1);
  auto database = world.Open();
  ASSERT_TRUE(database.ok()) << database.status();
  ASSERT_TRUE(Step(**database, 0).ok());
  world.disk.FailNth(SimDisk::Op::kSync, 1, {});
  EXPECT_FALSE(Step(**database, 1).ok());
  const Status later = Step(**database, 2);
  EXPECT_EQ(later.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(later), HasSubstr("known after the next start"));
}

class IdentityFileTest : public ::testing::Test {
 protected:
  IdentityFileTest() {
    char folder[] = "/tmp/hpvmd-identity-test-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/identity.sqlite";
  }
  ~IdentityFileTest() override { std::filesystem::remove_all(folder_); }
  void Sql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  void MakeOne() {
    auto database = IdentityDatabase::Open(path_);
    ASSERT_TRUE(database.ok()) << database.status();
    ASSERT_TRUE((*database)->Put(TenantNamed("ann", 1)).ok());
    ASSERT_TRUE((*database)->Put(TokenOf("tok-1", 0)).ok());
  }
  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  Status Load() {
    auto database = IdentityDatabase::Open(path_);
    return database.ok() ? (*database)->Load().status() : database.status();
  }
  std::string folder_, path_;
};

TEST_F(IdentityFileTest, DoesNotTouchWhatIsNotOurs) {
  Sql("CREATE TABLE recipes(name TEXT)");
  EXPECT_EQ(Load().code(), StatusCode::kFailedPrecondition);
  Sql("SELECT name FROM recipes");
}

TEST_F(IdentityFileTest, RefusesLaterReleases) {
  MakeOne();
  Sql("PRAGMA user_version=2; PRAGMA journal_mode=DELETE");
  const std::string before = Bytes();
  const Status status = Load();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr(path_), HasSubstr("version 2 of a later release"), HasSubstr("knows version 1"),
                    HasSubstr("Start the later release, or restore a backup")));
  EXPECT_TRUE(before == Bytes());
}

// Rows that another program has changed are rejected, be it a name, a role or a secret's hash.
TEST_F(IdentityFileTest, RefusesRowsThatWereChanged) {
  for (const char* sql : {"UPDATE tenants SET name = 'eve'", "UPDATE tenants SET record = x'00'",
                          "UPDATE tenants SET sum = sum + 1", "UPDATE tokens SET secret_sha256 = randomblob(32)",
                          "UPDATE tokens SET secret_sha256 = x'00'", "UPDATE tokens SET tenant = 'eve'",
                          "UPDATE tokens SET id = 'tok-2'", "UPDATE tokens SET record = record || x'1803'"}) {
    SCOPED_TRACE(sql);
    MakeOne();
    EXPECT_TRUE(Load().ok());
    Sql(sql);
    const Status status = Load();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(Message(status), HasSubstr("is damaged"));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
}

}  // namespace
}  // namespace hpvm::server
