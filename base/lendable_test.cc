// SPDX-License-Identifier: Apache-2.0
#include "base/lendable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace hpvm {
namespace {

// Neither the owner nor a reference taken before the value was given to its owner is a borrower.
TEST(LendableTest, OnlyLoansCount) {
  const auto before = std::make_shared<const std::string>("bytes");
  Lendable<const std::string> owned(before);
  EXPECT_FALSE(owned.is_lent());
  std::shared_ptr<const std::string> loan = owned.Lend();
  EXPECT_EQ(loan.get(), before.get());
  EXPECT_TRUE(owned.is_lent());
}

// A loan lasts until the last of its copies ends, and so do several loans together.
TEST(LendableTest, LoansEndWithTheLastCopy) {
  Lendable<int> owned(std::make_shared<int>(7));
  std::shared_ptr<int> first = owned.Lend();
  std::shared_ptr<int> second = owned.Lend();
  std::shared_ptr<int> copy = second;
  first = nullptr;
  second = nullptr;
  EXPECT_TRUE(owned.is_lent());
  copy = nullptr;
  EXPECT_FALSE(owned.is_lent());
  first = owned.Lend();
  EXPECT_TRUE(owned.is_lent());
  EXPECT_EQ(*first, 7);
}

// A pointer into a lent value is a part of the loan.
TEST(LendableTest, PartsKeepTheLoan) {
  struct Pair {
    int left = 1, right = 2;
  };
  Lendable<Pair> owned(std::make_shared<Pair>());
  const std::shared_ptr<Pair> whole = owned.Lend();
  std::shared_ptr<int> part(whole, &whole->right);
  EXPECT_EQ(*part, 2);
  EXPECT_TRUE(owned.is_lent());
}

// A borrower keeps the value after its owner is gone; the value is destroyed with the last borrower.
TEST(LendableTest, LoansOutliveTheOwner) {
  std::weak_ptr<int> seen;
  std::shared_ptr<int> loan;
  {
    auto value = std::make_shared<int>(7);
    seen = value;
    Lendable<int> owned(std::move(value));
    loan = owned.Lend();
  }
  EXPECT_EQ(*loan, 7);
  loan = nullptr;
  EXPECT_TRUE(seen.expired());
}

TEST(LendableTest, NothingIsLentAsNull) {
  Lendable<int> nothing;
  EXPECT_EQ(nothing.Lend(), nullptr);
  EXPECT_FALSE(nothing.is_lent());
}

// Borrowers end loans on other threads while the owner lends more; none is missed.
TEST(LendableTest, LoansEndOnAnyThread) {
  Lendable<int> owned(std::make_shared<int>(7));
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> left{3};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([loan = owned.Lend(), &left]() mutable {
        --left;
        loan = nullptr;
      });
    }
    if (left > 0) {
      (void)owned.is_lent();
    }
    const std::shared_ptr<int> mine = owned.Lend();
    EXPECT_TRUE(owned.is_lent());
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  EXPECT_FALSE(owned.is_lent());
}

}  // namespace
}  // namespace hpvm
