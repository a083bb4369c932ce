// SPDX-License-Identifier: Apache-2.0
#include "hpvm/tensor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/files/input_file.h"
#include "client/files/npy.h"
#include "client/files/npz.h"
#include "client/files/png_file.h"

#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm {
namespace {

Status WriteFile(const std::string& name, std::span<const uint8_t> bytes) {
  struct stat info;
  // Devices and pipes (/dev/stdout) are written in place.
  bool replace = stat(name.c_str(), &info) != 0 || S_ISREG(info.st_mode);
  std::string temporary = replace ? name + ".part" : name;
  UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) {
    return FromErrno(errno, "Creating the file");
  }
  const bool is_written = WriteAll(fd.get(), bytes);
  if (is_written && (!replace || rename(temporary.c_str(), name.c_str()) == 0)) {
    return absl::OkStatus();
  }
  const Status failure = FromErrno(errno, is_written ? "Renaming the finished file" : "Writing the file");
  if (replace) {
    unlink(temporary.c_str());
  }
  return failure;
}

bool EndsWith(const std::string& name, std::string_view ending) { return name.ends_with(ending); }

// Splits "a.npz:x" into ("a.npz", "x"); returns nothing for other names.
std::optional<std::pair<std::string, std::string>> NpzName(const std::string& name) {
  if (EndsWith(name, ".npz")) {
    return std::pair(name, std::string());
  }
  size_t at = name.rfind(".npz:");
  if (at == std::string::npos) {
    return std::nullopt;
  }
  return std::pair(name.substr(0, at + 4), name.substr(at + 5));
}

StatusOr<Tensor> ParseRaw(std::vector<uint8_t> bytes, const std::optional<TensorHint>& hint) {
  if (!hint.has_value()) {
    return InvalidArgument("The file is raw bytes, whose type and shape are not known here; give .npy, .npz or .png.");
  }
  HPVMD_ASSIGN_OR_RETURN(uint64_t size, TensorSizeBytes(hint->type, hint->shape));
  if (size != bytes.size()) {
    return InvalidArgument("The file has " + std::to_string(bytes.size()) + " bytes, but " +
                           Describe(hint->type, hint->shape) + " has " + std::to_string(size) + ".");
  }
  return Tensor{hint->type, hint->shape, std::move(bytes)};
}

StatusOr<Tensor> Read(const std::string& name, const std::optional<TensorHint>& hint) {
  if (auto npz = NpzName(name)) {
    return ReadNpz(npz->first, npz->second);
  }
  HPVMD_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, ReadInputFile(name, kTensorFileBytesMax));
  if (EndsWith(name, ".npy")) {
    return ParseNpy(bytes);
  }
  return EndsWith(name, ".png") ? ParsePng(bytes) : ParseRaw(std::move(bytes), hint);
}

Status Write(const std::string& name, const Tensor& tensor) {
  if (auto npz = NpzName(name)) {
    return WriteNpz(npz->first, npz->second, tensor);
  }
  if (EndsWith(name, ".npy")) {
    HPVMD_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, FormatNpy(tensor));
    return WriteFile(name, bytes);
  }
  if (EndsWith(name, ".png")) {
    HPVMD_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, FormatPng(tensor));
    return WriteFile(name, bytes);
  }
  return WriteFile(name, tensor.data);
}

}  // namespace

StatusOr<uint64_t> TensorSizeBytes(ElementType type, std::span<const uint64_t> shape) {
  const std::optional<uint64_t> bytes = TensorBytes(type, shape);
  if (!bytes.has_value()) {
    return InvalidArgument("The size of " + Describe(type, shape) + " is larger than the limit (2^63 - 1 bytes).");
  }
  return *bytes;
}

std::string Describe(ElementType type, std::span<const uint64_t> shape) {
  std::string text(Name(type));
  text += '[';
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + ']';
}

StatusOr<Tensor> ReadTensorFile(const std::string& name, const std::optional<TensorHint>& hint) {
  return While(Read(name, hint), "reading \"" + name + "\"");
}

Status WriteTensorFile(const std::string& name, const Tensor& tensor) {
  return While(Write(name, tensor), "writing \"" + name + "\"");
}

}  // namespace hpvm
