// Sums over rows and steps of products of two sequences: the gradients of the
// weights.
//
//   for each chunk of valid steps         has sums of its own
//     for each window of the chunk        packed: the left-hand sides
//       for each panel of columns         packed: the right-hand side
//         for each tile of left columns   adds to its sums
//   the chunks' sums are added
//
// Threads share chunks, panels and left columns. Chunks depend on the sizes
// alone, and sums take steps in their order, so results do not depend on the
// team.
#ifndef TF_ECORNN_CC_RECURRENCE_SUMMED_PRODUCTS_H_
#define TF_ECORNN_CC_RECURRENCE_SUMMED_PRODUCTS_H_

#include "engine.h"
#include "layout.h"
#include "product.h"
#include "stages.h"

namespace ecornn {
namespace ECORNN_TARGET {

template <class S>
class SummedProducts {
 public:
  using Args = SummedProductsArgs<S>;
  using Left = typename Args::Left;
  using C = ComputeType<S>;
  using P = ProductType<S>;

  SummedProducts(const Args& args, int team_size)
      : args_(args),
        left_width_(LeftWidth(args)),
        parts_(args.factors == nullptr ? 1 : args.parts),
        part_panels_(CeilDiv(args.count / parts_, kPanelWidth)),
        panels_(parts_ * part_panels_) {
    const double sums = double(left_width_) * args.count;
    const int64_t steps = args.batch * args.steps;
    if (sums * sizeof(C) <= kChunkBytes) {
      chunks_ = MaxOf<int64_t>(1, MinOf(kMostChunks, steps / kChunkSteps));
    }
    // Twice as many tasks as threads even out what else the machine does.
    const int64_t tasks =
        team_size == 1 || sums * steps < 2 * kSerialWork ? 1 : 2 * team_size;
    const int64_t wanted = CeilDiv(tasks, chunks_);
    panel_runs_ = MaxOf<int64_t>(1, MinOf(panels_, wanted));
    const int64_t tiles = CeilDiv<int64_t>(left_width_, kTileRows);
    left_runs_ = MaxOf<int64_t>(
        1, MinOf(CeilDiv(wanted, panel_runs_), tiles / kSmallestRun));
    write_runs_ = MinOf(tasks, left_width_);
  }

  size_t scratch_bytes() {
    Arena arena(nullptr);
    Place(arena);
    return arena.used();
  }

  void Run(void* scratch, Team& team) {
    Arena arena(scratch);
    Place(arena);
    FindValid();
    RunTasks<&SummedProducts::RunTask>(team, static_cast<int>(Tasks()), this);
    RunTasks<&SummedProducts::Write>(team, static_cast<int>(write_runs_), this);
  }

 private:
  static constexpr int kLanes = Simd<C>::kLanes;
  static constexpr int kGroup = Multiply<P>::kGroup;
  static constexpr int kWhole = Multiply<P>::kWhole;
  static constexpr int64_t kPanelWidth = kTileVectors * kLanes;
  // Steps of a window: enough of them for what a tile's sums cost to fetch, few
  // enough for a panel of the right-hand side to stay in the first-level cache.
  // By `engine_speed lstm float 128,64,20,32`, with two multiply-adds a cycle:
  // 138 GF/s, 134 at 64, 125 at 128, 119 at 192.
  static constexpr int64_t kWindow = 96;
  static_assert(kWindow % kWhole == 0);
  // What products may read behind the last left column.
  static constexpr int64_t kReadBeyond = kWhole == kGroup ? 0 : 15 * kWhole;
  // Tiles of left columns that are worth packing a panel for.
  static constexpr int64_t kSmallestRun = 3;

  // Sums that stay in the second-level cache, beside the windows: steps are
  // then cut into chunks, so that a thread reads its own steps alone. Else all
  // threads read all steps, each for its part of the sums.
  static constexpr double kChunkBytes = 512 * 1024;
  static constexpr int64_t kChunkSteps = 1024;
  static constexpr int64_t kMostChunks = 16;

  // A part of the work: steps of a chunk, left columns and panels; and memory.
  struct Part {
    int64_t first_step, last_step;  // among the valid ones
    int64_t first_left, last_left;
    int64_t first_panel, last_panel;
    P* left;   // (window / whole groups, columns, whole groups)
    P* right;  // (window / group, panel, group)
    P* row;    // (group, columns) of the first left-hand side, with factors
    C* sums;   // of the chunk

