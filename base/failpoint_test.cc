// SPDX-License-Identifier: Apache-2.0
#include "base/failpoint.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace hpvm {
namespace {

#ifndef HPVMD_NO_FAILPOINTS

class FailpointTest : public testing::Test {
 protected:
  ~FailpointTest() override { EXPECT_TRUE(SetFailpoints("").ok()); }
  // Returns one letter per call: E for an error, '.' for OK.
  static std::string Reach(const char* name, int times) {
    std::string seen;
    for (int i = 0; i < times; ++i) {
      seen += HPVMD_FAILPOINT(name).ok() ? '.' : 'E';
    }
    return seen;
  }
};

// Runs `body` in a child process and returns its wait status.
int RunChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    // Its output on stderr is expected.
    if (freopen("/dev/null", "w", stderr) == nullptr) {
      _exit(9);
    }
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// Each form of a setting strikes at the right time.
TEST_F(FailpointTest, StrikesWhenItShould) {
  struct Case {
    const char* settings;
    const char* want;
  } const kCases[] = {
      {"", "......"},
      {"p.other=error(internal)", "......"},
      {"p.x=error(internal)", "EEEEEE"},
      {"p.x=error(internal)@1", "E....."},
      {"p.x=error(internal)@3", "..E..."},
      {"p.x=error(internal)@3+", "..EEEE"},
      {"p.x=error(internal)%1", "EEEEEE"},
      {"p.x=sleep(0)", "......"},
      {"p.y=abort;;p.x=error(internal)@2;", ".E...."},
  };
  for (const Case& c : kCases) {
    ASSERT_TRUE(SetFailpoints(c.settings).ok()) << c.settings;
    EXPECT_EQ(Reach("p.x", 6), c.want) << c.settings;
  }
}

// The code is the requested one, and the message names the failpoint.
TEST_F(FailpointTest, ErrorHasItsCode) {
  ASSERT_TRUE(SetFailpoints("p.x=error(resource_exhausted)").ok());
  Status status = HPVMD_FAILPOINT("p.x");
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_NE(Message(status).find("\"p.x\""), std::string::npos);
}

// Random strikes have about the requested rate, repeat for a seed, and differ between seeds and failpoints.
TEST_F(FailpointTest, ChanceReplays) {
  auto run = [](const char* name, uint64_t seed) {
    EXPECT_TRUE(SetFailpoints("p.x=error(internal)%10;p.y=error(internal)%10", seed).ok());
    return Reach(name, 1000);
  };
  const std::string first = run("p.x", 1);
  EXPECT_EQ(first, run("p.x", 1));
  EXPECT_NE(first, run("p.x", 2));
  EXPECT_NE(first, run("p.y", 1));
  const auto errors = std::count(first.begin(), first.end(), 'E');
  EXPECT_GT(errors, 50);
  EXPECT_LT(errors, 200);
}

// Invalid settings are refused with the part that is wrong, and the earlier settings stay.
TEST_F(FailpointTest, WrongSettingsNameTheirPart) {
  struct Case {
    const char* settings;
    const char* part;
    const char* why;
  } const kCases[] = {
      {"p.x", "p.x", "NAME=ACTION"},
      {"=abort", "=abort", "NAME=ACTION"},
      {"P.x=abort", "P.x=abort", "small letters"},
      {"a=abort;p x=kill", "p x=kill", "small letters"},
      {"p.x=", "p.x=", "the actions are"},
      {"p.x=explode", "p.x=explode", "the actions are"},
      {"p.x=error", "p.x=error", "status code"},
      {"p.x=error()", "p.x=error()", "status code"},
      {"p.x=error(ok)", "p.x=error(ok)", "status code"},
      {"p.x=error(internal", "p.x=error(internal", "\")\""},
      {"p.x=sleep(-1)", "p.x=sleep(-1)", "milliseconds"},
      {"p.x=sleep(3600001)", "p.x=sleep(3600001)", "milliseconds"},
      {"p.x=sleep(99999999999999999999)", "p.x=sleep(99999999999999999999)", "milliseconds"},
      {"p.x=kill(9)", "p.x=kill(9)", "no argument"},
      {"p.x=kill@", "p.x=kill@", "above 0"},
      {"p.x=kill@0", "p.x=kill@0", "above 0"},
      {"p.x=kill@+", "p.x=kill@+", "above 0"},
      {"p.x=kill%0", "p.x=kill%0", "above 0"},
      {"p.x=kill%3+", "p.x=kill%3+", "above 0"},
      {"p.x=kill@3x", "p.x=kill@3x", "above 0"},
      {"p.x=kill;p.x=abort", "p.x=abort", "twice"},
  };
  ASSERT_TRUE(SetFailpoints("p.x=error(internal)").ok());
  for (const Case& c : kCases) {
    Status status = SetFailpoints(c.settings);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.settings;
    EXPECT_NE(Message(status).find("\"" + std::string(c.part) + "\""), std::string::npos) << Message(status);
    EXPECT_NE(Message(status).find(c.why), std::string::npos) << Message(status);
  }
  EXPECT_EQ(Reach("p.x", 2), "EE");
}

// Every failpoint with a setting is counted, from any number of threads, also when it does not strike.
TEST_F(FailpointTest, CountsHits) {
  ASSERT_TRUE(SetFailpoints("p.x=error(internal)@3;p.y=kill@9").ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] { Reach("p.x", 250); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Reach("p.z", 1);
  EXPECT_EQ(FailpointHits(), (std::map<std::string, uint64_t>{{"p.x", 1000}, {"p.y", 0}}));
}

TEST_F(FailpointTest, Sleeps) {
  ASSERT_TRUE(SetFailpoints("p.x=sleep(30)").ok());
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(Reach("p.x", 1), ".");
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(30));
}

// The process ends in the requested way at the requested time.
TEST_F(FailpointTest, EndsTheProcess) {
  auto reach = [](const char* settings) {
    return RunChild([settings] {
      (void)SetFailpoints(settings);
      Reach("p.x", 2);
    });
  };
  int status = reach("p.x=kill@2");
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  status = reach("p.x=abort");
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  status = reach("p.x=kill@3");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The environment is read both by a process that never asked for it and by one that does; invalid settings end either.
// Each case is a new process, because the environment is read only once.
TEST_F(FailpointTest, ReadsTheEnvironment) {
  auto run = [](const char* settings, const char* body) {
    return RunChild([&] {
      setenv("HPVMD_FAILPOINTS", settings, 1);
      const std::string filter = "--gtest_filter=FailpointChild." + std::string(body);
      execl("/proc/self/exe", "failpoint_test", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
      _exit(9);
    });
  };
  int status = run("child.lazy=kill", "DISABLED_Reaches");
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  status = run("child.lazy=explode", "DISABLED_Reaches");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << status;
  status = run("child.eager=error(aborted)", "DISABLED_AsksFirst");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Run by the test above.
TEST(FailpointChild, DISABLED_Reaches) { EXPECT_TRUE(HPVMD_FAILPOINT("child.lazy").ok()); }
TEST(FailpointChild, DISABLED_AsksFirst) {
  EXPECT_TRUE(SetFailpointsFromEnvironment().ok());
  EXPECT_TRUE(absl::IsAborted(HPVMD_FAILPOINT("child.eager")));
  setenv("HPVMD_FAILPOINTS", "nonsense", 1);
  EXPECT_TRUE(SetFailpointsFromEnvironment().ok());  // The environment is read only once.
}

#else

// When compiled out, no failpoint strikes, and SetFailpoints says so.
TEST(FailpointTest, CompiledOut) {
  EXPECT_TRUE(absl::IsFailedPrecondition(SetFailpoints("p.x=abort")));
  EXPECT_TRUE(HPVMD_FAILPOINT("p.x").ok());
  setenv("HPVMD_FAILPOINTS", "p.x=abort", 1);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(SetFailpointsFromEnvironment().ok());
  EXPECT_TRUE(SetFailpointsFromEnvironment().ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "HPVMD_FAILPOINTS is ignored: this build has no failpoints.\n");
}

#endif  // HPVMD_NO_FAILPOINTS

}  // namespace
}  // namespace hpvm
