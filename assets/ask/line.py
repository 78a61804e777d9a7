"""Runs on the box, by Run Command: the lane's line as JSON, or the end of one request in it. Python 3.9."""

import sys
import urllib.error
import urllib.request

PATIENCE_SECONDS = 10

url = f"http://127.0.0.1:{sys.argv[1]}/line"
asked = urllib.request.Request(url + "/" + sys.argv[2], method="DELETE") if len(sys.argv) > 2 else url
try:
    with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as response:
        said = response.read()
except urllib.error.HTTPError as error:  # no such request: the lane's own word
    said = error.read()
sys.stdout.write(said.decode())
