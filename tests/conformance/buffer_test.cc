// SPDX-License-Identifier: Apache-2.0
// Memory: contents of fresh buffers, imports, limits, copies and fills.
#include <algorithm>
#include <numeric>

#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

std::vector<uint8_t> Numbered(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  std::iota(data.begin(), data.end(), uint8_t{1});
  return data;
}

// Fresh memory is zero, even when memory of that size was used and freed just before; sizes around the switch between
// heap and mapping.
void Zeroed(Bench& bench) {
  for (uint64_t bytes : {1u, 63u, 4096u, 256u * 1024 - 1, 256u * 1024, 256u * 1024 + 1, 5u << 20}) {
    for (int round = 0; round < 2; ++round) {
      std::unique_ptr<Buffer> buffer = bench.Allocate(bytes);
      ASSERT_EQ(buffer->bytes(), bytes);
      const std::vector<uint8_t> data = bench.Download<uint8_t>(*buffer);
      ASSERT_TRUE(std::all_of(data.begin(), data.end(), [](uint8_t b) { return b == 0; })) << bytes;
      bench.WriteBytes(*buffer, 0, Numbered(bytes).data(), bytes);
    }
  }
}

// A buffer of no bytes is allowed.
void Empty(Bench& bench) {
  std::unique_ptr<Buffer> buffer = bench.Allocate(0);
  EXPECT_EQ(buffer->bytes(), 0u);
  Work work;
  work.Fill(*buffer, 0, 0, 1);
  EXPECT_TRUE(bench.Run(work).ok());
}

// Host-visible devices use imported memory in place and do not access it afterwards.
void Import(Bench& bench) {
  if (!bench.device().info().host_visible) {
    return;
  }
  std::vector<uint8_t> memory = Numbered(1000);
  {
    StatusOr<std::unique_ptr<Buffer>> buffer = bench.device().Allocate({memory.size(), memory.data()});
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ((*buffer)->host(), memory.data());
    EXPECT_EQ((*buffer)->bytes(), memory.size());
  }
  EXPECT_EQ(memory, Numbered(1000));
}

// Data of host-visible buffers is aligned for the widest vectors, and two buffers do not overlap.
void Alignment(Bench& bench) {
  if (!bench.device().info().host_visible) {
    return;
  }
  for (uint64_t bytes : {1u, 100u, 1u << 20}) {
    std::unique_ptr<Buffer> a = bench.Allocate(bytes);
    std::unique_ptr<Buffer> b = bench.Allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a->host()) % 64, 0u);
    EXPECT_TRUE(a->host() + bytes <= b->host() || b->host() + bytes <= a->host());
  }
}

// Above the limit the error is kResourceExhausted and names both numbers.
void Limits(Bench& bench) {
  const uint64_t limit = bench.device().info().allocation_bytes_max;
  BufferSpec spec;
  spec.bytes = limit + 1;
  const StatusOr<std::unique_ptr<Buffer>> buffer = bench.device().Allocate(spec);
  ASSERT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(Message(buffer.status()).find(std::to_string(limit)), std::string::npos);
  spec.bytes = ~uint64_t{0};
  EXPECT_FALSE(bench.device().Allocate(spec).ok());
}

// Copies move exactly the bytes named, also within one buffer where the ranges overlap.
void Copy(Bench& bench) {
  std::unique_ptr<Buffer> source = bench.Upload(Numbered(100));
  std::unique_ptr<Buffer> target = bench.Allocate(100);
  Work work;
  work.Copy(*source, 10, *target, 20, 30);
  ASSERT_TRUE(bench.Run(work).ok());
  std::vector<uint8_t> want(100);
  std::copy_n(Numbered(100).begin() + 10, 30, want.begin() + 20);
  EXPECT_EQ(bench.Download<uint8_t>(*target), want);
  Work within;
  within.Copy(*source, 0, *source, 1, 99);
  ASSERT_TRUE(bench.Run(within).ok());
  want = Numbered(100);
  std::copy_backward(want.begin(), want.begin() + 99, want.end());
  EXPECT_EQ(bench.Download<uint8_t>(*source), want);
}

void Fill(Bench& bench) {
  std::unique_ptr<Buffer> buffer = bench.Upload(Numbered(100));
  Work work;
  work.Fill(*buffer, 10, 50, 0xab);
  ASSERT_TRUE(bench.Run(work).ok());
  std::vector<uint8_t> want = Numbered(100);
  std::fill_n(want.begin() + 10, 50, uint8_t{0xab});
  EXPECT_EQ(bench.Download<uint8_t>(*buffer), want);
}

// Each command sees the writes of the commands before it.
void CommandsInOrder(Bench& bench) {
  std::unique_ptr<Buffer> a = bench.Allocate(64);
  std::unique_ptr<Buffer> b = bench.Allocate(64);
  Work work;
  work.Fill(*a, 0, 64, 1);
  work.Copy(*a, 0, *b, 0, 64);
  work.Fill(*a, 0, 32, 2);
  work.Copy(*a, 0, *b, 0, 8);
  ASSERT_TRUE(bench.Run(work).ok());
  std::vector<uint8_t> want(64, 1);
  std::fill_n(want.begin(), 8, uint8_t{2});
  EXPECT_EQ(bench.Download<uint8_t>(*b), want);
}

// A command that does not fit its buffer poisons the submission instead of touching memory.
void RangesAreChecked(Bench& bench) {
  std::unique_ptr<Buffer> a = bench.Allocate(64);
  std::unique_ptr<Buffer> b = bench.Allocate(32);
  struct Bad {
    uint64_t source, target, bytes;
  };
  const uint64_t huge = ~uint64_t{0};
  for (const Bad& bad : {Bad{0, 0, 33}, Bad{60, 0, 5}, Bad{0, 1, 32}, Bad{huge, 0, 2}, Bad{0, 0, huge}}) {
    Work work;
    work.Copy(*a, bad.source, *b, bad.target, bad.bytes);
    EXPECT_FALSE(bench.Run(work).ok()) << bad.source << " " << bad.target << " " << bad.bytes;
  }
  Work work;
  work.Fill(*b, 31, 2, 1);
  EXPECT_FALSE(bench.Run(work).ok());
}

}  // namespace

std::vector<Case> BufferCases() {
  return {{"buffer_zeroed", Zeroed},         {"buffer_empty", Empty},
          {"buffer_import", Import},         {"buffer_alignment", Alignment},
          {"buffer_limits", Limits},         {"buffer_copy", Copy},
          {"buffer_fill", Fill},             {"buffer_commands_in_order", CommandsInOrder},
          {"buffer_ranges_are_checked", RangesAreChecked}};
}

}  // namespace hpvm::conformance
