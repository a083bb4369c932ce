// SPDX-License-Identifier: Apache-2.0
// Fuzzes the core with valid and invalid calls of three tenants, beside executors, a disk and an administrator that
// act at random: in any order, accounts stay exact and answers keep what the daemon promises.
#include <stddef.h>

#include <iostream>

#include "server/process/log.h"
#include "server/testing/call_world.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hpvm::server;
  static const bool is_quiet = (StartLog("error"), true);
  testing::CallWorld world;
  const std::string broken = world.Play(testing::DecodeScript({data, size}));
  if (!broken.empty()) {
    std::cerr << broken << std::flush;
  }
  HPVMD_CHECK(is_quiet && broken.empty());
  return 0;
}
