"""Questions put to a scripted endpoint through labctl's own clients."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from labctl.evaluation.endpoints.base import EndpointClient, Generation, GenerationRequest, Message
from labctl.evaluation.endpoints.opening import Api, open_client

T = TypeVar("T")
APIS: tuple[Api, ...] = ("openai-chat", "openai-completions", "llama-server")


def request(api: Api, text: str = "What is 2 + 2?", **more: Any) -> GenerationRequest:
    """The question in the form that the API takes."""
    prompt = (Message("user", text),) if api == "openai-chat" else text
    return GenerationRequest(prompt, **{"max_tokens": 64, "offsets": True, **more})


def with_client(
    address: str, api: Api, use: Callable[[EndpointClient], Awaitable[T]], **more: Any
) -> T:
    """Open a client in a loop of its own, use it, close it."""

    async def run() -> T:
        client = open_client(api=api, address=address, **more)
        try:
            return await use(client)
        finally:
            await client.aclose()

    return asyncio.run(run())


def ask(
    address: str, api: Api, text: str = "What is 2 + 2?", timeout: float = 20, **more: Any
) -> Generation:
    """One question, one attempt."""

    async def use(client: EndpointClient) -> Generation:
        return await client.generate(request(api, text, **more), timeout=timeout)

    return with_client(address, api, use)
