// SPDX-License-Identifier: Apache-2.0
// Compiles through a real zygote process: tests the cache, the caps, and deaths of children.
#include "compiler/driver/zygote.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/hash.h"
#include "base/io/frame_socket.h"
#include "base/limits.h"
#include "base/testing/another_build.h"
#include "compiler/api/compile_message.h"
#include "compiler/api/cost_record.h"
#include "compiler/api/service.h"
#include "compiler/front/spirv/testing/assemble.h"
#include "compiler/front/spirv/testing/modules.h"

namespace hpvm::compile {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr ArtifactKey kKey = {9, 8, 7};

// WasmBytes builds a module's binary form section by section.
class WasmBytes {
 public:
  WasmBytes() : bytes_{0, 'a', 's', 'm', 1, 0, 0, 0} {}
  void Section(uint8_t id, const std::vector<uint8_t>& content) {
    bytes_.push_back(id);
    Leb(bytes_, content.size());
    bytes_.insert(bytes_.end(), content.begin(), content.end());
  }
  static void Leb(std::vector<uint8_t>& out, uint64_t value) {
    do {
      out.push_back(static_cast<uint8_t>((value & 0x7f) | (value > 0x7f ? 0x80 : 0)));
      value >>= 7;
    } while (value != 0);
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// Returns a module that exports "f": (i32 buffer, i32 n) with the given body, without locals and `end`.
std::vector<uint8_t> ModuleOf(const std::vector<uint8_t>& body) {
  WasmBytes module;
  module.Section(1, {1, 0x60, 2, 0x7f, 0x7f, 0});
  module.Section(3, {1, 0});
  module.Section(5, {1, 0, 1});
  module.Section(7, {1, 1, 'f', 0, 0});
  std::vector<uint8_t> code = {1};
  WasmBytes::Leb(code, body.size() + 2);
  code.push_back(0);
  code.insert(code.end(), body.begin(), body.end());
  code.push_back(0x0b);
  module.Section(10, code);
  return module.bytes();
}

// Computes *p = n + constant.
std::vector<uint8_t> SmallModule(uint8_t constant = 5) {
  return ModuleOf({0x20, 0, 0x20, 1, 0x41, constant, 0x6a, 0x36, 2, 0});
}

// Returns straight-line code with many live values and memory accesses: cheap to read, expensive to compile.
std::vector<uint8_t> CompileBomb(size_t statements) {
  std::vector<uint8_t> body;
  for (size_t i = 0; i < statements; ++i) {
    // *(p + *(p + n)) = n / *(p): loads, checks and traps, each with its own block.
    const uint8_t statement[] = {0x20, 0, 0x20, 0, 0x20, 1, 0x6a, 0x28, 2,    0, 0x6a,
                                 0x20, 1, 0x20, 0, 0x28, 2, 0,    0x6d, 0x36, 2, 0};
    body.insert(body.end(), std::begin(statement), std::end(statement));
  }
  return ModuleOf(body);
}

class ZygoteTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("zygote_test." + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    Stop();
    fs::remove_all(folder_);
  }

  // Starts hpvm-compiler with a cache and the arguments `more`.
  void Start(std::vector<std::string> more = {}, bool with_cache = true, const ArtifactKey& key = kKey) {
    Stop();
    StatusOr<std::pair<UniqueFd, UniqueFd>> pair = CreateSocketPair();
    ASSERT_TRUE(pair.ok()) << pair.status();
    std::vector<std::string> arguments = {program_, "--socket", "20"};
    if (with_cache) {
      arguments.insert(arguments.end(), {"--cache", folder_.string()});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair->second.get(), 20);
    ASSERT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    raw_socket_.reset(dup(pair->first.get()));
    compiler_ = ConnectCompiler(std::move(pair->first), key);
  }

  void Stop() {
    compiler_.reset();
    raw_socket_.reset();
    if (pid_ > 0) {
      int status = 0;
      EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      pid_ = -1;
    }
  }

  static CompileRequest RequestOf(const std::vector<uint8_t>& module) {
    CompileRequest request;
    request.module_name = "m";
    request.module = module;
    request.module_hash = HashOf(module);
    request.entry = "f";
    request.params = {{"p", true, true, ir::Type::kI32}, {"n", false, true, ir::Type::kI32}};
    return request;
  }

  StatusOr<CompileOutcome> Compile(const std::vector<uint8_t>& module, Duration within = std::chrono::seconds(60)) {
    return compiler_->Compile(RequestOf(module), RealClock().Now() + within);
  }

  // Returns the diagnostic of a compile that fails.
  std::string FailureOf(const std::vector<uint8_t>& module) {
    StatusOr<CompileOutcome> outcome = Compile(module);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_FALSE(outcome.ok() && outcome->artifact.has_value());
    return outcome.ok() ? ToString(outcome->diagnostics) : "";
  }

  std::vector<fs::path> CacheFiles() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      files.push_back(entry.path());
    }
    return files;
  }

