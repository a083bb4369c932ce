// SPDX-License-Identifier: Apache-2.0
// ExportJob: returns the request of a job, for running it again elsewhere.
#include <string>
#include <utility>

#include "base/hash.h"
#include "server/core/jobs/job_reader.h"
#include "server/jobs/rows/arrays.h"
#include "server/jobs/stored_request.h"

namespace hpvm::server {
namespace {

using Part = v1::ExportJobResponse::Part;

uint64_t SizeOf(const StoredJob& row, const Sha256& hash) {
  for (const internal::StoredBlob& blob : row.blobs()) {
    if (blob.sha256() == Raw(hash)) {
      return blob.size_bytes();
    }
  }
  return 0;
}

Part MakePart(Part::Kind kind, std::string name, std::string sha256, uint64_t size_bytes) {
  Part part;
  part.set_kind(kind);
  part.set_name(std::move(name));
  part.set_sha256(std::move(sha256));
  part.set_size_bytes(size_bytes);
  return part;
}

// Removes inputs that are parts from the request, except for their names.
void AddParts(const StoredJob& row, StoredRequest& stored, v1::ExportJobResponse::Header* header) {
  v1::SubmitRequest& request = *stored.mutable_request();
  const auto add = [&](Part::Kind kind, const std::string& name, const std::string& hex) {
    const Sha256 hash = Sha256FromHex(hex).value_or(Sha256());
    *header->add_parts() = MakePart(kind, name, hex, SizeOf(row, hash));
  };
  add(Part::KIND_GRAPH, "", request.document().graph_sha256());
  for (const v1::ModuleBinding& module : request.document().modules()) {
    add(Part::KIND_MODULE, module.name(), module.sha256());
  }
  for (const internal::StoredInput& input : stored.inputs()) {
    const auto index = static_cast<int>(input.index());
    if (input.sha256().empty() || index >= request.inputs_size()) {
      continue;
    }
    v1::InputBinding& binding = *request.mutable_inputs(index);
    Part& part = *header->add_parts();
    part = MakePart(Part::KIND_INPUT, binding.name(), ToHex(Sha256FromRaw(input.sha256()).value_or(Sha256())),
                    input.size_bytes());
    part.set_type(static_cast<v1::ElementType>(input.type()));
    *part.mutable_shape() = input.shape();
    v1::InputBinding named;
    named.set_name(binding.name());
    binding = std::move(named);
  }
}

}  // namespace

StatusOr<JobReader::ExportedPart> JobReader::Export(Tenant& tenant, std::string_view id, std::string_view part) {
  const StatusOr<StoredJob> row = options_.jobs->database().Find(tenant.name, id);
  if (!row.ok()) {
    return absl::IsNotFound(row.status()) ? NotFound("There is no job \"" + std::string(id.substr(0, 80)) + "\".")
                                          : row.status();
  }
  if (row->job().dropped()) {
    return FailedPrecondition("The request of job " + row->job().id() + " was dropped to make room.");
  }
  ExportedPart exported;
  if (part.empty()) {
    HPVMD_ASSIGN_OR_RETURN(StoredRequest stored,
                           ReadWholeRequest(options_.jobs->database(), options_.jobs->blobs(), tenant.name, id));
    if (!row->job().array_id().empty()) {
      HPVMD_RETURN_IF_ERROR(TakeElement(stored, row->job().array_index()));
    }
    AddParts(*row, stored, &exported.header);
    exported.inline_bytes = stored.request().SerializeAsString();
    exported.header.set_size_bytes(exported.inline_bytes.size());
    return exported;
  }
  const std::optional<Sha256> hash = Sha256FromHex(part);
  const uint64_t size = hash.has_value() ? SizeOf(*row, *hash) : 0;
  if (size == 0) {
    return NotFound("The job has no part \"" + std::string(part.substr(0, 80)) + "\".");
  }
  HPVMD_ASSIGN_OR_RETURN(exported.file, options_.jobs->blobs().Open(tenant.name, *hash, size));
  exported.header.set_size_bytes(size);
  return exported;
}

}  // namespace hpvm::server