    int64_t columns() const { return last_left - first_left; }
  };
  // Steps [begin, end) of those that are valid.
  struct Window {
    int64_t begin, end;
  };

  static int64_t LeftWidth(const Args& args) {
    int64_t width = 0;
    for (int i = 0; i < args.left_count; ++i) width += args.lefts[i].width;
    return width;
  }

  void Place(Arena& arena) {
    const int64_t tasks = Tasks();
    const int64_t columns = CeilDiv(left_width_, left_runs_);
    valid_ = arena.template Take<int64_t>(
        args_.mask == nullptr ? 0 : args_.batch * args_.steps);
    left_size_ = columns * kWindow + kReadBeyond;
    left_ = arena.template Take<P>(tasks * left_size_);
    right_ = arena.template Take<P>(tasks * kPanelWidth * kWindow);
    row_size_ = args_.factors == nullptr ? 0 : columns * kGroup;
    row_ = arena.template Take<P>(tasks * row_size_);
    sums_ = arena.template Take<C>(chunks_ * left_width_ * SumsWidth());
  }

  int64_t Tasks() const { return chunks_ * panel_runs_ * left_runs_; }

  // From one left column's sums to the next one's.
  int64_t SumsWidth() const { return panels_ * kPanelWidth; }
  // Panel p's sums of a left column.
  C* Sums(C* of_chunk, int64_t left, int64_t p) const {
    return of_chunk + left * SumsWidth() + p * kPanelWidth;
  }

  void FindValid() {
    const int64_t steps = args_.batch * args_.steps;
    valid_count_ = steps;
    if (args_.mask == nullptr) return;
    valid_count_ = 0;
    for (int64_t i = 0; i < steps; ++i) {
      valid_[valid_count_] = i;
      valid_count_ += args_.mask[i];
    }
  }

  // The place in the sequences, row by row, of a valid step.
  int64_t Step(int64_t i) const {
    return args_.mask == nullptr ? i : valid_[i];
  }

  void RunTask(int task) {
    const int64_t m = task % left_runs_;
    const int64_t p = task / left_runs_ % panel_runs_;
    const int64_t c = task / left_runs_ / panel_runs_;
    const Part part = {
        valid_count_ * c / chunks_,   valid_count_ * (c + 1) / chunks_,
        left_width_ * m / left_runs_, left_width_ * (m + 1) / left_runs_,
        panels_ * p / panel_runs_,    panels_ * (p + 1) / panel_runs_,
        left_ + task * left_size_,    right_ + task * kPanelWidth * kWindow,
        row_ + task * row_size_,      sums_ + c * left_width_ * SumsWidth()};
    for (int64_t i = part.first_left; i < part.last_left; ++i) {
      ZeroRow(Sums(part.sums, i, part.first_panel),
              (part.last_panel - part.first_panel) * kPanelWidth);
    }
    for (int64_t i = part.first_step; i < part.last_step; i += kWindow) {
      AddWindow(part, WindowFrom(part, i));
    }
  }

  static Window WindowFrom(const Part& part, int64_t begin) {
    return {begin, MinOf(begin + kWindow, part.last_step)};
  }

  void AddWindow(const Part& part, Window window) const {
    const int64_t depth = WholeGroups<P>(window.end - window.begin);
    const bool is_last = window.end == part.last_step;
    int64_t rows[kWindow];
    int64_t next_rows[kWindow];
    FillRows(window, rows);
    FillRows(is_last ? window : WindowFrom(part, window.end), next_rows);
    int64_t packed = -1;
    for (int64_t p = part.first_panel; p < part.last_panel; ++p) {
      if (p / part_panels_ != packed) {
        packed = p / part_panels_;
        PackLeft(part, window, packed);
      }
      PackRight(part, window, p);
      const bool to_next = p + 1 == part.last_panel;
      const int vectors =
          static_cast<int>(CeilDiv<int64_t>(PanelColumns(p), kLanes));
      ForEachTile(part.columns(), [&](Turn tile, int64_t first, int n) {
        const AheadOfRows ahead = to_next
                                      ? Next(part.first_panel, args_.left_count,
                                             tile.index, next_rows)
                                      : Next(p + 1, 0, tile.index, rows);
        Products<S>::OfColumns(n, vectors, part.left + first * kWhole,
                               part.columns(), depth, part.right,
                               Sums(part.sums, part.first_left + first, p),
                               SumsWidth(), ahead);
      });
    }
  }

