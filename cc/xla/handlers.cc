// What a compiled XLA program calls for a recurrent op: the engine, on the
// program's own buffers and threads.
#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../kernels/arguments.h"
#include "../kernels/helped_team.h"
#include "call.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/util/work_sharder.h"
#include "xla/ffi/api/ffi.h"

namespace xla::ffi {
// Exported by TensorFlow; its header wants others that are not installed.
const XLA_FFI_Api* GetXlaFfiApi();
}  // namespace xla::ffi

namespace ecornn {
namespace {

namespace ffi = xla::ffi;

// The threads that XLA runs its own operations on: TensorFlow's intra-op pool.
class ProgramTeam final : public HelpedTeam {
 public:
  explicit ProgramTeam(ffi::ThreadPool pool)
      : HelpedTeam(std::min<int64_t>(pool.num_threads(),
                                     tensorflow::GetPerThreadMaxParallelism())),
        pool_(pool) {}

 private:
  void Schedule(std::function<void()> work) override {
    pool_.Schedule(std::move(work));
  }

  ffi::ThreadPool pool_;
};

// Working memory from TensorFlow's allocator, which keeps what it gets back.
class Scratch {
 public:
  explicit Scratch(size_t bytes)
      : bytes_(bytes),
        data_(tensorflow::cpu_allocator()->AllocateRaw(
            tensorflow::Allocator::kAllocatorAlignment, bytes)) {}
  ~Scratch() {
    if (data_ != nullptr) tensorflow::cpu_allocator()->DeallocateRaw(data_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return data_; }
  bool failed() const { return data_ == nullptr && bytes_ > 0; }
  ffi::Error Error() const {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted,
                      "no memory for the " + std::to_string(bytes_) +
                          " bytes that a recurrent op works in");
  }

 private:
  const size_t bytes_;
  void* const data_;
};

// A call's operands and results, by the names of the op's arguments.
class Buffers {
 public:
  // Names are separated by blanks.
  ffi::Error Add(std::string_view names, const ffi::RemainingArgs& operands) {
    for (size_t i = 0; i < operands.size(); ++i) {
      auto buffer = operands.get<ffi::AnyBuffer>(i);
      if (!buffer) return buffer.error();
      named_.emplace_back(NextName(&names), *buffer);
    }
    return ffi::Error::Success();
  }
  ffi::Error Add(std::string_view names, const ffi::RemainingRets& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      auto buffer = results.get<ffi::AnyBuffer>(i);
      if (!buffer) return buffer.error();
      named_.emplace_back(NextName(&names), **buffer);
    }
    return ffi::Error::Success();
  }

  // The index-th of a list, null if the call has no such argument.
  const ffi::AnyBuffer* Find(std::string_view name, int index = 0) const {
    for (const auto& [known, buffer] : named_) {
      if (known == name && index-- == 0) return &buffer;
    }
    return nullptr;
  }

  // The same. An empty one has some address: it is there all the same.
  template <class S>
  void Get(std::string_view name, S** data, int index = 0) const {
    const ffi::AnyBuffer* buffer = Find(name, index);
    if (buffer == nullptr) {
      *data = nullptr;
      return;
    }
    static char nothing[64];
    void* start = buffer->untyped_data();
    *data = static_cast<S*>(start == nullptr ? nothing : start);
  }

 private:
  static std::string_view NextName(std::string_view* names) {
    const size_t end = names->find(' ');
    const std::string_view name = names->substr(0, end);
    names->remove_prefix(end == names->npos ? names->size() : end + 1);
    return name;
  }

