// SPDX-License-Identifier: Apache-2.0
// PNG images as tensors, by libpng.
#ifndef HPVMD_CLIENT_FILES_PNG_FILE_H_
#define HPVMD_CLIENT_FILES_PNG_FILE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "hpvm/tensor.h"

namespace hpvm {

StatusOr<Tensor> ParsePng(std::span<const uint8_t> bytes);
StatusOr<std::vector<uint8_t>> FormatPng(const Tensor& tensor);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_FILES_PNG_FILE_H_
