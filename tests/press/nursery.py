"""Kernels that are born with their libraries.

To start a kernel and import torch, pandas and the like takes five seconds, for every
chapter the same ones. ``nursery.py serve SOCKET`` imports them once, and forks.
``nursery.py SOCKET ARGUMENTS`` stands for ``python -m ipykernel_launcher ARGUMENTS``:
it ends when that kernel does, and if it is killed, so is the kernel. What KERNEL_FIRST
names is run first in it.
"""

import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys

# Of other people, and nothing that asks at its import whether it is in a kernel.
LIBRARIES = [
    *("ipykernel.ipkernel", "ipykernel.kernelapp", "IPython"),
    *("numpy", "pandas", "scipy.optimize", "scipy.stats", "torch"),
    *("matplotlib.axes", "matplotlib.figure", "sklearn.datasets", "sklearn.metrics"),
]


def serve(address):
    """Import the libraries; then start a kernel for each who asks."""
    for name in LIBRARIES:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print("ready", flush=True)
        while True:
            client, _ = server.accept()
            if os.fork() == 0:
                server.close()
                watch(client)
            client.close()


def watch(client):
    """Start the kernel of a client, and see both to their end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
    kernel = os.fork()
    if kernel == 0:
        client.close()
        be_kernel(json.loads(request), streams)
    for stream in streams:
        os.close(stream)
    ready, _, _ = select.select([client, os.pidfd_open(kernel)], [], [])
    if client in ready:
        os.kill(kernel, signal.SIGKILL)
    _, status = os.waitpid(kernel, 0)
    if client not in ready:
        client.send(bytes([os.waitstatus_to_exitcode(status) % 256]))
    os._exit(0)


def be_kernel(request, streams):
    """Turn this process into the kernel."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if first := os.environ.get("KERNEL_FIRST"):
        runpy.run_path(first, run_name="kernel")
    sys.argv = ["ipykernel_launcher", *request["arguments"]]
    runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
    sys.exit()


def ask(address, arguments):
    """Ask for a kernel; end as it does."""
    folder, environment = os.getcwd(), dict(os.environ)  # noqa: PTH109
    request = {
        "folder": folder,
        "environment": environment,
        "arguments": arguments,
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
        status = server.recv(1)
    sys.exit(status[0] if status else 1)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ask(sys.argv[1], sys.argv[2:])
