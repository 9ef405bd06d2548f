"""An OpenAI-compatible streaming server that answers with `tok` over and over; to try load generators on.

    python tests/stub/openai_stub.py --port 8011 --first-token-ms 30 --token-ms 5

One thread a connection, one event a token, usage at the end. Standard library only; listens on loopback.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "stub"
DEFAULT_TOKENS = 16


class Handler(BaseHTTPRequestHandler):
    """Answers completions and chat completions, streamed or not, and the questions asked before a test."""

    protocol_version = "HTTP/1.1"
    first_token_s = 0.03
    token_s = 0.005
    fail_every = 0
    num_requests = itertools.count(1)

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send_json({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "me"}]})
        elif self.path in ("/health", "/ping"):
            self._send_json({})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            self.send_error(404)
        elif self.fail_every and next(self.num_requests) % self.fail_every == 0:
            self._send_json({"error": "asked to fail"}, status=500)
        elif request.get("stream"):
            self._stream(request, chat)
        else:
            time.sleep(self.first_token_s + self.token_s * (num_tokens(request) - 1))
            choice = answer(" tok" * num_tokens(request), chat, key="message", finish="length")
            self._send_json(document(chat, [choice], usage(request)))

    def log_message(self, format: str, *args: object) -> None:
        """Stays silent."""

    def _stream(self, request: dict[str, Any], chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in self._events(request, chat):
            data = f"data: {event}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _events(self, request: dict[str, Any], chat: bool) -> Iterator[str]:
        count = num_tokens(request)
        for index in range(count):
            time.sleep(self.token_s if index else self.first_token_s)
            finish = "length" if index == count - 1 else None
            yield json.dumps(document(chat, [answer(" tok", chat, key="delta", finish=finish)]))
        yield json.dumps(document(chat, [], usage(request)))
        yield "[DONE]"

    def _send_json(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def num_tokens(request: dict[str, Any]) -> int:
    """Output tokens asked for."""
    return int(request.get("max_completion_tokens") or request.get("max_tokens") or DEFAULT_TOKENS)


def usage(request: dict[str, Any]) -> dict[str, int]:
    """Tokens used; a word of the prompt counts as a token."""
    prompt = json.dumps(request.get("messages") or request.get("prompt"))
    words, count = len(prompt.split()), num_tokens(request)
    return {"prompt_tokens": words, "completion_tokens": count, "total_tokens": words + count}


def answer(text: str, chat: bool, *, key: str, finish: str | None) -> dict[str, Any]:
    """One choice with some text."""
    content = {key: {"role": "assistant", "content": text}} if chat else {"text": text}
    return {"index": 0, **content, "finish_reason": finish}


def document(chat: bool, choices: list[dict[str, Any]], used: dict[str, int] | None = None) -> dict[str, Any]:
    """A whole answer, or one event of a stream."""
    kind = "chat.completion.chunk" if chat else "text_completion"
    return {"id": "stub", "object": kind, "created": 0, "model": MODEL, "choices": choices, "usage": used}


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, default=8011)
    parser.add_argument("--first-token-ms", type=float, default=30.0)
    parser.add_argument("--token-ms", type=float, default=5.0)
    parser.add_argument("--fail-every", type=int, default=0, help="answer every N-th request with error 500")
    arguments = parser.parse_args()
    Handler.first_token_s = arguments.first_token_ms / 1e3
    Handler.token_s = arguments.token_ms / 1e3
    Handler.fail_every = arguments.fail_every
    ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
