// The threads an engine call may use. The engine only says what can run at the
// same time; whoever calls it brings the threads.
#ifndef TF_ECORNN_CC_RECURRENCE_TEAM_H_
#define TF_ECORNN_CC_RECURRENCE_TEAM_H_

namespace ecornn {

class Team {
 public:
  // A plain function and its context: std::function would leave inline code of
  // the standard library compiled for one instruction set in each unit.
  using Task = void (*)(void* context, int index);

  virtual ~Team();

  // How many threads may work at once, the caller among them; at least 1.
  virtual int size() const = 0;

  // Calls task(context, 0) ... task(context, count - 1), each once, in any
  // order and on any of the team's threads, and returns when all have returned.
  // The caller works too and never waits for a thread that has not started a
  // task.
  virtual void Run(int count, Task task, void* context) = 0;
};

}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_TEAM_H_
