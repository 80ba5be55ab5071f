# SPDX-License-Identifier: Apache-2.0
"""A small inference server that speaks OpenAI's API: what it answers follows from what it is asked alone, so that two runs
of one batch can be compared. Faults and held calls as in fake_api.py.

POST /v1/chat/completions  says the last message again
POST /v1/completions       says the prompt again
POST /v1/embeddings        a vector out of the bytes of the input
POST /v1/responses, /v1/rerank  likewise
GET  /v1/models            one model

/_control takes {"latency_ms": N} too: how long each answer takes, and {"forget": true}: as if nothing had been asked yet. /_state has "answered": how often each text was
answered, {"most": the most calls that were there at once}."""
import hashlib
import json
import threading
import time
from collections import Counter

from fake_api import Answer, Double, options, run


def words(text):
    return len(text.split())


class Inference(Double):
    def __init__(self, token="", latency_ms=0):
        super().__init__()
        self.token, self.latency_ms = token, latency_ms
        self.answered = Counter()
        self.now = self.most = 0
        self.counting = threading.Lock()

    def state(self):
        return {"answered": self.answered, "most": self.most}

    def control(self, order):
        if "latency_ms" in order:
            self.latency_ms = order.pop("latency_ms")
        if order.pop("forget", False):
            self.requests.clear()
            self.answered.clear()
            self.most = self.now

    def answer(self, call, fault):
        with self.counting:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            if self.latency_ms:
                time.sleep(self.latency_ms / 1000)  # the pace of the model
            return super().answer(call, fault)
        finally:
            with self.counting:
                self.now -= 1

    def handle(self, call):
        if self.token and call.headers.get("Authorization") != "Bearer " + self.token:
            raise Answer(401, {"error": {"message": f"Incorrect API key: {call.headers.get('Authorization')}",
                                         "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}})
        if call.path == "/v1/models":
            return Answer(200, {"object": "list", "data": [{"id": "echo", "object": "model", "created": 0, "owned_by": "tests"}]})
        body = call.json()
        if call.method != "POST" or not isinstance(body, dict):
            return None
        if not isinstance(body.get("model"), str):
            raise Answer(400, {"error": {"message": "no model", "type": "invalid_request_error", "param": "model", "code": None}})
        made = {"/v1/chat/completions": self.chat, "/v1/completions": self.complete, "/v1/embeddings": self.embed,
                "/v1/responses": self.respond, "/v1/rerank": self.rerank}.get(call.path)
        return made and made(body)

    def said(self, text):
        self.answered[text] += 1
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def chat(self, body):
        text = body["messages"][-1].get("content") or ""
        text = text if isinstance(text, str) else json.dumps(text)
        return Answer(200, {
            "id": "chatcmpl-" + self.said(text), "object": "chat.completion", "created": 0, "model": body["model"],
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": words(text), "completion_tokens": words(text), "total_tokens": 2 * words(text),
                      "prompt_tokens_details": {"cached_tokens": 1}, "completion_tokens_details": {"reasoning_tokens": 0}}})

    def complete(self, body):
        text = str(body["prompt"])
        return Answer(200, {
            "id": "cmpl-" + self.said(text), "object": "text_completion", "created": 0, "model": body["model"],
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": words(text), "completion_tokens": words(text), "total_tokens": 2 * words(text)}})

    def embed(self, body):
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        data = [{"object": "embedding", "index": i, "embedding": [b / 255 for b in hashlib.sha256(str(t).encode()).digest()[:8]]}
                for i, t in enumerate(texts)]
        self.said(str(texts[0]))
        n = sum(words(str(t)) for t in texts)
        return Answer(200, {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": n, "total_tokens": n}})

    def respond(self, body):
        text = str(body["input"])
        return Answer(200, {
            "id": "resp_" + self.said(text), "object": "response", "created_at": 0, "model": body["model"], "status": "completed",
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
            "usage": {"input_tokens": words(text), "output_tokens": words(text), "total_tokens": 2 * words(text)}})

    def rerank(self, body):
        self.said(str(body["query"]))
        return Answer(200, {"model": body["model"], "results": [{"index": i, "relevance_score": 1 / (i + 1)}
                                                                for i in range(len(body["documents"]))]})


def main():
    parser = options(__doc__)
    parser.add_argument("--token", default="")
    parser.add_argument("--latency-ms", type=int, default=0)
    args = parser.parse_args()
    run(Inference(args.token, args.latency_ms), args)


if __name__ == "__main__":
    main()
