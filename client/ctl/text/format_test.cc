// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/format.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <nlohmann/json.hpp>

namespace hpvm::ctl {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const Json& Jobs() {
  static const Json jobs = Json::parse(R"([
      {"id": "job-1", "labels": {"a.b/c": "x"}, "outputs": [{"name": "C"}], "n": 3, "name": ""},
      {"id": "job-2", "labels": {}, "outputs": [], "n": null, "name": "two\nlines"}])");
  return jobs;
}

std::string Columns(const std::string& columns, const Json& value = Jobs()) {
  const StatusOr<Format> format = ParseFormat("custom-columns=" + columns);
  return format.ok() ? DataText(value, *format) : Message(format.status());
}

TEST(FormatTest, Names) {
  for (const auto& [word, kind] : std::map<std::string, Format::Kind>{{"table", Format::kTable},
                                                                      {"wide", Format::kWide},
                                                                      {"json", Format::kJson},
                                                                      {"jsonl", Format::kJson},
                                                                      {"yaml", Format::kJson},
                                                                      {"name", Format::kName}}) {
    const StatusOr<Format> format = ParseFormat(word);
    ASSERT_TRUE(format.ok()) << word;
    EXPECT_TRUE(*format == kind) << word;
    EXPECT_THAT(FormatNames(), HasSubstr(word + "|"));
  }
  const std::string refusal = Message(ParseFormat("jsno").status());
  EXPECT_THAT(refusal, HasSubstr("formats are table, wide, json, jsonl, yaml, name, custom-columns=NAME:PATH"));
  EXPECT_THAT(refusal, HasSubstr("did you mean \"json\"?"));
  EXPECT_FALSE(ParseFormat("").ok());
}

TEST(FormatTest, Columns) {
  EXPECT_EQ(Columns("JOB:id,LABEL:labels.a\\.b/c,FIRST:outputs[0].name,N:n,NAME:name"),
            "JOB    LABEL  FIRST  N  NAME\n"
            "job-1  x      C      3  -\n"
            "job-2  -      -      -  two lines\n");
  EXPECT_EQ(Columns("ALL:outputs"), "ALL\n[{\"name\":\"C\"}]\n[]\n");
  EXPECT_EQ(Columns("JOB:id", Jobs()[0]), "JOB\njob-1\n");  // One object is one row.
  EXPECT_EQ(Columns("X:id.more[1]"), "X\n-\n-\n");
  EXPECT_EQ(Columns("X:outputs.0.name"), "X\nC\n-\n");
}

TEST(FormatTest, WrongColumns) {
  EXPECT_THAT(Columns(""), HasSubstr("has no path"));
  EXPECT_THAT(Columns("A"), HasSubstr("has no path"));
  EXPECT_THAT(Columns(":a"), HasSubstr("has no name"));
  EXPECT_THAT(Columns("A:"), HasSubstr("empty step"));
  EXPECT_THAT(Columns("A:a..b"), HasSubstr("empty step"));
  EXPECT_THAT(Columns("A:a."), HasSubstr("empty step"));
  EXPECT_THAT(Columns("A:a[x]"), HasSubstr("a number between brackets"));
  EXPECT_THAT(Columns("A:a[0"), HasSubstr("a number between brackets"));
  EXPECT_THAT(Columns("A:a,"), HasSubstr("has no path"));
}

TEST(FormatTest, Data) {
  EXPECT_EQ(DataText(Jobs(), *ParseFormat("jsonl")).substr(0, 15), "{\"id\":\"job-1\",\"");
  EXPECT_EQ(DataText(Json::array(), *ParseFormat("jsonl")), "");
  EXPECT_EQ(DataText(Json{{"a", 1}}, *ParseFormat("jsonl")), "{\"a\":1}\n");
  EXPECT_EQ(DataText(Json{{"a", 1}}, *ParseFormat("json")), "{\n  \"a\": 1\n}\n");
  EXPECT_EQ(DataText(Json{{"a", 1}}, *ParseFormat("yaml")), "a: 1\n");
}

TEST(FormatTest, ListsThatGoOn) {
  EXPECT_EQ(DataLine(Json{{"a", 1}}, *ParseFormat("json"), true), "{\"a\":1}\n");
  EXPECT_EQ(DataLine(Json{{"a", 1}}, *ParseFormat("jsonl"), false), "{\"a\":1}\n");
  EXPECT_EQ(DataLine(Json{{"a", 1}}, *ParseFormat("yaml"), true), "---\na: 1\n");
  EXPECT_EQ(DataLine(Json{{"a", 1}}, *ParseFormat("custom-columns=A:a"), true), "A\n1\n");
  EXPECT_EQ(DataLine(Json{{"a", 1}}, *ParseFormat("custom-columns=A:a"), false), "1\n");
}

}  // namespace
}  // namespace hpvm::ctl
