// SPDX-License-Identifier: Apache-2.0
// NumPy's array format, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html. We have our own
// reader because the packaged readers misread header lengths over 127 and do not notice truncated files;
// docs/decisions has the record.
#ifndef HPVMD_CLIENT_FILES_NPY_H_
#define HPVMD_CLIENT_FILES_NPY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "hpvm/tensor.h"

namespace hpvm {

StatusOr<Tensor> ParseNpy(std::span<const uint8_t> bytes);
// kInvalidArgument for bf16, which NumPy does not have.
StatusOr<std::vector<uint8_t>> FormatNpy(const Tensor& tensor);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_FILES_NPY_H_
