// SPDX-License-Identifier: Apache-2.0
#include "server/memory/blob_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/io/memfd.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

BlobRef MakeBlob(const std::string& text) {
  auto upload = *BlobUpload::Start("module", ToHex(HashOf(text)), text.size(), 1000, 1, "m");
  EXPECT_TRUE(upload->Add(text).ok());
  return *upload->Finish();
}

// Every kind of wrong upload is refused with the value and the limit.
TEST(BlobUploadTest, RefusesWrongUploads) {
  struct Case {
    const char* name;
    std::string sha256;
    uint64_t size;
    std::string data;
    const char* want;
  };
  const std::string hash = ToHex(HashOf("abc"));
  const Case cases[] = {
      {"NotHex", "xyz", 3, "abc", "not 64 lower-case hexadecimal digits"},
      {"UpperCase", std::string(64, 'A'), 3, "abc", "not 64 lower-case hexadecimal digits"},
      {"Empty", hash, 0, "", "is empty (0 bytes)"},
      {"TooLarge", hash, 1001, "abc", "(1001) is larger than the limit (1000)"},
      {"TooLong", hash, 2, "abc", "more bytes than its header says (2)"},
      {"TooShort", hash, 4, "abc", "ends after 3 of 4 bytes"},
      {"OtherBytes", hash, 3, "abd", "its header says "},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    auto upload = BlobUpload::Start("module", c.sha256, c.size, 1000, 0, "");
    Status status = upload.status();
    if (status.ok()) {
      status = (*upload)->Add(c.data);
    }
    if (status.ok()) {
      status = (*upload)->Finish().status();
    }
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr(c.want));
  }
}

// A finished blob cannot be changed, not even through its descriptor.
TEST(BlobUploadTest, SealsContents) {
  const BlobRef blob = MakeBlob("abc");
  const uint8_t byte = 'x';
  EXPECT_FALSE(WriteAt(blob->fd.get(), 0, {&byte, 1}).ok());
  EXPECT_EQ(*CheckSealedMemfd(blob->fd.get()), 3u);
}

// The least recently used blob goes first; blobs in use stay, even when nothing else fits.
TEST(BlobStoreTest, DropsWhatNobodyUses) {
  BlobStore store("module", 8);
  const StatusOr<BlobRef> used = store.Insert(MakeBlob("aaa"));
  ASSERT_TRUE(used.ok());
  ASSERT_TRUE(store.Insert(MakeBlob("bbb")).ok());
  ASSERT_TRUE(store.Insert(MakeBlob("ccc")).ok());
  EXPECT_TRUE(store.Find(HashOf("aaa")).ok());
  EXPECT_FALSE(store.Find(HashOf("bbb")).ok());
  EXPECT_EQ(store.bytes(), 6u);
  const Status status = store.Insert(MakeBlob("dddddd")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store.Find(HashOf("aaa")).ok());
}

// Inserting an existing blob returns the store's own, and holds that one.
TEST(BlobStoreTest, AnswersWithWhatItKeeps) {
  BlobStore store("module", 4);
  BlobRef first = *store.Insert(MakeBlob("aaa"));
  BlobRef second = *store.Insert(MakeBlob("aaa"));
  EXPECT_EQ(first.get(), second.get());
  first = nullptr;
  EXPECT_FALSE(store.DropOne());
  second = nullptr;
  EXPECT_TRUE(store.DropOne());
  EXPECT_EQ(store.size(), 0u);
}

// Lists each blob once, by hash, page by page; shows which are lent, and only removes the others.
TEST(BlobStoreTest, ListsAndRemoves) {
  ManualClock clock;
  BlobStore store("module", 1000, {}, &clock);
  std::map<std::string, BlobRef> blobs;  // The loans.
  for (const char* text : {"a", "bb", "ccc", "dddd"}) {
    blobs[ToHex(HashOf(std::string_view(text)))] = *store.Insert(MakeBlob(text));
  }
  clock.Advance(std::chrono::seconds(5));
  std::vector<std::string> seen;
  std::optional<Sha256> last;
  for (std::vector<BlobStore::Listed> page; !(page = store.After(last, 3)).empty(); last = page.back().blob->hash) {
    for (const BlobStore::Listed& listed : page) {
      seen.push_back(ToHex(listed.blob->hash));
      EXPECT_TRUE(listed.is_lent);
      EXPECT_EQ(clock.Now() - listed.used, std::chrono::seconds(5));
    }
  }
  std::vector<std::string> wanted;
  for (const auto& [hash, blob] : blobs) {
    wanted.push_back(hash);
  }
  EXPECT_EQ(seen, wanted);
  const Sha256 hash = HashOf(std::string_view("bb"));
  EXPECT_TRUE(absl::IsFailedPrecondition(store.Remove(hash).status()));
  blobs.clear();
  EXPECT_EQ((*store.Remove(hash))->size_bytes, 2u);
  EXPECT_TRUE(absl::IsNotFound(store.Remove(hash).status()));
  EXPECT_EQ(store.bytes(), 8u);
  EXPECT_EQ(store.size(), 3u);
  const BlobRef used = *store.Find(HashOf(std::string_view("ccc")));
  EXPECT_EQ(store.TakeUnused(1).size(), 1u);
  EXPECT_EQ(store.TakeUnused(9).size(), 1u);
  EXPECT_EQ(store.bytes(), 3u);
}

}  // namespace
}  // namespace hpvm::server
