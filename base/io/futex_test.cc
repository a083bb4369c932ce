// SPDX-License-Identifier: Apache-2.0
#include "base/io/futex.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "gtest/gtest.h"

#include "base/io/memfd.h"

namespace hpvm {
namespace {

constexpr uint32_t kAll = 0xffffffffu;

// A waiter returns when the word changed before the wait, and when nobody changes it.
TEST(FutexTest, ReturnsWithoutAWake) {
  std::atomic<uint32_t> word{1};
  FutexWait(word, 0, FutexScope::kProcess);
  FutexWait(word, 0, std::chrono::seconds(100), FutexScope::kShared);
  FutexWait(word, 1, std::chrono::milliseconds(1), FutexScope::kProcess);
  FutexWait(word, 1, std::chrono::milliseconds(-5), FutexScope::kShared);
}

TEST(FutexTest, WakesThreads) {
  std::atomic<uint32_t> word{0};
  std::thread waiter([&] {
    while (word.load() == 0) {
      FutexWait(word, 0, FutexScope::kProcess);
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  word = 1;
  FutexWake(word, kAll, FutexScope::kProcess);
  waiter.join();
}

// Another process wakes a waiter whose own mapping is read-only: a grant page.
TEST(FutexTest, WakesAcrossProcesses) {
  const StatusOr<UniqueFd> memory = CreateSealedMemfd("hpvm-test", 4096);
  ASSERT_TRUE(memory.ok()) << memory.status();
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory->get(), 0);
  const void* view = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, memory->get(), 0);
  ASSERT_NE(page, MAP_FAILED);
  ASSERT_NE(view, MAP_FAILED);
  auto& word = *static_cast<std::atomic<uint32_t>*>(page);
  const auto& read_only = *static_cast<const std::atomic<uint32_t>*>(view);
  const pid_t child = fork();
  if (child == 0) {
    usleep(20'000);
    word = 1;
    FutexWake(word, kAll, FutexScope::kShared);
    _exit(0);
  }
  while (read_only.load() == 0) {
    FutexWait(read_only, 0, FutexScope::kShared);  // Blocks for ever unless woken.
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  munmap(page, 4096);
  munmap(const_cast<void*>(view), 4096);
}

}  // namespace
}  // namespace hpvm
