// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/testing/disk_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace hpvm::server {
namespace {

constexpr int kPathBytesMax = 4096;
constexpr int kSectorBytes = 4096;
// 1970-01-01 as SQLite counts: milliseconds since noon in Greenwich on November 24, 4714 BC.
constexpr int64_t kUnixEpochMs = int64_t{24405875} * 8'640'000;

// FileLocks are the holders of the locks of one database file; the five levels are SQLite's.
struct FileLocks {
  int shared = 0;                  // Connections at SHARED or above.
  const void* reserved = nullptr;  // At RESERVED or above.
  const void* pending = nullptr;   // Keeps new SHARED ones out.
};

// The index of one WAL, and its locks: the number of shared holders, or -1 for an exclusive one.
struct SharedMemory {
  std::vector<std::unique_ptr<uint8_t[]>> regions;
  std::array<int, SQLITE_SHM_NLOCK> locks{};
};

// MemoryFile holds files that SQLite opens without a name (sorting, temporary tables), which are not needed after a
// crash.
class MemoryFile final : public DiskFile {
 public:
  StatusOr<size_t> ReadAt(uint64_t offset, std::span<uint8_t> into) override {
    const size_t bytes = offset >= bytes_.size() ? 0 : std::min<uint64_t>(into.size(), bytes_.size() - offset);
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), bytes, into.begin());
    return bytes;
  }
  Status WriteAt(uint64_t offset, std::span<const uint8_t> from) override {
    bytes_.resize(std::max<uint64_t>(bytes_.size(), offset + from.size()));
    std::copy(from.begin(), from.end(), bytes_.begin() + static_cast<ptrdiff_t>(offset));
    return absl::OkStatus();
  }
  Status Truncate(uint64_t size_bytes) override {
    bytes_.resize(size_bytes);
    return absl::OkStatus();
  }
  Status Allocate(uint64_t size_bytes) override {
    bytes_.resize(std::max<uint64_t>(bytes_.size(), size_bytes));
    return absl::OkStatus();
  }
  StatusOr<uint64_t> Size() override { return bytes_.size(); }
  Status Sync() override { return absl::OkStatus(); }

 private:
  std::vector<uint8_t> bytes_;
};

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == path.npos ? "/" : path.substr(0, slash);
}

}  // namespace

struct DiskVfs::State {
  State(Disk& disk, const Clock& clock, Rng& rng) : disk(disk), clock(clock), rng(rng) {}

  Disk& disk;
  const Clock& clock;
  Rng& rng;
  std::string name;
  sqlite3_vfs vfs{};

  std::mutex mutex;
  // Both are shared by the connections to one path, and removed with the last.
  std::map<std::string, std::weak_ptr<FileLocks>> locks;
  std::map<std::string, std::weak_ptr<SharedMemory>> memories;
  std::string last_error;
  std::atomic<uint64_t> sleeps{0};
};

