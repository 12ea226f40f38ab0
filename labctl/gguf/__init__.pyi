from .header import GoesOn as GoesOn
from .inspect import GgufInfo as GgufInfo
from .inspect import identify as identify
from .inspect import identify_beginning as identify_beginning
from .inspect import identify_file as identify_file
from .inspect import is_gguf as is_gguf
