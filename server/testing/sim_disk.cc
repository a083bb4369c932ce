// SPDX-License-Identifier: Apache-2.0
#include "server/testing/sim_disk.h"

#include <algorithm>
#include <utility>

namespace hpvm::server {

// A file or a folder.
struct SimDisk::Node {
  virtual ~Node() = default;
  virtual Folder* AsFolder() { return nullptr; }
  virtual File* AsFile() { return nullptr; }
};

struct SimDisk::File final : Node {
  // A change since the last sync, in order: bytes at an offset, or (`is_resize`) a new size.
  struct Change {
    uint64_t offset = 0;
    std::vector<uint8_t> bytes;
    bool is_resize = false;
  };

  explicit File(std::shared_ptr<uint64_t> used) : used_bytes(std::move(used)) {}
  ~File() override { *used_bytes -= seen.size(); }
  File* AsFile() override { return this; }

  std::shared_ptr<uint64_t> used_bytes;
  std::vector<uint8_t> seen;     // Contents that readers see.
  std::vector<uint8_t> durable;  // Contents after a loss of power.
  std::vector<Change> changes;

  void ApplyAll() {
    for (const Change& change : changes) {
      Apply(change);
    }
    changes.clear();
  }
  void Apply(const Change& change) {
    if (change.is_resize) {
      durable.resize(change.offset);
    } else {
      ApplyPart(change, 0, change.bytes.size());
    }
  }
  void ApplyPart(const Change& change, size_t from, size_t to) {
    durable.resize(std::max<size_t>(durable.size(), change.offset + to));
    std::copy(change.bytes.begin() + static_cast<ptrdiff_t>(from), change.bytes.begin() + static_cast<ptrdiff_t>(to),
              durable.begin() + static_cast<ptrdiff_t>(change.offset + from));
  }
  void ApplySome(Rng& rng, uint64_t keep_of_8);
};

struct SimDisk::Folder final : Node {
  using Names = std::map<std::string, NodeRef, std::less<>>;
  // One change of names; null removes. A rename within the folder is one change of two names.
  using Change = std::vector<std::pair<std::string, NodeRef>>;

  Folder* AsFolder() override { return this; }

  Names seen;
  Names durable;
  std::vector<Change> changes;

  void Set(Change change) {
    Apply(change, &seen);
    changes.push_back(std::move(change));
  }
  static void Apply(const Change& change, Names* names) {
    for (const auto& [name, node] : change) {
      if (node == nullptr) {
        names->erase(name);
      } else {
        (*names)[name] = node;
      }
    }
  }
  void ApplyAll() {
    for (const Change& change : changes) {
      Apply(change, &durable);
    }
    changes.clear();
  }
};

struct SimDisk::Plan {
  Op op;
  uint64_t nth = 0;  // The operation's number from the beginning; 0 for random faults.
  uint64_t one_in = 0;
  Fault fault;
  uint64_t matches = 0;
};

// Keeps or drops each sector of a write; a missing sector at the end may still have made the file longer.
void SimDisk::File::ApplySome(Rng& rng, uint64_t keep_of_8) {
  const uint64_t sector = rng.Below(2) == 0 ? 512 : 4096;
  for (const Change& change : changes) {
    if (change.is_resize) {
      if (rng.Below(8) < keep_of_8) {
        Apply(change);
      }
      continue;
    }
    for (size_t from = 0; from < change.bytes.size();) {
      const uint64_t to_sector_end = sector - (change.offset + from) % sector;
      const size_t to = std::min<uint64_t>(change.bytes.size(), from + to_sector_end);
      if (rng.Below(8) < keep_of_8) {
        ApplyPart(change, from, to);
      } else if (change.offset + to > durable.size() && rng.Below(8) == 0) {
        durable.resize(change.offset + to);
      }
      from = to;
    }
  }
  changes.clear();
}

// --- Files ---

class SimDiskFile final : public DiskFile {
 public:
  SimDiskFile(SimDisk& disk, std::shared_ptr<SimDisk::Node> node, std::string path, bool may_write)
      : disk_(disk),
        node_(std::move(node)),
        path_(std::move(path)),
        incarnation_(disk.incarnation_),
        may_write_(may_write) {}

  ~SimDiskFile() override {
    std::lock_guard lock(disk_.mutex_);
    node_.reset();
  }

