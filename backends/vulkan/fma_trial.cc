// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/fma_trial.h"

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <thread>

#include "base/clock.h"

namespace hpvm::vulkan {
namespace {

// glslangValidator's words, with NoContraction at the Fma, for
//
//   layout(local_size_x = 64) in;
//   layout(set = 0, binding = 0) buffer Triples { uint t[]; };
//   layout(set = 0, binding = 1) buffer Results { uint r[]; };
//   void main() {
//     uint i = gl_GlobalInvocationID.x;
//     precise float v = fma(uintBitsToFloat(t[3 * i]), uintBitsToFloat(t[3 * i + 1]), uintBitsToFloat(t[3 * i + 2]));
//     r[i] = floatBitsToUint(v);
//   }
constexpr uint8_t kShader[] = {
#include "backends/vulkan/fma_trial.inc"
};
constexpr uint32_t kGroup = 64, kGroups = 64, kTriples = kGroup * kGroups;
constexpr Duration kWaitMax = std::chrono::seconds(2);  // The work takes microseconds.

struct Triple {
  float a = 0, b = 0, c = 0;
};
static_assert(sizeof(Triple) == 12);

// Triples like those in quotients and roots of compiler/back/vulkan/fused_float.cc, and others for which an fma that
// rounds the product, or keeps too few bits of it, is wrong.
class Triples {
 public:
  std::vector<Triple> Make() {
    std::vector<Triple> all(kTriples);
    for (uint32_t i = 0; i < kTriples; ++i) {
      all[i] = Any(i % 8);
    }
    return all;
  }

 private:
  Triple Any(uint32_t kind) {
    const float x = Number(), any = Number();
    const bool is_tiny = std::fabs(x * any) < std::ldexp(1.0f, -70);  // Its loss would be a denormal number.
    const float y = is_tiny ? 1 / any : any, q = x / y, product = x * y;
    switch (kind) {
      case 0:  // The rounding loss of a product.
        return {x, y, -product};
      case 1:
        return {-x, y, std::nextafter(product, 0.0f)};
      case 2:  // Remainders of a division, down to 2^-110, and terms added from them.
        return {-y, q, x};
      case 3: {
        const float near = std::nextafter(q, 0.0f);
        return {std::fma(-y, near, x), 1 / y, near};
      }
      case 4:
        return {-y, 1 / y, 1.0f};
      case 5: {
        const float root = std::sqrt(std::fabs(x));
        return {-std::nextafter(root, 0.0f), root, std::fabs(x)};
      }
      case 6: {  // A product of half an ulp of the sum less 2^-70, which is a tie in 53 bits.
        const float ulp = std::ldexp(1.0f, -23), more = 1 + ulp;
        const float sum = 1 + ulp * static_cast<float>(random_() % 4096);
        return {random_() % 2 == 0 ? more : -more, std::ldexp(1 - ulp, -24), sum};
      }
      default:
        return {x, y, Number()};
    }
  }
  // Any significand, in [2^-62, 2^62), of either sign.
  float Number() {
    const auto any = static_cast<uint32_t>(random_());
    const auto exponent = static_cast<uint32_t>(random_() % 124 + 65);
    return std::bit_cast<float>((any & 0x807fffff) | exponent << 23);
  }

