// SPDX-License-Identifier: Apache-2.0
// A dense tensor in host memory, row-major, and its files.
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
  std::vector<uint64_t> shape;  // Empty: one element.
  std::vector<uint8_t> data;    // Exactly the product of `shape` times the element's size.
};

// Elements times their size. kInvalidArgument when it passes 2^63.
StatusOr<uint64_t> TensorSizeBytes(ElementType type, std::span<const uint64_t> shape);
// "f32[512, 512]".
std::string Describe(ElementType type, std::span<const uint64_t> shape);

// What a raw file needs to be read: taken from the graph's declaration.
struct TensorHint {
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
};

// Reads by the name's ending: .npy (NumPy, versions 1 to 3, C order, little-endian), .npz (the array is named after a
// colon, "a.npz:x"; a file with a single array needs no name), .png (u8, [height, width] for grey, [height, width,
// channels] else; 16-bit samples are reduced to 8), anything else raw bytes, which need `hint`. Errors name the file
// and what is wrong with it.
StatusOr<Tensor> ReadTensorFile(const std::string& name, const std::optional<TensorHint>& hint);

// Writes by the name's ending, as above; .png takes u8 or bool of rank 2, or rank 3 with 1, 3 or 4 channels. The file
// appears whole or not at all (a temporary file is renamed), except .npz:name, which adds to or replaces in an archive.
Status WriteTensorFile(const std::string& name, const Tensor& tensor);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_TENSOR_H_