  StatusOr<size_t> ReadAt(uint64_t offset, std::span<uint8_t> into) override {
    std::lock_guard lock(disk_.mutex_);
    HPVMD_RETURN_IF_ERROR(Begin(SimDisk::Op::kRead));
    const std::vector<uint8_t>& seen = file().seen;
    if (offset >= seen.size()) {
      return size_t{0};
    }
    const size_t bytes = std::min<uint64_t>(into.size(), seen.size() - offset);
    std::copy_n(seen.begin() + static_cast<ptrdiff_t>(offset), bytes, into.begin());
    return bytes;
  }

  Status WriteAt(uint64_t offset, std::span<const uint8_t> from) override {
    std::lock_guard lock(disk_.mutex_);
    bool is_short = false;
    Status begun = BeginChange(SimDisk::Op::kWrite, &is_short);
    if (begun.ok()) {
      return disk_.WriteFile(file(), offset, from);
    }
    if (is_short && !from.empty()) {
      (void)disk_.WriteFile(file(), offset, from.first(disk_.rng_.Below(from.size())));
    }
    return begun;
  }

  Status Truncate(uint64_t size_bytes) override {
    std::lock_guard lock(disk_.mutex_);
    HPVMD_RETURN_IF_ERROR(BeginChange(SimDisk::Op::kTruncate));
    disk_.Resize(file(), size_bytes);
    file().changes.push_back({.offset = size_bytes, .bytes = {}, .is_resize = true});
    return absl::OkStatus();
  }

  Status Allocate(uint64_t size_bytes) override {
    std::lock_guard lock(disk_.mutex_);
    HPVMD_RETURN_IF_ERROR(BeginChange(SimDisk::Op::kWrite));
    const uint64_t size = file().seen.size();
    return size_bytes <= size ? absl::OkStatus()
                              : disk_.WriteFile(file(), size, std::vector<uint8_t>(size_bytes - size));
  }

  StatusOr<uint64_t> Size() override {
    std::lock_guard lock(disk_.mutex_);
    HPVMD_RETURN_IF_ERROR(CheckOpen());
    return file().seen.size();
  }

  Status Sync() override {
    std::lock_guard lock(disk_.mutex_);
    HPVMD_RETURN_IF_ERROR(CheckOpen());
    const bool was_off = disk_.is_off_;
    Status begun = disk_.Begin(SimDisk::Op::kSync, path_);
    if (begun.ok() && !disk_.sync_lies_) {
      file().ApplyAll();
    } else if (!begun.ok() && !was_off) {
      file().ApplySome(disk_.rng_, disk_.rng_.Below(9));
    }
    return begun;
  }

 private:
  SimDisk::File& file() { return *node_->AsFile(); }

  Status CheckOpen() const {
    return incarnation_ == disk_.incarnation_ ? absl::OkStatus()
                                              : DataLoss("The file \"" + path_ + "\" was open when the power failed.");
  }
  Status Begin(SimDisk::Op op, bool* is_short = nullptr) {
    HPVMD_RETURN_IF_ERROR(CheckOpen());
    return disk_.Begin(op, path_, is_short);
  }
  Status BeginChange(SimDisk::Op op, bool* is_short = nullptr) {
    if (!may_write_) {
      return MakeStatus(absl::StatusCode::kPermissionDenied, "The file \"" + path_ + "\" is open for reading only.");
    }
    return Begin(op, is_short);
  }

