// SPDX-License-Identifier: Apache-2.0
// Tests of large tensors through shared memory, with servers that support it and servers that do not.
#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>

#include "base/io/fd.h"
#include "base/io/memfd.h"
#include "base/status.h"
#include "hpvm/client.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm {
namespace {

using testing::HasSubstr;

constexpr uint64_t kLarge = 1 << 20;

// "run" returns the bytes of "x", each incremented by one. Calls come one at a time.
class FakeServer final : public v1::Hpvm::Service {
 public:
  explicit FakeServer(const std::string& memory_path) : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memory_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }

  grpc::Status RegisterBuffer(grpc::ServerContext*, const v1::RegisterBufferRequest* request,
                              v1::RegisterBufferResponse* out) override {
    char ticket[33];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{ticket, sizeof(ticket)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got != 32 || request->ticket() != std::string_view(ticket, 32) || CMSG_FIRSTHDR(&message) == nullptr) {
      return {grpc::StatusCode::NOT_FOUND, "No descriptor came."};
    }
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    if (!register_status.ok()) {
      close(fd);
      return register_status;
    }
    const std::string id = "reg-" + std::to_string(++registered);
    if (request->type() != v1::ELEMENT_TYPE_UNSPECIFIED) {
      out->mutable_buffer()->set_type(request->type());
      *out->mutable_buffer()->mutable_shape() = request->shape();
      out->mutable_buffer()->set_size_bytes(request->shape(0));
    }
    memories[id] = UniqueFd(fd);
    out->mutable_buffer()->set_id(id);
    return grpc::Status::OK;
  }
  grpc::Status Run(grpc::ServerContext*, const v1::RunRequest* request, v1::RunResponse* out) override {
    ++runs;
    if (const grpc::Status status = on_run ? on_run(runs, *request) : grpc::Status::OK; !status.ok()) {
      return status;
    }
    const v1::BufferView& view = request->inputs(0).buffer();
    std::vector<uint8_t> bytes(kLarge);
    if (!Memory(view.buffer_id(), true, bytes)) {
      return {grpc::StatusCode::NOT_FOUND, "There is no buffer."};
    }
    for (uint8_t& byte : bytes) {
      ++byte;
    }
    const bool is_bound = request->outputs_size() == 1;
    const std::string to = is_bound ? request->outputs(0).buffer_id() : "made";
    EXPECT_TRUE(Memory(to, false, bytes));
    v1::OutputValue& y = *out->add_outputs();
    y.set_name("y");
    y.mutable_buffer()->set_buffer_id(to);
    y.mutable_buffer()->set_type(v1::ELEMENT_TYPE_U8);
    y.mutable_buffer()->add_shape(kLarge);
    return grpc::Status::OK;
  }
  grpc::Status CreateBuffer(grpc::ServerContext*, const v1::CreateBufferRequest*,
                            v1::CreateBufferResponse* out) override {
    ++created;
    out->mutable_buffer()->set_id("written");
    return grpc::Status::OK;
  }
  grpc::Status WriteBuffer(grpc::ServerContext*, grpc::ServerReader<v1::WriteBufferRequest>* in,
                           v1::WriteBufferResponse*) override {
    contents["written"].clear();
    for (v1::WriteBufferRequest part; in->Read(&part);) {
      contents["written"] += part.data();
    }
    return grpc::Status::OK;
  }
  grpc::Status ReadBuffer(grpc::ServerContext*, const v1::ReadBufferRequest* request,
                          grpc::ServerWriter<v1::ReadBufferResponse>* out) override {
    ++read;
    v1::ReadBufferResponse part;
    part.set_data(contents[request->buffer_id()]);
    out->Write(part);
    return grpc::Status::OK;
  }
  grpc::Status DeleteBuffer(grpc::ServerContext*, const v1::DeleteBufferRequest* request,
                            v1::DeleteBufferResponse*) override {
    memories.erase(request->buffer_id());
    return grpc::Status::OK;
  }

  std::map<std::string, UniqueFd> memories;
  std::map<std::string, std::string> contents;
  grpc::Status register_status;
  std::function<grpc::Status(int, const v1::RunRequest&)> on_run;
  int registered = 0, runs = 0, created = 0, read = 0;

 private:
  bool Memory(const std::string& id, bool reads, std::vector<uint8_t>& bytes) {
    if (const auto found = memories.find(id); found != memories.end()) {
      return (reads ? ReadAt(found->second.get(), 0, bytes) : WriteAt(found->second.get(), 0, bytes)).ok();
    }
    if (!reads) {
      contents[id].assign(bytes.begin(), bytes.end());
      return true;
    }
    const auto found = contents.find(id);
    if (found == contents.end() || found->second.size() != bytes.size()) {
      return false;
    }
    bytes.assign(found->second.begin(), found->second.end());
    return true;
  }

  const UniqueFd socket_;
};

class LocalRunTest : public testing::Test {
 protected:
  // gRPC's shutdown takes up to 10 s, which each test would otherwise pay.
  static void SetUpTestSuite() { grpc_init(); }

