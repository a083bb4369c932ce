// SPDX-License-Identifier: Apache-2.0
#include "client/files/npz.h"

#include <sys/stat.h>
#include <zip.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "client/files/input_file.h"
#include "client/files/npy.h"

#include "base/limits.h"

namespace hpvm {
namespace {

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Archive = std::unique_ptr<zip_t, Discard>;

StatusOr<Archive> Checked(zip_t* opened, int code) {
  if (opened == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    return code == ZIP_ER_NOENT ? NotFound("The archive does not exist.")
                                : InvalidArgument("The archive cannot be opened (" + reason + ").");
  }
  return Archive(opened);
}

StatusOr<Archive> OpenToRead(const std::string& file) {
  HPVMD_ASSIGN_OR_RETURN(UniqueFd fd, OpenInputFile(file));
  int code = 0;
  HPVMD_ASSIGN_OR_RETURN(Archive archive, Checked(zip_fdopen(fd.get(), 0, &code), code));
  fd.release();  // The archive closes it.
  return archive;
}

StatusOr<Archive> OpenToWrite(const std::string& file) {
  struct stat facts {};
  if (stat(file.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode)) {
    return InvalidArgument("The archive exists and is not a regular file, so that no array can be added.");
  }
  int code = 0;
  return Checked(zip_open(file.c_str(), ZIP_CREATE, &code), code);
}

// Reads in pieces: an archive can claim any size, and memory is allocated only for bytes that exist.
StatusOr<std::vector<uint8_t>> ReadMember(zip_file_t* member, uint64_t size) {
  constexpr uint64_t kPiece = 16 * limits::kMiB;
  std::vector<uint8_t> bytes;
  while (bytes.size() < size) {
    const size_t filled = bytes.size(), wanted = std::min(kPiece, size - filled);
    bytes.resize(filled + wanted);
    if (zip_fread(member, bytes.data() + filled, wanted) != static_cast<zip_int64_t>(wanted)) {
      return InvalidArgument("The archive's array ends early.");
    }
  }
  return bytes;
}

std::string MemberNames(zip_t* archive) {
  std::string names;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0) && i < 20; ++i) {
    const char* name = zip_get_name(archive, static_cast<zip_uint64_t>(i), 0);
    names += (i == 0 ? "" : ", ") + std::string(name == nullptr ? "?" : name);
  }
  return names;
}

}  // namespace

StatusOr<Tensor> ReadNpz(const std::string& file, const std::string& array) {
  HPVMD_ASSIGN_OR_RETURN(Archive archive, OpenToRead(file));
  zip_int64_t index = 0;
  if (array.empty()) {
    if (zip_get_num_entries(archive.get(), 0) != 1) {
      return InvalidArgument("The archive holds several arrays (" + MemberNames(archive.get()) +
                             "); name one as FILE.npz:NAME.");
    }
  } else {
    index = zip_name_locate(archive.get(), (array + ".npy").c_str(), 0);
    if (index < 0) {
      return NotFound("The archive has no array \"" + array + "\" (it holds " + MemberNames(archive.get()) + ").");
    }
  }
  zip_stat_t info;
  if (zip_stat_index(archive.get(), static_cast<zip_uint64_t>(index), 0, &info) != 0 ||
      (info.valid & ZIP_STAT_SIZE) == 0 || info.size > kTensorFileBytesMax) {
    return InvalidArgument("The archive's array has no size or one above the limit (" +
                           std::to_string(kTensorFileBytesMax) + " bytes).");
  }
  std::unique_ptr<zip_file_t, Discard> member(zip_fopen_index(archive.get(), static_cast<zip_uint64_t>(index), 0));
  if (member == nullptr) {
    return InvalidArgument(std::string("The archive's array cannot be read (") + zip_strerror(archive.get()) + ").");
  }
  HPVMD_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadMember(member.get(), info.size));
  return ParseNpy(bytes);
}

Status WriteNpz(const std::string& file, const std::string& array, const Tensor& tensor) {
  HPVMD_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, FormatNpy(tensor));
  HPVMD_ASSIGN_OR_RETURN(Archive archive, OpenToWrite(file));
  zip_source_t* source = zip_source_buffer(archive.get(), bytes.data(), bytes.size(), 0);
  std::string member = (array.empty() ? "arr_0" : array) + ".npy";
  if (source == nullptr ||
      zip_file_add(archive.get(), member.c_str(), source, ZIP_FL_OVERWRITE | ZIP_FL_ENC_UTF_8) < 0) {
    zip_source_free(source);
    return InvalidArgument(std::string("The array cannot be added (") + zip_strerror(archive.get()) + ").");
  }
  if (zip_close(archive.get()) != 0) {
    return MakeStatus(absl::StatusCode::kUnknown,
                      std::string("The archive cannot be written (") + zip_strerror(archive.get()) + ").");
  }
  archive.release();  // zip_close freed it.
  return absl::OkStatus();
}

}  // namespace hpvm
