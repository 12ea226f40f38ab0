"""Chinese texts of what a latency match says of itself: its headings and notes."""

CHINESE_LATENCY = {
    "QUOTED from publications; labctl measured nothing here": (
        "QUOTED（引自发表的资料）：没有一项由 labctl 测得"
    ),
    "EMULATED timing, not the speed of a board: {model} ({runs})": (
        "EMULATED（模拟计时），不代表开发板的速度：{model}（{runs}）"
    ),
    "timing on {machine}, not the speed of a board: {model} ({runs})": (
        "在 {machine} 上计时，不代表开发板的速度：{model}（{runs}）"
    ),
    "DIFFERENT BOARDS: {found}": "DIFFERENT BOARDS（开发板不同）：{found}",
    "ASSUMED SAME MODEL: {found}": "ASSUMED SAME MODEL（假定为同一模型）：{found}",
    "CHECKS FAILED in {count} of {trials} trials of {model} ({runs}): {names}": (
        "CHECKS FAILED（检查未通过）：{model} 的 {trials} 次试验中有 {count} 次（{runs}）：{names}"
    ),
    "timed under different conditions: {found}": "计时条件不同：{found}",
    "model as declared, not proven: {names}": "模型以声明为准，未经证实：{names}",
    "not compared: {found}": "未比较：{found}",
    "evaluation {name} has not ended": "评测 {name} 尚未结束",
    "timing run {name} has not ended": "计时运行 {name} 尚未结束",
    "{count} of {asked} questions have a missing grade: left out": (
        "{asked} 题中有 {count} 题缺少评分，未列入"
    ),
    "{name} was timed once: no interval includes its noise": (
        "{name} 只计时一次：其波动不在任何区间内"
    ),
    "{name}: prefill was not measured, so deadlines are unknown": (
        "{name}：未测预填充，无法给出截止时间"
    ),
    (
        "{name}: prompts have up to {prompt} tokens, prefill was measured with {longest}; its time"
        " is taken proportional"
    ): "{name}：提示最长 {prompt} 个词元，预填充只测到 {longest} 个，其时间按比例推算",
    (
        "{name}: times are measured to position {known}, answers reach {last}: measure with a"
        " prompt of {prompt} tokens and {tokens} tokens to avoid extrapolation"
    ): (
        "{name}：时间测到第 {known} 个位置，回答到第 {last} 个：请用 {prompt} 个词元的提示和"
        " {tokens} 个生成词元测量，便无须外推"
    ),
    (
        "{name}: times are measured to position {known}, answers reach {last}: measure with {last}"
        " tokens to avoid extrapolation"
    ): "{name}：时间测到第 {known} 个位置，回答到第 {last} 个：请用 {last} 个词元测量，便无须外推",
    "no deadlines, because lengths or prefill are unknown: {names}": (
        "没有截止时间（长度或预填充未知）：{names}"
    ),
    "no curve over budgets of {names}: it needs two limits": (
        "{names} 没有随预算变化的曲线：需要两个上限"
    ),
    (
        "{one} and {other} have no common measured time on the axis of deadlines: measure more"
        " tokens"
    ): "{one} 与 {other} 在截止时间轴上没有共同的测量时间：请测量更多词元",
    (
        "{one} and {other} have no common measured time on the axis of budgets: measure more tokens"
    ): "{one} 与 {other} 在预算时间轴上没有共同的测量时间：请测量更多词元",
    (
        "limits of {name} end at {time}, and budgets are compared only up to there: evaluate"
        " larger ones to see more"
    ): "{name} 的上限止于 {time}，预算只比较到该处：要看更多，请评测更大的上限",
    (
        "no published curve: the experiment's curves exist only as pictures"
    ): "没有发表曲线：实验的曲线只留有图片，这里不作虚构",
    "published accuracies are points without a limit of tokens: they are on no curve": (
        "发表的正确率是没有词元上限的点：不在任何曲线上"
    ),
    (
        "{slower} / {faster} = {ratio}: {cut} when cut after two decimals, as the experiment writes"
        " it, {rounded} when rounded"
    ): "{slower} / {faster} = {ratio}：如实验所写，截去两位小数之后为 {cut}，四舍五入为 {rounded}",
}
