// A team of the caller alone. Not for the instruction-set units: inline code
// outside their namespaces must not be compiled there.
#ifndef TF_ECORNN_CC_RECURRENCE_SOLO_TEAM_H_
#define TF_ECORNN_CC_RECURRENCE_SOLO_TEAM_H_

#include "team.h"

namespace ecornn {

class SoloTeam final : public Team {
 public:
  int size() const override { return 1; }
  void Run(int count, Task task, void* context) override {
    for (int i = 0; i < count; ++i) task(context, i);
  }
};

}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_SOLO_TEAM_H_