  // Returns the cached file of an artifact, or of a record of it.
  fs::path FileOf(const Sha256& name, const std::string& suffix) const {
    for (const fs::path& file : CacheFiles()) {
      if (file.string().ends_with("-" + ToHex(name) + suffix)) {
        return file;
      }
    }
    ADD_FAILURE() << "No " << suffix << " in the cache.";
    return "";
  }

  // Waits for a process that compiles, and returns its id.
  pid_t WaitForChild() const {
    const std::string task = "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children";
    pid_t child = -1;
    for (int i = 0; i < 10'000 && child < 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::ifstream(task) >> child;
    }
    EXPECT_GT(child, 0);
    return child;
  }
  static void WaitForEnd(pid_t child) {
    bool is_there = true;
    for (int i = 0; i < 10'000 && is_there; ++i) {
      is_there = kill(child, 0) == 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(is_there);
  }

  std::string program_ = HPVMD_BINARY_DIR "/hpvm-compiler";
  fs::path folder_;
  pid_t pid_ = -1;
  std::unique_ptr<CompilerService> compiler_;
  UniqueFd raw_socket_;  // The same connection, for messages that the client would never send.
};

// The first compile is a miss, the second a hit with the same code; so is the first compile of a later zygote with the
// same key.
TEST_F(ZygoteTest, CachesAcrossProcesses) {
  Start();
  StatusOr<CompileOutcome> first = Compile(SmallModule());
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(first->artifact.has_value()) << ToString(first->diagnostics);
  EXPECT_FALSE(first->from_cache);
  EXPECT_EQ(first->artifact->kind, ArtifactKind::kCpuImage);
  EXPECT_EQ(first->artifact->entry, "f");
  EXPECT_EQ(CacheFiles().size(), 1u);
  StatusOr<CompileOutcome> second = Compile(SmallModule());
  ASSERT_TRUE(second.ok() && second->artifact.has_value());
  EXPECT_TRUE(second->from_cache);
  EXPECT_EQ(second->artifact->code, first->artifact->code);
  Start();
  EXPECT_TRUE(Compile(SmallModule())->from_cache);
  EXPECT_FALSE(Compile(SmallModule(6))->from_cache);
}

// The interpreter's artifact is the kernel IR's text, under another name in the cache.
TEST_F(ZygoteTest, CompilesForTheInterpreter) {
  Start();
  std::vector<uint8_t> module = SmallModule();
  CompileRequest request = RequestOf(module);
  request.target = ArtifactKind::kInterp;
  StatusOr<CompileOutcome> outcome = compiler_->Compile(request, kNever);
  ASSERT_TRUE(outcome.ok() && outcome->artifact.has_value());
  std::string text(outcome->artifact->code.begin(), outcome->artifact->code.end());
  EXPECT_THAT(text, HasSubstr("func f0"));
  EXPECT_FALSE(Compile(module)->from_cache);
}

// An explained compile carries its remarks and listing, is made anew each time, and leaves nothing in the cache,
// because it may be for another processor.
TEST_F(ZygoteTest, ExplainsWithoutCache) {
  Start();
  const std::vector<uint8_t> module = SmallModule();
  CompileRequest request = RequestOf(module);
  request.explain = true;
  request.listing = Listing::kAssembly;
  request.level = "x86-64-v2";
  for (int i = 0; i < 2; ++i) {
    StatusOr<CompileOutcome> outcome = compiler_->Compile(request, RealClock().Now() + std::chrono::seconds(60));
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_TRUE(outcome->artifact.has_value()) << ToString(outcome->diagnostics);
    EXPECT_FALSE(outcome->from_cache);
    EXPECT_FALSE(outcome->artifact->remarks.empty());
    EXPECT_THAT(outcome->artifact->listing, HasSubstr("ret"));
    EXPECT_EQ(outcome->artifact->target, "x86-64-v2");
  }
  const size_t files = CacheFiles().size();
  ASSERT_TRUE(Compile(module).ok());
  EXPECT_EQ(CacheFiles().size(), files + 1);
}

// Only explained compiles may ask for another processor's code, listings and guesses.
TEST(CompileMessageTest, KeepsExplanationsApart) {
  struct Case {
    const char* name;
    void (*change)(CompileRequest&);
    bool is_good;
  };
  const Case kCases[] = {
      {"plain", [](CompileRequest&) {}, true},
      {"explained",
       [](CompileRequest& request) {
         request.explain = request.infers_params = true;
         request.listing = Listing::kLlvm;
         request.level = "aarch64";
       },
       true},
      {"level", [](CompileRequest& request) { request.level = "aarch64"; }, false},
      {"listing", [](CompileRequest& request) { request.listing = Listing::kIr; }, false},
      {"guess", [](CompileRequest& request) { request.infers_params = true; }, false},
      {"unknown listing",
       [](CompileRequest& request) {
         request.explain = true;
         request.listing = static_cast<Listing>(5);
       },
       false},
      {"long level",
       [](CompileRequest& request) {
         request.explain = true;
         request.level.assign(33, 'x');
       },
       false},
  };
  for (const Case& item : kCases) {
    ZygoteRequest request;
    request.compile.entry = "f";
    item.change(request.compile);
    const StatusOr<ZygoteRequest> decoded = ReadCompileRequest(PayloadOf(request));
    ASSERT_EQ(decoded.ok(), item.is_good) << item.name;
    if (decoded.ok()) {
      EXPECT_EQ(decoded->compile.explain, request.compile.explain);
      EXPECT_EQ(decoded->compile.infers_params, request.compile.infers_params);
      EXPECT_EQ(decoded->compile.listing, request.compile.listing);
      EXPECT_EQ(decoded->compile.level, request.compile.level);
    }
  }
}

// Artifacts and records of another build of the compiler are not served, and are removed.
TEST_F(ZygoteTest, AnotherBuildCompilesAnew) {
  Start();
  const StatusOr<CompileOutcome> first = Compile(SmallModule());
  ASSERT_TRUE(first.ok() && first->artifact.has_value());
  compiler_->Keep(first->artifact->name, EncodeTuning({"a processor", {}}));
  ASSERT_TRUE(Compile(SmallModule(6))->artifact.has_value());
  const std::vector<fs::path> old = CacheFiles();
  ASSERT_EQ(old.size(), 3u);
  Stop();
  // Not in the cache's folder. Libraries are found by absolute paths.
  const fs::path other = folder_.string() + ".hpvm-compiler";
  ASSERT_TRUE(CopyAsAnotherBuild(program_, other));
  program_ = other;
  Start();
  const StatusOr<CompileOutcome> again = Compile(SmallModule());
  ASSERT_TRUE(again.ok() && again->artifact.has_value());
  EXPECT_FALSE(again->from_cache);
  EXPECT_TRUE(again->artifact->tuning.empty());
  EXPECT_NE(again->artifact->name, first->artifact->name);
  for (const fs::path& file : old) {
    EXPECT_FALSE(fs::exists(file)) << file;
  }
  EXPECT_EQ(CacheFiles().size(), 1u);
  EXPECT_TRUE(Compile(SmallModule())->from_cache);
  fs::remove(other);
}

// The same for another build of LLVM under the same compiler, unless LLVM is linked into the compiler.
TEST_F(ZygoteTest, AnotherLlvmCompilesAnew) {
  Start();
  ASSERT_TRUE(Compile(SmallModule())->artifact.has_value());
  std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
  std::string line, library;
  while (library.empty() && std::getline(maps, line)) {
    if (line.find("/libLLVM") != std::string::npos) {
      library = line.substr(line.find('/'));
    }
  }
  Stop();
  if (library.empty()) {
    GTEST_SKIP() << "LLVM is linked into the compiler.";
  }
  const fs::path folder = folder_.string() + ".llvm";
  fs::create_directories(folder);
  // Links each name that the dynamic linker may ask for.
  const fs::path copy = folder / fs::path(library).filename();
  ASSERT_TRUE(CopyAsAnotherBuild(library, copy));
  for (const char* name : {"libLLVM.so", "libLLVM.so.22.1", "libLLVM.so.1"}) {
    std::error_code exists;
    fs::create_symlink(copy, folder / name, exists);
  }
  setenv("LD_LIBRARY_PATH", folder.c_str(), 1);
  Start();
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_FALSE(Compile(SmallModule())->from_cache);
  EXPECT_EQ(CacheFiles().size(), 1u);
  fs::remove_all(folder);
}

// A file that is damaged, or tagged for another executor, is removed and made again.
TEST_F(ZygoteTest, RemovesBadCacheFiles) {
  Start();
  ASSERT_TRUE(Compile(SmallModule())->artifact.has_value());
  std::vector<fs::path> files = CacheFiles();
  ASSERT_EQ(files.size(), 1u);
  {
    std::fstream file(files[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('\x5a');
  }
  StatusOr<CompileOutcome> again = Compile(SmallModule());
  ASSERT_TRUE(again.ok() && again->artifact.has_value());
  EXPECT_FALSE(again->from_cache);
  EXPECT_TRUE(Compile(SmallModule())->from_cache);
  ArtifactKey other = kKey;
  other[0] ^= 1;
  Start({}, true, other);
  EXPECT_FALSE(Compile(SmallModule())->from_cache);
}

// A full disk under the cache disables only the cache, and leaves no partial file.
TEST_F(ZygoteTest, SurvivesFullDisk) {
  bool is_mounted = mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=4096,nr_inodes=8") == 0;
  if (is_mounted) {
    std::ofstream(folder_ / "filler") << std::string(4096, 'x');
  } else {
    fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  }
  Start();
  for (int i = 0; i < 2; ++i) {
    StatusOr<CompileOutcome> outcome = Compile(SmallModule());
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->artifact.has_value());
    EXPECT_FALSE(outcome->from_cache);
  }
  EXPECT_EQ(CacheFiles().size(), is_mounted ? 1u : 0u);
  Stop();
  if (is_mounted) {
    EXPECT_EQ(umount(folder_.c_str()), 0);
  }
  fs::permissions(folder_, fs::perms::owner_all);
}

// The cache stays below its size limit; the last used files stay.
TEST_F(ZygoteTest, EvictsTheOldest) {
  Start();
  ASSERT_TRUE(Compile(SmallModule(1))->artifact.has_value());
  uint64_t bytes = fs::file_size(CacheFiles()[0]);
  Start({"--cache-bytes", std::to_string(bytes * 5 / 2)});
  for (uint8_t i = 2; i < 6; ++i) {
    ASSERT_TRUE(Compile(SmallModule(i))->artifact.has_value());
    EXPECT_LE(CacheFiles().size(), 2u);
  }
  EXPECT_TRUE(Compile(SmallModule(5))->from_cache);
  EXPECT_FALSE(Compile(SmallModule(1))->from_cache);
}

// Device measurements of an artifact come with its next delivery, also by a later zygote, but not for another module,
// not under another key, and not when the file was changed. Names that were never delivered are not written.
TEST_F(ZygoteTest, KeepsTheTuningRecord) {
  Start();
  StatusOr<CompileOutcome> first = Compile(SmallModule());
  ASSERT_TRUE(first.ok() && first->artifact.has_value());
  EXPECT_TRUE(first->artifact->tuning.empty());
  const Sha256 name = first->artifact->name;
  EXPECT_NE(name, Sha256{});
  const std::vector<uint8_t> record = EncodeTuning({"a processor", {{0b11, {1, 2, 3, 4}, 1, {2.5f, 1.5f}}}});
  compiler_->Keep(name, record);
  compiler_->Keep(HashOf("never delivered"), record);
  StatusOr<CompileOutcome> second = Compile(SmallModule());
  ASSERT_TRUE(second.ok() && second->artifact.has_value());
  EXPECT_EQ(second->artifact->tuning, record);
  EXPECT_EQ(second->artifact->name, name);
  EXPECT_EQ(CacheFiles().size(), 2u);
  Start();
  EXPECT_EQ(Compile(SmallModule())->artifact->tuning, record);
  EXPECT_TRUE(Compile(SmallModule(6))->artifact->tuning.empty());
  const fs::path file = FileOf(name, ".hpvl");
  // Another kernel's record replaces this one.
  fs::path others = FileOf(Compile(SmallModule(6))->artifact->name, ".hpva");
  fs::copy_file(file, others.replace_extension(".hpvl"));
  EXPECT_TRUE(Compile(SmallModule(6))->artifact->tuning.empty());
  {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(50);
    stream.put('\x5a');
  }
  EXPECT_TRUE(Compile(SmallModule())->artifact->tuning.empty());
  EXPECT_FALSE(fs::exists(file));
}

// Launch costs are kept in the same way, separately from device measurements.
TEST_F(ZygoteTest, KeepsCosts) {
  Start();
  const Sha256 name = Compile(SmallModule())->artifact->name;
  const CostRecordClass taken{.size = 3, .samples = 4, .time_ns = 5};
  const std::vector<uint8_t> costs = EncodeCosts({{{"a processor", {taken}}}});
  const std::vector<uint8_t> tuning = EncodeTuning({"a processor", {}});
  compiler_->KeepCosts(name, costs);
  compiler_->Keep(name, tuning);
  compiler_->KeepCosts(HashOf("never delivered"), costs);
  ASSERT_TRUE(Compile(SmallModule()).ok());
  Start();
  const StatusOr<CompileOutcome> again = Compile(SmallModule());
  ASSERT_TRUE(again.ok() && again->artifact.has_value());
  EXPECT_EQ(again->artifact->costs, costs);
  EXPECT_EQ(again->artifact->tuning, tuning);
  EXPECT_EQ(CacheFiles().size(), 3u);
  // A record of the other kind replaces it.
  fs::copy_file(FileOf(name, ".hpvl"), FileOf(name, ".hpvc"), fs::copy_options::overwrite_existing);
  EXPECT_TRUE(Compile(SmallModule())->artifact->costs.empty());
}

// The records of one artifact are written a limited number of times, so that a client cannot keep the disk busy.
TEST_F(ZygoteTest, BoundsWhatIsKept) {
  Start();
  const Sha256 name = Compile(SmallModule())->artifact->name;
  std::vector<uint8_t> last;
  for (uint32_t i = 0; i < 300; ++i) {
    last = EncodeTuning({"a processor", {{1, {}, 0, {static_cast<float>(i)}}}});
    compiler_->Keep(name, last);
    if (i % 8 == 0) {  // Its answer shows that earlier notes arrived. A note that finds the socket full is dropped.
      ASSERT_TRUE(Compile(SmallModule()).ok());
    }
  }
  const std::vector<uint8_t> kept = Compile(SmallModule())->artifact->tuning;
  EXPECT_FALSE(kept.empty());
  EXPECT_NE(kept, last);
}

// A note must have a name and a record of the kind that it names.
TEST(CompileMessageTest, RefusesMalformedNotes) {
  const auto text = [](const std::vector<uint8_t>& bytes) { return std::string(bytes.begin(), bytes.end()); };
  internal::CompileNote note;
  SetHash(HashOf("x"), note.mutable_name());
  EXPECT_FALSE(ReadCompileNote(note.SerializeAsString()).ok());
  note.set_tuning(text(EncodeTuning({"a processor", {{1, {}, 0, {1.5f}}}})));
  const std::string bytes = note.SerializeAsString();
  ASSERT_TRUE(ReadCompileNote(bytes).ok());
  EXPECT_EQ(ReadCompileNote(bytes)->tuning(), note.tuning());
  EXPECT_FALSE(ReadCompileNote(bytes)->has_costs());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ReadCompileNote(std::string_view(bytes).substr(0, size)).ok()) << size;
  }
  internal::CompileNote costs = note;
  costs.set_costs(text(EncodeCosts({})));
  EXPECT_TRUE(ReadCompileNote(costs.SerializeAsString())->has_costs());
  costs.set_costs(note.tuning());
  EXPECT_FALSE(ReadCompileNote(costs.SerializeAsString()).ok());
  note.mutable_name()->pop_back();
  EXPECT_FALSE(ReadCompileNote(note.SerializeAsString()).ok());
  note.set_name(costs.name());
  note.set_tuning("\1\2\3");
  EXPECT_FALSE(ReadCompileNote(note.SerializeAsString()).ok());
  EXPECT_FALSE(ReadCompileNote(PayloadOf(ZygoteRequest{})).ok());
}

