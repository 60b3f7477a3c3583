"""The server of a small transformer: `python -m benchmarks.served ARM`.

The server prints its port when it answers, and ends when its stdin closes. An arm is one way to run the server. The
server calls brickd only if its arm needs more than `brickd run` does.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import sys
import types
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS = 8
_PROMPT = 16
_VOCABULARY = 256
_PATIENCE_SECONDS = 3_600


def model() -> Any:
    """Return the model, which is the same in every process."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=_VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    return LlamaForCausalLM(config).eval()


def wrap(module: Any) -> None:
    """Add a wrapper that does nothing."""
    plain = type(module).forward

    @functools.wraps(plain)
    def forward(self: Any, *args: Any, **keywords: Any) -> Any:
        return plain(self, *args, **keywords)

    vars(module)["forward"] = types.MethodType(forward, module)


def prepare(whole: Any, arm: str) -> None:
    """Prepare a model for an arm."""
    if arm == "wrapped":
        from brick_agent._torch.module_selection import chosen

        for part in chosen(whole, 64):
            wrap(part.module)
    elif arm == "every":
        import brick_agent

        brick_agent.instrument(whole, only="*", sites=1 << 20)


def application(whole: Any) -> Starlette:
    """Return an application with one path, which generates tokens from a number."""
    turn = asyncio.Lock()

    def generated(number: int) -> list[int]:
        chance = torch.Generator().manual_seed(number)
        prompt = torch.randint(0, _VOCABULARY, (1, _PROMPT), generator=chance)
        with torch.inference_mode():
            found = whole.generate(prompt, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)
        tokens: list[int] = found[0].tolist()
        return tokens

    async def generate(request: Request) -> JSONResponse:
        async with turn:  # like an engine, the server runs one step after the other
            return JSONResponse(await asyncio.to_thread(generated, int(request.query_params["seed"])))

    return Starlette(routes=[Route("/generate", generate)])


def main() -> None:
    whole = model()
    prepare(whole, sys.argv[1])
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(application(whole), log_level="warning", timeout_keep_alive=_PATIENCE_SECONDS)
    )

    async def serve() -> None:
        until = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        print(listening.getsockname()[1], flush=True)
        await until
        server.should_exit = True
        await serving

    asyncio.run(serve())


if __name__ == "__main__":
    main()