namespace {

using State = DiskVfs::State;

struct OpenFile {
  State* state = nullptr;
  std::string path;
  std::unique_ptr<DiskFile> file;
  bool removes_itself = false;
  // A new journal's name is made durable with its first sync, as in SQLite's own access.
  bool is_name_unsynced = false;
  int level = SQLITE_LOCK_NONE;
  std::shared_ptr<FileLocks> locks;
  std::shared_ptr<SharedMemory> memory;
  uint32_t shared_mask = 0;
  uint32_t exclusive_mask = 0;
};

// The object that SQLite allocates.
struct RawFile {
  sqlite3_file base;
  OpenFile* open;
};

OpenFile& Of(sqlite3_file* file) { return *reinterpret_cast<RawFile*>(file)->open; }
State& Of(sqlite3_vfs* vfs) { return *static_cast<State*>(vfs->pAppData); }

// Returns the shared object of a path; the caller holds the state's mutex.
template <typename T>
std::shared_ptr<T> Share(std::map<std::string, std::weak_ptr<T>>* all, const std::string& path) {
  std::weak_ptr<T>& weak = (*all)[path];
  std::shared_ptr<T> shared = weak.lock();
  if (shared == nullptr) {
    shared = std::make_shared<T>();
    weak = shared;
  }
  return shared;
}

int Fail(State& state, const Status& status, int code) {
  std::lock_guard lock(state.mutex);
  state.last_error = Message(status);
  return absl::IsResourceExhausted(status) && (code == SQLITE_IOERR_WRITE || code == SQLITE_IOERR_TRUNCATE)
             ? SQLITE_FULL
             : code;
}

// --- Files ---

int Unlock(sqlite3_file* raw, int level);
int UnmapMemory(sqlite3_file* raw, int removes);

int Close(sqlite3_file* raw) {
  OpenFile& file = Of(raw);
  Unlock(raw, SQLITE_LOCK_NONE);
  UnmapMemory(raw, 0);
  file.file.reset();
  if (file.removes_itself) {
    (void)file.state->disk.Remove(file.path);
  }
  delete &file;
  raw->pMethods = nullptr;
  return SQLITE_OK;
}

int Read(sqlite3_file* raw, void* into, int bytes, sqlite3_int64 offset) {
  OpenFile& file = Of(raw);
  auto got =
      file.file->ReadAt(static_cast<uint64_t>(offset), {static_cast<uint8_t*>(into), static_cast<size_t>(bytes)});
  if (!got.ok()) {
    return Fail(*file.state, got.status(), SQLITE_IOERR_READ);
  }
  if (*got < static_cast<size_t>(bytes)) {
    memset(static_cast<uint8_t*>(into) + *got, 0, static_cast<size_t>(bytes) - *got);
    return SQLITE_IOERR_SHORT_READ;
  }
  return SQLITE_OK;
}

int Write(sqlite3_file* raw, const void* from, int bytes, sqlite3_int64 offset) {
  OpenFile& file = Of(raw);
  Status written = file.file->WriteAt(static_cast<uint64_t>(offset),
                                      {static_cast<const uint8_t*>(from), static_cast<size_t>(bytes)});
  return written.ok() ? SQLITE_OK : Fail(*file.state, written, SQLITE_IOERR_WRITE);
}

int Truncate(sqlite3_file* raw, sqlite3_int64 size) {
  OpenFile& file = Of(raw);
  Status done = file.file->Truncate(static_cast<uint64_t>(size));
  return done.ok() ? SQLITE_OK : Fail(*file.state, done, SQLITE_IOERR_TRUNCATE);
}

int Sync(sqlite3_file* raw, int flags) {
  OpenFile& file = Of(raw);
  if (Status done = file.file->Sync(); !done.ok()) {
    return Fail(*file.state, done, SQLITE_IOERR_FSYNC);
  }
  if (file.is_name_unsynced) {
    if (Status done = file.state->disk.SyncFolder(FolderOf(file.path)); !done.ok()) {
      return Fail(*file.state, done, SQLITE_IOERR_DIR_FSYNC);
    }
    file.is_name_unsynced = false;
  }
  return SQLITE_OK;
}

int FileSize(sqlite3_file* raw, sqlite3_int64* size) {
  OpenFile& file = Of(raw);
  auto got = file.file->Size();
  if (!got.ok()) {
    return Fail(*file.state, got.status(), SQLITE_IOERR_FSTAT);
  }
  *size = static_cast<sqlite3_int64>(*got);
  return SQLITE_OK;
}

// --- Locks of the database file ---

int Lock(sqlite3_file* raw, int level) {
  OpenFile& file = Of(raw);
  if (level <= file.level) {
    return SQLITE_OK;
  }
  std::lock_guard lock(file.state->mutex);
  if (file.locks == nullptr) {
    file.locks = Share(&file.state->locks, file.path);
  }
  FileLocks& locks = *file.locks;
  auto is_others = [&](const void* holder) { return holder != nullptr && holder != &file; };
  if (file.level == SQLITE_LOCK_NONE) {
    if (is_others(locks.pending)) {
      return SQLITE_BUSY;
    }
    ++locks.shared;
    file.level = SQLITE_LOCK_SHARED;
  }
  if (level >= SQLITE_LOCK_RESERVED) {
    if (is_others(locks.reserved) || is_others(locks.pending)) {
      return SQLITE_BUSY;
    }
    locks.reserved = &file;
    file.level = std::max(file.level, SQLITE_LOCK_RESERVED);
  }
  if (level == SQLITE_LOCK_EXCLUSIVE) {
    locks.pending = &file;
    if (locks.shared > 1) {
      file.level = SQLITE_LOCK_PENDING;
      return SQLITE_BUSY;
    }
    file.level = SQLITE_LOCK_EXCLUSIVE;
  }
  return SQLITE_OK;
}

int Unlock(sqlite3_file* raw, int level) {
  OpenFile& file = Of(raw);
  if (level >= file.level) {
    return SQLITE_OK;
  }
  std::lock_guard lock(file.state->mutex);
  FileLocks& locks = *file.locks;
  if (locks.reserved == &file) {
    locks.reserved = nullptr;
  }
  if (locks.pending == &file) {
    locks.pending = nullptr;
  }
  if (level == SQLITE_LOCK_NONE) {
    --locks.shared;
    file.locks.reset();
  }
  file.level = level;
  return SQLITE_OK;
}

int CheckReservedLock(sqlite3_file* raw, int* is_reserved) {
  OpenFile& file = Of(raw);
  std::lock_guard lock(file.state->mutex);
  *is_reserved = Share(&file.state->locks, file.path)->reserved != nullptr ? 1 : 0;
  return SQLITE_OK;
}

int FileControl(sqlite3_file* raw, int op, void* argument) {
  OpenFile& file = Of(raw);
  switch (op) {
    case SQLITE_FCNTL_VFSNAME:
      *static_cast<char**>(argument) = sqlite3_mprintf("%s", file.state->name.c_str());
      return SQLITE_OK;
    case SQLITE_FCNTL_LOCKSTATE:
      *static_cast<int*>(argument) = file.level;
      return SQLITE_OK;
    case SQLITE_FCNTL_HAS_MOVED:
      *static_cast<int*>(argument) = 0;
      return SQLITE_OK;
    default:
      return SQLITE_NOTFOUND;
  }
}

int SectorSize(sqlite3_file*) { return kSectorBytes; }

// As SQLite's own on Linux: a torn write damages only bytes that it wrote.
int DeviceCharacteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

// --- Shared memory of WAL mode ---

int MapMemory(sqlite3_file* raw, int index, int bytes, int extend, void volatile** region) {
  OpenFile& file = Of(raw);
  std::lock_guard lock(file.state->mutex);
  if (file.memory == nullptr) {
    file.memory = Share(&file.state->memories, file.path);
  }
  std::vector<std::unique_ptr<uint8_t[]>>& regions = file.memory->regions;
  *region = nullptr;
  if (static_cast<size_t>(index) >= regions.size()) {
    if (extend == 0) {
      return SQLITE_OK;
    }
    while (static_cast<size_t>(index) >= regions.size()) {
      regions.push_back(std::make_unique<uint8_t[]>(static_cast<size_t>(bytes)));
    }
  }
  *region = regions[static_cast<size_t>(index)].get();
  return SQLITE_OK;
}

int LockMemory(sqlite3_file* raw, int first, int count, int flags) {
  OpenFile& file = Of(raw);
  std::lock_guard lock(file.state->mutex);
  if (file.memory == nullptr) {
    return SQLITE_IOERR_SHMLOCK;
  }
  const uint32_t mask = (1u << (first + count)) - (1u << first);
  int* begin = file.memory->locks.data() + first;
  int* end = begin + count;
  if ((flags & SQLITE_SHM_UNLOCK) != 0) {
    if ((file.exclusive_mask & mask) != 0) {
      std::fill(begin, end, 0);
    } else if ((file.shared_mask & mask) != 0) {
      --*begin;
    }
    file.exclusive_mask &= ~mask;
    file.shared_mask &= ~mask;
    return SQLITE_OK;
  }
  if ((flags & SQLITE_SHM_SHARED) != 0) {
    if ((file.shared_mask & mask) != 0) {
      return SQLITE_OK;
    }
    if (*begin < 0) {
      return SQLITE_BUSY;
    }
    ++*begin;
    file.shared_mask |= mask;
    return SQLITE_OK;
  }
  for (int i = 0; i < count; ++i) {
    if ((file.exclusive_mask & (1u << (first + i))) == 0 && begin[i] != 0) {
      return SQLITE_BUSY;
    }
  }
  std::fill(begin, end, -1);
  file.exclusive_mask |= mask;
  return SQLITE_OK;
}

void MemoryBarrier(sqlite3_file*) { std::atomic_thread_fence(std::memory_order_seq_cst); }

int UnmapMemory(sqlite3_file* raw, int removes) {
  OpenFile& file = Of(raw);
  std::lock_guard lock(file.state->mutex);
  if (file.memory == nullptr) {
    return SQLITE_OK;
  }
  for (int i = 0; i < SQLITE_SHM_NLOCK; ++i) {
    if ((file.exclusive_mask & (1u << i)) != 0) {
      file.memory->locks[static_cast<size_t>(i)] = 0;
    } else if ((file.shared_mask & (1u << i)) != 0) {
      --file.memory->locks[static_cast<size_t>(i)];
    }
  }
  file.exclusive_mask = 0;
  file.shared_mask = 0;
  file.memory.reset();
  if (auto found = file.state->memories.find(file.path); removes != 0 && found->second.expired()) {
    file.state->memories.erase(found);
  }
  return SQLITE_OK;
}

// xFetch and xUnfetch, version 3, are for memory maps, which are not supported.
const sqlite3_io_methods kMethods = {
    .iVersion = 2,
    .xClose = Close,
    .xRead = Read,
    .xWrite = Write,
    .xTruncate = Truncate,
    .xSync = Sync,
    .xFileSize = FileSize,
    .xLock = Lock,
    .xUnlock = Unlock,
    .xCheckReservedLock = CheckReservedLock,
    .xFileControl = FileControl,
    .xSectorSize = SectorSize,
    .xDeviceCharacteristics = DeviceCharacteristics,
    .xShmMap = MapMemory,
    .xShmLock = LockMemory,
    .xShmBarrier = MemoryBarrier,
    .xShmUnmap = UnmapMemory,
    .xFetch = nullptr,
    .xUnfetch = nullptr,
};

// --- The file system ---

StatusOr<std::unique_ptr<DiskFile>> OpenOnDisk(State& state, const std::string& path, int flags, bool* is_new) {
  if ((flags & SQLITE_OPEN_READONLY) != 0) {
    return state.disk.Open(path, Disk::Mode::kRead);
  }
  if ((flags & SQLITE_OPEN_CREATE) == 0) {
    return state.disk.Open(path, Disk::Mode::kReadWrite);
  }
  auto created = state.disk.Open(path, Disk::Mode::kCreate);
  *is_new = created.ok();
  if (absl::IsAlreadyExists(created.status()) && (flags & SQLITE_OPEN_EXCLUSIVE) == 0) {
    return state.disk.Open(path, Disk::Mode::kReadWrite);
  }
  return created;
}

int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* raw, int flags, int* out_flags) {
  State& state = Of(vfs);
  raw->pMethods = nullptr;
  auto file = std::make_unique<OpenFile>();
  file->state = &state;
  if (name == nullptr) {
    file->file = std::make_unique<MemoryFile>();
  } else {
    file->path = name;
    bool is_new = false;
    auto opened = OpenOnDisk(state, file->path, flags, &is_new);
    if (!opened.ok()) {
      return Fail(state, opened.status(), SQLITE_CANTOPEN);
    }
    file->file = *std::move(opened);
    file->removes_itself = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0;
    constexpr int kJournals = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL;
    file->is_name_unsynced = is_new && (flags & kJournals) != 0;
  }
  if (out_flags != nullptr) {
    *out_flags = flags;
  }
  reinterpret_cast<RawFile*>(raw)->open = file.release();
  raw->pMethods = &kMethods;
  return SQLITE_OK;
}

