"""What the tests of the measuring programs share."""
import socket
import sys


def check(condition, text):
    if not condition:
        sys.exit("FAILED: " + text)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])
