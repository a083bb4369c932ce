// SPDX-License-Identifier: Apache-2.0
// Supervisors and builders as real processes, with a fake driver controlled by the test.
#include "executor/driver_process.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/io/child_process.h"
#include "base/io/frame_socket.h"
#include "base/testing/another_build.h"
#include "executor/driver_environment.h"
#include "executor/driver_message.h"
#include "sandbox/sandbox.h"

namespace hpvm::executor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DriverProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!sandbox::HasLandlock()) {
      GTEST_SKIP() << "The kernel has no Landlock, without which no driver is loaded.";
    }
  }
  DriverProcessTest() : folder_(::testing::TempDir() + "/hpvm-driver-cache-" + std::to_string(getpid())) {
    RemoveFolder(folder_);
    std::filesystem::create_directories(folder_);
    key_.fill(9);
  }
  ~DriverProcessTest() override {
    client_.reset();
    if (process_.pid > 0) {
      KillAndReap(process_);
    }
    RemoveFolder(folder_);
  }

  void Start(const std::string& load = "ok", const std::string& memory_mib = "128") {
    client_.reset();
    if (process_.pid > 0) {
      KillAndReap(process_);
    }
    StatusOr<std::pair<UniqueFd, UniqueFd>> ends = CreateSocketPair();
    ASSERT_TRUE(ends.ok());
    SpawnOptions spawn;
    spawn.arguments = {program_, memory_mib, load};
    spawn.socket = ends->second.get();
    spawn.stderr_fd = STDERR_FILENO;
    StatusOr<SpawnedProcess> process = Spawn(spawn);
    ASSERT_TRUE(process.ok()) << Message(process.status());
    process_ = *std::move(process);
    client_ = ConnectDriverBuilder(std::move(ends->first), {key_, folder_},
                                   [this](const std::string&) -> StatusOr<std::string> { return identity_; });
  }

  StatusOr<DriverBinary> Build(const std::string& options, const std::string& code = "abc",
                               const Patience& patience = {}) {
    DriverBuild build;
    build.device = "opencl:0";
    build.format = GpuFormat::kOpenClC;
    build.code = {reinterpret_cast<const uint8_t*>(code.data()), code.size()};
    build.options = options;
    build.entries = {"f"};
    build.groups = {{1, 2, 3}};
    build.variants.resize(1);
    build.variants[0].entry = "f";
    return client_->Build(build, patience);
  }

  // Returns "1 4711 opencl:0 f": how many requests its builder had served, and the request.
  std::string LogOf(const std::string& code) {
    const StatusOr<DriverBinary> built = Build("", code);
    EXPECT_TRUE(built.ok()) << Message(built.status());
    return built.ok() ? built->log : "";
  }

  size_t Files(const std::string& suffix) const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      count += entry.path().string().ends_with(suffix) ? 1 : 0;
    }
    return count;
  }

  std::string program_ = HPVMD_FAKE_BUILDER;
  const std::string folder_;
  builder::BuildKey key_{};
  std::string identity_ = "fake driver 1";
  SpawnedProcess process_;
  std::unique_ptr<DriverBuilder> client_;
};

// A result is returned whole, and again from the disk, also by the next supervisor; another driver, request or key
// gives another result.
TEST_F(DriverProcessTest, BuildsAndKeeps) {
  Start();
  StatusOr<DriverBinary> built = Build("");
  ASSERT_TRUE(built.ok()) << Message(built.status());
  EXPECT_EQ(std::string(built->bytes.begin(), built->bytes.end()), "cba");
  EXPECT_THAT(built->log, HasSubstr("opencl:0 f"));
  const std::string first = built->log;
  EXPECT_EQ(LogOf("abc"), first);
  EXPECT_NE(LogOf("abd"), first);
  Start();
  EXPECT_EQ(LogOf("abc"), first);
  identity_ = "fake driver 2";
  Start();
  EXPECT_NE(LogOf("abc"), first);
  identity_ = "fake driver 1";
  key_.fill(8);
  Start();
  EXPECT_NE(LogOf("abc"), first);
}

