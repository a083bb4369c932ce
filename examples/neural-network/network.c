// SPDX-License-Identifier: Apache-2.0
// Layers of a small network, for a batch of images. x runs over a layer's outputs, y over the images.
#include "hpvm.h"

// out = weights^T in + bias; negative results become 0 unless `rectify` is 0.
HPVM_KERNEL void dense(const float* in, const float* weights, const float* bias, float* out, int inputs, int outputs,
                       int rectify) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  float sum = bias[x];
  for (int i = 0; i < inputs; ++i) {
    sum += in[y * inputs + i] * weights[i * outputs + x];
  }
  out[y * outputs + x] = rectify && sum < 0 ? 0 : sum;
}

// Probabilities from the last layer, and the most probable class. One instance per image.
HPVM_KERNEL void softmax(const float* in, float* probabilities, int* best, int outputs) {
  int y = hpvm_instance_id(0), largest = 0;
  const float* row = in + y * outputs;
  for (int i = 1; i < outputs; ++i) {
    largest = row[i] > row[largest] ? i : largest;
  }
  float top = row[largest], sum = 0;
  for (int i = 0; i < outputs; ++i) {
    sum += hpvm_exp_f32(row[i] - top);
  }
  for (int i = 0; i < outputs; ++i) {
    probabilities[y * outputs + i] = hpvm_exp_f32(row[i] - top) / sum;
  }
  best[y] = largest;
}
