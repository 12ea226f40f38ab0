"""Chinese texts of the page of an evaluation. Values are put in by ``str.format``."""

CHINESE_EVALUATION = {
    "{recipe}: accuracy": "{recipe}：正确率",
    "Data set": "数据集",
    "Sampling": "采样",
    "Servers": "服务器",
    "Answers": "回答",
    "the first": "前若干题",
    "drawn with seed {seed}": "以种子 {seed} 抽取",
    "{name}: {count} of {size} questions, {drawn}": "{name}：{size} 题中的 {count} 题，{drawn}",
    ", {shots} worked examples before each": "，每题前有 {shots} 个示例",
    ", {samples} samples": "，{samples} 个样本",
    "Nothing is graded yet.": "尚无评分。",
    "no limit": "无限制",
    "{count} tokens": "{count} 个词元",
    "the tokens of {time}": "{time} 内的词元",
    (
        "Most right answers, {limit}: {names}, {share} ({low} to {high}; {right} of {total})."
    ): "{limit}时答对最多：{names}，{share}（{low} 至 {high}；{total} 题中 {right} 题）。",
    (
        "{better} is better than {worse} by {points} points ({level} interval {low} to {high},"
        " on the same {count} questions)."
    ): (
        "在相同的 {count} 题上，{better} 比 {worse} 高 {points} 个百分点"
        "（{level} 区间 {low} 至 {high}）。"
    ),
    (
        "It is unclear which is better, {better} or {worse}: {points} points apart ({level}"
        " interval {low} to {high}, on the same {count} questions)."
    ): (
        "无法判断 {better} 与 {worse} 哪个更好：在相同的 {count} 题上相差 {points} 个百分点"
        "（{level} 区间 {low} 至 {high}）。"
    ),
    (
        "EMULATED: a server ran on an emulated board. Answers of a real board can differ a little;"
        " no time here is a board's."
    ): (
        "EMULATED（模拟运行）：有服务器在模拟的开发板上运行。真实开发板的回答可能略有不同，"
        "这里的时间不代表开发板。"
    ),
    "AS DECLARED: the files of these models are not proven: {models}.": (
        "AS DECLARED（按声明）：未验证这些模型的文件：{models}。"
    ),
    "A model and a prompt, as the recipe names them.": "模型与提示，按配方中的名称。",
    "Share of right answers, with its 95 % interval.": "正确答案的占比及其 95% 区间。",
    "Accuracy by {grader}": "正确率（{grader}）",
    "Answers by {grader}": "回答（{grader}）",
    "Limit": "上限",
    "Right": "正确",
    "Cut": "截断",
    "Answers that the limit cut.": "被上限截断的回答。",
    "No answer": "无答案",
    "Texts in which none was found.": "未找到答案的文本。",
    "Over the stated budget": "超出提示中的预算",
    "Longer than the number of tokens that the prompt states.": "比提示中说明的词元数更长。",
    "Questions that got no answer at all.": "完全没有得到回答的题目。",
    "Median of the answers.": "各回答的中位数。",
    "Disagreements of the graders": "评分器之间的分歧",
    "{shown} of {count} texts.": "{count} 个文本中的 {shown} 个。",
    "Question": "题目",
    "Right answer": "正确答案",
    "Right answer:": "正确答案：",
    "none": "无",
    "right": "正确",
    "wrong: {answer}": "错误：{answer}",
    "not graded": "未评分",
    "{right} of {total} right": "{total} 个中 {right} 个正确",
    "Answers side by side": "回答对照",
    "Answer of {variant}": "{variant} 的回答",
    (
        "{shown} of {count} questions, first those on which the variants differ; answers within the"
        " largest limit, graded by {grader}."
    ): (
        "{count} 题中的 {shown} 题，先列出各变体结果不同的题；"
        "为最大上限内的回答，由 {grader} 评分。"
    ),
    (
        "Accuracy: right answers over graded ones, with Wilson's 95 % interval over the questions;"
        " several samples of a question are one cluster. Answers missing because of a server"
        " failure are not counted; they are listed."
    ): (
        "正确率：正确答案数除以已评分数，附按题目计算的 Wilson 95% 区间；"
        "同一题的多个样本为一个整群。"
        "因服务器故障而没有回答的题不计入，并会注明。"
    ),
    (
        "Difference of two models: over the questions that both were asked, by a paired bootstrap"
        " of questions. It is surer than two intervals beside each other look."
    ): "两个模型之差：在两者都回答的题目上，对题目做配对自助法。它比并列的两个区间看起来更可靠。",
    (
        "Limit: the largest number of generated tokens. Answers within smaller limits may be taken"
        " from a longer one, at the token where the limit would have ended it, where the prompt"
        " does not state the limit."
    ): (
        "上限：生成词元的最大数目。若提示中没有说明上限，较小上限内的回答可取自较长的回答，"
        "在该上限会使其结束的词元处截断。"
    ),
    (
        "{model}, {slots}: {count} of {total} answers cut at a smaller limit differ from what the"
        " server gave at that limit."
    ): (
        "{model}（{slots}）：{total} 个按较小上限截断的回答中，"
        "有 {count} 个与服务器在该上限下的不同。"
    ),
    "None of the {total} answers of any variant is right, {limit}.": (
        "{limit}时，各变体的 {total} 个回答全部错误。"
    ),
    "UNFINISHED: these are the accuracies of what was answered so far.": (
        "UNFINISHED（未完成）：以下为目前已回答部分的正确率。"
    ),
    "Gate kept: ": "满足门限：",
    "Gate MISSED: ": "未满足门限：",
    "Gate not judged: ": "门限未判定：",
    "one at a time": "逐个请求",
    "side by side": "并发请求",
    # equal latency
    "Accuracy at equal latency": "相同时间下的正确率",
    "Models": "模型",
    "Evaluations": "评测",
    "Timing runs": "计时运行",
    "Grader": "评分器",
    "Common questions": "共同题目",
    "Limits of equal time: ratio {ratio}": "等时上限：比值 {ratio}",
    "Tokens of {model}": "{model} 的词元数",
    "Time of the models": "各模型的时间",
    "Prefill": "预填充",
    "Measured to token": "测量到第几个词元",
    "Crossings: {axis}": "交叉点：{axis}",
    "Deadline": "截止时间",
    "Faster": "较快者",
    "Slower": "较慢者",
    "Crossing": "交叉点",
    "Meaning": "含义",
    "From prompt to prompt": "不同提示之间",
    "Shift": "移动",
    "Accuracy and time": "正确率与时间",
    "Prompt": "提示",
    "Accuracy": "正确率",
    "Time of the limit": "上限所需时间",
    "Time of an answer": "回答时间",
    "Mean of all answers.": "所有回答的平均值。",
    "Right per kJ": "每千焦正确数",
    "Pareto front": "帕累托前沿",
    "No other point is as right in less time.": "没有其他点能用更少时间达到同样的正确率。",
    "extrapolated": "外推",
    "No curves can be compared: see the notes below.": "没有可比较的曲线：见下方说明。",
    "Published figures; nothing is computed from them, and no point is made up.": (
        "已发表的数字；不参与计算，也没有编造任何数据点。"
    ),
    (
        "Crossing: a paired bootstrap over the questions, which all models and prompts share, and"
        " over the repeats of the timing runs. Its interval may be open; no recommendation rests on"
        " extrapolated times."
    ): (
        "交叉点：对所有模型与提示共同的题目、以及计时运行的重复做配对自助法。其区间可以是开放的；"
        "任何建议都不依赖外推的时间。"
    ),
    "{one} and {other}: no difference is shown from {start} to {end}.": (
        "{one} 与 {other}：从 {start} 到 {end} 未显示出差异。"
    ),
    "No crossing in range: {best} is better than {other} from {start} to {end}.": (
        "范围内无交叉：从 {start} 到 {end}，{best} 优于 {other}。"
    ),
    "Use {best} up to {time}; later no difference is shown.": (
        "{time} 以内用 {best}；之后未显示出差异。"
    ),
    "Use {best} from {time} on; before it no difference is shown.": (
        "{time} 起用 {best}；之前未显示出差异。"
    ),
    (
        "Use {before} below about {time} and {after} above ({level} interval {low} to {high})."
    ): "约 {time} 以下用 {before}，以上用 {after}（{level} 区间 {low} 至 {high}）。",
    (
        "The crossing of {faster} and {slower} with {other} minus that with {prompt}: {time}"
        " ({level} interval {low} to {high})."
    ): (
        "{faster} 与 {slower} 的交叉点，用 {other} 时减去用 {prompt} 时：{time}"
        "（{level} 区间 {low} 至 {high}）。"
    ),
    "Within {time}: no accuracy is known, as nothing was evaluated.": (
        "{time} 以内：未评测，正确率未知。"
    ),
    "Within {time}: every time is extrapolated, and nothing is recommended.": (
        "{time} 以内：所有时间均为外推，不作推荐。"
    ),
    "Within {time}: no model has a right and complete answer.": (
        "{time} 以内：没有模型给出正确且完整的回答。"
    ),
    "Within {time} use {best}: {share}.": "{time} 以内用 {best}：{share}。",
    "It is shown to be more than all others.": "已显示高于其他所有选择。",
    "It is not shown to be better than {rival} ({share}).": ("未显示出优于 {rival}（{share}）。"),
    "Extrapolated there, and left out: {names}.": "该时间处为外推，未列入：{names}。",
}
