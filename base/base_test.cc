// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "gtest/gtest.h"

#include "base/clock.h"
#include "base/diagnostic.h"
#include "base/hash.h"
#include "base/io/frame_socket.h"
#include "base/io/memfd.h"
#include "base/status.h"
#include "hpvm/element_type.h"

namespace hpvm {
namespace {

// Lines of context follow the message from the inside out, as the message guide requires.
TEST(StatusTest, WhileAddsALine) {
  Status status = While(ResourceExhausted("Size (5) is larger than the limit (4)."), "loading \"a\"");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(status), "Size (5) is larger than the limit (4).\n - While loading \"a\"");
  EXPECT_TRUE(While(absl::OkStatus(), "x").ok());
}

// Published test vectors: FIPS 180-4 "abc", RFC 4231 case 2.
TEST(HashTest, KnownVectors) {
  EXPECT_EQ(ToHex(HashOf("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  std::string key = "Jefe";
  std::string data = "what do ya want for nothing?";
  Sha256 mac = HmacOf({reinterpret_cast<const uint8_t*>(key.data()), key.size()},
                      {reinterpret_cast<const uint8_t*>(data.data()), data.size()});
  EXPECT_EQ(ToHex(mac), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  Hasher hasher;
  hasher.Add("a");
  hasher.Add("bc");
  EXPECT_EQ(hasher.Finish(), HashOf("abc"));
}

TEST(HashTest, HexRoundTripAndRefusals) {
  Sha256 hash = HashOf("x");
  EXPECT_EQ(Sha256FromHex(ToHex(hash)), hash);
  EXPECT_FALSE(Sha256FromHex("12").has_value());
  EXPECT_FALSE(Sha256FromHex(std::string(63, '0') + "G").has_value());
}

TEST(ElementTypeTest, TableIsConsistent) {
  for (const ElementTypeInfo& info : kElementTypes) {
    EXPECT_EQ(&Info(info.type), &info);
    EXPECT_EQ(ElementTypeFromName(info.name), info.type);
  }
  EXPECT_FALSE(ElementTypeFromName("f8").has_value());
}

// Overflow is noticed wherever it happens, and an empty tensor is empty however large its other extents are.
TEST(ElementTypeTest, TensorBytesAreChecked) {
  const uint64_t big = uint64_t{1} << 62;
  EXPECT_EQ(TensorBytes(ElementType::kF64, {}), 8u);
  EXPECT_EQ(TensorBytes(ElementType::kF32, std::vector<uint64_t>{3, 5}), 60u);
  EXPECT_EQ(TensorBytes(ElementType::kU8, std::vector<uint64_t>{big, 0, big}), 0u);
  EXPECT_EQ(TensorBytes(ElementType::kU8, std::vector<uint64_t>{big}), big);
  EXPECT_FALSE(TensorBytes(ElementType::kU16, std::vector<uint64_t>{big}).has_value());
  EXPECT_FALSE(TensorBytes(ElementType::kU8, std::vector<uint64_t>{big, big, big}).has_value());
}

TEST(MemfdTest, SizeIsSealed) {
  StatusOr<UniqueFd> fd = CreateSealedMemfd("test", 4096);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(*CheckSealedMemfd(fd->get()), 4096u);
  EXPECT_NE(ftruncate(fd->get(), 8192), 0);
  EXPECT_NE(ftruncate(fd->get(), 0), 0);
  uint8_t data[3] = {1, 2, 3};
  ASSERT_TRUE(WriteAt(fd->get(), 4093, data).ok());
  EXPECT_FALSE(WriteAt(fd->get(), 4094, data).ok());
  uint8_t back[4];
  EXPECT_FALSE(ReadAt(fd->get(), 4094, back).ok());
}

TEST(MemfdTest, RefusesPlainFiles) {
  UniqueFd file(open("/dev/null", O_RDONLY));
  EXPECT_FALSE(CheckSealedMemfd(file.get()).ok());
}

TEST(FrameSocketTest, CarriesHeadBodyAndDescriptors) {
  auto pair = CreateSocketPair();
  ASSERT_TRUE(pair.ok());
  std::vector<uint8_t> body(3 << 20);
  for (size_t i = 0; i < body.size(); ++i) {
    body[i] = static_cast<uint8_t>(i * 7);
  }
  StatusOr<UniqueFd> memory = CreateSealedMemfd("x", 10);
  int fd = memory->get();
  std::thread sender([&] { EXPECT_TRUE(SendFrame(pair->first.get(), "head", body, {&fd, 1}).ok()); });
  StatusOr<Frame> frame = ReceiveFrame(pair->second.get(), {}, RealClock().Now() + std::chrono::seconds(20));
  sender.join();
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->head, "head");
  EXPECT_EQ(frame->body, body);
  ASSERT_EQ(frame->fds.size(), 1u);
  EXPECT_EQ(*CheckSealedMemfd(frame->fds[0].get()), 10u);
}

// Reading one frame leaves the next frame and its descriptor to the next reader.
TEST(FrameSocketTest, TakesNothingOfTheNextFrame) {
  auto pair = CreateSocketPair();
  ASSERT_TRUE(pair.ok());
  StatusOr<UniqueFd> memory = CreateSealedMemfd("x", 10);
  int fd = memory->get();
  const uint8_t body[] = {1, 2, 3};
  ASSERT_TRUE(SendFrame(pair->first.get(), "").ok());
  ASSERT_TRUE(SendFrame(pair->first.get(), "second", body, {&fd, 1}).ok());
  ASSERT_TRUE(SendFrame(pair->first.get(), "third").ok());
  StatusOr<Frame> frame = ReceiveFrame(pair->second.get(), {});
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_TRUE(frame->head.empty() && frame->body.empty() && frame->fds.empty());
  frame = ReceiveFrame(pair->second.get(), {});
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->head, "second");
  EXPECT_EQ(frame->body, std::vector<uint8_t>(body, body + 3));
  EXPECT_EQ(frame->fds.size(), 1u);
  EXPECT_EQ(ReceiveFrame(pair->second.get(), {})->head, "third");
}

// Lengths are used only after they were compared with the limits.
TEST(FrameSocketTest, RefusesWhatBreaksTheLimits) {
  struct Case {
    uint32_t header[4];
  } cases[] = {{{0, 0, 0, 0}},
               {{0x48504d31, 65537, 0, 0}},
               {{0x48504d31, 0, 0xffffffff, 0}},
               {{0x48504d31, 0, 0, 17}},
               {{0x48504d31, 0, 0, 1}}};
  for (const Case& c : cases) {
    auto pair = CreateSocketPair();
    ASSERT_EQ(write(pair->first.get(), c.header, sizeof(c.header)), 16);
    StatusOr<Frame> frame = ReceiveFrame(pair->second.get(), {}, RealClock().Now() + std::chrono::seconds(5));
    EXPECT_EQ(frame.status().code(), absl::StatusCode::kInvalidArgument) << c.header[1];
  }
}

TEST(FrameSocketTest, EndsAndDeadlines) {
  auto pair = CreateSocketPair();
  EXPECT_EQ(ReceiveFrame(pair->second.get(), {}, RealClock().Now() + std::chrono::milliseconds(10)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  pair->first.reset();
  EXPECT_EQ(ReceiveFrame(pair->second.get(), {}).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hpvm