// Without a cache nothing is kept.
TEST_F(ZygoteTest, WorksWithoutCache) {
  Start({}, false);
  EXPECT_TRUE(Compile(SmallModule())->artifact.has_value());
  EXPECT_FALSE(Compile(SmallModule())->from_cache);
}

// Faults of a module are returned as diagnostics, not as a failure of the service.
TEST_F(ZygoteTest, ReportsBadModules) {
  Start();
  std::vector<uint8_t> malformed = SmallModule();
  malformed.resize(malformed.size() - 3);
  EXPECT_THAT(FailureOf(malformed), HasSubstr("module"));
  std::vector<uint8_t> module = SmallModule();
  CompileRequest request = RequestOf(module);
  request.entry = "g";
  StatusOr<CompileOutcome> outcome = compiler_->Compile(request, kNever);
  ASSERT_TRUE(outcome.ok());
  EXPECT_THAT(ToString(outcome->diagnostics), HasSubstr("\"g\""));
  request = RequestOf(module);
  request.module_hash.bytes[0] ^= 1;
  EXPECT_THAT(ToString(compiler_->Compile(request, kNever)->diagnostics), HasSubstr("hash"));
  EXPECT_THAT(FailureOf({}), HasSubstr("size (0 bytes)"));
}

// A compile that needs more memory than the cap ends by it, and the next one works.
TEST_F(ZygoteTest, LimitsMemory) {
#ifdef HPVMD_TSAN
  GTEST_SKIP() << "The sanitizer's shadow exceeds every limit of memory, so there is none.";
#endif
  Start({"--memory-bytes", "400000000"});
  EXPECT_THAT(FailureOf(CompileBomb(60000)), HasSubstr("more memory than this server's limit (400000000 bytes)"));
  EXPECT_TRUE(Compile(SmallModule())->artifact.has_value());
}

