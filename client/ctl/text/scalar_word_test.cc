// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/scalar_word.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace hpvm::ctl {
namespace {

using ::testing::HasSubstr;

template <typename T>
void ExpectValue(ElementType type, const std::string& text, T want) {
  const StatusOr<Tensor> tensor = ScalarTensor(type, text);
  ASSERT_TRUE(tensor.ok()) << text << tensor.status();
  EXPECT_TRUE(tensor->shape.empty());
  ASSERT_EQ(tensor->data.size(), sizeof(T));
  T got;
  std::memcpy(&got, tensor->data.data(), sizeof(T));
  EXPECT_EQ(got, want) << text;
}

// Each type accepts the values that it can hold.
TEST(ScalarWordTest, Reads) {
  ExpectValue<float>(ElementType::kF32, "2.5", 2.5f);
  ExpectValue<float>(ElementType::kF32, "-1e-3", -1e-3f);
  ExpectValue<double>(ElementType::kF64, "3", 3.0);
  ExpectValue<int32_t>(ElementType::kI32, "-7", -7);
  ExpectValue<uint8_t>(ElementType::kU8, "255", 255);
  ExpectValue<uint64_t>(ElementType::kU64, "18446744073709551615", ~uint64_t{0});
  ExpectValue<uint8_t>(ElementType::kBool, "true", 1);
  ExpectValue<uint8_t>(ElementType::kBool, "0", 0);
}

// Each type refuses all other text.
TEST(ScalarWordTest, Refuses) {
  const std::pair<ElementType, const char*> cases[] = {
      {ElementType::kI32, "2.5"},  {ElementType::kU8, "256"},  {ElementType::kU8, "-1"},
      {ElementType::kF32, "1e99"}, {ElementType::kF32, "2,5"}, {ElementType::kF32, "2.5f"},
      {ElementType::kBool, "2"},   {ElementType::kF16, "1"},   {ElementType::kI64, ""}};
  for (const auto& [type, text] : cases) {
    EXPECT_THAT(Message(ScalarTensor(type, text).status()), HasSubstr("The value \"" + std::string(text) + "\""))
        << text;
  }
}

// File names are not taken for numbers.
TEST(ScalarWordTest, TellsNumbersFromFiles) {
  for (const char* text : {"2.5", "-3", "1e-3", "0", "true"}) {
    EXPECT_TRUE(IsScalarWord(text)) << text;
  }
  for (const char* text : {"", "./2.5", "2.5.npy", "a.npy", "@index", "1 2", "truth"}) {
    EXPECT_FALSE(IsScalarWord(text)) << text;
  }
}

}  // namespace
}  // namespace hpvm::ctl
