// SPDX-License-Identifier: Apache-2.0
// NumPy archives (zip files of .npy members), by libzip.
#ifndef HPVMD_CLIENT_FILES_NPZ_H_
#define HPVMD_CLIENT_FILES_NPZ_H_

#include <string>

#include "base/status.h"
#include "hpvm/tensor.h"

namespace hpvm {

// An empty `array` names the only one.
StatusOr<Tensor> ReadNpz(const std::string& file, const std::string& array);
// Adds to or replaces in the archive, creating it if necessary.
Status WriteNpz(const std::string& file, const std::string& array, const Tensor& tensor);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_FILES_NPZ_H_