int Delete(sqlite3_vfs* vfs, const char* name, int sync_folder) {
  State& state = Of(vfs);
  Status removed = state.disk.Remove(name);
  if (!removed.ok()) {
    return Fail(state, removed, absl::IsNotFound(removed) ? SQLITE_IOERR_DELETE_NOENT : SQLITE_IOERR_DELETE);
  }
  if (sync_folder != 0) {
    if (Status done = state.disk.SyncFolder(FolderOf(name)); !done.ok()) {
      return Fail(state, done, SQLITE_IOERR_DIR_FSYNC);
    }
  }
  return SQLITE_OK;
}

int Access(sqlite3_vfs* vfs, const char* name, int flags, int* answer) {
  State& state = Of(vfs);
  auto file = state.disk.Open(name, Disk::Mode::kRead);
  *answer = 0;
  if (!file.ok()) {
    return absl::IsNotFound(file.status()) ? SQLITE_OK : Fail(state, file.status(), SQLITE_IOERR_ACCESS);
  }
  auto size = (*file)->Size();
  // An empty file counts as none, as with SQLite's own access.
  *answer = flags != SQLITE_ACCESS_EXISTS || (size.ok() && *size > 0) ? 1 : 0;
  return SQLITE_OK;
}

int FullPathname(sqlite3_vfs*, const char* name, int bytes, char* into) {
  const std::string path = name[0] == '/' ? name : std::string("/") + name;
  if (path.size() >= static_cast<size_t>(bytes)) {
    return SQLITE_CANTOPEN;
  }
  memcpy(into, path.c_str(), path.size() + 1);
  return SQLITE_OK;
}

