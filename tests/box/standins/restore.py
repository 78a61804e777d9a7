"""The boot's download alone, as a program of its own: `bench-boot` times it against the AWS CLI.

restore.py ENDPOINT TARGET BYTES sha256|unchecked DIGEST ...      fetches blobs/sha256-<digest> into TARGET
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "assets" / "bootstrap"))

import download
import s3


class Keys:
    """Stands in for metadata: a key from the environment."""

    def get(self, path: str) -> str:
        """A role, then its credentials."""
        if path.endswith("/"):
            return "bench"
        key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        return json.dumps(
            {"AccessKeyId": key, "SecretAccessKey": secret, "Token": "", "Expiration": "2099-01-01T00:00:00Z"}
        )


if __name__ == "__main__":
    endpoint, target, size, check, *digests = sys.argv[1:]
    os.environ["AWS_ENDPOINT_URL"] = endpoint
    wanted = [
        download.Item(
            f"blobs/sha256-{digest}", Path(target, digest), int(size), sha256=digest if check == "sha256" else ""
        )
        for digest in digests
    ]
    download.download(s3.Bucket("bench", "us-east-1", Keys()), wanted)  # type: ignore[arg-type]
