"""A tiny model behind the OpenAI chat protocol, for tests.

    python tests/openai_server.py MODEL LOG      prints the port that it listens on

LOG gets one JSON line per request: its messages and the answer. Decoding is greedy, so the same
request always has the same answer.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MOST_TOKENS = 24


class Server(HTTPServer):
    """Handles one request at a time, because there is one model."""

    def __init__(self, folder: str, log: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.words = AutoTokenizer.from_pretrained(folder)
        self.log = log

    def answer(self, request: dict[str, Any]) -> str:
        prompt = self.words.apply_chat_template(
            request["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        longest = (
            min(request["max_tokens"], MOST_TOKENS) if "max_tokens" in request else MOST_TOKENS
        )
        with torch.inference_mode():
            tokens = self.model.generate(
                **prompt, max_new_tokens=longest, min_new_tokens=8, do_sample=False
            )
        text = self.words.decode(
            tokens[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True
        )
        with self.log.open("a") as file:
            file.write(json.dumps({"asked": request, "answer": text}) + "\n")
        return text


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        if self.path != "/v1/chat/completions":
            self._send(404, {"error": {"message": f"no {self.path} here"}})
            return
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = self.server.answer(request)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "length",
        }
        self._send(
            200, {"object": "chat.completion", "model": request["model"], "choices": [choice]}
        )

    def _send(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log."""


if __name__ == "__main__":
    torch.set_num_threads(1)
    server = Server(sys.argv[1], Path(sys.argv[2]))
    print(server.server_port, flush=True)
    server.serve_forever()
