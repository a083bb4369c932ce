// SPDX-License-Identifier: Apache-2.0
#include "server/testing/call_client_bind.h"

namespace hpvm::server::testing {
namespace {

void BindTensor(uint8_t letter, size_t bytes, v1::InputBinding* input) {
  v1::Tensor& tensor = *input->mutable_tensor();
  tensor.set_type(v1::ELEMENT_TYPE_F32);
  tensor.add_shape(2);
  tensor.set_data(std::string(bytes, static_cast<char>(letter)));
}

void BindInput(uint8_t letter, uint8_t number, const std::string& buffer, InputBindings* inputs) {
  if (number == 0) {
    return;
  }
  v1::InputBinding& input = *inputs->Add();
  input.set_name(number == 1 ? "z" : "x");
  switch (number) {
    case 2:
      BindTensor(letter, 7, &input);
      break;
    case 3:
    case 4:
    case 5:
      input.mutable_buffer()->set_buffer_id(buffer);
      if (number != 3) {
        input.mutable_buffer()->set_type(v1::ELEMENT_TYPE_F32);
        input.mutable_buffer()->add_shape(number == 4 ? 2 : 1'000'000);
      }
      break;
    case 6:
      *inputs->Add() = input;  // Bound to nothing, twice.
      break;
    default:
      BindTensor(letter, 8, &input);
  }
}

void BindOutput(uint8_t number, const std::string& buffer, OutputBindings* outputs) {
  if (number < 4) {
    return;
  }
  v1::OutputBinding& output = *outputs->Add();
  output.set_name(number == 15 ? "nothing" : "y");
  if (number < 8) {
    output.set_new_buffer(true);
  } else if (number < 11) {
    output.set_buffer_id(buffer);
  } else if (number < 13) {
    output.set_discard(true);
  } else if (number == 13) {
    *outputs->Add() = output;
  }
}

}  // namespace

void BindPorts(uint8_t letter, uint8_t number, const std::string& buffer, InputBindings* inputs,
               OutputBindings* outputs) {
  BindInput(letter, number % 16, buffer, inputs);
  BindOutput(number / 16, buffer, outputs);
}

}  // namespace hpvm::server::testing
