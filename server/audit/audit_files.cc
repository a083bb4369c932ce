// SPDX-License-Identifier: Apache-2.0
#include "server/audit/audit_files.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
// Bytes examined at the end of a file when the daemon starts: many groups.
constexpr uint64_t kScanBytes = uint64_t{4} << 20;

StatusOr<std::string> ReadRange(DiskFile& file, uint64_t from, uint64_t to) {
  std::string bytes(to - from, '\0');
  HPVMD_ASSIGN_OR_RETURN(const size_t count,
                         file.ReadAt(from, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}));
  bytes.resize(count);
  return bytes;
}

// Calls `each` with every line, without its newline, that begins at or after `offset`; an unfinished last line has
// `is_whole` false. A line longer than kAuditLineBytesMax comes in pieces.
Status ForEachLine(DiskFile& file, uint64_t offset,
                   const std::function<bool(std::string_view line, uint64_t at, bool is_whole)>& each) {
  std::string pending;
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const std::string chunk, ReadRange(file, offset, offset + kReadBytes));
    offset += chunk.size();
    pending += chunk;
    size_t begin = 0;
    for (size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n', begin)) {
      const uint64_t at = offset - (pending.size() - begin);
      if (!each(std::string_view(pending).substr(begin, end - begin), at, true)) {
        return absl::OkStatus();
      }
      begin = end + 1;
    }
    pending.erase(0, begin);
    const bool is_end = chunk.size() < kReadBytes;
    if (!pending.empty() && (is_end || pending.size() > kAuditLineBytesMax)) {
      if (!each(pending, offset - pending.size(), false)) {
        return absl::OkStatus();
      }
      pending.clear();
    }
    if (is_end) {
      return absl::OkStatus();
    }
  }
}

std::optional<AuditLine> ParseSoundLine(std::string_view line) {
  std::optional<AuditLine> parsed = ParseAuditLine(line);
  return parsed.has_value() && HashOfAuditBody(parsed->body) == parsed->hash ? parsed : std::nullopt;
}

// The line must have passed ParseAuditLine.
std::string TimeOf(const AuditLine& line) {
  constexpr std::string_view kKey = ",\"time\":\"";
  const size_t at = line.body.find(kKey) + kKey.size();
  return std::string(line.body.substr(at, line.body.find('"', at) - at));
}

}  // namespace

// Contents of the end of a file.
struct AuditFiles::Scan {
  uint64_t size = 0;
  AuditHead chained;         // The last record before the first wrong one.
  uint64_t chained_end = 0;  // End of that record.
  AuditHead sound;           // The last record whose own hash is right.
  std::string sound_time;    // Time of that record.
  uint64_t sound_end = 0;
};

StatusOr<AuditFiles::Names> AuditFiles::List(Disk& disk, const std::string& folder) {
  HPVMD_ASSIGN_OR_RETURN(const std::vector<DiskEntry> entries, disk.List(folder));
  Names names;
  for (const DiskEntry& entry : entries) {
    if (const std::optional<uint64_t> first = AuditFileFirst(entry.name); first.has_value() && !entry.is_folder) {
      names[*first] = entry.name;
    }
  }
  return names;
}

StatusOr<AuditFiles::Scan> AuditFiles::ScanFrom(uint64_t offset, const std::string& name, DiskFile& file) {
  Scan scan;
  scan.chained_end = scan.sound_end = offset;
  HPVMD_ASSIGN_OR_RETURN(scan.size, file.Size());
  AuditVerifier verifier;
  if (offset == 0) {
    HPVMD_RETURN_IF_ERROR(verifier.BeginFile(name));
  }
  bool is_chained = true, is_first = true;
  HPVMD_RETURN_IF_ERROR(ForEachLine(file, offset, [&](std::string_view line, uint64_t at, bool is_whole) {
    const uint64_t end = at + line.size() + (is_whole ? 1 : 0);
    // When reading starts in the middle of a file, the first line may be partial.
    if (std::exchange(is_first, false) && offset != 0) {
      scan.chained_end = scan.sound_end = end;
      return true;
    }
    is_chained = is_chained && is_whole && verifier.Push(line).ok();
    if (is_chained) {
      scan.chained = verifier.head();
      scan.chained_end = end;
    }
    if (const auto sound = is_whole ? ParseSoundLine(line) : std::nullopt; sound.has_value()) {
      scan.sound = {sound->sequence, sound->sequence, std::string(sound->hash)};
      scan.sound_time = TimeOf(*sound);
      scan.sound_end = end;
    }
    return true;
  }));
  return scan;
}

StatusOr<AuditFiles::Scan> AuditFiles::ScanEnd(const std::string& name, DiskFile& file) {
  HPVMD_ASSIGN_OR_RETURN(const uint64_t size, file.Size());
  if (size > kScanBytes) {
    HPVMD_ASSIGN_OR_RETURN(const Scan scan, ScanFrom(size - kScanBytes, name, file));
    if (scan.sound.last != 0) {
      return scan;
    }
  }
  return ScanFrom(0, name, file);
}

