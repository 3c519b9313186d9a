// Attributes that the recurrent ops share.
#ifndef TF_ECORNN_CC_OPS_ATTRIBUTES_H_
#define TF_ECORNN_CC_OPS_ATTRIBUTES_H_

#include <string>

#include "../recurrence/activation.h"

namespace ecornn {

// "<name>: {'tanh', 'sigmoid', ...} = '<initial>'"
inline std::string ActivationAttribute(const std::string& name,
                                       const std::string& initial) {
  std::string text = name + ": {";
  for (int i = 0; i < kActivationCount; ++i) {
    text += (i == 0 ? "'" : ", '") + std::string(kActivationNames[i]) + "'";
  }
  return text + "} = '" + initial + "'";
}

}  // namespace ecornn

#endif  // TF_ECORNN_CC_OPS_ATTRIBUTES_H_
