// SPDX-License-Identifier: Apache-2.0
// Lendable is a value that its owner lends out: borrowers keep it alive, and the owner can tell whether there are any.
//
// All loans share one token, which the owner only observes. The owner's own reference therefore never counts as a loan,
// nor does a reference taken before the value was given to its owner.
#ifndef HPVMD_BASE_LENDABLE_H_
#define HPVMD_BASE_LENDABLE_H_

#include <memory>
#include <utility>

namespace hpvm {

// Methods may be called by one thread at a time, guarded by the owner's lock. Loans may end on any thread without that
// lock, so is_lent() may remain true a moment too long, but is never false while there is a loan.
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

  // Copies of the returned pointer are the same loan, which ends with the last copy. A lent value outlives its owner.
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
  std::weak_ptr<Token> token_;  // The token of the current loans.
};

}  // namespace hpvm

#endif  // HPVMD_BASE_LENDABLE_H_
