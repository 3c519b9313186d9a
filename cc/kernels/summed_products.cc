// The CPU kernel of EcoRNN>SummedProducts. There is none for GPUs, where
// TensorFlow's own products serve.
#include "../recurrence/engine.h"
#include "op.h"
#include "pool_team.h"

namespace ecornn {
namespace {

template <class S>
class SummedProductsOp : public tensorflow::OpKernel {
 public:
  explicit SummedProductsOp(tensorflow::OpKernelConstruction* context)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadAttributes(context, &sizes_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    SummedProductsSizes sizes = sizes_;
    OP_REQUIRES_OK(context, CheckSummedProducts(context, &sizes));
    SummedProductsArgs<S> args = {};
    args.batch = sizes.batch;
    args.steps = sizes.steps;
    args.width = sizes.width;
    args.first = sizes.first();
    args.count = sizes.count();
    args.parts = sizes.part_count;
    Arguments a(context);
    a.Input("right", &args.right);
    a.OptionalInput("mask", &args.mask);
    a.OptionalInput("factors", &args.factors);
    OP_REQUIRES_OK(context, a.status());
    OP_REQUIRES_OK(context, Products(context, &args));

    PoolTeam team(context);
    const Engine<S>& engine = EngineFor<S>(ActiveIsa());
    void* scratch =
        a.Scratch(engine.summed_products_scratch(args, team.size()));
    OP_REQUIRES_OK(context, a.status());
    engine.summed_products(args, scratch, team);
  }

 private:
  // The left-hand sides, and an output for each.
  static absl::Status Products(tensorflow::OpKernelContext* context,
                               SummedProductsArgs<S>* args) {
    tensorflow::OpInputList lefts;
    TF_RETURN_IF_ERROR(context->input_list("lefts", &lefts));
    args->left_count = lefts.size();
    for (int i = 0; i < lefts.size(); ++i) {
      const int64_t width = lefts[i].dim_size(2);
      tensorflow::Tensor* product;
      TF_RETURN_IF_ERROR(
          context->allocate_output(i, {width, args->count}, &product));
      args->lefts[i] = {static_cast<const S*>(lefts[i].data()), width,
                        static_cast<S*>(product->data())};
    }
    return absl::OkStatus();
  }

  SummedProductsSizes sizes_;  // those of the attributes
};

#define ECORNN_REGISTER_PRODUCTS(T)                           \
  REGISTER_KERNEL_BUILDER(Name("EcoRNN>SummedProducts")       \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),        \
                          SummedProductsOp<StorageOf<T>::Type>)
ECORNN_REGISTER_PRODUCTS(float);
ECORNN_REGISTER_PRODUCTS(double);
ECORNN_REGISTER_PRODUCTS(Eigen::half);
ECORNN_REGISTER_PRODUCTS(tensorflow::bfloat16);
#undef ECORNN_REGISTER_PRODUCTS

}  // namespace
}  // namespace ecornn