int Randomness(sqlite3_vfs* vfs, int bytes, char* into) {
  State& state = Of(vfs);
  std::lock_guard lock(state.mutex);
  for (int i = 0; i < bytes; ++i) {
    into[i] = static_cast<char>(state.rng.Next() >> 32);
  }
  return bytes;
}

int Sleep(sqlite3_vfs* vfs, int microseconds) {
  ++Of(vfs).sleeps;
  return microseconds;
}

int CurrentTimeMs(sqlite3_vfs* vfs, sqlite3_int64* ms) {
  *ms = kUnixEpochMs + Of(vfs).clock.WallNs() / 1'000'000;
  return SQLITE_OK;
}

int CurrentTime(sqlite3_vfs* vfs, double* days) {
  sqlite3_int64 ms = 0;
  CurrentTimeMs(vfs, &ms);
  *days = static_cast<double>(ms) / 86'400'000.0;
  return SQLITE_OK;
}

int LastError(sqlite3_vfs* vfs, int bytes, char* into) {
  State& state = Of(vfs);
  std::lock_guard lock(state.mutex);
  if (bytes > 0) {
    const size_t count = std::min(state.last_error.size(), static_cast<size_t>(bytes) - 1);
    memcpy(into, state.last_error.data(), count);
    into[count] = '\0';
  }
  return 0;
}

}  // namespace

