"""Serve a fit over HTTP, and measure the answers under load.

    python examples/serve.py [--port 8000] [--clients 8] [--seconds 10] [--steps 1000] [--smoke]

Fits a table, exports a program, starts the server, and lets clients ask for one row at a time. The
server, `Service`, needs JAX and NumPy alone. With `--clients 0` it serves until Ctrl-C:

    curl -d '{"x": [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]}' localhost:8000
"""

import argparse
import http.client
import json
import queue
import tempfile
import threading
import time
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jax.export
import numpy as np
from sklearn.datasets import load_diabetes

import dgp_ppl as dgp
from dgp_ppl.sklearn import DeepGPRegressor

LEVELS = [0.05, 0.5, 0.95]


class Service:
    """An exported program; rows that wait at the same time share a call."""

    def __init__(self, path: str) -> None:
        with zipfile.ZipFile(path) as file:
            self.shape = json.loads(file.read("dgp_ppl.json"))["inputs"][0]["shape"]
            program = jax.export.deserialize(bytearray(file.read("program")))
        self.call: Any = jax.jit(program.call)
        self.waiting: queue.Queue[tuple[np.ndarray, Future[Any]]] = queue.Queue()
        threading.Thread(target=self.work, daemon=True).start()
        self([[0.0] * self.shape[1]])  # compiles

    def __call__(self, rows: Any) -> list[dict[str, Any]]:
        x, answers = np.asarray(rows, "float32"), [Future() for _ in rows]
        for item in zip(x.reshape(len(answers), self.shape[1]), answers, strict=True):
            self.waiting.put(item)
        return [answer.result() for answer in answers]

    def work(self) -> None:
        while True:
            taken = [self.waiting.get()]
            while len(taken) < self.shape[0] and not self.waiting.empty():
                taken.append(self.waiting.get())
            found = jax.device_get(self.call(np.resize([x for x, _ in taken], self.shape)))
            for i, (_, answer) in enumerate(taken):
                answer.set_result({name: a[i].tolist() for name, a in found.items()})


def server(service: Service, port: int) -> ThreadingHTTPServer:
    """Return a server that answers {"x": rows} by predictions, or by what is wrong with them."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize = "HTTP/1.1", -1  # connections stay open; one packet an answer

        def do_POST(self) -> None:
            try:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = 200, {"rows": service(json.loads(body)["x"])}
            except (KeyError, TypeError, ValueError) as error:
                status, answer = 400, {"error": str(error)}
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return ThreadingHTTPServer(("localhost", port), Handler)


def ask(port: int, seconds: float) -> list[float]:
    """Ask for a row again and again; return the seconds of each answer."""
    connection = http.client.HTTPConnection("localhost", port)
    body, times, end = json.dumps({"x": [[0.01] * 10]}), [], time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        connection.request("POST", "/", body)
        answer = json.load(connection.getresponse())
        assert len(answer["rows"][0]["quantiles"]) == len(LEVELS), answer
        times.append(time.perf_counter() - begin)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    numbers = {"port": 0, "clients": 8, "seconds": 10.0, "steps": 1000}  # port 0: a free one
    for name, number in numbers.items():
        parser.add_argument(f"--{name}", type=type(number), default=number)
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    seconds, steps = (0.5, 5) if args.smoke else (args.seconds, args.steps)
    x, y = load_diabetes(return_X_y=True)
    model = DeepGPRegressor(steps=steps, inducing=50).fit(x, y)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/diabetes.jaxprogram"
        dgp.export(path, model.prediction(x[:1]), quantiles=LEVELS)
        service = Service(path)
    with server(service, args.port) as found:
        port, num = found.server_address[1], args.clients
        print(f"serving on http://localhost:{port}")
        if not num:
            found.serve_forever()
        threading.Thread(target=found.serve_forever, daemon=True).start()
        with ThreadPoolExecutor(num) as pool:
            times = np.concatenate(list(pool.map(ask, [port] * num, [seconds] * num)))
        found.shutdown()
    median, late = 1e3 * np.quantile(times, [0.5, 0.99])
    print(f"{num} clients: {len(times) / seconds:.0f} answers a second, half of them within")
    print(f"{median:.1f} ms, 99 % within {late:.1f} ms")


if __name__ == "__main__":
    main()