  void FillRows(Window window, int64_t* rows) const {
    for (int64_t i = 0; i < kWindow; ++i) {
      rows[i] = Step(MinOf(window.begin + i, window.end - 1));
    }
  }

  // What is packed next, panel p and so many left-hand sides: one line of its
  // rows with each tile, as long as there are any. The processor foresees
  // nothing of rows so far apart.
  AheadOfRows Next(int64_t p, int left_count, int64_t line,
                   const int64_t* rows) const {
    AheadOfRows ahead = Line(args_.right + args_.first + PanelBegin(p),
                             args_.width, PanelColumns(p), &line, rows);
    for (int l = 0; l < left_count && line >= 0; ++l) {
      const Left& left = args_.lefts[l];
      ahead = Line(left.sequence, left.width, left.width, &line, rows);
    }
    return ahead;
  }

  // A line of a sequence's columns, which makes `line` negative; or, where
  // there are not so many, nothing new, and `line` counts on from the last.
  static AheadOfRows Line(const S* from, int64_t stride, int64_t columns,
                          int64_t* line, const int64_t* rows) {
    const int64_t lines = CeilDiv<int64_t>(columns * sizeof(S), 64);
    const int64_t here = MaxOf<int64_t>(0, MinOf(*line, lines - 1));
    *line = *line < lines ? -1 : *line - lines;
    return {reinterpret_cast<const char*>(from) + here * 64,
            static_cast<int64_t>(stride * sizeof(S)), rows};
  }

  // A panel's columns, of the `count` that the products have.
  int64_t PanelBegin(int64_t p) const {
    return p / part_panels_ * (args_.count / parts_) +
           p % part_panels_ * kPanelWidth;
  }
  int64_t PanelColumns(int64_t p) const {
    return MinOf(kPanelWidth,
                 args_.count / parts_ - p % part_panels_ * kPanelWidth);
  }

  void PackRight(const Part& part, Window window, int64_t p) const {
    const S* from = args_.right + args_.first + PanelBegin(p);
    const int64_t columns = PanelColumns(p);
    const int64_t end =
        window.begin + WholeGroups<P>(window.end - window.begin);
    P* to = part.right;
    for (int64_t i = window.begin; i < end; i += kGroup) {
      const S* rows[kGroup];
      SetRows(from, args_.width, i, window.end, rows);
      to = PackGroups(rows, columns, to);
    }
  }

  // The left-hand sides, side by side. Part `g` of the columns says by what the
  // first one is multiplied.
  void PackLeft(const Part& part, Window window, int64_t g) const {
    const int64_t depth = WholeGroups<P>(window.end - window.begin);
    for (int64_t k = 0; k < depth; k += kGroup) {
      const int64_t i = window.begin + k;
      P* to = part.left + k / kWhole * kWhole * part.columns() + k % kWhole;
      ForEachLeft(
          part.first_left, part.last_left,
          [&](int l, int64_t first, int64_t last) {
            const Left& left = args_.lefts[l];
            const int64_t count = last - first;
            const S* rows[kGroup];
            SetRows(left.sequence + first, left.width, i, window.end, rows);
            if (l > 0 || args_.factors == nullptr) {
              PackExactly(rows, count, to);
            } else {
              const P* scaled[kGroup] = {};
              for (int j = 0; j < kGroup && rows[j] != nullptr; ++j) {
                const int64_t row = Step(i + j) / args_.steps;
                P* product = part.row + j * count;
                Scale(rows[j],
                      args_.factors + (row * parts_ + g) * left.width + first,
                      count, product);
                scaled[j] = product;
              }
              PackExactly(scaled, count, to);
            }
            to += count * kWhole;
          });
    }
  }

  // Calls use(l, first, last) for the columns [first, last) of left-hand side l
  // that are among [begin, end) of all, side by side.
  template <class Use>
  void ForEachLeft(int64_t begin, int64_t end, const Use& use) const {
    for (int l = 0; l < args_.left_count; ++l) {
      const int64_t width = args_.lefts[l].width;
      const int64_t first = MaxOf<int64_t>(begin, 0);
      const int64_t last = MinOf(end, width);
      if (first < last) use(l, first, last);
      begin -= width;
      end -= width;
    }
  }

