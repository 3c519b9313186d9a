// What a custom call in an XLA program says about the op it stands for. Its
// target is the op's name, its operands and results are the op's inputs and
// outputs in that order, dense and row-major.
#ifndef TF_ECORNN_CC_XLA_CALL_H_
#define TF_ECORNN_CC_XLA_CALL_H_

namespace ecornn {

inline constexpr char kLstmOp[] = "EcoRNN>Lstm";
inline constexpr char kLstmGradOp[] = "EcoRNN>LstmGrad";
inline constexpr char kGruOp[] = "EcoRNN>Gru";
inline constexpr char kGruGradOp[] = "EcoRNN>GruGrad";
inline constexpr char kSummedProductsOp[] = "EcoRNN>SummedProducts";

// Attributes of the call. The names of operands and results, separated by
// blanks, tell which tensors of the op's list arguments are there: a list's
// name once for each.
inline constexpr char kInputsAttribute[] = "inputs";    // string
inline constexpr char kOutputsAttribute[] = "outputs";  // string
inline constexpr char kBatchAttribute[] = "batch";      // i64, as the next ones
inline constexpr char kStepsAttribute[] = "steps";
inline constexpr char kUnitsAttribute[] = "units";
inline constexpr char kFeaturesAttribute[] = "features";
inline constexpr char kCellAttribute[] = "cell";
inline constexpr char kActivationAttribute[] = "activation";
inline constexpr char kRecurrentActivationAttribute[] = "recurrent_activation";
inline constexpr char kReverseAttribute[] = "reverse";                  // bool
inline constexpr char kZeroOutputAttribute[] = "zero_output_for_mask";  // bool

// Those of summed products, beside those of names, batch and steps: sizes as in
// SummedProductsArgs.
inline constexpr char kWidthAttribute[] = "width";  // i64, as the next ones
inline constexpr char kFirstAttribute[] = "first";
inline constexpr char kCountAttribute[] = "count";
inline constexpr char kPartsAttribute[] = "parts";

}  // namespace ecornn

#endif  // TF_ECORNN_CC_XLA_CALL_H_