// Results of another build of this program are not used, and are removed.
TEST_F(DriverProcessTest, AnotherBuildBuildsAnew) {
  Start();
  const std::string first = LogOf("abc");
  LogOf("abd");
  ASSERT_EQ(Files(".hpvd"), 2u);
  program_ = folder_ + ".builder";
  ASSERT_TRUE(CopyAsAnotherBuild(HPVMD_FAKE_BUILDER, program_));
  Start();
  EXPECT_NE(LogOf("abc"), first);
  EXPECT_EQ(Files(".hpvd"), 1u);
  std::filesystem::remove(program_);
}

// Without an identity nothing is cached.
TEST_F(DriverProcessTest, KeepsNothingOfAnUnknownDriver) {
  identity_ = "";
  Start();
  EXPECT_NE(LogOf("abc"), LogOf("abc"));
  EXPECT_EQ(Files(".hpvd"), 0u);
}

// A damaged file is not passed to a driver: the result is built again.
TEST_F(DriverProcessTest, DamagedFilesAreBuiltAgain) {
  Start();
  const std::string first = LogOf("abc");
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().string().ends_with(".hpvd")) {
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-1, std::ios::end);
      file.put('x');
    }
  }
  EXPECT_NE(LogOf("abc"), first);
  EXPECT_EQ(Files(".hpvd"), 1u);
}

// The folder's bound holds: the fake allows 4 KiB.
TEST_F(DriverProcessTest, TheFolderIsBounded) {
  Start();
  for (char c = 'a'; c < 'k'; ++c) {
    ASSERT_TRUE(Build("", std::string(1000, c)).ok());
  }
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    bytes += entry.is_regular_file() ? entry.file_size() : 0;
  }
  EXPECT_LE(bytes, 4096u);
  EXPECT_GE(bytes, 2000u);
}

// Modules on which the driver's compiler dies, hangs, exhausts memory or fails are refused, each with the cause; the
// next module is built.
TEST_F(DriverProcessTest, BadModulesCostOnlyThemselves) {
  Start();
  const struct {
    const char* options;
    const char* want;
    absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  } cases[] = {
      {"crash", "driver crashed on the module (signal 6)"},
      {"leave", "driver crashed on the module (exit status 7)"},
      {"hang", "longer than this server's limit of wall time (1500 ms)", absl::StatusCode::kResourceExhausted},
      {"eat", "driver crashed on the module (signal 6)"},
      {"refuse", "line 3: the driver does not like it."},
  };
  for (const auto& c : cases) {
    const StatusOr<DriverBinary> built = Build(c.options);
    EXPECT_EQ(built.status().code(), c.code) << c.options << ": " << built.status();
    EXPECT_THAT(Message(built.status()), HasSubstr(c.want)) << c.options;
    EXPECT_TRUE(Build("", c.options).ok()) << c.options;
  }
}

// Endless builds end however little processor time the machine gives them.
TEST_F(DriverProcessTest, EndlessBuildsEnd) {
  Start("patient");
  const StatusOr<DriverBinary> built = Build("spin");
  EXPECT_TRUE(absl::IsResourceExhausted(built.status())) << built.status();
  EXPECT_THAT(Message(built.status()), HasSubstr("longer than this server's limit of processor time (500 ms)"));
  EXPECT_TRUE(Build("", "after").ok());
}

