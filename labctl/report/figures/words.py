"""The words of the figures, in the languages of reports."""

from typing import Literal, TypeAlias

from labctl.report.figures.evaluation_words import EVALUATION_WORDS

Language: TypeAlias = Literal["en", "zh"]

#: Key -> English, Chinese. Values are put in by ``str.format``.
_WORDS: dict[str, tuple[str, str]] = {
    "emulated": (
        "EMULATED: does not show the speed of a board",
        "EMULATED（模拟运行）：不代表开发板的速度",
    ),
    "native-host": (
        "NATIVE HOST: measured on this computer, not on a board",
        "NATIVE HOST（本机运行）：在这台计算机上测得，不是开发板",
    ),
    "unknown": (
        "IMPORTED: measured elsewhere, the machine is not known",
        "IMPORTED（导入）：在别处测得，机器未知",
    ),
    "in-part": (
        "{kinds} in part: series that are marked so do not show the speed of a board",
        "部分为 {kinds}：带此标记的系列不代表开发板的速度",
    ),
    "shown": (
        " Shown: {shown} of {count} series, from the fastest to the slowest.",
        "图中为 {count} 个系列中的 {shown} 个，从最快到最慢。",
    ),
    # axes
    "position": ("token", "词元序号"),
    "token-time": ("time per token ({unit})", "每词元时间（{unit}）"),
    "token-time-log": ("time per token ({unit}), log scale", "每词元时间（{unit}），对数坐标"),
    "share-of-tokens": ("share of tokens", "词元占比"),
    "repeat": ("repeat", "重复"),
    "variant": ("variant", "变体"),
    "mean": ("mean", "平均值"),
    "estimate": ("geometric mean", "几何平均"),
    "median-in": ("median ({unit})", "中位数（{unit}）"),
    "quoted": ("quoted", "引用"),
    "quoted-value": ("{value} quoted", "{value} 引用"),
    # time per token over position
    "token-times": ("Time per token over position", "每词元时间随位置的变化"),
    "token-times.caption": (
        (
            "Each thin line is one repeat, a thick line their median. ▲ TTFT: process start to"
            " first token, load included."
        ),
        "每条细线为一次重复，粗线为其中位数。▲ TTFT：从进程启动到第一个词元，包括加载。",
    ),
    "token-times.lines": (
        "Each line is one repeat. ▲ TTFT: process start to first token, load included.",
        "每条线为一次重复。▲ TTFT：从进程启动到第一个词元，包括加载。",
    ),
    "token-times.band": (
        (
            "A line is the median of the repeats, its band their 10th to 90th percentile. ▲ TTFT:"
            " process start to first token, load included."
        ),
        (
            "线为各次重复的中位数，色带为第 10 至第 90 百分位。▲ TTFT：从进程启动到第一个词元，"
            "包括加载。"
        ),
    ),
    "token-times.bins": (
        " Each point stands for {size} tokens in a row.",
        "每个点代表连续 {size} 个词元。",
    ),
    "token-times.throttled": (
        " ✕ marks tokens that came while the board held its clock down.",
        "✕ 表示开发板降频期间产生的词元。",
    ),
    "token-times.throttled-some": (
        " In {count} of the {trials} repeats the board held its clock down.",
        "{trials} 次重复中有 {count} 次开发板降频。",
    ),
    "token-times.alt": (
        "Line chart of the time of each token. {series}.",
        "每个词元时间的折线图。{series}。",
    ),
    "throttled": ("throttled", "降频"),
    "no-tokens": (
        "no repeat has the times of single tokens",
        "没有任何重复记录了单个词元的时间",
    ),
    # summary and distribution
    "estimates": ("Time per token", "每词元时间"),
    "estimates.caption": (
        (
            "Filled mark: the estimate, the geometric mean of the repeats' means, with its {level}"
            " interval. Circles: the repeats."
        ),
        "实心标记为估计值（各次重复平均值的几何平均）及其 {level} 区间；圆圈为各次重复。",
    ),
    "estimates.single": (
        "The mean of the only repeat of each variant: one repeat has no interval.",
        "各变体仅有一次重复的平均值：一次重复没有区间。",
    ),
    "estimates.runs": (
        (
            " Of several runs it is the geometric mean of theirs, and the {level} interval is over"
            " the runs."
        ),
        "多次运行时取各次运行估计值的几何平均，{level} 区间基于各次运行。",
    ),
    "estimates.quoted": (
        " ◇ quoted from publications, not measured here: {sources}.",
        "◇ 引自文献，非此处测得：{sources}。",
    ),
    "estimates.alt": (
        "Time per token of each variant. {series}.",
        "各变体的每词元时间。{series}。",
    ),
    "no-token-time": ("no repeat has a time per token", "没有任何重复有每词元时间"),
    "repeats": ("Distribution in each repeat", "每次重复的分布"),
    "repeats.caption": (
        (
            "One row for each repeat: a tick for each token, the box from the 25th to the 75th"
            " percentile, the line from the 5th to the 95th; the bar in the box is the median,"
            " ◆ the mean."
        ),
        (
            "每行为一次重复：短线为各词元，方框为第 25 至第 75 百分位，横线为第 5 至第 95 百分位；"
            "框中竖线为中位数，◆ 为平均值。"
        ),
    ),
    "repeats.many": (
        (
            "One row for each variant: a tick for the mean of each repeat, the box from the 25th to"
            " the 75th percentile, the line from the 5th to the 95th; the bar in the box is the"
            " median, ◆ the mean."
        ),
        (
            "每行为一个变体：短线为每次重复的平均值，方框为第 25 至第 75 百分位，横线为第 5 至第 95"
            " 百分位；框中竖线为中位数，◆ 为平均值。"
        ),
    ),
    "repeats.outside": (
        " Values outside of the axis: {count}.",
        "有 {count} 个值超出坐标轴范围。",
    ),
    "against-median": ("difference from the variant's median (%)", "与该变体中位数之差（%）"),
    "repeats.alt": (
        "Box plots of the time per token: {rows} rows.",
        "每词元时间的箱线图，共 {rows} 行。",
    ),
    "ecdf": ("Cumulative distribution of token times", "词元时间的累积分布"),
    "ecdf.caption": (
        (
            "For a time on the horizontal axis, the line shows the share of all tokens that took"
            " no longer (empirical cumulative distribution). Steep: steady; a long tail to the"
            " right:"
            " some tokens were slow."
        ),
        (
            "对横轴上的某一时间，曲线给出耗时不超过它的词元占比。越陡越稳定；右侧长尾表示部分"
            "词元较慢。"
        ),
    ),
    "ecdf.alt": (
        "Empirical distribution of the time per token. {series}.",
        "每词元时间的经验分布。{series}。",
    ),
    # telemetry
    "timeline": ("Telemetry and tokens on one time axis", "同一时间轴上的遥测与词元"),
    "timeline.of": (
        "Telemetry and tokens: {series}, repeat {repeat}",
        "遥测与词元：{series}，第 {repeat} 次重复",
    ),
    "timeline.caption": (
        (
            "One trial on the board's own clock. The width of a bar is the time of its token, its"
            " height says the same. Rates are between one sample and the next."
        ),
        "开发板自身时钟上的一次试验。条的宽度为该词元的时间，高度亦同。速率为相邻采样之间的值。",
    ),
    "timeline.throttled": (
        " Shaded: the board held its clock down.",
        "阴影：开发板降频。",
    ),
    "timeline.alt": (
        "Tracks of one trial of {series} over {duration}: {tracks}.",
        "{series} 一次试验在 {duration} 内的轨迹：{tracks}。",
    ),
    "timeline.missing": (
        "no trial has telemetry beside its record",
        "没有任何试验在记录旁有遥测数据",
    ),
    "timeline.phases": ("phases: load, prompt, tokens", "阶段：加载、提示、词元"),
    "timeline.phase": ("phase", "阶段"),
    "timeline.took": ("time", "时间"),
    "timeline.load": ("load", "加载"),
    "timeline.prompt": ("prompt", "提示"),
    "timeline.tokens": ("tokens", "词元"),
    "since-start": ("time since the start of the process (s)", "进程启动后的时间（秒）"),
    "temperature": ("temperature (°C)", "温度（°C）"),
    "frequency": ("CPU frequency (MHz)", "CPU 频率（MHz）"),
    "cpus": ("CPUs in use", "占用的 CPU 数"),
    "cpus.job": ("program", "本程序"),
    "cpus.all": ("all", "全部"),
    "faults": ("major page faults (1/s)", "主缺页（次/秒）"),
    "faults.major": ("program", "本程序"),
    "reads": ("storage reads (MB/s)", "存储读取（MB/s）"),
    "reads.job": ("program", "本程序"),
    "reads.device": ("device", "设备"),
    "memory": ("memory (MB)", "内存（MB）"),
    "memory.job": ("program", "本程序"),
    "memory.available": ("available", "可用"),
    # ceilings of the board
    "roofline": ("Roofline of the board", "开发板的 Roofline 模型"),
    "roofline.of": ("Roofline of {board}", "{board} 的 Roofline 模型"),
    "roofline.caption": (
        (
            "Lines: what memory and storage deliver, by the probe of {taken}. A variant on a line"
            " is held by it. The bar above a mark is what the arithmetic alone allows with these"
            " weights. Both axes are logarithmic; a weight counts as two operations."
        ),
        (
            "斜线为 {taken} 的探测所测得的内存与存储速率。落在线上的变体受其限制。标记上方的横条为"
            "仅受算术限制时的上限。两轴均为对数坐标；每个权重计两次运算。"
        ),
    ),
    "roofline.alt": (
        "Roofline chart, logarithmic. {series}.",
        "对数坐标的 Roofline 图。{series}。",
    ),
    "roofline.intensity": ("operations for each byte of weights", "每字节权重的运算次数"),
    "roofline.rate": ("operations a second (Gop/s)", "每秒运算次数（Gop/s）"),
    "roofline.dram": ("DRAM {rate}", "DRAM {rate}"),
    "roofline.storage": ("storage {rate}, by page faults", "存储 {rate}（缺页读取）"),
    "roofline.arithmetic": ("arithmetic", "算术"),
    "roofline.emulated": (
        "EMULATED: an emulator's speed says nothing about a board's ceilings",
        "EMULATED（模拟运行）：模拟器的速度与开发板的上限无关",
    ),
    "roofline.boards": (
        "the runs are of several boards, and each has its own ceilings",
        "这些运行来自多块开发板，各有自己的上限",
    ),
    "roofline.no-probe": (
        "this board has no probe: `labctl boards probe` measures its ceilings",
        "该开发板没有探测记录：`labctl boards probe` 可测量其上限",
    ),
    "roofline.no-weights": (
        "no variant has both a time per token and known bits per weight",
        "没有变体同时具有每词元时间和已知的每权重位数",
    ),
    "roofline.no-rates": (
        "the probe of this board has no rate of memory or storage",
        "该开发板的探测没有内存或存储速率",
    ),
    "bounds": ("Shares of the bounds", "各上限的占比"),
    "bounds.caption": (
        (
            "The part of a token's time that each resource alone would need at its measured rate."
            " Near 100 %: that resource holds the variant. None near: something else does."
        ),
        (
            "各资源按其测得速率单独所需的时间占词元时间的比例。接近 100 %：受该资源限制。"
            "均不接近：受其他因素限制。"
        ),
    ),
    "bounds.alt": ("Bars of the share of each bound. {series}.", "各上限占比的条形图。{series}。"),
    "bounds.share": ("share of the time per token", "占每词元时间的比例"),
    "bounds.storage": ("storage", "存储"),
    "bounds.dram": ("DRAM", "DRAM"),
    "bounds.compute": ("arithmetic", "算术"),
    "bounds.emulated": (
        "not measured on a board: its bounds do not apply",
        "不是在开发板上测得：其上限不适用",
    ),
    "bounds.no-rates": (
        (
            "no rate of this board was known at the time of the run: `labctl boards probe` measures"
            " them"
        ),
        "运行时不知道该开发板的任何速率：`labctl boards probe` 可测量",
    ),
    # several runs, several parameters
    "sweep": ("Sweep of parameters", "参数扫描"),
    "sweep.over": ("Time per token over {axis}", "每词元时间随 {axis} 的变化"),
    "sweep.line": (
        "Geometric mean of the repeats for each value, with its interval.",
        "每个取值各次重复的几何平均及其区间。",
    ),
    "sweep.line-alt": (
        "Line chart of the time per token over {axis}: {series}.",
        "每词元时间随 {axis} 变化的折线图：{series}。",
    ),
    "sweep.of": ("Time per token: {label}", "每词元时间：{label}"),
    "sweep.caption": (
        (
            "Time per token of each combination, the geometric mean of its repeats. The more a cell"
            " stands out from the page, the slower. ★ the fastest."
        ),
        "各组合每词元时间（各次重复的几何平均）。单元格越醒目越慢。★ 最快。",
    ),
    "sweep.alt": (
        "Heat map of the time per token of {label} over {x} and {y}: {low} to {high}.",
        "{label} 的每词元时间热力图，横轴 {x}，纵轴 {y}：{low} 至 {high}。",
    ),
    "sweep.failed": ("failed", "失败"),
    "sweep.skipped": ("not run", "未运行"),
    "sweep.missing": (
        "no run varies a numeric parameter",
        "没有运行改变数值参数",
    ),
    "repeats-count": ("repeats", "重复次数"),
    "run": ("run", "运行"),
    "began": ("begin of the run (UTC)", "运行开始时间（UTC）"),
    "history": ("From run to run", "各次运行的变化"),
    "history.caption": (
        (
            "A mark is the estimate of one run, its line the interval of the repeats in that run"
            " alone: days differ by more than that."
        ),
        "标记为一次运行的估计值，竖线仅为该运行内各次重复的区间：不同日期的差异大于此。",
    ),
    "history.alt": (
        "Time per token of {series} variants in {runs} runs.",
        "{series} 个变体在 {runs} 次运行中的每词元时间。",
    ),
    "history.missing": (
        "a history needs {least} runs with a variant in common",
        "历史图需要 {least} 次含有相同变体的运行",
    ),
    "interval-of": (
        "{label}: {value}, {level} interval {low} to {high}",
        "{label}：{value}，{level} 区间 {low} 至 {high}",
    ),
    "value-of": ("{label}: {value}", "{label}：{value}"),
    "median-of": ("{label}: median {value}", "{label}：中位数 {value}"),
    **EVALUATION_WORDS,
}


class Words:
    """The words of one language."""

    def __init__(self, language: Language):
        self.language: Language = language
        self._column = ("en", "zh").index(language)

    def __call__(self, key: str, /, **values: object) -> str:
        """Return the text of a key with the values in it."""
        return _WORDS[key][self._column].format(**values)

    def sentence_end(self) -> str:
        """Return what stands between two facts of a sentence."""
        return ("; ", "；")[self._column]
