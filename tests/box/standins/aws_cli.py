"""The real AWS CLI, imported once a box and forked for every call: from nothing it costs 0.8 s of a core, so a fifth.

    aws_cli.py serve SOCKET      in the system's own Python, which has the CLI
    aws_cli.py call SOCKET ...   what the box calls as `aws`

Debian's CLI is older than AWS_ENDPOINT_URL, which today's reads by itself: `call` passes it on as `--endpoint-url`.
"""

import array
import json
import os
import signal
import socket
import sys

SERVICES = ("autoscaling", "cloudwatch", "ec2", "elbv2", "logs", "s3")


def serve(path: str) -> None:
    """Fork for every call; the child answers with its exit status."""
    from awscli.clidriver import create_clidriver

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    driver = create_clidriver()
    for service in SERVICES:
        driver.session.get_service_model(service)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(64)
    while True:
        connection, _ = server.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, control, _, _ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(8))
        for target, descriptor in zip((1, 2), array.array("i", control[0][2]), strict=True):
            os.dup2(descriptor, target)
        asked = json.loads(message)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir("/")
        status = driver.main(asked["words"])
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(b"%d" % status)
        os._exit(0)


def call(path: str, words: list[str]) -> int:
    """One call; its exit status."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    message = {"words": ["--endpoint-url", endpoint, *words], "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))]
        connection.sendmsg([json.dumps(message).encode()], descriptors)
        return int(connection.recv(8) or b"255")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    sys.exit(call(sys.argv[2], sys.argv[3:]))
