// SPDX-License-Identifier: Apache-2.0
// The kinds of modules that graphs name, one row each, and the forms of programs that drivers take. Every program reads
// these rows. base/device_family.h says which devices take which form, compiler/driver/compile.cc which reader handles
// it.
#ifndef HPVMD_BASE_MODULE_KIND_H_
#define HPVMD_BASE_MODULE_KIND_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hpvm {

// Values are stored in caches and sent to compilers; hpvm.v1.ModuleKind has the same values.
enum class ModuleKind : uint8_t { kWasm = 1, kSpirv = 2, kOpenCl = 3, kBitstream = 4 };

// A form of program that a device's driver takes.
enum class GpuFormat : uint8_t {
  kNone = 0,
  kOpenClC = 1,      // Text for clCreateProgramWithSource.
  kSpirvKernel = 2,  // For clCreateProgramWithIL.
  kPtx = 3,
  kSpirBitcode = 4,
  kSpirvShader = 5,
  kBitstream = 6,  // A program binary for an FPGA-class device.
};

// Form of a module written for particular devices, which only their drivers understand.
struct NativeForm {
  GpuFormat format;
  std::string_view flavour{};   // Precedes the kind's plural, as in "shader SPIR-V modules"; ends in a space.
  std::string_view programs{};  // Name of such programs for people, when the kind has several forms: "compute shaders".
  bool is_for_fpgas = false;    // Only FPGA-class devices, of those that take the format, take this form.
};

inline constexpr std::array<NativeForm, 2> kSpirvForms = {{
    {GpuFormat::kSpirvShader, "shader ", "compute shaders"},
    {GpuFormat::kSpirvKernel, "kernel-flavoured ", "kernels"},
}};
inline constexpr std::array<NativeForm, 1> kOpenClForms = {{{GpuFormat::kOpenClC}}};
inline constexpr std::array<NativeForm, 1> kBitstreamForms = {
    {{.format = GpuFormat::kBitstream, .is_for_fpgas = true}}};
inline constexpr std::string_view kSpirvMagic[] = {{"\x03\x02\x23\x07", 4}, {"\x07\x23\x02\x03", 4}};
inline constexpr std::string_view kWasmMagic[] = {{"\0asm", 4}}, kTextMagic[] = {""};

// Returns the index in kSpirvForms.
size_t SpirvFormOf(std::span<const uint8_t> bytes);

struct ModuleKindRow {
  ModuleKind kind;
  std::string_view name;                                        // The name in documents.
  std::string_view plural;                                      // For people.
  std::string_view runs;                                        // Completes a sentence such as "SPIR-V runs ...".
  std::span<const NativeForm> forms;                            // Empty for modules that are compiled for every device.
  size_t (*form_of)(std::span<const uint8_t> bytes) = nullptr;  // Returns which of several forms a module has.
  std::span<const std::string_view> magic{};  // Files begin with one of these; text with anything else.
  std::string_view takes{};                   // Keys that a document may give to its modules: "options", "constants".
};

inline constexpr std::array<ModuleKindRow, 4> kModuleKinds = {{
    {ModuleKind::kWasm, "wasm", "WebAssembly modules", "WebAssembly runs", {}, nullptr, kWasmMagic},
    {ModuleKind::kSpirv, "spirv", "SPIR-V modules", "SPIR-V runs", kSpirvForms, SpirvFormOf, kSpirvMagic, "constants"},
    {ModuleKind::kOpenCl, "opencl", "OpenCL C modules", "OpenCL C runs", kOpenClForms, nullptr, kTextMagic, "options"},
    {ModuleKind::kBitstream, "bitstream", "bitstreams", "A bitstream runs", kBitstreamForms},
}};

// Returns the row whose member `of` equals `value`, or null.
template <typename Rows, typename Value, typename Row>
constexpr const Row* FindRow(const Rows& rows, const Value& value, Value Row::*of) {
  const auto found = std::ranges::find(rows, value, of);
  return found == rows.end() ? nullptr : &*found;
}

// Returns null for a value that is no ModuleKind.
constexpr const ModuleKindRow* Find(ModuleKind kind) { return FindRow(kModuleKinds, kind, &ModuleKindRow::kind); }

// Returns the form of a module of the kind, or null when the kind is independent of devices. A malformed module gets
// some form, and the compiler reports its faults.
const NativeForm* FormOf(const ModuleKindRow& kind, std::span<const uint8_t> bytes);
// Guesses the kind of a file from its first bytes.
ModuleKind GuessKind(std::string_view file);
// Returns the quoted names of the kinds that take `takes` (such as "options").
std::string NamesOfKinds(std::string_view takes);

}  // namespace hpvm

#endif  // HPVMD_BASE_MODULE_KIND_H_
