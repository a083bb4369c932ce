#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes the example's notebook and checks the output of its cells.

With HPVMD_PICTURES=FOLDER the test leaves the pictures there for inspection."""

import base64
import io
import os
import pathlib
import unittest
import xml.etree.ElementTree

import matplotlib.image
import nbformat
from nbclient import NotebookClient

import support


class Notebook(support.WithServer):
    def test_edges(self):
        path = support.ROOT / "examples/notebook/edges.ipynb"
        notebook = nbformat.read(path, as_version=4)
        self.assertTrue(all(not cell.get("outputs") for cell in notebook.cells), "The notebook is kept without outputs.")
        os.environ.update(HPVM_SERVER=self.server, PYTHONPATH=str(support.PACKAGE))
        NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}).execute()
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        shown = [{kind: data for output in cell.outputs for kind, data in output.get("data", {}).items()} for cell in code]
        self.assertIn("cpu:0", shown[0]["text/plain"])
        drawing = shown[1]["image/svg+xml"]
        texts = [element.text for element in xml.etree.ElementTree.fromstring(drawing).iter() if element.text]
        for node in ("smooth", "laplacian", "zero_crossings", "gradient", "max_gradient", "reject"):
            self.assertIn(node, texts)
        self.assertEqual(shown[2]["text/html"].count("<tr>"), 1 + 6)
        plot = base64.b64decode(shown[3]["image/png"])
        pixels = matplotlib.image.imread(io.BytesIO(plot))
        height, width = pixels.shape[:2]
        right = pixels[height // 6:, width // 2 + width // 20:width - width // 20, 0]
        bright = float((right > 0.5).mean())
        self.assertTrue(0.004 < bright < 0.2, bright)  # Only lines on black.
        if "HPVMD_PICTURES" in os.environ:
            folder = pathlib.Path(os.environ["HPVMD_PICTURES"])
            (folder / "graph.svg").write_text(drawing)
            (folder / "edges.png").write_bytes(plot)


if __name__ == "__main__":
    support.main()
