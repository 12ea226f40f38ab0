from .bench import LlamaBench as LlamaBench
from .engine import LlamaCpp as LlamaCpp
from .kl_divergence import LlamaKlDivergence as LlamaKlDivergence
from .parameters import LlamaBenchParameters as LlamaBenchParameters
from .parameters import LlamaCppParameters as LlamaCppParameters
from .perplexity import LlamaPerplexity as LlamaPerplexity
from .server import LlamaServer as LlamaServer
from .tasks import ENGINES as ENGINES