// A caller that no longer needs the result gets its answer at once, and the driver's process ends: as many as may run
// are cancelled here, and the next one is built.
TEST_F(DriverProcessTest, PatienceEndsBuilds) {
  Start("patient");
  std::atomic<uint32_t> stop{0};
  std::vector<std::thread> callers;
  std::array<Status, 4> ends;  // Two wait for the two builders.
  for (size_t i = 0; i < ends.size(); ++i) {
    callers.emplace_back([&, i] { ends[i] = Build("hang", std::to_string(i), {.stop = &stop}).status(); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  stop.store(1);
  for (std::thread& caller : callers) {
    caller.join();
  }
  for (const Status& end : ends) {
    EXPECT_TRUE(absl::IsCancelled(end)) << end;
  }
  EXPECT_TRUE(Build("").ok());
  const Status late = Build("hang", "x", {.deadline = RealClock().Now() + std::chrono::milliseconds(100)}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_TRUE(Build("", "y").ok());
  // A request cancelled before it is sent is not sent.
  EXPECT_TRUE(absl::IsCancelled(Build("", "z", {.stop = &stop}).status()));
}

// A builder that gets no processor time for longer than its limit is not late.
TEST_F(DriverProcessTest, StarvedBuildsAreNotLate) {
  Start();
  const StatusOr<DriverBinary> built = Build("starve");
  EXPECT_TRUE(built.ok()) << Message(built.status());
}

// A driver that does not load is not blamed on a module.
TEST_F(DriverProcessTest, DriversThatDoNotLoad) {
  Start("fail");
  EXPECT_TRUE(absl::IsUnavailable(Build("").status())) << Build("").status();
  EXPECT_THAT(Message(Build("").status()), HasSubstr("There is no such driver."));
  Start("crash");
  EXPECT_TRUE(absl::IsUnavailable(Build("").status()));
  EXPECT_THAT(Message(Build("").status()), HasSubstr("crashed while it loaded the driver (signal 6)"));
}

// A builder serves several requests, ends when idle, and removes its folder.
TEST_F(DriverProcessTest, BuildersAreReusedAndEnd) {
  Start();
  const std::string first = LogOf("a"), second = LogOf("b");
  EXPECT_EQ(first[0], '1');
  EXPECT_EQ(second[0], '2');
  EXPECT_EQ(first.substr(2), second.substr(2));
  for (int i = 0; i < 200 && std::filesystem::exists(folder_) &&
                  std::distance(std::filesystem::directory_iterator(folder_), {}) > 2;
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2) << "only the two results";
  EXPECT_EQ(LogOf("c")[0], '1');
}

// Many concurrent requests: two builders, and every caller gets its own answer.
TEST_F(DriverProcessTest, ManyAtOnce) {
  Start();
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 40; ++i) {
    threads.emplace_back([&, i] {
      const std::string code = "x" + std::to_string(i);
      const StatusOr<DriverBinary> built = Build("", code);
      good += built.ok() && std::string(built->bytes.rbegin(), built->bytes.rend()) == code ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(good, 40);
}

// A builder may access the driver's files, its own folder and the linker, and nothing else.
TEST_F(DriverProcessTest, BuildersAreLockedDown) {
  Start();
  const struct {
    const char* attempt;
    int want;
  } cases[] = {
      {"read accounts", EACCES},
      {"read libraries", 0},
      {"read itself", 0},
      {"connect", EPERM},
      {"leave a file in /tmp", EACCES},
      {"write its folder", 0},
      {"write the cache", EACCES},
      {"run the linker", access("/usr/bin/ld", X_OK) == 0 ? 0 : 127},
      {"run a shell", EACCES},
  };
  for (const auto& c : cases) {
    const StatusOr<DriverBinary> built = Build(c.attempt);
    ASSERT_TRUE(built.ok()) << c.attempt << ": " << Message(built.status());
    EXPECT_EQ(built->bytes[0], c.want) << c.attempt;
  }
}

// After the supervisor's death waiting and later callers get kUnavailable.
TEST_F(DriverProcessTest, TheSupervisorsDeath) {
  Start();
  ASSERT_TRUE(Build("").ok());
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    SendKill(process_);
  });
  EXPECT_TRUE(absl::IsUnavailable(Build("hang").status()));
  killer.join();
  EXPECT_TRUE(absl::IsUnavailable(Build("").status()));
}

// Requests unknown to the protocol end the connection; any bytes give a message or an error.
TEST(DriverMessageTest, RefusesMalformedMessages) {
  DriverRequest request;
  request.identity = "i";
  request.build.device = "vulkan:1";
  request.build.format = GpuFormat::kSpirvShader;
  request.build.options = "o";
  request.build.entries = {"a", "b"};
  request.build.groups = {{1, 2, 3}};
  request.build.variants.resize(1);
  request.build.variants[0].entry = "a";
  request.build.variants[0].arguments = {GpuArgument{.index = 7}};
  const std::string bytes = PayloadOf(request);
  const std::vector<uint8_t> code = {1, 2, 3};
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(ReadDriverRequest(std::string_view(bytes).substr(0, length), code).ok()) << length;
    std::string changed = bytes;
    changed[length] ^= 0x55;
    ReadDriverRequest(changed, code).IgnoreError();
  }
  const StatusOr<DriverRequest> read = ReadDriverRequest(bytes, code);
  ASSERT_TRUE(read.ok()) << Message(read.status());
  EXPECT_EQ(read->build.device, "vulkan:1");
  EXPECT_EQ(read->build.variants, request.build.variants);
  EXPECT_EQ(read->build.groups, request.build.groups);
  EXPECT_EQ(read->build.code.size(), 3u);
  EXPECT_EQ(PayloadOf(*read), bytes);
  const std::function<void(DriverBuild&)> faults[] = {
      [](auto& fault) { fault.device.assign(4097, 'd'); },
      [](auto& fault) { fault.groups.resize(1025); },
      [](auto& fault) { fault.entries.resize(1025); },
      [](auto& fault) { fault.format = static_cast<GpuFormat>(7); },
      [](auto& fault) { fault.variants[0].arguments[0].kind = static_cast<GpuArgument::Kind>(0); },
      [](auto& fault) { fault.variants[0].arguments[0].kind = static_cast<GpuArgument::Kind>(12); },
      [](auto& fault) {
        fault.variants[0].factors = {{0, 64}};
      },
  };
  for (size_t i = 0; i < std::size(faults); ++i) {
    DriverRequest fault = request;
    faults[i](fault.build);
    EXPECT_FALSE(ReadDriverRequest(PayloadOf(fault), code).ok()) << i;
  }
  request.identity.assign(4097, 'i');
  EXPECT_FALSE(ReadDriverRequest(PayloadOf(request), code).ok());
  const internal::DriverAnswer refusal = AnswerOf(InvalidArgument("no"), "l");
  ASSERT_TRUE(ReadDriverAnswer(refusal.SerializeAsString(), {}).ok());
  EXPECT_EQ(StatusOf(*ReadDriverAnswer(refusal.SerializeAsString(), {})), InvalidArgument("no"));
  EXPECT_FALSE(ReadDriverAnswer(refusal.SerializeAsString(), code).ok());
  internal::DriverAnswer unknown = refusal;
  unknown.set_code(17);
  EXPECT_FALSE(ReadDriverAnswer(unknown.SerializeAsString(), {}).ok());
  internal::DriverAnswer wordy = refusal;
  wordy.set_log(std::string(kDriverLogBytesMax + 1, 'l'));
  EXPECT_FALSE(ReadDriverAnswer(wordy.SerializeAsString(), {}).ok());
}

// A log and a binary survive a round trip through the cache's format.
TEST(DriverMessageTest, KeepsBinaries) {
  const std::vector<uint8_t> binary = {0, 1, 255};
  const StatusOr<DriverBinary> kept = ReadKept(KeptOf("log\xff", binary));
  ASSERT_TRUE(kept.ok()) << Message(kept.status());
  EXPECT_EQ(kept->bytes, binary);
  EXPECT_EQ(kept->log, "log\xff");
  EXPECT_FALSE(ReadKept(binary).ok());
}

}  // namespace
}  // namespace hpvm::executor
