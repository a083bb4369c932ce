// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/trap_records.h"

#include <string>

#include "gtest/gtest.h"

namespace hpvm::gpu {
namespace {

class FakeExecutable final : public Executable {
 public:
  explicit FakeExecutable(const char* function) {
    artifact_.module_name = "m";
    artifact_.function_names = {function};
  }
  const Artifact& artifact() const override { return artifact_; }

 private:
  Artifact artifact_;
};

GpuTrapRecord Record(uint32_t code, uint32_t source) {
  GpuTrapRecord record;
  record.state = 1;
  record.code = code;
  record.instance = {3, 2, 1};
  record.source = source;
  record.address = 65540;
  return record;
}

struct TrapRecordsTest : testing::Test {
  TrapRecordsTest() {
    for (uint32_t node : {7u, 8u, 9u}) {
      DispatchCommand dispatch;
      dispatch.executable = &executables[node - 7];
      dispatch.node = node;
      EXPECT_EQ(slots.Take(dispatch), node - 7);
    }
  }
  FakeExecutable executables[3] = {FakeExecutable("a"), FakeExecutable("b"), FakeExecutable("c")};
  TrapSlots slots;
  std::vector<GpuTrapRecord> records{3};
};

// Without a claimed record the failure is unchanged.
TEST_F(TrapRecordsTest, NothingTrapped) {
  EXPECT_EQ(slots.count(), 3u);
  EXPECT_EQ(slots.bytes(), 96u);
  Failure failure;
  EXPECT_TRUE(slots.Check(records, &failure).ok());
  EXPECT_EQ(failure.node, 0xffffffffu);
  EXPECT_EQ(failure.trap.code, ir::TrapCode::kNone);
}

// The first dispatch whose record is claimed is reported, because later ones ran on its output.
TEST_F(TrapRecordsTest, TheFirstInOrderCounts) {
  records[1] = Record(2 | 4 << 16, 117);
  records[2] = Record(3, 1);
  Failure failure;
  const Status status = slots.Check(records, &failure);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Message(status),
            "Kernel trapped: out of bounds memory access at address 65540 (4 bytes) in instance (3, 2, 1), function "
            "\"b\", byte 117 of module \"m\".");
  EXPECT_EQ(failure.node, 8u);
  EXPECT_EQ(failure.trap.code, ir::TrapCode::kOutOfBounds);
  EXPECT_EQ(failure.trap.instance, (std::array<uint64_t, 3>{3, 2, 1}));
  EXPECT_EQ(failure.trap.source, 117u);
  EXPECT_EQ(failure.trap.bytes, 4u);
  EXPECT_EQ(failure.trap.address, 65540u);
  EXPECT_EQ(slots.Check(records, nullptr).code(), absl::StatusCode::kAborted);
}

// Codes that no emitted kernel writes become neither a cancellation nor a success.
TEST_F(TrapRecordsTest, CodesThatDoNotExist) {
  for (uint32_t code : {0u, 18u, 99u, 100u, 0xffffu, 0xffffffffu}) {
    records[0] = Record(code, 0);
    Failure failure;
    EXPECT_EQ(slots.Check(records, &failure).code(), absl::StatusCode::kAborted) << code;
    EXPECT_EQ(failure.trap.code, ir::TrapCode::kUnreachable) << code;
  }
}

// Only code that audits proofs writes it: no execution may continue after a wrong proof.
TEST_F(TrapRecordsTest, AWrongProofEndsTheProcess) {
  records[1] = Record(static_cast<uint32_t>(ir::TrapCode::kWrongProof), 0);
  EXPECT_DEATH((void)slots.Check(records, nullptr),
               "left its buffers although the proof at launch showed that it stays inside");
}

}  // namespace
}  // namespace hpvm::gpu
