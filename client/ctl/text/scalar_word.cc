// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/scalar_word.h"

#include <charconv>
#include <cstring>

namespace hpvm::ctl {
namespace {

// Returns false when the whole text is not a number that T can hold.
template <typename T>
bool Put(const std::string& text, Tensor& tensor) {
  T value{};
  const char* end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  tensor.data.resize(sizeof(T));
  std::memcpy(tensor.data.data(), &value, sizeof(T));
  return result.ec == std::errc() && result.ptr == end;
}

bool PutBool(const std::string& text, Tensor& tensor) {
  const bool is_true = text == "true" || text == "1";
  tensor.data.assign(1, is_true ? 1 : 0);
  return is_true || text == "false" || text == "0";
}

bool PutAny(const std::string& text, Tensor& tensor) {
  switch (tensor.type) {
    case ElementType::kBool:
      return PutBool(text, tensor);
    case ElementType::kI8:
      return Put<int8_t>(text, tensor);
    case ElementType::kU8:
      return Put<uint8_t>(text, tensor);
    case ElementType::kI16:
      return Put<int16_t>(text, tensor);
    case ElementType::kU16:
      return Put<uint16_t>(text, tensor);
    case ElementType::kI32:
      return Put<int32_t>(text, tensor);
    case ElementType::kU32:
      return Put<uint32_t>(text, tensor);
    case ElementType::kI64:
      return Put<int64_t>(text, tensor);
    case ElementType::kU64:
      return Put<uint64_t>(text, tensor);
    case ElementType::kF32:
      return Put<float>(text, tensor);
    case ElementType::kF64:
      return Put<double>(text, tensor);
    default:
      return false;
  }
}

}  // namespace

bool IsScalarWord(const std::string& text) {
  Tensor ignored;
  return text == "true" || text == "false" || Put<double>(text, ignored);
}

StatusOr<Tensor> ScalarTensor(ElementType type, const std::string& text) {
  Tensor tensor;
  tensor.type = type;
  if (PutAny(text, tensor)) {
    return tensor;
  }
  return InvalidArgument("The value \"" + text + "\" is not a number of type " + std::string(Name(type)) + ".");
}

}  // namespace hpvm::ctl
