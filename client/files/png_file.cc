// SPDX-License-Identifier: Apache-2.0
#include "client/files/png_file.h"

#include <png.h>
#include <string.h>

#include <string>

#include "client/files/input_file.h"

namespace hpvm {
namespace {

// Frees libpng's structures on every return path.
struct Image {
  Image() {
    memset(&png, 0, sizeof(png));
    png.version = PNG_IMAGE_VERSION;
  }
  ~Image() { png_image_free(&png); }
  png_image png;
};

}  // namespace

StatusOr<Tensor> ParsePng(std::span<const uint8_t> bytes) {
  Image image;
  if (png_image_begin_read_from_memory(&image.png, bytes.data(), bytes.size()) == 0) {
    return InvalidArgument(std::string("The file is not a readable PNG (") + image.png.message + ").");
  }
  bool color = (image.png.format & PNG_FORMAT_FLAG_COLOR) != 0;
  bool alpha = (image.png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  image.png.format = color ? (alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB) : (alpha ? PNG_FORMAT_GA : PNG_FORMAT_GRAY);
  Tensor tensor{ElementType::kU8, {image.png.height, image.png.width}, {}};
  uint64_t channels = PNG_IMAGE_PIXEL_CHANNELS(image.png.format);
  if (channels > 1) {
    tensor.shape.push_back(channels);
  }
  HPVMD_ASSIGN_OR_RETURN(uint64_t size, TensorSizeBytes(tensor.type, tensor.shape));
  if (size > kTensorFileBytesMax) {
    return InvalidArgument("The PNG's pixels take " + std::to_string(size) + " bytes, which is above the limit (" +
                           std::to_string(kTensorFileBytesMax) + ").");
  }
  tensor.data.resize(size);
  if (png_image_finish_read(&image.png, nullptr, tensor.data.data(), 0, nullptr) == 0) {
    return InvalidArgument(std::string("The PNG's pixels cannot be read (") + image.png.message + ").");
  }
  return tensor;
}

StatusOr<std::vector<uint8_t>> FormatPng(const Tensor& tensor) {
  size_t rank = tensor.shape.size();
  uint64_t channels = rank == 3 ? tensor.shape[2] : 1;
  bool is_byte = tensor.type == ElementType::kU8 || tensor.type == ElementType::kBool;
  if (!is_byte || (rank != 2 && rank != 3) || channels == 0 || channels == 2 || channels > 4) {
    return InvalidArgument("A PNG takes u8 or bool of shape [height, width] or [height, width, 1, 3 or 4], not " +
                           Describe(tensor.type, tensor.shape) + ".");
  }
  if (tensor.shape[0] == 0 || tensor.shape[1] == 0 || tensor.shape[0] > UINT16_MAX || tensor.shape[1] > UINT16_MAX) {
    return InvalidArgument("A PNG of " + std::to_string(tensor.shape[1]) + " by " + std::to_string(tensor.shape[0]) +
                           " pixels is outside the limits (1 to 65535 each way).");
  }
  std::vector<uint8_t> pixels = tensor.data;
  if (tensor.type == ElementType::kBool) {
    for (uint8_t& pixel : pixels) {
      pixel = pixel != 0 ? 255 : 0;
    }
  }
  Image image;
  image.png.height = static_cast<uint32_t>(tensor.shape[0]);
  image.png.width = static_cast<uint32_t>(tensor.shape[1]);
  image.png.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image.png);
  std::vector<uint8_t> bytes(size);
  if (png_image_write_to_memory(&image.png, bytes.data(), &size, 0, pixels.data(), 0, nullptr) == 0) {
    return InvalidArgument(std::string("The image cannot be written as PNG (") + image.png.message + ").");
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace hpvm
