"""Chinese texts of the reports' page. Values are put in by ``str.format``."""

from labctl.report.page.chinese_evaluation import CHINESE_EVALUATION
from labctl.report.page.chinese_latency import CHINESE_LATENCY
from labctl.report.page.chinese_load_test import CHINESE_LOAD_TEST

CHINESE = {
    **CHINESE_EVALUATION,
    **CHINESE_LATENCY,
    **CHINESE_LOAD_TEST,
    # the page
    "labctl report": "labctl 测量报告",
    "Answer": "结论",
    "Results": "结果",
    "Experiment": "实验",
    "Figures": "图",
    "Conditions, checks and provenance": "条件、检查与来源",
    "Method": "方法",
    "Dark colours": "深色",
    "Light colours": "浅色",
    "Data as CSV": "数据（CSV）",
    "Picture as SVG": "图片（SVG）",
    "Figures need JavaScript.": "显示图需要 JavaScript。",
    "Ctrl and the mouse wheel zoom, dragging moves, a double click resets.": (
        "按住 Ctrl 并滚动滚轮可缩放，拖动可平移，双击复原。"
    ),
    "Not drawn: {title}: {reason}.": "未绘制：{title}（{reason}）。",
    "Left out, damaged: {name}": "已损坏，未列入：{name}",
    "Made by labctl {version}. This file needs no network.": (
        "由 labctl {version} 生成。本文件不需要网络。"
    ),
    "Texts of records are shown as they were recorded, in English.": (
        "记录中的文字保持原样，为英文。"
    ),
    # what was measured
    "{recipes} on {boards}": "{recipes}，开发板 {boards}",
    "Run": "运行",
    "Runs": "运行",
    "Run {id}": "运行 {id}",
    "Target": "目标平台",
    "System": "系统",
    "Measured": "测量日期",
    "Trials": "试验",
    "Program": "程序",
    "Tags": "标签",
    "{count} of {planned}": "{count}/{planned}",
    # the answer
    "EMULATED ({name}): does not show the speed of a board.": (
        "EMULATED（模拟运行，{name}）：不代表开发板的速度。"
    ),
    "NATIVE HOST: measured on the controller itself, not on a board.": (
        "NATIVE HOST（本机运行）：在控制主机上测得，不是开发板。"
    ),
    "IMPORTED from {file}: not measured by this lab.": (
        "IMPORTED（由 {file} 导入）：非本实验室所测。"
    ),
    "on {board}": "在 {board} 上",
    "{board} (not the speed of a board)": "{board}（不代表开发板的速度）",
    "{variant} takes {time} a token {where}{known}.": (
        "{where}，{variant} 每生成一个词元需 {time}{known}。"
    ),
    (
        "{best} is {value} times as fast as {other} {where}{known}: {time} a token against"
        " {against}."
    ): "{where}，{best} 的速度是 {other} 的 {value} 倍{known}：每词元 {time}，后者为 {against}。",
    (
        "{best} ({time} a token) is faster than {other} ({against}) {where}, but not shown to be"
        " so by more than {practical}: ratio {value}{known}."
    ): (
        "{where}，{best}（每词元 {time}）比 {other}（{against}）快，"
        "但未能证明快出 {practical} 以上："
        "比值 {value}{known}。"
    ),
    "{best} is the fastest of {count} variants {where}.": (
        "{where}，{best} 是 {count} 个变体中最快的。"
    ),
    "{names} are equally fast {where}; none of {count} variants is faster.": (
        "{where}，{names} 同样快；{count} 个变体中没有更快的。"
    ),
    "It is unclear {where} which of {names} is the fastest of {count} variants.": (
        "{where}，无法判定 {names} 中哪个是 {count} 个变体中最快的。"
    ),
    "They were measured one after the other, so that drift counts as a difference.": (
        "它们是先后测量的，因此漂移会被算作差异。"
    ),
    (
        "{best} takes the shortest time of {count} variants {where}: {time} a token. It is"
        " {value} times as fast as {other}{known}, which takes {against}."
    ): (
        "{where}，{count} 个变体中 {best} 用时最短：每词元 {time}。其速度是 {other}（{against}）的"
        " {value} 倍{known}。"
    ),
    (
        "{best} ({time} a token) and {other} ({against}) are equally fast {where}: ratio"
        " {value}{known}."
    ): "{where}，{best}（每词元 {time}）与 {other}（{against}）同样快：比值 {value}{known}。",
    (
        "It is unclear {where} which is faster, {best} ({time} a token) or {other} ({against}):"
        " ratio {value}{known}."
    ): (
        "{where}，无法判定 {best}（每词元 {time}）与 {other}（{against}）哪个更快："
        "比值 {value}{known}。"
    ),
    "{count} interleaved rounds would settle it.": "交替测量 {count} 轮可以判定。",
    "{best} ({time} a token) and {other} ({against}) are not compared {where}: {reason}.": (
        "{where}，{best}（每词元 {time}）与 {other}（{against}）不作比较：{reason}。"
    ),
    " (its interval is wider than ± 100 %)": "（区间宽于 ± 100 %）",
    (
        "{best} took {time} a token {where}, {other} {against}: too few rounds for an interval, so"
        " it is unclear which is faster."
    ): (
        "{where}，{best} 每词元 {time}，{other} 为 {against}：轮数太少，没有区间，"
        "无法判定哪个更快。"
    ),
    " ({level} interval {low} to {high})": "（{level} 置信区间 {low} 至 {high}）",
    " ({level} interval {low} to {high}, of the {count} rounds that have both)": (
        "（{level} 置信区间 {low} 至 {high}，取自两者都有的 {count} 轮）"
    ),
    ", from too few trials for an interval": "（试验太少，无法给出区间）",
    "storage": "存储读取",
    "memory (DRAM)": "内存（DRAM）带宽",
    "arithmetic": "算力",
    "DRAM": "内存",
    "none near": "不明显",
    "{variant} is bound by {name}: at {share} of what the measured rate of the board allows.": (
        "{variant} 受{name}限制：达到该开发板实测速率所允许的 {share}。"
    ),
    (
        "{variant} is bound by {name} if the board is as expected: at {share} of what the rate"
        " allows that its target expects; `labctl boards probe` measures the board's own."
    ): (
        "若开发板符合预期，{variant} 受{name}限制：达到其目标平台预期速率所允许的 {share}；"
        "`labctl boards probe` 可测得该板自身的速率。"
    ),
    "No known rate of this board bounds {variant}.": (
        "该开发板的已知速率都不构成 {variant} 的限制。"
    ),
    "{count} of its trials have no result.": "有 {count} 次试验没有结果。",
    "Checks failed, see the table: {names}.": "未通过的检查见表：{names}。",
    "{count} of {total} gates were missed.": "{total} 项门限中有 {count} 项未达到。",
    "{variant}, test {name}: {rate} tokens/s on {board}.": (
        "在 {board} 上，{variant} 的测试 {name}：{rate} 词元/秒。"
    ),
    "{variant}: {name} is {value}{unit} on {board}.": (
        "在 {board} 上，{variant} 的 {name} 为 {value}{unit}。"
    ),
    "This run has no result: no trial of it was good.": "本次运行没有结果：没有一次试验成功。",
    "None of the {count} runs has a token time.": "{count} 次运行都没有每词元时间。",
    (
        "In {count} runs, a token takes from {low} ({first}, run {run}) to {high} ({last}, run"
        " {other})."
    ): (
        "在 {count} 次运行中，每词元时间从 {low}（{first}，运行 {run}）到 {high}（{last}，运行"
        " {other}）。"
    ),
    "Runs of different sessions: `labctl compare` judges their differences.": (
        "这些运行不在同一时段：它们的差异由 `labctl compare` 判定。"
    ),
    # tables of results
    "Variant": "变体",
    "A model with its parameters, as the recipe names it.": "模型及其参数，名称取自配方。",
    "Board": "开发板",
    "Quantization": "量化",
    "Type of the weights; bits are over all weights.": "权重类型；位数为全部权重的平均。",
    "{name}, {bits} bits": "{name}，{bits} 位",
    "{new} (from {old})": "{new}（由 {old} 转换）",
    "Model size": "模型大小",
    "Good trials": "有效试验",
    "Of those planned; no warm-ups.": "占计划次数；不含预热。",
    "TTFT": "首词元时间",
    "Time to first token: from the start of the program, loading included.": (
        "TTFT：从程序启动到第一个词元，包括加载。"
    ),
    "Time per token": "每词元时间",
    "Geometric mean over the trials of each one's mean.": "各次试验平均值的几何平均。",
    "Median time": "时间中位数",
    "Of the same trials. The interval is not its interval.": "取自相同的试验。该区间不是它的区间。",
    "{level} interval": "{level} 置信区间",
    "Of the time per token, from the trials alone (Student's t of logarithms).": (
        "每词元时间的区间，仅由各次试验得出（对数的 t 区间）。"
    ),
    "Tokens/s": "词元/秒",
    "Ratio": "比值",
    (
        "Time per token over that of the run's first variant, paired by round; ~: no interval is"
        " known."
    ): ("每词元时间与该运行第一个变体之比，按轮配对；~ 表示没有区间。"),
    "Bound by": "限制因素",
    "The nearest bound, and its share of the measured time.": "最接近的上限及其占实测时间的比例。",
    "Checks": "检查",
    "no result": "无结果",
    "FAILED: {names}": "未通过：{names}",
    "ok": "通过",
    "none": "无",
    "Name": "名称",
    "Tests of the benchmark": "基准测试",
    "Repetitions": "重复次数",
    "Time": "时间",
    "p10": "p10",
    "p50": "p50",
    "p90": "p90",
    "Measures": "其他测量值",
    "Values": "数值个数",
    "Median": "中位数",
    "Standard error": "标准误差",
    "As the program reports it.": "由程序自身报告。",
    "Phases": "各阶段",
    "Load": "加载",
    "Prompt eval": "提示处理",
    "Reading the prompt (prefill).": "读入提示（预填充）。",
    "Eval": "生成",
    "Generating tokens (decode).": "生成词元（解码）。",
    "End to end": "总时间",
    "From start to end of the program.": "从程序启动到结束。",
    "Peak memory": "峰值内存",
    "Greatest resident set.": "最大常驻内存。",
    "Storage read per token": "每词元存储读取量",
    "Single tokens inside a trial": "单次试验内各词元",
    "Energy": "能耗",
    "Energy of a trial": "每次试验能耗",
    "Energy per token": "每词元能耗",
    "Mean power": "平均功率",
    "Peak power": "峰值功率",
    "Published figures": "文献数据",
    "Quoted": "引用",
    "Device": "设备",
    "Model": "模型",
    "As published": "原始数值",
    "Source": "来源",
    "Quoted from publications, not measured by labctl; part of no statistic.": (
        "引自文献，并非 labctl 所测；不参与任何统计。"
    ),
    "Runs compared": "运行之间的比较",
    "Compared": "比较对象",
    "Reference": "参照",
    "Verdict": "判定",
    "Reason": "理由",
    "Time per token over the reference's.": "每词元时间与参照之比。",
    "As `labctl compare` judges: unlike, same, slower, faster, or can't tell.": (
        "按 `labctl compare` 判定：不可比、相同、更慢、更快或无法判定。"
    ),
    "unlike": "不可比",
    "same": "相同",
    "slower": "更慢",
    "faster": "更快",
    "suspected": "疑似有差异",
    "can't tell": "无法判定",
    # conditions, checks, trials
    "Remarks": "说明",
    "Note: ": "备注：",
    "The run has not ended, or its controller died.": "运行尚未结束，或其控制程序已中止。",
    "Ended early ({blame}): ": "提前结束（{blame}）：",
    "The run was interrupted.": "运行被中断。",
    "Conditions": "条件",
    "Condition": "条件",
    "Asked for": "要求",
    "Found": "实际",
    "State": "状态",
    "In trials": "试验编号",
    "as asked": "符合",
    "NOT as asked": "不符合",
    "not available": "无法取得",
    "Check": "检查",
    "Held": "通过",
    "Failed": "未通过",
    "Not judged": "未评判",
    "{held}; not judged: {names}": "{held}；未评判：{names}",
    "The first failure, or else an example": "首个未通过项，或示例",
    "trial {detail}": "试验 {detail}",
    "Trial": "试验",
    "Repeat": "重复",
    "Tokens": "词元",
    "Temperature": "温度",
    "At the start, and the highest.": "开始时与最高值。",
    "Lowest frequency": "最低频率",
    "Of the fastest CPU.": "最快 CPU 的频率。",
    "warm-up": "预热",
    "skipped": "跳过",
    "failed": "失败",
    # provenance
    "Make it again": "重新测量",
    "Save the recipe below as recipe.yaml; its file names are those of the lab.": (
        "将下面的配方保存为 recipe.yaml；其中的文件名属于原实验室。"
    ),
    "Commands": "命令",
    "Recipe, as it was resolved": "解析后的配方",
    "Facts and their origin": "事实及其来源",
    "Fact": "事实",
    "Value": "值",
    "Origin": "来源",
    "Raw files, below runs/{id}": "原始文件，位于 runs/{id}",
    "{count} files": "{count} 个文件",
    "File": "文件",
    "Size": "大小",
    # method
    (
        "Time per token: the mean of a trial is the time from the first token to the last over"
        " the tokens made in it; the estimate is the geometric mean over the good trials. Its"
        " interval is Student's, of the logarithms of one value a trial: the tokens of a trial"
        " share its process, memory and heat, and are not independent measurements. A recipe"
        " that repeats until its result is precise has wider intervals for that."
    ): (
        "每词元时间：一次试验的平均值是从第一个词元到最后一个词元的时间除以其间生成的词元数；估计值"
        "是各次有效试验的几何平均。其区间是每次试验取一个值、对数的 t 区间：同一试验内的词元共用"
        "进程、内存和温度，不是独立的测量。若配方重复到结果足够精确为止，区间会相应加宽。"
    ),
    (
        "Ratio: the geometric mean of the ratios of trials of the same round, with Student's"
        " interval of their logarithms. TTFT counts from the start of the program, loading"
        " included. Warm-ups and failed trials are in no figure and no estimate."
    ): (
        "比值：同一轮试验之比的几何平均，区间为其对数的 t 区间。首词元时间（TTFT）从程序启动算起，"
        "包括加载。预热与失败的试验不进入任何图和估计。"
    ),
    (
        "Bound: the time that storage, memory or arithmetic need at the rates measured on this"
        " board, over the measured time; the greatest share is the nearest bound."
    ): (
        "限制因素：存储、内存或算力按该开发板实测速率所需的时间，除以实测时间；比例最大者为最接近的"
        "上限。"
    ),
}
