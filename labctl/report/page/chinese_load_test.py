"""Chinese texts of the page of a load test. Values are put in by ``str.format``."""

CHINESE_LOAD_TEST = {
    "{recipe}: load test": "{recipe}：负载测试",
    "Requests": "请求",
    "Streams or rate": "并发数或速率",
    "Server": "服务器",
    "Loads": "各级负载",
    "UNFINISHED: these are the figures of the loads so far.": (
        "UNFINISHED（未完成）：以下为目前已测负载的数据。"
    ),
    "No measured request was answered.": "没有任何计入结果的请求得到回答。",
    "Most answers per second: {rate} ({load}).": "每秒回答数最高为 {rate}（{load}）。",
    (
        "The highest rate that the server follows is not known: fewer than two loads have a"
        " verdict."
    ): "服务器能跟上的最高速率未知：有结论的负载不足两个。",
    "The server followed no rate; the lowest offered was {beyond} requests/s.": (
        "服务器未能跟上任何速率；最低的实际发送速率为每秒 {beyond} 个请求。"
    ),
    "The server follows {rate} requests/s, the highest rate tried: it is not saturated.": (
        "服务器能跟上每秒 {rate} 个请求，这是试过的最高速率：尚未饱和。"
    ),
    "The server follows {rate} requests/s, and does not follow {beyond}.": (
        "服务器能跟上每秒 {rate} 个请求，跟不上每秒 {beyond} 个。"
    ),
    "* too few requests for an upper limit of the 99th percentile": (
        "* 请求太少，无法给出第 99 百分位的上限"
    ),
    "Lengths": "长度",
    "Lengths in tokens": "长度（词元）",
    "mean": "均值",
    "Streams wait for their answer; requests of a rate come at their times.": (
        "并发流等待回答后再请求；按速率的请求按时发出。"
    ),
    "Offered/s": "实际发送/秒",
    "Followed": "跟上",
    "yes": "是",
    "no": "否",
    "Of the requests that were sent.": "占已发送请求的数量。",
    "Answers/s": "回答/秒",
    "Tokens/s": "词元/秒",
    "Good/s": "合格/秒",
    "Answers that keep every limit.": "满足全部限值的回答。",
    "TPOT": "TPOT",
    "Latency": "总时间",
    (
        "TTFT: to the first piece with a token; TPOT: per token after the first piece, in the mean"
        " of an answer; latency: to the end of the answer. Times of streams begin at the sending,"
        " those of rates at the intended sending."
    ): (
        "TTFT：到首个含词元的片段；TPOT：首个片段之后每个词元的平均时间；总时间：到回答结束。"
        "并发流从发送时计时，按速率的请求从计划发送时计时。"
    ),
    (
        "A rate is followed if the ends of the answers, the requests outstanding at the last"
        " sending and the growth of the latency are behind by 5 % of the requests at most (more"
        " with Poisson arrivals). Offered rates are those of the requests sent."
    ): (
        "跟上速率：回答的结束、最后发送时未答的请求以及总时间的增长，落后均不超过请求数的 5 %"
        "（泊松到达时允许更多）。实际发送速率按已发送的请求计算。"
    ),
}
