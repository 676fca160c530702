"""Execute one notebook in this Python, as Jupyter does; print a summary as JSON.

Run by ``test_clean_runtime.py`` with the Python of a fresh environment, so it takes
nothing but what Jupyter itself needs: ``python run_notebook.py chapter.ipynb``.
"""

import json
import sys
import time

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def main(path):
    """Execute the notebook in the current folder."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, kernel_name="python3", timeout=600)
    started = time.perf_counter()
    error = ""
    try:
        client.execute()
    except CellExecutionError as raised:
        error = str(raised)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    install = [
        output
        for cell in notebook.cells
        if "install" in cell.metadata.get("tags", [])
        for output in cell.outputs
    ]
    summary = {
        "error": error,
        "seconds": round(time.perf_counter() - started, 1),
        "install": "".join(output.get("text", "") for output in install),
        "stderr": "".join(
            output.text for output in outputs if output.get("name") == "stderr"
        ),
        "pictures": sum("image/png" in output.get("data", {}) for output in outputs),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main(sys.argv[1])