  std::vector<std::pair<std::string_view, ffi::AnyBuffer>> named_;
};

template <class S>
ForwardArgs<S> ForwardArguments(const Sequence& sequence, int64_t features,
                                const Buffers& buffers) {
  ForwardArgs<S> args = {};
  args.sequence = sequence;
  args.features = features;
  buffers.Get("kernel", &args.kernel);
  buffers.Get("x", args.kernel == nullptr ? &args.gates_x : &args.x);
  buffers.Get("recurrent_kernel", &args.recurrent_kernel);
  buffers.Get("bias", &args.bias);
  buffers.Get("recurrent_bias", &args.recurrent_bias);
  buffers.Get("initial_h", &args.initial_h);
  buffers.Get("initial_c", &args.initial_c);
  buffers.Get("mask", &args.mask);
  buffers.Get("reset", &args.reset);
  buffers.Get("recurrent_dropout", &args.recurrent_dropout);

  buffers.Get("last_output", &args.last_output);
  buffers.Get("final_h", &args.final_h);
  buffers.Get("final_c", &args.final_c);
  buffers.Get("outputs", &args.outputs);
  buffers.Get("gates", &args.gates);
  buffers.Get("previous_h", &args.previous_h);
  buffers.Get("previous_c", &args.previous_c);
  buffers.Get("candidate", &args.candidate);
  return args;
}

template <class S>
BackwardArgs<S> BackwardArguments(const Sequence& sequence,
                                  const Buffers& buffers) {
  BackwardArgs<S> args = {};
  args.sequence = sequence;
  buffers.Get("gates", &args.gates);
  buffers.Get("previous_h", &args.previous_h);
  buffers.Get("previous_c", &args.previous_c);
  buffers.Get("candidate", &args.candidate);
  buffers.Get("recurrent_kernel", &args.recurrent_kernel);
  buffers.Get("mask", &args.mask);
  buffers.Get("reset", &args.reset);
  buffers.Get("recurrent_dropout", &args.recurrent_dropout);
  buffers.Get("grad_last_output", &args.grad_last_output);
  buffers.Get("grad_final_h", &args.grad_final_h);
  buffers.Get("grad_final_c", &args.grad_final_c);
  buffers.Get("grad_outputs", &args.grad_outputs);

  buffers.Get("grad_gates", &args.grad_gates);
  buffers.Get("grad_candidate", &args.grad_candidate);
  buffers.Get("grad_initial_h", &args.grad_initial_h);
  buffers.Get("grad_initial_c", &args.grad_initial_c);
  buffers.Get("grad_bias", &args.grad_bias);
  buffers.Get("grad_recurrent_bias", &args.grad_recurrent_bias);
  return args;
}

template <class S, bool kForward>
ffi::Error Run(const Sequence& sequence, int64_t features,
               const Buffers& buffers, Team& team) {
  const Engine<S>& engine = EngineFor<S>(ActiveIsa());
  if constexpr (kForward) {
    const auto args = ForwardArguments<S>(sequence, features, buffers);
    const Scratch scratch(engine.forward_scratch(args, team.size()));
    if (scratch.failed()) return scratch.Error();
    engine.forward(args, scratch.data(), team);
  } else {
    const auto args = BackwardArguments<S>(sequence, buffers);
    const Scratch scratch(engine.backward_scratch(args, team.size()));
    if (scratch.failed()) return scratch.Error();
    engine.backward(args, scratch.data(), team);
  }
  CountCall();
  return ffi::Error::Success();
}

// Reads attributes of the call until one fails.
class Attributes {
 public:
  explicit Attributes(ffi::Dictionary dictionary) : dictionary_(dictionary) {}

  template <class T>
  T Get(const char* name) {
    auto value = dictionary_.get<T>(name);
    if (value) return *value;
    if (error_.success()) error_ = value.error();
    return {};
  }
  template <class E>
  E GetEnum(const char* name) {
    return static_cast<E>(Get<int64_t>(name));
  }
  const ffi::Error& error() const { return error_; }

