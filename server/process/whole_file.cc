// SPDX-License-Identifier: Apache-2.0
#include "server/process/whole_file.h"

#include <memory>
#include <span>

#include "base/bytes.h"

namespace hpvm::server {

StatusOr<std::optional<std::string>> ReadWholeFile(const std::string& path, uint64_t bytes_max, Disk& disk) {
  const StatusOr<std::unique_ptr<DiskFile>> file = disk.Open(path, Disk::Mode::kRead);
  if (file.status().code() == absl::StatusCode::kNotFound) {
    return std::nullopt;
  }
  HPVMD_RETURN_IF_ERROR(file.status());
  HPVMD_ASSIGN_OR_RETURN(const uint64_t bytes, (*file)->Size());
  if (bytes > bytes_max) {
    return DataLoss("The file \"" + path + "\" has " + std::to_string(bytes) + " bytes; the limit is " +
                    std::to_string(bytes_max) + ".");
  }
  std::string text(bytes, '\0');
  HPVMD_RETURN_IF_ERROR((*file)->ReadAt(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}).status());
  return text;
}

Status ReplaceWholeFile(const std::string& path, std::string_view text, Disk& disk) {
  const std::string temporary = path + ".part";
  {
    HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> file, disk.Open(temporary, Disk::Mode::kOpenOrCreate));
    HPVMD_RETURN_IF_ERROR(file->Truncate(0));
    HPVMD_RETURN_IF_ERROR(file->WriteAt(0, BytesOf(text)));
    HPVMD_RETURN_IF_ERROR(file->Sync());
  }
  HPVMD_RETURN_IF_ERROR(disk.Rename(temporary, path));
  return disk.SyncFolder(path.substr(0, path.rfind('/')));
}

}  // namespace hpvm::server
