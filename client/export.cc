// SPDX-License-Identifier: Apache-2.0
// Client::ExportJob: fetches the request of a job with everything it names.
#include <memory>
#include <string>
#include <string_view>

#include "client/connection.h"

#include "base/hash.h"
#include "base/status.h"
#include "hpvm/client.h"

namespace hpvm {
namespace {

Status Take(const v1::ExportJobResponse& message, v1::ExportJobResponse::Header* header, std::string* bytes) {
  if (message.has_header()) {
    *header = message.header();
  }
  if (header->size_bytes() < bytes->size() || message.data().size() > header->size_bytes() - bytes->size()) {
    return Internal("The server sent more of an export than it announced.");
  }
  *bytes += message.data();
  return absl::OkStatus();
}

}  // namespace

Status Client::ReceiveExport(v1::ExportJobRequest request, const CallOptions& call,
                             v1::ExportJobResponse::Header* header, std::string* bytes) {
  return connection_->KeepTrying(call, [&](const CallOptions& now) {
    *request.mutable_options() = now.request;
    Status wrong;
    const Status ended = connection_->Attempt(now, [&](grpc::ClientContext& context) {
      request.set_offset(bytes->size());
      const std::unique_ptr<grpc::ClientReader<v1::ExportJobResponse>> reader =
          connection_->stub->ExportJob(&context, request);
      v1::ExportJobResponse message;
      while (wrong.ok() && reader->Read(&message)) {
        wrong = Take(message, header, bytes);
      }
      if (!wrong.ok()) {
        context.TryCancel();
      }
      return FromGrpc(reader->Finish());
    });
    HPVMD_RETURN_IF_ERROR(wrong);
    HPVMD_RETURN_IF_ERROR(ended);
    return bytes->size() == header->size_bytes() ? absl::OkStatus() : DataLoss("The server ended an export early.");
  });
}

StatusOr<Client::ExportedJob> Client::ExportJob(const std::string& id, const CallOptions& call) {
  v1::ExportJobRequest request;
  request.set_job_id(id);
  v1::ExportJobResponse::Header header;
  std::string bytes;
  HPVMD_RETURN_IF_ERROR(ReceiveExport(request, call, &header, &bytes));
  ExportedJob job;
  if (!job.request.ParseFromString(bytes)) {
    return Internal("The server sent a request that cannot be read.");
  }
  job.parts.assign(header.parts().begin(), header.parts().end());
  return job;
}

StatusOr<std::string> Client::ExportPart(const std::string& id, const v1::ExportJobResponse::Part& part,
                                         const CallOptions& call) {
  v1::ExportJobRequest request;
  request.set_job_id(id);
  request.set_sha256(part.sha256());
  v1::ExportJobResponse::Header header;
  std::string bytes;
  HPVMD_RETURN_IF_ERROR(ReceiveExport(request, call, &header, &bytes));
  if (ToHex(HashOf(std::string_view(bytes))) != part.sha256()) {
    return DataLoss("The bytes of part \"" + part.name() + "\" are not those of its SHA-256.");
  }
  return bytes;
}

}  // namespace hpvm
