// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "compiler/ir/interpret/instance_check.h"
#include "compiler/ir/interpret/machine.h"

namespace hpvm::ir {
namespace {

uint8_t no_bytes = 0;  // The target of accesses of 0 bytes.

}  // namespace

Instance::Instance(LaunchState& launch) : launch_(&launch) {
  if (launch.check != nullptr) {
    check_ = std::make_unique<InstanceCheck>(*launch.check, launch.decoded);
  }
}
Instance::Instance(Instance&&) noexcept = default;
Instance::~Instance() = default;

Status Instance::Allocate() {
  const Module& m = module();
  if (const InstanceStorage* storage = launch_->launch.instance; storage != nullptr) {
    memory_.Borrow(storage->memory, storage->memory_bytes, storage->memory_bytes_max);
    state_memory_.Borrow(storage->state, m.state_bytes, m.state_bytes);
    globals_ = storage->globals;
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(memory_.Map(m.data, m.memory_bytes, m.memory_bytes_max));
  return state_memory_.Map(m.state, m.state_bytes, m.state_bytes);
}

void Instance::ResetGlobals() {
  own_globals_.clear();
  for (const Global& global : module().globals) {
    own_globals_.push_back(global.init);
  }
  globals_ = own_globals_.data();
  globals_written_ = false;
}

void Instance::Start(const std::array<uint64_t, 3>& id, uint32_t local) {
  const Module& m = module();
  id_ = id;
  if (launch_->launch.instance == nullptr) {
    memory_.Restore();
    state_memory_.Restore();
    if (globals_written_) {
      ResetGlobals();
    }
  }
  group_used_ = 0;
  frames_.clear();
  state_ = InstanceState::kRunning;
  function_ = &launch_->decoded.functions[m.entry.index];
  if (!CountStep(nullptr)) {
    return;
  }
  next_ = Enter(*function_, nullptr, nullptr);
  if (next_ == nullptr) {
    return;
  }
  for (uint32_t i = 0; i < function_->param_count; ++i) {
    const KernelParam& param = m.params[i];
    const uint64_t bits = param.is_buffer ? launch_->addresses.base[i] : launch_->launch.arguments[i].scalar;
    frame_[function_->first_param + i] = Bytes(param.type) == 4 ? static_cast<uint32_t>(bits) : bits;
  }
  if (check_ != nullptr) {
    check_->Start(*this, local);
  }
}

InstanceState Instance::Run() {
  if (state_ == InstanceState::kWaiting) {
    state_ = InstanceState::kRunning;
  }
  if (state_ != InstanceState::kRunning) {
    return state_;
  }
  if (check_ != nullptr) {
    RunChecked();
    return state_;
  }
  for (const Code* code = next_; code != nullptr;) {
    code = code->run(code, frame_, *this);
  }
  return state_;
}

void Instance::RunChecked() {
  for (const Code* code = next_; code != nullptr;) {
    const InstanceCheck::Step step{code, function_, frames_.back().base, frames_.back().call};
    check_->Before(step);
    code = code->run(code, frame_, *this);
    if (state_ != InstanceState::kTrapped) {
      check_->After(step, *this);
    }
  }
}

const Code* Instance::Enter(const DecodedFunction& callee, const Code* call, const Code* return_to) {
  const size_t base = frames_.empty() ? 0 : frames_.back().base + function_->frame_slots;
  if (frames_.size() >= kCallDepthMax || base + callee.frame_slots > kStackSlotsMax) {
    return Trap(TrapCode::kStackOverflow, call);
  }
  if (call != nullptr && !CountStep(call)) {
    return nullptr;
  }
  if (stack_.size() < base + callee.frame_slots) {
    stack_.resize(std::max(base + callee.frame_slots, 2 * stack_.size()));
  }
  uint64_t* frame = stack_.data() + base;
  if (call != nullptr) {
    const uint64_t* caller = stack_.data() + frames_.back().base;
    for (uint32_t i = 0; i < call->c; ++i) {
      frame[callee.first_param + i] = caller[function_->slots[call->b + i]];
    }
  }
  frames_.push_back({&callee, return_to, call, base});
  function_ = &callee;
  frame_ = frame;
  return callee.code.data();
}

const Code* Instance::Leave(const Code* code, uint64_t* frame) {
  const Frame ended = frames_.back();
  frames_.pop_back();
  if (frames_.empty()) {
    state_ = InstanceState::kEnded;
    return nullptr;
  }
  uint64_t* caller = stack_.data() + frames_.back().base;
  for (uint32_t i = 0; i < code->c; ++i) {
    caller[ended.call->result + i] = frame[function_->slots[code->b + i]];
  }
  function_ = frames_.back().function;
  frame_ = caller;
  return ended.return_to;
}

bool Instance::CountStep(const Code* code) {
  const std::atomic<uint32_t>* stop = launch_->launch.stop;
  if (launch_->steps_left == 0 || (stop != nullptr && stop->load(std::memory_order_relaxed) != 0)) {
    Trap(TrapCode::kStopped, code);
    return false;
  }
  --launch_->steps_left;
  return true;
}

const Code* Instance::Wait(const Code* resume) {
  next_ = resume;
  state_ = InstanceState::kWaiting;
  return nullptr;
}

const Code* Instance::Trap(TrapCode code, const Code* at) { return TrapAt(code, at, 0, 0); }

const Code* Instance::TrapAt(TrapCode code, const Code* at, uint64_t address, uint64_t bytes) {
  const bool is_inlined = at != nullptr && at->origin != 0;
  const uint32_t function = is_inlined ? at->origin - 1 : function_->index;
  trap_ = {code, id_, function, at == nullptr ? 0 : at->source, address, bytes};
  state_ = InstanceState::kTrapped;
  return nullptr;
}

bool Instance::Grow(uint64_t pages, uint64_t* old_pages) {
  const bool grown = memory_.Grow(pages, old_pages);
  if (InstanceStorage* storage = launch_->launch.instance; storage != nullptr) {
    storage->memory_bytes = memory_.bytes();
  }
  return grown;
}

const Code* Instance::CallHost(uint32_t reference, const Code* code, uint64_t* frame) {
  HostCalls* host = launch_->launch.host;
  if (host == nullptr) {
    return Trap(TrapCode::kHost, code);
  }
  const uint32_t type_index = static_cast<uint32_t>(code->imm);
  const FunctionType& type = module().reference_types[type_index];
  std::vector<uint64_t> values(std::max(type.params.size(), type.results.size()));
  for (uint32_t i = 0; i < code->c; ++i) {
    values[i] = frame[function_->slots[code->b + i]];
  }
  if (!CountStep(code)) {
    return nullptr;
  }
  const TrapCode outcome = host->Call(reference, type_index, values);
  if (const InstanceStorage* storage = launch_->launch.instance; storage != nullptr) {
    memory_.SetBytes(storage->memory_bytes);  // The callee may share the memory and may have grown it.
  }
  if (outcome != TrapCode::kNone) {
    return Trap(outcome, code);
  }
  for (size_t i = 0; i < type.results.size(); ++i) {
    frame[code->result + i] = Bytes(type.results[i]) == 4 ? static_cast<uint32_t>(values[i]) : values[i];
  }
  return code + 1;
}

bool Instance::AllocateLocal(uint64_t bytes, uint64_t* address) {
  if (bytes > kGroupMemoryBytesMax - group_used_) {
    return false;
  }
  *address = launch_->addresses.group_base + group_used_;
  group_used_ = std::min((group_used_ + bytes + 15) & ~uint64_t{15}, kGroupMemoryBytesMax);
  return true;
}

uint8_t* Instance::InBuffers(uint64_t address, uint64_t bytes, bool is_write, const Code* code) {
  const auto& arguments = launch_->launch.arguments;
  const auto& params = module().params;
  if (launch_->addresses.separate) {
    return nullptr;  // Only accesses of space param reach separate buffers.
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const uint64_t offset = address - launch_->addresses.base[i];
    if (!params[i].is_buffer || address < launch_->addresses.base[i] || bytes > arguments[i].bytes ||
        offset > arguments[i].bytes - bytes) {
      continue;
    }
    if (is_write && !params[i].is_writable) {
      TrapAt(TrapCode::kReadOnlyBuffer, code, address, bytes);
      return nullptr;
    }
    // A buffer without bytes may have no data; the access has 0 bytes.
    return bytes == 0 ? &no_bytes : arguments[i].data + offset;
  }
  return nullptr;
}

uint8_t* Instance::Flat(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code) {
  uint64_t at = 0;
  if (__builtin_add_overflow(address, offset, &at)) {
    TrapAt(TrapCode::kOutOfBounds, code, ~uint64_t{0}, bytes);
    return nullptr;
  }
  if (memory_.Holds(at, bytes)) {
    return is_write ? memory_.Write(at, bytes) : memory_.Read(at);
  }
  if (uint8_t* found = InBuffers(at, bytes, is_write, code); found != nullptr || state_ == InstanceState::kTrapped) {
    return found;
  }
  return InGroup(at, 0, bytes, is_write, code);
}

uint8_t* Instance::InModule(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code) {
  uint64_t at = 0;
  if (__builtin_add_overflow(address, offset, &at) || !memory_.Holds(at, bytes)) {
    TrapAt(TrapCode::kOutOfBounds, code, at < address ? ~uint64_t{0} : at, bytes);
    return nullptr;
  }
  return is_write ? memory_.Write(at, bytes) : memory_.Read(at);
}

uint8_t* Instance::InStack(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code) {
  const StackFrame& frame = *module().stack_frame;
  uint64_t at = 0;
  if (__builtin_add_overflow(address, offset, &at) || at < frame.begin || bytes > frame.bytes() ||
      at > frame.end - bytes) {
    TrapAt(TrapCode::kOutOfBounds, code, at < address ? ~uint64_t{0} : at, bytes);
    return nullptr;
  }
  return InModule(address, offset, bytes, is_write, code);
}

// Returns true when a pass has removed the operation's check.
bool Instance::IsSaidInside(const Code* code) const {
  const auto at = static_cast<size_t>(code - function().code.data());
  return module().function(FunctionId(function().index)).op(function().ops[at]).is_inside;
}

uint8_t* Instance::InParam(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code) {
  const Argument& argument = launch_->launch.arguments[code->extra];
  const uint64_t base = launch_->addresses.base[code->extra];
  uint64_t at = 0;
  if (__builtin_add_overflow(address, offset, &at) || bytes > argument.bytes || at > argument.bytes - bytes) {
    if (IsSaidInside(code)) {
      TrapAt(TrapCode::kWrongProof, code, base + at, bytes);
      return nullptr;
    }
    const uint64_t flat = (base + address) & launch_->address_mask;
    const std::optional<StackFrame>& frame = module().stack_frame;
    if (launch_->addresses.separate ||
        (frame.has_value() && flat + offset - frame->lowest(bytes) < frame->places(bytes))) {
      TrapAt(TrapCode::kOutOfBounds, code, flat > ~offset ? ~uint64_t{0} : flat + offset, bytes);
      return nullptr;
    }
    return Flat(flat, offset, bytes, is_write, code);
  }
  if (is_write && !module().params[code->extra].is_writable) {
    TrapAt(TrapCode::kReadOnlyBuffer, code, base + at, bytes);
    return nullptr;
  }
  return argument.data + at;
}

uint8_t* Instance::InState(uint64_t address, uint64_t offset, uint64_t bytes, bool is_write, const Code* code) {
  uint64_t at = 0;
  if (__builtin_add_overflow(address, offset, &at) || !state_memory_.Holds(at, bytes)) {
    Trap(TrapCode::kOutOfBounds, code);  // Without an address, because no address reaches the state.
    return nullptr;
  }
  return is_write ? state_memory_.Write(at, bytes) : state_memory_.Read(at);
}

uint8_t* Instance::InGroup(uint64_t address, uint64_t offset, uint64_t bytes, bool, const Code* code) {
  uint64_t at = 0;
  const bool overflows = __builtin_add_overflow(address, offset, &at);
  const uint64_t base = launch_->addresses.group_base;
  if (overflows || at < base || bytes > group_used_ || at - base > group_used_ - bytes) {
    TrapAt(TrapCode::kOutOfBounds, code, overflows ? ~uint64_t{0} : at, bytes);
    return nullptr;
  }
  return launch_->group_memory.data() + (at - base);
}

}  // namespace hpvm::ir
