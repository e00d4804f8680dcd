#!/usr/bin/env python3
"""`moesim serve` under attack: whatever is sent, the server goes on, tells nothing of this machine's files, and its page
answers the next honest question."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from common import JOB, Hostile

KB = 1 << 10
QUESTION = json.dumps(JOB).encode()


class Server:
    def __init__(self, h, *words):
        self.h = h
        self.child = h.start(["serve", "--port", "0", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        line = self.child.stdout.readline().decode()
        self.port = int(line.split("http://")[1].split("/")[0].rsplit(":", 1)[1])
        self.host = f"127.0.0.1:{self.port}"

    def connect(self, timeout=30):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def raw(self, data, timeout=30):
        """Returns the reply to some bytes, to the end of the connection."""
        with self.connect(timeout) as s:
            try:
                s.sendall(data)
            except OSError:
                pass
            return rest_of(s)

    def request(self, method="POST", path="/answer", body=QUESTION, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        head = {"Host": self.host, "Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        if method in ("GET", "HEAD"):
            head = {"Host": self.host, **headers}
            body = b""
        text = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items() if v is not None)
        out = self.raw(text.encode("latin-1") + b"\r\n" + body)
        head, _, content = out.partition(b"\r\n\r\n")
        status = int(head.split()[1]) if head.startswith(b"HTTP/1.1 ") else 0
        return status, head.decode("latin-1"), content

    def answers(self):
        status, _, body = self.request()
        return status == 200 and json.loads(body)["schema"] == "moesim.compare/1"

    def seconds_to_an_answer(self):
        begin = time.monotonic()
        while not self.answers() and time.monotonic() - begin < 30:
            time.sleep(0.2)
        return time.monotonic() - begin

    def end(self, how=signal.SIGTERM):
        begin = time.monotonic()
        self.child.send_signal(how)
        code = self.child.wait(30)
        return code, time.monotonic() - begin


def rest_of(connection):
    """What comes up to its end."""
    out = b""
    try:
        while got := connection.recv(1 << 16):
            out += got
    except OSError:
        pass
    return out


def forks_of(pid):
    """Processes below one."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) == pid:
                        found += [int(name), *forks_of(int(name))]
            except (OSError, ValueError):
                pass
    return found