StatusOr<uint64_t> AuditFiles::Copy(Disk& disk, const std::string& folder, const std::string& to) {
  HPVMD_ASSIGN_OR_RETURN(const Names names, List(disk, folder));
  HPVMD_RETURN_IF_ERROR(disk.MakeFolder(to));
  for (const auto& [first, name] : names) {
    const StatusOr<std::unique_ptr<DiskFile>> source = disk.Open(folder + "/" + name, Disk::Mode::kRead);
    if (absl::IsNotFound(source.status())) {
      continue;  // It was too old, and was removed meanwhile.
    }
    HPVMD_RETURN_IF_ERROR(source.status());
    HPVMD_ASSIGN_OR_RETURN(const auto target, disk.Open(to + "/" + name, Disk::Mode::kCreate));
    uint64_t size = 0, whole = 0;
    for (std::string bytes(1, ' '); !bytes.empty();) {
      HPVMD_ASSIGN_OR_RETURN(bytes, ReadRange(**source, size, size + kReadBytes));
      HPVMD_RETURN_IF_ERROR(target->WriteAt(size, BytesOf(bytes)));
      const size_t end = bytes.rfind('\n');
      whole = end == std::string::npos ? whole : size + end + 1;
      size += bytes.size();
    }
    if (first == names.rbegin()->first) {
      HPVMD_RETURN_IF_ERROR(target->Truncate(whole));  // The daemon was writing the next line.
    }
    HPVMD_RETURN_IF_ERROR(target->Sync());
  }
  HPVMD_RETURN_IF_ERROR(disk.SyncFolder(to));
  return names.size();
}

// Keeps torn bytes for people, appended to those set aside under that number before.
Status AuditFiles::SetAside(DiskFile& file, uint64_t from, uint64_t to, uint64_t sequence) {
  HPVMD_ASSIGN_OR_RETURN(const auto torn,
                         disk_.Open(folder_ + "/torn-" + std::to_string(sequence) + ".bin", Disk::Mode::kOpenOrCreate));
  HPVMD_ASSIGN_OR_RETURN(uint64_t size, torn->Size());
  for (uint64_t at = from; at < to; at += kReadBytes) {
    HPVMD_ASSIGN_OR_RETURN(const std::string bytes, ReadRange(file, at, std::min(to, at + kReadBytes)));
    HPVMD_RETURN_IF_ERROR(torn->WriteAt(size, BytesOf(bytes)));
    size += bytes.size();
  }
  HPVMD_RETURN_IF_ERROR(torn->Sync());
  HPVMD_RETURN_IF_ERROR(disk_.SyncFolder(folder_));
  HPVMD_RETURN_IF_ERROR(file.Truncate(from));
  return file.Sync();
}

StatusOr<AuditFiles::Start> AuditFiles::Open() {
  Start start{{0, 0, AuditOrigin()}, ""};
  HPVMD_RETURN_IF_ERROR(disk_.MakeFolder(folder_));
  HPVMD_RETURN_IF_ERROR(disk_.SyncFolder(folder_.substr(0, folder_.rfind('/'))));
  HPVMD_ASSIGN_OR_RETURN(const Names names, List(disk_, folder_));
  // A crash may have left a file without a line; then the previous file has the last line.
  for (auto at = names.rbegin(); at != names.rend(); ++at) {
    const bool is_last = at == names.rbegin();
    HPVMD_ASSIGN_OR_RETURN(auto file, disk_.Open(folder_ + "/" + at->second, Disk::Mode::kReadWrite));
    HPVMD_ASSIGN_OR_RETURN(const Scan scan, ScanEnd(at->second, *file));
    // A crash affects at most one group at the end: anything earlier is damage, and the lines after it stay.
    const bool is_torn = is_last && scan.size - scan.chained_end <= kAuditGroupBytesMax;
    const AuditHead& head = is_torn ? scan.chained : scan.sound;
    const uint64_t end = is_torn ? scan.chained_end : scan.sound_end;
    const uint64_t next = head.last != 0 ? head.last + 1 : at->first;
    if (!is_torn && (scan.chained.last != scan.sound.last || (!is_last && end < scan.size))) {
      start.damage += "The file " + at->second + " is damaged after record " + std::to_string(scan.chained.last) + ". ";
    }
    if (is_last && end < scan.size) {
      HPVMD_RETURN_IF_ERROR(SetAside(*file, end, scan.size, next));
      start.damage += std::to_string(scan.size - end) + " bytes at the end were not records, and were moved to torn-" +
                      std::to_string(next) + ".bin. ";
    }
    if (is_last) {
      file_ = std::move(file);
      bytes_ = end;
      start.head.last = next - 1;
    }
    if (head.last != 0) {
      if (start.head.last != head.last) {
        start.damage +=
            "Records " + std::to_string(head.last + 1) + " to " + std::to_string(start.head.last) + " are missing. ";
      }
      start.head = {names.begin()->first, start.head.last, head.hash};
      return start;
    }
  }
  if (start.head.last != 0) {
    start.damage += "The records up to " + std::to_string(start.head.last) + " are missing. ";
  }
  return start;
}

