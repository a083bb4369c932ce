// SPDX-License-Identifier: Apache-2.0
#include "server/check_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "server/testing/test_certificates.h"

namespace hpvm::server {
namespace {

namespace fs = std::filesystem;

class CheckFilesTest : public ::testing::Test {
 protected:
  CheckFilesTest() {
    char folder[] = "/tmp/hpvmd-check-test-XXXXXX";
    folder_ = mkdtemp(folder);
    config_.server_listen = "unix:" + folder_ + "/s, 127.0.0.1:0";
    config_.server_state_dir = folder_ + "/state";
    config_.executor_path = folder_ + "/hpvm-executor";
    Write("hpvm-executor", "#!/bin/false\n", 0755);
    Write("hpvm-compiler", "#!/bin/false\n", 0755);
    const CertifiedKey server = TestAuthority("the authority").Issue({"hpvmd"});
    Write("server.pem", server.certificate, 0644);
    Write("server.key", server.key, 0600);
    config_.tls_certificate = folder_ + "/server.pem";
    config_.tls_key = folder_ + "/server.key";
  }
  ~CheckFilesTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text, mode_t mode) {
    std::ofstream(folder_ + "/" + name) << text;
    chmod((folder_ + "/" + name).c_str(), mode);
  }
  std::string Check() const { return ToString(CheckFiles(config_)); }

  std::string folder_;
  Config config_;
};

// The checks create nothing: neither the state folder nor a socket.
TEST_F(CheckFilesTest, MakesNothing) {
  EXPECT_EQ(Check(), "");
  EXPECT_FALSE(fs::exists(config_.server_state_dir));
  EXPECT_FALSE(fs::exists(folder_ + "/s"));
  fs::create_directories(config_.server_state_dir + "/audit");
  EXPECT_EQ(Check(), "");
  EXPECT_TRUE(fs::is_empty(config_.server_state_dir + "/audit"));
}

TEST_F(CheckFilesTest, NamesEachFault) {
  struct Case {
    const char* name;
    std::function<void()> spoil;
    const char* place;
    const char* want;
  };
  const Case cases[] = {
      {"NoCertificate", [&] { fs::remove(config_.tls_certificate); }, "tls.certificate: ", "server.pem"},
      {"OpenKey", [&] { chmod(config_.tls_key.c_str(), 0644); }, "tls.key: ", "(mode 0644)"},
      {"KeyOfAnother", [&] { Write("server.key", TestAuthority("x").Issue({"hpvmd"}).key, 0600); },
       "tls.key: ", "does not belong to the certificate"},
      {"StateIsFile", [&] { Write("state", "", 0600); }, "server.state_dir: ", "is not a folder"},
      {"StateBelowFile", [&] { config_.server_state_dir = folder_ + "/server.pem/state"; },
       "server.state_dir: ", "server.pem"},
      {"JobsAreFolder", [&] { fs::create_directories(config_.server_state_dir + "/jobs.db"); },
       "server.state_dir: ", "jobs.db\" is not a file"},
      {"AccountsIsFolder", [&] { fs::create_directories(config_.server_state_dir + "/accounts.sqlite"); },
       "server.state_dir: ", "accounts.sqlite\" is not a file"},
      {"SpentIsFolder", [&] { fs::create_directories(config_.server_state_dir + "/spent.json"); },
       "server.state_dir: ", "spent.json\" is not a file"},
      {"NoScrapeSecret", [&] { config_.metrics_token_file = folder_ + "/none"; }, "metrics.token_file: ", "none"},
      {"NoAuthority",
       [&] {
         config_.tls_client_certificates = "required";
         config_.tls_client_ca = folder_ + "/none";
       },
       "tls.client_ca: ", "none"},
      {"NoExecutor", [&] { fs::remove(config_.executor_path); }, "executor.path: ", "hpvm-executor"},
      {"ExecutorNotExecutable", [&] { chmod(config_.executor_path.c_str(), 0644); },
       "executor.path: ", "cannot be executed"},
      {"NoCompiler", [&] { fs::remove(folder_ + "/hpvm-compiler"); }, "executor.path: ", "hpvm-compiler"},
      {"SocketIsFile", [&] { Write("s", "", 0600); }, "server.listen: ", "is not a socket"},
  };
  for (const Case& c : cases) {
    const Config whole = config_;
    const std::string copy = folder_ + ".copy";
    fs::copy(folder_, copy, fs::copy_options::recursive);
    c.spoil();
    const Diagnostics faults = CheckFiles(config_);
    ASSERT_EQ(faults.size(), 1u) << c.name << "\n" << ToString(faults);
    EXPECT_THAT(ToString(faults), ::testing::StartsWith(c.place)) << c.name;
    EXPECT_THAT(ToString(faults), ::testing::HasSubstr(c.want)) << c.name;
    config_ = whole;
    fs::remove_all(folder_);
    fs::rename(copy, folder_);
  }
}

// One pass reports all faults.
TEST_F(CheckFilesTest, NamesAllFaultsAtOnce) {
  chmod(config_.tls_key.c_str(), 0644);
  fs::remove(config_.tls_certificate);
  fs::remove(config_.executor_path);
  Write("state", "", 0600);
  EXPECT_EQ(CheckFiles(config_).size(), 4u) << Check();
}

}  // namespace
}  // namespace hpvm::server
