// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/parse_args.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hpvm::ctl {
namespace {

using testing::HasSubstr;

// Every unit, and texts that are not durations.
TEST(WordsTest, Durations) {
  struct Case {
    const char* text;
    int64_t want_ns;  // 0 when refused.
  };
  const Case cases[] = {
      {"500ms", 500'000'000},
      {"10s", 10'000'000'000},
      {"10", 10'000'000'000},
      {"1.5s", 1'500'000'000},
      {"5m", 300'000'000'000},
      {"2h", 7'200'000'000'000},
      {"3us", 3'000},
      {"1d", 86'400'000'000'000},
      {"5min", 300'000'000'000},
      {"0", 0},
      {"0s", 0},
      {"-1s", 0},
      {"", 0},
      {"s", 0},
      {"10x", 0},
      {"10 s", 0},
      {"1e30h", 0},
      {"nan", 0},
      {"inf", 0},
      {"10ss", 0},
      {"0.0001us", 0},
  };
  for (const Case& c : cases) {
    const StatusOr<Duration> duration = ParseDuration(c.text);
    if (c.want_ns == 0) {
      EXPECT_EQ(duration.status().code(), absl::StatusCode::kInvalidArgument) << c.text;
      continue;
    }
    ASSERT_TRUE(duration.ok()) << c.text;
    EXPECT_EQ(duration->count(), c.want_ns) << c.text;
  }
}

// First, last, step and parallelism; an error names the wrong part.
TEST(WordsTest, Arrays) {
  struct Case {
    const char* text;
    uint64_t first, last, step;
    uint32_t running;
    const char* fault;  // nullptr when valid.
  };
  const Case cases[] = {
      {"0-99", 0, 99, 0, 0, nullptr},
      {"7", 7, 7, 0, 0, nullptr},
      {"5-5", 5, 5, 0, 0, nullptr},
      {"0-99:10", 0, 99, 10, 0, nullptr},
      {"0-99%8", 0, 99, 0, 8, nullptr},
      {"1-9:2%3", 1, 9, 2, 3, nullptr},
      {"0-18446744073709551615", 0, UINT64_MAX, 0, 0, nullptr},
      {"0-18446744073709551616", 0, 0, 0, 0, "whole numbers"},
      {"9-1", 0, 0, 0, 0, "LAST (1) is before FIRST (9)"},
      {"", 0, 0, 0, 0, "whole numbers"},
      {"-5", 0, 0, 0, 0, "whole numbers"},
      {"a-b", 0, 0, 0, 0, "whole numbers"},
      {"0-9-", 0, 0, 0, 0, "whole numbers"},
      {"0..9", 0, 0, 0, 0, "whole numbers"},
      {"0-9:0", 0, 0, 0, 0, "step"},
      {"0-9:", 0, 0, 0, 0, "step"},
      {"0-9%0", 0, 0, 0, 0, "at a time"},
      {"0-9%2:3", 0, 0, 0, 0, "at a time"},
      {"0-9%99999999999", 0, 0, 0, 0, "at a time"},
      {" 0-9", 0, 0, 0, 0, "whole numbers"},
  };
  for (const Case& c : cases) {
    const StatusOr<v1::JobArray> array = ParseArray(c.text);
    if (c.fault != nullptr) {
      EXPECT_EQ(array.status().code(), absl::StatusCode::kInvalidArgument) << c.text;
      EXPECT_THAT(Message(array.status()), HasSubstr(c.fault)) << c.text;
      continue;
    }
    ASSERT_TRUE(array.ok()) << c.text;
    EXPECT_EQ(array->first(), c.first) << c.text;
    EXPECT_EQ(array->last(), c.last) << c.text;
    EXPECT_EQ(array->step(), c.step) << c.text;
    EXPECT_EQ(array->running_max(), c.running) << c.text;
  }
}

// Conditions, several ids in a word, and invalid words.
TEST(WordsTest, After) {
  std::vector<v1::JobDependency> after;
  ASSERT_TRUE(ParseAfter("job-1", &after).ok());
  ASSERT_TRUE(ParseAfter("job-2:ended,array-3:failed,job-4:succeeded", &after).ok());
  ASSERT_EQ(after.size(), 4u);
  EXPECT_EQ(after[0].job_id(), "job-1");
  EXPECT_EQ(after[0].condition(), v1::JobDependency::CONDITION_SUCCEEDED);
  EXPECT_EQ(after[1].condition(), v1::JobDependency::CONDITION_ENDED);
  EXPECT_EQ(after[2].job_id(), "array-3");
  EXPECT_EQ(after[2].condition(), v1::JobDependency::CONDITION_FAILED);
  EXPECT_EQ(after[3].condition(), v1::JobDependency::CONDITION_SUCCEEDED);
  for (const char* text : {"", ",", "job-1,", ":ended", "job-1:", "job-1:done", "job-1:ended:ended"}) {
    EXPECT_EQ(ParseAfter(text, &after).code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// Names in any case, groups, and the list of names in the error about a wrong one.
TEST(WordsTest, States) {
  EXPECT_EQ(ParseStates("RUNNING,failed").value(),
            (std::vector<v1::JobState>{v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED}));
  EXPECT_EQ(ParseStates("live").value().size(), 3u);
  EXPECT_EQ(ParseStates("Ended").value().size(), 5u);
  for (const char* text : {"", "run", "running,", "unspecified"}) {
    const Status status = ParseStates(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Message(status), HasSubstr("accepted, queued")) << text;
  }
}

// The name ends at the first equals sign; the value may contain others.
TEST(WordsTest, Pairs) {
  EXPECT_EQ(ParsePair("a=b=c", "--input").value(), std::pair(std::string("a"), std::string("b=c")));
  EXPECT_TRUE(ParsePair("a=", "--label", true).ok());
  for (const char* text : {"", "a", "=b", "a="}) {
    EXPECT_THAT(Message(ParsePair(text, "--input").status()), HasSubstr("--input takes NAME=VALUE")) << text;
  }
}

// Each element has a file of its own; a job that is not an element has no index.
TEST(WordsTest, Files) {
  v1::Job job;
  job.set_id("job-1");
  EXPECT_EQ(FileFor("out-{index}-{job}.npy", job), "out-{index}-job-1.npy");
  job.set_array_id("array-1");
  job.set_array_index(12);
  EXPECT_EQ(FileFor("{index}/out-{index}-{job}.npy", job), "12/out-12-job-1.npy");
  EXPECT_TRUE(DiffersByJob("a{index}"));
  EXPECT_TRUE(DiffersByJob("{job}"));
  EXPECT_FALSE(DiffersByJob("out.npy"));
}

// Several jobs must not write the same file.
TEST(WordsTest, OutputFiles) {
  EXPECT_EQ(ParseOutputFiles({"a=x.npy", "b=y.npz:b"}, false).value().size(), 2u);
  EXPECT_TRUE(ParseOutputFiles({"a=x-{index}.npy"}, true).ok());
  EXPECT_THAT(Message(ParseOutputFiles({"a=x.npy"}, true).status()), HasSubstr("{index}"));
  EXPECT_THAT(Message(ParseOutputFiles({"a=x.npy", "a=y.npy"}, false).status()), HasSubstr("twice"));
  EXPECT_FALSE(ParseOutputFiles({"a"}, false).ok());
}

TEST(ParseDay, IsOfTheCalendar) {
  EXPECT_EQ(*ParseDay("1970-01-01"), 0u);
  EXPECT_EQ(*ParseDay("2026-11-01"), 20'758u);
  EXPECT_EQ(*ParseDay("2024-02-29"), 19'782u);
  for (const char* text :
       {"", "2026-02-29", "2026-13-01", "1969-12-31", "2026-1-1", "2026-11-30T", "26-11-2030", "2026+11-30"}) {
    EXPECT_EQ(ParseDay(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseMoment, IsATimeOrSoLongAgo) {
  constexpr int64_t kNow = 20'758 * 86'400 + 3'661;  // 2026-11-01T01:01:01.
  EXPECT_EQ(*ParseMoment("2h", kNow), "2026-10-31T23:01:01");
  EXPECT_EQ(*ParseMoment("2026-11-01", kNow), "2026-11-01");
  EXPECT_EQ(*ParseMoment("2026-11-01T08:30", kNow), "2026-11-01T08:30");
  EXPECT_EQ(*ParseMoment("2026-11-01T08:30:59Z", kNow), "2026-11-01T08:30:59");
  for (const char* text :
       {"", "yesterday", "2026-11-01T8", "2026-11-01 08:30", "2026-11-31", "2026-11-01T08:30:59.5", "-2h"}) {
    EXPECT_EQ(ParseMoment(text, kNow).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace hpvm::ctl
