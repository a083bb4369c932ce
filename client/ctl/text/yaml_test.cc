// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/yaml.h"

#include "gtest/gtest.h"
#include <nlohmann/json.hpp>

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

TEST(YamlTest, Structure) {
  const Json value = {{"id", "job-1"},
                      {"n", 3},
                      {"none", nullptr},
                      {"yes", true},
                      {"labels", Json::object()},
                      {"list", Json::array()},
                      {"items", {{{"a", 1}, {"b", {1, 2}}}, "x", Json::array({Json::array({1}), Json::object()})}}};
  EXPECT_EQ(ToYaml(value),
            "id: job-1\n"
            "\"n\": 3\n"
            "none: null\n"
            "\"yes\": true\n"
            "labels: {}\n"
            "list: []\n"
            "items:\n"
            "  - a: 1\n"
            "    b:\n"
            "      - 1\n"
            "      - 2\n"
            "  - x\n"
            "  - - - 1\n"
            "    - {}\n");
}

TEST(YamlTest, Documents) {
  EXPECT_EQ(ToYaml(Json::array()), "[]\n");
  EXPECT_EQ(ToYaml(Json::object()), "{}\n");
  EXPECT_EQ(ToYaml(Json("a")), "a\n");
  EXPECT_EQ(ToYaml(Json::array({{{"id", "a"}}, {{"id", "b"}}})), "- id: a\n- id: b\n");
}

// Texts that some YAML parser would read as something else.
TEST(YamlTest, QuotesWhatMisleads) {
  for (const char* text : {"",    " ",    "true", "False", "NO",         "on",   "y",    "null", "~",  "12", "-3",
                           "1e3", ".inf", "0x1f", "1:30",  "2026-11-21", "a: b", "a #b", "- a",  "a ", " a", "*a",
                           "&a",  "!a",   "%a",   "@a",    "`a",         "{a",   "[a",   "a,b",  "|",  ">",  "?",
                           "<<",  "=",    "'a'",  "\"a\"", "a\\b",       "a:",   "#a",   "---",  "..."}) {
    const std::string yaml = ToYaml(Json(text));
    EXPECT_EQ(yaml.front(), '"') << yaml;
    EXPECT_EQ(Json::parse(yaml), text);
    EXPECT_EQ(ToYaml(Json{{text, 1}}).front(), '"') << text;
  }
  for (const char* text : {"a", "JOB_STATE_QUEUED", "cpu-0", "/a/b.npy", "a b", "v1.2+3", "nothing", "one"}) {
    EXPECT_EQ(ToYaml(Json(text)), std::string(text) + "\n");
  }
}

TEST(YamlTest, EscapesWhatYamlDoesNotTake) {
  EXPECT_EQ(ToYaml(Json("a\nb\t\x01\x7f\u0085\u2028\ufeff\u00fc")),
            "\"a\\nb\\t\\u0001\\x7f\\u0085\\u2028\\ufeff\u00fc\"\n");
  EXPECT_EQ(ToYaml(Json("\xff")), "\"\ufffd\"\n");
}

TEST(YamlTest, NumbersStayNumbers) {
  EXPECT_EQ(ToYaml(Json(1e30)), "1.0e+30\n");
  EXPECT_EQ(ToYaml(Json(1.5e-9)), "1.5e-09\n");
  EXPECT_EQ(ToYaml(Json(0.5)), "0.5\n");
  EXPECT_EQ(ToYaml(Json(18446744073709551615u)), "18446744073709551615\n");
  EXPECT_EQ(ToYaml(Json(-7)), "-7\n");
}

}  // namespace
}  // namespace hpvm::ctl