// A cap below the process's present memory refuses every compile, and the message says why.
TEST_F(ZygoteTest, NamesTinyMemoryCap) {
#ifdef HPVMD_TSAN
  GTEST_SKIP() << "The sanitizer's shadow exceeds every limit of memory, so there is none.";
#endif
  Start({"--memory-bytes", "1000000"});
  EXPECT_THAT(FailureOf(SmallModule()), ::testing::AnyOf(HasSubstr("(1000000 bytes)"), HasSubstr("crashed")));
}

// A compile that exceeds the time cap is ended, and the message does not blame the module; small compiles run beside
// it meanwhile.
TEST_F(ZygoteTest, LimitsTime) {
  Start({"--seconds", "1", "--children", "2"});
  StatusOr<CompileOutcome> outcome = Status(absl::StatusCode::kUnknown, "");
  std::thread bomb([&] { outcome = Compile(CompileBomb(100000)); });
  EXPECT_TRUE(Compile(SmallModule())->artifact.has_value());
  bomb.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(absl::IsResourceExhausted(outcome->limit)) << outcome->limit;
  EXPECT_THAT(ToString(outcome->diagnostics), HasSubstr("more processor time than this server's limit (1 s)"));
  // The kernel enforces the limit by ticks, which on a busy machine may count more than the time used.
  EXPECT_GE(outcome->cpu, std::chrono::milliseconds(500));
}