  SimDisk& disk_;
  std::shared_ptr<SimDisk::Node> node_;
  const std::string path_;
  const uint64_t incarnation_;
  const bool may_write_;
};

// --- The disk ---

SimDisk::SimDisk(uint64_t seed)
    : rng_(seed), root_(std::make_shared<Folder>()), used_bytes_(std::make_shared<uint64_t>(0)) {}
SimDisk::~SimDisk() = default;

Status SimDisk::Begin(Op op, std::string_view path, bool* is_short) {
  if (is_off_) {
    return DataLoss("The power is off.");
  }
  ++counts_[static_cast<size_t>(op)];
  for (Plan& plan : plans_) {
    if (plan.op != op || path.find(plan.fault.path_contains) == path.npos) {
      continue;
    }
    ++plan.matches;
    const bool is_due = plan.one_in != 0      ? rng_.Below(plan.one_in) == 0
                        : plan.fault.for_ever ? plan.matches >= plan.nth
                                              : plan.matches == plan.nth;
    if (is_due) {
      if (is_short != nullptr) {
        *is_short = plan.fault.is_short;
      }
      return MakeStatus(plan.fault.code, "The disk fails this once at \"" + std::string(path) + "\".");
    }
  }
  if (op != Op::kOpen && op != Op::kRead && op != Op::kList) {
    ++changes_;
    is_off_ = changes_ >= off_after_;  // This change still happens.
  }
  return absl::OkStatus();
}

SimDisk::Folder* SimDisk::FindFolder(std::string_view path) const {
  Folder* folder = root_.get();
  while (folder != nullptr && !path.empty()) {
    const size_t end = path.find('/');
    const std::string_view part = path.substr(0, end);
    path = end == path.npos ? std::string_view() : path.substr(end + 1);
    if (part.empty()) {
      continue;
    }
    auto found = folder->seen.find(part);
    folder = found == folder->seen.end() ? nullptr : found->second->AsFolder();
  }
  return folder;
}

StatusOr<std::pair<SimDisk::Folder*, std::string>> SimDisk::FindParent(const std::string& path) const {
  const size_t slash = path.rfind('/');
  if (slash == path.npos || slash + 1 == path.size()) {
    return InvalidArgument("The path \"" + path + "\" is not absolute, or names no file.");
  }
  Folder* folder = FindFolder(std::string_view(path).substr(0, slash));
  if (folder == nullptr) {
    return NotFound("The folder of \"" + path + "\" does not exist.");
  }
  return std::make_pair(folder, path.substr(slash + 1));
}

StatusOr<std::unique_ptr<DiskFile>> SimDisk::Open(const std::string& path, Mode mode) {
  std::lock_guard lock(mutex_);
  HPVMD_ASSIGN_OR_RETURN(auto parent, FindParent(path));
  auto& [folder, name] = parent;
  auto found = folder->seen.find(name);
  const bool makes = mode == Mode::kCreate || (mode == Mode::kOpenOrCreate && found == folder->seen.end());
  HPVMD_RETURN_IF_ERROR(Begin(makes ? Op::kCreate : Op::kOpen, path));
  NodeRef node;
  if (found != folder->seen.end()) {
    if (mode == Mode::kCreate) {
      return AlreadyExists("The file \"" + path + "\" exists.");
    }
    node = found->second;
    if (node->AsFile() == nullptr) {
      return MakeStatus(absl::StatusCode::kPermissionDenied, "\"" + path + "\" is not a regular file.");
    }
  } else {
    if (!makes) {
      return NotFound("The file \"" + path + "\" does not exist.");
    }
    node = std::make_shared<File>(used_bytes_);
    folder->Set({{name, node}});
  }
  return std::make_unique<SimDiskFile>(*this, std::move(node), path, mode != Mode::kRead);
}

Status SimDisk::Rename(const std::string& from, const std::string& to) {
  std::lock_guard lock(mutex_);
  HPVMD_RETURN_IF_ERROR(Begin(Op::kRename, to));
  HPVMD_ASSIGN_OR_RETURN(auto source, FindParent(from));
  HPVMD_ASSIGN_OR_RETURN(auto target, FindParent(to));
  auto found = source.first->seen.find(source.second);
  if (found == source.first->seen.end()) {
    return NotFound("The file \"" + from + "\" does not exist.");
  }
  auto replaced = target.first->seen.find(target.second);
  NodeRef node = found->second;
  if (node->AsFile() == nullptr || (replaced != target.first->seen.end() && replaced->second->AsFile() == nullptr)) {
    return DataLoss("Folders are not renamed or replaced.");
  }
  if (source.first == target.first) {
    if (source.second != target.second) {
      source.first->Set({{source.second, nullptr}, {target.second, node}});
    }
  } else {
    // Two folders, two changes: a crash may keep either.
    target.first->Set({{target.second, node}});
    source.first->Set({{source.second, nullptr}});
  }
  return absl::OkStatus();
}

Status SimDisk::Remove(const std::string& path) {
  std::lock_guard lock(mutex_);
  HPVMD_RETURN_IF_ERROR(Begin(Op::kRemove, path));
  HPVMD_ASSIGN_OR_RETURN(auto parent, FindParent(path));
  auto found = parent.first->seen.find(parent.second);
  if (found == parent.first->seen.end()) {
    return NotFound("The file \"" + path + "\" does not exist.");
  }
  if (found->second->AsFile() == nullptr) {
    return DataLoss("\"" + path + "\" is a folder.");
  }
  parent.first->Set({{parent.second, nullptr}});
  return absl::OkStatus();
}

Status SimDisk::MakeFolder(const std::string& path) {
  std::lock_guard lock(mutex_);
  HPVMD_RETURN_IF_ERROR(Begin(Op::kMakeFolder, path));
  HPVMD_ASSIGN_OR_RETURN(auto parent, FindParent(path));
  auto found = parent.first->seen.find(parent.second);
  if (found == parent.first->seen.end()) {
    parent.first->Set({{parent.second, std::make_shared<Folder>()}});
    return absl::OkStatus();
  }
  return found->second->AsFolder() != nullptr ? absl::OkStatus() : AlreadyExists("\"" + path + "\" is a file.");
}

Status SimDisk::SyncFolder(const std::string& path) {
  std::lock_guard lock(mutex_);
  const bool was_off = is_off_;
  Status begun = Begin(Op::kSyncFolder, path);
  Folder* folder = FindFolder(path);
  if (folder == nullptr) {
    return begun.ok() ? NotFound("The folder \"" + path + "\" does not exist.") : begun;
  }
  if (begun.ok() && !sync_lies_) {
    folder->ApplyAll();
  } else if (!begun.ok() && !was_off) {
    // Like files: the failed changes are forgotten, and the next sync returns OK.
    for (const Folder::Change& change : folder->changes) {
      if (rng_.Below(2) == 0) {
        Folder::Apply(change, &folder->durable);
      }
    }
    folder->changes.clear();
  }
  return begun;
}

StatusOr<std::vector<DiskEntry>> SimDisk::List(const std::string& path) {
  std::lock_guard lock(mutex_);
  HPVMD_RETURN_IF_ERROR(Begin(Op::kList, path));
  Folder* folder = FindFolder(path);
  if (folder == nullptr) {
    return NotFound("The folder \"" + path + "\" does not exist.");
  }
  std::vector<DiskEntry> entries;
  for (const auto& [name, node] : folder->seen) {
    const bool is_folder = node->AsFolder() != nullptr;
    entries.push_back({name, is_folder, is_folder ? 0 : node->AsFile()->seen.size()});
  }
  return entries;
}

StatusOr<DiskSpace> SimDisk::Space(const std::string&) {
  constexpr uint64_t kWithout = uint64_t{1} << 40;
  std::lock_guard lock(mutex_);
  if (is_off_) {
    return DataLoss("The power is off.");
  }
  SyncNames(*root_);  // As when there is no room: removed files take none.
  const uint64_t size = std::min(space_bytes_, kWithout);
  return DiskSpace{size, size - std::min(size, *used_bytes_)};
}

void SimDisk::AddFolder(const std::string& path) {
  std::lock_guard lock(mutex_);
  Folder* folder = root_.get();
  for (size_t at = 1; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    NodeRef& child = folder->seen[path.substr(at, end - at)];
    if (child == nullptr) {
      child = std::make_shared<Folder>();
    }
    folder->durable[path.substr(at, end - at)] = child;
    folder = child->AsFolder();
    at = end + 1;
  }
}

Status SimDisk::WriteFile(File& file, uint64_t offset, std::span<const uint8_t> from) {
  constexpr uint64_t kFileBytesMax = uint64_t{1} << 40;
  if (offset > kFileBytesMax || from.size() > kFileBytesMax - offset) {
    return InvalidArgument("The file would be larger than 1 TiB.");
  }
  uint64_t end = offset + from.size();
  const uint64_t growth = end - std::min<uint64_t>(end, file.seen.size());
  auto room = [&] { return space_bytes_ - std::min(space_bytes_, *used_bytes_); };
  if (growth > room()) {
    SyncNames(*root_);  // As file systems do: removed files are freed for good.
  }
  const bool is_full = growth > room();
  if (is_full) {
    end = std::max(offset, file.seen.size() + room());
    from = from.first(end - offset);
  }
  if (!from.empty()) {
    Resize(file, std::max<uint64_t>(file.seen.size(), end));
    std::copy(from.begin(), from.end(), file.seen.begin() + static_cast<ptrdiff_t>(offset));
    file.changes.push_back({.offset = offset, .bytes = {from.begin(), from.end()}});
  }
  return is_full ? ResourceExhausted("The disk is full.") : absl::OkStatus();
}

void SimDisk::SyncNames(Folder& folder) {
  folder.ApplyAll();
  for (auto& [name, node] : folder.seen) {
    if (Folder* child = node->AsFolder()) {
      SyncNames(*child);
    }
  }
}

void SimDisk::Resize(File& file, uint64_t size_bytes) {
  *used_bytes_ += size_bytes - file.seen.size();  // Modulo 2^64, which also works for subtraction.
  file.seen.resize(size_bytes);
}

void SimDisk::SetSpace(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  space_bytes_ = bytes;
}

uint64_t SimDisk::used_bytes() const {
  std::lock_guard lock(mutex_);
  return *used_bytes_;
}

void SimDisk::FailNth(Op op, uint64_t nth, Fault fault) {
  std::lock_guard lock(mutex_);
  plans_.push_back({.op = op, .nth = nth, .fault = fault});
}

void SimDisk::FailByChance(Op op, uint64_t one_in, Fault fault) {
  std::lock_guard lock(mutex_);
  plans_.push_back({.op = op, .one_in = one_in, .fault = fault});
}

void SimDisk::ClearFaults() {
  std::lock_guard lock(mutex_);
  plans_.clear();
}

void SimDisk::SetSyncLies(bool lies) {
  std::lock_guard lock(mutex_);
  sync_lies_ = lies;
}

bool SimDisk::Damage(const std::string& path, uint64_t offset, uint8_t bits) {
  std::lock_guard lock(mutex_);
  auto parent = FindParent(path);
  if (!parent.ok()) {
    return false;
  }
  auto found = parent->first->seen.find(parent->second);
  File* file = found == parent->first->seen.end() ? nullptr : found->second->AsFile();
  if (file == nullptr || offset >= file->seen.size() || offset >= file->durable.size()) {
    return false;
  }
  file->seen[offset] ^= bits;
  file->durable[offset] ^= bits;
  return true;
}

void SimDisk::PowerOffAfter(uint64_t count) {
  std::lock_guard lock(mutex_);
  off_after_ = changes_ + count;
  is_off_ = count == 0;
}

bool SimDisk::is_off() const {
  std::lock_guard lock(mutex_);
  return is_off_;
}

void SimDisk::Crash(Rng& rng, Keep keep) {
  std::lock_guard lock(mutex_);
  CrashFolder(*root_, rng, keep);
  ++incarnation_;
  plans_.clear();
  is_off_ = false;
  off_after_ = UINT64_MAX;
}

void SimDisk::CrashFolder(Folder& folder, Rng& rng, Keep keep) {
  // Keeps nothing (0) to everything (8), otherwise each change by its own chance; names sometimes in order, as
  // journals do.
  auto draw = [&] { return keep == Keep::kAnything ? rng.Below(9) : keep == Keep::kNothing ? 0 : 8; };
  const uint64_t keep_of_8 = draw();
  const bool in_order = rng.Below(2) == 0;
  const uint64_t first_kept = folder.changes.size() * keep_of_8 / 8;
  for (size_t i = 0; i < folder.changes.size(); ++i) {
    if (in_order ? i < first_kept : rng.Below(8) < keep_of_8) {
      Folder::Apply(folder.changes[i], &folder.durable);
    }
  }
  folder.changes.clear();
  folder.seen = folder.durable;
  for (auto& [name, node] : folder.seen) {
    if (Folder* child = node->AsFolder()) {
      CrashFolder(*child, rng, keep);
      continue;
    }
    File& file = *node->AsFile();
    file.ApplySome(rng, draw());
    Resize(file, file.durable.size());
    file.seen = file.durable;
  }
}

uint64_t SimDisk::count(Op op) const {
  std::lock_guard lock(mutex_);
  return counts_[static_cast<size_t>(op)];
}

uint64_t SimDisk::changes() const {
  std::lock_guard lock(mutex_);
  return changes_;
}

}  // namespace hpvm::server
