// SPDX-License-Identifier: Apache-2.0
#include "hpvm/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

#include "client/files/npy.h"
#include "client/files/png_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/status.h"

namespace hpvm {
namespace {

using ::testing::HasSubstr;

class TensorFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hpvm-tensor-XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override { EXPECT_EQ(system(("rm -rf " + folder_).c_str()), 0); }
  std::string Path(const std::string& name) { return folder_ + "/" + name; }
  std::string folder_;
};

Tensor Numbered(ElementType type, std::vector<uint64_t> shape) {
  Tensor tensor{type, std::move(shape), {}};
  tensor.data.resize(*TensorSizeBytes(type, tensor.shape));
  for (size_t i = 0; i < tensor.data.size(); ++i) {
    tensor.data[i] = static_cast<uint8_t>(i * 37);
  }
  return tensor;
}

// Every type that NumPy has survives a round trip, whatever the rank.
TEST_F(TensorFileTest, NpyRoundTrip) {
  for (const ElementTypeInfo& info : kElementTypes) {
    for (std::vector<uint64_t> shape : {std::vector<uint64_t>{}, {5}, {2, 3}, {2, 0, 3}, {1, 2, 3, 4, 5}}) {
      Tensor tensor = Numbered(info.type, shape);
      Status written = WriteTensorFile(Path("a.npy"), tensor);
      if (info.npy.empty()) {
        EXPECT_EQ(written.code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      ASSERT_TRUE(written.ok()) << written;
      StatusOr<Tensor> back = ReadTensorFile(Path("a.npy"), std::nullopt);
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_EQ(back->type, tensor.type);
      EXPECT_EQ(back->shape, tensor.shape);
      EXPECT_EQ(back->data, tensor.data);
    }
  }
}

// NumPy reads our files and we read NumPy's, including header lengths over 127.
TEST_F(TensorFileTest, AgreesWithNumPy) {
  if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3-numpy is not installed";
  }
  ASSERT_TRUE(WriteTensorFile(Path("ours.npy"), Numbered(ElementType::kI16, {3, 4})).ok());
  std::string script = "/usr/bin/python3 -c \"import numpy as n; a=n.load('" + Path("ours.npy") +
                       "'); assert a.shape==(3,4) and a.dtype==n.int16; n.save('" + Path("theirs.npy") +
                       "', a); n.savez('" + Path("two.npz") + "', x=a, y=a[0]); n.save('" + Path("wide.npy") +
                       "', n.zeros((1,)*16+(), dtype=n.float64)); n.save('" + Path("fortran.npy") +
                       "', n.asfortranarray(a))\"";
  ASSERT_EQ(system(script.c_str()), 0);
  EXPECT_EQ(ReadTensorFile(Path("theirs.npy"), std::nullopt)->data, Numbered(ElementType::kI16, {3, 4}).data);
  EXPECT_EQ(ReadTensorFile(Path("two.npz:y"), std::nullopt)->shape, (std::vector<uint64_t>{4}));
  EXPECT_EQ(ReadTensorFile(Path("wide.npy"), std::nullopt)->shape.size(), 16u);
  EXPECT_THAT(Message(ReadTensorFile(Path("two.npz"), std::nullopt).status()), HasSubstr("x.npy, y.npy"));
  EXPECT_THAT(Message(ReadTensorFile(Path("fortran.npy"), std::nullopt).status()), HasSubstr("ascontiguousarray"));
}

TEST_F(TensorFileTest, NpzAddsAndReplaces) {
  ASSERT_TRUE(WriteTensorFile(Path("a.npz:x"), Numbered(ElementType::kF32, {2})).ok());
  ASSERT_TRUE(WriteTensorFile(Path("a.npz:y"), Numbered(ElementType::kU8, {3})).ok());
  ASSERT_TRUE(WriteTensorFile(Path("a.npz:x"), Numbered(ElementType::kF64, {4})).ok());
  EXPECT_EQ(ReadTensorFile(Path("a.npz:x"), std::nullopt)->type, ElementType::kF64);
  EXPECT_EQ(ReadTensorFile(Path("a.npz:y"), std::nullopt)->shape, (std::vector<uint64_t>{3}));
  EXPECT_EQ(ReadTensorFile(Path("a.npz:z"), std::nullopt).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TensorFileTest, PngRoundTrip) {
  for (std::vector<uint64_t> shape : {std::vector<uint64_t>{4, 5}, {4, 5, 3}, {4, 5, 4}}) {
    Tensor tensor = Numbered(ElementType::kU8, shape);
    ASSERT_TRUE(WriteTensorFile(Path("a.png"), tensor).ok());
    StatusOr<Tensor> back = ReadTensorFile(Path("a.png"), std::nullopt);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->shape, shape);
    EXPECT_EQ(back->data, tensor.data);
  }
  EXPECT_THAT(Message(WriteTensorFile(Path("b.png"), Numbered(ElementType::kF32, {4, 5}))), HasSubstr("not f32[4, 5]"));
  EXPECT_NE(access(Path("b.png").c_str(), F_OK), 0);
}

// Broken files are refused with the file's name and the reason.
TEST_F(TensorFileTest, RefusesBrokenFiles) {
  std::vector<uint8_t> good = *FormatNpy(Numbered(ElementType::kF32, {4}));
  struct Case {
    const char* file;
    std::string bytes;
    const char* want;
  };
  std::string text(good.begin(), good.end());
  std::string big_endian = text;
  big_endian.replace(big_endian.find("<f4"), 3, ">f4");
  std::string complex = text;
  complex.replace(complex.find("<f4"), 3, "<c8");
  const Case kCases[] = {
      {"a.npy", "", "not in NumPy's format"},
      {"a.npy", text.substr(0, 9), "not in NumPy's format"},
      {"a.npy", text.substr(0, 60), "ends inside its header"},
      {"a.npy", text.substr(0, text.size() - 1), "holds 15 bytes of data, but f32[4] has 16"},
      {"a.npy", text + "x", "holds 17 bytes"},
      {"a.npy", big_endian, "big-endian"},
      {"a.npy", complex, "matches no element type"},
      {"a.npz", text, "cannot be opened"},
      {"a.png", text, "not a readable PNG"},
      {"a.raw", text, "type and shape are not known"},
  };
  for (const Case& c : kCases) {
    std::ofstream(Path(c.file), std::ios::binary) << c.bytes;
    Status status = ReadTensorFile(Path(c.file), std::nullopt).status();
    EXPECT_THAT(Message(status), HasSubstr(c.want));
    EXPECT_THAT(Message(status), HasSubstr(c.file));
  }
  EXPECT_EQ(ReadTensorFile(Path("absent.npy"), std::nullopt).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TensorFileTest, RawNeedsTheDeclaredSize) {
  Tensor tensor = Numbered(ElementType::kBF16, {6});
  ASSERT_TRUE(WriteTensorFile(Path("a.bin"), tensor).ok());
  EXPECT_EQ(ReadTensorFile(Path("a.bin"), TensorHint{ElementType::kBF16, {6}})->data, tensor.data);
  EXPECT_THAT(Message(ReadTensorFile(Path("a.bin"), TensorHint{ElementType::kF32, {6}}).status()),
              HasSubstr("12 bytes, but f32[6] has 24"));
}

TEST(TensorTest, BytesAreChecked) {
  EXPECT_EQ(*TensorSizeBytes(ElementType::kF64, std::vector<uint64_t>{}), 8u);
  EXPECT_EQ(*TensorSizeBytes(ElementType::kF64, std::vector<uint64_t>{uint64_t{1} << 63, 0}), 0u);
  EXPECT_FALSE(TensorSizeBytes(ElementType::kF64, std::vector<uint64_t>{uint64_t{1} << 40, uint64_t{1} << 40}).ok());
}

}  // namespace
}  // namespace hpvm
