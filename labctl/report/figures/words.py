"""The words of the figures, in the languages of reports."""

from typing import Literal, TypeAlias

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
    "median": ("median", "中位数"),
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
            "Filled mark: the estimate, the median of the repeats' means, with its {level}"
            " interval. Circles: the repeats."
        ),
        "实心标记为估计值（各次重复平均值的中位数）及其 {level} 区间；圆圈为各次重复。",
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
        " {count} values lie outside of the axis.",
        "有 {count} 个值超出坐标轴范围。",
    ),
    "against-median": ("difference from the variant's median (%)", "与该变体中位数之差（%）"),
    "repeats.alt": (
        "Box plots of the time per token: {rows} rows.",
        "每词元时间的箱线图，共 {rows} 行。",
    ),
    "ecdf": ("Share of tokens that are faster", "更快词元的占比（经验分布函数）"),
    "ecdf.caption": (
        (
            "For a time on the horizontal axis, the line tells which share of all tokens took no"
            " longer (empirical cumulative distribution). Steep: steady; a long tail to the right:"
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
    "interval-of": (
        "{label}: {value}, {level} interval {low} to {high}",
        "{label}：{value}，{level} 区间 {low} 至 {high}",
    ),
    "value-of": ("{label}: {value}", "{label}：{value}"),
    "median-of": ("{label}: median {value}", "{label}：中位数 {value}"),
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