def without_a_page(h):
    """Why this moesim has no page to serve (there was no npm where it was built); empty where it has one."""
    asked = h.start(["serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if asked.stdout.readline():
        asked.kill()
    said = asked.communicate()[1].decode()
    return said if "could not be bundled" in said else ""


with Hostile("serving") as h:
    if why := without_a_page(h):
        print(f"serving: SKIPPED: {why}", end="")
        sys.exit(77)
    s = Server(h)

    def refused(what, reply, *statuses):
        status, head, body = reply
        h.holds(f"{what}: {status} {head[:80]!r} {body[:200]!r}", status in statuses)
        if body and statuses != (200,):
            h.holds(f"{what}: says why", set(json.loads(body)) == {"error"})

    # An honest question, and what every reply carries.
    status, head, body = s.request()
    h.holds(f"an answer: {status}", status == 200 and json.loads(body)["winner"]["dispatcher"])
    status, head, body = s.request("HEAD", "/")
    h.holds(f"HEAD: {status}", status == 200 and body == b"" and "Content-Length: 0" not in head)
    status, head, body = s.request()
    for name in ("Content-Security-Policy: default-src 'none'", "X-Content-Type-Options: nosniff", "X-Frame-Options: DENY",
                 "Cache-Control: no-store", "Cross-Origin-Resource-Policy: same-origin"):
        h.holds(f"{name} in a reply", name in head)
    h.holds("no CORS", "access-control" not in head.lower())
    status, head, page = s.request("GET", "/")
    h.holds("the page", status == 200 and page.startswith(b"<!doctype html>") and "script-src 'sha256-" in head)
    h.holds("the page lets no other script run", "unsafe-inline" not in head.split("script-src")[1].split(";")[0])

    # Files of this machine.
    secret = "a-secret-of-this-machine-4711"
    h.write("secret.json", json.dumps({"model": "mixtral-8x7b", "secret": secret}))
    h.write("model.json", json.dumps({"hidden_size": 1024, "secret": secret}))
    texts = set()
    for path in ("/etc/passwd", h.path("secret.json"), h.path("model.json"), h.path("no-such-file.json"), h.folder, "/proc/self/environ",
                 "./secret.json", "secret.json", "../../../../etc/passwd", "file:///etc/passwd", "/dev/stdin", "/proc/self/fd/0"):
        for scenario in ({**JOB, "model": path}, {**JOB, "cluster": path}, {**JOB, "routing": path}, {**JOB, "faults": path},
                         {**JOB, "cluster": {"profile": path, "nodes": 1, "gpus_per_node": 8}},
                         {**JOB, "cluster": {"base": path}}, {**JOB, "cluster": {"base": "dgx-h100x1", "network": path}},
                         {**JOB, "cluster": {"base": "dgx-h100x1", "fabric": path}}, {**JOB, "placement": path}):
            for where in ("/answer", "/report"):
                status, _, body = s.request(path=where, body=json.dumps(scenario).encode())
                # Calibrated timing has no use for a fabric of its own, and does not look for its file.
                unused = isinstance(scenario["cluster"], dict) and "fabric" in scenario["cluster"]
                h.holds(f"a file: {scenario}: {status} {body[:200]!r}", status == 400 or (unused and status == 200))
                h.holds(f"a file is not told: {scenario}: {body[:300]!r}", secret.encode() not in body and b"root:" not in body)
                texts.add(body.replace(path.encode(), b"PATH"))
    # Existing and missing files give the same text.
    for key in ("model", "cluster", "routing"):
        there, not_there = (s.request(body=json.dumps({**JOB, key: h.path(name)}).encode())[2].replace(name.encode(), b"NAME")
                            for name in ("secret.json", "no-such.json"))
        h.holds(f"{key}: a file that is there is told from one that is not: {there!r} {not_there!r}", there == not_there)
    for body in (b'"/etc/passwd"', b"/etc/passwd", b"--scenario=/etc/passwd", b'["--report", "x"]', b"-h", b"", b"\0", b"null", b"1",
                 b'{"scenario": "/etc/passwd"}', b'{"report": "x.html"}'):
        refused(f"no scenario: {body!r}", s.request(body=body), 400)
    refused("a crossover of a file", s.request(path="/crossover", body=json.dumps({"scenario": "/etc/passwd", "crossover": "topk=1..2"}).encode()), 400)
    refused("an option in a crossover", s.request(path="/crossover", body=json.dumps(
        {"scenario": JOB, "crossover": "topk=1..2", "between": "--report=x"}).encode()), 400)
    for plan in ({"scenario": "/etc/passwd", "tokens": "1T"}, {"scenario": {"model": "mixtral-8x7b"}, "tokens": "1T", "clusters": "/etc/passwd"},
                 {"scenario": {"model": "mixtral-8x7b"}, "tokens": "1T", "prices": "/etc/passwd"},
                 {"scenario": {"model": "mixtral-8x7b"}, "tokens": "1T --report=x"}, {"scenario": {"model": "mixtral-8x7b"}, "tokens": ["1T"]},
                 {"scenario": {"model": "mixtral-8x7b"}, "tokens": "1T", "most": 10**9}, {"scenario": {"model": "mixtral-8x7b"}, "tokens": "-1T"}):
        status, _, body = s.request(path="/plan", body=json.dumps(plan).encode())
        h.holds(f"a plan {plan}: {status} {body[:200]!r}", status == 400 and b"root:" not in body)
    h.holds("nothing was written", sorted(os.listdir(h.folder)) == ["model.json", "secret.json"])
    for path in ("/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/index.html", "/answer"):
        refused(f"GET {path}", s.request("GET", path), 404)
    refused("another path", s.request(path="/answer/../answer2"), 404)

    # Hosts and origins of requests.
    for host in ("evil.example", f"evil.example:{s.port}", "localhost", "127.0.0.1:1", f"127.0.0.1.evil.example:{s.port}", "",
                 f"localhost:{s.port}@evil.example", f"2130706433:{s.port}", f"127.0.0.1:{s.port}, evil.example"):
        refused(f"Host {host!r}", s.request("GET", "/", Host=host), 400, 403)
    refused("no Host", s.request("GET", "/", Host=None), 400)
    refused("localhost", s.request(Host=f"localhost:{s.port}"), 200)
    refused("its own origin", s.request(Origin=f"http://{s.host}"), 200)
    for origin in ("http://evil.example", "null", f"https://{s.host}", f"http://{s.host}.evil.example"):
        refused(f"Origin {origin}", s.request(Origin=origin), 403)
    refused("another site's page", s.request(Sec_Fetch_Site="cross-site"), 403)
    refused("a form's type", s.request(Content_Type="text/plain"), 415)
    refused("a form", s.request(Content_Type="multipart/form-data; boundary=x"), 415)
    refused("a preflight", s.request("OPTIONS"), 405)

    # Requests that are none.
    for data in (b"\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"G" * 20 * KB, b"GET /" + b"a" * 20 * KB,
                 b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 500 + b"\r\n\r\n", b"GET http://evil/ HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: " + s.host.encode() + b"\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
                 b"GET / HTTP/1.1\r\nHost: " + s.host.encode() + b"\r\nA : b\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: " + s.host.encode() + b"\r\nA: b\x01\r\n\r\n",
                 b"GET / HTTP/1.1\nHost: " + s.host.encode() + b"\n\n"):
        out = s.raw(data, 10)
        h.holds(f"garbage {data[:40]!r}: {out[:60]!r}", out == b"" or b" 4" in out[:13])
    for _ in range(h.count(500)):
        data = bytes(h.random.randrange(256) for _ in range(h.random.randrange(1, 400))) + b"\r\n\r\n"
        out = s.raw(data, 10)
        h.holds(f"garbage {data!r}: {out[:60]!r}", out == b"" or b" 4" in out[:13])
    refused("a long path", s.request("GET", "/" + "a" * 2000), 414)
    for name, value in (("Range", "bytes=" + "0-0," * 2000 + "0-0"), ("Transfer-Encoding", "chunked"), ("Content-Encoding", "gzip"),
                        ("Expect", "100-continue"), ("Upgrade", "h2c")):
        refused(f"{name}", s.request(**{name: value}), 400)
    for length in ("-1", "x", "1e3", "+5", " ", "18446744073709551617"):
        refused(f"a length of {length}", s.request(Content_Length=length), 400, 413)
    refused("no length", s.request(Content_Length=None), 411)
    refused("two lengths", s.request(content_length="5"), 400)
    refused("two types", s.request(content_type="text/plain"), 415)

    # Bodies that ask for much.
    refused("a large body", s.request(body=b'{"model": "' + b"x" * (300 * KB) + b'"}'), 413)
    refused("a body said to be huge", s.request(Content_Length=str(1 << 40)), 413)
    refused("depth", s.request(body=b"[" * (200 * KB)), 400)
    refused("many values", s.request(body=b'{"placement": [' + b"0," * (100 * KB) + b"0]}"), 400)
    refused("a repeated key", s.request(body=b'{"model": "olmoe", "model": "olmoe"}'), 400)
    for text in ("\x1b[31m", "</script><script>alert(1)</script>", "\ud800", "' OR 1=1 --", "$(touch x)", "%n%n%n", "olmoe\0"):
        body = json.dumps({**JOB, "model": text}).encode()
        refused(f"the model {text!r}", s.request(body=body), 400)
    refused("bytes that are no text", s.request(body=b'{"model": "\xff\xfe"}'), 400)
    for size in ({"seq": 1 << 62}, {"ep": 1 << 40}, {"microbatches": 1 << 30}, {"dp": 1 << 40}, {"seq": -1}, {"seq": 1e400}, {"pp": 10**30}):
        refused(f"sizes {size}", s.request(body=json.dumps({**JOB, "scope": "step", "parallel": size}).encode().replace(b"Infinity", b"1e400")), 400)
    for key in ("measure_next", "leave_out_illegal"):
        for value in (1, "true", [], {}):
            refused(f"{key}: {value!r}", s.request(body=json.dumps({**JOB, key: value}).encode()), 400)
    one_rank = {**JOB, "parallel": {"ep": 1}, "dispatcher": "allgather,flex-deepep", "draws": 1}
    refused("a dispatcher that cannot run", s.request(body=json.dumps(one_rank).encode()), 400)
    status, _, body = s.request(body=json.dumps({**one_rank, "leave_out_illegal": True}).encode())
    h.holds(f"it is left out: {status} {body[:200]!r}", status == 200 and [one["dispatcher"] for one in json.loads(body)["excluded"]] == ["flex-deepep"])
    refused("draws", s.request(body=json.dumps({**JOB, "draws": 10**9}).encode()), 400)
    begin = time.monotonic()
    huge = {"model": "deepseek-v3", "cluster": "dgx-h100x512", "dispatcher": "all", "parallel": {"ep": 64, "seq": 1 << 17, "micro_batch": 4},
            "routing": "dirichlet:0.1", "draws": 256}
    status, _, body = s.request(path="/crossover", body=json.dumps({"scenario": {k: v for k, v in huge.items() if k != "draws"},
                                                                    "crossover": "parallel.seq=1..60000", "draws": 256}).encode())
    h.holds(f"a question without an end: {status} after {time.monotonic() - begin:.1f} s, {body[:200]!r}",
            (status == 504 and b"more than 10 s" in body) or h.options.sanitized)
    h.holds("an answer takes at most its time", time.monotonic() - begin < 20)
    endless = {"scenario": {"model": "deepseek-v3"}, "tokens": "1000T", "clusters": "h100,h200,b200,gb200,a100", "most": 800}
    status, _, body = s.request(path="/plan", body=json.dumps(endless).encode())
    h.holds(f"plans without an end: {status} {body[:200]!r}", status in (200, 400, 504) or h.options.sanitized)
    time.sleep(0.5)
    left = [pid for pid in forks_of(s.child.pid)]
    h.holds(f"a process that took too long is gone: {left}", len(left) == 1)
    h.holds("it goes on answering", s.answers())

    # Slow senders: more of them than are served at a time.
    slow = []
    for _ in range(80):
        c = s.connect()
        c.sendall(b"POST /answer HTTP/1.1\r\nHost: ")
        slow.append(c)
    stop = threading.Event()

    def drip():
        while not stop.wait(0.5):
            for c in slow:
                try:
                    c.sendall(b"a")
                except OSError:
                    pass

    dripping = threading.Thread(target=drip)
    dripping.start()
    waited = s.seconds_to_an_answer()
    stop.set()
    dripping.join()
    h.holds(f"slow senders are not waited for: {waited:.1f} s", waited < 15)
    for c in slow:
        c.close()
    c = s.connect()
    c.sendall(b"POST /answer HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{" % s.host.encode())
    begin = time.monotonic()
    rest_of(c)
    h.holds("a body that never comes is not waited for", time.monotonic() - begin < 15)
    c.close()

    # A thousand connections.
    many = []
    begin = time.monotonic()
    for _ in range(1000):
        try:
            many.append(s.connect(5))
        except OSError:
            break
    h.holds(f"{len(many)} connections", len(many) > 500)
    told = 0
    for c in many:
        c.setblocking(False)
        try:
            told += b" 503 " in c.recv(200)
        except OSError:
            pass
    h.holds(f"{told} of {len(many)} are told to come again", told > 100)
    for c in many:
        c.close()
    waited = s.seconds_to_an_answer()
    h.holds(f"after them it answers: {waited:.1f} s", waited < 15)

    # Honest questions at the same time: each gets its answer, or is told that the others come first.
    with ThreadPoolExecutor(24) as pool:
        found = list(pool.map(lambda _: s.request()[0], range(24)))
    h.holds(f"24 at a time: {found}", len(found) == 24 and set(found) <= {200, 503} and 200 in found)

    # A process that answers, killed.
    forker = [pid for pid in forks_of(s.child.pid)][0]
    h.holds("it answers still", s.answers())
    os.kill(forker, signal.SIGKILL)
    time.sleep(0.2)
    refused("with its forks dead it says so", s.request(), 500)
    code, seconds = s.end()
    h.holds(f"SIGTERM ends it: {code} after {seconds:.1f} s", code == 0 and seconds < 8)

    # Ends cleanly during a request, and leaves no process behind.
    for how in (signal.SIGINT, signal.SIGTERM):
        s = Server(h)
        c = s.connect()
        c.sendall(b"POST /answer HTTP/1.1\r\n")
        idle = s.connect()
        h.holds("it answers", s.answers())
        below = forks_of(s.child.pid)
        code, seconds = s.end(how)
        h.holds(f"{how.name} ends it: {code} after {seconds:.1f} s", code == 0 and seconds < 5)
        time.sleep(0.3)
        h.holds("no process is left", not any(os.path.exists(f"/proc/{pid}") for pid in below))
        try:
            s.connect(1).close()
            h.fail(f"{how.name}: a process still listens")
        except OSError:
            pass

    # In the middle of an answer that takes many seconds.
    s = Server(h, "--seconds", "120")
    long = {"model": "deepseek-v3", "cluster": "dgx-h100", "scope": "step", "dispatcher": "all", "draws": 256,
            "parallel": {"ep": 64, "pp": 16, "microbatches": 60}}
    found = []
    asking = threading.Thread(target=lambda: found.append(s.request(body=json.dumps(long).encode())[0]))
    asking.start()
    time.sleep(1)
    h.holds("it is still answering", asking.is_alive())
    code, seconds = s.end()
    asking.join()
    h.holds(f"SIGTERM in an answer: {code} after {seconds:.1f} s, {found}", code == 0 and seconds < 2 and found[0] in (0, 503))

    # Addresses that only this machine reaches cause no warning.
    for address, open_to_others in (("::1", False), ("localhost", False), ("127.0.0.2", False), ("0.0.0.0", True)):
        child = h.start(["serve", "--port", "0", "--listen", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        child.stdout.readline()
        child.send_signal(signal.SIGTERM)
        err = child.communicate(timeout=60)[1]
        h.holds(f"--listen {address}: {err!r}", child.returncode == 0 and (b"everybody" in err) == open_to_others)

    for _ in range(5):
        code, seconds = Server(h).end()
        h.holds(f"asked to end before it accepts: {code} after {seconds:.1f} s", code == 0 and seconds < 5)

    # A machine that starts no more threads or processes: fewer answer, or none and one line says so.
    def as_nobody(processes):
        def limit():
            resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
            os.setgid(65533)
            os.setuid(65533)
        return limit

    def runs_as_nobody():
        try:
            return subprocess.run([h.moesim, "--version"], preexec_fn=as_nobody(100), stdout=subprocess.DEVNULL, check=False).returncode == 0
        except (OSError, subprocess.SubprocessError):
            return False

    if os.geteuid() == 0 and runs_as_nobody():
        for processes in (1, 2, 3, 5, 20, 64):
            child = subprocess.Popen([h.moesim, "serve", "--port", "0"], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     preexec_fn=as_nobody(processes))
            line = child.stdout.readline()
            if line:
                child.send_signal(signal.SIGTERM)
            err = child.communicate(timeout=60)[1]
            h.holds(f"{processes} processes: {child.returncode} {err!r}",
                    child.returncode == 0 if line else child.returncode == 2 and err.count(b"\n") == 1)

    # Two on one port; a port of others; an address that is none.
    s = Server(h)
    for words in (["--port", str(s.port)], ["--listen", "203.0.113.7"], ["--listen", "no.such.name.invalid"], ["--port", "65536"]):
        result = h.run(["serve", *words])
        h.holds(f"{words}: {result.code} {result.err!r}", result.refused())
    s.end()

    # With leave to read files.
    h.write("mine.json", {"slow_gpus": [{"gpu": 0, "factor": 2}]})
    s = Server(h, "--allow-files")
    status, _, body = s.request(body=json.dumps({**JOB, "faults": h.path("mine.json")}).encode())
    h.holds(f"--allow-files: {status} {body[:200]!r}", status == 200)
    s.end()