  LocalRunTest() {
    char name[] = "/tmp/hpvm-local-XXXXXX";
    folder_ = mkdtemp(name);
    endpoint_ = "unix:" + folder_ + "/s.sock";
    fake_ = std::make_unique<FakeServer>(folder_ + "/s.sock.memory");
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(8 << 20);
    builder.RegisterService(fake_.get());
    server_ = builder.BuildAndStart();
    Connect(true);
  }
  ~LocalRunTest() override {
    client_ = nullptr;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    std::filesystem::remove_all(folder_);
  }
  void Connect(bool local_memory) {
    client_ = *Client::Connect({.endpoint = endpoint_, .local_memory = local_memory, .local_ring = false});
  }
  // Runs with an input that is `value` everywhere, and checks the output.
  Status Run(uint8_t value) {
    std::map<std::string, Tensor> inputs;
    inputs["x"] = {ElementType::kU8, {kLarge}, std::vector<uint8_t>(kLarge, value)};
    HPVMD_ASSIGN_OR_RETURN(const RunOutcome outcome, client_->Run("graph", inputs));
    EXPECT_EQ(outcome.outputs.at("y").data, std::vector<uint8_t>(kLarge, static_cast<uint8_t>(value + 1)));
    return absl::OkStatus();
  }

  std::string folder_, endpoint_;
  std::unique_ptr<FakeServer> fake_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

// The first run returns its output through gRPC, because its size is unknown; the others share memory.
TEST_F(LocalRunTest, TensorsTravelThroughMemoryThatIsUsedAgain) {
  for (uint8_t value = 0; value < 5; ++value) {
    ASSERT_EQ(Run(value), absl::OkStatus());
  }
  EXPECT_EQ(fake_->created, 0);
  EXPECT_EQ(fake_->read, 1);
  EXPECT_EQ(fake_->registered, 2);
  EXPECT_EQ(client_->TensorPath(), "shared memory");
  client_ = nullptr;
  EXPECT_TRUE(fake_->memories.empty());  // Returned to the server.
}

TEST_F(LocalRunTest, SaysWhyItDoesWithout) {
  std::filesystem::remove(folder_ + "/s.sock.memory");
  ASSERT_EQ(Run(1), absl::OkStatus());
  EXPECT_THAT(client_->TensorPath(), HasSubstr("gRPC: No server takes shared memory at"));
  EXPECT_EQ(fake_->created, 1);
  Connect(false);
  ASSERT_EQ(Run(2), absl::OkStatus());
  EXPECT_THAT(client_->TensorPath(), HasSubstr("local_memory"));
  EXPECT_EQ(fake_->registered, 0);
}

// An incompatible server is asked once; a full quota may have room again.
TEST_F(LocalRunTest, RefusalsAreRemembered) {
  fake_->register_status = {grpc::StatusCode::RESOURCE_EXHAUSTED, "The tenant has no room."};
  ASSERT_EQ(Run(1), absl::OkStatus());
  EXPECT_EQ(client_->TensorPath(), "shared memory");
  fake_->register_status = {grpc::StatusCode::UNIMPLEMENTED, "Not here."};
  ASSERT_EQ(Run(2), absl::OkStatus());
  EXPECT_THAT(client_->TensorPath(), HasSubstr("Not here."));
  fake_->register_status = grpc::Status::OK;
  ASSERT_EQ(Run(3), absl::OkStatus());
  EXPECT_EQ(fake_->registered, 0);
  EXPECT_EQ(fake_->created, 3);
}

// The daemon restarted, or dropped what was unused for long.
TEST_F(LocalRunTest, ForgottenBuffersAreNoFailure) {
  ASSERT_EQ(Run(1), absl::OkStatus());
  ASSERT_EQ(Run(2), absl::OkStatus());
  fake_->memories.clear();
  EXPECT_EQ(Run(3), absl::OkStatus());
  EXPECT_EQ(Run(4), absl::OkStatus());
  EXPECT_EQ(client_->TensorPath(), "shared memory");
}

TEST_F(LocalRunTest, OutputsMayGrow) {
  ASSERT_EQ(Run(1), absl::OkStatus());
  fake_->on_run = [](int, const v1::RunRequest& request) {
    return request.outputs().empty() ? grpc::Status::OK
                                     : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "The buffer is too small.");
  };
  EXPECT_EQ(Run(2), absl::OkStatus());
  EXPECT_EQ(fake_->runs, 3);
}

// An interrupted run may still write for a moment: its memory is not reused.
TEST_F(LocalRunTest, MemoryOfAFailedRunIsNotUsedAgain) {
  ASSERT_EQ(Run(1), absl::OkStatus());
  const int before = fake_->registered;
  fake_->on_run = [](int, const v1::RunRequest&) { return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Late."); };
  EXPECT_EQ(Run(2).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(fake_->memories.empty());
  fake_->on_run = nullptr;
  EXPECT_EQ(Run(3), absl::OkStatus());
  EXPECT_GE(fake_->registered, before + 2);
}

TEST_F(LocalRunTest, ABufferOfOnesOwnIsTheServersToo) {
  const uint64_t shape[] = {16};
  {
    StatusOr<Buffer> buffer = client_->MakeLocalBuffer(ElementType::kU8, shape);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_EQ(buffer->memory().size(), 16u);
    buffer->memory()[3] = 7;
    const uint8_t more[] = {8, 9};
    EXPECT_EQ(buffer->Write(more, 14), absl::OkStatus());
    EXPECT_EQ(buffer->Write(more, 15).code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(buffer->Write(more, UINT64_MAX).code(), absl::StatusCode::kOutOfRange);
    std::vector<uint8_t> seen(16);
    ASSERT_TRUE(ReadAt(fake_->memories.at(buffer->id()).get(), 0, seen).ok());
    EXPECT_EQ(seen[3], 7);
    EXPECT_EQ(seen[15], 9);
    EXPECT_EQ(buffer->ReadTensor()->data, seen);
  }
  EXPECT_TRUE(fake_->memories.empty());  // Deleted with its owner.
}

}  // namespace
}  // namespace hpvm
