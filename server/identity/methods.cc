// SPDX-License-Identifier: Apache-2.0
#include "server/identity/methods.h"

namespace hpvm::server {

std::string_view NameOf(Role role) {
  switch (role) {
    case Role::kUser:
      return "user";
    case Role::kOperator:
      return "operator";
    case Role::kAdmin:
      return "admin";
  }
  return "nobody";
}

}  // namespace hpvm::server
