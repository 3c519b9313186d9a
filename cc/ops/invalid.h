// The one kind of error that this library raises.
#ifndef TF_ECORNN_CC_OPS_INVALID_H_
#define TF_ECORNN_CC_OPS_INVALID_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ecornn {

template <class... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace ecornn

#endif  // TF_ECORNN_CC_OPS_INVALID_H_
