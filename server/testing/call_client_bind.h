// SPDX-License-Identifier: Apache-2.0
// Bindings that a simulated client makes for a graph's ports: an input "x" of two floats, an output "y" and, for some
// graphs, a scalar input "i" for the index of an array's element.
#ifndef HPVMD_SERVER_TESTING_CALL_CLIENT_BIND_H_
#define HPVMD_SERVER_TESTING_CALL_CLIENT_BIND_H_

#include <cstdint>
#include <string>

#include "hpvm/v1/job.pb.h"

namespace hpvm::server::testing {

using InputBindings = google::protobuf::RepeatedPtrField<v1::InputBinding>;
using OutputBindings = google::protobuf::RepeatedPtrField<v1::OutputBinding>;

// Mostly matches the graph; `number` determines the variant and the fault.
void BindPorts(uint8_t letter, uint8_t number, const std::string& buffer, InputBindings* inputs,
               OutputBindings* outputs);

// Sets deadline, priority, repetitions and related fields.
template <typename Request>
void SetRunOptions(uint8_t number, Request* request) {
  v1::RequestOptions& options = *request->mutable_options();
  switch (number % 8) {
    case 0:
      options.set_deadline_ns(1'000'000'000);
      break;
    case 1:
      options.set_deadline_ns(3'600'000'000'000);
      break;
    case 2:
      options.set_deadline_ns(number == 2 ? UINT64_MAX : 1'000'000);
      break;
    default:
      break;
  }
  options.set_priority(number % 16 == 3 ? 50 : number % 16 == 4 ? -50 : number == 5 ? 101 : 0);
  if (number % 32 == 6) {
    request->set_repeat(number == 6 ? UINT32_MAX : 3);
    v1::Rotation& rotation = *request->add_rotations();
    rotation.set_output("y");
    rotation.set_input(number == 38 ? "z" : "x");
    request->set_until(number == 70 ? "y" : "");
  }
  if (number % 32 == 7) {
    (*request->mutable_symbols())["n"] = number;
  }
}

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_CALL_CLIENT_BIND_H_
