"""Words of the figures of evaluations, in the languages of reports."""

#: Key -> English, Chinese, as in :mod:`labctl.report.figures.words`.
EVALUATION_WORDS: dict[str, tuple[str, str]] = {
    "no-limit": ("no limit", "无限制"),
    "budget-tokens": ("limit of generated tokens", "生成词元上限"),
    "share-right": ("right answers", "正确率"),
    "answer-tokens": ("tokens of an answer", "答案的词元数"),
    "right-of": ("{right} of {total}, {share}", "{total} 题中 {right} 题，{share}"),
    "accuracy": (
        "Accuracy over the limit of tokens ({grader})",
        "正确率随词元上限的变化（{grader}）",
    ),
    "accuracy.caption": (
        (
            "A mark is the share of right answers, its line the 95 % interval over the questions"
            " (Wilson; several samples of a question count as one). All variants were asked the"
            " same questions: their differences are surer than the intervals look."
        ),
        (
            "标记为正确答案的占比，竖线为按题目计算的 95% 区间（Wilson；"
            "同一题的多个样本算作一个）。"
            "所有变体回答相同的题目：差异比区间看起来更可靠。"
        ),
    ),
    "accuracy.shown": (
        " Shown: {shown} of {count} variants; the table has all.",
        "图中为 {count} 个变体中的 {shown} 个，其余见表。",
    ),
    "accuracy.alt": ("Right answers: {points}.", "正确答案：{points}。"),
    "accuracy.missing": (
        "one limit of tokens alone; the table has its accuracy",
        "只有一个词元上限，正确率见表",
    ),
    "lengths": ("Lengths of the answers", "答案长度"),
    "lengths.caption": (
        (
            "Thin line: shortest to longest answer; thick line: 10th to 90th percentile; mark:"
            " median. A red stroke is the limit: answers that reach it were cut."
        ),
        (
            "细线：最短到最长的答案；粗线：第 10 至第 90 百分位；标记：中位数。"
            "红色短线为上限，达到上限的答案被截断。"
        ),
    ),
    "lengths.alt": ("Tokens of an answer: {lengths}.", "答案的词元数：{lengths}。"),
    "lengths.text": (
        "10 % below {low}, median {middle}, 90 % below {high}; {cut} cut",
        "10% 低于 {low}，中位数 {middle}，90% 低于 {high}；{cut} 个被截断",
    ),
    "lengths.missing": (
        "no answer has a count of its tokens",
        "没有答案带有词元数",
    ),
    # equal latency
    "time-in": ("time of an answer ({unit})", "回答时间（{unit}）"),
    "latency-emulated": (
        "EMULATED: times do not show the speed of a board",
        "EMULATED（模拟运行）：时间不代表开发板的速度",
    ),
    "accuracy-over-budget": (
        "Accuracy over the time of the limit",
        "正确率随上限所需时间的变化",
    ),
    "accuracy-over-budget.caption": (
        (
            "Time: limit of tokens x mean time per token of the model on this board, as in the"
            " original experiment. Bands: 95 % over the questions. A grey line is a crossing, the"
            " red band its 95 % interval. Dashed: extrapolated beyond what was measured."
        ),
        (
            "时间：词元上限 × 模型在此开发板上的平均每词元时间，与原实验相同。色带：按题目的 95%"
            " 区间。灰线为交叉点，红色带为其 95% 区间。虚线：超出测量范围的外推。"
        ),
    ),
    "accuracy-over-deadline": (
        "Right and complete answers within a deadline",
        "截止时间内正确且完整的回答",
    ),
    "accuracy-over-deadline.caption": (
        (
            "An answer counts if it is right and complete by then: prefill of its own prompt and"
            " its own tokens at the board's measured times. Bands: 95 % over the questions. A grey"
            " line is a crossing, the red band its 95 % interval. Dashed: extrapolated beyond what"
            " was measured."
        ),
        (
            "回答在该时间之前正确且完整才计入：按开发板测得的时间计算其自身提示的预填充与其自身"
            "词元。色带：按题目的 95% 区间。灰线为交叉点，红色带为其 95% 区间。虚线：超出测量范围的"
            "外推。"
        ),
    ),
    "accuracy-over.alt": ("Curves: {curves}. {crossings}", "曲线：{curves}。{crossings}"),
    "accuracy-over.missing": (
        "it needs two limits or more with accuracies, and a measured time per token",
        "需要两个或更多带正确率的上限，以及测得的每词元时间",
    ),
    "crossing-at": (
        "{name} overtakes at {at} ({low} to {high})",
        "{name} 在 {at} 处反超（{low} 至 {high}）",
    ),
    "crossing-open": (
        "{name} may overtake at about {at} (not shown)",
        "{name} 可能在约 {at} 处反超（未得到证实）",
    ),
}
