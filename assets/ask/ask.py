"""Runs on the box, by Run Command: puts one prompt to the box's own engine, prints the answer as JSON. Python 3.9."""

import base64
import json
import sys
import time
import urllib.request
from pathlib import Path

MOST_TOKENS = 64  # a sign of life, not a conversation
PATIENCE_SECONDS = 240  # the engine takes one request at a time: ours may queue

box = json.loads(Path("/etc/fleet/box.json").read_text())
question = {
    "model": box["model"],
    "prompt": base64.b64decode(sys.argv[1]).decode(),
    "stream": False,
    "options": {"num_predict": MOST_TOKENS},
}
engine = "http://127.0.0.1:{}/api/generate".format(box["port"])
began = time.monotonic()
with urllib.request.urlopen(engine, data=json.dumps(question).encode(), timeout=PATIENCE_SECONDS) as response:
    answer = json.load(response)["response"]
sys.stdout.write(json.dumps({"model": box["model"], "answer": answer, "seconds": round(time.monotonic() - began, 2)}))
