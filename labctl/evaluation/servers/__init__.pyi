from .started import ServerRequest as ServerRequest
from .started import StartedEndpoint as StartedEndpoint
from .started import started_endpoint as started_endpoint
