// SPDX-License-Identifier: Apache-2.0
#include "client/files/npy.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "base/limits.h"

namespace hpvm {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// Returns the value of `key` in the header's dictionary: the text up to the comma or brace that ends it at depth 0.
std::optional<std::string_view> Field(std::string_view header, std::string_view key) {
  for (char quote : {'\'', '"'}) {
    std::string pattern = quote + std::string(key) + quote;
    size_t at = header.find(pattern);
    if (at == std::string_view::npos) {
      continue;
    }
    at = header.find(':', at + pattern.size());
    if (at == std::string_view::npos) {
      return std::nullopt;
    }
    std::string_view rest = header.substr(at + 1);
    int depth = 0;
    for (size_t i = 0; i < rest.size(); ++i) {
      char c = rest[i];
      depth += (c == '(') - (c == ')');
      if ((depth == 0 && c == ',') || c == '}') {
        rest = rest.substr(0, i);
        break;
      }
    }
    size_t first = rest.find_first_not_of(' ');
    size_t last = rest.find_last_not_of(" \n");
    return first == std::string_view::npos ? std::string_view() : rest.substr(first, last - first + 1);
  }
  return std::nullopt;
}

StatusOr<ElementType> ParseDescriptor(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"')) {
    text = text.substr(1, text.size() - 2);
  }
  std::string descriptor(text);
  if (!descriptor.empty() && descriptor[0] == '=') {
    descriptor[0] = '<';
  }
  for (const ElementTypeInfo& info : kElementTypes) {
    // One-byte types are written "|u1" but some writers say "<u1".
    if (!info.npy.empty() &&
        (info.npy == descriptor || (info.bytes == 1 && info.npy.substr(1) == descriptor.substr(1)))) {
      return info.type;
    }
  }
  if (!descriptor.empty() && descriptor[0] == '>') {
    return InvalidArgument("The array is big-endian (\"" + descriptor + "\"); only little-endian is read.");
  }
  return InvalidArgument("The array's type (\"" + descriptor + "\") matches no element type.");
}

StatusOr<std::vector<uint64_t>> ParseShape(std::string_view text) {
  std::vector<uint64_t> shape;
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') {
    return InvalidArgument("The header's shape (" + std::string(text) + ") is not a tuple.");
  }
  text = text.substr(1, text.size() - 2);
  while (true) {
    size_t first = text.find_first_not_of(" ,");
    if (first == std::string_view::npos) {
      return shape;
    }
    text = text.substr(first);
    uint64_t extent = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || shape.size() == limits::kTensorRankMax) {
      return InvalidArgument("The header's shape is malformed or has more than " +
                             std::to_string(limits::kTensorRankMax) + " dimensions.");
    }
    shape.push_back(extent);
    text = text.substr(static_cast<size_t>(end - text.data()));
  }
}

StatusOr<std::string_view> Header(std::span<const uint8_t> bytes, size_t* data_at) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() < 10 || text.substr(0, 6) != kMagic) {
    return InvalidArgument("The file is not in NumPy's format (it does not begin with \\x93NUMPY).");
  }
  uint8_t major = bytes[6];
  if (major < 1 || major > 3) {
    return InvalidArgument("The file's format version (" + std::to_string(major) + ") is not 1, 2 or 3.");
  }
  size_t prefix = major == 1 ? 10 : 12;
  if (bytes.size() < prefix) {
    return InvalidArgument("The file ends inside its header.");
  }
  uint64_t length = bytes[8] | uint64_t{bytes[9]} << 8;
  if (major > 1) {
    length |= uint64_t{bytes[10]} << 16 | uint64_t{bytes[11]} << 24;
  }
  if (length > bytes.size() - prefix) {
    return InvalidArgument("The file ends inside its header.");
  }
  *data_at = prefix + length;
  return text.substr(prefix, length);
}

}  // namespace

StatusOr<Tensor> ParseNpy(std::span<const uint8_t> bytes) {
  size_t data_at = 0;
  HPVMD_ASSIGN_OR_RETURN(std::string_view header, Header(bytes, &data_at));
  std::optional<std::string_view> descriptor = Field(header, "descr");
  std::optional<std::string_view> fortran = Field(header, "fortran_order");
  std::optional<std::string_view> shape = Field(header, "shape");
  if (!descriptor || !fortran || !shape) {
    return InvalidArgument("The header lacks descr, fortran_order or shape.");
  }
  Tensor tensor;
  HPVMD_ASSIGN_OR_RETURN(tensor.type, ParseDescriptor(*descriptor));
  HPVMD_ASSIGN_OR_RETURN(tensor.shape, ParseShape(*shape));
  bool has_order = std::count_if(tensor.shape.begin(), tensor.shape.end(), [](uint64_t n) { return n > 1; }) > 1;
  if (*fortran != "False" && has_order) {
    return InvalidArgument("The array is in Fortran order; write it with numpy.ascontiguousarray.");
  }
  HPVMD_ASSIGN_OR_RETURN(uint64_t size, TensorSizeBytes(tensor.type, tensor.shape));
  if (bytes.size() - data_at != size) {
    return InvalidArgument("The file holds " + std::to_string(bytes.size() - data_at) + " bytes of data, but " +
                           Describe(tensor.type, tensor.shape) + " has " + std::to_string(size) + ".");
  }
  tensor.data.assign(bytes.begin() + static_cast<ptrdiff_t>(data_at), bytes.end());
  return tensor;
}

StatusOr<std::vector<uint8_t>> FormatNpy(const Tensor& tensor) {
  if (Info(tensor.type).npy.empty()) {
    return InvalidArgument("NumPy has no type for " + std::string(Name(tensor.type)) + "; write a raw file.");
  }
  std::string shape = "(";
  for (uint64_t extent : tensor.shape) {
    shape += std::to_string(extent) + ",";
  }
  if (tensor.shape.size() > 1) {
    shape.pop_back();
  }
  std::string header =
      "{'descr': '" + std::string(Info(tensor.type).npy) + "', 'fortran_order': False, 'shape': " + shape + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string prefix(kMagic);
  for (size_t byte : {size_t{1}, size_t{0}, header.size() & 0xff, header.size() >> 8}) {
    prefix += static_cast<char>(byte);
  }
  prefix += header;
  std::vector<uint8_t> bytes(prefix.begin(), prefix.end());
  bytes.insert(bytes.end(), tensor.data.begin(), tensor.data.end());
  return bytes;
}

}  // namespace hpvm