// The limit is on processor time: a compile that the machine suspends for longer does not exceed it.
TEST_F(ZygoteTest, SuspendedCompilesAreNotLate) {
  Start({"--seconds", "2"});
  StatusOr<CompileOutcome> outcome = Status(absl::StatusCode::kUnknown, "");
  std::thread compile([&] { outcome = Compile(CompileBomb(20)); });
  const pid_t child = WaitForChild();
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  kill(child, SIGCONT);
  compile.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->artifact.has_value()) << ToString(outcome->diagnostics);
}

// A compile that never continues also ends, by a limit that the message calls the server's.
TEST_F(ZygoteTest, CompilesThatSleepForEverEnd) {
  Start({"--wall-seconds", "1"});
  StatusOr<CompileOutcome> outcome = Status(absl::StatusCode::kUnknown, "");
  std::thread compile([&] { outcome = Compile(CompileBomb(200)); });
  const pid_t child = WaitForChild();
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  compile.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(absl::IsResourceExhausted(outcome->limit)) << outcome->limit;
  EXPECT_THAT(Message(outcome->limit), HasSubstr("after 1 s of wall time, this server's limit"));
  WaitForEnd(child);
  EXPECT_TRUE(Compile(SmallModule())->artifact.has_value());
}

// A request's own deadline ends the wait with a deadline error, not a fault of the module, and ends the compile.
TEST_F(ZygoteTest, HonoursDeadline) {
  Start();
  StatusOr<CompileOutcome> outcome = Status(absl::StatusCode::kUnknown, "");
  std::thread compile([&] { outcome = Compile(CompileBomb(100000), std::chrono::milliseconds(300)); });
  const pid_t child = WaitForChild();
  compile.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.status())) << outcome.status();
  WaitForEnd(child);
  EXPECT_TRUE(Compile(SmallModule())->artifact.has_value());
}