  std::mt19937 random_{1};
};

// The shader in the float modes that the device offers, like entries of this project's compiler.
std::vector<uint32_t> ShaderFor(const GpuTarget& target) {
  constexpr uint32_t kHeaderWords = 5;
  constexpr uint32_t kCapability = 17, kExecutionMode = 16;
  struct Mode {
    bool is_there;
    uint32_t capability, mode;
  };
  const Mode modes[] = {{target.keeps_denormals, 4464, 4459},
                        {target.keeps_nan_and_zero, 4466, 4461},
                        {target.rounds_to_even, 4467, 4462}};
  std::vector<uint32_t> words(sizeof(kShader) / 4), out;
  std::memcpy(words.data(), kShader, sizeof(kShader));
  out.assign(words.begin(), words.begin() + kHeaderWords);
  for (size_t at = kHeaderWords; at < words.size(); at += words[at] >> 16) {
    HPVMD_CHECK(words[at] >> 16 != 0);
    const uint32_t opcode = words[at] & 0xffff;
    out.insert(out.end(), &words[at], &words[at] + (words[at] >> 16));
    for (const Mode& mode : modes) {
      if (mode.is_there && opcode == kCapability) {
        out.insert(out.end(), {2u << 16 | kCapability, mode.capability});
      } else if (mode.is_there && opcode == kExecutionMode) {
        out.insert(out.end(), {4u << 16 | kExecutionMode, words[at + 1], mode.mode, 32});
      }
    }
  }
  return out;
}

}  // namespace

bool FmaTrial::Run() {
  if (!Start().ok()) {
    return false;
  }
  // Another process may occupy the device (docs/GPU.md, Faults): opening the device does not wait for that.
  const Time end = RealClock().Now() + kWaitMax;
  while (!is_over()) {
    if (RealClock().Now() > end || !context_.lost().ok()) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return IsRight();
}

Status FmaTrial::Start() {
  GpuVariant variant;
  variant.entry = "main";
  variant.can_trap = false;
  variant.group = {kGroup, 1, 1};
  for (uint32_t i = 0; i < 2; ++i) {
    GpuArgument argument;
    argument.kind = GpuArgument::Kind::kBuffer;
    argument.index = argument.binding = i;
    argument.is_writable = i == 1;
    variant.arguments.push_back(argument);
  }
  const std::vector<uint32_t> words = ShaderFor(context_.physical().info.gpu);
  HPVMD_ASSIGN_OR_RETURN(pipelines_,
                         Pipelines::Create(context_, {reinterpret_cast<const uint8_t*>(words.data()), words.size() * 4},
                                           {&variant, 1}, {}));
  HPVMD_ASSIGN_OR_RETURN(operands_, memory_.Allocate(kTriples * sizeof(Triple), MemoryClass::kHost));
  HPVMD_ASSIGN_OR_RETURN(results_, memory_.Allocate(kTriples * sizeof(float), MemoryClass::kHost));
  const std::vector<Triple> triples = Triples().Make();
  std::memcpy(operands_.mapped(), triples.data(), kTriples * sizeof(Triple));
  std::memset(results_.mapped(), 0xff, kTriples * sizeof(float));  // NaNs, which no result is.
  HPVMD_ASSIGN_OR_RETURN(slot_, CommandSlot::Create(context_, memory_, Lane::kCompute));
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, slot_->NextCommands());
  HPVMD_RETURN_IF_ERROR(Record(commands));
  HPVMD_ASSIGN_OR_RETURN(done_.value, context_.Submit(Lane::kCompute, commands));
  return absl::OkStatus();
}

Status FmaTrial::Record(VkCommandBuffer commands) {
  const DeviceFunctions& vk = context_.vk();
  const VariantLayout& layout = pipelines_->layout(0);
  auto info = Typed<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  HPVMD_RETURN_IF_ERROR(context_.Check(vk.BeginCommandBuffer(commands, &info), "Recording commands"));
  HPVMD_ASSIGN_OR_RETURN(VkPipeline pipeline, pipelines_->Get(0, {kGroup, 1, 1}));
  vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  const std::array<VkDescriptorBufferInfo, 2> buffers{
      {{operands_.buffer(), 0, kTriples * sizeof(Triple)}, {results_.buffer(), 0, kTriples * sizeof(float)}}};
  std::array<VkWriteDescriptorSet, 2> writes;
  for (uint32_t i = 0; i < 2; ++i) {
    writes[i] = Typed<VkWriteDescriptorSet>(VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET);
    writes[i].dstBinding = i;
    writes[i].descriptorCount = 1;
    writes[i].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    writes[i].pBufferInfo = &buffers[i];
  }
  if (layout.pushes_descriptors) {
    vk.CmdPushDescriptorSetKHR(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout.pipeline.get(), 0, 2, writes.data());
  } else {
    HPVMD_ASSIGN_OR_RETURN(const VkDescriptorSet set, slot_->NextSet(layout.sets[0].get()));
    writes[0].dstSet = writes[1].dstSet = set;
    vk.UpdateDescriptorSets(context_.device(), 2, writes.data(), 0, nullptr);
    vk.CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout.pipeline.get(), 0, 1, &set, 0, nullptr);
  }
  vk.CmdDispatch(commands, kGroups, 1, 1);
  auto barrier = Typed<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
  vk.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0,
                        nullptr, 0, nullptr);
  return context_.Check(vk.EndCommandBuffer(commands), "Recording commands");
}

// The host's fma is C's, which is correct.
bool FmaTrial::IsRight() const {
  const auto* const triples = reinterpret_cast<const Triple*>(operands_.mapped());
  const auto* const results = reinterpret_cast<const uint32_t*>(results_.mapped());
  for (uint32_t i = 0; i < kTriples; ++i) {
    if (results[i] != std::bit_cast<uint32_t>(std::fma(triples[i].a, triples[i].b, triples[i].c))) {
      return false;
    }
  }
  return true;
}

}  // namespace hpvm::vulkan
