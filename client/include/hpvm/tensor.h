// SPDX-License-Identifier: Apache-2.0
// A dense tensor in host memory, row-major, and its file formats.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_TENSOR_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_TENSOR_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hpvm/element_type.h"
#include "hpvm/types.h"

namespace hpvm {

struct Tensor {
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;  // One element when empty.
  std::vector<uint8_t> data;    // Exactly the product of `shape` times the element's size.
};

// Returns the number of elements times their size. kInvalidArgument when the product exceeds 2^63.
StatusOr<uint64_t> TensorSizeBytes(ElementType type, std::span<const uint64_t> shape);
// Formats as "f32[512, 512]".
std::string Describe(ElementType type, std::span<const uint64_t> shape);

// Type and shape of a raw file, taken from the graph's declaration.
struct TensorHint {
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
};

// Reads a file by its extension: .npy (NumPy, versions 1 to 3, C order, little-endian), .npz (the array is named
// after a colon, "a.npz:x"; a file with a single array needs no name), .png (u8, [height, width] for grey, otherwise
// [height, width, channels]; 16-bit samples are reduced to 8), any other as raw bytes, which need `hint`. Errors name
// the file and the fault.
StatusOr<Tensor> ReadTensorFile(const std::string& name, const std::optional<TensorHint>& hint);

// Writes a file by its extension, as above; .png takes u8 or bool of rank 2, or rank 3 with 1, 3 or 4 channels. The
// file appears whole or not at all (a temporary file is renamed), except for .npz:name, which adds to or replaces an
// entry of an archive.
Status WriteTensorFile(const std::string& name, const Tensor& tensor);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_TENSOR_H_