// A stop word ends the wait and the compile; other requests are not affected.
TEST_F(ZygoteTest, CancelsACompile) {
  Start({"--children", "1"});
  std::atomic<uint32_t> stop{0};
  const std::vector<uint8_t> bomb = CompileBomb(100000);
  CompileRequest request = RequestOf(bomb);
  request.stop = &stop;
  Status first, second;
  StatusOr<CompileOutcome> other = Status(absl::StatusCode::kUnknown, "");
  std::thread compile([&] { first = compiler_->Compile(request, kNever).status(); });
  const pid_t child = WaitForChild();
  // Waits for the only child's slot, and never gets it.
  std::thread waits([&] { second = compiler_->Compile(request, kNever).status(); });
  std::thread goes_on([&] { other = Compile(SmallModule()); });
  stop.store(1);
  compile.join();
  waits.join();
  goes_on.join();
  EXPECT_TRUE(absl::IsCancelled(first)) << first;
  EXPECT_TRUE(absl::IsCancelled(second)) << second;
  EXPECT_TRUE(other.ok() && other->artifact.has_value()) << other.status();
  WaitForEnd(child);
  // A request that is cancelled before it is sent is not sent.
  EXPECT_TRUE(absl::IsCancelled(compiler_->Compile(request, kNever).status()));
  EXPECT_TRUE(Compile(SmallModule(7))->artifact.has_value());
}

