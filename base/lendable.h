// SPDX-License-Identifier: Apache-2.0
// A value that its owner lends out: whoever borrows it keeps it alive, and the owner can tell whether anybody does.
//
// All loans share one token of their own, which the owner only watches. So what the owner itself holds never counts as
// a loan, and neither does a reference that was taken before the value was given to its owner.
#ifndef HPVMD_BASE_LENDABLE_H_
#define HPVMD_BASE_LENDABLE_H_

#include <memory>
#include <utility>

namespace hpvm {

// One thread at a time may call its methods: the owner's lock guards them. Loans may end on any thread without it, so
// is_lent() can be true a moment too long, and never false while there is a loan.
template <typename T>
class Lendable {
 public:
  Lendable() = default;  // Holds nothing, and lends null.
  explicit Lendable(std::shared_ptr<T> value) : value_(std::move(value)) {}
  Lendable(Lendable&&) noexcept = default;
  Lendable& operator=(Lendable&&) noexcept = default;

  T* get() const { return value_.get(); }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_.get(); }

  // Copies of what is lent are the same loan; it ends with the last of them. The value outlives the owner while lent.
  std::shared_ptr<T> Lend() {
    if (value_ == nullptr) {
      return nullptr;
    }
    std::shared_ptr<Token> token = token_.lock();
    if (token == nullptr) {
      token = std::make_shared<Token>(Token{value_});
      token_ = token;
    }
    return std::shared_ptr<T>(std::move(token), value_.get());
  }
  bool is_lent() const { return !token_.expired(); }

 private:
  struct Token {
    std::shared_ptr<T> value;
  };
  // Shared with loans, which may outlive the owner.
  std::shared_ptr<T> value_;
  std::weak_ptr<Token> token_;  // Of the loans that there are.
};

}  // namespace hpvm

#endif  // HPVMD_BASE_LENDABLE_H_