StatusOr<std::unique_ptr<DiskVfs>> DiskVfs::Register(Disk& disk, const Clock& clock, Rng& rng) {
  static std::atomic<uint64_t> next{0};
  auto state = std::make_unique<State>(disk, clock, rng);
  state->name = "hpvmd-disk-" + std::to_string(next.fetch_add(1));
  sqlite3_vfs& vfs = state->vfs;  // All other members stay null: no extensions, no system calls.
  vfs.iVersion = 2;
  vfs.szOsFile = sizeof(RawFile);
  vfs.mxPathname = kPathBytesMax;
  vfs.zName = state->name.c_str();
  vfs.pAppData = state.get();
  vfs.xOpen = server::Open;
  vfs.xDelete = server::Delete;
  vfs.xAccess = server::Access;
  vfs.xFullPathname = server::FullPathname;
  vfs.xRandomness = server::Randomness;
  vfs.xSleep = server::Sleep;
  vfs.xCurrentTime = server::CurrentTime;
  vfs.xGetLastError = server::LastError;
  vfs.xCurrentTimeInt64 = server::CurrentTimeMs;
  if (int result = sqlite3_vfs_register(&vfs, /*makeDflt=*/0); result != SQLITE_OK) {
    return Internal("SQLite does not take the disk \"" + state->name + "\": " + sqlite3_errstr(result) + ".");
  }
  // The salts of a WAL come from this generator.
  sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, static_cast<int>(rng.Next() | 1), static_cast<sqlite3*>(nullptr));
  return std::unique_ptr<DiskVfs>(new DiskVfs(std::move(state)));
}

DiskVfs::DiskVfs(std::unique_ptr<State> state) : state_(std::move(state)) {}
DiskVfs::~DiskVfs() { sqlite3_vfs_unregister(&state_->vfs); }

const std::string& DiskVfs::name() const { return state_->name; }
uint64_t DiskVfs::sleeps() const { return state_->sleeps; }

}  // namespace hpvm::server