  // A group of valid steps from i on, in a sequence with such a stride; null
  // from `end` on.
  void SetRows(const S* from, int64_t stride, int64_t i, int64_t end,
               const S** rows) const {
    for (int j = 0; j < kGroup; ++j) {
      rows[j] = i + j < end ? from + Step(i + j) * stride : nullptr;
    }
  }

  static void Scale(const S* from, const S* factors, int64_t count, P* to) {
    for (int64_t i = 0; i < count; ++i) {
      Narrow(Widen(from[i]) * Widen(factors[i]), to + i);
    }
  }

  // Columns of a group of rows to whole vectors of groups. A row that is null
  // is zero. Returns where they end.
  template <class From>
  static P* PackGroups(const From* const* rows, int64_t columns, P* to) {
    for (int64_t k = 0; k < columns; k += kLanes, to += kLanes * kGroup) {
      PackVector(rows, k, MinOf<int64_t>(kLanes, columns - k), to);
    }
    return to;
  }

  // `count` groups, from column k on.
  template <class From>
  ECORNN_INLINE static void PackVector(const From* const* rows, int64_t k,
                                       int64_t count, P* to) {
    const From* at[kGroup];
    for (int j = 0; j < kGroup; ++j) {
      at[j] = rows[j] == nullptr ? nullptr : rows[j] + k;
    }
    Multiply<P>::Pack(at, static_cast<int>(count), to);
  }

  // The same of left columns, a group of each in its place among whole groups.
  // Nothing is written past the last one.
  template <class From>
  static void PackExactly(const From* const* rows, int64_t columns, P* to) {
    const int64_t whole = columns / kLanes * kLanes;
    if constexpr (kWhole == kGroup) {
      to = PackGroups(rows, whole, to);
    } else {
      for (int64_t k = 0; k < whole; k += kLanes, to += kLanes * kWhole) {
        PackApart(rows, k, to);
      }
    }
    for (int64_t k = whole; k < columns; ++k, to += kWhole) {
      for (int j = 0; j < kGroup; ++j) {
        if (rows[j] == nullptr) {
          ZeroRow(to + j, 1);
        } else {
          CopyRow(to + j, rows[j] + k, 1);
        }
      }
    }
  }

  // A vector of groups, from column k on, to places apart.
  template <class From>
  static void PackApart(const From* const* rows, int64_t k, P* to) {
    P groups[kLanes * kGroup];
    PackVector(rows, k, kLanes, groups);
    for (int i = 0; i < kLanes; ++i) {
      __builtin_memcpy((void*)(to + i * kWhole), groups + i * kGroup,
                       kGroup * sizeof(P));
    }
  }

  // Adds the chunks' sums of a run of left columns, in their order.
  void Write(int run) {
    const int64_t begin = left_width_ * run / write_runs_;
    const int64_t end = left_width_ * (run + 1) / write_runs_;
    C* sums = sums_ + begin * SumsWidth();
    ForEachLeft(begin, end, [&](int l, int64_t first, int64_t last) {
      for (int64_t m = first; m < last; ++m, sums += SumsWidth()) {
        for (int64_t c = 1; c < chunks_; ++c) {
          const C* more = sums + c * left_width_ * SumsWidth();
          for (int64_t i = 0; i < SumsWidth(); ++i) sums[i] += more[i];
        }
        S* to = args_.lefts[l].product + m * args_.count;
        for (int64_t p = 0; p < panels_; ++p) {
          CopyRow(to + PanelBegin(p), sums + p * kPanelWidth, PanelColumns(p));
        }
      }
    });
  }

  const Args& args_;
  const int64_t left_width_;   // of all left-hand sides
  const int64_t parts_;        // of the columns, each with factors of its own
  const int64_t part_panels_;  // panels of a part
  const int64_t panels_;
  int64_t chunks_ = 1;  // a task takes a chunk of steps
  int64_t panel_runs_;  // a run of panels
  int64_t left_runs_;   // and a run of left columns
  int64_t write_runs_;
  int64_t valid_count_;

  // In the scratch memory, but for the first and the last a piece for each
  // task:
  int64_t* valid_;  // places of the valid steps, under a mask
  P* left_;
  P* right_;
  P* row_;
  C* sums_;  // (chunks, left columns, panels)
  int64_t left_size_;
  int64_t row_size_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_SUMMED_PRODUCTS_H_
