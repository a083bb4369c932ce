// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/opencl/program.h"

#include <algorithm>

#include "compiler/api/sibling_library.h"
#include "compiler/front/opencl/bridge/bridge.h"

namespace hpvm::opencl {
namespace {

constexpr char kBridge[] = "libhpvm-opencl.so";
// PrepareOpenCl sets this once.
hpvm_opencl_describe_function g_describe = nullptr;

// Limit on the recorded variables; no reasonable text of the allowed size has more.
constexpr size_t kItemsMax = 100'000;

Program& Of(void* context) { return *static_cast<Program*>(context); }
SourcePosition PlaceOf(hpvm_opencl_place place) { return {.line = place.line, .column = place.column}; }

void AddFault(void* context, hpvm_opencl_place place, const char* message) {
  Of(context).faults.push_back({PlaceOf(place), message});
}

void AddKernel(void* context, const char* name, hpvm_opencl_place place, const uint32_t group[3]) {
  Of(context).kernels.push_back({name, PlaceOf(place), {group[0], group[1], group[2]}, {}});
}

// Both enumerations have the same order.
Parameter::Kind KindOf(hpvm_opencl_kind kind) {
  static_assert(static_cast<int>(Parameter::Kind::kOther) == HPVM_OPENCL_OTHER);
  return static_cast<Parameter::Kind>(std::min(kind, HPVM_OPENCL_OTHER));
}

void AddParameter(void* context, const hpvm_opencl_parameter* told) {
  Of(context).kernels.back().parameters.push_back(
      {KindOf(told->kind), told->bits, told->is_const != 0, told->text, PlaceOf(told->place)});
}

void AddVariable(void* context, const hpvm_opencl_variable* told) {
  Program& program = Of(context);
  if (program.variables.size() < kItemsMax) {
    using Space = Variable::Space;
    const Space space = told->space == HPVM_OPENCL_IN_LOCAL      ? Space::kLocal
                        : told->space == HPVM_OPENCL_IN_CONSTANT ? Space::kConstant
                                                                 : Space::kPrivate;
    program.variables.push_back({space, told->bytes, told->name, told->function, PlaceOf(told->place)});
  } else if (program.variables.size() == kItemsMax && program.faults.empty()) {
    program.faults.push_back(
        {PlaceOf(told->place), "there are more variables than the limit (" + std::to_string(kItemsMax) + ")"});
  }
}

void SetText(void* context, const char* bytes, size_t count) { Of(context).text.assign(bytes, count); }

}  // namespace

Status PrepareOpenCl() {
  if (g_describe != nullptr) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(void* const function,
                         LoadSiblingLibrary(kBridge, "hpvm_opencl_describe", LibraryScope::kShared));
  g_describe = reinterpret_cast<hpvm_opencl_describe_function>(function);
  return absl::OkStatus();
}

StatusOr<Program> ReadProgram(std::string_view text, const std::vector<std::string>& arguments) {
  if (g_describe == nullptr) {
    return FailedPrecondition(std::string("The reader of OpenCL C (") + kBridge + ") has not been loaded.");
  }
  const std::string terminated(text);
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(argument.c_str());
  }
  Program program;
  const hpvm_opencl_listener listener = {&program, AddFault, AddKernel, AddParameter, AddVariable, SetText};
  const hpvm_opencl_request request = {terminated.c_str(), terminated.size(), pointers.data(), pointers.size()};
  g_describe(&request, &listener);
  if (program.faults.empty() && program.text.empty()) {
    program.faults.push_back({{.line = 0, .column = 0}, "the compiler gave no answer"});
  }
  return program;
}

}  // namespace hpvm::opencl