StatusOr<std::optional<AuditFiles::Removed>> AuditFiles::RemoveOldest(uint64_t bytes_max, std::string_view before) {
  HPVMD_ASSIGN_OR_RETURN(const Names names, List(disk_, folder_));
  if (names.size() < 2) {
    return std::nullopt;
  }
  uint64_t bytes = 0;
  for (const auto& [first, name] : names) {
    HPVMD_ASSIGN_OR_RETURN(const auto file, disk_.Open(folder_ + "/" + name, Disk::Mode::kRead));
    HPVMD_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    bytes += size;
  }
  const auto& [first, name] = *names.begin();
  HPVMD_ASSIGN_OR_RETURN(const auto file, disk_.Open(folder_ + "/" + name, Disk::Mode::kRead));
  constexpr uint64_t kEndBytes = 4 * kAuditLineBytesMax;  // A few lines only; other work waits for this thread.
  HPVMD_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  HPVMD_ASSIGN_OR_RETURN(const Scan scan, ScanFrom(size > kEndBytes ? size - kEndBytes : 0, name, *file));
  const bool is_old = !scan.sound_time.empty() && scan.sound_time < before;
  const bool is_too_much = bytes_max != 0 && bytes > bytes_max;
  if (!is_old && !is_too_much) {
    return std::nullopt;
  }
  HPVMD_RETURN_IF_ERROR(disk_.Remove(folder_ + "/" + name));
  HPVMD_RETURN_IF_ERROR(disk_.SyncFolder(folder_));
  return Removed{{first, std::next(names.begin())->first - 1, scan.sound.hash}, name, is_too_much};
}

Status AuditFiles::OpenFile(uint64_t first_sequence) {
  const std::string path = folder_ + "/" + AuditFileName(first_sequence);
  // A name whose sync failed may be lost, whatever a second sync reports; it is made again.
  if (is_name_doubtful_) {
    const Status removed = disk_.Remove(path);
    HPVMD_RETURN_IF_ERROR(absl::IsNotFound(removed) ? absl::OkStatus() : removed);
  }
  is_name_doubtful_ = true;
  HPVMD_ASSIGN_OR_RETURN(auto file, disk_.Open(path, Disk::Mode::kOpenOrCreate));
  HPVMD_RETURN_IF_ERROR(disk_.SyncFolder(folder_));
  is_name_doubtful_ = false;
  file_ = std::move(file);
  bytes_ = unsynced_bytes_ = 0;
  is_dirty_ = true;  // An earlier try may have left bytes.
  return absl::OkStatus();
}

Status AuditFiles::Write(uint64_t first_sequence, std::string_view lines) {
  if (file_ == nullptr) {
    HPVMD_RETURN_IF_ERROR(OpenFile(first_sequence));
  }
  if (is_dirty_) {
    HPVMD_RETURN_IF_ERROR(file_->Truncate(bytes_));
    is_dirty_ = false;
  }
  const Status status = file_->WriteAt(bytes_ + unsynced_bytes_, BytesOf(lines));
  unsynced_bytes_ = status.ok() ? unsynced_bytes_ + lines.size() : 0;
  is_dirty_ = !status.ok();
  return status;
}

// After a failed sync the written bytes are in doubt, so all of them are written again.
Status AuditFiles::Sync() {
  const Status status = file_->Sync();
  bytes_ += status.ok() ? unsynced_bytes_ : 0;
  unsynced_bytes_ = 0;
  is_dirty_ = !status.ok();
  return status;
}

Status AuditFiles::Read(Disk& disk, const std::string& folder, uint64_t from, uint64_t to,
                        const std::function<bool(std::string_view line)>& each) {
  HPVMD_ASSIGN_OR_RETURN(const Names names, List(disk, folder));
  auto at = names.upper_bound(from);
  at = at == names.begin() ? at : std::prev(at);
  bool goes_on = true;
  for (; at != names.end() && at->first <= to && goes_on; ++at) {
    const StatusOr<std::unique_ptr<DiskFile>> file = disk.Open(folder + "/" + at->second, Disk::Mode::kRead);
    if (absl::IsNotFound(file.status())) {
      continue;  // As above.
    }
    HPVMD_RETURN_IF_ERROR(file.status());
    HPVMD_RETURN_IF_ERROR(ForEachLine(**file, 0, [&](std::string_view line, uint64_t, bool is_whole) {
      const std::optional<AuditLine> parsed = is_whole ? ParseAuditLine(line) : std::nullopt;
      if (parsed.has_value() && parsed->sequence < from) {
        return true;
      }
      // Lines after the last one are still being written.
      if (parsed.has_value() && parsed->sequence > to) {
        return goes_on = false;
      }
      const bool is_sound = parsed.has_value() && HashOfAuditBody(parsed->body) == parsed->hash;
      goes_on = each(is_sound ? std::string(line) : EscapeForLog(line, kAuditLineBytesMax));
      goes_on = goes_on && !(is_sound && parsed->sequence == to);
      return goes_on;
    }));
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