// Many threads share one connection; each gets the answer to its own request.
TEST_F(ZygoteTest, ServesManyThreads) {
  Start();
  std::vector<std::thread> threads;
  for (uint8_t t = 0; t < 8; ++t) {
    threads.emplace_back([this, t] {
      for (uint8_t i = 0; i < 4; ++i) {
        std::vector<uint8_t> module = SmallModule(static_cast<uint8_t>(t * 4 + i));
        CompileRequest request = RequestOf(module);
        request.module_name = "m" + std::to_string(t) + "_" + std::to_string(i);
        StatusOr<CompileOutcome> outcome = compiler_->Compile(request, kNever);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        ASSERT_TRUE(outcome->artifact.has_value()) << ToString(outcome->diagnostics);
        EXPECT_EQ(outcome->artifact->module_name, request.module_name);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Killing the zygote fails pending and later requests as unavailable, at once.
TEST_F(ZygoteTest, DeathIsUnavailable) {
  Start();
  ASSERT_TRUE(Compile(SmallModule())->artifact.has_value());
  Status waiting;
  std::thread bomb([&] { waiting = Compile(CompileBomb(100000)).status(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(pid_, SIGKILL);
  bomb.join();
  EXPECT_TRUE(absl::IsUnavailable(waiting)) << waiting;
  EXPECT_TRUE(absl::IsUnavailable(Compile(SmallModule(2)).status()));
  compiler_.reset();
  EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
  pid_ = -1;
}

// A child that is killed from outside gives a diagnostic that names the signal.
TEST_F(ZygoteTest, CrashIsADiagnostic) {
  Start();
  ASSERT_TRUE(Compile(SmallModule())->artifact.has_value());
  std::string failure;
  std::thread bomb([&] { failure = FailureOf(CompileBomb(100000)); });
  const pid_t child = WaitForChild();
  if (child > 0) {
    kill(child, SIGSEGV);
  }
  bomb.join();
#ifdef HPVMD_TSAN  // The sanitizer's handler ends the process by another signal.
  EXPECT_THAT(failure, HasSubstr("crashed on this module (signal"));
#else
  EXPECT_THAT(failure, HasSubstr("crashed on this module (signal 11"));
#endif
}

// The reason why a compile ended comes with its diagnostics, and with no artifact.
TEST(CompileMessageTest, KeepsEndsApart) {
  internal::CompileAnswer answer;
  answer.set_end(internal::CompileAnswer::END_LIMIT);
  EXPECT_FALSE(ReadCompileAnswer(answer.SerializeAsString()).ok());
  SetDiagnostics({{Severity::kError, "m", {}, "Too long."}, {Severity::kWarning, "n\xff", 7, "w"}}, &answer);
  const StatusOr<internal::CompileAnswer> read = ReadCompileAnswer(answer.SerializeAsString());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->end(), internal::CompileAnswer::END_LIMIT);
  const Diagnostics diagnostics = GetDiagnostics(*read);
  ASSERT_EQ(diagnostics.size(), 2u);
  EXPECT_EQ(diagnostics[0].severity, Severity::kError);
  EXPECT_FALSE(diagnostics[0].offset.has_value());
  EXPECT_EQ(diagnostics[1].severity, Severity::kWarning);
  EXPECT_EQ(diagnostics[1].place, "n\xff");
  EXPECT_EQ(diagnostics[1].offset, 7u);
  const std::function<void(internal::CompileAnswer&)> faults[] = {
      [](auto& fault) { fault.set_has_artifact(true); },
      [](auto& fault) { fault.set_end(static_cast<internal::CompileAnswer::End>(3)); },
      [](auto& fault) { fault.set_name("short"); },
      [](auto& fault) { fault.set_tuning(std::string(kTuningBytesMax + 1, 'l')); },
      [](auto& fault) { fault.set_costs(std::string(kCostRecordBytesMax + 1, 'c')); },
  };
  for (size_t i = 0; i < std::size(faults); ++i) {
    internal::CompileAnswer fault = answer;
    faults[i](fault);
    EXPECT_FALSE(ReadCompileAnswer(fault.SerializeAsString()).ok()) << i;
  }
}

// A request round-trips; one with numbers, counts or lengths beyond their limits is refused, and any bytes give a
// request or an error.
TEST(CompileMessageTest, RefusesMalformedRequests) {
  ZygoteRequest request;
  request.remaining_ns = 5;
  request.compile.entry = "e\xff";
  request.compile.params = {{"p", true, true, ir::Type::kI32, false}, {"n", false, true, ir::Type::kF64}};
  request.compile.gpu.group_count_max = {7, 8, 9};
  request.compile.gpu.ptx_arch = "sm_90";
  request.compile.constants = {{3, true, 0x8000000000000001}};
  const std::string bytes = PayloadOf(request);
  const StatusOr<ZygoteRequest> read = ReadCompileRequest(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->remaining_ns, 5u);
  EXPECT_EQ(read->compile.gpu, request.compile.gpu);
  EXPECT_EQ(PayloadOf(*read), bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ReadCompileRequest(std::string_view(bytes).substr(0, size)).ok()) << size;
    std::string changed = bytes;
    changed[size] ^= 0x55;
    ReadCompileRequest(changed).IgnoreError();
  }
  EXPECT_FALSE(ReadCompileRequest(bytes + "x").ok());
  const std::function<void(CompileRequest&)> faults[] = {
      [](auto& fault) { fault.gpu.kernel_il = GpuFormat::kOpenClC; },  // Not a form of kernel SPIR-V.
      [](auto& fault) { fault.gpu.kernel_il = static_cast<GpuFormat>(5); },
      [](auto& fault) { fault.gpu.ptx_arch.assign(17, 'a'); },
      [](auto& fault) { fault.module_kind = static_cast<ModuleKind>(5); },
      [](auto& fault) { fault.abi = static_cast<Abi>(2); },
      [](auto& fault) { fault.target = static_cast<ArtifactKind>(0); },
      [](auto& fault) { fault.target = static_cast<ArtifactKind>(5); },
      [](auto& fault) { fault.params[0].scalar = static_cast<ir::Type>(200); },
      [](auto& fault) { fault.options.assign(limits::kBuildOptionsBytesMax + 1, 'o'); },
      [](auto& fault) { fault.params.resize(limits::kKernelParamsMax + 1); },
      [](auto& fault) { fault.constants.resize(limits::kSpecialisationConstantsMax + 1); },
  };
  for (size_t i = 0; i < std::size(faults); ++i) {
    ZygoteRequest fault = request;
    faults[i](fault.compile);
    EXPECT_FALSE(ReadCompileRequest(PayloadOf(fault)).ok()) << i;
  }
}

// The zygote disconnects a client that sends nonsense, and its exit status says why.
TEST_F(ZygoteTest, HangsUpOnNonsense) {
  Start({}, false);
  UniqueFd socket = std::move(raw_socket_);
  ASSERT_TRUE(SendFrame(socket.get(), std::string_view("nonsense")).ok());
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  pid_ = -1;
}

// The zygote has no access to its surroundings: no new privileges, and a filter of system calls.
TEST_F(ZygoteTest, IsLockedDown) {
  Start();
  ASSERT_TRUE(Compile(SmallModule())->artifact.has_value());
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  std::string text{std::istreambuf_iterator<char>(status), std::istreambuf_iterator<char>()};
  EXPECT_THAT(text, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(text, HasSubstr("Seccomp:\t2"));
}

// The translator is loaded before the sandbox closes; a compiler without --opencl refuses such kernels.
TEST_F(ZygoteTest, TranslatesSpirvKernels) {
  const std::vector<uint8_t> kernel = spirv::Assemble(spirv::kKernel, 0);
  CompileRequest request = RequestOf(kernel);
  request.module_kind = ModuleKind::kSpirv;
  request.entry = "scale";
  request.params = {
      {"in", true, false, ir::Type::kI32}, {"out", true, true, ir::Type::kI32}, {"f", false, true, ir::Type::kF32}};
  request.target = ArtifactKind::kOpenCl;
  request.gpu = spirv::FullTarget();
  Start({"--opencl"});
  StatusOr<CompileOutcome> outcome = compiler_->Compile(request, kNever);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_TRUE(outcome->artifact.has_value()) << ToString(outcome->diagnostics);
  EXPECT_EQ(outcome->artifact->gpu.format, GpuFormat::kPtx);
  // Another form of the same kernel is another artifact.
  request.gpu.kernel_il = GpuFormat::kSpirBitcode;
  outcome = compiler_->Compile(request, kNever);
  ASSERT_TRUE(outcome.ok() && outcome->artifact.has_value());
  EXPECT_EQ(outcome->artifact->gpu.format, GpuFormat::kSpirBitcode);
  EXPECT_FALSE(outcome->from_cache);
  Start({}, false);
  outcome = compiler_->Compile(request, kNever);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(ToString(outcome->diagnostics), HasSubstr("has not been loaded"));
}

}  // namespace
}  // namespace hpvm::compile
