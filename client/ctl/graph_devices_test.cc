// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/graph_devices.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <nlohmann/json.hpp>

namespace hpvm::ctl {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// Returns the devices of the node "n" afterwards, or the error. `own` is the node's own restriction, or null.
std::string Restricted(const Json& own, const std::vector<std::string>& devices) {
  Json document = {{"name", "g"}, {"nodes", {{"n", Json::object()}}}};
  if (!own.is_null()) {
    document["nodes"]["n"]["devices"] = own;
  }
  std::string text = document.dump();
  const Status status = RestrictDevices(devices, &text);
  return status.ok() ? Json::parse(text)["nodes"]["n"]["devices"].dump() : Message(status);
}

TEST(GraphDevicesTest, WhatANodeSaysStillHolds) {
  EXPECT_EQ(Restricted(nullptr, {"cpu:0", "opencl"}), R"(["cpu:0","opencl"])");
  EXPECT_EQ(Restricted({"opencl"}, {"opencl:0"}), R"(["opencl:0"])");
  EXPECT_EQ(Restricted({"opencl:0", "opencl:1"}, {"opencl"}), R"(["opencl:0","opencl:1"])");
  EXPECT_EQ(Restricted({"cpu", "opencl:1"}, {"opencl:1", "vulkan:0"}), R"(["opencl:1"])");
  EXPECT_EQ(Restricted({"gpu"}, {"cpu", "vulkan:0"}), R"(["vulkan:0"])");
  EXPECT_EQ(Restricted({"vulkan:0"}, {"gpu"}), R"(["vulkan:0"])");
  EXPECT_EQ(Restricted({"opencl", "gpu"}, {"opencl"}), R"(["opencl"])");  // Duplicates are removed.
  for (const auto& [own, device] : std::vector<std::pair<std::string, std::string>>{
           {"cpu", "opencl:0"}, {"gpu", "cpu:0"}, {"opencl:1", "opencl:0"}}) {
    EXPECT_THAT(Restricted({own}, {device}), HasSubstr("Node \"n\" may run on [\"" + own + "\"] only")) << device;
  }
}

TEST(GraphDevicesTest, InnerGraphsAndTheRestOfTheDocument) {
  std::string text =
      R"({"z":0.1,"nodes":{"outer":{"nodes":{"leaf":{}},"edges":[]},"b":{"x":1}},"a":18446744073709551615})";
  ASSERT_TRUE(RestrictDevices({"cpu:0"}, &text).ok());
  EXPECT_EQ(text, R"({"z":0.1,"nodes":{"outer":{"nodes":{"leaf":{"devices":["cpu:0"]}},"edges":[]},)"
                  R"("b":{"x":1,"devices":["cpu:0"]}},"a":18446744073709551615})");
  text = R"({"nodes":{"outer":{"nodes":{"leaf":{"devices":["cpu"]}}}}})";
  EXPECT_THAT(Message(RestrictDevices({"vulkan"}, &text)), HasSubstr("Node \"outer/leaf\""));
  text = R"({"hpvm":2,"nodes":{"short":["x","out f32[n]",2.5]}})";
  ASSERT_TRUE(RestrictDevices({"cpu:0"}, &text).ok());
  EXPECT_EQ(text, R"({"hpvm":2,"nodes":{"short":{"args":["x","out f32[n]",2.5],"devices":["cpu:0"]}}})");
  text = "[]";
  EXPECT_FALSE(RestrictDevices({"cpu"}, &text).ok());
}

}  // namespace
}  // namespace hpvm::ctl
