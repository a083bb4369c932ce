// SPDX-License-Identifier: Apache-2.0
// Repetition of a graph within one run, and the data that one repetition passes to the next (hpvm/v1/job.proto).
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_REPETITION_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_REPETITION_H_

#include <cstdint>
#include <map>
#include <string>

namespace hpvm {

struct Repetition {
  uint32_t repeat = 1;
  // Maps outputs of one repetition to inputs of the next.
  std::map<std::string, std::string> rotations;
  // An output of one element that ends the repetitions when it is not zero; unused when empty.
  std::string until;

  // Fills the fields of these names in RunRequest, SubmitRequest and similar messages.
  template <typename Message>
  void Put(Message* message) const {
    message->set_repeat(repeat);
    for (const auto& [output, input] : rotations) {
      auto* rotation = message->add_rotations();
      rotation->set_output(output);
      rotation->set_input(input);
    }
    message->set_until(until);
  }
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_REPETITION_H_
