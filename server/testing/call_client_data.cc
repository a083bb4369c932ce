// SPDX-License-Identifier: Apache-2.0
// Modules, documents and buffers.
#include "base/io/memfd.h"
#include "base/limits.h"
#include "server/testing/call_client.h"

namespace hpvm::server::testing {
namespace {

constexpr uint64_t kSmallDownload = 64 * limits::kKiB;

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Status BeyondTheEnd() { return MakeStatus(absl::StatusCode::kOutOfRange, "The bytes go beyond the buffer's end."); }

}  // namespace

std::string CallClient::DocumentText(uint8_t number) const {
  std::string text = "{\"hpvm\": 1, \"number\": " + std::to_string(number % 6) + "}";
  text.resize(text.size() + size_t{number % 6u} * 700, ' ');
  return text;
}

std::string CallClient::ModuleText(uint8_t number) const {
  return "module " + std::to_string(number % 4) + std::string(500 + size_t{number % 4u} * 1'500, ' ');
}

// Like the reactors of PutGraph and PutModule.
Status CallClient::BeginUpload(const Numbers& numbers, Upload* upload) {
  const bool is_module = numbers[0] % 4 == 0;
  upload->kind = is_module ? Graphs::BlobKind::kModule : Graphs::BlobKind::kGraph;
  upload->text = is_module ? ModuleText(numbers[1]) : DocumentText(numbers[1]);
  const std::shared_ptr<const Config> config = core_->config();
  const bool has_wrong_hash = numbers[2] == 0, has_wrong_size = numbers[2] == 1;
  HPVMD_ASSIGN_OR_RETURN(
      upload->upload,
      BlobUpload::Start(is_module ? "module" : "graph document",
                        has_wrong_hash ? std::string(64, '0') : ToHex(HashOf(upload->text)),
                        upload->text.size() + (has_wrong_size ? 1 : 0),
                        is_module ? config->limits_module_bytes_max : config->limits_document_bytes_max, 0, ""));
  if (core_->graphs().HasBlob(*upload->tenant, upload->kind, upload->upload->hash())) {
    upload->upload = nullptr;
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(scheduler::Lease host_bytes,
                         core_->graphs().HoldHostBytes(*upload->tenant, upload->upload->size_bytes()));
  upload->upload->PayWith(std::move(host_bytes));
  return absl::OkStatus();
}

Status CallClient::FinishUpload(Upload& upload, std::string* answer) {
  *answer = ToHex(HashOf(upload.text));
  if (upload.upload != nullptr) {
    HPVMD_ASSIGN_OR_RETURN(BlobRef blob, upload.upload->Finish());
    HPVMD_RETURN_IF_ERROR(core_->graphs().InsertBlob(*upload.tenant, upload.kind, std::move(blob)).status());
  }
  (upload.kind == Graphs::BlobKind::kModule ? modules_ : documents_).push_back(*answer);
  return absl::OkStatus();
}

void CallClient::EndUpload(Upload& upload) {
  upload.upload = nullptr;
  core_->graphs().EndUpload(*upload.tenant);
}

void CallClient::UploadWhole(const Numbers& numbers) {
  Upload upload;
  CallNow(ActionKind::kUpload, "", [&](Tenant& tenant, std::string* answer) -> Outcome {
    upload.tenant = tenant.shared_from_this();
    HPVMD_RETURN_IF_ERROR(core_->graphs().BeginUpload(tenant));
    Status status = BeginUpload(numbers, &upload);
    if (status.ok() && upload.upload != nullptr) {
      status = upload.upload->Add(upload.text);
    }
    status = status.ok() ? FinishUpload(upload, answer) : status;
    EndUpload(upload);
    return status;
  });
}

void CallClient::UploadStart(const Numbers& numbers) {
  CallNow(ActionKind::kUploadStart, "", [&](Tenant& tenant, std::string*) -> Outcome {
    HPVMD_RETURN_IF_ERROR(core_->graphs().BeginUpload(tenant));
    Upload upload;
    upload.tenant = tenant.shared_from_this();
    if (Status status = BeginUpload(numbers, &upload); !status.ok()) {
      EndUpload(upload);
      return status;
    }
    uploads_.push_back(std::move(upload));
    return {};
  });
}

// Uploads a part, or more than is left.
void CallClient::UploadPart(const Numbers& numbers) {
  if (uploads_.empty()) {
    Nothing(ActionKind::kUploadPart);
    return;
  }
  const size_t index = numbers[0] % uploads_.size();
  Upload& upload = uploads_[index];
  const std::string part = numbers[1] == 255
                               ? std::string(upload.text.size() + 1, ' ')
                               : upload.text.substr(std::min(upload.at, upload.text.size()), numbers[1] * 16u);
  Status status = core_->quotas().meter().More(*upload.tenant, part.size()).status;
  if (status.ok() && upload.upload != nullptr) {
    status = upload.upload->Add(part);
  }
  upload.at += part.size();
  promises_.AnswerNow(ActionKind::kUploadPart, tenant_, "", status, "");
  if (!status.ok()) {
    EndUpload(upload);
    uploads_.erase(uploads_.begin() + static_cast<ptrdiff_t>(index));
  }
}

void CallClient::UploadFinish(ActionKind kind, const Numbers& numbers) {
  if (uploads_.empty()) {
    Nothing(kind);
    return;
  }
  const size_t index = numbers[0] % uploads_.size();
  Upload upload = std::move(uploads_[index]);
  uploads_.erase(uploads_.begin() + static_cast<ptrdiff_t>(index));
  std::string answer;
  Status status;
  if (kind == ActionKind::kUploadFinish) {
    if (upload.upload != nullptr && upload.at < upload.text.size() && numbers[1] % 8 != 0) {
      status = upload.upload->Add(upload.text.substr(upload.at));
    }
    status = status.ok() ? FinishUpload(upload, &answer) : status;
  }
  EndUpload(upload);
  promises_.AnswerNow(kind, tenant_, "", status, answer);
}

void CallClient::CreateBuffer(const Numbers& numbers) {
  constexpr std::array<uint64_t, 8> kSizes = {8, 8, 4096, 5000, 16'384, 70'000, 0, UINT64_MAX};
  v1::CreateBufferRequest request;
  if (numbers[0] % 2 == 0) {
    request.set_type(static_cast<v1::ElementType>(numbers[1] % 16 < 12 ? v1::ELEMENT_TYPE_F32 : numbers[2] % 16));
    request.add_shape(kSizes[numbers[2] % kSizes.size()] / 4);
  }
  if (numbers[0] % 8 != 0) {
    request.set_size_bytes(kSizes[numbers[2] % kSizes.size()]);
  }
  if (numbers[1] % 16 == 0) {
    (*request.mutable_options()->mutable_labels())["color"] = std::string(numbers[2], 'x');
  }
  CallNow(ActionKind::kCreateBuffer, request.SerializeAsString(), [&](Tenant& tenant, std::string* answer) -> Outcome {
    HPVMD_ASSIGN_OR_RETURN(const v1::Buffer buffer, core_->buffers().CreateBuffer(tenant, request));
    buffers_.push_back(buffer.id());
    *answer = buffer.SerializeAsString();
    return {};
  });
}

void CallClient::WriteBuffer(const Numbers& numbers) {
  const std::string id = Pick(buffers_, "buf-", numbers[0]);
  CallNow(ActionKind::kWriteBuffer, id, [&](Tenant& tenant, std::string* answer) -> Outcome {
    HPVMD_ASSIGN_OR_RETURN(const Buffers::BufferAccess access, core_->buffers().OpenBuffer(tenant, id));
    *answer = access.buffer.SerializeAsString();
    const std::string data(numbers[1], static_cast<char>(LetterOf(tenant_)));
    if (data.size() > access.buffer.size_bytes()) {
      return BeyondTheEnd();
    }
    HPVMD_RETURN_IF_ERROR(WriteAt(access.segment->fd.get(), 0, BytesOf(data)));
    writes_.push_back({id, access.segment});
    return {};
  });
}

void CallClient::FinishWrite(const Numbers& numbers) {
  if (writes_.empty()) {
    Nothing(ActionKind::kFinishWrite);
    return;
  }
  const size_t index = numbers[0] % writes_.size();
  const Write write = writes_[index];
  writes_.erase(writes_.begin() + static_cast<ptrdiff_t>(index));
  CallNow(ActionKind::kFinishWrite, write.id, [&](Tenant& tenant, std::string* answer) -> Outcome {
    HPVMD_ASSIGN_OR_RETURN(const v1::Buffer buffer, core_->buffers().FinishWrite(tenant, write.id, write.segment));
    *answer = buffer.SerializeAsString();
    return {};
  });
}

void CallClient::ReadBuffer(const Numbers& numbers) {
  const std::string id = Pick(buffers_, "buf-", numbers[0]);
  CallNow(ActionKind::kReadBuffer, id, [&](Tenant& tenant, std::string* answer) -> Outcome {
    HPVMD_ASSIGN_OR_RETURN(const Buffers::BufferAccess access, core_->buffers().OpenBuffer(tenant, id));
    *answer = access.buffer.SerializeAsString();
    const uint64_t size = access.buffer.size_bytes();
    if (numbers[1] == 0) {
      return BeyondTheEnd();
    }
    // The stream of a large buffer stays open until the client has read it.
    if (size > kSmallDownload || numbers[1] % 4 == 0) {
      HPVMD_RETURN_IF_ERROR(core_->graphs().BeginDownload(tenant));
      downloads_.push_back(tenant.shared_from_this());
    }
    std::string bytes(size, '\0');
    HPVMD_RETURN_IF_ERROR(
        ReadAt(access.segment->fd.get(), 0, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}));
    promises_.ExpectOwnBytes(tenant_, bytes, "Buffer " + id);
    return {};
  });
}

void CallClient::EndDownload() {
  promises_.Count(ActionKind::kEndDownload, !downloads_.empty());
  if (!downloads_.empty()) {
    core_->graphs().EndDownload(*downloads_.back());
    downloads_.pop_back();
  }
}

void CallClient::DeleteBuffer(const Numbers& numbers) {
  const std::string id = Pick(buffers_, "buf-", numbers[0]);
  CallNow(ActionKind::kDeleteBuffer, id,
          [&](Tenant& tenant, std::string*) { return core_->buffers().DeleteBuffer(tenant, id); });
}

void CallClient::ListBuffers(const Numbers& numbers) {
  v1::ListBuffersRequest request;
  request.set_page_size(numbers[0] % 4 == 0 ? numbers[1] * 8u : numbers[0] % 4);
  if (numbers[2] % 2 == 0) {
    request.set_page_token(Pick(buffers_, "buf-", numbers[2]));
  }
  CallNow(ActionKind::kListBuffers, request.SerializeAsString(), [&](Tenant& tenant, std::string* answer) {
    v1::ListBuffersResponse response;
    const Status status = core_->buffers().ListBuffers(tenant, request, &response);
    *answer = response.SerializeAsString();
    for (const v1::Buffer& buffer : response.buffers()) {
      buffers_.push_back(buffer.id());
    }
    return status;
  });
}

}  // namespace hpvm::server::testing