 private:
  const ffi::Dictionary dictionary_;
  ffi::Error error_;
};

// The call's buffers, and what went wrong with its attributes up to here.
ffi::Error ReadBuffers(Attributes& attributes,
                       const ffi::RemainingArgs& operands,
                       const ffi::RemainingRets& results, Buffers* buffers) {
  const auto inputs = attributes.Get<std::string_view>(kInputsAttribute);
  const auto outputs = attributes.Get<std::string_view>(kOutputsAttribute);
  if (attributes.error().failure()) return attributes.error();
  const ffi::Error error = buffers->Add(inputs, operands);
  return error.failure() ? error : buffers->Add(outputs, results);
}

// Calls run with a value of the buffer's type.
template <class Run>
ffi::Error WithType(const ffi::AnyBuffer& buffer, const Run& run) {
  switch (buffer.element_type()) {
    case ffi::F32:
      return run(float());
    case ffi::F64:
      return run(double());
    case ffi::F16:
      return run(Half());
    case ffi::BF16:
      return run(BFloat16());
    default:
      return ffi::Error::Internal("a recurrent op has no such type");
  }
}

template <bool kForward>
ffi::Error Execute(ffi::ThreadPool pool, ffi::RemainingArgs operands,
                   ffi::RemainingRets results, ffi::Dictionary dictionary) {
  Attributes attributes(dictionary);
  Sequence sequence = {};
  sequence.cell = attributes.GetEnum<CellKind>(kCellAttribute);
  sequence.batch = attributes.Get<int64_t>(kBatchAttribute);
  sequence.steps = attributes.Get<int64_t>(kStepsAttribute);
  sequence.units = attributes.Get<int64_t>(kUnitsAttribute);
  sequence.activation = attributes.GetEnum<Activation>(kActivationAttribute);
  sequence.recurrent_activation =
      attributes.GetEnum<Activation>(kRecurrentActivationAttribute);
  sequence.reverse = attributes.Get<bool>(kReverseAttribute);
  sequence.zero_output_for_mask = attributes.Get<bool>(kZeroOutputAttribute);
  const auto features = attributes.Get<int64_t>(kFeaturesAttribute);
  Buffers buffers;
  const ffi::Error error = ReadBuffers(attributes, operands, results, &buffers);
  if (error.failure()) return error;

  ProgramTeam team(pool);
  return WithType(*buffers.Find("recurrent_kernel"), [&](auto type) {
    return Run<decltype(type), kForward>(sequence, features, buffers, team);
  });
}

template <class S>
SummedProductsArgs<S> ProductsArguments(Attributes& attributes,
                                        const Buffers& buffers) {
  SummedProductsArgs<S> args = {};
  args.batch = attributes.Get<int64_t>(kBatchAttribute);
  args.steps = attributes.Get<int64_t>(kStepsAttribute);
  args.width = attributes.Get<int64_t>(kWidthAttribute);
  args.first = attributes.Get<int64_t>(kFirstAttribute);
  args.count = attributes.Get<int64_t>(kCountAttribute);
  args.parts = attributes.Get<int64_t>(kPartsAttribute);
  while (const ffi::AnyBuffer* left = buffers.Find("lefts", args.left_count)) {
    const int i = args.left_count++;
    args.lefts[i].width = left->dimensions()[1];
    buffers.Get("lefts", &args.lefts[i].sequence, i);
    buffers.Get("products", &args.lefts[i].product, i);
  }
  buffers.Get("right", &args.right);
  buffers.Get("mask", &args.mask);
  buffers.Get("factors", &args.factors);
  return args;
}

ffi::Error ExecuteSummedProducts(ffi::ThreadPool pool,
                                 ffi::RemainingArgs operands,
                                 ffi::RemainingRets results,
                                 ffi::Dictionary dictionary) {
  Attributes attributes(dictionary);
  Buffers buffers;
  const ffi::Error error = ReadBuffers(attributes, operands, results, &buffers);
  if (error.failure()) return error;

  ProgramTeam team(pool);
  return WithType(*buffers.Find("right"), [&](auto type) {
    using S = decltype(type);
    const auto args = ProductsArguments<S>(attributes, buffers);
    if (attributes.error().failure()) return attributes.error();
    const Engine<S>& engine = EngineFor<S>(ActiveIsa());
    const Scratch scratch(engine.summed_products_scratch(args, team.size()));
    if (scratch.failed()) return scratch.Error();
    engine.summed_products(args, scratch.data(), team);
    return ffi::Error::Success();
  });
}

#define ECORNN_BINDING()      \
  ffi::Ffi::Bind()            \
      .Ctx<ffi::ThreadPool>() \
      .RemainingArgs()        \
      .RemainingRets()        \
      .Attrs()

XLA_FFI_DEFINE_HANDLER(kForwardHandler, Execute<true>, ECORNN_BINDING());
XLA_FFI_DEFINE_HANDLER(kBackwardHandler, Execute<false>, ECORNN_BINDING());
XLA_FFI_DEFINE_HANDLER(kSummedProductsHandler, ExecuteSummedProducts,
                       ECORNN_BINDING());

#undef ECORNN_BINDING

XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kLstmOp, "Host", kForwardHandler);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kLstmGradOp, "Host",
                         kBackwardHandler);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kGruOp, "Host", kForwardHandler);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kGruGradOp, "Host",
                         kBackwardHandler);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kSummedProductsOp, "Host",
                         kSummedProductsHandler);

}  // namespace
}  // namespace ecornn
