// SPDX-License-Identifier: Apache-2.0
// Tests of clients' memory: what is accepted, and what is refused.
#include "server/memory/client_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/io/fd.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

UniqueFd Memory(int seals, unsigned flags = MFD_ALLOW_SEALING | MFD_CLOEXEC, off_t bytes = 8192) {
  UniqueFd fd(memfd_create("test", flags));
  EXPECT_TRUE(fd.valid());
  EXPECT_EQ(ftruncate(fd.get(), bytes), 0);
  EXPECT_TRUE(seals == 0 || fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

TEST(ClientMemoryTest, TakesSealedMemory) {
  const UniqueFd fd = Memory(F_SEAL_SHRINK | F_SEAL_GROW);
  const StatusOr<ClientMemory> memory = CheckClientMemory(fd.get());
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->bytes, 8192u);
  EXPECT_FALSE(memory->read_only);
  // Nobody can make it read-only any more, which would make a later mapping fail.
  EXPECT_NE(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(ClientMemoryTest, KnowsMemoryThatCanOnlyBeRead) {
  EXPECT_TRUE(CheckClientMemory(Memory(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE).get())->read_only);
  EXPECT_TRUE(CheckClientMemory(Memory(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE).get())->read_only);
  const UniqueFd fd = Memory(F_SEAL_SHRINK | F_SEAL_GROW);
  const UniqueFd reader(open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(CheckClientMemory(reader.get())->read_only);
}

TEST(ClientMemoryTest, RefusesWhatCouldChangeItsSizeOrIsNoMemory) {
  const auto refusal = [](const UniqueFd& fd) {
    const StatusOr<ClientMemory> memory = CheckClientMemory(fd.get());
    EXPECT_EQ(memory.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(memory.status().message());
  };
  EXPECT_THAT(refusal(Memory(0)), HasSubstr("not sealed"));
  EXPECT_THAT(refusal(Memory(F_SEAL_SHRINK)), HasSubstr("not sealed"));
  EXPECT_THAT(refusal(Memory(F_SEAL_GROW)), HasSubstr("not sealed"));
  EXPECT_THAT(refusal(Memory(F_SEAL_SHRINK | F_SEAL_GROW, MFD_ALLOW_SEALING | MFD_CLOEXEC, 0)), HasSubstr("no bytes"));
  EXPECT_THAT(refusal(UniqueFd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC))), HasSubstr("not shared memory"));
  EXPECT_THAT(refusal(UniqueFd(open("/dev/zero", O_RDWR | O_CLOEXEC))), HasSubstr("not sealed"));
  EXPECT_THAT(refusal(UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))), HasSubstr("not shared memory"));
  const UniqueFd fd = Memory(F_SEAL_SHRINK | F_SEAL_GROW);
  EXPECT_THAT(refusal(UniqueFd(open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_WRONLY | O_CLOEXEC))),
              HasSubstr("can be read"));
}

}  // namespace
}  // namespace hpvm::server
