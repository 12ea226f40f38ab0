from .cases import Case as Case
from .cases import Outcome as Outcome
from .cases import Suite as Suite
from .cases import failure_text as failure_text
from .cases import refused_suite as refused_suite
from .cases import run_suite as run_suite
from .texts import CI_FORMATS as CI_FORMATS
from .texts import ci_text as ci_text
