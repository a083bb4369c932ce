// SPDX-License-Identifier: Apache-2.0
// Await turns an asynchronous call of a cluster's store into one that waits for its answer.
#ifndef HPVMD_SERVER_HOSTS_AWAIT_H_
#define HPVMD_SERVER_HOSTS_AWAIT_H_

#include <future>
#include <memory>
#include <utility>

#include "base/status.h"

namespace hpvm::server {

// `call` gets the callback that it passes to the store, which answers each call, late ones too. Not for threads on
// which the store calls back.
template <typename T, typename Call>
StatusOr<T> Await(Call call) {
  auto promise = std::make_shared<std::promise<StatusOr<T>>>();
  std::future<StatusOr<T>> answer = promise->get_future();
  call([promise](StatusOr<T> result) { promise->set_value(std::move(result)); });
  return answer.get();
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_HOSTS_AWAIT_H_
