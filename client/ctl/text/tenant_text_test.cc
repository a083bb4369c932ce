// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/tenant_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hpvm::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::Tenant Blur() {
  v1::Tenant tenant;
  tenant.set_name("blur");
  tenant.set_weight(200);
  tenant.set_sandbox_level_min(2);
  (*tenant.mutable_quota())["device-bytes"] = 2ull << 30;
  (*tenant.mutable_quota())["requests"] = 0;
  tenant.add_devices("cpu");
  tenant.add_uids(1000);
  tenant.add_uids(1001);
  tenant.add_gids(50);
  return tenant;
}

TEST(TenantText, HasEveryFact) {
  v1::Tenant tenant = Blur();
  const std::string text = TenantText(tenant);
  for (const char* want : {"blur\n", "enabled", "200", "at least level 2", "1000, 1001", "group ids     50",
                           "device-bytes=2.00 GiB, requests=none", "certificates  none"}) {
    EXPECT_THAT(text, HasSubstr(want));
  }
  EXPECT_THAT(text, Not(HasSubstr("reason")));
  tenant.set_disabled(true);
  tenant.set_disabled_reason("unpaid");
  EXPECT_THAT(TenantText(tenant), HasSubstr("unpaid"));
  EXPECT_THAT(TenantsTable({tenant}, false), HasSubstr("disabled"));
  EXPECT_THAT(TenantsTable({tenant}, false), Not(HasSubstr("1001")));
  EXPECT_THAT(TenantsTable({tenant}, true), HasSubstr("1001"));
}

// Names from other users cannot control the terminal, or look like another line.
TEST(TenantText, StaysInItsLine) {
  v1::Tenant tenant = Blur();
  tenant.set_disabled_reason("a\n  quota  b\x1b[2J");
  const std::string text = TenantText(tenant);
  EXPECT_THAT(text, HasSubstr("a   quota  b\\x1b[2J"));
  v1::Token token;
  token.set_name("x\ny\x07");
  EXPECT_THAT(TokensTable({token}, 0), HasSubstr("x y\\x07"));
}

TEST(TokenText, TellsTheState) {
  v1::Token token;
  token.set_expires_unix_ns(100);
  EXPECT_EQ(TokenState(token, 99), "valid");
  EXPECT_EQ(TokenState(token, 100), "expired");
  token.set_revoked_unix_ns(50);
  EXPECT_EQ(TokenState(token, 99), "revoked");
}

TEST(UsageText, TellsHeldFromSpent) {
  v1::GetUsageResponse usage;
  usage.set_tenant("blur");
  usage.set_weight(100);
  usage.set_dominant_share(0.25);
  v1::ResourceUsage* held = usage.add_resources();
  held->set_resource("device-bytes");
  held->set_unit(v1::ResourceUsage::UNIT_BYTES);
  held->set_used(3 << 20);
  held->set_limit(4 << 20);
  held->set_peak(4 << 20);
  held->set_refused(7);
  v1::ResourceUsage* spent = usage.add_resources();
  spent->set_resource("device-seconds");
  spent->set_unit(v1::ResourceUsage::UNIT_NANOSECONDS);
  spent->set_used(90'000'000'000);
  spent->set_limit(3'600'000'000'000);
  spent->set_period_ns(3'600'000'000'000);
  spent->set_available(1'000'000'000);
  const std::string text = UsageTable(usage);
  EXPECT_THAT(text, HasSubstr("tenant blur, weight 100, share of what it uses most 25 %"));
  EXPECT_THAT(text, testing::ContainsRegex("device-bytes +3.00 MiB +4.00 MiB +1.00 MiB +4.00 MiB +7"));
  EXPECT_THAT(text, testing::ContainsRegex("device-seconds +90.0 s +1.00 h / h +1.00 s +- +0"));
  // Usage exceeds the limit after the limit was lowered.
  held->set_limit(1 << 20);
  EXPECT_THAT(UsageTable(usage), testing::ContainsRegex("device-bytes +3.00 MiB +1.00 MiB +0 B"));
  held->set_limit(0);
  EXPECT_THAT(UsageTable(usage), testing::ContainsRegex("device-bytes +3.00 MiB +none +-"));
}

TEST(SandboxTextTest, SaysWhatALevelMeans) {
  v1::Sandbox sandbox;
  EXPECT_THAT(SandboxText(sandbox), HasSubstr("not known"));
  sandbox.set_known(true);
  sandbox.set_level(4);
  sandbox.set_level_min(2);
  sandbox.set_detail("namespaces: yes\x1b");
  EXPECT_THAT(SandboxText(sandbox), HasSubstr("level 4 of 4, at least 2: also namespaces"));
  EXPECT_THAT(SandboxText(sandbox), HasSubstr("namespaces: yes\\x1b"));
}

}  // namespace
}  // namespace hpvm::ctl
